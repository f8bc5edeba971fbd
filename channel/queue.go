package channel

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"txnode/rdma"
)

// Queue is a queue of values from many members to many, first in, first out: in the order of the
// numbers that pushers draw. An item that a member takes is that member's until Done. If the member
// dies before, another one gets the item, out of order and marked Again: an item is handled at
// least once, and once if no member dies.
//
//	operation            verbs / round trips
//	Push                 FAA, then WRITE and CAS                         3 / 2
//	                     READ of head, once a turn of the ring           + 1 / 1
//	Take, TryTake        READ and READ, then CAS, CAS and READ           5 / 2
//	                     the head had moved on: READ and READ            + 2 / 1
//	TryTake, empty       READ and READ                                   2 / 1
//	Done                 CAS                                             1 / 1
//
// Layout: the header; at 64 the words head and tail, in this order; at 128 the owners of rows, then
// a word for each slot, {turn 40, phase 2, taker 11, pusher 11}; from the next line on the blocks.
// All words are changed by atomics alone. Entry t belongs to turn t/slots of slot t mod slots:
//
//	{turn, free}    not filled yet
//	{turn, full}    the value is in the block of the pusher's row
//	{turn, taken}   by the member of the taker's row
//	{turn+1, free}  done; skipped if all bits of pusher are set, so that a pusher whose CAS has no
//	                answer can tell
//
// A READ of head and tail copies head first, and both only grow: if they are equal, the queue was
// empty when tail was read. Only the entry at head is taken, so order is strict.
//
// An entry that was drawn and is not filled, because its pusher has stopped or is slow, is skipped
// when it has been at head for a sixteenth of a term. Filling and skipping race for one word. A
// pusher that was skipped draws another number.
//
// A row has two blocks for each slot, for even and odd turns. A pusher fills a block when head has
// passed the entry one turn before, so what the block held, two turns before, is done.
type Queue[T any] struct {
	object
	codec    Codec[T]
	rows     uint32
	slots    uint64
	row      uint32
	block    uint32 // bytes
	blocks   uint32 // offset of the blocks
	head     uint64 // not more than the word
	held     []uint64
	patience int64
	stuck    uint64 // entry at head that is not filled, plus 1, and since when
	since    int64
	scanned  int64
}

const (
	queueHead  = headerBytes
	queueRows  = 2 * headerBytes
	rowBits    = 11
	rowMask    = 1<<rowBits - 1
	phaseFree  = 0
	phaseFull  = 1
	phaseTaken = 2
	phaseShift = 2 * rowBits
	turnShift  = phaseShift + 2
)

// Item is a value that was taken.
type Item[T any] struct {
	Value T
	// Again: another member had taken the item, and may have handled it.
	Again bool
	entry uint64
	word  uint64
}

// OpenQueue opens the queue called name in s, with that many slots, for that many members, and
// takes a row. It waits for a row as Join does for a slot.
func OpenQueue[T any](ctx context.Context, c *rdma.Coro, s Scope, name string, codec Codec[T], slots,
	members int) (*Queue[T], error) {
	full, err := s.name(name)
	if err != nil {
		return nil, err
	}
	if err := codec.check(); err != nil {
		return nil, err
	}
	block := align(uint32(codec.Size), rdma.LineSize)
	if slots < 1 || members < 1 || members > rowMask || slots > 1<<26/(2*members*int(block)) {
		return nil, fmt.Errorf("%w: %q with %d slots of %d bytes for %d members: 1 to %d members, and 64 MiB, "+
			"are possible", ErrTooLarge, full, slots, codec.Size, members, rowMask)
	}
	q := &Queue[T]{codec: codec, rows: uint32(members), slots: uint64(slots), block: block}
	words := 8 * (q.rows + uint32(slots))
	q.blocks = queueRows + align(words, rdma.LineSize)
	spec := Spec{
		Kind: KindQueue, Codec: codec.Name, Size: uint32(codec.Size), Rows: q.rows, Slots: uint32(slots),
		Bytes: q.blocks + 2*q.rows*uint32(slots)*block,
	}
	if err := q.open(ctx, c, s.m, full, spec, 64+block+words); err != nil {
		return nil, err
	}
	row, err := q.claim(ctx, c, queueRows, q.rows, nil)
	if err != nil {
		q.Close()
		return nil, err
	}
	q.row, q.patience = uint32(row), max(s.m.term/16, 8*minPause)
	return q, nil
}

