package memory

import (
	"errors"
	"fmt"
	"math"
	"math/bits"

	"txnode/rdma"
)

// Allocator hands out record blocks to one thread. It keeps a list of free
// blocks of each class, so that Alloc and Free are a few instructions: no lock,
// no verb, no allocation. Lists are filled and emptied in chunks, off the
// critical path, by Maintain (RACE, section 4.2). It may be used by all
// coroutines of the thread, and by nobody else.
//
// Which blocks are free is recorded nowhere but in their headers: a block that
// an allocator holds when the process dies is found again by its header.
type Allocator struct {
	space *Space
	view  *View // of the last call: see moved
	lists [NumClasses]blockList
	work  uint64 // classes that Maintain has to look at
}

// blockList is the free blocks of one class; the next to be handed out is last.
type blockList struct {
	free      []Addr
	low, high int
}

// NewAllocator makes an allocator for the thread.
func (s *Space) NewAllocator(t *rdma.Thread) (*Allocator, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.writable(); err != nil {
		return nil, err
	}
	if t.Fabric() != s.fabric {
		return nil, errors.New("memory: the thread is on another fabric than the space")
	}
	a := &Allocator{space: s, view: s.View()}
	for class := range a.lists {
		n := chunkBlocks(Class(class))
		a.lists[class].low, a.lists[class].high = n/4, 4*n
	}
	return a, nil
}

// Alloc returns a block of the class. On the blades its header is zero, or says
// that the block is free. Blocks that are allocated one after the other lie one
// after the other, a chunk of up to 64 of them; the primaries of chunks are on all blades in turn. The segment may be younger than the view that the caller holds.
func (a *Allocator) Alloc(c *rdma.Coro, class Class) (Addr, error) {
	if class < NumClasses {
		l := &a.lists[class]
		if n := len(l.free) - 1; n >= 0 && a.view == a.space.view.Load() {
			addr := l.free[n]
			l.free = l.free[:n]
			if n <= l.low {
				a.work |= 1 << class
			}
			return addr, nil
		}
	}
	return a.allocSlow(c, class)
}

func (a *Allocator) allocSlow(c *rdma.Coro, class Class) (Addr, error) {
	if class >= NumClasses || class.Size() > a.space.opts.SegmentSize {
		return 0, fmt.Errorf("%w: blocks of class %d in segments of %d bytes", ErrTooLarge, class, a.space.opts.SegmentSize)
	}
	a.moved()
	l := &a.lists[class]
	for len(l.free) == 0 {
		if err := a.refill(c, class, true); err != nil {
			return 0, err
		}
	}
	n := len(l.free) - 1
	addr := l.free[n]
	l.free = l.free[:n]
	if n <= l.low {
		a.work |= 1 << class
	}
	return addr, nil
}

// Free gives a block back, to be handed out again by this allocator or, later,
// another. Its state on all replicas is already Free, under a version of a
// coordinator of this session, or it is as Alloc returned it; and no reader can
// hold its address without finding out.
func (a *Allocator) Free(addr Addr, class Class) {
	l := &a.lists[class]
	if len(l.free) < cap(l.free) {
		l.free = append(l.free, addr)
		if len(l.free) > l.high {
			a.work |= 1 << class
		}
		return
	}
	a.freeSlow(addr, class)
}

func (a *Allocator) freeSlow(addr Addr, class Class) {
	l := &a.lists[class]
	chunk := chunkBlocks(class)
	if cap(l.free) == 0 {
		l.free = make([]Addr, 0, l.high+2*chunk)
	} else {
		a.spill(class, len(l.free)-l.high)
	}
	l.free = append(l.free, addr)
}

// spill gives the n blocks that were freed longest ago to the space.
func (a *Allocator) spill(class Class, n int) {
	l := &a.lists[class]
	if n > 0 {
		a.space.giveBack(class, l.free[:n])
		l.free = l.free[:copy(l.free, l.free[n:])]
	}
}

// Low reports whether so few blocks of the class are left that Maintain would
// fetch more.
func (a *Allocator) Low(class Class) bool { return len(a.lists[class].free) <= a.lists[class].low }

// Refill fetches a chunk of blocks of the class now. It is for those who know
// that they will need many; Alloc and Maintain do by themselves. ErrNoSpace
// means that nothing was fetched.
func (a *Allocator) Refill(c *rdma.Coro, class Class) error {
	if class >= NumClasses || class.Size() > a.space.opts.SegmentSize {
		return fmt.Errorf("%w: blocks of class %d in segments of %d bytes", ErrTooLarge, class, a.space.opts.SegmentSize)
	}
	a.moved()
	return a.refill(c, class, true)
}

// Maintain brings the lists that have become short or long since the last call
// back to size. It is called between transactions, often: most calls do nothing.
// That there is no space is no error here; Alloc will say so.
func (a *Allocator) Maintain(c *rdma.Coro) error {
	for a.work != 0 {
		class := Class(bits.TrailingZeros64(a.work))
		a.work &^= 1 << class
		l := &a.lists[class]
		if n := len(l.free) - l.high; n > 0 {
			a.spill(class, n)
			continue
		}
		if len(l.free) > l.low {
			continue
		}
		if err := a.refill(c, class, false); err != nil && !errors.Is(err, ErrNoSpace) {
			return err
		}
	}
	return nil
}

// refill adds about a chunk of blocks to the list of a class. thorough: rather
// look at every block of the earlier sessions than fail.
func (a *Allocator) refill(c *rdma.Coro, class Class, thorough bool) error {
	s, l := a.space, &a.lists[class]
	chunk := chunkBlocks(class)
	if cap(l.free) == 0 {
		l.free = make([]Addr, 0, l.high+2*chunk)
	}
	for rounds := scanRounds; ; rounds = math.MaxInt {
		more, err := s.adopt(c, class, rounds, chunk)
		if err != nil {
			return err
		}
		have := len(l.free)
		l.free, err = s.take(l.free, class, chunk)
		if len(l.free) > have || err == nil || !more || !thorough || !errors.Is(err, ErrNoSpace) {
			if len(l.free) > have {
				err = nil
			}
			return err
		}
	}
}

// moved notes a new view. Blocks in segments that are lost are dropped.
func (a *Allocator) moved() {
	v := a.space.View()
	if v == a.view {
		return
	}
	if v.Epoch != a.view.Epoch {
		for class := range a.lists {
			l := &a.lists[class]
			l.free = keep(l.free, func(addr Addr) bool { return v.Copies(addr) > 0 })
		}
	}
	a.view = v
}

// Close gives all blocks back to the space.
func (a *Allocator) Close(*rdma.Coro) error {
	for class := range a.lists {
		a.spill(Class(class), len(a.lists[class].free))
	}
	a.work = 0
	return nil
}
