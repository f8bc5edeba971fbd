package memory_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"txnode/memory"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/rdma"
)

// join attaches a space beside others, until a time of a clock that stands at 0.
func (b *bed) join(until int64) (*memory.Space, *rdma.Coro) {
	b.tb.Helper()
	if b.fabric.clock == nil {
		b.fabric.clock = new(int64)
	}
	return b.joinOn(b.fabric, until)
}

// joinBy attaches a space that has a clock of its own.
func (b *bed) joinBy(clock *int64, until int64) (*memory.Space, *rdma.Coro) {
	b.tb.Helper()
	f := *b.fabric
	f.clock = clock
	return b.joinOn(&f, until)
}

func (b *bed) joinOn(f *fabric, until int64) (*memory.Space, *rdma.Coro) {
	b.tb.Helper()
	o := b.opts
	o.Until = until
	th := must(rdma.NewThread(f, rdma.ThreadOptions{Arena: 1 << 20, Index: len(b.threads)}))(b.tb)
	b.threads = append(b.threads, th)
	c := th.Plain()
	s := must(memory.Open(c, f, b.cat, o))(b.tb)
	check(b.tb, s.EndAlone())
	return s, c
}

// newSharedBed is newBed of a database that several processes can have open.
func newSharedBed(tb testing.TB, blades, segments, backups int) *bed {
	tb.Helper()
	b := newBed(tb, blades, segments, backups)
	b.opts.Shared = true
	return b
}

// process is a space with an allocator, as a process has them.
type process struct {
	s    *memory.Space
	c    *rdma.Coro
	a    *memory.Allocator
	id   uint32 // coordinator
	has  []layout.Addr
	free func(a layout.Addr) // as its transactions do
}

func newProcess(t *testing.T, b *bed, s *memory.Space, c *rdma.Coro, k layout.Class) *process {
	p := &process{s: s, c: c, a: b.allocator(s, c), id: must(s.NewCoordinator())(t).ID}
	seq := uint64(0)
	p.a.Serve(p.id)
	p.free = func(a layout.Addr) {
		seq++
		p.a.Hold(a)
		line := make(record.Image, record.LineSize)
		line.PutFree(a, record.MakeTxID(p.id, seq), 1, k, p.s.CountFree(a))
		write(t, p.s, p.c, a, line)
		p.a.Free(a, k)
	}
	return p
}

// recover decides, for another process, what the process's coordinator has left.
func (p *process) recover(t *testing.T, by *memory.Space) {
	t.Helper()
	check(t, must(by.Claim(memory.ClaimOptions{By: by.Process(), Now: 1, Until: 1 << 40}, p.id))(t).Forget())
}

// insert takes blocks and writes records there, until there is no room or there are n.
func (p *process) insert(t *testing.T, k layout.Class, n int, taken map[layout.Addr]bool) {
	t.Helper()
	for range n {
		a, err := p.a.Alloc(p.c, k)
		if errors.Is(err, memory.ErrNoSpace) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if taken[a] {
			t.Fatalf("process %d is given the block %v, which is in use", p.s.Process(), a)
		}
		if l := p.s.Layout(); l.Segments[a.Segment()].Owner != p.s.Process() {
			t.Fatalf("process %d is given the block %v of segment %+v", p.s.Process(), a, l.Segments[a.Segment()])
		}
		v := p.s.View()
		h := record.Image(read(t, p.c, v.At(a, 0), record.LineSize))
		if _, damage := h.Check(a); damage != nil || h.Meta().State() != record.Free {
			t.Fatalf("the block %v is handed out in state %v: %v", a, h.Meta().State(), damage)
		}
		if n := h.Freed(); n > p.s.Frees() {
			t.Fatalf("the block %v was freed under number %#x, and what is logged now says %#x", a, n, p.s.Frees())
		}
		for i := range v.Copies(a) {
			if !bytes.Equal(read(t, p.c, v.At(a, i), record.LineSize), h) {
				t.Fatalf("the copies of the free block %v differ", a)
			}
		}
		taken[a] = true
		write(t, p.s, p.c, a, image(a, record.MakeTxID(p.id, 1<<20), record.Live, k, 0))
		p.a.Used(a)
		p.has = append(p.has, a)
	}
}

