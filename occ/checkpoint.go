package occ

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"txnode/log"
	"txnode/memory"
	"txnode/memory/layout"
	"txnode/rdma"
)

// With FlushDurable a commit is acknowledged when its log record is durable on f+1
// blades; the images that it installs are not flushed. So its log space may be used
// again only after a checkpoint has flushed them. Checkpoints divide transactions
// into generations: a log record carries that in which it was written, and the
// catalog that of the last checkpoint (memory.Space.Checkpoint). Records of lower
// generations are dead. After a loss of power, the blades hold for each line what it
// was at the checkpoint or anything since, and the living records have every image
// that was installed since (package occ/recovery).
//
// A checkpoint begins a new generation, waits until the transactions of the old one
// have installed their images, flushes all blocks, and records the new generation.
// Nobody waits for it but those who need log space.

// durability is what sessions share for it.
type durability struct {
	generation atomic.Uint32 // that records carry which are written now
	covered    atomic.Uint32 // of the last checkpoint; generation, or generation-1 while one is being made
	busy       atomic.Bool   // somebody makes a checkpoint

	mu       sync.Mutex
	asked    uint64        // commits whose logs were to be flushed
	ranges   []logRange    // of those that nobody is flushing yet
	flushed  atomic.Uint64 // of asked, those that were
	flushing atomic.Bool   // somebody flushes, and has what follows
	spare    []logRange
	joined   []logRange
	view     *layout.View
	runs     [][][2]uint64 // memory.Space.LogRuns of each blade when view was the newest
}

// commits counts the transactions of a coordinator whose log records may have been
// written and whose images are not installed yet, by the lowest bit of their
// generation.
type commits struct {
	coordinator uint32
	closed      atomic.Bool // nothing of the coordinator is undecided, or will be
	n           [2]atomic.Int64
}

// heldToken is log space whose record a checkpoint must cover before it is used
// again.
type heldToken struct {
	token      log.Token
	generation uint32
}

// checkpointWaitNs is how long a checkpoint waits for transactions to come to rest
// before it is put off.
const checkpointWaitNs = 1_000_000_000

// count begins to count the commits of the session's new coordinator.
func (s *Session) count() {
	s.held = s.held[:0]
	if s.eng.opts.Flush != FlushDurable {
		return
	}
	s.commits = &commits{coordinator: s.coord.ID}
	s.eng.mu.Lock()
	defer s.eng.mu.Unlock()
	s.eng.commits = append(s.eng.commits, s.commits)
}

// enter begins the part of a commit that a checkpoint waits for, and returns the
// generation it is in.
func (s *Session) enter() uint32 {
	d := &s.eng.durable
	for {
		g := d.generation.Load()
		s.commits.n[g&1].Add(1)
		if d.generation.Load() == g {
			return g
		}
		s.commits.n[g&1].Add(-1)
	}
}

// release gives back the log space of a flight whose transaction is at rest. That of
// a broken session stays until it has rejoined: nobody knows which transactions are, and
// their records are what they are decided by.
func (s *Session) release(f *flight) {
	if s.broken != nil {
		return
	}
	f.held = false
	if len(f.freed) > 0 {
		for _, x := range f.freed {
			s.alloc.Free(x.addr, x.class)
		}
		f.freed = f.freed[:0]
	}
	if f.generation == 0 {
		if f.generation != 0 {
			s.commits.n[f.generation&1].Add(-1)
			f.generation = 0
		}
		// With FlushDurable this is not the record of a commit: it was not flushed.
		s.ring.ring.Release(f.token, s.eng.opts.Flush != FlushDurable)
		return
	}
	s.commits.n[f.generation&1].Add(-1)
	s.held = append(s.held, heldToken{f.token, f.generation})
	f.generation = 0
}

// releaseCovered gives back the log space that the last checkpoint covers, and
// reports whether there was any.
func (s *Session) releaseCovered() bool {
	covered := s.eng.durable.covered.Load()
	n := 0
	for n < len(s.held) && s.held[n].generation < covered {
		s.ring.ring.Release(s.held[n].token, true)
		n++
	}
	s.held = s.held[:copy(s.held, s.held[n:])]
	return n > 0
}

// stalledError: a checkpoint does not come to its end before somebody is recovered. It is
// ErrConflict.
type stalledError struct{ dead []uint32 }

func (stalledError) Error() string {
	return ErrConflict.Error() + ": log space is needed, and a checkpoint waits for a transaction whose coordinator " +
		"has died, until that is recovered"
}

func (stalledError) Unwrap() error { return ErrConflict }

// Dead returns the coordinators: see recovery.Options.Checkpoint.
func (e stalledError) Dead() []uint32 { return e.dead }

