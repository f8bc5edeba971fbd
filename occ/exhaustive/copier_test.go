package exhaustive

import (
	"fmt"
	"slices"
	"testing"

	"txnode/occ/recovery"
	"txnode/rdma"
	"txnode/rdma/steptest"
)

// TestCopierBeside builds the copies that a lost blade had while a client makes a
// transaction, in many orders of their requests.
func TestCopierBeside(t *testing.T) {
	s := &sample{stride: 997}
	switch {
	case *full:
		s.stride = 23
	case testing.Short():
		s.stride = 9973
	}
	// Of more backups three blades have no room for another.
	kinds := slices.DeleteFunc(configs(), func(c config) bool { return c.backups != 1 || c.caps != strong && !*full })
	each(t, kinds, func(t *testing.T, c config) {
		s := s.own()
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
	begin := func(na, nb int) (int, int) {
		w.restart()
		w.f.SetGrain(steptest.Verbs, false)
		w.f.StopBlade(b)
		if _, err := recovery.FailOver(w.ctl.Plain(), recovery.Options{Space: w.space}, w.space.Demise(b)); err != nil {
			panic(err)
		}
		writer = w.client()
		writer.warm(keysOf(x.ops)...)
		writer.begins(1, x.ops...)
		th, err := rdma.NewThread(w.f, rdma.ThreadOptions{Index: 98, Arena: arena})
		if err != nil {
			panic(err)
		}
		k, c := w.space.NewCopier(), th.Plain()
		copier = w.f.Go(func() {
			for idle := false; !idle && failed == nil; {
				idle, failed = k.Step(c)
			}
		})
		return w.advance(writer.run, na), w.advance(copier, nb)
	}
	na, _ := begin(allMoves, 0)
	_, nb := begin(0, allMoves)
	return s.grids(na, nb, 2, func(g grid) (bool, error) {
		if na, nb := begin(g.a, g.b); na < g.a || nb < g.b {
			return false, nil
		}
		if g.how == 0 {
			w.advance(writer.run, allMoves)
		}
		w.advance(copier, allMoves)
		w.toTheEnd()
		if failed != nil {
			return true, fmt.Errorf("building copies: %w", failed)
		}
		if r := w.space.Redundancy(); r.Building+r.Missing > 0 {
			return true, fmt.Errorf("copies are still missing: %+v", r)
		}
		if err := w.recoverFrom(nil, writer); err != nil {
			return true, err
		}
		return true, w.agree(pairKeys, writer)
	})
}
