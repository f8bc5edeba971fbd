package memory

import (
	"fmt"
	"slices"
	"sync/atomic"

	"txnode/internal/mutant"
	"txnode/rdma"
)

// registry is what is asked of the open coordinators without a lock.
type registry struct {
	ids   []uint32 // in order
	until []int64
	dead  []bool // being recovered
	gated bool   // one of them was declared dead together with a blade
}

// register publishes the open coordinators; the caller holds the lock.
func (s *Space) register() {
	n := len(s.layout.Coordinators)
	r := &registry{ids: make([]uint32, n), until: make([]int64, n), dead: make([]bool, n)}
	for i, c := range s.layout.Coordinators {
		r.ids[i], r.until[i], r.dead[i] = c.ID, c.Until, c.Recovering
		if from, ok := s.forsaken[c.ID]; ok {
			r.until[i] = from
		}
		r.gated = r.gated || c.Promoted
	}
	s.regs.Store(r)
}

// Registered reports whether a coordinator has not been closed: it is alive, or
// its transactions are not all decided. A lock of one that is not registered
// belongs to a transaction that has had no effect. It takes no lock.
func (s *Space) Registered(id uint32) bool {
	_, ok := slices.BinarySearch(s.regs.Load().ids, id)
	return ok
}

// LeaseState says whether somebody stands for a coordinator.
type LeaseState uint8

// States of a lease.
const (
	LeaseGone    LeaseState = iota // the coordinator was closed
	LeaseLive                      // it has a lease, or needs none
	LeaseExpired                   // it may be declared dead
	LeaseClaimed                   // somebody recovers it
)

// Lease says how things stand with a coordinator at a time of the fabric's clock.
// A claim that has expired is LeaseExpired. It takes no lock.
func (s *Space) Lease(id uint32, now int64) LeaseState {
	r := s.regs.Load()
	i, ok := slices.BinarySearch(r.ids, id)
	switch {
	case !ok:
		return LeaseGone
	case r.until[i] != 0 && now > r.until[i]:
		return LeaseExpired
	case r.dead[i]:
		return LeaseClaimed
	}
	return LeaseLive
}

// Gated reports whether coordinators that were declared dead together with a blade
// are still to be recovered: until then there are no new ones. It takes no lock.
func (s *Space) Gated() bool { return s.regs.Load().gated }

// Expired lists the coordinators whose lease, or the claim on them, has expired.
func (s *Space) Expired(now int64) []uint32 {
	r := s.regs.Load()
	var out []uint32
	for i, id := range r.ids {
		if r.until[i] != 0 && now > r.until[i] {
			out = append(out, id)
		}
	}
	return out
}

// Forsake notes that nobody stands for a coordinator any more, whatever its lease says: that has
// expired, unless somebody recovers it already. The process remembers it, the catalog, which may be
// what has kept the coordinator from being closed, does not.
func (s *Space) Forsake(id uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.findLive(id); err == nil {
		s.forsake(id, 1)
	}
}

// forsake makes the lease of a coordinator, or the claim on it, expire at a time of the fabric's clock,
// unless somebody claims it. The caller holds the lock.
func (s *Space) forsake(id uint32, from int64) {
	if s.forsaken == nil {
		s.forsaken = map[uint32]int64{}
	}
	s.forsaken[id] = from
	s.register()
}

// Renew extends leases to a time of the fabric's clock, in one change of the
// catalog. A coordinator that was declared dead keeps its claim, and one that is
// gone is passed over: who was declared dead learns it from its verbs.
//
// The bound on the drift of clocks is in the caller's arithmetic: until lies
// behind the moment from which others may declare the coordinator dead. Nothing
// but liveness depends on it.
func (s *Space) Renew(until int64, ids ...uint32) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.writable(); err != nil {
		return err
	}
	l := s.layout
	var changes []Entry
	var at []int
	for _, id := range ids {
		if i, err := s.findCoordinator(id); err == nil && !l.Coordinators[i].Recovering && l.Coordinators[i].Until < until {
			c := l.Coordinators[i]
			c.Until = until
			changes, at = append(changes, coordinatorEntry(c)), append(at, i)
		}
	}
	if len(changes) == 0 {
		return nil
	}
	if err := s.commit(changes...); err != nil {
		return err
	}
	for _, i := range at {
		l.Coordinators[i].Until = until
	}
	s.register()
	return nil
}

