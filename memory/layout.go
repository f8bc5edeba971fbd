package memory

import (
	"fmt"
	"slices"

	"txnode/rdma"
)

// HeaderArea is the part of a blade's region that segments may not use, in
// bytes, at its start. The header is in it.
const HeaderArea = 64 << 10

// Layout is everything that the catalog remembers.
type Layout struct {
	Geometry
	// Formatted is false from the moment that the catalog exists until the
	// headers of all regions have been written.
	Formatted bool
	Epoch     Epoch
	// NextCoordinator is the number of the next coordinator.
	NextCoordinator uint32
	Blades          []Blade   // by id
	Segments        []Segment // by id; the first is unused
	Tables          []Table   // by id - 1
	Coordinators    []CoordinatorEntry
}

// Geometry is what never changes.
type Geometry struct {
	UUID        UUID
	Backups     int
	SegmentSize uint32
	LogArea     uint32
}

// BladeState says whether a blade takes part.
type BladeState uint8

// States of a blade.
const (
	BladeUp   BladeState = iota
	BladeDown            // declared dead: nothing is placed on it, and its key is not maintained
	numBladeStates
)

// Blade is what the catalog knows of a blade.
type Blade struct {
	Size  uint64 // bytes of the region
	Used  uint32 // segments ever placed on it; their places are not used again
	State BladeState
}

// SegmentKind is what a segment is for. It never changes.
type SegmentKind uint8

// Kinds of segments.
const (
	KindLog    SegmentKind = 1 + iota // log areas of coordinators; one copy
	KindIndex                         // extents of index structures
	KindBlocks                        // record blocks of one class
	numKinds
)

