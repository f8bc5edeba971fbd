package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"txnode/cluster"
	"txnode/memory"
	"txnode/memory/catalog"
	"txnode/memory/catalog/remote"
	"txnode/memory/layout"
	"txnode/rdma"
	"txnode/rdma/region"
	"txnode/rdma/tcp"
	"txnode/txn"
)

// bed is a directory for sockets, and what is served there.
type bed struct {
	t     *testing.T
	dir   string
	seeds uint64
}

func newBed(t *testing.T) *bed {
	t.Helper()
	dir, err := os.MkdirTemp("", "cluster") //nolint:usetesting // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return &bed{t: t, dir: dir}
}

func (b *bed) address(name string) string { return "unix:" + filepath.Join(b.dir, name) }

// listen serves what a server has on sockets until the test ends, or until stop.
func (b *bed) listen(s *tcp.Server, set *region.Set, names ...string) (stop func()) {
	b.t.Helper()
	served := make(chan error, len(names))
	for _, name := range names {
		l, err := net.Listen("unix", filepath.Join(b.dir, name))
		if err != nil {
			b.t.Fatal(err)
		}
		go func() {
			err := s.Serve(l)
			if errors.Is(err, rdma.ErrClosed) { // stop was faster
				err = nil
			}
			served <- err
		}()
	}
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		err := s.Shutdown(context.Background())
		for range names {
			err = errors.Join(err, <-served)
		}
		if set != nil {
			err = errors.Join(err, set.Close())
		}
		if err != nil {
			b.t.Error(err)
		}
	}
	b.t.Cleanup(stop)
	return stop
}

// blades serves blades of sizes on a socket, or several.
func (b *bed) blades(sizes []uint64, names ...string) (stop func()) {
	b.t.Helper()
	b.seeds++
	var all []region.Options
	for _, size := range sizes {
		all = append(all, region.Options{Size: size})
	}
	set, err := region.New(region.Config{Regions: all, Seed: b.seeds})
	if err != nil {
		b.t.Fatal(err)
	}
	s, err := tcp.NewServer(set, tcp.ServerOptions{})
	if err != nil {
		b.t.Fatal(err)
	}
	return b.listen(s, set, names...)
}

// catalog serves a catalog on a socket, and returns a client of it.
func (b *bed) catalog(cat layout.Catalog, name string) *remote.Client {
	b.t.Helper()
	s, err := tcp.NewServer(nil,
		tcp.ServerOptions{Services: map[string]tcp.Service{remote.ServiceName: remote.NewService(cat)}})
	if err != nil {
		b.t.Fatal(err)
	}
	b.listen(s, nil, name)
	return b.client(name)
}

// catalogFile returns what serves the catalog of a file on a socket.
func (b *bed) catalogFile(name string) (serve func() (stop func())) {
	return func() func() {
		b.t.Helper()
		cat, err := catalog.OpenBolt(filepath.Join(b.dir, "catalog.db"), false)
		if err != nil {
			b.t.Fatal(err)
		}
		s, err := tcp.NewServer(nil,
			tcp.ServerOptions{Services: map[string]tcp.Service{remote.ServiceName: remote.NewService(cat)}})
		if err != nil {
			b.t.Fatal(err)
		}
		end := b.listen(s, nil, name)
		return func() {
			end()
			if err := cat.Close(); err != nil {
				b.t.Error(err)
			}
		}
	}
}

// client returns a client of a catalog until the test ends.
func (b *bed) client(name string) *remote.Client {
	b.t.Helper()
	c, err := remote.Dial(b.t.Context(), b.address(name), tcp.Options{})
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() {
		if err := c.Close(); err != nil {
			b.t.Error(err)
		}
	})
	return c
}

// list are addresses of blades on sockets of the directory.
func (b *bed) list(names ...string) (out []cluster.BladeAddress) {
	for _, name := range names {
		out = append(out, cluster.BladeAddress(b.address(name)))
	}
	return out
}

