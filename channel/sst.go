package channel

import (
	"context"
	"fmt"
	"iter"

	"txnode/rdma"
)

// SST is a table of one row for each member: a member writes its own row, and sees all of them with
// one READ. It is the shared state table of Derecho and LOCO, with its one copy on a blade.
//
// What Look finds of a row is at least as new as what was stored in it before Look began, and not
// older than what an earlier Look of this handle has found. Nothing is promised between rows, but
// that rows which only grow are enough to decide by.
//
//	operation     verbs / round trips
//	Open          2 for the header, then READ and CAS for the row: 4 / 4 at most
//	Store         WRITE            1 +p / 1
//	Look          READ of all rows 1 / 1, and one more each time that a WRITE of some row is under
//	              way
//
// Layout: the header; at 64 the owners of rows, a word each; from the next line on two images a
// row.
type SST[T any] struct {
	object
	codec   Codec[T]
	images  images
	rows    uint32
	row     int
	version uint64
	seen    []Row[T]
	owners  []MemberID
	bufs    [2]uint32 // of two READs
	last    int
}

// Row is what a member has stored.
type Row[T any] struct {
	Value T
	// how often the row was stored by all that have had it; it grows, within one
	// incarnation of the table
	Version uint64
	owner   MemberID
}

// OpenSST opens the table called name in s, with space for rows members, and takes a row. It waits
// for a free row as Join does for a slot.
func OpenSST[T any](ctx context.Context, c *rdma.Coro, s Scope, name string, codec Codec[T],
	rows int) (*SST[T], error) {
	full, err := s.name(name)
	if err != nil {
		return nil, err
	}
	if err := codec.check(); err != nil {
		return nil, err
	}
	size := uint32(codec.Size)
	if rows < 1 || rows > maxSlots || rows*int(imageBytes(size)) > 1<<26 {
		return nil, fmt.Errorf("%w: %q with %d rows of %d bytes: 1 to %d rows, and 64 MiB, are possible",
			ErrTooLarge, full, rows, size, maxSlots)
	}
	t := &SST[T]{codec: codec, rows: uint32(rows), seen: make([]Row[T], rows), owners: make([]MemberID, rows)}
	t.images = images{headerBytes + align(8*t.rows, rdma.LineSize), size}
	spec := Spec{
		Kind: KindSST, Codec: codec.Name, Size: size, Rows: t.rows, Bytes: t.images.off + t.rows*imageBytes(size),
	}
	all := spec.Bytes - headerBytes
	if err := t.open(ctx, c, s.m, full, spec, slotBytes(size)+2*all); err != nil {
		return nil, err
	}
	t.bufs = [2]uint32{t.buf + slotBytes(size), t.buf + slotBytes(size) + all}
	if err := t.take(ctx, c); err != nil {
		t.Close()
		return nil, err
	}
	return t, nil
}

// take takes a row, and learns its version.
func (t *SST[T]) take(ctx context.Context, c *rdma.Coro) error {
	row, err := t.claim(ctx, c, headerBytes, t.rows, nil)
	if err != nil {
		return err
	}
	n := imageBytes(t.images.size)
	t.b.Reset()
	t.b.Read(t.addr(t.images.off+uint32(row)*n), t.bufs[0], n)
	if err := t.m.Do(c, &t.b); err != nil {
		return err
	}
	newest, ok, _ := t.images.pick(t.m.t.Bytes(t.bufs[0], n), nil)
	if !ok {
		return fmt.Errorf("%w: row %d of %q", ErrTorn, row, t.name)
	}
	t.row, t.version = row, newest.version
	return nil
}

// Row is the number of this member's row.
func (t *SST[T]) Row() int { return t.row }

// Store replaces the row of this member. When it returns, all members see it.
func (t *SST[T]) Store(c *rdma.Coro, v T) error {
	t.b.Reset()
	if err := t.StageStore(&t.b, v); err != nil {
		return err
	}
	return t.m.Do(c, &t.b)
}

// StageStore appends a Store to b. The row must not be stored again before b is done.
func (t *SST[T]) StageStore(b *rdma.Batch, v T) error {
	if err := t.ready(); err != nil {
		return err
	}
	t.version++
	row := images{t.images.off + uint32(t.row)*imageBytes(t.images.size), t.images.size}
	stageImage(&t.object, row, b, t.codec, v, t.version)
	return nil
}

// Look reads all rows.
func (t *SST[T]) Look(c *rdma.Coro) error {
	all := t.spec.Bytes - headerBytes
	n := imageBytes(t.images.size)
	images := t.images.off - headerBytes
	first := true
	for i := range torn {
		if err := t.ready(); err != nil {
			return err
		}
		t.last = 1 - t.last
		t.b.Reset()
		t.b.Read(t.addr(headerBytes), t.bufs[t.last], all)
		if err := t.m.Do(c, &t.b); err != nil {
			return err
		}
		now, before := t.m.t.Bytes(t.bufs[t.last], all), t.m.t.Bytes(t.bufs[1-t.last], all)
		settled := true
		for r := range t.rows {
			at := images + r*n
			both, prior := now[at:at+n], before[at:at+n]
			if first {
				prior = nil
			}
			newest, ok, decided := t.images.pick(both, prior)
			settled = settled && decided
			t.owners[r] = MemberID(word(now, 8*r))
			if s := &t.seen[r]; ok && newest.version > s.Version {
				*s = Row[T]{t.codec.Get(newest.payload), newest.version, newest.owner}
			}
		}
		if settled {
			return nil
		}
		first = false
		if i > 2 {
			c.Sleep(minPause)
		}
	}
	return fmt.Errorf("%w: %q", ErrTorn, t.name)
}

// Rows are the rows that the last Look has found, of members that have stored something, by number
// of the row. A row that changes hands is gone until its new owner stores.
func (t *SST[T]) Rows() iter.Seq2[MemberID, Row[T]] {
	return func(yield func(MemberID, Row[T]) bool) {
		for r := range t.seen {
			if s := &t.seen[r]; s.Version > 0 && s.owner == t.owners[r] && !yield(s.owner, *s) {
				return
			}
		}
	}
}

// Await looks until accept is true.
func (t *SST[T]) Await(ctx context.Context, c *rdma.Coro, accept func(*SST[T]) bool) error {
	w := wait{ctx: ctx, m: t.m}
	for {
		if err := t.Look(c); err != nil || accept(t) {
			return err
		}
		if err := w.next(c); err != nil {
			return err
		}
	}
}

// Leave gives the row back, and closes the handle.
func (t *SST[T]) Leave(c *rdma.Coro) error {
	if err := t.release(c, headerBytes+8*uint32(t.row)); err != nil {
		return err
	}
	t.Close()
	return nil
}