// String names the kind.
func (k SegmentKind) String() string {
	if k > 0 && k < numKinds {
		return [...]string{"", "log", "index", "blocks"}[k]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// Segment is what the catalog knows of a segment.
type Segment struct {
	Kind      SegmentKind
	Class     Class  // of KindBlocks
	Row       uint32 // of KindLog: each row has one segment on every blade
	Placement Placement
}

// CoordinatorEntry is what the catalog knows of a coordinator that was not
// closed. Slot is its place in the log segments of every blade.
type CoordinatorEntry struct {
	ID   uint32
	Slot uint32
}

// slots is how many segments a region has room for.
func (l *Layout) slots(b rdma.BladeID) uint32 {
	size := l.Blades[b].Size
	if size < HeaderArea {
		return 0
	}
	return uint32(min((size-HeaderArea)/uint64(l.SegmentSize), MaxSegments))
}

// base is the offset in a region of the i-th place for a segment.
func (l *Layout) base(i uint32) uint64 { return HeaderArea + uint64(i)*uint64(l.SegmentSize) }

// logsPerSegment is how many log areas a segment is carved into.
func (l *Layout) logsPerSegment() uint32 { return l.SegmentSize / l.LogArea }

// clone is a deep copy.
func (l *Layout) clone() *Layout {
	n := *l
	n.Blades = slices.Clone(l.Blades)
	n.Segments = slices.Clone(l.Segments)
	n.Tables = slices.Clone(l.Tables)
	for i := range n.Tables {
		n.Tables[i].Options = slices.Clone(n.Tables[i].Options)
	}
	n.Coordinators = slices.Clone(l.Coordinators)
	return &n
}

// Validate checks the invariants of a layout: numbers in range, the copies of a
// segment on distinct blades, no two segments in one place. Its errors are
// ErrLayout.
func (l *Layout) Validate() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s", ErrLayout, fmt.Sprintf(format, args...))
	}
	o := Options{Backups: l.Backups, SegmentSize: l.SegmentSize, LogArea: l.LogArea}
	if err := o.Validate(); err != nil || l.SegmentSize == 0 || l.LogArea == 0 {
		return bad("geometry: %v", err)
	}
	if len(l.Blades) <= l.Backups || len(l.Blades) > maxBlades {
		return bad("%d blades for %d backups", len(l.Blades), l.Backups)
	}
	if l.Epoch == 0 || l.NextCoordinator == 0 {
		return bad("epoch %d, next coordinator %d: they start at 1", l.Epoch, l.NextCoordinator)
	}
	for i, b := range l.Blades {
		if b.Used > l.slots(rdma.BladeID(i)) || b.State >= numBladeStates {
			return bad("blade %d of %d bytes: %d segments placed, state %d", i, b.Size, b.Used, b.State)
		}
	}
	if len(l.Segments) == 0 || l.Segments[0].Kind != 0 || len(l.Segments) > MaxSegments {
		return bad("%d segments, or segment 0 in use", len(l.Segments))
	}
	type place struct {
		blade rdma.BladeID
		base  uint64
	}
	taken := make(map[place]SegmentID, len(l.Segments))
	type rowOf struct {
		row   uint32
		blade rdma.BladeID
	}
	rows := map[rowOf]SegmentID{}
	for i := 1; i < len(l.Segments); i++ {
		s := &l.Segments[i]
		most := l.Backups + 1
		if s.Kind == KindLog {
			most = 1
		}
		if s.Kind == 0 || s.Kind >= numKinds || s.Class >= NumClasses || int(s.Placement.N) > most {
			return bad("segment %d: %v, class %d, %d copies", i, s.Kind, s.Class, s.Placement.N)
		}
		for j, r := range s.Placement.Replicas[:s.Placement.N] {
			p := place{r.Blade, r.Base}
			if int(r.Blade) >= len(l.Blades) {
				return bad("segment %d, copy %d: on blade %d of %d", i, j, r.Blade, len(l.Blades))
			}
			if r.Base < HeaderArea || (r.Base-HeaderArea)%uint64(l.SegmentSize) != 0 || r.Base >= l.base(l.Blades[r.Blade].Used) {
				return bad("segment %d, copy %d: at offset %#x of blade %d, which has handed out %d segments", i, j, r.Base, r.Blade, l.Blades[r.Blade].Used)
			}
			if other, ok := taken[p]; ok {
				return bad("segments %d and %d are both at offset %#x of blade %d", other, i, r.Base, r.Blade)
			}
			taken[p] = SegmentID(i)
			for k := range j {
				if s.Placement.Replicas[k].Blade == r.Blade {
					return bad("segment %d: copies %d and %d are both on blade %d", i, k, j, r.Blade)
				}
			}
			if s.Kind == KindLog {
				k := rowOf{s.Row, r.Blade}
				if other, ok := rows[k]; ok {
					return bad("segments %d and %d are both log row %d of blade %d", other, i, s.Row, r.Blade)
				}
				rows[k] = SegmentID(i)
			}
		}
	}
	names := map[string]bool{}
	for i, t := range l.Tables {
		if t.ID != uint16(i+1) || t.Name == "" || len(t.Name) > MaxTableName || names[t.Name] {
			return bad("table %d: number %d, name %q", i+1, t.ID, t.Name)
		}
		if t.Root != 0 && (t.Root>>AddrBits != 0 || int(t.Root.Segment()) >= len(l.Segments) || l.Segments[t.Root.Segment()].Kind != KindIndex) {
			return bad("table %q: its root %v is in no index segment", t.Name, t.Root)
		}
		names[t.Name] = true
	}
	inUse := map[uint32]uint32{}
	for i, c := range l.Coordinators {
		if c.ID == 0 || c.ID >= l.NextCoordinator || i > 0 && c.ID <= l.Coordinators[i-1].ID {
			return bad("coordinator %d, the next is %d", c.ID, l.NextCoordinator)
		}
		if other, ok := inUse[c.Slot]; ok {
			return bad("coordinators %d and %d both have log slot %d", other, c.ID, c.Slot)
		}
		inUse[c.Slot] = c.ID
		for b := range l.Blades {
			if _, ok := rows[rowOf{c.Slot / l.logsPerSegment(), rdma.BladeID(b)}]; !ok && l.Blades[b].State == BladeUp {
				return bad("coordinator %d: its log slot %d has no segment on blade %d", c.ID, c.Slot, b)
			}
		}
	}
	return nil
}

// maxBlades bounds the number of blades of a database.
const maxBlades = 1 << 12