// Current is View, but waits for a change of the epoch that is under way: blades
// have new keys before the view that has them is published.
func (s *Space) Current() *View {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.View()
}

// Claim is the right to decide the transactions of coordinators that were declared
// dead, and the epoch in which that is done. It belongs to one coroutine. Its
// methods fail with ErrClaimed when somebody else has claimed them since; his
// epoch makes the verbs under this one fail, too.
type Claim struct {
	Coordinators []Coordinator
	// Promoted: of one of them at least, locks and images may be lost with a blade.
	Promoted bool

	space  *Space
	number uint64 // no two claims have the same
	view   atomic.Pointer[View]
}

// ClaimOptions say who recovers, and for how long the claim is good.
type ClaimOptions struct {
	By    uint32 // the coordinator of who recovers; 0: it has none
	Now   int64  // nanoseconds of the fabric's clock
	Until int64  // when others may take over; 0: never
	// Steal takes over claims that have not expired: their holders are known to be dead.
	Steal bool
	// Change adapts the layout in the same step, as for AdvanceEpoch: it declares a
	// blade dead. All open coordinators must be claimed then, and NewCoordinator fails
	// with ErrGated until they are forgotten.
	Change func(*Layout) error
	// Again is a claim of the caller's own whose attempt has failed: as far as nobody
	// has claimed its coordinators since, it gives way to the new one.
	Again *Claim
	// Stay does not advance the epoch: no verb of the coordinators can be on its way,
	// nor one under Again. Where somebody else has had a claim the epoch moves all the
	// same, since his verbs may be.
	Stay bool
}

// Claim declares coordinators dead, whatever their leases say, in one change of the
// catalog that also advances the epoch: when it returns nil, no verb of theirs
// takes effect any more, nor of anybody who had claimed them before. Whoever else
// is at work finds his access keys stale.
//
// Of those that were declared dead together with a blade none is decided without the
// others: a claim on one is one on all.
//
// ErrNoCoordinator: one of them is closed. ErrClaimed: somebody recovers one, and
// his claim has not expired; or By was declared dead itself, and is not among them:
// locks that it took in an index would be open to everybody. Then nothing has changed.
func (s *Space) Claim(o ClaimOptions, ids ...uint32) (*Claim, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.claim(o, ids)
}

// together adds to the numbers of coordinators those that were declared dead with the same
// blade, or another one, if any of them was: what has become of a lock that is lost, the
// logs of all tell together. The caller holds the lock.
func (s *Space) together(ids []uint32) []uint32 {
	out := slices.Clone(ids)
	promoted := false
	for i := range s.layout.Coordinators {
		c := &s.layout.Coordinators[i]
		promoted = promoted || c.Promoted && slices.Contains(ids, c.ID)
	}
	for i := range s.layout.Coordinators {
		if c := &s.layout.Coordinators[i]; promoted && c.Promoted && !slices.Contains(ids, c.ID) && !mutant.DecidedOneByOne {
			out = append(out, c.ID)
		}
	}
	return out
}

