package layout

import (
	"encoding/binary"
	"slices"
)

// Right is a right that one process at a time has among those that have joined: to recover the
// index of a table, or what the constants below are of. That of a process that is gone ends with
// its registration, in a new epoch.
//
// Invariant: 0 < Cut <= Layout.NextCoordinator of RightBackup; Cut and Fault are 0 of all others.
type Right struct {
	Of      uint32 // a table, RightAlone, RightCopies, RightBackup, RightSweep, RightLoad or RightDrop
	Process uint32
	Cut     uint32   // see cut.go
	Fault   CutFault // why the backup has failed; 0: it has not
}

// What a Right is of, beside the indexes of tables.
const (
	// RightAlone is to be alone with the database: while a process has it, none joins.
	RightAlone = 0
	// RightCopies is to take in blades that are back, and to build copies.
	RightCopies = 1 << 16
	// RightBackup is to make a backup: see cut.go.
	RightBackup = RightCopies + 1
	// RightSweep is to sweep for all processes: see Layout.Unswept. Two that sweep do
	// each other no harm.
	RightSweep = RightBackup + 1
	// RightLoad is to fill tables before others use them: a program's own business, as a benchmark
	// has it.
	RightLoad = RightSweep + 1
	// RightDrop is to drop tables: no process has it and RightBackup at once.
	RightDrop = RightLoad + 1
	lastRight = RightDrop
)

// EntryOfRight is the entry of a right.
func EntryOfRight(m Right) Entry {
	p := binary.LittleEndian.AppendUint32(nil, m.Process)
	if m.Of == RightBackup {
		p = append(binary.LittleEndian.AppendUint32(p, m.Cut), byte(m.Fault))
	}
	return seal(KeyOf(PrefixRight, m.Of), entryRight, p)
}

func decodeRight(d *payload, of uint32) Right {
	m := Right{Of: of, Process: d.u32()}
	if of == RightBackup {
		m.Cut, m.Fault = d.u32(), CutFault(d.u8())
	}
	return m
}

// FindRight is where a right is, or would be.
func (l *Layout) FindRight(of uint32) (int, bool) {
	return slices.BinarySearchFunc(l.Rights, of, func(m Right, of uint32) int { return int(m.Of) - int(of) })
}

// Holder is the process that has a right; 0: none.
func (l *Layout) Holder(of uint32) uint32 {
	if i, ok := l.FindRight(of); ok {
		return l.Rights[i].Process
	}
	return 0
}

// SetRight gives a right to a process, whichever has had it.
func (l *Layout) SetRight(m Right) {
	l.DropRight(m.Of)
	i, _ := l.FindRight(m.Of)
	l.Rights = slices.Insert(l.Rights, i, m)
}

// DropRight ends a right.
func (l *Layout) DropRight(of uint32) {
	if i, ok := l.FindRight(of); ok {
		l.Rights = slices.Delete(l.Rights, i, i+1)
	}
}
