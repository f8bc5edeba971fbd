package occ

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"txnode/log"
	"txnode/memory/record"
)

// Stage adds a key to the transaction and returns its number, the same for the
// same key; it posts nothing. update means that the key will probably be
// written: it is locked when it is fetched. The key is copied.
func (tx *Tx) Stage(t *Table, key []byte, update bool) (int, error) {
	if !tx.active {
		return 0, ErrDone
	}
	if update && tx.s.alloc == nil {
		return 0, ErrReadOnly
	}
	if t.Dropped() {
		return 0, fmt.Errorf("%w: %q", ErrDropped, t.Name)
	}
	if len(key) != 8 || len(tx.items) >= linearItems {
		return tx.stageAny(t, key, update)
	}
	return tx.StageShort(t, binary.LittleEndian.Uint64(key), update), nil
}

// Takes reports whether n keys of 8 bytes may be staged with StageShort, or be found
// staged, whatever for: the transaction is active, it has room for them, and it may
// write.
func (tx *Tx) Takes(n int) bool {
	return tx.active && len(tx.items)+n <= linearItems && tx.s.alloc != nil
}

// StageShort is Stage of a key of 8 bytes, which k holds as a little-endian number, when
// Takes allows it.
func (tx *Tx) StageShort(t *Table, k uint64, update bool) int {
	items := tx.items
	for i := range items {
		if it := &items[i]; it.short == k && it.is(t, k) {
			if update && i >= tx.fetched {
				tx.toUpdate(it)
			}
			return i
		}
	}
	n := len(items)
	items = items[:n+1] // linearItems of them are always there
	tx.items = items
	it := &items[n]
	it.short, it.klen = k, 8
	it.fresh(t, update)

	// If its block is known, of one line, and the requests of all items that wait before
	// it are in the batch, those of this one follow.
	s := tx.s
	if a, class, ok := s.eng.runs.Lookup(t.ID, k); ok {
		if from, ok := tx.view.Primary(a); ok {
			it.addr, it.class, it.cached = a, class, true
			it.step = stepProbe
			if s.far {
				tx.touch(it)
			}
			if class != 0 || tx.lines == 0 {
				tx.lines = 0
				return n
			}
			b, at := &tx.batch, tx.next
			if tx.built == 0 {
				b.Reset()
			}
			tx.built++
			tx.lines--
			tx.next = at + record.LineSize
			it.buf, it.bufLen = at, record.LineSize
			if update {
				it.cas = int32(b.LockRead(from, record.GuardOff, 0, uint64(record.HeldBy(tx.id)), s.masks,
					at, record.LineSize))
			} else {
				b.Read(from, at, record.LineSize)
			}
			return n
		}
	}
	tx.lines = 0
	s.eng.cache.Prefetch(it.place())
	return n
}

// toUpdate makes a staged item one that is locked when it is fetched.
func (tx *Tx) toUpdate(it *item) {
	if !it.update {
		it.update = true
		tx.unbuild()
	}
}

// stageAny is Stage for keys of any length, and any number of them.
func (tx *Tx) stageAny(t *Table, key []byte, update bool) (int, error) {
	if i := tx.find(t, key); i >= 0 {
		if update && i >= tx.fetched {
			tx.toUpdate(&tx.items[i])
		}
		return i, nil
	}
	if len(key) > record.MaxKey || len(key) == 0 {
		if len(key) == 0 {
			return 0, fmt.Errorf("txn: empty key in table %q", t.Name)
		}
		return 0, &TooLargeError{What: "key", Got: len(key), Limit: record.MaxKey}
	}
	if t.Ordered != nil && len(key) > t.Ordered.MaxKey() {
		return 0, &TooLargeError{
			What: "key", Got: len(key), Limit: t.Ordered.MaxKey(),
			Remedy: fmt.Sprintf("table %q was created for keys of that length: make another one with a larger MaxKey",
				t.Name),
		}
	}
	n := len(tx.items)
	if n == log.MaxEntries {
		return 0, fmt.Errorf("txn: transaction of more than %d keys: %w", n, ErrTooLarge)
	}
	if n < cap(tx.items) {
		tx.items = tx.items[:n+1]
	} else {
		tx.items = append(tx.items, item{})
	}
	tx.lines = 0
	it := &tx.items[n]
	it.fresh(t, update)
	it.klen = uint32(len(key))
	if len(key) == 8 {
		it.short = binary.LittleEndian.Uint64(key)
	} else {
		tx.keys = append(tx.keys, key...)
		it.long = tx.keys[len(tx.keys)-len(key):]
	}
	tx.ahead(it)
	if n >= linearItems {
		tx.index.add(tx.items, n)
	}
	return n, nil
}

