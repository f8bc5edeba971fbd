package txn

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"iter"

	"txnode/index"
	"txnode/internal/validate"
	"txnode/memory/record"
	"txnode/occ"
)

// OrderedTable is a table whose keys are in order: that of their encodings, byte by byte. It has
// everything that a Table has, and ranges. Safe for concurrent use.
//
// Ranges are as strictly serializable as reads of single keys are: what a loop has passed is what
// was there, and all that was there, at the moment at which the transaction takes place. Its index
// is a B-link tree whose nodes are changed by the commits that insert keys (docs/ordered.md).
type OrderedTable[K, V any] struct {
	*Table[K, V]
}

// ErrUnordered says that there is no order: a Key does not keep that of its values, so that no
// ordered table can have it, or a range is of a hash table.
var ErrUnordered = errors.New("txn: there is no order of keys")

// DefaultMaxKey is the length of the longest key of an ordered table, in bytes, if
// Key.MaxBytes says nothing.
const DefaultMaxKey = 128

// CreateOrderedTable creates an ordered table. If it exists it is opened; other types of key or
// value, or a table without order, are ErrTableType. A Key without Decode is ErrNoDecode, and
// one that is not Ordered ErrUnordered. Indexes of a table that has records are to be built:
// see [Index.Build].
func CreateOrderedTable[K, V any](db *DB, name string, key Key[K], value Codec[V],
	indexes ...TableIndex[K, V]) (*OrderedTable[K, V], error) {
	var faults validate.Faults
	faults.Check(key.MaxBytes >= 0 && key.MaxBytes <= record.MaxKey,
		"table %q: MaxBytes of its Key is %d: from 1 to %d are possible, and 0 for %d",
		name, key.MaxBytes, record.MaxKey, DefaultMaxKey)
	if err := faults.Err(ErrOptions); err != nil {
		return nil, err
	}
	has, err := defineIndexes(name, key, indexes)
	if err != nil {
		return nil, err
	}
	if key.MaxBytes == 0 { // whatever one that exists was made with
		if t, err := orderedTable(db, name, key, value, tableOptions{}, false); !errors.Is(err, ErrNoTable) {
			return withOrderedIndexes(t, indexes, true, err)
		}
	}
	t, err := orderedTable(db, name, key, value, tableOptions{
		MaxKey: cmp.Or(key.MaxBytes, DefaultMaxKey), Indexes: has,
	}, true)
	return withOrderedIndexes(t, indexes, true, err)
}

// OpenOrderedTable opens an ordered table that exists, or returns ErrNoTable.
func OpenOrderedTable[K, V any](db *DB, name string, key Key[K], value Codec[V],
	indexes ...TableIndex[K, V]) (*OrderedTable[K, V], error) {
	t, err := orderedTable(db, name, key, value, tableOptions{}, false)
	return withOrderedIndexes(t, indexes, false, err)
}

func withOrderedIndexes[K, V any](t *OrderedTable[K, V], indexes []TableIndex[K, V], create bool,
	err error) (*OrderedTable[K, V], error) {
	if err == nil {
		err = t.bindIndexes(indexes, create)
	}
	if err != nil {
		return nil, err
	}
	return t, nil
}

func orderedTable[K, V any](db *DB, name string, key Key[K], value Codec[V], want tableOptions,
	create bool) (*OrderedTable[K, V], error) {
	switch {
	case !key.Ordered:
		return nil, fmt.Errorf("%w: table %q: the encodings of Key %q are not in the order of its values; take "+
			"another Key, or CreateTable", ErrUnordered, name, key.Name)
	case key.Decode == nil:
		return nil, fmt.Errorf("%w: table %q, Key %q", ErrNoDecode, name, key.Name)
	}
	want.Index = indexOrdered
	t, err := typedTable(db, name, key, value, want, create)
	if err != nil {
		return nil, err
	}
	return &OrderedTable[K, V]{&Table[K, V]{t: t, db: db, key: key, value: value}}, nil
}

