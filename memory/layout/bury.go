package layout

import (
	"fmt"

	"txnode/rdma"
)

// Bury declares blades of a database lost that no process has open, in one change of its catalog.
// [Space.Demise] does the same while a database is open. Backups are promoted. Segments whose last
// copy was there are lost (LostError). The next opening decides transactions of coordinators that
// were not closed, as after the loss of a blade, and takes the blades in again, blank, if they
// answer. Bury does not look at the blades: their content is given up.
//
// ErrLost: no blade would be left, and nothing has changed. ErrLayout: the database was not closed,
// and has promised to survive a loss of power, which takes all of its blades.
func Bury(cat Catalog, blades ...rdma.BladeID) error {
	l, rev, err := Load(cat)
	if err != nil {
		return err
	}
	if l == nil {
		return fmt.Errorf("%w: catalog %s is empty", ErrNotFormatted, cat.Name())
	}
	if l.Checkpoint != 0 {
		return fmt.Errorf("%w: catalog %s: %s", ErrLayout, cat.Name(), unburied)
	}
	old := l.Entries()
	if err := l.Bury(blades); err != nil {
		return err
	}
	if l.Epoch == MaxEpoch {
		return fmt.Errorf("%w: of epochs: %s", ErrExhausted, Anew)
	}
	l.Epoch++
	for b := range l.Blades {
		l.Blades[b].Key = 0 // those are of the epoch before; Open has others granted
	}
	if err := l.Validate(); err != nil {
		return err
	}
	if _, err := cat.Apply(rev, Difference(old, l.Entries())); err != nil {
		return fmt.Errorf("memory: catalog %s: %w", cat.Name(), err)
	}
	return nil
}

// Trust has the next opening take the regions of blades for the newest, whatever they are copies of, in one change of the catalog: an operator's word.
// What was committed since they were made is given up, as far as it has no other copy. Nothing else says so: records may be those of before, or missing.
// ErrDown: a blade counts as lost already, and is taken in blank.
func Trust(cat Catalog, blades ...rdma.BladeID) error {
	l, rev, err := Load(cat)
	if err != nil {
		return err
	}
	if l == nil {
		return fmt.Errorf("%w: catalog %s is empty", ErrNotFormatted, cat.Name())
	}
	old := l.Entries()
	for _, b := range blades {
		if int(b) >= len(l.Blades) {
			return fmt.Errorf("memory: blade %d of %d: %w", b, len(l.Blades), rdma.ErrBladeDown)
		}
		if l.Blades[b].State == BladeDown {
			return &BladeError{Blade: b, Name: fmt.Sprintf("blade %d", b), Err: ErrDown, What: "taking what it has for the newest"}
		}
		l.Blades[b].Told = 0
	}
	l.Unswept, l.Hollow, l.Spared, l.Loose = true, true, false, true // slots may lead to blocks that were free
	if _, err := cat.Apply(rev, Difference(old, l.Entries())); err != nil {
		return fmt.Errorf("memory: catalog %s: %w", cat.Name(), err)
	}
	return nil
}

// Bury declares blades lost that no process uses, and their transactions undecided.
func (l *Layout) Bury(blades []rdma.BladeID) error {
	for _, b := range blades {
		switch {
		case int(b) >= len(l.Blades):
			return fmt.Errorf("memory: blade %d of %d: %w", b, len(l.Blades), rdma.ErrBladeDown)
		case l.Blades[b].State == BladeDown:
			continue
		case l.UpBlades() == 1:
			return &BladeError{Blade: b, Name: fmt.Sprintf("blade %d", b), Err: ErrLost, What: "it is the last one, and no blade would be left"}
		}
		l.TakeDown(b)
	}
	l.Hollow, l.Spared = l.Unswept, false
	for i := range l.Coordinators {
		c := &l.Coordinators[i]
		c.Recovering, c.Promoted, c.By, c.Until, c.Term = true, true, 0, 0, 0
	}
	return nil
}

// Remedy says what to do about a blade's region that is missing, blank or out of date, and cannot be brought back.
func (l *Layout) Remedy(b rdma.BladeID) string {
	if l.Checkpoint != 0 {
		return unburied
	}
	how := "(ReplaceLost; txnode check --replace-lost)"
	if l.Shared {
		how = "(txnode cluster recover)"
	}
	if n := l.Last(b); n > 0 {
		return fmt.Sprintf("restore a backup, or give up for ever what is on no other blade, %d of %d segments %s", n, l.Redundancy().Segments, how)
	}
	return "have its copies built anew from those of the other blades " + how
}

// Last is how many segments have their last copies on blades.
func (l *Layout) Last(blades ...rdma.BladeID) int {
	for _, b := range blades {
		if int(b) >= len(l.Blades) {
			return 0
		}
	}
	return l.Without(blades...).Redundancy().Lost - l.Redundancy().Lost
}

// StaleRemedy says what to do about blades whose regions are old copies, or blank, the first one an old copy.
func (l *Layout) StaleRemedy(blades ...rdma.BladeID) string {
	switch {
	case !l.Shared:
		return "bring the newest back, or all files of the database as they were at one moment, or move it away and " + l.Remedy(blades[0])
	case l.Last(blades...) == 0 && len(blades) < l.UpBlades():
		return "bring the newest back, or open the database with a program, which has its copies built anew from those of the other blades"
	}
	return fmt.Sprintf("bring the newest back, since %d of %d segments have no other copy; or give up what is not there: txnode cluster recover, and to take what it has for the newest --trust %d",
		l.Last(blades...), l.Redundancy().Segments, blades[0])
}

// unburied says what to do about a region that is missing of a database that Bury refuses.
const unburied = "restore a backup: the database has promised to survive a loss of power, and was not closed, for which it needs all of its blades"
