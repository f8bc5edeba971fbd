package orders

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"txnode/memory"
	"txnode/memory/catalog"
	"txnode/memory/layout"
	"txnode/memory/members"
	"txnode/rdma"
	"txnode/rdma/steptest"
	"txnode/txn"
)

const (
	bladeSize   = 4 << 20
	segmentSize = 256 << 10
	logArea     = 16 << 10
	arena       = 1 << 20
)

// far is a time at which every lease has ended.
const far = int64(1) << 60

// caps are those of the fabric.
var caps = rdma.Caps{Placed: true, OrderedLine: true, MaskedCAS: true}

// kind is a kind of database, in its beginning.
type kind struct {
	blades int
	open   bool // both processes have it open
	blank  bool // there is none yet
	make   func(w *world, db *txn.DB) error
	// acknowledges: a process tells the other one that it knows the epoch in which a blade was
	// declared dead, also when it has ended
	acknowledges bool
	// remote: a blade that does not answer one process may serve the other one. There is a witness
	// then, which hears all.
	remote bool
}

// world is a database that can be put back to its beginning, and two processes.
type world struct {
	t     testing.TB
	kind  kind
	f     *steptest.Fabric
	begin *catalog.Mem

	// Of the present run:
	cat    *catalog.Mem
	procs  [2]*process
	orders map[rdma.BladeID]map[rdma.Key]int // in which keys were granted
	floor  map[rdma.BladeID]int              // no verb under an earlier key is executed any more
	wrong  error                             // the first thing that must not be
	acked  map[uint64]uint64
	unsure map[uint64][]uint64
	// added is how often adds was acknowledged, and maybe how often its outcome was unknown.
	added, maybe uint64
}

// process is one of the two.
type process struct {
	w    *world
	n    int // 1 or 2
	fab  *view
	db   *txn.DB
	run  *steptest.Client
	errs []error // of what it did
	got  []handed
	// since is the epoch in which it was declared dead last: what it was handed out before may be
	// handed out to others
	since layout.Epoch
	ctl   *rdma.Thread
	alloc *memory.Allocator
}

