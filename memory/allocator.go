package memory

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"sync"

	"txnode/memory/layout"
	"txnode/rdma"
)

// Allocator hands out record blocks to one thread, and belongs to the coroutines of that thread. It
// keeps a list of free blocks of each class, so Alloc and Free are a few instructions: no verb, no
// allocation, and a lock for which only ClaimStrays competes. Maintain fills and empties the lists
// in chunks, off the critical path (RACE, section 4.2).
//
// Only the headers of blocks say which blocks are free. If a coordinator dies, a sweep
// (ClaimStrays) or the next opening finds its blocks by their headers. So that a sweep can tell
// which blocks are in use, the allocator remembers blocks on their way: those that it has handed
// out until they are known to be in use (Used), and those that are about to be freed (Hold) until
// they are (Free).
type Allocator struct {
	space *Space
	view  *layout.View // of the last call: see moved
	work  uint64       // classes that Maintain has to look at

	owner uint32  // the coordinator that it serves, 0: none; under space.mu
	scans []*scan // that it has under way; under space.mu

	mu    sync.Mutex // taken behind space.mu, never before it; not held over a verb
	lists [layout.NumClasses]blockList
	out   transit
}

// blockList is the free blocks of one class; the next to be handed out is last.
type blockList struct {
	free      []layout.Addr
	low, high int
	near      []near // by blade; nil: AllocOn was not called. In use beside free.
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
		n := chunkBlocks(layout.Class(class))
		a.lists[class].low, a.lists[class].high = n/4, 4*n
	}
	s.allocators = append(s.allocators, a)
	return a, nil
}

// Serve says for which coordinator the allocator works from now on. When that one has
// been forgotten (LeaseGone), ClaimStrays takes what the allocator has, and it is
// given nothing more until it serves another one. An allocator that serves none has
// what it has until it is closed.
func (a *Allocator) Serve(coordinator uint32) {
	s := a.space
	s.mu.Lock()
	defer s.mu.Unlock()
	a.owner = coordinator
	if !slices.Contains(s.allocators, a) { // its last coordinator is long gone
		s.allocators = append(s.allocators, a)
	}
}

// Alloc returns a block of the class. On the blades its header is zero, or says that the block is
// free. Blocks that are allocated one after the other lie one after the other, a chunk of up to 64
// of them; the primaries of chunks are on all blades in turn. The segment may be younger than the
// view that the caller holds. A process that is cut off blades gets a block without a copy there.
//
// The caller calls Used when the block is in use, or Free. ErrNoCoordinator: the
// coordinator that the allocator serves was declared dead.
func (a *Allocator) Alloc(c *rdma.Coro, class layout.Class) (layout.Addr, error) {
	if class < layout.NumClasses && a.view == a.space.view.Load() && a.space.Without() == 0 {
		if addr, ok := a.pop(class); ok {
			return addr, nil
		}
	}
	return a.allocSlow(c, class)
}

// pop takes a block off its list.
func (a *Allocator) pop(class layout.Class) (layout.Addr, bool) {
	a.mu.Lock()
	l := &a.lists[class]
	n := len(l.free) - 1
	if n < 0 {
		a.mu.Unlock()
		return 0, false
	}
	addr := l.free[n]
	l.free = l.free[:n]
	a.out.add(addr)
	a.mu.Unlock()
	if n <= l.low {
		a.work |= 1 << class
	}
	return addr, true
}

func (a *Allocator) allocSlow(c *rdma.Coro, class layout.Class) (layout.Addr, error) {
	if class >= layout.NumClasses || class.Size() > a.space.opts.SegmentSize {
		return 0, fmt.Errorf("%w: blocks of class %d in segments of %d bytes",
			ErrTooLarge, class, a.space.opts.SegmentSize)
	}
	a.moved()
	if a.space.IsCutOff() {
		return a.allocReached(c, class)
	}
	for {
		if addr, ok := a.pop(class); ok {
			return addr, nil
		}
		if addr, ok := a.popSorted(class); ok {
			return addr, nil
		}
		if err := a.refill(c, class, refillThorough); err != nil {
			return 0, err
		}
	}
}

// AllocLarger is Alloc after Alloc has returned ErrNoSpace for a class. It returns a block of the
// next larger class that has a free one, and that class. It adds no segment.
func (a *Allocator) AllocLarger(c *rdma.Coro, class layout.Class) (layout.Addr, layout.Class, error) {
	a.moved()
	for k := class + 1; k < layout.NumClasses && k.Size() <= a.space.opts.SegmentSize; k++ {
		if addr, ok := a.pop(k); ok {
			return addr, k, nil
		}
		if addr, ok := a.popSorted(k); ok {
			return addr, k, nil
		}
		err := a.refill(c, k, refillPresent)
		if addr, ok := a.pop(k); ok {
			return addr, k, nil
		}
		if err != nil && !errors.Is(err, ErrNoSpace) {
			return 0, 0, err
		}
	}
	return 0, 0, fmt.Errorf("%w: blocks of more than %d bytes are all in use", ErrNoSpace, class.Size())
}

