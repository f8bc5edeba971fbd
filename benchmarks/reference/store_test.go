package reference_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"testing"

	"txnode/benchmarks/reference"
	"txnode/benchmarks/workload"
	"txnode/benchmarks/workload/storetest"
)

// One shard makes every key collide; few make many collide; the default is
// what is measured.
func TestStore(t *testing.T) {
	for _, shards := range []int{0, 1, 4} {
		t.Run(fmt.Sprintf("shards=%d", shards), func(t *testing.T) {
			storetest.Test(t, func(*testing.T) workload.Store {
				return reference.Open(reference.Options{Shards: shards})
			})
		})
	}
}

func TestTablesDiffer(t *testing.T) {
	s := reference.Open(reference.Options{})
	if _, err := s.Tables(t.Context(), []workload.Table{{Name: "a"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Tables(t.Context(), []workload.Table{{Name: "b"}}); err == nil {
		t.Error("other tables are accepted")
	}
}

func TestViewCannotWrite(t *testing.T) {
	s := reference.Open(reference.Options{})
	if _, err := s.Tables(t.Context(), []workload.Table{{Name: "a", MaxValue: 8}}); err != nil {
		t.Fatal(err)
	}
	err := s.Run(t.Context(), 1, 1, func(ctx context.Context, _ int, w workload.Worker) error {
		if err := w.Update(ctx, func(tx workload.Tx) error { return tx.Put(0, 1, []byte("x")) }); err != nil {
			return err
		}
		for name, write := range map[string]func(tx workload.Tx) error{
			"Put":    func(tx workload.Tx) error { return tx.Put(0, 1, nil) },
			"Insert": func(tx workload.Tx) error { return tx.Insert(0, 2, nil) },
			"Delete": func(tx workload.Tx) error { return tx.Delete(0, 1) },
		} {
			if err := w.View(ctx, write); err == nil {
				t.Errorf("%s succeeds in a View", name)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A transaction that asks for a lower lock than it holds starts again when that
// lock is taken, and then has both in order.
func TestConflictIsRetried(t *testing.T) {
	s := reference.Open(reference.Options{})
	if _, err := s.Tables(t.Context(), []workload.Table{
		{Name: "low", MaxValue: 8}, {Name: "high", MaxValue: 8},
	}); err != nil {
		t.Fatal(err)
	}
	holding, attempted := make(chan bool), make(chan bool)
	err := s.Run(t.Context(), 2, 1, func(ctx context.Context, id int, w workload.Worker) error {
		if id == 0 {
			return w.Update(ctx, func(tx workload.Tx) error {
				if err := tx.Put(0, 1, []byte("first")); err != nil {
					return err
				}
				holding <- true
				<-attempted
				return nil
			})
		}
		attempts := 0
		<-holding
		err := w.Update(ctx, func(tx workload.Tx) error {
			attempts++
			if err := tx.Put(1, 1, []byte("high")); err != nil {
				return err
			}
			v, err := tx.Get(0, 1)
			if attempts == 1 {
				if err == nil {
					t.Error("a lock that is held was obtained")
				}
				close(attempted)
				return nil // a function that ignores the error must not commit either
			}
			if string(v) != "first" {
				t.Errorf("the second attempt sees %q, %v", v, err)
			}
			return err
		})
		if c := w.Counters(); attempts != 2 || c.Aborts[workload.AbortLocked] != 1 || c.Committed != 1 {
			t.Errorf("%d attempts, counters %+v", attempts, c)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestNothingIsAllocatedPerTransaction(t *testing.T) {
	s := reference.Open(reference.Options{})
	if _, err := s.Tables(t.Context(), []workload.Table{{Name: "a", MaxValue: 8, Expect: 100}}); err != nil {
		t.Fatal(err)
	}
	err := s.Run(t.Context(), 1, 1, func(ctx context.Context, _ int, w workload.Worker) error {
		var value [8]byte
		i := uint64(0)
		fn := func(tx workload.Tx) error {
			i++
			binary.LittleEndian.PutUint64(value[:], i)
			tx.Stage(0, i%10, workload.Update)
			tx.Stage(0, i%7, workload.Update)
			if err := tx.Put(0, i%10, value[:]); err != nil {
				return err
			}
			return tx.Put(0, i%7, value[:])
		}
		run := func() {
			if err := w.Update(ctx, fn); err != nil {
				t.Error(err)
			}
		}
		for range 100 {
			run()
		}
		if n := testing.AllocsPerRun(1000, run); n != 0 {
			t.Errorf("%v allocations per transaction", n)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
