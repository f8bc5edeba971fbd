package channel

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"txnode/rdma"
)

// Ring carries messages from one sender at a time to many receivers, each of which gets all
// messages that were sent after it had joined, once and in order. A receiver that is slow holds
// the sender up; a dead one is dropped. With no rows for receivers the sender waits for none:
// see Lapped receivers.
//
//	operation     verbs / round trips
//	Send          WRITE           1 +p / 1; StageSend: those of the batch
//	              READ of all acknowledgements when the room known of is used up: + 1 / 1; without
//	              rows: never
//	Receive       READ of up to 1 KiB of messages: 1 / 1, and none for the next ones of it
//	              WRITE of an acknowledgement, once a quarter of the ring: + 1 +p / 1; without
//	              rows: never
//	              lapped: READs of the ring, + 2 / 2
//
// Layout: the header; at 64 the sender, an A word; at 128 the owners of the receivers' rows, an
// A word each, then their acknowledgements, an S word {member 24, position 40} each; from the
// next line on the slots. Message p, from 1, lies in slot (p-1) mod slots, as an image whose
// version is p: see images.
//
// # Joining
//
// The sender reads the rows before it sends further than the ring is long. A row whose
// acknowledgement is not of its owner belongs to a receiver that is joining: the sender waits for
// it, or finds it dead. So between the moment a receiver has a row and its first acknowledgement,
// the sender passes at most what was sent before by one length of the ring.
//
// # Lapped receivers
//
// A ring without rows has any number of receivers, which its sender knows nothing of. A receiver
// that is more than the length of the ring behind gets a *LappedError, which says how many
// messages it has missed, and goes on at the oldest one left. It reads the ring twice: what is
// whole the first time was placed before the second READ began, and so were all messages before,
// so those that the second READ does not find have been overwritten. A message that is torn is on
// its way, or is being written over by one that will tell, unless the sender is dead: then a whole
// one behind it tells.
//
// # A dead sender
//
// WRITEs of one queue pair take effect in order, so at most the last message is torn. A receiver
// that waits fences the sender, looks again, delivers what is whole, and returns a *MissingError. A
// new sender goes on behind the last whole message, over the torn one.
type Ring[T any] struct {
	object
	codec  Codec[T]
	rows   uint32
	slots  uint32
	images images // image size only

	data     uint32
	sender   Sender[T]
	receiver Receiver[T]
}

const (
	ringSender = headerBytes
	ringRows   = 2 * headerBytes
	ringRead   = 1024
	posBits    = 64 - memberBits
	posMask    = 1<<posBits - 1
)

// OpenRing opens the ring called name in s, with that many slots for messages and rows for
// receivers. 0 receivers: any number can join, and the sender waits for none of them.
func OpenRing[T any](ctx context.Context, c *rdma.Coro, s Scope, name string, codec Codec[T], slots,
	receivers int) (*Ring[T], error) {
	full, err := s.name(name)
	if err != nil {
		return nil, err
	}
	if err := codec.check(); err != nil {
		return nil, err
	}
	size := uint32(codec.Size)
	if slots < 1 || receivers < 0 || receivers > maxSlots || slots > 1<<26/int(slotBytes(size)) {
		return nil, fmt.Errorf("%w: %q with %d slots of %d bytes and %d receivers: up to %d receivers, and 64 MiB, "+
			"are possible", ErrTooLarge, full, slots, size, receivers, maxSlots)
	}
	r := &Ring[T]{codec: codec, rows: uint32(receivers), slots: uint32(slots), images: images{size: size}}
	r.data = ringRows + align(16*r.rows, rdma.LineSize)
	spec := Spec{
		Kind: KindRing, Codec: codec.Name, Size: size, Rows: r.rows, Slots: r.slots,
		Bytes: r.data + r.slots*slotBytes(size),
	}
	return opened(r, r.open(ctx, c, s.m, full, spec, 64+align(16*r.rows, 64)+r.span()*slotBytes(size)))
}

// span is how many messages a receiver reads at once.
func (r *Ring[T]) span() uint32 { return min(r.slots, max(1, ringRead/slotBytes(r.images.size))) }

// slot is the offset of message p.
func (r *Ring[T]) slot(p uint64) uint32 {
	return r.data + uint32((p-1)%uint64(r.slots))*slotBytes(r.images.size)
}

// Close gives back the buffers of the handle, and those of its sender and receiver.
func (r *Ring[T]) Close() {
	r.sender.free()
	r.receiver.free()
	r.object.Close()
}

