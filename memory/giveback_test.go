package memory_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"txnode/internal/raced"
	"txnode/memory"
	"txnode/memory/record"
	"txnode/rdma"
)

// fillClass allocates blocks of a class until there are as many as n segments have.
func fillClass(t *testing.T, c *rdma.Coro, a *memory.Allocator, k memory.Class, n int) (out []memory.Addr) {
	t.Helper()
	for range n * int(testSegment/k.Size()) {
		out = append(out, must(a.Alloc(c, k))(t))
		a.Used(out[len(out)-1])
	}
	return out
}

// freeAll gives blocks back that were never written.
func freeAll(a *memory.Allocator, k memory.Class, all []memory.Addr) {
	for _, x := range all {
		a.Hold(x)
		a.Free(x, k)
	}
}

// withdraw withdraws what is whole, at once.
func withdraw(t *testing.T, s *memory.Space) bool {
	t.Helper()
	_, err := s.Withdraw(memory.Search{})
	check(t, err)
	return must(s.Withdraw(memory.Search{}))(t)
}

// reclaimAll clears all places that are dirty.
func reclaimAll(t *testing.T, s *memory.Space, c *rdma.Coro) {
	t.Helper()
	for more := true; more; {
		more = must(s.Reclaim(c))(t)
	}
}

// decided claims and forgets all coordinators.
func decided(t *testing.T, s *memory.Space) {
	t.Helper()
	var ids []uint32
	for _, x := range must(s.Coordinators())(t) {
		ids = append(ids, x.ID)
	}
	check(t, must(s.Claim(memory.ClaimOptions{Steal: true}, ids...))(t).Forget())
	generation, _ := s.Unswept()
	check(t, s.Swept(generation))
}

// count is how many segments of a class there are, and how many have gone back.
func count(l *memory.Layout, k memory.Class) (n, vacant int) {
	for i := range l.Segments {
		switch g := &l.Segments[i]; {
		case g.Kind != memory.KindBlocks || g.Class != k:
		case g.Vacant:
			vacant++
		default:
			n++
		}
	}
	return n, vacant
}

// TestGiveBack: segments go back when all of their blocks are free, and not before; one is kept of a class that is in use. Their places
// serve another class, and their numbers the same one. A session that was at work must have been decided, since its log may name
// a block.
func TestGiveBack(t *testing.T) {
	for _, f := range []int{0, 1, 2} {
		b := newBed(t, 3, 9, f)
		s, c := b.open()
		a := b.allocator(s, c)
		const small, large = memory.Class(12), memory.Class(17)
		kept := must(a.Alloc(c, small))(t)
		a.Used(kept)
		all := fillClass(t, c, a, small, 6)
		segments, _ := count(s.Layout(), small)
		coord := must(s.NewCoordinator())(t)
		if withdraw(t, s) {
			t.Fatal("something is withdrawn, and every block is in use")
		}
		freeAll(a, small, all)
		if !withdraw(t, s) {
			t.Fatal("nothing is withdrawn")
		}
		if some, ripe := s.Withdrawn(); !some || ripe {
			t.Errorf("withdrawn: %v, and with a session of before at work it may go back: %v", some, ripe)
		}
		epoch := s.View().Epoch
		if n := must(s.GiveBack())(t); n > 0 || s.View().Epoch != epoch {
			t.Errorf("%d have gone back beside a session, in epoch %d after %d", n, s.View().Epoch, epoch)
		}
		decided(t, s)
		if _, _, err := s.Coordinator(coord.ID); !errors.Is(err, memory.ErrNoCoordinator) {
			t.Error(err)
		}
		must(s.NewCoordinator())(t)
		old := s.View()
		n := must(s.GiveBack())(t)
		left, vacant := count(s.Layout(), small)
		if n == 0 || n != vacant || left != segments-n || left < 2 || left > 3 {
			t.Errorf("f=%d: %d segments have gone back of %d, %d numbers are vacant, and %d are left: the one in use, one more, and that in which a session holds blocks",
				f, n, segments, vacant, left)
		}
		l := s.Layout()
		check(t, l.Validate())
		for id := range l.Segments {
			if x := memory.MakeAddr(memory.SegmentID(id), 0); l.Segments[id].Vacant {
				if s.View().Valid(x) || !s.View().Vacant(x) || s.View().Lost(x) || s.LostError(x) != nil || b.opens(old.At(x, 0).Blade, old.At(x, 0).Key) {
					t.Errorf("segment %d has gone back: valid %v, vacant %v, lost %v", id, s.View().Valid(x), s.View().Vacant(x), s.View().Lost(x))
				}
			}
		}
		if !s.View().Valid(kept) || s.Redundancy().Lost > 0 {
			t.Errorf("the block in use: %v; %+v", s.View().Valid(kept), s.Redundancy())
		}
		if got := s.Redundancy().Dirty; got != n*(f+1) {
			t.Errorf("%d places are to be cleared of %d copies", got, n*(f+1))
		}
		reclaimAll(t, s, c)
		for blade := range rdma.BladeID(3) {
			b.unused(s.Layout(), blade)
		}
		segs := len(s.Layout().Segments)
		again := fillClass(t, c, a, small, n) // with what was free still
		if l := s.Layout(); len(l.Segments) != segs {
			t.Errorf("there are %d numbers of segments, and %d before", len(l.Segments), segs)
		}
		freeAll(a, small, again)
		withdraw(t, s)
		decided(t, s)
		must(s.GiveBack())(t)
		reclaimAll(t, s, c)
		fillClass(t, c, a, large, n-1)
		check(t, s.Layout().Validate())
		check(t, a.Close(c))
		check(t, s.Close(c))
	}
}

