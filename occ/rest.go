package occ

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"txnode/memory"
	"txnode/memory/layout"
	"txnode/memory/record"
)

// Somebody who is alive may keep a lock for as long as he likes, and is waited for. But a word of a
// block may be damaged so that it names him: a bit of a guard, say, by which a record looks locked
// by whoever has written it last. He alone can tell, and is asked, by who has met the same thing
// for a while. He answers between two transactions: all with smaller numbers than one that he names
// have ended, and so have all of their verbs. Who still meets what he has met before he asked, when
// whatever has completed by the time of the answer has been placed, knows that it is damage.

// answer is what a session answers.
type answer struct {
	coordinator uint32
	at          int64  // of the fabric's clock
	below       uint64 // transactions of smaller numbers have ended, and all of their verbs
	drawn       uint64 // the largest number that it has drawn
}

// Reply answers who has asked, for a session without coroutines that is idle.
func (s *Session) Reply() {
	if s.queried.Load() == 0 {
		return
	}
	for _, tx := range s.txs {
		if tx.open() {
			return
		}
	}
	if s.Rest() == nil {
		s.reply()
	}
}

// Attend is what a coroutine does between two looks while it waits, in no transaction, for what
// others do: it sees to its own verbs, and answers who has asked.
func (tx *Tx) Attend() {
	if tx.s.queried.Load() != 0 && !tx.open() && tx.drain(tx.c) == nil { // a failure breaks the session
		tx.s.reply()
	}
}

// Rest waits, in a session without coroutines, until all verbs of transactions that have ended have
// completed, and returns why the session is broken, nil if it is not. One of them that has failed
// breaks it: a lock that was to be released may still be held, which [Session.Rejoin] sees to. It
// is for a session that may have nothing to do for long, on a fabric whose verbs complete after
// they were posted. It counts no round trips.
func (s *Session) Rest() error {
	for _, tx := range s.txs {
		if s.broken != nil {
			break
		}
		if !tx.open() {
			_ = tx.drain(tx.c) // a failure breaks the session
		}
	}
	return s.broken
}

// RestFor waits for what [Session.Rest] waits for, for some nanoseconds at most, and reports
// whether Rest would not wait any more.
func (s *Session) RestFor(ns int64) bool {
	until := s.thread.Now() + ns
	for _, tx := range s.txs {
		for i := range tx.flights {
			if f := &tx.flights[i]; s.broken == nil && !tx.open() && !f.bg.Done() &&
				!tx.c.WaitFor(&f.bg, until-s.thread.Now()) {
				return false
			}
		}
	}
	return true
}

// reply answers, between two transactions of a coroutine, when what it was asked about is at rest.
func (s *Session) reply() {
	if s.broken != nil || s.alloc == nil || s.reclaim.busy || s.background > 0 && s.queried.Load() == anyQuery {
		return
	}
	r := &answer{coordinator: s.coord.ID, at: s.thread.Now(), below: s.seq + 1, drawn: s.seq}
	for _, tx := range s.txs {
		if tx.open() || tx.busy {
			r.below = min(r.below, tx.id.Seq())
		}
		for i := range tx.flights {
			if f := &tx.flights[i]; !f.bg.OK() {
				r.below = min(r.below, f.seq)
			}
		}
	}
	if q := s.queried.Load(); q != 0 && r.says(q-1) {
		s.queried.Store(0)
		s.answer.Store(r)
	}
}

// says reports whether no transaction of a number is under way.
func (r *answer) says(seq uint64) bool {
	return seq < r.below || seq > r.drawn && seq < record.MaxSequence
}

// resting reports whether the session of a transaction, one of the engine's, has said after a time
// that it is not under way. If it has not, it is asked.
func (e *Engine) resting(t record.TxID, since int64) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for s, id := range e.sessions {
		if id == 0 || id != t.Coordinator() {
			continue
		}
		r := s.answer.Load()
		if r != nil && r.coordinator == id && r.at > since && r.says(t.Seq()) {
			return true
		}
		s.queried.Store(t.Seq() + 1)
		return false
	}
	return false
}

// stuck is what a transaction, or one before it, has met that somebody alive may be at.
type stuck struct {
	addr  layout.Addr
	words [2]uint64
	since int64 // when it was met first
	asked int64 // when others were asked last, who do not answer by themselves
	said  int64 // since when it is known that nobody is at it; 0: it is not
	asks  bool  // they are to be asked
}

// Bounds on how long something is met before somebody is asked, how often who is idle is asked, and
// how long after the answer it may still be met, since what has completed may not be placed.
const (
	askAfterNs = 100_000_000
	askPauseNs = 10_000_000
	placedNs   = 100_000_000
	// placedVirtualNs is placedNs of a Rest where time is virtual: a fabric of that places
	// everything much earlier.
	placedVirtualNs = 1_000_000
)

