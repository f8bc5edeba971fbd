package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"txnode/cluster"
	"txnode/memory/catalog"
	"txnode/memory/layout"
	"txnode/rdma"
	"txnode/txn"
)

// TestGrowAndShrink: while two processes count, a cluster gets a blade more, copies move there, the
// first blade is drained and its server stops, another one takes its place, and the second one
// goes, too. No transaction fails, and every one is there.
func TestGrowAndShrink(t *testing.T) {
	b := newBed(t)
	ctx := t.Context()
	c := b.catalog(&catalog.Mem{}, "c")
	stops := map[string]func(){}
	for _, name := range []string{"a", "b", "d", "e"} {
		stops[name] = b.blades([]uint64{size}, name)
	}
	g := cluster.Geometry{SegmentSize: 1 << 20, LogArea: 64 << 10, Places: 3}
	if err := cluster.Init(ctx, c, b.list("a", "b"), g, cluster.Options{}); err != nil {
		t.Fatal(err)
	}
	const keys = 50
	var dbs []*txn.DB
	var tables []*txn.Table[uint64, uint64]
	for range 2 {
		db, err := cluster.Open(ctx, b.address("c"), txn.Options{IndexGroups: 64, Retries: 1 << 20},
			cluster.Options{Post: -1})
		if err != nil {
			t.Fatal(err)
		}
		table, err := txn.CreateTable(db, "counts", txn.Uint64, txn.Plain[uint64]())
		if err != nil {
			t.Fatal(err)
		}
		dbs, tables = append(dbs, db), append(tables, table)
	}
	quit, made := make(chan struct{}), make([]uint64, 4)
	var busy sync.WaitGroup
	for g := range made {
		busy.Go(func() {
			for i := uint64(g); ; i++ {
				select {
				case <-quit:
					return
				default:
				}
				if err := dbs[g%2].Update(ctx, func(tx *txn.Tx) error {
					v, _, err := tables[g%2].Lookup(tx, i%keys)
					if err != nil {
						return err
					}
					return errors.Join(tables[g%2].Put(tx, i%keys, v+1),
						tables[g%2].Put(tx, uint64(g+1)<<32+made[g]%4000, i))
				}); err != nil {
					t.Errorf("transaction %d of %d: %v", i, g, err)
					return
				}
				made[g]++
			}
		})
	}
	loadLayout := func() *layout.Layout {
		l, err := layout.LoadLayout(c)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	add := func(name string, id int) {
		t.Helper()
		ids, err := cluster.AddBlade(ctx, b.address("c"), cluster.BladeAddress(b.address(name)), cluster.Options{})
		if err != nil || len(ids) != 1 || ids[0] != id {
			t.Fatalf("adding %s: %v, %v", name, ids, err)
		}
		n, err := cluster.Rebalance(ctx, b.address("c"), nil, cluster.Options{})
		if err != nil || n == 0 || loadLayout().Held(rdma.BladeID(id)) == 0 {
			t.Fatalf("copies of %d segments have moved to %s, which has %d: %v",
				n, name, loadLayout().Held(rdma.BladeID(id)), err)
		}
	}
	drain := func(name string, id int) {
		t.Helper()
		looks := 0
		for range 2 { // it is drained already
			if err := cluster.DrainBlade(ctx, b.address("c"), id, func(txn.Moving) { looks++ },
				cluster.Options{}); err != nil || looks == 0 {
				t.Fatalf("draining %s: %d looks, %v", name, looks, err)
			}
		}
		servers, err := cluster.Servers(c)
		if l := loadLayout(); err != nil || !servers[id].Vacant() || !l.Vacant(rdma.BladeID(id)) ||
			l.Held(rdma.BladeID(id)) > 0 {
			t.Fatalf("%s is drained: %v, %+v, %v", name, servers, l.Blades[id], err)
		}
	}
	if err := cluster.DrainBlade(ctx, b.address("c"), 0, nil, cluster.Options{}); !errors.Is(err, layout.ErrLayout) {
		t.Fatalf("one blade would stay: %v", err)
	}
	add("d", 2)
	if _, err := cluster.AddBlade(ctx, b.address("c"), cluster.BladeAddress(b.address("e")),
		cluster.Options{}); !errors.Is(err, cluster.ErrOptions) || strings.Contains(err.Error(), "\n") {
		t.Fatalf("there is no place for a fourth blade: %v", err)
	}
	drain("a", 0)
	add("e", 0) // server a is there still, and nothing may be done on it
	stops["a"]()
	drain("b", 1)
	stops["b"]()
	db, err := cluster.Open(ctx, b.address("c"), txn.Options{}, cluster.Options{Post: -1})
	if err != nil {
		t.Fatal(err)
	}
	close(quit)
	busy.Wait()
	sum, want := uint64(0), uint64(0)
	if err := dbs[1].View(ctx, func(tx *txn.Tx) error {
		sum = 0
		for k := range uint64(keys) {
			v, _, err := tables[1].Lookup(tx, k)
			if err != nil {
				return err
			}
			sum += v
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for _, n := range made {
		want += n
	}
	if sum != want {
		t.Errorf("%d are counted; want %d", sum, want)
	}
	for i, db := range append(dbs, db) {
		if r := db.Redundancy(); i < 2 && len(r.Outages) > 0 || r.Missing+r.Moving+r.Lost > 0 {
			t.Errorf("process %d: %+v", i, r)
		}
		if err := db.Close(context.Background()); err != nil {
			t.Error(fmt.Errorf("process %d: %w", i, err))
		}
	}
}
