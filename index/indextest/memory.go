package indextest

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"txnode/memory"
	"txnode/memory/layout"
	"txnode/rdma"
	"txnode/rdma/inproc"
)

// MemoryOptions size a Memory. The zero value is usable.
type MemoryOptions struct {
	Blades      int    // default 3
	Copies      int    // of every segment, default 2
	SegmentSize uint32 // default 256 KiB
	Segments    int    // most segments, default 512
	Seed        uint64 // default 1
	// Fabric connects to so many blades of so many bytes; nil: rdma/inproc. It is
	// closed when the test ends.
	Fabric func(tb testing.TB, blades int, size, seed uint64) rdma.Fabric
}

// Memory is a set of blades with segments, and an allocator that hands out again
// at once the block that was freed last, as the worst of allocators may; extents
// are never reused. Its view grows as segments are used. It is safe for
// concurrent use.
type Memory struct {
	Fabric rdma.Fabric
	opts   MemoryOptions

	mu    sync.Mutex
	segs  []layout.Placement
	used  uint32 // of the last segment
	limit int    // segments that may be used
	keys  []rdma.Key
	epoch layout.Epoch
	free  [layout.NumClasses][]layout.Addr

	view    atomic.Pointer[layout.View]
	threads atomic.Int32
	clients atomic.Uint32
	freed   atomic.Int64
	extents sync.Map // by address
}

// NewMemory makes a memory that is closed when the test ends.
func NewMemory(tb testing.TB, o MemoryOptions) *Memory {
	tb.Helper()
	if o.Blades == 0 {
		o.Blades = 3
	}
	if o.Copies == 0 {
		o.Copies = min(2, o.Blades)
	}
	if o.SegmentSize == 0 {
		o.SegmentSize = 256 << 10
	}
	if o.Segments == 0 {
		o.Segments = 512
	}
	if o.Seed == 0 {
		o.Seed = 1
	}
	if o.Fabric == nil {
		o.Fabric = inProcess
	}
	size := (uint64(o.Segments)*uint64(o.Copies)/uint64(o.Blades) + 2) * uint64(o.SegmentSize)
	f := o.Fabric(tb, o.Blades, (size+1<<16-1)&^(1<<16-1), o.Seed)
	m := &Memory{Fabric: f, opts: o, limit: o.Segments, epoch: 1, segs: make([]layout.Placement, 1)}
	for _, b := range f.Blades() {
		m.keys = append(m.keys, b.Key)
	}
	m.atEnd(tb, f.Close)
	m.view.Store(layout.NewView(1, m.segs, m.keys))
	return m
}

func inProcess(tb testing.TB, blades int, size, seed uint64) rdma.Fabric {
	o := inproc.Options{Seed: seed}
	for i := range blades {
		o.Blades = append(o.Blades, inproc.BladeOptions{Size: size, Key: rdma.Key(100 + i)})
	}
	f, err := inproc.New(o)
	if err != nil {
		tb.Fatal(err)
	}
	return f
}

// View returns the current map.
func (m *Memory) View() *layout.View { return m.view.Load() }

// ViewOn is View: nobody is fenced.
func (m *Memory) ViewOn(*rdma.Thread) *layout.View { return m.view.Load() }

// NewExtent returns a zeroed extent, or memory.ErrNoSpace.
func (m *Memory) NewExtent(_ *rdma.Coro, size uint32) (memory.Extent, error) {
	a, err := m.Alloc(size)
	if err != nil {
		return memory.Extent{}, err
	}
	x := memory.Extent{Addr: a, Size: size}
	m.extents.Store(a, x)
	return x, nil
}

// FreeExtent counts what is given back.
func (m *Memory) FreeExtent(x memory.Extent) (bool, error) {
	m.freed.Add(int64(x.Size))
	return true, nil
}

// ExtentAt is the extent at an address.
func (m *Memory) ExtentAt(a layout.Addr) memory.Extent {
	x, _ := m.extents.Load(a)
	e, _ := x.(memory.Extent)
	return e
}

// Freed is how many bytes of extents were given back.
func (m *Memory) Freed() int64 { return m.freed.Load() }

// Lose takes a blade out of the map: the first backup of a segment whose primary it had
// becomes the primary. New segments have copies on it, as if it were replaced.
func (m *Memory) Lose(b rdma.BladeID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.segs = slices.Clone(m.segs)
	for i := range m.segs {
		p := &m.segs[i]
		for k := range int(p.N) {
			if p.Replicas[k].Blade == b {
				copy(p.Replicas[k:p.N-1], p.Replicas[k+1:p.N])
				p.N--
				break
			}
		}
	}
	m.epoch++
	m.view.Store(layout.NewView(m.epoch, m.segs, m.keys))
}

