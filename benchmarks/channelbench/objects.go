package channelbench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"txnode/channel"
	"txnode/internal/validate"
	"txnode/rdma"
	"txnode/rdma/inproc"
)

// ObjectsConfig says which operations to measure on memory of this process, in real time. The zero
// value of a field has a default.
type ObjectsConfig struct {
	Operations []string      // of Operations; empty: all
	Threads    int           // 0: 1
	Duration   time.Duration // of an operation; 0: 300ms
	Seed       uint64
}

// operation is one that is measured. open opens what a seat needs, and returns the operation.
type operation struct {
	name string
	// together: all members do it together, so that it is measured in rounds.
	together bool
	open     func(w *world, s *seat, shared *atomic.Int64) (func(ctx context.Context) error, error)
}

type wide [16]uint64

// operations of objects. Those of Owned, SST and Ring are on a row or an object of each member; the
// others on one that all share.
var operations = []operation{
	{"var-add", false, openVar(func(ctx context.Context, s *seat, v *channel.Var[int64]) error {
		_, err := v.Add(s.c, 1)
		return err
	})},
	{"var-load", false, openVar(func(ctx context.Context, s *seat, v *channel.Var[int64]) error {
		_, err := v.Load(s.c)
		return err
	})},
	{"owned-store", false, openOwned(true)},
	{"owned-load", false, openOwned(false)},
	{"sst-store", false, openSST(true)},
	{"sst-look", false, openSST(false)},
	{"mutex", false, openCounted(func(s *seat) (channel.Lock, error) {
		return channel.OpenMutex(s.ctx(), s.c, s.m.Scope("o"), "mutex")
	})},
	{"ticket-lock", false, openCounted(func(s *seat) (channel.Lock, error) {
		return channel.OpenTicketLock(s.ctx(), s.c, s.m.Scope("o"), "ticket")
	})},
	{"ticket-lock-handed", false, openHanded},
	{"barrier", true, openRounds},
	{"ring", false, openRing},
	{"queue", false, openQueue},
	{"kv-get", false, openMap(kvGet)},
	{"kv-put", false, openMap(kvPut)},
	{"kv-insert-delete", false, openMap(kvInsertDelete)},
}

// Operations lists what RunObjects measures.
func Operations() (names []string) {
	for _, o := range operations {
		names = append(names, o.name)
	}
	return names
}

func (c *ObjectsConfig) defaults() {
	if len(c.Operations) == 0 {
		c.Operations = Operations()
	}
	c.Threads, c.Duration = cmp.Or(c.Threads, 1), cmp.Or(c.Duration, 300*time.Millisecond)
}

// Validate lists everything that is wrong, after defaults.
func (c ObjectsConfig) Validate() error {
	c.defaults()
	var bad validate.Faults
	for _, name := range c.Operations {
		bad.Check(slices.Contains(Operations(), name), "operation %q: it must be one of %s",
			name, strings.Join(Operations(), ", "))
	}
	bad.Check(c.Threads > 0 && c.Threads <= 64, "Threads is %d: from 1 to 64 are possible", c.Threads)
	bad.Check(c.Duration > 0 && c.Duration <= time.Hour, "Duration is %v: up to an hour is possible", c.Duration)
	return bad.Err(ErrConfig)
}

// RunObjects measures operations on blades in the memory of this process, each on threads of its
// own. When ctx ends, the points measured so far are returned with its cause.
func RunObjects(ctx context.Context, c ObjectsConfig, progress func(p *Point, done, total int)) (*Report, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c.defaults()
	r := &Report{Machine: "memory of this process", Seed: c.Seed}
	for _, o := range operations {
		if !slices.Contains(c.Operations, o.name) {
			continue
		}
		p := Point{Experiment: "objects", Variant: o.name, X: float64(c.Threads), XName: "threads"}
		if err := o.measure(ctx, &c, &p); ctx.Err() != nil {
			return r, context.Cause(ctx)
		} else if err != nil {
			return nil, fmt.Errorf("channelbench: %s: %w", o.name, err)
		}
		if r.Points = append(r.Points, p); progress != nil {
			progress(&p, len(r.Points), len(c.Operations))
		}
	}
	return r, nil
}

// objectRounds are those of an operation that all members do together, at most.
const objectRounds = 20_000