// TestWithdrawnIsNeeded: blocks of a segment that was to go back are handed out before one is added, each once.
func TestWithdrawnIsNeeded(t *testing.T) {
	b := newBed(t, 2, 6, 1)
	s, c := b.open()
	a := b.allocator(s, c)
	const k = memory.Class(12)
	all := fillClass(t, c, a, k, 3)
	freeAll(a, k, all[:len(all)-5])
	if !withdraw(t, s) {
		t.Fatal("nothing is withdrawn")
	}
	segs := len(s.Layout().Segments)
	again := append(fillClass(t, c, a, k, 3), all[len(all)-5:]...)
	again = again[5:] // of those in use there are five more
	slices.Sort(again)
	if n := len(slices.Compact(slices.Clone(again))); n != len(again) || len(s.Layout().Segments) != segs {
		t.Errorf("%d blocks of %d are handed out, from %d segments, and %d before", n, len(again), len(s.Layout().Segments), segs)
	}
	if some, _ := s.Withdrawn(); some {
		t.Error("a segment is withdrawn, and all blocks are in use")
	}
}

// TestWithdrawBesideAllocation: an allocator hands out a block, which it does without the lock of the space, when its segment is known to be
// whole. That stays, with all of its other blocks.
func TestWithdrawBesideAllocation(t *testing.T) {
	b := newBed(t, 2, 8, 0)
	s, c := b.open()
	a := b.allocator(s, c)
	const k = memory.Class(24)
	freeAll(a, k, fillClass(t, c, a, k, 4))
	segs := len(s.Layout().Segments)
	var x memory.Addr
	whole, withdrawn := s.WithdrawBeside(k, func() {
		x = must(a.Alloc(c, k))(t)
		a.Used(x)
	})
	if s.Leaves(x) || whole < 3 || withdrawn != whole-1 {
		t.Errorf("%d segments of %d are withdrawn; that of a block in use: %v", withdrawn, whole, s.Leaves(x))
	}
	seen := map[memory.Addr]bool{x: true}
	for range 4*int(testSegment/k.Size()) - 1 { // those that are withdrawn are needed again
		y := must(a.Alloc(c, k))(t)
		if a.Used(y); seen[y] {
			t.Fatalf("%v is handed out twice", y)
		}
		seen[y] = true
	}
	if n := len(s.Layout().Segments); n != segs {
		t.Errorf("%d segments were added: blocks are lost", n-segs)
	}
}

// TestVacantNumberHasMemory: stale addresses lead to a segment that has gone back, which had memory behind it. The next one of the number has as much.
func TestVacantNumberHasMemory(t *testing.T) {
	b := newBed(t, 2, 12, 1)
	s, c := b.open()
	a := b.allocator(s, c)
	const k = memory.Class(20)
	freeAll(a, k, fillClass(t, c, a, k, 3))
	withdraw(t, s)
	decided(t, s)
	if must(s.GiveBack())(t) == 0 {
		t.Fatal("nothing goes back")
	}
	l := s.Layout()
	id := l.VacantSegment(memory.KindBlocks, k)
	had := l.Backed(id)
	for len(l.Segments) == len(s.Layout().Segments) && s.Layout().Segments[id].Vacant {
		must(a.Alloc(c, k))(t)
	}
	if now := s.Layout(); now.Segments[id].Vacant || now.Backed(id) < had || had < testSegment/2 {
		t.Errorf("%d bytes of segment %d have memory, and %d had; vacant: %v", now.Backed(id), id, had, now.Segments[id].Vacant)
	}
}

