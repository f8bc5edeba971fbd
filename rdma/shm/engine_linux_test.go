package shm_test

import (
	"testing"

	"txnode/benchmarks/engine"
	"txnode/benchmarks/smallbank"
	"txnode/benchmarks/workload/storetest"
	"txnode/memory/catalog"
	"txnode/rdma/shm"
	"txnode/txn"
)

// TestSmallBank runs the engine on blades of two other processes, and checks its books.
func TestSmallBank(t *testing.T) {
	ctx, dir := t.Context(), directory(t)
	spawn(t, "serve", dir, "a", 1, 256<<20)
	spawn(t, "serve", dir, "b", 1, 256<<20)
	f := dial(t, dir, shm.Options{Seed: 1})
	o := smallbank.DefaultOptions()
	o.Accounts, o.HotAccounts, o.InitialBalance = 300, 20, "12.34" // conflicts and overdrafts are frequent
	d, err := smallbank.New(o)
	if err != nil {
		t.Fatal(err)
	}
	store, err := engine.Open(ctx, txn.Options{
		Fabric: f, Catalog: &catalog.Mem{}, Backups: txn.F(1),
		SegmentSize: 1 << 20, LogArea: 256 << 10, IndexGroups: 64,
	})
	if err != nil {
		t.Fatal(err)
	}
	storetest.Load(t, d, store)
	rounds := 2000
	if testing.Short() {
		rounds = 200
	}
	storetest.Play(t, d, store, rounds)
	if _, err := d.Verify(ctx, store); err != nil {
		t.Error(err)
	}
	if err := store.Close(ctx); err != nil {
		t.Error(err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}
