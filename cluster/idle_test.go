package cluster_test

import (
	"errors"
	"runtime"
	"testing"
	"time"

	"txnode/cluster"
	"txnode/memory/catalog"
	"txnode/txn"
)

// TestIdle: a process that has committed and does nothing more holds no lock that
// another one waits for.
func TestIdle(t *testing.T) {
	b := newBed(t)
	ctx := t.Context()
	c := b.catalog(&catalog.Mem{}, "c")
	b.blades([]uint64{size}, "a")
	b.blades([]uint64{size}, "b")
	if err := cluster.Init(ctx, c, b.list("a", "b"), cluster.Geometry{SegmentSize: 1 << 20, LogArea: 64 << 10},
		cluster.Options{}); err != nil {
		t.Fatal(err)
	}
	var dbs []*txn.DB
	var tables []*txn.Table[string, uint64]
	var workers []*txn.Worker
	for range 2 {
		db, err := cluster.Open(ctx, b.address("c"), txn.Options{IndexGroups: 64, Workers: 1}, cluster.Options{})
		if err != nil {
			t.Fatal(err)
		}
		table, err := txn.CreateTable(db, "words", txn.String, txn.Plain[uint64]())
		if err != nil {
			t.Fatal(err)
		}
		w, err := db.NewWorker()
		if err != nil {
			t.Fatal(err)
		}
		dbs, tables, workers = append(dbs, db), append(tables, table), append(workers, w)
	}
	for v := range uint64(20) {
		i := v % 2
		add := func(tx *txn.Tx) error {
			old, _, err := tables[i].Lookup(tx, "hello")
			if err == nil && old != v {
				t.Errorf("%d is there, and not %d", old, v)
			}
			return errors.Join(err, tables[i].Put(tx, "hello", v+1))
		}
		var err error
		switch v % 6 / 2 { // in each of the ways to have a transaction
		case 0:
			err = dbs[i].Update(ctx, add)
		case 1:
			err = workers[i].Update(ctx, add)
		case 2:
			for range 1000 { // what the other one has sent may be on its way
				var tx *txn.Tx
				if tx, err = dbs[i].Begin(ctx, false); err == nil {
					err = errors.Join(add(tx), tx.Commit())
				}
				if !errors.Is(err, txn.ErrConflict) {
					break
				}
				time.Sleep(time.Millisecond)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for i, db := range dbs {
		if err := errors.Join(workers[i].Close(), db.Close(ctx)); err != nil {
			t.Error(err)
		}
	}
}

// TestIdleInNewEpoch: the same while the epoch changes, which fails what was posted in the one
// before: a release that did not happen is made up for, though its worker has nothing more to do.
func TestIdleInNewEpoch(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4)) // the processes that it stands for have processors of their own
	b := newBed(t)
	ctx := t.Context()
	c := b.catalog(&catalog.Mem{}, "c")
	b.blades([]uint64{size}, "a")
	b.blades([]uint64{size}, "b")
	if err := cluster.Init(ctx, c, b.list("a", "b"), cluster.Geometry{SegmentSize: 1 << 20, LogArea: 64 << 10},
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
	db, table := open()
	other, theirs := open()
	w, err := db.NewWorker()
	if err != nil {
		t.Fatal(err)
	}
	add := func(table *txn.Table[string, uint64]) func(tx *txn.Tx) error {
		return func(tx *txn.Tx) error {
			v, _, err := table.Lookup(tx, "hello")
			return errors.Join(err, table.Put(tx, "hello", v+1))
		}
	}
	const rounds = 60
	for i := range rounds {
		update := w.Update
		if i%2 == 0 {
			update = db.Update
		}
		changed := make(chan error, 1)
		go func() { changed <- other.Space().AdvanceEpoch(nil) }()
		for range 10 { // the last one matters, and chance says which one that is
			if err := update(ctx, add(table)); err != nil {
				t.Fatal(err)
			}
			if len(changed) > 0 {
				break
			}
		}
		if err := <-changed; err != nil {
			t.Fatal(err)
		}
		if err := other.Update(ctx, add(theirs)); err != nil {
			t.Fatalf("round %d: %v", i, err)
		}
	}
	if err := errors.Join(w.Close(), db.Close(ctx), other.Close(ctx)); err != nil {
		t.Error(err)
	}
}