// number is the session's coordinator; 0, of nil: it has none.
func (s *Session) number() uint32 {
	if s == nil {
		return 0
	}
	return s.coord.ID
}

// stuck reports whether a checkpoint that the session makes, or nil, waits for the session itself:
// it was broken in the middle of a commit of another coroutine, which is decided when it rejoins,
// and it rejoins when this one has done.
func (s *Session) stuck() bool {
	if s == nil || s.broken == nil {
		return false
	}
	x := s.commits
	return !x.closed.Load() && (x.n[0].Load() != 0 || x.n[1].Load() != 0)
}

// condemn returns the session's coordinator for a recovery that is to recover it with others. If
// that fails, the claim is the session's own, and Rejoin goes on with it.
func (s *Session) condemn() uint32 {
	s.tried = s.coord.ID
	return s.coord.ID
}

// checkpoint makes a checkpoint, or waits a little for whoever makes one, for a session, or nil. It
// does not wait for the dead, nor for the session itself: that is a stalledError.
func (e *Engine) checkpoint(c *rdma.Coro, s *Session) error {
	d := &e.durable
	if s.stuck() { // and whoever makes one may be waiting for it
		return stalledError{[]uint32{s.condemn()}}
	}
	if !d.busy.CompareAndSwap(false, true) {
		c.Sleep(10_000)
		return nil
	}
	defer d.busy.Store(false)
	old := d.covered.Load()
	d.generation.Store(old + 1)
	for end := c.Thread().Now() + checkpointWaitNs; ; c.Sleep(2000) {
		now := c.Thread().Now()
		quiet, dead := e.atRest(old, s.number(), now)
		if quiet {
			break
		}
		if s.stuck() {
			dead = append(dead, s.condemn())
		}
		if len(dead) > 0 {
			return stalledError{dead}
		}
		if now > end {
			return fmt.Errorf("%w: log space is needed, and a checkpoint waits for transactions of another session "+
				"to come to rest, or be recovered", ErrConflict)
		}
	}
	if err := e.space.FlushSegments(c, layout.KindBlocks); err != nil {
		return err
	}
	if err := e.space.SetCheckpoint(old + 1); err != nil {
		return err
	}
	d.covered.Store(old + 1)
	return nil
}

// checkpointAll makes sure that everything that has been committed when it is called
// is durable in place: the logs are not needed for it any more. Without FlushDurable
// it does nothing.
func (e *Engine) checkpointAll(c *rdma.Coro, s *Session) error {
	if e.opts.Flush != FlushDurable {
		return nil
	}
	for g := e.durable.generation.Load(); e.durable.covered.Load() <= g; {
		if err := e.checkpoint(c, s); err != nil {
			return err
		}
	}
	return nil
}

// lastCheckpoint is checkpointAll for a session that is being closed: who has died and is in its
// way is recovered. When the session was declared dead itself, that is ErrNoCoordinator.
func (s *Session) lastCheckpoint(c *rdma.Coro) error {
	for tries := 0; ; tries++ {
		err := s.eng.checkpointAll(c, s)
		if !errors.As(err, new(stalledError)) || tries >= maxRejoins {
			return err
		}
		if s.eng.space.Lease(s.coord.ID, 0) != memory.LeaseLive { // it may recover nobody, but itself
			return fmt.Errorf("txn: close: %w: %d was declared dead", memory.ErrNoCoordinator, s.coord.ID)
		}
		if err := s.recoverExpired(c); err != nil {
			return err
		}
		if tries > 0 {
			c.Sleep(rejoinPollNs) // somebody else is at it
		}
	}
}

// checkpointOf is checkpointAll for who has recovered coordinators: their transactions are at rest,
// though their sessions could not say so. Others that have died, and are in the way, can be
// recovered with them: that is a stalledError.
func (e *Engine) checkpointOf(c *rdma.Coro, s *Session, ids []uint32) error {
	e.mu.Lock()
	for _, x := range e.commits {
		if slices.Contains(ids, x.coordinator) {
			x.closed.Store(true)
		}
	}
	e.mu.Unlock()
	return e.checkpointAll(c, s)
}

// atRest reports whether every transaction of a generation has installed its images, and else of
// whom, but by, those that have not are who may be declared dead now.
func (e *Engine) atRest(generation, by uint32, now int64) (quiet bool, dead []uint32) {
	e.mu.Lock()
	defer e.mu.Unlock()
	kept := e.commits[:0]
	quiet = true
	for _, x := range e.commits {
		if x.closed.Load() || !e.space.Registered(x.coordinator) {
			continue
		}
		kept = append(kept, x)
		if x.n[generation&1].Load() != 0 {
			quiet = false
			if x.coordinator != by && e.space.Lease(x.coordinator, now) == memory.LeaseExpired {
				dead = append(dead, x.coordinator)
			}
		}
	}
	clear(e.commits[len(kept):])
	e.commits = kept
	return quiet, dead
}

