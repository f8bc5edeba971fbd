package occ

import (
	"errors"
	"fmt"
	"slices"

	"txnode/index"
	"txnode/memory"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/occ/recovery"
	"txnode/rdma"
)

// A session whose verbs have failed, for whatever reason, takes no more transactions
// as the coordinator that it was: it is broken. Nor does one that was declared dead,
// or was idle while a blade was. Rejoin makes it a new coordinator, after the
// transactions of the old one were decided, by itself or by who has declared it dead.

// enroll registers the session as a new coordinator.
func (s *Session) enroll(now int64) error {
	space := s.eng.space
	coord, err := space.NewCoordinatorUntil(s.eng.leaseEnd(now))
	if err != nil {
		return err
	}
	s.join(coord)
	s.alloc.Serve(coord.ID)
	s.seq = 0
	s.renewAt = s.eng.renewal(now)
	s.thread.SetOwner(uint64(coord.ID))
	s.eng.mu.Lock()
	defer s.eng.mu.Unlock()
	s.eng.sessions[s] = coord.ID
	return nil
}

// leaseEnd is until when a lease is taken out; 0: for ever.
func (e *Engine) leaseEnd(now int64) int64 {
	if e.opts.LeaseTerm == 0 {
		return 0
	}
	return now + e.opts.LeaseTerm + int64(float64(e.opts.LeaseTerm)*e.opts.ClockDrift)
}

// renewal is when a lease should be renewed.
func (e *Engine) renewal(now int64) int64 { return now + e.opts.LeaseTerm/3 }

// Renew renews the session's lease, if it is time. In a shared database the process says then that
// it is alive, which asks the catalog. It costs no verb.
func (s *Session) Renew() error {
	e := s.eng
	if e.opts.LeaseTerm == 0 || s.alloc == nil || s.broken != nil {
		return nil //nolint:nilerr // a broken session's lease runs out, unless it rejoins
	}
	now := s.thread.Now()
	if now < s.renewAt {
		return nil
	}
	s.renewAt = e.renewal(now)
	return e.space.Renew(e.leaseEnd(now), s.coord.ID)
}

// RenewAll renews the leases of all sessions of the process that are not broken, and says that the
// process is alive. Safe for concurrent use.
func (e *Engine) RenewAll(now int64) error {
	if e.opts.LeaseTerm == 0 || e.space.ReadOnly() {
		return nil
	}
	return e.space.Renew(e.leaseEnd(now), e.serving()...)
}

// Prolong is RenewAll as far as it needs no catalog, and waits for nothing. Safe for concurrent
// use.
func (e *Engine) Prolong(now int64) {
	if e.opts.LeaseTerm > 0 {
		e.space.Prolong(e.leaseEnd(now), e.serving()...)
	}
}

// serving lists the coordinators of the sessions that are not broken.
func (e *Engine) serving() (ids []uint32) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, id := range e.sessions {
		if id != 0 {
			ids = append(ids, id)
		}
	}
	return ids
}

// Serving reports whether a coordinator is that of a session which is not broken.
// Safe for concurrent use.
func (e *Engine) Serving(id uint32) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, x := range e.sessions {
		if x == id {
			return true
		}
	}
	return false
}

// fail marks the session as broken: a request failed whose effect is not known.
func (s *Session) fail(err error) error {
	s.halfDone = s.halfDone || s.spareUsers > 0
	if s.broken == nil {
		s.broken = fmt.Errorf("%w: %w", ErrBroken, err)
		s.unserve()
	}
	return s.broken
}

// unserve has nobody renew the lease of the coordinator of a broken session.
func (s *Session) unserve() {
	s.eng.mu.Lock()
	defer s.eng.mu.Unlock()
	if _, ok := s.eng.sessions[s]; ok { // else it only reads, or is being closed
		s.eng.sessions[s] = 0
	}
}

// Break marks the session as broken because of err, a failed verb.
func (s *Session) Break(err error) { _ = s.fail(err) }

// Broken returns why the session takes no more transactions until it has rejoined,
// or nil.
func (s *Session) Broken() error { return s.broken }

// unknown ends a transaction of which the session cannot know whether it is
// committed: its session has to rejoin.
func (tx *Tx) unknown(err error) error {
	_ = tx.s.fail(err)
	e := tx.s.eng
	e.mu.Lock()
	defer e.mu.Unlock()
	e.asked = append(e.asked, tx.id)
	e.asking.Store(uint32(len(e.asked)))
	return &UnknownError{Tx: tx.id, Err: err}
}