// Build makes the last copy of each segment one that is being built.
func (m *Memory) Build() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.segs = slices.Clone(m.segs)
	for i := range m.segs {
		if p := &m.segs[i]; p.N > 1 {
			p.N, p.Building = p.N-1, p.Building+1
		}
	}
	m.epoch++
	m.view.Store(layout.NewView(m.epoch, m.segs, m.keys))
}

// SetLimit allows no more segments than are in use, plus extra.
func (m *Memory) SetLimit(extra int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.limit = min(len(m.segs)-1+extra, m.opts.Segments)
}

// Alloc returns size zeroed bytes on all copies of a segment, 64-byte aligned.
func (m *Memory) Alloc(size uint32) (layout.Addr, error) {
	size = (size + layout.BlockAlign - 1) &^ (layout.BlockAlign - 1)
	if size > m.opts.SegmentSize {
		return 0, fmt.Errorf("indextest: extent of %d bytes, segments have %d: %w",
			size, m.opts.SegmentSize, memory.ErrTooLarge)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.segs) == 1 || m.opts.SegmentSize-m.used < size {
		n := len(m.segs)
		if n > m.limit {
			return 0, fmt.Errorf("indextest: %d segments are in use: %w", n-1, memory.ErrNoSpace)
		}
		p := layout.Placement{N: uint8(m.opts.Copies)}
		for k := range m.opts.Copies {
			// Copy k of segment n is the i-th one on its blade; copies of
			// neighbouring segments rotate over the blades.
			j := (n-1)*m.opts.Copies + k
			p.Replicas[k] = layout.Replica{
				Blade: rdma.BladeID(j % m.opts.Blades), Base: uint64(j/m.opts.Blades) * uint64(m.opts.SegmentSize),
			}
		}
		m.segs = append(append([]layout.Placement(nil), m.segs...), p)
		m.used = 0
		m.view.Store(layout.NewView(m.epoch, m.segs, m.keys))
	}
	a := layout.MakeAddr(layout.SegmentID(len(m.segs)-1), m.used)
	m.used += size
	return a, nil
}

// AllocBlock returns a block, with what its last user has left in it.
func (m *Memory) AllocBlock(_ *rdma.Coro, class layout.Class) (layout.Addr, error) {
	if a := m.reuse(class); a != 0 {
		return a, nil
	}
	return m.Alloc(class.Size())
}

func (m *Memory) reuse(class layout.Class) layout.Addr {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.free[class]
	if len(l) == 0 {
		return 0
	}
	m.free[class] = l[:len(l)-1]
	return l[len(l)-1]
}

// FreeBlock gives a block back.
func (m *Memory) FreeBlock(a layout.Addr, class layout.Class) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.free[class] = append(m.free[class], a)
}

// Thread makes a thread that is closed when the test ends.
func (m *Memory) Thread(tb testing.TB) *rdma.Thread {
	tb.Helper()
	t, err := rdma.NewThread(m.Fabric, rdma.ThreadOptions{
		Index: int(m.threads.Add(1)) - 1, Techniques: rdma.AllTechniques, Arena: 1 << 20,
	})
	if err != nil {
		tb.Fatal(err)
	}
	m.atEnd(tb, t.Close)
	return t
}

// atEnd closes something when the test ends. What lies on the Go heap alone is left to the
// garbage collector: some tests make thousands of such memories.
func (m *Memory) atEnd(tb testing.TB, end func() error) {
	if _, ok := m.Fabric.(*Stepwise); ok {
		return
	}
	tb.Cleanup(func() {
		if err := end(); err != nil {
			tb.Error(err)
		}
	})
}

// Copies reads all copies of n bytes at a.
func (m *Memory) Copies(tb testing.TB, t *rdma.Thread, a layout.Addr, n uint32) [][]byte {
	tb.Helper()
	buf, err := t.Alloc(int(n))
	if err != nil {
		tb.Fatal(err)
	}
	defer t.Free(buf, int(n))
	var out [][]byte
	var b rdma.Batch
	v := m.View()
	for i := range v.Copies(a) {
		b.Reset()
		b.Read(v.At(a, i), buf, n)
		if err := t.Plain().Do(&b); err != nil {
			tb.Fatal(err)
		}
		out = append(out, append([]byte(nil), t.Bytes(buf, n)...))
	}
	return out
}
