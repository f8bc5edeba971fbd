package occ

import (
	"encoding/binary"
	"math/bits"

	"txnode/memory/layout"
)

// The addresses of blocks come from two caches. A run of integer keys that were
// inserted one after the other says at once, when a key is staged, where its block is;
// of the line of the address cache that has any other key's, the processor only begins
// the loading then, and it is looked at when all keys are staged.
//
// Of a database that is larger than the processor's caches, the blocks' lines are
// loaded as soon as their addresses are known: those of the backups too, if they
// will be written. What the transaction does until it comes to them is time not spent
// waiting, and they are waited for all at once. Other coroutines do not run meanwhile:
// to switch to one costs as much as what is left of the wait.

// farRuns and farCache are the sizes of the two caches, in bytes, from which on
// records are taken to be out of the processor's caches: those of a million keys.
const (
	farRuns  = 1 << 20
	farCache = 32 << 20
)

// decidePrefetch finds out whether it pays to load blocks before they are asked for.
func (s *Session) decidePrefetch() {
	s.far = s.thread.Prefetches() && (s.eng.runs.Bytes() >= s.eng.farRuns || s.eng.cache.Bytes() >= farCache)
}

// decidePrefetchEvery is how many transactions begin between two calls of decidePrefetch.
const decidePrefetchEvery = 64

// unbuild says that the requests that Stage has built are not those to be posted:
// the batch is used for others, or an item is to be locked after all.
func (tx *Tx) unbuild() {
	if tx.built > 0 {
		tx.built, tx.lines = -1, 0
	}
}

// ahead looks for the block of an item that has just been staged.
func (tx *Tx) ahead(it *item) {
	if it.klen == 8 {
		if a, class, ok := tx.s.eng.runs.Lookup(it.table.ID, it.short); ok && tx.view.Valid(a) {
			it.addr, it.class, it.cached = a, class, true
			it.step = stepProbe
			if tx.s.far {
				tx.touch(it)
			}
			return
		}
	}
	tx.s.eng.cache.Prefetch(it.place())
}

// locate asks the address cache for an item's block.
func (tx *Tx) locate(it *item) {
	cache := tx.s.eng.cache
	spot := it.place()
	e := cache.First(spot)
	if e.Is(spot) && tx.view.Valid(e.Addr()) {
		it.addr, it.class = e.Addr(), e.Class()
	} else if a, class, ok := cache.Lookup(spot); ok && !tx.view.Gone(a) && tx.reaches(a) {
		it.addr, it.class = a, class
	} else {
		it.step = stepSearch
		return
	}
	it.step, it.cached = stepProbe, true
	if tx.s.far {
		tx.touch(it)
	}
}

// touch begins to load the block of an item, where the blades are memory of this
// machine: on the backups too, if it will be written.
func (tx *Tx) touch(it *item) { tx.touchBlock(it.addr, it.class, it.update) }

func (tx *Tx) touchBlock(a layout.Addr, class layout.Class, update bool) {
	t, n := tx.s.thread, readLen(class)
	t.Prefetch(tx.view.At(a, 0), n, update)
	if update {
		for k := 1; k < tx.view.Written(a); k++ {
			t.Prefetch(tx.view.At(a, k), n, true)
		}
	}
}

// remember notes where the block of an item is.
func (tx *Tx) remember(it *item) {
	e := tx.s.eng
	if it.klen != 8 || !e.runs.Store(it.table.ID, it.short, it.addr, it.class) {
		e.cache.Store(it.place(), it.addr, it.class)
	}
	it.cached = true
}

// forget notes that the block of an item is not at a.
func (tx *Tx) forget(it *item, a layout.Addr) {
	tx.s.eng.forget(it.table.ID, it.key(), it.place(), a)
	it.cached = false
}

// forget notes that the block of a key is not at a.
func (e *Engine) forget(table uint16, key []byte, spot uint64, a layout.Addr) {
	if len(key) == 8 {
		e.runs.Drop(table, binary.LittleEndian.Uint64(key), a)
	}
	e.cache.Drop(spot, a)
}

// place returns where the address cache keeps the item's key.
func (it *item) place() uint64 {
	if it.spot == 0 {
		if it.klen == 8 {
			it.spot = spot(it.table.ID, it.short)
		} else {
			it.spot = it.keyHash()
		}
	}
	return it.spot
}

// spot is where the address cache keeps an 8-byte key. Keys that are close to each
// other as integers, of either byte order, are kept close: 128 of them share a page
// of 64 lines, two a line, so that keys that are hot together touch few pages and
// lines, and yet a line overflows hardly more often than with keys all over. Pages,
// and where in a page a run of keys begins, are chosen by a hash; the tag is another
// one, of the whole key.
func spot(table uint16, key uint64) uint64 {
	const tag = 0xffff << 48
	k := key ^ bits.ReverseBytes64(key) // alike for both byte orders; the ends are the fast bytes
	hi, lo := bits.Mul64(k&^(0x7f|0xff<<56)^uint64(table)<<56^0xa0761d6478bd642f, 0xe7037ed1a0b428db)
	h := hi ^ lo
	hi, lo = bits.Mul64(key^uint64(table)^0x8ebc6af09c88c6e3, 0x589965cc75374cc3)
	return (hi^lo)&tag | (h^k>>1&63)&^tag
}
