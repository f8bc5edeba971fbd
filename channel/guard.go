package channel

import (
	"context"
	"errors"

	"txnode/rdma"
)

// guard is the word of a lock without a queue: that of a Mutex, or of a bucket of a KV. It is
// {member 24, abandoned 1, token 39}, with member 0 if the lock is free, and changes by atomics alone.
// Giving the lock back adds 1 to the token, and so does taking over, which also sets abandoned. Giving
// back clears that.
type guard struct {
	o     *object
	off   uint32 // of the word
	local uint32 // guardBytes of arena: two masks, and the word as it was read
	held  bool
	word  uint64 // {abandoned, token} as this member has got them
	// A holder finds n bytes of the object, from on, at to in the arena, as they were when it held the
	// lock: they are read behind the atomic that takes it, in the same doorbell.
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
	return Held{Token: word&tokenMask + 1, Abandoned: word&abandoned != 0}
}

// me is the number of this member in the word.
func (g *guard) me() uint64 { return uint64(g.o.m.id) << (tokenBits + 1) }

// words are those of a holder, before and after it gives the lock back.
func (g *guard) words() (old, next uint64) { return g.me() | g.word, (g.word + 1) & tokenMask }

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

// try takes the lock if it is free, and returns the word before. A try whose answer is lost is decided
// by a READ: the word before is free if the lock is this member's.
func (g *guard) try(c *rdma.Coro) (found uint64, err error) {
	o, me := g.o, g.me()
	if !o.m.t.Caps().MaskedCAS {
		for {
			if found, err = g.load(c); err != nil || found&memberMask != 0 {
				return found, err
			}
			if ok, err := g.swap(c, found, me|found); ok || err != nil {
				return found, err
			}
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

// swap replaces the word, which names this member before or after, and settles a swap whose answer is
// lost.
func (g *guard) swap(c *rdma.Coro, old, next uint64) (ok bool, err error) {
	o := g.o
	taking := next&memberMask != 0
	for {
		if err := o.ready(); err != nil {
			return false, err
		}
		o.b.Reset()
		i := o.b.CAS(o.addr(g.off), old, next)
		if taking {
			g.behind(&o.b)
		}
		if err = o.m.Do(c, &o.b); !errors.Is(err, ErrUncertain) {
			return err == nil && o.b.Result(i) == old, err
		}
		found, err := g.load(c)
		if err != nil || found != old {
			if err == nil && found == next && taking {
				err = g.read(c)
			}
			return err == nil && found == next, err
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

// take waits for the lock until ctx ends. If its holder is dead, that member is fenced, and the lock
// taken over.
func (g *guard) take(ctx context.Context, c *rdma.Coro) (Held, error) {
	h, ok, err := g.tryTake(c)
	if ok || err != nil {
		return h, err
	}
	m := g.o.m
	w := wait{ctx: ctx, m: m}
	for {
		found, err := g.load(c)
		if err != nil {
			return Held{}, err
		}
		holder := MemberID(found >> (tokenBits + 1))
		if holder == 0 {
			if h, ok, err := g.tryTake(c); ok || err != nil {
				return h, err
			}
		}
		if dead, err := m.suspect(c, holder); err != nil {
			return Held{}, err
		} else if dead {
			next := g.me() | abandoned | (found+1)&tokenMask
			if ok, err := g.swap(c, found, next); err != nil {
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
	_, err := g.swap(c, old, next|g.word&abandoned)
	return err
}

// stageRelease appends giving back. The lock counts as given back at once.
func (g *guard) stageRelease(b *rdma.Batch) {
	old, next := g.words()
	b.CAS(g.o.addr(g.off), old, next)
	g.held = false
}
