package occ

import (
	"errors"
	"fmt"

	"txnode/history"
	"txnode/index"
	"txnode/memory/layout"
	"txnode/memory/record"
)

// Bounds of scans.
const (
	scanFirst  = 64 // records of the first piece; each further one has scanGrowth times as many
	scanGrowth = 4
	scanAtEnd  = 1024     // records of a piece, if pieces are not validated
	scanRoom   = 64 << 10 // bytes of arena for blocks that are read together, if there is room
	scanLeast  = 8 << 10  // and at least
	scanBatch  = 256      // blocks that are read together, at most
	scanLooks  = 8        // at leaves that lead to blocks which are free
	// evidenceSize is what a block counts against the arena, though it lies elsewhere.
	evidenceSize = 16
)

// ErrDropped says that the table was dropped.
var ErrDropped = errors.New("txn: the table was dropped; CreateTable makes a new one")

// ErrNoScan says that the table cannot be walked in the order of its keys.
var ErrNoScan = errors.New("txn: the table cannot be walked in the order of its keys")

// Scan is a walk over all records of a table, or over those of a range, as a part of a transaction.
// Those of a table of hashes come in the order of their hashes.
//
// It reads leaves and the records that they link in pieces. Each piece is validated, with
// all before it, before the caller gets the first record of it. Pieces grow, so that validation
// costs about as much as the walk does. With ValidateAtEnd, and policy FORD, it is validated once.
//
// What is validated is the guards of the leaves and of the records: see orderedScan.
//
// What the transaction itself had written when the scan began is part of the walk, and what it
// writes later is not: see before.go.
type Scan struct {
	tx          *Tx
	id          record.TxID // of the transaction
	table       *Table
	beside      *Table // nil, or another table: see Beside
	o           *orderedScan
	next        *Scan // the one that the transaction began before
	since       int   // notes of writes that were there when it began
	writes      bool  // the transaction had written something by then
	unvalidated bool  // nothing depends on it: see SkipValidation

	*scanSpace
	known map[layout.Addr]int32 // by address, the number in found
	took  int                   // of rows, those that are the caller's
	want  int                   // rows of the next piece
	seen  []history.Op          // of all rows, if the transaction is recorded

	claimed bool // the caller knows that there are no more
	insists bool // it locks what it reads: see Insist
	locks   []leafLock
}

// Scan begins a walk. Stop ends it; Commit and Rollback do, too.
func (tx *Tx) Scan(t *Table) (*Scan, error) {
	if !tx.active {
		return nil, ErrDone
	}
	if t.Dropped() {
		return nil, fmt.Errorf("%w: %q", ErrDropped, t.Name)
	}
	return tx.walk(t, index.Bound{}, index.Bound{End: true}, false, 0), nil
}

// Block is where the record is that Next has returned last; 0: the transaction has written it.
func (s *Scan) Block() layout.Addr {
	if s.took == 0 || s.took > len(s.rows) {
		return 0
	}
	return s.found[s.rows[s.took-1].found].addr
}

// Version is that of the record that Next has returned last, unless the transaction has written it.
func (s *Scan) Version() record.TxID {
	if s.took == 0 || s.took > len(s.rows) {
		return s.tx.id
	}
	r := &s.rows[s.took-1]
	if e := &s.found[r.found]; !e.own {
		return e.guard.Version()
	}
	if i := s.tx.find(s.table, s.data[r.at:r.at+r.klen]); i >= 0 {
		return s.tx.items[i].version
	}
	return s.tx.id // not reached: an item stands for what the transaction has locked
}

// Stop ends the walk early. The transaction then depends on the records that Next has
// returned, and on no others.
func (s *Scan) Stop() {
	if s.over() {
		return
	}
	s.close()
	if s.claimed {
		return
	}
	rest := s.rows[s.took:]
	for i := range rest {
		s.found[rest[i].found].gone = true
	}
	if s.tx.hist != nil && len(rest) > 0 {
		s.seen = s.seen[:rest[0].seen]
	}
	s.rows, s.took = s.rows[:0], 0
	s.o.rest = false
}

// over reports whether the transaction has ended.
func (s *Scan) over() bool { return !s.tx.active || s.tx.id != s.id }

// wroteRow replaces the value of a row by what the transaction had written to its key when the scan
// began, if it had, and reports whether the row had a value then.
func (s *Scan) wroteRow(key []byte, value *[]byte) bool {
	if !s.writes {
		return true
	}
	i := s.tx.find(s.table, key)
	if i < 0 {
		return true
	}
	v, live, ok := s.wrote(i)
	if ok {
		*value = v
	}
	return live || !ok
}

// piece reads the next piece, and validates what was read.
func (s *Scan) piece() error {
	tx := s.tx
	if err := tx.Execute(); err != nil { // whether a key is one of the items is known from now on
		return err
	}
	s.rows, s.took = s.rows[:0], 0
	s.shed()
	s.nextData()
	most := tx.s.thread.ArenaSize()
	more := true
	tx.valid = false
	for more && len(s.rows) < s.want && len(s.data) < most {
		var err error
		if more, err = s.leaves(); err != nil {
			return err
		}
	}
	atEnd := tx.atEnd || tx.s.eng.opts.Policy == PolicyFORD
	if s.want = min(s.want*scanGrowth, most); atEnd {
		s.want = scanAtEnd
	}
	if s.o.limit > 0 {
		s.want = min(s.want, max(s.o.limit, 1))
	}
	if !more {
		if err := tx.Execute(); err != nil {
			return err
		}
	}
	if s.unvalidated {
		s.want = scanAtEnd
	}
	if atEnd || s.unvalidated {
		return nil
	}
	return tx.validate(tx.fetched)
}
