package memory

import (
	"fmt"
	"slices"
	"sync/atomic"

	"txnode/memory/layout"
	"txnode/rdma"
)

// Claim is the right to decide the transactions of coordinators that were declared dead, and the
// epoch in which that is done. It belongs to one coroutine. Its methods fail with ErrClaimed after
// another claim on the same coordinators; the later epoch makes the verbs under the earlier one
// fail, too.
type Claim struct {
	Coordinators []Coordinator
	// Promoted: of one of them at least, locks and images may be lost with a blade.
	Promoted bool

	space  *allocation
	number map[uint32]uint32 // of the claim, by coordinator: see CoordinatorEntry.Claim
	waits  bool              // see Outlasts
	view   atomic.Pointer[layout.View]
}

// ClaimOptions say which coordinator recovers, and for how long the claim is good.
type ClaimOptions struct {
	By    uint32 // the coordinator that recovers, or the process, if it has joined; 0: none
	Now   int64  // nanoseconds of the fabric's clock
	Until int64  // when others may take over; 0: never
	// Steal takes over claims that have not expired: their holders are known to be dead. Those of
	// other processes that are registered are taken over with Change alone.
	Steal bool
	// Change adapts the layout in the same step, as for AdvanceEpoch: it declares a
	// blade dead. All open coordinators must be claimed then, and NewCoordinator fails
	// with ErrGated until they are forgotten.
	Change func(*layout.Layout) error
	// Again is a claim of the caller's own whose attempt has failed. It gives way to the new one,
	// unless another claim has taken its coordinators since.
	Again *Claim
	// Stay does not advance the epoch: no verb of the coordinators can be on its way, nor one under
	// Again. After a claim by another claimant the epoch moves all the same, since its verbs may be
	// on their way.
	Stay bool
}

// maxClaimTerm bounds for how long a claim is made good beyond what is asked, in nanoseconds.
const maxClaimTerm = 60_000_000_000

// patience makes a claim good for as long as the one before was, and for twice as long if that
// expired, or was stolen, and is somebody else's: two that need more time than they have would take
// over from one another for ever.
func (o *ClaimOptions) patience(term int64, others bool) {
	if o.Until == 0 || term == 0 {
		return
	}
	if others {
		term *= 2
	}
	o.Until = max(o.Until, o.Now+min(term, maxClaimTerm))
}

// Claim declares coordinators dead, whatever their leases say, in one change of the catalog that
// also advances the epoch. When it returns nil, no verb of these coordinators takes effect any
// more, nor of any earlier claimant. Sessions that are at work find their access keys stale.
//
// Coordinators that were declared dead together with a blade are decided together: a claim on one
// is a claim on all.
//
// ErrNoCoordinator: one of them is closed. ErrClaimed: one of them is being recovered under a claim
// that has not expired. Or By was itself declared dead and is not among them: the locks that it
// took in an index would be open to all. Then nothing has changed.
func (s *allocation) Claim(o ClaimOptions, ids ...uint32) (*Claim, error) {
	if o.Stay && o.Change == nil {
		c, others, err := s.claimHere(o, ids)
		if err != nil || !others {
			return c, err
		}
	}
	if o.Change == nil { // else it may be what sees to the blade
		if err := s.EndKeys(); err != nil { // the epoch of the claim would be in vain
			return nil, err
		}
	}
	var at []int // of the coordinators in the layout
	var numbers map[uint32]uint32
	var made ClaimOptions
	moved, err := s.advance(func(l *layout.Layout) (err error) {
		made = o
		at, _, err = s.declareDead(l, &made, ids)
		return err
	}, func() { numbers = s.claimedNow(&made, at) })
	if err != nil {
		if moved { // a blade has not got its key, and no process has the claim
			s.mu.Lock()
			defer s.mu.Unlock()
			for id := range numbers {
				s.expireLease(id, max(o.Now, 1))
			}
		}
		return nil, err
	}
	var c *Claim
	s.settled(func() { c, err = s.claimOf(numbers) })
	if err == nil {
		c.waits = true
	}
	return c, err
}

// claimHere is Claim in the epoch that is, unless others are at it, whose verbs may be on their
// way.
func (s *allocation) claimHere(o ClaimOptions, ids []uint32) (c *Claim, others bool, err error) {
	err = s.update(func() error {
		l, made := s.layout.Clone(), o
		var at []int
		var err error
		if at, others, err = s.declareDead(l, &made, ids); err != nil || others {
			return err
		}
		var changes []layout.Entry
		for _, i := range at {
			changes = append(changes, layout.EntryOfCoordinator(l.Coordinators[i]))
		}
		if err := s.commit(changes...); err != nil {
			return err
		}
		s.layout = l
		numbers := s.claimedNow(&made, at)
		s.register()
		if c, err = s.claimOf(numbers); err == nil && o.Again != nil {
			c.waits = o.Again.waits // of this epoch
		}
		return err
	})
	return c, others, err
}

