package cluster_test

import (
	"context"
	"errors"
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
	"txnode/memory/layout"
	"txnode/memory/members"
	"txnode/rdma/region"
	"txnode/rdma/tcp"
	"txnode/txn"
)

// server is a server of blades that announces itself, as txnode serve --join does.
type server struct {
	b       *bed
	o       cluster.AnnounceOptions
	catalog string
	stop    func() // serving
	resign  func() // announcing
	joined  chan []int

	mu  sync.Mutex
	all []string // reported
}

// server serves a blade, of a file of the bed's directory if one is named, and announces it
// until the test ends.
func (b *bed) server(catalog, name, domain, file string) *server {
	b.t.Helper()
	b.seeds++
	o := region.Options{Size: size}
	if file != "" {
		o.Path = filepath.Join(b.dir, file)
	}
	set, err := region.New(region.Config{Regions: []region.Options{o}, Seed: b.seeds})
	if err != nil {
		b.t.Fatal(err)
	}
	t, err := tcp.NewServer(set, tcp.ServerOptions{})
	if err != nil {
		b.t.Fatal(err)
	}
	s := &server{b: b, catalog: b.address(catalog), stop: b.listen(t, set, name), joined: make(chan []int, 9)}
	s.o = cluster.AnnounceOptions{
		Address: cluster.BladeAddress(b.address(name)), Incarnations: []uint64{set.Blades()[0].Incarnation},
		Domain: domain, Release: "test",
		Term:   time.Minute, // of which tests do not wait for the end
		Joined: func(blades []int) { s.joined <- blades },
		Report: func(err error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.all = append(s.all, err.Error())
		},
	}
	return s
}

func (s *server) announce() {
	ctx, end := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- cluster.Announce(ctx, s.catalog, s.o) }()
	s.resign = sync.OnceFunc(func() {
		end()
		if err := <-done; err != nil {
			s.b.t.Error(err)
		}
	})
	s.b.t.Cleanup(s.resign)
}

// reported waits until the announcement has met a trouble that says so.
func (s *server) reported(text string) {
	s.b.t.Helper()
	eventually(s.b.t, "a report of "+text, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return slices.ContainsFunc(s.all, func(x string) bool { return strings.Contains(x, text) })
	})
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, fn func() bool) {
	t.Helper()
	for end := time.Now().Add(3 * time.Minute); !fn(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it takes minutes: %s", what)
		}
	}
}

// ask returns the status of a cluster.
func (b *bed) ask(catalog string) *cluster.Status {
	b.t.Helper()
	st, err := cluster.Ask(b.t.Context(), b.address(catalog), cluster.Options{})
	if err != nil {
		b.t.Fatal(err)
	}
	return st
}

// addresses are those of places that are not vacant.
func addresses(st *cluster.Status) (out []string) {
	for _, s := range st.Servers {
		if !s.Vacant() {
			out = append(out, filepath.Base(string(s.Address)))
		}
	}
	return out
}

// of is what a server has announced.
func of(st *cluster.Status, name string) (a cluster.Announced) {
	for i := range st.Joined {
		if filepath.Base(string(st.Joined[i].Address)) == name {
			a = st.Joined[i].Announced
		}
	}
	return a
}

