package memory

import (
	"fmt"
	"slices"

	"txnode/memory/layout"
	"txnode/rdma"
)

// Copies move between blades that are up, while transactions run, in steps of the catalog. Each is
// an epoch of its own:
//
//	Drain    a blade is marked: nothing is placed on it any more, but for logs. Stay takes the
//	         mark back.
//	Build    a segment with a copy on a blade that leaves has one too few (Layout.Missing). It
//	         gets one more,
//	         on another blade. Spread does the same for segments of blades that are fuller than
//	         others.
//	Finish   the new copy is complete: see copier.go. The segment has a copy too many.
//	Settle   the copy that is not needed is dropped.
//	Retire   a blade that leaves has no copies any more, and is down. Its place is vacant
//	         (Layout.Vacant).
//
// The steps find their work in the catalog. Any process can make the next one, and one that stops
// in between loses nothing but time. With two backups, which is as many copies as a segment can
// have, Build drops the copy on the blade that leaves in the same step, and Settle does so with a
// primary: until Finish the segment has two copies.
//
// Why no transaction is lost, whatever it has done when a step is made: a step ends the keys of
// the epoch before, so that its session finds its verbs failed, and has what it had begun
// decided in the new view.
//
//   - A backup is dropped. The log records of the transaction are where they were: the blade is up.
//     It is committed if all copies of the new view have its images, and it was acknowledged only
//     if all copies of the old view did. Else it is undone on all copies of the new view. What is
//     on the dropped copy counts no more.
//   - A primary is dropped. Locks are on the primary alone, and go with it. So this is done as for
//     a blade that has died: by a claim of all coordinators ([ClaimOptions].Change), and no
//     transaction begins before all are decided. A primary is never made a backup: it would keep
//     locks there that no session holds.
//   - A blade retires. With the last copy on it gone, no log record is written there that has to be
//     there: occ writes it to the blades of the copies, and to others that stay. Those of before
//     have been decided by a claim of all coordinators, which the caller makes between the last
//     Settle and Retire.
//
// A place that was given up on a blade that is up is dirty. It is cleared before it is used again,
// by the process that has the right to copy: Reclaim. The catalog says which places are clean.

// Drain marks a blade as leaving, in a new epoch, and begins copies of what it has on others. The
// place of one that is down is vacant then. ErrLayout: fewer than f+1 blades would stay.
// ErrNoSpace: the others have no room for what it has. Nothing has changed then. A blade that
// leaves already is left alone.
func (s *replicas) Drain(b rdma.BladeID) error {
	return s.AdvanceEpoch(func(l *layout.Layout) error {
		if err := s.known(l, b); err != nil {
			return err
		}
		x := &l.Blades[b]
		if x.Leaving {
			return errUnchanged
		}
		x.Leaving = true
		if x.State == layout.BladeDown {
			l.Vacate(b)
			return nil
		}
		if n := l.StayingBlades(); n <= l.Backups {
			return &layout.BladeError{Blade: b, Name: s.opts.bladeName(b), Err: layout.ErrLayout,
				What: fmt.Sprintf("draining it: %d blades would stay, and a segment has %d copies: add a blade before",
					n, l.Backups+1)}
		}
		for id := range l.Segments {
			p := &l.Segments[id].Placement
			for k := p.Written() - 1; k >= int(p.N); k-- {
				if p.Replicas[k].Blade == b {
					p.Remove(k) // it never was a copy
				}
			}
		}
		free := 0
		for o := range l.Blades {
			if l.Stays(o) {
				free += l.Vacancies(rdma.BladeID(o))
			}
		}
		if need := l.Held(b); need > free {
			return s.noSpace(fmt.Sprintf("the %d segments of blade %d", need, b), need, nil)
		}
		_, _ = s.buildMissing(l) // what cannot be begun now is tried again: Build
		return nil
	})
}

// Stay takes back that a blade leaves, in a new epoch. One whose place was vacant is taken in
// as one that has died, as soon as it answers, whatever its size; what it has of this
// database is cleared.
func (s *replicas) Stay(b rdma.BladeID) error {
	return s.AdvanceEpoch(func(l *layout.Layout) error {
		if err := s.known(l, b); err != nil {
			return err
		}
		if !l.Blades[b].Leaving {
			return errUnchanged
		}
		l.Blades[b].Leaving = false
		return nil
	})
}

func (s *store) known(l *layout.Layout, b rdma.BladeID) error {
	if int(b) >= len(l.Blades) {
		return fmt.Errorf("memory: blade %d of %d: %w", b, len(l.Blades), rdma.ErrBladeDown)
	}
	return nil
}

