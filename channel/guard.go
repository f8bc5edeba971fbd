package channel

import (
	"context"
	"errors"

	"txnode/rdma"
)

// guard is the word of a lock without a queue: that of a Mutex, or of a bucket of a KV. It is
// {member 24, abandoned 1, token 39}, with member 0 if the lock is free, and changes by atomics
// alone. Giving the lock back adds 1 to the token, and so does taking over, which also sets
// abandoned. Giving back clears that. A bucket needs no token, since no resource compares it: it
// stays 0, so the word of a free bucket is known, and a plain CAS takes it.
type guard struct {
	o      *object
	off    uint32 // of the word
	local  uint32 // guardBytes of arena: two masks, and the word as it was read
	tokens bool
	held   bool
	// this member is the first that holds a lock which was made anew: it was abandoned, though its
	// word does not say so
	anew bool
	word uint64 // {abandoned, token} as this member has got them
	free uint64 // what the word is, as far as this member knows, if the lock is free
	// A holder finds n bytes of the object, from on, at to in the arena, as they were when it held
	// the lock: they are read behind the atomic that takes it, in the same doorbell.
	from, to, n uint32
}

const (
	tokenBits  = 64 - memberBits - 1
	tokenMask  = 1<<tokenBits - 1
	abandoned  = 1 << tokenBits
	memberMask = ^uint64(1<<(tokenBits+1) - 1)

	guardBytes = 64
)

// got notes that the lock is held.
func (g *guard) got(word uint64) Held {
	g.held, g.word = true, word&^memberMask
	g.anew = g.tokens && g.o.place.Anew && g.word == 0
	return Held{Token: word&tokenMask + 1, Abandoned: g.mark() != 0}
}

// mark is that of a lock that is abandoned, of one that is held.
func (g *guard) mark() uint64 {
	if g.anew {
		return abandoned
	}
	return g.word & abandoned
}

// me is the number of this member in the word.
func (g *guard) me() uint64 { return uint64(g.o.m.id) << (tokenBits + 1) }

// words are those of a holder, before and after it gives the lock back.
func (g *guard) words() (old, next uint64) { return g.me() | g.word, g.next(g.word) }

// next is the token behind the one in word.
func (g *guard) next(word uint64) uint64 {
	if !g.tokens {
		return 0
	}
	return (word + 1) & tokenMask
}

// behind appends the READ of what a holder wants to know.
func (g *guard) behind(b *rdma.Batch) {
	if g.n > 0 {
		b.Read(g.o.addr(g.from), g.to, g.n)
	}
}

// read is that READ alone, for a member which has learned late that it holds the lock.
func (g *guard) read(c *rdma.Coro) error {
	if g.n == 0 {
		return nil
	}
	g.o.b.Reset()
	g.behind(&g.o.b)
	return g.o.m.Do(c, &g.o.b)
}

// try takes the lock if it is free, and returns the word before. A try whose answer is lost is
// decided by a READ: the word before is free if the lock is this member's.
func (g *guard) try(c *rdma.Coro) (found uint64, err error) {
	o, me := g.o, g.me()
	if !g.tokens || !o.m.t.Caps().MaskedCAS {
		for {
			found, ok, err := g.swap(c, g.free, me|g.free)
			if ok || err != nil {
				return found, err
			}
			if found&memberMask != 0 {
				g.free = g.next(found) // when its holder has given it back
				return found, nil
			}
			g.free = found
		}
	}
	if err := o.ready(); err != nil {
		return 0, err
	}
	o.m.t.PutWord(g.local, memberMask)
	o.m.t.PutWord(g.local+8, memberMask)
	o.b.Reset()
	i := o.b.MaskedCAS(o.addr(g.off), 0, me, g.local)
	g.behind(&o.b)
	err = o.m.Do(c, &o.b)
	if !errors.Is(err, ErrUncertain) {
		return o.b.Result(i), err
	}
	if found, err = g.load(c); err != nil {
		return found, err
	}
	switch found & memberMask {
	case me:
		return found &^ memberMask, g.read(c)
	case 0:
		return g.try(c)
	}
	return found, nil
}

func (g *guard) load(c *rdma.Coro) (uint64, error) {
	o := g.o
	if err := o.ready(); err != nil {
		return 0, err
	}
	o.b.Reset()
	o.b.Read(o.addr(g.off), g.local+16, 8)
	err := o.m.Do(c, &o.b)
	return o.m.t.Word(g.local + 16), err
}

// swap replaces the word, which names this member before or after, and settles a swap whose answer
// is lost. If it is not ok, found is another word.
func (g *guard) swap(c *rdma.Coro, old, next uint64) (found uint64, ok bool, err error) {
	o := g.o
	taking := next&memberMask != 0
	for {
		if err := o.ready(); err != nil {
			return 0, false, err
		}
		o.b.Reset()
		i := o.b.CAS(o.addr(g.off), old, next)
		if taking {
			g.behind(&o.b)
		}
		if err = o.m.Do(c, &o.b); !errors.Is(err, ErrUncertain) {
			found = o.b.Result(i)
			return found, err == nil && found == old, err
		}
		switch found, err = g.load(c); {
		case err != nil:
			return found, false, err
		case found == next && taking:
			return old, true, g.read(c)
		case found != old:
			return found, found == next, nil
		}
	}
}

// tryTake takes the lock if it is free.
func (g *guard) tryTake(c *rdma.Coro) (h Held, ok bool, err error) {
	found, err := g.try(c)
	if err != nil || found&memberMask != 0 {
		return Held{}, false, err
	}
	return g.got(found), true, nil
}

// take waits for the lock until ctx ends. If its holder is dead, that member is fenced, and the
// lock taken over. It asks by the atomic that takes the lock: a READ that finds it free comes too
// late, if its last holder wants it again.
func (g *guard) take(ctx context.Context, c *rdma.Coro) (Held, error) {
	m := g.o.m
	w := wait{ctx: ctx, m: m}
	for {
		found, err := g.try(c)
		if err != nil {
			return Held{}, err
		}
		if found&memberMask == 0 {
			return g.got(found), nil
		}
		if dead, err := m.suspect(c, MemberID(found>>(tokenBits+1))); err != nil {
			return Held{}, err
		} else if dead {
			next := g.me() | abandoned | g.next(found)
			if _, ok, err := g.swap(c, found, next); err != nil {
				return Held{}, err
			} else if ok {
				return g.got(next), nil
			}
			continue
		}
		if err := w.next(c); err != nil {
			return Held{}, err
		}
	}
}

// giveBack gives back a lock whose state was not touched: a mark that it is abandoned stays.
func (g *guard) giveBack(c *rdma.Coro) error {
	g.held = false
	old, next := g.words()
	return g.leave(c, old, next|g.mark())
}

// release gives the lock back, unless that has happened.
func (g *guard) release(c *rdma.Coro) error {
	old, next := g.words()
	return g.leave(c, old, next)
}

func (g *guard) leave(c *rdma.Coro, old, next uint64) error {
	g.free = next
	_, _, err := g.swap(c, old, next)
	return err
}

// stageRelease appends giving back. The lock counts as given back at once.
func (g *guard) stageRelease(b *rdma.Batch) {
	old, next := g.words()
	b.CAS(g.o.addr(g.off), old, next)
	g.held, g.free = false, next
}
