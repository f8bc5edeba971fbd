package seeds

import (
	"errors"
	"slices"
	"time"

	"txnode/memory/layout"
	"txnode/rdma"
	"txnode/rdma/sim"
)

// siege is one loss after the other while the work goes on: whenever all copies are there, as many
// blades stop as the database promises to survive, or fewer, and come back when they have been
// declared dead, perhaps without their memory. Whoever is told of a fault stays, and goes on.
type siege struct {
	left int // losses to come
	rng  rng
	at   int64          // virtual time before which nothing happens, in nanoseconds
	down []rdma.BladeID // stopped at present
	busy bool           // somebody is at it
	span time.Duration  // between two of its steps, at most
	lost [2]uint64      // blades that came back: without their memory, and with it
}

// siegeSteps is how many times as many transactions as else clients run at most until a siege is
// over.
const siegeSteps = 12

// draw decides whether there is a siege, by a stream of its own: seeds without one stay as they
// are. No other fault stops blades then.
func (s *siege) draw(p *plan, o *Options) {
	r := rng(p.seed ^ 0x51e6e)
	if x := r.chance(15); !o.Siege && (!x || p.backups == 0 || o.Only != nil ||
		!slices.Contains(o.Faults, sim.FaultRestart)) {
		return
	}
	if p.backups == 0 {
		p.backups, p.blades = 1, p.blades+1
	}
	p.faults = append([]sim.Fault{}, p.faults...) // never nil: it is a run with faults
	*s = siege{left: 2 + int(r.n(5)), span: time.Duration(1+r.n(20)) * 20 * time.Microsecond, rng: rng(r.n(1 << 62))}
	p.survive, p.gone, p.later, p.lease = true, -1, nil, 5*time.Millisecond
	if p.work.bulk {
		p.logArea = largeLog // what they write grows
	}
	for i := range p.faults {
		if x := &p.faults[i]; x.Kind == sim.FaultRestart {
			x.Kind, x.X, x.Memory = sim.FaultSlow, 5, false
		}
	}
}

// on reports whether the siege goes on.
func (s *siege) on() bool { return s.left > 0 || len(s.down) > 0 }

// besiege takes the next step of the siege, if it is time.
func (b *bench) besiege() {
	s, f := &b.siege, b.world.fabric
	if !s.on() || s.busy || b.world.fabric.Now() < s.at {
		return
	}
	s.busy = true
	defer func() { s.busy = false }()
	up := rdma.BladeID(0) // of f+1 blades or more, f are stopped at most
	for slices.Contains(s.down, up) {
		up++
	}
	_ = f.RestartBlade(up, true) // which does nothing, but at its time: from here on no other thread runs
	// A process may be behind the catalog.
	l, _, err := layout.Load(&b.world.catalog)
	if err != nil || l == nil {
		return
	}
	now := l.Redundancy()
	switch {
	case len(s.down) > 0:
		for _, x := range s.down {
			if !slices.Contains(now.Down, x) {
				return // nobody has noticed
			}
		}
		for _, x := range s.down {
			keeps := s.rng.n(2)
			s.lost[keeps]++
			_ = f.RestartBlade(x, keeps == 1)
		}
		s.down = nil
	case now.Missing > 0 || len(now.Down) > 0:
		return
	default:
		for n := 1 + s.rng.n(uint64(b.backups)); n > 0; n-- {
			x := rdma.BladeID(s.rng.n(uint64(b.blades)))
			if !slices.Contains(s.down, x) {
				s.down = append(s.down, x)
				_ = f.StopBlade(x)
			}
		}
		s.left--
	}
	s.at = f.Now() + int64(s.rng.n(uint64(s.span)))
}

// errTired ends a transaction that has been tried for too long.
var errTired = errors.New("a fault is in the way of a transaction for too long")

// stays reports whether a client whose transaction has ended with an error goes on with the next:
// under siege, or of several processes, unless its thread was cut off.
func (b *bench) stays(err error) bool {
	return (b.siege.span > 0 || b.processes > 1) && err != nil && !errors.Is(err, errEnded) && b.forgiven(err)
}

// maintainer is a worker as [txn.Worker.Maintain] needs it.
type maintainer interface{ Maintain() error }

// keep has a client see to the copies more often than workers do by themselves, under siege:
// these runs are short.
func (b *bench) keep(r *rng, w maintainer) error {
	if b.siege.span == 0 || !r.chance(50) {
		return nil
	}
	if err := w.Maintain(); !b.stays(err) {
		return b.forgive(err)
	}
	return nil
}

// breath is how long a client who stays waits before he goes on, in nanoseconds.
const breath = 10_000

// another reports whether a client runs transaction i, of n without a siege.
func (b *bench) another(i, n int) bool {
	return i < n || b.siege.on() && i < siegeSteps*n
}
