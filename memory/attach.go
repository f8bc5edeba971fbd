package memory

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"txnode/memory/layout"
	"txnode/rdma"
)

// attach compares the headers of all regions with the layout, and writes
// catalog and headers until both say what the layout says.
func (s *membership) attach(c *rdma.Coro, o *opening, fresh bool) error {
	buf, err := c.Thread().Alloc(headerRoom)
	if err != nil {
		return fmt.Errorf("memory: open: %w", err)
	}
	defer c.Thread().Free(buf, headerRoom)
	l := s.layout
	infos := s.fabric.Blades()
	stale := make([]bool, len(l.Blades)) // the header is to be written
	// that do not answer, or have not the memory that they had, and are not declared dead yet
	var blank []rdma.BladeID
	var old []*layout.StaleError // of those that have old copies of their regions
	var blanks error
	for b := range l.Blades {
		if l.Blades[b].State == layout.BladeDown {
			continue
		}
		id := rdma.BladeID(b)
		if stale[b], err = s.inspect(c, id, infos[b].Key, buf, fresh); err != nil {
			infos[b] = s.fabric.Blades()[b] // the connection may have ended since it was asked
		}
		gone := restarted(&l.Blades[b], infos[b]) && errors.Is(err, errBlank) || l.Blades[b].Incarnation != 0 &&
			infos[b].Unheard && err != nil
		if s.opts.Shared && (gone || errors.Is(err, layout.ErrStale)) {
			blank, blanks = append(blank, id), errors.Join(blanks, err)
			if x, ok := errors.AsType[*layout.StaleError](err); ok {
				old = append(old, x)
			}
			continue
		}
		if err != nil {
			return err
		}
	}
	if s.opts.ReadOnly {
		if !l.Formatted {
			return fmt.Errorf("%w: catalog %s: creating it was interrupted; open it once for writing",
				layout.ErrNotFormatted, s.cat.Name())
		}
		return s.keysToRead(s.fabric.Blades())
	}
	was := l.Entries()
	if fresh {
		was = nil
	}
	known := l.Known(infos)
	beats, err := s.cat.KeepAlive(layout.Beat{})
	if err != nil {
		return s.unheard(err)
	}
	alive, sure := o.alive(l, beats)
	if s.opts.Shared {
		s.heed(o, beats)
	}
	if len(alive) > 0 && !fresh {
		return s.beside(alive, known || sure && o.waited >= openLimitNs && s.goesWithout(c, blank, infos, blanks))
	}
	if len(blank) > 0 { // what others would have done that had the database open
		if (l.Last(blank...) > 0 || len(blank) == l.UpBlades()) && !s.opts.GiveUp {
			for _, x := range old {
				x.Advice = l.StaleRemedy(append([]rdma.BladeID{x.Blade}, blank...)...)
			}
			return blanks
		}
		if b := s.unconfirmed(blank, infos); b >= 0 && !s.opts.GiveUp {
			o.limit = max(o.limit, witnessLimitNs)
			return fmt.Errorf("%w: catalog %s: blade %d does not answer this process, and the server of the catalog "+
				"has not found it gone: look after the way to it, or try again: %w", ErrShared, s.cat.Name(), b, blanks)
		}
		if err := l.DeclareDead(blank); err != nil {
			return err
		}
	}
	others := len(l.Processes) > 0
	var own layout.ProcessEntry
	if s.opts.Shared {
		if own, err = s.registration(l); err != nil {
			return err
		}
		l.TakeAll(own)
	}
	l.EndReserved()
	if l.Formatted && s.opts.Openings || !fresh && (!known || others) {
		l.Epoch = min(l.Epoch+1, layout.MaxEpoch)
	}
	if s.opts.Openings { // headers say so before the catalog does that they do
		for b := range stale {
			stale[b] = l.Blades[b].State == layout.BladeUp
		}
	}
	for b := range l.Blades {
		if l.Blades[b].State == layout.BladeUp && infos[b].Size > l.Blades[b].Size {
			l.Blades[b].Size = infos[b].Size
			stale[b] = true
		}
	}
	if !known || s.opts.Openings || others {
		l.Meet(infos)
		if err := s.grant(l.Blades); err != nil {
			return err
		}
	}
	if changes := layout.Difference(was, l.Entries()); len(changes) > 0 {
		if err := s.commit(changes...); err != nil {
			return err
		}
	}
	if blanks != nil && s.opts.Buried != nil {
		s.opts.Buried(blanks)
	}
	if s.first, s.process, s.until = true, own.ID, own.Until; s.opts.Shared {
		s.note(layout.RightAlone)
	}
	for b := range l.Blades {
		if stale[b] {
			if err := s.writeHeader(c, s.layout.HeaderOf(rdma.BladeID(b)), infos[b].Key, buf); err != nil {
				return err
			}
		}
	}
	// Later fences must not have to ask for these WRITEs: their keys are about to end.
	var batch rdma.Batch
	if err := c.Fence(rdma.FenceThread, 0, &batch); err != nil {
		return fmt.Errorf("memory: open: %w", err)
	}
	if l.Formatted && !s.opts.Openings {
		return nil
	}
	l.Formatted = true
	if s.opts.Openings {
		l.Opened = l.Epoch
	}
	return s.commit(l.EntryOfState(len(l.Segments)-1, len(l.Tables), len(l.Coordinators)))
}