// Bound is one end of a range: Including or Excluding a key, or Unbounded, which is the zero Bound.
type Bound[K any] struct {
	key   K
	bound boundKind
}

type boundKind uint8

const (
	unbounded boundKind = iota
	including
	excluding
)

// Unbounded is the bound of a range that has no end there.
func Unbounded[K any]() Bound[K] { return Bound[K]{} }

// Including is a bound that belongs to the range.
func Including[K any](k K) Bound[K] { return Bound[K]{k, including} }

// Excluding is a bound that does not belong to the range.
func Excluding[K any](k K) Bound[K] { return Bound[K]{k, excluding} }

// RangeOption is an option of Range and the like.
type RangeOption func(o *rangeOptions)

type rangeOptions struct {
	down  bool
	limit int
	parts int
}

// Descending has a range begin with its largest key.
func Descending() RangeOption { return func(o *rangeOptions) { o.down = true } }

// Limit ends a range after n records. No more than these are read, or little more; 0 or less: no
// limit.
func Limit(n int) RangeOption { return func(o *rangeOptions) { o.limit = max(n, 0) } }

// Parts says of Prefix that only the first n parts of the tuple count.
func Parts(n int) RangeOption { return func(o *rangeOptions) { o.parts = n } }

func optionsOf(options []RangeOption) (o rangeOptions) {
	for _, f := range options {
		f(&o)
	}
	return o
}

// Range ranges over the records between two bounds, in ascending order of their keys. Bounds in the
// wrong order are an empty range.
//
//	for k, v := range t.Range(tx, txn.Including(10), txn.Excluding(20)) { ... }
//
// The loop meets each record once, as it was at the loop's first step. What the transaction had
// changed by then is part of it; what the transaction changes later, in the loop or beside it, is
// not. So a loop may change what it ranges over, and move records forward or back, or delete them.
// A value that is replaced meanwhile is kept in memory until the transaction ends. A loop that
// begins later, also within the first one, sees the changes, as Get does.
//
// Leaving the loop costs nothing. The transaction depends then on what the loop has passed, and
// on no other record.
//
// An error ends the loop, and the attempt with it. [Tx.Err] tells it, and Update, View and Commit
// return it by themselves, so a loop needs no check before its results count. ErrTooLarge: the loop
// counts 16 bytes of Options.Arena for each record and each leaf of the index; read so large a
// range in pages, each in a transaction of its own, which goes on at Excluding the last key.
//
// A range costs a round trip for leaves of the index, one for their records, and one to validate
// both, for each piece, whose sizes grow. Records that were inserted in order lie side by side, and
// are read together.
func (t *OrderedTable[K, V]) Range(tx *Tx, from, to Bound[K], options ...RangeOption) iter.Seq2[K, V] {
	o := optionsOf(options)
	return func(yield func(K, V) bool) { t.pairs(tx, t.from(from), t.to(to), o, yield) }
}

// All is [OrderedTable.Range] over the whole table.
func (t *OrderedTable[K, V]) All(tx *Tx, options ...RangeOption) iter.Seq2[K, V] {
	if len(options) == 0 {
		return t.Table.All(tx)
	}
	return t.Range(tx, Unbounded[K](), Unbounded[K](), options...)
}

// RangeKeys is [OrderedTable.Range] without the values, which are read and not decoded.
func (t *OrderedTable[K, V]) RangeKeys(tx *Tx, from, to Bound[K], options ...RangeOption) iter.Seq[K] {
	o := optionsOf(options)
	return func(yield func(K) bool) {
		t.walk(tx, t.from(from), t.to(to), o, func(key, _ []byte) (bool, error) {
			k, err := t.decodeKey(key)
			if err != nil {
				return false, err
			}
			return yield(k), nil
		})
	}
}

