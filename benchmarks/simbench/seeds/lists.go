package seeds

import (
	"errors"

	"txnode/check"
	"txnode/history"
	"txnode/txn"
)

// lists appends unique numbers to lists that grow out of their blocks, and checks
// what was read by value, independently of what the engine reports.
func lists(b *bench) error {
	n := 2 + b.rng.n(5)
	if err := b.fill(0, nil); err != nil {
		return err
	}
	err := b.steps(b.txns, func(c *client, i int) error {
		var ops []check.ListOp
		start, many := b.world.fabric.Now(), 1+c.rng.n(3)
		var keys, kinds [4]uint64
		for j := range many {
			keys[j], kinds[j] = c.rng.n(n), c.rng.n(2)
		}
		return c.update(func(tx *txn.Tx) error {
			ops = nil
			for j := range many {
				k := keys[j]
				p, err := c.t.Get(tx, k)
				if err != nil && !errors.Is(err, txn.ErrNotFound) {
					return err
				}
				if kinds[j] == 0 {
					ops = append(ops, check.ListOp{Key: history.Key(k), List: numbers(p)})
					continue
				}
				v := uint64(c.id+1)<<32 | uint64(i)<<4 | j
				ops = append(ops, check.ListOp{Key: history.Key(k), Append: v})
				if err := c.t.Put(tx, k, append(append([]byte(nil), p...), val(v)...)); err != nil {
					return err
				}
			}
			return nil
		}, func() {
			b.lists = append(b.lists, check.ListTxn{
				ID: uint64(c.id)<<32 | uint64(i), Start: start,
				End: b.world.fabric.Now(), Outcome: history.Committed, Ops: ops,
			})
		})
	})
	if err == nil {
		last := check.ListTxn{ID: 1 << 63, Start: b.world.fabric.Now(), Outcome: history.Committed}
		err = b.finally(n, func(k uint64, p []byte) error {
			last.Ops = append(last.Ops, check.ListOp{Key: history.Key(k), List: numbers(p)})
			return nil
		})
		last.End = b.world.fabric.Now()
		b.lists = append(b.lists, last)
	}
	return errors.Join(check.CheckLists(b.lists, check.Options{}).Err(), err)
}

func numbers(p []byte) []uint64 {
	out := make([]uint64, 0, len(p)/8)
	for ; len(p) >= 8; p = p[8:] {
		out = append(out, num(p))
	}
	return out
}
