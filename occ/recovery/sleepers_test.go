package recovery_test

import (
	"errors"
	"fmt"
	"testing"

	"txnode/index"
	"txnode/index/race"
	"txnode/memory"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/occ/recovery"
	"txnode/rdma"
)

// napping is the space of a process that is stopped before one of the verbs of what it does to an
// index.
type napping struct {
	race.Space
	left  int           // verbs before that
	sleep func()        // nil: it has slept
	took  []layout.Addr // extents
}

func (n *napping) ViewOn(t *rdma.Thread) *layout.View {
	if fn := n.sleep; fn != nil && n.left == 0 {
		n.sleep = nil
		fn()
	}
	n.left--
	return n.Space.ViewOn(t)
}

func (n *napping) NewExtent(c *rdma.Coro, size uint32) (memory.Extent, error) {
	x, err := n.Space.NewExtent(c, size)
	if err == nil {
		n.took = append(n.took, x.Addr)
	}
	return x, err
}

// open is Options.Open for the table of a world, over such a space.
func (n *napping) open(o recovery.Options, root layout.Addr) recovery.OpenIndex {
	return func(c *rdma.Coro, _ race.Space, table uint16) (index.Finder, error) {
		ix, err := race.Open(c, n, root, table)
		if err != nil {
			return nil, err
		}
		ix.SetOwner(uint64(o.By))
		ix.SetStall(20_000_000)
		ix.SetVacant(recovery.Vacant(o.Space))
		ix.SetSpoilt(recovery.Spoilt(o.Space))
		return ix, nil
	}
}

const registrationTerm = 1_000_000_000

// outlast has the processes renew their registrations until those of others have expired,
// which one of them ends.
func outlast(t *testing.T, c *rdma.Coro, by *world, others ...*world) {
	t.Helper()
	for range 4 {
		c.Sleep(registrationTerm/2 + 1)
		renewed(t, append(others, by)...)
	}
	n, err := by.space.TakeOver(by.f.Now())
	must(t, err)
	if n != 1 {
		t.Fatalf("%d registrations were ended", n)
	}
	must(t, recovery.Reconnect(c, by.space))
}

func renewed(t *testing.T, all ...*world) {
	t.Helper()
	for _, w := range all {
		must(t, w.space.Renew(w.f.Now()+registrationTerm))
	}
}

// sweepAll does all that a process is to sweep.
func (w *world) sweepAll(c *rdma.Coro) {
	w.t.Helper()
	var s *recovery.Sweeper
	for range 4 {
		if !w.maintain(c, &s, 1<<20) {
			return
		}
	}
}

// TestSleepingHolder: the process that has the right to recover an index is stopped between two
// verbs until another process has ended its registration, has recovered the index, and the index
// was used. It goes on when it has the keys of the new epoch: its verbs fail, in the name of the
// process as in that of a session which is alive. It registers anew, and the index is sound.
func TestSleepingHolder(t *testing.T) {
	for _, bySession := range []bool{false, true} {
		for at := 0; ; at += byRun(17, 2, 61) {
			if what := fmt.Sprintf("by a session %v, stopped before verb %d", bySession, at); !repairAsleep(t,
				what, bySession, at) {
				break
			}
		}
	}
}

// repairAsleep reports whether the process has come as far as to be stopped.
func repairAsleep(t *testing.T, what string, bySession bool, at int) bool {
	all := expiring(t, registrationTerm)
	p, q, owner := all[0], all[1], all[2]
	dead := owner.halfSplit()
	o := p.eng.Recovery()
	o.Steal = true
	_, err := recovery.Recover(p.newThread().Plain(), o, dead)
	must(t, err)
	renewed(t, all...)
	for _, w := range all {
		must(t, w.space.Follow())
	}
	pc, qc := p.newThread().Plain(), q.newThread().Plain()
	o = p.eng.Recovery()
	if bySession {
		se, _ := p.session()
		pc, o = se.Thread().Plain(), se.Recovery()
	}
	want, entitled := map[string]string{}, false
	n := &napping{Space: p.space, left: at, sleep: func() {
		entitled = p.space.HasRight(uint32(p.table.ID))
		outlast(t, qc, q, owner)
		q.sweepAll(qc)
		se, tx := q.session()
		for i := range 400 { // what was there goes, and its blocks are used again
			q.sure(se, tx, del(fmt.Sprint("key", i)))
		}
		for i := range 400 {
			key := fmt.Sprint("new", i)
			q.sure(se, tx, put(key, "y"))
			want[key] = "y"
		}
		must(t, se.Close())
		must(t, p.space.Follow()) // as its watcher does
		if at%2 == 1 {
			renewed(t, p) // as its maintenance does, on another thread
		}
	}}
	o.Open = n.open(o, p.space.Layout().Tables[0].Root)
	must(t, recovery.Reconnect(pc, p.space))
	err = recovery.SweepIndexes(pc, o)
	if n.sleep != nil {
		must(t, err)
		return false
	}
	if (entitled || !bySession) && !errors.Is(err, rdma.ErrStaleKey) { // a session may take the right later
		t.Errorf("%s: it goes on, and gets %v", what, err)
	}
	renewed(t, p)
	for _, w := range all {
		c := w.newThread().Plain()
		must(t, recovery.Reconnect(c, w.space))
		w.sweepAll(c)
	}
	se, tx := owner.session() // it has no addresses cached
	for key, v := range want {
		if got := owner.values(se, tx, key); got[0] != v {
			t.Errorf("%s: key %s has value %q, and %q was committed", what, key, got[0], v)
		}
	}
	must(t, se.Close())
	verified(t, q)
	return !t.Failed()
}

