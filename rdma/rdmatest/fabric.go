package rdmatest

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"txnode/rdma"
)

const forever = math.MaxInt64

// Options of a fabric. The zero value is usable but for Blades.
type Options struct {
	Blades   int
	Size     uint64 // of each blade's region in bytes, a multiple of 64
	ReadOnly bool   // all blades
	// Caps that the fabric keeps, and no more. Durable is always set: FLUSH does what
	// it promises, and without Volatile there is nothing to do. MaxBatch 0: 128.
	Caps rdma.Caps
	Seed uint64
	// LatencyNs is the round trip of a request without queueing; 0: 2000.
	LatencyNs int64
	// ServiceNs is what the device of a port spends on a request, one after the
	// other, while that many are outstanding, this one included. nil: 10 ns.
	ServiceNs func(outstanding int) int64
	// SpreadNs is how far apart the pieces of one READ or WRITE are, and how long
	// after its completion a WRITE may become visible; 0: 500.
	SpreadNs int64
	// Fail makes requests fail: a status other than StatusOK is that of the
	// request, which is not executed.
	Fail func(w *rdma.WR) rdma.Status
	// Arrive is told of each WRITE when its data arrive, which are not kept, and of which
	// nothing is visible yet.
	Arrive func(w *rdma.WR, data []byte)
	// Bug breaks the contract; "": nothing.
	Bug Bug
	// Volatile remembers what FLUSH has not made durable: see LosePower.
	Volatile bool
}

// Fabric is the test fabric. Its methods are for the thread that runs, or for
// one goroutine outside Run.
type Fabric struct {
	clock
	o     Options
	rng   *rand.Rand
	mem   [][]byte
	keys  []rdma.Keys
	extra [][]rdma.Key // that open a blade because of a Bug
	lives []uint64     // incarnations
	down  []bool
	full  map[rdma.BladeID]bool // see Fill
	ports []*port
	power *power // nil without Volatile
}

var _ rdma.Fabric = (*Fabric)(nil)

// New makes a fabric. The first access keys of the blades are 1000 and up.
func New(o Options) *Fabric {
	if o.LatencyNs == 0 {
		o.LatencyNs = 2000
	}
	if o.SpreadNs == 0 {
		o.SpreadNs = 500
	}
	if o.ServiceNs == nil {
		o.ServiceNs = func(int) int64 { return 10 }
	}
	if o.Caps.MaxBatch == 0 {
		o.Caps.MaxBatch = 128
	}
	o.Caps.Durable = true
	f := &Fabric{o: o, rng: rand.New(rand.NewPCG(o.Seed, 1))}
	for i := range o.Blades {
		f.mem = append(f.mem, make([]byte, o.Size))
		f.keys = append(f.keys, rdma.NewKeys(rdma.Key(1000+i), o.Seed))
		f.down = append(f.down, false)
		f.extra = append(f.extra, nil)
		f.lives = append(f.lives, 1)
	}
	f.initPower()
	return f
}

// Name returns "test".
func (f *Fabric) Name() string { return "test" }

// Caps returns those of the options.
func (f *Fabric) Caps() rdma.Caps { return f.o.Caps }

// Blades lists the blades.
func (f *Fabric) Blades() []rdma.BladeInfo {
	var all []rdma.BladeInfo
	for i := range f.keys {
		all = append(all, rdma.BladeInfo{
			ID: rdma.BladeID(i), Size: f.o.Size, Key: f.keys[i].Oldest(),
			ReadOnly: f.o.ReadOnly, Incarnation: f.lives[i],
		})
	}
	return all
}

// Memory is a blade's region as it is now.
func (f *Fabric) Memory(b rdma.BladeID) []byte { return f.mem[b] }

// Now is the virtual time in nanoseconds.
func (f *Fabric) Now() int64 { return f.now }

// Seed returns that of the options.
func (f *Fabric) Seed() uint64 { return f.o.Seed }

// Run runs the bodies of n threads, one at a time. It panics when all of them
// wait for something that cannot happen.
func (f *Fabric) Run(n int, fn func(i int)) { f.run(n, fn) }

// Fill has a blade provide no memory, as one whose disk is full, or provide it again.
func (f *Fabric) Fill(b rdma.BladeID, full bool) {
	if f.full == nil {
		f.full = map[rdma.BladeID]bool{}
	}
	f.full[b] = full
}

// Provision checks the range: all memory is there, unless Fill says that it is not.
func (f *Fabric) Provision(b rdma.BladeID, off, n uint64) error {
	if int(b) >= len(f.mem) || f.down[b] {
		return fmt.Errorf("rdmatest: blade %d: %w", b, rdma.ErrBladeDown)
	}
	if off > f.o.Size || n > f.o.Size-off || f.full[b] {
		return fmt.Errorf("rdmatest: blade %d: %w", b, rdma.ErrNoMemory)
	}
	return nil
}

