package memory

import (
	"errors"
	"fmt"
	"slices"

	"txnode/memory/layout"
	"txnode/rdma"
)

// Copies that died with their blades are replaced in three steps:
//
//  1. A new epoch gives the segment a copy that is being built, on another blade, in
//     a place that is all zero. From then on whoever writes the segment writes that
//     copy too, before it lets go of the lock under which it writes. Nobody reads it,
//     and nobody counts on it.
//  2. Package rebuild copies what was there before.
//  3. Another epoch makes it a full copy.
//
// The first step is part of the epoch that takes a blade down or up, so that service
// is interrupted as seldom as possible.

// DeclareDead is the change by which a blade is declared dead. Its copies are gone, backups are
// promoted, and new copies begin where other blades have room. It has as many entries in the
// catalog as segments are concerned, and posts no verb.
//
// The locks on the blade are lost, and so is what only its logs knew. So the change is to be
// made by a claim of all coordinators, ClaimOptions.Change. Until that claim is forgotten, no
// session may touch a record. A blade that is down already is ErrDown. One that was declared
// dead by another process since DeclareDead was called, and taken in again, is another one by now,
// which may have the last copy of a segment: ErrLayout. So call DeclareDead before the blade is
// asked whether it lives.
//
// If the key of another blade could not be changed, the error says so after all of this is done:
// that blade has to be declared dead, too.
func (s *replicas) DeclareDead(b rdma.BladeID) func(*layout.Layout) error {
	found := s.incarnation(b)
	return func(l *layout.Layout) error {
		switch {
		case int(b) >= len(l.Blades):
			return fmt.Errorf("memory: blade %d of %d: %w", b, len(l.Blades), rdma.ErrBladeDown)
		case l.Blades[b].State == layout.BladeDown:
			return layout.ErrDown
		case l.Blades[b].Incarnation != found:
			return fmt.Errorf("memory: blade %d has been taken in again since it was found dead: %w",
				b, layout.ErrLayout)
		case l.UpBlades() == 1:
			return &layout.BladeError{
				Blade: b, Name: s.opts.bladeName(b), Err: layout.ErrLost,
				What: "it was the last one, and no blade is left",
			}
		}
		l.TakeDown(b)
		_, _ = s.buildMissing(l) // what cannot be begun now is tried again: Build
		return nil
	}
}

// Return is the change, in place of DeclareDead, by which a blade is used on that has restarted
// with all that was written to it, as an incarnation: nothing is lost then, and sessions have to
// connect again. It is declared dead all the same if other blades have copies of all that it has.
// Like DeclareDead, it is to be made by a claim of all coordinators.
func (s *replicas) Return(b rdma.BladeID, as uint64, declareDead func(*layout.Layout) error) (
	change func(*layout.Layout) error) {
	return func(l *layout.Layout) error {
		if !l.Irreplaceable(b) {
			return declareDead(l)
		}
		// it is not what was found to have restarted
		if err := declareDead(l.Clone()); err != nil && !errors.Is(err, layout.ErrLost) {
			return err
		}
		l.Blades[b].Incarnation = as
		return nil
	}
}

// Unharmed looks at a blade that has restarted, and returns the incarnation in which it has all
// that was written to it; 0: it has come back with nothing, or the fabric loses WRITEs in a restart
// that have completed. What cannot be found out, or may be brought back, since it has come with
// another region than its newest, is an error. It belongs to c.
func (s *replicas) Unharmed(c *rdma.Coro, b rdma.BladeID) (as uint64, err error) {
	if !s.fabric.Caps().Placed {
		return 0, nil
	}
	fail := func(err error) (uint64, error) {
		return 0, &layout.BladeError{
			Blade: b, Name: s.opts.bladeName(b), Err: err, What: "it has restarted, and what it has is not known yet",
		}
	}
	t := c.Thread()
	if err := t.Reconnect(b); err != nil {
		return fail(err)
	}
	const head = layout.HeaderCopies * layout.HeaderStride
	buf, err := t.Alloc(head)
	if err != nil {
		return fail(err)
	}
	defer t.Free(buf, head)
	info := s.fabric.Blades()[b]
	if info.Unheard {
		return fail(rdma.ErrBladeDown)
	}
	var batch rdma.Batch
	batch.Read(rdma.RemoteAddr{Blade: b, Key: info.Key}, buf, head)
	if err := c.Do(&batch); err != nil {
		return fail(err)
	}
	switch fault, err := s.Layout().Examine(b, s.opts.bladeName(b), t.Bytes(buf, head)); {
	case fault == layout.HeaderBlank:
		return 0, nil
	case err != nil:
		return 0, err
	}
	return info.Incarnation, nil
}

