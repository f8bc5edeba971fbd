package recovery_test

import (
	"bytes"
	"fmt"
	"testing"

	"txnode/memory"
	"txnode/memory/record"
	"txnode/occ"
	"txnode/occ/recovery"
	"txnode/rdma"
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

// TestBlockOfCommitted: a session that rejoins does not take back the block of an insert that
// was found to be committed: somebody has deleted the record since, and has the block now.
func TestBlockOfCommitted(t *testing.T) {
	for _, s := range settings() {
		t.Run(s.String(), func(t *testing.T) {
			taken := 0
			for k := 0; ; k++ {
				w := newWorld(t, s, occ.Options{})
				victim, tx := w.session()
				w.sure(victim, tx, put("before", "1"))
				id := victim.Coordinator()
				w.arm(k)
				err := w.do(tx, put("key", "1"))
				if stopped := w.disarm(); !stopped {
					break
				}
				if err == nil && victim.Broken() == nil {
					victim.Break(rdma.ErrVerb)
				}
				w.decideUntil(id, -1)
				other, otx := w.session()
				if got := w.values(other, otx, "key"); got[0] != "" {
					w.sure(other, otx, del("key"))
					_, err := other.MakeRoom(other.Thread().Plain())
					must(t, err)
					taken++
				}
				must(t, victim.Rejoin(victim.Thread().Plain()))
				w.check(fmt.Sprintf("stopped after %d verbs", k))
			}
			if taken == 0 {
				t.Error("no insert was found to be committed")
			}
		})
	}
}

// TestLeftBlockIsSomebodys: the block that a record has left, and somebody else has got
// since, whose first image has reached a backup and not the primary, is not freed again by
// the recovery of who had moved the record.
func TestLeftBlockIsSomebodys(t *testing.T) {
	for _, s := range settings() {
		if s.backups == 0 {
			continue
		}
		t.Run(s.String(), func(t *testing.T) {
			w := newWorld(t, s, occ.Options{})
			ours, own := w.session()
			w.sure(ours, own, put("b", "1"))
			victim, tx := w.session()
			w.sure(victim, tx, put("a", "1"))
			at := func() (at memory.Addr) {
				w.blocks(w.ctl.Plain(), func(a memory.Addr, line record.Image) {
					if string(line.Key()) == "a" {
						at = a
					}
				})
				return at
			}
			left := at()
			w.sure(victim, tx, put("a", long))
			own.Coro().Sleep(100_000) // until the old block is free
			if at() == left {
				t.Fatal("the record has not moved")
			}
			v := w.space.View()
			b := v.At(left, v.Copies(left)-1)
			line := w.f.Memory(b.Blade)[b.Off:][:record.LineSize]
			if img := record.Image(line); img.Meta().State() != record.Free {
				t.Fatalf("the block is %v", img.Meta().State())
			}
			mine := record.MakeTxID(ours.Coordinator(), 1000)
			record.Image(line).Put(left, mine, record.Live, record.Image(line).Meta().Table(), record.Image(line).Meta().Class(), mine, []byte("other"), nil)
			want := bytes.Clone(line)
			_, err := recovery.Recover(w.ctl.Plain(), w.eng.Recovery(), victim.Coordinator())
			must(t, err)
			if !bytes.Equal(line, want) {
				t.Errorf("the copy was %x\nand is %x", want, line)
			}
		})
	}
}
