package txn

import (
	"fmt"

	"txnode/memory/record"
	"txnode/occ"
)

// Table is a table with keys of type K and values of type V. Safe for concurrent
// use; its methods take the transaction they are part of.
type Table[K, V any] struct {
	t     *occ.Table
	db    *DB
	key   Key[K]
	value Codec[V]

	indexes    []TableIndex[K, V]
	indexNames map[string]bool
}

// Name returns the table's name.
func (t *Table[K, V]) Name() string { return t.t.Name }

// Stage announces a key: the next Get, or Execute, fetches all that were announced
// in one round trip. ForUpdate also locks it. Staging a key again costs nothing.
func (t *Table[K, V]) Stage(tx *Tx, k K, m Mode) error {
	key := t.encode(tx, k)
	if tx.open == t.db && (m == ForRead || m == ForUpdate && !tx.readOnly) {
		_, err := tx.o.Stage(t.t, key, m == ForUpdate)
		return tx.note(err)
	}
	_, err := tx.announce(t.t, key, m)
	return named(err, t.key.Name)
}

// Expect announces that a later transaction of w will use k: the one after the next one, or after
// the one that w is in. The engine loads the address of k and then its record into the caches of
// this machine meanwhile. It does nothing unless blades are memory of this machine and tables
// exceed its caches ([Worker.Expects]). Expect is a hint for programs that know the next request
// while they execute one: nothing is locked, read or counted.
func (t *Table[K, V]) Expect(w *Worker, k K, m Mode) {
	if w.db != t.db || !w.o.Expects() || t.t.Dropped() {
		return
	}
	w.o.Expect(t.t, t.key.Append(w.keyBuf[:0], k), m == ForUpdate)
}

// StageAll is Stage of several keys.
func (t *Table[K, V]) StageAll(tx *Tx, m Mode, keys ...K) error {
	for _, k := range keys {
		if err := t.Stage(tx, k, m); err != nil {
			return err
		}
	}
	return nil
}

// Get returns the value of k as the transaction would leave it (its own writes
// included), or ErrNotFound. A key that it has not met yet costs a round trip, with
// everything that was staged.
func (t *Table[K, V]) Get(tx *Tx, k K) (V, error) { return t.get(tx, k, false) }

// GetForUpdate is Get with the intention to write. It locks a key that has a value until the
// transaction ends. It does not lock a key that is absent or that the transaction has read before:
// if such a key is written, Commit locks it, and fails with ErrConflict if it has changed.
func (t *Table[K, V]) GetForUpdate(tx *Tx, k K) (V, error) { return t.get(tx, k, true) }

func (t *Table[K, V]) get(tx *Tx, k K, update bool) (V, error) {
	key := t.encode(tx, k)
	if tx.open == t.db && !(update && tx.readOnly) {
		if p, ok := tx.o.Get(t.t, key); ok {
			return t.decode(k, p)
		}
	}
	p, err := tx.get(t.t, key, update)
	if err != nil {
		var zero V
		return zero, named(err, t.key.Name)
	}
	return t.decode(k, p)
}

// Lookup is Get of a key that may be absent: found says whether it has a value, and that it
// has none is no error.
func (t *Table[K, V]) Lookup(tx *Tx, k K) (v V, found bool, err error) {
	key := t.encode(tx, k)
	p, found := []byte(nil), false
	if tx.open == t.db {
		p, found = tx.o.Get(t.t, key)
	}
	if !found {
		i, err := tx.fetch(t.t, key, false)
		if err != nil {
			return v, false, err
		}
		if p, found = tx.o.Read(i); !found {
			return v, false, nil
		}
	}
	v, err = t.decode(k, p)
	return v, err == nil, err
}

// Change says what Table.Update does with a key.
type Change uint8

// What a function of Table.Update may want.
const (
	Keep   Change = iota // leave the key as it is
	Store                // set its value
	Remove               // delete it, if it has a value
)

