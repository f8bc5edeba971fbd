package channel

import (
	"context"
	"errors"
	"fmt"

	"txnode/rdma"
)

// Barrier lets a fixed number of members wait for each other, any number of times. What a member
// has written before Wait, on any blade, is visible to all when their Wait returns.
//
// If a member dies, the others do not wait for ever. A round that the dead member had reached ends
// as if it were alive. The first round that it had not reached ends with a *MissingError, and so do
// all later ones: one error, the same for all members, because the first of them that is sure
// leaves the verdict in a word. Reform begins anew.
//
//	operation                  verbs / round trips
//	Wait, the last to arrive   thread fence, WRITE and READ of the counts   2 / 1, and the fence's
//	Wait, the others           a READ more for each look                    + k / k
//
// Layout: the header; at 64 the verdict, an A word {round 40, row+1 24}; at 128 the owners of
// rows, an A word each; then the counts, an S word {member 24, told 1, count 39} each. 64
// parties are 1 KiB.
//
// Counts only grow and have one writer, so a WRITE may be repeated. Rows name the members that are
// missing, which a counter could not.
type Barrier struct {
	object
	parties uint32
	row     int
	count   uint64
}

const (
	barrierVerdict = headerBytes
	barrierOwners  = 2 * headerBytes
	roundBits      = 64 - memberBits
	told           = 1 << (roundBits - 1) // the member has returned the verdict
	roundMask      = told - 1
)

// OpenBarrier opens the barrier called name in s, for that many parties, and takes a row.
// The row stays this member's as long as the barrier does: with more members than parties
// Open returns ErrFull.
func OpenBarrier(ctx context.Context, c *rdma.Coro, s Scope, name string, parties int) (*Barrier, error) {
	full, err := s.name(name)
	if err != nil {
		return nil, err
	}
	if parties < 1 || parties > maxSlots {
		return nil, fmt.Errorf("%w: %q with %d parties: 1 to %d are possible", ErrTooLarge, full, parties, maxSlots)
	}
	b := &Barrier{parties: uint32(parties)}
	return opened(b, b.join(ctx, c, s.m, full))
}

func (b *Barrier) join(ctx context.Context, c *rdma.Coro, m *Member, name string) error {
	n := 16 * b.parties
	spec := Spec{Kind: KindBarrier, Rows: b.parties, Bytes: barrierOwners + n}
	if err := b.open(ctx, c, m, name, spec, 64+64+n); err != nil {
		return err
	}
	row, err := b.claim(ctx, c, barrierOwners, b.parties, func(int) bool { return false })
	if err != nil {
		b.Close()
		return err
	}
	b.row, b.count = row, 0
	return nil
}

// Round is how many rounds this member has begun, of this incarnation of the barrier.
func (b *Barrier) Round() uint64 { return b.count }

// Wait returns when all parties have called Wait as often as this member. If it ends with the error
// of ctx, this member has arrived all the same: another call of Wait would be of the next round,
// and Resume goes on with this one.
func (b *Barrier) Wait(ctx context.Context, c *rdma.Coro) error {
	if err := b.m.fence(c, &b.b); err != nil {
		return err
	}
	return b.arrive(ctx, c)
}

// WaitAll is Wait with a fence of several threads of the process, which are quiet: what they have
// written is visible, too.
func (b *Barrier) WaitAll(ctx context.Context, c *rdma.Coro, threads ...*rdma.Thread) error {
	if err := rdma.GlobalFence(threads, &b.b); err != nil {
		return err
	}
	return b.Wait(ctx, c)
}

// arrive writes this member's count, and waits for the others. It beats before, because a member
// that is the last one to arrive, or the last one but for a quick look, does not wait.
func (b *Barrier) arrive(ctx context.Context, c *rdma.Coro) error {
	if err := b.m.Beat(c); err != nil {
		return err
	}
	if err := b.ready(); err != nil {
		return err
	}
	b.count++
	b.m.t.PutWord(b.buf, uint64(b.m.id)<<roundBits|b.count)
	b.b.Reset()
	b.b.Write(b.addr(barrierOwners+8*(b.parties+uint32(b.row))), b.buf, 8)
	return b.poll(ctx, c)
}

// Resume goes on with a Wait that ended with the error of its context.
func (b *Barrier) Resume(ctx context.Context, c *rdma.Coro) error {
	if err := b.ready(); err != nil {
		return err
	}
	b.b.Reset()
	return b.poll(ctx, c)
}

// poll posts what is in b.b with a READ of the counts, and looks again until the round is over: at
// once for as long as the others may be on their way, then with pauses, at owners and verdict, too.
func (b *Barrier) poll(ctx context.Context, c *rdma.Coro) error {
	w := wait{ctx: ctx, m: b.m}
	for range quickLooks {
		if over, err := b.glance(c); over || err != nil {
			return err
		}
	}
	for {
		over, verdict, err := b.look(c)
		switch {
		case err != nil:
			return err
		case over:
			return nil
		case verdict != 0 && verdict>>memberBits <= b.count:
			return b.missing(c, verdict)
		}
		dead, err := b.anyDead(c)
		if err != nil {
			return err
		}
		if dead >= 0 {
			if err := b.decide(c, dead); err != nil {
				return err
			}
			continue
		}
		if err := w.next(c); err != nil {
			return err
		}
		b.b.Reset()
	}
}

