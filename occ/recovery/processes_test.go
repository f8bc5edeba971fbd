package recovery_test

import (
	"errors"
	"fmt"
	"testing"

	"txnode/index"
	"txnode/memory"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/occ"
	"txnode/occ/recovery"
	"txnode/rdma"
)

// What a process leaves that fails while it recovers others, and lives on: it has locks in its own
// name.

// failing has the verbs fail of a sweep of a process, from the one behind the first that is taken
// on. It reports whether there was one.
func (w *world) failing(taken func(wr *rdma.WR) bool) (hit bool) {
	w.t.Helper()
	w.stop = stop{left: -1, pick: func(wr *rdma.WR) bool {
		if hit {
			return true
		}
		hit = taken(wr)
		return false
	}}
	_, err := recovery.Sweep(w.newThread().Plain(), w.eng.Recovery())
	w.disarm()
	if !hit {
		must(w.t, err)
	}
	return hit
}

// goOn has all processes sweep some times.
func goOn(t *testing.T, what string, all []*world) {
	t.Helper()
	var last error
	for range 3 {
		last = nil
		for _, w := range all {
			must(t, w.space.Follow())
			_, err := recovery.Sweep(w.newThread().Plain(), w.eng.Recovery())
			last = errors.Join(last, err)
		}
	}
	if last != nil {
		t.Errorf("%s: sweeping fails for ever: %v", what, last)
	}
}

// TestFailingSweep: a process has taken over the lock of a dead one's block, and its verbs fail. It
// takes that up again, and no transaction waits for ever.
func TestFailingSweep(t *testing.T) {
	cases := 0
	for k := 2; k < 30; k++ {
		all := processes(t, setting{occ.PolicyDefault, 1, strong}, occ.Options{ReclaimAfter: 1}, 2, 6<<20, false)
		p := all[1] // the segments are the first one's
		_, victim := p.session()
		p.arm(k)
		_ = p.do(victim, put("a", "x"), put("b", "y"))
		if !p.disarm() {
			break
		}
		o := p.eng.Recovery()
		o.Steal = true
		_, err := recovery.Recover(p.newThread().Plain(), o, victim.ID().Coordinator())
		must(t, err)
		name := uint64(record.HeldBy(record.MakeTxID(p.space.Process(), record.MaxSequence)))
		if p.failing(func(wr *rdma.WR) bool { return wr.Op == rdma.OpCAS && wr.Swap == name }) {
			cases++
		}
		what := fmt.Sprintf("a victim that stopped after %d verbs", k)
		goOn(t, what, all)
		for _, w := range all {
			se, tx := w.session()
			w.sure(se, tx, put("a", "z"), put("b", "z"))
			must(t, se.Close())
		}
		whole(t, what, all)
	}
	if cases == 0 {
		t.Error("no sweep has taken a lock over")
	}
}

// TestFailingHolder: a process has taken over a lock of an index that a dead one was splitting, and
// its verbs fail. The next process that recovers the index breaks that lock.
func TestFailingHolder(t *testing.T) {
	cases := 0
	for n := range 12 {
		all := processes(t, setting{occ.PolicyDefault, 1, strong}, occ.Options{ReclaimAfter: 1}, 2, 24<<20, false)
		p := all[0]
		se, victim := p.session()
		locked, after := false, 0
		p.stop = stop{left: -1, pick: func(wr *rdma.WR) bool { // some verbs behind the first lock of the index
			if locked {
				after++
				return after > 3*n
			}
			locked = wr.Op == rdma.OpCAS && wr.Swap>>16 == se.Thread().Owner() && wr.Cmp == 0
			return false
		}}
		for i := 0; i < 3000 && p.do(victim, put(fmt.Sprint("key", i), "x")) == nil; i++ {
		}
		if !p.disarm() {
			t.Fatal("the index has not been split")
		}
		o := p.eng.Recovery()
		o.Steal = true
		_, err := recovery.Recover(p.newThread().Plain(), o, victim.ID().Coordinator())
		must(t, err)
		if !p.failing(func(wr *rdma.WR) bool {
			return wr.Op == rdma.OpCAS && wr.Swap>>16 == uint64(p.space.Process())
		}) {
			continue
		}
		cases++
		what := fmt.Sprintf("a victim that stopped %d verbs behind its lock", 3*n)
		goOn(t, what, []*world{all[1], all[0]})
		if t.Failed() {
			break
		}
		again, tx := p.session()
		for i := range 300 {
			p.sure(again, tx, put(fmt.Sprint("more", i), "x"))
		}
		must(t, again.Close())
	}
	if cases == 0 {
		t.Error("no lock of an index was taken over")
	}
}

// TestRightOfDead: a process dies with the right to recover an index. A recoverer that has waited
// for it ends its registration and recovers the index, but not while the registration is good.
func TestRightOfDead(t *testing.T) {
	w := processes(t, setting{occ.PolicyDefault, 1, strong}, occ.Options{}, 1, 6<<20, false)[0]
	c, l := w.newThread().Plain(), w.space.Layout()
	until := w.f.Now() + 1_000_000_000
	dead, err := memory.Open(w.newThread().Plain(), w.f, w.cat,
		memory.Options{Backups: l.Backups, SegmentSize: l.SegmentSize, LogArea: l.LogArea, Until: until})
	must(t, err)
	must(t, dead.EndAlone())
	if !dead.AcquireRight(uint32(w.table.ID)) {
		t.Fatal("no right")
	}
	if err := recovery.SweepIndexes(c, w.eng.Recovery()); !errors.Is(err, index.ErrBusy) {
		t.Errorf("the process that recovers the index is registered, and another one gets: %v", err)
	}
	must(t, dead.Follow())
	if !dead.HasRight(uint32(w.table.ID)) {
		t.Error("a process that is registered has lost its right")
	}
	c.Sleep(until + 1 - w.f.Now())
	if err := recovery.SweepIndexes(c, w.eng.Recovery()); err != nil {
		t.Errorf("the index of a dead recoverer cannot be recovered: %v", err)
	}
	if w.space.IsProcess(dead.Process()) {
		t.Error("the dead process is still registered")
	}
}