// logRange is a log record that is to be flushed.
type logRange struct {
	blade rdma.BladeID
	off   uint64
	n     uint32
}

// flushLogs makes a log record durable that has been written to an offset of the
// session's log areas on some blades. One flush serves everybody who waits when it begins
// (group commit): it takes the time of a write to the disk, however many there are.
func (s *Session) flushLogs(c *rdma.Coro, blades bladeSet, off uint32, n int) error {
	d := &s.eng.durable
	d.mu.Lock()
	for blades != 0 {
		b := blades.take()
		d.ranges = append(d.ranges, logRange{b, s.ring.areas[b].Addr.Off + uint64(off), uint32(n)})
	}
	d.asked++
	mine := d.asked
	d.mu.Unlock()
	if c.Multiplexed() {
		c.Yield() // the thread's other coroutines come to their commits, and share the flush
	}
	for wait := int64(flushWaitNs); d.flushed.Load() < mine; wait = min(2*wait, 8*flushWaitNs) {
		if !d.flushing.CompareAndSwap(false, true) {
			c.Sleep(wait)
			continue
		}
		if err := s.eng.flushAsked(c); err != nil {
			return err
		}
	}
	return nil
}

// flushWaitNs is how long who waits for another's flush sleeps at first; a disk needs
// longer, and processors that spin are missed where it is driven.
const flushWaitNs = 50_000

// flushAsked flushes for all who have asked. The caller is the only one, and not any more when it
// returns, or is unwound.
func (e *Engine) flushAsked(c *rdma.Coro) error {
	d := &e.durable
	d.mu.Lock()
	upTo, todo := d.asked, d.ranges
	d.ranges = d.spare[:0]
	d.mu.Unlock()
	done := false
	defer func() {
		if done {
			d.spare = todo
			d.flushed.Store(upTo)
		} else { // for the others, who are not concerned if it is the caller's thread
			d.mu.Lock()
			d.ranges = append(d.ranges, todo...)
			d.mu.Unlock()
			d.spare = nil
		}
		d.flushing.Store(false)
	}()
	err := flushRanges(c, e.space.View(), d.together(e.space, todo))
	done = err == nil
	return err
}

// flushNear is how close ranges are that are flushed as one: disks write pages.
const flushNear = 4096

// flushFar is how long a range may become by that, and by what lies between two sessions'.
const flushFar = 1 << 30

// flushBatch is how many flushes are posted at a time.
const flushBatch = 32

// together makes one range of those with nothing but log areas between them: a disk takes
// as long for the logs of all sessions as for one, if it is told once. What else is
// written there is other sessions' log records, which are next. It sorts what it is given.
func (d *durability) together(s *memory.Space, ranges []logRange) []logRange {
	slices.SortFunc(ranges, func(a, b logRange) int {
		return cmp.Or(cmp.Compare(a.blade, b.blade), cmp.Compare(a.off, b.off))
	})
	if v := s.View(); v != d.view {
		d.view, d.runs = v, nil
		for b := range v.Blades() {
			d.runs = append(d.runs, s.LogRuns(rdma.BladeID(b)))
		}
	}
	joined := d.joined[:0]
	for i := 0; i < len(ranges); {
		r := ranges[i]
		first, limit := r.off, r.off+uint64(r.n)
		for _, run := range d.runs[r.blade] {
			if run[0] <= first && first < run[1] {
				limit = max(limit, min(run[1], first+flushFar))
			}
		}
		end := first + uint64(r.n)
		for i++; i < len(ranges) && ranges[i].blade == r.blade; i++ {
			next := ranges[i].off + uint64(ranges[i].n)
			if ranges[i].off > end+flushNear && next > limit || next > first+flushFar {
				break
			}
			end = max(end, next)
		}
		joined = append(joined, logRange{r.blade, first, uint32(end - first)})
	}
	d.joined = joined
	return joined
}

// flushRanges flushes ranges on blades that are up.
func flushRanges(c *rdma.Coro, v *layout.View, ranges []logRange) error {
	var b rdma.Batch
	for i, r := range ranges {
		if v.Up(r.blade) {
			b.Flush(rdma.RemoteAddr{Blade: r.blade, Key: v.Key(r.blade), Off: r.off}, r.n)
		}
		if b.Len() >= flushBatch || i == len(ranges)-1 && b.Len() > 0 {
			if err := c.Do(&b); err != nil {
				return err
			}
			b.Reset()
		}
	}
	return nil
}
