package txn

import (
	"bytes"
	"fmt"
	"slices"

	"txnode/index"
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
			err = fmt.Errorf("%w: index %q of table %q: its function has panicked at key %v: %v",
				ErrIndex, x.name, x.table.t.Name, k, p)
		}
	}()
	for _, i := range x.of(k, *v) {
		if len(x.key.Append(nil, i)) == 0 {
			return nil, fmt.Errorf("%w: index %q of table %q: the record of key %v has an empty key in it",
				ErrIndex, x.name, x.table.t.Name, k)
		}
		p := x.entry(nil, i, k)
		if most := x.t.Ordered.MaxKey(); len(p) > most {
			return nil, fmt.Errorf("%w: index %q of table %q: the record of key %v has an entry of %d bytes in it, "+
				"and %d are possible", ErrIndex, x.name, x.table.t.Name, k, len(p), most)
		}
		keys = append(keys, p)
	}
	slices.SortFunc(keys, bytes.Compare)
	return slices.CompactFunc(keys, bytes.Equal), nil
}

// leading returns the entries that lead to a record which the transaction has locked, in order:
// what a value had that cannot be read any more. No other transaction changes these entries, since
// each has to lock the record first. So the transaction need not depend on the index.
func (x *Index[K, V, I]) leading(tx *Tx, k K) (entries [][]byte, err error) {
	key := x.primary.Append(nil, k)
	tx.walk(x.table.db, x.t, func() (*occ.Scan, error) {
		s, err := tx.o.Range(x.t, index.Bound{}, index.Bound{End: true}, false, 0)
		if err == nil {
			s.SkipValidation()
		}
		return s, err
	}, func(entry, value []byte) (bool, error) {
		if to, err := x.leads(entry, value); err == nil && bytes.Equal(x.primary.Append(nil, to), key) {
			entries = append(entries, bytes.Clone(entry))
		}
		return true, nil
	}, nil)
	return entries, tx.usable()
}

func (x *Index[K, V, I]) change(tx *Tx, k K, old, now *V, lost bool) (changes []indexChange, err error) {
	was, err := x.keys(k, old)
	if lost && err == nil {
		was, err = x.leading(tx, k)
	}
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

// keep changes the indexes by a change of a record from old to now, nil: it has no value, before
// the record is changed. A function or a key that is wrong, or ErrUnique, leaves all indexes as
// they are. Any other error ends the attempt, since some may be changed then.
func (t *Table[K, V]) keep(tx *Tx, k K, old, now *V, lost bool) error {
	var all []indexChange
	for _, x := range t.indexes {
		changes, err := x.change(tx, k, old, now, lost)
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

// fetchEntries reads the entries that are to be changed. One of which nothing is known is
// inserted with that.
func (tx *Tx) fetchEntries(all []indexChange) error {
	for n := range all {
		c := &all[n]
		i, err := tx.stage(c.t, c.key, true)
		if err != nil {
			return err
		}
		if !c.owned || !c.add { // whatever it has, it is this record's, and is replaced
			tx.o.Blind(i)
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

// changeEntry changes an entry that was fetched; back: it takes back what fetchEntries has
// inserted.
func (tx *Tx) changeEntry(c *indexChange, back bool) error {
	has, unread := tx.o.Exists(c.i), tx.o.Unreadable(c.i)
	switch {
	case back && c.staged:
		return tx.o.Delete(c.i)
	case back || c.staged:
		return nil
	case c.add && (!has || unread):
		return tx.o.Put(c.i, c.value)
	case !c.add && has && (!c.owned || unread || tx.sameEntry(c)):
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

// What a write of a table with indexes is. They are functions of their own, so that values of other
// tables stay off the heap.

func (t *Table[K, V]) putIndexed(tx *Tx, k K, v V) error {
	return t.store(tx, k, &v, true, func(bool) error { return nil })
}

func (t *Table[K, V]) removeIndexed(tx *Tx, k K) error {
	return t.store(tx, k, nil, true, func(bool) error { return nil })
}

func (t *Table[K, V]) insertIndexed(tx *Tx, k K, v V) error {
	return t.store(tx, k, &v, false, func(found bool) error {
		if found {
			return ErrExists
		}
		return nil
	})
}

func (t *Table[K, V]) deleteIndexed(tx *Tx, k K) error {
	return t.store(tx, k, nil, true, func(found bool) error {
		if !found {
			return ErrNotFound
		}
		return nil
	})
}

// store sets the value of a key of a table with indexes, nil: deletes it. found is whether it had
// one. repairs: a record that cannot be read is replaced, as it is in a table without indexes. Its
// entries are those that lead to it then.
func (t *Table[K, V]) store(tx *Tx, k K, now *V, repairs bool, want func(found bool) error) error {
	if err := t.db.lacking(t.t, t.indexNames); err != nil {
		return err
	}
	for _, x := range t.indexes {
		if err := x.alive(); err != nil {
			return err
		}
	}
	key := bytes.Clone(t.encode(tx, k))
	i, err := tx.stage(t.t, key, true)
	if err == nil && !tx.o.Executed(i) {
		if repairs {
			tx.o.Blind(i)
		}
		err = tx.Execute()
	}
	if err != nil {
		return named(err, t.key.Name)
	}
	lost := tx.o.Unreadable(i)
	if err := t.replace(tx, k, key, i, now, lost, want); err != nil {
		if lost {
			return tx.halted(err) // the record would seem to have a value
		}
		return err
	}
	return nil
}

// replace is store of an item that was fetched. lost: its value could not be read.
func (t *Table[K, V]) replace(tx *Tx, k K, key []byte, i int, now *V, lost bool, want func(found bool) error) error {
	var old *V
	p, found := tx.o.Read(i)
	err := want(found)
	if err != nil {
		return named(keyError(err, t.t, key), t.key.Name)
	}
	if now == nil && !found {
		return nil
	}
	if found && !lost {
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
	if err := t.keep(tx, k, old, now, lost); err != nil {
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
