package txn_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"txnode/txn"
)

// TestValidateAtEnd: transactions that validate at their end what they read see sums that never
// were, and commit none of them, nor do they fail for one. Of two keys that are never there
// together, and never both absent, they find one.
func TestValidateAtEnd(t *testing.T) {
	const accounts, start, left, right = 8, 100, 100, 101
	errSkew := errors.New("a state that never was")
	forAll(t, func(t *testing.T, db *txn.DB, s setting) {
		tab := table(t, db, "accounts")
		fill(t, db, tab, accounts, val(start))
		if err := db.Update(t.Context(), func(tx *txn.Tx) error { return tab.Insert(tx, left, val(0)) }); err != nil {
			t.Fatal(err)
		}
		// look reads all there is, one by one, and says whether it can be true.
		look := func(tx *txn.Tx) (is [accounts]uint64, _ error) {
			tx.ValidateAtEnd()
			sum := uint64(0)
			for k := range uint64(accounts) {
				p, err := tab.Get(tx, k)
				if err != nil {
					return is, err
				}
				is[k] = num(p)
				sum += is[k]
			}
			_, err := tab.Get(tx, left)
			_, other := tab.Get(tx, right)
			for _, e := range []error{err, other} {
				if e != nil && !errors.Is(e, txn.ErrNotFound) {
					return is, e
				}
			}
			if sum != accounts*start || (err == nil) == (other == nil) {
				return is, fmt.Errorf("%w: %d in all, %v, %v", errSkew, sum, err, other)
			}
			return is, nil
		}
		run(t, db, s, func(ctx context.Context, id int, w *txn.Worker) error {
			r := rng(id)
			for range perWorker(s, 2000) {
				a, b, what := r.n(accounts), r.n(accounts), r.n(5)
				var err error
				switch {
				case what == 0:
					err = w.View(ctx, func(tx *txn.Tx) error {
						_, err := look(tx)
						return err
					})
				case what == 1: // write what depends on all of it
					err = w.Update(ctx, func(tx *txn.Tx) error {
						is, err := look(tx)
						if err != nil || a == b || is[a] == 0 {
							return err
						}
						return errors.Join(tab.Put(tx, a, val(is[a]-1)), tab.Put(tx, b, val(is[b]+1)))
					})
				case what == 2:
					err = w.Update(ctx, func(tx *txn.Tx) error {
						from, to := uint64(left), uint64(right)
						if _, err := tab.GetForUpdate(tx, from); errors.Is(err, txn.ErrNotFound) {
							from, to = to, from
						} else if err != nil {
							return err
						}
						return errors.Join(tab.Delete(tx, from), tab.Insert(tx, to, val(a)))
					})
				case a != b:
					err = w.Update(ctx, func(tx *txn.Tx) error {
						x, err := tab.GetForUpdate(tx, a)
						if err != nil || num(x) == 0 {
							return err
						}
						took := num(x) - 1
						y, err := tab.GetForUpdate(tx, b)
						if err != nil {
							return err
						}
						return errors.Join(tab.Put(tx, a, val(took)), tab.Put(tx, b, val(num(y)+1)))
					})
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
	})
}

// TestValidateAtEndIsLinear: what it is for.
func TestValidateAtEndIsLinear(t *testing.T) {
	const n = 300
	db := mustOpen(t, txn.Options{BladeSize: 64 << 20, SegmentSize: 1 << 20, LogArea: 256 << 10})
	tab := table(t, db, "many")
	fill(t, db, tab, n, val(7))
	total := func() uint64 {
		m := db.Metrics()
		return m.Verbs.Total()
	}
	verbs := func(atEnd bool) uint64 {
		before := total()
		if err := db.View(t.Context(), func(tx *txn.Tx) error {
			if atEnd {
				tx.ValidateAtEnd()
			}
			for k := range uint64(n) {
				if _, err := tab.Get(tx, k); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return total() - before
	}
	if got := verbs(true); got > 3*n {
		t.Errorf("%d verbs for %d keys", got, n)
	}
	if got := verbs(false); got < n*n/3 {
		t.Errorf("%d verbs for %d keys that are validated with each further one", got, n)
	}
}

// TestValidateAtEndByHand: a transaction of DB.Begin, and one that has ended.
func TestValidateAtEndByHand(t *testing.T) {
	ctx := t.Context()
	db := mustOpen(t, txn.Options{})
	tab := table(t, db, "few")
	fill(t, db, tab, 2, val(1))
	set := func(v uint64) {
		t.Helper()
		if err := db.Update(ctx,
			func(tx *txn.Tx) error { return errors.Join(tab.Put(tx, 0, val(v)), tab.Put(tx, 1, val(v))) }); err != nil {
			t.Fatal(err)
		}
	}
	for _, atEnd := range []bool{false, true} {
		tx, err := db.Begin(ctx, true)
		if err != nil {
			t.Fatal(err)
		}
		if atEnd {
			tx.ValidateAtEnd()
		}
		if _, err := tab.Get(tx, 0); err != nil {
			t.Fatal(err)
		}
		set(2)
		_, err = tab.Get(tx, 1)
		if (err == nil) != atEnd {
			t.Errorf("at end %v: the second key, which has changed with the first: %v", atEnd, err)
		}
		if err := tx.Commit(); !errors.Is(err, txn.ErrConflict) {
			t.Errorf("at end %v: %v", atEnd, err)
		}
		tx.ValidateAtEnd()
		set(1)
	}
}
