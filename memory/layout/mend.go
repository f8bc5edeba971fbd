package layout

import (
	"encoding/binary"
	"slices"
)

// Mend is a right that one process at a time has among those that have joined: to recover the index of a table, or what the
// constants below are of. That of a process that is gone ends with its registration, in a new epoch.
//
// Invariant: 0 < Cut <= Layout.NextCoordinator of MendBackup; Cut and Fault are 0 of all others.
type Mend struct {
	Of      uint32 // a table, MendAlone, MendCopies, MendBackup, MendSweep, MendLoad or MendDrop
	Process uint32
	Cut     uint32   // see cut.go
	Fault   CutFault // why the backup has failed; 0: it has not
}

// What a Mend is of, beside the indexes of tables.
const (
	// MendAlone is to be alone with the database: while a process has it, none joins.
	MendAlone = 0
	// MendCopies is to take in blades that are back, and to build copies.
	MendCopies = 1 << 16
	// MendBackup is to make a backup: see cut.go.
	MendBackup = MendCopies + 1
	// MendSweep is to sweep for all processes: see Layout.Unswept. Two that sweep do each other no harm.
	MendSweep = MendBackup + 1
	// MendLoad is to fill tables before others use them: a program's own business, as a benchmark has it.
	MendLoad = MendSweep + 1
	// MendDrop is to drop tables: no process has it and MendBackup at once.
	MendDrop = MendLoad + 1
	lastMend = MendDrop
)

// EntryOfMend is the entry of a right.
func EntryOfMend(m Mend) Entry {
	p := binary.LittleEndian.AppendUint32(nil, m.Process)
	if m.Of == MendBackup {
		p = append(binary.LittleEndian.AppendUint32(p, m.Cut), byte(m.Fault))
	}
	return seal(KeyOf(PrefixMend, m.Of), entryMend, p)
}

func decodeMend(d *payload, of uint32) Mend {
	m := Mend{Of: of, Process: d.u32()}
	if of == MendBackup {
		m.Cut, m.Fault = d.u32(), CutFault(d.u8())
	}
	return m
}

// FindMend is where a right is, or would be.
func (l *Layout) FindMend(of uint32) (int, bool) {
	return slices.BinarySearchFunc(l.Mends, of, func(m Mend, of uint32) int { return int(m.Of) - int(of) })
}

// Mender is the process that has a right; 0: none.
func (l *Layout) Mender(of uint32) uint32 {
	if i, ok := l.FindMend(of); ok {
		return l.Mends[i].Process
	}
	return 0
}

// SetMend gives a right to a process, whichever has had it.
func (l *Layout) SetMend(m Mend) {
	l.DropMend(m.Of)
	i, _ := l.FindMend(m.Of)
	l.Mends = slices.Insert(l.Mends, i, m)
}

// DropMend ends a right.
func (l *Layout) DropMend(of uint32) {
	if i, ok := l.FindMend(of); ok {
		l.Mends = slices.Delete(l.Mends, i, i+1)
	}
}
