package supervisor_test

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"

	"txnode/memory"
	"txnode/memory/catalog"
	"txnode/memory/layout"
	"txnode/rdma"
	"txnode/rdma/rdmatest"
	"txnode/txn/supervisor"
)

// TestDoomed: which of blades that do not answer the only process of a database declares dead. A
// blade that is gone is, at once. One of which nothing is heard is, unless data would be lost with
// it, or with another one of which nothing is heard. One that it could not ask is not.
func TestDoomed(t *testing.T) {
	f := rdmatest.New(rdmatest.Options{Blades: blades, Size: 4 << 20, Seed: 1,
		Caps: rdma.Caps{Synchronous: true, Placed: true, OrderedLine: true, MaskedCAS: true}})
	thread, err := rdma.NewThread(f, rdma.ThreadOptions{})
	check(t, err)
	c := thread.Plain()
	space, err := memory.Open(c, f, &catalog.Mem{}, memory.Options{Backups: 1, SegmentSize: segment, LogArea: 64 << 10})
	check(t, err)
	o := &opening{t: t, space: space, thread: thread}
	o.Supervisor = supervisor.New(supervisor.Options{Space: space, Fabric: f, Host: o, Logger: zap.NewNop()})
	check(t, o.Start(o))
	o.fill()
	if all := space.Layout(); all.Without(0, 1).Redundancy().Lost == 0 {
		t.Fatal("two blades have no segment in common")
	}
	blades := func(b ...int) []int { return b }
	for i, x := range []struct{ gone, silent, troubled, doomed []int }{
		{},
		{gone: blades(0), doomed: blades(0)},
		{gone: blades(0, 1, 2), doomed: blades(0, 1, 2)},
		{silent: blades(0, 1, 2)},
		{silent: blades(0, 1)},
		{silent: blades(1), doomed: blades(1)},
		{troubled: blades(1)},
		{troubled: blades(0, 1, 2)},
		{silent: blades(0), troubled: blades(1, 2), doomed: blades(0)},
		{gone: blades(2), silent: blades(1), doomed: blades(2)}, // without both data would be lost
		{gone: blades(2), troubled: blades(1), doomed: blades(2)},
	} {
		got, err := o.Doomed(c, x.gone, x.silent, x.troubled)
		if none := len(x.doomed) == 0 && len(x.silent)+len(x.troubled) > 0; !slices.Equal(got, x.doomed) ||
			errors.Is(err, supervisor.ErrCutOff) != none || !none && err != nil {
			t.Errorf("%d: %v are gone, nothing is heard of %v, and %v could not be asked: %v, %v; want %v", i, x.gone,
				x.silent, x.troubled, got, err, x.doomed)
		}
	}
	check(t, o.Close())
}

// TestSilent: a process hears nothing of a blade. As long as another one hears it, it goes on
// without it, and nothing is declared dead. When no process hears the blade, it is, once; copies
// are built, and the blade is taken in again when it is heard.
func TestSilent(t *testing.T) {
	b := newBed(t)
	near, far := b.open(t, time.Second, 1), b.open(t, time.Second, 1)
	near.fill()
	far.deaf.blade.Store(1)
	if err := far.Do(func(c *rdma.Coro) error { return far.BladeDown(c, nil) }); err != nil ||
		far.space.Without() != rdma.BladeBit(1) {
		t.Errorf("another process hears the blade: %v; it goes on without blades %b", err, far.space.Without())
	}
	check(t, near.space.Follow())
	if !near.space.View().Up(1) {
		t.Fatal("a blade was declared dead that another process hears")
	}
	near.deaf.blade.Store(1)
	far.await("no process hears the blade, which is declared dead", func() bool {
		err := far.Do(func(c *rdma.Coro) error { return far.BladeDown(c, nil) })
		if err != nil && !errors.Is(err, supervisor.ErrCutOff) {
			t.Fatal(err)
		}
		return err == nil && !far.space.View().Up(1)
	})
	near.await("the other process knows", func() bool { return !near.space.View().Up(1) })
	for _, o := range []*opening{near, far} {
		o.await("an outage is noted", func() bool { return o.Losses() > 0 })
		o.await("copies are built", o.whole)
		if r := o.Redundancy(); len(r.Outages) != 1 || r.Outages[0].Blade != 1 || o.Losses() != 1 {
			t.Errorf("outages: %+v", r.Outages)
		}
	}
	near.deaf.blade.Store(-1)
	far.deaf.blade.Store(-1)
	near.await("the blade is back", func() bool { return near.space.View().Up(1) })
}

