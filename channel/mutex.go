package channel

import (
	"context"
	"errors"
	"fmt"

	"txnode/rdma"
)

// Held says that a lock is held.
type Held struct {
	// Token is greater than that of every holder before. A resource that no access key protects
	// compares it, and refuses a smaller one than it has seen.
	Token uint64
	// Abandoned: a holder before has died with the lock. Its state may be half changed, and is to be
	// repaired before use. A lock that is abandoned again says so again.
	Abandoned bool
}

// Mutex is a lock without a queue: which of the waiting members gets it is open. It is for locks that
// are free most of the time; see TicketLock. A dead holder is fenced, and its lock taken over.
//
//	operation                        verbs / round trips
//	Lock, free                       masked CAS    1 / 1
//	Lock, free, without MaskedCAS    READ, CAS     2 / 2
//	Lock, held                       + a READ for each look, then a CAS
//	Unlock                           CAS           1 / 1, and a thread fence before it
//	StageUnlock                      CAS           1 / 0
//
// Layout: the header; at 64 an A word {member 24, abandoned 1, token 39}, member 0 if free. Unlock adds
// 1 to the token, and so does taking over, which also sets abandoned. Unlock clears it.
//
// The handle is one holder: coroutines of one thread that share it exclude each other by themselves.
type Mutex struct {
	object
	held bool
	word uint64 // {abandoned, token} as this member has got them
}

const (
	mutexWord  = headerBytes
	tokenBits  = 64 - memberBits - 1
	tokenMask  = 1<<tokenBits - 1
	abandoned  = 1 << tokenBits
	memberMask = ^uint64(1<<(tokenBits+1) - 1)
)

// OpenMutex opens the mutex called name in s.
func OpenMutex(_ context.Context, c *rdma.Coro, s Scope, name string) (*Mutex, error) {
	full, err := s.name(name)
	if err != nil {
		return nil, err
	}
	l := new(Mutex)
	return opened(l, l.open(c, s.m, full, Spec{Kind: KindMutex, Bytes: headerBytes + 64}, 64))
}

// TryLock takes the lock if it is free. ok is false if another member holds it, alive or dead.
func (l *Mutex) TryLock(c *rdma.Coro) (h Held, ok bool, err error) {
	if l.held {
		return Held{}, false, fmt.Errorf("%w: this handle of %q holds the lock", ErrOwned, l.name)
	}
	found, err := l.try(c)
	if err != nil || found&memberMask != 0 {
		return Held{}, false, err
	}
	return l.got(found), true, nil
}

// got notes that the lock is held.
func (l *Mutex) got(word uint64) Held {
	l.held, l.word = true, word&^memberMask
	return Held{Token: word&tokenMask + 1, Abandoned: word&abandoned != 0}
}

// me is the number of this member in the word.
func (l *Mutex) me() uint64 { return uint64(l.m.id) << (tokenBits + 1) }

// try takes the lock if it is free, and returns the word before. A try whose answer is lost is decided
// by a READ: the word before is free if the lock is this member's.
func (l *Mutex) try(c *rdma.Coro) (found uint64, err error) {
	me := l.me()
	if !l.m.t.Caps().MaskedCAS {
		for {
			if found, err = l.load(c); err != nil || found&memberMask != 0 {
				return found, err
			}
			if ok, err := l.swap(c, found, me|found); ok || err != nil {
				return found, err
			}
		}
	}
	if err := l.ready(); err != nil {
		return 0, err
	}
	l.m.t.PutWord(l.buf, memberMask)
	l.m.t.PutWord(l.buf+8, memberMask)
	l.b.Reset()
	i := l.b.MaskedCAS(l.addr(mutexWord), 0, me, l.buf)
	err = l.m.Do(c, &l.b)
	if !errors.Is(err, ErrUncertain) {
		return l.b.Result(i), err
	}
	if found, err = l.load(c); found&memberMask == me {
		found &^= memberMask
	} else if found&memberMask == 0 {
		return l.try(c)
	}
	return found, err
}

func (l *Mutex) load(c *rdma.Coro) (uint64, error) {
	if err := l.ready(); err != nil {
		return 0, err
	}
	l.b.Reset()
	l.b.Read(l.addr(mutexWord), l.buf+16, 8)
	err := l.m.Do(c, &l.b)
	return l.m.t.Word(l.buf + 16), err
}

// swap replaces the word, which names this member before or after, and settles a swap whose answer is
// lost.
func (l *Mutex) swap(c *rdma.Coro, old, next uint64) (ok bool, err error) {
	for {
		if err := l.ready(); err != nil {
			return false, err
		}
		l.b.Reset()
		i := l.b.CAS(l.addr(mutexWord), old, next)
		if err = l.m.Do(c, &l.b); !errors.Is(err, ErrUncertain) {
			return err == nil && l.b.Result(i) == old, err
		}
		found, err := l.load(c)
		if err != nil || found != old {
			return err == nil && found == next, err
		}
	}
}

// Lock takes the lock, and waits for it until ctx ends. If its holder is dead, that member is fenced,
// and the lock taken over: Held says so.
func (l *Mutex) Lock(ctx context.Context, c *rdma.Coro) (Held, error) {
	h, ok, err := l.TryLock(c)
	if ok || err != nil {
		return h, err
	}
	w := wait{ctx: ctx, m: l.m}
	for {
		found, err := l.load(c)
		if err != nil {
			return Held{}, err
		}
		holder := MemberID(found >> (tokenBits + 1))
		if holder == 0 {
			if h, ok, err := l.TryLock(c); ok || err != nil {
				return h, err
			}
		}
		if dead, err := l.m.suspect(c, holder); err != nil {
			return Held{}, err
		} else if dead {
			next := l.me() | abandoned | (found+1)&tokenMask
			if ok, err := l.swap(c, found, next); err != nil {
				return Held{}, err
			} else if ok {
				return l.got(next), nil
			}
			continue
		}
		if err := w.next(c); err != nil {
			return Held{}, err
		}
	}
}

// Unlock gives the lock back. What this thread has written before, on any blade, is visible to the next
// holder. ErrNotOwner: the lock is not held.
func (l *Mutex) Unlock(c *rdma.Coro) error {
	if !l.held {
		return fmt.Errorf("%w: %q is not locked by this handle", ErrNotOwner, l.name)
	}
	if err := l.m.fence(c, &l.b); err != nil {
		return err
	}
	l.held = false
	return l.Settle(c)
}

func (l *Mutex) words() (old, next uint64) { return l.me() | l.word, (l.word + 1) & tokenMask }

func (l *Mutex) giveBack(c *rdma.Coro) error {
	l.held = false
	old, next := l.words()
	_, err := l.swap(c, old, next|l.word&abandoned)
	return err
}

// StageUnlock appends an Unlock to b, for data on the lock's blade that were appended before, or are
// visible already: they are visible to the next holder. The lock counts as given back at once. If b
// ends with ErrUncertain, Settle tells whether the lock was given back, and does it otherwise.
func (l *Mutex) StageUnlock(b *rdma.Batch) error {
	if err := l.ready(); err != nil {
		return err
	}
	if !l.held {
		return fmt.Errorf("%w: %q is not locked by this handle", ErrNotOwner, l.name)
	}
	old, next := l.words()
	b.CAS(l.addr(mutexWord), old, next)
	l.held = false
	return nil
}

// Settle gives back the lock if an Unlock that was staged has not.
func (l *Mutex) Settle(c *rdma.Coro) error {
	if l.held {
		return nil
	}
	old, next := l.words()
	_, err := l.swap(c, old, next)
	return err
}
