package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"sync"
	"testing"
	"time"

	"txnode/cluster"
	"txnode/memory/layout"
	"txnode/rdma/tcp"
	"txnode/txn"
)

// quietBed is a database that a process reaches by relays, with deadlines that do not end
// while a test runs.
type quietBed struct {
	db     *txn.DB
	docs   *txn.Table[uint64, uint64]
	index  *txn.Index[uint64, uint64, uint64]
	blades []*relay
	cat    *relay
	open   func(ctx context.Context) (*txn.DB, error)

	address string // of the catalog
	client  layout.Catalog
	list    []cluster.BladeAddress
}

// patient has nothing end by itself while a test runs.
var patient = tcp.Options{Connect: time.Minute, Control: time.Minute, Verb: time.Minute}

func newQuietBed(t *testing.T) *quietBed {
	t.Helper()
	b := newBed(t)
	b.catalogFile("c")()
	x := &quietBed{cat: b.relay("rc", "c")}
	names := []string{"b0", "b1", "b2"}
	var addresses []string
	for _, name := range names {
		b.blades([]uint64{size}, name)
		x.blades = append(x.blades, b.relay("r"+name, name))
		addresses = append(addresses, b.address("r"+name))
	}
	one := 1
	g := cluster.Geometry{Backups: &one, SegmentSize: 256 << 10, LogArea: 64 << 10}
	if err := cluster.Init(t.Context(), b.client("c"), b.list(names...), g, cluster.Options{}); err != nil {
		t.Fatal(err)
	}
	x.address, x.list = b.address("rc"), b.list(names...)
	var err error
	if x.client, err = cluster.DialCatalog(t.Context(), x.address, cluster.Options{TCP: patient}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := x.client.Close(); err != nil {
			t.Error(err)
		}
	})
	x.open = func(ctx context.Context) (*txn.DB, error) {
		o := txn.Options{LeaseTerm: time.Minute, Workers: 2, IndexGroups: 16, Shared: true}
		var err error
		if o.Fabric, err = tcp.Dial(ctx, addresses, patient); err != nil {
			return nil, err
		}
		cat, err := cluster.DialCatalog(ctx, b.address("rc"), cluster.Options{TCP: patient})
		if err != nil {
			return nil, errors.Join(err, o.Fabric.Close())
		}
		o.Catalog, o.Closer = cat, both{o.Fabric, cat}
		return txn.Open(ctx, o)
	}
	if x.db, err = x.open(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := x.db.Close(context.Background()); err != nil && !errors.Is(err, txn.ErrClosed) {
			t.Error(err)
		}
	})
	if x.docs, err = txn.CreateTable(x.db, "docs", txn.Uint64, txn.Plain[uint64]()); err != nil {
		t.Fatal(err)
	}
	if err := x.db.Update(t.Context(), x.put(0)); err != nil {
		t.Fatal(err)
	}
	// not built: there is a record
	x.index = txn.NewIndex("values", txn.Uint64, func(_, v uint64) []uint64 { return []uint64{v} })
	if x.docs, err = txn.CreateTable(x.db, "docs", txn.Uint64, txn.Plain[uint64](), x.index); err != nil {
		t.Fatal(err)
	}
	return x
}

// both closes a fabric and a catalog.
type both struct {
	f interface{ Close() error }
	c layout.Catalog
}

func (b both) Close() error { return errors.Join(b.f.Close(), b.c.Close()) }

func (x *quietBed) put(key uint64) func(tx *txn.Tx) error {
	return func(tx *txn.Tx) error { return x.docs.Put(tx, key, key) }
}

// cut has nothing come from what relays lead to until the test, or a call of the function, ends it.
func cut(t *testing.T, relays ...*relay) (heal func()) {
	for _, r := range relays {
		r.mu.Lock()
	}
	heal = sync.OnceFunc(func() {
		for _, r := range relays {
			r.mu.Unlock()
		}
	})
	t.Cleanup(heal)
	return heal
}

// returns demands that a call returns with the error of its context while what it waits for is
// silent, which it is for a minute.
func returns(t *testing.T, what string, call func(ctx context.Context) error) {
	t.Helper()
	silent := make(chan struct{})
	close(silent)
	returnsBehind(t, what, silent, call)
}

