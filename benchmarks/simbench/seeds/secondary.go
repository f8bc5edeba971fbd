package seeds

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"txnode/txn"
)

// Rows of workloads with secondary indexes have a group, which several may have, and a code, which
// is one's alone; 0 is none. Rows that are added beside the workload are in no index.

type byNumber = txn.Index[uint64, []byte, uint64]

// secondaryRow is the value of a row.
func secondaryRow(group, code, size uint64) []byte {
	return append(append(val(group), val(code)...), make([]byte, size)...)
}

func groupOf(p []byte) uint64 { return num(p) }

func codeOf(p []byte) uint64 { return num(p[8:]) }

// indexes defines the indexes of the workload's table.
func (q *process) indexes() []txn.TableIndex[uint64, []byte] {
	q.byGroup = txn.NewIndex("group", txn.Uint64, func(k uint64, p []byte) []uint64 {
		if k >= extraRows {
			return nil
		}
		return []uint64{groupOf(p)}
	})
	q.byCode = txn.NewUniqueIndex("code", txn.Uint64, func(k uint64, p []byte) []uint64 {
		if k >= extraRows || codeOf(p) == 0 {
			return nil
		}
		return []uint64{codeOf(p)}
	})
	return []txn.TableIndex[uint64, []byte]{q.byGroup, q.byCode}
}

// entries are those of an index in a range of its keys, as pairs of this key and that of the row.
func entries(tx *txn.Tx, x *byNumber, s step) (got [][2]uint64, err error) {
	for i, k := range x.Range(tx, s.from, s.to, s.options()...) {
		if i < s.lo || i >= s.hi {
			return nil, fmt.Errorf("a range of an index from %d to %d has the key %d", s.lo, s.hi, i)
		}
		if n := len(got); n > 0 && (s.down && i > got[n-1][0] || !s.down && i < got[n-1][0]) {
			return nil, fmt.Errorf("a range of an index, descending: %v, has the key %d behind %d",
				s.down, i, got[n-1][0])
		}
		got = append(got, [2]uint64{i, k})
	}
	return got, tx.Err()
}

// sameEntries compares a range of an index with what the rows 0 to n-1 have there: the index is
// read first, or last.
func (c *client) sameEntries(tx *txn.Tx, x *byNumber, of func(p []byte) uint64, s step, n uint64, first bool) error {
	var got, want [][2]uint64
	for pass := range 2 {
		if first == (pass == 0) {
			var err error
			if got, err = entries(tx, x, s); err != nil {
				return err
			}
			continue
		}
		for k := range n {
			_ = c.t.Stage(tx, k, txn.ForRead)
		}
		for k := range n {
			p, found, err := c.t.Lookup(tx, k)
			if err != nil {
				return err
			}
			if found && of(p) >= s.lo && of(p) < s.hi {
				want = append(want, [2]uint64{of(p), k})
			}
		}
	}
	return equalEntries(got, want, s)
}

// equalEntries compares what an index has in a range with what the rows have there, in whatever
// order.
func equalEntries(got, want [][2]uint64, s step) error {
	slices.SortFunc(got, func(a, b [2]uint64) int { return slices.Compare(a[:], b[:]) })
	slices.SortFunc(want, func(a, b [2]uint64) int { return slices.Compare(a[:], b[:]) })
	if !slices.Equal(got, want) {
		return fmt.Errorf("the index has the entries %d from %d to %d, the rows %d", got, s.lo, s.hi, want)
	}
	return nil
}

// taken demands that the code of a row that was refused is another row's.
func (c *client) taken(tx *txn.Tx, k, code uint64) error {
	other, p, found, err := c.byCode.Lookup(tx, code)
	if err != nil {
		return err
	}
	if !found || other == k || codeOf(p) != code {
		return fmt.Errorf("code %d was refused to row %d as another's; it is that of row %d: %v, %x",
			code, k, other, found, p)
	}
	return nil
}

// secondary changes rows in all ways, and reads ranges of their indexes: at every read these have
// an entry for each row, and no other ones.
func secondary(b *bench) error {
	if err := b.fill(0, nil); err != nil {
		return err
	}
	rows, groups := 4+b.rng.n(20), 1+b.rng.n(5)
	codes := rows + b.rng.n(rows)
	err := b.steps(b.txns, func(c *client, _ int) error {
		what, first, size := c.rng.n(10), c.rng.chance(50), c.rng.n(120)
		g := c.rng.n(groups)
		lo := 1 + c.rng.n(codes)
		group, some := between(&c.rng, g, g+1), between(&c.rng, lo, lo+c.rng.n(codes-lo+2))
		look := func(tx *txn.Tx) error {
			if what%2 == 0 {
				return c.sameEntries(tx, c.byGroup, groupOf, group, rows, first)
			}
			return c.sameEntries(tx, c.byCode, codeOf, some, rows, first)
		}
		if what <= 2 {
			return c.view(look)
		}
		type change struct{ key, kind, group, code uint64 }
		changes := make([]change, 1+c.rng.n(3))
		for i := range changes {
			changes[i] = change{c.rng.n(rows), c.rng.n(5), c.rng.n(groups), c.rng.n(codes + 1)}
		}
		goesOn := c.rng.chance(50)
		err := c.update(func(tx *txn.Tx) error {
			for _, x := range changes {
				row := secondaryRow(x.group, x.code, size)
				var err error
				switch x.kind {
				case 0:
					err = c.t.Delete(tx, x.key)
				case 1:
					err = c.t.Insert(tx, x.key, row)
				case 2:
					err = c.t.Update(tx, x.key, func([]byte, bool) ([]byte, txn.Change, error) {
						return row, txn.Store, nil
					})
				default:
					err = c.t.Put(tx, x.key, row)
				}
				switch {
				case errors.Is(err, txn.ErrUnique):
					if e := c.taken(tx, x.key, x.code); e != nil {
						return e
					}
					if !goesOn {
						return err
					}
				case err != nil && !errors.Is(err, txn.ErrNotFound) && !errors.Is(err, txn.ErrExists):
					return err
				}
			}
			if what <= 5 {
				return look(tx) // with what the transaction has changed itself
			}
			return nil
		}, nil)
		if errors.Is(err, txn.ErrUnique) {
			return nil
		}
		return err
	})
	if err != nil {
		return err
	}
	if err := b.wholeIndexes(rows, groups, codes); err != nil {
		return err
	}
	return b.finally(rows, nil)
}

