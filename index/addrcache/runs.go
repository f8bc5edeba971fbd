package addrcache

import (
	"math/bits"
	"sync/atomic"
	"unsafe"

	"txnode/memory/layout"
)

const (
	// runKeys is how many keys a run has.
	runKeys = 32
	// groupRuns consecutive runs have their lines on one page, two runs a line, so that
	// keys that are hot together touch few pages and lines.
	groupRuns  = 128
	pageBytes  = 4096
	pageWords  = pageBytes / 8
	entryWords = 2

	// runShare is the part of a cache's bytes that the runs may take beside it.
	runShare = 8

	strideBits  = 12
	strideShift = 32
	lowTagBits  = 20
	lowTagShift = strideShift + strideBits

	// scoreMax bounds the score of a table: how many keys more have been found where
	// their run says than elsewhere, of the last ones stored.
	scoreMax = 64
	scores   = 64
	// sampleRuns: of tables whose keys lie all over, one run in so many is kept, to
	// notice when that changes.
	sampleRuns = 16
)

// The tag and the stride take what the mask leaves of a word.
var _ [lowTagShift + lowTagBits - 64]byte
var _ [64 - lowTagShift - lowTagBits]byte

// Runs remembers the blocks of integer keys that were inserted one after the other: see the
// package's comment. All methods are safe for concurrent use and never wait. An answer may be
// wrong, as with Cache.
type Runs struct {
	tab      atomic.Pointer[runTable]
	maxPages int // 0: off
	advise   func(p []byte)
	score    [scores]atomic.Int32 // by table
}

// runTable is one size of Runs.
type runTable struct {
	words []uint64
	mask  uint64 // pages - 1

	// entries that were empty before, and keys that found no room: half as many as
	// entries make it double
	spent atomic.Uint64
	older atomic.Pointer[runTable] // of half the size, until its entries have come over
	moved atomic.Uint64            // lines of older that somebody has brought over, or is about to
}

func newRunTable(pages int) *runTable {
	return &runTable{words: make([]uint64, pages*pageWords), mask: uint64(pages - 1)}
}

// NewRuns makes the runs that go with a cache of at most cacheBytes: they take up to an
// eighth of that. With less than 32 KiB they are off.
func NewRuns(cacheBytes int) *Runs {
	r := &Runs{}
	if n := cacheBytes / runShare / pageBytes; n > 0 {
		r.maxPages = 1 << (bits.Len(uint(n)) - 1)
	}
	r.tab.Store(newRunTable(1))
	return r
}

// Advise is Cache.Advise.
func (r *Runs) Advise(f func(p []byte)) { r.advise = f }

// Bytes is the current size of the table.
func (r *Runs) Bytes() int { return len(r.tab.Load().words) * 8 }

// runOf returns the run of a key, hashed but for its low bits, and the key's number in
// it. Integers of either byte order are taken for what is the smaller number.
func runOf(table uint16, key uint64) (h, i uint64) {
	k := min(key, bits.ReverseBytes64(key))
	run := k / runKeys
	hi, lo := bits.Mul64(run/groupRuns^uint64(table)<<48^0xa0761d6478bd642f, 0xe7037ed1a0b428db)
	return (hi^lo)*groupRuns | run%groupRuns, k % runKeys
}

// line returns the four entries among which those of a run are, and the first word of
// the one that it prefers.
func (t *runTable) line(h uint64) (l *line, first uint64) {
	at := h/groupRuns&t.mask*pageWords + h%groupRuns/2*ways
	return (*line)(t.words[at : at+ways]), h % 2 * (ways / 2)
}

// An entry is two words: where the key number 0 of the run is, or would be, and which
// of the keys are known to be where stride says. Each has a part of the run's tag.
//
//	 63      48 47                            6 5      0
//	+----------+------------------------------+--------+
//	|   tag    |        address >> 6          | class  |
//	+----------+------------+-----------------+--------+
//	|      tag      | stride|            mask          |
//	+---------------+-------+--------------------------+
//	 63           44 43   32 31                       0
//
// They are not written at once: what two writers leave is told from an entry by the
// tags, or else is wrong like a stale address. An entry without a key is empty.
type runEntry struct{ where, keys uint64 }

func load(l *line, w uint64) runEntry {
	keys := atomic.LoadUint64(&l[w%ways+1])
	return runEntry{atomic.LoadUint64(&l[w%ways]), keys}
}

func (l *line) store(w uint64, e runEntry) {
	atomic.StoreUint64(&l[w+1], 0)
	atomic.StoreUint64(&l[w], e.where)
	atomic.StoreUint64(&l[w+1], e.keys)
}

