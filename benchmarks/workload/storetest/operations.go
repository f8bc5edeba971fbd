package storetest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"

	"txnode/benchmarks/workload"
)

// checkTables: tables that exist are opened, with their data.
func checkTables(ctx context.Context, s workload.Store) error {
	err := single(ctx, s, func(ctx context.Context, w workload.Worker) error {
		return w.Update(ctx, func(tx workload.Tx) error { return tx.Insert(0, 1, []byte("kept")) })
	})
	if err != nil {
		return err
	}
	if existed, err := s.Tables(ctx, tables); err != nil || !existed {
		return fmt.Errorf("Tables again: existed %v, error %v", existed, err)
	}
	return single(ctx, s, func(ctx context.Context, w workload.Worker) error {
		return w.View(ctx, func(tx workload.Tx) error { return expect(tx, 0, 1, []byte("kept")) })
	})
}

// checkOperations: each operation in a transaction of its own.
func checkOperations(ctx context.Context, s workload.Store) error {
	const last = 1<<64 - 1
	long := bytes.Repeat([]byte("x"), tables[0].MaxValue)
	steps := []func(tx workload.Tx) error{
		func(tx workload.Tx) error { return expect(tx, 0, 1, nil) },
		func(tx workload.Tx) error { return refuse(tx.Delete(0, 1), workload.ErrNotFound) },
		func(tx workload.Tx) error { return tx.Insert(0, 1, []byte("one")) },
		func(tx workload.Tx) error { return expect(tx, 0, 1, []byte("one")) },
		func(tx workload.Tx) error { return expect(tx, 1, 1, nil) },
		func(tx workload.Tx) error { return refuse(tx.Insert(0, 1, []byte("two")), workload.ErrExists) },
		func(tx workload.Tx) error { return expect(tx, 0, 1, []byte("one")) },
		func(tx workload.Tx) error { return tx.Put(0, 1, []byte("two")) },
		func(tx workload.Tx) error { return expect(tx, 0, 1, []byte("two")) },
		func(tx workload.Tx) error { return tx.Put(0, 1, long) },
		func(tx workload.Tx) error { return expect(tx, 0, 1, long) },
		func(tx workload.Tx) error { return tx.Put(0, 1, []byte{}) },
		func(tx workload.Tx) error { return expect(tx, 0, 1, []byte{}) },
		func(tx workload.Tx) error { return tx.Put(1, 1, []byte("other")) },
		func(tx workload.Tx) error { return tx.Delete(0, 1) },
		func(tx workload.Tx) error { return expect(tx, 0, 1, nil) },
		func(tx workload.Tx) error { return expect(tx, 1, 1, []byte("other")) },
		func(tx workload.Tx) error { return refuse(tx.Delete(0, 1), workload.ErrNotFound) },
		func(tx workload.Tx) error { return tx.Insert(0, 1, []byte("again")) },
		func(tx workload.Tx) error { return expect(tx, 0, 1, []byte("again")) },
		func(tx workload.Tx) error { return tx.Put(0, last, []byte("last key")) },
		func(tx workload.Tx) error { return expect(tx, 0, last, []byte("last key")) },
	}
	return single(ctx, s, func(ctx context.Context, w workload.Worker) error {
		for i, step := range steps {
			if err := w.Update(ctx, step); err != nil {
				return fmt.Errorf("step %d: %w", i, err)
			}
		}
		before := w.Counters().Committed
		return first(
			func() error {
				return w.Update(ctx, func(tx workload.Tx) error { return tx.Put(0, 1, []byte("a")) })
			},
			func() error {
				return w.View(ctx, func(tx workload.Tx) error { return expect(tx, 0, 1, []byte("a")) })
			},
			func() error {
				if n := w.Counters().Committed - before; n != 2 {
					return fmt.Errorf("an Update and a View count as %d committed transactions", n)
				}
				return nil
			},
		)
	})
}

// checkOwnWrites: a transaction sees what it has written, however its keys were
// staged.
func checkOwnWrites(ctx context.Context, s workload.Store) error {
	return single(ctx, s, func(ctx context.Context, w workload.Worker) error {
		err := w.Update(ctx, func(tx workload.Tx) error {
			tx.Stage(0, 1, workload.Update)
			tx.Stage(0, 2, workload.Read)
			tx.Stage(0, 1, workload.Read) // once more
			return first(
				func() error { return tx.Insert(0, 1, []byte("one")) },
				func() error { return expect(tx, 0, 1, []byte("one")) },
				func() error { return refuse(tx.Insert(0, 1, []byte("no")), workload.ErrExists) },
				func() error { return tx.Put(0, 1, []byte("longer")) },
				func() error { return expect(tx, 0, 1, []byte("longer")) },
				func() error { return expect(tx, 0, 2, nil) },
				func() error { return tx.Delete(0, 1) },
				func() error { return expect(tx, 0, 1, nil) },
				func() error { return refuse(tx.Delete(0, 1), workload.ErrNotFound) },
				func() error { return tx.Insert(0, 1, []byte("back")) },
				func() error { return tx.Put(0, 2, []byte("staged to read")) },
				func() error { return tx.Put(0, 3, []byte("temporary")) },
				func() error { return tx.Delete(0, 3) },
				func() error { return expect(tx, 0, 1, []byte("back")) },
			)
		})
		if err != nil {
			return err
		}
		return w.View(ctx, func(tx workload.Tx) error {
			return first(
				func() error { return expect(tx, 0, 1, []byte("back")) },
				func() error { return expect(tx, 0, 2, []byte("staged to read")) },
				func() error { return expect(tx, 0, 3, nil) },
			)
		})
	})
}