// Update reads k for update and does what fn says: it gets the value of k, or the zero V if found
// is false, and returns the new value and what to do. If fn returns an error, Update returns that,
// and leaves the key as it is. fn may use the transaction. A key without a value is not locked
// before the commit: see [Table.GetForUpdate].
func (t *Table[K, V]) Update(tx *Tx, k K, fn func(v V, found bool) (V, Change, error)) error {
	i, err := tx.fetch(t.t, t.encode(tx, k), true)
	if err != nil {
		return named(err, t.key.Name)
	}
	var v V
	p, found := tx.o.Read(i)
	if found {
		if v, err = t.decode(k, p); err != nil {
			return err
		}
	}
	v, change, err := fn(v, found)
	if err == nil {
		err = tx.usable()
	}
	if err != nil {
		return err
	}
	if t.keeps() {
		switch change {
		case Store:
			return t.putIndexed(tx, k, v)
		case Remove:
			return t.removeIndexed(tx, k)
		}
	}
	switch change {
	case Keep:
		return nil
	case Store:
		p, err := t.encodeValue(tx, k, v)
		if err != nil {
			return err
		}
		return tx.note(tx.o.Put(i, p))
	case Remove:
		if !tx.o.Exists(i) {
			return nil
		}
		return tx.note(tx.o.Delete(i))
	}
	return fmt.Errorf("%w: a function of Update of table %q returned Change %d: Keep, Store and Remove are possible",
		ErrOptions, t.t.Name, change)
}

// keeps reports whether the handle keeps indexes. Writes of a handle that does not know those of
// its table are refused where they are staged: see DB.reserve.
func (t *Table[K, V]) keeps() bool { return len(t.indexes) > 0 }

func (t *Table[K, V]) decode(k K, p []byte) (V, error) {
	v, err := t.value.Decode(p)
	if err != nil {
		err = t.codecError("decoded", k, err)
	}
	return v, err
}

// codecError says of which value a codec has failed, which does not know.
func (t *Table[K, V]) codecError(done string, k K, err error) error {
	format := "txn: table %q: value of key %v cannot be %s: %w"
	switch any(k).(type) {
	case string, []byte:
		format = "txn: table %q: value of key %.64q cannot be %s: %w"
	}
	return fmt.Errorf(format, t.t.Name, k, done, err)
}

// Has reports whether k has a value, at the cost of Get.
func (t *Table[K, V]) Has(tx *Tx, k K) (bool, error) {
	i, err := tx.fetch(t.t, t.encode(tx, k), false)
	if err != nil {
		return false, err
	}
	return tx.o.Exists(i), nil
}

// Put sets the value of k, whether it has one or not. Without an earlier Get or
// Stage it is a blind write: it is fetched and locked when the transaction commits.
func (t *Table[K, V]) Put(tx *Tx, k K, v V) error {
	if t.keeps() {
		return t.putIndexed(tx, k, v)
	}
	p, err := t.encodeValue(tx, k, v)
	if err != nil {
		return err
	}
	return named(tx.put(t.t, t.encode(tx, k), p), t.key.Name)
}

// Insert sets the value of a key that has none, or returns ErrExists.
func (t *Table[K, V]) Insert(tx *Tx, k K, v V) error {
	if t.keeps() {
		return t.insertIndexed(tx, k, v)
	}
	p, err := t.encodeValue(tx, k, v)
	if err != nil {
		return err
	}
	return named(tx.insert(t.t, t.encode(tx, k), p), t.key.Name)
}

// Delete removes k, or returns ErrNotFound.
func (t *Table[K, V]) Delete(tx *Tx, k K) error {
	if t.keeps() {
		return t.deleteIndexed(tx, k)
	}
	return named(tx.delete(t.t, t.encode(tx, k)), t.key.Name)
}

// deleteEncoded is Delete of an encoded key.
func (t *Table[K, V]) deleteEncoded(tx *Tx, key []byte) error {
	if !t.keeps() {
		return tx.delete(t.t, key)
	}
	k, err := t.decodeKey(key)
	if err != nil {
		return err
	}
	return t.Delete(tx, k)
}

// encode uses the worker's scratch, which the next call overwrites.
func (t *Table[K, V]) encode(tx *Tx, k K) []byte {
	if tx.open != t.db && (tx.over() || tx.w.db != t.db) {
		tx.refuse(t.t)
		return nil
	}
	p := t.key.Append(tx.w.keyBuf[:0], k)
	if len(p) > cap(tx.w.keyBuf) {
		tx.w.keyBuf = more(p)
	}
	return p
}

// more is scratch for the next encoding of the size of p. What a codec returns is not kept
// for that: it may be the caller's memory, if the codec did not append to what it was given,
// or far too large.
func more(p []byte) []byte {
	return make([]byte, 0, min(2*len(p), record.MaxValue))
}

func (t *Table[K, V]) encodeValue(tx *Tx, k K, v V) ([]byte, error) {
	if tx.over() {
		return nil, ErrTxDone
	}
	p, err := t.value.Append(tx.w.valueBuf[:0], v)
	if len(p) > cap(tx.w.valueBuf) {
		tx.w.valueBuf = more(p)
	}
	if err != nil {
		err = t.codecError("encoded", k, err)
	}
	return p, err
}
