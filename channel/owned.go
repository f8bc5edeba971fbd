package channel

import (
	"context"
	"fmt"

	"txnode/rdma"
)

// Owned is a value with one writer at a time, the owner: LOCO's owned_var, with its one copy on a
// blade. Any member reads it. An owner that dies in the middle of a Store leaves a readable value.
// Values appear in the order in which they were stored, and Load is linearizable.
//
//	operation                        verbs / round trips
//	Store                            WRITE                      1 +p / 1
//	StageStore                       WRITE                      1 +p / those of the batch
//	Load                             READ of both images        1 / 1, and one more each time that
//	                                                            a WRITE is under way
//	Own, of one without an owner     CAS and READ               2 / 1
//	Disown                           CAS                        1 / 1
//
// +p: a READ of no bytes behind it in the same doorbell, where Caps.Placed is false.
//
// Layout: the header; at 64 the owner, a word that atomics change; at 128 the two images.
type Owned[T any] struct {
	object
	codec   Codec[T]
	images  images
	owner   bool
	version uint64 // the newest, when owner
	unsure  bool   // a Store has failed: version may be one that there is not
}

const (
	ownerWord  = headerBytes
	ownedImage = 2 * headerBytes
)

// torn is how often a READ is repeated whose images change.
const torn = 256

// OpenOwned opens the owned variable called name in s.
func OpenOwned[T any](ctx context.Context, c *rdma.Coro, s Scope, name string, codec Codec[T]) (*Owned[T], error) {
	full, err := s.name(name)
	if err != nil {
		return nil, err
	}
	if err := codec.check(); err != nil {
		return nil, err
	}
	size := uint32(codec.Size)
	o := &Owned[T]{codec: codec, images: images{ownedImage, size}}
	n := imageBytes(size)
	spec := Spec{Kind: KindOwned, Codec: codec.Name, Size: size, Bytes: ownedImage + n}
	// The buffer: one slot to write from, the owner's line with both images, and those
	// of the READ before.
	return opened(o, o.open(ctx, c, s.m, full, spec, slotBytes(size)+64+2*n))
}

// Own makes this member the owner. It waits while another member that is alive is the owner, until
// ctx ends: then the error is ErrOwned and that of ctx. A dead owner is fenced first.
func (o *Owned[T]) Own(ctx context.Context, c *rdma.Coro) error {
	local := o.buf + slotBytes(o.images.size)
	if err := o.own(ctx, c, ownerWord, local, 64+imageBytes(o.images.size)); err != nil {
		return err
	}
	// The READ may have met an image that a dead owner left half written: nothing else is under
	// way.
	newest, ok, _ := o.images.pick(o.m.t.Bytes(local+64, imageBytes(o.images.size)), nil)
	if !ok {
		return fmt.Errorf("%w: %q", ErrTorn, o.name)
	}
	o.owner, o.unsure, o.version = true, false, newest.version
	return nil
}

// Disown gives the variable up. Values that were stored stay, and are visible when it returns.
func (o *Owned[T]) Disown(c *rdma.Coro) error {
	if !o.owner {
		return nil
	}
	if err := o.release(c, ownerWord); err != nil {
		return err
	}
	o.owner = false
	return nil
}

// Store replaces the value. When it returns, all members see it. After an error of the fabric or
// the host it is not known which value there is: Own has to be called before the next Store.
func (o *Owned[T]) Store(c *rdma.Coro, v T) error {
	o.b.Reset()
	if err := o.StageStore(&o.b, v); err != nil {
		return err
	}
	err := o.m.Do(c, &o.b)
	if err != nil {
		o.unsure = true // the next one could overwrite the only image that is whole
	}
	return err
}

// StageStore appends a Store to b. The value must not be stored again before b is done. If b fails,
// or is not posted, Own has to be called before the next Store, which reads what there is.
func (o *Owned[T]) StageStore(b *rdma.Batch, v T) error {
	if err := o.ready(); err != nil {
		return err
	}
	if !o.owner {
		return fmt.Errorf("%w: %q: call Own first", ErrNotOwner, o.name)
	}
	if o.unsure {
		return fmt.Errorf("%w: a Store of %q has failed: call Own, which reads what there is", ErrUncertain, o.name)
	}
	o.version++
	stageImage(&o.object, o.images, b, o.codec, v, o.version)
	return nil
}

// Load returns the newest value, and its version. Versions count the Stores of all owners, and
// grow. Version 0: none was stored, and the value is that of T without one.
func (o *Owned[T]) Load(c *rdma.Coro) (v T, version uint64, err error) {
	n := imageBytes(o.images.size)
	local, last := o.buf+slotBytes(o.images.size)+64, o.buf+slotBytes(o.images.size)+64+n
	var before []byte
	for i := range torn {
		if err := o.ready(); err != nil {
			return v, 0, err
		}
		o.b.Reset()
		o.b.Read(o.addr(o.images.off), local, n)
		if err := o.m.Do(c, &o.b); err != nil {
			return v, 0, err
		}
		both := o.m.t.Bytes(local, n)
		newest, ok, decided := o.images.pick(both, before)
		if ok && decided {
			if newest.version > 0 {
				v = o.codec.Get(newest.payload)
			}
			return v, newest.version, nil
		}
		before = both
		local, last = last, local
		if i > 2 {
			c.Sleep(minPause)
		}
	}
	return v, 0, fmt.Errorf("%w: %q", ErrTorn, o.name)
}

// Await loads the value until accept is true for it.
func (o *Owned[T]) Await(ctx context.Context, c *rdma.Coro, accept func(T) bool) (T, error) {
	w := wait{ctx: ctx, m: o.m}
	for {
		v, _, err := o.Load(c)
		if err != nil || accept(v) {
			return v, err
		}
		if err := w.next(c); err != nil {
			return v, err
		}
	}
}