// TestJoin: servers that announce themselves wait for a cluster; it is made of those that are in
// different domains. One that comes later takes the next place, and its share of the copies. One
// that was drained stays outside until it begins anew. One that ends resigns.
func TestJoin(t *testing.T) {
	b := newBed(t)
	ctx := t.Context()
	c := b.catalog(&catalog.Mem{}, "c")
	servers := map[string]*server{}
	for _, x := range []struct{ name, domain string }{{"a", "rack 1"}, {"b", "rack 1"}, {"d", "rack 2"}} {
		s := b.server("c", x.name, x.domain, "")
		s.o.Term = 3 * time.Second // AwaitServers waits for signs of life
		s.announce()
		servers[x.name] = s
	}
	if _, err := cluster.Servers(c); !errors.Is(err, cluster.ErrNone) {
		t.Fatalf("a cluster is made by servers that announce themselves: %v", err)
	}
	eventually(t, "candidates", func() bool {
		st, err := cluster.Ask(ctx, b.address("c"), cluster.Options{})
		return err == nil && len(st.Joined) == 3
	})
	if st := b.ask("c"); len(st.Servers) > 0 || st.Joined[2].Domain != "rack 2" || st.Joined[2].Release != "test" ||
		st.Joined[2].Blades[0] != size {
		t.Errorf("%+v", st)
	}
	var have []int
	all, err := cluster.AwaitServers(ctx, c, 2, func(n int) { have = append(have, n) })
	const taken, rest = "a", "b"
	if err != nil || !slices.Equal(all, b.list(taken, "d")) || len(have) == 0 {
		t.Fatalf("%v, %v; progress %v", all, err, have)
	}
	one := 1
	if err := cluster.Init(ctx, c, all, cluster.Geometry{
		SegmentSize: 1 << 20, LogArea: 64 << 10, Places: 3, Backups: &one,
	}, cluster.Options{}); err != nil {
		t.Fatal(err)
	}
	if again, err := cluster.AwaitServers(ctx, c, 2, nil); err != nil || !slices.Equal(again[:2], all) {
		t.Errorf("once more: %v, %v", again, err)
	}
	if ids := <-servers[rest].joined; !slices.Equal(ids, []int{2}) {
		t.Fatalf("the server that was not needed has blades %v", ids)
	}
	st := b.ask("c")
	var domains []string
	for i := range st.Layout.Blades {
		domains = append(domains, st.Layout.Blades[i].Domain)
	}
	if !slices.Equal(domains, []string{"rack 1", "rack 2", "rack 1"}) ||
		!slices.Equal(addresses(st), []string{taken, "d", rest}) {
		t.Errorf("%v: %q", addresses(st), domains)
	}
	if err := cluster.DrainBlade(ctx, b.address("c"), 2, nil, cluster.Options{}); err != nil {
		t.Fatal(err)
	}
	if st := b.ask("c"); !slices.Equal(addresses(st), []string{taken, "d"}) || !of(st, rest).Left {
		t.Errorf("%v, %+v", addresses(st), st.Joined)
	}
	number := of(b.ask("c"), rest).Number
	servers[rest].resign()
	if st := b.ask("c"); len(st.Joined) != 2 {
		t.Errorf("a server has ended, and is still there: %+v", st.Joined)
	}
	servers[rest].announce() // by another process
	if ids := <-servers[rest].joined; !slices.Equal(ids, []int{2}) {
		t.Fatalf("a server that was drained, and has begun anew, has blades %v", ids)
	}
	if st := b.ask("c"); of(st, rest).Number == number || of(st, rest).Left {
		t.Errorf("%+v", st.Joined)
	}
}

