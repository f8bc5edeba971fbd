package recovery_test

import (
	"errors"
	"testing"

	"txnode/memory"
	"txnode/memory/record"
	"txnode/occ/recovery"
	"txnode/rdma"
)

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
	if done, err := s.Step(pc); done || err != nil { // some blocks
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
