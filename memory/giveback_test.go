package memory_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"txnode/internal/raced"
	"txnode/memory"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/rdma"
)

// fillClass allocates blocks of a class until there are as many as n segments have.
func fillClass(t *testing.T, c *rdma.Coro, a *memory.Allocator, k layout.Class, n int) (out []layout.Addr) {
	t.Helper()
	for range n * int(testSegment/k.Size()) {
		out = append(out, must(a.Alloc(c, k))(t))
		a.Used(out[len(out)-1])
	}
	return out
}

// freeAll gives blocks back that were never written.
func freeAll(a *memory.Allocator, k layout.Class, all []layout.Addr) {
	for _, x := range all {
		a.Hold(x)
		a.Free(x, k)
	}
}

// withdraw withdraws what is whole, at once.
func withdraw(t *testing.T, s *memory.Space) bool {
	t.Helper()
	s.Withdraw(memory.Search{})
	return s.Withdraw(memory.Search{})
}

// goBack has segments go back that are withdrawn. Nothing is under way that could use them.
func goBack(t *testing.T, s *memory.Space, c *rdma.Coro) int {
	t.Helper()
	return must(s.GiveBack(c, must(s.Depart())(t)...))(t)
}

// count is how many segments of a class there are, and how many have gone back.
func count(l *layout.Layout, k layout.Class) (n, vacant int) {
	for i := range l.Segments {
		switch g := &l.Segments[i]; {
		case g.Kind != layout.KindBlocks || g.Class != k:
		case g.Vacant:
			vacant++
		default:
			n++
		}
	}
	return n, vacant
}

// TestGiveBack: segments go back when all of their blocks are free, and not before; one is kept of
// a class that is in use. Their places serve another class, and their numbers the same one. No
// epoch begins. While they leave their blocks are where they were, for what has begun before, and
// nothing that begins is led there.
func TestGiveBack(t *testing.T) {
	for _, f := range []int{0, 1, 2} {
		b := newBed(t, 3, 9, f)
		s, c := b.open()
		a := b.allocator(s, c)
		const small, large = layout.Class(12), layout.Class(17)
		kept := must(a.Alloc(c, small))(t)
		a.Used(kept)
		all := fillClass(t, c, a, small, 6)
		segments, _ := count(s.Layout(), small)
		must(s.NewCoordinator())(t)
		if withdraw(t, s) || len(must(s.Depart())(t)) > 0 {
			t.Fatal("something is withdrawn, and every block is in use")
		}
		for _, x := range all {
			write(t, s, c, x, image(x, record.MakeTxID(1, 9), record.Live, small, 0))
		}
		freeAll(a, small, all)
		if !withdraw(t, s) {
			t.Fatal("nothing is withdrawn")
		}
		old, frees := s.View(), s.Frees()
		ids := must(s.Depart())(t)
		if again := must(s.Depart())(t); len(ids) == 0 || !slices.Equal(again, ids) {
			t.Fatalf("segments %v leave, and then %v", ids, again)
		}
		for _, id := range ids {
			x := layout.MakeAddr(id, 0)
			if v := s.View(); v.Valid(x) || !v.Gone(x) || !v.Leaves(x) || v.Lost(x) || v.Copies(x) != f+1 ||
				v.At(x, f) != old.At(x, f) || !old.Valid(x) || s.LostError(x) != nil {
				t.Errorf("segment %d leaves: valid %v, gone %v, lost %v, %d copies", id, v.Valid(x), v.Gone(x),
					v.Lost(x), v.Copies(x))
			}
			if h := record.Image(read(t, c, old.At(x, f), record.LineSize)); slices.Contains(all, x) &&
				h.Meta().State() != record.Live {
				t.Errorf("a block of segment %d, which leaves, is in state %v", id, h.Meta().State())
			}
		}
		check(t, s.Layout().Validate())
		n := must(s.GiveBack(c, ids...))(t)
		left, vacant := count(s.Layout(), small)
		if n != len(ids) || n != vacant || left != segments-n || left < 2 || left > 3 {
			t.Errorf("f=%d: %d segments have gone back of %d, %d numbers are vacant, and %d are left: the one in "+
				"use, one more, and that in which a session holds blocks",
				f, n, segments, vacant, left)
		}
		l := s.Layout()
		check(t, l.Validate())
		for id := range l.Segments {
			if x := layout.MakeAddr(layout.SegmentID(id), 0); l.Segments[id].Vacant {
				if v := s.View(); v.Valid(x) || !v.Gone(x) || v.Leaves(x) || v.Lost(x) || s.LostError(x) != nil ||
					v.Freed(x) <= frees || v.Freed(x) > s.Frees() {
					t.Errorf("segment %d has gone back: valid %v, gone %v, lost %v, freed %#x",
						id, v.Valid(x), v.Gone(x), v.Lost(x), v.Freed(x))
				}
			}
		}
		if !s.View().Valid(kept) || s.Redundancy().Lost > 0 {
			t.Errorf("the block in use: %v; %+v", s.View().Valid(kept), s.Redundancy())
		}
		if got := s.Redundancy().Dirty; got != 0 || s.View().Epoch != old.Epoch {
			t.Errorf("%d places are to be cleared, in epoch %d after %d", got, s.View().Epoch, old.Epoch)
		}
		for blade := range rdma.BladeID(3) {
			b.unused(s.Layout(), blade)
		}
		segs := len(s.Layout().Segments)
		again := fillClass(t, c, a, small, n) // with what was free still
		if l := s.Layout(); len(l.Segments) != segs {
			t.Errorf("there are %d numbers of segments, and %d before", len(l.Segments), segs)
		}
		for _, x := range again {
			if v := s.View(); slices.Contains(ids, x.Segment()) && (v.Freed(x) <= frees || v.Freed(x) > s.Frees()) {
				t.Fatalf("block %v, of a number that is used again, counts as freed under %#x; before it was %#x",
					x, v.Freed(x), frees)
			}
		}
		freeAll(a, small, again)
		withdraw(t, s)
		goBack(t, s, c)
		fillClass(t, c, a, large, n-1)
		check(t, s.Layout().Validate())
		check(t, a.Close(c))
		check(t, s.Close(c))
	}
}

