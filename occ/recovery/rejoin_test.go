package recovery_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"txnode/index"
	"txnode/memory"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/occ"
	"txnode/occ/recovery"
	"txnode/rdma"
)

// TestSomebodyElseIsFaster: of two transactions of a session the second, whose number is
// larger, commits, and the outcome of the first becomes unknown. Somebody else recovers
// the coordinator, and does not know that there was the first. The session, when it has
// rejoined, has an answer all the same.
func TestSomebodyElseIsFaster(t *testing.T) {
	unknown := 0
	for _, s := range settings(t) {
		w := newWorld(t, s, occ.Options{})
		ours, own := w.session()
		w.sure(ours, own, put("a", "1"), put("b", "1"))
		own.Coro().Sleep(10_000) // until the locks are released
		se, first := w.session()
		second, err := se.NewTx(se.Thread().Plain())
		must(t, err)
		must(t, first.Begin())
		i, err := first.Stage(w.table, []byte("a"), true)
		must(t, err)
		must(t, first.Put(i, []byte("2")))
		must(t, first.Execute())
		id := first.ID()
		must(t, w.do(second, put("b", "2")))
		w.arm(0)
		told := first.Commit()
		if !w.disarm() || told == nil {
			t.Fatalf("%v: told %v", s, told)
		}
		if errors.Is(told, occ.ErrOutcomeUnknown) {
			unknown++
		} else {
			se.Break(told)
		}
		_, err = recovery.Recover(w.ctl.Plain(), w.eng.Recovery(), se.Coordinator())
		must(t, err)
		must(t, se.Rejoin(se.Thread().Plain()))
		v, ok := w.space.Verdict(id.Coordinator())
		if o := v.Of(id.Seq()); !ok || errors.Is(told, occ.ErrOutcomeUnknown) && o != layout.OutcomeAborted {
			t.Errorf("%v: the verdict on %v is %v: %+v", s, id, o, v)
		}
		w.check(s.String())
	}
	if unknown == 0 {
		t.Error("no outcome was unknown")
	}
}

// TestLateVerbs: a session whose verb has failed in the network, where it may still be on
// its way, rejoins in a new epoch; one whose verb was refused need not.
func TestLateVerbs(t *testing.T) {
	for _, s := range settings(t) {
		for _, status := range []rdma.Status{rdma.StatusTimeout, rdma.StatusNoBlade} {
			w := newWorld(t, s, occ.Options{})
			ours, own := w.session()
			w.sure(ours, own, put("a", "1"))
			own.Coro().Sleep(10_000) // until the locks are released
			se, tx := w.session()
			was := w.space.View().Epoch
			w.stop = stop{left: 0, status: status}
			told := w.do(tx, put("a", "2"))
			w.disarm()
			if told == nil {
				t.Fatalf("%v: no verb has failed", s)
			}
			se.Break(told)
			must(t, se.Rejoin(se.Thread().Plain()))
			if moved := w.space.View().Epoch != was; moved != (status == rdma.StatusTimeout) {
				t.Errorf("%v, %v: a new epoch: %v", s, status, moved)
			}
			w.check(s.String())
		}
	}
}

// TestBackgroundKeepsTheName: a session does not become another coordinator while one of its
// coroutines does something in the name of the one that it is.
func TestBackgroundKeepsTheName(t *testing.T) {
	s := setting{occ.PolicyDefault, 0, strong}
	w := newWorld(t, s, occ.Options{})
	se, _ := w.session()
	old := se.Coordinator()
	over := false
	se.Thread().Run(2, func(c *rdma.Coro) {
		if c.ID() == 0 {
			err := se.Background(func() error {
				se.Break(errors.New("a test"))
				c.Sleep(1_000_000)
				if se.Coordinator() != old {
					t.Errorf("coordinator %d has become %d", old, se.Coordinator())
				}
				over = true
				return nil
			})
			if err != nil {
				t.Error(err)
			}
			return
		}
		for se.Broken() == nil {
			c.Sleep(1000)
		}
		if err := se.Rejoin(c); err != nil {
			t.Error(err)
		}
		if !over || se.Coordinator() == old {
			t.Errorf("rejoined as %d, from %d; Background is over: %v", se.Coordinator(), old, over)
		}
	})
	w.check("")
}

// TestOneResolves: while somebody without a coordinator resolves the lock of a placeholder
// of nobody's, another one meets it, before any of his verbs. The block comes free once.
func TestOneResolves(t *testing.T) {
	for _, s := range settings(t) {
		if s.backups > 1 {
			continue
		}
		w := newWorld(t, s, occ.Options{})
		ours, own := w.session()
		w.sure(ours, own, put("z", "1"))
		resolved := 0
		for k, over := 0, false; !over; k++ {
			victim, tx := w.session()
			must(t, tx.Begin())
			i, err := tx.Stage(w.table, []byte("a"), true)
			must(t, err)
			must(t, tx.Insert(i, []byte("1")))
			must(t, tx.Execute())
			_, err = recovery.Recover(w.ctl.Plain(), w.eng.Recovery(), victim.Coordinator())
			must(t, err)
			var orphan layout.Addr
			w.blocks(w.ctl.Plain(), func(a layout.Addr, line record.Image) {
				if line.Guard().Held() {
					orphan = a
				}
			})
			if orphan == 0 {
				t.Fatalf("%v: no lock is left", s)
			}
			n := 0
			w.stop = stop{left: -1, at: func() {
				if n++; n == k+1 {
					w.stop.at = nil
					left, err := recovery.Unlock(own.Coro(), ours.Recovery(), orphan)
					must(t, err)
					if left == recovery.UnlockedNow {
						resolved++
					}
				}
			}}
			left, err := recovery.Unlock(w.ctl.Plain(), w.eng.Recovery(), orphan)
			over = w.stop.at != nil
			w.stop = stop{left: -1}
			must(t, err)
			if left == recovery.UnlockedNot {
				t.Errorf("%v, before verb %d: the lock is still there", s, k)
			}
			spare := w.space.Spare()
			slices.Sort(spare)
			if n := len(spare); len(slices.Compact(spare)) != n {
				t.Errorf("%v, before verb %d: a block was given back twice", s, k)
			}
			w.check(s.String())
		}
		if resolved > 0 {
			t.Errorf("%v: %d times somebody else has resolved the lock in the middle", s, resolved)
		}
	}
}

