package seeds

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"txnode/txn"
)

// The workloads of ordered tables check what loops over ranges return by values and keys alone,
// beside package check, which holds them against the versions that the engine reports.

type (
	bound = txn.Bound[uint64]
	pair  struct {
		key   uint64
		value []byte
	}
)

// belowExtra ends the keys of a workload: what is added beside it comes behind.
func belowExtra() bound { return txn.Excluding(uint64(extraRows)) }

// step is a loop over a range that says what it should be like.
type step struct {
	from, to bound
	lo, hi   uint64 // the least key of the range, and the one behind the largest
	down     bool
	limit    int
}

// between is the loop over the keys from lo to hi-1, with one of the four kinds of
// bounds that say so.
func between(r *rng, lo, hi uint64) step {
	s := step{from: txn.Including(lo), to: txn.Excluding(hi), lo: lo, hi: hi, down: r.chance(40)}
	if lo > 0 && r.chance(30) {
		s.from = txn.Excluding(lo - 1)
	} else if lo == 0 && r.chance(50) {
		s.from = bound{}
	}
	if hi > 0 && r.chance(30) {
		s.to = txn.Including(hi - 1)
	}
	return s
}

// options are those of the loop.
func (s *step) options() (out []txn.RangeOption) {
	if s.down {
		out = append(out, txn.Descending())
	}
	if s.limit > 0 {
		out = append(out, txn.Limit(s.limit))
	}
	return out
}

// all ranges over t. What is out of order, there twice, outside of the bounds or beyond the
// limit is an error.
func (s *step) all(tx *txn.Tx, t *orderedRows) (got []pair, err error) {
	for k, v := range s.pairs(tx, t) {
		switch n := len(got); {
		case k < s.lo || k >= s.hi:
			return nil, fmt.Errorf("a range from %d to %d has the key %d", s.lo, s.hi, k)
		case n > 0 && (s.down && k >= got[n-1].key || !s.down && k <= got[n-1].key):
			return nil, fmt.Errorf("a range, descending: %v, has the key %d behind %d", s.down, k, got[n-1].key)
		case s.limit > 0 && n == s.limit:
			return nil, fmt.Errorf("a range with limit %d has more", s.limit)
		}
		got = append(got, pair{k, slices.Clone(v)})
	}
	return got, tx.Err()
}

func (s *step) pairs(tx *txn.Tx, t *orderedRows) iter.Seq2[uint64, []byte] {
	return t.Range(tx, s.from, s.to, s.options()...)
}

// queue has some workers add items at its tail, and others take them from its head: each item is
// taken once. Items are told apart by their values.
func queue(b *bench) error {
	if err := b.fill(0, nil); err != nil {
		return err
	}
	const added, taken = 1, 2
	items := map[uint64]int{}
	apart := b.rng.chance(50) // tails do not collide: keys come from a counter in this process
	next := uint64(1)
	failed := error(nil)
	note := func(what int, values ...uint64) {
		for _, v := range values {
			if items[v]&what != 0 && failed == nil {
				failed = fmt.Errorf("item %#x was added or taken twice", v)
			}
			items[v] |= what
		}
	}
	err := b.steps(b.txns, func(c *client, i int) error {
		item := uint64(c.id+1)<<32 | uint64(i)
		what, many, size := c.rng.n(10), 1+int(c.rng.n(3)), c.rng.n(100)
		var got, put []uint64
		err := c.update(func(tx *txn.Tx) error {
			got, put = nil, nil
			if what >= 4 {
				head := step{to: belowExtra(), hi: extraRows, limit: many}
				all, err := head.all(tx, c.o)
				if err != nil {
					return err
				}
				for _, x := range all {
					if err := c.o.Delete(tx, x.key); err != nil {
						return fmt.Errorf("the item of key %d was in the range: %w", x.key, err)
					}
					got = append(got, num(x.value))
				}
			}
			if what > 7 {
				return nil
			}
			for j := range many {
				key := next
				if next++; !apart {
					k, _, _, err := c.o.Last(tx, bound{}, belowExtra())
					if err != nil {
						return err
					}
					key = k + 1
				}
				v := item | uint64(j)<<24
				if err := c.o.Insert(tx, key, append(val(v), make([]byte, size)...)); err != nil {
					return fmt.Errorf("the key behind all others, %d: %w", key, err)
				}
				put = append(put, v)
			}
			return nil
		}, func() {
			note(added, put...)
			note(taken, got...)
		})
		return err
	})
	if err == nil {
		err = failed
	}
	if err != nil {
		return err
	}
	left := map[uint64]bool{}
	if err := b.quiet(func(tx *txn.Tx) error {
		clear(left)
		whole := step{to: belowExtra(), hi: extraRows}
		got, err := whole.all(tx, b.o)
		for _, x := range got {
			left[num(x.value)] = true
		}
		return err
	}); err != nil {
		return err
	}
	for v, what := range items {
		if what&added == 0 {
			return fmt.Errorf("item %#x was taken, and never added", v)
		}
		if what&taken != 0 == left[v] {
			return fmt.Errorf("item %#x was taken: %v; it is in the queue: %v", v, what&taken != 0, left[v])
		}
		delete(left, v)
	}
	if len(left) > 0 {
		return fmt.Errorf("%d items are in the queue that were never added", len(left))
	}
	return b.finally(0, nil)
}

