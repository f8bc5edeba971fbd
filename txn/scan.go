package txn

import (
	"fmt"
	"iter"

	"txnode/occ"
)

// Err is why the transaction cannot go on, or nil: the conflict or failure that an operation has
// returned, or has met in a loop over [Table.All]. Commit, Update and View return it, whatever the
// transaction's function returns. A transaction that has ended has ErrTxDone.
func (tx *Tx) Err() error { return tx.usable() }

// All ranges over all records of the table: in no order, or, of an ordered table, in that of the
// keys. It is as strictly serializable as other reads: the loop gets every record, and each once,
// of the moment at which the transaction takes place. It is a conflict if one of them changes
// before the transaction commits, or if a key is inserted after the loop has come to its end. Other
// transactions are not held up.
//
// The loop meets each record once, as it was at the loop's first step: with what the transaction
// had changed by then, and without what it changes later. So the loop may insert, change and delete
// records of the table. See [OrderedTable.Range].
//
// An error ends the loop, and the attempt with it. [Tx.Err] tells it, and Update, View and Commit
// return it by themselves, so a loop needs no check before its results count. The errors are those
// of Get, ErrNoDecode if the table's Key has no Decode, and ErrTooLarge: a loop counts 16 bytes of
// Options.Arena for each record, which by default allows a million of them.
//
// A loop costs about two READs of each record and of the index. Records are read ahead, into memory
// of the process, at most as much as an Arena holds at a time. Beyond that every further piece
// validates what came before: call [Tx.ValidateAtEnd] first for tables of gigabytes. A loop that is
// left early costs no more than what was read by then, and its transaction depends on the records
// that it has got, and on no others. Pages that go on in a later transaction are to be had from an
// ordered table alone ([OrderedTable.Range]). On a table that is written to all the time, a loop
// may find no moment in its first 64 attempts. Then it locks what it reads, up to some 16,000
// records. A longer one may give up with ErrConflict: see [DB.Backup] for copies beside writers.
func (t *Table[K, V]) All(tx *Tx) iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		if !t.decodes(tx) {
			return
		}
		tx.scan(t.db, t.t, t.decoded(yield))
	}
}

// Keys is [Table.All] without the values, which are read and not decoded, and in the same order.
func (t *Table[K, V]) Keys(tx *Tx) iter.Seq[K] {
	return func(yield func(K) bool) {
		if !t.decodes(tx) {
			return
		}
		tx.scan(t.db, t.t, func(key, _ []byte) (bool, error) {
			k, err := t.decodeKey(key)
			if err != nil {
				return false, err
			}
			return yield(k), nil
		})
	}
}

// All is [Table.All]. The slices are valid until the transaction function returns.
func (r *RawTable) All(tx *Tx) iter.Seq2[[]byte, []byte] {
	return func(yield func(key, value []byte) bool) {
		tx.scan(r.db, r.t, func(key, value []byte) (bool, error) { return yield(key, value), nil })
	}
}

// decodes ends the attempt if the table's Key cannot decode.
func (t *Table[K, V]) decodes(tx *Tx) bool {
	if t.key.Decode == nil && tx.usable() == nil {
		_ = tx.stop(fmt.Errorf("%w: table %q, Key %q", ErrNoDecode, t.t.Name, t.key.Name))
	}
	return t.key.Decode != nil
}

// decoded is yield for records as they are stored; like yield it reports whether to go on.
func (t *Table[K, V]) decoded(yield func(K, V) bool) func(key, value []byte) (bool, error) {
	return func(key, value []byte) (bool, error) {
		k, err := t.decodeKey(key)
		if err != nil {
			return false, err
		}
		v, err := t.decode(k, value)
		if err != nil {
			return false, err
		}
		return yield(k, v), nil
	}
}

func (t *Table[K, V]) decodeKey(p []byte) (K, error) {
	k, err := t.key.Decode(p)
	if err != nil {
		err = fmt.Errorf("txn: table %q: key 0x%.64x cannot be decoded: %w", t.t.Name, p, err)
	}
	return k, err
}

// scanCheck is how many records pass between two looks at the context.
const scanCheck = 256

// scan calls fn for each record until it returns false. An error of fn ends the attempt, as
// those of the engine do.
func (tx *Tx) scan(db *DB, t *occ.Table, fn func(key, value []byte) (bool, error)) {
	tx.walk(db, t, func() (*occ.Scan, error) { return tx.o.Scan(t) }, fn, nil)
}

// walk is scan of what begin begins. end, if not nil, is called behind the last record, while the
// scan is open still.
func (tx *Tx) walk(db *DB, t *occ.Table, begin func() (*occ.Scan, error), fn func(key, value []byte) (bool, error),
	end func() error) {
	if tx.over() || tx.err != nil {
		return
	}
	if tx.w.db != db {
		tx.refuse(t)
		return
	}
	s, err := begin()
	if err != nil {
		_ = tx.stop(err)
		return
	}
	defer s.Stop()
	if tx.encloses {
		s.Insist()
	}
	for n := 0; ; n++ {
		if n%scanCheck == 0 && tx.ctx.Err() != nil {
			_ = tx.stop(canceled(tx.ctx))
			return
		}
		key, value, ok, err := s.Next()
		switch {
		case err != nil:
		case ok:
			ok, err = fn(key, value)
		case end != nil:
			err = end()
		}
		if tx.over() || tx.err != nil {
			return
		}
		if err != nil {
			_ = tx.stop(err)
		}
		if err != nil || !ok {
			return
		}
	}
}
