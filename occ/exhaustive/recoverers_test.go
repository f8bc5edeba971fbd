package exhaustive

import (
	"errors"
	"fmt"
	"testing"

	"txnode/occ/recovery"
	"txnode/rdma"
)

// TestRecoveriesBeside lets two recoveries run beside each other, each from a client that
// has stopped in the middle of a transaction, which is in the other's way; the first for
// some of its requests, then the second for some of its own. Then both come to their ends,
// or a blade is lost, and somebody else looks after that.
func TestRecoveriesBeside(t *testing.T) {
	oneIn(401, 3, 2003).inPairs(t, usually(those(configs(), config.promised), config.oneBackup), besides(),
		(*world).recoveriesBeside)
}

// recoveriesBeside tries a pair of transactions, whose clients stop after some moves each.
func (w *world) recoveriesBeside(s *sample, x, y txn) error {
	var victims, recoverers []*client
	begin := func(a, b int) bool {
		w.anew()
		recoverers = []*client{w.client(), w.client()}
		victims = w.start(x, y)
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
			if !w.reach(g, recoverers[0].run, recoverers[1].run) {
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

// recoveriesEnd loses a blade, negative: none, and checks what comes of it.
func (w *world) recoveriesEnd(blade int, victims, recoverers []*client) error {
	if blade >= 0 {
		w.f.StopBlade(rdma.BladeID(blade))
		w.toTheEnd()
		if err := w.failOver(rdma.BladeID(blade)); err != nil {
			return err
		}
	} else {
		w.toTheEnd()
		for i, r := range recoverers {
			if err := errors.Join(r.told...); err != nil {
				return fmt.Errorf("recovery %d: %w", i, err)
			}
		}
	}
	if err := w.sweep(); err != nil {
		return err
	}
	return w.agreeLate(victims...)
}

// TestRecoveryBeside lets recovery from a client that has stopped in the middle of a
// transaction run beside another client, who makes one that is in its way.
func TestRecoveryBeside(t *testing.T) {
	oneIn(4001, 13, 20_011).inPairs(t, usually(configs(), config.oneBackup), besides(), (*world).recoveryBeside)
}

// recoveryBeside tries a pair of transactions: the victim stops after some moves; the
// recovery makes a; then the other makes b and the recovery comes to its end first, or,
// from the second how on, the other does, after what the recovery has written to one of the
// blades has been placed.
func (w *world) recoveryBeside(s *sample, x, y txn) error {
	var victim, recoverer, other *client
	recovered := false
	dies := func(n int) bool {
		w.anew()
		recoverer = w.client()
		victim = w.start(x)[0]
		return w.advance(victim.run, n) == n
	}
	died := 0
	begin := func() {
		dies(died)
		stopClients(victim)
		recovered = false
		recoverer.run = w.f.Go(func() {
			err := recoverer.recovers(victim)
			if recovered = true; err == nil {
				_, err = recovery.Sweep(recoverer.c, w.recoveryBy(recoverer))
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
			if !w.reach(g, recoverer.run, other.run) {
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
			return true, w.agree(victim, other)
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
