package storetest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"txnode/benchmarks/workload"
)

// tables of every test.
var tables = []workload.Table{
	{Name: "first", MaxValue: 64, Expect: 1000},
	{Name: "second", MaxValue: 16, Expect: 1000},
}

// Test runs the suite. open returns a new, empty store each time, which the
// suite closes.
func Test(t *testing.T, open func(t *testing.T) workload.Store) {
	for _, test := range []struct {
		name string
		run  func(t *testing.T, s workload.Store)
	}{
		{"Tables", testTables},
		{"Operations", testOperations},
		{"OwnWrites", testOwnWrites},
		{"Rollback", testRollback},
		{"Copies", testCopies},
		{"ManyKeys", testManyKeys},
		{"Run", testRun},
		{"Counter", testCounter},
		{"Snapshot", testSnapshot},
		{"WriteSkew", testWriteSkew},
		{"InsertRace", testInsertRace},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := open(t)
			if existed, err := s.Tables(t.Context(), tables); err != nil || existed {
				t.Fatalf("Tables of a new store: existed %v, error %v", existed, err)
			}
			defer func() {
				if err := s.Close(context.WithoutCancel(t.Context())); err != nil {
					t.Errorf("Close: %v", err)
				}
			}()
			test.run(t, s)
		})
	}
}

// single runs fn in one worker.
func single(t *testing.T, s workload.Store, fn func(ctx context.Context, w workload.Worker)) {
	t.Helper()
	err := s.Run(t.Context(), 1, 1, func(ctx context.Context, _ int, w workload.Worker) error {
		fn(ctx, w)
		return nil
	})
	if err != nil {
		t.Fatalf("Run: %v", err)
	}
}

// must fails the test if the transaction fails.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("transaction: %v", err)
	}
}

// expect is an error unless the key has the value; nil means absent.
func expect(tx workload.Tx, table int, key uint64, want []byte) error {
	got, err := tx.Get(table, key)
	switch {
	case want == nil && errors.Is(err, workload.ErrNotFound):
		return nil
	case err != nil:
		return err
	case want == nil:
		return fmt.Errorf("table %d key %d is %q; it must be absent", table, key, got)
	case !bytes.Equal(got, want):
		return fmt.Errorf("table %d key %d is %q; it must be %q", table, key, got, want)
	}
	return nil
}

// is turns the answer of an operation into an error unless it is want.
func is(err, want error) error {
	switch {
	case want == nil || errors.Is(err, want):
		if want != nil {
			return nil
		}
		return err
	case err == nil:
		return fmt.Errorf("the operation succeeded; it must fail: %v", want)
	}
	return err
}

func testTables(t *testing.T, s workload.Store) {
	single(t, s, func(ctx context.Context, w workload.Worker) {
		must(t, w.Update(ctx, func(tx workload.Tx) error { return tx.Insert(0, 1, []byte("kept")) }))
	})
	if existed, err := s.Tables(t.Context(), tables); err != nil || !existed {
		t.Fatalf("Tables again: existed %v, error %v", existed, err)
	}
	single(t, s, func(ctx context.Context, w workload.Worker) {
		must(t, w.View(ctx, func(tx workload.Tx) error { return expect(tx, 0, 1, []byte("kept")) }))
	})
}

func testOperations(t *testing.T, s workload.Store) {
	long := bytes.Repeat([]byte("x"), tables[0].MaxValue)
	single(t, s, func(ctx context.Context, w workload.Worker) {
		for i, step := range []func(tx workload.Tx) error{
			func(tx workload.Tx) error { return expect(tx, 0, 1, nil) },
			func(tx workload.Tx) error { return is(tx.Delete(0, 1), workload.ErrNotFound) },
			func(tx workload.Tx) error { return tx.Insert(0, 1, []byte("one")) },
			func(tx workload.Tx) error { return expect(tx, 0, 1, []byte("one")) },
			func(tx workload.Tx) error { return expect(tx, 1, 1, nil) },
			func(tx workload.Tx) error { return is(tx.Insert(0, 1, []byte("two")), workload.ErrExists) },
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
			func(tx workload.Tx) error { return is(tx.Delete(0, 1), workload.ErrNotFound) },
			func(tx workload.Tx) error { return tx.Insert(0, 1, []byte("again")) },
			func(tx workload.Tx) error { return expect(tx, 0, 1, []byte("again")) },
			func(tx workload.Tx) error { return tx.Put(0, 1<<64-1, []byte("last key")) },
			func(tx workload.Tx) error { return expect(tx, 0, 1<<64-1, []byte("last key")) },
		} {
			if err := w.Update(ctx, step); err != nil {
				t.Fatalf("step %d: %v", i, err)
			}
		}
		before := w.Counters().Committed
		must(t, w.Update(ctx, func(tx workload.Tx) error { return tx.Put(0, 1, []byte("a")) }))
		must(t, w.View(ctx, func(tx workload.Tx) error { return expect(tx, 0, 1, []byte("a")) }))
		if n := w.Counters().Committed - before; n != 2 {
			t.Errorf("an Update and a View count as %d committed transactions", n)
		}
	})
}

