package txn

import "txnode/occ"

// RawTable is a table of byte strings under byte strings, without codecs: for
// programs that encode by themselves. It is the same table as
// CreateTable(db, name, BytesKey, Bytes()). Safe for concurrent use.
type RawTable struct {
	t  *occ.Table
	db *DB
}

// CreateRawTable creates a table of bytes, or opens it if it exists.
func CreateRawTable(db *DB, name string) (*RawTable, error) {
	t, err := CreateTable(db, name, BytesKey, Bytes())
	if err != nil {
		return nil, err
	}
	return &RawTable{t.t, db}, nil
}

// OpenRawTable opens a table of bytes that exists, or returns ErrNoTable.
func OpenRawTable(db *DB, name string) (*RawTable, error) {
	t, err := OpenTable(db, name, BytesKey, Bytes())
	if err != nil {
		return nil, err
	}
	return &RawTable{t.t, db}, nil
}

// Raw returns the table as one of bytes: encoded values under encoded keys. For programs that
// encode by themselves and want ranges, too: an OrderedTable of BytesKey and Bytes().
func (t *Table[K, V]) Raw() *RawTable { return &RawTable{t.t, t.db} }

// Name returns the table's name.
func (r *RawTable) Name() string { return r.t.Name }

// Stage announces a key: the next Get, or Execute, fetches all that were announced
// in one round trip. ForUpdate also locks it.
func (r *RawTable) Stage(tx *Tx, key []byte, m Mode) error {
	if tx.open == r.db && (m == ForRead || m == ForUpdate && !tx.readOnly) {
		_, err := tx.o.Stage(r.t, key, m == ForUpdate)
		return tx.note(err)
	}
	_, err := tx.announce(r.t, r.key(tx, key), m)
	return err
}

// Expect is [Table.Expect].
func (r *RawTable) Expect(w *Worker, key []byte, m Mode) {
	if w.db == r.db && !r.t.Dropped() {
		w.o.Expect(r.t, key, m == ForUpdate)
	}
}

// StageAll is Stage of several keys.
func (r *RawTable) StageAll(tx *Tx, m Mode, keys ...[]byte) error {
	for _, k := range keys {
		if err := r.Stage(tx, k, m); err != nil {
			return err
		}
	}
	return nil
}

// Get returns the value of key, or ErrNotFound. The bytes are the engine's, and
// valid until the transaction function returns; see [Bytes].
func (r *RawTable) Get(tx *Tx, key []byte) ([]byte, error) {
	if tx.open == r.db {
		if v, ok := tx.o.Get(r.t, key); ok {
			return v, nil
		}
	}
	return tx.get(r.t, r.key(tx, key), false)
}

// GetForUpdate is Get with the intention to write: it locks the key, unless the transaction
// has read it before; see [Table.GetForUpdate].
func (r *RawTable) GetForUpdate(tx *Tx, key []byte) ([]byte, error) {
	if tx.open == r.db && !tx.readOnly {
		if v, ok := tx.o.Get(r.t, key); ok {
			return v, nil
		}
	}
	return tx.get(r.t, r.key(tx, key), true)
}

// Has reports whether key has a value.
func (r *RawTable) Has(tx *Tx, key []byte) (bool, error) {
	i, err := tx.fetch(r.t, r.key(tx, key), false)
	if err != nil {
		return false, err
	}
	return tx.o.Exists(i), nil
}

// Put sets the value of key, whether it has one or not. Both are copied.
func (r *RawTable) Put(tx *Tx, key, value []byte) error {
	if tx.open == r.db && !tx.readOnly {
		return tx.note(tx.o.Set(r.t, key, value))
	}
	return tx.put(r.t, r.key(tx, key), value)
}

// Insert sets the value of a key that has none, or returns ErrExists.
func (r *RawTable) Insert(tx *Tx, key, value []byte) error {
	return tx.insert(r.t, r.key(tx, key), value)
}

// Delete removes key, or returns ErrNotFound.
func (r *RawTable) Delete(tx *Tx, key []byte) error {
	return tx.delete(r.t, r.key(tx, key))
}

// key is the key, unless the transaction cannot go on with this table.
func (r *RawTable) key(tx *Tx, key []byte) []byte {
	if tx.open != r.db && (tx.over() || tx.w.db != r.db) {
		tx.refuse(r.t)
		return nil
	}
	return key
}