// last reads all slots, into n bytes of arena at local, and returns the position of the
// newest whole message.
func (r *Ring[T]) last(c *rdma.Coro, local uint32) (uint64, error) {
	if err := r.ready(); err != nil {
		return 0, err
	}
	n := slotBytes(r.images.size)
	r.b.Reset()
	r.b.Read(r.addr(r.data), local, r.slots*n)
	if err := r.m.Do(c, &r.b); err != nil {
		return 0, err
	}
	newest := uint64(0)
	for i := range r.slots {
		if x, ok := r.images.get(r.m.t.Bytes(local+i*n, n)); ok {
			newest = max(newest, x.version)
		}
	}
	return newest, nil
}

// Sender sends messages of a ring.
type Sender[T any] struct {
	r     *Ring[T]
	buf   uint32 // an image of the slots
	next  uint64 // position of the next message
	limit uint64 // the last position there is room for, as far as known
}

// Sender makes this member the sender. It waits while another member that is alive is.
func (r *Ring[T]) Sender(ctx context.Context, c *rdma.Coro) (*Sender[T], error) {
	s := &r.sender
	if s.r != nil {
		return s, nil
	}
	if err := r.own(ctx, c, ringSender, r.buf, 8); err != nil {
		return nil, err
	}
	buf, err := r.m.t.Alloc(int(r.slots * slotBytes(r.images.size)))
	if err != nil {
		return nil, err
	}
	*s = Sender[T]{r: r, buf: buf}
	newest, err := r.last(c, buf)
	if err != nil {
		s.free()
		return nil, err
	}
	s.next, s.limit = newest+1, newest
	if r.rows == 0 {
		s.clear()
	}
	return s, nil
}

func (s *Sender[T]) free() {
	if s.r != nil {
		s.r.m.t.Free(s.buf, int(s.r.slots*slotBytes(s.r.images.size)))
		*s = Sender[T]{}
	}
}

// clear makes room for a length of the ring, on one without rows: its buffer is not in use.
func (s *Sender[T]) clear() { s.limit = s.next - 1 + uint64(s.r.slots) }

// Sent is the position of the last message that was staged or sent, by all senders so far.
func (s *Sender[T]) Sent() uint64 { return s.next - 1 }

// Leave lets another member be the sender. What was sent stays.
func (s *Sender[T]) Leave(c *rdma.Coro) error {
	if s.r == nil {
		return nil
	}
	if err := s.r.release(c, ringSender); err != nil {
		return err
	}
	s.free()
	return nil
}

// Send sends a message, and waits for room until ctx ends. When it returns, all
// receivers can see it.
func (s *Sender[T]) Send(ctx context.Context, c *rdma.Coro, v T) error {
	if s.r == nil {
		return fmt.Errorf("%w: the sender has left", ErrNotOwner)
	}
	w := wait{ctx: ctx, m: s.r.m}
	for s.next > s.limit {
		if err := s.Room(c); err != nil {
			return err
		}
		if s.next <= s.limit {
			break
		}
		if err := w.next(c); err != nil {
			return err
		}
	}
	b := &s.r.b
	b.Reset()
	if err := s.StageSend(b, v); err != nil {
		return err
	}
	return s.r.m.Do(c, b)
}

// StageSend appends a message to b. ErrFull: there is no room, as far as known: call Room. As many
// messages as there is room for can be sent with one doorbell.
func (s *Sender[T]) StageSend(b *rdma.Batch, v T) error {
	r := s.r
	if r == nil {
		return fmt.Errorf("%w: the sender has left", ErrNotOwner)
	}
	if err := r.ready(); err != nil {
		return err
	}
	if s.next > s.limit {
		return fmt.Errorf("%w: no room for message %d of %q", ErrFull, s.next, r.name)
	}
	n := slotBytes(r.images.size)
	local := s.buf + r.slot(s.next) - r.data
	buf := r.m.t.Bytes(local, n)
	r.codec.Put(buf[16:16+r.images.size], v)
	r.images.put(buf, s.next, r.m.id)
	r.stageWrite(b, r.slot(s.next), local, n)
	s.next++
	return nil
}

