package channel_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"txnode/channel"
	"txnode/channel/channeltest"
	"txnode/rdma"
	"txnode/rdma/sim"
	"txnode/rdma/steptest"
)

// stage is a fabric on which a test decides what happens.
type stage struct {
	f    *steptest.Fabric
	w    *channeltest.World
	errs []error
}

// body is what a member does once it has joined.
type body func(m *channel.Member, c *rdma.Coro) error

// client starts a member. What its body returns is an error of the run.
func (s *stage) client(name string, fn body) *steptest.Client {
	return s.f.Go(func() {
		m, c := s.w.Join(s.f.Ports())
		if m == nil {
			return
		}
		if err := fn(m, c); err != nil {
			s.errs = append(s.errs, fmt.Errorf("%s: %w", name, err))
		}
	})
}

// finish lets everything happen that is left.
func (s *stage) finish(t *testing.T) {
	t.Helper()
	for n := 0; ; n++ {
		moves := s.f.Moves()
		if len(moves) == 0 {
			break
		}
		if n > 200_000 {
			t.Error("a member does not come to an end")
			s.f.End()
			return
		}
		s.f.Do(moves[n%len(moves)])
	}
	for _, err := range s.errs {
		t.Error(err)
	}
	s.errs = nil
}

// tiny is how members of steps and faults join: short terms, few slots.
var tiny = channel.Identity{Name: "step", Term: 100_000, Slots: 4}

// victimOver: the victim of this run of stopEverywhere has stopped, or ended.
var victimOver bool

// stopEverywhere stops a member after each of its moves in turn, with WRITEs torn in halves, and
// lets survivors run to their end: after that, or, if beside, from the beginning. fresh makes
// the bodies of a run.
func stopEverywhere(t *testing.T, caps rdma.Caps, beside bool, fresh func(w *channeltest.World) (victim body,
	survivors []body)) {
	t.Helper()
	for at, more := 0, true; more && !t.Failed(); at++ {
		f := steptest.New(steptest.Options{Blades: 2, Size: 1 << 16, Grain: steptest.Words, Caps: caps})
		s := &stage{f: f, w: channeltest.NewWorld(t, f)}
		s.w.Identity, s.w.Options.Arena = tiny, 1<<16
		victimOver = false
		victim, survivors := fresh(s.w)
		v := s.client("victim", victim)
		start := func() {
			for i, fn := range survivors {
				s.client(fmt.Sprintf("stopped after %d moves, survivor %d", at, i), fn)
			}
		}
		if beside {
			start()
		}
		for did, n := 0, 0; did < at && !v.Ended(); n++ {
			moves := f.Moves()
			if len(moves) == 0 {
				break
			}
			m := moves[n%len(moves)]
			if f.Of(m) == v {
				did++
			}
			f.Do(m)
		}
		more = !v.Ended()
		if more {
			v.Stop()
		}
		victimOver = true
		if !beside {
			start()
		}
		s.finish(t)
		if t.Failed() {
			t.Logf("the victim was stopped after %d moves", at)
		}
		if !more && at < 10 {
			t.Fatalf("the victim has ended after %d moves", at)
		}
	}
}

// stops are the promises with which members are stopped: without Caps.Placed WRITEs linger.
func stops(t *testing.T, fn func(t *testing.T, caps rdma.Caps)) {
	for _, placed := range []bool{false, true} {
		t.Run(fmt.Sprintf("placed=%v", placed), func(t *testing.T) {
			fn(t, rdma.Caps{Placed: placed, MaskedCAS: placed, OrderedLine: placed})
		})
	}
}

// TestOwnedStop: an owner stops after every half verb. The value stays readable: it is one that was
// stored, not older than one that a reader has seen, and the next owner's version follows it.
func TestOwnedStop(t *testing.T) {
	stops(t, func(t *testing.T, caps rdma.Caps) {
		stopEverywhere(t, caps, false, func(*channeltest.World) (body, []body) {
			open := func(m *channel.Member, c *rdma.Coro) (*channel.Owned[channeltest.Wide], error) {
				return channel.OpenOwned(context.Background(), c, m.Scope("s"), "o",
					channel.Plain[channeltest.Wide]("wide"))
			}
			stored := uint64(0)
			victim := func(m *channel.Member, c *rdma.Coro) error {
				o, err := open(m, c)
				if err != nil {
					return err
				}
				if err := o.Own(context.Background(), c); err != nil {
					return err
				}
				for range 4 {
					if err := o.Store(c, channeltest.WideOf(stored+1)); err != nil {
						return err
					}
					stored++
				}
				return nil
			}
			survivor := func(m *channel.Member, c *rdma.Coro) error {
				o, err := open(m, c)
				if err != nil {
					return err
				}
				v, version, err := o.Load(c)
				if err != nil {
					return err
				}
				if v.Torn() || v[0] != version || version < stored || version > stored+1 {
					return fmt.Errorf("%d were stored, and version %d is %v", stored, version, v)
				}
				if err := o.Own(context.Background(), c); err != nil {
					return err
				}
				again, _, err := o.Load(c)
				if err != nil {
					return err
				}
				if again.Torn() || again[0] < v[0] || again[0] > stored+1 {
					return fmt.Errorf("%v was loaded, and after the owner was fenced %v", v, again)
				}
				if err := o.Store(c, channeltest.WideOf(100)); err != nil {
					return err
				}
				last, version, err := o.Load(c)
				if last[0] != 100 || version != again[0]+1 {
					return fmt.Errorf("stored after version %d, and version %d is %v: %w", again[0], version, last, err)
				}
				return err
			}
			return victim, []body{survivor}
		})
	})
}