// Spread begins copies, in a new epoch, of segments on blades of which a larger part is taken, on
// those of which less is, so that all are about as full once Settle has dropped the others; and
// returns how many. Without any there is no new epoch. With two backups only backups move. Segments
// that are moving, or whose copies are missing, are left alone.
func (s *replicas) Spread() (n int, err error) {
	err = s.AdvanceEpoch(func(l *layout.Layout) error {
		if err := s.keeps(layout.RightCopies); err != nil {
			return err
		}
		x := s.newBuilder(l)
		copies, primaries := l.HeldBy()
		for _, first := range []bool{true, false} { // primaries first: what they do counts more
			for id := 1; id < len(l.Segments); id++ {
				s.spread(x, layout.SegmentID(id), copies, primaries, first)
			}
		}
		switch n = x.begun; {
		case n > 0:
			return nil
		case x.full != nil:
			return x.full
		}
		return errUnchanged
	})
	return n, err
}

// spread begins a copy of a segment, if it helps; first: only to have its primary move,
// if that helps, too.
func (s *store) spread(x *builder, id layout.SegmentID, copies, primaries []int, first bool) {
	l, seg := x.l, &x.l.Segments[id]
	p := &seg.Placement
	if seg.Kind == layout.KindLog || seg.Leaving || int(p.N) != l.Backups+1 || p.Building > 0 || l.Moving(id) > 0 {
		return
	}
	full := l.Backups+1 == layout.MaxReplicas
	from := 0 // the copy on the fullest blade
	for k := 1; k < int(p.N); k++ {
		if a, b := p.Replicas[k].Blade, p.Replicas[from].Blade; from == 0 && full ||
			uint64(copies[a])*uint64(l.Slots(b)) > uint64(copies[b])*uint64(l.Slots(a)) {
			from = k
		}
	}
	a, to := p.Replicas[from].Blade, -1
	for b := range l.Blades {
		if x.fits(p, b) && l.BesideBut(p, rdma.BladeID(b), a) <= l.Beside(p, a) &&
			(to < 0 ||
				uint64(copies[b])*uint64(
					l.Slots(rdma.BladeID(to))) < uint64(copies[to])*uint64(l.Slots(rdma.BladeID(b)))) {
			to = b
		}
	}
	if to < 0 || !l.Fuller(copies, a, rdma.BladeID(to)) || first && from > 0 || first &&
		!l.Fuller(primaries, a, rdma.BladeID(to)) {
		return
	}
	instead := -1
	if full {
		if instead = from; from == 0 {
			return
		}
	}
	if !x.begin(id, to, instead) {
		return
	}
	copies[a]--
	copies[to]++
	if from == 0 {
		primaries[a]--
		primaries[to]++
	}
}

// settle drops the copies that are not needed from a layout that is about to be the next, and
// returns how many; primaries: there are some among them. The caller holds the lock.
func (s *replicas) settle(l *layout.Layout) (dropped int, primaries bool) {
	copies, firsts := l.HeldBy()
	for id := 1; id < len(l.Segments); id++ {
		p := &l.Segments[id].Placement
		if l.Segments[id].Kind == layout.KindLog || p.Building > 0 {
			continue
		}
		for {
			k := s.superfluous(l, p, copies)
			if k < 0 {
				break
			}
			copies[p.Replicas[k].Blade]--
			if k == 0 {
				primaries = true
				firsts[p.Replicas[0].Blade]--
			}
			p.Remove(k)
			dropped++
			if k > 0 {
				continue
			}
			next := 0
			for i := 1; i < int(p.N); i++ {
				if x, y := p.Replicas[i].Blade, p.Replicas[next].Blade; l.Stays(int(x)) &&
					(!l.Stays(int(y)) || firsts[x] < firsts[y]) {
					next = i
				}
			}
			p.Replicas[0], p.Replicas[next] = p.Replicas[next], p.Replicas[0] // both were backups, and are the same
			firsts[p.Replicas[0].Blade]++
		}
	}
	return dropped, primaries
}

// superfluous is the copy of a segment that can be dropped, or -1: one on a blade that leaves, or
// in the domain of another one, or that on the fullest blade. The caller holds the lock.
func (s *replicas) superfluous(l *layout.Layout, p *layout.Placement, copies []int) int {
	if int(p.N) <= l.Backups+1 {
		if p.N < layout.MaxReplicas || !l.Blades[p.Replicas[0].Blade].Leaving {
			return -1
		}
		for b := range l.Blades { // its place in the list is needed for another one
			if l.CanHold(p, rdma.BladeID(b)) {
				return 0
			}
		}
		return -1
	}
	for k := int(p.N) - 1; k >= 0; k-- {
		if l.Blades[p.Replicas[k].Blade].Leaving {
			return k
		}
	}
	most := 1
	for k := range int(p.N) {
		a, b := p.Replicas[k].Blade, p.Replicas[most].Blade
		fuller := uint64(copies[a])*uint64(l.Slots(b)) > uint64(copies[b])*uint64(l.Slots(a))
		if x, y := l.Beside(p, a), l.Beside(p, b); x > y || x == y && fuller {
			most = k
		}
	}
	return most
}

// Unsettled is how many copies Settle would drop; primaries: there are some among them, and the
// change is to be made by a claim of all coordinators.
func (s *replicas) Unsettled() (copies int, primaries bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.writable() != nil {
		return 0, false
	}
	return s.settle(s.layout.Clone())
}

