package occ

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"unsafe"

	"txnode/log"
	"txnode/memory/layout"
	"txnode/memory/record"
)

// Read returns the value of item i as the transaction sees it, its own writes
// included; live is false if the key has no value. The item must have been
// executed or written.
func (tx *Tx) Read(i int) (value []byte, live bool) {
	it := &tx.items[i]
	if !it.has {
		return nil, false
	}
	return tx.value(it), true
}

// value is the value of an item that has one, and so lies in the arena.
func (tx *Tx) value(it *item) []byte {
	return unsafe.Slice((*byte)(unsafe.Add(tx.base, it.val)), it.vlen)
}

// Block is where the record of item i is, which has been executed.
func (tx *Tx) Block(i int) layout.Addr { return tx.items[i].addr }

// Version is that of the record of item i, which has been executed, as it was read.
func (tx *Tx) Version(i int) record.TxID { return tx.items[i].version }

// Get is Stage and Read of a key that has a value, when everything staged has been
// executed; else ok is false.
func (tx *Tx) Get(t *Table, key []byte) (value []byte, ok bool) {
	if tx.fetched < len(tx.items) || !tx.active {
		return nil, false // it may be one of those, and most likely is
	}
	if len(key) == 8 && len(tx.items) <= linearItems {
		k := binary.LittleEndian.Uint64(key)
		for i := range tx.items {
			if it := &tx.items[i]; it.is(t, k) {
				if !it.has {
					break
				}
				return tx.value(it), true
			}
		}
		return nil, false
	}
	i := tx.find(t, key)
	if i < 0 {
		return nil, false
	}
	return tx.Read(i)
}

// Set is Stage for update, and Put.
func (tx *Tx) Set(t *Table, key, value []byte) error {
	if len(key) == 8 && len(tx.items) <= linearItems {
		k := binary.LittleEndian.Uint64(key)
		for i := range tx.items {
			if it := &tx.items[i]; it.is(t, k) {
				if tx.setShort(it, value) {
					return nil
				}
				break
			}
		}
	}
	i, err := tx.Stage(t, key, true)
	if err != nil {
		return err
	}
	return tx.Put(i, value)
}

// PutAt is Set of a key of 8 bytes that is expected to be item i. It returns false, and has
// done nothing, if it is not, or if there is more to do than to note the value.
func (tx *Tx) PutAt(i int, t *Table, k uint64, value []byte) bool {
	if uint(i) >= uint(len(tx.items)) {
		return false
	}
	it := &tx.items[i]
	return it.is(t, k) && tx.setShort(it, value)
}

// setShort is setImage for the first value of a locked item, if that fits a line.
func (tx *Tx) setShort(it *item, value []byte) bool {
	if len(value) > record.ShortValue || !it.locked || it.table.reserved.Load() != nil || len(tx.loops) > 0 ||
		it.write != writeNone || !tx.log.Fits(record.LineSize, tx.logCap) || !tx.active {
		return false
	}
	at := tx.logAt + uint32(tx.log.Len())
	it.w = int32(tx.log.AddLine(tx.entry(at)))
	at += log.EntryHeaderSize
	record.PutShort(tx.line(at), it.short, value)
	it.write, it.has, it.wlen = writePut, true, record.LineSize
	it.val, it.vlen = at+record.KeyOff+8, uint32(len(value))
	tx.writes++
	return true
}

func (tx *Tx) logBytes() []byte { return tx.bytes(tx.logAt, uint32(tx.logCap)) }

// reserve makes room in the log buffer for an image of size bytes.
func (tx *Tx) reserve(size int) (int, error) {
	need := tx.log.Need(size)
	if need > tx.s.ring.ring.Max() {
		return 0, tx.logTooLarge(need)
	}
	if tx.log.Entries() == log.MaxEntries {
		return 0, fmt.Errorf("txn: transaction of more than %d images, those that were outgrown included: %w",
			log.MaxEntries, ErrTooLarge)
	}
	if need > tx.logCap {
		grown := 2 * tx.logCap
		for grown < need {
			grown *= 2
		}
		at, err := tx.extra(grown)
		if err != nil {
			return 0, err
		}
		copy(tx.bytes(at, uint32(grown)), tx.logBytes()[:tx.log.Len()])
		for i := range tx.items {
			if it := &tx.items[i]; it.write == writePut {
				it.val += at - tx.logAt
			}
		}
		tx.logAt, tx.logCap = at, grown
	}
	return tx.log.Add(tx.logBytes(), size), nil
}

