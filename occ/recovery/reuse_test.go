package recovery_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"txnode/memory"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/occ"
	"txnode/occ/recovery"
	"txnode/rdma"
	"txnode/rdma/rdmatest"
)

// reinsertion is a key that was inserted by somebody who is idle since, and deleted by
// another one, who has reclaimed its block, and whose log says nothing of that any more.
type reinsertion struct {
	*world
	first  *occ.Tx // of who is idle
	se     *occ.Session
	second *occ.Tx
}

func (w *world) reinsertion() *reinsertion {
	w.t.Helper()
	_, first := w.session()
	r := &reinsertion{world: w, first: first}
	r.se, r.second = w.session()
	for i := range 20 {
		w.sure(r.se, r.second, put(fmt.Sprint(i), "x"))
	}
	must(w.t, w.do(first, put("k", "old")))
	first.Coro().Sleep(10_000) // until its lock is released
	w.sure(r.se, r.second, del("k"))
	r.second.Coro().Sleep(10_000)
	n, err := r.se.MakeRoom(r.se.Thread().Plain())
	must(w.t, err)
	if n != 1 {
		w.t.Fatalf("%d blocks were reclaimed", n)
	}
	for i := range 40 {
		w.sure(r.se, r.second, put(fmt.Sprint(i%20), fmt.Sprint(i)), put(fmt.Sprint((i+7)%20), "x"))
	}
	return r
}

// lose has the other one insert the key again, in the same block, and loses the blade that has
// the placeholder. The key is absent then.
func (r *reinsertion) lose() {
	w, t := r.world, r.t
	t.Helper()
	must(t, r.second.Begin())
	i, err := r.second.Stage(w.table, []byte("k"), true)
	must(t, err)
	must(t, r.second.Insert(i, []byte("new")))
	must(t, r.second.Execute())
	w.loseBlade(w.copiesOf("k")[0].Blade)
	w.sweep()
	third, tx := w.session()
	if got := w.values(third, tx, "k"); got[0] != "" {
		t.Errorf("deleted, and not inserted since: %q", got)
	}
	id := r.first.ID()
	if v, ok := w.space.Verdict(id.Coordinator()); !ok || v.Of(id.Seq()) == layout.OutcomeAborted {
		t.Errorf("the first insert has committed, its verdict is %v", v)
	}
}

// TestInsertOverReclaimed: a blade is lost while a key is being inserted once more. What is
// left on the other blades looks as if the first insert were under way: its record is in a
// log, a slot leads to its block, and the block is free.
func TestInsertOverReclaimed(t *testing.T) {
	for _, s := range settings(t) {
		if s.backups == 0 {
			continue
		}
		t.Run(s.String(), func(t *testing.T) { newWorld(t, s, occ.Options{}).reinsertion().lose() })
	}
}

// TestFreedWhileCopyMissing is TestInsertOverReclaimed with a primary that is a copy which
// was built when the block was free already: it must say, too, when that was.
func TestFreedWhileCopyMissing(t *testing.T) {
	for _, s := range settings(t) {
		if s.backups != 1 {
			continue
		}
		t.Run(s.String(), func(t *testing.T) {
			w := newWorldIn(t, rdmatest.Options{Blades: 3, Size: layout.HeaderArea + 3*256<<10}, s,
				occ.Options{}, 64<<10)
			a, first := w.session()
			w.sure(a, first, put("z", "x"))
			gone := w.copiesOf("z")[1].Blade
			w.loseBlade(gone)
			if r := w.space.Redundancy(); r.Missing == 0 || r.Building > 0 {
				t.Fatalf("there was to be no room for copies: %+v", r)
			}
			r := w.reinsertion()
			w.takeBack(gone)
			w.sure(r.se, r.second, put("0", "y"))
			r.lose()
		})
	}
}

// goBack has all segments go back of which nothing is in use, while sessions have logs that
// name their blocks.
func (w *world) goBack() {
	w.t.Helper()
	w.space.Withdraw(memory.Search{Full: true})
	ids, err := w.space.Depart()
	must(w.t, err)
	n, err := w.space.GiveBack(w.ctl.Plain(), ids...)
	must(w.t, err)
	if n == 0 {
		w.t.Fatal("no segment has gone back")
	}
}

