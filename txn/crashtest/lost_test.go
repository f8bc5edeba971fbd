package crashtest

import (
	"context"
	"errors"
	"testing"

	"txnode/rdma"
	"txnode/rdma/rdmatest"
	"txnode/txn"
)

// TestPowerAfterDataLost: every copy of some records was lost with a blade, which whoever asks
// for them is told. After a loss of power the indexes cannot be built again with them: they
// must not be absent then, as if nobody had ever inserted them.
func TestPowerAfterDataLost(t *testing.T) {
	ctx := context.Background()
	const keys = 3000
	l := &life{Blades: 3, Workers: 1, Seed: 1}
	down := false
	cat := &powered{down: &down}
	f := rdmatest.New(rdmatest.Options{Blades: 3, Size: 16 << 20, Seed: 1, Volatile: true,
		Caps: rdma.Caps{Synchronous: true, Placed: true, OrderedLine: true, MaskedCAS: true}})
	o := l.onFabric(f, cat)
	db, err := txn.Open(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	table, err := txn.CreateTable(db, "records", txn.Uint64, txn.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	for from := uint64(0); from < keys; from += 20 {
		if err := db.Update(ctx, func(tx *txn.Tx) error {
			for k := from; k < from+20; k++ {
				if err := table.Put(tx, k, make([]byte, 200)); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	gaveUp := false
	// count counts the keys that are there, and those that are said to be lost.
	count := func() (there, lost int) {
		for k := range uint64(keys) {
			err := db.View(ctx, func(tx *txn.Tx) error {
				_, err := table.Get(tx, k)
				return err
			})
			switch {
			case err == nil:
				there++
			case errors.Is(err, txn.ErrLost):
				lost++
			case errors.Is(err, txn.ErrNotFound) && gaveUp:
			default:
				t.Fatalf("key %d: %v", k, err)
			}
		}
		return there, lost
	}
	if err := f.StopBlade(1); err != nil {
		t.Fatal(err)
	}
	there, lost := count()
	if there == 0 || lost == 0 {
		t.Fatalf("%d records are there, %d lost", there, lost)
	}
	for range 2 {
		f = f.LosePower(1)
		o.Fabric = f
		if db, err = txn.Open(ctx, o); err == nil {
			t.Fatal("it was opened, without what is lost")
		}
		if !errors.Is(err, txn.ErrLost) {
			t.Fatal(err)
		}
	}
	o.ReplaceLost, gaveUp = true, true
	for range 2 {
		if db, err = txn.Open(ctx, o); err != nil {
			t.Fatal(err)
		}
		if table, err = txn.OpenTable(db, "records", txn.Uint64, txn.Bytes()); err != nil {
			t.Fatal(err)
		}
		if now, gone := count(); now != there || gone != 0 {
			t.Fatalf("opened without what is lost: %d records are there, and %d lost, of %d", now, gone, there)
		}
		f = f.LosePower(2)
		o.Fabric, o.ReplaceLost = f, false // that was said once
	}
}