// TestRefused: a blade lives, and refuses to talk to all processes. They go on without it, and it
// is not declared dead.
func TestRefused(t *testing.T) {
	b := newBed(t)
	near, far := b.open(t, time.Second, 1), b.open(t, time.Second, 1)
	near.fill()
	for _, o := range []*opening{near, far} {
		o.deaf.hosts.Store(true)
		o.deaf.blade.Store(1)
	}
	for _, o := range []*opening{near, far, near} {
		if err := o.Do(func(c *rdma.Coro) error { return o.BladeDown(c, nil) }); err != nil ||
			o.space.Without() != rdma.BladeBit(1) {
			t.Errorf("a blade refuses to talk: %v; the process goes on without blades %b", err, o.space.Without())
		}
	}
	for _, o := range []*opening{near, far} {
		if o.Losses() > 0 || !o.space.View().Up(1) {
			t.Errorf("a blade was declared dead that refuses to talk: %+v", o.Redundancy().Outages)
		}
		o.deaf.blade.Store(-1)
		o.await("the blade is reached again", func() bool { return o.space.Without() == 0 })
	}
}

// TestCloseBesideSilence: a process waits for the answer of another one, which does not give any,
// and is closed meanwhile: it waits no more.
func TestCloseBesideSilence(t *testing.T) {
	b := newBed(t)
	o := b.open(t, time.Hour, 1)
	o.fill()
	b.join(t, time.Hour) // it is registered, and answers nobody
	o.deaf.blade.Store(2)
	done := make(chan error)
	go func() {
		thread, err := rdma.NewThread(o.deaf, rdma.ThreadOptions{Index: 9})
		if err == nil {
			err = errors.Join(o.BladeDown(thread.Plain(), nil), thread.Close())
		}
		done <- err
	}()
	o.await("it asks the other process", o.space.Said)
	o.die()
	select {
	case err := <-done:
		if err != nil || o.space.Without() != rdma.BladeBit(2) {
			t.Errorf("nothing was answered: %v; it goes on without blades %b", err, o.space.Without())
		}
	case <-time.After(time.Minute):
		t.Fatal("it waits on")
	}
	o.deaf.blade.Store(-1)
	if !o.space.View().Up(2) {
		t.Error("the blade was declared dead")
	}
}

// TestCutOffWhileCopying: a process that builds the copies of a blade that is gone hears nothing of
// another one, which another process hears. It leaves the copies to that one, and takes part
// without the blade.
func TestCutOffWhileCopying(t *testing.T) {
	b := newBedOf(t, blades+1)
	far := b.open(t, time.Second, 1)
	far.fill()
	builds, goOn := make(chan struct{}), make(chan struct{})
	defer sync.OnceFunc(func() { close(goOn) })()
	stop := func() bool {
		building := far.space.HasRight(layout.RightCopies) && far.space.Redundancy().Building > 0
		if building {
			close(builds)
			<-goOn
		}
		return building
	}
	far.deaf.keeps.Store(&stop)
	check(t, b.StopBlade(3))
	check(t, far.Do(func(c *rdma.Coro) error { return far.BladeDown(c, nil) }))
	<-builds
	near := b.open(t, time.Second, 1)
	if near.space.AcquireRight(layout.RightCopies) {
		t.Fatal("two processes build copies")
	}
	far.deaf.blade.Store(1)
	check(t, far.Do(func(c *rdma.Coro) error { return far.BladeDown(c, nil) }))
	if far.space.Without() != rdma.BladeBit(1) || near.whole() {
		t.Fatalf("it goes on without blades %b; all copies are there: %v", far.space.Without(), near.whole())
	}
	goOn <- struct{}{}
	near.await("the other process builds the copies", near.whole)
	if far.space.Without() != rdma.BladeBit(1) || !near.space.View().Up(1) {
		t.Errorf("it goes on without blades %b; blade 1 takes part: %v", far.space.Without(), near.space.View().Up(1))
	}
	far.deaf.blade.Store(-1)
	far.await("it reaches the blade again", func() bool { return far.space.Without() == 0 })
}