// TestJoinGetsItsShare: copies move to a server that has joined, and none to one in the domain
// of the other copy.
func TestJoinGetsItsShare(t *testing.T) {
	b := newBed(t)
	ctx := t.Context()
	c := b.catalog(&catalog.Mem{}, "c")
	b.blades([]uint64{size}, "a")
	b.blades([]uint64{size}, "d")
	if err := cluster.Init(ctx, c, b.list("a", "d"), cluster.Geometry{
		SegmentSize: 1 << 20, LogArea: 64 << 10, Places: 3,
	}, cluster.Options{}); err != nil {
		t.Fatal(err)
	}
	db, err := cluster.Open(ctx, b.address("c"), txn.Options{IndexGroups: 64}, cluster.Options{Post: -1})
	if err != nil {
		t.Fatal(err)
	}
	table, err := txn.CreateTable(db, "t", txn.Uint64, txn.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	for i := range uint64(160) {
		if err := db.Update(ctx, func(tx *txn.Tx) error { return table.Put(tx, i, make([]byte, 16<<10)) }); err != nil {
			t.Fatal(err)
		}
	}
	s := b.server("c", "e", "", "")
	s.announce()
	if ids := <-s.joined; !slices.Equal(ids, []int{2}) {
		t.Fatal(ids)
	}
	eventually(t, "copies on the server that has joined", func() bool {
		st := b.ask("c")
		return st.Layout.Held(2) > 1 && st.Copies.Moving+st.Copies.Building+st.Copies.Missing == 0
	})
	for i := range uint64(160) {
		if err := db.View(ctx, func(tx *txn.Tx) error { _, err := table.Get(tx, i); return err }); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(ctx); err != nil {
		t.Fatal(err)
	}
}

// TestJoinAtAnotherAddress: a server whose files have a place has that place again, at another
// address, once the server that was there has ended; not while it answers, or has a lease.
func TestJoinAtAnotherAddress(t *testing.T) {
	b := newBed(t)
	ctx := t.Context()
	c := b.catalog(&catalog.Mem{}, "c")
	a := b.server("c", "a", "", "")
	a.announce()
	d := b.server("c", "d", "", "file")
	d.announce()
	if err := cluster.Init(ctx, c, b.list("a", "d"), cluster.Geometry{
		SegmentSize: 1 << 20, LogArea: 64 << 10, Places: 3,
	}, cluster.Options{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "registrations", func() bool { return len(b.ask("c").Joined) == 2 })
	text, err := os.ReadFile(filepath.Join(b.dir, "file"))
	if err == nil {
		err = os.WriteFile(filepath.Join(b.dir, "copy"), text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	copied := b.server("c", "copied", "", "copy")
	copied.announce()
	copied.reported("is that of blade 1 of this database, which is at " + b.address("d"))
	copied.resign()
	copied.stop()
	d.stop() // it is silent, and has a lease
	copied = b.server("c", "copied again", "", "copy")
	copied.announce()
	copied.reported("is that of blade 1 of this database, which is at " + b.address("d"))
	if got := addresses(b.ask("c")); !slices.Equal(got, []string{"a", "d"}) {
		t.Errorf("%v", got)
	}
	copied.resign()
	copied.stop()
	d.resign()
	moved := b.server("c", "moved", "", "file")
	moved.announce()
	if ids := <-moved.joined; !slices.Equal(ids, []int{1}) {
		t.Fatal(ids)
	}
	if got := addresses(b.ask("c")); !slices.Equal(got, []string{"a", "moved"}) {
		t.Errorf("%v", got)
	}
	db, err := cluster.Open(ctx, b.address("c"), txn.Options{IndexGroups: 64}, cluster.Options{Post: -1})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(ctx); err != nil {
		t.Fatal(err)
	}
}

// TestJoinAgain: a server goes on while the catalog is away, and registers again when the catalog
// has forgotten it, or is another one.
func TestJoinAgain(t *testing.T) {
	b := newBed(t)
	serve := b.catalogFile("c")
	stop := serve()
	s := b.server("c", "a", "", "")
	s.o.Term = 300 * time.Millisecond // it looks three times in this time
	s.announce()
	joined := func() (all []cluster.ServerLease) {
		st, err := cluster.Ask(t.Context(), b.address("c"), cluster.Options{})
		if err != nil {
			return nil
		}
		return st.Joined
	}
	eventually(t, "a registration", func() bool { return len(joined()) == 1 })
	number := joined()[0].Number
	stop()
	s.reported("does not answer")
	stop = serve()
	c := b.client("c")
	beats := func() uint64 {
		all, err := c.KeepAlive(layout.Beat{})
		if err != nil || len(all) != 1 || all[0].Member != number {
			return 0
		}
		return all[0].Count
	}
	eventually(t, "signs of life behind the return of the catalog", func() bool { return beats() > 1 })
	for { // others have taken it for gone
		_, rev, err := c.Load()
		if err != nil {
			t.Fatal(err)
		}
		if _, err = c.Apply(rev, []layout.Entry{{Key: layout.KeyOf(layout.PrefixServer, number)}}); err == nil {
			break
		} else if !errors.Is(err, memory.ErrRevision) {
			t.Fatal(err)
		}
	}
	eventually(t, "another registration", func() bool {
		all := joined()
		return len(all) == 1 && all[0].Number != number
	})
	stop()
	if err := os.Remove(filepath.Join(b.dir, "catalog.db")); err != nil {
		t.Fatal(err)
	}
	serve()
	eventually(t, "a registration in another catalog", func() bool { return len(joined()) == 1 })
	s.resign() // before the catalog ends
}

// TestAnnounceRefused: an address that leads to another server is not announced, nor are
// addresses that cannot be.
func TestAnnounceRefused(t *testing.T) {
	b := newBed(t)
	b.catalog(&catalog.Mem{}, "c")
	b.blades([]uint64{size}, "other")
	s := b.server("c", "a", "", "")
	s.o.Address = cluster.BladeAddress(b.address("other"))
	s.announce()
	s.reported("leads to another server")
	for what, change := range map[string]func(o *cluster.AnnounceOptions){
		"shared memory": func(o *cluster.AnnounceOptions) { o.Address = "shm:/dev/shm/x" },
		"no address":    func(o *cluster.AnnounceOptions) { o.Address = "there" },
		"no blades":     func(o *cluster.AnnounceOptions) { o.Incarnations = nil },
		"a long domain": func(o *cluster.AnnounceOptions) { o.Domain = strings.Repeat("d", 256) },
		"a long term":   func(o *cluster.AnnounceOptions) { o.Term = 2 * time.Hour },
	} {
		o := s.o
		change(&o)
		if err := cluster.Announce(t.Context(), b.address("c"), o); !errors.Is(err, cluster.ErrOptions) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestAskLeases: a server that says that it is alive has a lease; that of one which does not
// expires.
func TestAskLeases(t *testing.T) {
	b := newBed(t)
	b.catalog(&catalog.Mem{}, "c")
	s := b.server("c", "a", "", "")
	s.o.Term = time.Second
	s.announce()
	lease := func() members.Lease {
		st, err := cluster.AskLeases(t.Context(), b.address("c"), cluster.Options{})
		if err != nil || len(st.Joined) != 1 {
			return members.LeaseUnknown
		}
		return st.Joined[0].Lease
	}
	eventually(t, "a lease", func() bool { return lease() == members.LeaseAlive })
	c := b.client("c")
	entries, rev, err := c.Load()
	if err != nil || len(entries) != 1 {
		t.Fatal(entries, err)
	}
	s.resign()
	if entries, now, err := c.Load(); err != nil || len(entries) != 0 || now == rev {
		t.Fatal(entries, err)
	}
	_, rev, _ = c.Load()
	if _, err := c.Apply(rev, entries); err != nil { // as if it had been killed
		t.Fatal(err)
	}
	if l := lease(); l != members.LeaseExpired {
		t.Errorf("a server that says nothing is %v", l)
	}
}
