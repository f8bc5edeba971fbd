package txn_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"txnode/memory/catalog"
	"txnode/rdma/sim"
	"txnode/txn"
)

func TestClosed(t *testing.T) {
	db, err := txn.Open(t.Context(), tiny())
	if err != nil {
		t.Fatal(err)
	}
	tab := table(t, db, "t")
	fill(t, db, tab, 3, val(1))
	w := newWorker(t, db)
	if err := db.Close(t.Context()); err == nil || !strings.Contains(err.Error(), "1 workers") {
		t.Errorf("Close with a worker: %v", err)
	}
	fill(t, db, table(t, db, "u"), 3, val(1)) // still open
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	nothing := func(*txn.Tx) error { t.Error("a transaction of a closed database"); return nil }
	says(t, "Close", db.Close(t.Context()), txn.ErrClosed)
	says(t, "Update", db.Update(t.Context(), nothing), txn.ErrClosed, "closed")
	says(t, "View", db.View(t.Context(), nothing), txn.ErrClosed)
	_, err = db.Begin(t.Context(), false)
	says(t, "Begin", err, txn.ErrClosed)
	_, err = db.NewWorker()
	says(t, "NewWorker", err, txn.ErrClosed)
	says(t, "Run", db.Run(t.Context(), 1, 1, func(context.Context, int, *txn.Worker) error { return nil }),
		txn.ErrClosed)
	_, err = txn.CreateTable(db, "v", txn.Uint64, txn.Bytes())
	says(t, "CreateTable", err, txn.ErrClosed)
	_, err = db.Tables()
	says(t, "Tables", err, txn.ErrClosed)
	if m := db.Metrics(); m.Committed == 0 {
		t.Error("the metrics are gone")
	}
}

