package addrcache

import (
	"math/bits"
	"sync/atomic"
	"unsafe"

	"txnode/memory/layout"
)

const (
	ways     = 8
	lineSize = ways * 8

	// initialBytes is the size of the first table.
	initialBytes = 64 << 10
	// growAfter makes the table double when a 64th of what it has room for has been
	// evicted: lines overflow long before the table is full, and an eviction of an
	// entry that is in use costs its next reader a lookup in the index.
	growAfter = 64
	// sample is how many evictions one counted eviction stands for.
	sample = 16
	// moveLines is how many lines of the older table a Store brings over: with them
	// all have come long before the new one is full.
	moveLines = 4
	// adviseBytes is the size of tables from which on huge pages are worth asking for.
	adviseBytes = 4 << 20

	tagShift  = 48
	classMask = layout.BlockAlign - 1
	addrMask  = 1<<tagShift - 1 - classMask
)

// A class must fit where the alignment leaves zeros.
var _ [layout.BlockAlign - layout.NumClasses]byte

type line [ways]uint64

// table is one size of the cache.
type table struct {
	lines []line
	high  []atomic.Uint64 // of each line, a byte for each word: the bits of the hash above those that choose the line
	mask  uint64
	bits  uint // of the mask

	evicted atomic.Uint64         // approximately
	older   atomic.Pointer[table] // of half the size, until its entries have come over
	moved   atomic.Uint64         // lines of older that somebody has brought over, or is about to
}

func (c *Cache) newTable(bytes int) *table {
	n := bytes / lineSize
	t := &table{
		lines: make([]line, n), high: make([]atomic.Uint64, n), mask: uint64(n - 1), bits: uint(bits.Len(uint(n - 1))),
	}
	if c.advise != nil && bytes >= adviseBytes {
		c.advise(unsafe.Slice((*byte)(unsafe.Pointer(&t.lines[0])), bytes))
	}
	return t
}

// Cache maps hashes of keys to addresses of blocks. All methods are safe for concurrent use and
// never wait.
type Cache struct {
	tab      atomic.Pointer[table]
	maxLines int // 0: the cache is off
	advise   func(p []byte)
}

// New makes a cache whose table takes at most maxBytes, rounded down to a power
// of two. With less than 64 bytes the cache is off: it remembers nothing.
func New(maxBytes int) *Cache {
	c := &Cache{}
	if maxBytes >= lineSize {
		c.maxLines = 1 << (bits.Len(uint(maxBytes/lineSize)) - 1)
	}
	c.tab.Store(c.newTable(min(max(c.maxLines, 1)*lineSize, initialBytes)))
	return c
}

// Advise makes the cache call f with the memory of every larger table, before it is
// used: f may ask the operating system for huge pages. To be called before the cache
// is shared.
func (c *Cache) Advise(f func(p []byte)) { c.advise = f }

// Entry is what a word of the cache says: a place and a class, for a key with some
// hash. Zero is none.
type Entry uint64

// Is reports whether the entry is that of a key with this hash.
func (e Entry) Is(hash uint64) bool { return (uint64(e)^hash)>>tagShift == 0 && e != 0 }

// Addr returns the address of the block.
func (e Entry) Addr() layout.Addr { return layout.Addr(e & addrMask) }

// Class returns the class of the block.
func (e Entry) Class() layout.Class { return layout.Class(e & classMask) }

// First is Lookup in the word where most entries are: if what it returns Is not that
// of the hash, Lookup has to look.
func (c *Cache) First(hash uint64) Entry {
	t := c.tab.Load()
	return Entry(atomic.LoadUint64(&t.lines[hash&t.mask][hash>>tagShift%ways]))
}

// Lookup returns where the block of the key with this hash was last seen. The
// caller verifies the block.
func (c *Cache) Lookup(hash uint64) (layout.Addr, layout.Class, bool) {
	t := c.tab.Load()
	l := &t.lines[hash&t.mask]
	tag := hash >> tagShift
	if e := atomic.LoadUint64(&l[tag%ways]); e>>tagShift == tag && e != 0 {
		return layout.Addr(e & addrMask), layout.Class(e & classMask), true
	}
	if a, class, ok := l.search(tag); ok {
		return a, class, true
	}
	if t.older.Load() == nil {
		return 0, 0, false
	}
	return c.lookupOlder(t, hash)
}

// lookupOlder looks into the table that t has taken the place of, and brings over
// what it finds.
func (c *Cache) lookupOlder(t *table, hash uint64) (layout.Addr, layout.Class, bool) {
	o := t.older.Load()
	if o == nil {
		return 0, 0, false
	}
	a, class, ok := o.lines[hash&o.mask].search(hash >> tagShift)
	if ok {
		c.Store(hash, a, class)
	}
	return a, class, ok
}

