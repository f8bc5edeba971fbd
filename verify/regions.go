package verify

import (
	"errors"
	"fmt"
	"slices"

	"txnode/memory"
	"txnode/memory/layout"
	"txnode/rdma"
)

// regions checks both copies of the header of every region, and finds blades that are
// strange: what they hold is not this database's, or an old copy, or not for this program to read.
func (w *walker) regions() {
	for i := range w.l.Blades {
		if w.l.Blades[i].State == layout.BladeDown {
			continue
		}
		b := rdma.BladeID(i)
		if why, ok := w.o.Missing[b]; ok {
			w.sum.Missing = append(w.sum.Missing, b)
			w.found(Finding{Kind: KindRegion, Blade: b, What: why})
			continue
		}
		strange := 0
		for k := range layout.HeaderCopies {
			if w.header(b, k) {
				strange++
			}
		}
		if strange > 0 && !w.provesBlade(b, 0) && !w.provesBlade(b, 1) {
			w.sum.Strange = append(w.sum.Strange, b)
		}
	}
}

// files reads all that is to be checked before anything is repaired: see Summary.Unreadable.
func (w *walker) files() {
	if !w.o.Repair {
		return
	}
	dead := make([]bool, len(w.l.Blades))
	for id := range w.l.Segments {
		w.total += uint64(w.l.Segments[id].Placement.N) * uint64(w.l.SegmentSize)
	}
	for id := range w.l.Segments {
		for k := range w.l.Segments[id].Placement.N {
			at := w.v.At(layout.MakeAddr(layout.SegmentID(id), 0), int(k))
			for o := uint32(0); o < w.l.SegmentSize && !dead[at.Blade] && !w.stopped(); o += smallSize {
				_, err := w.Database.read(rdma.RemoteAddr{Blade: at.Blade, Key: at.Key, Off: at.Off + uint64(o)},
					w.small, min(smallSize, w.l.SegmentSize-o))
				if dead[at.Blade] = err != nil; errors.Is(err, ErrFault) {
					w.unreadable(at.Blade)
				}
			}
			w.advance(uint64(w.l.SegmentSize))
		}
	}
}

// setAside goes on as if blades were dead: what else there is of what they held is
// checked, and nothing is repaired.
func (w *walker) setAside(blades []rdma.BladeID) {
	d := *w.Database
	keys := make([]rdma.Key, len(d.l.Blades))
	for b := range keys {
		keys[b] = d.v.Key(rdma.BladeID(b))
	}
	before := d.l
	d.l = before.Without(blades...)
	d.v = viewOf(d.l, keys)
	w.Database, w.o.Repair = &d, false
	for id := range d.l.Segments {
		if s := &before.Segments[id]; s.Placement.N > 0 && d.l.Segments[id].Placement.N == 0 &&
			s.Kind != layout.KindLog && !s.Leaving {
			at := s.Placement.Replicas[0]
			w.found(Finding{
				Kind: KindRegion, Addr: layout.MakeAddr(layout.SegmentID(id), 0), Blade: at.Blade, Off: at.Base,
				What: "no copy of the segment is left on the other blades",
			})
		}
	}
}

// header checks a copy of a blade's header. strange: it says that the region is not
// this database's, or an old copy, or of another format version, or that nothing was ever there.
func (w *walker) header(b rdma.BladeID, k int) (strange bool) {
	at := rdma.RemoteAddr{Blade: b, Key: w.v.Key(b), Off: layout.HeaderOffset(k)}
	f := Finding{Kind: KindHeader, Blade: b, Off: at.Off, Copy: k}
	p, err := w.Database.read(at, w.small, layout.RegionHeaderSize)
	if err != nil {
		f.Kind, f.What = KindUnreadable, err.Error()
		if w.found(f); errors.Is(err, ErrFault) {
			w.unreadable(b)
		}
		return false
	}
	want := w.l.HeaderOf(b)
	h, blank, err := layout.ParseHeaderCopy(p, k)
	fault := w.l.Judge(b, &h)
	switch {
	case blank:
		f.What = fmt.Sprintf("copy %d of the region header is blank", k)
	case err != nil:
		f.What = fmt.Sprintf("copy %d of the region header: %v", k, err)
	case fault == layout.HeaderForeign || fault == layout.HeaderMisplaced || fault == layout.HeaderGeometry:
		f.What = fmt.Sprintf("copy %d of the region header is %+v, the catalog says %+v", k, h, want)
	case fault == layout.HeaderAhead:
		w.sum.CatalogOld, w.o.Repair = true, false
		f.What = fmt.Sprintf("copy %d of the region header is of epoch %d and %d bytes, the catalog of %d and %d: is "+
			"the catalog an old copy?", k, h.Epoch, h.Size, want.Epoch, want.Size)
	case fault == layout.HeaderBehind:
		f.What = fmt.Sprintf("copy %d of the region header is of epoch %d, and all were written in epoch %d: the "+
			"region is an old copy; bring the newest back, or move it away and %s",
			k, h.Epoch, w.l.Opened, w.l.Remedy(b))
	default:
		return false
	}
	strange = blank || errors.Is(err, layout.ErrFormat) || errors.Is(err, layout.ErrForeign) || err == nil &&
		another(fault)
	if (blank || err != nil) && w.provesBlade(b, 1-k) {
		w.repair(f, fmt.Sprintf("it is written again as the catalog says: copy %d is that of this blade",
			1-k), want.Encode(k))
		return strange
	}
	w.found(f)
	return strange
}