// checkRollback: an error of the function is returned, and nothing has happened.
func checkRollback(ctx context.Context, s workload.Store) error {
	decision := errors.New("decided against it")
	return single(ctx, s, func(ctx context.Context, w workload.Worker) error {
		err := w.Update(ctx, func(tx workload.Tx) error {
			return first(
				func() error { return tx.Put(0, 1, []byte("one")) },
				func() error { return tx.Put(0, 2, []byte("two")) },
			)
		})
		if err != nil {
			return err
		}
		err = w.Update(ctx, func(tx workload.Tx) error {
			for key := range uint64(4) {
				tx.Stage(0, key, workload.Update)
			}
			return first(
				func() error { return tx.Put(0, 1, []byte("changed")) },
				func() error { return tx.Delete(0, 2) },
				func() error { return tx.Insert(0, 3, []byte("three")) },
				func() error { return decision },
			)
		})
		if !errors.Is(err, decision) {
			return fmt.Errorf("a rolled back Update returned %v, not the error of its function", err)
		}
		if err := w.View(ctx, func(workload.Tx) error { return decision }); !errors.Is(err, decision) {
			return fmt.Errorf("a View returned %v, not the error of its function", err)
		}
		return w.Update(ctx, func(tx workload.Tx) error {
			return first(
				func() error { return expect(tx, 0, 1, []byte("one")) },
				func() error { return expect(tx, 0, 2, []byte("two")) },
				func() error { return expect(tx, 0, 3, nil) },
			)
		})
	})
}

// checkCopies: values put are copied, values got stay.
func checkCopies(ctx context.Context, s workload.Store) error {
	return single(ctx, s, func(ctx context.Context, w workload.Worker) error {
		buf := make([]byte, 4)
		put := func(tx workload.Tx, key uint64, text string) func() error {
			return func() error {
				copy(buf, text)
				return tx.Put(0, key, buf)
			}
		}
		err := w.Update(ctx, func(tx workload.Tx) error {
			err := first(put(tx, 1, "mine"), put(tx, 2, "next"))
			copy(buf, "junk")
			return err
		})
		if err != nil {
			return err
		}
		return w.Update(ctx, func(tx workload.Tx) error {
			one, err := tx.Get(0, 1)
			if err != nil {
				return err
			}
			err = first(
				func() error { return expect(tx, 0, 2, []byte("next")) },
				func() error { return tx.Put(0, 1, []byte("newer")) },
				func() error { return tx.Put(0, 2, []byte("newest")) },
			)
			if err != nil {
				return err
			}
			if string(one) != "mine" {
				return fmt.Errorf("a value returned by Get has turned from %q into %q", "mine", one)
			}
			return nil
		})
	})
}

// checkManyKeys: more keys in a transaction than a store may have thought of.
func checkManyKeys(ctx context.Context, s workload.Store) error {
	const keys = 200
	value := func(key uint64) []byte { return binary.LittleEndian.AppendUint64(nil, key*key) }
	return single(ctx, s, func(ctx context.Context, w workload.Worker) error {
		err := w.Update(ctx, func(tx workload.Tx) error {
			for key := range uint64(keys) {
				tx.Stage(int(key%2), key, workload.Update)
			}
			for key := range uint64(keys) {
				if err := tx.Insert(int(key%2), key, value(key)); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		return w.View(ctx, func(tx workload.Tx) error {
			for key := range uint64(keys) {
				tx.Stage(0, key, workload.Read)
				tx.Stage(1, key, workload.Read)
			}
			for key := range uint64(keys) {
				err := first(
					func() error { return expect(tx, int(key%2), key, value(key)) },
					func() error { return expect(tx, int(1-key%2), key, nil) },
				)
				if err != nil {
					return err
				}
			}
			return nil
		})
	})
}

// checkRun: every worker is started once, and an error is returned.
func checkRun(ctx context.Context, s workload.Store) error {
	var calls, ids atomic.Int64
	failure := errors.New("worker 4 fails")
	before := s.Now()
	err := s.Run(ctx, 2, 3, func(_ context.Context, id int, w workload.Worker) error {
		calls.Add(1)
		ids.Add(1 << (8 * id))
		if id == 4 {
			return failure
		}
		return nil
	})
	if !errors.Is(err, failure) {
		return fmt.Errorf("Run returned %v, not the error of worker 4", err)
	}
	if calls.Load() != 6 || ids.Load() != 0x010101010101 {
		return fmt.Errorf("%d workers were started, the sum of 256^id is %#x; it must be 6, each id once",
			calls.Load(), ids.Load())
	}
	if now := s.Now(); now < before {
		return fmt.Errorf("the store's clock went back from %d to %d", before, now)
	}
	return nil
}
