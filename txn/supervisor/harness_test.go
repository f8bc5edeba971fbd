package supervisor_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"

	"txnode/memory"
	"txnode/memory/catalog"
	"txnode/memory/layout"
	"txnode/occ/recovery"
	"txnode/rdma"
	"txnode/rdma/inproc"
	"txnode/txn/supervisor"
)

// TestMain makes sure that nothing is left running.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	blades  = 3
	segment = 256 << 10
	keeper  = 1 // the index of the first thread of a supervisor
)

// bed is what openings have in common: blades, and a catalog.
type bed struct {
	*inproc.Fabric
	cat      layout.Catalog
	giveBack time.Duration // of openings; negative: no segment goes back
}

func newBed(t *testing.T) *bed { return newBedOf(t, blades) }

// newBedOf is newBed with so many blades.
func newBedOf(t *testing.T, blades int) *bed {
	t.Helper()
	f, err := inproc.New(inproc.Options{Blades: slices.Repeat([]inproc.BladeOptions{{Size: 8 << 20}}, blades)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { check(t, f.Close()) })
	return &bed{f, &catalog.Mem{}, -1}
}

// opening is one process with the database of a bed open, without any that is made of transactions:
// the host of a supervisor, and its sessions.
type opening struct {
	*supervisor.Supervisor
	t     *testing.T
	space *memory.Space
	deaf  *deaf

	mu     sync.Mutex
	thread *rdma.Thread // under mu

	term   time.Duration
	ids    []uint32 // of sessions; never changed after Start
	closed bool

	rests, renewals, prolonged, plenties atomic.Int32
	busy                                 atomic.Bool  // something of before is under way: nothing rests
	asked                                atomic.Int32 // how often it was asked meanwhile whether all rests
	backup                               atomic.Bool  // one is made
	refused                              atomic.Int32 // calls of BesideBackups meanwhile
}

// open opens the database, starts a supervisor with some sessions, and ends all of it after the
// test.
func (b *bed) open(t *testing.T, term time.Duration, sessions int) *opening {
	t.Helper()
	o := b.join(t, term)
	for range sessions {
		co, err := o.space.NewCoordinatorUntil(b.Now() + int64(term))
		check(t, err)
		o.ids = append(o.ids, co.ID)
	}
	check(t, o.Start(o))
	return o
}

// join is open without the start of the supervisor.
func (b *bed) join(t *testing.T, term time.Duration) *opening {
	t.Helper()
	o := &opening{t: t, deaf: &deaf{Fabric: b.Fabric}, term: term}
	o.deaf.blade.Store(-1)
	var err error
	o.thread, err = rdma.NewThread(o.deaf, rdma.ThreadOptions{})
	check(t, err)
	o.space, err = memory.Open(o.thread.Plain(), o.deaf, b.cat,
		memory.Options{Backups: 1, SegmentSize: segment, LogArea: 64 << 10, Shared: true, Until: b.Now() + int64(term)})
	check(t, err)
	o.Supervisor = supervisor.New(supervisor.Options{Space: o.space, Fabric: o.deaf, Host: o, Logger: zap.NewNop(),
		Thread: keeper, LeaseTerm: term, GiveBack: b.giveBack})
	if o.space.First() {
		check(t, o.space.EndAlone())
	}
	t.Cleanup(o.end)
	return o
}

// die closes the supervisor, unless that was done: nothing is heard of the process any more.
func (o *opening) die() {
	if !o.closed {
		o.closed = true
		check(o.t, o.Close())
	}
}

// end closes the supervisor and the database.
func (o *opening) end() {
	o.die()
	for _, id := range o.ids {
		if err := o.space.CloseCoordinator(id); err != nil && !errors.Is(err, memory.ErrNoCoordinator) {
			o.t.Error(err)
		}
	}
	check(o.t, o.Do(o.space.Close))
	check(o.t, o.thread.Close())
}

// fill makes so many segments that there are some on all blades.
func (o *opening) fill() {
	o.t.Helper()
	for range 2 * blades {
		_, err := o.space.NewExtent(o.thread.Plain(), o.space.MaxExtent())
		check(o.t, err)
	}
}

// Control implements supervisor.Host.
func (o *opening) Control(fn func(c *rdma.Coro) error) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return fn(o.thread.Plain())
}