// CompleteVerdicts has verdicts tell of the transactions whose clients were told that nobody knows
// what became of them, as far as their coordinators are recovered: whoever has recovered one may
// not have known of them, and its session may be gone. Safe for concurrent use; it costs nothing
// when there are none.
func (e *Engine) CompleteVerdicts() error {
	if e.asking.Load() == 0 {
		return nil
	}
	e.mu.Lock()
	all := slices.Clone(e.asked)
	e.mu.Unlock()
	slices.Sort(all)
	for len(all) > 0 {
		id, n := all[0].Coordinator(), 0
		var asked []uint64
		for ; n < len(all) && all[n].Coordinator() == id; n++ {
			asked = append(asked, all[n].Seq())
		}
		known := all[:n]
		all = all[n:]
		if _, ok := e.space.Verdict(id); !ok || e.space.Registered(id) {
			continue
		}
		if err := e.space.CompleteVerdict(asked, id); err != nil {
			return err
		}
		e.mu.Lock()
		e.asked = slices.DeleteFunc(e.asked, func(t record.TxID) bool { return slices.Contains(known, t) })
		e.asking.Store(uint32(len(e.asked)))
		e.mu.Unlock()
	}
	return nil
}

// Unanswered lists the coordinators of which Answer does not know the verdict yet.
func (e *Engine) Unanswered() []uint32 {
	if e.asking.Load() == 0 {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	var ids []uint32
	for _, t := range e.asked {
		if id := t.Coordinator(); e.space.Registered(id) && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// Recovery returns how the session recovers what others have left behind.
func (s *Session) Recovery() recovery.Options {
	return s.eng.recoveryBy(s)
}

// Recovery returns how those recover that are no sessions of the engine.
func (e *Engine) Recovery() recovery.Options { return e.recoveryBy(nil) }

func (e *Engine) recoveryBy(s *Session) recovery.Options {
	by := s.number()
	if by == 0 {
		by = e.space.Recoverer()
	}
	o := recovery.Options{
		Space: e.space, By: by, Open: e.opts.OpenIndex, Term: e.opts.LeaseTerm,
		Damaged: e.opts.Damaged, Recovered: e.opts.Recovered, Settle: e.opts.Settle,
	}
	if e.asking.Load() != 0 {
		e.mu.Lock()
		o.Asked = slices.Clone(e.asked)
		e.mu.Unlock()
	}
	if e.opts.Flush == FlushDurable {
		o.Durable = true
		o.Checkpoint = func(c *rdma.Coro, ids []uint32) error { return e.checkpointOf(c, s, ids) }
	}
	return o
}

// Rejoin makes a broken session a new coordinator. It waits until every transaction
// of the session has ended; the caller's has. Then it connects again, has the
// transactions of the old coordinator decided, and unlocks what they had locked:
// Space.Verdict says what became of those that returned ErrOutcomeUnknown. When it
// fails, the session stays broken, and it may be called again.
//
// A verb that may still arrive makes it advance the epoch, which others notice.
func (s *Session) Rejoin(c *rdma.Coro) error {
	// Once another coroutine has done it nobody waits: the session is active again, and
	// may never be at rest.
	for s.rejoining || s.active() && s.broken != nil {
		c.Sleep(rejoinPollNs)
	}
	if s.broken == nil {
		return nil
	}
	s.rejoining = true
	s.openSpare()
	defer func() {
		s.closeSpare()
		s.rejoining = false
		if s.broken != nil {
			s.unserve() // it may have become another coordinator before it has failed, or was unwound
		}
	}()
	begun := c.Thread().Now()
	for tries := 0; ; tries++ {
		err := s.rejoin(c)
		if err == nil {
			return nil
		}
		// A blade, or the epoch, may have gone meanwhile.
		patient := c.Thread().Now()-begun < busyNs
		busy := errors.Is(err, index.ErrBusy) && patient
		if busy { // another session is at it, or has left it half-done when the blade died
			tries = 0
			_ = s.seeTo(c) // what fails is tried again with the rest
		}
		// A checkpoint has waited for transactions of others, whose disk may be slow.
		busy = busy || errors.Is(err, ErrConflict) && patient
		if !busy && !errors.Is(err, rdma.ErrVerb) && !errors.Is(err, rdma.ErrBladeDown) ||
			s.eng.opts.BladeDown == nil || tries >= maxRejoins {
			return fmt.Errorf("txn: rejoining: %w", err)
		}
		c.Sleep(rejoinPollNs)
	}
}

// seeTo recovers whoever may have left a change of an index half-done that is in the way
// of the session: coordinators whose leases have expired, since all others may be waiting
// like this one; and the indexes.
//
// If it is in the way of the recovery of the session's own coordinator, they are recovered
// together: who was declared dead may not recover others by themselves. Two whose own recoveries
// wait for one another have both let go of their claims; they sleep for a time that chance
// decides, and who comes first recovers both.
func (s *Session) seeTo(c *rdma.Coro) (err error) {
	space := s.eng.space
	own := space.Lease(s.coord.ID, 0) != memory.LeaseLive
	if own {
		c.Sleep(int64(c.Thread().Rand() % lettingGoNs))
	}
	dead := s.expired(c)
	if len(dead) > 0 {
		if own {
			dead = append(dead, s.coord.ID)
		}
		_, err = recovery.Recover(c, s.Recovery(), dead...)
	}
	if own {
		return err // it has no valid keys for more
	}
	return errors.Join(err, recovery.SweepIndexes(c, s.Recovery()))
}

// expired lists the coordinators whose leases have expired, but for the session's own.
func (s *Session) expired(c *rdma.Coro) []uint32 {
	return slices.DeleteFunc(s.eng.space.Expired(c.Thread().Now()), func(id uint32) bool { return id == s.coord.ID })
}

// recoverExpired recovers the coordinators whose leases have expired. Somebody else may be at it.
func (s *Session) recoverExpired(c *rdma.Coro) error {
	dead := s.expired(c)
	if len(dead) == 0 {
		return nil
	}
	_, err := recovery.Recover(c, s.Recovery(), dead...)
	if errors.Is(err, memory.ErrClaimed) {
		return nil
	}
	return err
}

// lettingGoNs is for how long at most a session leaves its own recovery to others that it may be
// in the way of: for as long as it has waited for them.
const lettingGoNs = 20_000_000

// maxRejoins bounds how often in a row something goes wrong.
const maxRejoins = 100

// busyNs is how long a session that rejoins waits for others' changes of an index, as long as its
// transactions would, and for their commits. Who is at work may have been put off its processor.
const busyNs = 5_000_000_000

// rejoinPollNs is how long a wait for others lasts at least.
const rejoinPollNs = 5_000

// claimedPollNs is how often a session asks the catalog at least what has become of its coordinator
// that another process recovers.
const claimedPollNs = 1_000_000

// active reports whether a transaction is open, or something else under way: one that
// has been concluded may still wait for what it has posted.
func (s *Session) active() bool {
	for _, tx := range s.txs {
		if tx.open() || tx.busy {
			return true
		}
	}
	return s.reclaim.busy || s.background > 0
}

// Background runs fn, which does something in the name of the session's coordinator beside
// its transactions: recovers others, or sweeps. The session does not become another
// coordinator before fn has returned, since what fn has locked in an index would be a
// dead one's then, and open to everybody. fn must not call Rejoin. A session that is
// broken runs nothing.
func (s *Session) Background(fn func() error) error {
	if s.broken != nil {
		return s.broken
	}
	s.background++
	defer func() { s.background-- }()
	return s.WithSpare(fn)
}

func (s *Session) rejoin(c *rdma.Coro) error {
	space := s.eng.space
	for _, tx := range s.txs {
		for i := range tx.flights {
			f := &tx.flights[i]
			_ = c.Drain(&f.bg) // what has failed in it is recovered below
			f.bg.Reset()
			f.held, f.generation = false, 0 // the ring is made anew
			f.freed = f.freed[:0]
			s.freeExtra(f)
		}
	}
	if err := s.reconnect(c); err != nil {
		return err
	}
	s.bar()
	if s.alloc == nil { // it only reads
		s.epoch, s.broken = space.Current().Epoch, nil
		return nil
	}
	old := s.coord.ID
	given, err := s.settleOld(c, old)
	if err != nil {
		return err
	}
	if err := s.eng.CompleteVerdicts(); err != nil { // who has recovered it may not have known what is asked
		return err
	}
	if err := s.enlist(c); err != nil {
		return err
	}
	if !given {
		err = s.releaseOld(c)
	}
	// what is left locked is resolved by a process that meets it, and reaches all blades
	if given || errors.Is(err, rdma.ErrBarred) {
		err = s.dropOld()
	}
	if err != nil {
		return err
	}
	if s.halfDone { // others wait for it
		err := recovery.SweepIndexes(c, s.Recovery())
		if errors.Is(err, rdma.ErrVerb) {
			return err
		}
		s.halfDone = err != nil // somebody else was at it, or the sweep will find what is wrong
	}
	s.broken = nil
	return nil
}

// reconnect takes the thread's queue pairs out of the error state. When a blade does
// not answer, whoever sees to dead blades is asked before.
func (s *Session) reconnect(c *rdma.Coro) error {
	space, down := s.eng.space, s.eng.opts.BladeDown
	err := s.broken
	for {
		if down != nil && errors.Is(err, rdma.ErrBladeDown) {
			if err := down(c, err); err != nil {
				return err
			}
		}
		if err = recovery.Reconnect(c, space); err == nil || down == nil || !errors.Is(err, rdma.ErrBladeDown) {
			return err
		}
	}
}

// settleOld returns when the transactions of the old coordinator are decided, or left to
// other processes: given.
func (s *Session) settleOld(c *rdma.Coro, old uint32) (given bool, err error) {
	space := s.eng.space
	pause := int64(rejoinPollNs)
	for own := false; ; { // it has done it itself
		switch space.Lease(old, c.Thread().Now()) {
		case memory.LeaseGone:
			if !own && s.thread.Uncertain() {
				switch err := endEpoch(space); {
				case err == nil:
					s.thread.ClearUncertain()
				case !errors.Is(err, memory.ErrCutOff): // else the recoverer has ended the keys of these requests
					return false, err
				}
			}
			return false, nil
		case memory.LeaseClaimed:
			if s.tried != old { // by another session, or another process
				c.Sleep(pause)
				if space.Shared() {
					pause = min(2*pause, claimedPollNs)
					_ = space.Follow() // else the claim counts as it is
				}
				continue
			}
		}
		if s.beyond() {
			return true, s.giveUp(old)
		}
		s.tried = old // if it fails, the claim stays, and is the session's own
		o := s.Recovery()
		o.Fenced = true
		_, err := recovery.Recover(c, o, old)
		if errors.Is(err, memory.ErrClaimed) || errors.Is(err, memory.ErrNoCoordinator) {
			c.Sleep(rejoinPollNs)
			continue
		}
		if err != nil && space.IsCutOff() && (errors.Is(err, rdma.ErrBarred) || errors.Is(err, memory.ErrCutOff)) {
			return true, s.giveUp(old) // others decide when the claim has expired, if there is one
		}
		if err != nil {
			return false, err
		}
		own = true
	}
}

// releaseOld unlocks what the transactions of the old coordinator may have left
// locked, as far as the session remembers, and takes back blocks that they had not
// come to use. The coordinator is gone, so others may do the same.
func (s *Session) releaseOld(c *rdma.Coro) error {
	o := s.Recovery()
	for _, tx := range s.txs {
		verdict, _ := s.eng.space.Verdict(tx.id.Coordinator())
		committed := verdict.Of(tx.id.Seq()) == layout.OutcomeCommitted
		for i := range tx.items {
			it := &tx.items[i]
			if it.addr == 0 || tx.concluded || tx.id.Coordinator() == s.coord.ID || !it.update && !it.locked &&
				!it.inserted && it.from == 0 {
				continue
			}
			fresh := it.inserted || it.from != 0 || it.private
			s.halfDone = s.halfDone || fresh
			free, err := recovery.UnlockOwn(c, o, it.addr)
			if err != nil && !recovery.Beyond(err) {
				return err
			}
			// The block is the session's still, if nobody has found it while nobody stood for
			// it; unless the transaction has taken effect: then it is free because somebody
			// has deleted the record since, and has it now.
			unused := free == recovery.UnlockedUnused && s.alloc.Holds(it.addr) && !committed
			if it.inserted && unused && it.table.Ordered == nil {
				// Its placeholder may have died with a blade, and its slot not.
				err := recovery.Unlink(c, o, it.table.ID, it.key(), it.addr)
				if err != nil && !recovery.Beyond(err) {
					return err
				}
				unused = err == nil
			}
			if fresh && unused {
				s.alloc.Free(it.addr, it.class)
			}
			it.addr = 0
			if it.from != 0 {
				if _, err := recovery.UnlockOwn(c, o, it.from); err != nil && !recovery.Beyond(err) {
					return err
				}
			}
		}
		for i := range tx.nodes {
			if n := &tx.nodes[i]; (n.locked || n.cas >= 0) && !tx.concluded && tx.id.Coordinator() != s.coord.ID {
				if _, err := recovery.UnlockOwn(c, o, n.addr); err != nil && !recovery.Beyond(err) {
					return err
				}
			}
		}
		tx.nodes = tx.nodes[:0]
		for i := range tx.flights {
			tx.flights[i].installs = nil // Abandon gives up all that is on its way
		}
		clear(tx.items) // one that was to move has its query still, which is not for the next
		tx.items = tx.items[:0]
	}
	return s.alloc.Abandon()
}

// endEpoch has no verb that was posted before take effect any more.
func endEpoch(space *memory.Space) error {
	if err := space.EndKeys(); err != nil { // another epoch would be in vain
		return err
	}
	return space.AdvanceEpoch(nil)
}
