package recovery_test

import (
	"fmt"
	"testing"

	"txnode/memory"
	"txnode/memory/record"
	"txnode/occ"
	"txnode/occ/recovery"
)

// TestInsertOverReclaimed: a key was inserted by somebody who is idle since, deleted and
// reclaimed by another one, and is just being inserted again, in the same block, when the
// blade is lost that has the placeholder. What is left on the other blades looks as if the
// first insert were under way: its record is in a log, a slot leads to its block, and the
// block is free.
func TestInsertOverReclaimed(t *testing.T) {
	for _, s := range settings() {
		if s.backups == 0 {
			continue
		}
		t.Run(s.String(), func(t *testing.T) {
			w := newWorld(t, s, occ.Options{})
			_, first := w.session()
			b, second := w.session()
			for i := range 20 {
				w.sure(b, second, put(fmt.Sprint(i), "x"))
			}
			must(t, w.do(first, put("k", "old")))
			first.Coro().Sleep(10_000) // until its lock is released
			w.sure(b, second, del("k"))
			second.Coro().Sleep(10_000)
			n, err := b.MakeRoom(b.Thread().Plain())
			must(t, err)
			if n != 1 {
				t.Fatalf("%d blocks were reclaimed", n)
			}
			for i := range 40 { // its log says nothing of the delete any more
				w.sure(b, second, put(fmt.Sprint(i%20), fmt.Sprint(i)), put(fmt.Sprint((i+7)%20), "x"))
			}
			must(t, second.Begin())
			i, err := second.Stage(w.table, []byte("k"), true)
			must(t, err)
			must(t, second.Insert(i, []byte("new")))
			must(t, second.Execute())
			var at memory.Addr
			w.blocks(w.ctl.Plain(), func(a memory.Addr, line record.Image) {
				if line.Meta().State() == record.Absent && string(line.Key()) == "k" {
					at = a
				}
			})
			home := w.space.View().At(at, 0).Blade
			must(t, w.f.StopBlade(home))
			_, err = recovery.FailOver(w.ctl.Plain(), w.eng.Recovery(), w.space.Demise(home))
			must(t, err)
			_, err = recovery.Sweep(w.ctl.Plain(), w.eng.Recovery())
			must(t, err)
			third, tx := w.session()
			if got := w.values(third, tx, "k"); got[0] != "" {
				t.Errorf("deleted, and not inserted since: %q", got)
			}
			if v, ok := w.space.Verdict(first.ID().Coordinator()); !ok || v.Of(first.ID().Seq()) == memory.OutcomeAborted {
				t.Errorf("the first insert has committed, its verdict is %v", v)
			}
		})
	}
}
