package occ

import (
	"errors"
	"fmt"

	"txnode/rdma"
)

// extra returns n bytes of arena, beyond the slab, that live as long as the
// transaction's buffers. When there are none, it frees those of transactions
// that have come to rest.
func (tx *Tx) extra(n int) (uint32, error) {
	t := tx.s.thread
	at, err := t.Alloc(n)
	if err != nil {
		if err := tx.reap(); err != nil {
			return 0, err
		}
		if at, err = t.Alloc(n); err != nil {
			return 0, tx.tooLarge(n)
		}
	}
	f := &tx.flights[tx.flight]
	f.extra = append(f.extra, chunk{at, n})
	return at, nil
}

// reap frees the buffers of earlier transactions: of this coroutine's, for which
// it waits, and of others' that have completed.
func (tx *Tx) reap() error {
	for _, o := range tx.s.txs {
		for i := range o.flights {
			f := &o.flights[i]
			switch {
			case o.busy && i == o.flight:
			case o == tx:
				if err := tx.land(f); err != nil {
					return err
				}
			case f.bg.Done():
				tx.s.freeExtra(f)
			}
		}
	}
	return nil
}

func (s *Session) freeExtra(f *flight) {
	for _, x := range f.extra {
		s.thread.Free(x.at, x.n)
	}
	f.extra = f.extra[:0]
}

// tooLarge is the error of a transaction that needs n bytes of arena more than
// there are; 0: nobody knows how many.
func (tx *Tx) tooLarge(n int) error {
	t := tx.s.thread
	return &TooLargeError{
		What: "transaction", Got: t.ArenaNeeded(n), Limit: t.ArenaSize(),
		Remedy: "the coroutines of a thread share an Arena, and pieces of it are rounded up to powers of two: raise " +
			"Arena, or touch less in one transaction",
	}
}

// logTooLarge is the error of a transaction whose log record would have n bytes.
func (tx *Tx) logTooLarge(n int) error {
	return &TooLargeError{
		What: "log record", Got: n, Limit: tx.s.ring.ring.Max(),
		Remedy: "raise LogArea when the database is created, or write less in one transaction",
	}
}

// indexError tells what the index of an item's table could not do.
func (tx *Tx) indexError(it *item, doing string, err error) error {
	if errors.Is(err, rdma.ErrArenaFull) {
		return fmt.Errorf("txn: %s table %q: %w (%w)", doing, it.table.Name, tx.tooLarge(0), err)
	}
	return tx.s.failed(fmt.Errorf("txn: %s table %q: %w", doing, it.table.Name, err))
}

// spareSize is the arena that a session keeps for what has to be finished once it
// was begun: for the splits of the index, and its lookups; and for what must not fail
// because coroutines have the rest: the recovery of others, and of itself, sweeps,
// copies, and its end.
const spareSize = 256 << 10

// roomSize is what there must be besides spareSize and the slabs, for lookups that keep their
// buffers. A transaction that needs more is told so.
const roomSize = 32 << 10

// LeastArena is the least arena of a thread whose session has so many transaction slots.
func LeastArena(slots int) int { return spareSize + roomSize + slots*numFlights*slabSize }

// WithSpare runs fn, which must not fail because the session's transactions have the arena.
func (s *Session) WithSpare(fn func() error) error {
	s.openSpare()
	defer s.closeSpare()
	return fn()
}

// openSpare frees the spare arena, for what the index does until closeSpare.
func (s *Session) openSpare() {
	s.spareUsers++
	if s.spareHeld {
		s.thread.Free(s.spare, spareSize)
		s.spareHeld = false
	}
}

// closeSpare takes the spare arena back. If somebody else has got hold of it, the
// next one to close it will.
func (s *Session) closeSpare() {
	s.spareUsers--
	if s.spareUsers == 0 {
		at, err := s.thread.Alloc(spareSize)
		s.spare, s.spareHeld = at, err == nil
	}
}
