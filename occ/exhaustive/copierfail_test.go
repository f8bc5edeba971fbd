package exhaustive

import (
	"fmt"
	"testing"

	"txnode/memory"
	"txnode/occ/recovery"
	"txnode/rdma"
	"txnode/rdma/steptest"
)

// TestCopierBesideFailOver builds the copies that a lost blade had while somebody decides
// what was under way when it was lost, in many orders of their requests.
func TestCopierBesideFailOver(t *testing.T) {
	s := oneIn(97, 7, 997)
	// Of more backups three blades have no room for another.
	each(t, usually(those(configs(), config.oneBackup), config.promised), func(t *testing.T, c config) {
		s := s.own(c)
		w := newWorld(t, c, loadPairs)
		for _, name := range []string{"write-ab", "insert", "delete", "move", "insert-over-tombstone"} {
			for b := range rdma.BladeID(blades) {
				t.Run(fmt.Sprintf("%s/blade=%d", name, b), func(t *testing.T) {
					s.try(t, w, func() error { return w.copierBesideFailOver(s, named(name), b) })
				})
			}
		}
	})
}

// copierMoves are more moves than a copier needs for what a test has, unless it waits.
const copierMoves = 200

// copierBesideFailOver stops a client after every move of its transaction, loses a blade,
// and lets somebody decide, for a moves; then the copier goes on for b, the first one for
// some more, the copier for as many as it needs for a few blocks, and both come to their
// ends.
func (w *world) copierBesideFailOver(s *sample, x txn, b rdma.BladeID) error {
	var victim *client
	var decided, failed error
	var copier *memory.Copier
	begin := func(stop int) (first, second *steptest.Client, ok bool) {
		w.anew()
		decided, failed = nil, nil
		victim = w.start(x)[0]
		if w.advance(victim.run, stop) < stop {
			return nil, nil, false
		}
		stopClients(victim)
		w.f.StopBlade(b)
		c, other := w.bystander().Plain(), w.bystander().Plain()
		first = w.f.Go(func() {
			_, decided = recovery.FailOver(c, recovery.Options{Space: w.space}, w.space.DeclareDead(b))
		})
		copier = w.space.NewCopier()
		second = w.f.Go(func() {
			for idle := false; !idle && failed == nil; {
				idle, failed = copier.Step(other)
			}
		})
		return first, second, true
	}
	for stop := 0; ; stop++ {
		first, _, ok := begin(stop)
		if !ok {
			return nil
		}
		na := w.advance(first, allMoves)
		_, second, _ := begin(stop)
		nb := w.advance(second, copierMoves)
		err := s.grids(na, nb, 6, func(g grid) (bool, error) {
			first, second, _ := begin(stop)
			if !w.reach(g, first, second) {
				return false, nil
			}
			w.advance(first, g.how)
			w.advance(second, 12)
			w.advance(first, allMoves)
			if decided == nil { // what no log tells of is in the copier's way
				if err := w.sweep(); err != nil {
					return true, err
				}
			}
			w.toTheEnd()
			for idle := false; !idle && failed == nil; { // if it has waited
				idle, failed = copier.Step(w.ctl.Plain())
			}
			if decided != nil || failed != nil {
				return true, fmt.Errorf("deciding: %v; building copies: %v", decided, failed)
			}
			if err := w.redundant(); err != nil {
				return true, err
			}
			return true, w.agree(victim)
		})
		if err != nil {
			return fmt.Errorf("stopped after %d moves: %w", stop, err)
		}
	}
}
