package recovery_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/occ"
	"txnode/occ/recovery"
	"txnode/rdma"
	"txnode/rdma/rdmatest"
	"txnode/verify"
)

// Two losses, or one and a stop, between which something is counted on too early.

// build builds the copies that are missing, as far as that is possible: locks may be in
// the way.
func (w *world) build() {
	w.t.Helper()
	k := w.space.NewCopier()
	idle := false
	for steps := 0; !idle && steps < 500; steps++ {
		var err error
		idle, err = k.Step(w.ctl.Plain())
		must(w.t, err)
	}
}

// copiesOf is where the block of a key is.
func (w *world) copiesOf(key string) (at []rdma.RemoteAddr) {
	w.t.Helper()
	a, v := w.keyAt(key), w.space.View()
	for k := range v.Copies(a) {
		at = append(at, v.At(a, k))
	}
	return at
}

// keyAt is the address of the block to which a slot of a key leads.
func (w *world) keyAt(key string) (at layout.Addr) {
	w.t.Helper()
	w.blocks(w.ctl.Plain(), func(a layout.Addr, line record.Image) {
		if line.Meta().State() != record.Free && string(line.Key()) == key {
			at = a
		}
	})
	if at == 0 {
		w.t.Fatalf("no slot leads to a block of key %q", key)
	}
	return at
}

// blockOf is the block of a key, on its primary, and what is behind it.
func (w *world) blockOf(key string) []byte {
	w.t.Helper()
	at := w.copiesOf(key)[0]
	return w.f.Memory(at.Blade)[at.Off:]
}

// loseUndecided stops a blade. Whoever declares it dead dies before anything is decided.
func (w *world) loseUndecided(b rdma.BladeID) {
	w.t.Helper()
	must(w.t, w.f.StopBlade(b))
	w.arm(0)
	_, err := recovery.FailOver(w.newThread().Plain(), w.eng.Recovery(), w.space.DeclareDead(b))
	if !w.disarm() {
		w.t.Fatalf("who decides was to be stopped: %v", err)
	}
	must(w.t, recovery.Reconnect(w.ctl.Plain(), w.space))
}

// decide decides what was under way when a blade was lost.
func (w *world) decide() {
	w.t.Helper()
	_, err := recovery.FailOver(w.ctl.Plain(), w.eng.Recovery(), nil)
	must(w.t, err)
	w.sweep()
}

// TestWholeWhileUndecided: a blade is lost in the middle of a transaction, or behind its
// acknowledgement, and so is whoever was about to decide that. Before somebody has, no copy
// may count as whole: the next blade to be lost may be the only one with the log.
func TestWholeWhileUndecided(t *testing.T) {
	for _, s := range settings(t) {
		if s.backups != 1 {
			continue
		}
		t.Run(s.String(), func(t *testing.T) {
			for k := 0; ; k++ {
				w := newWorld(t, s, occ.Options{})
				homes, keys := map[rdma.BladeID]bool{}, []string(nil)
				shared := rdma.BladeID(2)
				for i := range 12 { // two keys with their backups on one blade, and primaries on two
					se, tx := w.session()
					key := fmt.Sprint("q", i)
					w.sure(se, tx, put(key, "old"))
					if at := w.copiesOf(key); len(keys) < 2 && at[1].Blade == shared && !homes[at[0].Blade] {
						keys, homes[at[0].Blade] = append(keys, key), true
					}
				}
				if len(keys) < 2 {
					t.Fatal("no two records have their backups together, and their primaries not")
				}
				_, victim := w.session()
				w.arm(k)
				told := w.do(victim, put(keys[0], "new"), put(keys[1], "new"))
				if !w.disarm() {
					break
				}
				w.loseUndecided(w.copiesOf(keys[0])[0].Blade)
				w.build()
				if w.space.Redundancy().Missing > 0 {
					w.decide()
					w.build()
				}
				if r := w.space.Redundancy(); r.Missing > 0 {
					t.Fatalf("copies are still missing: %+v", r)
				}
				w.loseBlade(shared)
				w.sweep()
				what := fmt.Sprintf("stopped after %d verbs (told %v)", k, told)
				w.check(what)
				v, _ := w.space.Verdict(victim.ID().Coordinator())
				want := "old"
				if now := v.Of(victim.ID().Seq()); told == nil || now == layout.OutcomeCommitted {
					want = "new"
				}
				ours, own := w.session()
				if got := w.values(ours, own, keys...); got[0] != want || got[1] != want {
					t.Errorf("%s: %q instead of %q, twice; %v", what, got, want, v)
				}
				if t.Failed() {
					break
				}
			}
		})
	}
}

