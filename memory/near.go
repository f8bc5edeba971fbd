package memory

import (
	"errors"
	"fmt"

	"txnode/memory/layout"
	"txnode/rdma"
)

// An allocator that was asked for blocks on a certain blade (AllocOn) keeps the free blocks of
// the class by the blade of their primary. Each is a stack, so a call is as cheap as Alloc, as
// long as the stack of its blade has blocks. Whoever changes the lists as a whole puts them
// together first (gather).

// near is the free blocks of a class with their primaries on one blade.
type near struct {
	free []layout.Addr
	// skip is for how many more calls nothing is looked for: there was none.
	skip int
}

// nearSearch bounds how many blocks of the pool are looked at for some on a blade.
const nearSearch = 4096

// AllocOn is Alloc of a block whose primary is on a blade. If there is none, the primary is on
// another blade, which the address says, or Alloc's error is returned.
func (a *Allocator) AllocOn(c *rdma.Coro, class layout.Class, blade rdma.BladeID) (layout.Addr, error) {
	if a.space.Without() != 0 {
		return a.Alloc(c, class)
	}
	if class < layout.NumClasses && a.view == a.space.view.Load() {
		if addr, ok := a.popOn(class, blade); ok {
			return addr, nil
		}
	}
	return a.allocOnSlow(c, class, blade)
}

// popOn takes a block off the stack of a blade.
func (a *Allocator) popOn(class layout.Class, blade rdma.BladeID) (layout.Addr, bool) {
	a.mu.Lock()
	l := &a.lists[class]
	if int(blade) >= len(l.near) || len(l.near[blade].free) == 0 {
		a.mu.Unlock()
		return 0, false
	}
	x := &l.near[blade]
	n := len(x.free) - 1
	addr := x.free[n]
	x.free = x.free[:n]
	a.out.add(addr)
	a.mu.Unlock()
	if n == 0 {
		a.work |= 1 << class
	}
	return addr, true
}

func (a *Allocator) allocOnSlow(c *rdma.Coro, class layout.Class, blade rdma.BladeID) (layout.Addr, error) {
	blades := len(a.space.Fabric().Blades())
	if class >= layout.NumClasses || class.Size() > a.space.opts.SegmentSize || int(blade) >= blades {
		return a.Alloc(c, class)
	}
	a.moved()
	for tries := 0; ; tries++ {
		a.sort(class, blades)
		if addr, ok := a.popOn(class, blade); ok {
			return addr, nil
		}
		if a.skips(class, blade) {
			break
		}
		n, err := a.taken(c, func() (int, error) { return a.space.takeOn(a, class, chunkBlocks(class), blade) })
		if err != nil {
			return 0, err
		}
		if n > 0 {
			continue
		}
		if tries >= 2*blades || a.has(class) > a.lists[class].high {
			a.skip(class, blade)
			break
		}
		if err := a.lookFurther(c, class); err != nil {
			a.skip(class, blade)
			break // Alloc says why, if nothing is left
		}
	}
	return a.Alloc(c, class)
}

// lookFurther has the pool get some more of what earlier sessions have left, and if that is all,
// the class another segment, if it is to have one.
func (a *Allocator) lookFurther(c *rdma.Coro, class layout.Class) error {
	s, chunk := a.space, chunkBlocks(class)
	s.mu.Lock()
	has := len(s.pools[class].free)
	s.mu.Unlock()
	more, err := s.adopt(c, a, class, scanRounds, has+chunk)
	if err == nil && !more {
		_, err = a.taken(c, func() (int, error) { return s.take(a, class, chunk, refillAhead) })
	}
	return err
}

// skips reports whether nothing was found on a blade a short while ago.
func (a *Allocator) skips(class layout.Class, blade rdma.BladeID) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	x := &a.lists[class].near[blade]
	if x.skip == 0 {
		return false
	}
	x.skip--
	return true
}

// skip has the next calls look for nothing on a blade.
func (a *Allocator) skip(class layout.Class, blade rdma.BladeID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lists[class].near[blade].skip = chunkBlocks(class)
}

// sort puts the free blocks of a class on the stacks of their blades.
func (a *Allocator) sort(class layout.Class, blades int) {
	v := a.space.View()
	a.mu.Lock()
	defer a.mu.Unlock()
	l := &a.lists[class]
	if len(l.near) < blades {
		l.near = append(l.near, make([]near, blades-len(l.near))...)
	}
	for _, addr := range l.free {
		if v.Copies(addr) == 0 {
			continue // lost
		}
		x := &l.near[v.At(addr, 0).Blade]
		x.free = append(x.free, addr)
	}
	l.free = l.free[:0]
}