// Prefix is [OrderedTable.Range] over the keys that begin as k does: of a tuple, those whose first
// [Parts] are k's, without which it is ErrOptions; of strings and bytes, those that begin with k.
func (t *OrderedTable[K, V]) Prefix(tx *Tx, k K, options ...RangeOption) iter.Seq2[K, V] {
	o := optionsOf(options)
	return func(yield func(K, V) bool) {
		from := index.Bound{Key: t.key.Append(nil, k)}
		if t.key.Parts != nil || o.parts > 0 {
			n := 0
			if t.key.Parts != nil && o.parts > 0 {
				n = t.key.Parts(from.Key, o.parts)
			}
			if n == 0 {
				err := fmt.Errorf("%w: table %q: a key of type %s has no %d parts",
					ErrOptions, t.t.Name, t.key.Name, o.parts)
				if o.parts <= 0 {
					err = fmt.Errorf("%w: table %q: Prefix of keys of type %s needs Parts: how many parts of "+
						"the key count", ErrOptions, t.t.Name, t.key.Name)
				}
				if !tx.over() && tx.err == nil {
					_ = tx.stop(err)
				}
				return
			}
			from.Key = from.Key[:n]
		}
		t.pairs(tx, from, behindPrefix(from.Key), o, yield)
	}
}

// behindPrefix is the bound behind all keys that begin with p.
func behindPrefix(p []byte) index.Bound {
	p = bytes.Clone(p)
	for n := len(p); n > 0; n-- {
		if p[n-1] < 0xff {
			p[n-1]++
			return index.Bound{Key: p[:n]}
		}
	}
	return index.Bound{End: true}
}

// First returns the record with the smallest key between two bounds; found is false if there is
// none.
func (t *OrderedTable[K, V]) First(tx *Tx, from, to Bound[K]) (k K, v V, found bool, err error) {
	return t.one(tx, from, to, rangeOptions{limit: 1})
}

// Last returns the record with the largest key between two bounds; found is false if there is none.
func (t *OrderedTable[K, V]) Last(tx *Tx, from, to Bound[K]) (k K, v V, found bool, err error) {
	return t.one(tx, from, to, rangeOptions{limit: 1, down: true})
}

func (t *OrderedTable[K, V]) one(tx *Tx, from, to Bound[K], o rangeOptions) (k K, v V, found bool, err error) {
	t.pairs(tx, t.from(from), t.to(to), o, func(x K, y V) bool {
		k, v, found = x, y, true
		return false
	})
	return k, v, found, tx.usable()
}

// Count returns the number of records between two bounds, at the cost of RangeKeys.
func (t *OrderedTable[K, V]) Count(tx *Tx, from, to Bound[K]) (n int, err error) {
	t.walk(tx, t.from(from), t.to(to), rangeOptions{}, func([]byte, []byte) (bool, error) {
		n++
		return true, nil
	})
	return n, tx.usable()
}

// DeleteRange deletes the records between two bounds, with a Limit at most so many, and returns how
// many. A range that one transaction's log has no room for is ErrTooLarge: delete it in pieces.
func (t *OrderedTable[K, V]) DeleteRange(tx *Tx, from, to Bound[K], options ...RangeOption) (n int, err error) {
	t.walk(tx, t.from(from), t.to(to), optionsOf(options), func(key, _ []byte) (bool, error) {
		err := t.deleteEncoded(tx, key)
		if errors.Is(err, ErrNotFound) {
			return true, nil // it has gone since the range was read, which the commit will find
		}
		n++
		return err == nil, err
	})
	return n, tx.usable()
}

func (t *OrderedTable[K, V]) from(b Bound[K]) index.Bound { return lower(b.bound, t.encoded(b)) }

func (t *OrderedTable[K, V]) to(b Bound[K]) index.Bound { return upper(b.bound, t.encoded(b)) }

// encoded is the encoding of a bound's key; nil: it has none.
func (t *OrderedTable[K, V]) encoded(b Bound[K]) []byte {
	if b.bound == unbounded {
		return nil
	}
	return t.key.Append(nil, b.key)
}