// TestOneRight: while somebody recovers an index, nobody else does; what he has locked
// there is not taken over from him.
func TestOneRight(t *testing.T) {
	w := newWorld(t, setting{occ.PolicyDefault, 0, strong}, occ.Options{})
	ours, own := w.session()
	w.sure(ours, own, put("a", "1"))
	busy := 0
	for k := 0; ; k++ {
		n, met := 0, error(nil)
		w.stop = stop{left: -1, at: func() {
			if n++; n == k+1 {
				w.stop.at = nil
				met = recovery.SweepIndexes(own.Coro(), ours.Recovery())
			}
		}}
		err := recovery.SweepIndexes(w.ctl.Plain(), w.eng.Recovery())
		over := w.stop.at != nil
		w.stop = stop{left: -1}
		must(t, err)
		if over {
			break
		}
		if errors.Is(met, index.ErrBusy) {
			busy++
		} else if must(t, met); busy > 0 {
			t.Errorf("before verb %d another one has recovered the index, too", k)
		}
	}
	if busy == 0 {
		t.Error("nobody has waited for anybody")
	}
}

// TestRejoinAtEveryVerb: verbs of a session fail from one on, and then they work
// again: the session rejoins, knows what became of its transaction, and goes on.
func TestRejoinAtEveryVerb(t *testing.T) {
	for _, s := range settings(t) {
		t.Run(s.String(), func(t *testing.T) {
			for i := range canonicals {
				c := &canonicals[i]
				w := newWorld(t, s, occ.Options{})
				ours, own := w.session()
				se, tx := w.session()
				for k := 0; ; k++ {
					what := fmt.Sprintf("%s, broken after %d verbs", c.name, k)
					p := fmt.Sprintf("%d", k)
					ks, old, now := w.prepare(ours, own, c, p)
					w.arm(k)
					told := w.do(tx, c.tx(p)...)
					id := tx.ID()
					stopped := w.disarm()
					if se.Broken() == nil && told == nil { // perhaps in the background
						told = w.do(tx, get(p+"a"))
						if told == nil && stopped {
							t.Fatalf("%s: a verb has failed, and the session is not broken", what)
						}
						id = 0
						told = nil
					}
					if told != nil && se.Broken() == nil {
						se.Break(told)
					}
					must(t, se.Rejoin(se.Thread().Plain()))
					if id != 0 {
						w.judge(what, ours, own, id, told, ks, old, now)
					} else if got := w.values(ours, own, ks...); !slices.Equal(got, now) {
						t.Fatalf("%s: %q instead of %q", what, got, now)
					}
					w.sure(se, tx, c.tx(p)...)
					if got := w.values(ours, own, ks...); !slices.Equal(got, now) {
						t.Fatalf("%s: again: %q instead of %q", what, got, now)
					}
					if !stopped || t.Failed() {
						break
					}
				}
				th := w.newThread()
				_, err := recovery.Sweep(th.Plain(), w.eng.Recovery())
				must(t, err)
				must(t, th.Close())
				w.check(c.name)
			}
		})
	}
}

// TestFailedRejoinLapses: a session that rejoins fails after any number of verbs, also when it has
// become another coordinator, and does nothing more. Its process lives, and renews the leases of
// its sessions: not that of this one, so that others may recover it.
func TestFailedRejoinLapses(t *testing.T) {
	const term = int64(1_000_000)
	for _, s := range settings(t) {
		w := newWorld(t, s, occ.Options{LeaseTerm: term})
		ours, own := w.session()
		w.sure(ours, own, put("a", "1"))
		became := 0
		for k, over := 0, false; !over; k++ {
			own.Coro().Sleep(10_000) // until the locks are released
			se, tx := w.session()
			must(t, w.open(tx, put("a", "2")))
			w.arm(0)
			told := tx.Commit()
			if !w.disarm() || told == nil {
				t.Fatalf("%v: told %v", s, told)
			}
			se.Break(told)
			c, old := se.Thread().Plain(), se.Coordinator()
			w.arm(k)
			err := se.Rejoin(c)
			over = !w.disarm()
			if (err == nil) != over {
				t.Fatalf("%v: rejoining, failed after %d verbs: %v", s, k, err)
			}
			if err != nil {
				if se.Coordinator() != old {
					became++
				}
				for range 4 {
					must(t, w.eng.RenewAll(c.Thread().Now()))
					c.Sleep(term / 2)
				}
				if is := w.space.Lease(se.Coordinator(), c.Thread().Now()); is == memory.LeaseLive {
					t.Fatalf("%v: after %d verbs of rejoining coordinator %d, which was %d, is alive: %v",
						s, k, se.Coordinator(), old, se.Broken())
				}
				must(t, se.Rejoin(c))
			}
			must(t, se.Close())
			must(t, ours.Renew())
		}
		if became == 0 {
			t.Errorf("%v: none has failed as another coordinator", s)
		}
		w.check(s.String())
	}
}
