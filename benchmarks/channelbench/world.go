package channelbench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"

	"txnode/channel"
	"txnode/channel/local"
	"txnode/rdma"
	"txnode/rdma/sim"
)

// world is a fabric with members on it: threads on nodes, and on each thread as many coroutines as
// it has operations under way, each a member of its own.
type world struct {
	fabric  rdma.Fabric
	sim     *sim.Fabric // nil on another fabric
	keys    []rdma.Key  // of the blades, at the start
	threads []*rdma.Thread
	seats   []*seat
	window  int
}

// seat is a member, on a coroutine.
type seat struct {
	n     int
	m     *channel.Member
	c     *rdma.Coro // of the setup, then of the run
	b     rdma.Batch
	local uint32 // seatArena bytes
	tally tally
	// pushed are batches that an operation has posted and not awaited: run awaits them at the end.
	pushed []*rdma.Batch
}

// tally is what a seat has done in the measured time.
type tally struct {
	ops, verbs, trips uint64
	took              []int64 // ns, a sample when there are many
}

func (y *tally) add(s *seat, before *rdma.Counters, took int64) {
	y.ops++
	y.verbs += s.c.Count.Total() - before.Total()
	y.trips += s.c.Count.RoundTrips - before.RoundTrips
	if stride := uint64(1 + len(y.took)>>18); y.ops%stride == 0 {
		y.took = append(y.took, took)
	}
}

const (
	rawStart  = 4096 // of the memory that belongs to no object, on each blade
	seatArena = 4096
	peekNs    = 100 // until a member sees what is in memory of its node
)

// shape is how many of what.
type shape struct {
	nodes, threads, window, blades int
	raw                            uint64 // bytes of memory that belong to no object, on each blade
	arena                          int    // of a thread; 0: 256 KiB
	term                           int64  // ns; 0: members are not judged
}

// simulated makes a world on the simulator.
func (c *Config) simulated(s shape) (*world, error) {
	o := sim.Options{Profile: c.Profile, Seed: c.Seed, ThreadsPerBlade: s.threads}
	for range s.blades {
		o.Blades = append(o.Blades, sim.BladeOptions{Size: 1 << 32, Key: 1})
	}
	f, err := sim.New(o)
	if err != nil {
		return nil, err
	}
	w, err := newWorld(f, s)
	if w != nil {
		w.sim = f
	}
	return w, err
}

// newWorld joins all members, one after the other.
func newWorld(f rdma.Fabric, s shape) (*world, error) {
	w := &world{fabric: f, window: s.window}
	for _, b := range f.Blades() {
		w.keys = append(w.keys, b.Key)
	}
	start := (rawStart + s.raw + 4095) &^ 4095
	for b := range s.blades {
		if err := f.Provision(rdma.BladeID(b), 0, start); err != nil {
			return nil, err
		}
	}
	catalog := local.NewCatalog(f, start)
	who := channel.Identity{Name: "bench", Term: s.term, Slots: s.nodes*s.threads*s.window + 1}
	if s.term == 0 {
		who.Term = 1 << 50
	}
	arena := s.arena
	if arena == 0 {
		arena = 256 << 10
	}
	arena += s.window * 16 * who.Slots // each member reads the table of all
	for i := range s.nodes * s.threads {
		t, err := rdma.NewThread(f, rdma.ThreadOptions{
			Index: i, Techniques: rdma.Techniques{Doorbells: true}, Policy: rdma.PerThreadDoorbell, Arena: arena,
		})
		if err != nil {
			return nil, err
		}
		w.threads = append(w.threads, t)
		for range s.window {
			m, err := channel.Join(context.Background(), t.Plain(), catalog.Host(), who)
			if err != nil {
				return nil, err
			}
			seat := &seat{n: len(w.seats), m: m, c: t.Plain()}
			if seat.local, err = t.Alloc(seatArena); err != nil {
				return nil, err
			}
			w.seats = append(w.seats, seat)
		}
	}
	return w, nil
}

func (w *world) close() error {
	var errs []error
	for _, t := range w.threads {
		errs = append(errs, t.Close())
	}
	return errors.Join(append(errs, w.fabric.Close())...)
}

func (w *world) blades() uint64 { return uint64(len(w.keys)) }

// raw is memory that belongs to no object.
func (w *world) raw(b int, off uint64) rdma.RemoteAddr {
	return rdma.RemoteAddr{Blade: rdma.BladeID(b), Key: w.keys[b], Off: rawStart + off}
}