// of reports whether an entry is one of a run.
func (e runEntry) of(h uint64) bool {
	return (e.keys>>lowTagShift^h)&(1<<lowTagBits-1) == 0 && (e.where>>tagShift^h>>lowTagBits)&0xffff == 0
}

func (e runEntry) stride() int64 { return int64(e.keys<<lowTagBits) >> (64 - strideBits) }

func (e runEntry) mask() uint32 { return uint32(e.keys) }

// at is where key number i is.
func (e runEntry) at(i uint64) layout.Addr {
	return layout.Addr((e.where&addrMask + uint64(e.stride())*layout.BlockAlign*i) & addrMask)
}

func (e runEntry) class() layout.Class { return layout.Class(e.where & classMask) }

// makeEntry makes an entry of key number i at an address.
func makeEntry(h, i uint64, a layout.Addr, class layout.Class, stride int64, mask uint32) runEntry {
	base := (uint64(a) - uint64(stride)*layout.BlockAlign*i) & addrMask
	return runEntry{
		where: h>>lowTagBits<<tagShift | base | uint64(class),
		keys:  h<<lowTagShift | uint64(stride)&(1<<strideBits-1)<<strideShift | uint64(mask),
	}
}

// Lookup returns where the block of a key should be. The caller verifies it.
func (r *Runs) Lookup(table uint16, key uint64) (layout.Addr, layout.Class, bool) {
	if r.score[table%scores].Load() <= 0 {
		return 0, 0, false
	}
	h, i := runOf(table, key)
	t := r.tab.Load()
	// The entry that the run prefers, which mostly is its own, is looked at without a call.
	w := h/groupRuns&t.mask*pageWords + h%groupRuns*(ways/2)
	e := (*[entryWords]uint64)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(t.words)), w*8))
	keys := atomic.LoadUint64(&e[1])
	if x := (runEntry{atomic.LoadUint64(&e[0]), keys}); keys>>i&1 != 0 && x.of(h) {
		return x.at(i), x.class(), true
	}
	return t.elsewhere(h, i)
}

// Prefetch starts to load the line that Lookup of the key will read, and reports whether
// it will read one.
func (r *Runs) Prefetch(table uint16, key uint64) bool {
	if r.score[table%scores].Load() <= 0 {
		return false
	}
	h, _ := runOf(table, key)
	l, _ := r.tab.Load().line(h)
	prefetch(l)
	return true
}

// elsewhere is Lookup in the other entries of the line, and in the table before.
func (t *runTable) elsewhere(h, i uint64) (layout.Addr, layout.Class, bool) {
	if a, class, ok := t.lookup(h, i); ok {
		return a, class, ok
	}
	if o := t.older.Load(); o != nil {
		return o.lookup(h, i)
	}
	return 0, 0, false
}

func (t *runTable) lookup(h, i uint64) (layout.Addr, layout.Class, bool) {
	l, _ := t.line(h)
	for w := uint64(0); w < ways; w += entryWords {
		if e := load(l, w); e.keys>>i&1 != 0 && e.of(h) {
			return e.at(i), e.class(), true
		}
	}
	return 0, 0, false
}

// Store remembers the block of a key, and reports whether Lookup will find it: if
// not, it is to be stored elsewhere. The address is that of a block.
func (r *Runs) Store(table uint16, key uint64, a layout.Addr, class layout.Class) bool {
	if a == 0 || uint64(a)&^addrMask != 0 || class >= layout.NumClasses || r.maxPages == 0 {
		return false
	}
	s := &r.score[table%scores]
	score := s.Load()
	h, i := runOf(table, key)
	if score == -scoreMax && (h>>40+h)%sampleRuns != 0 {
		return false
	}
	t := r.tab.Load()
	o := t.older.Load()
	if o != nil {
		t.move(o, h)
	}
	n := t.note(h, i, a, class)
	switch {
	case n == fits && score < scoreMax:
		s.Store(score + 1)
	case n != fits && n != crowded && score > -scoreMax:
		s.Store(score - 1)
	}
	if (n == begins || n == crowded) && o == nil && t.spent.Add(1) >= uint64(len(t.words)/entryWords/2) &&
		len(t.words) < r.maxPages*pageWords {
		r.grow(t)
	}
	return score > 0 && (n == fits || n == begins || n == replaces)
}

func (r *Runs) grow(t *runTable) {
	n := newRunTable(2 * len(t.words) / pageWords)
	if bytes := len(n.words) * 8; r.advise != nil && bytes >= adviseBytes {
		r.advise(unsafe.Slice((*byte)(unsafe.Pointer(&n.words[0])), bytes))
	}
	n.older.Store(t)
	r.tab.CompareAndSwap(t, n)
}

