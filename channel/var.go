package channel

import (
	"context"

	"txnode/rdma"
)

// Var is one word that all members read and change: LOCO's atomic_var. All operations are
// linearizable. The word is changed by atomics alone.
//
//	operation                        verbs / round trips
//	Load                             READ            1 / 1
//	Add, CompareAndSwap              FAA, CAS        1 / 1
//	Store                            masked CAS      1 / 1
//	Store without Caps.MaskedCAS     READ and CAS    2 / 2, and 1 / 1 for each CAS that loses
//
// A change whose completion is lost ends with ErrUncertain: it has happened once or not at all,
// and will not happen later. Load then tells what the word holds. A handle belongs to one
// coroutine at a time.
type Var[T Word] struct{ object }

const varWord = headerBytes

// OpenVar opens the variable called name in s, which is 0 at first.
func OpenVar[T Word](ctx context.Context, c *rdma.Coro, s Scope, name string) (*Var[T], error) {
	full, err := s.name(name)
	if err != nil {
		return nil, err
	}
	v := new(Var[T])
	return opened(v, v.open(ctx, c, s.m, full, Spec{Kind: KindVar, Size: 8, Bytes: headerBytes + 64}, 64))
}

// opened is h, or nil with an error.
func opened[H any](h *H, err error) (*H, error) {
	if err != nil {
		return nil, err
	}
	return h, nil
}

// Load returns the word.
func (v *Var[T]) Load(c *rdma.Coro) (T, error) {
	if err := v.ready(); err != nil {
		return 0, err
	}
	v.b.Reset()
	v.b.Read(v.addr(varWord), v.buf, 8)
	if err := v.m.Do(c, &v.b); err != nil {
		return 0, err
	}
	return T(v.m.t.Word(v.buf)), nil
}

// Add adds delta, around the ends of T, and returns what the word was before.
func (v *Var[T]) Add(c *rdma.Coro, delta T) (before T, err error) {
	v.b.Reset()
	if err := v.StageAdd(&v.b, delta); err != nil {
		return 0, err
	}
	if err := v.m.Do(c, &v.b); err != nil {
		return 0, err
	}
	return T(v.b.Result(0)), nil
}

// StageAdd appends an Add to b. What the word was before is the Result of the request appended.
func (v *Var[T]) StageAdd(b *rdma.Batch, delta T) error {
	if err := v.ready(); err != nil {
		return err
	}
	b.FAA(v.addr(varWord), uint64(delta))
	return nil
}

// CompareAndSwap replaces the word by next if it is old. found is what it was.
func (v *Var[T]) CompareAndSwap(c *rdma.Coro, old, next T) (ok bool, found T, err error) {
	v.b.Reset()
	if err := v.StageCompareAndSwap(&v.b, old, next); err != nil {
		return false, 0, err
	}
	if err := v.m.Do(c, &v.b); err != nil {
		return false, 0, err
	}
	found = T(v.b.Result(0))
	return found == old, found, nil
}

// StageCompareAndSwap appends a CompareAndSwap to b. It has taken effect if the Result of the
// request appended is old.
func (v *Var[T]) StageCompareAndSwap(b *rdma.Batch, old, next T) error {
	if err := v.ready(); err != nil {
		return err
	}
	b.CAS(v.addr(varWord), uint64(old), uint64(next))
	return nil
}

// Store replaces the word, whatever it is.
func (v *Var[T]) Store(c *rdma.Coro, x T) error {
	if v.m.t.Caps().MaskedCAS {
		v.b.Reset()
		if err := v.StageStore(&v.b, x); err != nil {
			return err
		}
		return v.m.Do(c, &v.b)
	}
	for {
		old, err := v.Load(c)
		if err != nil {
			return err
		}
		if ok, _, err := v.CompareAndSwap(c, old, x); ok || err != nil {
			return err
		}
	}
}

// StageStore appends a Store to b. The fabric has Caps.MaskedCAS, or the request fails.
func (v *Var[T]) StageStore(b *rdma.Batch, x T) error {
	if err := v.ready(); err != nil {
		return err
	}
	masks := v.buf + 16
	v.m.t.PutWord(masks, 0)
	v.m.t.PutWord(masks+8, ^uint64(0))
	b.MaskedCAS(v.addr(varWord), 0, uint64(x), masks)
	return nil
}
