package channel

import (
	"context"
	"errors"
	"fmt"

	"txnode/rdma"
)

// Held says that a lock is held.
type Held struct {
	// Token is greater than that of every holder before, also when the lock was lost with its blade
	// or forgotten, and made anew: its upper 24 bits are the incarnation of the lock. A resource
	// that no access key protects compares it, and refuses a smaller one than it has seen.
	Token uint64
	// Abandoned: a holder before has died with the lock, or the lock was lost with its blade, and
	// may have had a holder. Its state may be half changed, and is to be repaired before use. A
	// lock that is abandoned again says so again.
	Abandoned bool
}

// Mutex is a lock without a queue: which of the waiting members gets it is open. It is for locks
// that are free most of the time; see TicketLock. A dead holder is fenced, and its lock taken over.
//
//	operation                        verbs / round trips
//	Lock, free                       masked CAS    1 / 1
//	Lock, free, without MaskedCAS    CAS           1 / 1, and 2 / 2 if another member has held it
//	                                               since
//	Lock, held                       + a CAS for each attempt
//	Unlock                           CAS           1 / 1, and a thread fence before it
//	  handed over                    to a coroutine of the member   0 / 0
//	StageUnlock                      CAS           1 / 0
//	  handed over before             CAS           1 / 1 of Member.Do, and a thread fence before
//	                                               it
//
// Layout: the header; at 64 an A word {member 24, abandoned 1, token 39}, member 0 if free. Unlock
// adds 1 to the token, and so does taking over, which also sets abandoned. Unlock clears it.
//
// Coroutines of the member's thread that share the handle exclude each other, too, and get the lock
// in their order: Unlock hands it over to the next one without a verb, up to seven times in a row.
type Mutex struct {
	object
	lock guard
	turn turn
}

const mutexWord = headerBytes

// OpenMutex opens the mutex called name in s.
func OpenMutex(ctx context.Context, c *rdma.Coro, s Scope, name string) (*Mutex, error) {
	full, err := s.name(name)
	if err != nil {
		return nil, err
	}
	l := new(Mutex)
	if err := l.open(ctx, c, s.m, full, Spec{Kind: KindMutex, Bytes: headerBytes + 64}, guardBytes); err != nil {
		return nil, err
	}
	if err := generation(&l.object); err != nil {
		return nil, err
	}
	l.lock = guard{o: &l.object, off: mutexWord, local: l.buf, tokens: true}
	l.turn.settle = l.settle
	l.holds = func() bool { return l.lock.held || l.turn.staged != nil }
	return l, nil
}

// TryLock takes the lock if it is free. ok is false if another member or coroutine holds
// it, alive or dead.
func (l *Mutex) TryLock(c *rdma.Coro) (h Held, ok bool, err error) {
	if ok, err = l.turn.try(c, &l.object); !ok || err != nil {
		return Held{}, false, err
	}
	if h, ok, err = l.lock.tryTake(c); !ok || err != nil {
		l.turn.leave(l.m)
		return Held{}, false, err
	}
	h, err = l.got(c, h)
	return h, err == nil, err
}

// Lock takes the lock, and waits for it until ctx ends. If its holder is dead, that member is
// fenced, and the lock taken over: Held says so.
func (l *Mutex) Lock(ctx context.Context, c *rdma.Coro) (Held, error) {
	handed, err := l.turn.enter(ctx, c, &l.object)
	if err != nil {
		return Held{}, err
	}
	if handed {
		return l.turn.holds(), nil
	}
	h, err := l.lock.take(ctx, c)
	if err != nil {
		l.turn.leave(l.m)
		return Held{}, err
	}
	return l.got(c, h)
}

// got is behind the atomic that has taken the lock.
func (l *Mutex) got(c *rdma.Coro, h Held) (Held, error) {
	h, err := l.turn.got(&l.object, h)
	if err != nil {
		err = errors.Join(err, l.giveBack(c))
	}
	return h, err
}

// Unlock gives the lock back, or hands it over. What this thread has written before, on any blade,
// is visible to the next holder. ErrNotOwner: the lock is not held.
func (l *Mutex) Unlock(c *rdma.Coro) error {
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
	l.lock.held = false
	return l.lock.release(c)
}

func (l *Mutex) giveBack(c *rdma.Coro) error {
	if err := l.turn.fence(c, &l.object); err != nil {
		return err
	}
	defer l.turn.leave(l.m)
	return l.lock.giveBack(c)
}

// StageUnlock appends an Unlock to b, for data on the lock's blade that were appended before, or
// are visible already: they are visible to the next holder. The lock counts as given back at once.
// If b ends with ErrUncertain, Settle tells whether the lock was given back, and does it otherwise.
// A coroutine that waits for the lock gets it when Member.Do has posted b, or Settle was called. A
// lock that was handed over by another coroutine is given back by Member.Do behind b and a fence,
// since that coroutine may have written on any blade.
func (l *Mutex) StageUnlock(b *rdma.Batch) error {
	if err := l.ready(); err != nil {
		return err
	}
	if !l.lock.held || l.turn.staged != nil {
		return fmt.Errorf("%w: %q is not locked by this handle", ErrNotOwner, l.name)
	}
	if l.turn.owes {
		l.lock.held = false
	} else {
		l.lock.stageRelease(b)
	}
	l.turn.stage(l.m, b)
	return nil
}

// Settle gives back the lock if an Unlock that was staged has not.
func (l *Mutex) Settle(c *rdma.Coro) error {
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
func (l *Mutex) settle(c *rdma.Coro) error {
	if err := l.turn.fence(c, &l.object); err != nil {
		return err
	}
	return l.lock.release(c)
}
