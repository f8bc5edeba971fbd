package cluster_test

import (
	"errors"
	"sync/atomic"
	"testing"

	"txnode/cluster"
	"txnode/memory"
	"txnode/rdma/tcp"
	"txnode/txn"
)

// stuckCatalog is a catalog that, from a time on, answers neither changes nor signs of life until it is released.
type stuckCatalog struct {
	memory.Catalog
	stuck           atomic.Bool
	asked, released chan struct{}
}

func (c *stuckCatalog) Apply(rev memory.Revision, changes []memory.Entry) (memory.Revision, error) {
	if c.stuck.Load() {
		select {
		case c.asked <- struct{}{}:
		default:
		}
		<-c.released
	}
	return c.Catalog.Apply(rev, changes)
}

func (c *stuckCatalog) KeepAlive(b memory.Beat) ([]memory.Beat, error) {
	if c.stuck.Load() {
		<-c.released
	}
	return c.Catalog.KeepAlive(b)
}

// TestTransactionsBesideAStuckChange: a change of the catalog is not answered. Transactions of workers that are there go on, their maintenance
// included, and what the database tells of itself.
func TestTransactionsBesideAStuckChange(t *testing.T) {
	b := newBed(t)
	ctx := t.Context()
	b.catalogFile("c")()
	b.blades([]uint64{size}, "b0")
	b.blades([]uint64{size}, "b1")
	one := 1
	g := cluster.Geometry{Backups: &one, SegmentSize: 256 << 10, LogArea: 64 << 10}
	if err := cluster.Init(ctx, b.client("c"), b.list("b0", "b1"), g, cluster.Options{}); err != nil {
		t.Fatal(err)
	}
	f, err := tcp.Dial(ctx, []string{b.address("b0"), b.address("b1")}, tcp.Options{})
	if err != nil {
		t.Fatal(err)
	}
	cat := &stuckCatalog{Catalog: b.client("c"), asked: make(chan struct{}, 1), released: make(chan struct{})}
	const never = 1 << 50 // nanoseconds: no lease ends meanwhile
	db, err := txn.Open(ctx, txn.Options{Fabric: f, Catalog: cat, Shared: true, LeaseTerm: never, Workers: 2, IndexGroups: 16})
	if err != nil {
		t.Fatal(err)
	}
	numbers, err := txn.CreateTable(db, "numbers", txn.Uint64, txn.Plain[uint64]())
	if err != nil {
		t.Fatal(err)
	}
	w, err := db.NewWorker()
	if err != nil {
		t.Fatal(err)
	}
	put := func(from uint64, update func(fn func(tx *txn.Tx) error) error) {
		t.Helper()
		for key := from; key < from+200; key++ { // several rounds of maintenance
			if err := update(func(tx *txn.Tx) error { return numbers.Put(tx, key%20, key) }); err != nil {
				t.Fatal(err)
			}
		}
	}
	byWorker := func(fn func(tx *txn.Tx) error) error { return w.Update(ctx, fn) }
	byPool := func(fn func(tx *txn.Tx) error) error { return db.Update(ctx, fn) }
	put(0, byWorker)
	put(0, byPool)

	cat.stuck.Store(true)
	created := make(chan error)
	go func() {
		_, err := txn.CreateTable(db, "others", txn.Uint64, txn.Plain[uint64]())
		created <- err
	}()
	<-cat.asked
	put(1000, byWorker)
	put(2000, byPool)
	if err := w.Maintain(); err != nil {
		t.Error(err)
	}
	if r := db.Redundancy(); r.Missing != 0 || r.Lost != 0 {
		t.Errorf("%+v", r)
	}
	select {
	case err := <-created:
		t.Errorf("the catalog has not answered, and the table is made: %v", err)
	default:
	}
	cat.stuck.Store(false)
	close(cat.released)
	if err := <-created; err != nil {
		t.Error(err)
	}
	if err := errors.Join(w.Close(), db.Close(ctx), f.Close(), cat.Close()); err != nil {
		t.Error(err)
	}
}
