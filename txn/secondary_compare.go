package txn

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"txnode/occ"
)

// IndexFaultKind says what is wrong with a record and an entry of an index.
type IndexFaultKind uint8

// Kinds of faults of indexes.
const (
	EntryMissing IndexFaultKind = iota + 1 // the record has a key in the index, and the index has no such entry
	// EntryStray: an entry leads to a record that is not there, or that has not this key in the
	// index
	EntryStray
	// EntryTaken: of a unique index: the entry of the record's key leads to another record
	EntryTaken
	RecordUnreadable // the record, or its keys in the index, cannot be made out: Err says why
)

// String names the kind in words.
func (k IndexFaultKind) String() string {
	switch k {
	case EntryMissing:
		return "missing entry"
	case EntryStray:
		return "stray entry"
	case EntryTaken:
		return "entry of another record"
	case RecordUnreadable:
		return "unreadable record"
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// IndexFault is a record and an entry of an index that do not go together.
type IndexFault struct {
	Kind  IndexFaultKind
	Table string
	Index string // empty: all of the table, whose record cannot be read
	// Key is the key of the record, as the table's Key has encoded it; nil: an entry has none
	// that can be decoded.
	Key []byte
	// Entry is the entry's key in the ordered table that the index is. Of an index that is not
	// unique it is the key in the index, and Key, as parts of a tuple.
	Entry []byte
	// Other is, of EntryTaken, the key of the record that the entry leads to.
	Other []byte
	Err   error
	// Repaired: the entry was added, or deleted, in the transaction that has found this.
	Repaired bool

	key, entry string // names of the Keys of the table, and of the entries
}

// String says what is wrong, in words.
func (f IndexFault) String() string {
	at := fmt.Sprintf("table %q", f.Table)
	if f.Key != nil {
		at += ", key " + showKey(f.key, f.Key)
	}
	var what string
	switch f.Kind {
	case EntryMissing:
		what = fmt.Sprintf("index %q lacks the record's entry %s", f.Index, showKey(f.entry, f.Entry))
	case EntryStray:
		what = fmt.Sprintf("index %q has an entry %s, and no such record has that key in it",
			f.Index, showKey(f.entry, f.Entry))
	case EntryTaken:
		what = fmt.Sprintf("entry %s of the unique index %q leads to the record of key %s", showKey(f.entry, f.Entry),
			f.Index, showKey(f.key, f.Other))
	default:
		what = "the record, or its keys in indexes, cannot be read"
	}
	if f.Err != nil {
		what += fmt.Sprintf(": %v", f.Err)
	}
	if f.Repaired {
		what += "; repaired"
	}
	return at + ": " + what
}

// comparison holds indexes of a table against its records while transactions run. Each of its
// transactions compares some records, or some entries, so what it says of one of them was so at
// one moment. A record or an entry that stays as it is until the end is compared; one that is
// written meanwhile may be.
type comparison[K, V any] struct {
	ctx      context.Context
	w        *Worker
	t        *Table[K, V]
	indexes  []TableIndex[K, V]
	progress func(records uint64)
	report   func(IndexFault) error
	repair   bool // missing entries are added, and stray ones deleted
	blank    bool // most entries are missing: records are locked when they are read
	spares   bool // a record that is damaged on all copies is reported; else it is an error

	records, entries uint64
	faults           []IndexFault // of a transaction
}

// run compares all entries, and then all records: so no record meets a stray entry in
// the place of its own.
func (c *comparison[K, V]) run() error {
	for _, x := range c.indexes {
		if err := c.runEntries(x); err != nil {
			return err
		}
	}
	return c.runRecords()
}

// runRecords compares each record with its entries.
func (c *comparison[K, V]) runRecords() error {
	done := c.records
	return walkParts(c, c.t.t, &c.records, func(key, _ []byte) (K, error) { return c.t.decodeKey(bytes.Clone(key)) },
		func(tx *Tx, part []K, write bool) error { return c.compareRecords(tx, part, write) },
		func(part []K) {
			if done += uint64(len(part)); c.progress != nil && len(part) > 0 {
				c.progress(done)
			}
		})
}

// indexEntry is an entry of an index.
type indexEntry struct{ key, value []byte }

// runEntries compares each entry of an index with its record.
func (c *comparison[K, V]) runEntries(x indexEntries[K, V]) error {
	return walkParts(c, x.entries(), &c.entries,
		func(key, value []byte) (indexEntry, error) {
			return indexEntry{bytes.Clone(key), bytes.Clone(value)}, nil
		},
		func(tx *Tx, part []indexEntry, write bool) error { return c.compareEntries(tx, x, part, write) },
		func([]indexEntry) {})
}

// walkParts walks over a table, counts what it meets, and has parts of that compared, by a
// transaction each. done is called after each part.
func walkParts[K, V, T any](c *comparison[K, V], t *occ.Table, count *uint64, item func(key, value []byte) (T, error),
	compare func(tx *Tx, part []T, write bool) error, done func(part []T)) error {
	var part []T
	flush := func() error {
		if err := c.tell(); err != nil { // what the walk has left out
			return err
		}
		err := inHalves(part, func(part []T) error {
			return c.transact(len(part), func(tx *Tx, write bool) error { return compare(tx, part, write) })
		}, ErrTooLarge, ErrConflict, errDamagedPart)
		if err == nil {
			*count += uint64(len(part))
			done(part)
		}
		part = part[:0]
		return err
	}
	s := copier{ctx: c.ctx, w: c.w, t: t, each: func(key, value []byte) error {
		x, err := item(key, value)
		if err != nil {
			c.unreadable("", bytes.Clone(key), err)
			return c.tell()
		}
		if part = append(part, x); len(part) < rowsAtOnce {
			return nil
		}
		return flush()
	}}
	if c.spares {
		s.skipDamaged = func(x Skipped) { c.unreadable(x.Table, x.Key, x.Err) }
	}
	from := *count
	if err := c.w.insist(c.ctx, func() error {
		part, c.faults, *count = part[:0], c.faults[:0], from
		return s.walk()
	}); err != nil {
		return err
	}
	return flush()
}

// errDamagedPart: one of the records of a transaction is damaged on all copies.
var errDamagedPart = errors.New("txn: a record is damaged")

// transact has n records, or entries, compared by a transaction, and tells what is wrong. If
// something is to be repaired, another one compares them again, and writes.
func (c *comparison[K, V]) transact(n int, fn func(tx *Tx, write bool) error) error {
	run := c.w.View
	for write := c.repair && c.blank; ; write = true {
		if write {
			run = c.w.Update
		}
		err := run(c.ctx, func(tx *Tx) error {
			c.faults = c.faults[:0]
			tx.o.AllowReserved(write)
			return fn(tx, write)
		})
		switch {
		case err == nil && (write || !c.repair || len(c.faults) == 0):
			return c.tell()
		case err == nil:
			continue
		}
		c.faults = c.faults[:0]
		if !c.spares || !errors.Is(err, ErrCorrupt) {
			return err
		}
		if n > 1 {
			return errDamagedPart
		}
		c.unreadable("", nil, err)
		return c.tell()
	}
}

// fault notes what is wrong.
func (c *comparison[K, V]) fault(f IndexFault) {
	f.Table, f.key = c.t.t.Name, c.t.key.Name
	for _, x := range c.indexes {
		if o := x.options(); o.Name == f.Index {
			f.entry = o.entryKey(f.key)
		}
	}
	c.faults = append(c.faults, f)
}

// unreadable notes that a record of a table, or of an index, cannot be compared.
func (c *comparison[K, V]) unreadable(index string, key []byte, err error) {
	c.fault(IndexFault{Kind: RecordUnreadable, Index: index, Key: key, Err: err})
}

// tell reports what was noted.
func (c *comparison[K, V]) tell() error {
	for _, f := range c.faults {
		if err := c.report(f); err != nil {
			return err
		}
	}
	c.faults = c.faults[:0]
	return nil
}

// wantedEntry is an entry that a record should have.
type wantedEntry struct {
	indexChange
	index string
	of    []byte // the key of the record
}

// compareRecords compares records with their entries.
func (c *comparison[K, V]) compareRecords(tx *Tx, keys []K, write bool) error {
	mode := ForRead
	if write {
		mode = ForUpdate
	}
	if err := c.t.StageAll(tx, mode, keys...); err != nil {
		return err
	}
	var all []wantedEntry
	for _, k := range keys {
		key := bytes.Clone(c.t.encode(tx, k))
		v, err := c.record(tx, k, key)
		if err != nil {
			return err
		}
		if v == nil {
			continue
		}
		for _, x := range c.indexes {
			changes, err := x.change(tx, k, nil, v, false)
			if err != nil {
				c.unreadable(x.options().Name, key, err)
			}
			for _, e := range changes {
				all = append(all, wantedEntry{e, x.options().Name, key})
			}
		}
	}
	for n := range all {
		i, err := tx.stage(all[n].t, all[n].key, write)
		if err != nil {
			return err
		}
		all[n].i = i
	}
	if tx.o.Pending() {
		if err := tx.Execute(); err != nil {
			return err
		}
	}
	for n := range all {
		e := &all[n]
		f := IndexFault{Kind: EntryMissing, Index: e.index, Key: e.of, Entry: e.key, Repaired: write}
		switch {
		case !tx.o.Exists(e.i):
			if write {
				if err := tx.note(tx.o.Put(e.i, e.value)); err != nil {
					return err
				}
			}
		case e.owned && !tx.sameEntry(&e.indexChange):
			other, _ := tx.o.Read(e.i)
			f.Kind, f.Other, f.Err, f.Repaired = EntryTaken, bytes.Clone(other), e.unique, false
		default:
			continue
		}
		c.fault(f)
	}
	return nil
}

// record returns the value of a key; nil: it has none, or none that can be decoded, which is noted.
func (c *comparison[K, V]) record(tx *Tx, k K, key []byte) (*V, error) {
	i, err := tx.fetch(c.t.t, key, false)
	if err != nil {
		return nil, err
	}
	p, found := tx.o.Read(i)
	if !found {
		return nil, nil //nolint:nilnil // documented
	}
	v, err := c.t.decode(k, bytes.Clone(p))
	if err != nil {
		c.unreadable("", key, err)
		return nil, nil //nolint:nilnil // documented
	}
	return &v, nil
}

// compareEntries compares entries of an index with their records.
func (c *comparison[K, V]) compareEntries(tx *Tx, x indexEntries[K, V], entries []indexEntry, write bool) error {
	items := make([]int, len(entries))
	for n, e := range entries {
		if k, err := x.leads(e.key, e.value); err == nil { // else it is looked at below
			if err := c.t.Stage(tx, k, ForRead); err != nil {
				return err
			}
		}
		i, err := tx.stage(x.entries(), e.key, write)
		if err != nil {
			return err
		}
		items[n] = i
	}
	if tx.o.Pending() {
		if err := tx.Execute(); err != nil {
			return err
		}
	}
	for n, i := range items {
		value, found := tx.o.Read(i)
		if !found {
			continue // it is gone by now
		}
		f := IndexFault{Kind: EntryStray, Index: x.options().Name, Entry: entries[n].key, Repaired: write}
		k, err := x.leads(f.Entry, value)
		if f.Err = err; err == nil {
			f.Key = bytes.Clone(c.t.encode(tx, k))
			if belongs, err := c.belongs(tx, x, k, f.Key, f.Entry); belongs || err != nil {
				if err != nil {
					return err
				}
				continue
			}
		}
		if c.fault(f); write {
			if err := tx.note(tx.o.Delete(i)); err != nil {
				return err
			}
		}
	}
	return nil
}

// belongs reports whether a record has an entry. One that cannot be made out, which is noted with
// the records, may have it.
func (c *comparison[K, V]) belongs(tx *Tx, x indexEntries[K, V], k K, key, entry []byte) (bool, error) {
	noted := len(c.faults)
	v, err := c.record(tx, k, key)
	if err != nil || len(c.faults) > noted {
		c.faults = c.faults[:noted]
		return true, err
	}
	if v == nil {
		return false, nil
	}
	keys, err := x.keys(k, v)
	if err != nil {
		return true, nil //nolint:nilerr // documented
	}
	_, has := slices.BinarySearchFunc(keys, entry, bytes.Compare)
	return has, nil
}