// The slot of an entry, and the block of a pusher's row for it.
func (q *Queue[T]) slot(e uint64) uint32 { return queueRows + 8*q.rows + 8*uint32(e%q.slots) }
func (q *Queue[T]) blockOf(e uint64, row uint32) uint32 {
	n := uint64(row)*2*q.slots + e/q.slots%2*q.slots + e%q.slots
	return q.blocks + uint32(n)*q.block
}

func (q *Queue[T]) entryWord(e uint64, phase uint64, taker, pusher uint32) uint64 {
	return e/q.slots<<turnShift | phase<<phaseShift | uint64(taker)<<rowBits | uint64(pusher)
}

func (q *Queue[T]) free(e uint64) uint64 { return q.entryWord(e, phaseFree, 0, 0) }

// skipped is the slot of entry e when it was skipped.
func (q *Queue[T]) skipped(e uint64) uint64 { return q.entryWord(e+q.slots, phaseFree, 0, rowMask) }

// swap is a CAS of a word; the caller decides what an answer that is lost means.
func (q *Queue[T]) swap(c *rdma.Coro, off uint32, old, next uint64) (found uint64, err error) {
	if err := q.ready(); err != nil {
		return 0, err
	}
	q.b.Reset()
	i := q.b.CAS(q.addr(off), old, next)
	err = q.m.Do(c, &q.b)
	return q.b.Result(i), err
}

func (q *Queue[T]) load(c *rdma.Coro, off uint32) (uint64, error) {
	if err := q.ready(); err != nil {
		return 0, err
	}
	q.b.Reset()
	q.b.Read(q.addr(off), q.buf, 8)
	err := q.m.Do(c, &q.b)
	return q.m.t.Word(q.buf), err
}

// Push appends a value, and waits for a free slot until ctx ends. If the queue is full,
// and ctx ends, nothing was appended. ErrUncertain: the value may have been pushed, and
// taken and done already.
func (q *Queue[T]) Push(ctx context.Context, c *rdma.Coro, v T) error {
	w := wait{ctx: ctx, m: q.m}
	for {
		if err := q.ready(); err != nil {
			return err
		}
		q.b.Reset()
		i := q.b.FAA(q.addr(queueHead+8), 1)
		if err := q.m.Do(c, &q.b); errors.Is(err, ErrUncertain) {
			continue // if it has drawn a number, that one will be skipped
		} else if err != nil {
			return err
		}
		if ok, err := q.fill(c, &w, q.b.Result(i), v); ok || err != nil {
			return err
		}
	}
}

// fill puts a value into an entry. false: the entry was skipped.
func (q *Queue[T]) fill(c *rdma.Coro, w *wait, e uint64, v T) (bool, error) {
	for e >= q.head+q.slots {
		head, err := q.load(c, queueHead)
		if err != nil {
			return false, err
		}
		if q.head = max(q.head, head); e < q.head+q.slots {
			break
		}
		if err := w.next(c); err != nil {
			return false, err
		}
	}
	local := q.buf + 64
	q.codec.Put(q.m.t.Bytes(local, q.spec.Size), v)
	old, next := q.free(e), q.entryWord(e, phaseFull, 0, q.row)
	for {
		if err := q.ready(); err != nil {
			return false, err
		}
		q.b.Reset()
		q.b.Write(q.addr(q.blockOf(e, q.row)), local, q.spec.Size)
		i := q.b.CAS(q.addr(q.slot(e)), old, next)
		err := q.m.Do(c, &q.b)
		if errors.Is(err, ErrUncertain) {
			found, lerr := q.load(c, q.slot(e))
			switch {
			case lerr != nil:
				return false, lerr
			case found>>phaseShift == old>>phaseShift:
				old = found
				continue
			case found>>turnShift == old>>turnShift:
				return true, nil // full or taken: no other member fills this entry
			case found == q.skipped(e):
				return false, nil
			}
			return false, err
		}
		if err != nil {
			return false, err
		}
		switch found := q.b.Result(i); {
		case found == old:
			return true, nil
		case found>>phaseShift == old>>phaseShift:
			old = found // the entry of the turn before was skipped
			continue
		case found>>turnShift > old>>turnShift:
			return false, nil
		}
		if err := w.next(c); err != nil { // the item of the turn before is not done
			return false, err
		}
	}
}

