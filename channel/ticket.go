package channel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"txnode/rdma"
)

// TicketLock is a lock with a queue: first come, first served. Each member that wants it takes a
// number, announces it, and waits until it is served.
//
//	operation      verbs / round trips
//	Lock, free     FAA and READ, then CAS                        3 / 2
//	Lock, queued   + a READ for each look                        + k / k
//	Unlock         CAS and CAS                                   2 / 1, and a thread fence before
//	                                                             it
//	  handed over  to a coroutine of the member                  0 / 0
//	StageUnlock    CAS and CAS                                   2 / 0
//	  handed over  CAS, then CAS, by Member.Do                   2 / 2, and a thread fence before
//	                                                             them
//
// Coroutines of the member's thread that share the handle exclude each other, too, and get the lock
// in their order: Unlock hands it over to the next one without a verb, up to seven times in a row.
//
// # States
//
// Layout: the header; at 64 the words next and serving, then a ring of 256 slots, a word each. All
// are changed by atomics alone. serving is {ticket 63, abandoned 1}; a slot is {turn 40, member
// 24}, where ticket t belongs to turn t/256 of slot t mod 256, and member 0 is none.
//
//	{turn, none}     ticket not announced
//	{turn, member}   announced: that member waits, or holds the lock when t is served
//	{turn+1, ...}    ticket over: unlocked, given up, or skipped
//
// A ticket is announced when t-256 is over and serving has passed it, so a slot in a later turn
// stays as it is until serving has moved past t.
//
// # A ticket without a holder
//
// An FAA without an answer leaves a number that no member knows, and a member may stop before it
// has announced its own. When such a number is served, a waiter that has seen no announcement
// for a while skips it: {turn, none} becomes {turn+1, none}. Announcement and skip race for one
// word, so a late ticket holds or is passed over, never both; the pause matters to progress
// only. A member that was passed over takes another number. Whoever finds the served slot in a
// later turn moves serving on.
//
// # A dead holder
//
// A waiter fences it, looks again, and moves serving on with the mark abandoned, which stays until
// a member that is alive has got the lock and unlocks it. serving goes first: the dead member
// cannot act between. A slot that a waiter leaves behind by stopping there is taken over by the
// next announcement, which finds an earlier turn although serving has passed it.
type TicketLock struct {
	object
	held     bool
	ticket   uint64
	mark     uint64 // of serving, when held
	patience int64
	turn     turn
}

const (
	ticketNext    = headerBytes
	ticketServing = headerBytes + 8
	ticketSlots   = 2 * headerBytes
	tickets       = 256
)

// OpenTicketLock opens the ticket lock called name in s.
func OpenTicketLock(ctx context.Context, c *rdma.Coro, s Scope, name string) (*TicketLock, error) {
	full, err := s.name(name)
	if err != nil {
		return nil, err
	}
	l := new(TicketLock)
	if err := l.open(ctx, c, s.m, full, Spec{Kind: KindTicketLock, Slots: tickets, Bytes: ticketSlots + 8*tickets},
		64); err != nil {
		return nil, err
	}
	if err := generation(&l.object); err != nil {
		return nil, err
	}
	l.patience = max(s.m.term/16, 8*minPause)
	l.turn.settle = l.settle
	l.holds = func() bool { return l.held || l.turn.staged != nil }
	return l, nil
}

func slotOf(t uint64) uint32                 { return ticketSlots + 8*uint32(t%tickets) }
func slotWord(t uint64, id MemberID) uint64  { return t/tickets<<memberBits | uint64(id) }
func slotTurn(word uint64) uint64            { return word >> memberBits }
func (l *TicketLock) mine() uint64           { return slotWord(l.ticket, l.m.id) }
func over(t uint64) uint64                   { return slotWord(t+tickets, 0) }
func servingWord(ticket, mark uint64) uint64 { return ticket<<1 | mark }

// marked is the mark that a word of serving stands for: a lock that is made anew is blank,
// and was abandoned.
func (l *TicketLock) marked(serving uint64) uint64 {
	if serving == 0 && l.place.Anew {
		return 1
	}
	return serving & 1
}

// Lock takes a number, waits until it is served, and holds the lock then. If ctx ends before, the
// number is given up. A dead member in front is fenced and passed over: Held says so.
func (l *TicketLock) Lock(ctx context.Context, c *rdma.Coro) (Held, error) {
	handed, err := l.turn.enter(ctx, c, &l.object)
	if err != nil {
		return Held{}, err
	}
	if handed {
		return l.turn.holds(), nil
	}
	h, err := l.lock(ctx, c)
	if err != nil {
		l.turn.leave(l.m)
		return Held{}, err
	}
	if h, err = l.turn.got(&l.object, h); err != nil {
		err = errors.Join(err, l.giveBack(c))
	}
	return h, err
}