// TestRootedStays: the segment does not go back in which the root of a table is, as the catalog says, until the table is dropped for good.
// The block is free before.
func TestRootedStays(t *testing.T) {
	b := newBed(t, 2, 6, 0)
	s, c := b.open()
	a := b.allocator(s, c)
	const k = memory.Class(12)
	all := fillClass(t, c, a, k, 3)
	x := must(s.CreateOrderedTable("t", nil, k, 8, nil))(t)
	check(t, s.SetTableRoot(x.ID, all[0]))
	freeAll(a, k, all)
	for range 2 {
		withdraw(t, s)
		decided(t, s)
		must(s.GiveBack())(t)
	}
	if !s.View().Valid(all[0]) {
		t.Error("the root of the table is in no segment")
	}
	if _, vacant := count(s.Layout(), k); vacant == 0 {
		t.Error("no other segment has gone back")
	}
	check(t, s.ChangeTables(memory.TableChange{ID: x.ID, Drop: true}))
	check(t, s.ForgetTable(x.ID))
	withdraw(t, s)
	decided(t, s)
	must(s.GiveBack())(t)
	if s.View().Valid(all[0]) {
		t.Error("the table is dropped, and the segment of its root stays")
	}
	check(t, a.Close(c))
	check(t, s.Close(c))
}

// TestClaimBeforeGiveBack: what a sweep has claimed before a segment has gone back is void. A block that was in use then may look as it
// had looked before, in another segment of the number.
func TestClaimBeforeGiveBack(t *testing.T) {
	b := newBed(t, 2, 6, 0)
	s, c := b.open()
	a := b.allocator(s, c)
	const k = memory.Class(12)
	all := fillClass(t, c, a, k, 3)
	x := s.ClaimStrays([]memory.FreeBlock{{Addr: all[1]}}) // as it was before it was handed out
	if x == nil || len(x.Blocks) != 1 {
		t.Fatalf("%+v", x)
	}
	freeAll(a, k, all)
	withdraw(t, s)
	decided(t, s)
	if must(s.GiveBack())(t) == 0 {
		t.Fatal("nothing goes back")
	}
	fillClass(t, c, a, k, 3)
	if n, void := x.Return([]bool{true}); n > 0 || !void {
		t.Errorf("%d blocks are in the pool for another time", n)
	}
	y := s.ClaimStrays([]memory.FreeBlock{{Addr: all[2]}})
	if n, void := y.Return([]bool{false}); n > 0 || void {
		t.Errorf("a later claim is void: %v, %d blocks", void, n)
	}
}

// TestGiveBackOfAnother: a process is taken for dead while it has a segment withdrawn, and another one adopts that and hands out its
// blocks. It does not go back.
func TestGiveBackOfAnother(t *testing.T) {
	b := newSharedBed(t, 2, 8, 1)
	first, c := b.join(100)
	const k = memory.Class(20)
	p := newProcess(t, b, first, c, k)
	p.insert(t, k, 2*int(testSegment/k.Size()), map[memory.Addr]bool{})
	for _, x := range p.has {
		p.free(x)
	}
	if !withdraw(t, first) {
		t.Fatal("nothing is withdrawn")
	}
	second, c2 := b.join(0)
	p.recover(t, second)
	*b.fabric.clock = 1000
	if n := must(second.TakeOver(1000))(t); n != 1 {
		t.Fatalf("%d processes were ended", n)
	}
	generation, _ := second.Unswept()
	check(t, second.Swept(generation))
	q := newProcess(t, b, second, c2, k)
	q.insert(t, k, 3*int(testSegment/k.Size()), map[memory.Addr]bool{})
	n, err := first.GiveBack()
	if err != nil && !errors.Is(err, rdma.ErrStaleKey) {
		t.Fatal(err)
	}
	check(t, second.Follow())
	for _, x := range q.has {
		if n > 0 || !second.View().Valid(x) {
			t.Fatalf("%d segments have gone back, and %v is in use", n, x)
		}
	}
	if some, _ := first.Withdrawn(); some {
		t.Error("a segment of another process is withdrawn")
	}
}