// find returns the number of a key, -1: not in the transaction.
func (tx *Tx) find(t *Table, key []byte) int {
	if len(key) != 8 {
		return tx.findLong(t, key)
	}
	if len(tx.items) > linearItems {
		return tx.index.find(tx.items, t, record.Hash(t.ID, key), key)
	}
	k := binary.LittleEndian.Uint64(key)
	for i := range tx.items {
		if it := &tx.items[i]; it.is(t, k) {
			return i
		}
	}
	return -1
}

// findLong is find for keys that are not 8 bytes long.
func (tx *Tx) findLong(t *Table, key []byte) int {
	if len(tx.items) > linearItems {
		return tx.index.find(tx.items, t, record.Hash(t.ID, key), key)
	}
	for i := range tx.items {
		if it := &tx.items[i]; it.table == t && int(it.klen) == len(key) && bytes.Equal(it.long, key) {
			return i
		}
	}
	return -1
}

// itemIndex finds items of large transactions: open addressing over item numbers.
type itemIndex struct {
	slots []int32 // number + 1
	n     int
}

// maxKept is how many slots are kept for the next transaction, which has to clear them.
const maxKept = 4096

func (x *itemIndex) reset() {
	if x.n > 0 {
		if len(x.slots) > maxKept {
			x.slots = nil
		}
		clear(x.slots)
		x.n = 0
	}
}

func (x *itemIndex) add(items []item, n int) {
	if x.n == 0 || 2*(x.n+1) > len(x.slots) {
		if x.n > 0 || x.slots == nil {
			x.slots = make([]int32, max(4*linearItems, 4*len(items)))
		}
		x.n = 0
		for i := range items[:n] {
			x.put(items, i)
		}
	}
	x.put(items, n)
}

func (x *itemIndex) put(items []item, i int) {
	for k := items[i].keyHash() % uint64(len(x.slots)); ; k = (k + 1) % uint64(len(x.slots)) {
		if x.slots[k] == 0 {
			x.slots[k] = int32(i) + 1
			x.n++
			return
		}
	}
}

func (x *itemIndex) find(items []item, t *Table, hash uint64, key []byte) int {
	for k := hash % uint64(len(x.slots)); x.slots[k] != 0; k = (k + 1) % uint64(len(x.slots)) {
		i := int(x.slots[k]) - 1
		if it := &items[i]; it.keyHash() == hash && it.table == t && bytes.Equal(it.key(), key) {
			return i
		}
	}
	return -1
}

// Staged reports whether an 8-byte key has been staged, for update if update, and not
// been executed.
func (tx *Tx) Staged(t *Table, key []byte, update bool) bool {
	if len(key) != 8 || tx.fetched >= len(tx.items) {
		return false
	}
	k := binary.LittleEndian.Uint64(key)
	items := tx.items[tx.fetched:]
	for i := range items {
		if it := &items[i]; it.is(t, k) {
			return !update || it.update
		}
	}
	return false
}

// Pending reports whether anything is staged and has not been fetched.
func (tx *Tx) Pending() bool { return tx.fetched < len(tx.items) }

// Executed reports whether item i has been fetched.
func (tx *Tx) Executed(i int) bool { return i < tx.fetched }

// Exists reports whether item i, which has been executed or written, has a value.
func (tx *Tx) Exists(i int) bool {
	return tx.items[i].has
}
