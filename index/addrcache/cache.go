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
	// copyLines is how many lines a Store copies while the table doubles.
	copyLines = 32
	// growAfter makes the table double when a sixteenth of what it holds has been
	// evicted: sets overflow long before the table is full, and an eviction of an
	// entry that is in use costs its next reader a lookup in the index.
	growAfter = 16
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

	evicted atomic.Uint64 // approximately
	next    atomic.Pointer[table]
	cursor  atomic.Uint64 // lines before it are copied to next, or being copied
	copied  atomic.Uint64 // number of lines that have been copied
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

// Lookup returns where the block of the key with this hash was last seen. The
// caller verifies the block.
func (c *Cache) Lookup(hash uint64) (memory.Addr, memory.Class, bool) {
	t := c.tab.Load()
	l := &t.lines[hash&t.mask]
	tag := hash >> tagShift
	if e := atomic.LoadUint64(&l[tag%ways]); e>>tagShift == tag && e != 0 {
		return memory.Addr(e & addrMask), memory.Class(e & classMask), true
	}
	return l.search(tag)
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
	if t.put(hash, e) && len(t.lines) < c.maxLines && e>>6%sample == 0 {
		if t.evicted.Add(sample) >= uint64(len(t.lines)*ways/growAfter) && t.next.Load() == nil {
			t.next.CompareAndSwap(nil, newTable(2*len(t.lines)*lineSize))
		}
	}
	if n := t.next.Load(); n != nil {
		n.put(hash, e)
		c.copySome(t, n)
	}
}

// Drop forgets that the block of the key with this hash is at a.
func (c *Cache) Drop(hash uint64, a memory.Addr) {
	t := c.tab.Load()
	t.drop(hash, a)
	if n := t.next.Load(); n != nil {
		n.drop(hash, a)
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

// copySome copies a few lines of t to the table of twice its size, and makes that
// one current when every line has been copied.
func (c *Cache) copySome(t, n *table) {
	lines := uint64(len(t.lines))
	first := t.cursor.Add(copyLines) - copyLines
	if first >= lines {
		return
	}
	last := min(first+copyLines, lines)
	for i := first; i < last; i++ {
		for j := range t.lines[i] {
			e := atomic.LoadUint64(&t.lines[i][j])
			if e == 0 {
				continue
			}
			// What a Store has put there meanwhile is newer.
			atomic.CompareAndSwapUint64(&n.lines[i][j], 0, e)
			atomic.CompareAndSwapUint64(&n.lines[i+lines][j], 0, e)
		}
	}
	if t.copied.Add(last-first) == lines {
		c.tab.CompareAndSwap(t, n)
	}
}
