package txn

import "encoding/binary"

// Row is a record of a table of bytes that [Tx.Fetch] gets together with others, of the
// same table or not. The caller sets Table, Key and Mode; the slices of rows may be used
// again for one transaction after another.
type Row struct {
	Table *RawTable
	Key   []byte
	Mode  Mode
	// Value is what Fetch has found, nil if the key has no value. The bytes are the
	// engine's, and valid until the transaction function returns.
	Value []byte

	item int // its number in the transaction that has fetched it
}

// Fetch stages all rows, fetches what has not been fetched yet in one round trip, and sets
// the Value of each: what Stage and Get of each key do, in one call. A key that has no
// value is no error.
func (tx *Tx) Fetch(rows []Row) error {
	o := tx.o
	if tx.open == nil || !o.Takes(len(rows)) {
		return tx.fetchEach(rows)
	}
	for i := range rows {
		r := &rows[i]
		update := r.Mode == ForUpdate
		if r.Table.db != tx.open || len(r.Key) != 8 || update && tx.readOnly || r.Mode > ForUpdate ||
			r.Table.t.Dropped() {
			return tx.fetchEach(rows)
		}
		r.item = o.StageShort(r.Table.t, binary.LittleEndian.Uint64(r.Key), update)
	}
	if o.Pending() {
		if tx.ctx.Err() != nil {
			return tx.stop(canceled(tx.ctx))
		}
		if err := o.Execute(); err != nil {
			return tx.stop(err)
		}
	}
	for i := range rows {
		r := &rows[i]
		r.Value, _ = o.Read(r.item)
	}
	return nil
}

// fetchEach is Fetch of any keys, of which some may have been staged.
func (tx *Tx) fetchEach(rows []Row) error {
	if err := tx.usable(); err != nil {
		return err
	}
	for i := range rows {
		r := &rows[i]
		if tx.open != r.Table.db {
			r.Table.key(tx, r.Key) // ends an attempt that uses a table of another database
		}
		var err error
		if r.item, err = tx.announce(r.Table.t, r.Key, r.Mode); err != nil {
			return err
		}
	}
	if tx.o.Pending() {
		if err := tx.Execute(); err != nil {
			return err
		}
	}
	for i := range rows {
		rows[i].Value, _ = tx.o.Read(rows[i].item)
	}
	return nil
}

// Put sets the value of the row's key, as [RawTable.Put] does; when Fetch of this
// transaction has filled the row, it does not look for the key again. It leaves
// r.Value as it is, but those bytes may change.
func (r *Row) Put(tx *Tx, value []byte) error {
	t := r.Table
	if tx.open != t.db || tx.readOnly {
		return t.Put(tx, r.Key, value)
	}
	if len(r.Key) == 8 && tx.o.PutAt(r.item, t.t, binary.LittleEndian.Uint64(r.Key), value) {
		return nil
	}
	return tx.note(tx.o.Set(t.t, r.Key, value))
}