// claimedNow notes that the catalog has a claim of this process on the coordinators at these
// places, and returns its numbers. The caller holds the lock.
func (s *membership) claimedNow(o *ClaimOptions, at []int) map[uint32]uint32 {
	if s.claimed == nil {
		s.claimed = map[uint32]int64{}
	}
	numbers := map[uint32]uint32{}
	for _, i := range at {
		e := &s.layout.Coordinators[i]
		numbers[e.ID] = e.Claim
		s.claimed[e.ID] = max(o.Until-o.Now, 0)
		delete(s.abandoned, e.ID)
	}
	return numbers
}

// claimOf is the claim that the catalog has on coordinators, unless another claimant has taken one
// of them since: ErrClaimed. The caller holds the lock.
func (s *allocation) claimOf(numbers map[uint32]uint32) (*Claim, error) {
	c := &Claim{space: s, number: numbers}
	c.view.Store(s.View())
	for i := range s.layout.Coordinators {
		e := &s.layout.Coordinators[i]
		if _, ok := numbers[e.ID]; !ok || !c.has(e) {
			continue
		}
		c.Coordinators = append(c.Coordinators, s.areas(*e))
		c.Promoted = c.Promoted || e.Promoted
	}
	if len(c.Coordinators) < len(numbers) {
		return nil, fmt.Errorf("%w: by another claimant since", ErrClaimed)
	}
	return c, nil
}

// together adds to the numbers of coordinators those that were declared dead with the same
// blade, or another one, if any of them was: what has become of a lock that is lost, the
// logs of all tell together. The caller holds the lock.
func (s *store) together(ids []uint32) []uint32 {
	out := slices.Clone(ids)
	promoted := false
	for i := range s.layout.Coordinators {
		c := &s.layout.Coordinators[i]
		promoted = promoted || c.Promoted && slices.Contains(ids, c.ID)
	}
	for i := range s.layout.Coordinators {
		if c := &s.layout.Coordinators[i]; promoted && c.Promoted && !slices.Contains(ids, c.ID) {
			out = append(out, c.ID)
		}
	}
	return out
}

// declareDead notes a claim on the coordinators asked for, and those that belong with them, in l, a
// copy of the layout, and makes o.Change there. It returns where they are in it, and whether
// somebody else was at it, whose verbs may be on their way. The caller holds the lock.
func (s *membership) declareDead(l *layout.Layout, o *ClaimOptions, asked []uint32) (at []int, others bool, err error) {
	ids := s.together(asked)
	if o.By != 0 && !slices.Contains(asked, o.By) {
		if i, err := s.findCoordinator(o.By); l.Process(o.By) == nil && (err != nil || l.Coordinators[i].Recovering) {
			return nil, false, fmt.Errorf("%w: coordinator %d cannot recover others, it was declared dead itself",
				ErrClaimed, o.By)
		}
	}
	for _, id := range ids {
		i, err := s.findCoordinator(id)
		if err != nil {
			return nil, false, err
		}
		e := &l.Coordinators[i]
		again := o.Again != nil && o.Again.has(e)
		until := s.regs.Load().untilOf(id)
		steal := o.Steal && (o.Change != nil || e.By == s.process || l.Process(e.By) == nil)
		if e.Recovering && !again && !steal && (until == 0 || o.Now <= until) &&
			!(e.By == o.By && o.By != 0 && l.Process(o.By) == nil) {
			return nil, false, fmt.Errorf("%w: %d, by %d", ErrClaimed, id, e.By)
		}
		at, others = append(at, i), others || e.Recovering && !again
		o.patience(s.claimed[id], e.Recovering && !again && e.By != o.By)
		e.Recovering, e.By = true, o.By
		e.Claim++
		e.Promoted = e.Promoted || o.Change != nil
	}
	for _, i := range at {
		l.Coordinators[i].Until, l.Coordinators[i].Term = o.Until, s.claimTerm(o)
	}
	if o.Change == nil {
		return at, others, nil
	}
	if len(at) != len(l.Coordinators) {
		return nil, false, fmt.Errorf("%w: %d of %d coordinators are claimed with a change of the blades",
			layout.ErrLayout, len(at), len(l.Coordinators))
	}
	return at, others, o.Change(l)
}

// claimTerm is for how long a claim is good for processes with clocks of their own; 0: they have
// none.
func (s *store) claimTerm(o *ClaimOptions) int64 {
	if !s.opts.Shared || o.Until == 0 {
		return 0
	}
	return max(o.Until-o.Now, 1)
}

// View is the newest view of the claim's epoch.
func (c *Claim) View() *layout.View {
	v, old := c.space.View(), c.view.Load()
	if v == old || v.Epoch != old.Epoch {
		return old
	}
	c.view.Store(v)
	return v
}

// Follow is Space.Follow.
func (c *Claim) Follow() error { return c.space.Follow() }

// NewExtent is Space.NewExtent: an index can be opened over a claim.
func (c *Claim) NewExtent(co *rdma.Coro, size uint32) (Extent, error) {
	return c.space.NewExtent(co, size)
}

// FreeExtent is Space.FreeExtent.
func (c *Claim) FreeExtent(x Extent) (bool, error) { return c.space.FreeExtent(x) }

// ExtentAt is Space.ExtentAt.
func (c *Claim) ExtentAt(a layout.Addr) Extent { return c.space.ExtentAt(a) }

