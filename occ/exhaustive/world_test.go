package exhaustive

import (
	"testing"

	"txnode/history"
	"txnode/index/blink"
	"txnode/index/race"
	"txnode/index/tree"
	"txnode/memory"
	"txnode/memory/catalog"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/occ"
	"txnode/rdma"
	"txnode/rdma/steptest"
	"txnode/verify"
)

const (
	blades     = 3
	bladeSize  = 8 << 20
	segment    = 256 << 10
	logArea    = 64 << 10
	arena      = 640 << 10
	cacheBytes = 64 << 10
)

// world is a database that can be put back to its beginning.
type world struct {
	t    testing.TB
	conf config
	f    *steptest.Fabric

	begin    *catalog.Mem
	initial  []history.Txn
	contents map[string]string
	// judged is what became of states of the memory that have been walked before.
	judged  map[uint64]verdict
	summary verify.Summary // of the last walk

	// pardon tells findings that are known; pardoned counts them.
	pardon   func(verify.Finding) bool
	pardoned int

	loaders []*client // while the database is made

	// Of the present run:
	cat   *catalog.Mem
	space *memory.Space
	ctl   *rdma.Thread
	rec   *history.Recorder
	tick  int64
	next  int
	free  []memory.FreeBlock // room for owned
}

// newWorld makes a database with the records that load puts, and remembers it.
func newWorld(t testing.TB, c config, load func(s *client) error) *world {
	t.Helper()
	if c.groups == 0 {
		c.groups = 8
	}
	w := &world{t: t, conf: c, judged: map[uint64]verdict{}}
	w.f = steptest.New(steptest.Options{Blades: blades, Size: bladeSize, Caps: c.caps})
	w.cat, w.rec = &catalog.Mem{}, &history.Recorder{}
	w.open()
	w.createTable()
	for range c.ahead {
		x, err := w.space.NewExtent(w.ctl.Plain(), 1)
		if err == nil {
			_, err = w.space.FreeExtent(x)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	w.createIndex()
	for _, n := range []int{1, 100, 200} { // as in ops
		w.spread(n)
	}
	for range blades {
		s := w.client()
		s.warm()
		w.loaders = append(w.loaders, s)
	}
	if err := load(w.loaders[0]); err != nil {
		t.Fatal(err)
	}
	for _, s := range w.loaders {
		if err := s.session.Close(); err != nil {
			t.Fatal(err)
		}
	}
	w.loaders = nil
	if err := w.space.Close(w.ctl.Plain()); err != nil {
		t.Fatal(err)
	}
	w.initial = w.rec.Txns()
	w.begin = w.cat.Clone()
	w.f.Save()
	return w
}

// spread takes blocks for values of a length until there are segments of them with primaries on
// every blade, each in use: there comes to be another one when there is something in those that
// there are. Blocks that an allocator takes at a time are on one blade, those that the next one
// takes on the next.
func (w *world) spread(length int) {
	w.t.Helper()
	c := w.ctl.Plain()
	class, ok := record.ClassFor(8, length)
	if !ok {
		w.t.Fatalf("no block has room for %d bytes", length)
	}
	taker, err := w.space.NewAllocator(w.ctl)
	for on, n := map[rdma.BladeID]bool{}, 0; err == nil && len(on) < blades; n++ {
		var a layout.Addr
		if a, err = taker.Alloc(c, class); err == nil {
			on[w.space.View().At(a, 0).Blade] = true
		}
		if n == blades*segment/int(class.Size()) {
			w.t.Fatalf("after %d blocks of %d bytes, primaries are on %d blades of %d",
				n, class.Size(), len(on), blades)
		}
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// scatter runs ops one after the other, each of a client of its own in turn: what is put
// one after the other has its primaries on different blades.
func (s *client) scatter(ops ...op) error {
	for i, o := range ops {
		if err := s.w.loaders[i%blades].do(o); err != nil {
			return err
		}
	}
	return nil
}

// open attaches to the database.
func (w *world) open() {
	var err error
	w.ctl, err = rdma.NewThread(w.f, rdma.ThreadOptions{Index: 99, Arena: arena})
	if err == nil {
		w.space, err = memory.Open(w.ctl.Plain(), w.f, w.cat,
			memory.Options{Backups: w.conf.backups, SegmentSize: segment, LogArea: logArea})
	}
	if err != nil {
		w.t.Fatal(err)
	}
	w.next = 0
}

// restart begins another run, from the beginning.
func (w *world) restart() {
	w.f.Restore()
	w.cat = w.begin.Clone()
	w.rec, w.tick = &history.Recorder{}, 1<<20
	w.open()
}

// look remembers what the keys hold in the beginning.
func (w *world) look(keys []string) {
	w.t.Helper()
	w.restart()
	w.contents = w.content(w.client(), keys)
}

// client is a coordinator: a process of its own, but for the space.
type client struct {
	w       *world
	c       *rdma.Coro
	session *occ.Session
	tx      *occ.Tx
	table   *occ.Table
	counted bool          // what runs is an attempt
	told    []error       // by attempt: what Commit, or the step that failed, said
	ids     []record.TxID // of the attempts, by the same number
	run     *steptest.Client
}

// client makes one, synchronously.
func (w *world) client() *client {
	w.t.Helper()
	th, err := rdma.NewThread(w.f, rdma.ThreadOptions{Index: w.next, Arena: arena})
	if err != nil {
		w.t.Fatal(err)
	}
	w.next++
	s := &client{w: w, c: th.Plain()}
	s.table = w.table(s.c)
	eng := occ.NewEngine(w.space, occ.Options{
		Policy: w.conf.policy, ReadBackups: w.conf.readBackups,
		CacheBytes: cacheBytes, ReclaimAfter: w.conf.reclaim, Damaged: w.damaged,
	})
	if s.session, err = eng.NewSession(th); err == nil {
		s.tx, err = s.session.NewTx(s.c)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	s.tx.Record(w.rec.Session(), func() int64 { w.tick++; return w.tick })
	return s
}

// createTable notes the table in the catalog.
func (w *world) createTable() {
	w.t.Helper()
	var err error
	if w.conf.entries == 0 {
		_, err = w.space.CreateTable("t", []byte("{}"))
	} else {
		nodes, maxKey := w.geometry().Class, w.geometry().MaxKey
		if w.conf.hashed {
			nodes, maxKey = tree.LeafClass, 0
		}
		_, err = w.space.CreateNodesTable("t", []byte("{}"), nodes, maxKey, nil)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// geometry is that of an ordered table's nodes.
func (w *world) geometry() blink.Geometry {
	g, err := blink.Geometry{MaxKey: 16, MaxEntries: w.conf.entries}.Fit()
	if err != nil {
		w.t.Fatal(err)
	}
	return g
}

// createIndex makes the table's index.
func (w *world) createIndex() {
	w.t.Helper()
	var root layout.Addr
	var err error
	if w.conf.entries == 0 {
		root, _, err = race.Create(w.ctl.Plain(), w.space, 1, race.Options{Groups: w.conf.groups, MaxDepth: 6})
	} else {
		eng := occ.NewEngine(w.space, occ.Options{CacheBytes: cacheBytes})
		var s *occ.Session
		var tx *occ.Tx
		if s, err = eng.NewSession(w.ctl); err == nil {
			tx, err = s.NewTx(w.ctl.Plain())
		}
		nodes, empty := w.geometry().Class, tree.Empty
		if w.conf.hashed {
			nodes, empty = tree.LeafClass, tree.EmptyHashed
		}
		if err == nil {
			root, err = tx.NewNodes(&occ.Table{ID: 1, Name: "t"}, nodes, empty)
		}
		if err == nil {
			err = s.Close()
		}
	}
	if err == nil {
		err = w.space.SetTableRoot(1, root)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// table is a handle on the table.
func (w *world) table(c *rdma.Coro) *occ.Table {
	w.t.Helper()
	t := &occ.Table{ID: 1, Name: "t"}
	var err error
	if w.conf.entries == 0 {
		t.Index, err = race.Open(c, w.space, w.root(), 1)
	} else {
		ts, _ := w.space.Tables()
		var ix *tree.Tree
		ix, err = tree.Open(w.space, &ts[0], tree.Options{MaxEntries: w.conf.entries, Leaves: 64})
		t.Ordered, t.Hashed = ix, w.conf.hashed
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return t
}

func (w *world) root() layout.Addr {
	ts, err := w.space.Tables()
	if err != nil || len(ts) != 1 {
		w.t.Fatal(err, ts)
	}
	return ts[0].Root
}

// schedule is the moves of a run.
type schedule = steptest.Schedule
