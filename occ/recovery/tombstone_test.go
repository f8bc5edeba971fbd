package recovery_test

import (
	"errors"
	"fmt"
	"testing"

	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/occ"
	"txnode/occ/recovery"
	"txnode/rdma"
)

// TestUnlinkedInVain: a sweep that reclaims the deleted record of a dead client fails, from any of
// its changes on, at all but those to the lock. Who knows the block from before does not write the
// key into it when no slot leads there any more: the insert is found by everybody.
func TestUnlinkedInVain(t *testing.T) {
	for _, s := range replicated(t) {
		for _, own := range []bool{false, true} { // the sweep is in a session's name
			for k, over := 0, false; !over; k++ {
				w := newWorld(t, s, occ.Options{ReclaimAfter: 100})
				ours, tx := w.session()
				victim, its := w.session()
				w.sure(victim, its, put("a", "1"))
				w.values(ours, tx, "a")
				w.sure(victim, its, del("a"))
				its.Coro().Sleep(10_000)
				w.decideUntil(victim.Coordinator(), -1)
				o := w.eng.Recovery()
				other, _ := w.session()
				th := w.ctl
				if own {
					o, th = other.Recovery(), other.Thread()
				}
				primary, n := w.copiesOf("a")[0].Blade, 0
				w.stop = stop{pick: func(wr *rdma.WR) bool { // the lock can be given back
					if wr.Op != rdma.OpRead {
						n++
					}
					return n > k && (wr.Blade != primary || wr.Op == rdma.OpWrite)
				}}
				_, err := recovery.Sweep(th.Plain(), o)
				if over = !w.disarm(); over {
					must(t, err)
				}
				must(t, recovery.Reconnect(th.Plain(), w.space))
				if own && !over { // as a worker does
					other.Break(err)
					must(t, other.Rejoin(th.Plain()))
				}
				w.sure(ours, tx, put("a", "2"))
				tx.Coro().Sleep(10_000)
				fresh, another := w.session()
				if got := w.values(fresh, another, "a"); got[0] != "2" {
					t.Fatalf("%v, own %v, from verb %d on: the value is %q", s, own, k, got[0])
				}
				w.sweep() // the block may be free, and locked still
				w.check(s.String())
			}
		}
	}
}

// TestUnlinkedWithoutLock: who reclaims a deleted record, a sweep that of a dead client or a
// session one of its own, is stopped, and the blade is lost on which he had the lock. Who knows the
// block from before does not write the key into it if no slot leads there any more: the insert is
// found by everybody.
func TestUnlinkedWithoutLock(t *testing.T) {
	for _, s := range replicated(t) {
		for _, own := range []bool{false, true} { // the session's own
			for k, over := 0, false; !over; k++ {
				w := newWorldOn(t, 4, s, occ.Options{ReclaimAfter: 100}, 64<<10)
				ours, tx := w.session()
				victim, its := w.session()
				w.sure(victim, its, put("a", "1"))
				w.values(ours, tx, "a")
				w.sure(victim, its, del("a"))
				its.Coro().Sleep(10_000)
				primary := w.copiesOf("a")[0].Blade
				if !own {
					w.decideUntil(victim.Coordinator(), -1)
				}
				w.armChanges(k)
				var err error
				if own {
					_, err = victim.MakeRoom(victim.Thread().Plain())
				} else {
					_, err = recovery.Sweep(w.ctl.Plain(), w.eng.Recovery())
				}
				if over = !w.disarm(); over {
					must(t, err)
				}
				w.loseBlade(primary)
				w.sure(ours, tx, put("a", "2"))
				tx.Coro().Sleep(10_000)
				w.copiesOf("a") // a slot leads there
				if got := w.values(ours, tx, "a"); got[0] != "2" {
					t.Errorf("%v, own %v, stopped at change %d: the value is %q", s, own, k, got[0])
				}
				w.sweep()
				w.check(fmt.Sprintf("%v, own %v, stopped at change %d", s, own, k))
			}
		}
	}
}

// TestUnlinkedRemembered: as TestUnlinkedWithoutLock, and an address cache has the block, whatever
// was done to make it forgotten: who has read it before says so afterwards. Nobody writes or reads
// that block when no slot leads there any more.
func TestUnlinkedRemembered(t *testing.T) {
	for _, s := range replicated(t) {
		for _, key := range []string{"a", "of eight"} {
			for k, over := 0, false; !over; k++ {
				for _, anew := range []bool{false, true} { // somebody has inserted the key again, in another block
					w := newWorldOn(t, 4, s, occ.Options{ReclaimAfter: 100}, 64<<10)
					victim, its := w.session()
					w.sure(victim, its, put(key, "1"))
					aside := w.eng
					w.eng = occ.NewEngine(w.space, occ.Options{
						ReclaimAfter: 100, Policy: s.policy, CacheBytes: 64 << 10, Damaged: w.damaged,
					})
					ours, tx := w.session()
					w.values(ours, tx, key)
					w.sure(victim, its, del(key))
					its.Coro().Sleep(10_000)
					primary := w.copiesOf(key)[0].Blade
					w.armChanges(k)
					_, err := victim.MakeRoom(victim.Thread().Plain())
					if over = !w.disarm(); over {
						must(t, err)
					}
					w.loseBlade(primary)
					what := fmt.Sprintf("%v, key %q, stopped at change %d, inserted anew %v", s, key, k, anew)
					if anew {
						w.eng = aside
						w.sure(victim, its, put(key, "2"))
						its.Coro().Sleep(10_000)
					} else {
						w.sure(ours, tx, put(key, "2"))
						tx.Coro().Sleep(10_000)
					}
					w.copiesOf(key) // a slot leads there
					fresh, another := w.session()
					if got := w.values(fresh, another, key); got[0] != "2" {
						t.Errorf("%s: the value is %q", what, got[0])
					}
					if got := w.values(ours, tx, key); got[0] != "2" {
						t.Errorf("%s: who remembers the block reads %q", what, got[0])
					}
					w.sweep()
					w.check(what)
				}
			}
		}
	}
}

// TestMakeRoomOfDead: a session that is short of space, and does not know yet that it was
// declared dead, takes the deleted records of all others upon itself, of which some are in a
// segment that has come since. It reclaims them when it has rejoined.
func TestMakeRoomOfDead(t *testing.T) {
	for _, s := range settings(t) {
		t.Run(s.String(), func(t *testing.T) {
			w := newWorld(t, s, occ.Options{ReclaimAfter: 100})
			ours, own := w.session()
			late, tx := w.session()
			w.sure(ours, own, put("a", "1"))
			w.sure(late, tx, put("b", "1"))
			w.decideUntil(late.Coordinator(), -1)
			before := w.space.View().Segments()
			w.sure(ours, own, put("long", long))
			if w.space.View().Segments() == before {
				t.Fatal("there is no new segment")
			}
			w.sure(ours, own, del("long"))
			own.Coro().Sleep(10_000) // until its lock is released
			if n, err := late.MakeRoom(tx.Coro()); n != 0 || !errors.Is(err, occ.ErrBroken) {
				t.Errorf("a dead one has reclaimed %d blocks: %v", n, err)
			}
			w.sure(late, tx, put("b", "2")) // it rejoins
			w.sweep()                       // which leaves the deleted records of those who live to them
			_, err := late.MakeRoom(tx.Coro())
			must(t, err)
			w.blocks(w.ctl.Plain(), func(a layout.Addr, line record.Image) {
				if string(line.Key()) == "long" {
					t.Errorf("block %v is a deleted record still, and nobody has it on his list", a)
				}
			})
			w.check("reclaimed")
		})
	}
}
