package inproc

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
	"txnode/rdma"
)

// queuePair is a port's connection to one blade.
type queuePair struct {
	base     unsafe.Pointer
	size     uint64
	key      *atomic.Uint64
	status   rdma.Status // StatusFlushed: error state
	readOnly bool
	region   *region
	_        [24]byte // to 64 bytes
}

// lanes is what exec needs to know of a port.
type lanes struct {
	qps       unsafe.Pointer // of queuePair
	blades    uint64         // how many; 0: exec executes nothing
	arena     unsafe.Pointer
	size      uint64  // of the arena
	announced *uint64 // odd while the port executes; outside the Go heap
	left      int     // requests that exec has not executed yet, for who looks after a fault
}

// port executes what is posted, at once, on the caller's goroutine.
type port struct {
	lanes
	fenced bool // announce with fences: no membarrier, or stores are not ordered
	qps    []queuePair
	arena  []byte
	bounce []byte // of bounceSize, outside the Go heap
	mem    []byte // the announcement's page, the bounce buffer, the arena
	f      *Fabric
}

// bounceSize is how much of an unaligned request is copied at a time.
const bounceSize = 4096

// NewPort maps an arena and connects it to all blades.
func (f *Fabric) NewPort(cfg rdma.PortConfig) (rdma.Port, error) {
	if cfg.Arena <= 0 || cfg.Arena > math.MaxInt32-pageSize {
		return nil, fmt.Errorf("rdma: arena of %d bytes: between 1 and 2^31-1-%d are possible", cfg.Arena, pageSize)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil, rdma.ErrClosed
	}
	front := pageSize + max(bounceSize, pageSize)
	size := (cfg.Arena + pageSize - 1) / pageSize * pageSize
	mem, err := anonymous(uint64(front + size))
	if err != nil {
		return nil, err
	}
	p := &port{
		mem: mem, arena: mem[front:], bounce: mem[pageSize : pageSize+bounceSize],
		f: f, fenced: !f.barrier.asymmetric || !storesOrdered,
	}
	for _, r := range f.regions {
		p.qps = append(p.qps, queuePair{base: r.base(), size: r.size, key: &r.key, readOnly: r.readOnly, region: r})
	}
	p.lanes = lanes{
		qps: unsafe.Pointer(&p.qps[0]), blades: uint64(len(p.qps)),
		arena: unsafe.Pointer(&p.arena[0]), size: uint64(len(p.arena)),
		announced: (*uint64)(unsafe.Pointer(&mem[0])),
	}
	if p.fenced || !wide {
		p.lanes.blades = 0
	}
	f.ports[p] = struct{}{}
	if f.files {
		return &filePort{p}, nil
	}
	return p, nil
}

var pageSize = unix.Getpagesize()

// executing returns a number that is odd while the port executes, and another
// one each time.
func (p *port) executing() uint64 { return atomic.LoadUint64(p.announced) }

// Mappings tells where the regions are: rdma.Mapped.
func (p *port) Mappings() []rdma.Mapping {
	maps := make([]rdma.Mapping, len(p.qps))
	for i := range p.qps {
		maps[i] = rdma.Mapping{Base: p.qps[i].base, Size: p.qps[i].size}
	}
	return maps
}

func (p *port) Poll() {}

// spinNs is how long before its end Wait stops sleeping and spins.
const spinNs = 20_000

// Wait waits for the time only: completions are never outstanding.
func (p *port) Wait(until int64) {
	for until != math.MaxInt64 {
		left := until - p.Now()
		if left <= 0 {
			return
		}
		if left > 2*spinNs {
			time.Sleep(time.Duration(left - spinNs))
			continue
		}
		runtime.Gosched()
	}
}

func (p *port) Now() int64 { return p.f.Now() }

func (p *port) Arena() []byte { return p.arena }

func (p *port) Reset(b rdma.BladeID) error {
	if int(b) >= len(p.qps) {
		return fmt.Errorf("rdma: blade %d of %d: %w", b, len(p.qps), rdma.ErrBladeDown)
	}
	if r := p.qps[b].region; r.stopped() {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.stoppedError(b)
	}
	p.qps[b].status = rdma.StatusOK
	return nil
}

// Close unmaps the arena. What is posted afterwards fails: no blade is connected.
func (p *port) Close() error {
	p.f.mu.Lock()
	defer p.f.mu.Unlock()
	if p.mem == nil {
		return nil
	}
	delete(p.f.ports, p)
	mem := p.mem
	p.mem, p.arena, p.bounce, p.qps = nil, nil, nil, nil
	p.lanes = lanes{announced: new(uint64)}
	if err := unix.Munmap(mem); err != nil {
		return errors.Join(errors.New("rdma: arena"), err)
	}
	return nil
}
