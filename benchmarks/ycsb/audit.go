package ycsb

import (
	"context"
	"math"
	"slices"
	"sync"

	"txnode/benchmarks/workload"
)

// audit is what reading records has found.
type audit struct {
	records      int
	sum          uint64 // of the words, modulo 1<<64
	absent       int
	missing      []uint64 // numbers that have no record, in order
	firstAbsent  uint64
	last         uint64 // the highest number that has a record, if records > 0
	damaged      int
	firstDamaged uint64
}

func (a *audit) add(number, key uint64, value []byte, size int) {
	if a.records == 0 || number > a.last {
		a.last = number
	}
	a.records++
	if len(value) != size || !whole(value, key) {
		if a.damaged == 0 || number < a.firstDamaged {
			a.firstDamaged = number
		}
		a.damaged++
		return
	}
	a.sum += word(value)
}

func (a *audit) miss(number uint64) {
	if a.absent == 0 || number < a.firstAbsent {
		a.firstAbsent = number
	}
	a.absent++
	a.missing = append(a.missing, number)
}

func (a *audit) merge(b *audit) {
	if b.records > 0 && (a.records == 0 || b.last > a.last) {
		a.last = b.last
	}
	if b.damaged > 0 && (a.damaged == 0 || b.firstDamaged < a.firstDamaged) {
		a.firstDamaged = b.firstDamaged
	}
	if b.absent > 0 && (a.absent == 0 || b.firstAbsent < a.firstAbsent) {
		a.firstAbsent = b.firstAbsent
	}
	a.records, a.damaged, a.absent, a.sum = a.records+b.records, a.damaged+b.damaged, a.absent+b.absent, a.sum+b.sum
	a.missing = append(a.missing, b.missing...)
}

func (a *audit) isMissing(number uint64) bool {
	_, is := slices.BinarySearch(a.missing, number)
	return is
}

// audit reads the records from lo to hi-1, while no client runs.
func (d *Driver) audit(ctx context.Context, store workload.Store, lo, hi uint64, progress func(done,
	total int)) (*audit, error) {
	var (
		sum audit
		mu  sync.Mutex // guards sum
	)
	err := workload.Scan(ctx, store, int(hi-lo), batch, progress,
		func(w workload.Worker) func(context.Context, int, int) error {
			return func(ctx context.Context, from, to int) error {
				var part audit
				err := w.View(ctx, func(tx workload.Tx) error {
					part = audit{} // of this attempt
					for i := from; i < to; i++ {
						tx.Stage(table, d.keyOf(lo+uint64(i)), workload.Read)
					}
					for i := from; i < to; i++ {
						number := lo + uint64(i)
						key := d.keyOf(number)
						v, found, err := workload.Find(tx, table, key)
						if err != nil {
							return err
						}
						if found {
							part.add(number, key, v, d.options.ValueSize)
						} else {
							part.miss(number)
						}
					}
					return nil
				})
				if err != nil {
					return err
				}
				mu.Lock()
				sum.merge(&part)
				mu.Unlock()
				return nil
			}
		})
	slices.Sort(sum.missing)
	return &sum, err
}

// page is how many records count reads in a transaction.
const page = 1000

// count scans the table, page after page, while no client runs.
func (d *Driver) count(ctx context.Context, store workload.Store) (n int, err error) {
	err = workload.Scan(ctx, store, 1, 1, nil, func(w workload.Worker) func(context.Context, int, int) error {
		return func(ctx context.Context, _, _ int) error {
			for from, more := uint64(0), true; more; {
				part, last := 0, uint64(0)
				err := w.View(ctx, func(tx workload.Tx) error {
					r, err := workload.RangerOf(tx)
					if err != nil {
						return err
					}
					part = 0 // of this attempt
					return r.Range(table, workload.Range{
						From: from, To: math.MaxUint64, Limit: page,
					}, func(key uint64, _ []byte) bool {
						part, last = part+1, key
						return true
					})
				})
				if err != nil {
					return err
				}
				n += part
				from, more = last+1, part == page && last < math.MaxUint64
			}
			return nil
		}
	})
	return n, err
}