// goesWithout has an opening beside other processes go on without blades that do not answer this
// process, and reports whether it can: it has heard of all others, and these suffice. If these
// blades are gone, the others declare them dead.
func (s *membership) goesWithout(c *rdma.Coro, silent []rdma.BladeID, infos []rdma.BladeInfo, why error) bool {
	l := s.layout
	cut := map[rdma.BladeID]string{}
	for b := range l.Blades {
		x, id := &l.Blades[b], rdma.BladeID(b) // there are MaxBlades
		switch {
		case x.State == layout.BladeDown || x.Key != 0 && !infos[b].Unheard && x.Incarnation == infos[b].Incarnation:
		case infos[b].Unheard && slices.Contains(silent, id):
			cut[id] = fmt.Sprintf("it has not answered since this process was started: %v", why)
		default:
			return false
		}
	}
	if l.UpBlades()-len(cut) < min(l.Backups+1, l.UpBlades()) {
		return false
	}
	s.CutOff(cut)
	c.Thread().Bar(s.Without())
	return true
}

// unconfirmed is one of blades that do not answer of which the witness does not say so, too; -1:
// there is none, or no witness. The trouble of a process that is the first to open the database is
// no evidence about a blade.
func (s *membership) unconfirmed(silent []rdma.BladeID, infos []rdma.BladeInfo) int {
	for _, b := range silent {
		says := func(x layout.Sight) bool { return x.Blade == b && x.Says == layout.Silent }
		if infos[b].Unheard && s.layout.Witnessed && !slices.ContainsFunc(s.layout.SightsOf(layout.Witness), says) {
			return int(b)
		}
	}
	return -1
}

var (
	// errBlank is an ErrForeign: a region has nothing in it, and had.
	errBlank = fmt.Errorf("%w", layout.ErrForeign)
	// errAhead is an ErrGeometry: a region is of a later epoch than the catalog, or than what was
	// read of it just before another process has begun one.
	errAhead = fmt.Errorf("%w", layout.ErrGeometry)
)

// beside is what attach does while other processes have the database open.
func (s *store) beside(alive []uint32, known bool) error {
	l := s.layout
	var why string
	switch {
	case l.Holder(layout.RightAlone) != 0:
		why = fmt.Sprintf("process %d is alone with it: it opens it, or restores a backup", l.Holder(layout.RightAlone))
	case !l.Formatted:
		why = fmt.Sprintf("process %d creates it", alive[0])
	case !known:
		why = fmt.Sprintf("a blade has restarted or does not answer, and processes %d have not declared it dead yet",
			alive)
	default:
		return nil
	}
	return fmt.Errorf("%w: catalog %s: %s: try again", ErrShared, s.cat.Name(), why)
}