// newWorld makes a database.
func newWorld(t testing.TB, k kind) *world {
	t.Helper()
	w := &world{t: t, kind: k}
	can := caps
	can.Remote = k.remote
	w.f = steptest.New(steptest.Options{Blades: k.blades, Size: bladeSize, Caps: can, Control: true, Wakes: true})
	w.cat = &catalog.Mem{}
	w.fresh()
	if !k.blank {
		db, err := w.open(0)
		if err == nil && k.make != nil {
			err = k.make(w, db)
		}
		if err == nil {
			err = db.Close(context.Background())
		}
		if err == nil {
			w.begin = w.cat.Clone()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	w.f.Save()
	return w
}

// fresh forgets what the run before has come to.
func (w *world) fresh() {
	w.orders, w.floor = map[rdma.BladeID]map[rdma.Key]int{}, map[rdma.BladeID]int{}
	w.acked, w.unsure, w.wrong = map[uint64]uint64{}, map[uint64][]uint64{}, nil
	w.added, w.maybe = 0, 0
	w.f.Done = w.executed
}

// restart begins another run.
func (w *world) restart() {
	w.f.Restore()
	w.cat = &catalog.Mem{}
	if w.begin != nil {
		w.cat = w.begin.Clone()
	}
	w.fresh()
	for i := range w.procs {
		w.procs[i] = w.process(i + 1)
		if w.kind.open {
			if err := w.procs[i].open(); err != nil {
				w.t.Fatal(err)
			}
		}
	}
}

// process is a new one.
func (w *world) process(n int) *process { return &process{w: w, n: n, fab: &view{w.f, w, n}} }

// open opens the database in a process; 0: one beside the two.
func (w *world) open(n int) (*txn.DB, error) {
	p := w.process(n)
	err := p.open()
	return p.db, err
}

func (p *process) open() (err error) {
	w, backups := p.w, 1
	p.db, err = txn.Open(context.Background(), txn.Options{
		Fabric: p.fab, Catalog: &handle{w.cat, w.f, w}, Shared: true, Backups: &backups,
		SegmentSize: segmentSize, LogArea: logArea,
		Arena: arena, CacheBytes: 16 << 10, IndexGroups: 4, Workers: 1, Retries: 20, LeaseTerm: time.Hour,
		WorkerWait: -1, Seed: uint64(p.n) + 1,
		ReclaimAfter: 1, Techniques: &rdma.Techniques{},
	})
	return err
}

// start begins what a process does, and what it hears of the catalog meanwhile.
func (p *process) start(watches int, steps ...func(p *process) error) {
	w := p.w
	p.run = w.f.GoIn(p.n, func() {
		w.f.Step("begins", func(to []steptest.Access) []steptest.Access { return to })
		for _, step := range steps {
			err := step(p)
			if p.errs = append(p.errs, err); err == nil && p.db != nil {
				w.fenced(p.db)
			}
		}
	})
	w.f.GoIn(p.n, func() {
		for range watches {
			rev := layout.Revision(0)
			w.f.Rest("watch", func() bool {
				return p.db != nil && !p.run.Ended() && revision(w.cat) > rev
			}, readsCatalog)
			rev = revision(w.cat)
			_ = p.db.Space().Follow() // the next one says it
		}
	})
	if !w.kind.acknowledges {
		return
	}
	w.f.GoIn(p.n, func() {
		for epoch := layout.Epoch(0); ; { // until the run ends
			w.f.Rest("acknowledge", func() bool {
				is, err := layout.LoadLayout(w.cat)
				return err == nil && p.db != nil && is.Epoch > epoch && slices.ContainsFunc(is.Coordinators,
					func(c layout.CoordinatorEntry) bool { return c.Promoted })
			}, readsCatalog)
			if err := p.db.Space().Follow(); err == nil && p.db.Space().Acknowledge() == nil {
				epoch = p.db.Space().Layout().Epoch
			}
		}
	})
}

func revision(c *catalog.Mem) layout.Revision {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	rev, _ := c.Await(ctx, 0)
	return rev
}

// view is the fabric as a process has it.
type view struct {
	*steptest.Fabric
	w *world
	n int
}

// Seed is another one for each process.
func (v *view) Seed() uint64 { return uint64(v.n) + 1 }

// Grant notes the order of keys.
func (v *view) Grant(b rdma.BladeID) (rdma.Key, error) {
	k, err := v.Fabric.Grant(b)
	if err == nil {
		if v.w.orders[b] == nil {
			v.w.orders[b] = map[rdma.Key]int{}
		}
		v.w.orders[b][k] = len(v.w.orders[b]) + 1
	}
	return k, err
}

// executed is told of each request that takes effect.
func (w *world) executed(c *steptest.Client, r *rdma.WR) {
	if n := w.orders[r.Blade][r.Key]; n < w.floor[r.Blade] && w.wrong == nil {
		w.wrong = fmt.Errorf("%v at %#x of blade %d under a key that has ended", r.Op, r.Off, r.Blade)
	}
}

// fenced notes that a process has done something in its epoch: no verb under a key older than its
// own is executed any more.
func (w *world) fenced(db *txn.DB) {
	v := db.Space().View()
	for b := range rdma.BladeID(w.kind.blades) {
		if v.Up(b) {
			w.floor[b] = max(w.floor[b], w.orders[b][v.Key(b)])
		}
	}
}

// Of what is outside of the fabric.
const (
	catalogRealm = iota
	signsRealm   // signs of life, which the catalog has beside its changes
)

func readsCatalog(to []steptest.Access) []steptest.Access {
	return append(to, steptest.Access{What: steptest.Outside, Off: catalogRealm, N: 1})
}

// handle is the catalog as a process has it: each call is a step.
type handle struct {
	*catalog.Mem
	f *steptest.Fabric
	w *world
}

func (h *handle) Load() ([]layout.Entry, layout.Revision, error) {
	h.f.Step("load", readsCatalog)
	return h.Mem.Load()
}

func (h *handle) Apply(rev layout.Revision, changes []layout.Entry) (layout.Revision, error) {
	h.f.Step("apply", func(to []steptest.Access) []steptest.Access {
		to = readsCatalog(to)
		to[len(to)-1].Writes = revision(h.Mem) == rev
		return to
	})
	was, _ := layout.LoadLayout(h.Mem)
	now, err := h.Mem.Apply(rev, changes)
	if is, e := layout.LoadLayout(h.Mem); err == nil && h.w.wrong == nil && was != nil {
		if e == nil {
			e = is.Validate()
		}
		h.w.wrong = errors.Join(e, decided(was, is))
	}
	return now, err
}

// decided demands that with a blade that is declared dead, and a primary that is dropped, all
// coordinators are: they may have locks there.
func decided(was, is *layout.Layout) error {
	lost := false
	for b := range was.Blades {
		lost = lost || was.Blades[b].State == layout.BladeUp && is.Blades[b].State == layout.BladeDown
	}
	for id := range was.Segments {
		x, y := was.Segments[id].Placement, is.Segments[id].Placement
		lost = lost || x.N > 0 && y.N > 0 && x.Replicas[0] != y.Replicas[0]
	}
	for _, c := range is.Coordinators {
		if lost && !c.Recovering {
			return fmt.Errorf("primaries are lost in epoch %d, and the transactions of coordinator %d are not decided",
				is.Epoch, c.ID)
		}
	}
	return nil
}

func (h *handle) Revision() (layout.Revision, error) {
	h.f.Step("revision", readsCatalog)
	return h.Mem.Revision()
}

// KeepAlive is a step of its own: it is no change of the catalog.
func (h *handle) KeepAlive(b layout.Beat) ([]layout.Beat, error) {
	h.f.Step("keep alive", func(to []steptest.Access) []steptest.Access {
		return append(to, steptest.Access{What: steptest.Outside, Off: signsRealm, N: 1, Writes: b.Member != 0},
			steptest.Access{What: steptest.Outside, Off: catalogRealm, N: 1})
	})
	return h.Mem.KeepAlive(b)
}

// witnesses has the witness answer each question of a process: it hears all blades.
func (w *world) witnesses() {
	cat := &handle{w.cat, w.f, w}
	w.f.GoIn(len(w.procs)+1, func() {
		for { // until the run ends
			w.f.Rest("asked", func() bool {
				l, err := layout.LoadLayout(w.cat)
				return err == nil && len(w.inQuestion(l)) > 0
			}, readsCatalog)
			l, rev, err := layout.Load(cat)
			if err != nil {
				continue
			}
			if changes := members.Testify(l, w.inQuestion(l), false); len(changes) > 0 {
				_, _ = cat.Apply(rev, changes) // it looks again
			}
		}
	})
}

// inQuestion are the blades that a process asks about, which the witness hears.
func (w *world) inQuestion(l *layout.Layout) map[rdma.BladeID]layout.Says {
	found := map[rdma.BladeID]layout.Says{}
	for b := range rdma.BladeID(w.kind.blades) {
		if members.InQuestion(l, b) {
			found[b] = layout.Hears
		}
	}
	return found
}

// Steps of processes.

func opens(p *process) error { return p.open() }

func closes(p *process) error {
	db := p.db
	p.db = nil
	return db.Close(context.Background())
}

// adds counts one more in the key that the database has in its beginning.
func adds(p *process) error {
	t, err := txn.OpenTable(p.db, "t", txn.Uint64, txn.Plain[uint64]())
	if err != nil {
		return err
	}
	err = p.db.Update(context.Background(), func(tx *txn.Tx) error {
		v, err := t.Get(tx, loaded)
		if err != nil {
			return err
		}
		return t.Put(tx, loaded, v+1)
	})
	switch {
	case err == nil:
		p.w.added++
	case errors.Is(err, txn.ErrOutcomeUnknown):
		p.w.maybe++
	}
	return err
}

// puts commits a value of a key.
func puts(key, value uint64) func(p *process) error {
	return func(p *process) error {
		t, err := txn.OpenTable(p.db, "t", txn.Uint64, txn.Plain[uint64]())
		if err == nil {
			err = p.put(t, key, value)
		}
		return err
	}
}

func (p *process) put(t *txn.Table[uint64, uint64], key, value uint64) error {
	p.w.unsure[key] = append(p.w.unsure[key], value)
	err := p.db.Update(context.Background(), func(tx *txn.Tx) error { return t.Put(tx, key, value) })
	switch {
	case err == nil:
		p.w.acked[key] = value
	case !errors.Is(err, txn.ErrOutcomeUnknown):
		p.w.unsure[key] = slices.DeleteFunc(p.w.unsure[key], func(v uint64) bool { return v == value })
	}
	return err
}