// refused: an error is of a kind, one line, and says something.
func refused(t *testing.T, what string, err, kind error, say string) {
	t.Helper()
	if !errors.Is(err, kind) || !strings.Contains(err.Error(), say) || strings.Contains(err.Error(), "\n") {
		t.Errorf("%s: %v; want %v with %q", what, err, kind, say)
	}
}

const size = 64 << 20

// TestCluster: a process finds blades and catalog by an address and has a database there; the next
// one finds the database.
func TestCluster(t *testing.T) {
	b := newBed(t)
	ctx := t.Context()
	c := b.catalog(&catalog.Mem{}, "c")
	b.blades([]uint64{size, size}, "a")
	b.blades([]uint64{size}, "b")
	if err := cluster.Init(ctx, c, b.list("a", "b"), cluster.Geometry{}, cluster.Options{}); err != nil {
		t.Fatal(err)
	}
	st, err := cluster.Ask(ctx, b.address("c"), cluster.Options{})
	if err != nil || st.Layout == nil || !st.Layout.Shared || len(st.Layout.Tables) > 0 ||
		len(st.Layout.Processes) > 0 || len(st.Servers) != 2 || st.Servers[0].Err != nil ||
		len(st.Servers[0].Blades) != 2 || st.Servers[1].Blades[0] != size || st.Catalog != b.address("c") {
		t.Errorf("%+v, %v", st, err)
	}
	for round := range uint64(3) {
		h, err := cluster.Connect(ctx, b.address("none")+","+b.address("c"), cluster.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if len(h.Servers) != 2 || len(h.Fabric.Blades()) != 3 || h.Catalog.Name() != b.address("c") {
			t.Errorf("%+v", h)
		}
		db, err := txn.Open(ctx, txn.Options{Fabric: h.Fabric, Catalog: h.Catalog, IndexGroups: 64})
		if err != nil {
			t.Fatal(err)
		}
		table, err := txn.CreateTable(db, "words", txn.String, txn.Plain[uint64]())
		if errors.Is(err, memory.ErrTableExists) || round > 0 {
			table, err = txn.OpenTable(db, "words", txn.String, txn.Plain[uint64]())
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := db.Update(ctx, func(tx *txn.Tx) error {
			v, err := table.Get(tx, "hello")
			if errors.Is(err, txn.ErrNotFound) != (round == 0) || err == nil && v != round {
				return fmt.Errorf("%d, %w", v, err)
			}
			return table.Put(tx, "hello", round+1)
		}); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(db.Close(ctx), h.Close()); err != nil {
			t.Fatal(err)
		}
	}
	if st, err = cluster.Ask(ctx, b.address("c"), cluster.Options{}); err != nil || st.Layout == nil ||
		len(st.Layout.Tables) != 1 || len(st.Layout.Blades) != 3 {
		t.Errorf("%+v, %v", st, err)
	}
	refused(t, "Init of a cluster", cluster.Init(ctx, c, b.list("a"), cluster.Geometry{}, cluster.Options{}),
		cluster.ErrExists, "a cluster already")
}

// TestConnectErrors: what is wrong is one line that names it.
func TestConnectErrors(t *testing.T) {
	b := newBed(t)
	ctx := t.Context()
	connect := func(address string) error {
		h, err := cluster.Connect(ctx, address, cluster.Options{TCP: tcp.Options{Connect: 200 * time.Millisecond}})
		if err == nil {
			t.Errorf("%s: connected", address)
			return h.Close()
		}
		return err
	}
	refused(t, "nothing there", connect(b.address("none")), remote.ErrAway, b.address("none"))
	refused(t, "nothing at two addresses", connect(b.address("none")+","+b.address("no")), remote.ErrAway, "/no:")
	refused(t, "no address", connect("here"), cluster.ErrOptions, `"here"`)
	refused(t, "an address of blades", connect("shm:/dev/shm/a"), cluster.ErrOptions, "unix:PATH")

	c := b.catalog(&catalog.Mem{}, "c")
	refused(t, "no cluster", connect(b.address("c")), cluster.ErrNone, "txnode cluster init")
	stopA := b.blades([]uint64{1 << 20}, "a")
	refused(t, "a daemon without a catalog", connect(b.address("a")), tcp.ErrRefused, "no such service")
	stopB := b.blades([]uint64{1 << 20}, "b")
	if err := cluster.Init(ctx, c, b.list("a", "b"), cluster.Geometry{}, cluster.Options{}); err != nil {
		t.Fatal(err)
	}
	stopB()
	stopA()
	refused(t, "no blades", connect(b.address("c")), rdma.ErrBladeDown, b.address("b"))
	st, err := cluster.Ask(ctx, b.address("c"), cluster.Options{})
	if err != nil || len(st.Servers) != 2 {
		t.Fatalf("%+v, %v", st, err)
	}
	for i := range st.Servers {
		refused(t, "status", st.Servers[i].Err, rdma.ErrBladeDown, string(st.Servers[i].Address))
	}
	b.blades([]uint64{1 << 20}, "a")
	stopB = b.blades([]uint64{1 << 20, 1 << 20}, "b")
	refused(t, "more blades", connect(b.address("c")), cluster.ErrOtherBlades,
		b.address("b")+": it has 2 blades, and the catalog says 1")
	stopB()
	stopB = b.blades([]uint64{1 << 19}, "b")
	refused(t, "a smaller blade", connect(b.address("c")), cluster.ErrOtherBlades,
		b.address("b")+": its blade 0 has 524288 bytes, and the catalog says 1048576")
	stopB()
	b.blades([]uint64{1 << 21}, "b") // a larger one is fine
	h, err := cluster.Connect(ctx, b.address("c"), cluster.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}

	m := &catalog.Mem{}
	if _, err := m.Apply(0, []layout.Entry{{Key: "cluster/servers", Value: []byte("[]")}}); err != nil {
		t.Fatal(err)
	}
	b.catalog(m, "d")
	refused(t, "a damaged entry", connect(b.address("d")), cluster.ErrDamaged, b.address("d"))
}

// TestOpenWithoutABlade: a server of blades does not answer when the first process, and a
// further one, opens the database. Its blade is down; when it serves again, blank, the
// blade gets its copies.
func TestOpenWithoutABlade(t *testing.T) {
	b := newBed(t)
	ctx := t.Context()
	c := b.catalog(&catalog.Mem{}, "c")
	b.blades([]uint64{size}, "a")
	stopB := b.blades([]uint64{size}, "b")
	b.blades([]uint64{size}, "d")
	if err := cluster.Init(ctx, c, b.list("a", "b", "d"), cluster.Geometry{SegmentSize: 1 << 20, LogArea: 64 << 10},
		cluster.Options{}); err != nil {
		t.Fatal(err)
	}
	open := func() (*txn.DB, *txn.Table[string, uint64]) {
		db, err := cluster.Open(ctx, b.address("c"), txn.Options{IndexGroups: 64}, cluster.Options{})
		if err != nil {
			t.Fatal(err)
		}
		table, err := txn.CreateTable(db, "words", txn.String, txn.Plain[uint64]())
		if err != nil {
			t.Fatal(err)
		}
		return db, table
	}
	put := func(db *txn.DB, table *txn.Table[string, uint64], v uint64) {
		t.Helper()
		if err := db.Update(ctx, func(tx *txn.Tx) error {
			old, _, err := table.Lookup(tx, "hello")
			if err == nil && old != v-1 {
				err = fmt.Errorf("%d is there, before %d", old, v)
			}
			return errors.Join(err, table.Put(tx, "hello", v))
		}); err != nil {
			t.Fatal(err)
		}
	}
	db, table := open()
	put(db, table, 1)
	if err := db.Close(ctx); err != nil {
		t.Fatal(err)
	}
	stopB()
	db, table = open()
	put(db, table, 2)
	if r := db.Redundancy(); !slices.Equal(r.Down, []rdma.BladeID{1}) {
		t.Errorf("%+v", r)
	}
	other, theirs := open()
	put(other, theirs, 3)
	put(db, table, 4)
	b.blades([]uint64{size}, "b")
	for r := db.Redundancy(); len(r.Down) > 0 || r.Missing > 0; r = db.Redundancy() {
		time.Sleep(time.Millisecond)
	}
	put(other, theirs, 5)
	if err := errors.Join(db.Close(ctx), other.Close(ctx)); err != nil {
		t.Fatal(err)
	}
}

// TestInitErrors: what cannot be a cluster is refused, and nothing is written.
func TestInitErrors(t *testing.T) {
	b := newBed(t)
	ctx := t.Context()
	b.blades([]uint64{1 << 20}, "a", "again")
	m := &catalog.Mem{}
	for _, x := range []struct {
		what      string
		addresses []cluster.BladeAddress
		kind      error
		say       string
	}{
		{"nothing", nil, cluster.ErrOptions, "no addresses"},
		{"one twice", b.list("a", "a"), cluster.ErrOptions, "twice"},
		{"one by two addresses", b.list("a", "again"), cluster.ErrOptions, "the same server"},
		{"no address", []cluster.BladeAddress{"here"}, cluster.ErrOptions, "shm:DIRECTORY/NAME"},
		{"two kinds", append(b.list("a"), "shm:/dev/shm/x/a"), cluster.ErrOptions, "several kinds"},
		{"two directories", []cluster.BladeAddress{"shm:/x/a", "shm:/y/a"}, cluster.ErrOptions, "one directory"},
		{"a directory only", []cluster.BladeAddress{"shm:a"}, cluster.ErrOptions, "shm:DIRECTORY/NAME"},
		{"nothing there", b.list("a", "none"), rdma.ErrBladeDown, b.address("none")},
	} {
		refused(t, x.what, cluster.Init(ctx, m, x.addresses, cluster.Geometry{},
			cluster.Options{TCP: tcp.Options{Connect: 200 * time.Millisecond}}), x.kind, x.say)
	}
	if e, _, err := m.Load(); len(e) > 0 || err != nil {
		t.Errorf("%v, %v", e, err)
	}
	if _, err := m.Apply(0, []layout.Entry{{Key: "geometry", Value: []byte("x")}}); err != nil {
		t.Fatal(err)
	}
	refused(t, "a catalog with a database", cluster.Init(ctx, m, b.list("a"), cluster.Geometry{}, cluster.Options{}),
		cluster.ErrExists, "a database already")
}

// TestInitAgain: a cluster that is there is compared with what is asked for, without its servers.
func TestInitAgain(t *testing.T) {
	b := newBed(t)
	m := &catalog.Mem{}
	b.blades([]uint64{16 << 20}, "a")
	b.blades([]uint64{16 << 20}, "b")
	g := func(change func(g *cluster.Geometry)) cluster.Geometry {
		x := cluster.Geometry{Backups: txn.F(1), SegmentSize: 1 << 20, LogArea: 64 << 10, Places: 3}
		change(&x)
		return x
	}
	asked := func(g cluster.Geometry, names ...string) error {
		return cluster.Init(t.Context(), m, b.list(names...), g,
			cluster.Options{TCP: tcp.Options{Connect: 200 * time.Millisecond}})
	}
	same := g(func(*cluster.Geometry) {})
	if err := asked(same, "a", "b"); err != nil {
		t.Fatal(err)
	}
	refused(t, "the same", asked(same, "a", "b"), cluster.ErrSame, "which is the same")
	refused(t, "defaults", asked(g(func(g *cluster.Geometry) { g.Backups = nil }), "a", "b"), cluster.ErrSame,
		"which is the same")
	for _, x := range []struct {
		geometry cluster.Geometry
		blades   []string
		say      string
	}{
		{same, []string{"b", "a"}, "with blades of " + b.address("a") + ", " + b.address("b") + ", and not of " +
			b.address("b") + ", " + b.address("a")},
		{same, []string{"a", "none"}, "and not of " + b.address("a") + ", " + b.address("none")},
		{g(func(g *cluster.Geometry) { g.Backups = txn.F(0) }), []string{"a", "b"}, "1 backups, and not 0"},
		{
			g(func(g *cluster.Geometry) { g.SegmentSize = 512 << 10 }), []string{"a", "b"},
			"1048576 bytes a segment, and not 524288",
		},
		{g(func(g *cluster.Geometry) { g.LogArea = 0 }), []string{"a", "b"}, "65536 bytes a log area, and not 1048576"},
		{g(func(g *cluster.Geometry) { g.Places = 0 }), []string{"a", "b"}, "3 places of blades, and not 2"},
	} {
		err := asked(x.geometry, x.blades...)
		refused(t, x.say, err, cluster.ErrExists, x.say)
		if errors.Is(err, cluster.ErrSame) {
			t.Errorf("%v", err)
		}
	}
}

// failing is a catalog whose first Apply returns an error, and may have made the change.
type failing struct {
	layout.Catalog
	made  bool
	left  int
	other bool // another process is faster
}

func (f *failing) Apply(rev layout.Revision, changes []layout.Entry) (layout.Revision, error) {
	if f.left--; f.left < 0 {
		return f.Catalog.Apply(rev, changes)
	}
	if f.other {
		_, err := f.Catalog.Apply(rev, []layout.Entry{{Key: "cluster/servers", Value: []byte("other")}})
		return 0, errors.Join(memory.ErrRevision, err)
	}
	if f.made {
		if _, err := f.Catalog.Apply(rev, changes); err != nil {
			return 0, err
		}
	}
	return 0, errors.New("the answer is lost")
}

// TestInitInDoubt: a change whose answer is lost is looked for; a catalog that fails again says so.
func TestInitInDoubt(t *testing.T) {
	b := newBed(t)
	b.blades([]uint64{1 << 20}, "a")
	for _, made := range []bool{false, true} {
		name := fmt.Sprint("made", made)
		b.blades([]uint64{1 << 20}, name)
		f := &failing{Catalog: &catalog.Mem{}, made: made, left: 1}
		if err := cluster.Init(t.Context(), f, b.list(name), cluster.Geometry{}, cluster.Options{}); err != nil {
			t.Errorf("made=%v: %v", made, err)
		}
		if s, err := cluster.Servers(f); err != nil || len(s) != 1 || s[0].Address != b.list(name)[0] ||
			s[0].Blades[0] != 1<<20 {
			t.Errorf("made=%v: %v, %v", made, s, err)
		}
	}
	if err := cluster.Init(t.Context(), &failing{Catalog: &catalog.Mem{}, left: 9}, b.list("a"), cluster.Geometry{},
		cluster.Options{}); err == nil || !strings.Contains(err.Error(), "lost") {
		t.Errorf("a catalog that fails: %v", err)
	}
	refused(t, "another process", cluster.Init(t.Context(), &failing{Catalog: &catalog.Mem{}, left: 1, other: true},
		b.list("a"), cluster.Geometry{}, cluster.Options{}), cluster.ErrExists, "a cluster already")
}

// TestInitInterrupted: an Init that stops at any change of the catalog is finished by the next one,
// with the same servers only.
func TestInitInterrupted(t *testing.T) {
	if testing.Short() {
		t.Skip("the term of a process that is gone is waited for")
	}
	b := newBed(t)
	ctx := t.Context()
	b.blades([]uint64{size}, "whole")
	b.blades([]uint64{size}, "other")
	g := cluster.Geometry{SegmentSize: 1 << 20, LogArea: 64 << 10, Places: 2}
	const many = 100
	whole := &stopping{Catalog: &catalog.Mem{}, left: many}
	if err := cluster.Init(ctx, whole, b.list("whole"), g, cluster.Options{}); err != nil {
		t.Fatal(err)
	}
	var waiting sync.WaitGroup // for the term of a process that has registered and is gone
	for n := range many - whole.left {
		servers := b.list(fmt.Sprint("s", n))
		b.blades([]uint64{size}, fmt.Sprint("s", n))
		waiting.Go(func() {
			m := &catalog.Mem{}
			init := func(cat layout.Catalog, servers []cluster.BladeAddress) error {
				return cluster.Init(ctx, cat, servers, g, cluster.Options{})
			}
			if err := init(&stopping{Catalog: m, left: n}, servers); err == nil {
				t.Errorf("stopped after %d changes: no error", n)
			}
			if n > 0 {
				refused(t, fmt.Sprint("other servers, after ", n), init(m, b.list("other")), cluster.ErrExists,
					"txnode cluster init --blade "+string(servers[0])+" --places 2")
			}
			if err := init(m, servers); err != nil {
				t.Errorf("stopped after %d changes: %v", n, err)
			}
			refused(t, fmt.Sprint("again, after ", n), init(m, servers), cluster.ErrSame,
				"a cluster already, which is the same")
			if l, err := layout.LoadLayout(m); err != nil || l == nil || l.SegmentSize != 1<<20 || len(l.Tables) > 0 {
				t.Errorf("stopped after %d changes: %+v, %v", n, l, err)
			}
		})
	}
	waiting.Wait()
}

// stopping is the catalog of a process that ends after so many changes: it makes no more.
type stopping struct {
	layout.Catalog
	left int
}

func (s *stopping) Apply(rev layout.Revision, changes []layout.Entry) (layout.Revision, error) {
	if s.left--; s.left < 0 {
		return 0, errors.New("the process has ended")
	}
	return s.Catalog.Apply(rev, changes)
}

// TestCatalogRestarts: a database goes on while the daemon of its catalog is away, cannot make a
// table then, and can when it is back, by what the file has kept.
func TestCatalogRestarts(t *testing.T) {
	b := newBed(t)
	ctx := t.Context()
	serve := b.catalogFile("c")
	stop := serve()
	defer func() { stop() }()
	b.blades([]uint64{size}, "a")
	b.blades([]uint64{size}, "b")
	if err := cluster.Init(ctx, b.client("c"), b.list("a", "b"), cluster.Geometry{}, cluster.Options{}); err != nil {
		t.Fatal(err)
	}
	h, err := cluster.Connect(ctx, b.address("c"), cluster.Options{})
	if err != nil {
		t.Fatal(err)
	}
	o := txn.Options{Fabric: h.Fabric, Catalog: h.Catalog, IndexGroups: 64, LeaseTerm: time.Hour}
	db, err := txn.Open(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	table, err := txn.CreateTable(db, "words", txn.String, txn.Plain[uint64]())
	if err != nil {
		t.Fatal(err)
	}
	put := func(v uint64) {
		t.Helper()
		if err := db.Update(ctx, func(tx *txn.Tx) error { return table.Put(tx, "hello", v) }); err != nil {
			t.Fatal(err)
		}
	}
	for round := range uint64(3) {
		put(2 * round)
		stop()
		stop = func() {}
		put(2*round + 1)
		name := fmt.Sprintf("table %d", round)
		if _, err := txn.CreateTable(db, name, txn.String, txn.Plain[uint64]()); !errors.Is(err, remote.ErrAway) ||
			!strings.Contains(err.Error(), b.address("c")) {
			t.Errorf("a table without a catalog: %v", err)
		}
		stop = serve()
		if _, err := txn.CreateTable(db, name, txn.String, txn.Plain[uint64]()); err != nil {
			t.Fatalf("a table behind a restart: %v", err)
		}
	}
	if err := errors.Join(db.Close(ctx), h.Close()); err != nil {
		t.Fatal(err)
	}
	if h, err = cluster.Connect(ctx, b.address("c"), cluster.Options{}); err != nil {
		t.Fatal(err)
	}
	o.Fabric, o.Catalog = h.Fabric, h.Catalog
	if db, err = txn.Open(ctx, o); err != nil {
		t.Fatal(err)
	}
	if names, err := db.Tables(); err != nil || len(names) != 4 {
		t.Errorf("%q, %v", names, err)
	}
	if table, err = txn.OpenTable(db, "words", txn.String, txn.Plain[uint64]()); err != nil {
		t.Fatal(err)
	}
	if err := db.View(ctx, func(tx *txn.Tx) error {
		v, err := table.Get(tx, "hello")
		if err != nil || v != 5 {
			t.Errorf("%d, %v", v, err)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	if err := errors.Join(db.Close(ctx), h.Close()); err != nil {
		t.Fatal(err)
	}
}