// TryTake takes the first item. ok is false if there is none, or its pusher has not filled it yet.
func (q *Queue[T]) TryTake(c *rdma.Coro) (item Item[T], ok bool, err error) {
	for {
		if err := q.ready(); err != nil {
			return item, false, err
		}
		guess := q.head
		q.b.Reset()
		q.b.Read(q.addr(queueHead), q.buf, 16)
		q.b.Read(q.addr(q.slot(guess)), q.buf+16, 8)
		if err := q.m.Do(c, &q.b); err != nil {
			return item, false, err
		}
		head, tail, word := q.m.t.Word(q.buf), q.m.t.Word(q.buf+8), q.m.t.Word(q.buf+16)
		if q.head = head; head == tail {
			return item, false, nil
		}
		if head != guess {
			continue
		}
		turn := head / q.slots
		switch phase := word >> phaseShift & 3; {
		case word>>turnShift > turn || word>>turnShift == turn && phase == phaseTaken:
			// Taken, done or skipped by a member that has not moved head on.
			if _, err := q.swap(c, queueHead, head, head+1); err != nil && !errors.Is(err, ErrUncertain) {
				return item, false, err
			}
		case word>>turnShift < turn || phase == phaseFree:
			return item, false, q.unfilled(c, head, word)
		default:
			if item, ok, err = q.take(c, head, word); ok || err != nil {
				return item, ok, err
			}
		}
	}
}

// take takes entry e, at head, which is full.
func (q *Queue[T]) take(c *rdma.Coro, e, word uint64) (item Item[T], ok bool, err error) {
	next := word&^(3<<phaseShift|rowMask<<rowBits) | phaseTaken<<phaseShift | uint64(q.row)<<rowBits
	q.b.Reset()
	i := q.b.CAS(q.addr(q.slot(e)), word, next)
	q.b.CAS(q.addr(queueHead), e, e+1)
	q.b.Read(q.addr(q.blockOf(e, uint32(word&rowMask))), q.buf+64, q.spec.Size)
	err = q.m.Do(c, &q.b)
	if errors.Is(err, ErrUncertain) {
		found, err := q.load(c, q.slot(e))
		if err != nil || found != next {
			return item, false, err
		}
		item, err := q.get(c, e, next)
		return item, err == nil, err
	}
	if err != nil || q.b.Result(i) != word {
		return item, false, err
	}
	q.held = append(q.held, e)
	return Item[T]{Value: q.codec.Get(q.m.t.Bytes(q.buf+64, q.spec.Size)), entry: e, word: next}, true, nil
}

// get reads the value of an entry that this member has taken.
func (q *Queue[T]) get(c *rdma.Coro, e, word uint64) (item Item[T], err error) {
	q.b.Reset()
	q.b.Read(q.addr(q.blockOf(e, uint32(word&rowMask))), q.buf+64, q.spec.Size)
	if err := q.m.Do(c, &q.b); err != nil {
		return item, err
	}
	q.held = append(q.held, e)
	return Item[T]{Value: q.codec.Get(q.m.t.Bytes(q.buf+64, q.spec.Size)), entry: e, word: word}, nil
}

// unfilled skips the entry at head if it has not been filled for a while.
func (q *Queue[T]) unfilled(c *rdma.Coro, e, word uint64) error {
	now := q.m.t.Now()
	if q.stuck != e+1 || word>>phaseShift != q.free(e)>>phaseShift {
		q.stuck, q.since = e+1, now
		return nil
	}
	if now-q.since < q.patience {
		return nil
	}
	found, err := q.swap(c, q.slot(e), word, q.skipped(e))
	if err == nil && found == word {
		_, err = q.swap(c, queueHead, e, e+1)
	}
	if errors.Is(err, ErrUncertain) {
		return nil // the next look tells
	}
	return err
}

