package layout

import (
	"fmt"
	"slices"

	"txnode/rdma"
)

// DeclareDead declares blades of a database lost that no process has open, in one change of its
// catalog. [Space.DeclareDead] does the same while a database is open. Backups are promoted.
// Segments whose last copy was there are lost (LostError). The next opening decides transactions of
// coordinators that were not closed, as after the loss of a blade, and takes the blades in again,
// blank, if they answer. DeclareDead does not look at the blades: their content is given up.
//
// ErrLost: no blade would be left, and nothing has changed. ErrLayout: the database was not closed,
// and has promised to survive a loss of power, which takes all of its blades.
func DeclareDead(cat Catalog, blades ...rdma.BladeID) error { return GiveUp(cat, nil, blades...) }

// Trust has the next opening take the regions of blades for the newest, whatever they are copies
// of, in one change of the catalog: an operator's word. What was committed since they were made,
// and has no other copy, is given up: nothing else says so. Of a segment that has another full
// copy, which is neither on these blades nor on those that are away, their copies are given up, and
// built anew. Of one that has copies on several of these blades, that on the first of them stays.
// Transactions of coordinators that were not closed are decided as after the loss of a blade.
//
// ErrDown: a blade counts as lost already, and is taken in blank. ErrLayout: no segment has
// its last copy there, or a process has had the database open since it was as was says;
// nothing has changed then.
func Trust(cat Catalog, was *Layout, away []rdma.BladeID, blades ...rdma.BladeID) error {
	return offline(cat, was, func(l *Layout) error {
		for _, b := range blades {
			switch {
			case int(b) >= len(l.Blades):
				return fmt.Errorf("memory: blade %d of %d: %w", b, len(l.Blades), rdma.ErrBladeDown)
			case l.Blades[b].State == BladeDown:
				return &BladeError{
					Blade: b, Name: fmt.Sprintf("blade %d", b), Err: ErrDown, What: "taking what it has for the newest",
				}
			}
			l.Blades[b].Told = 0
		}
		kept := 0
		for i := range l.Segments {
			if l.Segments[i].Kind != KindLog && l.Segments[i].Placement.trust(blades, away) {
				kept++
			}
		}
		if kept == 0 {
			return fmt.Errorf("%w: all that blades %v have is on others, too: open the database, which has their "+
				"copies built anew", ErrLayout, blades)
		}
		l.undecided()
		// slots may lead to blocks that were free
		l.Unswept, l.Dangling, l.OnlyDamage, l.Leaked = true, true, false, true
		return nil
	})
}

// trust drops the copies on blades that are not needed, or are not the first, and reports whether
// one of them stays.
func (p *Placement) trust(blades, away []rdma.BladeID) bool {
	keep, others := -1, false // in blades
	for _, r := range p.Replicas[:p.N] {
		if i := slices.Index(blades, r.Blade); i < 0 {
			others = others || !slices.Contains(away, r.Blade)
		} else if keep < 0 || i < keep {
			keep = i
		}
	}
	if others {
		keep = -1
	}
	for k := p.Written() - 1; k >= 0; k-- {
		if i := slices.Index(blades, p.Replicas[k].Blade); i >= 0 && (i != keep || k >= int(p.N)) {
			p.dropped(k)
		}
	}
	return keep >= 0
}

// GiveUp is DeclareDead for a database of several processes, of which none was alive when it was as
// was says; nil: it is not compared. ErrLayout: a process has had the database open since, and
// nothing has changed.
func GiveUp(cat Catalog, was *Layout, blades ...rdma.BladeID) error {
	return offline(cat, was, func(l *Layout) error { return l.DeclareDead(blades) })
}