// Ask implements supervisor.Host.
func (o *opening) Ask() (func() (bool, error), error) {
	n, err := o.space.Ask()
	return func() (bool, error) {
		o.RestSoon()
		left, err := o.space.Unrested(n)
		if o.busy.Load() {
			o.asked.Add(1)
		}
		return err == nil && left.None(), err
	}, err
}

// BesideBackups implements supervisor.Host.
func (o *opening) BesideBackups(fn func() error) error {
	if o.backup.Load() {
		o.refused.Add(1)
		return nil
	}
	return fn()
}

// LookForRest implements supervisor.Host. The sessions of the tests rest at any moment, unless
// the opening is busy.
func (o *opening) LookForRest() bool {
	o.rests.Add(1)
	if o.busy.Load() {
		return false
	}
	if rev, _, due := o.space.RestDue(); due {
		_ = o.space.Rested(rev) // the next sign of life says so
	}
	return false
}

// Recovery implements supervisor.Sessions.
func (o *opening) Recovery() recovery.Options {
	return recovery.Options{Space: o.space, By: o.space.Recoverer(), Term: int64(o.term), Settle: o.Settle}
}

// RenewAll implements supervisor.Sessions.
func (o *opening) RenewAll(now int64) error {
	o.renewals.Add(1)
	return o.space.Renew(now+int64(o.term), o.ids...)
}

// Prolong implements supervisor.Sessions.
func (o *opening) Prolong(now int64) {
	o.prolonged.Add(1)
	o.space.Prolong(now+int64(o.term), o.ids...)
}

// CompleteVerdicts implements supervisor.Sessions.
func (o *opening) CompleteVerdicts() error { return nil }

// Plenty implements supervisor.Sessions.
func (o *opening) Plenty() { o.plenties.Add(1) }

// deaf is a fabric on which nothing is heard of a blade.
type deaf struct {
	rdma.Fabric
	blade atomic.Int32                // -1: none
	hosts atomic.Bool                 // it is between hosts, and the blade refuses to talk
	keeps atomic.Pointer[func() bool] // called before each request of the keeper, until it reports true
}

type deafPort struct {
	rdma.Port
	f      *deaf
	keeper bool
}

func (f *deaf) NewPort(cfg rdma.PortConfig) (rdma.Port, error) {
	p, err := f.Fabric.NewPort(cfg)
	return &deafPort{p, f, cfg.Index == keeper}, err
}

func (p *deafPort) Post(b *rdma.Batch, first int) {
	if fn := p.f.keeps.Load(); p.keeper && fn != nil && (*fn)() {
		p.f.keeps.Store(nil)
	}
	p.Port.Post(b, first)
}

func (p *deafPort) Reset(b rdma.BladeID) error {
	if int32(b) == p.f.blade.Load() {
		if p.f.hosts.Load() {
			return fmt.Errorf("%w: %w", rdma.ErrBladeDown, refusal{})
		}
		return fmt.Errorf("%w: %w", rdma.ErrBladeDown, rdma.ErrSilent)
	}
	return p.Port.Reset(b)
}

// Caps implements rdma.Fabric.
func (f *deaf) Caps() rdma.Caps {
	c := f.Fabric.Caps()
	c.Remote = f.hosts.Load()
	return c
}

// refusal is what a blade says that does not talk to this process.
type refusal struct{}

func (refusal) Error() string           { return "the certificate has expired" }
func (refusal) Evidence() rdma.Evidence { return rdma.Alive }

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// await waits until something is so.
func (o *opening) await(what string, so func() bool) {
	o.t.Helper()
	for from := time.Now(); !so(); time.Sleep(time.Millisecond) {
		if time.Since(from) > time.Minute {
			o.t.Fatalf("not after a minute: %s: %+v", what, o.Redundancy())
		}
	}
}

// whole reports whether every segment has all of its copies.
func (o *opening) whole() bool {
	r := o.Redundancy()
	return r.Missing+r.Building+r.Lost == 0
}