// TestOldDeleteOfAnotherProcess: a session of one process has deleted a record in a segment of
// another one, and its log still says so. The owner uses the block again for the same key, frees
// it, and uses it once more, and stops, and a blade is lost. The old delete is not finished again,
// although its process has freed more blocks than the owner.
func TestOldDeleteOfAnotherProcess(t *testing.T) {
	for _, policy := range []occ.Policy{occ.PolicyDefault, occ.PolicyFORD} {
		for k, hit := 0, true; hit; k++ {
			hit = false
			for b := range rdma.BladeID(3) {
				all := processes(t, setting{policy, 1, strong}, occ.Options{ReclaimAfter: 1}, 3, 6<<20, false)
				p, q, third := all[0], all[1], all[2]
				_, last := q.session()
				other, a := p.session()
				owner, c := q.session()
				must(t, p.space.Follow()) // so that both count from the same number on
				for i := range 8 {
					p.sure(other, a, put(fmt.Sprint("own", i), "x"))
					p.sure(other, a, del(fmt.Sprint("own", i)))
				}
				free := func(se *occ.Session, tx *occ.Tx) {
					tx.Coro().Sleep(10_000)
					_, err := se.MakeRoom(se.Thread().Plain())
					must(t, err)
					tx.Coro().Sleep(10_000)
				}
				free(other, a)
				q.sure(owner, c, put("k", "first"))
				c.Coro().Sleep(10_000)
				p.sure(other, a, del("k"))
				a.Coro().Sleep(10_000)
				q.sure(owner, c, put("k", "second"))
				q.sure(owner, c, del("k"))
				free(owner, c)
				must(t, owner.Close())
				q.arm(k)
				told := q.do(last, put("k", "third"))
				hit = q.disarm() || hit
				must(t, q.f.StopBlade(b))
				must(t, third.space.Follow())
				_, err := recovery.FailOver(third.newThread().Plain(), third.eng.Recovery(), third.space.DeclareDead(b))
				must(t, err)
				for _, w := range all {
					must(t, w.space.Follow())
					must(t, recovery.Reconnect(w.ctl.Plain(), w.space))
				}
				verdict, _ := third.space.Verdict(last.ID().Coordinator())
				want := ""
				if told == nil || verdict.Of(last.ID().Seq()) == layout.OutcomeCommitted {
					want = "third"
				}
				what := fmt.Sprintf("policy %v, stopped after %d verbs (told %v), blade %d lost", policy, k, told, b)
				se, tx := third.session()
				if got := third.values(se, tx, "k")[0]; got != want {
					t.Fatalf("%s: %q instead of %q, %v", what, got, want, verdict)
				}
				must(t, se.Close())
				whole(t, what, all)
			}
		}
	}
}

// TestPlaceholderLost: one of several processes stops in the middle of inserts, and the blade is
// lost that alone had one of their placeholders. All keys are there afterwards, or none.
func TestPlaceholderLost(t *testing.T) {
	keys, step := []string{"a", "b", "c", "d"}, 1
	if testing.Short() {
		step = 3
	}
	for _, policy := range []occ.Policy{occ.PolicyDefault, occ.PolicyFORD} {
		for k, hit := 0, true; hit; k += step {
			hit = false
			for b := range rdma.BladeID(3) {
				all := processes(t, setting{policy, 1, strong}, occ.Options{ReclaimAfter: 1}, 2, 6<<20, false)
				p, q := all[0], all[1]
				_, last := q.session()
				var ops []op
				for _, key := range keys {
					ops = append(ops, put(key, "x"))
				}
				q.arm(k)
				told := q.do(last, ops...)
				hit = q.disarm() || hit
				must(t, q.f.StopBlade(b))
				must(t, p.space.Follow())
				_, err := recovery.FailOver(p.newThread().Plain(), p.eng.Recovery(), p.space.DeclareDead(b))
				must(t, err)
				for _, w := range all {
					must(t, w.space.Follow())
					must(t, recovery.Reconnect(w.ctl.Plain(), w.space))
				}
				verdict, _ := p.space.Verdict(last.ID().Coordinator())
				want := ""
				if told == nil || verdict.Of(last.ID().Seq()) == layout.OutcomeCommitted {
					want = "x"
				}
				what := fmt.Sprintf("policy %v, stopped after %d verbs (told %v), blade %d lost", policy, k, told, b)
				se, tx := p.session()
				for i, got := range p.values(se, tx, keys...) {
					if got != want {
						t.Fatalf("%s: %s is %q instead of %q, %v", what, keys[i], got, want, verdict)
					}
				}
				must(t, se.Close())
				whole(t, what, all)
			}
		}
	}
}