// quiet runs a transaction when nobody else does.
func (b *bench) quiet(fn func(tx *txn.Tx) error) error {
	start := b.db.Now()
	return b.db.View(context.Background(), func(tx *txn.Tx) error {
		if b.db.Now()-start > quietNs {
			return errStuck
		}
		return fn(tx)
	})
}

// rangeSum moves money between accounts, and accounts to other keys; it splits them and joins them.
// Whoever ranges over all of them, in whatever direction and pieces, finds the same sum.
func rangeSum(b *bench) error {
	const start = 1000
	accounts, span := 4+b.rng.n(20), uint64(0)
	span = accounts * (1 + b.rng.n(6))
	if err := b.fill(accounts, val(start)); err != nil {
		return err
	}
	total := accounts * start
	sum := func(tx *txn.Tx, t *orderedRows, pieces ...step) error {
		got := uint64(0)
		for _, s := range pieces {
			all, err := s.all(tx, t)
			if err != nil {
				return err
			}
			for _, x := range all {
				got += num(x.value)
			}
		}
		if got != total {
			return fmt.Errorf("the accounts in %d pieces of the range hold %d, not %d", len(pieces), got, total)
		}
		return nil
	}
	err := b.steps(b.txns, func(c *client, _ int) error {
		x, y, what, amount, size := c.rng.n(span), c.rng.n(span), c.rng.n(8), c.rng.n(50), c.rng.n(80)
		cut := c.rng.n(span + 1)
		low, high := between(&c.rng, 0, cut), between(&c.rng, cut, span)
		balance := func(v uint64) []byte { return append(val(v), make([]byte, size)...) }
		switch {
		case what == 0:
			return c.view(func(tx *txn.Tx) error { return sum(tx, c.o, between(&c.rng, 0, span)) })
		case what <= 2:
			return c.view(func(tx *txn.Tx) error { return sum(tx, c.o, low, high) })
		}
		return c.update(func(tx *txn.Tx) error {
			// The account that is the next from x on, or, if there is none, the last one.
			k, p, found, err := c.o.First(tx, txn.Including(x), belowExtra())
			if err == nil && !found {
				k, p, found, err = c.o.Last(tx, bound{}, txn.Excluding(x))
			}
			if err != nil {
				return err
			}
			if !found {
				return errors.New("there are no accounts")
			}
			from := num(p)
			amount := min(amount, from)
			q, err := c.o.Get(tx, y)
			if err != nil && !errors.Is(err, txn.ErrNotFound) {
				return err
			}
			there := err == nil
			switch {
			case k == y:
				return c.o.Put(tx, k, balance(from))
			case there && what == 3: // the two become one
				if err := c.o.Delete(tx, k); err != nil {
					return err
				}
				return c.o.Put(tx, y, balance(from+num(q)))
			case there:
				err = c.o.Put(tx, y, balance(num(q)+amount))
			case what <= 5: // moved as a whole
				if err := c.o.Delete(tx, k); err != nil {
					return err
				}
				return c.o.Insert(tx, y, balance(from))
			default:
				err = c.o.Insert(tx, y, balance(amount))
			}
			if err != nil {
				return err
			}
			if err := c.o.Put(tx, k, balance(from-amount)); err != nil || what != 7 {
				return err
			}
			return sum(tx, c.o, low, high) // with what the transaction has changed itself
		}, nil)
	})
	if err != nil {
		return err
	}
	for _, down := range []bool{false, true} {
		if err := b.quiet(func(tx *txn.Tx) error {
			return sum(tx, b.o,
				step{to: belowExtra(), hi: extraRows, down: down})
		}); err != nil {
			return fmt.Errorf("at the end: %w", err)
		}
	}
	return b.finally(span, nil)
}

