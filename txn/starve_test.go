package txn_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"txnode/txn"
)

// TestNobodyStarves: who holds a lock for long, and takes it again at once, lets others in; and
// who reads much comes to an end beside those who write a little of it.
func TestNobodyStarves(t *testing.T) {
	if testing.Short() {
		t.Skip("takes time")
	}
	t.Run("locks", func(t *testing.T) {
		db := openMemory(t, txn.Options{})
		tab := table(t, db, "t")
		fill(t, db, tab, 1, val(1))
		const each, clients = 10, 2
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		var hungry atomic.Int32
		hungry.Store(clients)
		var wg sync.WaitGroup
		for c := range clients {
			wg.Go(func() {
				for n := 0; hungry.Load() > 0 && ctx.Err() == nil; n++ {
					if err := db.Update(ctx, func(tx *txn.Tx) error {
						v, err := tab.GetForUpdate(tx, 0)
						if err != nil {
							return err
						}
						time.Sleep(2 * time.Millisecond)
						return tab.Put(tx, 0, v)
					}); err != nil {
						t.Errorf("client %d, transaction %d: %v", c, n, err)
						hungry.Store(0)
					}
					if n == each {
						hungry.Add(-1)
					}
				}
			})
		}
		wg.Wait()
	})
	t.Run("reads", func(t *testing.T) {
		db := openMemory(t, txn.Options{Retries: 300})
		tab := table(t, db, "t")
		const keys = 1000
		fill(t, db, tab, keys, val(1))
		var done atomic.Bool
		var wg sync.WaitGroup
		for c := range uint64(2) {
			wg.Go(func() {
				for k := c; !done.Load(); k = (k + 389) % keys {
					if err := db.Update(t.Context(),
						func(tx *txn.Tx) error { return tab.Put(tx, k, val(2)) }); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		for range 3 {
			if err := db.View(t.Context(), func(tx *txn.Tx) error {
				for k := range uint64(keys) {
					if _, err := tab.Get(tx, k); err != nil {
						return err
					}
				}
				return nil
			}); err != nil {
				t.Error(err)
			}
		}
		done.Store(true)
		wg.Wait()
	})
}

// TestInsists: a key is changed by somebody else whenever a transaction has read it, however it
// does that. After a while it is not, since it is locked.
func TestInsists(t *testing.T) {
	for _, p := range policies(t) {
		t.Run(fmt.Sprint(p), func(t *testing.T) { insists(t, p) })
	}
}

func insists(t *testing.T, p txn.Policy) {
	db := openMemory(t, txn.Options{Retries: 70, Policy: p, ReadBackups: true})
	tab, raw := table(t, db, "t"), must(txn.CreateRawTable(db, "raw"))
	fill(t, db, tab, 2, val(1))
	ordered := must(txn.CreateOrderedTable(db, "ordered", txn.Uint64, txn.Bytes()))
	gone := must(txn.CreateOrderedTable(db, "keys come and go", txn.Uint64, txn.Bytes()))
	fill(t, db, ordered.Table, 40, val(1))
	fill(t, db, gone.Table, 40, val(1))
	key, toggle := []byte("raw key."), uint64(20)
	change := func() error {
		return db.Update(t.Context(), func(tx *txn.Tx) error {
			has, err := gone.Has(tx, toggle)
			if err == nil && has {
				err = gone.Delete(tx, toggle)
			} else if err == nil {
				err = gone.Put(tx, toggle, val(2))
			}
			return errors.Join(err, tab.Put(tx, 0, val(2)), raw.Put(tx, key, val(2)), ordered.Put(tx, 20, val(2)))
		})
	}
	loop := func(seq iter.Seq2[uint64, []byte], least, most int) error {
		n := 0
		for range seq {
			n++
		}
		if n < least || n > most {
			return fmt.Errorf("a loop over %d rows", n)
		}
		return nil
	}
	if err := change(); err != nil {
		t.Fatal(err)
	}
	w := must(db.NewWorker())
	defer w.Close()
	for name, read := range map[string]func(tx *txn.Tx) error{
		"Get":   func(tx *txn.Tx) error { _, err := tab.Get(tx, 0); return err },
		"Has":   func(tx *txn.Tx) error { _, err := tab.Has(tx, 0); return err },
		"Stage": func(tx *txn.Tx) error { return errors.Join(tab.Stage(tx, 0, txn.ForRead), tx.Execute()) },
		"Stage and Get": func(tx *txn.Tx) error {
			if err := tab.Stage(tx, 0, txn.ForRead); err != nil {
				return err
			}
			_, err := tab.Get(tx, 0)
			return err
		},
		"RawTable.Get":   func(tx *txn.Tx) error { _, err := raw.Get(tx, key); return err },
		"RawTable.Stage": func(tx *txn.Tx) error { return errors.Join(raw.Stage(tx, key, txn.ForRead), tx.Execute()) },
		"Fetch":          func(tx *txn.Tx) error { return tx.Fetch([]txn.Row{{Table: raw, Key: key}}) },
		"All":            func(tx *txn.Tx) error { return errors.Join(loop(tab.All(tx), 0, 2), tx.Err()) },
		"Range": func(tx *txn.Tx) error {
			return errors.Join(loop(ordered.Range(tx, txn.Including[uint64](10), txn.Excluding[uint64](30)), 0, 20),
				tx.Err())
		},
		"Range over keys that come and go": func(tx *txn.Tx) error {
			return errors.Join(loop(gone.Range(tx, txn.Including[uint64](10), txn.Excluding[uint64](30),
				txn.Descending()), 0, 20), tx.Err())
		},
	} {
		attempts, locked := 0, false
		err := w.View(t.Context(), func(tx *txn.Tx) error {
			if attempts++; attempts > 65 && locked {
				return nil
			}
			if err := read(tx); err != nil {
				return err
			}
			switch err := change(); {
			case err == nil && attempts > 69:
				t.Fatalf("%s: it is not locked after %d attempts", name, attempts)
			case errors.Is(err, txn.ErrConflict):
				locked = true
			case err != nil:
				t.Fatal(err)
			}
			_, err := tab.Get(tx, 1)
			return err
		})
		if err != nil || !locked || attempts < 60 {
			t.Errorf("%s: locked %v, %d attempts, %v", name, locked, attempts, err)
		}
		// The next one does not, until it has to.
		attempts = 0
		if err := w.View(t.Context(), func(tx *txn.Tx) error {
			if err := read(tx); err != nil || attempts > 0 {
				return err
			}
			attempts++
			return change()
		}); err != nil {
			t.Errorf("after %s: %v", name, err)
		}
	}
}

// TestInsistsAndWrites: a transaction whose loop has locked leaves and records changes, inserts and
// deletes among them.
func TestInsistsAndWrites(t *testing.T) {
	for _, p := range policies(t) {
		t.Run(fmt.Sprint(p), func(t *testing.T) {
			db := openMemory(t, txn.Options{Retries: 70, Policy: p, NodeEntries: 4})
			ordered := must(txn.CreateOrderedTable(db, "ordered", txn.Uint64, txn.Bytes()))
			fill(t, db, ordered.Table, 20, val(1))
			w := must(db.NewWorker())
			defer w.Close()
			attempts, locked, n := 0, false, 0
			if err := w.Update(t.Context(), func(tx *txn.Tx) error {
				attempts++
				n = 0
				for range ordered.All(tx) {
					n++
				}
				if err := tx.Err(); err != nil {
					return err
				}
				if !locked {
					err := db.Update(t.Context(), func(tx *txn.Tx) error { return ordered.Put(tx, 7, val(2)) })
					if locked = errors.Is(err, txn.ErrConflict); err != nil && !locked {
						return err
					}
				}
				return errors.Join(ordered.Delete(tx, 3), ordered.Put(tx, 7, val(3)), ordered.Insert(tx, 100, val(4)),
					ordered.Insert(tx, 101, val(5)))
			}); err != nil || !locked || n != 20 {
				t.Fatalf("%d attempts, locked %v, %d rows: %v", attempts, locked, n, err)
			}
			var got []uint64
			if err := db.View(t.Context(), func(tx *txn.Tx) error {
				got = got[:0]
				for k, v := range ordered.All(tx) {
					if got = append(got, k); k == 7 && !bytes.Equal(v, val(3)) {
						t.Errorf("key 7 has %x", v)
					}
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			if len(got) != 21 || got[3] != 4 || got[19] != 100 || got[20] != 101 {
				t.Errorf("keys %v", got)
			}
			if err := db.Update(t.Context(), func(tx *txn.Tx) error { return ordered.Put(tx, 5, val(6)) }); err != nil {
				t.Errorf("a lock was left: %v", err)
			}
		})
	}
}

// TestGiveWay: who has had a record locked waits before its next transaction when somebody waits
// for it in vain, until that one has it; and nobody else does.
func TestGiveWay(t *testing.T) {
	db := openMemory(t, txn.Options{Workers: 1, Retries: 100_000})
	tab := table(t, db, "t")
	fill(t, db, tab, 3, val(1))
	lock := func(w interface {
		Update(context.Context, func(*txn.Tx) error) error
	}, k uint64, then func()) {
		if err := w.Update(t.Context(), func(tx *txn.Tx) error {
			_, err := tab.GetForUpdate(tx, k)
			if err == nil && then != nil {
				then()
			}
			return err
		}); err != nil {
			t.Error(err)
		}
	}
	worker := func() *txn.Worker {
		w := newWorker(t, db)
		t.Cleanup(func() { _ = w.Close() })
		return w
	}
	had, other, holder, waits := worker(), worker(), worker(), worker()
	lock(had, 0, nil)
	lock(db, 0, nil)
	lock(other, 1, nil)
	locked, release := make(chan bool), make(chan bool)
	var wg sync.WaitGroup
	wg.Go(func() { lock(holder, 0, func() { close(locked); <-release }) })
	<-locked
	wg.Go(func() { lock(waits, 0, nil) })
	for from := time.Now(); db.Hungry() == 0; time.Sleep(time.Millisecond) {
		if time.Since(from) > 30*time.Second {
			t.Fatal("nobody waits")
		}
	}
	took := func(fn func()) time.Duration {
		from := time.Now()
		fn()
		return time.Since(from)
	}
	const wait = 2 * time.Millisecond
	if d := took(func() { lock(had, 1, nil) }); d < wait {
		t.Errorf("who has had it locked has waited for %v", d)
	}
	if d := took(func() {
		if tx, err := db.Begin(t.Context(), false); err != nil || tx.Rollback() != nil {
			t.Error(err)
		}
	}); d < wait {
		t.Errorf("who has had it locked has waited for %v in Begin", d)
	}
	least := time.Hour
	for range 100 {
		least = min(least, took(func() { lock(other, 1, nil) }))
	}
	if least > wait {
		t.Errorf("who has not had it locked has waited for %v", least)
	}
	if db.Hungry() == 0 {
		t.Error("nobody waits any more")
	}
	close(release)
	wg.Wait()
	if a := db.Hungry(); a != 0 {
		t.Errorf("somebody waits for %v still", a)
	}
}

// TestHotKey: a thousand clients change one key again and again, with as many workers or fewer, of
// one process or of several, whether they read it first or lock it at once. No transaction is
// refused after Retries while others pass.
func TestHotKey(t *testing.T) {
	type get = func(*txn.Table[uint64, uint64], *txn.Tx, uint64) (uint64, error)
	for _, c := range []struct {
		processes, workers, clients, each int
		short                             bool
	}{{1, 64, 1000, 10, false}, {1, 1024, 1000, 10, false}, {4, 128, 512, 5, false}, {1, 256, 256, 2, true}} {
		if testing.Short() != c.short {
			continue
		}
		for name, get := range map[string]get{
			"Get": (*txn.Table[uint64, uint64]).Get, "GetForUpdate": (*txn.Table[uint64, uint64]).GetForUpdate,
		} {
			t.Run(fmt.Sprintf("%s, %d processes, %d workers", name, c.processes, c.workers), func(t *testing.T) {
				o := txn.Options{}
				if c.processes > 1 {
					o = sharedOf(t, 2, 1<<30)
					o.LogArea = 64 << 10
				}
				o.Workers, o.WorkerWait, o.Retries, o.Arena = c.workers, -1, 700, 1<<20
				var dbs []*txn.DB
				for range c.processes {
					dbs = append(dbs, mustOpen(t, o))
				}
				hotKey(t, dbs, c.clients, c.each, get)
			})
		}
	}
}

// hotKey has clients change one key, and each of them takes the next of the databases.
func hotKey(t *testing.T, dbs []*txn.DB, clients, each int,
	get func(*txn.Table[uint64, uint64], *txn.Tx, uint64) (uint64, error)) {
	t.Helper()
	tables := make([]*txn.Table[uint64, uint64], len(dbs))
	for i, db := range dbs {
		tables[i] = must(txn.CreateTable(db, "t", txn.Uint64, txn.Plain[uint64]()))
	}
	var worst, all atomic.Int64
	var wg sync.WaitGroup
	for i := range clients {
		db, tab := dbs[i%len(dbs)], tables[i%len(dbs)]
		wg.Go(func() {
			for range each {
				tries := int64(0)
				if err := db.Update(t.Context(), func(tx *txn.Tx) error {
					tries++
					v, err := get(tab, tx, 1)
					if err != nil && !errors.Is(err, txn.ErrNotFound) {
						return err
					}
					runtime.Gosched() // all others have their chance meanwhile
					return tab.Put(tx, 1, v+1)
				}); err != nil {
					t.Error(err)
				}
				all.Add(tries)
				for was := worst.Load(); tries > was && !worst.CompareAndSwap(was, tries); was = worst.Load() {
					continue
				}
			}
		})
	}
	wg.Wait()
	mean := float64(all.Load()) / float64(clients*each)
	t.Logf("at most %d attempts, %.1f on average", worst.Load(), mean)
	if mean > 30 {
		t.Errorf("a change takes %.1f attempts: they come faster than they end", mean)
	}
	if err := dbs[0].View(t.Context(), func(tx *txn.Tx) error {
		v, err := tables[0].Get(tx, 1)
		if v != uint64(clients*each) {
			t.Errorf("%d of %d changes", v, clients*each)
		}
		return err
	}); err != nil {
		t.Error(err)
	}
	for _, db := range dbs {
		if n := db.Patient(); n != 0 {
			t.Errorf("%d transactions have conflicts still", n)
		}
	}
}

// TestHeldAmongMany: many transactions have conflicts, so that one waits long between two attempts.
// Time in which one lock is held counts as attempts: a transaction does not wait longer for a lock
// that is never released because others wait.
func TestHeldAmongMany(t *testing.T) {
	const retries = 200
	db := mustOpen(t, txn.Options{Workers: 2, Retries: retries})
	tab := table(t, db, "t")
	fill(t, db, tab, 1, val(1))
	tx, err := db.Begin(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tab.GetForUpdate(tx, 0); err != nil {
		t.Fatal(err)
	}
	defer db.AddPatient(100)()
	try := func(ctx context.Context, each func()) (tries int, err error) {
		err = db.Update(ctx, func(tx *txn.Tx) error {
			tries++
			each()
			return tab.Put(tx, 0, val(2))
		})
		return tries, err
	}
	tries, err := try(t.Context(), func() {})
	if says(t, "locked", err, txn.ErrConflict); tries > retries/2 {
		t.Errorf("%d attempts", tries)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	db.AddPatient(1 << 20) // so that it would wait for ever
	n := 0
	_, err = try(ctx, func() {
		if n++; n == 8 {
			time.AfterFunc(time.Millisecond, cancel)
		}
	})
	says(t, "canceled", err, context.Canceled)
	db.AddPatient(-1 << 20)
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if _, err := try(t.Context(), func() {}); err != nil {
		t.Error(err)
	}
}
