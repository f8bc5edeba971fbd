package txn

import (
	"fmt"
	"iter"

	"txnode/index"
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

// walk calls fn for each entry between two bounds.
func (x *Index[K, V, I]) walk(tx *Tx, from, to Bound[I], o rangeOptions, fn func(i I, k K) (bool, error)) {
	if err := x.ready(tx); err != nil {
		if !tx.over() && tx.err == nil {
			_ = tx.stop(err)
		}
		return
	}
	a, b := x.bounds(from, to)
	tx.walkRange(x.table.db, x.t, a, b, o, func(key, value []byte) (bool, error) {
		if x.unique {
			i, err := x.key.Decode(key)
			if err != nil {
				return false, err
			}
			k, err := x.primary.Decode(value)
			if err != nil {
				return false, err
			}
			return fn(i, k)
		}
		p, err := x.pair().Decode(key)
		if err != nil {
			return false, err
		}
		return fn(p.A, p.B)
	})
}

// Range ranges over the keys of the index between two bounds, in order, with the keys of the records that have them: see
// [OrderedTable.Range]. The records are not read.
func (x *Index[K, V, I]) Range(tx *Tx, from, to Bound[I], options ...RangeOption) iter.Seq2[I, K] {
	o := optionsOf(options)
	return func(yield func(I, K) bool) {
		x.walk(tx, from, to, o, func(i I, k K) (bool, error) { return yield(i, k), nil })
	}
}

// rowsAtOnce is how many records Rows fetches in one round trip.
const rowsAtOnce = 64

// Rows ranges over the records whose keys in the index are between two bounds, in the order of these keys: Range, and
// a round trip for every 64 records.
func (x *Index[K, V, I]) Rows(tx *Tx, from, to Bound[I], options ...RangeOption) iter.Seq2[K, V] {
	o := optionsOf(options)
	return func(yield func(K, V) bool) {
		var keys []K
		flush := func() (bool, error) {
			if err := x.table.StageAll(tx, ForRead, keys...); err != nil {
				return false, err
			}
			for _, k := range keys {
				v, found, err := x.table.Lookup(tx, k)
				if err == nil && !found {
					continue // the loop has deleted it
				}
				if err != nil || !yield(k, v) {
					return false, err
				}
			}
			keys = keys[:0]
			return true, nil
		}
		ended := false
		x.walk(tx, from, to, o, func(_ I, k K) (bool, error) {
			if keys = append(keys, k); len(keys) < rowsAtOnce {
				return true, nil
			}
			ok, err := flush()
			ended = !ok
			return ok, err
		})
		if ended || len(keys) == 0 || tx.usable() != nil {
			return
		}
		if _, err := flush(); err != nil && tx.usable() == nil {
			_ = tx.stop(err)
		}
	}
}

// Lookup returns the first record that has the key i in the index; found is false if none has.
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