// Room looks for room for messages: 1 READ. Receivers that are in the way and dead are dropped.
// On a ring without rows there is always room, and no verb: batches with messages that were
// staged must be done.
func (s *Sender[T]) Room(c *rdma.Coro) error {
	r := s.r
	if r.rows == 0 {
		s.clear()
		return r.ready()
	}
	for {
		if err := r.ready(); err != nil {
			return err
		}
		r.b.Reset()
		r.b.Read(r.addr(ringRows), r.buf+64, 16*r.rows)
		if err := r.m.Do(c, &r.b); err != nil {
			return err
		}
		words := r.m.t.Bytes(r.buf+64, 16*r.rows)
		limit, slowest, owner := s.next-1+uint64(r.slots), uint32(0), MemberID(0)
		for i := range r.rows {
			id, ack := MemberID(word(words, 8*i)), word(words, 8*(r.rows+i))
			upto := ack&posMask + uint64(r.slots)
			if MemberID(ack>>posBits) != id {
				upto = s.limit // joining
			}
			if id != 0 && upto < limit {
				limit, slowest, owner = upto, i, id
			}
		}
		if s.limit = max(s.limit, limit); s.next <= s.limit {
			return nil
		}
		dead, err := r.m.suspect(c, owner)
		if !dead || err != nil {
			return err
		}
		if err := r.drop(c, ringRows+8*slowest, owner); err != nil {
			return err
		}
	}
}

// Receiver receives the messages of a ring.
type Receiver[T any] struct {
	r     *Ring[T]
	row   int
	pos   uint64 // delivered
	acked uint64
	have  uint32 // messages in the buffer behind pos
	at    uint32 // the first of them, in slots of the buffer
	ring  uint32 // without rows, a buffer for all slots
}

// Receiver makes this member a receiver of what is sent from now on. It waits for a row as Join
// does.
func (r *Ring[T]) Receiver(ctx context.Context, c *rdma.Coro) (*Receiver[T], error) {
	v := &r.receiver
	if v.r != nil {
		return v, nil
	}
	if r.rows == 0 {
		if err := v.follow(c, r); err != nil {
			return nil, err
		}
		return v, nil
	}
	row, err := r.claim(ctx, c, ringRows, r.rows, nil)
	if err != nil {
		return nil, err
	}
	bytes := int(r.slots * slotBytes(r.images.size))
	local, err := r.m.t.Alloc(bytes)
	if err != nil {
		return nil, err
	}
	defer r.m.t.Free(local, bytes)
	*v = Receiver[T]{r: r, row: row}
	for {
		if v.pos, err = r.last(c, local); err == nil {
			err = v.acknowledge(c)
		}
		if err == nil {
			_, err = r.last(c, local)
		}
		if err != nil {
			*v = Receiver[T]{}
			return nil, err
		}
		// The next message must still be to come, or there: the sender may have been on its way
		// round.
		n := slotBytes(r.images.size)
		if word(r.m.t.Bytes(local+r.slot(v.pos+1)-r.data, n), 0) <= v.pos+1 {
			return v, nil
		}
	}
}

// follow makes v a receiver of a ring without rows.
func (v *Receiver[T]) follow(c *rdma.Coro, r *Ring[T]) error {
	ring, err := r.m.t.Alloc(int(r.slots * slotBytes(r.images.size)))
	if err != nil {
		return err
	}
	*v = Receiver[T]{r: r, row: -1, ring: ring}
	if v.pos, err = r.last(c, ring); err != nil {
		v.free()
	}
	return err
}

// free ends a receiver without a row.
func (v *Receiver[T]) free() {
	if v.r != nil && v.row < 0 {
		v.r.m.t.Free(v.ring, int(v.r.slots*slotBytes(v.r.images.size)))
		*v = Receiver[T]{}
	}
}

// Leave gives the row back.
func (v *Receiver[T]) Leave(c *rdma.Coro) error {
	if v.r == nil {
		return nil
	}
	if v.row < 0 {
		v.free()
		return nil
	}
	if err := v.r.release(c, ringRows+8*uint32(v.row)); err != nil {
		return err
	}
	*v = Receiver[T]{}
	return nil
}

// acknowledge lets the sender use the slots of what was delivered.
func (v *Receiver[T]) acknowledge(c *rdma.Coro) error {
	r := v.r
	r.m.t.PutWord(r.buf, uint64(r.m.id)<<posBits|v.pos&posMask)
	r.b.Reset()
	r.stageWrite(&r.b, ringRows+8*(r.rows+uint32(v.row)), r.buf, 8)
	if err := r.m.Do(c, &r.b); err != nil {
		return err
	}
	v.acked = v.pos
	return nil
}

// fetch reads messages behind pos into the buffer.
func (v *Receiver[T]) fetch(c *rdma.Coro) error {
	r := v.r
	n := slotBytes(r.images.size)
	first := uint32(v.pos % uint64(r.slots)) // slot of pos+1
	span := min(r.span(), r.slots-first)
	local := r.buf + 64 + align(16*r.rows, 64)
	r.b.Reset()
	r.b.Read(r.addr(r.slot(v.pos+1)), local, span*n)
	if err := r.m.Do(c, &r.b); err != nil {
		return err
	}
	v.at, v.have = 0, 0
	for i := range span {
		x, ok := r.images.get(r.m.t.Bytes(local+i*n, n))
		want := v.pos + 1 + uint64(i)
		if ok && x.version > want && i == 0 {
			if r.rows == 0 {
				return v.lapped(c)
			}
			return fmt.Errorf("%w: %q: message %d has been overwritten: this member's row was given away",
				ErrNotOwner, r.name, want)
		}
		if !ok || x.version != want {
			return nil
		}
		v.have++
	}
	return nil
}

