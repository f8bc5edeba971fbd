package crashtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"txnode/txn"
)

// sorted is what clients write beside the records, in ordered tables: a mirror of the records,
// which each transaction changes with them, and a queue, whose numbers are without a gap from its
// head to its tail. And a table with secondary indexes.
type sorted struct {
	mirror  *txn.OrderedTable[string, []byte]
	queue   *txn.OrderedTable[uint64, uint64]
	indexed *indexed
}

// openSorted opens the tables, or makes them.
func openSorted(db *txn.DB, l *life) (*sorted, error) {
	mirror, err := txn.CreateOrderedTable(db, "mirror", txn.String, txn.Bytes())
	if err != nil {
		return nil, err
	}
	queue, err := txn.CreateOrderedTable(db, "queue", txn.Uint64, txn.Plain[uint64]())
	if err != nil {
		return nil, err
	}
	indexed, err := openIndexed(db, l.Accounts%2 == 0)
	return &sorted{mirror, queue, indexed}, err
}

// sortedKey is the key of a record's image in the mirror. It is so long that a leaf has room for
// eight or so, and begins with what differs, so that few keys make a tree of several levels. The
// order is that of the records' keys.
func sortedKey(k uint64) string { return strings.Repeat(fmt.Sprintf("%06d", 240*k), 20) }

// put puts a record's new state, nil if it is deleted, into the mirror.
func (s *sorted) put(tx *txn.Tx, k uint64, value []byte) error {
	if value == nil {
		return s.mirror.Delete(tx, sortedKey(k))
	}
	return s.mirror.Put(tx, sortedKey(k), value)
}

// turn appends to the queue, or takes from it, a few numbers at a time.
func (s *sorted) turn(ctx context.Context, w *txn.Worker, r *rand.Rand) error {
	n, take := 1+r.Uint64N(12), r.IntN(2) == 0
	return w.Update(ctx, func(tx *txn.Tx) error {
		if take {
			next, first := uint64(0), true
			for k, v := range s.queue.Range(tx, txn.Bound[uint64]{}, txn.Bound[uint64]{}, txn.Limit(int(n))) {
				if v != ^k || !first && k != next {
					return fmt.Errorf("the queue has %d with %#x, where %d is due", k, v, next)
				}
				next, first = k+1, false
				if err := s.queue.Delete(tx, k); err != nil {
					return err
				}
			}
			return tx.Err()
		}
		last, _, found, err := s.queue.Last(tx, txn.Bound[uint64]{}, txn.Bound[uint64]{})
		if err != nil {
			return err
		}
		if found {
			last++
		}
		for k := last; k < last+n; k++ {
			if err := s.queue.Put(tx, k, ^k); err != nil {
				return err
			}
		}
		return nil
	})
}

// agrees holds a range of the mirror, from some key on, against reads of the records.
func (s *sorted) agrees(tx *txn.Tx, table *txn.Table[uint64, []byte], l *life, from uint64) error {
	to := min(from+12, 2*l.Accounts)
	var got []string
	for k, v := range s.mirror.Range(tx, txn.Including(sortedKey(from)), txn.Excluding(sortedKey(to))) {
		got = append(got, k+string(v))
	}
	if err := tx.Err(); err != nil {
		return err
	}
	var want []string
	for k := from; k < to; k++ {
		v, err := table.Get(tx, k)
		if errors.Is(err, txn.ErrNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		want = append(want, sortedKey(k)+string(v))
	}
	if err := s.indexed.agrees(tx, from); err != nil {
		return err
	}
	if !slices.Equal(got, want) {
		return fmt.Errorf("a range of the mirror has %d records, and the records of its keys are %d, or others",
			len(got), len(want))
	}
	return nil
}

// holds checks the ordered tables of a database that was opened again: the mirror has what was
// found of the records, by ranges in both directions and by its keys, and the queue has no gap.
func (s *sorted) holds(ctx context.Context, db *txn.DB, found map[uint64]state) error {
	want := map[string][]byte{}
	for k, x := range found {
		want[sortedKey(k)] = value(x.writer, x.balance, x.pad)
	}
	var up, down []string
	err := db.View(ctx, func(tx *txn.Tx) error {
		up, down = up[:0], down[:0]
		for k, v := range s.mirror.Range(tx, txn.Bound[string]{}, txn.Bound[string]{}) {
			if !bytes.Equal(v, want[k]) {
				return fmt.Errorf("the mirror has %d bytes by key %.6s, of which the records have %d",
					len(v), k, len(want[k]))
			}
			up = append(up, k)
		}
		for k := range s.mirror.RangeKeys(tx, txn.Bound[string]{}, txn.Bound[string]{}, txn.Descending()) {
			down = append(down, k)
		}
		return tx.Err()
	})
	if err != nil {
		return err
	}
	if err := s.indexed.holds(ctx, db); err != nil {
		return err
	}
	slices.Reverse(down)
	if len(up) != len(want) || !slices.IsSorted(up) || !slices.Equal(up, down) {
		return fmt.Errorf("the mirror has %d keys upwards, %d downwards, of %d", len(up), len(down), len(want))
	}
	for k, v := range want {
		err := db.View(ctx, func(tx *txn.Tx) error {
			got, err := s.mirror.Get(tx, k)
			if err == nil && !bytes.Equal(got, v) {
				err = errors.New("another value")
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("the mirror's key %.6s: %w", k, err)
		}
	}
	return db.View(ctx, func(tx *txn.Tx) error {
		var all []uint64
		for k, v := range s.queue.Range(tx, txn.Bound[uint64]{}, txn.Bound[uint64]{}) {
			if v != ^k || len(all) > 0 && k != all[len(all)-1]+1 {
				return fmt.Errorf("the queue has %d with %#x behind %v", k, v, all)
			}
			all = append(all, k)
		}
		return tx.Err()
	})
}