// TestOwners: three processes insert and delete, each also what others have inserted. No block is
// given twice, and each process finds what the others have freed in its segments.
func TestOwners(t *testing.T) {
	const k = 20 // 3 KiB
	for seed := range uint64(6) {
		r := rand.New(rand.NewPCG(seed, 3))
		b := newSharedBed(t, 2, 12, 1)
		s, c := b.open()
		ps := []*process{newProcess(t, b, s, c, k)}
		for range 2 {
			s, c := b.join(0)
			ps = append(ps, newProcess(t, b, s, c, k))
		}
		taken := map[layout.Addr]bool{}
		for range 40 {
			p := ps[r.IntN(len(ps))]
			p.insert(t, k, r.IntN(100), taken)
			q := ps[r.IntN(len(ps))]
			check(t, p.s.Follow())
			r.Shuffle(len(q.has), func(i, j int) { q.has[i], q.has[j] = q.has[j], q.has[i] })
			n := r.IntN(len(q.has) + 1)
			for _, a := range q.has[n:] {
				delete(taken, a)
				p.free(a)
			}
			q.has = q.has[:n]
		}
		// One of them deletes everything, and all of them fill what they have.
		for _, p := range ps {
			check(t, p.s.Follow())
		}
		for _, q := range ps {
			for _, a := range q.has {
				delete(taken, a)
				ps[0].free(a)
			}
			q.has = nil
		}
		for _, p := range ps {
			p.insert(t, k, 1<<20, taken)
		}
		room := 0
		for _, g := range agree(t, b, ps[0].s, ps[1].s, ps[2].s).Segments {
			if g.Kind == layout.KindBlocks {
				room += testSegment / int(layout.Class(k).Size())
			}
		}
		if len(taken) != room {
			t.Errorf("seed %d: %d blocks were found of %d", seed, len(taken), room)
		}
		b.dropThreads()
	}
}

// TestClocksApart: processes whose clocks have nothing to do with each other. A registration, and a
// lease, expire when they have not changed for their term by the clock of the one that looks.
func TestClocksApart(t *testing.T) {
	b := newSharedBed(t, 2, 10, 1)
	s, c := b.open()
	check(t, s.Close(c))
	early, late := int64(1_000), int64(3_600_000_000_000)
	first, c1 := b.joinBy(&early, early+100)
	second, c2 := b.joinBy(&late, late+100)
	x := must(first.NewCoordinatorUntil(early + 100))(t)
	y := must(second.NewCoordinatorUntil(late + 100))(t)
	alive := func(of *memory.Space, now *int64, id uint32, want memory.LeaseState) {
		t.Helper()
		check(t, of.Follow())
		if got := of.Lease(id, *now); got != want {
			t.Fatalf("at %d the lease of coordinator %d is %v, not %v", *now, id, got, want)
		}
	}
	for range 5 { // both renew
		early, late = early+90, late+90
		check(t, first.Renew(early+100, x.ID))
		check(t, second.Renew(late+100, y.ID))
		alive(first, &early, y.ID, memory.LeaseLive)
		alive(second, &late, x.ID, memory.LeaseLive)
		for _, p := range []struct {
			s   *memory.Space
			c   *rdma.Coro
			now int64
		}{{first, c1, early}, {second, c2, late}} {
			l := p.s.Layout()
			if _, err := p.s.TakeOver(p.now); err != nil || len(p.s.Layout().Processes) != len(l.Processes) {
				t.Fatalf("at %d processes %+v: %v", p.now, p.s.Layout().Processes, err)
			}
		}
	}
	// The first one stands still.
	late += 100
	check(t, second.Renew(late+100, y.ID))
	alive(second, &late, x.ID, memory.LeaseLive)
	late++
	alive(second, &late, x.ID, memory.LeaseExpired)
	if ids := second.Expired(late); !slices.Equal(ids, []uint32{x.ID}) {
		t.Errorf("expired: %v", ids)
	}
	if _, err := second.TakeOver(late); err != nil || len(second.Layout().Processes) != 1 {
		t.Errorf("processes %+v: %v", second.Layout().Processes, err)
	}
	claim := must(second.Claim(memory.ClaimOptions{By: second.Process(), Now: late, Until: late + 50}, x.ID))(t)
	alive(second, &late, x.ID, memory.LeaseClaimed)
	third, _ := b.joinBy(&early, early+100) // a claim expires in the same way
	alive(third, &early, x.ID, memory.LeaseClaimed)
	early += 50
	check(t, claim.Renew(late+50+1))
	alive(third, &early, x.ID, memory.LeaseClaimed)
	early += 51
	alive(third, &early, x.ID, memory.LeaseClaimed)
	early++
	alive(third, &early, x.ID, memory.LeaseExpired)
	agree(t, b, second, third)
}