// returnsBehind is returns of a call that has silence begin, and closes silent behind that.
func returnsBehind(t *testing.T, what string, silent <-chan struct{}, call func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	over := make(chan error, 1)
	go func() { over <- call(ctx) }()
	select {
	case <-silent:
	case err := <-over:
		t.Fatalf("%s: it ended before: %v", what, err)
	}
	select {
	case err := <-over:
		t.Errorf("%s: it did not wait: %v", what, err)
		return
	case <-time.After(50 * time.Millisecond): // it waits, or does so soon
	}
	ended := time.Now()
	cancel()
	select {
	case err := <-over:
		t.Logf("%s: %v behind the end of its context", what, time.Since(ended).Round(time.Millisecond))
		if !errors.Is(err, context.Canceled) && !errors.Is(err, txn.ErrOutcomeUnknown) {
			t.Errorf("%s: %v", what, err)
		}
	case <-time.After(30 * time.Second): // the silence lasts longer
		t.Fatalf("%s: it waits on when its context has ended", what)
	}
}

// TestHeardBesideBlades: the end of a context is heard while the blades are silent.
func TestHeardBesideBlades(t *testing.T) {
	x := newQuietBed(t)
	ctx := t.Context()
	for k := range uint64(100) {
		if err := x.db.Update(ctx, x.put(k)); err != nil {
			t.Fatal(err)
		}
	}
	w, err := x.db.NewWorker()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := w.Update(ctx, x.put(7)); err != nil {
		t.Fatal(err)
	}
	begun, err := x.db.Begin(ctx, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := begun.Rollback(); err != nil {
		t.Fatal(err)
	}
	heal := cut(t, x.blades...)
	returns(t, "Worker.Update", func(ctx context.Context) error { return w.Update(ctx, x.put(1)) })
	returns(t, "Worker.Update again", func(ctx context.Context) error { return w.Update(ctx, x.put(2)) })
	returns(t, "Update", func(ctx context.Context) error { return x.db.Update(ctx, x.put(3)) })
	returns(t, "View", func(ctx context.Context) error {
		return x.db.View(ctx, func(tx *txn.Tx) error { _, err := x.docs.Get(tx, 5); return err })
	})
	returns(t, "Begin", func(ctx context.Context) error {
		tx, err := x.db.Begin(ctx, false)
		if err != nil {
			return err
		}
		_, err = x.docs.Get(tx, 6)
		return errors.Join(err, tx.Rollback())
	})
	returns(t, "opening", func(ctx context.Context) error { _, err := x.open(ctx); return err })
	returns(t, "DropTable", func(ctx context.Context) error { return x.db.DropTable(ctx, "docs") })
	for what, call := range x.wholeCalls() {
		returns(t, what, call)
	}
	heal()
	for k := range uint64(20) {
		if err := x.db.Update(ctx, x.put(k)); err != nil {
			t.Fatal(err)
		}
		if err := w.Update(ctx, x.put(k)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestHeardBesideCatalog: the end of a context is heard while the catalog is silent.
func TestHeardBesideCatalog(t *testing.T) {
	x := newQuietBed(t)
	ctx := t.Context()
	held, err := x.db.Begin(ctx, false) // has the only worker that there is
	if err != nil {
		t.Fatal(err)
	}
	heal := cut(t, x.cat)
	returns(t, "a new worker", func(ctx context.Context) error { return x.db.Update(ctx, x.put(3)) })
	returns(t, "Begin", func(ctx context.Context) error { _, err := x.db.Begin(ctx, false); return err })
	returns(t, "opening", func(ctx context.Context) error { _, err := x.open(ctx); return err })
	returns(t, "DropTable", func(ctx context.Context) error { return x.db.DropTable(ctx, "docs") })
	returns(t, "Drain", func(ctx context.Context) error { return x.db.Drain(ctx, 0, nil) })
	for what, call := range x.wholeCalls() {
		returns(t, what, call)
	}
	for what, call := range x.clusterCalls() {
		returns(t, what, call)
	}
	heal()
	if err := held.Rollback(); err != nil {
		t.Fatal(err)
	}
	for k := range uint64(20) {
		if err := x.db.Update(ctx, x.put(k)); err != nil {
			t.Fatal(err)
		}
	}
}

// wholeCalls are those that read or write whole tables, with workers of their own.
func (x *quietBed) wholeCalls() map[string]func(ctx context.Context) error {
	return map[string]func(ctx context.Context) error{
		"Stats": func(ctx context.Context) error { _, err := x.docs.Stats(ctx); return err },
		"Backup": func(ctx context.Context) error {
			_, err := x.db.Backup(ctx, io.Discard, txn.BackupOptions{})
			return err
		},
		"Load": func(ctx context.Context) error {
			_, err := x.docs.Load(ctx, maps.All(map[uint64]uint64{1: 1}), txn.LoadOptions{})
			return err
		},
		"Build": func(ctx context.Context) error { return x.index.Build(ctx, nil) },
		"CheckIndexes": func(ctx context.Context) error {
			_, err := x.docs.CheckIndexes(ctx, txn.IndexCheckOptions{})
			return err
		},
		"DropIndex": func(ctx context.Context) error { return x.db.DropIndex(ctx, "docs", "values") },
	}
}

// TestHeardByBackup: the end of the context is heard while a backup is under way, and the blades,
// or the catalog, become silent.
func TestHeardByBackup(t *testing.T) {
	for _, c := range []struct {
		what    string
		records bool // some are copied before
	}{{"blades", false}, {"catalog", false}, {"blades", true}, {"catalog", true}} {
		t.Run(fmt.Sprint(c.what, c.records), func(t *testing.T) {
			x := newQuietBed(t)
			if _, err := x.docs.Load(t.Context(), numbered(1000), txn.LoadOptions{}); err != nil {
				t.Fatal(err)
			}
			from := x.blades
			if c.what == "catalog" {
				from = []*relay{x.cat}
			}
			heal, silent := func() {}, make(chan struct{})
			silence := sync.OnceFunc(func() {
				heal = cut(t, from...)
				close(silent)
			})
			returnsBehind(t, "Backup", silent, func(ctx context.Context) error {
				o, out := txn.BackupOptions{}, io.Discard
				if c.records {
					o.Progress = func(uint64) { silence() }
				} else {
					out = writes(silence)
				}
				_, err := x.db.Backup(ctx, out, o)
				return err
			})
			heal()
			if err := x.db.Update(t.Context(), x.put(1)); err != nil {
				t.Fatal(err)
			}
			if _, err := x.db.Backup(t.Context(), io.Discard, txn.BackupOptions{}); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// numbered is n records.
func numbered(n uint64) iter.Seq2[uint64, uint64] {
	return func(yield func(k, v uint64) bool) {
		for k := range n {
			if !yield(k, k) {
				return
			}
		}
	}
}

// writes is told of each Write.
type writes func()

func (w writes) Write(p []byte) (int, error) { w(); return len(p), nil }

// clusterCalls are those of package cluster that ask the catalog.
func (x *quietBed) clusterCalls() map[string]func(ctx context.Context) error {
	o := cluster.Options{TCP: patient}
	return map[string]func(ctx context.Context) error{
		"Connect": func(ctx context.Context) error { _, err := cluster.Connect(ctx, x.address, o); return err },
		"Ask":     func(ctx context.Context) error { _, err := cluster.Ask(ctx, x.address, o); return err },
		"AskOf":   func(ctx context.Context) error { _, err := cluster.AskOf(ctx, x.client, o); return err },
		"Init": func(ctx context.Context) error {
			return cluster.Init(ctx, x.client, x.list, cluster.Geometry{}, o)
		},
		"AddBlade": func(ctx context.Context) error {
			_, err := cluster.AddBlade(ctx, x.address, x.list[0], o)
			return err
		},
		"EvictBlade":   func(ctx context.Context) error { return cluster.EvictBlade(ctx, x.address, 0, o) },
		"EvictProcess": func(ctx context.Context) error { return cluster.EvictProcess(ctx, x.address, 9, o) },
	}
}

// TestHeardByClose: the end of the context is heard while the catalog is silent, and another Close
// waits on. It waits, too, for a call that has been left while its worker was made.
func TestHeardByClose(t *testing.T) {
	x := newQuietBed(t)
	if err := x.db.Update(t.Context(), x.put(1)); err != nil {
		t.Fatal(err)
	}
	heal := cut(t, x.cat)
	returns(t, "DropTable", func(ctx context.Context) error { return x.db.DropTable(ctx, "docs") })
	returns(t, "Close", func(ctx context.Context) error {
		err := x.db.Close(ctx)
		if !errors.Is(err, txn.ErrClosing) {
			t.Errorf("closing: %v", err)
		}
		return err
	})
	returns(t, "Close again", x.db.Close)
	if err := x.db.Update(t.Context(), x.put(1)); !errors.Is(err, txn.ErrClosed) {
		t.Errorf("a transaction of a database that closes itself: %v", err)
	}
	heal()
	if err := x.db.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
