package exhaustive

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"txnode/occ/recovery"
	"txnode/rdma"
	"txnode/rdma/steptest"
)

// TestRecoveriesBeside lets two recoveries run beside each other, each from a client that
// has stopped in the middle of a transaction, which is in the other's way; the first for
// some of its requests, then the second for some of its own. Then both come to their ends,
// or a blade is lost, and somebody else looks after that.
func TestRecoveriesBeside(t *testing.T) {
	s := &sample{stride: 211}
	switch {
	case *full:
		s.stride = 3
	case testing.Short():
		s.stride = 2003
	}
	kinds := slices.DeleteFunc(configs(), func(c config) bool { return c.caps != strong || c.backups > 1 && !*full })
	each(t, kinds, func(t *testing.T, c config) {
		s := s.own()
		w := newWorld(t, c, loadPairs)
		for _, p := range besides {
			t.Run(p[0]+"+"+p[1], func(t *testing.T) {
				s.try(t, w, func() error { return w.recoveriesBeside(s, named(p[0]), named(p[1])) })
			})
		}
	})
}

// recoveriesBeside tries a pair of transactions, whose clients stop after some moves each.
func (w *world) recoveriesBeside(s *sample, x, y txn) error {
	var victims, recoverers []*client
	begin := func(a, b int) bool {
		w.restart()
		w.f.SetGrain(steptest.Verbs, false)
		recoverers = []*client{w.client(), w.client()}
		victims = []*client{w.client(), w.client()}
		for i, ops := range [][]op{x.ops, y.ops} {
			victims[i].warm(keysOf(ops)...)
			victims[i].begins(1, ops...)
		}
		if w.advance(victims[0].run, a) < a || w.advance(victims[1].run, b) < b {
			return false
		}
		stopClients(victims...)
		for i, r := range recoverers {
			r.run = w.f.Go(func() { r.told = append(r.told, r.recovers(victims[i])) })
		}
		return true
	}
	// The second stops in the middle, as far as the first, who stops everywhere, lets it.
	most := 0
	for begin(0, most+1) {
		most++
	}
	for a := 0; begin(a, 0); a++ {
		b := most / 2
		if !begin(a, b) {
			b = 0
			begin(a, b)
		}
		na := w.advance(recoverers[0].run, allMoves)
		nb := w.advance(recoverers[1].run, allMoves)
		err := s.grids(na, nb, 1+blades, func(g grid) (bool, error) {
			begin(a, b)
			if m, n := w.advance(recoverers[0].run, g.a), w.advance(recoverers[1].run, g.b); m < g.a || n < g.b {
				return false, nil
			}
			return true, w.recoveriesEnd(g.how-1, victims, recoverers)
		})
		if err != nil {
			return fmt.Errorf("stopped after %d and %d moves: %w", a, b, err)
		}
	}
	return nil
}

// recovers decides what another client has left behind.
func (s *client) recovers(from *client) error {
	o := recovery.Options{Space: s.w.space, Steal: true, By: s.session.Coordinator()}
	_, err := recovery.Recover(s.c, o, from.session.Coordinator())
	return err
}

// recoveriesEnd loses a blade, negative: none, and checks what comes of it.
func (w *world) recoveriesEnd(blade int, victims, recoverers []*client) error {
	o := recovery.Options{Space: w.space}
	if blade >= 0 {
		b := rdma.BladeID(blade)
		w.f.StopBlade(b)
		w.toTheEnd()
		if _, err := recovery.FailOver(w.ctl.Plain(), o, w.space.Demise(b)); err != nil {
			return fmt.Errorf("failover: %w", err)
		}
	} else {
		w.toTheEnd()
		for i, r := range recoverers {
			if err := errors.Join(r.told...); err != nil {
				return fmt.Errorf("recovery %d: %w", i, err)
			}
		}
	}
	if _, err := recovery.Sweep(w.ctl.Plain(), o); err != nil {
		return fmt.Errorf("sweep: %w", err)
	}
	was := w.state()
	w.toTheEnd()
	if w.state() != was {
		return errLate
	}
	return w.agree(pairKeys, victims...)
}
