package exhaustive

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"txnode/occ"
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
		for _, name := range []string{
			"write-ab", "lock-a-write-b", "late-a", "insert", "delete", "move",
			"insert-over-tombstone", "insert-roll-back",
		} {
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
	return w.besideCopier(s, b, func() *client { return w.start(x)[0] }, func(writer *client) error {
		if err := w.recoverFrom(nil, writer); err != nil {
			return err
		}
		return w.agree(writer)
	})
}

// besideCopier is copierBeside of a client that start starts; end holds what it has done
// against the bytes.
func (w *world) besideCopier(s *sample, b rdma.BladeID, start func() *client, end func(writer *client) error) error {
	var writer *client
	var copier *steptest.Client
	var failed error
	begin := func() (first, second *steptest.Client) {
		w.anew()
		w.f.StopBlade(b)
		if err := w.failOver(b); err != nil {
			panic(err)
		}
		writer = start()
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
		return end(writer)
	})
}

// TestCopierBesideBulk is TestCopierBeside of records that are written in bulk: all copies have
// them.
func TestCopierBesideBulk(t *testing.T) {
	s := oneIn(7, 3, 67)
	each(t, usually(those(configs(), config.oneBackup), config.promised), func(t *testing.T, c config) {
		s := s.own(c)
		w := newWorld(t, c, loadPairs)
		for b := range rdma.BladeID(blades) {
			t.Run(fmt.Sprintf("blade=%d", b), func(t *testing.T) {
				s.try(t, w, func() error { return w.bulkBesideCopier(s, b) })
			})
		}
	})
}

// bulkBesideCopier loses a blade, and tries a bulk write beside the copier. The blocks of its
// records are on two blades.
func (w *world) bulkBesideCopier(s *sample, b rdma.BladeID) error {
	var list []occ.BulkRecord
	start := func() *client {
		x := w.client()
		x.warm()
		list = nil
		for i, n := range []int{1, 1, 100, 200} {
			list = append(list, occ.BulkRecord{
				Table: x.table, Key: []byte(k(fmt.Sprint("bulk", i))), Value: []byte(big("v", n)),
			})
		}
		x.run = w.f.Go(func() {
			err := x.tx.Begin()
			if err == nil {
				err = x.tx.WriteBulk(list)
			}
			x.told = append(x.told, err)
		})
		return x
	}
	return w.besideCopier(s, b, start, func(writer *client) error {
		switch err := writer.told[0]; {
		case errors.Is(err, rdma.ErrStaleKey):
			return nil // the copies became full ones meanwhile, and nobody was told that the records are there
		case err != nil:
			return fmt.Errorf("the bulk write: %w", err)
		}
		v := w.space.View()
		for _, x := range list {
			for i := range v.Copies(x.Addr) {
				img := w.image(v.At(x.Addr, i), x.Class.Size())
				if _, err := img.Check(x.Addr); err != nil || img.Version() != x.Version ||
					!bytes.Equal(img.Key(), x.Key) || !bytes.Equal(img.Value(), x.Value) {
					return fmt.Errorf("copy %d of %v does not have record %s: version %v, state %v, %v",
						i, x.Addr, x.Key, img.Version(), img.Meta().State(), err)
				}
			}
		}
		return nil
	})
}
