package memory

import (
	"errors"
	"fmt"

	"txnode/memory/internal/mum"
	"txnode/memory/layout"
	"txnode/rdma"
)

// Space is one database's memory on a fabric: what all threads of a process share. Its methods are
// the control path and safe for concurrent use, unless they take a coroutine: that one must be the
// caller's. No lock is held while a verb or a call to a blade is under way, so coroutines of one
// thread do not block each other, and a blade that is slow to answer blocks those alone that wait
// for its answer. Changes of the epoch wait for one another.
//
// Several Spaces may change one catalog: each takes over what the others have changed when its own
// next change finds another revision, and by Follow.
//
// It has four layers, each of which has the ones before it embedded and knows nothing of those
// behind it:
//
//	store        the entries of the catalog as this process knows them, and the map of addresses:
//	             changes, epochs, following
//	membership   what takes part: processes, coordinators and their leases, rights, keys, and what
//	             is left to be swept
//	replicas     where the copies of segments are: places, copies that are missing, blades that
//	             come and go
//	allocation   what is free: blocks, extents, logs, and whose they are
//
// What the layout says changes in the store alone; the layers derive the rest from it.
type Space struct {
	allocation
}

// above is what the store has the layers above it do.
type above interface {
	// replace takes over a layout that another process has made. The caller holds the lock.
	replace(l *layout.Layout, rev layout.Revision)
	// derive computes from the layout what the catalog does not say itself. The caller holds the
	// lock.
	derive()
	// begin begins the epoch of the layout on the blades and in this process. granted is why a
	// blade has no key for it. The caller holds epochs.
	begin(granted error) error
	// abandonUnknown notes the coordinators of which it is not known which process stands for them,
	// after a change that is in doubt. The caller holds the lock.
	abandonUnknown(was []layout.CoordinatorEntry)
}

// Open attaches to the database that the catalog describes, or creates one when
// catalog and blades are empty. The fabric's blades are those of the database,
// in the same order. When it returns, no key of an earlier epoch opens a blade. Blades
// that are in another incarnation than the catalog says have lost their keys: the
// database is opened in a new epoch then.
//
// The order of steps makes a process that is killed at any of them leave a
// database that opens: the catalog says "unformatted" until every header is
// written, and whatever it says afterwards is repeated on the blades until it
// has been done.
//
// Of a shared database, Open waits while another process is alone with it, and while a blade has
// restarted that the others have not declared dead yet: for a second, or until those that have died
// must have renewed their registrations. Then it is ErrShared.
//
// The Space closes neither the fabric nor the catalog.
func Open(c *rdma.Coro, f rdma.Fabric, cat layout.Catalog, o Options) (*Space, error) {
	for x := (opening{term: max(o.Until-f.Now(), 1)}); ; {
		s, err := open(c, f, cat, &x, o)
		switch {
		case errors.Is(err, errAgain):
			continue
		// another process has begun an epoch
		case (errors.Is(err, rdma.ErrStaleKey) || errors.Is(err, errAhead)) && x.stale < maxStaleOpenings:
			x.stale++
			for _, b := range f.Blades() {
				_ = c.Thread().Reconnect(b.ID) // the next attempt says why not
			}
			c.Sleep(openPollNs)
			continue
		case errors.Is(err, ErrShared) && x.waited <= x.limit:
			c.Sleep(openPollNs)
			x.waited += openPollNs
			continue
		}
		return s, err
	}
}

// opening is what Open has seen of a shared database that it waits for.
type opening struct {
	term   int64 // for how long the process registers, whatever Open waits for before, in nanoseconds
	waited int64 // nanoseconds, at least
	limit  int64 // until when it waits
	seen   map[uint32]sign
	stale  int // attempts that have ended since another process had begun an epoch
}

const (
	maxStaleOpenings = 20

	openPollNs  = int64(10_000_000)
	openLimitNs = int64(1_000_000_000)
	// witnessLimitNs is how long an opening waits for the witness to ask a blade.
	witnessLimitNs = int64(5_000_000_000)
)

// sign is what an opening has seen of a process.
type sign struct {
	seenLease      // ends: on the scale of opening.waited
	lives     bool // it has said since the opening began that it is alive
}

// alive lists the processes that may have the database open: those that have not closed it, and
// were seen to be alive within their terms. sure: each has said since the opening began that it is
// alive. A process that has not is alive, or its term passes.
func (o *opening) alive(l *layout.Layout, beats []layout.Beat) (ids []uint32, sure bool) {
	o.limit, sure = max(o.limit, openLimitNs), true
	now := map[uint32]sign{}
	for _, p := range l.Processes {
		x := sign{seenLease: seenLease{until: p.Until, ends: o.waited + p.Term}, lives: o.seen != nil}
		for _, b := range beats {
			if b.Member == p.ID {
				x.mark = b.Count
			}
		}
		switch y, ok := o.seen[p.ID]; {
		case ok && y.until == x.until && y.mark == x.mark:
			x.ends, x.lives = y.ends, y.lives
		case ok && y.until == x.until && x.mark == 0: // a catalog that was started anew has heard no sign
			x.lives = y.lives
		}
		now[p.ID] = x
		if !p.Resigned() && (p.Until == 0 || o.waited <= x.ends) {
			ids = append(ids, p.ID)
			o.limit, sure = max(o.limit, p.Term+openPollNs), sure && (x.lives || p.Until == 0)
		}
	}
	o.seen = now
	return ids, sure
}

