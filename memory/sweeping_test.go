package memory_test

import (
	"testing"

	"txnode/memory"
	"txnode/memory/layout"
)

// TestBeginSweep: one process sweeps for all, and which one that is the catalog says. The others
// wait for it, and sweep what they owe afterwards.
func TestBeginSweep(t *testing.T) {
	const term = 100
	b := newSharedBed(t, 2, 8, 1)
	p, _ := b.join(term)
	q, _ := b.join(term)
	clock := b.fabric.clock
	all := []*memory.Space{p, q}
	// is demands what processes are to sweep, and which one has the right.
	is := func(what string, holder *memory.Space, want ...memory.Sweeping) {
		t.Helper()
		for i, s := range all {
			check(t, s.Follow())
			if got := s.BeginSweep(*clock); got != want[i] {
				t.Errorf("%s: process %d is to sweep %d, and not %d", what, s.Process(), got, want[i])
			}
		}
		number := uint32(0)
		if holder != nil {
			number = holder.Process()
		}
		if l := must(layout.LoadLayout(b.cat))(t); l.Holder(layout.RightSweep) != number ||
			holder != nil && !l.Unswept {
			t.Errorf("%s: process %d has the right, and not %d; unswept %v",
				what, l.Holder(layout.RightSweep), number, l.Unswept)
		}
	}
	swept := func(s *memory.Space) {
		t.Helper()
		generation, due := s.Unswept()
		if !due {
			t.Error("nothing is due")
		}
		check(t, s.Swept(generation))
	}
	const nothing, own, everything = memory.SweepNothing, memory.SweepOwn, memory.SweepAll
	is("in the beginning", nil, nothing, nothing)

	id := must(q.NewCoordinator())(t).ID
	check(t, p.Follow())
	die(t, p, id)
	is("one has recovered the other one's", p, everything, nothing)
	if _, due := q.Unswept(); !due || q.OwesSweep() {
		t.Error("what another process sweeps is not due, or is owed")
	}
	check(t, p.Renew(*clock+term))
	is("the holder has renewed its registration", p, everything, nothing)
	swept(p)
	is("swept", nil, nothing, own)
	if !q.OwesSweep() || p.OwesSweep() {
		t.Error("the owner does not owe a sweep, or the other one does")
	}
	claim := must(p.Claim(memory.ClaimOptions{}, must(p.NewCoordinator())(t).ID))(t)
	is("a coordinator is being recovered", nil, nothing, nothing)
	check(t, claim.Forget())
	is("recovered", p, everything, nothing)
	swept(p)
	generation, _ := q.Unswept()
	q.SweptOwn(generation - 1)
	is("it has swept too early", nil, nothing, own)
	generation, _ = q.Unswept()
	q.SweptOwn(generation)
	is("it has swept its own", nil, nothing, nothing)

	q.OweSweep(true)
	is("it has failed", nil, nothing, everything)
	swept(q)
	is("and swept", nil, nothing, nothing)

	q.OweSweep(true)
	die(t, p, must(p.NewCoordinator())(t).ID)
	is("it has failed before the other one sweeps", p, everything, everything)
	swept(p)
	is("that one has come to its end", nil, nothing, everything)
	if !q.HalfDone(*clock) {
		t.Error("what it has left in indexes is taken for done, as the other sweep is over")
	}
	generation, _ = q.Unswept()
	q.SweptIndexes(generation)
	swept(q)
	if is("it has swept, too", nil, nothing, nothing); q.HalfDone(*clock) {
		t.Error("indexes are taken to be half-changed")
	}

	// The holder does not come to an end, though it lives.
	die(t, p, must(p.NewCoordinator())(t).ID)
	*clock += 10
	is("waiting", p, everything, nothing)
	for range 16 {
		*clock += term / 2
		check(t, p.Renew(*clock+term))
		check(t, q.Renew(*clock+term))
		is("waiting on", p, everything, nothing)
	}
	*clock++
	for _, s := range all { // the holder asks first
		check(t, s.Follow())
		s.BeginSweep(*clock)
	}
	is("it has waited for long", q, nothing, everything)
	swept(p) // it has come to its end all the same
	is("both have swept", nil, nothing, nothing)

	// The holder dies.
	die(t, p, must(p.NewCoordinator())(t).ID)
	check(t, q.Listen())
	*clock += term/2 + 1
	check(t, q.Renew(*clock+term))
	*clock += term / 2
	if n := must(q.TakeOver(*clock))(t); n != 1 {
		t.Fatalf("%d registrations have ended", n)
	}
	all = all[1:]
	is("the holder is gone", q, everything)
	check(t, q.Renew(*clock+term))
	check(t, p.Renew(*clock+term)) // it registers anew
	all = []*memory.Space{p, q}
	is("the one that was late", q, nothing, everything)
	swept(q)
	is("it owes what it has freed", nil, own, nothing)
	generation, _ = p.Unswept()
	p.SweptOwn(generation)

	// The holder closes the database, and no process has the right.
	die(t, p, must(p.NewCoordinator())(t).ID)
	check(t, q.Follow())
	check(t, p.Close(b.thread().Plain()))
	if l := must(layout.LoadLayout(b.cat))(t); l.Holder(layout.RightSweep) != 0 || !l.Unswept {
		t.Errorf("closed: process %d has the right, unswept %v", l.Holder(layout.RightSweep), l.Unswept)
	}
	all = all[1:]
	b.cat.fail = true
	if got := q.BeginSweep(*clock); got != nothing {
		t.Errorf("the catalog fails, and %d is to be swept", got)
	}
	b.cat.fail = false
	is("taken", q, everything)
	swept(q)
	is("in the end", nil, nothing)
}

// TestJoinedWhileHollow: a process joins while slots may lead to free blocks, and another one
// sweeps. Afterwards the first one adopts a segment that has no owner, and uses what is free there.
func TestJoinedWhileHollow(t *testing.T) {
	const k = 20
	b := newSharedBed(t, 3, 4, 1)
	s, c := b.join(0)
	freeing := newProcess(t, b, s, c, k)
	gone, gc := b.join(0)
	dead := newProcess(t, b, gone, gc, k)
	taken := map[layout.Addr]bool{}
	dead.insert(t, k, 1<<20, taken)
	n := 0
	check(t, s.Follow())
	for _, a := range dead.has {
		if !has(gone.View(), a, 2) {
			delete(taken, a)
			freeing.free(a)
			n++
		}
	}
	check(t, gone.CloseCoordinatorOn(gc, dead.id))
	check(t, dead.a.Close(gc))
	check(t, gone.Close(gc))
	check(t, s.CloseCoordinatorOn(c, freeing.id))
	check(t, freeing.a.Close(c))
	check(t, s.Follow())
	check(t, s.AdvanceEpoch(func(l *layout.Layout) error { l.TakeDown(2); return nil }))
	must(s.TakeOver(2))(t)
	late, lc := b.join(0)
	check(t, s.Follow())
	generation, due := s.Unswept()
	if !due || !late.Dangling() {
		t.Fatal("nothing is to be swept after a loss")
	}
	check(t, s.Swept(generation))
	check(t, late.Follow())
	p := newProcess(t, b, late, lc, k)
	p.insert(t, k, 1, taken)
	if len(p.has) != 1 {
		t.Fatalf("no block was found of %d that are free", n)
	}
}

// has reports whether a copy of a block is on a blade.
func has(v *layout.View, a layout.Addr, blade int) bool {
	for i := range v.Copies(a) {
		if int(v.At(a, i).Blade) == blade {
			return true
		}
	}
	return false
}