func testOwnWrites(t *testing.T, s workload.Store) {
	single(t, s, func(ctx context.Context, w workload.Worker) {
		must(t, w.Update(ctx, func(tx workload.Tx) error {
			tx.Stage(0, 1, workload.Update)
			tx.Stage(0, 2, workload.Read)
			tx.Stage(0, 1, workload.Read) // once more
			return errors.Join(
				tx.Insert(0, 1, []byte("one")),
				expect(tx, 0, 1, []byte("one")),
				is(tx.Insert(0, 1, []byte("no")), workload.ErrExists),
				tx.Put(0, 1, []byte("longer")),
				expect(tx, 0, 1, []byte("longer")),
				expect(tx, 0, 2, nil),
				tx.Delete(0, 1),
				expect(tx, 0, 1, nil),
				is(tx.Delete(0, 1), workload.ErrNotFound),
				tx.Insert(0, 1, []byte("back")),
				tx.Put(0, 2, []byte("was staged to be read")),
				tx.Put(0, 3, []byte("temporary")),
				tx.Delete(0, 3),
				expect(tx, 0, 1, []byte("back")),
			)
		}))
		must(t, w.View(ctx, func(tx workload.Tx) error {
			return errors.Join(expect(tx, 0, 1, []byte("back")), expect(tx, 0, 2, []byte("was staged to be read")), expect(tx, 0, 3, nil))
		}))
	})
}

func testRollback(t *testing.T, s workload.Store) {
	single(t, s, func(ctx context.Context, w workload.Worker) {
		must(t, w.Update(ctx, func(tx workload.Tx) error {
			return errors.Join(tx.Put(0, 1, []byte("one")), tx.Put(0, 2, []byte("two")))
		}))
		decision := errors.New("decided against it")
		err := w.Update(ctx, func(tx workload.Tx) error {
			for key := range uint64(4) {
				tx.Stage(0, key, workload.Update)
			}
			if err := errors.Join(tx.Put(0, 1, []byte("changed")), tx.Delete(0, 2), tx.Insert(0, 3, []byte("three"))); err != nil {
				return err
			}
			return decision
		})
		if !errors.Is(err, decision) {
			t.Fatalf("a rolled back Update returned %v, not the error of its function", err)
		}
		if err := w.View(ctx, func(workload.Tx) error { return decision }); !errors.Is(err, decision) {
			t.Fatalf("a View returned %v, not the error of its function", err)
		}
		must(t, w.Update(ctx, func(tx workload.Tx) error {
			return errors.Join(expect(tx, 0, 1, []byte("one")), expect(tx, 0, 2, []byte("two")), expect(tx, 0, 3, nil))
		}))
	})
}

func testCopies(t *testing.T, s workload.Store) {
	single(t, s, func(ctx context.Context, w workload.Worker) {
		buf := []byte("mine")
		must(t, w.Update(ctx, func(tx workload.Tx) error {
			if err := tx.Put(0, 1, buf); err != nil {
				return err
			}
			copy(buf, "next")
			if err := tx.Put(0, 2, buf); err != nil {
				return err
			}
			copy(buf, "junk")
			return nil
		}))
		must(t, w.Update(ctx, func(tx workload.Tx) error {
			one, err := tx.Get(0, 1)
			if err != nil {
				return err
			}
			// A value stays valid while other keys are read and written.
			if err := errors.Join(expect(tx, 0, 2, []byte("next")), tx.Put(0, 1, []byte("newer")), tx.Put(0, 2, []byte("newest"))); err != nil {
				return err
			}
			if string(one) != "mine" {
				return fmt.Errorf("a value returned by Get has turned into %q", one)
			}
			return nil
		}))
	})
}

