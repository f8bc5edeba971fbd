package memory

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"txnode/memory/layout"
	"txnode/rdma"
)

// Coordinator is an incarnation of a session that runs transactions.
type Coordinator struct {
	ID   uint32
	Logs []LogArea // by blade
	// Process is the process that has registered it; 0: the database is not shared.
	Process uint32
	// LogMax is how large the areas of Logs can become, in bytes: see Space.GrowLogs.
	LogMax uint32
	// Closing: it had ended in order when it died, all transactions answered, and its
	// log areas may be half cleared.
	Closing bool
	// FewLogs: a blade that is lost may have had the only copy of its log records: see
	// CoordinatorEntry.
	FewLogs bool
}

// LogArea is what a coordinator uses of its log area on one blade: it begins with LogStep bytes
// and grows with Space.GrowLogs, so that recovery has to read no more than may have been
// written. A blade that is down has none: Size is 0, and Addr is an address of that blade which
// no verb can reach.
type LogArea struct {
	Addr rdma.RemoteAddr // Key is that of the epoch in which it was asked for: take the view's
	Size uint32          // bytes
}

// nowhere is an offset behind the end of every region, with room for an area.
const nowhere = 1 << 62

// logSpace is where log areas are, and which are in use.
type logSpace struct {
	rows [][]layout.SegmentID // by row, then blade; 0: none
	used map[uint32]bool
}

// derive finds the rows and the slots in use.
func (g *logSpace) derive(l *layout.Layout) {
	g.rows = nil
	for i := range l.Segments {
		if l.Segments[i].Kind == layout.KindLog {
			g.add(l, layout.SegmentID(i))
		}
	}
	g.used = map[uint32]bool{}
	for _, c := range l.Coordinators {
		g.used[c.Slot] = true
	}
}

func (g *logSpace) add(l *layout.Layout, id layout.SegmentID) {
	seg := &l.Segments[id]
	for int(seg.Row) >= len(g.rows) {
		g.rows = append(g.rows, make([]layout.SegmentID, len(l.Blades)))
	}
	if seg.Placement.N > 0 {
		g.rows[seg.Row][seg.Placement.Replicas[0].Blade] = id
	}
}

// free finds an unused slot of a row that has a segment on each of some blades, and none on others.
func (g *logSpace) free(perSegment uint32, on, none []rdma.BladeID) (slot uint32, ok bool) {
	for row, ids := range g.rows {
		if slices.ContainsFunc(on, func(b rdma.BladeID) bool { return ids[b] == 0 }) ||
			slices.ContainsFunc(none, func(b rdma.BladeID) bool { return ids[b] != 0 }) {
			continue
		}
		for i := range perSegment {
			if slot := uint32(row)*perSegment + i; !g.used[slot] {
				return slot, true
			}
		}
	}
	return 0, false
}

// LogRuns lists the parts of a blade's region that have nothing in them but log areas, in
// order, by their first offset and their end. Neighbours are one.
func (s *allocation) LogRuns(b rdma.BladeID) (runs [][2]uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, row := range s.logs.rows {
		if id := row[b]; id != 0 {
			base := s.layout.Segments[id].Placement.Replicas[0].Base
			runs = append(runs, [2]uint64{base, base + uint64(s.layout.SegmentSize)})
		}
	}
	slices.SortFunc(runs, func(x, y [2]uint64) int { return cmp.Compare(x[0], y[0]) })
	n := 0
	for _, r := range runs {
		if n > 0 && runs[n-1][1] == r[0] {
			runs[n-1][1] = r[1]
			continue
		}
		runs[n] = r
		n++
	}
	return runs[:n]
}

// areas is the coordinator with its log areas; the caller holds the lock.
func (s *allocation) areas(e layout.CoordinatorEntry) Coordinator {
	l := s.layout
	c := Coordinator{
		ID: e.ID, Process: e.Process, Logs: make([]LogArea, len(l.Blades)), LogMax: l.LogArea,
		Closing: e.Closing, FewLogs: e.FewLogs,
	}
	row, i := e.Slot/l.LogsPerSegment(), e.Slot%l.LogsPerSegment()
	used := l.LogUsed(e)
	v := s.View()
	for b := range l.Blades {
		c.Logs[b].Addr = rdma.RemoteAddr{Blade: rdma.BladeID(b), Off: nowhere}
		if id := s.logs.rows[row][b]; id != 0 && l.Blades[b].State == layout.BladeUp {
			c.Logs[b] = LogArea{Addr: v.At(layout.MakeAddr(id, i*l.LogArea), 0), Size: used}
		}
	}
	return c
}

