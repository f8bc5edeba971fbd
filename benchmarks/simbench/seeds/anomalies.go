package seeds

import (
	"fmt"

	"txnode/txn"
)

// skew has pairs of rows of which at most one may be zero; each transaction reads
// both and clears one.
func skew(b *bench) error {
	pairs := 1 + b.rng.n(4)
	if err := b.fill(2*pairs, val(1)); err != nil {
		return err
	}
	err := b.steps(b.txns, func(c *client, _ int) error {
		t := c.t
		p, side, staged := 2*c.rng.n(pairs), c.rng.n(2), c.rng.n(3) > 0
		return c.update(func(tx *txn.Tx) error {
			if staged {
				_ = t.Stage(tx, p, txn.ForRead)
				_ = t.Stage(tx, p+1, txn.ForRead)
			}
			v, err := t.Get(tx, p)
			if err != nil {
				return err
			}
			x := num(v)
			if v, err = t.Get(tx, p+1); err != nil {
				return err
			}
			y := num(v)
			switch {
			case x+y == 0:
				return fmt.Errorf("both rows of pair %d are zero", p/2)
			case x+y == 2:
				return t.Put(tx, p+side, val(0))
			case x == 0:
				return t.Put(tx, p, val(1))
			}
			return t.Put(tx, p+1, val(1))
		}, nil)
	})
	if err != nil {
		return err
	}
	return b.finally(2*pairs, nil)
}

// fork has writers of single rows and readers of all: no two readers may see two
// writes in different order, which the history tells.
func fork(b *bench) error {
	n := 2 + b.rng.n(6)
	if err := b.fill(n, val(0)); err != nil {
		return err
	}
	err := b.steps(b.txns, func(c *client, i int) error {
		if c.rng.n(2) == 0 {
			k := c.rng.n(n)
			return c.update(func(tx *txn.Tx) error { return c.t.Put(tx, k, val(uint64(c.id)<<32|uint64(i))) }, nil)
		}
		step := 1 + c.rng.n(3)
		return c.view(func(tx *txn.Tx) error {
			for k := range n {
				if k%step == 0 { // the others one after another
					_ = c.t.Stage(tx, k, txn.ForRead)
				}
			}
			for k := range n {
				if _, err := c.t.Get(tx, k); err != nil {
					return err
				}
			}
			return nil
		})
	})
	if err != nil {
		return err
	}
	return b.finally(n, nil)
}
