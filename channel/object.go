package channel

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"txnode/rdma"
)

// The header of an object, in its first line. It is a function of what the catalog says, so that
// each member which finds none writes the same bytes.
const (
	headerMagic       = 0  // "txnchan" and the kind
	headerSpec        = 8  // hash of the specification
	headerIncarnation = 16 // and, from bit 32, the size in bytes
	headerSum         = 24 // checksum of the words before
	headerBytes       = 64
)

const magic = 0x6e6168636e7874 // "txnchan"

// object is what all handles have: where the object lies, a batch, and a buffer in the arena.
type object struct {
	m     *Member
	name  string
	spec  Spec
	place Place
	buf   uint32 // n bytes of arena
	n     int
	b     rdma.Batch
	gone  error       // why the object cannot be used any more
	holds func() bool // of a lock: this member holds it; nil: it is none
}

// open declares the object, and writes or compares its header. The handle gets n bytes of arena.
func (o *object) open(ctx context.Context, c *rdma.Coro, m *Member, name string, spec Spec, n uint32) error {
	if c.Thread() != m.t {
		return fmt.Errorf("%w: %q was opened on a thread that is not the member's", ErrNotOwner, name)
	}
	if m.dead != nil {
		return m.dead
	}
	if slices.ContainsFunc(m.objects, func(x *object) bool { return x.name == name }) {
		return fmt.Errorf("%w: %q", ErrOpen, name)
	}
	place, err := m.host.Declare(c, name, spec)
	for w := (wait{ctx: ctx, m: m}); errors.Is(err, ErrUnsettled); place, err = m.host.Declare(c, name, spec) {
		if err := w.next(c); err != nil {
			return err
		}
	}
	if err != nil {
		return err
	}
	*o = object{m: m, name: name, spec: spec, place: place, n: int(max(n, headerBytes))}
	if o.buf, err = m.t.Alloc(o.n); err != nil {
		return err
	}
	m.objects = append(m.objects, o)
	if err := o.head(c); err != nil {
		o.Close()
		return err
	}
	return nil
}

// head writes the header if there is none, and compares it.
func (o *object) head(c *rdma.Coro) error {
	var want [4]uint64
	want[0] = magic<<8 | uint64(o.spec.Kind)
	want[1] = o.spec.hash()
	want[2] = uint64(o.place.Incarnation) | uint64(o.spec.Bytes)<<32
	want[3] = sum(want[0], want[1], want[2])
	t := o.m.t
	o.b.Reset()
	o.b.Read(o.addr(0), o.buf, headerBytes)
	if err := o.m.Do(c, &o.b); err != nil {
		return err
	}
	var have [4]uint64
	blank, same := true, true
	for i := range have {
		have[i] = t.Word(o.buf + 8*uint32(i))
		blank = blank && have[i] == 0
		same = same && (have[i] == 0 || have[i] == want[i])
	}
	switch {
	case have == want:
		return nil
	case !blank && !same:
		o.gone = fmt.Errorf("channel: %v %q: the header at %v is of another object: %w",
			o.spec.Kind, o.name, o.addr(0), ErrIncarnation)
		return o.gone
	}
	for i, w := range want {
		t.PutWord(o.buf+8*uint32(i), w)
	}
	o.b.Reset()
	o.stageWrite(&o.b, 0, o.buf, 32)
	return o.m.Do(c, &o.b)
}

func (s *Spec) hash() uint64 {
	h := sum(uint64(s.Kind), uint64(s.Size), uint64(s.Rows), uint64(s.Slots), uint64(s.Bytes))
	for _, c := range []byte(s.Codec) {
		h = mix(h, uint64(c))
	}
	return h
}

// Name is the full name of the object.
func (o *object) Name() string { return o.name }

// Place is where the object lies. Data on the same blade, written in the same doorbell in front of
// a staged change of the object, are visible to every member that sees the change.
func (o *object) Place() Place { return o.place }

// Incarnation is that of the object.
func (o *object) Incarnation() uint32 { return o.place.Incarnation }

// Close gives back the buffers of the handle. The object stays.
func (o *object) Close() {
	if o.n == 0 {
		return
	}
	o.m.objects = slices.DeleteFunc(o.m.objects, func(x *object) bool { return x == o })
	o.m.t.Free(o.buf, o.n)
	o.n = 0
	if o.gone == nil {
		o.gone = fmt.Errorf("channel: %v %q: the handle is closed: %w", o.spec.Kind, o.name, ErrIncarnation)
	}
}

// ready is nil if the handle can be used.
func (o *object) ready() error {
	if o.gone != nil || o.m.dead != nil {
		return errors.Join(o.gone, o.m.dead)
	}
	return nil
}

// addr is the address off bytes behind the start of the object.
func (o *object) addr(off uint32) rdma.RemoteAddr {
	return rdma.RemoteAddr{Blade: o.place.Blade, Key: o.m.host.Key(o.place.Blade), Off: o.place.Off + uint64(off)}
}

// stageWrite appends a WRITE, and on a fabric without Caps.Placed a READ of no bytes behind it:
// when the batch is done, the WRITE is visible to all members.
func (o *object) stageWrite(b *rdma.Batch, off, local, n uint32) {
	b.Write(o.addr(off), local, n)
	if !o.m.t.Caps().Placed {
		b.Read(o.addr(0), o.buf, 0)
	}
}