// has reports whether the claim on a coordinator is this one still; the caller holds the lock of
// the space.
func (c *Claim) has(e *layout.CoordinatorEntry) bool {
	number, ok := c.number[e.ID]
	return ok && e.Recovering && e.Claim == number
}

// Abandon gives the claim up: from a time of the fabric's clock on others may claim the
// coordinators, though it does not expire.
func (c *Claim) Abandon(from int64) {
	s := c.space
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range c.Coordinators {
		if i, err := s.findCoordinator(x.ID); err == nil && c.has(&s.layout.Coordinators[i]) {
			s.expireLease(x.ID, from)
		}
	}
}

// stands returns where in the catalog the claimed coordinators are; the caller
// holds the lock of the space.
func (c *Claim) stands() ([]int, error) {
	var at []int
	for _, x := range c.Coordinators {
		i, err := c.space.findCoordinator(x.ID)
		if err != nil {
			return nil, err
		}
		if e := &c.space.layout.Coordinators[i]; !c.has(e) {
			return nil, fmt.Errorf("%w: %d, by %d since", ErrClaimed, x.ID, e.By)
		}
		at = append(at, i)
	}
	if c.space.layout.Epoch != c.view.Load().Epoch {
		return nil, fmt.Errorf("%w: the epoch is %d, not %d", rdma.ErrStaleKey, c.space.layout.Epoch,
			c.view.Load().Epoch)
	}
	return at, nil
}

// Renew extends the claim to a time of the fabric's clock, in one change of the catalog, so that a
// claimant with much to do is not taken for dead. After another claim it fails with ErrClaimed or
// rdma.ErrStaleKey.
func (c *Claim) Renew(until int64) error {
	s := c.space
	return s.update(func() error {
		at, err := c.stands()
		if err != nil {
			return err
		}
		l := s.layout
		changes := make([]layout.Entry, len(at))
		ends, terms := make([]int64, len(at)), make([]int64, len(at))
		for k, i := range at {
			e := l.Coordinators[i]
			e.Until = max(until, e.Until)
			e.Term = s.term(e.Until)
			changes[k], ends[k], terms[k] = layout.EntryOfCoordinator(e), e.Until, e.Term
		}
		if err := s.commit(changes...); err != nil {
			return err
		}
		for k, i := range at {
			l.Coordinators[i].Until, l.Coordinators[i].Term = ends[k], terms[k]
		}
		s.register()
		return nil
	})
}

// Decide makes verdicts durable, together with those that an earlier claimant
// has made: before anything is done about them.
func (c *Claim) Decide(verdicts []layout.Verdict) error {
	s := c.space
	return s.update(func() error {
		if _, err := c.stands(); err != nil {
			return err
		}
		all := slices.Clone(s.layout.Verdicts)
		var changes []layout.Entry
		for _, v := range verdicts {
			i, ok := layout.FindVerdict(all, v.Coordinator)
			if ok {
				v = all[i].Merge(v)
				all[i] = v
			} else {
				all = slices.Insert(all, i, v)
			}
			changes = append(changes, layout.EntryOfVerdict(&v))
		}
		if len(changes) == 0 {
			return nil
		}
		if err := s.commit(changes...); err != nil {
			return err
		}
		s.layout.Verdicts = all
		return nil
	})
}

// Forget closes the claimed coordinators: all of their transactions are at rest,
// and their log areas are clear. Others may have the areas from now on. What the
// logs did not tell of is left for a sweep.
func (c *Claim) Forget() error {
	s := c.space
	return s.update(func() error {
		at, err := c.stands()
		if err != nil {
			return err
		}
		l := s.layout
		dangling := s.dangling || c.Promoted
		next := l.Clone()
		changes := append(s.takeSweep(next), l.EntryOfState(len(l.Segments)-1, len(l.Tables),
			len(l.Coordinators)-len(at)), layout.EntryOfSweep(dangling, false), layout.EntryOfLeaked())
		for _, i := range at {
			changes = append(changes, layout.Entry{Key: layout.KeyOf(layout.PrefixCoordinator, l.Coordinators[i].ID)})
		}
		if err := s.commit(changes...); err != nil {
			return err
		}
		gone := map[uint32]bool{}
		for _, i := range at {
			gone[l.Coordinators[i].ID] = true
			delete(s.claimed, l.Coordinators[i].ID)
			delete(s.abandoned, l.Coordinators[i].ID)
			delete(s.logs.used, l.Coordinators[i].Slot)
		}
		l.Coordinators = slices.DeleteFunc(slices.Clone(l.Coordinators), func(e layout.CoordinatorEntry) bool {
			return gone[e.ID]
		})
		l.Unswept, l.Dangling, l.OnlyDamage, l.Leaked, l.Rights = true, dangling, false, true, next.Rights
		s.dangling = dangling
		if c.Promoted {
			s.losses++
		}
		s.sweeps++
		s.owing = s.opts.Shared // what it has freed for them, and what was theirs, if they were its own
		s.halfDone.Store(true)
		s.register()
		return nil
	})
}
