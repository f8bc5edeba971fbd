package txn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"

	"txnode/internal/validate"
	"txnode/occ"
)

// LoadOptions are options of Table.Load. The zero value is the default.
type LoadOptions struct {
	// Batch is how many records a transaction writes at most; 0: 256, of 256 KiB together. It
	// writes fewer if LogArea or Arena have no room for them.
	Batch int
	// Progress, if not nil, is called after each transaction that has committed with the number of
	// records that are loaded, from the goroutine of the caller.
	Progress func(records uint64)
}

// Limits of the transactions of Load.
const (
	loadRecords = 256
	loadBytes   = 256 << 10
)

// Load puts any number of records, in as many transactions as it takes, one after the other. A
// record replaces the one that its key has. It returns how many records are loaded for certain.
//
// Each transaction is as durable as others are. When Load returns an error, or the process dies,
// the database has the records up to a certain one, and none after that: a batch is there as a
// whole, or not at all. To go on, load the rest, or everything again, which has the same result.
// Other transactions see the records batch by batch.
//
// seq is read from the goroutine of the caller, outside of transactions, and ctx is looked at for
// each batch. Keys and values are encoded before the next ones are asked for. An ordered table is
// loaded with the fewest verbs, and its leaves are fullest, when keys come in ascending order.
//
// The table may have records, and others may use it meanwhile, so Load writes as other transactions
// do. Restore is faster: it writes tables that nobody can find yet, and builds an index when all
// records of its table are there.
func (t *Table[K, V]) Load(ctx context.Context, seq iter.Seq2[K, V], o LoadOptions) (records uint64, err error) {
	var faults validate.Faults
	faults.Check(o.Batch >= 0, "Batch is %d: it cannot be negative", o.Batch)
	if err := faults.Err(ErrOptions); err != nil {
		return 0, err
	}
	w, err := t.db.ownWorker(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { err = w.dismiss(ctx, err) }() // also when seq panics
	l := loader{ctx: ctx, w: w, progress: o.Progress, rows: cmp.Or(o.Batch, loadRecords), size: loadBytes}
	if o.Batch > 0 {
		l.size = math.MaxInt // what is too large is halved
	}
	err = t.load(&l, seq)
	if err != nil {
		err = fmt.Errorf("txn: loading table %q, after %d records: %w", t.t.Name, l.done, err)
	}
	return l.done, err
}

func (t *Table[K, V]) load(l *loader, seq iter.Seq2[K, V]) error {
	if t.keeps() {
		l.put = t.putEncoded
	}
	var key, value []byte
	for k, v := range seq {
		key = t.key.Append(key[:0], k)
		var err error
		if value, err = t.value.Append(value[:0], v); err != nil {
			return t.codecError("encoded", k, err)
		}
		if err := l.add(t.t, key, value); err != nil {
			return err
		}
	}
	return l.flush()
}

// putEncoded is Put of what is encoded.
func (t *Table[K, V]) putEncoded(tx *Tx, key, value []byte) error {
	k, err := t.decodeKey(key)
	if err != nil {
		return err
	}
	v, err := t.decode(k, value)
	if err != nil {
		return err
	}
	return t.Put(tx, k, v)
}

// loader puts records into tables, some in each transaction: at most rows of them, and size bytes,
// if they are several.
type loader struct {
	ctx        context.Context
	w          *Worker
	progress   func(uint64)
	rows, size int
	far        bool // a round trip takes time
	alone      bool // no other process may use the database meanwhile
	// put, if not nil, puts a record, whose key is staged, and keeps the indexes of its table.
	put func(tx *Tx, key, value []byte) error

	done    uint64
	bytes   []byte
	pending []pendingRecord
}

type pendingRecord struct {
	t         *occ.Table
	at, split int // key and value begin here in loader.bytes
	end       int
}

func (l *loader) add(t *occ.Table, key, value []byte) error {
	if len(l.bytes)+len(key)+len(value) > l.size { // it may need a transaction of its own
		if err := l.flush(); err != nil {
			return err
		}
	}
	at := len(l.bytes)
	l.bytes = append(append(l.bytes, key...), value...)
	l.pending = append(l.pending, pendingRecord{t, at, at + len(key), len(l.bytes)})
	if len(l.pending) < l.rows && len(l.bytes) < l.size {
		return nil
	}
	return l.flush()
}

func (l *loader) flush() error {
	if err := l.load(l.pending); err != nil {
		return err
	}
	l.pending, l.bytes = l.pending[:0], l.bytes[:0]
	return nil
}

// load loads records in one transaction, or in several if they do not fit the log, or the
// arena: they may have been written one by one.
func (l *loader) load(records []pendingRecord) error {
	return inHalves(records, func(records []pendingRecord) error {
		err := l.w.Update(l.ctx, func(tx *Tx) error {
			if l.alone { // else another one frees what is loaded
				if err := l.w.db.space.Alone(); err != nil {
					return err
				}
			}
			put := tx.put
			if l.put != nil {
				put = func(_ *occ.Table, key, value []byte) error { return l.put(tx, key, value) }
			}
			if l.put != nil || l.far { // places, and old values, are found in one round trip
				for _, p := range records {
					if _, err := tx.stage(p.t, l.bytes[p.at:p.split], true); err != nil {
						return err
					}
				}
			}
			for _, p := range records {
				if err := put(p.t, l.bytes[p.at:p.split], l.bytes[p.split:p.end]); err != nil {
					return err
				}
			}
			return nil
		})
		if errors.Is(err, ErrTooLarge) {
			l.rows = min(l.rows, max(len(records)/2, 1))
		}
		if err != nil {
			return err
		}
		l.done += uint64(len(records))
		if l.progress != nil {
			l.progress(l.done)
		}
		return nil
	}, ErrTooLarge)
}

// inHalves calls fn with a list, unless that is empty. If the error is one of those that are named,
// it calls fn with one half after the other.
func inHalves[T any](list []T, fn func(part []T) error, at ...error) error {
	if len(list) == 0 {
		return nil
	}
	err := fn(list)
	half := len(list) / 2
	if half == 0 || !slices.ContainsFunc(at, func(e error) bool { return errors.Is(err, e) }) {
		return err
	}
	if err = inHalves(list[:half], fn, at...); err == nil {
		err = inHalves(list[half:], fn, at...)
	}
	return err
}
