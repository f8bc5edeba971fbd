package memory

import (
	"errors"
	"slices"

	"txnode/memory/layout"
)

// longAgo is an end of a lease that has passed by every clock of a fabric.
const longAgo = 1

// registry is what is asked of the open coordinators without a lock.
type registry struct {
	ids             []uint32     // in order
	until           []int64      // by the clock of this process
	dead            []bool       // being recovered
	failoverPending bool         // one of them was declared dead together with a blade
	givenUp         bool         // no session stands for one of them, as the catalog says: see GiveUp
	cut             uint32       // see CutNumber
	next            uint32       // coordinator: this process knows nothing of that one and later ones
	processes       []uint32     // those that have joined, in order
	ends            []int64      // of their registrations, by the clock of this process
	process         uint32       // number of this process: see membership.process
	epoch           layout.Epoch // of the catalog: the view may still be that of an earlier one
	good            int64        // until when no other process takes this one for gone, by its own clock: see Fresh
	// seen are, by number, the leases that end when they have not changed for a time.
	seen map[uint32]seenLease
	down uint64       // a bit for each blade that is down
	loss layout.Epoch // see lossOf
}

// seenLease is a lease by another process's clock, which is not compared with that of this one.
type seenLease struct {
	until int64 // as the catalog has it
	mark  uint64
	ends  int64 // by the clock of this process: a term after it saw that
	// knows is an epoch that the process knew when it registered, or when it said last
	// that it was alive.
	knows layout.Epoch
}

// register publishes the open coordinators; the caller holds the lock.
func (s *membership) register() {
	n := len(s.layout.Coordinators)
	r := &registry{
		ids: make([]uint32, n), until: make([]int64, n), dead: make([]bool, n),
		next: s.layout.NextCoordinator, process: s.process, epoch: s.layout.Epoch, good: s.good(),
	}
	old := s.regs.Load()
	r.lossOf(s.layout, old)
	for _, p := range s.layout.Processes {
		r.processes = append(r.processes, p.ID)
		ends := r.end(s, old, p.ID, seenLease{until: p.Until, mark: s.beats[p.ID].Count}, p.Term)
		if x, ok := r.seen[p.ID]; ok {
			x.knows = max(x.knows, s.beats[p.ID].Knows)
			r.seen[p.ID] = x
		}
		r.ends = append(r.ends, ends)
	}
	for i, c := range s.layout.Coordinators {
		r.ids[i], r.dead[i] = c.ID, c.Recovering
		r.until[i] = s.endOf(r, old, c)
		if from, ok := s.abandoned[c.ID]; ok {
			r.until[i] = from
		}
		r.failoverPending = r.failoverPending || c.Promoted
		r.givenUp = r.givenUp || c.Process != 0 && c.Until == longAgo && !c.Recovering
	}
	if i, ok := s.layout.FindRight(layout.RightBackup); ok && s.layout.Rights[i].Fault == 0 {
		r.cut = s.layout.Rights[i].Cut
	}
	s.regs.Store(r)
	for id := range s.own {
		if !r.has(id) {
			delete(s.own, id)
			s.leaked++
		}
	}
}

// endOf is when the lease of a coordinator ends, or the claim on it, by the clock of this process;
// 0: never. The caller holds the lock.
func (s *membership) endOf(r, old *registry, c layout.CoordinatorEntry) int64 {
	lease, own := s.own[c.ID]
	switch {
	case c.Recovering:
		return r.end(s, old, c.ID, seenLease{until: c.Until, mark: uint64(c.Claim)}, c.Term)
	case own && (c.Process == 0 || c.Process == s.process): // else this process has another name since
		return lease
	case c.Process == 0 || c.Until == longAgo:
		return c.Until
	}
	i, ok := slices.BinarySearch(r.processes, c.Process)
	if !ok || c.Process == s.process { // its registration was not answered: nobody stands for it
		return longAgo
	}
	return r.ends[i]
}

// owns reports whether this process has registered an open coordinator. The caller holds the lock.
func (s *membership) owns(id uint32) bool {
	_, ok := s.own[id]
	return ok
}

