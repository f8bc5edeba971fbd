package txn_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"txnode/memory"
	"txnode/memory/catalog"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/occ"
	"txnode/rdma"
	"txnode/rdma/rdmatest"
	"txnode/txn"
)

// TestOutcome: each of the verbs of a transaction is lost; the caller is told what became
// of it, or asks, and the answer is that which the data gives, also later.
func TestOutcome(t *testing.T) {
	for _, p := range policies(t) {
		left := -2
		f := rdmatest.New(rdmatest.Options{Blades: 2, Size: 16 << 20, Caps: atOnce, Seed: 1,
			Fail: func(*rdma.WR) rdma.Status {
				if left--; left != -1 {
					left = max(left, -2)
					return rdma.StatusOK
				}
				return rdma.StatusTimeout
			}})
		cat := &catalog.Mem{}
		open := func() *txn.DB {
			o := tiny()
			o.BladeSize, o.Fabric, o.Catalog, o.Policy, o.Workers = 0, f, cat, p, 1
			return mustOpen(t, o)
		}
		db := open()
		tab := table(t, db, "t")
		told := map[uint64]txn.Outcome{}
		for n := range 40 {
			err := db.Update(t.Context(), func(tx *txn.Tx) error {
				for k := range uint64(3) {
					if err := tab.Put(tx, k, val(uint64(n))); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			tx, err := db.Begin(t.Context(), false)
			if err != nil {
				t.Fatal(err)
			}
			id := tx.ID()
			left = n
			for k := range uint64(3) {
				if err = tab.Put(tx, k, val(1000+uint64(n))); err != nil {
					break
				}
			}
			if err == nil {
				err = tx.Commit()
			} else {
				_ = tx.Rollback()
			}
			left = -2
			var now uint64
			must := db.View(t.Context(), func(tx *txn.Tx) error {
				v, err := tab.Get(tx, 0)
				if err == nil {
					now = uint64(v[0]) | uint64(v[1])<<8
				}
				return err
			})
			if must != nil {
				t.Fatal(must)
			}
			happened := now == 1000+uint64(n)
			if (err == nil) != happened && !errors.Is(err, txn.ErrOutcomeUnknown) {
				t.Fatalf("%v, verb %d: told %v, and the value is %d", p, n, err, now)
			}
			var u *occ.UnknownError
			if errors.As(err, &u) && uint64(u.Tx) != id {
				t.Errorf("%v is about %d, not %d", err, u.Tx, id)
			}
			if o, err := db.Outcome(t.Context(), id); err == nil {
				if (o == txn.Committed) != happened {
					t.Fatalf("%v, verb %d: the outcome is %v, and the value is %d", p, n, o, now)
				}
				told[id] = o
			} else if !errors.Is(err, txn.ErrNoOutcome) {
				t.Fatalf("%v, verb %d: %v", p, n, err)
			}
		}
		if len(told) < 5 {
			t.Errorf("%v: only %d outcomes", p, len(told))
		}
		if err := db.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		db = open()
		for id, o := range told {
			if again, err := db.Outcome(t.Context(), id); err != nil || again != o {
				t.Errorf("%v: the outcome of %d was %v, and is %v, %v", p, id, o, again, err)
			}
		}
		for _, id := range []uint64{0, 1, 1 << 60} {
			if _, err := db.Outcome(t.Context(), id); !errors.Is(err, txn.ErrNoOutcome) {
				t.Errorf("outcome of %d: %v", id, err)
			}
		}
	}
}

// TestLease: a worker that has stopped while it holds a lock is declared dead by who
// meets the lock, when its lease has expired; it learns that, and goes on.
func TestLease(t *testing.T) {
	o := tiny()
	o.LeaseTerm = 500 * time.Millisecond // a busy machine renews it late
	db := mustOpen(t, o)
	tab := table(t, db, "t")
	fill(t, db, tab, 3, val(1))
	tx, err := db.Begin(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tab.GetForUpdate(tx, 1); err != nil {
		t.Fatal(err)
	}
	id := tx.ID()
	if _, err := db.Outcome(t.Context(), id); !errors.Is(err, txn.ErrNoOutcome) {
		t.Errorf("while it runs: %v", err)
	}
	if _, err := db.Recover(t.Context(), uint32(id>>40)); err != nil { // as if the lease had expired
		t.Fatal(err)
	}
	if err := db.Update(context.Background(), func(tx *txn.Tx) error { return tab.Put(tx, 1, val(2)) }); err != nil {
		t.Fatal(err)
	}
	if err := tab.Put(tx, 1, val(3)); err != nil {
		t.Fatal(err)
	}
	says(t, "Commit", tx.Commit(), txn.ErrFenced)
	if o, err := db.Outcome(t.Context(), id); err != nil || o != txn.Aborted {
		t.Errorf("%v, %v", o, err)
	}
	time.Sleep(2 * o.LeaseTerm) // idle workers are not declared dead: the database renews their leases
	for k := range uint64(3) {
		if err := db.Update(context.Background(),
			func(tx *txn.Tx) error { return tab.Put(tx, k, val(4)) }); err != nil {
			t.Error(err)
		}
	}
}

// deaf is a catalog that cannot be reached while it is down.
type deaf struct {
	catalog.Mem
	down  atomic.Bool
	makes bool // and makes changes all the same
}

var errDeaf = errors.New("nobody answers")

func (d *deaf) Load() ([]layout.Entry, layout.Revision, error) {
	if d.down.Load() {
		return nil, 0, errDeaf
	}
	return d.Mem.Load()
}

func (d *deaf) Revision() (layout.Revision, error) {
	_, rev, err := d.Load()
	return rev, err
}

func (d *deaf) Apply(rev layout.Revision, changes []layout.Entry) (layout.Revision, error) {
	if d.down.Load() && d.makes {
		_, _ = d.Mem.Apply(rev, changes)
	}
	if d.down.Load() {
		return 0, errDeaf
	}
	return d.Mem.Apply(rev, changes)
}

// TestDeclaredDeadWithoutCatalog: a worker that was declared dead cannot rejoin while nobody can
// be registered. It is told so, and not that it may try again, which it did at once, for ever;
// and when the catalog can be reached again, everything goes on.
func TestDeclaredDeadWithoutCatalog(t *testing.T) {
	for _, kind := range []string{"of the caller's own", "Update", "Begin"} {
		t.Run(kind, func(t *testing.T) {
			cat := &deaf{}
			o := onFabric(rdmatest.New(rdmatest.Options{Blades: 2, Size: 16 << 20, Caps: atOnce, Seed: 1}),
				txn.PolicyDefault)
			o.Catalog, o.Workers = cat, 2
			db := mustOpen(t, o)
			tab := table(t, db, "t")
			var id uint64
			put := func(tx *txn.Tx) error {
				id = tx.ID()
				return tab.Put(tx, 1, val(2))
			}
			update := func() error { return db.Update(t.Context(), put) }
			switch kind {
			case "of the caller's own":
				w := newWorker(t, db)
				defer func() {
					if err := w.Close(); err != nil {
						t.Error(err)
					}
				}()
				update = func() error { return w.Update(t.Context(), put) }
			case "Begin":
				update = func() error {
					tx, err := db.Begin(t.Context(), false)
					if err != nil {
						return err
					}
					if err := put(tx); err != nil {
						return errors.Join(err, tx.Rollback())
					}
					return tx.Commit()
				}
			}
			if err := update(); err != nil {
				t.Fatal(err)
			}
			if _, err := db.Recover(t.Context(), uint32(id>>40)); err != nil {
				t.Fatal(err)
			}
			cat.down.Store(true)
			err := update()
			says(t, "while the catalog is down", err, txn.ErrBroken, "no such coordinator", errDeaf.Error())
			if errors.Is(err, txn.ErrConflict) || errors.Is(err, txn.ErrFenced) || !errors.Is(err, errDeaf) {
				t.Errorf("while the catalog is down: %v", err)
			}
			cat.down.Store(false)
			if err := update(); err != nil {
				t.Errorf("when it is back: %v", err)
			}
		})
	}
}

// TestOutcomeOfWhoCouldNotRejoin: a client is told that nobody knows what became of its
// transaction, and its worker cannot rejoin, and is closed. Whoever recovers it may not know who
// asks; the answer comes all the same.
func TestOutcomeOfWhoCouldNotRejoin(t *testing.T) {
	for _, by := range []string{"this process", "another one", "this process as it closes"} {
		t.Run(by, func(t *testing.T) {
			cat, armed := &deaf{}, false
			o := onFabric(rdmatest.New(rdmatest.Options{Blades: 2, Size: 16 << 20, Caps: atOnce, Seed: 1,
				Fail: func(w *rdma.WR) rdma.Status {
					if !armed || w.Op != rdma.OpWrite { // the first one of a commit is that of its log record
						return rdma.StatusOK
					}
					cat.down.Store(true)
					return rdma.StatusTimeout
				}}), txn.PolicyDefault)
			o.Catalog, o.Workers = cat, 2
			db := mustOpen(t, o)
			tab := table(t, db, "t")
			fill(t, db, tab, 2, val(1))
			w, err := db.NewWorker()
			if err != nil {
				t.Fatal(err)
			}
			var id record.TxID
			err = w.Update(t.Context(), func(tx *txn.Tx) error {
				id, armed = record.TxID(tx.ID()), true
				return tab.Put(tx, 1, val(2))
			})
			says(t, "Update", err, txn.ErrOutcomeUnknown)
			armed = false
			if err := w.Close(); err == nil {
				t.Error("it was closed, and its coordinator, while the catalog was down")
			}
			cat.down.Store(false)
			switch by {
			case "this process as it closes":
				if err := db.Close(t.Context()); err != nil {
					t.Fatal(err)
				}
				db = mustOpen(t, o)
			case "this process":
				if _, err := db.Recover(t.Context(), id.Coordinator()); err != nil {
					t.Fatal(err)
				}
				if v, _ := db.Space().Verdict(id.Coordinator()); !slices.Contains(v.Aborted, id.Seq()) {
					t.Errorf("the verdict of who knew that somebody asks: %+v", v)
				}
			default:
				c, err := db.Space().Claim(memory.ClaimOptions{Steal: true}, id.Coordinator())
				if err == nil {
					err = c.Decide([]layout.Verdict{{Coordinator: id.Coordinator(), Last: id.Seq()}})
				}
				if err == nil {
					err = c.Forget()
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			if by == "another one" { // what is known is told without the catalog
				cat.down.Store(true)
				if o, err := db.Outcome(t.Context(),
					uint64(record.MakeTxID(id.Coordinator(), id.Seq()+1))); err != nil || o != txn.Aborted {
					t.Errorf("one that was never logged: %v, %v", o, err)
				}
				_, err := db.Outcome(t.Context(), uint64(id))
				says(t, "Outcome while the catalog is down", err, txn.ErrOutcomeUnknown, errDeaf.Error())
				cat.down.Store(false)
			}
			for range 2 {
				if o, err := db.Outcome(t.Context(), uint64(id)); err != nil || o != txn.Aborted {
					t.Errorf("%v, %v", o, err)
				}
			}
			if v, _ := db.Space().Verdict(id.Coordinator()); !slices.Contains(v.Aborted, id.Seq()) {
				t.Errorf("it is not kept: %+v", v)
			}
		})
	}
}

// TestLogGrowsWithoutCatalog: a transaction that needs more of its worker's log area than that
// uses fails while the catalog cannot be asked for it; others, which have room, go on.
func TestLogGrowsWithoutCatalog(t *testing.T) {
	for _, p := range policies(t) {
		t.Run(p.String(), func(t *testing.T) {
			cat := &deaf{}
			o := onFabric(rdmatest.New(rdmatest.Options{Blades: 2, Size: 32 << 20, Caps: atOnce, Seed: 1}), p)
			o.Catalog, o.LogArea, o.SegmentSize, o.Arena = cat, 256<<10, 1<<20, 4<<20
			db := mustOpen(t, o)
			tab := table(t, db, "t")
			put := func(from, to uint64) error {
				return db.Update(t.Context(), func(tx *txn.Tx) error {
					for k := from; k < to; k++ {
						if err := tab.Put(tx, k, make([]byte, 16<<10)); err != nil {
							return err
						}
					}
					return nil
				})
			}
			for k := range uint64(8) { // their blocks are there
				if err := put(k, k+1); err != nil {
					t.Fatal(err)
				}
			}
			cat.down.Store(true)
			for range 3 {
				err := put(0, 8)
				says(t, "a transaction that needs more of its log area", err, errDeaf, "log")
				for _, e := range []error{txn.ErrConflict, txn.ErrFenced, txn.ErrBroken, txn.ErrOutcomeUnknown} {
					if errors.Is(err, e) {
						t.Errorf("a transaction that needs more of its log area: %v", err)
					}
				}
				for range 20 {
					if err := put(0, 2); err != nil {
						t.Fatalf("one that has room: %v", err)
					}
				}
			}
			cat.down.Store(false)
			if err := put(0, 8); err != nil {
				t.Errorf("when the catalog is back: %v", err)
			}
		})
	}
}