// wholeIndexes compares the indexes with the rows 0 to rows-1 when nothing else runs. A siege makes
// thousands of them, so they are read a few at a time.
func (b *bench) wholeIndexes(rows, groups, codes uint64) error {
	values := map[uint64][]byte{}
	if err := b.finally(rows, func(k uint64, p []byte) error {
		values[k] = slices.Clone(p)
		return nil
	}); err != nil {
		return err
	}
	for _, x := range []struct {
		index *byNumber
		of    func(p []byte) uint64
		s     step
	}{
		{b.byGroup, groupOf, step{hi: groups}},
		{b.byCode, codeOf, step{from: txn.Including[uint64](1), lo: 1, hi: codes + 1}},
	} {
		for _, x.s.down = range []bool{false, true} {
			if err := b.quiet(func(tx *txn.Tx) error {
				var want [][2]uint64
				for k, p := range values {
					if i := x.of(p); i >= x.s.lo && i < x.s.hi {
						want = append(want, [2]uint64{i, k})
					}
				}
				got, err := entries(tx, x.index, x.s)
				if err != nil {
					return err
				}
				return equalEntries(got, want, x.s)
			}); err != nil {
				return fmt.Errorf("at the end: %w", err)
			}
		}
	}
	return nil
}

// uniqueRace has all workers give new rows the same few codes, take rows with codes away, and
// pass a code on to another row: each code is one row's at any time, and nothing refuses a
// code that is free.
func uniqueRace(b *bench) error {
	if err := b.fill(0, nil); err != nil {
		return err
	}
	codes, next := 1+b.rng.n(6), uint64(0)
	given, back := map[uint64]int{}, map[uint64]int{}
	err := b.steps(b.txns, func(c *client, _ int) error {
		code, what, size := 1+c.rng.n(codes), c.rng.n(8), c.rng.n(100)
		k := next
		next++
		if what <= 3 {
			err := c.update(func(tx *txn.Tx) error {
				err := c.t.Insert(tx, k, secondaryRow(0, code, size))
				if errors.Is(err, txn.ErrUnique) {
					if e := c.taken(tx, k, code); e != nil {
						return e
					}
				}
				return err
			}, func() { given[code]++ })
			if errors.Is(err, txn.ErrUnique) {
				return nil
			}
			return err
		}
		if what == 4 {
			return c.view(func(tx *txn.Tx) error {
				held, err := entries(tx, c.byCode, between(&c.rng, 1, codes+1))
				if err != nil {
					return err
				}
				for i, x := range held {
					p, found, err := c.t.Lookup(tx, x[1])
					if err != nil {
						return err
					}
					if !found || codeOf(p) != x[0] || i > 0 && held[i-1][0] == x[0] {
						return fmt.Errorf("code %d leads to row %d: %v, %x; all codes: %d", x[0], x[1], found, p, held)
					}
				}
				return nil
			})
		}
		other, had, was, passed := 1+c.rng.n(codes), false, uint64(0), false
		return c.update(func(tx *txn.Tx) error {
			passed = false
			var row []byte
			var err error
			if was, row, had, err = c.byCode.Lookup(tx, code); err != nil || !had {
				return err
			}
			if codeOf(row) != code {
				return fmt.Errorf("code %d leads to row %d, which has %d", code, was, codeOf(row))
			}
			if what == 5 { // the row has another code, if that is free
				err := c.t.Put(tx, was, secondaryRow(1, other, size))
				passed = err == nil
				if errors.Is(err, txn.ErrUnique) {
					return c.taken(tx, was, other)
				}
				return err
			}
			if err := c.t.Delete(tx, was); err != nil || what == 6 {
				return err
			}
			return c.t.Insert(tx, k, secondaryRow(2, code, size)) // it is another row's
		}, func() {
			switch {
			case !had || what == 7:
			case what == 6:
				back[code]++
			case passed:
				back[code]++
				given[other]++
			}
		})
	})
	if err != nil {
		return err
	}
	if err := b.wholeIndexes(next, 3, codes); err != nil {
		return err
	}
	held := map[uint64]int{}
	if err := b.finally(next, func(k uint64, p []byte) error {
		if held[codeOf(p)]++; held[codeOf(p)] > 1 {
			return fmt.Errorf("code %d is that of row %d, and of another one", codeOf(p), k)
		}
		return nil
	}); err != nil {
		return err
	}
	for code := uint64(1); code <= codes; code++ {
		if given[code]-back[code] != held[code] {
			return fmt.Errorf("code %d was given %d times, %d times taken back, and %d rows have it",
				code, given[code], back[code], held[code])
		}
	}
	return b.db.View(context.Background(), func(tx *txn.Tx) error {
		for code := uint64(1); code <= codes; code++ {
			if _, _, found, err := b.byCode.Lookup(tx, code); err != nil || found != (held[code] == 1) {
				return fmt.Errorf("code %d, looked up: %v, %w; %d rows have it", code, found, err, held[code])
			}
		}
		return nil
	})
}
