package memory

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"txnode/memory/layout"
)

// discarded are those whose extents this process gives back. The caller holds the lock.
func (s *allocation) discarded() (mine []layout.Reservation) {
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
	var given []Extent
	err := s.update(func() error {
		given = nil
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
		var errs []error
		for _, r := range mine {
			l.Release(r.Name)
			x := s.extentAt(r.Addr)
			if x.Size != granulesFor(r.Size, layout.Granule(s.opts.SegmentSize))*layout.Granule(s.opts.SegmentSize) {
				errs = append(errs, fmt.Errorf("memory: no extent of %d bytes starts at %v, which was reserved",
					r.Size, r.Addr))
				continue
			}
			given = append(given, x)
		}
		if err := s.commit(layout.Difference(layout.EntriesOfReserved(s.layout.Reserved),
			layout.EntriesOfReserved(l.Reserved))...); err != nil {
			return err
		}
		s.layout.Reserved = l.Reserved
		return errors.Join(append(errs, s.freeOffered(given...))...)
	})
	if err != nil { // of an answer that was lost
		s.mu.Lock()
		defer s.mu.Unlock()
		s.extents.offered = append(s.extents.offered, given...)
	}
	return err
}

// ChangeReserved lets change adapt the reservations of a copy of the layout, and nothing else, and
// records them in the catalog in one step. process is the number of this process, as Process
// returns it; it is registered. An error of change, or of the catalog, means that nothing happened.
// change is called under the lock of the space, and again if another process has changed the
// catalog meanwhile: it counts only the last time.
func (s *allocation) ChangeReserved(change func(l *layout.Layout, process uint32) error) error {
	return s.changeReserved(Extent{}, change)
}

// ReserveExtent is ChangeReserved for a change that reserves an extent of NewExtent. From then on
// the extent is not the caller's: it belongs to the reservation that the catalog has of it, also if
// the catalog has made the change and its answer was lost. If the catalog has none, the extent is
// given back. ErrExtentGone: another process has taken this one for dead, and had the segment
// since; or it has discarded the reservation that an attempt of this call had made. As long as the
// catalog cannot be asked, the extent stays, until a later call of this method, NewExtent,
// SettleExtents or Close.
func (s *allocation) ReserveExtent(x Extent, change func(l *layout.Layout, process uint32) error) error {
	err := s.changeReserved(x, change)
	s.mu.Lock()
	if err == nil { // the layout says what the catalog does
		defer s.mu.Unlock()
		return s.freeOffered(x)
	}
	s.extents.offered = append(s.extents.offered, x)
	s.mu.Unlock()
	if later := s.settleOffered(); later != nil && !errors.Is(err, later) {
		return fmt.Errorf("%w; the extent at %v stays until the catalog says whether it is reserved: %w",
			err, x.Addr, later)
	}
	return err
}

// settleOffered asks the catalog which extents are reserved whose reservations are in doubt, and
// gives back the others.
func (s *allocation) settleOffered() error {
	s.mu.Lock()
	n := len(s.extents.offered)
	s.mu.Unlock()
	if n == 0 {
		return nil
	}
	var asked []Extent // whose changes are not on their way any more: the layout was loaded since
	return s.update(func() error {
		if err := s.writable(); err != nil {
			return err
		}
		if asked == nil || s.doubt != nil {
			asked = slices.Clone(s.extents.offered)
			if err := s.agree(); err != nil {
				return err
			}
			return s.reload()
		}
		if err := s.freeOffered(asked...); err != nil {
			return err
		}
		s.extents.offered = slices.DeleteFunc(s.extents.offered, func(x Extent) bool {
			return slices.Contains(asked, x)
		})
		return nil
	})
}

// freeOffered gives back those of the extents of which the layout has no reservation. The
// caller holds the lock.
func (s *allocation) freeOffered(offered ...Extent) error {
	for _, x := range offered {
		if references(s.layout, x) > 0 {
			continue
		}
		if _, err := s.freeExtent(x); err != nil {
			return err
		}
	}
	return nil
}

// references is how many reservations have an extent, those that were discarded, too.
func references(l *layout.Layout, x Extent) (n int) {
	for i := range l.Reserved {
		if r := &l.Reserved[i]; r.Size > 0 && r.Addr == x.Addr {
			n++
		}
	}
	return n
}

// changeReserved is ChangeReserved for a change that may reserve an extent.
func (s *allocation) changeReserved(x Extent, change func(l *layout.Layout, process uint32) error) error {
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
		if n := references(l, x); n > 1 || n > references(s.layout, x) && !s.holds(x) {
			return fmt.Errorf("%w: that at %v", ErrExtentGone, x.Addr)
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

// copied returns which of n bytes at an offset of an index segment a copy needs, as offsets and
// lengths: all but reserved extents.
func (s *store) copied(id layout.SegmentID, off, n uint32) [][2]uint32 {
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