// TestWithdrawnIsNeeded: blocks of a segment that was to go back are handed out before one
// is added, each once.
func TestWithdrawnIsNeeded(t *testing.T) {
	b := newBed(t, 2, 6, 1)
	s, c := b.open()
	a := b.allocator(s, c)
	const k = layout.Class(12)
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
		t.Errorf("%d blocks of %d are handed out, from %d segments, and %d before",
			n, len(again), len(s.Layout().Segments), segs)
	}
	if ids := must(s.Depart())(t); len(ids) > 0 {
		t.Errorf("segments %v leave, and all blocks are in use", ids)
	}
}

// TestWithdrawBesideAllocation: an allocator hands out a block, which it does without the lock of
// the space, when its segment is known to be whole. That stays, with all of its other blocks.
func TestWithdrawBesideAllocation(t *testing.T) {
	b := newBed(t, 2, 8, 0)
	s, c := b.open()
	a := b.allocator(s, c)
	const k = layout.Class(24)
	freeAll(a, k, fillClass(t, c, a, k, 4))
	segs := len(s.Layout().Segments)
	var x layout.Addr
	whole, withdrawn := s.WithdrawBeside(k, func() {
		x = must(a.Alloc(c, k))(t)
		a.Used(x)
	})
	if s.Leaves(x) || whole < 3 || withdrawn != whole-1 {
		t.Errorf("%d segments of %d are withdrawn; that of a block in use: %v", withdrawn, whole, s.Leaves(x))
	}
	seen := map[layout.Addr]bool{x: true}
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

// TestVacantNumberHasMemory: stale addresses lead to a segment that has gone back, which had memory
// behind it. The next one of the number has as much.
func TestVacantNumberHasMemory(t *testing.T) {
	b := newBed(t, 2, 12, 1)
	s, c := b.open()
	a := b.allocator(s, c)
	const k = layout.Class(20)
	freeAll(a, k, fillClass(t, c, a, k, 3))
	withdraw(t, s)
	if goBack(t, s, c) == 0 {
		t.Fatal("nothing goes back")
	}
	l := s.Layout()
	id := l.VacantSegment(layout.KindBlocks, k)
	had := l.Backed(id)
	for len(l.Segments) == len(s.Layout().Segments) && s.Layout().Segments[id].Vacant {
		must(a.Alloc(c, k))(t)
	}
	if now := s.Layout(); now.Segments[id].Vacant || now.Backed(id) < had || had < testSegment/2 {
		t.Errorf("%d bytes of segment %d have memory, and %d had; vacant: %v",
			now.Backed(id), id, had, now.Segments[id].Vacant)
	}
}

// TestRootedStays: the segment does not go back in which the root of a table is, as the catalog
// says, until the table is dropped for good. The block is free before.
func TestRootedStays(t *testing.T) {
	b := newBed(t, 2, 6, 0)
	s, c := b.open()
	a := b.allocator(s, c)
	const k = layout.Class(12)
	all := fillClass(t, c, a, k, 3)
	x := must(s.CreateNodesTable("t", nil, k, 8, nil))(t)
	check(t, s.SetTableRoot(x.ID, all[0]))
	freeAll(a, k, all)
	for range 2 {
		withdraw(t, s)
		goBack(t, s, c)
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
	goBack(t, s, c)
	if s.View().Valid(all[0]) {
		t.Error("the table is dropped, and the segment of its root stays")
	}
	check(t, a.Close(c))
	check(t, s.Close(c))
}

// TestClaimBeforeGiveBack: what a sweep has claimed before a segment has gone back is void. A block
// that was in use then may look as it had looked before, in another segment of the number.
func TestClaimBeforeGiveBack(t *testing.T) {
	b := newBed(t, 2, 6, 0)
	s, c := b.open()
	a := b.allocator(s, c)
	const k = layout.Class(12)
	all := fillClass(t, c, a, k, 3)
	x := s.ClaimStrays([]memory.FreeBlock{{Addr: all[1]}}) // as it was before it was handed out
	if x == nil || len(x.Blocks) != 1 {
		t.Fatalf("%+v", x)
	}
	freeAll(a, k, all)
	withdraw(t, s)
	if goBack(t, s, c) == 0 {
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

// TestGiveBackOfAnother: a process is taken for dead while it has a segment withdrawn, and another
// one adopts that and hands out its blocks. It does not go back.
func TestGiveBackOfAnother(t *testing.T) {
	b := newSharedBed(t, 2, 8, 1)
	first, c := b.join(100)
	const k = layout.Class(20)
	p := newProcess(t, b, first, c, k)
	p.insert(t, k, 2*int(testSegment/k.Size()), map[layout.Addr]bool{})
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
	q.insert(t, k, 3*int(testSegment/k.Size()), map[layout.Addr]bool{})
	ids, err := first.Depart()
	if err != nil && !errors.Is(err, rdma.ErrStaleKey) {
		t.Fatal(err)
	}
	check(t, second.Follow())
	for _, x := range q.has {
		if len(ids) > 0 || !second.View().Valid(x) {
			t.Fatalf("segments %v leave, and %v is in use", ids, x)
		}
	}
}

// TestLeavingIsAdopted: a process dies that has a segment leave, which is cleared in part, and its
// session. Another one has the segment go back, when what the first had under way is recovered, and
// not before. The first, which was only late, changes nothing more.
func TestLeavingIsAdopted(t *testing.T) {
	b := newSharedBed(t, 2, 8, 1)
	first, c := b.join(100)
	const k = layout.Class(20)
	p := newProcess(t, b, first, c, k)
	p.insert(t, k, 2*int(testSegment/k.Size()), map[layout.Addr]bool{})
	for _, x := range p.has {
		p.free(x)
	}
	if !withdraw(t, first) {
		t.Fatal("nothing is withdrawn")
	}
	ids := must(first.Depart())(t)
	x, v := layout.MakeAddr(ids[0], 0), first.View()
	second, c2 := b.join(0)
	b.poke(v.At(x, 1).Blade, v.At(x, 1).Off, make([]byte, 4*k.Size()))
	if got := must(second.Depart())(t); len(got) > 0 {
		t.Errorf("segments %v of a process that is alive are another one's to go back", got)
	}
	*b.fabric.clock = 1000
	if n := must(second.TakeOver(1000))(t); n != 1 {
		t.Fatalf("%d processes were ended", n)
	}
	if got := must(second.Depart())(t); len(got) > 0 {
		t.Errorf("segments %v are to go back, and their sessions are not recovered", got)
	}
	p.recover(t, second)
	got := must(second.Depart())(t)
	if !slices.Equal(got, ids) || !second.Owns(x) {
		t.Fatalf("segments %v leave, and %v are another one's to go back", ids, got)
	}
	if n, err := first.GiveBack(c, ids...); n > 0 || err != nil && !errors.Is(err, rdma.ErrStaleKey) {
		t.Errorf("it has %d segments go back that it owns no more: %v", n, err)
	}
	if n := must(second.GiveBack(c2, got...))(t); n != len(ids) {
		t.Errorf("%d segments have gone back; want %d", n, len(ids))
	}
	q := newProcess(t, b, second, c2, k)
	q.insert(t, k, 3*int(testSegment/k.Size()), map[layout.Addr]bool{})
	if n, err := first.GiveBack(c, ids...); n > 0 || err != nil && !errors.Is(err, rdma.ErrStaleKey) {
		t.Errorf("%d segments have gone back that are another one's, and in use: %v", n, err)
	}
	check(t, second.Follow())
	for _, x := range q.has {
		if h := record.Image(read(t, c2, second.View().At(x, 1), record.LineSize)); h.Meta().State() != record.Live {
			t.Fatalf("the record at %v is gone", x)
		}
	}
	for blade := range rdma.BladeID(2) {
		b.unused(second.Layout(), blade)
	}
}

// TestLeavingLosesCopies: blades are lost while a segment leaves, one after the other. Nothing is
// built of it, nothing is lost with it, and its number is used again.
func TestLeavingLosesCopies(t *testing.T) {
	b := newBed(t, 4, 8, 1)
	s, c := b.open()
	a := b.allocator(s, c)
	const k = layout.Class(20)
	freeAll(a, k, fillClass(t, c, a, k, 2))
	withdraw(t, s)
	ids := must(s.Depart())(t)
	p := s.Layout().Segments[ids[0]].Placement
	for i := range p.N {
		check(t, s.AdvanceEpoch(s.DeclareDead(p.Replicas[i].Blade)))
		if _, err := s.Build(); err != nil {
			t.Fatal(err)
		}
		if l := s.Layout(); l.Segments[ids[0]].Placement.Written() != int(p.N-1-i) || l.Validate() != nil ||
			!l.Segments[ids[0]].Leaving {
			t.Errorf("after the loss of %d of its blades: %+v, %v", i+1, l.Segments[ids[0]], l.Validate())
		}
	}
	if x := layout.MakeAddr(ids[0], 0); s.Redundancy().Lost > 0 || s.View().Lost(x) || s.LostError(x) != nil ||
		s.LostBlocks() != nil {
		t.Errorf("what was in no use is lost: %+v, %v", s.Redundancy(), s.LostError(x))
	}
	if n := must(s.GiveBack(c, ids...))(t); n == 0 || !s.Layout().Segments[ids[0]].Vacant {
		t.Errorf("%d segments have gone back", n)
	}
	check(t, s.Layout().Validate())
}

// TestLateZero: a WRITE that clears a place has failed, and may be late. The next attempt
// begins an epoch before.
func TestLateZero(t *testing.T) {
	b := newBed(t, 2, 8, 1)
	s, c := b.open()
	a := b.allocator(s, c)
	const k = layout.Class(20)
	freeAll(a, k, fillClass(t, c, a, k, 2))
	withdraw(t, s)
	ids, epoch := must(s.Depart())(t), s.View().Epoch
	b.fabric.stop = &stop{left: 1}
	if n, err := s.GiveBack(c, ids...); err == nil || n > 0 {
		t.Fatalf("%d segments have gone back, and a READ has failed: %v", n, err)
	}
	b.fabric.stop = nil
	if n := must(s.GiveBack(c, ids...))(t); n > 0 || s.View().Epoch == epoch {
		t.Errorf("%d segments have gone back, in epoch %d after %d", n, s.View().Epoch, epoch)
	}
	if n := must(s.GiveBack(c, ids...))(t); n != len(ids) {
		t.Errorf("%d segments have gone back of %d", n, len(ids))
	}
}

// TestOwnersGiveBack: processes insert and delete, and have segments go back, whose places and
// numbers they use again. What is given to a process is free on all copies, and is in no other use.
func TestOwnersGiveBack(t *testing.T) {
	raced.Skip(t)
	classes := []layout.Class{16, 20, 24}
	total := 0
	for seed := range uint64(8) {
		r := rand.New(rand.NewPCG(seed, 5))
		b := newSharedBed(t, 2+int(seed%2), 14, 1)
		s, c := b.open()
		type user struct {
			*process
			k layout.Class
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
		taken := map[layout.Addr]bool{}
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
				by = all[(slices.IndexFunc(all, func(x user) bool { return x.process == q.process })+
					3*r.IntN(3))%len(all)]
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
				ids := must(q.s.Depart())(t)
				for _, x := range all {
					check(t, x.s.Follow())
				}
				total += must(q.s.GiveBack(q.c, ids...))(t)
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

// TestCrashWhileGivingBack stops a process at each change of the catalog, and at verbs in between,
// while it frees blocks, has their segments go back and uses their places. The next process finds
// every block that is in use as it was, can use all others, and has segments go back.
func TestCrashWhileGivingBack(t *testing.T) {
	raced.Skip(t)
	const k, other = layout.Class(20), layout.Class(24)
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
			taken := map[layout.Addr]bool{}
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
				ids, err := s.Depart()
				if err != nil {
					return err
				}
				if _, err := s.GiveBack(c, ids...); err != nil {
					return err
				}
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
			taken = map[layout.Addr]bool{}
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
			if goBack(t, s, c) == 0 {
				t.Fatalf("crash at step %d: nothing goes back", n)
			}
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
		if t.Logf("%d steps", total); total < 5 || backs == 0 {
			t.Errorf("only %d steps; after %d crashes segments had gone back", total, backs)
		}
	}
}

// put writes a block to all copies, the primary last.
func put(c *rdma.Coro, s *memory.Space, a layout.Addr, p []byte) error {
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

// TestGiveBackLateFree: a session has freed a block of another process's segment, and not yet told
// its allocator, when the segment goes back. Its process uses the number again. The session does
// not give its allocator the new block.
func TestGiveBackLateFree(t *testing.T) {
	b := newSharedBed(t, 2, 12, 1)
	first, c := b.open()
	const k = layout.Class(20)
	p := newProcess(t, b, first, c, k)
	second, c2 := b.join(0)
	q := newProcess(t, b, second, c2, k)
	check(t, first.Follow())
	p.insert(t, k, 2*int(testSegment/k.Size()), map[layout.Addr]bool{})
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
	taken := map[layout.Addr]bool{}
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
	n := goBack(t, first, c)
	q.recover(t, first)
	check(t, second.Follow())
	r := newProcess(t, b, second, c2, k) // another session of the second process
	in := map[layout.Addr]bool{}
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