// TestRightOfOthers: one process at a time recovers an index, and the right of one that is gone
// ends.
func TestRightOfOthers(t *testing.T) {
	b := newSharedBed(t, 2, 10, 1)
	first, _ := b.join(10)
	second, _ := b.join(100)
	if !first.AcquireRight(7) || first.AcquireRight(7) {
		t.Fatal("the first process does not have the index, or twice")
	}
	if second.AcquireRight(7) {
		t.Fatal("two processes recover an index")
	}
	if !second.AcquireRight(8) || !second.RecoversIndex() {
		t.Fatal("another index cannot be recovered")
	}
	agree(t, b, first, second)
	first.ReleaseRight(7)
	if !second.AcquireRight(7) {
		t.Fatal("the index cannot be recovered after another process has done it")
	}
	second.ReleaseRight(7)
	second.ReleaseRight(8)
	if l := agree(t, b, first, second); len(l.Rights) > 0 || second.RecoversIndex() {
		t.Errorf("rights are left: %+v", l.Rights)
	}
	if !first.AcquireRight(9) {
		t.Fatal("no right")
	}
	*b.fabric.clock = 11
	if second.AcquireRight(9) || !second.Registered(first.Process()) {
		t.Fatal("the process is registered still")
	}
	must(second.TakeOver(11))(t)
	if second.Registered(first.Process()) {
		t.Error("the process is registered no more")
	}
	if !second.AcquireRight(9) {
		t.Fatal("the right of a process that is gone has not ended")
	}
	agree(t, b, second)
	first.ReleaseRight(9) // which it has no more
	agree(t, b, first, second)
}

// TestRightsOfProcess: what a process has in its own name, no other recoverer of it has at the same
// time.
func TestRightsOfProcess(t *testing.T) {
	b := newSharedBed(t, 2, 10, 1)
	p, pc := b.join(100)
	q, _ := b.join(10_000)
	block := must(b.allocator(p, pc).Alloc(pc, 4))(t)
	right := p.BeginResolve(block, p.Process())
	if right == nil || p.BeginResolve(block, p.Process()) != nil {
		t.Error("nothing has the right to resolve a block, or two have")
	}
	right.End(false, 0)
	x, y := must(p.NewCoordinator())(t), must(p.NewCoordinator())(t)
	must(p.Claim(memory.ClaimOptions{By: p.Process(), Now: 1, Until: 1000}, x.ID))(t)
	if _, err := p.Claim(memory.ClaimOptions{By: p.Process(), Now: 2, Until: 1000}, x.ID); !errors.Is(err,
		memory.ErrClaimed) {
		t.Errorf("a second claim of one process: %v", err)
	}
	// Its registration ends. It registers anew when it recovers others, for as long as before.
	check(t, q.Follow())
	*b.fabric.clock = 500
	must(q.TakeOver(500))(t)
	check(t, p.Follow())
	was := p.Process()
	if now := p.Recoverer(); now == was || !p.Registered(now) {
		t.Fatalf("process %d recovers others as %d, registered %v", was, now, p.Registered(now))
	}
	must(p.Claim(memory.ClaimOptions{By: p.Process(), Now: 500, Until: 600}, y.ID))(t)
	check(t, q.Follow())
	*b.fabric.clock = 600
	must(q.TakeOver(600))(t)
	if !q.Registered(p.Process()) {
		t.Error("it was taken over within its term")
	}
	*b.fabric.clock = 601
	must(q.TakeOver(601))(t)
	if q.Registered(p.Process()) {
		t.Error("it is registered behind its term")
	}
}

