package storetest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"

	"txnode/benchmarks/workload"
)

// The concurrent checks run in every one of these workers, for some rounds.
const (
	threads    = 2
	coroutines = 4
	workers    = threads * coroutines
)

var rounds = 300

// SetRounds has the concurrent checks run for fewer rounds, or more, until the function that it
// returns is called: in an emulator a transaction takes a thousand times as long.
func SetRounds(n int) (restore func()) {
	was := rounds
	rounds = n
	return func() { rounds = was }
}

// number reads a number; an absent key is 0.
func number(tx workload.Tx, table int, key uint64) (int64, error) {
	v, err := tx.Get(table, key)
	if errors.Is(err, workload.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	if len(v) != 8 {
		return 0, fmt.Errorf("table %d key %d has %d bytes; 8 were put", table, key, len(v))
	}
	return int64(binary.LittleEndian.Uint64(v)), nil
}

func setNumber(tx workload.Tx, table int, key uint64, n int64) error {
	var buf [8]byte
	binary.LittleEndian.PutUint64(buf[:], uint64(n))
	return tx.Put(table, key, buf[:])
}

// checkCounter: no increment is lost, with and without announcing it.
func checkCounter(ctx context.Context, s workload.Store) error {
	var committed atomic.Uint64
	err := s.Run(ctx, threads, coroutines, func(ctx context.Context, id int, w workload.Worker) error {
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
	if err != nil {
		return err
	}
	if n := committed.Load(); n != uint64(workers*rounds) {
		return fmt.Errorf("%d transactions are counted as committed; %d returned without error", n, workers*rounds)
	}
	return single(ctx, s, func(ctx context.Context, w workload.Worker) error {
		return w.View(ctx, func(tx workload.Tx) error {
			n, err := number(tx, 0, 7)
			if err == nil && n != int64(workers*rounds) {
				err = fmt.Errorf("the counter is %d after %d increments", n, workers*rounds)
			}
			return err
		})
	})
}

// checkSnapshot: numbers move between keys of two tables, in any order; the sum
// that a View sees never changes. Half of the movers find their second key only
// after they have read the first one.
func checkSnapshot(ctx context.Context, s workload.Store) error {
	const keys = 6
	table := func(key uint64) int { return int(key % 2) }
	sum := func(tx workload.Tx) error {
		for key := range uint64(keys) {
			tx.Stage(table(key), key, workload.Read)
		}
		var sum int64
		for key := range uint64(keys) {
			n, err := number(tx, table(key), key)
			if err != nil {
				return err
			}
			sum += n
		}
		if sum != 0 {
			return fmt.Errorf("a View sees a sum of %d; it is always 0", sum)
		}
		return nil
	}
	return s.Run(ctx, threads, coroutines, func(ctx context.Context, id int, w workload.Worker) error {
		rng := workload.NewRand(1, uint64(id))
		var from, to uint64
		move := func(tx workload.Tx) error {
			tx.Stage(table(from), from, workload.Update)
			if id%2 == 0 {
				tx.Stage(table(to), to, workload.Update)
			}
			a, err := number(tx, table(from), from)
			if err != nil {
				return err
			}
			b, err := number(tx, table(to), to)
			if err != nil {
				return err
			}
			if err := setNumber(tx, table(from), from, a-1); err != nil {
				return err
			}
			return setNumber(tx, table(to), to, b+1)
		}
		for range rounds {
			var err error
			if id%3 == 0 {
				err = w.View(ctx, sum)
			} else {
				from = uint64(rng.Intn(keys))
				to = (from + 1 + uint64(rng.Intn(keys-1))) % keys
				err = w.Update(ctx, move)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// checkWriteSkew: of each pair of keys exactly one is set in the end, because
// every transaction reads both and sets its own if the other is not set.
func checkWriteSkew(ctx context.Context, s workload.Store) error {
	err := s.Run(ctx, threads, coroutines, func(ctx context.Context, id int, w workload.Worker) error {
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
	if err != nil {
		return err
	}
	return single(ctx, s, func(ctx context.Context, w workload.Worker) error {
		for pair := range uint64(rounds) {
			err := w.View(ctx, func(tx workload.Tx) error {
				a, err := number(tx, 0, 2*pair)
				if err != nil {
					return err
				}
				b, err := number(tx, 0, 2*pair+1)
				if err == nil && a+b != 1 {
					err = fmt.Errorf("pair %d is set to %d, %d; two transactions that each saw the other's key unset "+
						"are write skew", pair, a, b)
				}
				return err
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// checkInsertRace: committed inserts and deletes of a key alternate.
func checkInsertRace(ctx context.Context, s workload.Store) error {
	const keys = 4
	value := []byte("row")
	var balance [keys]atomic.Int64
	err := s.Run(ctx, threads, coroutines, func(ctx context.Context, id int, w workload.Worker) error {
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
	if err != nil {
		return err
	}
	return single(ctx, s, func(ctx context.Context, w workload.Worker) error {
		for key := range uint64(keys) {
			var want []byte
			switch n := balance[key].Load(); n {
			case 0:
			case 1:
				want = value
			default:
				return fmt.Errorf("key %d: committed inserts exceed committed deletes by %d", key, n)
			}
			err := w.View(ctx, func(tx workload.Tx) error { return expect(tx, 1, key, want) })
			if err != nil {
				return err
			}
		}
		return nil
	})
}
