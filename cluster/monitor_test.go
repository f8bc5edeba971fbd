package cluster_test

import (
	"errors"
	"testing"
	"time"

	"txnode/cluster"
	"txnode/memory/catalog"
	"txnode/memory/catalog/remote"
	"txnode/rdma/region"
	"txnode/rdma/tcp"
	"txnode/txn"
)

// daemon serves blades, a catalog, or both, and tells of itself.
func (b *bed) daemon(cat *catalog.Mem, blades int, name string) (stop func()) {
	b.t.Helper()
	r := cluster.NewReporter(func() cluster.Report {
		return cluster.Report{Host: name, Blades: make([]cluster.BladeReport, blades)}
	})
	services := map[string]tcp.Service{cluster.ReportService: r.Answer}
	if cat != nil {
		services[remote.ServiceName] = remote.NewService(cat)
	}
	var set *region.Set
	if blades > 0 {
		b.seeds++
		var err error
		regions := make([]region.Options, blades)
		for i := range regions {
			regions[i].Size = size
		}
		if set, err = region.New(region.Config{Regions: regions, Seed: b.seeds}); err != nil {
			b.t.Fatal(err)
		}
	}
	s, err := tcp.NewServer(set, tcp.ServerOptions{Services: services})
	if err != nil {
		b.t.Fatal(err)
	}
	return b.listen(s, set, name)
}

// until looks until a sight is as it should be.
func until(t *testing.T, m *cluster.Monitor, what string, fine func(s *cluster.Sight) bool) *cluster.Sight {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		s := m.Look(t.Context())
		if fine(s) {
			return s
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %+v", what, s)
		}
	}
}

// TestMonitor: a process that has the database open is seen with its work by way of whichever
// daemon there is, and no more when it has closed it; so is what servers say.
func TestMonitor(t *testing.T) {
	b := newBed(t)
	ctx := t.Context()
	cat := &catalog.Mem{}
	b.catalog(cat, "c") // it has no reports, as an older daemon has not
	b.daemon(nil, 1, "a")
	stop := b.daemon(nil, 1, "b")
	if err := cluster.Init(ctx, b.client("c"), b.list("a", "b"),
		cluster.Geometry{SegmentSize: 1 << 20, LogArea: 64 << 10}, cluster.Options{}); err != nil {
		t.Fatal(err)
	}
	m, err := cluster.NewMonitor(ctx, b.address("c"), cluster.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}()
	db, err := cluster.Open(ctx, b.address("c"), txn.Options{IndexGroups: 64, Workers: 2},
		cluster.Options{Post: 5 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	table, err := txn.CreateTable(db, "words", txn.String, txn.Plain[uint64]())
	if err != nil {
		t.Fatal(err)
	}
	for i := range uint64(10) {
		if err := db.Update(ctx, func(tx *txn.Tx) error { return table.Put(tx, "hello", i) }); err != nil {
			t.Fatal(err)
		}
	}
	s := until(t, m, "ten commits", func(s *cluster.Sight) bool {
		return len(s.Processes) == 1 && s.Processes[0].Metrics.Committed == 10
	})
	p := &s.Processes[0]
	if p.Process != db.Space().Process() || p.Host == "" || p.PID == 0 || p.Program == "" ||
		len(p.Metrics.Tables) != 1 || p.Metrics.Tables[0].Inserts != 1 || p.Metrics.Tables[0].Updates != 9 {
		t.Errorf("%+v", p)
	}
	if s.Err != nil || s.Layout == nil || len(s.Layout.Tables) != 1 || len(s.Servers) != 2 {
		t.Errorf("%+v", s)
	}
	for i, name := range []string{"a", "b"} {
		if x := s.Servers[i]; x.Err != nil || x.Report == nil || x.Report.Host != name || len(x.Report.Blades) != 1 {
			t.Errorf("%s: %+v", name, x)
		}
	}
	if err := db.Close(ctx); err != nil {
		t.Fatal(err)
	}
	until(t, m, "the process is gone", func(s *cluster.Sight) bool { return len(s.Processes) == 0 })
	stop()
	s = until(t, m, "a server is away", func(s *cluster.Sight) bool { return s.Servers[1].Report == nil })
	if s.Servers[1].Err == nil || s.Servers[0].Report == nil {
		t.Errorf("%+v", s.Servers)
	}
}

// TestMonitorCatalog: what the catalog has said last is there while it is away, and processes
// tell its daemon first.
func TestMonitorCatalog(t *testing.T) {
	b := newBed(t)
	ctx := t.Context()
	cat := &catalog.Mem{}
	stop := b.daemon(cat, 0, "c")
	b.daemon(nil, 1, "a")
	if err := cluster.Init(ctx, b.client("c"), b.list("a"), cluster.Geometry{SegmentSize: 1 << 20, LogArea: 64 << 10},
		cluster.Options{}); err != nil {
		t.Fatal(err)
	}
	m, err := cluster.NewMonitor(ctx, b.address("c"), cluster.Options{TCP: tcp.Options{Control: time.Second}})
	if err != nil {
		t.Fatal(err)
	}
	open := func(post time.Duration) *txn.DB {
		db, err := cluster.Open(ctx, b.address("c"), txn.Options{IndexGroups: 64}, cluster.Options{Post: post})
		if err != nil {
			t.Fatal(err)
		}
		return db
	}
	silent := open(-1)
	db := open(5 * time.Millisecond)
	until(t, m, "one process", func(s *cluster.Sight) bool {
		return len(s.Processes) == 1 && s.Processes[0].Process == db.Space().Process()
	})
	r, err := cluster.AskReport(ctx, b.address("c"), cluster.Options{})
	if err != nil || len(r.Processes) != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	stop()
	until(t, m, "another daemon is told", func(s *cluster.Sight) bool {
		return s.Err != nil && len(s.Servers) == 1 && s.Layout != nil && len(s.Processes) == 1
	})
	b.daemon(cat, 0, "c")
	until(t, m, "the catalog is back", func(s *cluster.Sight) bool { return s.Err == nil })
	if err := errors.Join(db.Close(ctx), silent.Close(ctx), m.Close()); err != nil {
		t.Error(err)
	}
	if _, err := cluster.NewMonitor(ctx, b.address("none"), cluster.Options{}); !errors.Is(err, remote.ErrAway) {
		t.Errorf("%v", err)
	}
}
