package sim

import "txnode/rdma"

// Atomics on words that share a slot of the responder wait for each other.
const atomicSlots = 4096

// blade is a memory blade: its region and its RNIC.
type blade struct {
	f        *Fabric
	id       rdma.BladeID
	mem      memory
	keys     rdma.Keys
	readOnly bool
	epoch    uint32 // its incarnation, from 1: connections made before are gone

	// Pipelines: when they are free, ps.
	op, rx, tx, atomics, media int64
	slots                      [atomicSlots]int64
	qpPs                       int64
	cache                      mediaCache

	// Faults, in ps.
	down    int64 // it does not answer before
	slow    []window
	parted  []window
	latePut []*queuePair // with WRITEs that are not placed yet
}

// window is a time in which a fault lasts.
type window struct {
	from, to int64
	x        float64
	thread   int // -1: all
	compute  int // counted from 1; 0: all
	way, why string
}

func newBlade(f *Fabric, id rdma.BladeID, o BladeOptions) *blade {
	b := &blade{f: f, id: id, keys: rdma.NewKeys(o.Key, mix64(f.opt.Seed+uint64(id))), readOnly: o.ReadOnly, epoch: 1}
	b.mem.init(o.Size)
	if f.opt.Profile.MediaGrain > 0 {
		b.cache = newMediaCache(f.opt.Profile.MediaCache)
	}
	if o.Image != nil {
		b.mem.copyFrom(&o.Image.m)
	}
	return b
}

// factor is how much slower than normal the blade is at t.
func (b *blade) factor(t int64) float64 {
	x := 1.0
	for _, w := range b.slow {
		if w.from <= t && t < w.to {
			x *= w.x
		}
	}
	return x
}

// cut returns until when what goes a way between the blade and a thread of a compute blade, counted
// from 1, is lost at t; t when it is not. Without a way it is both.
func (b *blade) cut(t int64, thread, compute int, way string) int64 {
	end := t
	for i := range b.parted {
		w := &b.parted[i]
		if w.from <= t && t < w.to && (w.thread < 0 || w.thread == thread) &&
			(w.compute == 0 || w.compute == compute) && (way == "" || w.way == "" || w.way == way) {
			end = max(end, w.to)
		}
	}
	return end
}

// check decides what a request is at once, but for its key (contract, clause 6).
func (b *blade) check(w *rdma.WR, arena uint64) rdma.Status {
	n := uint64(w.Len)
	if w.Off > b.mem.size || n > b.mem.size-w.Off {
		return rdma.StatusBounds
	}
	switch w.Op {
	case rdma.OpRead, rdma.OpWrite:
		if uint64(w.Local)+n > arena {
			return rdma.StatusLocal
		}
		if w.Op == rdma.OpWrite && b.readOnly {
			return rdma.StatusAccess
		}
	case rdma.OpCAS, rdma.OpFAA, rdma.OpMaskedCAS:
		if w.Op == rdma.OpMaskedCAS && b.f.opt.Profile.NoMaskedCAS {
			return rdma.StatusBadOp
		}
		if b.readOnly {
			return rdma.StatusAccess
		}
		if w.Off&7 != 0 || n != 8 {
			return rdma.StatusAlign
		}
		if w.Op == rdma.OpMaskedCAS && (w.Local&7 != 0 || uint64(w.Local)+16 > arena) {
			return rdma.StatusLocal
		}
	case rdma.OpFlush:
	default:
		return rdma.StatusBadOp
	}
	return rdma.StatusOK
}