// TestHalfFreedBeforeOpen: f = 2, the block of a deleted record was being made free on both
// backups, and is on one, when the primary's blade is lost, and then the process. Who opens
// the database makes it free on all copies. A block whose primary alone says that it is
// free, and that a slot leads to, is damaged, and left alone.
func TestHalfFreedBeforeOpen(t *testing.T) {
	for _, s := range settings(t) {
		if s.backups != 2 {
			continue
		}
		for _, damaged := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v, damaged: %v", s, damaged), func(t *testing.T) {
				w := newWorldOn(t, 4, s, occ.Options{}, 64<<10)
				se, tx := w.session()
				must(t, w.do(tx, put("k", "x"), put("l", "y")))
				at := w.copiesOf("k")
				must(t, w.do(tx, del("k")))
				tx.Coro().Sleep(10_000)
				w.stop = stop{left: -1, pick: func(wr *rdma.WR) bool {
					return wr.Op == rdma.OpWrite && (wr.Blade == at[0].Blade && wr.Off == at[0].Off ||
						wr.Blade == at[2].Blade && wr.Off == at[2].Off)
				}}
				_, err := se.MakeRoom(se.Thread().Plain())
				if !w.disarm() {
					t.Fatalf("who reclaims was to be stopped: %v", err)
				}
				w.loseBlade(at[0].Blade)
				o := w.eng.Recovery()
				o.Alone = true
				if damaged {
					clear(w.blockOf("l")[:record.LineSize])
				}
				r, err := recovery.Sweep(w.ctl.Plain(), o)
				must(t, err)
				if r.Freed != 1 {
					t.Errorf("%d blocks came free", r.Freed)
				}
				findings := 0
				w.examine(verify.Options{Report: func(f verify.Finding) error {
					if findings++; !damaged || f.Remedy == "" {
						t.Errorf("%v", f)
					}
					return nil
				}})
				if damaged && findings == 0 {
					t.Error("the damage is not found any more")
				}
			})
		}
	}
}

// TestHalfUndone: policy ford, f = 2. Who takes back an insert has unlinked its block, and
// freed one copy of it, when he dies, and the primary's blade is lost; and when that is
// decided, the blade of that copy.
func TestHalfUndone(t *testing.T) {
	for freed := range 2 { // copies
		w := newWorldOn(t, 4, setting{occ.PolicyFORD, 2, strong}, occ.Options{}, 64<<10)
		_, victim := w.session()
		must(t, w.do(victim, put("first", "x")))
		at := w.copiesOf("first")
		for i := range at { // of the block that comes next
			at[i].Off += record.LineSize
		}
		is := func(wr *rdma.WR, k int) bool {
			return wr.Op == rdma.OpWrite && wr.Blade == at[k].Blade && wr.Off == at[k].Off
		}
		images := 0
		w.stop = stop{left: -1, pick: func(wr *rdma.WR) bool {
			if is(wr, 0) {
				images++
			}
			return is(wr, 0) && images > 1 || is(wr, 1) && freed == 0 // after the placeholder
		}}
		told := w.do(victim, put("k", "new"))
		if !w.disarm() || told == nil {
			t.Fatalf("told %v", told)
		}
		w.stop = stop{left: -1, pick: func(wr *rdma.WR) bool {
			return w.stop.hit && wr.Blade != at[1].Blade || is(wr, 2) || is(wr, 1) && freed == 0
		}}
		o := w.eng.Recovery()
		o.Steal = true
		_, err := recovery.Recover(w.newThread().Plain(), o, victim.ID().Coordinator())
		if !w.disarm() {
			t.Fatalf("who recovers was to be stopped: %v", err)
		}
		w.loseBlade(at[0].Blade)
		w.loseBlade(at[1].Blade)
		w.sweep()
		w.check(fmt.Sprintf("%d copies free", freed))
	}
}