// end is when a lease ends by the clock of this process, of which old is known.
func (r *registry) end(s *membership, old *registry, id uint32, x seenLease, term int64) int64 {
	if term == 0 || x.until == 0 {
		return x.until
	}
	if r.seen == nil {
		r.seen = map[uint32]seenLease{}
	}
	x.ends = s.fabric.Now() + term
	if old != nil {
		y, ok := old.seen[id]
		switch {
		case !ok || y.until != x.until:
			x.knows = old.epoch
		case y.mark == x.mark:
			x.ends, x.knows = y.ends, y.knows
		default:
			x.knows = y.knows
		}
	}
	r.seen[id] = x
	return x.ends
}

// term is for how long a lease is good that ends at a time of this process's clock, when other
// processes have clocks of their own; 0: they have not.
func (s *store) term(until int64) int64 {
	if !s.opts.Shared || until <= 0 {
		return 0
	}
	return max(until-s.fabric.Now(), 1)
}

// ended reports whether the registration of a process has expired.
func (r *registry) ended(process uint32, now int64) bool {
	i, ok := slices.BinarySearch(r.processes, process)
	return ok && r.ends[i] != 0 && now > r.ends[i]
}

// untilOf is when the lease of an open coordinator ends, or the claim on it; 0: never.
func (r *registry) untilOf(id uint32) int64 {
	i, ok := slices.BinarySearch(r.ids, id)
	if !ok {
		return 0
	}
	return r.until[i]
}

// has reports whether a coordinator is open, or a process registered, under a number.
func (r *registry) has(id uint32) bool {
	if _, ok := slices.BinarySearch(r.ids, id); ok {
		return true
	}
	_, ok := slices.BinarySearch(r.processes, id)
	return ok
}

// Registered reports whether a coordinator has not been closed: it is alive, or its
// transactions are not all decided. A lock of one that is not registered belongs to a
// transaction that has had no effect. A process that has joined has a number, too, under which
// it recovers others. It takes no lock, unless another process may have registered the
// coordinator since this one has looked at the catalog: then it follows. If the catalog cannot
// be asked, the coordinator counts as registered.
func (s *membership) Registered(id uint32) bool {
	r := s.regs.Load()
	if id >= r.next {
		if s.Follow() != nil {
			return true
		}
		r = s.regs.Load()
	}
	return r.has(id)
}

// LeaseState says whether a session stands for a coordinator.
type LeaseState uint8

// States of a lease.
const (
	LeaseGone    LeaseState = iota // the coordinator was closed
	LeaseLive                      // it has a lease, or needs none
	LeaseExpired                   // it may be declared dead
	LeaseClaimed                   // it is being recovered
	LeaseUnknown                   // it may have been registered, or renewed, and the catalog has not answered
)

// Lease says how things stand with a coordinator at a time of the fabric's clock. A claim that has
// expired is LeaseExpired. It takes no lock, unless another process may have registered the
// coordinator, or renewed its lease, since this one has looked at the catalog: then it follows. If
// the catalog cannot be asked for that, it is LeaseUnknown.
func (s *membership) Lease(id uint32, now int64) LeaseState {
	r := s.regs.Load()
	state := r.lease(id, now)
	switch {
	case state == LeaseExpired && s.Listen() != nil:
		return LeaseUnknown
	case state == LeaseExpired:
	case id < r.next:
		return state
	case s.Follow() != nil:
		return LeaseUnknown
	}
	return s.regs.Load().lease(id, now)
}

// Lives reports whether Lease would say, without asking the catalog, that a coordinator is alive.
// It takes no lock, and waits for nothing.
func (s *membership) Lives(id uint32, now int64) bool {
	r := s.regs.Load()
	return id < r.next && r.lease(id, now) == LeaseLive
}

func (r *registry) lease(id uint32, now int64) LeaseState {
	i, ok := slices.BinarySearch(r.ids, id)
	switch {
	case !ok && r.has(id): // a process: what it has begun ends with its registration
		return LeaseLive
	case !ok:
		return LeaseGone
	case r.until[i] != 0 && now > r.until[i]:
		return LeaseExpired
	case r.dead[i]:
		return LeaseClaimed
	}
	return LeaseLive
}

// NextCoordinator is the number that the next coordinator, or process, gets: those that have
// smaller ones were there before, or are gone. It takes no lock.
func (s *membership) NextCoordinator() uint32 { return s.regs.Load().next }

