package txn

import (
	"fmt"
	"iter"

	"txnode/index"
	"txnode/occ"
)

// ready returns why the index cannot be asked in tx, or nil.
func (x *Index[K, V, I]) ready(tx *Tx) error {
	if x.table == nil {
		return fmt.Errorf("%w: index %q belongs to no table: create or open one with it", ErrOptions, x.name)
	}
	if err := tx.usable(); err != nil {
		return err
	}
	if err := x.alive(); err != nil {
		return err
	}
	built, err := x.table.db.isBuilt(x.table.t.Name, x.name)
	if err == nil && !built {
		err = fmt.Errorf("%w: index %q of table %q", ErrBuilding, x.name, x.table.t.Name)
	}
	return err
}

// bounds are those of the entries of the index keys between two bounds.
func (x *Index[K, V, I]) bounds(from, to Bound[I]) (a, b index.Bound) {
	end := func(o Bound[I], behind bool) index.Bound {
		p := x.key.Append(nil, o.key)
		if x.unique {
			return index.Bound{Key: p, After: behind}
		}
		p = part(x.key).Append(nil, o.key) // what the entries of this key begin with
		if behind {
			return behindPrefix(p)
		}
		return index.Bound{Key: p}
	}
	b.End = true
	if from.bound != unbounded {
		a = end(from, from.bound == excluding)
	}
	if to.bound != unbounded {
		b = end(to, to.bound == including)
	}
	return a, b
}

// walk calls fn for each entry between two bounds, and end, if not nil, behind the last one. Both
// may read records of the table of the index as they were at the first step.
func (x *Index[K, V, I]) walk(tx *Tx, from, to Bound[I], o rangeOptions, fn func(s *occ.Scan, i I, k K) (bool, error),
	end func(s *occ.Scan) error) {
	if err := x.ready(tx); err != nil {
		if !tx.over() && tx.err == nil {
			_ = tx.stop(err)
		}
		return
	}
	a, b := x.bounds(from, to)
	tx.walkRange(x.table.db, x.t, x.table.t, a, b, o, func(s *occ.Scan, key, value []byte) (bool, error) {
		if x.unique {
			i, err := x.key.Decode(key)
			if err != nil {
				return false, err
			}
			k, err := x.primary.Decode(value)
			if err != nil {
				return false, err
			}
			return fn(s, i, k)
		}
		p, err := x.pair().Decode(key)
		if err != nil {
			return false, err
		}
		return fn(s, p.A, p.B)
	}, end)
}

// Range ranges over the keys of the index between two bounds, in order, with the keys of the
// records that have them. The records are not read. The loop meets each entry once, as the index
// was at the loop's first step, and may change the records that it is led to: see
// [OrderedTable.Range].
func (x *Index[K, V, I]) Range(tx *Tx, from, to Bound[I], options ...RangeOption) iter.Seq2[I, K] {
	o := optionsOf(options)
	return func(yield func(I, K) bool) {
		x.walk(tx, from, to, o, func(_ *occ.Scan, i I, k K) (bool, error) { return yield(i, k), nil }, nil)
	}
}

// rowsAtOnce is how many records Rows fetches in one round trip.
const rowsAtOnce = 64

// Rows ranges over the records whose keys in the index are between two bounds, in the order of
// these keys: Range, and a round trip for every 64 records. A record that has several of these keys
// comes once for each.
//
// Index and records are those of the loop's first step, as they are for [OrderedTable.Range]. So
// a raise in a loop over the index of what is raised comes to each record once. The loop still
// gets a record that it has changed or deleted before it comes there, as that was: [Table.Get]
// tells how it is now.
func (x *Index[K, V, I]) Rows(tx *Tx, from, to Bound[I], options ...RangeOption) iter.Seq2[K, V] {
	o := optionsOf(options)
	return func(yield func(K, V) bool) {
		t := x.table
		var keys []K
		items := make([]int, 0, rowsAtOnce)
		flush := func(s *occ.Scan) (bool, error) {
			items = items[:0]
			for _, k := range keys {
				i, err := tx.stage(t.t, t.encode(tx, k), false)
				if err != nil {
					return false, err
				}
				items = append(items, i)
			}
			if tx.o.Pending() {
				if err := tx.Execute(); err != nil {
					return false, err
				}
			}
			for n, i := range items {
				p, found, err := s.Read(i)
				if err != nil {
					return false, err
				}
				if !found {
					continue
				}
				v, err := t.decode(keys[n], p)
				if err != nil || !yield(keys[n], v) || tx.usable() != nil {
					return false, err
				}
			}
			keys = keys[:0]
			return true, nil
		}
		x.walk(tx, from, to, o, func(s *occ.Scan, _ I, k K) (bool, error) {
			if keys = append(keys, k); len(keys) < rowsAtOnce {
				return true, nil
			}
			return flush(s)
		}, func(s *occ.Scan) error {
			_, err := flush(s)
			return err
		})
	}
}

// Lookup returns the first record that has the key i in the index, as the transaction would leave
// it; found is false if none has.
func (x *Index[K, V, I]) Lookup(tx *Tx, i I) (k K, v V, found bool, err error) {
	if err := x.ready(tx); err != nil {
		return k, v, false, err
	}
	for a, b := range x.Rows(tx, Including(i), Including(i), Limit(1)) {
		k, v, found = a, b, true
		break
	}
	return k, v, found, tx.usable()
}
