package occ

import (
	"errors"
	"fmt"
	"sync"

	"txnode/memory/layout"
	"txnode/memory/record"
)

// TapWrite is one write of a committed transaction. Its slices alias engine
// memory and are valid during the call that they are passed to.
type TapWrite struct {
	Table      *Table
	Key, Value []byte
	Deleted    bool
	// Block is where the record was that is replaced or deleted, or where the one is that is new.
	// Without a Key it is a block that has become free: in an ordered table a record that is
	// replaced gets another one.
	Block layout.Addr
}

// Tap is told what transactions write that commit while it is attached to their
// engine, with numbers in a serial order: the state after the transactions with
// numbers up to n, all of them, is one that existed. It is what a copy that is made
// while transactions run needs to become consistent. Safe for concurrent use.
//
// A transaction draws its number when it holds all its locks and before it
// validates; what it has only read is validated after that even if it was before.
// So the number is drawn at the transaction's point (docs/protocol.md, section 3):
//
//   - whoever writes or reads what T wrote, does so after T's release, and draws later;
//   - if T read what U replaces, T has validated it after drawing its number and
//     before U's lock, and U draws under that lock.
//
// What a transaction wrote that is not told (it looked for a tap before this one was
// attached) is under its locks from before the attachment until it is in place: a
// copying pass that begins after Attach and takes only records that are not locked
// has it.
//
// A transaction that was running when the tap was detached has no number, and validates
// again as well: its point is after all numbers then.
//
// The numbers are those of one engine: transactions of other processes on the same
// blades are not seen.
type Tap struct {
	sink func(number uint64, writes []TapWrite) error

	mu     sync.Mutex
	drawn  uint64
	open   map[uint64]struct{} // drawn, and neither committed nor rolled back
	failed error
	writes []TapWrite
}

// NewTap makes a tap that calls sink once for each transaction that commits and
// writes, under the transaction's locks and one call at a time, not in the order of
// the numbers. After an error of sink nothing more is told: see Settled.
func NewTap(sink func(number uint64, writes []TapWrite) error) *Tap {
	return &Tap{sink: sink, open: map[uint64]struct{}{}}
}

// Attach connects a tap; an engine has one at a time.
func (e *Engine) Attach(t *Tap) error {
	if !e.tap.CompareAndSwap(nil, t) {
		return fmt.Errorf("txn: another copy of the database is being made: wait until it has ended")
	}
	e.taps.Add(1)
	return nil
}

// Detach disconnects the tap. Transactions that have drawn numbers still tell it.
func (e *Engine) Detach(t *Tap) {
	if e.tap.CompareAndSwap(t, nil) {
		e.taps.Add(1)
	}
}

// number gives the transaction a number if somebody asks. A tap was attached or
// detached since the transaction began, or is attached.
func (e *Engine) number(tx *Tx) {
	if t := e.tap.Load(); t != nil {
		t.draw(tx)
		return
	}
	// It has no number, and comes after all that have one: so it must not have read
	// what one of them has replaced, though it may have validated that before.
	tx.again()
}

// Cut returns the highest number drawn so far.
func (t *Tap) Cut() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.drawn
}

// Settled reports whether every transaction with a number up to n has ended, and
// told what it wrote. The error is that of the sink, or says that a transaction's
// outcome has remained unknown.
func (t *Tap) Settled(n uint64) (bool, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.failed != nil {
		return false, t.failed
	}
	for o := range t.open {
		if o <= n {
			return false, nil
		}
	}
	return true, nil
}

// draw gives the transaction, which holds all its locks, a number.
func (t *Tap) draw(tx *Tx) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.drawn++
	t.open[t.drawn] = struct{}{}
	tx.tap, tx.number = t, t.drawn
	tx.again() // whatever was validated before the number was drawn
}

// again has what was only read validated once more.
func (tx *Tx) again() {
	if tx.scans != nil {
		tx.valid = false
		return
	}
	for i := range tx.items {
		if !tx.items[i].locked {
			tx.valid = false
			return
		}
	}
}

// untap ends the transaction for its tap without effect.
func (tx *Tx) untap() {
	t := tx.tap
	tx.tap = nil
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.open, tx.number)
}

// tell ends the transaction for its tap: it has committed, or nobody knows.
func (tx *Tx) tell(known bool) {
	t := tx.tap
	tx.tap = nil
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.open, tx.number)
	if t.failed != nil {
		return
	}
	if !known {
		t.failed = fmt.Errorf("%w: transaction %v, while the database was copied", ErrOutcomeUnknown, tx.id)
		return
	}
	w := t.writes[:0]
	buf := tx.logBytes()
	for i := range tx.items {
		it := &tx.items[i]
		if it.state == record.Node {
			if it.vacates {
				w = append(w, TapWrite{Table: it.table, Block: it.addr})
			}
			continue
		}
		was := it.addr
		if it.from != 0 {
			was = it.from
		}
		switch it.write {
		case writePut:
			img := record.Image(buf[it.w : uint32(it.w)+it.wlen])
			w = append(w, TapWrite{Table: it.table, Key: it.key(), Value: img.Value(), Block: was})
		case writeDelete:
			w = append(w, TapWrite{Table: it.table, Key: it.key(), Deleted: true, Block: was})
		}
	}
	t.failed = t.pass(tx, w)
	clear(w)
	t.writes = w[:0]
}

// pass calls the sink, whose faults are not those of the transaction: it is committed, and
// others may not have its locks before its images are in place. If the sink ends the
// goroutine, the session takes no more, and recovery does the rest.
func (t *Tap) pass(tx *Tx, w []TapWrite) (err error) {
	returned := false
	defer func() {
		if returned {
			return
		}
		if p := recover(); p != nil {
			err = fmt.Errorf("txn: copying what a transaction has written: panic: %v", p)
			return
		}
		t.failed = errors.New("txn: copying what a transaction has written has ended its goroutine")
		_ = tx.s.fail(t.failed)
	}()
	err = t.sink(tx.number, w)
	returned = true
	return err
}
