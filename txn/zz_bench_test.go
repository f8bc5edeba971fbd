package txn_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"
	"syscall"
	"fmt"

	"txnode/txn"
)

func TestZZBench(t *testing.T) {
	ctx := context.Background()
	db, err := txn.Open(ctx, txn.Options{Blades: 2, BladeSize: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close(ctx)
	ot, err := txn.CreateOrderedTable(db, "o", txn.Uint64, txn.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	ht, err := txn.CreateTable(db, "h", txn.Uint64, txn.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	const n = 200_000
	val := make([]byte, 100)
	w, _ := db.NewWorker()
	defer w.Close()
	run := func(name string, n int, fn func(i int, tx *txn.Tx) error) {
		var r0, r1 syscall.Rusage
		syscall.Getrusage(0, &r0)
		begin := time.Now()
		for i := range n {
			if err := w.Update(ctx, func(tx *txn.Tx) error { return fn(i, tx) }); err != nil {
				t.Fatal(name, err)
			}
		}
		d := time.Since(begin)
		syscall.Getrusage(0, &r1)
		cpu := r1.Utime.Nano() + r1.Stime.Nano() - r0.Utime.Nano() - r0.Stime.Nano()
		fmt.Printf("cpu %8.0f ", float64(cpu)/float64(n))
		fmt.Printf("%-24s %8.0f ns each\n", name, float64(d.Nanoseconds())/float64(n))
	}
	run("ordered insert in order", n, func(i int, tx *txn.Tx) error { return ot.Insert(tx, uint64(i)<<8, val) })
	run("hash insert in order", n, func(i int, tx *txn.Tx) error { return ht.Insert(tx, uint64(i)<<8, val) })
	run("ordered insert random", n, func(i int, tx *txn.Tx) error { return ot.Put(tx, rand.Uint64N(n<<8), val) })
	run("ordered get", n, func(i int, tx *txn.Tx) error { _, err := ot.Get(tx, rand.Uint64N(n)<<8); return err })
	run("hash get", n, func(i int, tx *txn.Tx) error { _, err := ht.Get(tx, rand.Uint64N(n)<<8); return err })
	run("ordered scan 100", n/50, func(i int, tx *txn.Tx) error {
		k := 0
		for range ot.Range(tx, txn.Including(rand.Uint64N(n)<<8), txn.Bound[uint64]{}, txn.Limit(100)) {
			k++
		}
		return nil
	})
	run("ordered first", n/10, func(i int, tx *txn.Tx) error {
		_, _, _, err := ot.First(tx, txn.Including(rand.Uint64N(n)<<8), txn.Bound[uint64]{})
		return err
	})
}