// TestTakeOverBegins: while the epoch begins in which the segments of a late process are another
// one's, the late process writes a record to a block that it has, by keys that are good still. An
// allocator of the other one does not look for free blocks there before that is over.
func TestTakeOverBegins(t *testing.T) {
	const k = 20
	b := newSharedBed(t, 2, 6, 1)
	s, c := b.open()
	first := newProcess(t, b, s, c, k)
	beside := newProcess(t, b, s, b.thread().Plain(), k)
	s2, c2 := b.join(10)
	second := newProcess(t, b, s2, c2, k)
	taken := map[layout.Addr]bool{}
	second.insert(t, k, 50, taken)
	for _, a := range second.has {
		delete(taken, a)
		second.free(a)
	}
	held := must(second.a.Alloc(c2, k))(t)
	check(t, s2.CloseCoordinatorOn(c2, second.id)) // no session of its is to be recovered
	check(t, s.Follow())
	first.insert(t, k, 1<<20, taken) // all that it can have
	got := make(chan []layout.Addr, 1)
	begun := false
	b.fabric.revoking = func(rdma.BladeID) error {
		if begun {
			return nil
		}
		begun = true
		go func() {
			var all []layout.Addr
			for {
				a, err := beside.a.Alloc(beside.c, k)
				if err != nil {
					got <- all
					return
				}
				all = append(all, a)
			}
		}()
		time.Sleep(100 * time.Millisecond) // it looks, or waits
		write(t, s2, c2, held, image(held, record.MakeTxID(second.id, 1<<21), record.Live, k, 0))
		return nil
	}
	must(s.TakeOver(21))(t)
	if all := <-got; slices.Contains(all, held) {
		t.Errorf("the block %v is handed out, and in use", held)
	} else if len(all) == 0 {
		t.Error("nothing was found in the segments that were taken over")
	}
}

// TestFreedAfterLoss: a blade is lost, so slots may lead to free blocks for as long as the
// database is open. What another process frees is found all the same, and what had its number
// before the loss is not.
func TestFreedAfterLoss(t *testing.T) {
	const k = 20
	b := newSharedBed(t, 3, 8, 1)
	s1, c1 := b.join(0)
	s2, c2 := b.join(0)
	first, second := newProcess(t, b, s1, c1, k), newProcess(t, b, s2, c2, k)
	taken := map[layout.Addr]bool{}
	first.insert(t, k, 1<<20, taken)
	has := first.has
	for _, p := range []*process{first, second} {
		check(t, p.s.CloseCoordinatorOn(p.c, p.id))
		check(t, p.a.Close(p.c))
	}
	check(t, s1.Follow())
	check(t, s2.Follow())
	check(t, s1.AdvanceEpoch(func(l *layout.Layout) error { l.TakeDown(2); return nil }))
	check(t, s2.Follow())
	if !s1.Dangling() || !s2.Dangling() {
		t.Fatal("no blade was lost")
	}
	first, second = newProcess(t, b, s1, c1, k), newProcess(t, b, s2, c2, k)
	check(t, s2.Follow())
	var freed []layout.Addr
	for _, a := range has {
		if s1.View().Copies(a) > 0 && len(freed) < 40 {
			freed = append(freed, a)
		}
	}
	own := freed[0] // as a placeholder leaves it that was on the lost blade
	line := make(record.Image, record.LineSize)
	line.PutFree(own, record.MakeTxID(first.id, 1<<19), 1, k, s1.CountFree(own))
	write(t, s1, c1, own, line)
	for _, a := range freed[1:] {
		delete(taken, a)
		second.free(a)
	}
	before := len(taken)
	first.insert(t, k, 1<<20, taken)
	if n := len(taken) - before; n != len(freed)-1 {
		t.Errorf("%d blocks were found of %d that another process has freed", n, len(freed)-1)
	}
}