// inspect reads the header of a blade's region and says whether it has to be written.
func (s *store) inspect(c *rdma.Coro, b rdma.BladeID, key rdma.Key, buf uint32, fresh bool) (stale bool, err error) {
	fail := func(kind error, format string, args ...any) (bool, error) {
		return false, &layout.BladeError{
			Blade: b, Name: s.opts.bladeName(b), Err: kind, What: fmt.Sprintf(format, args...),
		}
	}
	if fresh { // on a full disk a file without it cannot even be read
		if err := s.provisionHeader(b); err != nil {
			return fail(err, "making room for the region header")
		}
	}
	if err := readHeader(c, b, key, buf); err != nil {
		return fail(err, "reading the region header")
	}
	l := s.layout
	want := l.HeaderOf(b)
	var found *layout.RegionHeader
	var firstErr error
	blanks := 0
	for i := range layout.HeaderCopies {
		at := buf + uint32(i)*layout.RegionHeaderSize
		h, blank, err := layout.ParseHeaderCopy(c.Thread().Bytes(at, layout.RegionHeaderSize), i)
		switch {
		case blank:
			blanks++
		case err != nil:
			if firstErr == nil {
				firstErr = err
			}
		case l.Judge(b, &h) == layout.HeaderForeign && fresh:
			return fail(layout.ErrForeign,
				"its region belongs to database %v, and the catalog %s is empty: was the catalog lost?",
				h.UUID, s.cat.Name())
		case l.Judge(b, &h) == layout.HeaderForeign:
			what, kind := l.Describe(b, layout.HeaderForeign, &h)
			return fail(kind, "%s (catalog %s)", what, s.cat.Name())
		case found == nil || h.Epoch > found.Epoch:
			found = &h
		}
		stale = stale || err != nil || h != want
	}
	switch {
	case blanks == layout.HeaderCopies && l.Formatted:
		what, _ := l.Describe(b, layout.HeaderBlank, nil)
		return fail(errBlank, "%s", what)
	case blanks == layout.HeaderCopies:
		return true, nil
	case found == nil && !l.Formatted && !fresh:
		return true, nil // a header that was being written; the catalog knows that nobody else's was there
	case found == nil && fresh:
		return fail(layout.ErrForeign, "its region is not blank, and the catalog %s is empty", s.cat.Name())
	case found == nil:
		return fail(firstErr, "no copy of its region header is intact")
	}
	fault := l.Judge(b, found)
	if fault == layout.HeaderSound || fault == layout.HeaderAhead {
		if err := s.compareTold(c, b, s.rev, buf); err != nil {
			return false, err
		}
		words := c.Thread().Bytes(buf+toldAt, 16)
		if err := l.Stale(b, s.opts.bladeName(b), binary.LittleEndian.Uint64(words),
			binary.LittleEndian.Uint64(words[8:])); err != nil {
			return false, err
		}
	}
	if what, kind := l.Describe(b, fault, found); kind != nil {
		if fault == layout.HeaderAhead {
			kind = errAhead
		}
		return fail(kind, "%s (catalog %s)", what, s.cat.Name())
	}
	return stale, nil
}

// writeHeader writes both copies of a region's header, one after the other, so
// that one is whole at any moment.
func (s *store) writeHeader(c *rdma.Coro, h layout.RegionHeader, key rdma.Key, buf uint32) error {
	b := h.Blade
	err := s.provisionHeader(b)
	for i := 0; i < layout.HeaderCopies && err == nil; i++ {
		h.EncodeTo(c.Thread().Bytes(buf, layout.RegionHeaderSize), i)
		a := rdma.RemoteAddr{Blade: b, Key: key, Off: layout.HeaderOffset(i)}
		var batch rdma.Batch
		batch.Write(a, buf, layout.RegionHeaderSize)
		batch.Flush(a, layout.RegionHeaderSize)
		err = c.Do(&batch)
	}
	if err != nil {
		return &layout.BladeError{Blade: b, Name: s.opts.bladeName(b), Err: err, What: "writing the region header"}
	}
	return nil
}

// provisionHeader reserves what the header of a blade's region takes.
func (s *store) provisionHeader(b rdma.BladeID) error {
	err := s.fabric.Provision(b, 0, layout.HeaderArea)
	if errors.Is(err, rdma.ErrNoMemory) {
		err = fmt.Errorf("%w: make room on the disk", err)
	}
	return err
}