// TestOwnersGiveBack: processes insert and delete, and have segments go back, whose places and numbers they use again. What is given to a
// process is free on all copies, and is in no other use.
func TestOwnersGiveBack(t *testing.T) {
	raced.Skip(t)
	classes := []memory.Class{16, 20, 24}
	total := 0
	for seed := range uint64(8) {
		r := rand.New(rand.NewPCG(seed, 5))
		b := newSharedBed(t, 2+int(seed%2), 14, 1)
		s, c := b.open()
		type user struct {
			*process
			k memory.Class
		}
		var all []user
		for i := range 3 {
			if i > 0 {
				s, c = b.join(0)
			}
			for _, k := range classes {
				all = append(all, user{newProcess(t, b, s, c, k), k})
			}
		}
		taken := map[memory.Addr]bool{}
		for range 120 {
			p, q := all[r.IntN(len(all))], all[r.IntN(len(all))]
			check(t, p.s.Follow())
			p.insert(t, p.k, r.IntN(150), taken)
			check(t, q.s.Follow())
			n := r.IntN(len(q.has) + 1)
			if r.IntN(2) == 0 {
				n = 0
			}
			by := q
			if r.IntN(3) == 0 { // deleted by another process
				by = all[(slices.IndexFunc(all, func(x user) bool { return x.process == q.process })+3*r.IntN(3))%len(all)]
				check(t, by.s.Follow())
			}
			for _, a := range q.has[n:] {
				delete(taken, a)
				by.free(a)
			}
			q.has = q.has[:n]
			if r.IntN(4) > 0 || !withdraw(t, q.s) {
				continue
			}
			if r.IntN(3) > 0 { // and one day it goes back
				for _, x := range all {
					check(t, x.s.Follow())
					x.recover(t, q.s)
					check(t, x.s.Follow())
					x.id = must(x.s.NewCoordinator())(t).ID
					x.a.Serve(x.id)
				}
				generation, _ := q.s.Unswept()
				check(t, q.s.Swept(generation))
				total += must(q.s.GiveBack())(t)
			}
			for more := r.IntN(3) > 0; more; {
				more = must(q.s.Reclaim(q.c))(t)
			}
		}
		l := agree(t, b, all[0].s, all[3].s, all[6].s)
		check(t, l.Validate())
		for blade := range l.Blades {
			b.unused(l, rdma.BladeID(blade))
		}
		for x := range taken {
			if l.Segments[x.Segment()].Vacant {
				t.Fatalf("the segment of %v has gone back, and the block is in use", x)
			}
		}
		b.dropThreads()
	}
	if total < 20 {
		t.Errorf("only %d segments have gone back", total)
	}
	t.Logf("%d segments have gone back", total)
}

