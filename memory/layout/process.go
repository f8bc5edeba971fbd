package layout

import (
	"encoding/binary"
	"slices"
)

// CutFault is why a transaction could not keep what it has replaced.
type CutFault uint8

// Faults.
const (
	CutRoom   CutFault = iota + 1 // the blades are full
	CutLarge                      // with what it replaces the transaction would be too large
	CutDamage                     // no copy of what it replaces is intact
	CutTable                      // the table in which it would keep that cannot be used
	cutFaults
)

// ProcessEntry is what the catalog knows of a process that has joined a database.
//
// Invariants: 0 < ID < Layout.NextCoordinator; Segment.Owner is the ID of an entry, or of one that
// is gone, of segments of blocks and of indexes of a shared database, else 0.
type ProcessEntry struct {
	ID          uint32
	Until, Term int64 // when others may end it: as those of CoordinatorEntry
	// Asks numbers what the process has asked all to rest for last, by Space.Ask; 0: nothing. It
	// numbers attempts: others may have heard of one that is in doubt, or is taken back.
	Asks uint64
}

// Resigned reports whether the process has closed the database, and its registration is to be
// ended in a new epoch.
func (p *ProcessEntry) Resigned() bool { return p.Until == Resigned }

// Resigned is ProcessEntry.Until of a process that has closed the database.
const Resigned = 1

// EntryOfProcess is the entry of a process.
func EntryOfProcess(p ProcessEntry) Entry {
	v := binary.LittleEndian.AppendUint64(nil, uint64(p.Until))
	v = binary.LittleEndian.AppendUint64(v, uint64(p.Term))
	return seal(KeyOf(prefixProcess, p.ID), entryProcess, binary.LittleEndian.AppendUint64(v, p.Asks))
}

func decodeProcess(d *payload) ProcessEntry {
	p := ProcessEntry{Until: int64(d.u64()), Term: int64(d.u64()), Asks: d.u64()}
	d.fail = d.fail || p.Until < 0 || p.Term < 0
	return p
}

// Process is what is known of a process that has joined, or nil.
func (l *Layout) Process(id uint32) *ProcessEntry {
	i, ok := slices.BinarySearchFunc(l.Processes, id, func(p ProcessEntry, id uint32) int {
		return int(p.ID) - int(id)
	})
	if !ok {
		return nil
	}
	return &l.Processes[i]
}

// Asked reports whether a process has asked all to rest since an earlier layout.
func (l *Layout) Asked(old *Layout) bool {
	return slices.ContainsFunc(l.Processes, func(p ProcessEntry) bool {
		was := old.Process(p.ID)
		return p.Asks > 0 && (was == nil || was.Asks != p.Asks)
	})
}

// Owns reports whether a process hands out what is free in a segment.
func (l *Layout) Owns(process uint32, g *Segment) bool {
	return g.Owner == process && (l.Process(process) != nil || !l.Shared)
}

// TakeAll makes a process the only one, which owns all segments of indexes and is alone
// with the database.
func (l *Layout) TakeAll(p ProcessEntry) {
	l.Sights = nil
	l.Processes, l.Rights = []ProcessEntry{p}, []Right{{Of: RightAlone, Process: p.ID}}
	l.NextCoordinator = p.ID + 1
	for i := range l.Segments {
		if g := &l.Segments[i]; g.Kind == KindIndex {
			g.Owner = p.ID
		}
	}
}

// validateOwners checks the invariants of ProcessEntry.
func (l *Layout) validateOwners() error {
	if len(l.Processes) > 0 && !l.Shared {
		return unsound("%d processes have joined, and it is not shared", len(l.Processes))
	}
	for i, p := range l.Processes {
		if p.ID == 0 || p.ID >= l.NextCoordinator || i > 0 && p.ID <= l.Processes[i-1].ID || p.Until < 0 || p.Term < 0 {
			return unsound("process %d, until %d; the next number is %d", p.ID, p.Until, l.NextCoordinator)
		}
	}
	for i := range l.Segments {
		s := &l.Segments[i]
		if owned := l.Shared && (s.Kind == KindIndex || s.Kind == KindBlocks) && !s.Vacant; owned != (s.Owner != 0) ||
			s.Owner >= l.NextCoordinator {
			return unsound("segment %d, of %v: its owner is %d, and the next number is %d",
				i, s.Kind, s.Owner, l.NextCoordinator)
		}
	}
	for i, m := range l.Rights {
		if l.Process(m.Process) == nil || m.Of > lastRight || i > 0 && m.Of <= l.Rights[i-1].Of {
			return unsound("process %d has the right %d, and is not registered, or another one has it, too",
				m.Process, m.Of)
		}
		if (m.Of == RightBackup) != (m.Cut > 0) || m.Cut > l.NextCoordinator || m.Fault >= cutFaults || m.Cut == 0 &&
			m.Fault > 0 {
			return unsound("process %d has the right %d with cut %d and fault %d; the next number is %d",
				m.Process, m.Of, m.Cut, m.Fault, l.NextCoordinator)
		}
	}
	return nil
}