// NewCoordinator registers a coordinator, with a log area on every blade that is up, but for those
// whose disks are full, and those that this process is cut off: a coordinator can do without these
// as long as f+1 blades have one. All bytes of the areas are zero: those of a coordinator that is
// closed are cleared before another may have them.
//
// Areas are carved from whole segments, so most calls cost one change of the
// catalog and no verb.
func (s *allocation) NewCoordinator() (Coordinator, error) { return s.NewCoordinatorUntil(0) }

// NewCoordinatorUntil is NewCoordinator with a lease: see Renew. Other processes take it for alive
// as long as this one is registered.
func (s *allocation) NewCoordinatorUntil(until int64) (c Coordinator, err error) {
	err = s.update(func() error {
		if err := s.writable(); err != nil {
			return err
		}
		if s.FailoverPending() {
			return ErrGated
		}
		if err := s.enroll(); err != nil { // a process that was taken for dead, and is not
			return err
		}
		l := s.layout
		if l.NextCoordinator >= layout.MaxCoordinators {
			return fmt.Errorf("%w: of coordinators, of which each session is a new one: %s",
				layout.ErrExhausted, layout.Anew)
		}
		e := layout.CoordinatorEntry{ID: l.NextCoordinator, Process: s.process, LogUsed: layout.LogStep}
		if !s.opts.Shared {
			e.Until = max(until, 0)
		}
		e.FewLogs = s.View().UpBlades() <= l.Backups
		if err := s.findLogs(&e); err != nil {
			return err
		}
		next := *l
		next.NextCoordinator++
		if err := s.commit(layout.EntryOfCoordinator(e), next.EntryOfState(len(l.Segments)-1, len(l.Tables),
			len(l.Coordinators)+1)); err != nil {
			return err
		}
		l.NextCoordinator++
		s.raiseFrees()
		l.Coordinators = append(l.Coordinators, e)
		s.logs.used[e.Slot] = true
		if s.own == nil {
			s.own = map[uint32]int64{}
		}
		s.own[e.ID] = max(until, 0)
		s.register()
		c = s.areas(e)
		return nil
	})
	return c, err
}

// findLogs gives a coordinator log areas that nobody uses. A blade whose disk has no room for one
// is passed over, and a blade that this process is cut off: what is written then is of a row of log
// segments without that blade. As many blades as a log record goes to have an area. The caller
// holds the lock, in a change.
func (s *allocation) findLogs(e *layout.CoordinatorEntry) error {
	l := s.layout
	var up []rdma.BladeID
	full := s.without(l)
	for b := range l.Blades {
		if l.Blades[b].State == layout.BladeUp && !slices.Contains(full, rdma.BladeID(b)) {
			up = append(up, rdma.BladeID(b))
		}
	}
	want := min(l.Backups+1, len(up)+len(full))
	if len(up) < want {
		return s.cutOff(l)
	}
	for {
		slot, ok := s.logs.free(l.LogsPerSegment(), up, full)
		var err error
		if !ok {
			slot = uint32(len(s.logs.rows)) * l.LogsPerSegment()
			err = s.addLogRow(up)
		}
		if e.Slot = slot; err == nil {
			err = s.provideLogs(*e)
		}
		var none *NoSpaceError
		if err == nil || !errors.As(err, &none) || none.Backing == nil || len(up) <= want {
			return err
		}
		up = slices.DeleteFunc(up, func(b rdma.BladeID) bool { return b == none.Blade })
		full = append(full, none.Blade)
	}
}

// GrowLogs lets an open coordinator use twice as much of its log areas as it does, and
// returns it with these. It costs a change of the catalog and no verb. ErrNoCoordinator:
// it was closed, or declared dead; ErrLayout: it uses all of them already; ErrNoSpace: a blade has
// no memory for more (Options.Parts), and the coordinator goes on with what it has.
func (s *allocation) GrowLogs(id uint32) (c Coordinator, err error) {
	err = s.update(func() error {
		i, err := s.findCoordinator(id)
		if err != nil {
			return err
		}
		e := s.layout.Coordinators[i]
		switch {
		case e.Recovering:
			return fmt.Errorf("%w: %d was declared dead", ErrNoCoordinator, id)
		case e.LogUsed == 0 || e.LogUsed >= s.layout.LogArea:
			return fmt.Errorf("%w: coordinator %d uses all of its log areas", layout.ErrLayout, id)
		}
		e.LogUsed *= 2
		if err := s.provideLogs(e); err != nil {
			return err
		}
		if err := s.commit(layout.EntryOfCoordinator(e)); err != nil {
			return err
		}
		s.layout.Coordinators[i] = e
		c = s.areas(e)
		return nil
	})
	return c, err
}