func (t *OrderedTable[K, V]) pairs(tx *Tx, from, to index.Bound, o rangeOptions, yield func(K, V) bool) {
	t.walk(tx, from, to, o, t.decoded(yield))
}

// walk calls fn for each record between two bounds until it returns false.
func (t *OrderedTable[K, V]) walk(tx *Tx, from, to index.Bound, o rangeOptions,
	fn func(key, value []byte) (bool, error)) {
	tx.walkRange(t.db, t.t, nil, from, to, o, func(_ *occ.Scan, key, value []byte) (bool, error) {
		return fn(key, value)
	}, nil)
}

// walkRange is OrderedTable.walk of any table. beside, if not nil, is a table whose keys fn reads
// as they were at the first step. end, if not nil, is called behind the last record.
func (tx *Tx) walkRange(db *DB, t, beside *occ.Table, from, to index.Bound, o rangeOptions,
	fn func(s *occ.Scan, key, value []byte) (bool, error), end func(s *occ.Scan) error) {
	left := cmp.Or(o.limit, -1)
	var scan *occ.Scan
	ends := func() error {
		if end == nil {
			return nil
		}
		return end(scan)
	}
	tx.walk(db, t, func() (_ *occ.Scan, err error) {
		if scan, err = tx.o.Range(t, from, to, o.down, o.limit); err == nil && beside != nil {
			scan.Beside(beside)
		}
		return scan, err
	}, func(key, value []byte) (bool, error) {
		ok, err := fn(scan, key, value)
		if left--; ok && err == nil && left == 0 {
			return false, ends()
		}
		return ok, err
	}, ends)
}

// Range is [OrderedTable.Range] of a table of encoded keys that is ordered ([OpenAnyTable]
// opens one); of another table it is ErrUnordered. The slices are valid until the
// transaction function returns.
func (r *RawTable) Range(tx *Tx, from, to Bound[[]byte], options ...RangeOption) iter.Seq2[[]byte, []byte] {
	o := optionsOf(options)
	return func(yield func(key, value []byte) bool) {
		r.walk(tx, lower(from.bound, bytes.Clone(from.key)), upper(to.bound, bytes.Clone(to.key)), o, yield)
	}
}

// Prefix is Range over the keys that begin with p.
func (r *RawTable) Prefix(tx *Tx, p []byte, options ...RangeOption) iter.Seq2[[]byte, []byte] {
	o := optionsOf(options)
	return func(yield func(key, value []byte) bool) {
		p := bytes.Clone(p)
		r.walk(tx, index.Bound{Key: p}, behindPrefix(p), o, yield)
	}
}

func (r *RawTable) walk(tx *Tx, from, to index.Bound, o rangeOptions, yield func(key, value []byte) bool) {
	if r.t.Ordered == nil && !tx.over() && tx.err == nil {
		_ = tx.stop(fmt.Errorf("%w: table %q: it is a hash table", ErrUnordered, r.t.Name))
		return
	}
	tx.walkRange(r.db, r.t, nil, from, to, o, func(_ *occ.Scan, key, value []byte) (bool, error) {
		return yield(key, value), nil
	}, nil)
}

// lower and upper are the ends of a range, whose encoded keys are the caller's until the
// transaction ends.
func lower(kind boundKind, key []byte) index.Bound {
	if kind == unbounded {
		return index.Bound{}
	}
	return index.Bound{Key: key, After: kind == excluding}
}

func upper(kind boundKind, key []byte) index.Bound {
	if kind == unbounded {
		return index.Bound{End: true}
	}
	return index.Bound{Key: key, After: kind == including}
}

// post adds what the index of a table owes. That it cannot now is no fault of the
// transaction that has ended.
func (w *Worker) post(t *occ.Table) {
	if err := w.o.Posts(t); err != nil && w.session.Broken() == nil {
		w.repairDamage(err)
	}
}