// quickLooks is how often a member looks without a pause.
const quickLooks = 4

// glance posts what is in b.b with a READ of the counts alone. over: all have arrived in
// this member's round.
func (b *Barrier) glance(c *rdma.Coro) (over bool, err error) {
	if err := b.ready(); err != nil {
		return false, err
	}
	counts := 8 * b.parties
	b.b.Read(b.addr(barrierOwners+counts), b.buf+128+counts, counts)
	if err := b.m.Do(c, &b.b); err != nil {
		return false, err
	}
	b.b.Reset()
	return b.over(), nil
}

func (b *Barrier) over() bool {
	for i := range int(b.parties) {
		if b.countOf(i) < b.count {
			return false
		}
	}
	return true
}

// look reads all words. over: all have arrived in this member's round.
func (b *Barrier) look(c *rdma.Coro) (over bool, verdict uint64, err error) {
	if err := b.ready(); err != nil {
		return false, 0, err
	}
	local := b.buf + 64
	b.b.Read(b.addr(barrierVerdict), local, 64+16*b.parties)
	if err := b.m.Do(c, &b.b); err != nil {
		return false, 0, err
	}
	b.b.Reset()
	return b.over(), b.m.t.Word(local), nil
}

func (b *Barrier) ownerOf(row int) MemberID {
	return MemberID(b.m.t.Word(b.buf + 128 + 8*uint32(row)))
}

func (b *Barrier) wordOf(row int) uint64 {
	return b.m.t.Word(b.buf + 128 + 8*(b.parties+uint32(row)))
}

func (b *Barrier) countOf(row int) uint64 { return b.wordOf(row) & roundMask }

// anyDead fences a member that has not arrived and has expired, and returns its row; -1: none.
func (b *Barrier) anyDead(c *rdma.Coro) (int, error) {
	for i := range int(b.parties) {
		if b.countOf(i) >= b.count {
			continue
		}
		if dead, err := b.m.suspect(c, b.ownerOf(i)); dead || err != nil {
			return i, err
		}
	}
	return -1, nil
}

// decide looks again at the row of a member that was fenced. If that member has not
// arrived, it never will: the verdict is that this round has ended without it, unless there
// is a verdict already.
func (b *Barrier) decide(c *rdma.Coro, row int) error {
	b.b.Reset()
	if _, _, err := b.look(c); err != nil {
		return err
	}
	if b.countOf(row) >= b.count {
		return nil
	}
	b.b.CAS(b.addr(barrierVerdict), 0, b.count<<memberBits|uint64(row+1))
	err := b.m.Do(c, &b.b)
	b.b.Reset()
	if errors.Is(err, ErrUncertain) {
		return nil // the next look tells
	}
	return err
}

// missing tells this member's row that the verdict is known, and returns it.
func (b *Barrier) missing(c *rdma.Coro, verdict uint64) error {
	row := int(verdict&(1<<memberBits-1)) - 1
	e := &MissingError{Object: b.name, Member: b.ownerOf(row), Row: row, Round: verdict >> memberBits}
	b.m.t.PutWord(b.buf, uint64(b.m.id)<<roundBits|told|b.count)
	b.b.Reset()
	b.stageWrite(&b.b, barrierOwners+8*(b.parties+uint32(b.row)), b.buf, 8)
	if err := b.m.Do(c, &b.b); err != nil {
		return err
	}
	b.b.Reset()
	return e
}

// Reform ends a barrier whose Wait has returned a *MissingError, and opens the next incarnation.
// It waits until all members of the barrier that are alive have got the error. Then all of them
// call it, and members that take the place of those that are missing open the barrier. Rounds
// count from 1 again.
func (b *Barrier) Reform(ctx context.Context, c *rdma.Coro) error {
	m, name := b.m, b.name
	if m.dead != nil {
		return m.dead
	}
	if err := b.allTold(ctx, c); err != nil && !errors.Is(err, ErrIncarnation) {
		return err
	}
	if err := m.living(m.host.Forget(c, name, b.place.Incarnation)); err != nil {
		return err
	}
	if err := m.refresh(c); err != nil {
		return err
	}
	b.Close()
	return b.join(ctx, c, m, name)
}

// allTold waits until each member has returned the verdict, or is dead. ErrIncarnation: another
// member has seen that, and forgotten the barrier.
func (b *Barrier) allTold(ctx context.Context, c *rdma.Coro) error {
	w := wait{ctx: ctx, m: b.m}
	for {
		b.b.Reset()
		_, verdict, err := b.look(c)
		if err != nil {
			return err
		}
		if verdict == 0 {
			return fmt.Errorf("%w: no member of %q is missing", ErrOwned, b.name)
		}
		all := true
		for i := range int(b.parties) {
			if b.ownerOf(i) == 0 || b.wordOf(i)&told != 0 {
				continue
			}
			dead, err := b.m.suspect(c, b.ownerOf(i))
			if err != nil {
				return err
			}
			all = all && dead
		}
		if all {
			return nil
		}
		if err := w.next(c); err != nil {
			return err
		}
	}
}