// CloseCoordinator is CloseCoordinatorOn for callers without a coroutine: it
// makes a thread for the occasion.
func (s *allocation) CloseCoordinator(id uint32) error {
	t, err := rdma.NewThread(s.fabric, rdma.ThreadOptions{Arena: 4 * zeroChunk})
	if err != nil {
		return fmt.Errorf("memory: closing coordinator %d: %w", id, err)
	}
	err = s.CloseCoordinatorOn(t.Plain(), id)
	if closeErr := t.Close(); err == nil && closeErr != nil {
		err = fmt.Errorf("memory: closing coordinator %d: %w", id, closeErr)
	}
	return err
}

// CloseCoordinatorOn ends a coordinator. None of its transactions is under way or undecided, and it
// has no verb outstanding. Its log areas are cleared. Then it is forgotten, and the areas are free
// for others.
//
// After an error it is still registered, unless that is ErrNoCoordinator and it was closed before.
// A coordinator that was declared dead is not closed, which is ErrNoCoordinator, too: its recoverer
// reads its logs and clears its areas.
func (s *allocation) CloseCoordinatorOn(c *rdma.Coro, id uint32) error {
	var areas Coordinator
	var v *layout.View
	err := s.update(func() error {
		i, err := s.findLive(id)
		if err != nil {
			return err
		}
		areas = s.areas(s.layout.Coordinators[i])
		v = s.View()
		// Each recovery of it from now on knows that a log with holes says nothing.
		if e := s.layout.Coordinators[i]; !e.Closing {
			e.Closing = true
			if err := s.commit(layout.EntryOfCoordinator(e)); err != nil {
				return err
			}
			s.layout.Coordinators[i] = e
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := clearAreas(c, v, areas.Logs, false, nil); err != nil {
		return fmt.Errorf("memory: clearing the log areas of coordinator %d: %w", id, err)
	}

	return s.update(func() error {
		i, err := s.findLive(id)
		if err != nil {
			return err
		}
		l := s.layout
		gone := l.Coordinators[i]
		if err := s.commit(layout.Entry{Key: layout.KeyOf(layout.PrefixCoordinator, id)},
			l.EntryOfState(len(l.Segments)-1, len(l.Tables), len(l.Coordinators)-1)); err != nil {
			return err
		}
		l.Coordinators = slices.Delete(l.Coordinators, i, i+1)
		delete(s.logs.used, gone.Slot)
		delete(s.abandoned, id)
		delete(s.own, id) // it has left nothing
		s.register()
		return nil
	})
}

// Coordinator returns an open coordinator with its present log areas, and the view whose blades
// they are on. Areas on blades that came up since it was registered are included. ErrNoCoordinator:
// it was closed, or declared dead.
func (s *allocation) Coordinator(id uint32) (c Coordinator, v *layout.View, err error) {
	s.settled(func() {
		var i int
		if i, err = s.findLive(id); err == nil {
			c, v = s.areas(s.layout.Coordinators[i]), s.View()
		}
	})
	return c, v, err
}

// findLive is findCoordinator of one that was not declared dead.
func (s *store) findLive(id uint32) (int, error) {
	i, err := s.findCoordinator(id)
	if err == nil && s.layout.Coordinators[i].Recovering {
		return 0, fmt.Errorf("%w: %d was declared dead", ErrNoCoordinator, id)
	}
	return i, err
}

func (s *store) findCoordinator(id uint32) (int, error) {
	if err := s.writable(); err != nil {
		return 0, err
	}
	i, ok := slices.BinarySearchFunc(s.layout.Coordinators, id, func(c layout.CoordinatorEntry, id uint32) int {
		return int(c.ID) - int(id)
	})
	if !ok {
		return 0, fmt.Errorf("%w: %d", ErrNoCoordinator, id)
	}
	return i, nil
}

// Coordinators lists the coordinators that were not closed, those that a crash
// left behind included, by number.
func (s *allocation) Coordinators() (out []Coordinator, err error) {
	s.settled(func() {
		if err = s.closed; err != nil {
			return
		}
		out = make([]Coordinator, 0, len(s.layout.Coordinators))
		for _, e := range s.layout.Coordinators {
			out = append(out, s.areas(e))
		}
	})
	return out, err
}
