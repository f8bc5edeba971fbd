package layout

import (
	"fmt"

	"txnode/rdma"
)

// Validate checks the invariants of a layout: numbers in range, the copies of a
// segment on distinct blades, no two segments in one place, every log slot in
// use backed by segments. Its errors are ErrLayout.
func (l *Layout) Validate() error {
	if err := l.Geometry.Validate(); err != nil {
		return unsound("geometry: %v", err)
	}
	if len(l.Blades) <= l.Backups || len(l.Blades) > MaxBlades {
		return unsound("%d blades for %d backups", len(l.Blades), l.Backups)
	}
	if l.Epoch == 0 || l.NextCoordinator == 0 || l.NextCoordinator > MaxCoordinators {
		return unsound("epoch %d, next coordinator %d", l.Epoch, l.NextCoordinator)
	}
	if l.Opened > l.Epoch {
		return unsound("opened in epoch %d, and now is epoch %d", l.Opened, l.Epoch)
	}
	for i, b := range l.Blades {
		if b.Used > l.Slots(rdma.BladeID(i)) || b.State >= numBladeStates {
			return unsound("blade %d of %d bytes: %d segments placed, state %d", i, b.Size, b.Used, b.State)
		}
		if len(b.Domain) > MaxDomain {
			return unsound("blade %d is in a domain with a name of %d bytes: at most %d are possible",
				i, len(b.Domain), MaxDomain)
		}
	}
	err := l.validateSegments()
	if err == nil {
		err = l.validateOwners()
	}
	if err == nil {
		err = l.validateTables()
	}
	if err == nil {
		err = l.ValidateReserved()
	}
	if err == nil {
		err = l.validateCoordinators()
	}
	return err
}

func unsound(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrLayout, fmt.Sprintf(format, args...))
}

// logPlace is a row of log segments on one blade.
type logPlace struct {
	row   uint32
	blade rdma.BladeID
}

func (l *Layout) validateSegments() error {
	if len(l.Segments) == 0 || l.Segments[0] != (Segment{}) || len(l.Segments) > MaxSegments {
		return unsound("%d segments, or segment 0 in use", len(l.Segments))
	}
	taken := make(map[Replica]SegmentID, len(l.Segments))
	rows := map[logPlace]SegmentID{}
	nextRow := uint32(0) // rows are added one after the other
	for i := 1; i < len(l.Segments); i++ {
		s := &l.Segments[i]
		most := l.mostCopies()
		if s.Kind == KindLog {
			most = 1
		}
		if s.Kind == 0 || s.Kind >= numKinds || s.Class >= NumClasses || s.Kind == KindBlocks &&
			s.Class.Size() > l.SegmentSize ||
			s.Row > nextRow || s.Placement.Written() > most ||
			s.Placement.Written()+int(s.Placement.Lost) > MaxReplicas || s.Placement.N == 0 &&
			s.Placement.Building > 0 {
			return unsound("segment %d: %v, class %d, row %d, copies: %d, %d being built, %d lost",
				i, s.Kind, s.Class, s.Row,
				s.Placement.N, s.Placement.Building, s.Placement.Lost)
		}
		if s.Vacant &&
			*s != (Segment{Kind: KindBlocks, Class: s.Class, Backed: s.Backed, Vacant: true, Freed: s.Freed}) {
			return unsound("segment %d, of %v, has gone back, and has %d copies, and owner %d",
				i, s.Kind, s.Placement.Written(), s.Owner)
		}
		if (s.Leaving || s.Freed > 0) && s.Kind != KindBlocks || s.Leaving && s.Placement.Building > 0 {
			return unsound("segment %d, of %v, is about to go back: %v, with %d copies being built; its number was "+
				"used before: %v", i, s.Kind, s.Leaving, s.Placement.Building, s.Freed > 0)
		}
		if s.Backed%PartUnit != 0 || s.Backed >= l.SegmentSize {
			return unsound("segment %d: %d of %d bytes have memory", i, s.Backed, l.SegmentSize)
		}
		if s.Kind == KindLog && s.Row == nextRow {
			nextRow++
		}
		for j, r := range s.Placement.Replicas[:s.Placement.Written()] {
			if err := l.validateReplica(r); err != nil {
				return unsound("segment %d, copy %d: %v", i, j, err)
			}
			if other, ok := taken[r]; ok {
				return unsound("segments %d and %d are both at offset %#x of blade %d", other, i, r.Base, r.Blade)
			}
			taken[r] = SegmentID(i)
			for k := range j {
				if s.Placement.Replicas[k].Blade == r.Blade {
					return unsound("segment %d: copies %d and %d are both on blade %d", i, k, j, r.Blade)
				}
			}
			if s.Kind == KindLog {
				at := logPlace{s.Row, r.Blade}
				if other, ok := rows[at]; ok {
					return unsound("segments %d and %d are both log row %d of blade %d", other, i, s.Row, r.Blade)
				}
				rows[at] = SegmentID(i)
			}
		}
	}
	return l.validatePlaces(taken)
}

