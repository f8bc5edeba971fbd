package storetest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"txnode/benchmarks/workload"
)

// ordered are the tables that have ranges.
var ordered = []int{2, 3}

// checkRanges: ranges against a sorted map, with what the transaction has written itself. A store
// without ranges passes.
func checkRanges(ctx context.Context, s workload.Store) error {
	const keys, last = 40, 1<<64 - 1
	keyOf := func(i int) uint64 { // neighbours, gaps, and both ends
		switch i {
		case 0, 1:
			return uint64(i)
		case keys - 1:
			return last
		}
		return uint64(i) * 0x0101010101010101 >> (i % 3 * 8)
	}
	return single(ctx, s, func(ctx context.Context, w workload.Worker) error {
		model := map[int]map[uint64]string{2: {}, 3: {}}
		rng := workload.NewRand(5, 5)
		for round := range 200 {
			var err error
			table := ordered[round%len(ordered)]
			change := func(tx workload.Tx) error {
				r, err := workload.RangerOf(tx)
				if err != nil {
					return err
				}
				rng := rng // the same in each attempt
				m := map[uint64]string{}
				for k, v := range model[table] {
					m[k] = v
				}
				for step := range 6 {
					k := keyOf(rng.Intn(keys))
					if rng.Intn(3) == 0 {
						if err := tx.Delete(table, k); err != nil && !errors.Is(err, workload.ErrNotFound) {
							return err
						}
						delete(m, k)
					} else {
						v := fmt.Sprintf("%d.%d", round, step)
						if err := tx.Put(table, k, []byte(v)); err != nil {
							return err
						}
						m[k] = v
					}
					if err := compareRange(r, table, &rng, keyOf, keys, m); err != nil {
						return err
					}
				}
				model[table] = m
				return nil
			}
			if err = w.Update(ctx, change); errors.Is(err, workload.ErrNoRanges) {
				return nil
			} else if err != nil {
				return err
			}
			rng.Uint64()
			err = w.View(ctx, func(tx workload.Tx) error {
				r, err := workload.RangerOf(tx)
				if err != nil {
					return err
				}
				rng := rng
				return compareRange(r, table, &rng, keyOf, keys, model[table])
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// compareRange reads a range that is drawn, and compares it.
func compareRange(tx workload.Ranger, table int, rng *workload.Rand, keyOf func(int) uint64, keys int,
	model map[uint64]string) error {
	r := workload.Range{
		From: keyOf(rng.Intn(keys)), To: keyOf(rng.Intn(keys)), Descending: rng.Intn(2) == 0, Limit: rng.Intn(8),
	}
	stop := rng.Intn(12) // calls after which do has enough
	var want, got []string
	var in []uint64
	for k := range model {
		if r.From <= k && k <= r.To {
			in = append(in, k)
		}
	}
	slices.Sort(in)
	if r.Descending {
		slices.Reverse(in)
	}
	for i, k := range in {
		if r.Limit > 0 && i == r.Limit {
			break
		}
		want = append(want, fmt.Sprintf("%d=%s", k, model[k]))
		if i == stop {
			break
		}
	}
	err := tx.Range(table, r, func(key uint64, value []byte) bool {
		got = append(got, fmt.Sprintf("%d=%s", key, value))
		return len(got) <= stop
	})
	if err != nil {
		return err
	}
	if !slices.Equal(got, want) {
		return fmt.Errorf("%+v of table %d, ended after %d, gives %v, want %v", r, table, stop+1, got, want)
	}
	return nil
}

// checkRangesAndInserts: a queue. Each transaction inserts behind the last record, or deletes the
// first one; all see a row of numbers without gaps.
func checkRangesAndInserts(ctx context.Context, s workload.Store) error {
	const table = 2
	whole := workload.Range{To: 1<<64 - 1}
	return s.Run(ctx, threads, coroutines, func(ctx context.Context, id int, w workload.Worker) error {
		rng := workload.NewRand(2, uint64(id))
		for range rounds {
			insert, n := rng.Intn(2) == 0, 0
			step := func(tx workload.Tx) error {
				r, err := workload.RangerOf(tx)
				if err != nil {
					return err
				}
				var first, last uint64
				n = 0
				gap := false
				err = r.Range(table, whole, func(key uint64, value []byte) bool {
					gap = gap || n > 0 && key != last+1 || binary.LittleEndian.Uint64(value) != key
					if last = key; n == 0 {
						first = key
					}
					n++
					return true
				})
				switch {
				case err != nil:
					return err
				case gap:
					return fmt.Errorf("a queue of %d records from %d to %d has gaps", n, first, last)
				case insert || n == 0:
					return tx.Insert(table, last+1, binary.LittleEndian.AppendUint64(nil, last+1))
				case n > 1: // the last one says where to go on
					return tx.Delete(table, first)
				}
				return nil
			}
			if err := w.Update(ctx, step); errors.Is(err, workload.ErrNoRanges) {
				return nil
			} else if err != nil {
				return err
			}
		}
		return nil
	})
}