// offline changes the layout of a database that no process has open, in a new epoch.
func offline(cat Catalog, was *Layout, change func(*Layout) error) error {
	l, now, err := Load(cat)
	switch {
	case err != nil:
		return err
	case l == nil:
		return fmt.Errorf("%w: catalog %s is empty", ErrNotFormatted, cat.Name())
	case was != nil && (l.Epoch != was.Epoch || l.NextCoordinator != was.NextCoordinator ||
		!slices.Equal(l.Processes, was.Processes)):
		return fmt.Errorf("%w: catalog %s: a process has had the database open since it was looked at: look again",
			ErrLayout, cat.Name())
	case l.Checkpoint != 0:
		return fmt.Errorf("%w: catalog %s: %s", ErrLayout, cat.Name(), needsAllBlades)
	}
	old := l.Entries()
	if err := change(l); err != nil {
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
	if _, err := cat.Apply(now, Difference(old, l.Entries())); err != nil {
		return fmt.Errorf("memory: catalog %s: %w", cat.Name(), err)
	}
	return nil
}

// DeclareDead declares blades lost that no process uses, and their transactions undecided.
func (l *Layout) DeclareDead(blades []rdma.BladeID) error {
	for _, b := range blades {
		switch {
		case int(b) >= len(l.Blades):
			return fmt.Errorf("memory: blade %d of %d: %w", b, len(l.Blades), rdma.ErrBladeDown)
		case l.Blades[b].State == BladeDown:
			continue
		case l.UpBlades() == 1:
			return &BladeError{
				Blade: b, Name: fmt.Sprintf("blade %d", b), Err: ErrLost,
				What: "it is the last one, and no blade would be left",
			}
		}
		l.TakeDown(b)
	}
	l.Dangling, l.OnlyDamage = l.Unswept, false
	l.undecided()
	return nil
}

// undecided has the transactions of coordinators that were not closed decided as after
// the loss of a blade.
func (l *Layout) undecided() {
	for i := range l.Coordinators {
		c := &l.Coordinators[i]
		c.Recovering, c.Promoted, c.By, c.Until, c.Term = true, true, 0, 0, 0
	}
}

// Remedy says what to do about a blade's region that is missing, blank or out of date, and
// cannot be brought back.
func (l *Layout) Remedy(b rdma.BladeID) string {
	if l.Checkpoint != 0 {
		return needsAllBlades
	}
	how := "(ReplaceLost; txnode check --replace-lost)"
	if l.Shared {
		how = "(txnode cluster recover)"
	}
	if n := l.Last(b); n > 0 {
		return fmt.Sprintf("restore a backup, or give up for ever what is on no other blade, %d of %d segments %s",
			n, l.Redundancy().Segments, how)
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

// StaleRemedy says what to do about blades whose regions are old copies, or blank, the
// first one an old copy.
func (l *Layout) StaleRemedy(blades ...rdma.BladeID) string {
	switch {
	case !l.Shared:
		return "bring the newest back, or all files of the database as they were at one moment, or move it away and " +
			l.Remedy(blades[0])
	case l.Last(blades...) == 0 && len(blades) < l.UpBlades():
		return "bring the newest back, or open the database with a program, which has its copies built anew from " +
			"those of the other blades"
	}
	return fmt.Sprintf("bring the newest back, since %d of %d segments have no other copy; or give up what is not "+
		"there: txnode cluster recover, and to take what it has for the newest --trust %d",
		l.Last(blades...), l.Redundancy().Segments, blades[0])
}

// needsAllBlades says what to do about a region that is missing of a database that DeclareDead
// refuses.
const needsAllBlades = "restore a backup: the database has promised to survive a loss of power, and was not closed, " +
	"for which it needs all of its blades"

// Losses are what is given up with blades.
type Losses struct {
	Segments, Of int      // of data: those that have no other copy, and all that have one
	Bytes        uint64   // of memory that these take: at most as much data
	Tables       []string // all tables that have records: each may have some there
	Indexes      []string // those of them whose index begins there: none of their records can be found without it
}

// Losses are what is given up with blades.
func (l *Layout) Losses(blades ...rdma.BladeID) (x Losses) {
	without := l.Without(blades...)
	r := l.Redundancy()
	x.Of = r.Segments - r.Lost
	gone := map[SegmentID]bool{}
	for id := range l.Segments {
		s := &l.Segments[id]
		if s.Kind == 0 || s.Kind == KindLog || s.Placement.N == 0 || s.Leaving || without.Segments[id].Placement.N > 0 {
			continue
		}
		gone[SegmentID(id)] = true // of segments there are MaxSegments at most
		x.Segments++
		x.Bytes += uint64(l.Backed(SegmentID(id))) // likewise
	}
	for i := range l.Tables {
		t := &l.Tables[i]
		if t.State != TableLive || t.Root == 0 || x.Segments == 0 {
			continue
		}
		x.Tables = append(x.Tables, t.Name)
		if gone[t.Root.Segment()] {
			x.Indexes = append(x.Indexes, t.Name)
		}
	}
	return x
}