// Take takes the first item, and waits for one until ctx ends. Items that dead members had
// taken are among them.
func (q *Queue[T]) Take(ctx context.Context, c *rdma.Coro) (Item[T], error) {
	w := wait{ctx: ctx, m: q.m}
	for {
		item, ok, err := q.TryTake(c)
		if ok || err != nil {
			return item, err
		}
		if now := q.m.t.Now(); q.scanned == 0 || now-q.scanned > q.m.term/8 {
			if item, ok, err = q.adopt(c); ok || err != nil {
				return item, err
			}
			q.scanned = max(1, now)
		}
		if err := w.next(c); err != nil {
			return item, err
		}
	}
}

// adopt looks for an item that a member has taken which is dead or has left, or which had this row
// before, and takes it.
func (q *Queue[T]) adopt(c *rdma.Coro) (item Item[T], ok bool, err error) {
	if err := q.ready(); err != nil {
		return item, false, err
	}
	n := 8 * (q.rows + uint32(q.slots))
	local := q.buf + 64 + q.block
	q.b.Reset()
	q.b.Read(q.addr(queueRows), local, n)
	if err := q.m.Do(c, &q.b); err != nil {
		return item, false, err
	}
	for i := range uint32(q.slots) {
		word := q.m.t.Word(local + 8*q.rows + 8*i)
		if word>>phaseShift&3 != phaseTaken {
			continue
		}
		e, taker := word>>turnShift*q.slots+uint64(i), uint32(word>>rowBits&rowMask)
		if taker == q.row {
			if slices.Contains(q.held, e) {
				continue
			}
			item, err = q.get(c, e, word)
			item.Again = true
			return item, err == nil, err
		}
		owner := MemberID(q.m.t.Word(local + 8*taker))
		dead, err := q.m.suspect(c, owner)
		if err != nil {
			return item, false, err
		}
		if !dead && owner != 0 {
			continue
		}
		next := word&^(rowMask<<rowBits) | uint64(q.row)<<rowBits
		found, err := q.swap(c, q.slot(e), word, next)
		if errors.Is(err, ErrUncertain) {
			return item, false, nil // if it has taken effect, the next scan finds the item in this row
		}
		if err != nil {
			return item, false, err
		}
		if found == word {
			item, err = q.get(c, e, next)
			item.Again = true
			return item, err == nil, err
		}
	}
	return item, false, nil
}

// Done ends an item: its slot is free. ErrNotOwner: another member has got the item.
func (q *Queue[T]) Done(c *rdma.Coro, item Item[T]) error {
	i := slices.Index(q.held, item.entry)
	if i < 0 {
		return fmt.Errorf("%w: an item of %q is done already, or was taken by another member", ErrNotOwner, q.name)
	}
	for {
		found, err := q.swap(c, q.slot(item.entry), item.word, q.free(item.entry+q.slots))
		if errors.Is(err, ErrUncertain) {
			if found, err = q.load(c, q.slot(item.entry)); err == nil && found == item.word {
				continue
			}
			found = item.word
		}
		if err != nil {
			return err
		}
		q.held = slices.Delete(q.held, i, i+1)
		if found != item.word {
			return fmt.Errorf("%w: an item of %q was given to another member", ErrNotOwner, q.name)
		}
		return nil
	}
}

// Pop is Take and Done: an item is lost if this member dies between.
func (q *Queue[T]) Pop(ctx context.Context, c *rdma.Coro) (T, error) {
	item, err := q.Take(ctx, c)
	if err != nil {
		return item.Value, err
	}
	return item.Value, q.Done(c, item)
}

// Leave gives the row back, and closes the handle. Items that are not done go to other members.
func (q *Queue[T]) Leave(c *rdma.Coro) error {
	if err := q.release(c, queueRows+8*q.row); err != nil {
		return err
	}
	q.Close()
	return nil
}