// TestTakeOver: a process that has joined dies, or is only late. When its registration has expired
// another one has its segments: what is free in them, and not its records. The late one gives
// nothing of them away, and registers anew.
func TestTakeOver(t *testing.T) {
	const k = 20
	for _, late := range []bool{false, true} {
		b := newSharedBed(t, 2, 12, 1)
		s, c := b.open()
		first := newProcess(t, b, s, c, k)
		s2, c2 := b.join(10)
		second := newProcess(t, b, s2, c2, k)
		taken := map[layout.Addr]bool{}
		first.insert(t, k, 150, taken)
		second.insert(t, k, 150, taken)
		extent := must(s2.AllocExtent(c2, 1000))(t)
		for _, a := range second.has[100:] {
			delete(taken, a)
			second.free(a)
		}
		second.has = second.has[:100]
		held := must(second.a.Alloc(c2, k))(t) // it is about to insert there
		was := s2.Process()
		check(t, s2.Renew(20))
		check(t, s.Listen())
		if n, err := s.TakeOver(20); n != 0 || err != nil {
			t.Fatalf("it ended %d registrations of processes that live: %v", n, err)
		}
		old := s.View()
		n, err := s.TakeOver(21)
		if err != nil || n != 1 {
			t.Fatalf("it ended %d registrations: %v", n, err)
		}
		if s.View().Epoch == old.Epoch {
			t.Error("the epoch has not moved")
		}
		l := s.Layout()
		if len(l.Processes) != 1 {
			t.Errorf("processes %+v", l.Processes)
		}
		for range 3 {
			if x := must(s.AllocExtent(c, 1000))(t); slices.ContainsFunc(s.Extents(), func(e memory.Extent) bool {
				return e.Addr == extent
			}) {
				t.Errorf("the segment of the extent %v is adopted, for %v, and a session of its owner is not recovered",
					extent, x)
			}
		}
		second.recover(t, s)
		for n := 0; n < 40 && !s.Owns(extent); n++ {
			if x := must(s.AllocExtent(c, 20_000))(t); x == extent {
				t.Errorf("the extent %v is given twice", x)
			}
		}
		if all := s.Extents(); !slices.ContainsFunc(all, func(e memory.Extent) bool { return e.Addr == extent }) {
			t.Errorf("extents %v, and %v was allocated, in a segment that is to be adopted before one is added",
				all, extent)
		}
		check(t, s.FreeAt(extent, 1000))
		if late {
			var batch rdma.Batch
			buf := must(c2.Thread().Alloc(64))(t)
			batch.Write(s2.View().At(held, 0), buf, 64)
			if err := c2.Do(&batch); !errors.Is(err, rdma.ErrStaleKey) {
				t.Errorf("a late WRITE: %v", err)
			}
			check(t, c2.Thread().Reconnect(s2.View().At(held, 0).Blade))
			check(t, s2.Follow())
			s2.Begin(c2.Thread())
			if second.a.Holds(held) {
				t.Error("it still has a block on its way")
			}
			second.a.Free(held, k) // which has no effect any more
			second.id = must(s2.NewCoordinator())(t).ID
			second.a.Serve(second.id)
			second.insert(t, k, 40, taken)
			if s2.Process() == was || s2.Process() == 0 {
				t.Errorf("it was process %d, and is %d", was, s2.Process())
			}
		}
		first.insert(t, k, 1<<20, taken)
		if late {
			second.insert(t, k, 1<<20, taken)
		}
		room := 0
		for _, g := range s.Layout().Segments {
			if g.Kind == layout.KindBlocks {
				room += testSegment / int(layout.Class(k).Size())
			}
		}
		if len(taken) != room {
			t.Errorf("late %v: %d blocks are in use of %d", late, len(taken), room)
		}
		if g := s.Layout(); slices.ContainsFunc(g.Segments, func(g layout.Segment) bool {
			return g.Kind != 0 && g.Kind != layout.KindLog && !s.IsProcess(g.Owner)
		}) {
			t.Errorf("late %v: blades are full, and a segment is nobody's: %+v", late, g.Segments)
		}
		b.dropThreads()
	}
}