// incarnation is that of a blade as the layout has it.
func (s *store) incarnation(b rdma.BladeID) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if int(b) >= len(s.layout.Blades) {
		return 0
	}
	return s.layout.Blades[b].Incarnation
}

// errUnchanged makes AdvanceEpoch stop without an epoch and without an error.
var errUnchanged = errors.New("memory: nothing to change")

// Build begins copies, in a new epoch, of segments that have too few, where blades
// have room for them. It returns how many; without any there is no new epoch. That a blade
// has room and its disk is full is an error if nothing could be begun for it.
func (s *replicas) Build() (n int, err error) {
	err = s.AdvanceEpoch(func(l *layout.Layout) (full error) {
		if err := s.keeps(layout.RightCopies); err != nil {
			return err
		}
		switch n, full = s.buildMissing(l); {
		case n > 0:
			return nil
		case full != nil:
			return full
		}
		return errUnchanged
	})
	return n, err
}

// CanBuild is how many copies Build would begin.
func (s *replicas) CanBuild() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.writable() != nil {
		return 0
	}
	n := 0
	l := s.layout
	for id := 1; id < len(l.Segments); id++ {
		if _, ok := l.Buildable(layout.SegmentID(id)); ok && l.CanBuild(layout.SegmentID(id)) {
			n++
		}
	}
	return n
}