// provesBlade reports whether a copy of a blade's header is intact, and the blade's.
func (w *walker) provesBlade(b rdma.BladeID, k int) bool {
	p, err := w.Database.read(rdma.RemoteAddr{Blade: b, Key: w.v.Key(b), Off: layout.HeaderOffset(k)}, w.small,
		layout.RegionHeaderSize)
	if err != nil {
		return false
	}
	h, blank, err := layout.ParseHeaderCopy(p, k)
	return err == nil && !blank && !another(w.l.Judge(b, &h))
}

// another reports whether a region is another one than that which the catalog means, or what that
// was once.
func another(f layout.HeaderFault) bool {
	return f == layout.HeaderForeign || f == layout.HeaderMisplaced || f == layout.HeaderBehind
}

// inherits reports whether a segment of indexes has no owner, in a database that processes share:
// its owner is gone, and the process that adopts it makes the copies of its table equal, and gives
// back what nothing leads to.
func (w *walker) inherits(id layout.SegmentID) bool { return !w.l.Registered(w.l.Segments[id].Owner) }

// extentTable is what is known of the extents of a segment.
type extentTable struct {
	starts  []uint32 // by granule: length of the extent that starts here, in granules
	claimed []bool   // by granule: an index uses the extent that starts here
	// doubtful are granules whose extent only a backup knows: copy number.
	doubtful map[uint32]int
}

// extentTables reads the tables of all index segments.
func (w *walker) extentTables() {
	w.extents = map[layout.SegmentID]*extentTable{}
	for id := range w.l.Segments {
		if s := &w.l.Segments[id]; s.Kind == layout.KindIndex && s.Placement.N > 0 {
			w.extentTable(layout.SegmentID(id))
		}
	}
}

func (w *walker) extentTable(id layout.SegmentID) {
	size := w.l.SegmentSize
	unit := memory.ExtentUnit(size)
	n := size / unit
	x := &extentTable{starts: make([]uint32, n), claimed: make([]bool, n), doubtful: map[uint32]int{}}
	w.extents[id] = x
	table := layout.MakeAddr(id, 0)
	copies := w.copies(table, memory.ExtentTable(size), &w.chunks)
	end := memory.FirstExtent(size) / unit // of the extent before
	judge := func(off uint32, v uint64) *fault {
		g := off / 8
		k, ok := memory.ParseExtentWord(layout.MakeAddr(id, g*unit), v)
		switch {
		case !ok:
			return faultf(KindExtent, "%#x is no word of an extent at granule %d", v, g)
		case k > 0 && (g < end || k > n-g):
			return faultf(KindExtent,
				"an extent of %d granules at granule %d overlaps the one before it, or ends past the segment", k, g)
		}
		return nil
	}
	// A word that is zero on the primary and not on a backup is settled when it is
	// known whether an index uses the extent.
	if copies[0] != nil {
		for g := range n {
			if word(copies[0], 8*g) != 0 {
				continue
			}
			for k := 1; k < len(copies); k++ {
				if copies[k] == nil {
					continue
				}
				if v := word(copies[k], 8*g); v != 0 {
					if length, ok := memory.ParseExtentWord(layout.MakeAddr(id, g*unit), v); ok && length <= n-g {
						x.doubtful[g], x.starts[g] = k, length
					}
				}
			}
		}
	}
	w.words(table, 0, copies, func(off uint32, v uint64) *fault {
		g := off / 8
		f := judge(off, v)
		if _, doubt := x.doubtful[g]; doubt && f == nil {
			// Compared later: make the copies look alike.
			for k := 1; k < len(copies); k++ {
				clear(copies[k][off : off+8])
			}
			return nil
		}
		if k, _ := memory.ParseExtentWord(layout.MakeAddr(id, g*unit), v); f == nil && k > 0 {
			x.starts[g] = k
			end = g + k
		}
		return f
	})
}

