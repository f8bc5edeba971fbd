package txn

import (
	"bytes"
	"fmt"
	"slices"

	"txnode/memory/record"
	"txnode/occ"
)

// indexChange is a change of an entry of an index.
type indexChange struct {
	t      *occ.Table
	key    []byte
	value  []byte
	add    bool
	owned  bool  // of a unique index: without this value it is another record's entry
	unique error // what such an entry is, if it is to be added
	i      int   // item
	staged bool  // its insert was staged with the fetch
}

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
			c := indexChange{t: x.t, key: p}
			if x.unique {
				c.value, c.owned = x.primary.Append(nil, k), true
			}
			changes = append(changes, c)
		}
	}
	for _, p := range is {
		if _, kept := slices.BinarySearchFunc(was, p, bytes.Compare); kept {
			continue
		}
		c := indexChange{t: x.t, key: p, add: true}
		if x.unique {
			c.value, c.owned = x.primary.Append(nil, k), true
			c.unique = &UniqueError{Table: x.table.t.Name, Index: x.name, Key: p, name: x.key.Name}
		}
		changes = append(changes, c)
	}
	return changes, nil
}

// keep changes the indexes by a change of a record from old to now, nil: it has no value, before the record is changed.
// A function or a key that is wrong, or ErrUnique, leaves all indexes as they are. Any other error ends the attempt,
// since some may be changed then.
func (t *Table[K, V]) keep(tx *Tx, k K, old, now *V) error {
	var all []indexChange
	for _, x := range t.indexes {
		changes, err := x.change(tx, k, old, now)
		if err != nil {
			return err
		}
		all = append(all, changes...)
	}
	o := tx.o
	o.AllowReserved(true)
	defer o.AllowReserved(false)
	if err := tx.fetchEntries(all); err != nil {
		return tx.halted(err)
	}
	var unique error
	for n := range all {
		c := &all[n]
		if c.staged && tx.o.Found(c.i) {
			tx.o.Withdraw(c.i)
			c.staged = false
		}
		if c.add && c.owned && !c.staged && unique == nil && tx.o.Exists(c.i) && !tx.sameEntry(c) {
			unique = c.unique
		}
	}
	for n := range all {
		if err := tx.changeEntry(&all[n], unique != nil); err != nil {
			return tx.halted(err)
		}
	}
	return unique
}

// fetchEntries reads the entries that are to be changed. One of which nothing is known is inserted with that.
func (tx *Tx) fetchEntries(all []indexChange) error {
	for n := range all {
		c := &all[n]
		i, err := tx.stage(c.t, c.key, true)
		if err != nil {
			return err
		}
		if c.i = i; c.add && !tx.o.Executed(i) && !tx.o.Exists(i) {
			c.staged = true
			if err := tx.o.Insert(i, c.value); err != nil {
				return err
			}
		}
	}
	if !tx.o.Pending() {
		return nil
	}
	return tx.Execute()
}

// changeEntry changes an entry that was fetched; back: it takes back what fetchEntries has inserted.
func (tx *Tx) changeEntry(c *indexChange, back bool) error {
	has := tx.o.Exists(c.i)
	switch {
	case back && c.staged:
		return tx.o.Delete(c.i)
	case back || c.staged:
		return nil
	case c.add && !has:
		return tx.o.Put(c.i, c.value)
	case !c.add && has && (!c.owned || tx.sameEntry(c)):
		return tx.o.Delete(c.i)
	}
	return nil
}

// halted ends the attempt with an error that has left indexes half changed.
func (tx *Tx) halted(err error) error {
	if tx.usable() != nil {
		return err
	}
	return tx.stop(err)
}

// sameEntry reports whether an entry of a unique index is that of the record already.
func (tx *Tx) sameEntry(c *indexChange) bool {
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
	for _, x := range t.indexes {
		if err := x.alive(); err != nil {
			return err
		}
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
	// What may be wrong with the value is met before indexes are changed.
	var value []byte
	if now != nil {
		if value, err = t.encodeValue(tx, k, *now); err != nil {
			return err
		}
		if len(value) > record.MaxValue {
			return tx.note(tx.o.Put(i, value)) // ErrTooLarge
		}
	}
	if err := t.keep(tx, k, old, now); err != nil {
		return err
	}
	tx.o.AllowReserved(true)
	if now == nil {
		err = tx.o.Delete(i)
	} else {
		err = tx.o.Put(i, value)
	}
	tx.o.AllowReserved(false)
	if err != nil {
		return tx.halted(err)
	}
	return nil
}