// TestReclaimedIsCommitted: policy ford, f = 2. A transaction has deleted a record, and its log
// still says so. The block was being made free, and is on one of the backups, when the primary's
// blade is lost. The free copy says that the transaction was committed.
func TestReclaimedIsCommitted(t *testing.T) {
	for freed := 1; freed <= 2; freed++ { // the copy that is free
		w := newWorldOn(t, 4, setting{occ.PolicyFORD, 2, strong}, occ.Options{}, 64<<10)
		loader, load := w.session()
		w.sure(loader, load, put("k", "x"))
		deleter, tx := w.session()
		w.sure(deleter, tx, del("k"))
		tx.Coro().Sleep(10_000) // until its lock is released
		at := w.copiesOf("k")
		w.stop = stop{left: -1, pick: func(wr *rdma.WR) bool {
			return wr.Op == rdma.OpWrite && (wr.Blade == at[0].Blade && wr.Off == at[0].Off ||
				wr.Blade == at[3-freed].Blade && wr.Off == at[3-freed].Off)
		}}
		_, err := deleter.MakeRoom(deleter.Thread().Plain())
		if !w.disarm() {
			t.Fatalf("the session that reclaims was to be stopped: %v", err)
		}
		w.loseBlade(at[0].Blade)
		w.sweep()
		w.check(fmt.Sprintf("copy %d is free", freed))
		if v, _ := w.space.Verdict(tx.ID().Coordinator()); v.Of(tx.ID().Seq()) == layout.OutcomeAborted {
			t.Errorf("copy %d is free: %v was acknowledged: %v", freed, tx.ID(), v)
		}
		again, own := w.session()
		if got := w.values(again, own, "k"); got[0] != "" {
			t.Errorf("copy %d is free: %q was deleted", freed, got)
		}
	}
}

// TestMovedSinceGivenUp: policy ford. A transaction that was about to move a record has come to its
// log, and given up. Another one, of the same session or of another, moves the record, and stops
// after any verb, and the blade of the old block's primary is lost with its locks. The first one
// has not committed, wherever the slot leads by now.
func TestMovedSinceGivenUp(t *testing.T) {
	large := func(c string) string { return strings.Repeat(c, 300) }
	for _, same := range []bool{true, false} {
		for _, f := range []int{1, 2} {
			switched := 0
			for k := 0; ; k++ {
				w := newWorldOn(t, f+2, setting{occ.PolicyFORD, f, strong}, occ.Options{}, 64<<10)
				w.loaded(put("k", "old"), put("seen", "x"))
				at := w.copiesOf("k")
				_, a := w.session()
				must(t, w.open(a, get("seen"), put("k", large("a"))))
				w.loaded(put("seen", "y"))
				if err := a.Commit(); !errors.Is(err, occ.ErrConflict) {
					t.Fatalf("the first commit: %v", err)
				}
				a.Coro().Sleep(10_000)
				id := a.ID()
				b := a
				if !same {
					_, b = w.session()
				}
				w.arm(k)
				told := w.do(b, put("k", large("b")))
				if !w.disarm() {
					break
				}
				w.loseBlade(at[0].Blade)
				w.sweep()
				what := fmt.Sprintf("same session %v, f = %d, stopped after %d verbs (told %v)", same, f, k, told)
				w.check(what)
				if v, _ := w.space.Verdict(id.Coordinator()); v.Of(id.Seq()) == layout.OutcomeCommitted {
					t.Errorf("%s: %v has given up: %v", what, id, v)
				}
				ours, own := w.session()
				want := "old"
				if v, _ := w.space.Verdict(b.ID().Coordinator()); told == nil ||
					v.Of(b.ID().Seq()) == layout.OutcomeCommitted {
					want = large("b")
					switched++
				}
				if got := w.values(ours, own, "k"); got[0] != want {
					t.Errorf("%s: %.8q instead of %.8q", what, got[0], want)
				}
				if t.Failed() {
					break
				}
			}
			if switched == 0 {
				t.Errorf("same session %v, f = %d: no stop was behind the decision", same, f)
			}
		}
	}
}

// TestSweepWhileUndecided: a transaction that inserts over a deleted record, whose session
// is gone, has come to one log when it stops, and its lock is lost with a blade. Who declares
// that blade dead dies, too. Whoever sweeps then leaves the deleted record alone, though
// nobody seems to have it.
func TestSweepWhileUndecided(t *testing.T) {
	for _, s := range settings(t) {
		if s.backups == 0 || s.policy != occ.PolicyDefault {
			continue
		}
		t.Run(s.String(), func(t *testing.T) {
			w := newWorld(t, s, occ.Options{})
			gone, tx := w.session()
			w.sure(gone, tx, put("k", "x"), put("l", "old"))
			w.sure(gone, tx, del("k"))
			tx.Coro().Sleep(10_000)
			at := w.copiesOf("k")
			_, err := recovery.Recover(w.ctl.Plain(), w.eng.Recovery(), gone.Coordinator())
			must(t, err)
			ours, victim := w.session()
			w.values(ours, victim, "l")
			w.stop = stop{left: -1, pick: func(wr *rdma.WR) bool {
				return wr.Op == rdma.OpWrite && (wr.Blade != at[1].Blade || wr.Len == record.LineSize)
			}}
			told := w.do(victim, put("k", "new"), put("l", "new"))
			if !w.disarm() || told == nil {
				t.Fatalf("told %v", told)
			}
			w.loseUndecided(at[0].Blade)
			w.sweep()
			w.decide()
			w.check("")
			v, _ := w.space.Verdict(victim.ID().Coordinator())
			if v.Of(victim.ID().Seq()) != layout.OutcomeCommitted {
				t.Fatalf("%v was to be committed: %v", victim.ID(), v)
			}
			again, own := w.session()
			if got := w.values(again, own, "k", "l"); got[0] != "new" || got[1] != "new" {
				t.Errorf("committed: %q", got)
			}
		})
	}
}

