package addrcache

import (
	"math/bits"
	"sync/atomic"

	"txnode/memory"
)

const (
	ways     = 8
	lineSize = ways * 8

	// initialBytes is the size of the first table.
	initialBytes = 64 << 10
	// growAfter makes the table double when a 32nd of what it has room for has been
	// evicted: lines overflow long before the table is full, and an eviction of an
	// entry that is in use costs its next reader a lookup in the index.
	growAfter = 32
	// sample is how many evictions one counted eviction stands for.
	sample = 16

	tagShift  = 48
	classMask = memory.BlockAlign - 1
	addrMask  = 1<<tagShift - 1 - classMask
)

// A class must fit where the alignment leaves zeros.
var _ [memory.BlockAlign - memory.NumClasses]byte

type line [ways]uint64

// table is one size of the cache.
type table struct {
	lines []line
	mask  uint64

	evicted atomic.Uint64         // approximately
	stored  atomic.Uint64         // approximately, while there is an older table
	older   atomic.Pointer[table] // of half the size, whose entries come over as they are asked for
}

func newTable(bytes int) *table {
	n := bytes / lineSize
	return &table{lines: make([]line, n), mask: uint64(n - 1)}
}

// Cache maps hashes of keys to addresses of blocks. All methods are safe for
// concurrent use and wait for nobody.
type Cache struct {
	tab      atomic.Pointer[table]
	maxLines int // 0: the cache is off
}

// New makes a cache whose table takes at most maxBytes, rounded down to a power
// of two. With less than 64 bytes the cache is off: it remembers nothing.
func New(maxBytes int) *Cache {
	c := &Cache{}
	if maxBytes >= lineSize {
		c.maxLines = 1 << (bits.Len(uint(maxBytes/lineSize)) - 1)
	}
	c.tab.Store(newTable(min(max(c.maxLines, 1)*lineSize, initialBytes)))
	return c
}

// Entry is what a word of the cache says: a place and a class, for a key with some
// hash. Zero is none.
type Entry uint64

// Is reports whether the entry is that of a key with this hash.
func (e Entry) Is(hash uint64) bool { return (uint64(e)^hash)>>tagShift == 0 && e != 0 }

// Addr returns the address of the block.
func (e Entry) Addr() memory.Addr { return memory.Addr(e & addrMask) }

// Class returns the class of the block.
func (e Entry) Class() memory.Class { return memory.Class(e & classMask) }

// First is Lookup in the word where most entries are: if what it returns Is not that
// of the hash, Lookup has to look.
func (c *Cache) First(hash uint64) Entry {
	t := c.tab.Load()
	return Entry(atomic.LoadUint64(&t.lines[hash&t.mask][hash>>tagShift%ways]))
}

// Lookup returns where the block of the key with this hash was last seen. The
// caller verifies the block.
func (c *Cache) Lookup(hash uint64) (memory.Addr, memory.Class, bool) {
	t := c.tab.Load()
	l := &t.lines[hash&t.mask]
	tag := hash >> tagShift
	if e := atomic.LoadUint64(&l[tag%ways]); e>>tagShift == tag && e != 0 {
		return memory.Addr(e & addrMask), memory.Class(e & classMask), true
	}
	if a, class, ok := l.search(tag); ok {
		return a, class, true
	}
	if t.older.Load() == nil {
		return 0, 0, false
	}
	return c.lookupOlder(t, hash)
}

// lookupOlder looks into the tables that t has taken the place of, and brings over
// what it finds.
func (c *Cache) lookupOlder(t *table, hash uint64) (memory.Addr, memory.Class, bool) {
	for o := t.older.Load(); o != nil; o = o.older.Load() {
		if a, class, ok := o.lines[hash&o.mask].search(hash >> tagShift); ok {
			c.Store(hash, a, class)
			return a, class, true
		}
	}
	return 0, 0, false
}

// search looks for a tag in all ways of a line. An entry prefers the way that its
// tag names, so most lookups end before.
func (l *line) search(tag uint64) (memory.Addr, memory.Class, bool) {
	for i := range l {
		if e := atomic.LoadUint64(&l[i]); e>>tagShift == tag && e != 0 {
			return memory.Addr(e & addrMask), memory.Class(e & classMask), true
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
func (c *Cache) Store(hash uint64, a memory.Addr, class memory.Class) {
	if a == 0 || uint64(a)&^addrMask != 0 || class >= memory.NumClasses || c.maxLines == 0 {
		return
	}
	t := c.tab.Load()
	e := hash>>tagShift<<tagShift | uint64(a) | uint64(class)
	evicted := t.put(hash, e)
	if e>>6%sample != 0 {
		return
	}
	if o := t.older.Load(); o != nil && t.stored.Add(sample) >= uint64(2*len(o.lines)*ways) {
		t.older.Store(nil) // what is asked for at all has come over
	}
	if evicted && len(t.lines) < c.maxLines && t.evicted.Add(sample) >= uint64(len(t.lines)*ways/growAfter) {
		n := newTable(2 * len(t.lines) * lineSize)
		n.older.Store(t)
		c.tab.CompareAndSwap(t, n)
	}
}

// Drop forgets that the block of the key with this hash is at a.
func (c *Cache) Drop(hash uint64, a memory.Addr) {
	t := c.tab.Load()
	t.drop(hash, a)
	for o := t.older.Load(); o != nil; o = o.older.Load() {
		o.drop(hash, a)
	}
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
				atomic.StoreUint64(&l[i], e)
			}
			return false
		}
		mix += old
	}
	if empty >= 0 {
		atomic.StoreUint64(&l[empty], e)
		return false
	}
	// The victim depends on what the line holds, so that two keys that chase
	// each other do not choose the same word for ever.
	atomic.StoreUint64(&l[mix*0x9e3779b97f4a7c15>>61], e)
	return true
}

func (t *table) drop(hash uint64, a memory.Addr) {
	l := &t.lines[hash&t.mask]
	for i := range l {
		e := atomic.LoadUint64(&l[i])
		if e>>tagShift == hash>>tagShift && memory.Addr(e&addrMask) == a {
			atomic.CompareAndSwapUint64(&l[i], e, 0)
		}
	}
}
