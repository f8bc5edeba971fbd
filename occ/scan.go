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
	scanGuards = 512      // guards that are read together
	scanLooks  = 8        // at a piece of the index that leads to blocks which are free
	// evidenceSize is what a block counts against the arena, though it lies elsewhere.
	evidenceSize = 16
)

// ErrDropped says that the table was dropped.
var ErrDropped = errors.New("txn: the table was dropped; CreateTable makes a new one")

// ErrNoScan says that the index of the table cannot be walked.
var ErrNoScan = errors.New("txn: the index of the table cannot be walked")

// Scan is a walk over all records of a table, in no order, as a part of a transaction.
//
// It reads the index and the records that this leads to in pieces. Each piece is validated, with
// all before it, before the caller gets the first record of it. Pieces grow, so that validation
// costs about as much as the walk does. With ValidateAtEnd, and policy FORD, it is validated once.
//
// What is validated is the guard of each record, as for other reads, and in the end the index: a
// key that was not met had no record. If the index has changed, the walk is repeated without the
// records that it knows. Records that it finds then come next, as long as the caller was not told
// that there are no more. After that they are a conflict.
//
// What the transaction itself had written when the scan began is part of the walk, and what it
// writes later is not: see before.go.
type Scan struct {
	tx          *Tx
	id          record.TxID // of the transaction
	table       *Table
	beside      *Table       // nil, or another table: see Beside
	ix          index.Scan   // nil: the index is ordered
	o           *orderedScan // nil: it is not
	next        *Scan        // the one that the transaction began before
	since       int          // notes of writes that were there when it began
	writes      bool         // the transaction had written something by then
	unvalidated bool         // nothing depends on it: see SkipValidation

	*scanSpace
	known map[layout.Addr]int32 // by address, the number in found
	took  int                   // of rows, those that are the caller's
	want  int                   // rows of the next piece
	seen  []history.Op          // of all rows, if the transaction is recorded

	stage     scanStage
	own, last int  // items that the caller has got of its own, and that it is to get
	complete  bool // all of the index was read: what was not met was not there
	claimed   bool // the caller knows that
	checking  bool // the transaction is being validated
	insists   bool // it locks what it reads: see Insist
	locks     []leafLock
}

type scanStage uint8

const (
	scanIndex scanStage = iota // records that the index leads to
	scanItems                  // what the transaction has locked, inserted, or read beside
	scanEnded
)

// Scan begins a walk. Stop ends it; Commit and Rollback do, too.
func (tx *Tx) Scan(t *Table) (*Scan, error) {
	if !tx.active {
		return nil, ErrDone
	}
	if t.Dropped() {
		return nil, fmt.Errorf("%w: %q", ErrDropped, t.Name)
	}
	if t.Ordered != nil {
		return tx.Range(t, index.Bound{}, index.Bound{End: true}, false, 0)
	}
	ix, ok := t.Index.(index.Scanner)
	if !ok {
		return nil, fmt.Errorf("%w: %q", ErrNoScan, t.Name)
	}
	s := tx.newScan(t)
	s.ix, s.known = ix.NewScan(), map[layout.Addr]int32{}
	return s, nil
}

// Next returns the next record. ok is false when there are no more. The slices stay as they are
// until the transaction ends. After an error only Rollback is allowed.
func (s *Scan) Next() (key, value []byte, ok bool, err error) {
	if s.o != nil {
		return s.nextOrdered()
	}
	tx := s.tx
	for {
		if s.over() {
			return nil, nil, false, ErrDone
		}
		for s.took < len(s.rows) {
			r := &s.rows[s.took]
			s.took++
			end := r.at + r.klen
			key, value = s.data[r.at:end:end], s.data[end:end+r.vlen:end+r.vlen]
			if s.wroteRow(key, &value) {
				return key, value, true, nil
			}
			continue
		}
		switch s.stage {
		case scanIndex:
			err = s.piece()
		case scanItems:
			i, value, err := s.item()
			if err != nil || i >= 0 {
				return tx.items[i].key(), value, err == nil, err
			}
			s.stage = scanEnded
		case scanEnded:
			s.claimed = true
			return nil, nil, false, nil
		}
		if err != nil {
			return nil, nil, false, err
		}
	}
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
	s.complete = false
	rest := s.rows[s.took:]
	for i := range rest {
		s.found[rest[i].found].gone = true
	}
	if s.tx.hist != nil && len(rest) > 0 {
		s.seen = s.seen[:rest[0].seen]
	}
	s.rows, s.stage, s.took = s.rows[:0], scanEnded, 0
	if s.o != nil {
		s.o.rest = false
	}
}

// over reports whether the transaction has ended.
func (s *Scan) over() bool { return !s.tx.active || s.tx.id != s.id }

// item returns the next item of the transaction that had a value when the scan began and has no
// row; -1: there is none.
func (s *Scan) item() (i int, value []byte, err error) {
	for s.own < s.last {
		i := s.own
		s.own++
		it := &s.tx.items[i]
		if it.table != s.table {
			continue
		}
		if k, ok := s.known[it.addr]; ok && s.found[k].row {
			continue
		}
		if value, live, err := s.Read(i); live || err != nil {
			return i, value, err
		}
	}
	return -1, nil, nil
}

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
		if more, err = s.unit(); err != nil {
			return err
		}
	}
	atEnd := tx.atEnd || tx.s.eng.opts.Policy == PolicyFORD
	if s.want = min(s.want*scanGrowth, most); atEnd {
		s.want = scanAtEnd
	}
	if s.o != nil && s.o.limit > 0 {
		s.want = min(s.want, max(s.o.limit, 1))
	}
	if !more {
		if err := tx.Execute(); err != nil {
			return err
		}
		s.complete, s.stage, s.last = true, scanItems, len(tx.items)
	}
	if s.unvalidated {
		s.want = scanAtEnd
	}
	if atEnd || s.unvalidated {
		return nil
	}
	return tx.validate(tx.fetched)
}

// unit reads a piece of the index and its blocks; more is false when there is none. If a slot leads
// to a block that is free, the record has moved or gone: then the slots are read again.
func (s *Scan) unit() (more bool, err error) {
	if s.o != nil {
		return s.orderedUnit()
	}
	c := s.tx.c
	found, rows, data, seen := len(s.found), len(s.rows), len(s.data), len(s.seen)
	for tries := 1; ; tries++ {
		s.tx.c.Count = &s.tx.phases[PhaseExecute]
		s.cands, more, err = s.ix.Next(c, s.cands[:0])
		if err != nil {
			return false, s.indexError(err)
		}
		if !more {
			return false, nil
		}
		dangling, err := s.read(s.cands, tries >= scanLooks)
		locks := err == nil && !dangling && s.insists && tries <= insistLooks && !s.checking
		if locks {
			locks, err = s.lock(0, rows)
		}
		if err != nil || !dangling && !locks {
			return true, err
		}
		for _, e := range s.found[found:] {
			delete(s.known, e.addr)
		}
		s.found, s.rows, s.data, s.seen = s.found[:found], s.rows[:rows], s.data[:data], s.seen[:seen]
		if locks {
			if err := s.tx.Execute(); err != nil {
				return false, err
			}
		}
		if tries == 2*scanLooks {
			return false, s.tx.conflict(AbortStale, &item{table: s.table})
		}
		s.ix.Again()
		if tries > 2 {
			c.Yield()
		}
	}
}
