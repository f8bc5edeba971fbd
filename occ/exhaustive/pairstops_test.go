package exhaustive

import (
	"fmt"
	"slices"
	"testing"

	"txnode/occ/recovery"
	"txnode/rdma"
	"txnode/rdma/steptest"
)

// What happens to two clients in the middle of conflicting transactions.
const (
	bothStop  = iota // and are recovered together
	firstDies        // declared dead, and recovered beside the other, who is recovered in turn; both go on with late verbs
	pairFates
)

// TestStopsInPairs stops clients in the middle of conflicting transactions: the first
// after any of its requests, the second after any of its own behind that.
func TestStopsInPairs(t *testing.T) {
	s := &sample{stride: 97}
	switch {
	case *full:
		s.stride = 1
	case testing.Short():
		s.stride = 997
	}
	kinds := slices.DeleteFunc(configs(), func(c config) bool { return c.backups > 1 || c.caps != strong && !*full })
	each(t, kinds, func(t *testing.T, c config) {
		s := s.own()
		if c.caps != strong {
			s.stride = 7
		}
		w := newWorld(t, c, loadPairs)
		for _, x := range conflicting {
			for _, y := range conflicting {
				t.Run(x.name+"+"+y.name, func(t *testing.T) {
					s.try(t, w, func() error { return w.stopsInPair(s, x, y) })
				})
			}
		}
	})
}

// stopsInPair tries a pair of transactions.
func (w *world) stopsInPair(s *sample, x, y txn) error {
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
	return s.grids(na, 2*nb, pairFates, func(g grid) (bool, error) {
		if a, b := begin(g.a, g.b); a < g.a || b < g.b {
			return false, nil
		}
		return true, w.pairFate(g.how, cs)
	})
}

// pairFate lets it happen, and checks what comes of it.
func (w *world) pairFate(how int, cs []*client) error {
	if how == bothStop {
		stopClients(cs...)
		if err := w.recoverFrom(nil, cs...); err != nil {
			return err
		}
		return w.agree(pairKeys, cs...)
	}
	for i := range cs {
		if err := w.recoverFrom(nil, cs[i]); err != nil {
			return fmt.Errorf("recovery of client %d: %w", i, err)
		}
		w.advance(cs[0].run, allMoves)
	}
	was := w.state()
	w.toTheEnd()
	if w.state() != was {
		return errLate
	}
	return w.agree(pairKeys, cs...)
}

// TestRecoveryBeside lets recovery from a client that has stopped in the middle of a
// transaction run beside another client, who makes one that is in its way.
func TestRecoveryBeside(t *testing.T) {
	s := &sample{stride: 2003}
	switch {
	case *full:
		s.stride = 13
	case testing.Short():
		s.stride = 20_011
	}
	kinds := slices.DeleteFunc(configs(), func(c config) bool { return c.backups > 1 && !*full })
	each(t, kinds, func(t *testing.T, c config) {
		s := s.own()
		w := newWorld(t, c, loadPairs)
		for _, p := range besides {
			t.Run(p[0]+"+"+p[1], func(t *testing.T) {
				s.try(t, w, func() error { return w.recoveryBeside(s, named(p[0]), named(p[1])) })
			})
		}
	})
}

// besides are who has stopped, and who runs beside the recovery.
var besides = [][2]string{
	{"write-a", "write-a"}, {"write-ab", "read-b-write-a"}, {"write-ab", "write-a"}, {"insert", "put-absent"}, {"insert", "insert"},
	{"delete", "write-a"}, {"move", "write-a"}, {"move", "move"}, {"insert-over-tombstone", "insert-over-tombstone"}, {"insert-roll-back", "insert"},
}

// recoveryBeside tries a pair of transactions: the victim stops after some moves; the
// recovery makes a; then the other makes b and the recovery comes to its end first, or,
// from the second how on, the other does, after what the recovery has written to one of the
// blades has been placed.
func (w *world) recoveryBeside(s *sample, x, y txn) error {
	var victim, recoverer, other *client
	recovered := false
	dies := func(n int) bool {
		w.restart()
		w.f.SetGrain(steptest.Verbs, false)
		recoverer, victim = w.client(), w.client()
		victim.warm(keysOf(x.ops)...)
		victim.begins(1, x.ops...)
		return w.advance(victim.run, n) == n
	}
	died := 0
	begin := func() {
		dies(died)
		stopClients(victim)
		recovered = false
		recoverer.run = w.f.Go(func() {
			o := recovery.Options{Space: w.space, Steal: true, By: recoverer.session.Coordinator()}
			_, err := recovery.Recover(recoverer.c, o, victim.session.Coordinator())
			if recovered = true; err == nil {
				_, err = recovery.Sweep(recoverer.c, o)
			}
			if err != nil {
				panic(err)
			}
		})
		other = w.client() // in the epoch of the claim
		other.warm()
		other.begins(12, y.ops...)
	}
	for ; dies(died); died++ {
		begin()
		na := 0
		for !recovered && w.advance(recoverer.run, 1) > 0 {
			na++
		}
		nb := w.advance(other.run, allMoves)
		err := s.grids(na, nb, 2+blades, func(g grid) (bool, error) {
			if g.how > 0 && g.b > 0 {
				return true, nil
			}
			begin()
			if a, b := w.advance(recoverer.run, g.a), w.advance(other.run, g.b); a < g.a || b < g.b {
				return false, nil
			}
			if g.how > 0 {
				w.place(recoverer.run, rdma.BladeID(g.how-1))
				w.advance(other.run, allMoves)
			}
			w.advance(recoverer.run, allMoves)
			w.toTheEnd()
			if last := other.told[len(other.told)-1]; !meant(last) {
				return true, fmt.Errorf("beside the recovery nothing succeeds: %v", other.told)
			}
			return true, w.agree(pairKeys, victim, other)
		})
		if err != nil {
			return fmt.Errorf("stopped after %d moves: %w", died, err)
		}
		if *caseFlag != "" && died > 64 {
			return nil
		}
	}
	return nil
}
