package txn_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"txnode/internal/raced"
	"txnode/memory"
	"txnode/memory/catalog"
	"txnode/memory/layout"
	"txnode/rdma"
	"txnode/rdma/inproc"
	"txnode/rdma/rdmatest"
	"txnode/txn"
)

// Several databases on one catalog and the same blades, as processes have them.

// sharedOn are options of a database that several processes have open, with time that is real.
func sharedOn(t testing.TB, blades int) txn.Options {
	t.Helper()
	return sharedOf(t, blades, 64<<20)
}

// sharedOf is sharedOn with blades of a size.
func sharedOf(t testing.TB, blades int, size uint64) txn.Options {
	t.Helper()
	var all []inproc.BladeOptions
	for range blades {
		all = append(all, inproc.BladeOptions{Size: size})
	}
	f, err := inproc.New(inproc.Options{Seed: 3, Blades: all})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	o := tiny()
	o.BladeSize, o.Fabric, o.Catalog, o.Shared = 0, f, &catalog.Mem{}, true
	return o
}

// TestSharedDatabase: processes open a database one after the other, make the same tables at the
// same time, and count together, in a hash table and an ordered one with an index. What one
// commits the others read.
func TestSharedDatabase(t *testing.T) {
	o := sharedOn(t, 3)
	const processes, rounds = 3, 100
	var dbs []*txn.DB
	for range processes {
		dbs = append(dbs, mustOpen(t, o))
	}
	type book struct {
		hash    *txn.Table[uint64, uint64]
		ordered *txn.OrderedTable[string, uint64]
		byValue *txn.Index[string, uint64, uint64]
	}
	books := make([]book, processes)
	each := func(fn func(i int, db *txn.DB) error) {
		t.Helper()
		var wg sync.WaitGroup
		for i, db := range dbs {
			wg.Go(func() {
				if err := fn(i, db); err != nil {
					t.Errorf("process %d: %v", i, err)
				}
			})
		}
		wg.Wait()
	}
	each(func(i int, db *txn.DB) (err error) {
		x := &books[i]
		x.byValue = txn.NewIndex("value", txn.Uint64, func(_ string, v uint64) []uint64 { return []uint64{v} })
		if x.hash, err = txn.CreateTable(db, "hash", txn.Uint64, txn.Plain[uint64]()); err != nil {
			return err
		}
		x.ordered, err = txn.CreateOrderedTable(db, "ordered", txn.String, txn.Plain[uint64](), x.byValue)
		return err
	})
	if t.Failed() {
		t.FailNow()
	}
	each(func(i int, db *txn.DB) error {
		for n := range uint64(rounds) {
			if err := db.Update(t.Context(), func(tx *txn.Tx) error {
				v, _, err := books[i].hash.Lookup(tx, n%7)
				if err != nil {
					return err
				}
				key := fmt.Sprintf("%d/%03d", n%7, v)
				return errors.Join(books[i].hash.Put(tx, n%7, v+1), books[i].ordered.Insert(tx, key, v))
			}); err != nil {
				return err
			}
		}
		return nil
	})
	each(func(i int, db *txn.DB) error {
		return db.View(t.Context(), func(tx *txn.Tx) error {
			sum := uint64(0)
			for k := range uint64(7) {
				v, err := books[i].hash.Get(tx, k)
				if err != nil {
					return err
				}
				sum += v
			}
			rows, err := books[i].ordered.Count(tx, txn.Bound[string]{}, txn.Bound[string]{})
			if err != nil {
				return err
			}
			found := 0
			for range books[i].byValue.Range(tx, txn.Bound[uint64]{}, txn.Bound[uint64]{}) {
				found++
			}
			if sum != processes*rounds || rows != processes*rounds || found != rows {
				return fmt.Errorf("%d transactions are counted, there are %d rows, and %d by value", sum, rows, found)
			}
			return tx.Err()
		})
	})
	each(func(_ int, db *txn.DB) error {
		if names, err := db.Tables(); err != nil || len(names) != 2 {
			return fmt.Errorf("tables %q: %w", names, err)
		}
		return nil
	})
}

// hooked is a catalog that calls a function, once, behind a change with a key that begins so.
type hooked struct {
	layout.Catalog
	prefix string
	fn     func()
}

func (h *hooked) Apply(rev layout.Revision, changes []layout.Entry) (layout.Revision, error) {
	rev, err := h.Catalog.Apply(rev, changes)
	fn := h.fn
	if err == nil && fn != nil && slices.ContainsFunc(changes, func(e layout.Entry) bool {
		return strings.HasPrefix(e.Key, h.prefix) && e.Value != nil
	}) {
		h.fn = nil
		fn()
	}
	return rev, err
}

