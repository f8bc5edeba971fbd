package txn_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"time"

	"txnode/memory/record"
	"txnode/occ"
	"txnode/txn"
)

// holding is a transaction function that has locked, changed, inserted and read.
func holding(tab *txn.Table[uint64, []byte]) func(tx *txn.Tx) error {
	return func(tx *txn.Tx) error {
		if _, err := tab.GetForUpdate(tx, 1); err != nil {
			return err
		}
		if err := tab.Put(tx, 1, val(99)); err != nil {
			return err
		}
		if err := tab.Insert(tx, 500, val(99)); err != nil {
			return err
		}
		if err := tab.Put(tx, 501, val(99)); err != nil {
			return err
		}
		if err := tab.Delete(tx, 2); err != nil {
			return err
		}
		_, err := tab.Get(tx, 3)
		return err
	}
}

// untouched demands that nothing of holding shows, and that no lock is left.
func untouched(t *testing.T, db *txn.DB, tab *txn.Table[uint64, []byte]) {
	t.Helper()
	want := map[uint64][]byte{}
	for k := range uint64(10) {
		want[k] = val(1)
	}
	same(t, "afterwards", contents(t, db, tab, 510), want)
	quiet(t, db)
}

func bank(t *testing.T, p occ.Policy) (*txn.DB, *txn.Table[uint64, []byte]) {
	t.Helper()
	o := tiny()
	o.Policy = p
	db := mustOpen(t, o)
	tab := table(t, db, "t")
	fill(t, db, tab, 10, val(1))
	return db, tab
}