// TestHeardMeanwhile: a process hears nothing of a blade, and another thread of it hears the blade
// before all other processes have answered. The process is not cut off, whether or not another one
// has trouble with the blade, too.
func TestHeardMeanwhile(t *testing.T) {
	for _, troubled := range []bool{false, true} {
		b := newBed(t)
		o := b.open(t, time.Hour, 1)
		o.fill()
		other := b.join(t, time.Hour)
		b.join(t, time.Hour) // it is registered, and answers nobody
		o.deaf.blade.Store(2)
		done := make(chan error)
		go func() {
			thread, err := rdma.NewThread(o.deaf, rdma.ThreadOptions{Index: 9})
			if err == nil {
				err = errors.Join(o.BladeDown(thread.Plain(), nil), thread.Close())
			}
			done <- err
		}()
		o.await("it asks the other processes", o.space.Said)
		if troubled {
			check(t, other.space.Follow())
			check(t, other.space.See(map[rdma.BladeID]layout.Says{2: layout.Troubled}, false))
			o.await("it knows", func() bool { return len(o.space.Layout().SightsOf(other.space.Process())) > 0 })
		}
		o.deaf.blade.Store(-1)
		o.Reached()
		if err := <-done; err != nil || o.space.Without() != 0 {
			t.Errorf("another process has trouble: %v; it hears the blade by now: %v; it goes on without blades %b: %v",
				troubled, err, o.space.Without(), o.space.CutOffError(o.space.Without()))
		}
	}
}

// TestFoundDeclared: a process finds that a blade was declared dead by another one, which has died
// then. It notes the outage, has everything decided, and builds the copies.
func TestFoundDeclared(t *testing.T) {
	b := newBed(t)
	o, dead := b.open(t, time.Second, 1), b.join(t, time.Second)
	o.fill()
	check(t, b.StopBlade(0))
	cs, err := dead.space.Coordinators()
	check(t, err)
	ids := make([]uint32, len(cs))
	for i := range cs {
		ids[i] = cs[i].ID
	}
	now := b.Now()
	_, err = dead.space.Claim(memory.ClaimOptions{Now: now, Until: now + int64(time.Millisecond), Steal: true,
		Change: dead.space.DeclareDead(0)}, ids...)
	check(t, err)
	dead.die()
	o.await("the outage is noted", func() bool { return o.Losses() == 1 })
	o.await("everything is decided", func() bool { return !o.space.FailoverPending() })
	o.await("copies are built", func() bool { return o.whole() && o.Redundancy().Outages[0].Whole != 0 })
	if x := o.Redundancy().Outages[0]; x.Blade != 0 || x.Decided == 0 {
		t.Errorf("%+v", x)
	}
}

// TestRestarted: a blade that has restarted answers, and counts as gone: it has not kept what it
// was told. It is taken in again.
func TestRestarted(t *testing.T) {
	b := newBed(t)
	o := b.open(t, time.Second, 1)
	o.fill()
	check(t, errors.Join(b.StopBlade(1), b.RestartBlade(1, false)))
	check(t, o.Do(func(c *rdma.Coro) error { return o.BladeDown(c, nil) }))
	if r := o.Redundancy(); len(r.Outages) != 1 || r.Outages[0].Blade != 1 {
		t.Errorf("outages: %+v", r.Outages)
	}
	o.await("the blade is taken in again", func() bool { return o.space.View().Up(1) && o.whole() })
}
