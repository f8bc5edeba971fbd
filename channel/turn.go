package channel

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"txnode/rdma"
)

// turn is the queue of a member's own coroutines in front of a lock that they share a handle of.
// They get the lock in the order in which they ask. A coroutine that unlocks hands the lock over to
// the next one without a verb: to other members it is the same holder, so if the member dies, it is
// taken over from all of them. The coroutines have the queue pairs in common, so what one has
// written the next one reads, and the fence of the last one's Unlock is for all. If the last one
// gives the lock back otherwise, it owes that fence.
//
// A lock is handed over maxPasses times in a row, while other members wait, and then given back.
// One that was abandoned is not: it is given back by the coroutine that has repaired its state.
type turn struct {
	by      *rdma.Coro   // that holds the lock, or asks the blades for it
	waiting []*rdma.Coro // in their order
	handed  bool         // by has got the lock from another coroutine
	passes  int          // since the lock was taken from the blades
	held    Held         // as it was taken
	staged  *rdma.Batch  // by has appended giving back to it
	// what holders before have written may not be visible on other blades yet: the lock is given
	// back behind a fence
	owes bool

	settle func(c *rdma.Coro) error // of the lock: gives it back if that has not happened
}

const (
	passBits  = 3
	maxPasses = 1<<passBits - 1

	// A token is {generation 24, count 37, passes 3}. The generation is the incarnation
	// of the object: a lock that is made anew counts from 1 again, and its tokens are
	// greater all the same.
	generationBits = 24
	countBits      = 64 - generationBits - passBits
	maxCount       = 1<<countBits - 1
)

// generation returns ErrTooLarge for a lock that was made after so many objects that no token has
// room for its incarnation.
func generation(o *object) error {
	if o.place.Incarnation < 1<<generationBits {
		return nil
	}
	o.Close()
	return fmt.Errorf("%w: lock %q is object %d of its host, and tokens have room for the numbers below %d",
		ErrTooLarge, o.name, o.place.Incarnation, 1<<generationBits)
}

// enter waits until it is this coroutine's turn. handed: then it holds the lock.
func (t *turn) enter(ctx context.Context, c *rdma.Coro, o *object) (handed bool, err error) {
	if err := t.free(c, o); err != nil {
		return false, err
	}
	if t.by == nil {
		t.by, t.handed = c, false
		return false, nil
	}
	t.waiting = append(t.waiting, c)
	w := wait{ctx: ctx, m: o.m}
	for t.by != c {
		if err = errors.Join(ctx.Err(), o.m.Beat(c), o.ready()); t.by == c {
			break
		}
		if err != nil {
			t.remove(c)
			return false, err
		}
		w.sleep(c) // until it is woken, or has to beat
	}
	return t.handed, nil
}

// try takes the turn if it is no other coroutine's.
func (t *turn) try(c *rdma.Coro, o *object) (ok bool, err error) {
	if err := t.free(c, o); err != nil || t.by != nil {
		return false, err
	}
	t.by, t.handed = c, false
	return true, nil
}

// free is nil if this coroutine does not hold the lock.
func (t *turn) free(c *rdma.Coro, o *object) error {
	if t.by != c {
		return nil
	}
	if t.staged == nil {
		return fmt.Errorf("%w: this coroutine holds %q", ErrOwned, o.name)
	}
	t.leave(o.m)
	return nil
}

// mine is nil if this coroutine holds the lock.
func (t *turn) mine(c *rdma.Coro, o *object) error {
	if t.by != c || t.staged != nil {
		return fmt.Errorf("%w: %q is not locked by this coroutine", ErrNotOwner, o.name)
	}
	return nil
}

func (t *turn) remove(c *rdma.Coro) {
	if i := slices.Index(t.waiting, c); i >= 0 {
		t.waiting = slices.Delete(t.waiting, i, i+1)
	}
}

// next makes it the turn of the coroutine that has waited longest.
func (t *turn) next() {
	t.by = t.waiting[0]
	t.remove(t.by)
	t.by.Wake()
}

// got notes that the blades have given the lock, with a token that counts from 1 in this
// incarnation of the object. After an error it is to be given back.
func (t *turn) got(o *object, h Held) (Held, error) {
	if h.Token > maxCount {
		return Held{}, fmt.Errorf("%w: %v %q was locked %d times, and a token has no room for more: forget the lock, "+
			"and open it again", ErrTooLarge, o.spec.Kind, o.name, uint64(maxCount))
	}
	h.Token |= uint64(o.place.Incarnation) << countBits
	t.held, t.passes = h, 0
	return t.holds(), nil
}

// holds is what the present holder is told: each has a greater token.
func (t *turn) holds() Held {
	return Held{Token: t.held.Token<<passBits | uint64(t.passes), Abandoned: t.held.Abandoned}
}

// pass hands the lock over if a coroutine waits for it.
func (t *turn) pass() bool {
	if len(t.waiting) == 0 || t.passes == maxPasses || t.held.Abandoned {
		return false
	}
	t.passes++
	t.next()
	t.handed, t.owes = true, true
	return true
}

// leave ends the turn: the lock is given back, or was not had.
func (t *turn) leave(m *Member) {
	if t.staged != nil {
		t.staged = nil
		if i := slices.Index(m.staged, t); i >= 0 {
			m.staged = slices.Delete(m.staged, i, i+1)
		}
	}
	t.by, t.handed, t.owes = nil, false, false
	if len(t.waiting) > 0 {
		t.next()
	}
}

// fence makes visible what holders before have written.
func (t *turn) fence(c *rdma.Coro, o *object) error {
	if !t.owes {
		return nil
	}
	if err := o.m.fence(c, &o.b); err != nil {
		return err
	}
	t.owes = false
	return nil
}

// stage notes that giving back was appended to a batch, or is owed: the turn ends when
// Member.Do has posted it.
func (t *turn) stage(m *Member, b *rdma.Batch) {
	t.staged = b
	m.staged = append(m.staged, t)
}

// posted ends the turns whose locks were given back with a batch, and gives those back that owe a
// fence.
func (m *Member) posted(c *rdma.Coro, b *rdma.Batch) error {
	for {
		i := slices.IndexFunc(m.staged, func(t *turn) bool { return t.staged == b })
		if i < 0 {
			return nil
		}
		t := m.staged[i]
		if t.owes {
			if err := t.settle(c); err != nil {
				return err
			}
		}
		t.leave(m)
	}
}
