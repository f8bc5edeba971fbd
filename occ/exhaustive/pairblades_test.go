package exhaustive

import (
	"fmt"
	"slices"
	"testing"

	"txnode/occ/recovery"
	"txnode/rdma"
	"txnode/rdma/steptest"
)

// TestBladeLostInPairs loses or restarts each blade when two clients are in the middle of
// conflicting transactions: the first after any of its requests, the second after any of
// its own behind that. They have stopped, or go on until a verb fails, or go on with late
// verbs when all is decided.
func TestBladeLostInPairs(t *testing.T) {
	s := &sample{stride: 1999}
	switch {
	case *full:
		s.stride = 29
	case testing.Short():
		s.stride = 9973
	}
	kinds := slices.DeleteFunc(configs(), func(c config) bool { return c.caps != strong || c.backups > 1 && !*full })
	each(t, kinds, func(t *testing.T, c config) {
		s := s.own()
		w := newWorld(t, c, loadPairs)
		for _, x := range conflicting {
			for _, y := range conflicting {
				t.Run(x.name+"+"+y.name, func(t *testing.T) {
					s.try(t, w, func() error { return w.bladeInPair(s, x, y) })
				})
			}
		}
	})
}

// What two clients do when a blade is lost.
const (
	bothHaveStopped = iota
	bothGoOnFirst
	bothGoOnLate
	bladePairFates
)

// bladeInPair tries a pair of transactions. how of a case is the blade, what happens to it,
// and what the clients do, each times how many there are of those before it.
func (w *world) bladeInPair(s *sample, x, y txn) error {
	var cs []*client
	begin := func(a, b int) (int, int) {
		w.restart()
		w.f.SetGrain(steptest.Verbs, false)
		cs = []*client{w.client(), w.client()}
		for i, ops := range [][]op{x.ops, y.ops} {
			cs[i].warm(keysOf(ops)...)
		}
		cs[0].begins(1, x.ops...)
		cs[1].begins(1, y.ops...)
		return w.advance(cs[0].run, a), w.advance(cs[1].run, b)
	}
	na, _ := begin(allMoves, 0)
	_, nb := begin(0, allMoves)
	return s.grids(na, 2*nb, blades*mishaps*bladePairFates, func(g grid) (bool, error) {
		if a, b := begin(g.a, g.b); a < g.a || b < g.b {
			return false, nil
		}
		return true, w.bladeFate(mishap{rdma.BladeID(g.how % blades), g.how / blades % mishaps}, g.how/blades/mishaps, cs)
	})
}

// bladeFate lets it happen, and checks what comes of it.
func (w *world) bladeFate(m mishap, how int, cs []*client) error {
	if how == bothHaveStopped {
		stopClients(cs...)
	}
	if m.kind() == bladeStops {
		w.f.StopBlade(m.blade)
	} else {
		w.f.RestartBlade(m.blade, m.kind() == bladeIsBack)
	}
	if how == bothGoOnFirst {
		w.toTheEnd()
	}
	o := recovery.Options{Space: w.space}
	if _, err := recovery.FailOver(w.ctl.Plain(), o, w.space.Demise(m.blade)); err != nil {
		return fmt.Errorf("failover: %w", err)
	}
	if _, err := recovery.Sweep(w.ctl.Plain(), o); err != nil {
		return fmt.Errorf("sweep: %w", err)
	}
	was := w.state()
	w.toTheEnd()
	if w.state() != was {
		return errLate
	}
	return w.agree(pairKeys, cs...)
}