// testManyKeys uses more keys in a transaction than a store may have thought of.
func testManyKeys(t *testing.T, s workload.Store) {
	const keys = 200
	value := func(key uint64) []byte { return binary.LittleEndian.AppendUint64(nil, key*key) }
	single(t, s, func(ctx context.Context, w workload.Worker) {
		must(t, w.Update(ctx, func(tx workload.Tx) error {
			for key := range uint64(keys) {
				tx.Stage(int(key%2), key, workload.Update)
			}
			for key := range uint64(keys) {
				if err := tx.Insert(int(key%2), key, value(key)); err != nil {
					return err
				}
			}
			return nil
		}))
		must(t, w.View(ctx, func(tx workload.Tx) error {
			for key := range uint64(keys) {
				tx.Stage(0, key, workload.Read)
				tx.Stage(1, key, workload.Read)
			}
			for key := range uint64(keys) {
				if err := errors.Join(expect(tx, int(key%2), key, value(key)), expect(tx, int(1-key%2), key, nil)); err != nil {
					return err
				}
			}
			return nil
		}))
	})
}

func testRun(t *testing.T, s workload.Store) {
	const threads, coroutines = 2, 3
	var calls, ids atomic.Int64
	failure := errors.New("worker 4 fails")
	before := s.Now()
	err := s.Run(t.Context(), threads, coroutines, func(_ context.Context, id int, w workload.Worker) error {
		calls.Add(1)
		ids.Add(1 << (8 * id))
		if id == 4 {
			return failure
		}
		return nil
	})
	if !errors.Is(err, failure) {
		t.Errorf("Run returned %v, not the error of worker 4", err)
	}
	if calls.Load() != threads*coroutines || ids.Load() != 0x010101010101 {
		t.Errorf("%d workers were started, with ids %#x; it must be 6, each id once", calls.Load(), ids.Load())
	}
	if now := s.Now(); now < before {
		t.Errorf("the store's clock went back from %d to %d", before, now)
	}
}

// rounds of the concurrent tests, per worker.
const (
	threads    = 2
	coroutines = 4
	workers    = threads * coroutines
	rounds     = 300
)