// TestPanic: a panic of the function goes on to the caller, and everything that the
// transaction held is released.
func TestPanic(t *testing.T) {
	eachPolicy(t, func(t *testing.T, p occ.Policy) {
		db, tab := bank(t, p)
		w := newWorker(t, db)
		for what, update := range map[string]func(ctx context.Context, fn func(tx *txn.Tx) error) error{
			"DB.Update": db.Update, "Worker.Update": w.Update,
		} {
			for range 10 { // more than there are workers
				func() {
					defer func() {
						if r := recover(); r != any(errRollback) {
							t.Errorf("%s: recovered %v", what, r)
						}
					}()
					err := update(t.Context(), func(tx *txn.Tx) error {
						if err := holding(tab)(tx); err != nil {
							return err
						}
						panic(errRollback)
					})
					t.Errorf("%s has returned %v", what, err)
				}()
			}
			untouched(t, db, tab)
		}
		// A goroutine that ends in its transaction.
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = db.Update(context.Background(), func(tx *txn.Tx) error {
				if err := holding(tab)(tx); err != nil {
					t.Error(err)
				}
				runtime.Goexit()
				return nil
			})
		}()
		<-done
		untouched(t, db, tab)
		if err := w.Update(t.Context(), func(tx *txn.Tx) error { return tab.Put(tx, 1, val(1)) }); err != nil {
			t.Error(err)
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestRollbacks: an error of the function's own comes back as it is, and nothing has
// happened.
func TestRollbacks(t *testing.T) {
	eachPolicy(t, func(t *testing.T, p occ.Policy) {
		db, tab := bank(t, p)
		mine := fmt.Errorf("insufficient: %w", errRollback)
		for range 100 {
			err := db.Update(t.Context(), func(tx *txn.Tx) error {
				if err := holding(tab)(tx); err != nil {
					return err
				}
				return mine
			})
			if err != mine { //nolint:errorlint // the very same
				t.Fatal(err)
			}
		}
		untouched(t, db, tab)
		if m := db.Metrics(); m.RolledBack != 100 {
			t.Errorf("%d rollbacks are counted", m.RolledBack)
		}
	})
}

// TestSwallowedConflict: whatever the function makes of a conflict, the attempt does
// not commit, and is made again.
func TestSwallowedConflict(t *testing.T) {
	eachPolicy(t, func(t *testing.T, p occ.Policy) {
		db, tab := bank(t, p)
		tx, err := db.Begin(t.Context(), false)
		if err != nil {
			t.Fatal(err)
		}
		if err := tab.Put(tx, 5, val(50)); err != nil {
			t.Fatal(err)
		}
		if err := tx.Execute(); err != nil {
			t.Fatal(err)
		}
		attempts := 0
		err = db.Update(t.Context(), func(in *txn.Tx) error {
			attempts++
			if err := tab.Put(in, 4, val(uint64(attempts))); err != nil {
				return err
			}
			p, err := tab.Get(in, 5)
			if attempts == 3 {
				if e := tx.Commit(); e != nil { // the other one gets out of the way
					t.Error(e)
				}
			}
			if err != nil {
				for what, op := range map[string]func() error{
					"Get":     func() error { _, err := tab.Get(in, 6); return err },
					"Put":     func() error { return tab.Put(in, 6, val(6)) },
					"Execute": in.Execute,
				} {
					says(t, what+" after a conflict", op(), txn.ErrConflict)
				}
				if attempts%2 == 0 {
					return errRollback // the conflict counts, not what it has led to
				}
				return nil
			}
			if num(p) != 50 {
				t.Errorf("5 is %d", num(p))
			}
			return nil
		})
		if err != nil || attempts != 4 {
			t.Errorf("%v after %d attempts", err, attempts)
		}
		if got := contents(t, db, tab, 10); num(got[4]) != 4 || num(got[5]) != 50 || num(got[6]) != 1 {
			t.Errorf("%v", got)
		}
		quiet(t, db)
	})
}

// TestNested: transactions of two databases, of one database, and of one worker
// within each other.
func TestNested(t *testing.T) {
	one, a := bank(t, occ.PolicyDefault)
	two, b := bank(t, occ.PolicyFORD)
	err := one.Update(t.Context(), func(tx *txn.Tx) error {
		if err := a.Put(tx, 1, val(7)); err != nil {
			return err
		}
		if err := two.Update(t.Context(), func(in *txn.Tx) error {
			if err := b.Put(in, 1, val(7)); err != nil {
				return err
			}
			return a.Put(tx, 2, val(7))
		}); err != nil {
			return err
		}
		return one.Update(t.Context(), func(in *txn.Tx) error { return a.Put(in, 3, val(7)) })
	})
	if err != nil {
		t.Fatal(err)
	}
	for db, tab := range map[*txn.DB]*txn.Table[uint64, []byte]{one: a, two: b} {
		if got := contents(t, db, tab, 4); num(got[1]) != 7 || db == one && (num(got[2]) != 7 || num(got[3]) != 7) {
			t.Errorf("%v", got)
		}
		quiet(t, db)
	}

	w := newWorker(t, one)
	err = w.Update(t.Context(), func(tx *txn.Tx) error {
		if err := a.Put(tx, 1, val(8)); err != nil {
			return err
		}
		err := w.Update(t.Context(), func(*txn.Tx) error { t.Error("the inner function has run"); return nil })
		if err == nil {
			t.Error("a worker runs a transaction inside of its own")
		}
		err = w.View(t.Context(), func(*txn.Tx) error { t.Error("the inner function has run"); return nil })
		if err == nil {
			t.Error("a worker runs a view inside of its own transaction")
		}
		return a.Put(tx, 2, val(8)) // and this one goes on
	})
	if err != nil {
		t.Error(err)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	if got := contents(t, one, a, 4); num(got[1]) != 8 || num(got[2]) != 8 {
		t.Errorf("%v", got)
	}
}

// TestNestedInOwnWay: a transaction inside of another that waits for the lock of that one
// gives up, and so does the other, at once: the attempts of both do not multiply.
func TestNestedInOwnWay(t *testing.T) {
	o := tiny()
	o.Retries = 20
	db := mustOpen(t, o)
	tab := table(t, db, "t")
	fill(t, db, tab, 2, val(1))
	outer, inner := 0, 0
	err := db.Update(t.Context(), func(tx *txn.Tx) error {
		outer++
		if _, err := tab.GetForUpdate(tx, 1); err != nil {
			return err
		}
		err := db.Update(t.Context(), func(in *txn.Tx) error { inner++; return tab.Put(in, 1, val(2)) })
		return fmt.Errorf("of no use: %w", err)
	})
	if !errors.Is(err, txn.ErrConflict) || !strings.HasPrefix(err.Error(), "of no use: ") {
		t.Error(err)
	}
	if outer != 1 || inner != 21 {
		t.Errorf("%d attempts of the outer transaction, %d of the inner one", outer, inner)
	}
	if got := contents(t, db, tab, 2); num(got[1]) != 1 {
		t.Errorf("%v", got)
	}
	// The same when the outer function has met an error before that it has passed over.
	outer, inner = 0, 0
	err = db.Update(t.Context(), func(tx *txn.Tx) error {
		outer++
		if err := tab.Put(tx, 0, make([]byte, record.MaxValue+1)); !errors.Is(err, txn.ErrTooLarge) {
			t.Error(err)
		}
		if _, err := tab.GetForUpdate(tx, 1); err != nil {
			return err
		}
		return db.Update(t.Context(), func(in *txn.Tx) error { inner++; return tab.Put(in, 1, val(2)) })
	})
	if !errors.Is(err, txn.ErrConflict) || outer != 1 || inner != 21 {
		t.Errorf("%d attempts of the outer transaction, %d of the inner one: %v", outer, inner, err)
	}
	quiet(t, db)
}

// fickle is a context that is canceled the n-th time that it is asked.
type fickle struct {
	context.Context
	n    int
	done chan struct{}
}

func (f *fickle) Done() <-chan struct{} { return f.done }

func (f *fickle) Err() error {
	if f.n--; f.n < 0 {
		return context.Canceled
	}
	return nil
}

func (f *fickle) Value(any) any { return nil }

// TestCanceledAnywhere cancels the context at every point at which a transaction
// looks at it: either nothing has happened, or everything, and the result says
// which.
func TestCanceledAnywhere(t *testing.T) {
	eachPolicy(t, func(t *testing.T, p occ.Policy) {
		committed := 0
		for n := range 12 {
			db, tab := bank(t, p)
			for _, begin := range []bool{false, true} {
				ctx := &fickle{t.Context(), n, make(chan struct{})}
				var err error
				if begin {
					var tx *txn.Tx
					if tx, err = db.Begin(ctx, false); err == nil {
						if err = holding(tab)(tx); err == nil {
							err = tx.Commit()
						} else if e := tx.Rollback(); e != nil {
							t.Error(e)
						}
					}
				} else {
					err = db.Update(ctx, holding(tab))
				}
				if err == nil {
					committed++
					got := contents(t, db, tab, 510)
					if num(got[1]) != 99 || got[2] != nil || got[500] == nil || got[501] == nil {
						t.Errorf("looked at %d times: committed, and %v", n, got)
					}
					quiet(t, db)
					break // it is another database now
				}
				if !errors.Is(err, context.Canceled) {
					t.Errorf("looked at %d times: %v", n, err)
				}
				untouched(t, db, tab)
			}
		}
		if committed < 2 || committed > 10 {
			t.Errorf("%d of 12 have committed", committed)
		}
	})
}

// TestCancel: before, within, and while conflicts are retried.
func TestCancel(t *testing.T) {
	eachPolicy(t, func(t *testing.T, p occ.Policy) {
		db, tab := bank(t, p)
		cause := errors.New("the client has gone")
		before, cancel := context.WithCancelCause(t.Context())
		cancel(cause)
		if err := db.Update(before, holding(tab)); !errors.Is(err, cause) || !errors.Is(err, context.Canceled) {
			t.Errorf("canceled before: %v", err)
		}
		if err := db.View(before, func(tx *txn.Tx) error { return tx.Execute() }); !errors.Is(err, cause) ||
			!errors.Is(err, context.Canceled) {
			t.Errorf("canceled before Execute: %v", err)
		}
		late, end := context.WithDeadlineCause(t.Context(), time.Unix(1, 0), cause)
		defer end()
		if err := db.Update(late, holding(tab)); !errors.Is(err, cause) || !errors.Is(err, context.DeadlineExceeded) ||
			errors.Is(err, context.Canceled) {
			t.Errorf("too late: %v", err)
		}
		plain, stop := context.WithCancel(t.Context())
		stop()
		if err := db.Update(plain, holding(tab)); err != context.Canceled { //nolint:errorlint // as it is
			t.Errorf("canceled without a cause: %v", err)
		}
		if _, err := db.Backup(before, io.Discard, txn.BackupOptions{}); !errors.Is(err, cause) ||
			!errors.Is(err, context.Canceled) {
			t.Errorf("a backup, canceled before: %v", err)
		}
		if _, err := db.Recover(before); !errors.Is(err, cause) || !errors.Is(err, context.Canceled) {
			t.Errorf("a recovery, canceled before: %v", err)
		}
		if err := db.View(before, func(tx *txn.Tx) error { _, err := tab.Get(tx, 1); return err }); !errors.Is(err,
			cause) {
			t.Errorf("a view, canceled before: %v", err)
		}
		untouched(t, db, tab)

		within, cancel := context.WithCancelCause(t.Context())
		if err := db.Update(within, func(tx *txn.Tx) error {
			if err := holding(tab)(tx); err != nil {
				return err
			}
			cancel(cause)
			return nil
		}); !errors.Is(err, cause) {
			t.Errorf("canceled at the end of the function: %v", err)
		}
		untouched(t, db, tab)

		tx, err := db.Begin(t.Context(), false)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tab.GetForUpdate(tx, 3); err != nil {
			t.Fatal(err)
		}
		short, stop := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer stop()
		for _, op := range []func(tx *txn.Tx) error{holding(tab), func(tx *txn.Tx) error {
			return tab.Put(tx, 3, val(9))
		}} {
			if err := db.Update(short, op); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a deadline among conflicts: %v", err)
			}
		}
		if err := tx.Rollback(); err != nil {
			t.Error(err)
		}
		untouched(t, db, tab)
	})
}

// TestForUpdateOfAbsent: a key that has no value is not locked by who gets it for an update, as
// there is nothing to be locked; two who write it do not both commit.
func TestForUpdateOfAbsent(t *testing.T) {
	db := openMemory(t, txn.Options{Retries: 5})
	tab := table(t, db, "t")
	var met []error
	err := db.Update(t.Context(), func(tx *txn.Tx) error {
		_, err := tab.GetForUpdate(tx, 7)
		if met = append(met, err); len(met) > 1 {
			return tab.Put(tx, 7, val(3))
		}
		if err := db.Update(t.Context(), func(tx *txn.Tx) error { return tab.Put(tx, 7, val(1)) }); err != nil {
			t.Errorf("somebody else's: %v", err)
		}
		return tab.Put(tx, 7, val(2))
	})
	if err != nil || len(met) != 2 || !errors.Is(met[0], txn.ErrNotFound) || met[1] != nil {
		t.Errorf("%v, %v", met, err)
	}
}
