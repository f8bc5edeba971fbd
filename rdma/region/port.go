package region

import (
	"math"
	"runtime"
	"time"

	"txnode/rdma"
)

// Clock is the clock of a fabric: Base and the nanoseconds since Start, which it has a
// monotonic reading of.
type Clock struct {
	Start time.Time
	Base  int64
}

// Now is the time in nanoseconds.
func (c *Clock) Now() int64 { return c.Base + int64(time.Since(c.Start)) }

// Port is a lane and a clock: what is posted is executed at once, on the caller's
// goroutine. rdma.Port documents it.
type Port struct {
	*Lane
	Clock
}

// filePort is a port to regions that may have pages that are not there.
type filePort struct{ *Port }

// Port makes a port of a lane. For a set with files it is one that meets faults.
func (l *Lane) Port(c Clock) rdma.Port {
	p := &Port{l, c}
	if l.set.files {
		return filePort{p}
	}
	return p
}

// Post executes the requests and completes them.
func (p *Port) Post(b *rdma.Batch, first int) {
	wrs := b.WRs()[first:]
	if done := p.Plain(wrs); done < len(wrs) {
		p.rest(b, first, done)
		return
	}
	b.CompleteAll(len(wrs))
}

// rest executes what Plain has left of a Post.
func (p *Port) rest(b *rdma.Batch, first, done int) {
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
func (p *Port) Mappings() []rdma.Mapping { return p.set.Mappings() }

// Poll does nothing: completions are never outstanding.
func (p *Port) Poll() {}

// spinNs is how long before its end Wait stops sleeping and spins.
const spinNs = 20_000

// Wait waits for the time only: completions are never outstanding.
func (p *Port) Wait(until int64) {
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
