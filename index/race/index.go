package race

import (
	"sync"
	"sync/atomic"

	"txnode/index"
	"txnode/memory"
	"txnode/memory/layout"
	"txnode/rdma"
)

// Space is where an index gets its memory from; memory's Space is one. Its
// methods are safe for concurrent use.
type Space interface {
	// View returns the current map, and ViewOn the one by which a thread goes on with
	// what it has begun: the same, unless the thread is fenced.
	View() *layout.View
	ViewOn(t *rdma.Thread) *layout.View
	// NewExtent returns a contiguous, zeroed, replicated extent, 64-byte
	// aligned, of at most a segment's size.
	NewExtent(c *rdma.Coro, size uint32) (memory.Extent, error)
	// FreeExtent gives an extent back that no client has seen; done is false if it was
	// given back before.
	FreeExtent(x memory.Extent) (done bool, err error)
	// ExtentAt is the extent that is allocated at an address now.
	ExtentAt(a layout.Addr) memory.Extent
}

// Index is a handle on a RACE index. All threads of a process share one: it
// holds the cached directory. Queries, coroutines and batches are the caller's.
type Index struct {
	geo   Geometry
	size  uint32 // of a sub-table
	root  layout.Addr
	space Space
	owner atomic.Uint64
	stall int64 // ns to wait for somebody else's unfinished change
	gone  func(owner uint64) bool
	// vacant tells which blocks nobody has, nil: see SetVacant.
	vacant func(c *rdma.Coro, blocks []layout.Addr) ([]bool, error)
	spoilt func(c *rdma.Coro, a layout.Addr) (bool, error) // nil: see SetSpoilt

	dir    atomic.Pointer[directory]
	fabric rdma.Fabric
	blades atomic.Pointer[[]uint64] // sizes of the regions: see fits
	window int                      // most work requests of a batch
	both   bool                     // lookups read both choices at once
	ill    bool                     // see Ill
	pool   sync.Pool

	splits, doublings, moved, seconds atomic.Uint64
}

var _ index.Slots = (*Index)(nil)

// defaultStall is how long an operation waits for another client's change that
// stands in its way, in nanoseconds of the fabric's clock. Such a change is a
// handful of round trips, or a split of a sub-table.
const defaultStall = 5_000_000_000

// scratch is what an operation needs beside the query. It is reused, and belongs
// to one operation at a time.
type scratch struct {
	batch rdma.Batch
	steps []step
	refs  []stepRef
	found []found
	marks []mark
	// others are slots whose blocks were seen to hold keys other than that of
	// the insert in progress: see judge.
	others []found
	// unclear is a block that keeps it from telling; 0: none.
	unclear layout.Addr
}

func (ix *Index) get() *scratch {
	if s, ok := ix.pool.Get().(*scratch); ok {
		return s
	}
	return &scratch{}
}

func (ix *Index) put(s *scratch) {
	if s.batch.Done() {
		ix.pool.Put(s)
	}
}

func newIndex(c *rdma.Coro, s Space, root layout.Addr, g Geometry) *Index {
	t := c.Thread()
	ix := &Index{geo: g, size: g.tableSize(), root: root, space: s, stall: defaultStall}
	ix.fabric = t.Fabric()
	ix.measure()
	ix.window = min(max(t.Caps().MaxBatch/2, 16), 1024)
	ix.owner.Store(1)
	return ix
}

// SetOwner sets the number, below 1<<48 and not zero, by which locks that this
// handle takes name their owner. Recover frees the locks of owners that are dead.
func (ix *Index) SetOwner(id uint64) { ix.owner.Store(id) }

// ReadBoth makes lookups of this handle read both choices of a key at once, as those
// of the paper do, whatever the marks say: one READ more, and never a second round
// trip. The handle is not in use yet.
func (ix *Index) ReadBoth(on bool) { ix.both = on }

// lockWord is what a lock holds that c has taken. The owner is the thread's, if it
// has one, else the handle's.
func (ix *Index) lockWord(c *rdma.Coro) uint64 {
	t := c.Thread()
	owner := t.Owner()
	if owner == 0 {
		owner = ix.owner.Load()
	}
	return owner<<16 | uint64(uint16(t.Index()))
}

// ownerOf is the owner that a lock word names; 0: nobody has the lock. No client has number 0: a
// word that names it is damaged.
func ownerOf(lock uint64) uint64 {
	if owner := lock >> 16; owner != 0 || lock == 0 {
		return owner
	}
	return Nobody
}

// Root is where the index is; Open takes it.
func (ix *Index) Root() layout.Addr { return ix.root }

// Geometry of the index.
func (ix *Index) Geometry() Geometry { return ix.geo }

// BufferSize is the arena that a query needs, in bytes.
func (ix *Index) BufferSize() int { return bufferSize }

// newer is a later map of the epoch of v that has n bytes at a, since another process may have
// added the segment; nil: there is none.
func (ix *Index) newer(v *layout.View, a layout.Addr, n uint32) *layout.View {
	if s, ok := ix.space.(interface{ Follow() error }); !ok || s.Follow() != nil {
		return nil
	}
	if w := ix.space.View(); w.Epoch == v.Epoch && ix.fits(w, a, n) {
		return w
	}
	return nil
}

// measure asks for the sizes of the regions.
func (ix *Index) measure() []uint64 {
	var sizes []uint64
	for _, b := range ix.fabric.Blades() {
		sizes = append(sizes, b.Size)
	}
	ix.blades.Store(&sizes)
	return sizes
}

// fits reports whether n bytes at a are in the regions of all copies. A blade that was added since
// it was asked last is larger than the place was.
func (ix *Index) fits(v *layout.View, a layout.Addr, n uint32) bool {
	return ix.within(v, a, n, *ix.blades.Load()) || v.Contains(a, n) && ix.within(v, a, n, ix.measure())
}

// within is fits for regions of such sizes.
func (ix *Index) within(v *layout.View, a layout.Addr, n uint32, blades []uint64) bool {
	if !v.Valid(a) || a.Offset()+n > layout.MaxSegmentSize {
		return false
	}
	for i := range v.Copies(a) {
		r := v.At(a, i)
		if int(r.Blade) < len(blades) && (r.Off > blades[r.Blade] || uint64(n) > blades[r.Blade]-r.Off) {
			return false
		}
	}
	return true
}

// pause waits before try number i is repeated: a microsecond at first, at most 128.
func pause(c *rdma.Coro, i int) {
	d := int64(1000) << min(i, 7)
	c.Sleep(d/2 + int64(c.Thread().Rand()%uint64(d)))
}

// linger is pause for somebody else's unfinished change. When that has not come for
// some milliseconds its client is hardly alive: tries then become rarer, up to one in
// 4 ms.
func linger(c *rdma.Coro, i int) {
	const eager = 64
	if i < eager {
		pause(c, i)
		return
	}
	d := int64(1000) << min(7+(i-eager)/16, 12)
	c.Sleep(d/2 + int64(c.Thread().Rand()%uint64(d)))
}