// lock is Lock, of the coroutine whose turn it is.
func (l *TicketLock) lock(ctx context.Context, c *rdma.Coro) (Held, error) {
	for {
		serving, err := l.draw(c)
		if err != nil {
			return Held{}, err
		}
		announced, serving, err := l.announce(ctx, c, serving)
		if err != nil {
			return Held{}, err
		}
		if !announced {
			continue // skipped: another number
		}
		if err := l.await(ctx, c, serving); err != nil {
			if l.m.dead == nil && l.gone == nil {
				err = errors.Join(err, l.giveUp(c))
			}
			return Held{}, err
		}
		l.held = true
		return Held{Token: l.ticket + 1, Abandoned: l.marked(servingWord(l.ticket, l.mark)) != 0}, nil
	}
}

// draw takes a number, and returns the word serving as it was afterwards. A number whose FAA has no
// answer is lost, and will be skipped.
func (l *TicketLock) draw(c *rdma.Coro) (serving uint64, err error) {
	for {
		if err := l.ready(); err != nil {
			return 0, err
		}
		l.b.Reset()
		i := l.b.FAA(l.addr(ticketNext), 1)
		l.b.Read(l.addr(ticketServing), l.buf, 8)
		if err = l.m.Do(c, &l.b); !errors.Is(err, ErrUncertain) {
			l.ticket = l.b.Result(i)
			return l.m.t.Word(l.buf), err
		}
	}
}

// announce writes this member into the slot of its ticket. false: the ticket was skipped.
func (l *TicketLock) announce(ctx context.Context, c *rdma.Coro, serving uint64) (bool, uint64, error) {
	w := wait{ctx: ctx, m: l.m}
	expect := slotWord(l.ticket, 0)
	for {
		for serving>>1+tickets <= l.ticket { // the slot may still be of the turn before
			s, err := l.step(c, serving, &w)
			if err != nil {
				return false, 0, err // not announced: it will be skipped
			}
			serving = s
		}
		ok, found, err := l.swap(c, slotOf(l.ticket), expect, l.mine())
		switch {
		case err != nil:
			return false, 0, err
		case ok || found == l.mine():
			return true, serving, nil
		case slotTurn(found) > l.ticket/tickets:
			return false, serving, nil
		}
		// Of an earlier turn, though serving has passed it: its member is dead, and was passed
		// over.
		expect = found
	}
}

// swap is a CAS of a word that is never again what it was. A CAS whose answer is lost is settled.
func (l *TicketLock) swap(c *rdma.Coro, off uint32, old, next uint64) (ok bool, found uint64, err error) {
	for {
		if err := l.ready(); err != nil {
			return false, 0, err
		}
		l.b.Reset()
		i := l.b.CAS(l.addr(off), old, next)
		if err = l.m.Do(c, &l.b); !errors.Is(err, ErrUncertain) {
			found = l.b.Result(i)
			return err == nil && found == old, found, err
		}
		if found, err = l.load(c, off); err != nil || found != old {
			return err == nil && found == next, found, err
		}
	}
}

func (l *TicketLock) load(c *rdma.Coro, off uint32) (uint64, error) {
	if err := l.ready(); err != nil {
		return 0, err
	}
	l.b.Reset()
	l.b.Read(l.addr(off), l.buf, 8)
	err := l.m.Do(c, &l.b)
	return l.m.t.Word(l.buf), err
}

// await waits until the announced ticket is served.
func (l *TicketLock) await(ctx context.Context, c *rdma.Coro, serving uint64) error {
	w := wait{ctx: ctx, m: l.m}
	for serving>>1 < l.ticket {
		s, err := l.step(c, serving, &w)
		if err != nil {
			return err
		}
		serving = s
	}
	if serving>>1 > l.ticket {
		return fmt.Errorf("%w: ticket %d of %q was passed over", ErrFenced, l.ticket, l.name)
	}
	l.mark = serving & 1
	return nil
}

// step pauses, loads serving, and if it stands still, sees to the ticket that is served.
func (l *TicketLock) step(c *rdma.Coro, serving uint64, w *wait) (uint64, error) {
	began := l.m.t.Now()
	for {
		if err := w.next(c); err != nil {
			return serving, err
		}
		now, err := l.load(c, ticketServing)
		if err != nil || now != serving {
			w.pause = 0
			return now, err
		}
		if l.m.t.Now()-began < l.patience {
			continue
		}
		if err := l.see(c, serving); err != nil {
			return serving, err
		}
	}
}