// heed takes over what an opening has seen of other processes: a lease ends a term after the last
// sign of life that the opening heard, not a term after the opening.
func (s *membership) heed(o *opening, beats []layout.Beat) {
	r := &registry{seen: map[uint32]seenLease{}}
	for id, x := range o.seen {
		x.ends += s.fabric.Now() - o.waited
		r.seen[id] = x.seenLease
	}
	s.regs.Store(r)
	s.hold(beats)
}

// hold keeps the signs of life that a catalog has told of. The caller holds the lock, or is alone.
func (s *membership) hold(beats []layout.Beat) {
	s.beats = make(map[uint32]layout.Beat, len(beats))
	for _, b := range beats {
		s.beats[b.Member] = b
	}
}

// open is Open; errAgain: another process has changed the catalog meanwhile.
func open(c *rdma.Coro, f rdma.Fabric, cat layout.Catalog, x *opening, o Options) (s *Space, err error) {
	l, rev, err := layout.Load(cat)
	if err != nil {
		return nil, err
	}
	if l != nil {
		if o.Shared && !l.Shared {
			return nil, fmt.Errorf("%w: catalog %s: the database was created without Shared: one process at a time "+
				"can have it open", layout.ErrGeometry, cat.Name())
		}
		o.Shared = l.Shared && !o.ReadOnly
	}
	if o.Attach && l != nil {
		o.Backups, o.SegmentSize, o.LogArea = l.Backups, l.SegmentSize, l.LogArea
	}
	o = o.withDefaults()
	if err := o.Validate(); err != nil {
		return nil, err
	}
	s = &Space{}
	s.store = store{fabric: f, cat: cat, opts: o, above: s, rev: rev, layout: l}
	if o.Shared && o.Until > 0 {
		s.lasts = x.term
	}
	fresh := l == nil
	if fresh {
		if o.Attach || o.ReadOnly {
			return nil, fmt.Errorf("%w: catalog %s is empty", layout.ErrNotFormatted, cat.Name())
		}
		if s.layout, err = newLayout(f, &o); err != nil {
			return nil, err
		}
	} else if err := s.compare(); err != nil {
		return nil, err
	}
	opened := s
	defer func() {
		if (errors.Is(err, rdma.ErrStaleKey) || errors.Is(err, errAhead)) && !opened.opts.Shared {
			if now, askErr := cat.Revision(); !o.ReadOnly || askErr != nil || now == rev {
				x.stale = maxStaleOpenings // no other process has begun an epoch
			}
		}
		if err != nil {
			_ = opened.abandon() // else its registration expires
		}
	}()
	if err := s.attach(c, x, fresh); err != nil {
		if fresh && o.Shared {
			switch now, askErr := cat.Revision(); {
			case askErr != nil:
				err = further(err, "and whether another process has created it is not known", askErr)
			case now > s.rev: // another process has created it meanwhile
				err = errors.Join(errAhead, err)
			}
		}
		return nil, err
	}
	s.dangling, s.withheld = s.layout.Dangling, s.layout.Dangling
	if !o.ReadOnly {
		if err := s.begin(nil); err != nil {
			return nil, err
		}
		if err := s.update(s.enroll); err != nil {
			return nil, err
		}
		if err := s.Stamp(c); err != nil {
			return nil, err
		}
	}
	s.noticed, s.rested = s.rev, s.rev
	s.countCompany(nil, s.layout)
	s.since, s.earlier = s.layout.NextCoordinator, layout.SegmentID(len(s.layout.Segments))
	s.raiseFrees()
	s.initPools()
	s.derive()
	var mine []layout.SegmentID
	for id := range s.layout.Segments {
		if s.mine(layout.SegmentID(id)) {
			mine = append(mine, layout.SegmentID(id))
		}
	}
	if err := s.loadExtents(c, mine, false); err != nil {
		return nil, err
	}
	return s, nil
}

// newLayout is the layout of a database without content.
func newLayout(f rdma.Fabric, o *Options) (*layout.Layout, error) {
	l := &layout.Layout{
		Geometry: layout.Geometry{
			UUID: o.UUID, Backups: o.Backups, SegmentSize: o.SegmentSize, LogArea: o.LogArea, Shared: o.Shared,
		},
		Epoch:           1,
		NextCoordinator: 1,
		Segments:        make([]layout.Segment, 1),
	}
	if l.UUID == (layout.UUID{}) {
		lo := mum.Mix(f.Seed()^0xa0761d6478bd642f, uint64(f.Now())^0x8ebc6af09c88c6e3)
		hi := mum.Mix(lo^f.Seed(), 0x589965cc75374cc3)
		for i := range 8 {
			l.UUID[i], l.UUID[8+i] = byte(lo>>(8*i)), byte(hi>>(8*i))
		}
	}
	infos := f.Blades()
	if err := o.Fit(infos); err != nil {
		return nil, err
	}
	for i, b := range infos {
		x := layout.Blade{Size: b.Size}
		if i < len(o.Domains) {
			x.Domain = o.Domains[i]
		}
		if b.Size == 0 { // a place for one that is added later
			x.State, x.Leaving = layout.BladeDown, true
		}
		l.Blades = append(l.Blades, x)
	}
	return l, nil
}