// rangeChurn ranges over keys that are always there, the multiples of four, while others
// between them come and go: every range has all of the former between its ends, in order,
// and each key once.
func rangeChurn(b *bench) error {
	const every = 4
	stable := 4 + b.rng.n(24)
	span := stable * every
	if err := b.fill(0, nil); err != nil {
		return err
	}
	if err := b.db.Update(context.Background(), func(tx *txn.Tx) error {
		for k := range stable {
			if err := b.o.Insert(tx, k*every, val(k)); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return err
	}
	look := func(tx *txn.Tx, t *orderedRows, s step, own map[uint64]bool) error {
		got, err := s.all(tx, t)
		if err != nil {
			return err
		}
		lo, hi := s.lo, s.hi // what the loop has passed
		if n := len(got); s.limit > 0 && n == s.limit {
			if s.down {
				lo = got[n-1].key
			} else {
				hi = got[n-1].key + 1
			}
		}
		has := map[uint64]bool{}
		for _, x := range got {
			has[x.key] = true
		}
		for k := lo; k < hi; k++ {
			switch mine, known := own[k]; {
			case known && mine != has[k]:
				return fmt.Errorf("a range over %d to %d has the key %d: %v; the transaction itself has left "+
					"it there: %v", s.lo, s.hi, k, has[k], mine)
			case !known && k%every == 0 && !has[k]:
				return fmt.Errorf("a range over %d to %d, descending: %v, limit %d, does not have the key %d, which "+
					"is always there", s.lo, s.hi, s.down, s.limit, k)
			}
		}
		return nil
	}
	err := b.steps(b.txns, func(c *client, _ int) error {
		lo := c.rng.n(span)
		s := between(&c.rng, lo, lo+c.rng.n(span-lo+1))
		if c.rng.chance(30) {
			s.limit = 1 + int(c.rng.n(6))
		}
		what, size := c.rng.n(8), c.rng.n(200)
		if what <= 1 {
			return c.view(func(tx *txn.Tx) error { return look(tx, c.o, s, nil) })
		}
		var keys [3]uint64
		for j := range keys {
			keys[j] = c.rng.n(span)
		}
		drop := c.rng.n(4)
		return c.update(func(tx *txn.Tx) error {
			own := map[uint64]bool{}
			for j, k := range keys {
				var err error
				switch {
				case k%every == 0 || (drop>>j)&1 == 0:
					err, own[k] = c.o.Put(tx, k, append(val(k), make([]byte, size)...)), true
				default:
					if err = c.o.Delete(tx, k); errors.Is(err, txn.ErrNotFound) {
						err = nil
					}
					own[k] = false
				}
				if err != nil {
					return err
				}
			}
			if what == 2 { // all between two that stay
				from := keys[0] - keys[0]%every
				if _, err := c.o.DeleteRange(tx, txn.Excluding(from), txn.Excluding(from+every)); err != nil {
					return err
				}
				for k := from + 1; k < from+every; k++ {
					own[k] = false
				}
			}
			if what <= 5 {
				return look(tx, c.o, s, own)
			}
			return nil
		}, nil)
	})
	if err != nil {
		return err
	}
	var keys []uint64
	for _, down := range []bool{false, true} {
		if err := b.quiet(func(tx *txn.Tx) error {
			s := step{to: belowExtra(), hi: extraRows, down: down}
			got, err := s.all(tx, b.o)
			if err != nil {
				return err
			}
			var here []uint64
			for _, x := range got {
				here = append(here, x.key)
			}
			slices.SortFunc(here, cmp.Compare[uint64])
			if down && !slices.Equal(here, keys) {
				return fmt.Errorf("upwards the range has the keys %d, downwards %d", keys, here)
			}
			keys = here
			return look(tx, b.o, step{to: belowExtra(), lo: 0, hi: span, down: down}, nil)
		}); err != nil {
			return fmt.Errorf("at the end: %w", err)
		}
	}
	return b.finally(span, nil)
}