// ownersDeny reports whether a block in which a transaction has met two words once more is not what
// somebody is at: those who are named, of which some are alive, say so.
func (tx *Tx) ownersDeny(a layout.Addr, words [2]uint64, by ...record.TxID) bool {
	d, s := &tx.stuck, tx.s
	now := s.thread.Now()
	if d.addr != a || d.words != words {
		*d = stuck{addr: a, words: words, since: now}
		return false
	}
	if now-d.since < askAfterNs {
		return false
	}
	for _, t := range by {
		if tx.gone(t) {
			continue
		}
		at := s.eng.resting(t, d.since)
		if !at && t.Coordinator() == s.coord.ID {
			s.reply()
			at = s.eng.resting(t, d.since)
		}
		if !at {
			d.said = 0
			if now-d.asked > askPauseNs {
				d.asked, d.asks = now, true
			}
			return false
		}
	}
	if d.said == 0 {
		d.said = now
	}
	return now-d.said > placedNs
}

// Asks reports, once, that the transaction waits for an answer of a session of the engine, which
// may be idle: whoever has those calls their Reply.
func (tx *Tx) Asks() bool {
	asks := tx.stuck.asks
	tx.stuck.asks = false
	return asks
}

// locked is an error if the lock that the transaction has met, of somebody alive, is nobody's.
func (tx *Tx) locked(m meeting) error {
	t := m.guard.Owner()
	if !tx.ownersDeny(m.addr, [2]uint64{uint64(m.guard)}, t) {
		return nil
	}
	return fmt.Errorf("%w: block %v looks locked by transaction %v, which its client, alive, is not at: its guard is "+
		"damaged; the database, closed, can be checked, and whoever opens it again takes that lock off",
		ErrCorrupt, m.addr, t)
}

// naming adds to an error that says that what the transaction has met is damaged of which table and
// key that is, as far as it knows.
func (tx *Tx) naming(m meeting, err error) error {
	if !errors.Is(err, layout.ErrCorrupt) {
		return err
	}
	if m.table != nil {
		return fmt.Errorf("table %q, key %x: %w", m.table.Name, m.key, err)
	}
	for i := range tx.items {
		if it := &tx.items[i]; it.addr == m.addr && m.addr != 0 && it.table != nil {
			return fmt.Errorf("table %q, key %x: %w", it.table.Name, bytes.Clone(it.key()), err)
		}
	}
	return err
}

// anyQuery in Session.queried asks for an answer without naming a transaction.
const anyQuery = 1

// Rest waits for the sessions of this process to end the transactions that they had begun at a
// moment. For those of other processes see Space.Unrested.
type Rest struct {
	begun int64
	below uint32
	// drawn is how many transactions a session had begun when it answered first.
	drawn map[*Session]uint64
	late  []uint32 // coordinators that were asked last, and had not said so
	since int64    // when all had said so; 0: they have not
}

// NewRest is about the transactions that coordinators of this process with smaller numbers than
// below (Space.NextCoordinator) have begun by now, a time of the fabric's clock.
func NewRest(now int64, below uint32) *Rest {
	return &Rest{begun: now, below: below, drawn: map[*Session]uint64{}}
}

// Ended reports whether they have ended, or are recovered, at a time of the fabric's clock, and
// what they did is placed. It asks the sessions that have not said so, which answer before their
// next transaction, and does not wait.
func (r *Rest) Ended(e *Engine, now int64) bool {
	if r.since == 0 {
		if !r.ended(e) {
			return false
		}
		r.since = max(now, 1)
	}
	if !e.space.RealTime() {
		return now-r.since > placedVirtualNs
	}
	return now-r.since > placedNs
}

// Late lists the coordinators whose sessions had not said so when Ended asked them last.
func (r *Rest) Late() []uint32 { return r.late }

// ended reports whether every coordinator that it is about is a session of this engine that has
// said so. It asks the others.
func (r *Rest) ended(e *Engine) bool {
	all, err := e.space.Coordinators()
	if err != nil {
		return false
	}
	process := e.space.Process()
	all = slices.DeleteFunc(all, func(c memory.Coordinator) bool { return c.ID >= r.below || c.Process != process })
	e.mu.Lock()
	defer e.mu.Unlock()
	r.late = r.late[:0]
	known := 0
	for s, id := range e.sessions {
		if !slices.ContainsFunc(all, func(c memory.Coordinator) bool { return c.ID == id }) {
			continue // of one that was declared dead everything is decided, though its session may not know yet
		}
		known++
		said := s.answer.Load()
		if said != nil && said.coordinator == id && said.at > r.begun {
			if said.below > said.drawn {
				continue
			}
			if drawn, ok := r.drawn[s]; !ok {
				r.drawn[s] = said.drawn
			} else if said.below > drawn {
				continue
			}
		}
		s.queried.Store(anyQuery)
		r.late = append(r.late, id)
	}
	return len(r.late) == 0 && known == len(all)
}
