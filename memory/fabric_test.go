package memory_test

import (
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"sync"
	"testing"

	"txnode/memory"
	"txnode/memory/catalog"
	"txnode/memory/layout"
	"txnode/rdma"
	"txnode/rdma/inproc"
)

// fabric wraps the in-process fabric. It can stop at a chosen step, like a
// process that is killed: a work request, a Provision, a Grant or a Revoke beyond it has
// no effect and fails. And it can hold completions back until somebody polls, so
// that coroutines of a thread really take turns.
type fabric struct {
	rdma.Fabric
	stop    *stop
	delayed bool
	full    bool           // nothing can be provisioned
	fullOn  []rdma.BladeID // nor on these
	backing *backing
	before  func(w *rdma.WR)      // if not nil, called for each verb that takes effect
	failing func(w *rdma.WR) bool // if not nil, says which verbs fail without effect
	// granting and revoking, if not nil, are called before a blade does so; an error is its answer.
	granting, revoking func(b rdma.BladeID) error
	// restarts is how often the blades have begun anew, with what is in their files.
	restarts uint64
	// clock, if not nil, is what Now returns.
	clock *int64
	// small are the parts that were said to be used here and there: see rdma.PageAdvisor.
	small []rdma.RemoteAddr
}

func (f *fabric) AdviseHuge([]byte) {}

func (f *fabric) AdviseSmall(b rdma.BladeID, off, _ uint64) {
	f.small = append(f.small, rdma.RemoteAddr{Blade: b, Off: off})
}

func (f *fabric) Now() int64 {
	if f.clock != nil {
		return *f.clock
	}
	return f.Fabric.Now()
}

func (f *fabric) Blades() []rdma.BladeInfo {
	infos := f.Fabric.Blades()
	for i := range infos {
		infos[i].Incarnation += f.restarts
	}
	return infos
}

// stop counts down to the step at which everything stops; nil never does.
type stop struct {
	left  int // steps that still take effect
	taken int
	// status is that of the others; rdma.StatusOK: StatusNoBlade.
	status rdma.Status
}

var errStopped = errors.New("stopped")

// step reports whether the next step still takes effect.
func (s *stop) step() bool {
	if s == nil {
		return true
	}
	if s.left == 0 {
		return false
	}
	s.left--
	s.taken++
	return true
}

func (f *fabric) Caps() rdma.Caps {
	c := f.Fabric.Caps()
	c.Synchronous = !f.delayed
	return c
}

func (f *fabric) Provision(b rdma.BladeID, off, n uint64) error {
	if !f.stop.step() {
		return errStopped
	}
	if f.full || slices.Contains(f.fullOn, b) {
		return rdma.ErrNoMemory
	}
	if !f.backing.add(b, off, n) {
		return rdma.ErrNoMemory
	}
	return f.Fabric.Provision(b, off, n)
}

// backing is which pages were provisioned. A blade may be written nowhere else.
type backing struct {
	tb    testing.TB
	mu    sync.Mutex
	pages map[[2]uint64]bool
	calls int
	most  int // calls that succeed, and no other does; 0: all
}

const page = 4096

func (k *backing) add(b rdma.BladeID, off, n uint64) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.calls++; k.most > 0 && k.calls > k.most {
		return false
	}
	for p := off / page; p*page < off+n; p++ {
		k.pages[[2]uint64{uint64(b), p}] = true
	}
	return true
}

// forget is what a blade does that has lost its memory.
func (k *backing) forget(b rdma.BladeID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	maps.DeleteFunc(k.pages, func(p [2]uint64, _ bool) bool { return p[0] == uint64(b) })
}

// of is how many bytes of a blade were provisioned.
func (k *backing) of(b rdma.BladeID) (n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for p := range k.pages {
		if p[0] == uint64(b) {
			n += page
		}
	}
	return n
}