// AdvanceEpoch moves to the next epoch: it lets change adapt a copy of the
// layout (nil: nothing changes), has all blades that are up grant access keys, records all of
// it in the catalog, has the blades revoke the keys before, and publishes the new view. When it
// returns nil, no verb with a key of an older view takes effect any more.
//
// An error of change, or of the catalog, means that nothing happened. A blade
// whose keys could not be changed is reported when the epoch has already moved:
// the caller declares it down, in another epoch, or calls again. A process that is cut off a blade
// begins no epoch that declares none down: ErrCutOff. In very rare cases the epoch
// moves on by more than one: see keys.go.
//
// change may move and drop replicas, add segments of logs, and declare blades down
// or up; it must not touch numbers, geometry, tables or coordinators. It is called under
// the lock of the space, and again if another process has changed the catalog meanwhile, or blades
// had to be asked for memory: it counts only the last time.
func (s *replicas) AdvanceEpoch(change func(*layout.Layout) error) error {
	_, err := s.advance(func(l *layout.Layout) error {
		was, next := slices.Clone(l.Coordinators), l.NextCoordinator
		if change != nil {
			if err := change(l); err != nil {
				return err
			}
		}
		if !slices.Equal(was, l.Coordinators) || l.NextCoordinator != next {
			return fmt.Errorf("%w: a new epoch may not change coordinators", layout.ErrLayout)
		}
		return nil
	}, nil)
	return err
}

// advance is AdvanceEpoch for a change that may also declare coordinators dead. then, if not nil,
// is called under the lock as soon as the catalog has the change. moved: it has, and an error is of
// blades whose keys could not be changed.
func (s *replicas) advance(change func(*layout.Layout) error, then func()) (moved bool, err error) {
	s.epochs.Lock()
	defer s.epochs.Unlock()
	var granted error
	err = s.updateAs(&update{turn: true, epochs: true}, func() error {
		if err := s.writable(); err != nil {
			return err
		}
		l := s.layout.Clone()
		if err := change(l); err != nil {
			return err
		}
		// that blade would have no key, for anybody
		if err := s.cutOff(l); err != nil && l.UpBlades() >= s.layout.UpBlades() {
			return err
		}
		return s.move(l, &granted, then)
	})
	if errors.Is(err, errUnchanged) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, s.above.begin(granted)
}

// move makes l, which was made of the layout, the layout of the next epoch, in the catalog and
// here. The epoch has not begun by that: see begin. granted is what has gone wrong with its keys.
// The caller holds the lock, in a change.
func (s *replicas) move(l *layout.Layout, granted *error, then func()) error {
	old := s.layout
	if old.Epoch == layout.MaxEpoch {
		return fmt.Errorf("%w: of epochs: %s", layout.ErrExhausted, layout.Anew)
	}
	l.Epoch = old.Epoch + 1
	locksLost := lostLocks(old, l) && len(l.Coordinators) == 0
	l.Unswept, l.Dangling, l.OnlyDamage = l.Unswept || locksLost, l.Dangling || locksLost, l.OnlyDamage && !locksLost
	if l.Geometry != old.Geometry || l.Formatted != old.Formatted || l.NextCoordinator < old.NextCoordinator ||
		len(l.Blades) != len(old.Blades) ||
		len(l.Segments) < len(old.Segments) || len(l.Tables) != len(old.Tables) ||
		len(l.Coordinators) != len(old.Coordinators) {
		return fmt.Errorf("%w: a new epoch may only move replicas and change the state of blades", layout.ErrLayout)
	}
	l.LoseReserved(old)
	if err := l.Validate(); err != nil {
		return err
	}
	*granted = s.grantFor(l)
	if err := s.commit(layout.Difference(old.Entries(), l.Entries())...); err != nil {
		return err
	}
	s.layout, s.moved = l, l.Epoch
	for b := range s.scrubbed {
		if l.Blades[b].State == layout.BladeUp {
			delete(s.scrubbed, b)
		}
	}
	if locksLost {
		s.noteLocksLost()
	}
	if then != nil {
		then()
	}
	s.register()
	return nil
}

// lostLocks reports whether locks are lost with a change: it declares a blade dead, or a segment
// has another primary.
func lostLocks(old, l *layout.Layout) bool {
	for b := range l.Blades {
		if l.Blades[b].State == layout.BladeDown && old.Blades[b].State == layout.BladeUp {
			return true
		}
	}
	for id := range min(len(old.Segments), len(l.Segments)) {
		p, q := &old.Segments[id].Placement, &l.Segments[id].Placement
		if p.N > 0 && q.N > 0 && p.Replicas[0] != q.Replicas[0] {
			return true
		}
	}
	return false
}