// TestInsertOverReturned is TestInsertOverReclaimed of a block whose segment has gone back since:
// it lies in another one of the number, and nothing was ever there.
func TestInsertOverReturned(t *testing.T) {
	for _, s := range settings(t) {
		if s.backups == 0 {
			continue
		}
		t.Run(s.String(), func(t *testing.T) {
			w := newWorld(t, s, occ.Options{})
			old := strings.Repeat("old", 300) // of which nothing else is so large
			_, first := w.session()
			se, second := w.session()
			must(t, w.do(first, put("k", old)))
			first.Coro().Sleep(10_000) // until its lock is released
			was := w.keyAt("k")
			w.sure(se, second, del("k"))
			second.Coro().Sleep(10_000)
			_, err := se.MakeRoom(se.Thread().Plain())
			must(t, err)
			for i := range 40 { // until its log says nothing of that any more
				w.sure(se, second, put(fmt.Sprint(i%20), fmt.Sprint(i)), put(fmt.Sprint((i+7)%20), "x"))
			}
			w.goBack()
			must(t, second.Begin())
			i, err := second.Stage(w.table, []byte("k"), true)
			must(t, err)
			must(t, second.Insert(i, []byte(strings.Repeat("new", 300))))
			must(t, second.Execute())
			if now := w.keyAt("k"); now != was {
				t.Fatalf("the key was at %v, and is at %v", was, now)
			}
			w.loseBlade(w.space.View().At(was, 0).Blade)
			w.sweep()
			third, tx := w.session()
			if got := w.values(third, tx, "k"); got[0] != "" {
				t.Errorf("deleted, and not inserted since: %q", got[0][:3])
			}
			w.check("a blade was lost")
		})
	}
}

// TestNewOfReturned: a log names a new block of a segment that has gone back since. The block of
// its address in another segment was never in use: it stays free.
func TestNewOfReturned(t *testing.T) {
	for _, s := range defaultSettings(t) {
		t.Run(s.String(), func(t *testing.T) {
			p := newSplit(t, s, 1500)
			p.writeLog(p.x, p.records)
			c := p.ctl.Plain()
			for _, a := range []layout.Addr{p.leaf, p.block} { // in the log alone: nothing was written
				p.al.Hold(a)
				p.al.Free(a, p.class)
			}
			p.goBack()
			for at := layout.Addr(0); at != p.block; {
				var err error
				at, err = p.al.Alloc(c, p.class)
				must(t, err)
				if at>>layout.OffsetBits != p.block>>layout.OffsetBits {
					t.Fatalf("block %v is handed out, of another segment than %v", at, p.block)
				}
			}
			p.touched = 0
			_, err := recovery.Recover(c, p.eng.Recovery(), p.x.Coordinator())
			must(t, err)
			if p.touched > 0 {
				t.Errorf("%d WRITEs to a block that is free", p.touched)
			}
		})
	}
}

// TestBlockOfCommitted: a session that rejoins does not take back the block of an insert that
// was found to be committed: somebody has deleted the record since, and has the block now.
func TestBlockOfCommitted(t *testing.T) {
	for _, s := range settings(t) {
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
	for _, s := range settings(t) {
		if s.backups == 0 {
			continue
		}
		t.Run(s.String(), func(t *testing.T) {
			w := newWorld(t, s, occ.Options{})
			ours, own := w.session()
			w.sure(ours, own, put("b", "1"))
			victim, tx := w.session()
			w.sure(victim, tx, put("a", "1"))
			at := func() (at layout.Addr) {
				w.blocks(w.ctl.Plain(), func(a layout.Addr, line record.Image) {
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
			record.Image(line).Put(left, mine, record.Live, record.Image(line).Meta().Table(),
				record.Image(line).Meta().Class(), mine, []byte("other"), nil)
			want := bytes.Clone(line)
			_, err := recovery.Recover(w.ctl.Plain(), w.eng.Recovery(), victim.Coordinator())
			must(t, err)
			if !bytes.Equal(line, want) {
				t.Errorf("the copy was %x\nand is %x", want, line)
			}
		})
	}
}