// TestCrashWhileGivingBack stops a process at each change of the catalog, and at verbs in between, while it frees blocks, has their segments
// go back and uses their places. The next process finds every block that is in use as it was, can use all others, and has
// segments go back.
func TestCrashWhileGivingBack(t *testing.T) {
	raced.Skip(t)
	const k, other = memory.Class(20), memory.Class(24)
	per := int(testSegment / k.Size())
	for _, verbs := range []bool{false, true} {
		step, total, backs := 1, -1, 0
		if verbs {
			if step = 17; testing.Short() {
				step = 97
			}
		}
		for n := 0; total < 0 || n <= total; n += step {
			b := newBed(t, 2, 12, 1)
			s, c := b.open()
			p := newProcess(t, b, s, c, k)
			taken := map[memory.Addr]bool{}
			p.insert(t, k, 3*per+5, taken)
			kept := p.has[3*per:]
			st := &stop{left: n}
			if b.cat.stop = st; verbs {
				b.fabric.stop = st
			}
			err := func() error {
				for _, x := range p.has[:3*per] {
					p.a.Hold(x)
					line := make(record.Image, record.LineSize)
					line.PutFree(x, record.MakeTxID(p.id, 5), 1, k, s.CountFree(x))
					if err := put(c, s, x, line); err != nil {
						return err
					}
					p.a.Free(x, k)
				}
				if !withdraw(t, s) {
					t.Fatal("nothing is withdrawn")
				}
				claim, err := s.Claim(memory.ClaimOptions{Steal: true}, p.id)
				if err != nil {
					return err
				}
				if err := claim.Forget(); err != nil {
					return err
				}
				if _, err := s.GiveBack(); err != nil {
					return err
				}
				for more := true; more; {
					if more, err = s.Reclaim(c); err != nil {
						return err
					}
				}
				next, err := s.NewCoordinator()
				if err != nil {
					return err
				}
				p.a.Serve(next.ID)
				for range 20 {
					if _, err := p.a.Alloc(c, other); err != nil {
						return err
					}
				}
				return nil
			}()
			if err == nil && total < 0 {
				total = st.taken
			}
			if err != nil && st.left > 0 {
				t.Fatalf("crash at step %d: %v", n, err)
			}
			b.crash()
			s, c = b.open()
			for _, x := range must(s.Coordinators())(t) {
				check(t, must(s.Claim(memory.ClaimOptions{Steal: true}, x.ID))(t).Forget())
			}
			generation, _ := s.Unswept()
			check(t, s.Swept(generation))
			if _, vacant := count(s.Layout(), k); vacant > 0 {
				backs++
			}
			q := newProcess(t, b, s, c, k)
			taken = map[memory.Addr]bool{}
			for _, x := range kept {
				if h := record.Image(read(t, c, s.View().At(x, 0), record.LineSize)); h.Meta().State() != record.Live {
					t.Fatalf("crash at step %d: a record at %v is gone", n, x)
				}
				taken[x] = true
			}
			q.insert(t, k, 1<<20, taken) // until it is full
			for _, x := range q.has {
				delete(taken, x)
				q.free(x)
			}
			if !withdraw(t, s) {
				t.Fatalf("crash at step %d: nothing is withdrawn", n)
			}
			q.recover(t, s)
			if must(s.GiveBack())(t) == 0 {
				t.Fatalf("crash at step %d: nothing goes back", n)
			}
			reclaimAll(t, s, c)
			l := s.Layout()
			for blade := range l.Blades {
				b.unused(l, rdma.BladeID(blade))
			}
			q.has, q.id = nil, must(s.NewCoordinator())(t).ID
			q.a.Serve(q.id)
			q.insert(t, other, 20, taken)
			if len(q.has) < 20 || t.Failed() {
				t.Fatalf("crash at step %d: %d blocks of another class", n, len(q.has))
			}
		}
		if t.Logf("%d steps", total); total < 8 || backs == 0 {
			t.Errorf("only %d steps; after %d crashes segments had gone back", total, backs)
		}
	}
}

// put writes a block to all copies, the primary last.
func put(c *rdma.Coro, s *memory.Space, a memory.Addr, p []byte) error {
	t := c.Thread()
	buf, err := t.Alloc(len(p))
	if err != nil {
		return err
	}
	defer t.Free(buf, len(p))
	copy(t.Bytes(buf, uint32(len(p))), p)
	var b rdma.Batch
	for i := s.View().Copies(a) - 1; i >= 0; i-- {
		b.Write(s.View().At(a, i), buf, uint32(len(p)))
	}
	return c.Do(&b)
}

// TestGiveBackBesideStranger: a process withdraws segments that has not learnt yet of a coordinator of another one. That has deleted a record
// of one of them, so its log names a block: the segment is not ripe.
func TestGiveBackBesideStranger(t *testing.T) {
	b := newSharedBed(t, 2, 12, 1)
	first, c := b.open()
	const k = memory.Class(20)
	second, c2 := b.join(0)
	check(t, first.Follow())
	p := newProcess(t, b, first, c, k)
	p.insert(t, k, 2*int(testSegment/k.Size()), map[memory.Addr]bool{})
	x := p.has[3]
	p.recover(t, first)
	generation, _ := first.Unswept()
	check(t, first.Swept(generation))
	check(t, second.Follow())
	q := newProcess(t, b, second, c2, k)
	line := make(record.Image, record.LineSize)
	line.PutFree(x, record.MakeTxID(q.id, 1), 1, k, second.CountFree(x))
	write(t, second, c2, x, line)
	for _, y := range p.has {
		if y != x {
			p.free(y)
		}
	}
	p.a.Hold(x) // as a search by headers finds it, which needs nothing of the catalog
	p.a.Free(x, k)
	p.a.Serve(0)
	if !withdraw(t, first) {
		t.Fatal("nothing is withdrawn")
	}
	some, ripe := first.Withdrawn()
	if n := must(first.GiveBack())(t); n > 0 || !some || ripe {
		t.Errorf("withdrawn %v, ripe %v, and %d have gone back beside coordinator %d", some, ripe, n, q.id)
	}
}