// TestClosedWorker: a worker that was closed, and whose memory is gone, runs no transaction.
func TestClosedWorker(t *testing.T) {
	db, err := txn.Open(t.Context(), tiny())
	if err != nil {
		t.Fatal(err)
	}
	tab := table(t, db, "t")
	fill(t, db, tab, 3, val(1))
	nothing := func(*txn.Tx) error { t.Error("a transaction of a closed worker"); return nil }
	dead := func(what string, w *txn.Worker) {
		t.Helper()
		says(t, what+": Update", w.Update(t.Context(), nothing), txn.ErrClosed, "NewWorker")
		says(t, what+": View", w.View(t.Context(), nothing), txn.ErrClosed)
		says(t, what+": Maintain", w.Maintain(), txn.ErrClosed)
		if err := w.Close(); err != nil {
			t.Errorf("%s: Close again: %v", what, err)
		}
	}
	w := newWorker(t, db)
	if err := w.Update(t.Context(), func(tx *txn.Tx) error {
		if err := w.Close(); err == nil {
			t.Error("a worker was closed in its transaction")
		}
		return tab.Put(tx, 1, val(2))
	}); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	dead("own", w)
	for _, coroutines := range []int{1, 2} {
		var kept []*txn.Worker
		if err := db.Run(t.Context(), 1, coroutines, func(_ context.Context, _ int, w *txn.Worker) error {
			kept = append(kept, w)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		for _, w := range kept {
			dead("of Run", w)
		}
		// One that closes itself does so there and then; the others of its thread go on, also when
		// their session breaks.
		before := db.Metrics().Committed
		if err := db.Run(t.Context(), 1, coroutines, func(ctx context.Context, id int, w *txn.Worker) error {
			for i := range 200 {
				if err := w.Update(ctx,
					func(tx *txn.Tx) error { return tab.Put(tx, uint64(id), val(uint64(i))) }); err != nil {
					return err
				}
				if i == 100 && id == 0 {
					if err := w.Close(); err != nil {
						return err
					}
					dead("of Run, in it", w)
					if _, err := db.Recover(ctx); err != nil { // it has to rejoin
						return err
					}
					return nil
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if n := db.Metrics().Committed - before; n != uint64(101+200*(coroutines-1)) {
			t.Errorf("%d commits are counted", n)
		}
	}
	if err := db.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	dead("of a closed database", w)
}

// TestCloseBeside: Close meets workers and backups that are just being made. Either they
// keep the database open, or they come too late; nothing of them is left behind.
func TestCloseBeside(t *testing.T) {
	rounds := 80
	if testing.Short() {
		rounds = 16
	}
	for round := range rounds {
		db, err := txn.Open(t.Context(), tiny())
		if err != nil {
			t.Fatal(err)
		}
		fill(t, db, table(t, db, "t"), 3, val(1))
		var others sync.WaitGroup
		for _, use := range []func() error{
			func() error {
				w, err := db.NewWorker()
				if err != nil {
					return err
				}
				return w.Close()
			},
			func() error {
				return db.Run(t.Context(), 1, 2, func(context.Context, int, *txn.Worker) error { return nil })
			},
			func() error { _, err := db.Backup(t.Context(), io.Discard, txn.BackupOptions{}); return err },
		} {
			others.Go(func() {
				for range 6 {
					if err := use(); errors.Is(err, txn.ErrClosed) {
						return
					} else if err != nil && !strings.Contains(err.Error(), "backup is under way") {
						t.Error(err)
						return
					}
				}
			})
		}
		for range round % 8 {
			runtime.Gosched()
		}
		for {
			err := db.Close(t.Context())
			if err == nil {
				break
			}
			if !strings.Contains(err.Error(), "still open") {
				t.Fatal(err)
			}
			runtime.Gosched() // into the middle of the next
		}
		others.Wait()
	}
}

// TestWaitingBorrowers: who waits for a worker gets one, or an error, in every case.
func TestWaitingBorrowers(t *testing.T) {
	o := tiny()
	o.Workers = 1
	db := mustOpen(t, o)
	hold := func() *txn.Tx {
		t.Helper()
		tx, err := db.Begin(t.Context(), false)
		if err != nil {
			t.Fatal(err)
		}
		return tx
	}
	nothing := func(*txn.Tx) error { return nil }

	// A deadline, and a cancellation with a cause, while all workers are in use.
	tx := hold()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	says(t, "waiting beyond the deadline", db.Update(ctx, nothing), context.DeadlineExceeded, "1 workers", "in use")
	cause, stop := context.WithCancelCause(t.Context())
	stop(errRollback)
	if _, err := db.Begin(cause, false); !errors.Is(err, errRollback) {
		t.Errorf("waiting with a context that is done: %v", err)
	}

	// Many wait, and get the worker one after the other.
	const n = 20
	got := make(chan error, n)
	for range n {
		go func() { got <- db.Update(context.Background(), nothing) }()
	}
	time.Sleep(5 * time.Millisecond)
	if err := tx.Commit(); err != nil {
		t.Error(err)
	}
	for range n {
		if err := <-got; err != nil {
			t.Error(err)
		}
	}

	// Close waits no longer than it may, and then the database is open as before.
	tx = hold()
	ctx, cancel = context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	says(t, "Close beyond the deadline", db.Close(ctx), context.DeadlineExceeded, "still running")
	if err := tx.Commit(); err != nil {
		t.Error(err)
	}
	if err := db.Update(t.Context(), nothing); err != nil {
		t.Errorf("after a Close that has failed: %v", err)
	}

	// Who waits while the database is closed is told so, and Close ends.
	tx = hold()
	for range n {
		go func() { got <- db.Update(context.Background(), nothing) }()
	}
	time.Sleep(5 * time.Millisecond)
	closed := make(chan error)
	go func() { closed <- db.Close(context.Background()) }()
	for range n {
		if err := <-got; err != nil && !errors.Is(err, txn.ErrClosed) {
			t.Error(err)
		}
	}
	if err := tx.Rollback(); err != nil {
		t.Error(err)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
}

// TestCloseWhileBusy closes databases while many goroutines use them.
func TestCloseWhileBusy(t *testing.T) {
	for round := range 20 {
		o := tiny()
		o.Workers = 1 + round%4
		db, err := txn.Open(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		tab := table(t, db, "t")
		const n = 8
		done := make(chan error, n)
		for g := range uint64(n) {
			go func() {
				for {
					if err := db.Update(context.Background(),
						func(tx *txn.Tx) error { return tab.Put(tx, g%3, val(g)) }); err != nil {
						done <- err
						return
					}
				}
			}()
		}
		time.Sleep(time.Duration(round%5) * time.Millisecond)
		if err := db.Close(context.Background()); err != nil {
			t.Error(err)
		}
		for range n {
			says(t, "Update", <-done, txn.ErrClosed)
		}
	}
}

// TestFenced: when the epoch moves under a transaction, its verbs fail, and the worker
// rejoins. Update goes on by itself; whoever ends a transaction himself is told that
// it has had no effect, or that it has.
func TestFenced(t *testing.T) {
	for _, p := range policies(t) {
		o := tiny()
		o.Policy = p
		db := mustOpen(t, o)
		tab := table(t, db, "t")
		fill(t, db, tab, 10, val(1))
		fence := func() {
			if err := db.Space().AdvanceEpoch(nil); err != nil {
				t.Fatal(err)
			}
		}
		attempts := 0
		first := func() bool { attempts++; return attempts == 1 }
		// Between two reads.
		err := db.Update(t.Context(), func(tx *txn.Tx) error {
			if _, err := tab.Get(tx, 1); err != nil {
				return err
			}
			if first() {
				fence()
			}
			_, err := tab.Get(tx, 2)
			return err
		})
		if err != nil || attempts != 2 {
			t.Errorf("%v: reading when fenced: %d attempts, %v", p, attempts, err)
		}
		// At the commit, when locks are held.
		attempts = 0
		err = db.Update(t.Context(), func(tx *txn.Tx) error {
			v, err := tab.GetForUpdate(tx, 3)
			if err != nil {
				return err
			}
			if first() {
				defer fence()
			}
			return tab.Put(tx, 3, append(v, 2))
		})
		if err != nil || attempts != 2 {
			t.Errorf("%v: committing when fenced: %d attempts, %v", p, attempts, err)
		}
		// A transaction of Begin, and a worker of the caller's.
		tx, err := db.Begin(t.Context(), false)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tab.Get(tx, 1); err != nil {
			t.Fatal(err)
		}
		w := newWorker(t, db)
		fence()
		_, err = tab.Get(tx, 2)
		says(t, "Get", err, txn.ErrFenced)
		says(t, "Get", err, txn.ErrConflict)
		err = tx.Commit()
		says(t, "Commit", err, txn.ErrFenced)
		says(t, "Commit", err, txn.ErrConflict)
		tx, err = db.Begin(t.Context(), false)
		if err != nil {
			t.Fatal(err)
		}
		if err := tab.Put(tx, 5, val(5)); err != nil {
			t.Fatal(err)
		}
		if _, err := tab.GetForUpdate(tx, 6); err != nil {
			t.Fatal(err)
		}
		fence()
		says(t, "Commit of a blind write", tx.Commit(), txn.ErrFenced)
		for range 2 { // idle workers go on with the new epoch
			if err := w.Update(t.Context(), func(tx *txn.Tx) error { return tab.Put(tx, 4, val(4)) }); err != nil {
				t.Error(err)
			}
		}
		attempts = 0
		err = w.Update(t.Context(), func(tx *txn.Tx) error {
			if _, err := tab.Get(tx, 5); err != nil {
				return err
			}
			if first() {
				fence()
			}
			_, err := tab.Get(tx, 6)
			return err
		})
		if err != nil || attempts != 2 {
			t.Errorf("%v: Worker.Update when fenced: %d attempts, %v", p, attempts, err)
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
		// Everything goes on, and nothing is locked.
		for k := range uint64(10) {
			err := db.Update(t.Context(), func(tx *txn.Tx) error {
				v, err := tab.GetForUpdate(tx, k)
				want := map[uint64][]byte{3: append(val(1), 2), 4: val(4)}[k]
				if want == nil {
					want = val(1)
				}
				if err != nil || !bytes.Equal(v, want) {
					t.Errorf("%v: key %d is %x, want %x, %v", p, k, v, want, err)
				}
				return tab.Put(tx, k, val(k))
			})
			if err != nil {
				t.Errorf("key %d: %v", k, err)
			}
		}
	}
}

// TestGoexitInRun: a function that ends its goroutine, as a failing test does, leaves
// nothing behind, and is not taken for one that has returned.
func TestGoexitInRun(t *testing.T) {
	db := mustOpen(t, tiny())
	tab := table(t, db, "t")
	for _, coroutines := range []int{1, 3} {
		err := db.Run(t.Context(), 2, coroutines, func(ctx context.Context, id int, w *txn.Worker) error {
			return w.Update(ctx, func(tx *txn.Tx) error {
				if err := tab.Put(tx, uint64(id), val(1)); err != nil {
					return err
				}
				if id == coroutines { // the first of the second thread
					_, err := tab.GetForUpdate(tx, 100)
					if errors.Is(err, txn.ErrConflict) { // an insert of the others in the same bucket: again
						return err
					}
					if !errors.Is(err, txn.ErrNotFound) {
						t.Error(err)
					}
					runtime.Goexit()
				}
				return nil
			})
		})
		if err == nil || !strings.Contains(err.Error(), "Goexit") {
			t.Errorf("%d coroutines: %v", coroutines, err)
		}
	}
	w := newWorker(t, db)
	for range 2 {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	}
	quiet(t, db)
	close1(t, db)
}

// TestPanicInRun: who panics in a coroutine of Run can be seen in the crash, although a
// coroutine has a stack of its own.
func TestPanicInRun(t *testing.T) {
	f, err := sim.New(sim.Options{
		Blades: []sim.BladeOptions{{Size: 32 << 20, Key: 1}}, ThreadsPerBlade: 4, Placed: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	o := tiny()
	o.BladeSize, o.Fabric, o.Catalog = 0, f, &catalog.Mem{}
	db, err := txn.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		p, ok := recover().(error) // there are no other goroutines on a simulated fabric
		if !ok || !errors.Is(p, errRollback) {
			t.Fatalf("Run has panicked with %v", p)
		}
		if s := p.Error(); !strings.HasPrefix(s, errRollback.Error()) || !strings.Contains(s, "TestPanicInRun.func") {
			t.Error(s)
		}
	}()
	err = db.Run(t.Context(), 1, 2, func(context.Context, int, *txn.Worker) error { panic(errRollback) })
	t.Errorf("Run has returned %v", err)
}
