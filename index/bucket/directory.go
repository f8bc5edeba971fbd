package bucket

import (
	"sync"
	"sync/atomic"

	"txnode/memory/layout"
)

// Directory is what a process remembers of where leaves are: by the first bits of a hash, the leaf
// that is responsible. It is a cache: any word of it may be stale, and the leaf itself shows that.
// Of leaves that are deeper than it has bits it knows nothing. Safe for concurrent use; a lookup
// costs a shift and two loads.
type Directory struct {
	words atomic.Pointer[words]
	mu    sync.Mutex // who makes it larger
	most  int        // of bits, at most
}

type words struct {
	bits int
	at   []atomic.Uint64 // 0: not known
}

// NewDirectory returns a directory with words of 8 bytes for at most so many leaves.
func NewDirectory(leaves int) *Directory {
	d := &Directory{}
	for d.most < MaxDepth && 2<<d.most <= leaves {
		d.most++
	}
	d.words.Store(&words{at: make([]atomic.Uint64, 1)})
	return d
}

// Find returns the leaf to look at for a hash, or 0.
func (d *Directory) Find(h Hash) layout.Addr {
	w := d.words.Load()
	return layout.Addr(w.at[h>>(MaxDepth-w.bits)].Load())
}

// Learn notes the leaf at a, which is responsible for the hashes that begin with the first
// depth bits of low.
func (d *Directory) Learn(low Hash, depth int, a layout.Addr) {
	w := d.words.Load()
	if depth > w.bits && w.bits < d.most {
		w = d.grow(min(depth, d.most))
	}
	i := low >> (MaxDepth - w.bits)
	if depth > w.bits { // a word has several leaves: inner nodes lead to each
		w.at[i].Store(0)
		return
	}
	for n := i + 1<<(w.bits-depth); i < n; i++ {
		if w.at[i].Load() != uint64(a) { // others have the line in their caches
			w.at[i].Store(uint64(a))
		}
	}
}

// Hint notes that the leaf at a is the one, or the first of those, that are responsible for the
// hashes from low to high, as an inner node says.
func (d *Directory) Hint(low, high Hash, a layout.Addr) {
	w := d.words.Load()
	shift := MaxDepth - w.bits
	for i := (low + 1<<shift - 1) >> shift; i < high>>shift; i++ {
		w.at[i].Store(uint64(a))
	}
}

// Forget drops what is known of where a hash is, if that is the block at a.
func (d *Directory) Forget(h Hash, a layout.Addr) {
	w := d.words.Load()
	w.at[h>>(MaxDepth-w.bits)].CompareAndSwap(uint64(a), 0)
}

// grow makes the directory as large as so many bits need.
func (d *Directory) grow(bits int) *words {
	d.mu.Lock()
	defer d.mu.Unlock()
	old := d.words.Load()
	if bits <= old.bits {
		return old
	}
	w := &words{bits: bits, at: make([]atomic.Uint64, 1<<bits)}
	for i := range w.at {
		w.at[i].Store(old.at[i>>(bits-old.bits)].Load())
	}
	d.words.Store(w)
	return w
}

// Bytes is the size of the directory in memory.
func (d *Directory) Bytes() int { return 8 * len(d.words.Load().at) }
