package inproc

import (
	"math"
	"runtime"
	"time"

	"txnode/rdma"
	"txnode/rdma/region"
)

// port is a lane and the fabric's clock: what is posted is executed at once, on the
// caller's goroutine.
type port struct {
	*region.Lane
	f *Fabric
}

// filePort is a port of a fabric with files, whose regions may have pages that are not
// there.
type filePort struct{ *port }

// NewPort maps an arena and connects it to all blades.
func (f *Fabric) NewPort(cfg rdma.PortConfig) (rdma.Port, error) {
	l, err := f.NewLane(cfg.Arena)
	if err != nil {
		return nil, err
	}
	p := &port{l, f}
	if f.Files() {
		return filePort{p}, nil
	}
	return p, nil
}

// Post executes the requests and completes them.
func (p *port) Post(b *rdma.Batch, first int) {
	wrs := b.WRs()[first:]
	if done := p.Plain(wrs); done < len(wrs) {
		p.rest(b, first, done)
		return
	}
	b.CompleteAll(len(wrs))
}

// rest executes what Plain has left of a Post.
func (p *port) rest(b *rdma.Batch, first, done int) {
	complete(b, first, p.Rest(b.WRs()[first:], done))
}

// Post executes the requests and completes them.
func (p filePort) Post(b *rdma.Batch, first int) {
	complete(b, first, p.Execute(b.WRs()[first:]))
}

// complete completes the requests from first on, so many of which have failed.
func complete(b *rdma.Batch, first, failed int) {
	for i, n := first, failed; n > 0; i++ {
		if s := b.WR(i).Status; s != rdma.StatusOK {
			b.Complete(i, s)
			n--
		}
	}
	b.CompleteAll(b.Len() - first - failed)
}

// Mappings tells where the regions are: rdma.Mapped.
func (p *port) Mappings() []rdma.Mapping { return p.f.Mappings() }

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