func number(tx workload.Tx, table int, key uint64) (int64, error) {
	v, err := tx.Get(table, key)
	if errors.Is(err, workload.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return int64(binary.LittleEndian.Uint64(v)), nil
}

func setNumber(tx workload.Tx, table int, key uint64, n int64) error {
	var buf [8]byte
	binary.LittleEndian.PutUint64(buf[:], uint64(n))
	return tx.Put(table, key, buf[:])
}

func concurrently(t *testing.T, s workload.Store, fn func(ctx context.Context, id int, w workload.Worker) error) {
	t.Helper()
	if err := s.Run(t.Context(), threads, coroutines, fn); err != nil {
		t.Fatal(err)
	}
}

// testCounter: no increment is lost, with and without announcing it.
func testCounter(t *testing.T, s workload.Store) {
	var committed atomic.Uint64
	concurrently(t, s, func(ctx context.Context, id int, w workload.Worker) error {
		for range rounds {
			err := w.Update(ctx, func(tx workload.Tx) error {
				if id%2 == 0 {
					tx.Stage(0, 7, workload.Update)
				}
				n, err := number(tx, 0, 7)
				if err != nil {
					return err
				}
				return setNumber(tx, 0, 7, n+1)
			})
			if err != nil {
				return err
			}
		}
		committed.Add(w.Counters().Committed)
		return nil
	})
	if committed.Load() != workers*rounds {
		t.Errorf("%d transactions are counted as committed; %d returned without error", committed.Load(), workers*rounds)
	}
	single(t, s, func(ctx context.Context, w workload.Worker) {
		must(t, w.View(ctx, func(tx workload.Tx) error {
			n, err := number(tx, 0, 7)
			if err == nil && n != workers*rounds {
				err = fmt.Errorf("the counter is %d after %d increments", n, workers*rounds)
			}
			return err
		}))
	})
}

// testSnapshot: money moves between keys of two tables, in both orders; the sum
// that a View sees never changes. Half of the transactions find their second
// key only after they have read the first one.
func testSnapshot(t *testing.T, s workload.Store) {
	const keys = 6
	concurrently(t, s, func(ctx context.Context, id int, w workload.Worker) error {
		rng := workload.NewRand(1, uint64(id))
		for range rounds {
			var err error
			if id%3 == 0 {
				err = w.View(ctx, func(tx workload.Tx) error {
					for key := range uint64(keys) {
						tx.Stage(int(key%2), key, workload.Read)
					}
					var sum int64
					for key := range uint64(keys) {
						n, err := number(tx, int(key%2), key)
						if err != nil {
							return err
						}
						sum += n
					}
					if sum != 0 {
						return fmt.Errorf("a View sees a sum of %d; it is always 0", sum)
					}
					return nil
				})
			} else {
				from, to := uint64(rng.Intn(keys)), uint64(rng.Intn(keys))
				if from == to {
					continue
				}
				err = w.Update(ctx, func(tx workload.Tx) error {
					tx.Stage(int(from%2), from, workload.Update)
					if id%2 == 0 {
						tx.Stage(int(to%2), to, workload.Update)
					}
					a, err := number(tx, int(from%2), from)
					if err != nil {
						return err
					}
					b, err := number(tx, int(to%2), to)
					if err != nil {
						return err
					}
					if err := setNumber(tx, int(from%2), from, a-1); err != nil {
						return err
					}
					return setNumber(tx, int(to%2), to, b+1)
				})
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// testWriteSkew: pairs of keys of which at most one may be set. Each
// transaction reads both and sets its own if the other is not.
func testWriteSkew(t *testing.T, s workload.Store) {
	concurrently(t, s, func(ctx context.Context, id int, w workload.Worker) error {
		for pair := range uint64(rounds) {
			mine, other := 2*pair+uint64(id%2), 2*pair+uint64(1-id%2)
			err := w.Update(ctx, func(tx workload.Tx) error {
				tx.Stage(0, mine, workload.Update)
				tx.Stage(0, other, workload.Read)
				n, err := number(tx, 0, other)
				if err != nil || n != 0 {
					return err
				}
				return setNumber(tx, 0, mine, 1)
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	single(t, s, func(ctx context.Context, w workload.Worker) {
		for pair := range uint64(rounds) {
			must(t, w.View(ctx, func(tx workload.Tx) error {
				a, errA := number(tx, 0, 2*pair)
				b, errB := number(tx, 0, 2*pair+1)
				if errA == nil && errB == nil && a+b != 1 {
					return fmt.Errorf("pair %d: both transactions saw the other's key unset (write skew), or neither ran: %d, %d", pair, a, b)
				}
				return errors.Join(errA, errB)
			}))
		}
	})
}

// testInsertRace: of all inserts and deletes of a key, committed ones alternate.
func testInsertRace(t *testing.T, s workload.Store) {
	const keys = 4
	var balance [keys]atomic.Int64
	concurrently(t, s, func(ctx context.Context, id int, w workload.Worker) error {
		value := []byte("row")
		for i := range rounds {
			key := uint64(i % keys)
			insert := (i/keys+id)%2 == 0
			err := w.Update(ctx, func(tx workload.Tx) error {
				tx.Stage(1, key, workload.Update)
				if insert {
					return tx.Insert(1, key, value)
				}
				return tx.Delete(1, key)
			})
			switch {
			case err == nil && insert:
				balance[key].Add(1)
			case err == nil:
				balance[key].Add(-1)
			case !errors.Is(err, workload.ErrExists) && !errors.Is(err, workload.ErrNotFound):
				return err
			}
		}
		return nil
	})
	single(t, s, func(ctx context.Context, w workload.Worker) {
		for key := range uint64(keys) {
			must(t, w.View(ctx, func(tx workload.Tx) error {
				switch n := balance[key].Load(); n {
				case 0:
					return expect(tx, 1, key, nil)
				case 1:
					return expect(tx, 1, key, []byte("row"))
				default:
					return fmt.Errorf("key %d: committed inserts exceed committed deletes by %d", key, n)
				}
			}))
		}
	})
}
