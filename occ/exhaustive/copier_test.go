package exhaustive

import (
	"fmt"
	"testing"

	"txnode/rdma"
	"txnode/rdma/steptest"
)

// TestCopierBeside builds the copies that a lost blade had while a client makes a
// transaction, in many orders of their requests.
func TestCopierBeside(t *testing.T) {
	s := oneIn(997, 23, 9973)
	// Of more backups three blades have no room for another.
	each(t, usually(those(configs(), config.oneBackup), config.promised), func(t *testing.T, c config) {
		s := s.own(c)
		w := newWorld(t, c, loadPairs)
		for _, name := range []string{"write-ab", "lock-a-write-b", "late-a", "insert", "delete", "move", "insert-over-tombstone", "insert-roll-back"} {
			for b := range rdma.BladeID(blades) {
				t.Run(fmt.Sprintf("%s/blade=%d", name, b), func(t *testing.T) {
					s.try(t, w, func() error { return w.copierBeside(s, named(name), b) })
				})
			}
		}
	})
}

// copierBeside loses a blade, and tries a transaction beside the copier: it goes on for a
// moves and the copier for b; then the one comes to its end first, or the other.
func (w *world) copierBeside(s *sample, x txn, b rdma.BladeID) error {
	var writer *client
	var copier *steptest.Client
	var failed error
	begin := func() (first, second *steptest.Client) {
		w.anew()
		w.f.StopBlade(b)
		if err := w.failOver(b); err != nil {
			panic(err)
		}
		writer = w.start(x)[0]
		k, c := w.space.NewCopier(), w.bystander().Plain()
		copier = w.f.Go(func() {
			for idle := false; !idle && failed == nil; {
				idle, failed = k.Step(c)
			}
		})
		return writer.run, copier
	}
	return s.beside(w, 1, 2, begin, func(how int) error {
		if how == 0 {
			w.advance(writer.run, allMoves)
		}
		w.advance(copier, allMoves)
		w.toTheEnd()
		if failed != nil {
			return fmt.Errorf("building copies: %w", failed)
		}
		if err := w.redundant(); err != nil {
			return err
		}
		if err := w.recoverFrom(nil, writer); err != nil {
			return err
		}
		return w.agree(writer)
	})
}
