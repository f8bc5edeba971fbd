package channeltest

import (
	"context"
	"testing"

	"txnode/channel"
	"txnode/channel/local"
	"txnode/rdma"
)

// Factory makes a fabric of n blades of size bytes, blank, for one test, which closes it.
type Factory func(tb testing.TB, n int, size uint64) rdma.Fabric

// bladeSize is what the tests of the suite use.
const bladeSize = 1 << 20

// World is a fabric with a catalog on it.
type World struct {
	tb      testing.TB
	Fabric  rdma.Fabric
	Catalog *local.Catalog
	// Place, if not nil, says on which fabric thread i is, and by which host it joins; else
	// Fabric and Catalog.
	Place func(i int) (rdma.Fabric, channel.Host)
	// Identity that members join with.
	Identity channel.Identity
	Options  rdma.ThreadOptions
}

// NewWorld makes a world of n blades. The fabric is closed when the test ends.
func NewWorld(tb testing.TB, f rdma.Fabric) *World {
	tb.Cleanup(func() {
		if err := f.Close(); err != nil && !tb.Failed() {
			tb.Errorf("closing the fabric: %v", err)
		}
	})
	return &World{
		tb: tb, Fabric: f, Catalog: local.NewCatalog(f, 4096),
		Identity: channel.Identity{Name: "test", Term: 5_000_000_000, Slots: 8},
		Options:  rdma.ThreadOptions{Arena: 1 << 18},
	}
}

// NewWorldOn makes a world whose members join by hosts of the caller's, and whose fabric
// the caller closes.
func NewWorldOn(tb testing.TB, f rdma.Fabric, place func(i int) (rdma.Fabric, channel.Host)) *World {
	return &World{
		tb: tb, Fabric: f, Place: place,
		Identity: channel.Identity{Name: "test", Term: 5_000_000_000, Slots: 8},
		Options:  rdma.ThreadOptions{Arena: 1 << 18},
	}
}

// Join makes thread i of the fabric a member.
func (w *World) Join(i int) (*channel.Member, *rdma.Coro) {
	o := w.Options
	o.Index = i
	fabric := w.Fabric
	var host channel.Host
	if w.Place != nil {
		fabric, host = w.Place(i)
	} else {
		host = w.Catalog.Host()
	}
	t, err := rdma.NewThread(fabric, o)
	if err != nil {
		w.tb.Error(err)
		return nil, nil
	}
	m, err := channel.Join(context.Background(), t.Plain(), host, w.Identity)
	if err != nil {
		w.tb.Errorf("thread %d: Join: %v", i, err)
		t.Close()
		return nil, nil
	}
	return m, t.Plain()
}

// Run runs fn as n members, each on a thread of its own, concurrently as the fabric has it.
func (w *World) Run(n int, fn func(i int, m *channel.Member, c *rdma.Coro) error) {
	w.tb.Helper()
	w.Fabric.Run(n, func(i int) {
		m, c := w.Join(i)
		if m == nil {
			return
		}
		if err := fn(i, m, c); err != nil {
			w.tb.Errorf("member %d: %v", i, err)
		}
		if err := m.Leave(c); err != nil {
			w.tb.Errorf("member %d: Leave: %v", i, err)
		}
		if err := m.Thread().Close(); err != nil {
			w.tb.Errorf("member %d: %v", i, err)
		}
	})
}

// Run runs the suite on a fabric: every object, used by several members at once.
func Run(t *testing.T, open Factory) {
	RunOn(t, func(t *testing.T) *World { return NewWorld(t, open(t, 2, bladeSize)) })
}

// RunOn runs the suite on worlds, one for each test.
func RunOn(t *testing.T, open func(t *testing.T) *World) {
	for _, c := range []struct {
		name string
		fn   func(w *World)
	}{
		{"variable", testVar},
		{"owned", testOwned},
		{"sst", testSST},
		{"barrier", testBarrier},
		{"mutex", testMutex},
		{"ticket lock", testTicketLock},
		{"mutex handed over", testMutexHandOver},
		{"ticket lock handed over", testTicketHandOver},
		{"ring", testRing},
		{"ring without rows", testLapped},
		{"queue", testQueue},
		{"map", testKV},
	} {
		t.Run(c.name, func(t *testing.T) { c.fn(open(t)) })
	}
}

