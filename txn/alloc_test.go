package txn_test

import (
	"context"
	"testing"

	"txnode/occ"
	"txnode/txn"
)

// purse is a SmallBank row.
type purse struct{ Amount int64 }

// smallBank is SmallBank's tables, and transactions over them that are made once.
type smallBank struct {
	checking, savings *txn.Table[uint64, purse]
	a, b              uint64
}

const purses = 64

func newSmallBank(t testing.TB, db *txn.DB) *smallBank {
	t.Helper()
	var s smallBank
	var err error
	if s.checking, err = txn.CreateTable(db, "checking", txn.Uint64, txn.Plain[purse]()); err != nil {
		t.Fatal(err)
	}
	if s.savings, err = txn.CreateTable(db, "savings", txn.Uint64, txn.Plain[purse]()); err != nil {
		t.Fatal(err)
	}
	for k := uint64(0); k < purses; k += 16 {
		if err := db.Update(t.Context(), func(tx *txn.Tx) error {
			for i := k; i < k+16; i++ {
				if err := s.checking.Insert(tx, i, purse{100}); err != nil {
					return err
				}
				if err := s.savings.Insert(tx, i, purse{100}); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	return &s
}

// next chooses other accounts for the next transaction.
func (s *smallBank) next() {
	s.a = (s.a*31 + 7) % purses
	s.b = (s.a + 1 + s.a%5) % purses
}

// amalgamate moves all of one customer's money to another: 3 writes.
func (s *smallBank) amalgamate(tx *txn.Tx) error {
	if err := s.savings.Stage(tx, s.a, txn.ForUpdate); err != nil {
		return err
	}
	if err := s.checking.Stage(tx, s.a, txn.ForUpdate); err != nil {
		return err
	}
	if err := s.checking.Stage(tx, s.b, txn.ForUpdate); err != nil {
		return err
	}
	x, err := s.savings.Get(tx, s.a)
	if err != nil {
		return err
	}
	y, err := s.checking.Get(tx, s.a)
	if err != nil {
		return err
	}
	z, err := s.checking.Get(tx, s.b)
	if err != nil {
		return err
	}
	z.Amount += x.Amount + y.Amount
	if err := s.savings.Put(tx, s.a, purse{}); err != nil {
		return err
	}
	if err := s.checking.Put(tx, s.a, purse{}); err != nil {
		return err
	}
	return s.checking.Put(tx, s.b, z)
}

// balance is a view of 2 rows.
func (s *smallBank) balance(tx *txn.Tx) error {
	if err := s.savings.Stage(tx, s.a, txn.ForRead); err != nil {
		return err
	}
	if _, err := s.checking.Get(tx, s.a); err != nil {
		return err
	}
	_, err := s.savings.Get(tx, s.a)
	return err
}

// writeCheck reads one row, locks late and writes another.
func (s *smallBank) writeCheck(tx *txn.Tx) error {
	x, err := s.savings.Get(tx, s.a)
	if err != nil {
		return err
	}
	y, err := s.checking.Get(tx, s.a)
	if err != nil {
		return err
	}
	y.Amount -= x.Amount & 3
	return s.checking.Put(tx, s.a, y)
}

// overdrawn is rolled back by its own error.
func (s *smallBank) overdrawn(tx *txn.Tx) error {
	if _, err := s.checking.GetForUpdate(tx, s.a); err != nil {
		return err
	}
	return errRollback
}

// TestNoAllocations: transactions over typed tables allocate nothing, once warm.
func TestNoAllocations(t *testing.T) {
	for _, p := range []occ.Policy{occ.PolicyDefault, occ.PolicyFORD} {
		db := mustOpen(t, txn.Options{Policy: p, Seed: 1, BladeSize: 1 << 30, LatencySample: 3})
		s := newSmallBank(t, db)
		w := newWorker(t, db)
		ctx := context.Background()
		amalgamate, balance, writeCheck, overdrawn := s.amalgamate, s.balance, s.writeCheck, s.overdrawn
		for _, c := range []struct {
			what string
			run  func() error
			want error
		}{
			{"DB.Update of Amalgamate", func() error { return db.Update(ctx, amalgamate) }, nil},
			{"DB.View of Balance", func() error { return db.View(ctx, balance) }, nil},
			{"DB.Update of WriteCheck", func() error { return db.Update(ctx, writeCheck) }, nil},
			{"DB.Update that is rolled back", func() error { return db.Update(ctx, overdrawn) }, errRollback},
			{"Worker.Update of Amalgamate", func() error { return w.Update(ctx, amalgamate) }, nil},
			{"Worker.View of Balance", func() error { return w.View(ctx, balance) }, nil},
			{"Worker.Update of WriteCheck", func() error { return w.Update(ctx, writeCheck) }, nil},
			{"Worker.Update that is rolled back", func() error { return w.Update(ctx, overdrawn) }, errRollback},
		} {
			once := func() {
				s.next()
				if err := c.run(); err != c.want { //nolint:errorlint // the very same
					t.Fatalf("%v: %s: %v", p, c.what, err)
				}
			}
			for range 4 * purses { // past maintenance, too
				once()
			}
			if n := testing.AllocsPerRun(500, once); n != 0 {
				t.Errorf("policy %v: %s: %v allocations", p, c.what, n)
			}
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	}
}