// TestTableOfTwo: two processes make one table, of which one is in the middle when the other one
// begins. They have the same one.
func TestTableOfTwo(t *testing.T) {
	for _, prefix := range []string{"table/", "mend/"} {
		o := sharedOn(t, 2)
		h := &hooked{Catalog: o.Catalog, prefix: prefix}
		o.Catalog = h
		a := mustOpen(t, o)
		o.Catalog = h.Catalog
		b := mustOpen(t, o)
		var theirs *txn.Table[uint64, uint64]
		made := make(chan error, 1)
		h.fn = func() {
			go func() {
				var err error
				theirs, err = txn.CreateTable(b, "words", txn.Uint64, txn.Plain[uint64]())
				made <- err
			}()
			time.Sleep(50 * time.Millisecond) // it makes the table meanwhile, or waits
		}
		ours, err := txn.CreateTable(a, "words", txn.Uint64, txn.Plain[uint64]())
		if err = errors.Join(err, <-made); err != nil {
			t.Fatalf("%s: %v", prefix, err)
		}
		if err := a.Update(t.Context(), func(tx *txn.Tx) error { return ours.Put(tx, 1, 2) }); err != nil {
			t.Fatal(err)
		}
		if err := b.View(t.Context(), func(tx *txn.Tx) error {
			if v, err := theirs.Get(tx, 1); err != nil || v != 2 {
				t.Errorf("%s: the other process reads %d, %v", prefix, v, err)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
	}
}

// TestReaderMakesNoDatabase: a process that only reads makes no database where there is none yet.
func TestReaderMakesNoDatabase(t *testing.T) {
	o := sharedOn(t, 2)
	reader := o
	reader.ReadOnly = true
	_, err := txn.Open(t.Context(), reader)
	says(t, "a reader", err, layout.ErrNotFormatted, "for writing")
	if l, err := layout.LoadLayout(o.Catalog); err != nil || l != nil {
		t.Errorf("the catalog has %+v, %v", l, err)
	}
	close1(t, mustOpen(t, o))
	close1(t, mustOpen(t, reader))
}

// TestNeedsToBeAlone: what one process at a time can do, and what no process can, says so; and
// works when the others have closed the database.
func TestNeedsToBeAlone(t *testing.T) {
	o := sharedOn(t, 2)
	a, b := mustOpen(t, o), mustOpen(t, o)
	ctx := t.Context()
	words, err := txn.CreateTable(a, "words", txn.String, txn.Plain[uint64]())
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Update(ctx, func(tx *txn.Tx) error { return words.Put(tx, "one", 1) }); err != nil {
		t.Fatal(err)
	}
	byValue := func() *txn.Index[string, uint64, uint64] {
		return txn.NewIndex("value", txn.Uint64, func(_ string, v uint64) []uint64 { return []uint64{v} })
	}
	var file bytes.Buffer
	if _, err := a.Backup(ctx, &file, txn.BackupOptions{}); err != nil {
		t.Fatal(err)
	}
	attempts := map[string]func(db *txn.DB) error{
		"restore": func(db *txn.DB) error {
			_, err := db.Restore(ctx, bytes.NewReader(file.Bytes()), txn.BackupOptions{})
			return err
		},
		"an index more": func(db *txn.DB) error {
			_, err := txn.CreateTable(db, "words", txn.String, txn.Plain[uint64](), byValue())
			return err
		},
		"drop": func(db *txn.DB) error { return db.DropTable(ctx, "words") },
	}
	says(t, "restore", attempts["restore"](a), memory.ErrShared, "processes 2")
	says(t, "restore", attempts["restore"](b), memory.ErrShared, "processes 1")
	refused := o
	refused.Durability = txn.DurabilityPower
	if _, err := txn.Open(ctx, refused); !errors.Is(err, txn.ErrOptions) {
		t.Errorf("power: %v", err)
	}
	refused = o
	refused.LeaseTerm = -1
	if _, err := txn.Open(ctx, refused); !errors.Is(err, txn.ErrOptions) {
		t.Errorf("leases for ever: %v", err)
	}
	reader := o
	reader.ReadOnly = true
	r := mustOpen(t, reader)
	if _, err := txn.CreateTable(r, "more", txn.String, txn.Plain[uint64]()); !errors.Is(err, txn.ErrReadOnly) {
		t.Errorf("a table of a reader: %v", err)
	}
	seen, err := txn.OpenTable(r, "words", txn.String, txn.Plain[uint64]())
	if err != nil {
		t.Fatal(err)
	}
	if err := r.View(ctx, func(tx *txn.Tx) error {
		if v, err := seen.Get(tx, "one"); err != nil || v != 1 {
			t.Errorf("a reader: %d, %v", v, err)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	if err := as(t, r, func(tx *txn.Tx) error { return seen.Put(tx, "one", 2) }); !errors.Is(err, txn.ErrReadOnly) {
		t.Errorf("a reader writes: %v", err)
	}
	_, err = txn.CreateTable(r, "words", txn.String, txn.Plain[uint64](), byValue())
	says(t, "an index of a reader", err, txn.ErrReadOnly, `"value"`)
	says(t, "a reader drains a blade", r.Drain(ctx, 0, nil), txn.ErrReadOnly)
	if err := errors.Join(r.Close(ctx), b.Close(ctx)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"an index more", "drop", "restore", "drop"} {
		if err := attempts[name](a); err != nil {
			t.Errorf("%s, alone: %v", name, err)
		}
	}
	if names, err := a.Tables(); err != nil || len(names) != 0 {
		t.Errorf("tables %q: %v", names, err)
	}
	o.Shared = false // it is the database's
	if b, err = txn.Open(ctx, o); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(ctx); err != nil {
		t.Error(err)
	}
}

// TestSharedGeometry: what the options leave out the database has.
func TestSharedGeometry(t *testing.T) {
	o := sharedOn(t, 3)
	o.Backups = txn.F(2)
	a := mustOpen(t, o)
	o.SegmentSize, o.LogArea, o.Backups, o.Shared = 0, 0, nil, false
	b := mustOpen(t, o)
	if s := b.Space(); s.SegmentSize() != 256<<10 || s.Backups() != 2 || !s.Shared() ||
		s.Process() == a.Space().Process() {
		t.Errorf("segments of %d bytes, %d backups, shared %v, process %d", s.SegmentSize(), s.Backups(),
			s.Shared(), s.Process())
	}
	o.Backups = txn.F(1)
	if _, err := txn.Open(t.Context(), o); !errors.Is(err, layout.ErrGeometry) {
		t.Errorf("other backups: %v", err)
	}
}

type closer struct{ closed int }

func (c *closer) Close() error {
	c.closed++
	return nil
}

// TestCloser: it is closed once, with the database or when that cannot be opened.
func TestCloser(t *testing.T) {
	o := sharedOn(t, 2)
	for _, fail := range []bool{false, true} {
		c := &closer{}
		o.Closer = c
		if fail {
			o.Durability = txn.DurabilityPower
		}
		db, err := txn.Open(t.Context(), o)
		if (err != nil) != fail {
			t.Fatal(err)
		}
		if !fail {
			if c.closed > 0 {
				t.Error("it is closed while the database is open")
			}
			if err := db.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if c.closed != 1 {
			t.Errorf("it was closed %d times", c.closed)
		}
	}
}

// TestProcessDies: a process dies with a transaction in the middle, at each of its verbs; another
// one waits until its lease has ended, and then has what it wrote decided, its segments and what
// was free in them. A blade may be lost meanwhile.
func TestProcessDies(t *testing.T) {
	raced.Skip(t)
	for _, lose := range []bool{false, true} {
		for k := 0; ; k++ {
			left := -1
			f := rdmatest.New(rdmatest.Options{Blades: 3, Size: 16 << 20, Caps: atOnce, Seed: uint64(k),
				Fail: func(w *rdma.WR) rdma.Status {
					if left == 0 {
						return rdma.StatusFlushed
					}
					if left > 0 {
						left--
					}
					return rdma.StatusOK
				}})
			o := onFabric(f, txn.PolicyDefault)
			o.Shared, o.LeaseTerm, o.Retries = true, 100*time.Millisecond, 10
			dead, err := txn.Open(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			words, err := txn.CreateOrderedTable(dead, "words", txn.String, txn.Plain[uint64]())
			if err != nil {
				t.Fatal(err)
			}
			dying := newWorker(t, dead)
			if err := dying.Update(t.Context(), func(tx *txn.Tx) error { return words.Put(tx, "a", 1) }); err != nil {
				t.Fatal(err)
			}
			db := mustOpen(t, o)
			w := newWorker(t, db)
			has, err := txn.OpenOrderedTable(db, "words", txn.String, txn.Plain[uint64]())
			if err != nil {
				t.Fatal(err)
			}
			left = k
			err = dying.Update(t.Context(), func(tx *txn.Tx) error {
				return errors.Join(words.Put(tx, "a", 2), words.Put(tx, "b", 2))
			})
			stopped := left == 0
			left = -1
			what := fmt.Sprintf("stopped after %d verbs, lose a blade: %v", k, lose)
			if !stopped && err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			if lose {
				if err := f.StopBlade(rdma.BladeID(k % 3)); err != nil {
					t.Fatal(err)
				}
			}
			for range 40 {
				w.Sleep(int64(10 * time.Millisecond))
				if err := w.Maintain(); err != nil {
					t.Fatalf("%s: %v", what, err)
				}
			}
			var a, b uint64
			if err := w.Update(t.Context(), func(tx *txn.Tx) (err error) {
				if a, _, err = has.Lookup(tx, "a"); err != nil {
					return err
				}
				if b, _, err = has.Lookup(tx, "b"); err != nil {
					return err
				}
				return errors.Join(has.Put(tx, "a", 3), has.Put(tx, "b", 3), has.Put(tx, "c", 3))
			}); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			if !stopped && a != 2 || a == 1 && b != 0 || a == 2 && b != 2 || a != 1 && a != 2 {
				t.Errorf("%s: a = %d, b = %d", what, a, b)
			}
			l := db.Space().Layout()
			if len(l.Processes) != 1 || len(l.Coordinators) != 1 || l.Processes[0].ID != db.Space().Process() {
				t.Errorf("%s: registered are %+v, and %+v", what, l.Processes, l.Coordinators)
			}
			// The dead one was only late. It finds itself declared dead, and goes on.
			if err := dying.Update(context.Background(),
				func(tx *txn.Tx) error { return words.Put(tx, "a", 4) }); err != nil {
				t.Errorf("%s: late: %v", what, err)
			}
			if err := errors.Join(w.Close(), dying.Close(), dead.Close(context.Background())); err != nil {
				t.Errorf("%s: %v", what, err)
			}
			if !stopped {
				break
			}
		}
	}
}

// TestLateBesideChanges: while a process is late, and taken for dead, another one drops a table of
// its, and gives another an index. The late one begins no transaction before it has learnt that: it
// writes nothing to the first, and nothing past the index.
func TestLateBesideChanges(t *testing.T) {
	f := rdmatest.New(rdmatest.Options{Blades: 3, Size: 16 << 20, Caps: atOnce, Seed: 5})
	o := onFabric(f, txn.PolicyDefault)
	o.Shared, o.LeaseTerm, o.Retries = true, 100*time.Millisecond, 10
	ctx := t.Context()
	late := mustOpen(t, o)
	words, err := txn.CreateOrderedTable(late, "words", txn.String, txn.Plain[uint64]())
	if err != nil {
		t.Fatal(err)
	}
	old, err := txn.CreateTable(late, "old", txn.String, txn.Plain[uint64]())
	if err != nil {
		t.Fatal(err)
	}
	slow := newWorker(t, late)
	put := func(table interface {
		Put(tx *txn.Tx, key string, v uint64) error
	}, v uint64) error {
		return slow.Update(ctx, func(tx *txn.Tx) error { return table.Put(tx, "a", v) })
	}
	if err := errors.Join(put(words, 1), put(old, 1)); err != nil {
		t.Fatal(err)
	}
	db := mustOpen(t, o)
	w := newWorker(t, db)
	byValue := txn.NewIndex("value", txn.Uint64, func(_ string, v uint64) []uint64 { return []uint64{v} })
	index := func() error {
		_, err := txn.CreateOrderedTable(db, "words", txn.String, txn.Plain[uint64](), byValue)
		return err
	}
	if err := errors.Join(w.Close(), index(), db.DropTable(ctx, "old"), byValue.Build(ctx, nil)); err != nil {
		t.Fatal(err)
	}
	if l := db.Space().Layout(); len(l.Processes) != 1 ||
		slices.ContainsFunc(l.Coordinators, func(c layout.CoordinatorEntry) bool { return c.Recovering }) {
		t.Errorf("registered are %+v, and %+v", l.Processes, l.Coordinators)
	}
	w = newWorker(t, db)
	if err := put(words, 2); !errors.Is(err, txn.ErrIndexes) {
		t.Errorf("it writes past the index: %v", err)
	}
	if err := put(old, 2); !errors.Is(err, txn.ErrDropped) {
		t.Errorf("it writes to a table that was dropped: %v", err)
	}
	again, err := txn.CreateOrderedTable(late, "words", txn.String, txn.Plain[uint64](),
		txn.NewIndex("value", txn.Uint64, func(_ string, v uint64) []uint64 { return []uint64{v} }))
	if err != nil {
		t.Fatal(err)
	}
	if err := put(again, 3); err != nil {
		t.Errorf("with its index: %v", err)
	}
	if err := w.Update(ctx, func(tx *txn.Tx) error {
		var has []uint64
		for v := range byValue.Range(tx, txn.Bound[uint64]{}, txn.Bound[uint64]{}) {
			has = append(has, v)
		}
		if !slices.Equal(has, []uint64{3}) {
			t.Errorf("the index has %v", has)
		}
		return tx.Err()
	}); err != nil {
		t.Error(err)
	}
	if err := errors.Join(w.Close(), slow.Close()); err != nil {
		t.Error(err)
	}
}