// testVar counts with Add and with CompareAndSwap: no addition is lost, none comes twice, and what
// Add returns is different each time.
func testVar(w *World) {
	const members, times = 3, 40
	var seen [members][]uint64
	w.Run(members, func(i int, m *channel.Member, c *rdma.Coro) error {
		ctx := context.Background()
		v, err := channel.OpenVar[uint64](ctx, c, m.Scope("s"), "v")
		if err != nil {
			return err
		}
		for range times {
			before, err := v.Add(c, 1)
			if err != nil {
				return err
			}
			seen[i] = append(seen[i], before)
			for {
				old, err := v.Load(c)
				if err != nil {
					return err
				}
				ok, _, err := v.CompareAndSwap(c, old, old+1<<32)
				if err != nil {
					return err
				}
				if ok {
					break
				}
			}
		}
		return nil
	})
	once := map[uint64]bool{}
	for i := range seen {
		for _, x := range seen[i] {
			if once[x&(1<<32-1)] {
				w.tb.Errorf("two Adds have found %d", x)
			}
			once[x&(1<<32-1)] = true
		}
	}
	w.Run(1, func(_ int, m *channel.Member, c *rdma.Coro) error {
		v, err := channel.OpenVar[uint64](context.Background(), c, m.Scope("s"), "v")
		if err != nil {
			return err
		}
		got, err := v.Load(c)
		if want := uint64(members*times)<<32 + members*times; got != want || err != nil {
			w.tb.Errorf("the word is %#x, want %#x: %v", got, want, err)
		}
		if err := v.Store(c, 7); err != nil {
			return err
		}
		if got, err = v.Load(c); got != 7 || err != nil {
			w.tb.Errorf("after Store the word is %d: %v", got, err)
		}
		return nil
	})
}

// Wide is a value of several lines whose words are equal.
type Wide [21]uint64

// WideOf is the Wide of x.
func WideOf(x uint64) (w Wide) {
	for i := range w {
		w[i] = x
	}
	return w
}

// Torn reports whether w is no WideOf.
func (w *Wide) Torn() bool { return *w != WideOf(w[0]) }

// testOwned: one owner after the other stores; readers see whole values that never go back.
func testOwned(w *World) {
	const members, times = 3, 25
	w.Run(members, func(i int, m *channel.Member, c *rdma.Coro) error {
		ctx := context.Background()
		o, err := channel.OpenOwned(ctx, c, m.Scope("s"), "o", channel.Plain[Wide]("wide"))
		if err != nil {
			return err
		}
		last := uint64(0)
		load := func() error {
			v, version, err := o.Load(c)
			if err != nil {
				return err
			}
			if v.Torn() || version < last || v[0] != version {
				w.tb.Errorf("member %d: version %d after %d is %v", i, version, last, v)
			}
			last = version
			return nil
		}
		for range 4 {
			for range times / 2 {
				if err := load(); err != nil {
					return err
				}
			}
			if err := o.Own(ctx, c); err != nil {
				return err
			}
			for range times / 3 {
				if err := load(); err != nil {
					return err
				}
				if err := o.Store(c, WideOf(last+1)); err != nil {
					return err
				}
				was := last
				if err := load(); err != nil {
					return err
				}
				if last != was+1 {
					w.tb.Errorf("member %d: stored version %d, and loaded %d", i, was+1, last)
				}
			}
			if err := o.Disown(c); err != nil {
				return err
			}
		}
		return nil
	})
}

// testSST: each row grows as a reader sees it, is whole, and all come to see the end.
func testSST(w *World) {
	const members, times = 3, 25
	w.Run(members, func(i int, m *channel.Member, c *rdma.Coro) error {
		ctx := context.Background()
		s, err := channel.OpenSST(ctx, c, m.Scope("s"), "t", channel.Plain[Wide]("wide"), members)
		if err != nil {
			return err
		}
		last := map[channel.MemberID]uint64{}
		check := func() bool {
			n := 0
			for id, r := range s.Rows() {
				if r.Value.Torn() || r.Value[0] < last[id] || r.Value[0] != r.Version {
					w.tb.Errorf("member %d: row of %d after %d: %v", i, id, last[id], r)
				}
				last[id] = r.Value[0]
				if r.Value[0] == times {
					n++
				}
			}
			return n == members
		}
		for k := range times {
			if err := s.Store(c, WideOf(uint64(k+1))); err != nil {
				return err
			}
			if err := s.Look(c); err != nil {
				return err
			}
			check()
			if last[m.ID()] != uint64(k+1) {
				w.tb.Errorf("member %d: stored %d and found %d", i, k+1, last[m.ID()])
			}
		}
		return s.Await(ctx, c, func(*channel.SST[Wide]) bool { return check() })
	})
}
