package cluster_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"txnode/cluster"
	"txnode/rdma/tcp"
	"txnode/txn"
)

// TestTakenInByOthers: a blade restarts, another process takes it in, and this one does not reach
// it any more: its tunnel has ended, or it does not trust the new certificate. What it was told of
// the blade before is no sign that the blade has restarted again: it declares nothing dead.
func TestTakenInByOthers(t *testing.T) {
	b := newBed(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	b.catalogFile("c")()
	names := []string{"b0", "b1", "b2"}
	var addresses []string
	var stop func()
	for i, name := range names {
		end := b.blades([]uint64{size}, name)
		address := b.address(name)
		if i == 0 {
			stop = end
			address = b.address("tunnel")
		}
		addresses = append(addresses, address)
	}
	way := b.tunnel("tunnel", "b0")
	backups := 1
	g := cluster.Geometry{Backups: &backups, SegmentSize: 256 << 10, LogArea: 64 << 10}
	if err := cluster.Init(ctx, b.client("c"), b.list(names...), g, cluster.Options{}); err != nil {
		t.Fatal(err)
	}
	o := txn.Options{LeaseTerm: time.Second, Workers: 1, IndexGroups: 16}
	near, err := cluster.Open(ctx, b.address("c"), o, cluster.Options{})
	if err != nil {
		t.Fatal(err)
	}
	numbers, err := txn.CreateTable(near, "numbers", txn.Uint64, txn.Plain[uint64]())
	if err != nil {
		t.Fatal(err)
	}
	if o.Fabric, err = tcp.Dial(ctx, addresses, tcp.Options{}); err != nil {
		t.Fatal(err)
	}
	o.Catalog, o.Shared = b.client("c"), true
	far, err := txn.Open(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	others, err := txn.OpenTable(far, "numbers", txn.Uint64, txn.Plain[uint64]())
	if err != nil {
		t.Fatal(err)
	}
	put := func(db *txn.DB, table *txn.Table[uint64, uint64], key uint64) error {
		return db.Update(ctx, func(tx *txn.Tx) error { return table.Put(tx, key, key) })
	}
	for key := range uint64(20) {
		if err := errors.Join(put(near, numbers, key), put(far, others, 100+key)); err != nil {
			t.Fatal(err)
		}
	}
	way.end()
	stop()
	b.blades([]uint64{size}, "b0")
	for whole := false; !whole; { // the process that reaches it takes it in
		if err := put(near, numbers, 1); err != nil && ctx.Err() != nil {
			t.Fatal(err)
		}
		r := near.Redundancy()
		whole = len(r.Outages) > 0 && len(r.Down) == 0 && r.Missing+r.Building+r.Dirty == 0
	}
	epoch := near.Space().View().Epoch
	for range 20 { // it may need the blade, or not
		if err := put(far, others, 101); err != nil && ctx.Err() != nil {
			t.Fatal(err)
		}
	}
	if err := put(near, numbers, 2); err != nil {
		t.Error(err)
	}
	if r := near.Redundancy(); len(r.Outages) != 1 || len(r.Down) > 0 {
		t.Errorf("since epoch %d, blades %v are down in %d, outages: %+v",
			epoch, r.Down, near.Space().View().Epoch, r.Outages)
	}
	way.begin()
	for err := put(far, others, 102); err != nil; err = put(far, others, 102) {
		if ctx.Err() != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(far.Close(ctx), o.Catalog.Close(), o.Fabric.Close(), near.Close(ctx)); err != nil {
		t.Error(err)
	}
}