// search looks for a tag in all ways of a line. An entry prefers the way that its
// tag names, so most lookups end before.
func (l *line) search(tag uint64) (layout.Addr, layout.Class, bool) {
	for i := range l {
		if e := atomic.LoadUint64(&l[i]); e>>tagShift == tag && e != 0 {
			return layout.Addr(e & addrMask), layout.Class(e & classMask), true
		}
	}
	return 0, 0, false
}

// Prefetch starts to load the line that Lookup of the hash will read into the
// processor's caches.
func (c *Cache) Prefetch(hash uint64) {
	t := c.tab.Load()
	prefetch(&t.lines[hash&t.mask])
}

// Store remembers the block of the key with this hash. The address is that of a
// block: 64-byte aligned and not zero; the class is one of memory's.
func (c *Cache) Store(hash uint64, a layout.Addr, class layout.Class) {
	if a == 0 || uint64(a)&^addrMask != 0 || class >= layout.NumClasses || c.maxLines == 0 {
		return
	}
	t := c.tab.Load()
	e := hash>>tagShift<<tagShift | uint64(a) | uint64(class)
	evicted := t.put(hash, e)
	o := t.older.Load()
	if o != nil {
		t.move(o)
		return
	}
	if evicted && e>>6%sample == 0 && len(t.lines) < c.maxLines &&
		t.evicted.Add(sample) >= uint64(len(t.lines)*ways/growAfter) {
		n := c.newTable(2 * len(t.lines) * lineSize)
		n.older.Store(t)
		c.tab.CompareAndSwap(t, n)
	}
}

// move brings a few more lines of the older table over.
func (t *table) move(o *table) {
	k := t.moved.Add(moveLines) - moveLines
	for i := k; i < min(k+moveLines, uint64(len(o.lines))); i++ {
		high := o.high[i].Load()
		for j := range o.lines[i] {
			if e := atomic.LoadUint64(&o.lines[i][j]); e != 0 {
				t.add(e>>tagShift<<tagShift|high>>(8*j)&0xff<<o.bits|i, e)
			}
		}
	}
	if k+moveLines >= uint64(len(o.lines)) {
		t.older.CompareAndSwap(o, nil) // somebody who still moves lines may go on
	}
}

// Drop forgets that the block of the key with this hash is at a.
func (c *Cache) Drop(hash uint64, a layout.Addr) {
	t := c.tab.Load()
	if o := t.older.Load(); o != nil {
		o.drop(hash, a) // before it can come over
	}
	t.drop(hash, a)
}

// Bytes is the current size of the table.
func (c *Cache) Bytes() int { return len(c.tab.Load().lines) * lineSize }

// put stores an entry in place of one with the same tag, in an empty word, or in
// place of a word that bits of hash and line choose; it reports the last.
func (t *table) put(hash, e uint64) (evicted bool) {
	l := &t.lines[hash&t.mask]
	empty := -1
	mix := hash
	for i := range l {
		old := atomic.LoadUint64(&l[i])
		if old == 0 {
			if empty < 0 || i == int(hash>>tagShift%ways) {
				empty = i
			}
			continue
		}
		if old>>tagShift == e>>tagShift {
			if old != e {
				t.set(hash, i, e)
			}
			return false
		}
		mix += old
	}
	if empty >= 0 {
		t.set(hash, empty, e)
		return false
	}
	// The victim depends on what the line holds, so that two keys that chase
	// each other do not choose the same word for ever.
	t.set(hash, int(mix*0x9e3779b97f4a7c15>>61), e)
	return true
}

// add stores an entry of the older table, if nothing has to go for it.
func (t *table) add(hash, e uint64) {
	l := &t.lines[hash&t.mask]
	empty := -1
	for i := range l {
		old := atomic.LoadUint64(&l[i])
		if old == 0 && (empty < 0 || i == int(hash>>tagShift%ways)) {
			empty = i
		}
		if old != 0 && old>>tagShift == e>>tagShift {
			return // newer
		}
	}
	if empty >= 0 {
		t.set(hash, empty, e)
	}
}

// set stores an entry in word i of its line, and the bits of the hash that tell where
// it goes when the table has doubled. If they are those of another entry in the end,
// because two clients have set the word at once, it goes astray.
func (t *table) set(hash uint64, i int, e uint64) {
	n := hash & t.mask
	atomic.StoreUint64(&t.lines[n][i], e)
	for {
		old := t.high[n].Load()
		high := old&^(0xff<<(8*i)) | hash>>t.bits&0xff<<(8*i)
		if old == high || t.high[n].CompareAndSwap(old, high) {
			return
		}
	}
}

func (t *table) drop(hash uint64, a layout.Addr) {
	l := &t.lines[hash&t.mask]
	for i := range l {
		e := atomic.LoadUint64(&l[i])
		if e>>tagShift == hash>>tagShift && layout.Addr(e&addrMask) == a {
			atomic.CompareAndSwapUint64(&l[i], e, 0)
		}
	}
}