// TestDecidedTogether: policy ford, f = 2. A record has been written by somebody who is idle
// since, and another one, who is about to overwrite it, has come to its last copy when he
// stops, and the primary's blade is lost. Who declares that blade dead dies, too, and somebody
// asks for the first alone: his log does not tell why the copies differ.
func TestDecidedTogether(t *testing.T) {
	w := newWorldOn(t, 4, setting{occ.PolicyFORD, 2, strong}, occ.Options{}, 64<<10)
	loader, load := w.session()
	w.sure(loader, load, put("k", "before"))
	idle, first := w.session()
	w.sure(idle, first, put("k", "acknowledged"))
	first.Coro().Sleep(10_000)
	at := w.copiesOf("k")
	_, victim := w.session()
	w.stop = stop{left: -1, pick: func(wr *rdma.WR) bool {
		return wr.Op == rdma.OpWrite && (wr.Blade == at[0].Blade && wr.Off>>6 == at[0].Off>>6 ||
			wr.Blade == at[1].Blade && wr.Off>>6 == at[1].Off>>6)
	}}
	told := w.do(victim, put("k", "not written"))
	if !w.disarm() || told == nil {
		t.Fatalf("told %v", told)
	}
	w.loseUndecided(at[0].Blade)
	o := w.eng.Recovery()
	o.Steal = true
	_, err := recovery.Recover(w.ctl.Plain(), o, idle.Coordinator())
	must(t, err)
	w.decide()
	w.check("")
	if v, _ := w.space.Verdict(first.ID().Coordinator()); v.Of(first.ID().Seq()) == layout.OutcomeAborted {
		t.Errorf("%v was acknowledged: %v", first.ID(), v)
	}
	again, own := w.session()
	if got := w.values(again, own, "k"); got[0] != "acknowledged" {
		t.Errorf("%q", got)
	}
}

// TestLossWithoutCoordinators: an insert has stopped, and its coordinator is gone, when a blade
// is lost and nobody is at work. If that had its placeholder, no slot leads to the block
// behind the next sweep, when others may be given it.
func TestLossWithoutCoordinators(t *testing.T) {
	for _, s := range settings(t) {
		if s.backups == 0 {
			continue
		}
		t.Run(s.String(), func(t *testing.T) {
			step := 1
			if testing.Short() {
				step = 2
			}
			for n, stopped := 0, true; stopped; n += step {
				w := newWorld(t, s, occ.Options{})
				first, tx := w.session()
				w.sure(first, tx, put("a", "1"))
				must(t, first.Close())
				victim, dead := w.session()
				w.arm(n)
				_ = w.do(dead, put("k", "x"))
				stopped = w.disarm()
				_, err := recovery.Recover(w.ctl.Plain(), w.eng.Recovery(), victim.Coordinator())
				must(t, err)
				must(t, recovery.Reconnect(w.ctl.Plain(), w.space))
				for b := range rdma.BladeID(3) {
					held := false
					w.blocks(w.ctl.Plain(), func(a layout.Addr, line record.Image) {
						held = held || line.Guard().Held() && w.space.View().At(a, 0).Blade == b
					})
					if held {
						w.loseBlade(b)
						must(t, recovery.Reconnect(w.ctl.Plain(), w.space))
						break
					}
				}
				w.sweep()
				w.check(fmt.Sprintf("stopped behind %d verbs", n))
			}
		})
	}
}