// see looks at the slot of a ticket that has been served for a while. It moves serving on if the
// ticket is over, skips it if it was not announced, and passes over its member if that one is dead.
func (l *TicketLock) see(c *rdma.Coro, serving uint64) error {
	t, mark := serving>>1, l.marked(serving)
	slot, err := l.load(c, slotOf(t))
	if err != nil {
		return err
	}
	member := MemberID(slot & uint64(MaxMember))
	switch {
	case slotTurn(slot) > t/tickets:
	case slotTurn(slot) < t/tickets || member == 0:
		// Not announced. The slot may be of an earlier turn, left by a member that is dead.
		if ok, _, err := l.swap(c, slotOf(t), slot, over(t)); !ok || err != nil {
			return err
		}
	default:
		dead, err := l.m.suspect(c, member)
		if !dead || err != nil {
			return err
		}
		again, err := l.load(c, slotOf(t))
		if err != nil || again != slot {
			return err
		}
		mark = 1
	}
	_, _, err = l.swap(c, ticketServing, serving, servingWord(t+1, mark))
	return err
}

// giveUp ends a ticket that is announced and may be served by now.
func (l *TicketLock) giveUp(c *rdma.Coro) error {
	if _, _, err := l.swap(c, slotOf(l.ticket), l.mine(), over(l.ticket)); err != nil {
		return err
	}
	serving, err := l.load(c, ticketServing)
	if err != nil || serving>>1 != l.ticket {
		return err
	}
	_, _, err = l.swap(c, ticketServing, serving, servingWord(l.ticket+1, l.marked(serving)))
	return err
}

func (l *TicketLock) giveBack(c *rdma.Coro) error {
	if err := l.turn.fence(c, &l.object); err != nil {
		return err
	}
	defer l.turn.leave(l.m)
	l.held = false
	return l.giveUp(c)
}

// Unlock gives the lock back, or hands it over. What this thread has written before, on any blade,
// is visible to the next holder. ErrNotOwner: the lock is not held.
func (l *TicketLock) Unlock(c *rdma.Coro) error {
	if err := errors.Join(l.turn.mine(c, &l.object), l.ready()); err != nil {
		return err
	}
	if l.turn.pass() {
		return nil
	}
	if err := l.m.fence(c, &l.b); err != nil {
		return err
	}
	defer l.turn.leave(l.m)
	l.b.Reset()
	l.stage(&l.b)
	err := l.m.Do(c, &l.b)
	if errors.Is(err, ErrUncertain) {
		return l.settle(c)
	}
	return err
}

// stage appends giving back.
func (l *TicketLock) stage(b *rdma.Batch) {
	l.held = false
	b.CAS(l.addr(slotOf(l.ticket)), l.mine(), over(l.ticket))
	b.CAS(l.addr(ticketServing), servingWord(l.ticket, l.mark), servingWord(l.ticket+1, 0))
}

// StageUnlock appends an Unlock to b: see Mutex.StageUnlock.
func (l *TicketLock) StageUnlock(b *rdma.Batch) error {
	if err := l.ready(); err != nil {
		return err
	}
	if !l.held || l.turn.staged != nil {
		return fmt.Errorf("%w: %q is not locked by this handle", ErrNotOwner, l.name)
	}
	if l.turn.owes {
		l.held = false
	} else {
		l.stage(b)
	}
	l.turn.stage(l.m, b)
	return nil
}

// Settle gives back the lock if an Unlock that was staged has not.
func (l *TicketLock) Settle(c *rdma.Coro) error {
	if l.turn.staged == nil {
		return nil
	}
	if err := l.settle(c); err != nil {
		return err
	}
	l.turn.leave(l.m)
	return nil
}

// settle gives back the lock if that has not happened.
func (l *TicketLock) settle(c *rdma.Coro) error {
	if err := l.turn.fence(c, &l.object); err != nil {
		return err
	}
	if _, _, err := l.swap(c, slotOf(l.ticket), l.mine(), over(l.ticket)); err != nil {
		return err
	}
	_, _, err := l.swap(c, ticketServing, servingWord(l.ticket, l.mark), servingWord(l.ticket+1, 0))
	return err
}

// LockAll locks several locks, of one or two kinds, in the order of their names, so that members
// which want some of the same locks never wait for each other in a circle. If one cannot be had,
// those before it are given back. Held i is that of lock i.
func LockAll(ctx context.Context, c *rdma.Coro, locks ...Lock) ([]Held, error) {
	order := make([]int, len(locks))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(locks[a].Name(), locks[b].Name()) })
	held := make([]Held, len(locks))
	for n, i := range order {
		h, err := locks[i].Lock(ctx, c)
		if err != nil {
			for _, j := range order[:n] {
				err = errors.Join(err, locks[j].giveBack(c))
			}
			return nil, err
		}
		held[i] = h
	}
	return held, nil
}

// Lock is a Mutex or a TicketLock.
type Lock interface {
	Name() string
	Lock(ctx context.Context, c *rdma.Coro) (Held, error)
	Unlock(c *rdma.Coro) error
	StageUnlock(b *rdma.Batch) error
	Settle(c *rdma.Coro) error
	// giveBack unlocks a lock whose state was not touched: a mark that it is abandoned stays.
	giveBack(c *rdma.Coro) error
}

var (
	_ Lock = (*Mutex)(nil)
	_ Lock = (*TicketLock)(nil)
)
