package region

import (
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"txnode/rdma"
)

// queuePair is a lane's connection to one region.
type queuePair struct {
	base     unsafe.Pointer
	size     uint64
	key      *atomic.Uint64
	status   rdma.Status // StatusFlushed: error state
	readOnly bool
	region   *region
	_        [24]byte // to 64 bytes
}

// head is what exec needs to know of a lane.
type head struct {
	qps       unsafe.Pointer // of queuePair
	blades    uint64         // how many; 0: exec executes nothing
	arena     unsafe.Pointer
	size      uint64  // of the arena
	announced *uint64 // odd while the lane executes; outside the Go heap
	left      int     // requests that exec has not executed yet, for who looks after a fault
}

// Lane executes requests on the regions of a set, each when it is handed over, on
// the caller's goroutine: a queue pair to each region and the memory that requests
// copy to and from. It is not safe for concurrent use.
type Lane struct {
	head
	fenced bool    // announce with fences: no membarrier, or stores are not ordered
	line   *uint64 // the word of Lines; nil: the lane is closed
	qps    []queuePair
	arena  []byte
	bounce []byte // of bounceSize, outside the Go heap
	mem    []byte // the announcement's page, the bounce buffer, the arena
	set    *Set
}

// bounceSize is how much of an unaligned request is copied at a time.
const bounceSize = 4096

// NewLane maps an arena of at least so many bytes and connects it to all regions.
func (s *Set) NewLane(arena int) (*Lane, error) {
	if arena <= 0 || arena > math.MaxInt32-pageSize {
		return nil, fmt.Errorf("rdma: arena of %d bytes: between 1 and 2^31-1-%d are possible", arena, pageSize)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, rdma.ErrClosed
	}
	front := pageSize + max(bounceSize, pageSize)
	size := (arena + pageSize - 1) / pageSize * pageSize
	mem, err := anonymous(uint64(front + size))
	if err != nil {
		return nil, err
	}
	line, fenced, err := s.lines.Take((*uint64)(unsafe.Pointer(&mem[0])))
	if err != nil {
		return nil, errors.Join(err, unix.Munmap(mem))
	}
	l := &Lane{
		mem: mem, arena: mem[front:], bounce: mem[pageSize : pageSize+bounceSize],
		set: s, line: line, fenced: fenced || !storesOrdered,
	}
	l.qps = make([]queuePair, len(s.regions))
	for i, r := range s.regions {
		l.qps[i].connect(r)
	}
	l.head = head{
		qps: unsafe.Pointer(&l.qps[0]), blades: uint64(len(l.qps)),
		arena: unsafe.Pointer(&l.arena[0]), size: uint64(len(l.arena)),
		announced: line,
	}
	if l.fenced || !wide {
		l.blades = 0
	}
	s.lanes[l] = struct{}{}
	return l, nil
}

// connect connects a queue pair to a region, with the set's mu held.
func (q *queuePair) connect(r *region) {
	r.refs++
	*q = queuePair{base: r.base(), size: r.size, key: &r.oldest, readOnly: r.readOnly, region: r}
}

var pageSize = unix.Getpagesize()

// executing returns a number that is odd while the lane executes, and another
// one each time.
func (l *Lane) executing() uint64 { return atomic.LoadUint64(l.announced) }

// Arena is the memory that requests copy to and from: page-aligned, fixed, outside
// the Go heap.
func (l *Lane) Arena() []byte { return l.arena }

// Reset takes the queue pair of a region out of the error state, and connects it to that which has
// replaced the one before. ErrBladeDown: there is no such region, or it is stopped.
func (l *Lane) Reset(b rdma.BladeID) error {
	if int(b) >= len(l.qps) {
		return fmt.Errorf("rdma: blade %d of %d: %w", b, len(l.qps), rdma.ErrBladeDown)
	}
	q := &l.qps[b]
	if !q.region.stopped() {
		q.status = rdma.StatusOK
		return nil
	}
	if l.set.revive != nil {
		l.set.revive(b)
	}
	l.set.mu.Lock()
	defer l.set.mu.Unlock()
	was, r := q.region, l.set.regions[b]
	if r.stopped() {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.stoppedError(b)
	}
	q.connect(r)
	return was.drop()
}

// Close unmaps the arena. What is executed afterwards fails: no blade is connected.
func (l *Lane) Close() error {
	l.set.mu.Lock()
	defer l.set.mu.Unlock()
	if l.mem == nil {
		return nil
	}
	delete(l.set.lanes, l)
	l.set.lines.Leave(l.line)
	var err error
	for i := range l.qps {
		err = errors.Join(err, l.qps[i].region.drop())
	}
	mem := l.mem
	l.mem, l.arena, l.bounce, l.qps = nil, nil, nil, nil
	l.head = head{announced: new(uint64)}
	if failed := unix.Munmap(mem); failed != nil {
		err = errors.Join(err, errors.New("rdma: arena"), failed)
	}
	return err
}