// CopiesDue reports whether the right of RightCopies is of use although no blade is back: copies
// are being built, can be, or are to move, or places of blades that are up are to be cleared.
func (s *replicas) CopiesDue() bool {
	r := s.Redundancy()
	if r.Building > 0 || r.Moving > 0 || len(r.Leaving) > 0 || s.CanBuild() > 0 {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _, dirty := s.dirtyPlace()
	return dirty
}

// builder adds copies to be built to a layout that is about to be the next. It is for a change: the
// caller holds the lock.
type builder struct {
	s     *replicas
	l     *layout.Layout
	load  []int // by blade: segments
	begun int
	full  error // a blade has no memory for what it has room for
}

func (s *replicas) newBuilder(l *layout.Layout) *builder {
	x := &builder{s: s, l: l, load: make([]int, len(l.Blades))}
	for i := range l.Segments {
		p := &l.Segments[i].Placement
		for _, r := range p.Replicas[:p.Written()] {
			x.load[r.Blade]++
		}
	}
	return x
}

// fits reports whether a copy of a segment can be on a blade.
func (x *builder) fits(p *layout.Placement, b int) bool {
	return x.load[b] < layout.NoLoad && x.l.CanHold(p, rdma.BladeID(b))
}

// begin begins a copy of a segment on a blade that it fits, in the place of one that is
// given up; -1: of none.
func (x *builder) begin(id layout.SegmentID, b, instead int) bool {
	l, p := x.l, &x.l.Segments[id].Placement
	base, _ := l.Vacancy(rdma.BladeID(b))
	r := layout.Replica{Blade: rdma.BladeID(b), Base: base}
	if err := x.s.provision(r.Blade, r.Base, uint64(l.Backed(id))); err != nil {
		if errors.Is(err, rdma.ErrNoMemory) {
			x.full = &layout.BladeError{
				Blade: r.Blade, Name: x.s.opts.bladeName(r.Blade), Err: err, What: "providing memory for a copy",
			}
		}
		x.load[b] = layout.NoLoad // the disk is full, or it has died too: another one
		return false
	}
	l.Take(r)
	if instead >= 0 {
		p.Remove(instead)
	}
	p.Build(r)
	x.load[b]++
	x.begun++
	return true
}

// buildMissing adds copies to be built to a layout that is about to be the next: on the blades with
// the fewest segments, in domains without a copy if there is room. full: a blade has no memory for
// what it has room for. The caller holds the lock.
func (s *replicas) buildMissing(l *layout.Layout) (begun int, full error) {
	x := s.newBuilder(l)
	for id := 1; id < len(l.Segments); id++ {
		for {
			instead, ok := l.Buildable(layout.SegmentID(id))
			if !ok {
				break
			}
			best, found := l.Least(layout.SegmentID(id), x.load)
			if !found {
				break
			}
			_ = x.begin(layout.SegmentID(id), int(best), instead) // else on another one
		}
	}
	return x.begun, x.full
}

// CompareAgain makes the copier compare all copies that are being built once more before one of
// them counts: verbs of a session have failed, and the session goes on in the same epoch. The
// copies may lack what it did on a primary, and what was finished or undone on the copies that
// count.
func (s *membership) CompareAgain() {
	s.turn.Lock() // not while a change makes copies full ones that it has found equal
	defer s.turn.Unlock()
	s.failures.Add(1)
}

// finishIn makes copies that have been built full ones, in a new epoch, and returns of how
// many segments; of none, if the epoch is not the given one any more, or something is to
// be compared again.
func (s *replicas) finishIn(epoch layout.Epoch, failures uint64, ids []layout.SegmentID) (n int, err error) {
	err = s.AdvanceEpoch(func(l *layout.Layout) error {
		if err := s.keeps(layout.RightCopies); err != nil {
			return err
		}
		if n = 0; l.Epoch != epoch || s.failures.Load() != failures {
			return errUnchanged
		}
		for _, id := range ids {
			if int(id) < len(l.Segments) && l.Segments[id].Placement.Building > 0 {
				l.Finish(id)
				n++
			}
		}
		if n == 0 {
			return errUnchanged
		}
		return nil
	})
	return n, err
}

// Redundancy counts copies, and places that are dirty.
func (s *replicas) Redundancy() layout.Redundancy {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.layout.Redundancy()
	for b := range s.layout.Blades {
		if !s.layout.Blades[b].Leaving {
			r.Dirty += len(s.dirty(rdma.BladeID(b)))
		}
	}
	return r
}

// dirty lists the places of a blade that are still to be cleared. The caller holds the lock.
func (s *replicas) dirty(b rdma.BladeID) []uint64 {
	x, ok := s.scrubbed[b]
	return slices.DeleteFunc(s.layout.Dirty(b), func(base uint64) bool {
		return ok && x.places.Has(s.layout.Place(base))
	})
}

// scrub clears one place of a blade that is down, and reports whether there may be more. key, which
// no other process has, opens the blade in its incarnation.
func (s *replicas) scrub(c *rdma.Coro, b rdma.BladeID, incarnation uint64, key rdma.Key) (more bool, err error) {
	s.mu.Lock()
	if s.scrubbed[b].incarnation != incarnation { // anything may be there by now
		delete(s.scrubbed, b)
	}
	err, dirty := s.writable(), s.dirty(b)
	s.mu.Unlock()
	if err != nil || len(dirty) == 0 {
		return false, err
	}
	if err := s.clear(c, b, key, dirty[0]); err != nil {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.scrubbed == nil {
		s.scrubbed = map[rdma.BladeID]scrubbed{}
	}
	if s.layout.Blades[b].State == layout.BladeDown {
		s.scrubbed[b] = scrubbed{incarnation, s.scrubbed[b].places.With(s.layout.Place(dirty[0]))}
	}
	return len(dirty) > 1, nil
}

// clear clears the place at an offset of a blade that key opens.
func (s *store) clear(c *rdma.Coro, b rdma.BladeID, key rdma.Key, base uint64) error {
	// What is not zero has memory, but perhaps not all of its neighbours have.
	provide := func(a rdma.RemoteAddr, n uint32) error { return s.fabric.Provision(b, a.Off, uint64(n)) }
	v := &layout.View{Keys: make([]rdma.Key, b+1)}
	v.Keys[b] = key
	area := LogArea{Addr: rdma.RemoteAddr{Blade: b, Off: base}, Size: s.opts.SegmentSize}
	// The blade may have lost its memory, or it was cleared before, and the disk has failed then:
	// what counts as cleared must be so when the power has gone.
	if err := clearAreas(c, v, []LogArea{area}, s.durable(), provide); err != nil {
		return &layout.BladeError{
			Blade: b, Name: s.opts.bladeName(b), Err: err, What: fmt.Sprintf("clearing the place at offset %#x", base),
		}
	}
	return nil
}

// Admit takes a blade in again that was declared dead, in a new epoch. What its memory holds, if
// it is this database's, is out of date and is cleared. Coordinators that register from now on
// have log areas on it; copies begin to be built there. A blade that is up is left alone, and so
// is one whose place is vacant; one that does not answer is rdma.ErrBladeDown, one of another
// database ErrForeign.
//
// To clear a large blade takes long. enough, unless it is nil, is asked now and then: if it is
// true, the blade stays down, and what was cleared does not have to be cleared again.
func (s *replicas) Admit(c *rdma.Coro, b rdma.BladeID, enough func() bool) error {
	s.mu.Lock()
	err := s.writable()
	if err == nil && int(b) >= len(s.layout.Blades) {
		err = fmt.Errorf("memory: blade %d of %d: %w", b, len(s.layout.Blades), rdma.ErrBladeDown)
	}
	up := err == nil && (s.layout.Blades[b].State == layout.BladeUp || s.layout.Blades[b].Leaving)
	s.mu.Unlock()
	if err != nil || up {
		return err
	}
	info, told, blank, err := s.reconnect(c, b)
	if err != nil {
		return err
	}
	key, err := s.ownKey(b)
	if err != nil || key == 0 {
		return err
	}
	c.Thread().Rekeyed(b, key) // the header was flushed under another one
	s.mu.Lock()
	fresh := s.layout.Blades[b].Size == 0 // its place was vacant
	was := &layout.Layout{Geometry: s.layout.Geometry, Blades: []layout.Blade{{Size: info.Size}}}
	s.mu.Unlock()
	for i := uint32(0); fresh && !blank && i < was.Slots(0); i++ { // it was this database's before
		if enough != nil && enough() {
			return nil
		}
		if err := s.clear(c, b, key, was.Base(i)); err != nil {
			return err
		}
	}
	for more := true; more; {
		if enough != nil && enough() {
			return nil
		}
		if more, err = s.scrub(c, b, info.Incarnation, key); err != nil {
			return err
		}
	}
	var batch rdma.Batch
	if err := c.Fence(rdma.FenceThread, 0, &batch); err != nil {
		return &layout.BladeError{Blade: b, Name: s.opts.bladeName(b), Err: err, What: "clearing its memory"}
	}
	return s.AdvanceEpoch(func(l *layout.Layout) error {
		if err := s.keeps(layout.RightCopies); err != nil {
			return err
		}
		if l.Blades[b].State == layout.BladeUp || l.Blades[b].Leaving || len(s.dirty(b)) > 0 {
			return errUnchanged // another process has taken it in, and perhaps lost it again
		}
		l.Blades[b].State = layout.BladeUp
		l.Blades[b].Incarnation = info.Incarnation // it gets a key if it is in that one still
		l.Blades[b].Used = 0                       // all places have been cleared: they count as never taken
		if l.Blades[b].Size == 0 {
			l.Blades[b].Size = info.Size
		}
		l.Blades[b].Told = told
		if err := s.addLogs(l, b); err != nil {
			return err
		}
		_, _ = s.buildMissing(l) // what cannot be begun now is tried again: Build
		return nil
	})
}

// ownKey has a blade that is down open by a key alone that no other process has, and returns it; 0:
// the blade is up by now. What was down is cleared with that. Sessions that have not learnt yet
// that the blade was lost may write to it with older keys. And if another process takes the blade
// in, it ends this one before the blade is used: it has been granted a later key, or this process
// finds the blade up, since it looks after it was granted its own.
func (s *store) ownKey(b rdma.BladeID) (rdma.Key, error) {
	key, err := s.fabric.Grant(b)
	if err != nil {
		return 0, s.keyError(b, err, "granting an access key, to clear its memory")
	}
	if err := s.Follow(); err != nil {
		return 0, err
	}
	s.mu.Lock()
	down := s.layout.Blades[b].State == layout.BladeDown
	s.mu.Unlock()
	if !down {
		return 0, nil
	}
	if err := s.fabric.Revoke(b, key); err != nil {
		return 0, s.keyError(b, err, "ending the access keys of before, to clear its memory")
	}
	return key, nil
}

// reconnect connects to a blade that was down, looks whose it is, writes its header, and tells it
// of a revision of the catalog. blank: it had no header.
func (s *store) reconnect(c *rdma.Coro, b rdma.BladeID) (
	info rdma.BladeInfo, told layout.Revision, blank bool, err error) {
	fail := func(err error, what string) (rdma.BladeInfo, layout.Revision, bool, error) {
		return info, 0, false, &layout.BladeError{Blade: b, Name: s.opts.bladeName(b), Err: err, What: what}
	}
	if err := c.Thread().Reconnect(b); err != nil {
		return fail(err, "taking it in again")
	}
	info = s.fabric.Blades()[b]
	if info.Unheard {
		return fail(rdma.ErrBladeDown, "taking it in again: it does not answer")
	}
	l := s.Layout()
	if had := l.Blades[b]; info.Size < had.Size {
		return fail(layout.ErrGeometry, fmt.Sprintf("taking it in again: it has %d bytes, it had %d and %d segments",
			info.Size, had.Size, had.Used))
	}
	if least := layout.HeaderArea + uint64(l.SegmentSize); info.Size < least {
		return fail(layout.ErrGeometry, fmt.Sprintf("taking it in: it has %d bytes, and needs %d for one segment",
			info.Size, least))
	}
	buf, err := c.Thread().Alloc(headerRoom)
	if err != nil {
		return fail(err, "taking it in again")
	}
	defer c.Thread().Free(buf, headerRoom)
	if err := readHeader(c, b, info.Key, buf); err != nil {
		return fail(err, "reading the region header")
	}
	blanks := 0
	for i := range layout.HeaderCopies {
		at := buf + uint32(i)*layout.RegionHeaderSize
		h, blank, err := layout.ParseHeaderCopy(c.Thread().Bytes(at, layout.RegionHeaderSize), i)
		if blank {
			blanks++
		}
		if blank || errors.Is(err, layout.ErrDamaged) { // it may have died while it was written
			continue
		}
		if err != nil {
			return fail(err, "taking it in again")
		}
		switch l.Judge(b, &h) { // whatever else it says is out of date
		case layout.HeaderForeign, layout.HeaderMisplaced:
			return fail(layout.ErrForeign,
				fmt.Sprintf("taking it in again: its region is that of blade %d of database %v", h.Blade, h.UUID))
		}
	}
	s.mu.Lock()
	h, rev := s.layout.HeaderOf(b), s.rev
	s.mu.Unlock()
	if blanks < layout.HeaderCopies {
		if err := s.compareTold(c, b, rev, buf); err != nil {
			return info, 0, false, err
		}
	}
	if h.Size == 0 {
		h.Size = info.Size
	}
	if err := s.writeHeader(c, h, info.Key, buf); err != nil {
		return info, 0, false, err
	}
	all := []telling{{at: rdma.RemoteAddr{Blade: b, Key: info.Key, Off: layout.ToldOffset}}}
	if _, err := tell(c, all, rev, true); err != nil {
		return fail(err, "telling it of the catalog's revision")
	}
	return info, all[0].is, blanks == layout.HeaderCopies, nil
}

// addLogs gives a blade that comes up again a segment in every row of logs.
func (s *replicas) addLogs(l *layout.Layout, b rdma.BladeID) error {
	has := map[uint32]bool{}
	lost := map[uint32]layout.SegmentID{} // that died with a blade: used again
	for id := 1; id < len(l.Segments); id++ {
		seg := &l.Segments[id]
		switch {
		case seg.Kind != layout.KindLog:
		case seg.Placement.N == 0:
			lost[seg.Row] = layout.SegmentID(id)
		case seg.Placement.Replicas[0].Blade == b:
			has[seg.Row] = true
		}
	}
	for row := range l.LogRows() {
		if has[row] {
			continue
		}
		base, ok := l.Vacancy(b)
		if !ok {
			return s.noSpace(logsOf, 1, nil)
		}
		r := layout.Replica{Blade: b, Base: base}
		l.Take(r)
		p := layout.Placement{N: 1, Replicas: [layout.MaxReplicas]layout.Replica{r}}
		id, again := lost[row]
		if !again {
			id = layout.SegmentID(len(l.Segments))
			l.Segments = append(l.Segments, layout.Segment{Kind: layout.KindLog, Row: row})
		}
		l.Segments[id].Placement = p
		l.Segments[id].Backed = 0
		parts := [][2]uint64{{r.Base, uint64(l.SegmentSize)}}
		if s.opts.Parts {
			l.Segments[id].Backed = l.Part(layout.PartUnit)
			parts = append(l.LogParts(row, r.Base), [2]uint64{r.Base, uint64(l.Backed(id))})
		}
		for _, part := range parts {
			if err := s.provision(b, part[0], part[1]); err != nil {
				return &layout.BladeError{Blade: b, Name: s.opts.bladeName(b), Err: err, What: "providing memory for " +
					logsOf}
			}
		}
	}
	return nil
}

// Missing returns why a view does not have an address, if nothing is damaged by that: a *LostError
// if every copy of its segment is gone; an error that matches rdma.ErrVerb and rdma.ErrStaleKey if
// the segment is newer than the view, which is that of a thread that was fenced: its verbs would
// fail; the error of the catalog of a database that other processes have open, too, if it cannot be
// asked for the segment. Else nil.
func (s *store) Missing(v *layout.View, a layout.Addr) error {
	if err := s.LostError(a); err != nil {
		return err
	}
	if err := s.Follow(); err != nil && s.opts.Shared { // another process may have added the segment
		return fmt.Errorf("memory: whether there is a segment %d by now is not known: %w", a.Segment(), err)
	}
	if now := s.Current(); now != v && now.Valid(a) && !v.Valid(a) {
		return fmt.Errorf("memory: segment %d is newer than the map of epoch %d: %w: %w",
			a.Segment(), v.Epoch, rdma.ErrVerb, rdma.ErrStaleKey)
	}
	return nil
}

// LostError returns why an address cannot be reached: a *LostError if every copy of
// its segment is gone, else nil.
func (s *store) LostError(a layout.Addr) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := a.Segment()
	if a>>layout.AddrBits != 0 || id == 0 || int(id) >= len(s.layout.Segments) ||
		s.layout.Segments[id].Placement.N > 0 || s.layout.Segments[id].Gone() {
		return nil
	}
	return s.lostError(id)
}

// lostError says where the copies of a segment were; the caller holds the lock.
func (s *store) lostError(id layout.SegmentID) *LostError {
	seg := &s.layout.Segments[id]
	e := &LostError{Segment: id, Kind: seg.Kind}
	for _, r := range seg.Placement.Replicas[:seg.Placement.Lost] {
		// it may have had two, one after the other
		if name := s.opts.bladeName(r.Blade); !slices.Contains(e.Blades, name) {
			e.Blades = append(e.Blades, name)
		}
	}
	return e
}

// LostBlocks returns a *LostError of a segment of records that has lost every copy, unless
// what was in all of those was given up (ForgetLost); else nil.
func (s *store) LostBlocks() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id := range s.layout.Segments {
		if seg := &s.layout.Segments[id]; seg.Kind == layout.KindBlocks && seg.Placement.N == 0 &&
			seg.Placement.Lost > 0 && !seg.Leaving {
			return s.lostError(layout.SegmentID(id))
		}
	}
	return nil
}

// ForgetLost gives up segments of records that have lost every copy: errors no longer say where
// their records were.
func (s *replicas) ForgetLost() error {
	return s.AdvanceEpoch(func(l *layout.Layout) error {
		n := 0
		for id := range l.Segments {
			if seg := &l.Segments[id]; seg.Kind == layout.KindBlocks && seg.Placement.N == 0 &&
				seg.Placement.Lost > 0 && !seg.Leaving {
				seg.Placement = layout.Placement{}
				n++
			}
		}
		if n == 0 {
			return errUnchanged
		}
		return nil
	})
}