// TestGiveBackIsNoLoss: another process that sees the epoch in which everything was decided, and that in which segments have gone back, at once, would
// have to take that for the loss of a blade. So the second one does not begin before it knows the first.
func TestGiveBackIsNoLoss(t *testing.T) {
	b := newSharedBed(t, 2, 12, 1)
	first, c := b.open()
	const k = memory.Class(20)
	p := newProcess(t, b, first, c, k)
	second, c2 := b.join(1000)
	q := newProcess(t, b, second, c2, k)
	check(t, first.Follow())
	p.insert(t, k, 2*int(testSegment/k.Size()), map[memory.Addr]bool{})
	for _, x := range p.has {
		p.free(x)
	}
	if !withdraw(t, first) {
		t.Fatal("nothing is withdrawn")
	}
	check(t, second.Follow())
	p.recover(t, first)
	check(t, second.Follow())
	check(t, second.Renew(1500))
	check(t, first.Listen())
	q.recover(t, first)
	some, _ := first.Withdrawn()
	if n := must(first.GiveBack())(t); n > 0 || some {
		t.Errorf("%d segments have gone back, and another process does not know the epoch", n)
	}
	check(t, second.Follow())
	check(t, second.Renew(2000))
	check(t, first.Listen())
	n := must(first.GiveBack())(t)
	check(t, second.Follow())
	if n == 0 || second.Hollow() || second.View().Bereft(memory.MakeAddr(1, 0)) {
		t.Errorf("%d segments have gone back; hollow: %v", n, second.Hollow())
	}
}

// TestGiveBackLateFree: a session has freed a block of another process's segment, and not yet told its allocator, when the segment goes back.
// Its process uses the number again. The session does not give its allocator the new block.
func TestGiveBackLateFree(t *testing.T) {
	b := newSharedBed(t, 2, 12, 1)
	first, c := b.open()
	const k = memory.Class(20)
	p := newProcess(t, b, first, c, k)
	second, c2 := b.join(0)
	q := newProcess(t, b, second, c2, k)
	check(t, first.Follow())
	p.insert(t, k, 2*int(testSegment/k.Size()), map[memory.Addr]bool{})
	x := p.has[3]
	check(t, second.Follow())
	q.a.Hold(x)
	line := make(record.Image, record.LineSize)
	line.PutFree(x, record.MakeTxID(q.id, 1), 1, k, second.CountFree(x))
	write(t, second, c2, x, line)
	for _, y := range p.has {
		if y != x {
			p.free(y)
		}
	}
	p.has = nil
	check(t, first.Follow())
	taken := map[memory.Addr]bool{}
	for i := 0; i < 40 && !slices.Contains(p.has, x); i++ { // the owner finds it
		p.insert(t, k, 100, taken)
	}
	if !slices.Contains(p.has, x) {
		t.Fatal("the owner has not found the block")
	}
	for _, y := range p.has {
		p.free(y)
	}
	if !withdraw(t, first) {
		t.Fatal("nothing is withdrawn")
	}
	p.recover(t, first)
	q.recover(t, first)
	n := must(first.GiveBack())(t)
	reclaimAll(t, first, c)
	check(t, second.Follow())
	r := newProcess(t, b, second, c2, k) // another session of the second process
	in := map[memory.Addr]bool{}
	for i := 0; i < 100 && !in[x]; i++ {
		r.insert(t, k, 50, in)
		for _, y := range r.has {
			in[y] = true
		}
	}
	if n == 0 || !in[x] {
		t.Fatalf("%d segments have gone back; the block is in use again: %v", n, in[x])
	}
	q.a.Free(x, k)
	q.id = must(second.NewCoordinator())(t).ID
	check(t, q.a.Abandon())
	q.a.Serve(q.id)
	if y := must(q.a.Alloc(c2, k))(t); in[y] {
		t.Errorf("%v is handed out, which is in use", y)
	}
}