func (l *Layout) validateReplica(r Replica) error {
	if int(r.Blade) >= len(l.Blades) {
		return fmt.Errorf("on blade %d of %d", r.Blade, len(l.Blades))
	}
	used := l.Blades[r.Blade].Used
	if r.Base < HeaderArea || (r.Base-HeaderArea)%uint64(l.SegmentSize) != 0 || r.Base >= l.Base(used) {
		return fmt.Errorf("at offset %#x of blade %d, which has handed out %d segments", r.Base, r.Blade, used)
	}
	return nil
}

// ValidRoot reports whether the root of a table may be where it is.
func (l *Layout) ValidRoot(t *Table) bool {
	root, kind := t.Root, KindIndex
	if t.InBlocks() {
		kind = KindBlocks
	}
	return root == 0 || root>>AddrBits == 0 && int(root.Segment()) < len(l.Segments) &&
		l.Segments[root.Segment()].Kind == kind && !l.Segments[root.Segment()].Gone() && root.Offset() < l.SegmentSize
}

func (l *Layout) validateTables() error {
	names := map[string]bool{}
	for i, t := range l.Tables {
		if int(t.ID) != i+1 || t.Name == "" || len(t.Name) > MaxTableName || t.State == TableLive && names[t.Name] {
			return unsound("table %d: number %d, name %q", i+1, t.ID, t.Name)
		}
		if !l.ValidRoot(&t) {
			return unsound("table %q: its root %v is in no segment of its kind", t.Name, t.Root)
		}
		if t.Nodes == 0 && t.MaxKey > 0 || t.Nodes >= NumClasses {
			return unsound("table %q: nodes of class %d for keys of %d bytes", t.Name, t.Nodes, t.MaxKey)
		}
		if t.State == TableDropped && t.Root != 0 || t.State > TableDropped {
			return unsound("table %q: state %d, root %v", t.Name, t.State, t.Root)
		}
		names[t.Name] = names[t.Name] || t.State == TableLive
	}
	return nil
}

// LogRows is the number of rows of log segments.
func (l *Layout) LogRows() uint32 {
	n := uint32(0)
	for i := range l.Segments {
		if l.Segments[i].Kind == KindLog {
			n = max(n, l.Segments[i].Row+1)
		}
	}
	return n
}

func (l *Layout) validateCoordinators() error {
	inUse := map[uint32]uint32{}
	last := l.LogRows() * l.LogsPerSegment()
	for i, c := range l.Coordinators {
		if c.ID == 0 || c.ID >= l.NextCoordinator || i > 0 && c.ID <= l.Coordinators[i-1].ID {
			return unsound("coordinator %d, the next is %d", c.ID, l.NextCoordinator)
		}
		if other, ok := inUse[c.Slot]; ok {
			return unsound("coordinators %d and %d both have log slot %d", other, c.ID, c.Slot)
		}
		inUse[c.Slot] = c.ID
		if c.Slot >= last {
			return unsound("coordinator %d: it has log slot %d of %d", c.ID, c.Slot, last)
		}
	}
	return nil
}