func (o *operation) measure(ctx context.Context, c *ObjectsConfig, p *Point) error {
	f, err := inproc.New(inproc.Options{Blades: []inproc.BladeOptions{{Size: 1 << 26, Key: 1}}, Seed: c.Seed})
	if err != nil {
		return err
	}
	w, err := newWorld(f, shape{nodes: 1, threads: c.Threads, window: 1, blades: 1, arena: 1 << 20})
	if err != nil {
		return errors.Join(err, f.Close())
	}
	var shared atomic.Int64
	all := make([]func(ctx context.Context) error, len(w.seats))
	for i, s := range w.seats {
		if all[i], err = o.open(w, s, &shared); err != nil {
			return w.uncounted(err)
		}
	}
	rounds := 0
	if o.together {
		rounds = objectRounds
	}
	err = w.measure(ctx, p, c.Duration.Nanoseconds(), rounds, func(ctx context.Context, s *seat) error {
		return all[s.n](ctx)
	})
	return w.uncounted(err)
}

// opener is the open of an operation.
type opener = func(w *world, s *seat, shared *atomic.Int64) (func(ctx context.Context) error, error)

func openVar(op func(ctx context.Context, s *seat, v *channel.Var[int64]) error) opener {
	return func(_ *world, s *seat, _ *atomic.Int64) (func(ctx context.Context) error, error) {
		v, err := channel.OpenVar[int64](s.ctx(), s.c, s.m.Scope("o"), "var")
		return func(ctx context.Context) error { return op(ctx, s, v) }, err
	}
}

func openOwned(store bool) opener {
	return func(_ *world, s *seat, _ *atomic.Int64) (func(ctx context.Context) error, error) {
		o, err := channel.OpenOwned(s.ctx(), s.c, s.m.Scope("o"), fmt.Sprint("owned", s.n), channel.Plain[wide]("wide"))
		if err != nil {
			return nil, err
		}
		var x wide
		if err := errors.Join(o.Own(s.ctx(), s.c), o.Store(s.c, x)); err != nil {
			return nil, err
		}
		return func(context.Context) error {
			if store {
				x[0]++
				return o.Store(s.c, x)
			}
			_, _, err := o.Load(s.c)
			return err
		}, nil
	}
}

func openSST(store bool) opener {
	return func(w *world, s *seat, _ *atomic.Int64) (func(ctx context.Context) error, error) {
		t, err := channel.OpenSST(s.ctx(), s.c, s.m.Scope("o"), "sst", channel.Plain[uint64]("number"), len(w.seats))
		if err != nil {
			return nil, err
		}
		n := uint64(0)
		return func(context.Context) error {
			if store {
				n++
				return t.Store(s.c, n)
			}
			return t.Look(s.c)
		}, nil
	}
}

// openCounted locks and unlocks, and finds out that no other member is in the lock.
func openCounted(open func(s *seat) (channel.Lock, error)) opener {
	return func(_ *world, s *seat, inside *atomic.Int64) (func(ctx context.Context) error, error) {
		l, err := open(s)
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context) error {
			if _, err := l.Lock(ctx, s.c); err != nil {
				return err
			}
			n := inside.Add(1)
			inside.Add(-1)
			if n != 1 {
				return fmt.Errorf("%w: %d members are in a lock", errWrong, n)
			}
			return l.Unlock(s.c)
		}, nil
	}
}

// openHanded has four coroutines, which share a handle, lock and unlock in turn, and finds out that
// no other one is in the lock.
func openHanded(_ *world, s *seat, inside *atomic.Int64) (func(ctx context.Context) error, error) {
	l, err := channel.OpenTicketLock(s.ctx(), s.c, s.m.Scope("o"), "handed")
	if err != nil {
		return nil, err
	}
	const coroutines = 4
	var errs [coroutines]error
	fn := func(ctx context.Context, c *rdma.Coro) error {
		if _, err := l.Lock(ctx, c); err != nil {
			return err
		}
		n := inside.Add(1)
		c.Yield()
		inside.Add(-1)
		if n != 1 {
			return fmt.Errorf("%w: %d members are in a lock", errWrong, n)
		}
		return l.Unlock(c)
	}
	return func(ctx context.Context) error {
		s.c.Each(coroutines, func(c *rdma.Coro, i int) { errs[i] = fn(ctx, c) })
		return errors.Join(errs[:]...)
	}, nil
}