// check fails the test if a request that has succeeded wrote where no memory is.
func (k *backing) check(w *rdma.WR) {
	n := uint64(8)
	switch w.Op {
	case rdma.OpRead, rdma.OpFlush:
		return
	case rdma.OpWrite:
		n = uint64(w.Len)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for p := w.Off / page; p*page < w.Off+n; p++ {
		if !k.pages[[2]uint64{uint64(w.Blade), p}] {
			k.tb.Errorf("%v of [%#x, +%#x) of blade %d, where no memory was provisioned", w.Op, w.Off, n, w.Blade)
			return
		}
	}
}

func (f *fabric) Grant(b rdma.BladeID) (rdma.Key, error) {
	if !f.stop.step() {
		return 0, errStopped
	}
	if f.granting != nil {
		if err := f.granting(b); err != nil {
			return 0, err
		}
	}
	return f.Fabric.Grant(b)
}

func (f *fabric) Revoke(b rdma.BladeID, before rdma.Key) error {
	if !f.stop.step() {
		return errStopped
	}
	if f.revoking != nil {
		if err := f.revoking(b); err != nil {
			return err
		}
	}
	return f.Fabric.Revoke(b, before)
}

func (f *fabric) NewPort(c rdma.PortConfig) (rdma.Port, error) {
	t, err := rdma.NewThread(f.Fabric, rdma.ThreadOptions{Index: c.Index, Arena: c.Arena})
	return &port{f: f, t: t, size: uint32(c.Arena)}, err
}

// port executes requests one by one on a thread of the wrapped fabric, whose
// arena it lends.
type port struct {
	f    *fabric
	t    *rdma.Thread
	size uint32
	held []completion
}

func (p *port) Now() int64                 { return p.t.Now() }
func (p *port) Arena() []byte              { return p.t.Bytes(0, p.size) }
func (p *port) Reset(b rdma.BladeID) error { return p.t.Reconnect(b) }
func (p *port) Close() error               { return p.t.Close() }

type completion struct {
	b *rdma.Batch
	i int
	s rdma.Status
}

func (p *port) Post(b *rdma.Batch, first int) {
	for i := first; i < b.Len(); i++ {
		s := rdma.StatusNoBlade
		if p.f.failing != nil && p.f.failing(b.WR(i)) {
			s = rdma.StatusFlushed
		} else if p.f.stop.step() {
			s = p.one(b.WR(i))
		} else if p.f.stop.status != rdma.StatusOK {
			s = p.f.stop.status
		}
		if p.f.delayed {
			p.held = append(p.held, completion{b, i, s})
		} else {
			b.Complete(i, s)
		}
	}
}

// one executes a single request in a batch of its own.
func (p *port) one(w *rdma.WR) rdma.Status {
	var b rdma.Batch
	a := rdma.RemoteAddr{Blade: w.Blade, Key: w.Key, Off: w.Off}
	if p.f.before != nil {
		p.f.before(w)
	}
	switch w.Op {
	case rdma.OpRead:
		b.Read(a, w.Local, w.Len)
	case rdma.OpWrite:
		b.Write(a, w.Local, w.Len)
	case rdma.OpCAS:
		b.CAS(a, w.Cmp, w.Swap)
	case rdma.OpFAA:
		b.FAA(a, w.Swap)
	case rdma.OpFlush:
		b.Flush(a, w.Len)
	default:
		return rdma.StatusBadOp
	}
	_ = p.t.Plain().Do(&b)
	w.Result = b.Result(0)
	if b.WR(0).Status == rdma.StatusOK {
		p.f.backing.check(w)
	}
	return b.WR(0).Status
}

func (p *port) release() {
	held := p.held
	p.held = nil
	for _, c := range held {
		c.b.Complete(c.i, c.s)
	}
}

func (p *port) Poll() { p.release() }

func (p *port) Wait(until int64) {
	if len(p.held) == 0 && until != math.MaxInt64 {
		p.t.Plain().Sleep(until - p.Now())
	}
	p.release()
}

// cat wraps a catalog: it stops like the fabric, and can claim to have failed.
type cat struct {
	layout.Catalog
	stop *stop
	// awaited, if not nil, is called when the catalog is asked for its revision.
	awaited func()
	// loaded, if not nil, is called before what was loaded is handed out.
	loaded func()
	// applying, if not nil, is called before a change.
	applying func()
	// fail makes Apply fail; when also lie is set, after having made the change.
	fail, lie bool
	// deaf makes all questions fail.
	deaf bool
	// failed, if not nil, is called after an Apply that has failed so.
	failed func()
	// A change that is not made while late is set is made before so many more are asked for.
	late   bool
	slow   *slowChange
	behind int
}

type slowChange struct {
	rev     layout.Revision
	changes []layout.Entry
}

// arrive makes a change that was late, if it still can be made.
func (c *cat) arrive() {
	if c.slow == nil {
		return
	}
	if c.behind--; c.behind <= 0 {
		_, _ = c.Catalog.Apply(c.slow.rev, c.slow.changes)
		c.slow = nil
	}
}

func (c *cat) Apply(rev layout.Revision, changes []layout.Entry) (layout.Revision, error) {
	if !c.stop.step() {
		return 0, errStopped
	}
	if c.applying != nil {
		c.applying()
	}
	c.arrive()
	if !c.fail {
		return c.Catalog.Apply(rev, changes)
	}
	if c.lie {
		if _, err := c.Catalog.Apply(rev, changes); err != nil {
			return 0, err
		}
	} else if c.late && c.slow == nil {
		c.slow = &slowChange{rev, slices.Clone(changes)}
	}
	if c.failed != nil {
		c.failed()
	}
	return 0, errStopped
}

func (c *cat) Revision() (layout.Revision, error) {
	if c.awaited != nil {
		c.awaited()
	}
	if c.unheard() {
		return 0, errStopped
	}
	return c.Catalog.Revision()
}

func (c *cat) Await(ctx context.Context, rev layout.Revision) (layout.Revision, error) {
	if c.unheard() {
		return 0, errStopped
	}
	return c.Catalog.Await(ctx, rev)
}

// unheard reports whether nothing is heard of the catalog.
func (c *cat) unheard() bool { return c.deaf || c.stop != nil && c.stop.left == 0 }

func (c *cat) Load() ([]layout.Entry, layout.Revision, error) {
	if c.unheard() {
		return nil, 0, errStopped
	}
	c.arrive()
	if c.loaded != nil {
		defer c.loaded()
	}
	return c.Catalog.Load()
}

// bed is blades and a catalog to attach spaces to, again and again.
type bed struct {
	tb      testing.TB
	inner   *inproc.Fabric
	fabric  *fabric
	cat     *cat
	threads []*rdma.Thread
	opts    memory.Options
}

const (
	testSegment = 256 << 10
	testLog     = 64 << 10
)

// newBed makes blades that hold so many segments each.
func newBed(tb testing.TB, blades, segments, backups int) *bed {
	tb.Helper()
	var o inproc.Options
	o.Seed = 1
	for range blades {
		o.Blades = append(o.Blades, inproc.BladeOptions{Size: layout.HeaderArea + uint64(segments)*testSegment})
	}
	f, err := inproc.New(o)
	if err != nil {
		tb.Fatal(err)
	}
	b := &bed{tb: tb, inner: f, cat: &cat{Catalog: &catalog.Mem{}},
		opts: memory.Options{
			Backups: backups, SegmentSize: testSegment, LogArea: testLog, Parts: true, UUID: layout.UUID{15: 1},
		}}
	b.fabric = &fabric{Fabric: f, backing: &backing{tb: tb, pages: map[[2]uint64]bool{}}}
	tb.Cleanup(func() {
		b.dropThreads()
		if err := f.Close(); err != nil {
			tb.Error(err)
		}
	})
	return b
}

func (b *bed) dropThreads() {
	for _, t := range b.threads {
		if err := t.Close(); err != nil {
			b.tb.Error(err)
		}
	}
	b.threads = nil
}

func (b *bed) thread() *rdma.Thread {
	b.tb.Helper()
	t, err := rdma.NewThread(b.fabric, rdma.ThreadOptions{Arena: 1 << 20, Index: len(b.threads)})
	if err != nil {
		b.tb.Fatal(err)
	}
	b.threads = append(b.threads, t)
	return t
}

// open attaches a space on a thread of its own.
func (b *bed) open() (*memory.Space, *rdma.Coro) {
	b.tb.Helper()
	c := b.thread().Plain()
	s, err := memory.Open(c, b.fabric, b.cat, b.opts)
	if err != nil {
		b.tb.Fatal(err)
	}
	check(b.tb, s.EndAlone())
	return s, c
}

// crash forgets the space and all threads, and lets a stopped fabric go on. Blades that
// are files of the process begin anew with the next one.
func (b *bed) crash() {
	b.dropThreads()
	b.fabric.stop, b.cat.stop = nil, nil
	if b.opts.Openings {
		b.fabric.restarts++
	}
}

func (b *bed) allocator(s *memory.Space, c *rdma.Coro) *memory.Allocator {
	b.tb.Helper()
	a, err := s.NewAllocator(c.Thread())
	if err != nil {
		b.tb.Fatal(err)
	}
	return a
}

// class is the smallest class for n bytes.
func class(n uint32) layout.Class {
	c, ok := layout.ClassOf(n)
	if !ok {
		panic("no class")
	}
	return c
}

func must[T any](v T, err error) func(testing.TB) T {
	return func(tb testing.TB) T {
		tb.Helper()
		if err != nil {
			tb.Fatal(err)
		}
		return v
	}
}

func check(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// write puts p at an address, on all replicas.
func write(tb testing.TB, s *memory.Space, c *rdma.Coro, a layout.Addr, p []byte) {
	tb.Helper()
	t := c.Thread()
	buf := must(t.Alloc(len(p)))(tb)
	defer t.Free(buf, len(p))
	copy(t.Bytes(buf, uint32(len(p))), p)
	v := s.View()
	var b rdma.Batch
	for i := range v.Copies(a) {
		b.Write(v.At(a, i), buf, uint32(len(p)))
	}
	check(tb, c.Do(&b))
}

// read gets n bytes of one copy.
func read(tb testing.TB, c *rdma.Coro, a rdma.RemoteAddr, n int) []byte {
	tb.Helper()
	t := c.Thread()
	buf := must(t.Alloc(n))(tb)
	defer t.Free(buf, n)
	var b rdma.Batch
	b.Read(a, buf, uint32(n))
	check(tb, c.Do(&b))
	return append([]byte(nil), t.Bytes(buf, uint32(n))...)
}

func isZero(p []byte) bool {
	for _, x := range p {
		if x != 0 {
			return false
		}
	}
	return true
}