// claim notes that an index uses n bytes at a. It returns what is wrong with that.
func (w *walker) claim(a layout.Addr, n uint32) *fault {
	unit := memory.ExtentUnit(w.l.SegmentSize)
	x := w.extents[a.Segment()]
	if !w.contains(a, n, layout.KindIndex) || x == nil || a.Offset()%unit != 0 {
		return faultf(KindExtent, "%d bytes at %v lie in no index segment", n, a)
	}
	g := a.Offset() / unit
	switch {
	case x.claimed[g]:
		return faultf(KindDuplicate, "the extent at %v is used twice", a)
	case x.starts[g] == 0:
		return faultf(KindExtent, "no extent starts at %v", a)
	case uint64(x.starts[g])*uint64(unit) < uint64(n):
		return faultf(KindExtent, "the extent at %v has %d bytes, %d are used", a, x.starts[g]*unit, n)
	}
	x.claimed[g] = true
	return nil
}

// unclaimed reports the extents that no index uses, and settles the doubtful ones.
func (w *walker) unclaimed() {
	unit := memory.ExtentUnit(w.l.SegmentSize)
	ids := make([]layout.SegmentID, 0, len(w.extents))
	for id := range w.extents {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, r := range w.l.Reserved {
		if r.Size == 0 || w.l.Segments[r.Addr.Segment()].Placement.N == 0 {
			continue
		}
		if f := w.claim(r.Addr, r.Size); f != nil {
			w.found(w.at(Finding{Kind: f.kind, What: fmt.Sprintf("reserved as %q: %s", r.Name, f.what)}, r.Addr, 0))
		}
	}
	for _, id := range ids {
		x := w.extents[id]
		for g, n := range x.starts {
			if n == 0 || w.stopped() {
				continue
			}
			at := layout.MakeAddr(id, uint32(g)*8)
			k, doubt := x.doubtful[uint32(g)]
			if doubt {
				w.doubtfulExtent(at, k, x.claimed[g])
				continue
			}
			if !x.claimed[g] && !w.anyUnwalked() {
				f := Finding{
					Kind: KindOrphan, Unfinished: w.inherits(id) || w.loose(),
					What: fmt.Sprintf("no index uses the extent of %d bytes at %v",
						n*unit, layout.MakeAddr(id, uint32(g)*unit)),
				}
				w.found(w.at(f, at, 0))
			}
		}
	}
}

// loose reports whether extents may be allocated that nothing leads to, which the next opening
// frees: a coordinator has died.
func (w *walker) loose() bool { return w.l.Leaked || w.unswept() }

// doubtfulExtent settles a word that copy k has and the primary has not.
func (w *walker) doubtfulExtent(at layout.Addr, k int, used bool) {
	p := w.read(at, k, w.small, 8)
	if p == nil {
		return
	}
	if used {
		f := Finding{Kind: KindExtent, What: fmt.Sprintf("the primary has no extent where an index is; copy %d has", k)}
		w.repair(w.at(f, at, 0), fmt.Sprintf("the word of copy %d is written to the primary", k), p)
		return
	}
	f := Finding{Kind: KindReplica, Unfinished: w.inherits(at.Segment()),
		What: fmt.Sprintf("copy %d has an extent, %#x, the primary none, and no index uses it", k, word(p, 0))}
	w.repair(w.at(f, at, k), "the primary's word is written to the copy", make([]byte, 8))
}

// anyUnwalked reports whether an index could not be followed to its end.
func (w *walker) anyUnwalked() bool {
	for i := range w.sum.Tables {
		if w.sum.Tables[i].Unwalked {
			return true
		}
	}
	return false
}