// lapped looks whether the next message of a ring without rows was overwritten. Then it goes on at
// the oldest one left, and returns a *LappedError.
func (v *Receiver[T]) lapped(c *rdma.Coro) error {
	r, n := v.r, slotBytes(v.r.images.size)
	placed, err := r.last(c, v.ring)
	for range maxLooks {
		if err != nil || placed <= v.pos { // the next one is on its way
			return err
		}
		newest, err := r.last(c, v.ring)
		if err != nil {
			return err
		}
		oldest := max(newest, placed) + 1
		for i := range r.slots {
			if x, ok := r.images.get(r.m.t.Bytes(v.ring+i*n, n)); ok && x.version > v.pos {
				oldest = min(oldest, x.version)
			}
		}
		if oldest == v.pos+1 {
			return nil
		}
		if oldest <= placed+1 {
			missed := oldest - 1 - v.pos
			v.pos = oldest - 1
			return &LappedError{Object: r.name, Missed: missed}
		}
		placed = max(placed, newest) // what is in between may be on its way
	}
	return fmt.Errorf("%w: ring %q", ErrTorn, r.name)
}

// maxLooks bounds how often a receiver reads a ring that is overwritten meanwhile.
const maxLooks = 64

// Receive returns the next message, and waits for it until ctx ends. If a ring has no rows and the
// message was overwritten, the error is a *LappedError, and the next call goes on at the oldest
// message left. If the sender is dead, and what it has sent was received, the error is a
// *MissingError, until there is another sender.
func (v *Receiver[T]) Receive(ctx context.Context, c *rdma.Coro) (msg T, err error) {
	r := v.r
	if r == nil {
		return msg, fmt.Errorf("%w: the receiver has left", ErrNotOwner)
	}
	w := wait{ctx: ctx, m: r.m}
	for v.have == 0 {
		if err := r.ready(); err != nil {
			return msg, err
		}
		if err := v.fetch(c); err != nil {
			return msg, err
		}
		if v.have > 0 {
			break
		}
		dead, err := v.senderDead(c)
		if err != nil {
			return msg, err
		}
		if dead != 0 {
			if r.rows == 0 {
				if err := v.lapped(c); err != nil {
					return msg, err
				}
			}
			if err := v.fetch(c); err != nil || v.have > 0 {
				if err != nil {
					return msg, err
				}
				break
			}
			return msg, &MissingError{Object: r.name, Member: dead, Row: -1}
		}
		if err := w.next(c); err != nil {
			return msg, err
		}
	}
	n := slotBytes(r.images.size)
	x, _ := r.images.get(r.m.t.Bytes(r.buf+64+align(16*r.rows, 64)+v.at*n, n))
	msg = r.codec.Get(x.payload)
	v.pos, v.at, v.have = v.pos+1, v.at+1, v.have-1
	if v.row >= 0 && v.pos-v.acked >= max(1, uint64(r.slots)/4) {
		err = v.acknowledge(c)
	}
	return msg, err
}

// senderDead returns the sender if it was found dead, and fenced. It reads the word when heartbeats
// are due to be looked at.
func (v *Receiver[T]) senderDead(c *rdma.Coro) (MemberID, error) {
	r := v.r
	if r.m.looked != 0 && r.m.t.Now()-r.m.looked < r.m.term/8 {
		return 0, nil
	}
	r.b.Reset()
	r.b.Read(r.addr(ringSender), r.buf, 8)
	if err := r.m.Do(c, &r.b); err != nil {
		return 0, err
	}
	sender := MemberID(r.m.t.Word(r.buf))
	if sender == 0 {
		return 0, r.m.look(c)
	}
	dead, err := r.m.suspect(c, sender)
	if !dead {
		sender = 0
	}
	return sender, err
}

// All receives messages until ctx ends, or there is an error other than that messages were missed,
// which is the last pair.
func (v *Receiver[T]) All(ctx context.Context, c *rdma.Coro) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for {
			msg, err := v.Receive(ctx, c)
			if !yield(msg, err) || err != nil && !errors.Is(err, ErrLapped) {
				return
			}
		}
	}
}