// TestSSTStop: a member of a full table stops after every half verb. Another one gets its row, when
// that member is dead, and what its row held is then not shown as the new owner's.
func TestSSTStop(t *testing.T) {
	stops(t, func(t *testing.T, caps rdma.Caps) {
		stopEverywhere(t, caps, false, func(*channeltest.World) (body, []body) {
			use := func(m *channel.Member, c *rdma.Coro) error {
				s, err := channel.OpenSST(context.Background(), c, m.Scope("s"), "t",
					channel.Plain[channeltest.Wide]("wide"), 1)
				if err != nil {
					return err
				}
				last := uint64(0)
				for k := range uint64(3) {
					if err := s.Look(c); err != nil {
						return err
					}
					n := uint64(0)
					for id, r := range s.Rows() {
						n++
						if id != m.ID() || r.Value.Torn() || r.Value[0] != k || r.Version <= last {
							return fmt.Errorf("after %d Stores member %d sees row of %d: %v", k, m.ID(), id, r)
						}
						last = r.Version
					}
					if n != min(k, 1) {
						return fmt.Errorf("after %d Stores member %d sees %d rows", k, m.ID(), n)
					}
					if err := s.Store(c, channeltest.WideOf(k+1)); err != nil {
						return err
					}
				}
				return nil
			}
			return use, []body{use}
		})
	})
}

// faults runs members on the simulator, once for each verb of member 0 with a fault at it, or
// several, separated by semicolons.
func faults(t *testing.T, kind string, verbs int, fresh func(w *channeltest.World) []body) {
	t.Helper()
	for verb := 1; verb <= verbs && !t.Failed(); verb++ {
		var all []sim.Fault
		for expr := range strings.SplitSeq(strings.ReplaceAll(kind, "%d", fmt.Sprint(verb)), ";") {
			x, err := sim.ParseFault(expr)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, x)
		}
		x := all[0]
		f, err := sim.New(sim.Options{
			Blades: bladesOf(2, sim.BladeOptions{Size: 1 << 18, Key: 1}), Seed: uint64(verb),
			Profile: sim.Ideal(), Faults: all,
		})
		if err != nil {
			t.Fatal(err)
		}
		w := channeltest.NewWorld(t, f)
		w.Identity = channel.Identity{Name: "fault", Term: 4_000_000, Slots: 4}
		bodies := fresh(w)
		defer func() {
			if f.Struck(x.Kind) > 0 && x.Kind != sim.FaultDelay && w.Catalog.Fences() == 0 {
				t.Errorf("with %v: a verb without an answer was not decided by a new epoch", x)
			}
		}()
		f.Run(len(bodies), func(i int) {
			m, c := w.Join(i)
			if m == nil {
				return
			}
			if err := bodies[i](m, c); err != nil {
				t.Errorf("with %v: member %d: %v", x, i, err)
			}
			if err := m.Leave(c); err != nil {
				t.Errorf("with %v: member %d: Leave: %v", x, i, err)
			}
			if err := m.Thread().Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// lost are faults after which a member does not know what its verb has done: its completion is
// lost, the verb is lost, or it arrives when it has been given up.
var lost = []string{"lose(thread=0,verb=%d)", "drop(thread=0,verb=%d)", "late(thread=0,verb=%d,by=3ms)"}

// TestLost: each verb of a member is lost in turn. It finishes all the same, and values are those
// stored.
func TestLost(t *testing.T) {
	for _, kind := range lost {
		faults(t, kind, 48, func(*channeltest.World) []body {
			return []body{func(m *channel.Member, c *rdma.Coro) error {
				ctx, s := context.Background(), m.Scope("s")
				o, err := channel.OpenOwned(ctx, c, s, "o", channel.Plain[channeltest.Wide]("wide"))
				if err != nil {
					return err
				}
				t1, err := channel.OpenSST(ctx, c, s, "t", channel.Plain[uint64]("word"), 2)
				if err != nil {
					return err
				}
				if err := o.Own(ctx, c); err != nil {
					return err
				}
				for k := range uint64(3) {
					if err := o.Store(c, channeltest.WideOf(k+1)); err != nil {
						return err
					}
					v, version, err := o.Load(c)
					if err != nil || v != channeltest.WideOf(k+1) || version != k+1 {
						return fmt.Errorf("stored %d, loaded version %d, %v: %w", k+1, version, v, err)
					}
					if err := t1.Store(c, k+1); err != nil {
						return err
					}
				}
				c.Sleep(4_000_000) // what comes late has come
				if v, version, err := o.Load(c); err != nil || v != channeltest.WideOf(3) || version != 3 {
					return fmt.Errorf("stored 3, later loaded version %d, %v: %w", version, v, err)
				}
				if err := o.Disown(c); err != nil {
					return err
				}
				return t1.Leave(c)
			}}
		})
	}
}

// stopsBeside is stops with survivors that come after the victim, and beside it.
func stopsBeside(t *testing.T, fn func(t *testing.T, caps rdma.Caps, beside bool)) {
	stops(t, func(t *testing.T, caps rdma.Caps) {
		for _, beside := range []bool{false, true} {
			t.Run(fmt.Sprintf("beside=%v", beside), func(t *testing.T) { fn(t, caps, beside) })
		}
	})
}