// popSorted takes a block off the longest of the stacks.
func (a *Allocator) popSorted(class layout.Class) (layout.Addr, bool) {
	longest, most := rdma.BladeID(0), 0
	a.mu.Lock()
	for b := range a.lists[class].near {
		if n := len(a.lists[class].near[b].free); n > most {
			longest, most = rdma.BladeID(b), n
		}
	}
	a.mu.Unlock()
	if most == 0 {
		return 0, false
	}
	return a.popOn(class, longest)
}

// gather puts the stacks together again. The caller holds the lock of the allocator.
func (l *blockList) gather() {
	for b := range l.near {
		x := &l.near[b]
		l.free = append(l.free, x.free...)
		x.free, x.skip = x.free[:0], 0
	}
}

// count is how many free blocks there are. The caller holds the lock of the allocator.
func (l *blockList) count() int {
	n := len(l.free)
	for b := range l.near {
		n += len(l.near[b].free)
	}
	return n
}

// takeOn is take of blocks that have their primaries on a blade, and are in the pool, or were
// never used; it adds a segment only if take would, too. It looks at a part of a large pool. n is
// 0 if it finds none.
func (s *allocation) takeOn(a *Allocator, class layout.Class, want int, blade rdma.BladeID) (n int, err error) {
	err = s.updateLight(func() (err error) {
		n, err = s.takeOnNow(a, class, want, blade)
		return err
	})
	return n, err
}

// takeOnNow is takeOn; the caller holds the lock, in a change.
func (s *allocation) takeOnNow(a *Allocator, class layout.Class, want int, blade rdma.BladeID) (n int, err error) {
	if err := s.writable(); err != nil {
		return 0, err
	}
	if !s.serving(a) {
		return 0, fmt.Errorf("%w: %d was declared dead, and is given no blocks", ErrNoCoordinator, a.owner)
	}
	v := s.View()
	on := func(seg layout.SegmentID) bool {
		p := v.Placement(seg)
		return p.N > 0 && p.Replicas[0].Blade == blade
	}
	p := &s.pools[class]
	if n = s.poolOn(a, class, want, on); n > 0 {
		return n, nil
	}
	for i := range p.open {
		if on(p.open[i].seg) {
			return s.carveOn(a, class, want, i)
		}
	}
	return 0, nil
}

// poolOn takes blocks of the pool from segments that on accepts. The caller holds the lock.
func (s *allocation) poolOn(a *Allocator, class layout.Class, want int, on func(layout.SegmentID) bool) (n int) {
	p := &s.pools[class]
	a.mu.Lock()
	defer a.mu.Unlock()
	a.room(class)
	l := &a.lists[class]
	from := max(0, len(p.free)-nearSearch)
	kept := p.free[:from]
	for _, addr := range p.free[from:] {
		if n < want && on(addr.Segment()) {
			l.free = append(l.free, addr)
			n++
			continue
		}
		kept = append(kept, addr)
	}
	p.free = kept
	return n
}

// carveOn takes blocks of an open segment. The one to be allocated first comes last. The caller
// holds the lock, in a change, and not that of the allocator: the catalog may say that the segment
// is another process's, which empties lists.
func (s *allocation) carveOn(a *Allocator, class layout.Class, want, i int) (n int, err error) {
	p := &s.pools[class]
	x := &p.open[i]
	if end := min(x.next+uint32(want), s.blocks(class)); end > x.n {
		seg, has := x.seg, int(x.n-x.next)
		if err := s.extend(blocksOf(class), seg, end*class.Size()); errors.Is(err, errAgain) {
			return 0, err
		} else if err != nil {
			want = min(want, has) // what has memory
		}
		if i = p.opened(seg); i < 0 { // others have taken the rest meanwhile, or withdrawn it
			return 0, nil
		}
		x = &p.open[i]
		x.n = s.layout.Backed(seg) / class.Size()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.room(class)
	l := &a.lists[class]
	n = min(want, int(x.n-x.next))
	for k := n; k > 0; k-- {
		l.free = append(l.free, layout.MakeAddr(x.seg, (x.next+uint32(k)-1)*class.Size()))
	}
	if x.next += uint32(n); x.next == s.blocks(class) {
		p.open = append(p.open[:i], p.open[i+1:]...)
	}
	return n, nil
}