// noted is what became of a key.
type noted int

const (
	strays   noted = iota // it is not where the other keys of its run say
	crowded               // there is no room for its run
	fits                  // it is where the other keys of its run say
	begins                // it is the first of its run, in an entry that was empty
	replaces              // it is the first of its run, in place of a single key
)

// note remembers the block of key number i of a run, unless it strays or is crowded out.
func (t *runTable) note(h, i uint64, a layout.Addr, class layout.Class) noted {
	l, first := t.line(h)
	const none = ways
	free, single, alone, own, found := uint64(none), uint64(none), uint64(none), 0, false
	for n := uint64(0); n < ways; n += entryWords {
		w := (first + n) % ways
		e := load(l, w)
		one := bits.OnesCount32(e.mask()) == 1
		switch {
		case e.mask() == 0:
			if free == none {
				free = w
			}
		case !e.of(h):
			if one && single == none {
				single = w
			}
		case !found && e.class() == class && e.at(i) == a && (e.stride() != 0 || e.mask() == 1<<i):
			atomic.CompareAndSwapUint64(&l[w+1], e.keys, e.keys|1<<i)
			found = true
		case one && e.mask() == 1<<i: // the key has moved
			atomic.CompareAndSwapUint64(&l[w+1], e.keys, e.keys&^(1<<i))
			free = w
		case !found && one && l.pair(w, e, h, i, a, class):
			found = true
		default:
			if e.keys>>i&1 != 0 {
				atomic.CompareAndSwapUint64(&l[w+1], e.keys, e.keys&^(1<<i))
			}
			if own++; one {
				alone = w
			}
		}
	}
	n, w := begins, free
	switch {
	case found:
		return fits
	case own > 1 && alone != none:
		n, w = replaces, alone
	case own > 1:
		return strays
	case free != none:
	case single != none:
		n, w = replaces, single
	default:
		return crowded
	}
	l.store(w, makeEntry(h, i, a, class, 0, 1<<i))
	return n
}

// pair makes an entry with one key one of two, if those can be neighbours.
func (l *line) pair(w uint64, e runEntry, h, i uint64, a layout.Addr, class layout.Class) bool {
	j := uint64(bits.TrailingZeros32(e.mask()))
	lines := (int64(a) - int64(e.at(j))) / layout.BlockAlign
	n := int64(i) - int64(j)
	const bound = 1 << (strideBits - 1)
	if s := lines / n; lines == s*n && s != 0 && s >= -bound && s < bound && e.class() == class {
		l.store(w, makeEntry(h, i, a, class, s, 1<<i|1<<j))
		return true
	}
	return false
}

// move brings the line of the older table over that a run is in, and a few more.
func (t *runTable) move(o *runTable, h uint64) {
	l, _ := o.line(h)
	t.bring(l)
	lines := uint64(len(o.words) / ways)
	k := t.moved.Add(moveLines) - moveLines
	for i := k; i < min(k+moveLines, lines); i++ {
		t.bring((*line)(o.words[i*ways:]))
	}
	if k+moveLines >= lines {
		t.older.CompareAndSwap(o, nil) // somebody who still moves lines may go on
	}
}

// bring moves the entries of a line of the older table. Those of a line go to two
// lines of the same place on other pages, so there is room, unless others have taken it.
func (t *runTable) bring(l *line) {
	for w := uint64(0); w < ways; w += entryWords {
		e := load(l, w)
		if e.mask() == 0 || !atomic.CompareAndSwapUint64(&l[w+1], e.keys, 0) {
			continue
		}
		h := e.where>>tagShift<<lowTagBits | e.keys>>lowTagShift
		to, first := t.line(h)
		for n := uint64(0); n < ways; n += entryWords {
			w := (first + n) % ways
			if load(to, w).mask() == 0 {
				to.store(w, e)
				t.spent.Add(1)
				break
			}
		}
	}
}

// Drop forgets that the block of a key is at a.
func (r *Runs) Drop(table uint16, key uint64, a layout.Addr) {
	h, i := runOf(table, key)
	t := r.tab.Load()
	if o := t.older.Load(); o != nil {
		o.drop(h, i, a) // before it can come over
	}
	t.drop(h, i, a)
}

func (t *runTable) drop(h, i uint64, a layout.Addr) {
	l, _ := t.line(h)
	for w := uint64(0); w < ways; w += entryWords {
		if e := load(l, w); e.keys>>i&1 != 0 && e.of(h) && e.at(i) == a {
			atomic.CompareAndSwapUint64(&l[w+1], e.keys, e.keys&^(1<<i))
		}
	}
}