// TestTakeOverAtEveryStep: the process that takes over dies at any step, and the next one does it.
func TestTakeOverAtEveryStep(t *testing.T) {
	const k = 20
	for at, done := 0, false; !done; at++ {
		b := newSharedBed(t, 2, 10, 1)
		s1, _ := b.join(0)
		s2, c2 := b.join(10)
		s3, c3 := b.join(0)
		dead := newProcess(t, b, s2, c2, k)
		taken := map[layout.Addr]bool{}
		dead.insert(t, k, 30, taken)
		must(s2.AllocExtent(c2, 500))(t)
		st := &stop{left: at}
		check(t, s1.Follow())
		b.fabric.stop, b.cat.stop = st, st
		_, err := s1.TakeOver(11)
		done = err == nil
		b.fabric.stop, b.cat.stop = nil, nil
		check(t, s3.Follow())
		if _, err := s3.TakeOver(11); err != nil {
			t.Fatalf("step %d: %v", at, err)
		}
		l := s3.Layout()
		check(t, l.Validate())
		if s3.IsProcess(s2.Process()) {
			t.Errorf("step %d: registered are %+v", at, l.Processes)
		}
		dead.recover(t, s3)
		p := newProcess(t, b, s3, c3, k)
		p.insert(t, k, 1<<20, taken)
		if l = s3.Layout(); len(taken) != blockSegments(l)*int(testSegment/layout.Class(k).Size()) {
			t.Errorf("step %d: %d blocks are in use of those in %d segments", at, len(taken), blockSegments(l))
		}
		b.dropThreads()
	}
}

// TestForeignExtents: a process gives back an extent in a segment of another one, whose coordinator
// is dead that has allocated it. The owner finds that nothing leads to it, too, and uses its place
// again. The word there stays that of the extent which the owner has made: else, after the owner's
// death, the next one would give it away.
func TestForeignExtents(t *testing.T) {
	b := newSharedBed(t, 2, 8, 1)
	s, c := b.open()
	other, oc := b.join(0)
	mine := must(s.NewCoordinator())(t)
	th := b.thread()
	th.SetOwner(uint64(mine.ID))
	x := must(s.AllocExtent(th.Plain(), 3000))(t)
	check(t, other.Follow())
	check(t, must(other.Claim(memory.ClaimOptions{}, mine.ID))(t).Forget())
	generation, _ := other.Unswept()
	check(t, other.LeaksFreed(generation)) // of what it has itself
	if done, err := other.FreeExtent(s.ExtentAt(x)); done || err != nil || other.ExtentAt(x).Size > 0 {
		t.Errorf("a process has freed an extent in the segment of another one: %v, %v", done, err)
	}
	check(t, s.Follow())
	if !s.Leaked() {
		t.Error("the owner does not look for what its dead coordinator has allocated")
	}
	dead := s.DeadExtents()
	if len(dead) != 1 || dead[0].Addr != x {
		t.Fatalf("%v has died with its coordinator, listed are %v", x, dead)
	}
	must(s.FreeExtent(dead[0]))(t)
	for _, x := range []*rdma.Coro{c, oc} {
		s.View().Rekey(x.Thread())
		for _, b := range s.Fabric().Blades() {
			check(t, x.Thread().Reconnect(b.ID))
		}
	}
	again := map[layout.Addr]bool{}
	for range 2 { // the blades take turns
		again[must(s.AllocExtent(c, 3000))(t)] = true
	}
	if !again[x] {
		t.Fatalf("the extent at %v is lost", x)
	}
	check(t, other.SettleExtents(oc))
	check(t, other.Close(oc))
	check(t, s.Close(c))
	s, _ = b.open()
	if all := s.Extents(); !slices.ContainsFunc(all, func(e memory.Extent) bool { return e.Addr == x }) ||
		len(all) != 2 {
		t.Errorf("extents %v, and %v are used", all, again)
	}
}

// TestRescanConfirms: a block is taken and used between two looks at its segment. It is
// not given away again.
func TestRescanConfirms(t *testing.T) {
	const k = 20
	b := newSharedBed(t, 2, 4, 1)
	b.fabric.clock = new(int64) // what is in vain takes no time
	s, c := b.open()
	s2, c2 := b.join(0)
	first, second := newProcess(t, b, s, c, k), newProcess(t, b, s2, c2, k)
	taken := map[layout.Addr]bool{}
	first.insert(t, k, 1<<20, taken)
	check(t, s2.Follow())
	freed := slices.Clone(first.has[:3])
	for i, a := range freed { // as a recovery frees it, which gives it to no allocator, and under a number of the owner
		delete(taken, a)
		line := make(record.Image, record.LineSize)
		line.PutFree(a, record.MakeTxID(second.id, uint64(i)), 1, k, s.CountFree(a))
		write(t, s, c, a, line)
	}
	first.has = first.has[3:]
	// While it looks through its segments, another thread of the process, which has
	// looked before, inserts.
	other := newProcess(t, b, s, b.thread().Plain(), k)
	reads := map[uint64]int{}
	done := false
	b.fabric.before = func(w *rdma.WR) {
		if w.Op != rdma.OpRead || done || w.Blade != s.View().At(freed[0], 0).Blade {
			return
		}
		if reads[w.Off]++; reads[w.Off] == 1 && len(reads) == 1 {
			return
		}
		done = true
		b.fabric.before = nil
		other.insert(t, k, 2, taken)
	}
	first.insert(t, k, 1<<20, taken)
	if !done {
		t.Error("nothing was inserted in between: this test tests nothing")
	}
	for _, a := range freed {
		if !taken[a] {
			t.Errorf("the block %v is not found", a)
		}
	}
}

