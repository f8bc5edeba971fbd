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
	if had := l.Redundancy(); int(b) < len(l.Blades) {
		if n := l.Without(b).Redundancy().Lost - had.Lost; n > 0 {
			return fmt.Sprintf("restore a backup, or give up for ever what is on no other blade, %d of %d segments (ReplaceLost; txnode check --replace-lost)", n, had.Segments)
		}
	}
	return "have its copies built anew from those of the other blades (ReplaceLost; txnode check --replace-lost)"
}

// unburied says what to do about a region that is missing of a database that Bury refuses.
const unburied = "restore a backup: the database has promised to survive a loss of power, and was not closed, for which it needs all of its blades"