// Close checks that all ports were closed.
func (f *Fabric) Close() error {
	if n := len(f.ports); n > 0 {
		return fmt.Errorf("rdmatest: %d ports are still open", n)
	}
	return nil
}

// check decides whether a request may execute (contract, clause 6).
func (f *Fabric) check(w *rdma.WR, arena int) rdma.Status {
	local, n := uint64(w.Local)+uint64(w.Len), uint64(w.Len)
	switch w.Op {
	case rdma.OpRead, rdma.OpWrite:
	case rdma.OpMaskedCAS:
		if local = uint64(w.Local) + 16; !f.o.Caps.MaskedCAS {
			return rdma.StatusBadOp
		}
	case rdma.OpCAS, rdma.OpFAA, rdma.OpFlush:
		local = 0
	default:
		return rdma.StatusBadOp
	}
	writes := w.Op != rdma.OpRead && w.Op != rdma.OpFlush
	switch {
	case f.down[w.Blade]:
		return rdma.StatusNoBlade
	case local > uint64(arena):
		if f.o.Bug == LocalUnchecked {
			w.Local, w.Len = uint32(arena)-16, 8
			return rdma.StatusOK
		}
		return rdma.StatusLocal
	case !f.opens(w.Blade, w.Key) && f.o.Bug != KeysUnchecked && f.o.Bug != KeysCheckedEarly:
		return rdma.StatusKey
	case w.Off > f.o.Size || n > f.o.Size-w.Off:
		if f.o.Bug == BoundsOverflow && w.Off+n <= f.o.Size {
			return rdma.StatusOK
		}
		return rdma.StatusBounds
	case writes && f.o.ReadOnly:
		return rdma.StatusAccess
	case writes && w.Op != rdma.OpWrite && (w.Off%8 != 0 || n != 8) && f.o.Bug != AlignmentUnchecked:
		return rdma.StatusAlign
	}
	return rdma.StatusOK
}

// bytes is [off, off+n) of a blade's region, or what there is of it.
func (f *Fabric) bytes(b rdma.BladeID, off, n uint64) []byte {
	off = min(off, f.o.Size)
	return f.mem[b][off:min(off+n, f.o.Size)]
}

// atomic executes CAS, FAA or masked CAS on a word and returns what it finds and
// what it leaves.
func (f *Fabric) atomic(w *rdma.WR, word, arena []byte) (old, next uint64) {
	old = binary.LittleEndian.Uint64(word)
	next = old
	switch w.Op {
	case rdma.OpCAS:
		if old == w.Cmp {
			next = w.Swap
		}
	case rdma.OpFAA:
		next = old + w.Swap
	case rdma.OpMaskedCAS:
		cmp, swap := binary.LittleEndian.Uint64(arena[w.Local:]), binary.LittleEndian.Uint64(arena[w.Local+8:])
		if f.o.Bug == MasksIgnored {
			cmp, swap = ^uint64(0), ^uint64(0)
		}
		if old&cmp == w.Cmp&cmp {
			next = old&^swap | w.Swap&swap
		}
	}
	return old, next
}

// piece is a part of a READ or WRITE that is copied at once.
type piece struct {
	at   int64
	off  uint64 // from the start of the request
	size uint64
}

// cut cuts a request of n bytes at off into pieces, copied from the given time
// on within SpreadNs, in time order. A line is cut at most once, at a word, and
// its low part comes first if ordered; lines come in any order. Long requests are
// cut at every 64th line only.
func (f *Fabric) cut(start int64, off, n uint64, ordered bool) []piece {
	var all []piece
	unit := uint64(rdma.LineSize)
	if n > 64*unit {
		unit *= 64
	}
	for at := uint64(0); at < n; {
		end := min(n, (off+at)/unit*unit+unit-off)
		mid := off + at + f.rng.Uint64N(end-at+1)
		if f.o.Bug != TornWords {
			mid = (mid + 7) &^ 7
		}
		mid -= off
		low, high := start+f.rng.Int64N(f.o.SpreadNs), start+f.rng.Int64N(f.o.SpreadNs)
		if ordered {
			low, high = min(low, high), max(low, high)
		}
		if mid > at && mid < end && unit == rdma.LineSize {
			all = append(all, piece{low, at, mid - at}, piece{high, mid, end - mid})
		} else {
			all = append(all, piece{low, at, end - at})
		}
		at = end
	}
	slices.SortStableFunc(all, func(x, y piece) int { return int(x.at - y.at) })
	return all
}