// claim takes one of the n owner words at off for this member and returns its number. It waits
// for a row until ctx ends, or until all rows are known to belong to members that are
// alive: ErrFull. Before a dead member's row changes hands that member is fenced. reusable says
// whether such a row can be taken; nil: each can.
//
// A free row: 2 verbs, 2 round trips.
func (o *object) claim(ctx context.Context, c *rdma.Coro, off, n uint32, reusable func(row int) bool) (row int,
	err error) {
	m, w := o.m, wait{ctx: ctx, m: o.m}
	began := m.t.Now()
	for {
		if err := o.ready(); err != nil {
			return 0, err
		}
		o.b.Reset()
		o.b.Read(o.addr(off), o.buf, 8*n)
		if err := m.Do(c, &o.b); err != nil {
			return 0, err
		}
		words := m.t.Bytes(o.buf, 8*n)
		var before MemberID
		row = -1
		for i := range n {
			switch id := MemberID(word(words, 8*i)); {
			case id == m.id: // an uncertain CAS has taken effect
				return int(i), nil
			case id == 0 && row < 0:
				row = int(i)
			}
		}
		full := row < 0
		for i := uint32(0); row < 0 && i < n; i++ {
			id := MemberID(word(words, 8*i))
			if reusable != nil && !reusable(int(i)) {
				continue
			}
			full = false
			dead, err := m.suspect(c, id)
			if err != nil {
				return 0, err
			}
			if dead {
				row, before = int(i), id
			}
		}
		if row >= 0 {
			o.b.Reset()
			i := o.b.CAS(o.addr(off+8*uint32(row)), uint64(before), uint64(m.id))
			err := m.Do(c, &o.b)
			if err == nil && o.b.Result(i) == uint64(before) {
				return row, nil
			}
			if err != nil && !errors.Is(err, ErrUncertain) {
				return 0, err
			}
			continue
		}
		if full || m.t.Now()-began > 2*m.term {
			return 0, fmt.Errorf("%w: all %d rows of %v %q belong to members", ErrFull, n, o.spec.Kind, o.name)
		}
		if err := w.next(c); err != nil {
			return 0, err
		}
	}
}

// mix and sum are the checksum of images and headers: not of cryptographic strength.
func mix(h, w uint64) uint64 {
	h = (h ^ w) * 0x9e3779b97f4a7c15
	return h ^ h>>29
}

func sum(words ...uint64) uint64 {
	h := uint64(0x51_7c_c1_b7_27_22_0a_95)
	for _, w := range words {
		h = mix(h, w)
	}
	return h
}

func sumBytes(h uint64, b []byte) uint64 {
	for len(b) >= 8 {
		h = mix(h, binary.LittleEndian.Uint64(b))
		b = b[8:]
	}
	for _, x := range b {
		h = mix(h, uint64(x))
	}
	return h
}

func align(n, to uint32) uint32 { return (n + to - 1) / to * to }

func putWord(b []byte, off uint32, v uint64) { binary.LittleEndian.PutUint64(b[off:], v) }

// release gives back an owner word of this member, 1 CAS.
func (o *object) release(c *rdma.Coro, off uint32) error {
	for {
		if err := o.ready(); err != nil {
			return err
		}
		o.b.Reset()
		o.b.CAS(o.addr(off), uint64(o.m.id), 0)
		if err := o.m.Do(c, &o.b); !errors.Is(err, ErrUncertain) {
			return err
		}
	}
}

// own takes the owner word at off for this member, and reads n bytes from there on into the arena
// at local, in the same doorbell. It waits while another member that is alive is the owner; a dead
// one is fenced first.
func (o *object) own(ctx context.Context, c *rdma.Coro, off, local, n uint32) error {
	m, w := o.m, wait{ctx: ctx, m: o.m}
	expect := MemberID(0)
	for {
		if err := o.ready(); err != nil {
			return err
		}
		o.b.Reset()
		i := o.b.CAS(o.addr(off), uint64(expect), uint64(m.id))
		o.b.Read(o.addr(off), local, n)
		err := m.Do(c, &o.b)
		if errors.Is(err, ErrUncertain) {
			continue
		}
		if err != nil {
			return err
		}
		found := MemberID(o.b.Result(i))
		if found == expect || found == m.id {
			return nil
		}
		expect = 0
		dead, err := m.suspect(c, found)
		if err != nil {
			return err
		}
		if dead {
			expect = found
			continue
		}
		if err := w.next(c); err != nil {
			if ctx.Err() != nil {
				err = fmt.Errorf("%w: %q belongs to member %d: %w", ErrOwned, o.name, found, err)
			}
			return err
		}
	}
}

// drop gives back the owner word of a member that was fenced.
func (o *object) drop(c *rdma.Coro, off uint32, dead MemberID) error {
	o.b.Reset()
	o.b.CAS(o.addr(off), uint64(dead), 0)
	if err := o.m.Do(c, &o.b); !errors.Is(err, ErrUncertain) {
		return err
	}
	return nil // the next look tells
}