// FailoverPending reports whether coordinators that were declared dead together with a blade
// are still to be recovered: until then there are no new ones. It takes no lock.
func (s *membership) FailoverPending() bool { return s.regs.Load().failoverPending }

// Expired lists the coordinators whose lease, or the claim on them, has expired. If there seem to
// be any it asks the catalog, since their processes may be alive. If the catalog cannot be asked,
// none is known to have expired. A process that is cut off a blade leaves all to others.
func (s *membership) Expired(now int64) []uint32 {
	if len(s.regs.Load().expired(now)) == 0 || s.IsCutOff() || s.Listen() != nil {
		return nil
	}
	return s.regs.Load().expired(now)
}

func (r *registry) expired(now int64) (out []uint32) {
	for i, id := range r.ids {
		if r.until[i] != 0 && now > r.until[i] {
			out = append(out, id)
		}
	}
	return out
}

// Abandon notes that no session stands for a coordinator any more. Its lease counts as expired,
// unless it is being recovered already. The process remembers this. The catalog does not: it may be
// what has kept the coordinator from being closed.
func (s *membership) Abandon(id uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.findLive(id); err == nil {
		s.expireLease(id, 1)
	}
}

// abandonUnknown abandons coordinators that are being recovered under claims of this process of
// which their claimants were told that they had failed. The caller holds the lock.
func (s *membership) abandonUnknown(was []layout.CoordinatorEntry) {
	old := layout.Layout{Coordinators: was}
	for i := range s.layout.Coordinators {
		e := &s.layout.Coordinators[i]
		if had := old.Coordinator(e.ID); e.Recovering && (had == nil || *had != *e) {
			s.expireLease(e.ID, 1)
		}
	}
}

// expireLease makes the lease of a coordinator, or the claim on it, expire at a time of the
// fabric's clock, unless somebody claims it. The caller holds the lock.
func (s *membership) expireLease(id uint32, from int64) {
	if s.abandoned == nil {
		s.abandoned = map[uint32]int64{}
	}
	s.abandoned[id] = from
	s.register()
}

// Renew extends leases of coordinators of this process to a time of the fabric's clock, which costs
// nothing, and has the catalog know that this process is alive, if it has joined (Options.Until):
// that is no change of the catalog, and holds up nothing while there is no answer. A coordinator
// that was declared dead keeps its claim, and learns of it from its verbs. One that is gone is
// passed over. One of this process that has not been renewed in time is given up, by a change:
// others need not wait for the process.
//
// The bound on the drift of clocks is in the caller's arithmetic: until lies behind the
// moment from which others may declare the process dead. Liveness depends on it, and in a
// shared database Fresh.
func (s *allocation) Renew(until int64, ids ...uint32) error {
	if s.opts.ReadOnly {
		return s.hear()
	}
	for tries := 0; ; tries++ {
		change, err := s.prolong(until, ids...)
		if err == nil && change {
			// a blade that does not revoke ends no lease
			err = s.updateAs(&update{turn: true, unwaiting: true}, s.amend)
		}
		if err != nil || !s.opts.Shared {
			return err
		}
		if err = s.hear(); !errors.Is(err, ErrEnded) || tries == maxAsks {
			return err
		}
		if err := s.Follow(); err != nil { // it was taken for dead, and is not
			return err
		}
	}
}

// Prolong is Renew as far as it needs no catalog: it extends the leases, and waits for nothing.
// What it cannot extend, Renew tells.
func (s *allocation) Prolong(until int64, ids ...uint32) {
	if !s.opts.ReadOnly {
		_, _ = s.prolong(until, ids...) // of a closed database
	}
}

// prolong is Prolong. change: amend has something to do.
func (s *allocation) prolong(until int64, ids ...uint32) (change bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.writable(); err != nil {
		return false, err
	}
	if term := s.term(until); term > 0 {
		s.lasts = term
	}
	for _, id := range ids {
		if lease, ok := s.own[id]; ok && lease < until {
			s.own[id] = until
		}
	}
	s.register()
	if s.process == 0 {
		return false, nil
	}
	rights := slices.ContainsFunc(s.layout.Rights, func(m layout.Right) bool { return m.Process == s.process })
	p := s.layout.Process(s.process)
	return rights || p == nil || s.short(p) || len(s.givenUp()) > 0, nil
}

