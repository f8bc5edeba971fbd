package txn

import (
	"bytes"
	"fmt"
	"slices"

	"txnode/occ"
)

// indexChange is a change of an entry of an index.
type indexChange struct {
	t      *occ.Table
	key    []byte
	value  []byte
	add    bool
	unique error // what it is that the key is there already; nil: no fault
	i      int   // item
	staged bool  // its insert was staged with the fetch
}

// keys are the entries of a record, in order.
func (x *Index[K, V, I]) keys(k K, v *V) (keys [][]byte, err error) {
	if v == nil {
		return nil, nil
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: index %q of table %q: its function has panicked at key %v: %v", ErrIndex, x.name, x.table.t.Name, k, p)
		}
	}()
	for _, i := range x.of(k, *v) {
		if len(x.key.Append(nil, i)) == 0 {
			return nil, fmt.Errorf("%w: index %q of table %q: the record of key %v has an empty key in it", ErrIndex, x.name, x.table.t.Name, k)
		}
		p := x.entry(nil, i, k)
		if most := x.t.Ordered.MaxKey(); len(p) > most {
			return nil, fmt.Errorf("%w: index %q of table %q: the record of key %v has an entry of %d bytes in it, and %d are possible", ErrIndex, x.name, x.table.t.Name, k, len(p), most)
		}
		keys = append(keys, p)
	}
	slices.SortFunc(keys, bytes.Compare)
	return slices.CompactFunc(keys, bytes.Equal), nil
}

func (x *Index[K, V, I]) change(_ *Tx, k K, old, now *V) (changes []indexChange, err error) {
	was, err := x.keys(k, old)
	if err != nil {
		return nil, err
	}
	is, err := x.keys(k, now)
	if err != nil {
		return nil, err
	}
	for _, p := range was {
		if _, kept := slices.BinarySearchFunc(is, p, bytes.Compare); !kept {
			changes = append(changes, indexChange{t: x.t, key: p})
		}
	}
	for _, p := range is {
		if _, kept := slices.BinarySearchFunc(was, p, bytes.Compare); kept {
			continue
		}
		c := indexChange{t: x.t, key: p, add: true}
		if x.unique {
			c.value = x.primary.Append(nil, k)
			c.unique = &UniqueError{Table: x.table.t.Name, Index: x.name, Key: p, name: x.key.Name}
		}
		changes = append(changes, c)
	}
	return changes, nil
}

// keep changes the indexes by a change of a record from old to now, nil: it has no value, before the record is changed.
func (t *Table[K, V]) keep(tx *Tx, k K, old, now *V) error {
	var all []indexChange
	for _, x := range t.indexes {
		changes, err := x.change(tx, k, old, now)
		if err != nil {
			return err
		}
		all = append(all, changes...)
	}
	for n := range all {
		c := &all[n]
		i, err := tx.stage(c.t, c.key, true)
		if err != nil {
			return err
		}
		if c.i = i; c.add && !tx.o.Executed(i) && !tx.o.Exists(i) {
			c.staged = true
			if err := tx.note(tx.o.Insert(i, c.value)); err != nil {
				return err
			}
		}
	}
	if tx.o.Pending() {
		if err := tx.Execute(); err != nil {
			return err
		}
	}
	for n := range all {
		c := &all[n]
		if c.staged {
			if !tx.o.Found(c.i) {
				continue // it is added
			}
			tx.o.Withdraw(c.i)
		}
		var err error
		switch has := tx.o.Exists(c.i); {
		case !c.add && has:
			err = tx.o.Delete(c.i)
		case c.add && !has:
			err = tx.o.Put(c.i, c.value)
		case c.add && c.unique != nil && !t.sameEntry(tx, c):
			err = c.unique
		}
		if err != nil {
			return tx.note(err)
		}
	}
	return nil
}

// sameEntry reports whether an entry of a unique index is that of the record already.
func (t *Table[K, V]) sameEntry(tx *Tx, c *indexChange) bool {
	v, ok := tx.o.Read(c.i)
	return ok && bytes.Equal(v, c.value)
}

// What a write of a table with indexes is. They are functions of their own, so that values of other tables stay off the heap.

func (t *Table[K, V]) putIndexed(tx *Tx, k K, v V) error {
	return t.store(tx, k, &v, func(bool) error { return nil })
}

func (t *Table[K, V]) removeIndexed(tx *Tx, k K) error {
	return t.store(tx, k, nil, func(bool) error { return nil })
}

func (t *Table[K, V]) insertIndexed(tx *Tx, k K, v V) error {
	return t.store(tx, k, &v, func(found bool) error {
		if found {
			return ErrExists
		}
		return nil
	})
}

func (t *Table[K, V]) deleteIndexed(tx *Tx, k K) error {
	return t.store(tx, k, nil, func(found bool) error {
		if !found {
			return ErrNotFound
		}
		return nil
	})
}

// store sets the value of a key of a table with indexes, nil: deletes it. found is whether it had one.
func (t *Table[K, V]) store(tx *Tx, k K, now *V, want func(found bool) error) error {
	if err := t.db.lacking(t.t, t.indexNames); err != nil {
		return err
	}
	key := bytes.Clone(t.encode(tx, k))
	i, err := tx.fetch(t.t, key, true)
	if err != nil {
		return named(err, t.key.Name)
	}
	var old *V
	p, found := tx.o.Read(i)
	if err := want(found); err != nil {
		return named(keyError(err, t.t, key), t.key.Name)
	}
	if now == nil && !found {
		return nil
	}
	if found {
		v, err := t.decode(k, bytes.Clone(p))
		if err != nil {
			return err
		}
		old = &v
	}
	if err := t.keep(tx, k, old, now); err != nil {
		return err
	}
	if now == nil {
		return tx.note(tx.o.Delete(i))
	}
	value, err := t.encodeValue(tx, k, *now)
	if err != nil {
		return err
	}
	return tx.note(tx.o.Put(i, value))
}
