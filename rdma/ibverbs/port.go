package ibverbs

import (
	"errors"
	"fmt"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"txnode/rdma"
)

// port is the transport of one thread. The control path is here, the data path in queue.go.
//
//	registered:  | arena | scratch line | results of atomics: depth words for each pair |
//	requests:    | depth requests for each pair |
//
// Both are outside the Go heap: the device reads and writes them.
type port struct {
	f        *Fabric
	arena    []byte
	mem      []byte // registered
	requests []byte
	reg      registration
	queue    queue
	sleeper  *sleeper
	pairs    []queuePair
	links    []*link // by server
	memory   uint64  // address of mem
	scratch  uint64  // address of 64 bytes
	words    uint64  // address of the results of atomics, in mem at wordsAt
	wordsAt  int
	lkey     uint32
	longest  uint32 // bytes of a request
	chains   []chain
	ringing  []*queuePair // of chains
	reaped   []completion
	out      int    // requests that have not completed
	done     uint64 // requests that have
	polls    uint32
	closed   bool
}

// scratchSize is what lies between arena and results: requests of no bytes read it.
const scratchSize = 64

// Most completions that one call takes.
const reapMax = 64

func newPort(f *Fabric, cfg rdma.PortConfig) (p *port, err error) {
	page := unix.Getpagesize()
	known := f.Known()
	depth := f.caps.MaxBatch
	size := (cfg.Arena + page - 1) / page * page
	p = &port{f: f, reaped: make([]completion, reapMax), longest: f.dev.attributes().message}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.release())
		}
	}()
	if p.mem, err = mapMemory(uint64(size+scratchSize+8*depth*len(known)), false); err != nil {
		return p, err
	}
	p.arena = p.mem[:size:size]
	if p.requests, err = mapMemory(uint64(requestSize*depth*len(known)), false); err != nil {
		return p, err
	}
	if p.reg, err = f.dev.register(p.mem, accessLocalWrite); err != nil {
		return p, fmt.Errorf("an arena of %d bytes: %w", cfg.Arena, err)
	}
	p.lkey, p.memory, p.wordsAt = p.reg.local(), address(p.mem), size+scratchSize
	p.scratch, p.words = p.memory+uint64(size), p.memory+uint64(p.wordsAt)
	alone := cfg.Policy == rdma.PerThreadDoorbell
	if p.queue, err = f.dev.newQueue(depth*len(known), true, alone); err != nil {
		return p, err
	}
	if p.sleeper, err = newSleeper(p); err != nil {
		return p, err
	}
	p.pairs = make([]queuePair, len(known))
	for i := range p.pairs {
		requests := p.requests[requestSize*depth*i:][:requestSize*depth]
		p.pairs[i].init(p, rdma.BladeID(i), depth, requests)
	}
	for i := range f.Servers() {
		p.links = append(p.links, &link{f: f, server: i})
	}
	p.meetAll()
	return p, nil
}

// address is where p begins.
func address(p []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(p)))) }

// meetAll connects all queue pairs, those of each server by one call. Reset says why one is not.
func (p *port) meetAll() {
	of := make([][]*queuePair, len(p.links))
	for i := range p.pairs {
		q := &p.pairs[i]
		q.server, q.index = p.f.Place(q.blade)
		of[q.server] = append(of[q.server], q)
	}
	var wg sync.WaitGroup
	for i, all := range of {
		wg.Go(func() { _ = p.meet(p.links[i], all) }) // Reset says why not
	}
	wg.Wait()
}

// meet connects queue pairs to the blades of one server, and returns the first error.
func (p *port) meet(l *link, all []*queuePair) error {
	rows := make([]row, len(all))
	for i, q := range all {
		if err := q.renew(); err != nil {
			return err
		}
		rows[i] = row{blade: q.index, number: q.pair.number(), first: random32() & packetMask}
	}
	theirs, answers, err := l.connect(rows)
	if err != nil {
		return err
	}
	for i, q := range all {
		if e := q.attach(&theirs, &rows[i], &answers[i]); err == nil {
			err = e
		}
	}
	return err
}

// Arena is the registered memory.
func (p *port) Arena() []byte { return p.arena }

// Now is the fabric's clock.
func (p *port) Now() int64 { return p.f.Now() }

// Reset takes a queue pair out of the error state. If a request broke it that was never posted, that
// is all; else both sides connect anew. ErrBladeDown: the blade, or its server, does not answer.
func (p *port) Reset(b rdma.BladeID) error {
	if int(b) >= len(p.pairs) {
		return fmt.Errorf("ibverbs: blade %d of %d: %w", b, len(p.pairs), rdma.ErrBladeDown)
	}
	q := &p.pairs[b]
	l := p.links[q.server]
	p.reap()
	if !q.broken && q.dead != rdma.StatusOK && l.alive() && !p.f.gone.Load() {
		q.dead = rdma.StatusOK
		return nil
	}
	if p.f.gone.Load() {
		q.sever()
		q.dead = rdma.StatusNoBlade
		return down(b, fmt.Errorf("%w: device %s was removed, or has failed: start the process again", ErrDevice,
			p.f.dev.attributes().name))
	}
	q.sever()
	if err := p.meet(l, []*queuePair{q}); err != nil {
		q.dead = rdma.StatusNoBlade
		return down(b, err)
	}
	return nil
}

// Close closes connections and queue pairs, and gives up the arena. What is posted afterwards fails:
// no blade is connected. To close again does nothing.
func (p *port) Close() error {
	if p.closed {
		return nil
	}
	p.closed = true
	p.f.leave()
	return p.release()
}

func (p *port) release() error {
	var errs []error
	for i := range p.pairs {
		if q := p.pairs[i].pair; q != nil {
			errs = append(errs, q.close())
		}
	}
	for _, l := range p.links {
		l.close()
	}
	p.pairs, p.links, p.arena = nil, nil, nil
	if p.sleeper != nil {
		errs = append(errs, p.sleeper.close())
	}
	if p.queue != nil {
		errs = append(errs, p.queue.close())
	}
	if p.reg != nil {
		errs = append(errs, p.reg.end())
	}
	if p.f.gone.Load() {
		errs = nil // of a device that is gone nothing can be ended
	}
	for _, m := range [][]byte{p.mem, p.requests} {
		if m != nil {
			errs = append(errs, unix.Munmap(m))
		}
	}
	p.mem, p.requests = nil, nil
	return errors.Join(errs...)
}
