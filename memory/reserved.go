package memory

import (
	"errors"
	"slices"
	"strings"

	"txnode/memory/layout"
)

// discarded are those whose extents this process gives back. The caller holds the lock.
func (s *allocation) discarded() (mine []Reservation) {
	i, _ := s.layout.FindReserved(layout.PrefixDiscarded)
	for ; i < len(s.layout.Reserved) && strings.HasPrefix(s.layout.Reserved[i].Name, layout.PrefixDiscarded); i++ {
		if r := s.layout.Reserved[i]; s.mine(r.Addr.Segment()) && s.extents.byID[r.Addr.Segment()] != nil {
			mine = append(mine, r)
		}
	}
	return mine
}

// reclaim gives back the extents of this process that were discarded.
func (s *allocation) reclaim() error {
	s.mu.Lock()
	n := len(s.discarded())
	s.mu.Unlock()
	if n == 0 {
		return nil
	}
	if err := s.EndKeys(); err != nil {
		return err
	}
	return s.update(func() error {
		if err := s.writable(); err != nil {
			return err
		}
		if s.unrevoked.Load() || s.layout.Epoch != s.view.Load().Epoch {
			return nil // keys of before open blades, perhaps again, or the epoch has not begun yet: later
		}
		mine, l := s.discarded(), s.layout.Clone()
		if len(mine) == 0 {
			return nil // another session was first
		}
		for _, r := range mine {
			l.Release(r.Name)
		}
		if err := s.commit(layout.Difference(layout.EntriesOfReserved(s.layout.Reserved), layout.EntriesOfReserved(l.Reserved))...); err != nil {
			return err
		}
		s.layout.Reserved = l.Reserved
		var errs []error
		for _, r := range mine {
			errs = append(errs, s.freeExtent(r.Addr, r.Size))
		}
		return errors.Join(errs...)
	})
}

// ChangeReserved lets change adapt the reservations of a copy of the layout, and nothing else, and records them in the catalog in one
// step. process is the number of this process, as Process returns it; it is registered. An error of change, or of the catalog, means
// that nothing happened. change is called under the lock of the space, and again if another process has changed the catalog
// meanwhile: it counts only the last time.
func (s *allocation) ChangeReserved(change func(l *Layout, process uint32) error) error {
	return s.update(func() error {
		if err := s.writable(); err != nil {
			return err
		}
		if err := s.enroll(); err != nil {
			return err
		}
		l := s.layout.Clone()
		if err := change(l, s.process); err != nil {
			return err
		}
		if err := l.ValidateReserved(); err != nil {
			return err
		}
		changes := layout.Difference(layout.EntriesOfReserved(s.layout.Reserved), layout.EntriesOfReserved(l.Reserved))
		if len(changes) == 0 {
			return nil
		}
		if err := s.commit(changes...); err != nil {
			return err
		}
		s.layout.Reserved = l.Reserved
		return nil
	})
}

// copied returns which of n bytes at an offset of an index segment a copy needs, as offsets and lengths: all but reserved extents.
func (s *store) copied(id SegmentID, off, n uint32) [][2]uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	out, end := [][2]uint32{{off, n}}, off+n
	unit := layout.Granule(s.layout.SegmentSize)
	for _, r := range s.layout.Reserved {
		if r.Size == 0 || r.Addr.Segment() != id {
			continue
		}
		from, to := max(off, r.Addr.Offset()), min(end, r.Addr.Offset()+granulesFor(r.Size, unit)*unit)
		for i := range out {
			x, y := out[i][0], out[i][0]+out[i][1]
			if from >= to || from < x || to > y {
				continue
			}
			out = slices.Replace(out, i, i+1, [2]uint32{x, from - x}, [2]uint32{to, y - to})
			break
		}
	}
	return out
}