// claim is Claim; the caller holds the lock.
func (s *Space) claim(o ClaimOptions, asked []uint32) (*Claim, error) {
	ids := s.together(asked)
	var at []int // of the coordinators in the layout
	if (o.Stay || mutant.ClaimKeepsEpoch) && o.Change == nil {
		l := s.layout.clone()
		var others bool
		var err error
		if at, others, err = s.declareDead(l, &o, asked, ids); err != nil {
			return nil, err
		}
		if others && !mutant.ClaimInSameEpoch && !mutant.ClaimKeepsEpoch {
			o.Stay = false
			return s.claim(o, asked)
		}
		var changes []Entry
		for _, i := range at {
			changes = append(changes, coordinatorEntry(l.Coordinators[i]))
		}
		if err := s.commit(changes...); err != nil {
			return nil, err
		}
		s.layout = l
	} else {
		err := s.advance(func(l *Layout) (err error) {
			at, _, err = s.declareDead(l, &o, asked, ids)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	if s.claims++; s.claimed == nil {
		s.claimed = map[uint32]uint64{}
	}
	c := &Claim{space: s, number: s.claims}
	c.view.Store(s.View())
	for _, i := range at {
		s.claimed[s.layout.Coordinators[i].ID] = c.number
		delete(s.forsaken, s.layout.Coordinators[i].ID)
		c.Coordinators = append(c.Coordinators, s.areas(s.layout.Coordinators[i]))
		c.Promoted = c.Promoted || s.layout.Coordinators[i].Promoted
	}
	s.register()
	return c, nil
}

// declareDead notes a claim on the coordinators ids in l, a copy of the layout, and makes
// o.Change there. It returns where they are in it, and whether somebody else was at it, whose
// verbs may be on their way. The caller holds the lock.
func (s *Space) declareDead(l *Layout, o *ClaimOptions, asked, ids []uint32) (at []int, others bool, err error) {
	if o.By != 0 && !slices.Contains(asked, o.By) {
		if i, err := s.findCoordinator(o.By); err != nil || l.Coordinators[i].Recovering {
			return nil, false, fmt.Errorf("%w: coordinator %d cannot recover others, it was declared dead itself", ErrClaimed, o.By)
		}
	}
	for _, id := range ids {
		i, err := s.findCoordinator(id)
		if err != nil {
			return nil, false, err
		}
		e := &l.Coordinators[i]
		again := o.Again != nil && o.Again.has(e)
		until := e.Until
		if from, ok := s.forsaken[id]; ok {
			until = from
		}
		if e.Recovering && !again && !o.Steal && (until == 0 || o.Now <= until) && !(e.By == o.By && o.By != 0) {
			return nil, false, fmt.Errorf("%w: %d, by %d", ErrClaimed, id, e.By)
		}
		at, others = append(at, i), others || e.Recovering && !again
		if mutant.ClaimUnmarked {
			continue
		}
		e.Recovering, e.By, e.Until = true, o.By, o.Until
		e.Promoted = e.Promoted && !mutant.PromotionForgotten || o.Change != nil
	}
	if o.Change == nil {
		return at, others, nil
	}
	if len(at) != len(l.Coordinators) {
		return nil, false, fmt.Errorf("%w: %d of %d coordinators are claimed with a change of the blades", ErrLayout, len(at), len(l.Coordinators))
	}
	return at, others, o.Change(l)
}

// View is the newest view of the claim's epoch.
func (c *Claim) View() *View {
	v, old := c.space.View(), c.view.Load()
	if v == old || v.Epoch != old.Epoch {
		return old
	}
	c.view.Store(v)
	return v
}

// AllocExtent is Space.AllocExtent: an index can be opened over a claim.
func (c *Claim) AllocExtent(co *rdma.Coro, size uint32) (Addr, error) {
	return c.space.AllocExtent(co, size)
}

// FreeExtent is Space.FreeExtent.
func (c *Claim) FreeExtent(a Addr, size uint32) error { return c.space.FreeExtent(a, size) }

// has reports whether the claim on a coordinator is this one still; the caller holds the lock of
// the space.
func (c *Claim) has(e *CoordinatorEntry) bool {
	return e.Recovering && (c.space.claimed[e.ID] == c.number || mutant.ClaimsAlike)
}

// Abandon gives the claim up: from a time of the fabric's clock on others may claim the coordinators,
// though it does not expire.
func (c *Claim) Abandon(from int64) {
	s := c.space
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range c.Coordinators {
		if i, err := s.findCoordinator(x.ID); err == nil && c.has(&s.layout.Coordinators[i]) {
			s.forsake(x.ID, from)
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
		if e := &c.space.layout.Coordinators[i]; !c.has(e) && !mutant.ClaimUnmarked {
			return nil, fmt.Errorf("%w: %d, by %d since", ErrClaimed, x.ID, e.By)
		}
		at = append(at, i)
	}
	if c.space.layout.Epoch != c.view.Load().Epoch {
		return nil, fmt.Errorf("%w: the epoch is %d, not %d", rdma.ErrStaleKey, c.space.layout.Epoch, c.view.Load().Epoch)
	}
	return at, nil
}

// Renew extends the claim to a time of the fabric's clock, in one change of the catalog:
// whoever is still at work is not taken for dead because there was much to do. It fails
// with ErrClaimed or rdma.ErrStaleKey when somebody else is at it by now.
func (c *Claim) Renew(until int64) error {
	s := c.space
	s.mu.Lock()
	defer s.mu.Unlock()
	at, err := c.stands()
	if err != nil || mutant.ClaimNotRenewed {
		return err
	}
	l := s.layout
	changes := make([]Entry, len(at))
	ends := make([]int64, len(at))
	for k, i := range at {
		e := l.Coordinators[i]
		e.Until = max(until, e.Until)
		changes[k], ends[k] = coordinatorEntry(e), e.Until
	}
	if err := s.commit(changes...); err != nil {
		return err
	}
	for k, i := range at {
		l.Coordinators[i].Until = ends[k]
	}
	s.register()
	return nil
}

// Decide makes verdicts durable, together with those that an earlier claimant
// has made: before anything is done about them.
func (c *Claim) Decide(verdicts []Verdict) error {
	s := c.space
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := c.stands(); err != nil {
		return err
	}
	if mutant.VerdictNotKept {
		return nil
	}
	all := slices.Clone(s.layout.Verdicts)
	var changes []Entry
	for _, v := range verdicts {
		i, ok := findVerdict(all, v.Coordinator)
		if ok {
			v = all[i].merge(v)
			all[i] = v
		} else {
			all = slices.Insert(all, i, v)
		}
		changes = append(changes, verdictEntry(&v))
	}
	if len(changes) == 0 {
		return nil
	}
	if err := s.commit(changes...); err != nil {
		return err
	}
	s.layout.Verdicts = all
	return nil
}

// Forget closes the claimed coordinators: all of their transactions are at rest,
// and their log areas are clear. Others may have the areas from now on. What the
// logs did not tell of is left for a sweep.
func (c *Claim) Forget() error {
	s := c.space
	s.mu.Lock()
	defer s.mu.Unlock()
	at, err := c.stands()
	if err != nil {
		return err
	}
	l := s.layout
	hollow := s.hollow || c.Promoted
	changes := []Entry{l.stateEntry(len(l.Segments)-1, len(l.Tables), len(l.Coordinators)-len(at)), sweepEntry(hollow, false), looseEntry()}
	for _, i := range at {
		changes = append(changes, Entry{Key: keyOf(prefixCoordinator, l.Coordinators[i].ID)})
	}
	if err := s.commit(changes...); err != nil {
		return err
	}
	gone := map[uint32]bool{}
	for _, i := range at {
		gone[l.Coordinators[i].ID] = true
		delete(s.claimed, l.Coordinators[i].ID)
		delete(s.forsaken, l.Coordinators[i].ID)
		delete(s.logs.used, l.Coordinators[i].Slot)
	}
	l.Coordinators = slices.DeleteFunc(slices.Clone(l.Coordinators), func(e CoordinatorEntry) bool { return gone[e.ID] })
	l.Unswept, l.Hollow, l.Spared, l.Loose = true, hollow, false, true
	s.hollow = hollow
	if c.Promoted {
		s.losses++
	}
	s.sweeps++
	s.torn.Store(true)
	s.register()
	return nil
}

// bereft notes the loss of a blade with which nobody was declared dead, since no coordinator
// was open: nobody is forgotten later. What dead ones have left, and no sweep has come to,
// may have been on the blade all the same. The caller holds the lock.
func (s *Space) bereft() {
	s.hollow = true
	s.losses++
	s.sweeps++
	s.torn.Store(true)
}

// Unswept reports whether something of dead coordinators may be left on the blades,
// and a number for Swept: which sweep would find it.
func (s *Space) Unswept() (generation uint64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sweeps, s.layout.Unswept
}

// Hollow reports whether a blade was lost since the database was opened, or before, and no sweep
// has come to its end since: slots of an index may lead to blocks whose placeholders it had, and that
// are free. Sessions of that time may leave such slots behind later, so it stays true.
func (s *Space) Hollow() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hollow
}

// Torn reports whether changes of indexes may be half-done whose clients are gone: a
// coordinator was forgotten since the indexes were swept last, or may be declared dead
// at the time given. It takes no lock.
func (s *Space) Torn(now int64) bool {
	if s.torn.Load() {
		return true
	}
	r := s.regs.Load()
	for i := range r.ids {
		if r.until[i] != 0 && now > r.until[i] {
			return true
		}
	}
	return false
}

// SweptIndexes notes that the indexes were swept for what coordinators have left that
// were gone when Unswept returned the number.
func (s *Space) SweptIndexes(generation uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sweeps == generation {
		s.torn.Store(false)
	}
}

// sweepAgain makes a sweep due; the caller holds the lock.
func (s *Space) sweepAgain() error {
	if err := s.writable(); err != nil {
		return err
	}
	if !s.layout.Unswept || s.layout.Spared {
		if err := s.commit(sweepEntry(s.hollow, false)); err != nil {
			return err
		}
		s.layout.Unswept, s.layout.Hollow, s.layout.Spared = true, s.hollow, false
	}
	s.sweeps++
	return nil
}

// Swept notes that a sweep is over which began when Unswept returned the number.
func (s *Space) Swept(generation uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.writable(); err != nil {
		return err
	}
	if !s.layout.Unswept || s.sweeps != generation {
		return nil
	}
	if err := s.commit(Entry{Key: keySweep}); err != nil {
		return err
	}
	s.layout.Unswept, s.layout.Hollow, s.layout.Spared = false, false, false
	s.withheld = false
	return nil
}

// SweptBeside notes that a sweep which began when Unswept returned the number has left nothing but
// what is damaged. Another one is due.
func (s *Space) SweptBeside(generation uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.writable(); err != nil {
		return err
	}
	l := s.layout
	if !l.Unswept || l.Spared || s.sweeps != generation {
		return nil
	}
	if err := s.commit(sweepEntry(l.Hollow, true)); err != nil {
		return err
	}
	l.Spared = true
	return nil
}

// Tidy reports whether nothing is left to be swept of who has died, but what is damaged.
func (s *Space) Tidy() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tidy()
}

func (s *Space) tidy() bool { return !s.layout.Unswept || s.layout.Spared }

// Spared reports whether all that is to be swept is what is damaged.
func (s *Space) Spared() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.layout.Spared
}

// Loose reports whether extents may be allocated that nothing leads to: a coordinator
// has died since Fastened was called last.
func (s *Space) Loose() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.layout.Loose
}

// Fastened notes that nothing is left of the extents that Loose is about, but for deaths after
// the generation that Unswept had returned before they were looked for and freed.
func (s *Space) Fastened(generation uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.writable(); err != nil {
		return err
	}
	if !s.layout.Loose || s.sweeps != generation {
		return nil
	}
	if err := s.commit(Entry{Key: keyLoose}); err != nil {
		return err
	}
	s.layout.Loose = false
	return nil
}
