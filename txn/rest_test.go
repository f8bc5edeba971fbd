package txn_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"txnode/memory/catalog/catalogtest"
	"txnode/memory/layout"
	"txnode/rdma/rdmatest"
	"txnode/txn"
	"txnode/verify"
)

// Changes that all processes must know: a table is dropped, or gets another index, while
// other processes use it.

// wordsOf opens, or makes, one table in each of some processes.
func wordsOf(t *testing.T, dbs ...*txn.DB) (all []*txn.Table[uint64, uint64]) {
	t.Helper()
	for _, db := range dbs {
		words, err := txn.CreateTable(db, "words", txn.Uint64, txn.Plain[uint64]())
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, words)
	}
	return all
}

// tableState is what the catalog says of the newest table of a name.
func tableState(t *testing.T, o txn.Options, name string) (state layout.TableState) {
	t.Helper()
	l, err := layout.LoadLayout(o.Catalog)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range l.Tables {
		if x.Name == name {
			state = x.State
		}
	}
	return state
}

// closedWell closes databases of several processes, and checks what they leave.
func closedWell(t *testing.T, o txn.Options, dbs ...*txn.DB) {
	t.Helper()
	for _, db := range dbs {
		if err := db.Close(context.Background()); err != nil {
			t.Errorf("close: %v", err)
		}
	}
	close1(t, mustOpen(t, o)) // it sweeps
	l, err := layout.LoadLayout(o.Catalog)
	if err != nil {
		t.Fatal(err)
	}
	d, err := verify.Attach(o.Fabric, l)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Check(context.Background(),
		verify.Options{Report: func(f verify.Finding) error { t.Errorf("%v", f); return nil }}); err != nil {
		t.Error(err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

// until waits for a condition.
func until(t *testing.T, what string, fn func() bool) {
	t.Helper()
	for end := time.Now().Add(5 * time.Minute); !fn(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("in vain: %s", what)
		}
	}
}

// TestDropBesideProcesses: a process drops a table, and another one an index, while three processes
// write. When that has returned, no process commits to them any more, all of their room is free,
// and the tables that stay have what was committed.
func TestDropBesideProcesses(t *testing.T) {
	for _, ordered := range []bool{false, true} {
		t.Run(fmt.Sprintf("ordered %v", ordered), func(t *testing.T) {
			o := sharedOn(t, 3)
			o.Retries = 1 << 20
			dbs := []*txn.DB{mustOpen(t, o), mustOpen(t, o), mustOpen(t, o)}
			counts := wordsOf(t, dbs...)
			ctx := t.Context()
			var mu sync.Mutex
			dropped := false // DropTable has returned
			var wg sync.WaitGroup
			total, ready := make([]uint64, len(dbs)), make(chan struct{}, len(dbs))
			for i, db := range dbs {
				notes := notesTable(t, db, ordered, tagIndex(false))
				wg.Go(func() {
					for n := uint64(0); ; n++ {
						mu.Lock()
						late := dropped
						mu.Unlock()
						err := db.Update(ctx, func(tx *txn.Tx) error {
							if err := notes.Put(tx, n%50*3+uint64(i),
								note{fmt.Sprint(n % 7), strings.Repeat("x", int(n%200))}); err != nil {
								return err
							}
							v, _, err := counts[i].Lookup(tx, uint64(i))
							return errors.Join(err, counts[i].Put(tx, uint64(i), v+1))
						})
						switch {
						case err == nil && late:
							t.Errorf("process %d commits to a table that was dropped", i)
							return
						case err == nil:
							if total[i]++; n == 100 {
								ready <- struct{}{}
							}
						case errors.Is(err, txn.ErrDropped):
							return
						default:
							t.Errorf("process %d: %v", i, err)
							ready <- struct{}{}
							return
						}
					}
				})
			}
			for range dbs {
				<-ready
			}
			epoch := dbs[0].Space().Layout().Epoch
			if err := dbs[0].DropTable(ctx, "notes"); err != nil {
				t.Error(err)
			}
			mu.Lock()
			dropped = true
			mu.Unlock()
			wg.Wait()
			if now := dbs[0].Space().Layout().Epoch; now != epoch {
				t.Errorf("epochs %d to %d began", epoch+1, now)
			}
			for _, name := range []string{"notes", "notes.by_tag"} {
				if s := tableState(t, o, name); s != layout.TableDropped {
					t.Errorf("table %q is in state %v", name, s)
				}
			}
			for i, db := range dbs {
				if err := db.View(ctx, func(tx *txn.Tx) error {
					v, err := counts[0].Get(tx, uint64(i))
					if i == 0 && v != total[i] {
						t.Errorf("process %d has committed %d transactions, and counted %d", i, total[i], v)
					}
					return err
				}); i == 0 && err != nil {
					t.Error(err)
				}
				again := notesTable(t, db, ordered) // of the same name
				if err := db.Update(ctx,
					func(tx *txn.Tx) error { return again.Put(tx, uint64(i), note{}) }); err != nil {
					t.Errorf("process %d in a new table of the name: %v", i, err)
				}
			}
			closedWell(t, o, dbs...)
		})
	}
}

// TestIndexBesideProcesses: a table gets an index while other processes write to it without. Then
// they open it with the index. It is complete, and unique if it is to be.
func TestIndexBesideProcesses(t *testing.T) {
	for _, unique := range []bool{false, true} {
		t.Run(fmt.Sprintf("unique %v", unique), func(t *testing.T) {
			o := sharedOn(t, 3)
			o.Retries = 1 << 20
			dbs := []*txn.DB{mustOpen(t, o), mustOpen(t, o), mustOpen(t, o)}
			ctx := t.Context()
			built := make(chan struct{})
			var wg sync.WaitGroup
			ready := make(chan struct{}, len(dbs))
			for i, db := range dbs {
				notes := notesTable(t, db, false)
				wg.Go(func() {
					for n := uint64(0); ; n++ {
						select {
						case <-built:
							return
						default:
						}
						id := n%100*3 + uint64(i)
						err := db.Update(ctx, func(tx *txn.Tx) error {
							return notes.Put(tx, id,
								note{fmt.Sprintf("%d of %d", n%5, id), strings.Repeat("x", int(n*37%900))})
						})
						switch {
						case errors.Is(err, txn.ErrIndexes):
							notes = notesTable(t, db, false, tagIndex(unique))
						case err != nil:
							t.Errorf("process %d: %v", i, err)
							ready <- struct{}{}
							return
						}
						if n == 100 {
							ready <- struct{}{}
						}
					}
				})
			}
			for range dbs {
				<-ready
			}
			byTag := tagIndex(unique)
			notes := notesTable(t, dbs[0], false, byTag)
			if err := byTag.Build(ctx, nil); err != nil {
				t.Error(err)
			}
			close(built)
			wg.Wait()
			if err := compareTags(dbs[0], notes, byTag); err != nil {
				t.Error(err)
			}
			closedWell(t, o, dbs...)
		})
	}
}

// waiting is a call that waits until other processes rest.
type waiting struct {
	done   chan error
	cancel context.CancelFunc
}

// begun is a transaction of a process, which is rolled back if the test fails before its end, since
// the process would not close.
func begun(t *testing.T, db *txn.DB) *txn.Tx {
	t.Helper()
	tx, err := db.Begin(context.Background(), false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

// waitsFor begins a call in a process that is to wait for another one, and returns when it does.
func waitsFor(t *testing.T, db, other *txn.DB, fn func(ctx context.Context) error) waiting {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w := waiting{make(chan error, 1), cancel}
	go func() { w.done <- fn(ctx) }()
	until(t, "the call waits for the other process", func() bool {
		r := db.WaitsFor()
		return r != nil && slices.Equal(r.Processes, []uint32{other.Space().Process()}) || len(w.done) > 0
	})
	if len(w.done) > 0 {
		t.Fatalf("it does not wait: %v", <-w.done)
	}
	return w
}

// TestChangeAwaitsTransaction: a transaction of another process is under way that has used the
// table. It may end, and the change waits for that. A wait that is given up says which process it
// was for, and the next call goes on.
func TestChangeAwaitsTransaction(t *testing.T) {
	for _, what := range []string{"drop", "opening", "index"} {
		t.Run(what, func(t *testing.T) {
			o := sharedOn(t, 2)
			o.LeaseTerm = time.Hour // what is under way is not given up
			a, b := mustOpen(t, o), mustOpen(t, o)
			ours, theirs := notesTable(t, a, false), notesTable(t, b, false)
			if err := a.Update(t.Context(),
				func(tx *txn.Tx) error { return ours.Put(tx, 1, note{Tag: "one"}) }); err != nil {
				t.Fatal(err)
			}
			tx := begun(t, b)
			if err := theirs.Put(tx, 2, note{Tag: "two"}); err != nil {
				t.Fatal(err)
			}
			byTag := tagIndex(true)
			call := func(ctx context.Context) error { return a.DropTable(ctx, "notes") }
			if what == "index" {
				ours = notesTable(t, a, false, byTag)
				call = func(ctx context.Context) error { return byTag.Build(ctx, nil) }
			}
			w := waitsFor(t, a, b, call)
			w.cancel()
			says(t, "given up", <-w.done, context.Canceled, fmt.Sprintf("waiting for process %d", b.Space().Process()))
			if what != "index" {
				_, err := txn.OpenTable(b, "notes", txn.Uint64, txn.JSON[note]())
				says(t, "a table that is being dropped", err, txn.ErrNoTable)
				if s := tableState(t, o, "notes"); s != layout.TableDropping {
					t.Errorf("the table is in state %v", s)
				}
			}
			if what != "opening" {
				w = waitsFor(t, a, b, call)
			}
			if err := tx.Commit(); err != nil {
				t.Errorf("what has begun before: %v", err)
			}
			if what == "opening" { // which does not wait for long
				until(t, "an opening finishes the drop", func() bool {
					close1(t, reopen(t, o))
					return tableState(t, o, "notes") == layout.TableDropped
				})
			} else if err := <-w.done; err != nil {
				t.Errorf("when it has ended: %v", err)
			}
			err := b.Update(t.Context(), func(tx *txn.Tx) error { return theirs.Put(tx, 3, note{Tag: "three"}) })
			if what != "index" {
				says(t, "what begins since", err, txn.ErrDropped)
				if s := tableState(t, o, "notes"); s != layout.TableDropped {
					t.Errorf("the table is in state %v", s)
				}
			} else {
				says(t, "what begins since", err, txn.ErrIndexes)
				if err := compareTags(a, ours, byTag); err != nil {
					t.Error(err)
				}
			}
			closedWell(t, o, a, b)
		})
	}
}

// TestDropAwaitsIdleWorker: a worker of another process is idle, and says nothing. It is given up
// when a lease would have ended, and goes on working after that.
func TestDropAwaitsIdleWorker(t *testing.T) {
	o := sharedOn(t, 2)
	o.LeaseTerm = 300 * time.Millisecond
	a, b := mustOpen(t, o), mustOpen(t, o)
	words := wordsOf(t, a, b)
	if _, err := txn.CreateTable(a, "notes", txn.Uint64, txn.JSON[note]()); err != nil {
		t.Fatal(err)
	}
	idle := newWorker(t, b)
	put := func() error {
		return idle.Update(t.Context(), func(tx *txn.Tx) error { return words[1].Put(tx, 1, 2) })
	}
	if err := errors.Join(put(), a.DropTable(t.Context(), "notes"), put(), idle.Close()); err != nil {
		t.Error(err)
	}
	if s := tableState(t, o, "notes"); s != layout.TableDropped {
		t.Errorf("the table is in state %v", s)
	}
	closedWell(t, o, a, b)
}

// TestDropBesideCutOff: another process hears nothing of the catalog, so it does not know that a
// table is being dropped. It is waited for until its registration has ended. From then on it
// commits nothing to the table.
func TestDropBesideCutOff(t *testing.T) {
	o := sharedOn(t, 2)
	o.LeaseTerm, o.Retries = 300*time.Millisecond, 3
	a := mustOpen(t, o)
	under := o.Catalog
	c := &catalogtest.Unheard{Catalog: under}
	o.Catalog = c
	b := mustOpen(t, o)
	o.Catalog = under
	words := wordsOf(t, a, b)
	put := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second) // a catalog that is away is waited for
		defer cancel()
		return b.Update(ctx, func(tx *txn.Tx) error { return words[1].Put(tx, 1, 2) })
	}
	if err := put(); err != nil {
		t.Fatal(err)
	}
	was := b.Space().Process()
	c.Away.Store(true)
	if err := a.DropTable(t.Context(), "words"); err != nil {
		t.Error(err)
	}
	if err := put(); err == nil {
		t.Error("it commits to a table that was dropped")
	}
	if l := a.Space().Layout(); l.Process(was) != nil || tableState(t, o, "words") != layout.TableDropped {
		t.Errorf("the table is in state %v, and processes are %+v", tableState(t, o, "words"), l.Processes)
	}
	c.Away.Store(false)
	until(t, "it hears of the drop", func() bool { return errors.Is(put(), txn.ErrDropped) })
	closedWell(t, o, a, b)
}

// TestDropStopsBeside: a process begins to drop a table, and is heard of no more. Another one
// finishes that, by the next drop, or when it opens the database.
func TestDropStopsBeside(t *testing.T) {
	for _, how := range []string{"drop", "opening", "opening beside"} {
		t.Run(how, func(t *testing.T) {
			f := rdmatest.New(rdmatest.Options{Blades: 3, Size: 16 << 20, Caps: atOnce, Seed: 5})
			o := onFabric(f, txn.PolicyDefault)
			o.Shared, o.LeaseTerm, o.Retries = true, 100*time.Millisecond, 10
			under := o.Catalog
			c := &catalogtest.Unheard{Catalog: under}
			h := &hooked{Catalog: c, prefix: "table/"}
			o.Catalog = h
			a := reopen(t, o)
			o.Catalog = under
			words := wordsOf(t, a)
			if err := a.Update(t.Context(), func(tx *txn.Tx) error { return words[0].Put(tx, 1, 2) }); err != nil {
				t.Fatal(err)
			}
			b := reopen(t, o)
			h.fn = func() { c.Away.Store(true) }
			if err := a.DropTable(t.Context(), "words"); err == nil {
				t.Fatal("the process was not stopped")
			}
			if s := tableState(t, o, "words"); s != layout.TableDropping {
				t.Fatalf("the table is in state %v", s)
			}
			if how == "drop" { // which waits until the registration of the other one has ended
				if err := b.DropTable(t.Context(), "words"); err != nil {
					t.Error(err)
				}
			} else {
				w := newWorker(t, b)
				for b.Space().Layout().Holder(layout.RightDrop) != 0 {
					w.Sleep(int64(time.Millisecond))
					if err := w.Maintain(); err != nil {
						t.Fatal(err)
					}
				}
				if err := w.Close(); err != nil {
					t.Error(err)
				}
			}
			if how == "opening" {
				close1(t, b)
			}
			if how != "drop" {
				close1(t, reopen(t, o))
			}
			if s := tableState(t, o, "words"); s != layout.TableDropped {
				t.Errorf("the table is in state %v", s)
			}
		})
	}
}

// TestDropAwaitsBackup: another process makes a backup, whose tables are not dropped before it has
// ended, and the other way round.
func TestDropAwaitsBackup(t *testing.T) {
	o := sharedOn(t, 2)
	a, b := mustOpen(t, o), mustOpen(t, o)
	words := wordsOf(t, a, b)
	if _, err := words[1].Load(t.Context(), func(yield func(uint64, uint64) bool) {
		for k := range uint64(1000) { // progress is told
			if !yield(k, k) {
				return
			}
		}
	}, txn.LoadOptions{}); err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	calls := 0
	if _, err := b.Backup(t.Context(), &file, txn.BackupOptions{Progress: func(uint64) {
		if calls++; calls > 1 {
			return
		}
		n := &atomic.Int64{}
		n.Store(20)
		says(t, "beside a backup", a.DropTable(stopping{t.Context(), n}, "words"), context.Canceled,
			fmt.Sprintf("the backup of process %d", b.Space().Process()))
	}}); err != nil || calls == 0 {
		t.Fatalf("%d calls: %v", calls, err)
	}
	if s := tableState(t, o, "words"); s != layout.TableLive {
		t.Errorf("the table is in state %v", s)
	}
	if err := a.DropTable(t.Context(), "words"); err != nil {
		t.Error(err)
	}
	closedWell(t, o, a, b)
}
