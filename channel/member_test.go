package channel_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"txnode/channel"
	"txnode/channel/channeltest"
	"txnode/rdma"
	"txnode/rdma/rdmatest"
)

// TestNames: names that cannot be, names in use, and handles that are closed.
func TestNames(t *testing.T) {
	w := channeltest.NewWorld(t, newInproc(t, 1, 1<<20))
	w.Run(2, func(_ int, m *channel.Member, c *rdma.Coro) error {
		ctx := context.Background()
		for _, name := range []string{
			"", "A", "a//b", "/a", "a/", ".members", "a/.b", "a b", strings.Repeat("x", 260),
		} {
			if _, err := channel.OpenVar[int64](ctx, c, m.Scope("s"), name); !errors.Is(err, channel.ErrName) {
				t.Errorf("%q: %v", name, err)
			}
		}
		if _, err := channel.OpenVar[int64](ctx, c, m.Scope("bad name").Scope("s"),
			"a"); !errors.Is(err, channel.ErrName) {
			t.Error(err)
		}
		v, err := channel.OpenVar[int64](ctx, c, m.Scope("s").Scope("t"), "a")
		if err != nil {
			return err
		}
		if v.Name() != "s/t/a" {
			t.Errorf("the name is %q", v.Name())
		}
		if _, err := channel.OpenVar[int64](ctx, c, m.Scope("s"), "t/a"); !errors.Is(err, channel.ErrOpen) {
			t.Errorf("opened twice: %v", err)
		}
		v.Close()
		if _, err := v.Load(c); !errors.Is(err, channel.ErrIncarnation) {
			t.Errorf("closed: %v", err)
		}
		v, err = channel.OpenVar[int64](ctx, c, m.Scope("s"), "t/a")
		if err != nil {
			return err
		}
		v.Close()
		return nil
	})
}

// TestSpec: kind, codec, size and rows are compared, the error names what differs, and the
// object is as it was.
func TestSpec(t *testing.T) {
	w := channeltest.NewWorld(t, newInproc(t, 1, 1<<20))
	w.Run(1, func(_ int, m *channel.Member, c *rdma.Coro) error {
		ctx, s := context.Background(), m.Scope("s")
		word := channel.Plain[uint64]("word")
		t1, err := channel.OpenSST(ctx, c, s, "t", word, 4)
		if err != nil {
			return err
		}
		if err := t1.Store(c, 9); err != nil {
			return err
		}
		t1.Close()
		open := func(codec channel.Codec[uint64], rows int) error {
			_, err := channel.OpenSST(ctx, c, s, "t", codec, rows)
			return err
		}
		for part, err := range map[string]error{
			"kind is SST, not variable": func() error {
				_, err := channel.OpenVar[int64](ctx, c, s, "t")
				return err
			}(),
			"codec is word, not other":   open(channel.Plain[uint64]("other"), 4),
			"number of rows is 4, not 5": open(word, 5),
			"value size is 8, not 4": func() error {
				_, err := channel.OpenSST(ctx, c, s, "t", channel.Plain[uint32]("word"), 4)
				return err
			}(),
		} {
			var e *channel.SpecError
			if !errors.Is(err, channel.ErrSpec) || !errors.As(err, &e) || !strings.Contains(err.Error(), part) {
				t.Errorf("want %q: %v", part, err)
			}
		}
		if err := open(word, 1<<20); !errors.Is(err, channel.ErrTooLarge) {
			t.Error(err)
		}
		t1, err = channel.OpenSST(ctx, c, s, "t", word, 4)
		if err != nil {
			return err
		}
		if err := t1.Look(c); err != nil {
			return err
		}
		for id, r := range t1.Rows() {
			if id != m.ID() || r.Value != 9 {
				t.Errorf("row of %d: %v", id, r)
			}
		}
		return nil
	})
}

// disorderly is a fabric without promises.
func disorderly(n int) *rdmatest.Fabric {
	return rdmatest.New(rdmatest.Options{Blades: n, Size: 1 << 20, SpreadNs: 3000, Seed: 3})
}

