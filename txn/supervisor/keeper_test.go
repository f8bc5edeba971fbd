package supervisor_test

import (
	"errors"
	"sync/atomic"
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

// beats counts the signs of life that a catalog gets.
type beats struct {
	layout.Catalog
	n atomic.Int32
}

func (c *beats) KeepAlive(b layout.Beat) ([]layout.Beat, error) {
	c.n.Add(1)
	return c.Catalog.KeepAlive(b)
}

// TestRenewed: the registration of the process is renewed from the beginning on, before there are
// sessions; later their leases are, with and without the catalog.
func TestRenewed(t *testing.T) {
	b := newBed(t)
	cat := &beats{Catalog: b.cat}
	b.cat = cat
	o := b.join(t, 300*time.Millisecond)
	before := cat.n.Load()
	o.await("signs of life without sessions", func() bool { return cat.n.Load() > before+2 })
	if o.renewals.Load()+o.prolonged.Load() > 0 {
		t.Error("there are no sessions yet")
	}
	check(t, o.Start(o))
	o.await("signs of life of sessions", func() bool { return o.renewals.Load() > 2 && o.prolonged.Load() > 2 })
}

// TestRecovers: a process has died. Its coordinator is recovered when its lease has ended, and what
// it had has no owner.
func TestRecovers(t *testing.T) {
	b := newBed(t)
	o, dead := b.open(t, 300*time.Millisecond, 1), b.join(t, 300*time.Millisecond)
	co, err := dead.space.NewCoordinatorUntil(b.Now() + int64(time.Millisecond))
	check(t, err)
	process := dead.space.Process()
	dead.die()
	o.await("the coordinator is recovered", func() bool { return o.space.Lease(co.ID, b.Now()) == memory.LeaseGone })
	o.await("the process is not registered", func() bool { return !o.space.IsProcess(process) })
	if o.rests.Load() == 0 {
		t.Error("the catalog has changed, and it was not looked for what all must know")
	}
}

// TestDrains: a blade leaves. Its copies move, but not while a backup is made; then its place is
// vacant, and that is no outage.
func TestDrains(t *testing.T) {
	b := newBed(t)
	o := b.open(t, time.Second, 1)
	o.fill()
	o.backup.Store(true)
	check(t, o.Do(func(*rdma.Coro) error { return o.space.Drain(2) }))
	o.Awaken()
	o.await("a backup is in the way", func() bool { return o.refused.Load() > 0 })
	if l := o.space.Layout(); l.Vacant(2) || l.Held(2) == 0 {
		t.Errorf("an epoch has begun beside a backup: %d copies are left", l.Held(2))
	}
	o.backup.Store(false)
	o.await("the place is vacant", func() bool { return o.space.Layout().Vacant(2) })
	if r := o.Redundancy(); len(r.Outages) > 0 || r.Lost > 0 {
		t.Errorf("%+v", r)
	}
}

// TestGivesBack: segments of which no block is in use go back, but not while a backup is made, nor
// while something of before they left is under way. The sessions hear of the room.
func TestGivesBack(t *testing.T) {
	b := newBed(t)
	b.giveBack = 4 * time.Millisecond
	o := b.open(t, time.Second, 1)
	o.backup.Store(true)
	alloc, err := o.space.NewAllocator(o.thread)
	check(t, err)
	class, _ := layout.ClassOf(4 << 10)
	var all []layout.Addr
	segments := func() map[layout.SegmentID]bool {
		ids := map[layout.SegmentID]bool{}
		l := o.space.Layout()
		for i := range l.Segments {
			if g := &l.Segments[i]; g.Kind == layout.KindBlocks && g.Placement.N > 0 {
				ids[layout.SegmentID(i)] = true // a few
			}
		}
		return ids
	}
	for len(segments()) < 2*blades+2 {
		check(t, o.Do(func(c *rdma.Coro) error {
			a, err := alloc.Alloc(c, class)
			all = append(all, a)
			return err
		}))
	}
	for _, a := range all {
		alloc.Free(a, class)
	}
	check(t, o.Do(alloc.Close))
	before := len(segments())
	o.await("a backup is in the way", func() bool { return o.refused.Load() > 0 })
	if n := len(segments()); n != before || o.plenties.Load() > 0 {
		t.Errorf("%d segments of %d are left beside a backup", n, before)
	}
	o.busy.Store(true)
	o.backup.Store(false)
	o.await("it is asked whether all rests", func() bool { return o.asked.Load() > 3 || len(segments()) < before })
	if n := len(segments()); n != before || o.plenties.Load() > 0 {
		t.Errorf("%d segments of %d are left beside what has begun before they left", n, before)
	}
	o.busy.Store(false)
	o.await("segments go back", func() bool { return len(segments()) < before && o.plenties.Load() > 0 })
}

// TestEvict: an operator's word declares a blade dead, but not one with the last copies of
// something.
func TestEvict(t *testing.T) {
	b := newBed(t)
	o := b.open(t, time.Second, 1)
	o.fill()
	check(t, o.EvictBlade(0))
	if r := o.Redundancy(); len(r.Outages) != 1 || r.Outages[0].Blade != 0 || r.Outages[0].Promoted == 0 {
		t.Fatalf("outages: %+v", r.Outages)
	}
	o.await("it answers, and is taken in again", func() bool { return o.space.View().Up(0) && o.whole() })
	other := b.join(t, time.Hour)
	o.await("another process has the right to build copies", func() bool {
		return other.space.AcquireRight(layout.RightCopies)
	})
	check(t, b.StopBlade(1))
	check(t, o.Do(func(c *rdma.Coro) error { return o.BladeDown(c, nil) }))
	if err := o.EvictBlade(1); !errors.Is(err, layout.ErrDown) {
		t.Errorf("blade 1 is gone already: %v", err)
	}
	if err := o.EvictBlade(2); !errors.Is(err, layout.ErrLayout) || !o.space.View().Up(2) {
		t.Errorf("blade 2 has the last copies: %v", err)
	}
}

// TestTenders: where time is virtual, tenders do what goroutines do elsewhere: they build the
// copies of a blade that is gone, and take it in again.
func TestTenders(t *testing.T) {
	f := rdmatest.New(rdmatest.Options{
		Blades: blades, Size: 8 << 20, Seed: 1, Caps: rdma.Caps{OrderedLine: true, MaskedCAS: true},
	})
	o := &opening{t: t}
	var err error
	o.thread, err = rdma.NewThread(f, rdma.ThreadOptions{})
	check(t, err)
	o.space, err = memory.Open(o.thread.Plain(), f, &catalog.Mem{},
		memory.Options{Backups: 1, SegmentSize: segment, LogArea: 64 << 10})
	check(t, err)
	o.Supervisor = supervisor.New(supervisor.Options{
		Space: o.space, Fabric: f, Host: o, Logger: zap.NewNop(), Thread: 1, LeaseTerm: time.Second, GiveBack: -1,
	})
	check(t, o.Start(o))
	co, err := o.space.NewCoordinator()
	check(t, err)
	o.ids = append(o.ids, co.ID)
	o.fill()
	check(t, f.StopBlade(1))
	check(t, o.Do(func(c *rdma.Coro) error { return o.BladeDown(c, nil) }))
	back := false
	over := func() bool {
		if !back && o.Losses() == 1 && o.whole() {
			back = true
			check(t, f.RestartBlade(1, false))
		}
		return back && o.space.View().Up(1) || f.Now() > int64(10*time.Second)
	}
	tenders := o.Tenders(over)
	f.Run(len(tenders), func(i int) {
		if err := tenders[i](); err != nil {
			t.Error(err)
		}
	})
	if !back || !o.space.View().Up(1) {
		t.Errorf("copies are there: %v; %+v", back, o.Redundancy())
	}
	check(t, o.Close())
}