// compare checks fabric and options against the catalog, and notes blades that
// have grown.
func (s *store) compare() error {
	l, o := s.layout, &s.opts
	var errs []error
	differ := func(what string, have, want any) {
		errs = append(errs, fmt.Errorf("%w: catalog %s: the database has %s %v, not %v",
			layout.ErrGeometry, s.cat.Name(), what, have, want))
	}
	if l.Backups != o.Backups {
		differ("Backups", l.Backups, o.Backups)
	}
	if l.SegmentSize != o.SegmentSize {
		differ("SegmentSize", l.SegmentSize, o.SegmentSize)
	}
	if l.LogArea != o.LogArea {
		differ("LogArea", l.LogArea, o.LogArea)
	}
	infos := s.fabric.Blades()
	if len(infos) != len(l.Blades) {
		differ("Blades", len(l.Blades), len(infos))
		return errors.Join(errs...)
	}
	for i := range infos {
		if infos[i].Size < l.Blades[i].Size && !l.Vacant(infos[i].ID) {
			differ(fmt.Sprintf("BladeSize of %s", o.bladeName(infos[i].ID)), l.Blades[i].Size, infos[i].Size)
		}
	}
	return errors.Join(errs...)
}

// View returns the current segment map. A segment may be younger than a view
// that a caller holds: an address that is not valid in it is looked up again in
// a new view before it is called damaged.
func (s *store) View() *layout.View { return s.view.Load() }

// Fabric returns the fabric.
func (s *store) Fabric() rdma.Fabric { return s.fabric }

// ReadOnly reports whether the database was attached read-only.
func (s *store) ReadOnly() bool { return s.opts.ReadOnly }

// Backups is f.
func (s *store) Backups() int { return s.opts.Backups }

// SegmentSize is the size of a segment in bytes.
func (s *store) SegmentSize() uint32 { return s.opts.SegmentSize }

// Layout returns a copy of everything that the catalog says.
func (s *store) Layout() *layout.Layout {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.layout.Clone()
}

// Close detaches. Allocators must be closed first; coordinators that are still open stay
// registered, as after a crash. The registration of a process that has joined can be
// ended from then on.
func (s *allocation) Close(c *rdma.Coro) error {
	s.mu.Lock()
	err := s.closed
	s.mu.Unlock()
	if err != nil {
		return err
	}
	if !s.opts.ReadOnly {
		if err := errors.Join(s.settleOffered(), s.settleFrees(c)); err != nil {
			return err
		}
		_ = s.Stamp(c) // a blade that does not answer counts as lost, or was told at the opening
	}
	err = s.update(func() error {
		if s.closed != nil {
			return s.closed
		}
		if err := s.agree(); err != nil {
			return err
		}
		if err := s.resign(); err != nil {
			return err
		}
		s.closed = ErrClosed
		return nil
	})
	if err == nil {
		_ = s.Tell(c) // a blade that does not answer was told of an earlier revision
	}
	return err
}

// writable says why the layout cannot change; the caller holds the lock.
func (s *store) writable() error {
	if s.opts.ReadOnly {
		return ErrReadOnly
	}
	return s.closed
}

// derive computes from the layout what the catalog does not say itself, and
// publishes a view. The caller holds the lock, or is the only one.
func (s *Space) derive() {
	l := s.layout
	s.primaries = map[spread][]uint32{}
	for i := 1; i < len(l.Segments); i++ {
		s.count(&l.Segments[i])
	}
	s.logs.derive(l)
	s.register()
	s.publish()
}

// count notes where a segment's primary is.
func (s *replicas) count(seg *layout.Segment) {
	if seg.Placement.N == 0 {
		return
	}
	k := spread{seg.Kind, seg.Class}
	if s.primaries[k] == nil {
		s.primaries[k] = make([]uint32, len(s.layout.Blades))
	}
	s.primaries[k][seg.Placement.Replicas[0].Blade]++
}

// publish makes the layout the current view.
func (s *allocation) publish() {
	l := s.layout
	v := l.View(s.mine)
	clear(s.ownerless)
	for i := range l.Segments {
		if g := &l.Segments[i]; l.Shared && g.Placement.N > 0 && !g.Leaving && g.Kind != layout.KindLog &&
			l.Process(g.Owner) == nil {
			if s.ownerless == nil {
				s.ownerless = map[spread][]layout.SegmentID{}
			}
			k := spread{g.Kind, g.Class}
			s.ownerless[k] = append(s.ownerless[k], layout.SegmentID(i))
		}
	}
	if old := s.view.Load(); old != nil {
		v.Follow(old, s.skipped)
		if old.Epoch != v.Epoch {
			s.past.Store(old)
		}
	}
	s.skipped = false
	s.view.Store(v)
}