// peek is the word there, as a member of that node sees it.
func (w *world) peek(a rdma.RemoteAddr) uint64 {
	var b [8]byte
	if err := w.sim.ReadMemory(a.Blade, a.Off, b[:]); err != nil {
		return 0
	}
	return binary.LittleEndian.Uint64(b[:])
}

// run runs fn for each seat, on its own coroutine, until all have returned. The first error ends
// the context that the others get.
func (w *world) run(ctx context.Context, fn func(ctx context.Context, s *seat) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var mu sync.Mutex
	var first error
	w.fabric.Run(len(w.threads), func(i int) {
		w.threads[i].Run(w.window, func(c *rdma.Coro) {
			s := w.seats[i*w.window+c.ID()]
			s.c = c
			err := fn(ctx, s)
			for _, b := range s.pushed {
				err = errors.Join(err, c.Wait(b))
			}
			if err != nil {
				mu.Lock()
				if first == nil {
					first = err
				}
				mu.Unlock()
				cancel(err)
			}
		})
	})
	return first
}

// measure lets each seat do operations for that long, or rounds of them if rounds is positive, and
// fills the point. What ends in a quarter of that time before does not
// count.
func (w *world) measure(ctx context.Context, p *Point, ns int64, rounds int, op func(ctx context.Context,
	s *seat) error) error {
	from := w.fabric.Now() + ns/4
	until := from + ns
	err := w.run(ctx, func(ctx context.Context, s *seat) error {
		t := s.c.Thread()
		for n := 0; ; n++ {
			begun := t.Now()
			over := begun >= until && (w.sim != nil || s.tally.ops > 0) // in real time a member may not get a processor
			if rounds > 0 && n == rounds || rounds == 0 && over {
				return nil
			}
			if err := ctx.Err(); err != nil {
				return context.Cause(ctx)
			}
			before := *s.c.Count
			if err := op(ctx, s); err != nil {
				return err
			}
			end := t.Now()
			if rounds == 0 && (end < from || end > until && w.sim != nil) || rounds > 0 && n < rounds/5 {
				continue
			}
			s.tally.add(s, &before, end-begun)
		}
	})
	if err != nil {
		return err
	}
	w.fill(p, ns, rounds > 0)
	if p.Ops == 0 {
		return fmt.Errorf("%w: nothing has ended in %d ns: make Duration longer", ErrConfig, ns)
	}
	return nil
}

// fill sums the seats up. Operations that all members do together count once.
func (w *world) fill(p *Point, ns int64, together bool) {
	var all tally
	least := w.seats[0].tally.ops
	for _, s := range w.seats {
		least = min(least, s.tally.ops)
		all.ops, all.verbs, all.trips = all.ops+s.tally.ops, all.verbs+s.tally.verbs, all.trips+s.tally.trips
		all.took = append(all.took, s.tally.took...)
	}
	if p.Ops = all.ops; all.ops == 0 {
		return
	}
	slices.Sort(all.took)
	sum := int64(0)
	for _, x := range all.took {
		sum += x
	}
	n := float64(all.ops)
	p.Least = float64(least) * float64(len(w.seats)) / n
	at := func(q float64) float64 {
		return float64(all.took[min(int(q*float64(len(all.took))), len(all.took)-1)]) / 1e3
	}
	p.MeanUs, p.P50Us, p.P99Us = float64(sum)/float64(len(all.took))/1e3, at(0.5), at(0.99)
	p.VerbsOp, p.TripsOp = float64(all.verbs)/n, float64(all.trips)/n
	p.Kops = n / float64(ns) * 1e6
	if together {
		p.Kops = 1e3 / p.MeanUs
	}
}

// uncounted is an error of a setup, which closes the world.
func (w *world) uncounted(err error) error { return errors.Join(err, w.close()) }

func (s *seat) ctx() context.Context { return context.Background() }

// word is word i of the seat's arena.
func (s *seat) word(i int) uint32 { return s.local + 8*uint32(i) }

// read reads a word.
func (s *seat) read(a rdma.RemoteAddr) (uint64, error) {
	s.b.Reset()
	s.b.Read(a, s.word(0), 8)
	err := s.c.Do(&s.b)
	return s.c.Thread().Word(s.word(0)), err
}