// openRounds waits in a barrier, and finds out that all have come.
func openRounds(w *world, s *seat, came *atomic.Int64) (func(ctx context.Context) error, error) {
	b, err := channel.OpenBarrier(s.ctx(), s.c, s.m.Scope("o"), "barrier", len(w.seats))
	if err != nil {
		return nil, err
	}
	round := int64(0)
	return func(ctx context.Context) error {
		came.Add(1)
		round++
		if err := b.Wait(ctx, s.c); err != nil {
			return err
		}
		if n := came.Load(); n < round*int64(len(w.seats)) {
			return fmt.Errorf("%w: round %d is over, and %d have come", errWrong, round, n)
		}
		return nil
	}, nil
}

// openRing sends a message and receives it.
func openRing(_ *world, s *seat, _ *atomic.Int64) (func(ctx context.Context) error, error) {
	r, err := channel.OpenRing(s.ctx(), s.c, s.m.Scope("o"), fmt.Sprint("ring", s.n), channel.Plain[wide]("wide"), 16,
		1)
	if err != nil {
		return nil, err
	}
	from, err := r.Sender(s.ctx(), s.c)
	if err != nil {
		return nil, err
	}
	to, err := r.Receiver(s.ctx(), s.c)
	var x wide
	return func(ctx context.Context) error {
		x[0]++
		if err := from.Send(ctx, s.c, x); err != nil {
			return err
		}
		y, err := to.Receive(ctx, s.c)
		if err == nil && y != x {
			err = fmt.Errorf("%w: message %d is %d", errWrong, x[0], y[0])
		}
		return err
	}, err
}

// openQueue pushes an item, and takes one, which may be another member's.
func openQueue(w *world, s *seat, _ *atomic.Int64) (func(ctx context.Context) error, error) {
	q, err := channel.OpenQueue(s.ctx(), s.c, s.m.Scope("o"), "queue", channel.Plain[wide]("wide"), 64, len(w.seats))
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		if err := q.Push(ctx, s.c, wide{}); err != nil {
			return err
		}
		_, err := q.Pop(ctx, s.c)
		return err
	}, nil
}

// objectKeys is how many keys there are of the map; each member has as many of its own to insert.
const objectKeys = 4096

func openMap(op func(ctx context.Context, s *seat, v *channel.KV[uint64, uint64], n uint64) error) opener {
	return func(w *world, s *seat, _ *atomic.Int64) (func(ctx context.Context) error, error) {
		v, err := channel.OpenKV(s.ctx(), s.c, s.m.Scope("o"), "kv", channel.Plain[uint64]("key"),
			channel.Plain[uint64]("value"), channel.KVOptions{Keys: 2 * objectKeys})
		if err != nil {
			return nil, err
		}
		for k := uint64(s.n); k < objectKeys; k += uint64(len(w.seats)) {
			if err := v.Put(s.ctx(), s.c, k, valueOf(k, 0)); err != nil {
				return nil, err
			}
		}
		n := uint64(0)
		return func(ctx context.Context) error {
			n++
			return op(ctx, s, v, n)
		}, nil
	}
}

func kvGet(_ context.Context, s *seat, v *channel.KV[uint64, uint64], n uint64) error {
	k := n * 31 % objectKeys
	x, ok, err := v.Get(s.c, k)
	if err == nil && (!ok || x>>16 != k) {
		err = fmt.Errorf("%w: key %d has the value %#x, %v", errWrong, k, x, ok)
	}
	return err
}

func kvPut(ctx context.Context, s *seat, v *channel.KV[uint64, uint64], n uint64) error {
	k := n * 31 % objectKeys
	return v.Put(ctx, s.c, k, valueOf(k, n))
}

func kvInsertDelete(ctx context.Context, s *seat, v *channel.KV[uint64, uint64], n uint64) error {
	k := objectKeys + n%64*64 + uint64(s.n)
	ok, err := v.Insert(ctx, s.c, k, n)
	if err != nil {
		return err
	}
	gone, err := v.Delete(ctx, s.c, k)
	if err == nil && !(ok && gone) {
		err = fmt.Errorf("%w: key %d was inserted: %v, and deleted: %v", errWrong, k, ok, gone)
	}
	return err
}