// TestSleepingCreator: a process that makes the index of a table is stopped between two verbs until
// another process has ended its registration, has adopted its segment of extents, and has used the
// places. It goes on when it has the keys of the new epoch: nothing of another table is
// overwritten, and the table has no root.
func TestSleepingCreator(t *testing.T) {
	reused := 0
	for at, slept := 0, true; slept && !t.Failed(); at++ {
		what := fmt.Sprintf("stopped before verb %d", at)
		all := expiring(t, registrationTerm)
		p, q, reader := all[0], all[1], all[2]
		pc, qc := p.newThread().Plain(), q.newThread().Plain()
		meta, err := p.space.CreateTable("late", []byte(`{"key":"bytes","value":"bytes","index":"race"}`))
		must(t, err)
		if !p.space.AcquireRight(uint32(meta.ID)) {
			t.Fatal("no right")
		}
		keys := 0
		n := &napping{Space: p.space, left: at}
		n.sleep = func() {
			outlast(t, qc, q, reader)
			se, tx := q.session()
			for range 3 {
				q.sweepAll(qc)
				_, err := recovery.FreeDeadExtents(qc, q.eng.Recovery())
				must(t, err)
				for range 700 {
					q.sure(se, tx, put(fmt.Sprint("key", keys), "y"))
					keys++
				}
			}
			must(t, se.Close())
			for _, a := range n.took {
				for _, x := range q.space.Extents() {
					if q.space.Owns(a) && x.Addr <= a && a < x.Addr+layout.Addr(x.Size) {
						reused++
					}
				}
			}
			must(t, p.space.Follow()) // as its watcher does
			renewed(t, p)             // as its maintenance does
		}
		root, _, err := race.Create(pc, n, meta.ID, race.Options{Groups: 16, Keys: 400})
		if slept = n.sleep == nil; !slept {
			must(t, err)
			break
		}
		if !errors.Is(err, rdma.ErrStaleKey) {
			t.Errorf("%s: it goes on, and gets %v", what, err)
		}
		if err := p.space.SetTableRoot(meta.ID, root); !errors.Is(err, memory.ErrTableExists) {
			t.Errorf("%s: it has lost the right to make the index, and notes a root: %v", what, err)
		}
		p.space.ReleaseRight(uint32(meta.ID))
		must(t, reader.space.Follow())
		se, tx := reader.session()
		for i := range keys {
			if got := reader.values(se, tx, fmt.Sprint("key", i)); got[0] != "y" {
				t.Fatalf("%s: a committed record of another table has value %q", what, got[0])
			}
		}
		must(t, se.Close())
		verified(t, q)
	}
	if reused == 0 {
		t.Error("no extent of the sleeper was used again")
	}
}

// TestSweepOfAnEndedNumber: others end the registration of a process between two steps of its
// sweep, and it registers anew; no verb fails. The sweep does not go on: under the number of
// before, others take the locks that it takes for nobody's. The next one, under the new
// number, comes to its end.
func TestSweepOfAnEndedNumber(t *testing.T) {
	all := expiring(t, registrationTerm)
	p, q, owner := all[0], all[1], all[2]
	_, victim := owner.session()
	owner.arm(6)
	_ = owner.do(victim, put("a", "x"))
	if !owner.disarm() {
		t.Fatal("no verb has failed")
	}
	o := p.eng.Recovery()
	o.Steal = true
	_, err := recovery.Recover(p.newThread().Plain(), o, victim.ID().Coordinator())
	must(t, err)
	renewed(t, all...)
	pc, qc := p.newThread().Plain(), q.newThread().Plain()
	s := recovery.DueSweep(pc, p.eng.Recovery())
	if s == nil {
		t.Fatal("nothing to sweep")
	}
	if done, err := s.Step(pc); done || err != nil { // the index
		t.Fatal(done, err)
	}
	generation, _ := p.space.Unswept()
	outlast(t, qc, q, owner)
	must(t, p.space.Follow())
	was := p.space.Process()
	renewed(t, p)
	if p.space.Process() == was || !s.Ended() {
		t.Errorf("it was process %d, and is %d; the sweep is over: %v", was, p.space.Process(), s.Ended())
	}
	var locks []uint64
	p.stop = stop{left: -1, pick: func(wr *rdma.WR) bool {
		if wr.Op == rdma.OpCAS {
			locks = append(locks, wr.Swap)
		}
		return false
	}}
	must(t, recovery.Reconnect(pc, p.space))
	if done, err := s.Step(pc); done || !errors.Is(err, memory.ErrEnded) || !errors.Is(err, rdma.ErrStaleKey) {
		t.Errorf("the sweep of the number before goes on: %v, %v", done, err)
	}
	if len(locks) > 0 {
		t.Errorf("it has taken locks %#x", locks)
	}
	must(t, p.space.Swept(generation)) // by what it had done before
	if l := p.space.Layout(); !l.Unswept {
		t.Error("the sweep of the number before counts as one to the end")
	}
	p.sweep()
	name := uint64(record.HeldBy(record.MakeTxID(p.space.Process(), record.MaxSequence)))
	for _, x := range locks {
		if x != name && record.Guard(x).Held() && record.Guard(x).Owner().Coordinator() == was {
			t.Errorf("a lock %#x of number %d", x, was)
		}
	}
	p.stop = stop{left: -1}
	se, tx := q.session()
	q.sure(se, tx, put("a", "y"))
	must(t, se.Close())
	whole(t, "swept anew", all)
}