// TestBreakWhileBuilding: copies are being built, and all has been compared, when a queue pair of a
// session breaks with one of its verbs. The session goes on, in the same epoch. What its
// transaction has come to is on the copies, too, when they count: the next blade that is lost is
// that of a primary.
func TestBreakWhileBuilding(t *testing.T) {
	for _, s := range replicated(t) {
		t.Run(s.String(), func(t *testing.T) {
			for i := range canonicals {
				step := byRun(2, 1, 5)
				for k := 0; !t.Failed() && breakWhileBuilding(t, s, &canonicals[i], k); k += step {
				}
			}
		})
	}
}

// breakWhileBuilding breaks the queue pair with verb number k, and reports whether there was one.
func breakWhileBuilding(t *testing.T, s setting, c *canonical, k int) bool {
	w := newWorldOn(t, s.backups+2, s, occ.Options{}, 64<<10)
	ours, own := w.session()
	w.sure(ours, own, put("long", long), put("longer", long+long)) // so that there are larger blocks, too
	ks, old, now := w.prepare(ours, own, c, "")
	own.Coro().Sleep(10_000)
	w.loseBlade(w.copiesOf("a")[0].Blade)
	w.sweep()
	victim, tx := w.session()
	w.values(victim, tx, ks...)
	copier := w.space.NewCopier()
	for p := copier.Progress(); p.Total == 0 || p.Done < p.Total; p = copier.Progress() {
		idle, err := copier.Step(w.ctl.Plain())
		if must(t, err); idle {
			t.Fatal("no copy is being built")
		}
	}
	n := 0
	w.stop = stop{pick: func(wr *rdma.WR) bool {
		if wr.Op != rdma.OpRead {
			n++
		}
		return n == k+1 && !w.stop.hit
	}}
	epoch := w.space.View().Epoch
	told := w.do(tx, c.tx("")...)
	tx.Coro().Sleep(10_000)
	hit := w.disarm()
	if told != nil {
		victim.Break(told)
	}
	w.sure(victim, tx, put("last", "1")) // what has failed behind the acknowledgement is noticed
	tx.Coro().Sleep(10_000)
	what := fmt.Sprintf("%s, verb %d, the epoch stays: %v, told %v", c.name, k, w.space.View().Epoch == epoch, told)
	w.sweep()
	for idle := false; !idle; {
		var err error
		idle, err = copier.Step(w.ctl.Plain())
		must(t, err)
	}
	if r := w.space.Redundancy(); r.Missing > 0 {
		t.Fatalf("%s: copies are still missing: %+v", what, r)
	}
	w.check(what)
	fresh, another := w.session()
	was := w.values(fresh, another, ks...)
	there := slices.IndexFunc(was, func(v string) bool { return v != "" })
	w.loseBlade(w.copiesOf(ks[there])[0].Blade)
	w.sweep()
	w.check(what)
	last, final := w.session()
	if got := w.values(last, final, ks...); !slices.Equal(got, was) || !slices.Equal(got, now) &&
		(told == nil || !slices.Equal(got, old)) {
		t.Errorf("%s: %.9q, and when the next blade was lost %.9q; it was %.9q, and would be %.9q",
			what, was, got, old, now)
	}
	return hit
}

// clocked is a fabric that calls now as often as a thread asks for the time.
type clocked struct {
	*rdmatest.Fabric
	now func()
}

type clockedPort struct {
	rdma.Port
	f *clocked
}

func (f *clocked) NewPort(c rdma.PortConfig) (rdma.Port, error) {
	p, err := f.Fabric.NewPort(c)
	return clockedPort{p, f}, err
}

func (p clockedPort) Now() int64 {
	p.f.now()
	return p.Port.Now()
}

// TestLossWhileClosing: the last coordinator is closed when a blade is about to be declared dead
// together with it. It is declared dead all the same.
func TestLossWhileClosing(t *testing.T) {
	w := newWorld(t, setting{occ.PolicyDefault, 1, strong}, occ.Options{})
	last, err := w.space.NewCoordinator()
	must(t, err)
	f := &clocked{w.f, func() {}}
	th, err := rdma.NewThread(f, rdma.ThreadOptions{Techniques: rdma.AllTechniques, Arena: 2 << 20})
	must(t, err)
	f.now = func() {
		if w.space.Registered(last.ID) {
			must(t, w.space.CloseCoordinatorOn(w.ctl.Plain(), last.ID))
		}
	}
	_, err = recovery.FailOver(th.Plain(), w.eng.Recovery(), w.space.DeclareDead(1))
	must(t, err)
	if w.space.View().Up(1) {
		t.Error("nobody has declared the blade dead")
	}
	w.sweep()
	w.check("")
}