// place finds room in the log buffer for a new image of n bytes. When there is
// none, the item stays as it was.
func (tx *Tx) place(it *item, n int) error {
	if tx.s.alloc == nil {
		return ErrReadOnly
	}
	size := n
	if it.w >= 0 { // it grows: perhaps again
		size = max(n, 2*log.Room(tx.logBytes(), int(it.w)))
	}
	at, err := tx.reserve(size)
	if err != nil && size > n {
		at, err = tx.reserve(n)
	}
	if err != nil {
		return err
	}
	if it.w >= 0 {
		tx.odd = true
		tx.log.Kill(tx.logBytes(), int(it.w))
	}
	it.w = int32(at)
	return nil
}

// overlap reports whether two slices share memory.
func overlap(a, b []byte) bool {
	x, y := uintptr(unsafe.Pointer(unsafe.SliceData(a))), uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	return len(a) > 0 && x < y+uintptr(len(b)) && y < x+uintptr(len(a))
}

// Put sets the value of item i. The value is copied.
func (tx *Tx) Put(i int, value []byte) error {
	if !tx.active {
		return ErrDone
	}
	if len(value) > record.MaxValue {
		return &TooLargeError{What: "value", Got: len(value), Limit: record.MaxValue}
	}
	return tx.setImage(i, writePut, value)
}

// Insert sets the value of item i, which has not been executed, on the condition
// that it has none: Execute then links a block for it at once, so that the lock is
// taken with the fetch and not by a later step of Commit. If after Execute Exists
// still is what was stored before, the caller takes the write back with Withdraw.
func (tx *Tx) Insert(i int, value []byte) error {
	if err := tx.Put(i, value); err != nil {
		return err
	}
	if it := &tx.items[i]; i >= tx.fetched && !it.insert {
		it.insert = true
		tx.inserts++
	}
	return nil
}

// Found reports whether item i, which has been executed, had a value when it was
// fetched, whatever the transaction has written since.
func (tx *Tx) Found(i int) bool { return tx.items[i].state == record.Live }

// Withdraw forgets what the transaction has written to item i.
func (tx *Tx) Withdraw(i int) {
	if it := &tx.items[i]; it.write != writeNone && !it.inserted {
		tx.dropWrite(it)
	}
}

// Delete removes the value of item i; a key without one stays without.
func (tx *Tx) Delete(i int) error {
	if !tx.active {
		return ErrDone
	}
	tx.deletes = true
	return tx.setImage(i, writeDelete, nil)
}

// AllowReserved says whether the transaction may write reserved tables from now on. Begin sets that
// to false. The caller keeps such tables and what depends on them alike.
func (tx *Tx) AllowReserved(allow bool) { tx.reserved = allow }

// setImage stages a write: the place where all of them are staged, but for the short ones of
// setShort.
func (tx *Tx) setImage(i int, w write, value []byte) error {
	it := &tx.items[i]
	if err := it.table.reserved.Load(); err != nil && !tx.reserved {
		return *err
	}
	if len(tx.loops) > 0 {
		tx.note(i)
	}
	n := record.Size(int(it.klen), len(value))
	if it.w < 0 || log.Room(tx.logBytes(), int(it.w)) < n {
		if err := tx.place(it, n); err != nil {
			return err
		}
	} else if it.write == writePut && overlap(value, tx.logBytes()) {
		value = bytes.Clone(value) // what Read has returned of the image that is replaced
	}
	if it.write == writeNone {
		tx.writes++
		tx.late = tx.late || !it.locked
	}
	img := record.Image(tx.logBytes()[it.w : int(it.w)+n])
	if it.klen == 8 && n == record.LineSize {
		record.PutShort((*record.Line)(img), it.short, value)
	} else {
		tx.odd = true
		img.PutBody(it.key(), value)
	}
	if it.table.Ordered != nil && it.addr != 0 && uint32(n) > it.class.Size() {
		tx.late = true
	} else if it.inserted && uint32(n) > it.class.Size() {
		tx.outgrown, tx.late = true, true
	}
	it.write, it.wlen = w, uint32(n)
	it.val, it.vlen = tx.logAt+uint32(it.w)+uint32(record.ValueAt(int(it.klen), len(value))), uint32(len(value))
	it.has = w == writePut
	if i >= tx.fetched {
		tx.toUpdate(it)
	}
	return nil
}
