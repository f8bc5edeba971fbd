package seeds

import (
	"fmt"

	"txnode/txn"
)

// bank moves money between few accounts: every reader sees the same sum.
func bank(b *bench) error {
	const start = 1000
	accounts := 4 + b.rng.n(10)
	if err := b.fill(accounts, val(start)); err != nil {
		return err
	}
	sum := func(tx *txn.Tx, t *rows) error {
		for k := range accounts {
			if err := t.Stage(tx, k, txn.ForRead); err != nil {
				return err
			}
		}
		var total uint64
		for k := range accounts {
			p, err := t.Get(tx, k)
			if err != nil {
				return err
			}
			total += num(p)
		}
		if total != accounts*start {
			return fmt.Errorf("the accounts hold %d, not %d", total, accounts*start)
		}
		return nil
	}
	err := b.steps(b.txns, func(c *client, _ int) error {
		x, y := c.rng.n(accounts), c.rng.n(accounts)
		if x == y || c.rng.n(4) == 0 {
			return c.view(func(tx *txn.Tx) error { return sum(tx, c.t) })
		}
		t, staged, most := c.t, c.rng.n(2) == 0, c.rng.n(50)
		return c.update(func(tx *txn.Tx) error {
			if staged {
				_ = t.Stage(tx, x, txn.ForUpdate)
				_ = t.Stage(tx, y, txn.ForUpdate)
			}
			p, err := t.Get(tx, x)
			if err != nil {
				return err
			}
			from := num(p)
			if p, err = t.Get(tx, y); err != nil {
				return err
			}
			to, amount := num(p), min(from, most)
			if err := t.Put(tx, x, val(from-amount)); err != nil {
				return err
			}
			return t.Put(tx, y, val(to+amount))
		}, nil)
	})
	if err != nil {
		return err
	}
	total := uint64(0)
	if err := b.finally(accounts, func(_ uint64, p []byte) error { total += num(p); return nil }); err != nil {
		return err
	}
	if total != accounts*start {
		return fmt.Errorf("at the end the accounts hold %d, not %d", total, accounts*start)
	}
	return nil
}

// counter increments; the final values are the numbers of increments that were
// acknowledged.
func counter(b *bench) error {
	n := 1 + b.rng.n(3)
	if err := b.fill(n, val(0)); err != nil {
		return err
	}
	done := make([]uint64, n)
	err := b.steps(b.txns, func(c *client, _ int) error {
		k, late := c.rng.n(n), c.rng.n(2) == 0
		return c.update(func(tx *txn.Tx) error {
			get := c.t.GetForUpdate
			if late {
				get = c.t.Get // and lock at commit
			}
			p, err := get(tx, k)
			if err != nil {
				return err
			}
			return c.t.Put(tx, k, val(num(p)+1))
		}, func() { done[k]++ })
	})
	if err != nil {
		return err
	}
	return b.finally(n, func(k uint64, p []byte) error {
		if num(p) != done[k] {
			return fmt.Errorf("counter %d is %d after %d increments", k, num(p), done[k])
		}
		return nil
	})
}