// short reports whether the term of a registration, that of this process, is to be made longer. The
// caller holds the lock.
func (s *membership) short(p *layout.ProcessEntry) bool {
	return p != nil && p.Until != 0 && !p.Resigned() && s.lasts > p.Term+p.Term/16
}

// givenUp are the entries of coordinators of this process whose leases have ended, and of which the
// catalog does not say so. The caller holds the lock.
func (s *membership) givenUp() (out []layout.CoordinatorEntry) {
	r, now := s.regs.Load(), s.fabric.Now()
	for i, c := range s.layout.Coordinators {
		if c.Process == s.process && !c.Recovering && c.Until != longAgo && r.until[i] != 0 && now > r.until[i] {
			c.Until, c.Term = longAgo, 0
			out = append(out, c)
		}
	}
	return out
}

// amend has the catalog say what is so: this process is registered, for as long as it renews that
// at a time, has the rights that it needs, and has given up coordinators. The caller holds the
// lock, in a change.
func (s *allocation) amend() error {
	if err := s.writable(); err != nil {
		return err
	}
	if err := s.enroll(); err != nil { // it was taken for dead
		return err
	}
	if err := s.giveBack(); err != nil {
		return err
	}
	gone := s.givenUp()
	var changes []layout.Entry
	for _, c := range gone {
		changes = append(changes, layout.EntryOfCoordinator(c))
	}
	p := s.layout.Process(s.process)
	next, longer := layout.ProcessEntry{}, s.short(p)
	if longer {
		next = layout.ProcessEntry{ID: p.ID, Until: s.fabric.Now() + s.lasts, Term: s.lasts, Asks: p.Asks}
		changes = append(changes, layout.EntryOfProcess(next))
	}
	if len(changes) == 0 {
		return nil
	}
	if err := s.commit(changes...); err != nil {
		return err
	}
	if longer {
		*p, s.until = next, max(s.until, next.Until)
	}
	for _, c := range gone {
		*s.layout.Coordinator(c.ID) = c
	}
	s.register()
	return nil
}

// hear tells the catalog that this process is alive, if it is registered, and takes over of which
// others that is known. ErrEnded: it is registered no more. ErrAway: there is no answer. The caller
// does not hold the lock.
func (s *membership) hear() error {
	if !s.opts.Shared {
		return nil
	}
	s.hearing.Lock()
	defer s.hearing.Unlock()
	s.mu.Lock()
	b, began, term := layout.Beat{Knows: s.regs.Load().epoch, Rested: s.restedBehind()}, s.fabric.Now(), int64(0)
	if p := s.layout.Process(s.process); p != nil && !p.Resigned() {
		b.Member, term = s.process, p.Term
	}
	err := s.closed
	s.mu.Unlock()
	if err != nil {
		return err
	}
	s.asked.CompareAndSwap(0, max(began, 1))
	all, err := s.cat.KeepAlive(b)
	if err == nil || errors.Is(err, ErrEnded) {
		s.asked.Store(0)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case errors.Is(err, ErrEnded):
		return err
	case err != nil:
		return s.unheard(s.distrust(err))
	}
	s.hold(all)
	if term > 0 && b.Member == s.process {
		s.until = max(s.until, began+term)
	}
	s.register()
	return nil
}

// quietNs is for how long the catalog has not answered when it counts as quiet.
const quietNs = int64(50_000_000)

// quiet reports whether the catalog has not answered lately when it was told that this process is
// alive, or another change has the turn that one needs which is under way. What can do without a
// change does so then. The caller holds the lock.
func (s *membership) quiet() bool {
	if u := s.making; u != nil && !u.turn {
		if !s.turn.TryLock() {
			return true
		}
		s.turn.Unlock()
	}
	began := s.asked.Load()
	return began != 0 && s.fabric.Now()-began > quietNs
}

// Listen is Follow, and hears of the catalog which processes are alive, and which epochs they know.
// This process says so of itself, too, if it has joined. ErrAway: there is no answer.
func (s *membership) Listen() error {
	if err := s.hear(); err != nil && !errors.Is(err, ErrEnded) {
		return err
	}
	return s.Follow()
}

// Current is View, but waits for a change of the epoch that is under way: blades
// have new keys before the view that has them is published.
func (s *store) Current() (v *layout.View) {
	s.settled(func() { v = s.View() })
	return v
}