// TestRescanSparesLists: what another thread of the process has on its lists is free by its
// header, and not found.
func TestRescanSparesLists(t *testing.T) {
	const k = 20
	b := newSharedBed(t, 2, 12, 1)
	s, c := b.open()
	first, other := newProcess(t, b, s, c, k), newProcess(t, b, s, b.thread().Plain(), k)
	b.join(0)
	check(t, s.Follow())
	taken := map[layout.Addr]bool{}
	other.insert(t, k, 1, taken)
	first.insert(t, k, 700, taken)
	other.insert(t, k, 10, taken)
	first.insert(t, k, 700, taken)
	other.insert(t, k, 1<<20, taken)
}

// TestClosedProcess: a process that has joined and closes leaves its segments to others at once,
// and no registration when it has none.
func TestClosedProcess(t *testing.T) {
	const k = 20
	b := newSharedBed(t, 2, 6, 1)
	s, c := b.open()
	s2, c2 := b.join(0)
	check(t, s2.Close(c2))
	s2, c2 = b.join(0)
	second := newProcess(t, b, s2, c2, k)
	taken := map[layout.Addr]bool{}
	second.insert(t, k, 50, taken)
	check(t, s2.CloseCoordinatorOn(c2, second.id))
	check(t, second.a.Close(c2))
	check(t, s2.Close(c2))
	check(t, s.Follow())
	if l := s.Layout(); len(l.Processes) != 2 {
		t.Errorf("registered: %+v", l.Processes)
	}
	if n := must(s.TakeOver(2))(t); n != 1 {
		t.Errorf("%d registrations were ended", n)
	}
	first := newProcess(t, b, s, c, k)
	first.insert(t, k, 1<<20, taken)
	if l := agree(t, b, s); len(l.Processes) != 1 ||
		len(taken) != blockSegments(l)*int(testSegment/layout.Class(k).Size()) {
		t.Errorf("%d blocks are in use, registered: %+v", len(taken), l.Processes)
	}
}

// blockSegments is how many segments of blocks there are.
func blockSegments(l *layout.Layout) (n int) {
	for _, g := range l.Segments {
		if g.Kind == layout.KindBlocks {
			n++
		}
	}
	return n
}

// TestRescanInVainRests: when the blades are full, and other processes have freed nothing, the
// segments are not looked through for each block that is asked for. They are when time has passed.
func TestRescanInVainRests(t *testing.T) {
	const k = 20
	b := newSharedBed(t, 2, 4, 1)
	now := int64(0)
	b.fabric.clock = &now
	s, c := b.open()
	p := newProcess(t, b, s, c, k)
	p.insert(t, k, 1<<20, map[layout.Addr]bool{})
	reads := 0
	b.fabric.before = func(w *rdma.WR) {
		if w.Op == rdma.OpRead {
			reads++
			now += 1000 // what it takes
		}
	}
	look := func() int {
		t.Helper()
		reads = 0
		if _, err := p.a.Alloc(c, k); !errors.Is(err, memory.ErrNoSpace) {
			t.Errorf("there is no room: %v", err)
		}
		return reads
	}
	all := look()
	if all == 0 {
		t.Fatal("nothing is looked through")
	}
	for range 3 {
		if n := look(); n != 0 {
			t.Errorf("%d headers are looked at again at once", n)
		}
	}
	now += 1000 * int64(all) * 5
	if n := look(); n != all {
		t.Errorf("%d headers are looked at after a while, and not %d", n, all)
	}
}
