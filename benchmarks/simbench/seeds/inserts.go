package seeds

import (
	"errors"
	"fmt"

	"txnode/txn"
)

// insertRace has all workers insert the same keys: of each exactly one succeeds,
// while the table grows from its smallest size.
func insertRace(b *bench) error {
	if err := b.fill(0, nil); err != nil {
		return err
	}
	keys := 20 + b.rng.n(60)
	won := make([]int, keys)
	winner := make([]uint64, keys)
	err := b.steps(int(keys), func(c *client, i int) error {
		k := (uint64(i) + uint64(c.id%3)) % keys
		err := c.update(func(tx *txn.Tx) error { return c.t.Insert(tx, k, val(uint64(c.id))) }, func() {
			won[k]++
			winner[k] = uint64(c.id)
		})
		if errors.Is(err, txn.ErrExists) {
			return nil
		}
		return err
	})
	if err != nil {
		return err
	}
	total := 0
	for k, n := range won {
		if n > 1 || n == 0 && b.faults == nil {
			return fmt.Errorf("key %d was inserted %d times", k, n)
		}
		total += n
	}
	found := 0
	err = b.finally(keys, func(k uint64, p []byte) error {
		found++
		if won[k] == 0 {
			return fmt.Errorf("key %d is there, which nobody has inserted", k)
		}
		if num(p) != winner[k] {
			return fmt.Errorf("key %d was inserted by worker %d, and has the value of worker %d", k, winner[k], num(p))
		}
		return nil
	})
	if err == nil && found != total {
		err = fmt.Errorf("%d of %d keys are there", found, total)
	}
	return err
}

// churn inserts, deletes and reads few keys of a table that also grows, with values
// whose size changes.
func churn(b *bench) error {
	if err := b.fill(0, nil); err != nil {
		return err
	}
	keys := 4 + b.rng.n(24)
	fresh := uint64(1000)
	err := b.steps(b.txns, func(c *client, _ int) error {
		t := c.t
		x, y, what, size := c.rng.n(keys), c.rng.n(keys), c.rng.n(6), c.rng.n(300)
		err := c.update(func(tx *txn.Tx) error {
			switch what {
			case 0:
				return t.Delete(tx, x)
			case 1:
				fresh++
				return t.Insert(tx, fresh, make([]byte, size))
			case 2:
				if _, err := t.Get(tx, x); err != nil && !errors.Is(err, txn.ErrNotFound) {
					return err
				}
				return t.Put(tx, y, make([]byte, size))
			case 3:
				if has, err := t.Has(tx, x); err != nil || has {
					return err
				}
				return t.Insert(tx, y, make([]byte, size))
			}
			if _, err := t.Get(tx, x); err != nil && !errors.Is(err, txn.ErrNotFound) {
				return err
			}
			_, err := t.Get(tx, y)
			return err
		}, nil)
		if errors.Is(err, txn.ErrNotFound) || errors.Is(err, txn.ErrExists) {
			return nil
		}
		return err
	})
	if err != nil {
		return err
	}
	return b.finally(max(keys, fresh+1), nil)
}