// TestFull: one member more than there are slots, or rows, while all are alive.
func TestFull(t *testing.T) {
	w := channeltest.NewWorld(t, disorderly(1))
	w.Identity = channel.Identity{Name: "full", Term: 400_000, Slots: 2}
	full := 0
	w.Fabric.Run(3, func(i int) {
		th, err := rdma.NewThread(w.Fabric, rdma.ThreadOptions{Index: i, Arena: 1 << 16})
		if err != nil {
			t.Error(err)
			return
		}
		defer th.Close()
		c, ctx := th.Plain(), context.Background()
		m, err := channel.Join(ctx, c, w.Catalog.Host(), w.Identity)
		if err != nil {
			if full++; !errors.Is(err, channel.ErrFull) {
				t.Error(err)
			}
			return
		}
		s, err := channel.OpenSST(ctx, c, m.Scope("s"), "t", channel.Plain[uint64]("word"), 1)
		if err != nil {
			if full++; !errors.Is(err, channel.ErrFull) {
				t.Error(err)
			}
		}
		for range 100 {
			c.Sleep(20_000)
			if err := m.Beat(c); err != nil {
				t.Error(err)
			}
		}
		if s != nil {
			if err := s.Leave(c); err != nil {
				t.Error(err)
			}
		}
		if err := m.Leave(c); err != nil {
			t.Error(err)
		}
	})
	if full != 2 {
		t.Errorf("%d were refused, want one member and one row", full)
	}
}

// TestFenced: a member that sleeps through its term loses what it owns, and learns of it. What it
// posts then does not land, and it can join again.
func TestFenced(t *testing.T) {
	w := channeltest.NewWorld(t, disorderly(2))
	w.Identity = channel.Identity{Name: "sleeper", Term: 300_000, Slots: 4}
	open := func(m *channel.Member, c *rdma.Coro) *channel.Owned[channeltest.Wide] {
		o, err := channel.OpenOwned(context.Background(), c, m.Scope("s"), "o", channel.Plain[channeltest.Wide]("wide"))
		if err == nil {
			err = o.Own(context.Background(), c)
		}
		if err != nil {
			t.Error(err)
		}
		return o
	}
	w.Fabric.Run(2, func(i int) {
		m, c := w.Join(i)
		if m == nil {
			return
		}
		defer m.Thread().Close()
		if i == 1 {
			c.Sleep(100_000) // the other one owns it first
			o := open(m, c)
			if err := o.Store(c, channeltest.WideOf(2)); err != nil {
				t.Error(err)
			}
			if err := m.Leave(c); err != nil {
				t.Error(err)
			}
			return
		}
		o := open(m, c)
		if err := o.Store(c, channeltest.WideOf(1)); err != nil {
			t.Error(err)
		}
		c.Sleep(5_000_000)
		if err := o.Store(c, channeltest.WideOf(3)); !errors.Is(err, channel.ErrFenced) {
			t.Errorf("Store of a member that was declared dead: %v", err)
		}
		for _, err := range []error{m.Beat(c), func() error { _, _, err := o.Load(c); return err }()} {
			if !errors.Is(err, channel.ErrFenced) {
				t.Errorf("after that: %v", err)
			}
		}
		again, err := channel.Join(context.Background(), c, w.Catalog.Host(), w.Identity)
		if err != nil || again.ID() == m.ID() {
			t.Errorf("joined again: %v", err)
			return
		}
		if v, _, err := open(again, c).Load(c); err != nil || v != channeltest.WideOf(2) {
			t.Errorf("the value is %v: %v", v, err)
		}
	})
	if n := w.Catalog.Fences(); n != 2 {
		t.Errorf("the epoch has moved %d times, want 2", n)
	}
}

// TestIncarnation: a blade that restarts, and an object that is forgotten, end the handles. Opened
// again, the object is blank.
func TestIncarnation(t *testing.T) {
	for _, how := range []string{"blade", "blade with memory", "forget"} {
		f := disorderly(2)
		w := channeltest.NewWorld(t, f)
		f.Run(1, func(int) {
			ctx := context.Background()
			m, c := w.Join(0)
			v, err := channel.OpenVar[int64](ctx, c, m.Scope("s"), "v")
			if err != nil {
				t.Error(err)
				return
			}
			if err := v.Store(c, 7); err != nil {
				t.Error(err)
			}
			old := v.Incarnation()
			if how == "forget" {
				h := w.Catalog.Host()
				if _, err := h.Enroll(c, "other"); err != nil {
					t.Error(err)
				}
				if err := h.Forget(c, v.Name(), v.Incarnation()); err != nil {
					t.Error(err)
				}
			} else {
				b := v.Place().Blade
				if err := errors.Join(f.StopBlade(b), f.RestartBlade(b, how != "blade")); err != nil {
					t.Error(err)
				}
			}
			for range 2 {
				if x, err := v.Load(c); !errors.Is(err, channel.ErrIncarnation) {
					t.Errorf("%s: loaded %d: %v", how, x, err)
				}
			}
			v.Close()
			v, err = channel.OpenVar[int64](ctx, c, m.Scope("s"), "v")
			if err != nil {
				t.Errorf("%s: %v", how, err)
				return
			}
			if x, err := v.Load(c); x != 0 || err != nil || v.Incarnation() == old {
				t.Errorf("%s: opened again it is %d, incarnation %d after %d: %v", how, x, v.Incarnation(), old, err)
			}
			if err := m.Thread().Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