// Used says that a block which Alloc has returned is in use: on its primary, visible
// to every READ from now on, its header does not say any more that it is free and
// unlocked.
func (a *Allocator) Used(addr layout.Addr) {
	a.mu.Lock()
	a.out.remove(addr)
	a.mu.Unlock()
}

// Hold announces that a block is going to be freed, before any verb that frees it is posted. Free
// follows. Until then no sweep returns the block.
func (a *Allocator) Hold(addr layout.Addr) {
	a.mu.Lock()
	if !a.out.has(addr) {
		a.out.add(addr)
	}
	a.mu.Unlock()
}

// Holds reports whether a block is still on its way: handed out and neither used nor given back, or
// held. A sweep takes such blocks away after the coordinator is gone.
func (a *Allocator) Holds(addr layout.Addr) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	i, ok := a.out.find(addr)
	return ok && a.out.list[i]&disowned == 0
}

// Free gives back a block that Alloc has returned, or that is held. This allocator or another one
// will hand it out again. On all copies the block is in state Free, under a version that no block
// has had before, or it is as Alloc returned it. No reader can hold its address without finding
// out. If the block is not on its way (Holds), another allocator has it, and nothing happens. A
// block in a segment of another process is left to that.
func (a *Allocator) Free(addr layout.Addr, class layout.Class) {
	if !a.space.view.Load().Mine(addr) {
		a.Used(addr)
		return
	}
	l := &a.lists[class]
	for {
		a.mu.Lock()
		i, ok := a.out.find(addr)
		if !ok {
			a.mu.Unlock()
			return
		}
		if a.out.list[i]&disowned != 0 {
			a.out.remove(addr)
			a.mu.Unlock()
			a.space.leftFree(addr)
			return
		}
		if n := len(l.free); n < cap(l.free) {
			a.out.remove(addr)
			l.free = append(l.free, addr)
			a.mu.Unlock()
			if n >= l.high {
				a.work |= 1 << class
			}
			return
		}
		over := len(l.free) - l.high
		a.room(class)
		a.mu.Unlock()
		a.spill(class, over)
	}
}

// room makes the list of a class, once; the caller holds a.mu.
func (a *Allocator) room(class layout.Class) {
	if l := &a.lists[class]; cap(l.free) == 0 {
		l.free = make([]layout.Addr, 0, l.high+2*chunkBlocks(class))
	}
}

// Abandon gives up all blocks that are on their way: their coordinator is dead and recovered, and
// has no use for them. A sweep finds the free ones.
func (a *Allocator) Abandon() error {
	s := a.space
	return s.update(func() error {
		a.mu.Lock()
		n := a.out.n
		a.mu.Unlock()
		if n == 0 {
			return nil
		}
		if err := s.sweepAgain(); err != nil {
			return err // and it may be called again
		}
		a.mu.Lock()
		a.out.clear()
		a.mu.Unlock()
		return nil
	})
}

// spill gives the n blocks that were freed longest ago to the space.
func (a *Allocator) spill(class layout.Class, n int) {
	if n <= 0 {
		return
	}
	s := a.space
	s.mu.Lock()
	defer s.mu.Unlock()
	a.mu.Lock()
	defer a.mu.Unlock()
	l, p := &a.lists[class], &s.pools[class]
	l.gather()
	n = min(n, len(l.free)) // they may have been taken
	p.free = append(p.free, l.free[:n]...)
	l.free = l.free[:copy(l.free, l.free[n:])]
}

// has is how many free blocks of a class there are.
func (a *Allocator) has(class layout.Class) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.lists[class].count()
}

// Maintain brings the lists that have become short or long since the last call
// back to size. It is called between transactions, often: most calls do nothing.
// That there is no space is no error here; Alloc will say so.
func (a *Allocator) Maintain(c *rdma.Coro) error {
	for a.work != 0 {
		class := layout.Class(bits.TrailingZeros64(a.work))
		a.work &^= 1 << class
		l, n := &a.lists[class], a.has(class)
		if n > l.high {
			a.spill(class, n-l.high)
			continue
		}
		if n > l.low {
			continue
		}
		if err := a.refill(c, class, refillAhead); err != nil && !errors.Is(err, ErrNoSpace) {
			return err
		}
	}
	return nil
}

// refilling is how far a refill goes.
type refilling uint8

const (
	refillAhead refilling = iota // it may fail
	// rather look at every block of the earlier sessions, and take from others, than fail
	refillThorough
	refillPresent // that, and add no segment
)

// vainRest is for how many times as long as a look at all segments has taken none is begun after
// it, if it was in vain: when the blades are full, each block that is asked for would begin one.
const vainRest = 4