// Settle is the change that drops the copies which are not needed. Without any it is ErrSettled,
// and nothing changes. claimed: it is made by a claim of all coordinators, ClaimOptions.Change;
// else it fails with ErrLayout if primaries are among the copies.
func (s *replicas) Settle(claimed bool) func(*layout.Layout) error {
	return func(l *layout.Layout) error {
		if err := s.keeps(layout.RightCopies); err != nil {
			return err
		}
		n, primaries := s.settle(l)
		if n == 0 {
			return ErrSettled
		}
		if primaries && !claimed {
			return fmt.Errorf("%w: primaries are dropped by a claim", layout.ErrLayout)
		}
		_, _ = s.buildMissing(l) // what cannot be begun now is tried again: Build
		return nil
	}
}

// Emptied lists the blades that leave and have no copies any more.
func (s *store) Emptied() (out []rdma.BladeID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for b := range s.layout.Blades {
		if x := &s.layout.Blades[b]; x.Leaving && x.State == layout.BladeUp && s.layout.Held(rdma.BladeID(b)) == 0 {
			out = append(out, rdma.BladeID(b))
		}
	}
	return out
}

// Retire is the change by which the place of a blade becomes vacant that leaves and has no copies:
// the blade is down. It is made by a claim of all coordinators, after another one since its last
// copy was dropped. If it leaves no more, or has copies, that is ErrSettled, and nothing changes.
func (s *replicas) Retire(b rdma.BladeID) func(*layout.Layout) error {
	return func(l *layout.Layout) error {
		if err := s.keeps(layout.RightCopies); err != nil {
			return err
		}
		if err := s.known(l, b); err != nil {
			return err
		}
		if x := &l.Blades[b]; !x.Leaving || x.State == layout.BladeDown || l.Held(b) > 0 {
			return ErrSettled
		}
		l.TakeDown(b)
		return nil
	}
}

// Reclaim clears one place of a blade that is up which is dirty, notes in the catalog that it is
// clean, so that any process can use it, and reports whether there may be more. In a shared
// database the caller has the right of RightCopies. It may make a new epoch before.
//
// The place is cleared with a key of an epoch that this process has made, and counts as clean only
// if that is the epoch still:
//
//	sessions that wrote to the copy       their keys have ended with the epoch in which the copy
//	                                      was dropped, or a later one
//	a process that had the right before   had keys of an epoch before this one
//	this process loses the right          by a new epoch: it can clear nothing more
//	the WRITE of a zero is late           it has failed, so the next attempt makes an epoch before
func (s *replicas) Reclaim(c *rdma.Coro) (more bool, err error) {
	if err := s.EndKeys(); err != nil { // sessions of before the epoch may write to such places
		return false, err
	}
	s.mu.Lock()
	if err := s.writable(); err != nil {
		s.mu.Unlock()
		return false, err
	}
	b, base, found := s.dirtyPlace()
	mine := s.moved == s.layout.Epoch && s.unsure != s.layout.Epoch && !s.beginning() && !s.unrevoked.Load()
	v := s.View()
	s.mu.Unlock()
	switch {
	case !found:
		return false, nil
	case !mine:
		return true, s.AdvanceEpoch(nil)
	}
	if err := s.clearPlace(c, v, b, base); err != nil {
		return false, err
	}
	return true, s.update(func() error {
		if err := s.writable(); err != nil {
			return err
		}
		if err := s.keeps(layout.RightCopies); err != nil {
			return err
		}
		if s.layout.Epoch != v.Epoch || !slices.Contains(s.layout.Dirty(b), base) {
			return nil
		}
		x := s.layout.Blades[b]
		x.Clean = x.Clean.With(s.layout.Place(base))
		if err := s.commit(layout.EntryOfBlade(b, x)); err != nil {
			return err
		}
		s.layout.Blades[b] = x
		return nil
	})
}

// clearPlace clears a place, of a blade that is up. After an error no place is cleared in the epoch
// of the view any more: a WRITE may be late.
func (s *replicas) clearPlace(c *rdma.Coro, v *layout.View, b rdma.BladeID, base uint64) error {
	err := s.clear(c, b, v.Key(b), base)
	if err == nil {
		var batch rdma.Batch
		if err = c.Fence(rdma.FenceThread, 0, &batch); err != nil {
			err = &layout.BladeError{Blade: b, Name: s.opts.bladeName(b), Err: err, What: "clearing a place"}
		}
	}
	if err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.unsure = v.Epoch
	}
	return err
}

// dirtyPlace finds a place that is dirty, on a blade that stays. The caller holds the lock.
func (s *replicas) dirtyPlace() (b rdma.BladeID, base uint64, found bool) {
	for i := range s.layout.Blades {
		if !s.layout.Stays(i) {
			continue
		}
		if dirty := s.dirty(rdma.BladeID(i)); len(dirty) > 0 {
			return rdma.BladeID(i), dirty[0], true
		}
	}
	return 0, 0, false
}