// refill adds about a chunk of blocks to the list of a class.
func (a *Allocator) refill(c *rdma.Coro, class layout.Class, how refilling) error {
	s := a.space
	chunk := chunkBlocks(class)
	p, begun := &s.pools[class], int64(0) // begun: when a look at all segments was
	for rounds, again := scanRounds, false; ; rounds = math.MaxInt {
		more, err := s.adopt(c, a, class, rounds, chunk)
		if err != nil {
			return err
		}
		n, err := a.taken(c, func() (int, error) { return s.take(a, class, chunk, how) })
		if errors.Is(err, ErrNoSpace) && how != refillAhead {
			adopted, e := s.adoptMore(class)
			if e != nil {
				return e
			}
			if more = more || adopted; !adopted && !again {
				s.mu.Lock()
				if begun = s.fabric.Now(); begun >= p.vain {
					again, more = true, s.lookAgain(class, math.MaxInt) || more
				}
				s.mu.Unlock()
			} else if again && !more {
				s.mu.Lock()
				now := s.fabric.Now()
				p.vain = now + vainRest*(now-begun)
				s.mu.Unlock()
			}
		}
		if n > 0 || err == nil || !more || how == refillAhead || !errors.Is(err, ErrNoSpace) {
			if n > 0 {
				err = nil
			}
			return err
		}
	}
}

// taken is what take returns, which may have to change the catalog, and is left when the context of
// the coroutine ends before: the blocks are in the lists of the allocator then, sooner or later.
func (a *Allocator) taken(c *rdma.Coro, take func() (int, error)) (int, error) {
	var n int
	err := c.Await(func() (err error) {
		n, err = take()
		return err
	}, nil)
	if errors.Is(err, rdma.ErrLeft) {
		return 0, err
	}
	return n, err
}

// moved notes a new view. Blocks in segments that are lost are dropped.
func (a *Allocator) moved() {
	v := a.space.View()
	if v == a.view {
		return
	}
	if v.Epoch != a.view.Epoch {
		a.mu.Lock()
		for class := range a.lists {
			l := &a.lists[class]
			l.gather()
			l.free = keep(l.free, func(addr layout.Addr) bool { return v.Copies(addr) > 0 })
		}
		a.mu.Unlock()
	}
	a.view = v
}

// Close gives all blocks back to the space. What is on its way stays that of the
// coordinator, if that is not closed.
func (a *Allocator) Close(*rdma.Coro) error {
	for class := range a.lists {
		a.spill(layout.Class(class), a.has(layout.Class(class)))
	}
	a.work = 0
	s := a.space
	s.mu.Lock()
	defer s.mu.Unlock()
	if a.owner == 0 || !s.outlives(a.owner) {
		s.allocators = slices.DeleteFunc(s.allocators, func(x *Allocator) bool { return x == a })
	}
	return nil
}

// transit is a small set of blocks, which mostly leave in the order in which they came.
type transit struct {
	list []layout.Addr // 0: one has left; plus disowned, perhaps
	at   int           // where to look first
	n    int
}

func (t *transit) add(a layout.Addr) {
	if len(t.list) >= 2*t.n+64 {
		t.list, t.at = keep(t.list, func(a layout.Addr) bool { return a != 0 }), 0
	}
	t.list = append(t.list, a)
	t.n++
}

func (t *transit) find(a layout.Addr) (int, bool) {
	if t.n == 0 {
		return 0, false
	}
	for i := t.at; i < len(t.list); i++ {
		if t.list[i]&^disowned == a {
			return i, true
		}
	}
	for i := range min(t.at, len(t.list)) {
		if t.list[i]&^disowned == a {
			return i, true
		}
	}
	return 0, false
}

func (t *transit) has(a layout.Addr) bool {
	_, ok := t.find(a)
	return ok
}

func (t *transit) remove(a layout.Addr) {
	i, ok := t.find(a)
	if !ok {
		return
	}
	t.list[i], t.at = 0, i+1
	if t.n--; t.n == 0 {
		t.clear()
	}
}

// disowned is added to the address of a block whose segment has come to be another process's, or
// was, since the block is on its way: its allocator does not get it back. It is found by its
// header, but by nobody as long as it is here: else the allocator could have it again, and what is
// said of it at last would be taken for the second time.
const disowned layout.Addr = 1

// disown marks the blocks of segments.
func (t *transit) disown(of func(layout.SegmentID) bool) {
	for i, a := range t.list {
		if a != 0 && of(a.Segment()) {
			t.list[i] |= disowned
		}
	}
}

// appendTo appends the blocks to a list.
func (t *transit) appendTo(list []layout.Addr) []layout.Addr {
	for _, a := range t.list {
		if a != 0 {
			list = append(list, a&^disowned)
		}
	}
	return list
}

func (t *transit) clear() { t.list, t.at, t.n = t.list[:0], 0, 0 }
