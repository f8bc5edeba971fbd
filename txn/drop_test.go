package txn_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"txnode/internal/raced"
	"txnode/memory"
	"txnode/memory/embedded"
	"txnode/memory/layout"
	"txnode/rdma/sim"
	"txnode/txn"
	"txnode/verify"
)

// sound demands that the database in a directory, which is closed, has no findings.
func sound(t testing.TB, dir string) {
	t.Helper()
	checkDir(t, dir, func(f verify.Finding) { t.Errorf("%s: %v", dir, f) })
}

// checkDir checks the database in a directory, which is closed.
func checkDir(t testing.TB, dir string, report func(verify.Finding)) verify.Summary {
	t.Helper()
	h, err := embedded.Connect(embedded.Options{Dir: dir, ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	l, err := layout.LoadLayout(h.Catalog)
	if err != nil {
		t.Fatal(err)
	}
	d, err := verify.Attach(h.Fabric, l)
	if err != nil {
		t.Fatal(err)
	}
	sum, err := d.Check(context.Background(), verify.Options{Indexes: txn.CatalogIndexes,
		Report: func(f verify.Finding) error { report(f); return nil }})
	if err = errors.Join(err, d.Close()); err != nil {
		t.Error(err)
	}
	return sum
}

// kinds are the kinds of tables.
var kinds = []struct {
	name  string
	table func(t testing.TB, db *txn.DB, name string) *txn.Table[uint64, []byte]
}{
	{"hash", table},
	{"ordered", func(t testing.TB, db *txn.DB, name string) *txn.Table[uint64, []byte] {
		return inOrder(t, db, name).Table
	}},
}

// inOrder is table for an ordered one.
func inOrder(t testing.TB, db *txn.DB, name string) *txn.OrderedTable[uint64, []byte] {
	t.Helper()
	tab, err := txn.CreateOrderedTable(db, name, txn.Uint64, txn.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return tab
}

// TestDropTable: nothing of the table is left, its name is free, other tables are as they were.
func TestDropTable(t *testing.T) {
	for _, p := range policies(t) {
		t.Run(p.String(), func(t *testing.T) {
			o := tiny()
			o.Policy, o.Dir = p, t.TempDir()
			db := mustOpen(t, o)
			other := table(t, db, "other")
			fill(t, db, other, 50, val(7))
			tab := table(t, db, "t")
			raw, err := txn.OpenAnyTable(db, "t")
			if err != nil {
				t.Fatal(err)
			}
			before := len(db.Space().Extents())
			if _, err := tab.Load(t.Context(), numbered(0, 700), txn.LoadOptions{}); err != nil {
				t.Fatal(err)
			}
			if err := db.Update(t.Context(), func(tx *txn.Tx) error {
				for k := range uint64(50) {
					if err := tab.Delete(tx, 3*k); err != nil {
						return err
					}
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			if err := db.DropTable(t.Context(), "t"); err != nil {
				t.Fatal(err)
			}
			if live := quiet(t, db); live != 50 {
				t.Errorf("%d blocks are in use", live)
			}
			if n := len(db.Space().Extents()); n >= before {
				t.Errorf("%d extents, before the table was filled there were %d", n, before)
			}
			use := func(name string, fn func(tx *txn.Tx) error) {
				t.Helper()
				says(t, name, db.Update(t.Context(), fn), txn.ErrDropped, `"t"`)
			}
			use("Get", func(tx *txn.Tx) error { _, err := tab.Get(tx, 1); return err })
			use("Put", func(tx *txn.Tx) error { return tab.Put(tx, 1, nil) })
			use("Insert", func(tx *txn.Tx) error { return tab.Insert(tx, 1, nil) })
			use("Delete", func(tx *txn.Tx) error { return tab.Delete(tx, 1) })
			use("Lookup", func(tx *txn.Tx) error { _, _, err := tab.Lookup(tx, 1); return err })
			use("Has", func(tx *txn.Tx) error { _, err := tab.Has(tx, 1); return err })
			use("Stage", func(tx *txn.Tx) error { return tab.Stage(tx, 1, txn.ForRead) })
			use("All", func(tx *txn.Tx) error { count(tab.All(tx)); return nil })
			use("raw", func(tx *txn.Tx) error { _, err := raw.Get(tx, val(1)); return err })
			use("Fetch", func(tx *txn.Tx) error { return tx.Fetch([]txn.Row{{Table: raw, Key: val(1)}}) })
			_, err = txn.OpenTable(db, "t", txn.Uint64, txn.Bytes())
			says(t, "open", err, txn.ErrNoTable)
			says(t, "again", db.DropTable(t.Context(), "t"), txn.ErrNoTable, `"t"`)
			if names, err := db.Tables(); err != nil || !slices.Equal(names, []string{"other"}) {
				t.Errorf("%q, %v", names, err)
			}
			text := create(t, db, "t", txn.String, txn.Text()) // of other types
			if err := db.Update(t.Context(), func(tx *txn.Tx) error {
				if n := count(text.All(tx)); n != 0 {
					t.Errorf("the new table has %d records", n)
				}
				return text.Insert(tx, "k", "v")
			}); err != nil {
				t.Fatal(err)
			}
			if err := db.View(t.Context(), func(tx *txn.Tx) error {
				if n := len(listed(t, tx, other)); n != 50 {
					t.Errorf("the other table has %d records", n)
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			quiet(t, db)
			if err := db.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			says(t, "closed", db.DropTable(t.Context(), "t"), txn.ErrClosed)
			sound(t, o.Dir)
		})
	}
}

// TestDropGivesBack: blades hold tables that come and go without end.
func TestDropGivesBack(t *testing.T) {
	raced.Skip(t)
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			o := tiny()
			// a table takes 14 to 18 of its 24 segments, by chance: two may lead to one class of
			// blocks
			o.BladeSize = 6 << 20
			db := mustOpen(t, o)
			for i := range 12 {
				name := fmt.Sprint("t", i%3)
				tab := k.table(t, db, name)
				if _, err := tab.Load(t.Context(), numbered(0, 1500), txn.LoadOptions{}); err != nil {
					t.Fatalf("table %d: %v", i, err)
				}
				if err := db.DropTable(t.Context(), name); err != nil {
					t.Fatalf("table %d: %v", i, err)
				}
			}
			if live := quiet(t, db); live != 0 || len(db.Space().Extents()) != 0 {
				t.Errorf("%d blocks and %d extents are in use", live, len(db.Space().Extents()))
			}
		})
	}
}

// TestDropBeside: transactions that have used the table when it is dropped go on with what they
// have used, and no further; others never do. Nothing is left of what they commit.
func TestDropBeside(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			db := mustOpen(t, tiny())
			tab := k.table(t, db, "t")
			fill(t, db, tab, 300, val(1))
			tx, err := db.Begin(t.Context(), false)
			if err != nil {
				t.Fatal(err)
			}
			if err := tab.Put(tx, 1000, val(1)); err != nil { // it is looked at when the transaction commits
				t.Fatal(err)
			}
			done := make(chan error, 1)
			go func() { done <- db.DropTable(context.Background(), "t") }()
			for err == nil { // until others are told
				err = db.View(t.Context(), func(tx *txn.Tx) error {
					_, err := tab.Get(tx, 1)
					if errors.Is(err, txn.ErrNotFound) {
						err = nil
					}
					return err
				})
			}
			says(t, "a transaction that begins", err, txn.ErrDropped)
			says(t, "another key", tab.Put(tx, 1001, nil), txn.ErrDropped)
			if err := tx.Commit(); err != nil {
				t.Errorf("commit of what was staged before: %v", err)
			}
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			if live := quiet(t, db); live != 0 || len(db.Space().Extents()) != 0 {
				t.Errorf("%d blocks and %d extents are in use", live, len(db.Space().Extents()))
			}
		})
	}
}

// TestDropWhileUsed drops tables under workers that use them, and make them again.
func TestDropWhileUsed(t *testing.T) {
	o := tiny()
	o.Dir = t.TempDir()
	db := mustOpen(t, o)
	other := table(t, db, "other")
	var stop atomic.Bool
	done := make(chan error, 3)
	for id := range uint64(3) {
		go func() {
			r := rng(id)
			for !stop.Load() {
				tab, err := txn.CreateTable(db, "t", txn.Uint64, txn.Bytes())
				for err == nil && !stop.Load() {
					err = db.Update(context.Background(), func(tx *txn.Tx) error {
						n, _, err := other.Lookup(tx, 0)
						if err != nil {
							return err
						}
						if err := other.Put(tx, 0, val(uint64(len(n)))); err != nil {
							return err
						}
						return tab.Put(tx, r.n(200), make([]byte, r.n(300)))
					})
					if errors.Is(err, txn.ErrConflict) {
						err = nil
					}
				}
				if err != nil && !errors.Is(err, txn.ErrDropped) {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for dropped := 0; dropped < 6; {
		if err := db.DropTable(t.Context(), "t"); err == nil {
			dropped++
		} else if !errors.Is(err, txn.ErrNoTable) {
			t.Error(err)
			break
		}
	}
	stop.Store(true)
	for range 3 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if err := db.DropTable(t.Context(), "t"); err != nil && !errors.Is(err, txn.ErrNoTable) {
		t.Error(err)
	}
	if live := quiet(t, db); live != 1 {
		t.Errorf("%d blocks are in use", live)
	}
	if err := db.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	sound(t, o.Dir)
}

// stopping is a context that ends when it has been asked n times.
type stopping struct {
	context.Context
	n *atomic.Int64
}

// Err implements context.Context.
func (s stopping) Err() error {
	if s.n.Add(-1) < 0 {
		return context.Canceled
	}
	return nil
}

// TestDropStops: a drop that stops at any step, and a process that dies then, leave a sound
// database, without the table. The next opening, or the next drop, gives everything back.
func TestDropStops(t *testing.T) {
	raced.Skip(t)
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			o := tiny()
			o.Dir = filepath.Join(t.TempDir(), "whole")
			db := mustOpen(t, o)
			other, tab := table(t, db, "other"), k.table(t, db, "t")
			fill(t, db, other, 20, val(7))
			if _, err := tab.Load(t.Context(), numbered(0, 400), txn.LoadOptions{}); err != nil {
				t.Fatal(err)
			}
			if err := db.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			whole, complete := o.Dir, false
			step := int64(1)
			if testing.Short() {
				step = 9
			}
			if k.name == "ordered" { // which asks once for a few blocks
				step *= 4
			}
			for stop := int64(0); !complete; stop += step {
				o.Dir = filepath.Join(t.TempDir(), "part")
				if err := os.CopyFS(o.Dir, os.DirFS(whole)); err != nil {
					t.Fatal(err)
				}
				db := mustOpen(t, o)
				n := &atomic.Int64{}
				n.Store(stop)
				err := db.DropTable(stopping{t.Context(), n}, "t")
				if complete = err == nil; !complete {
					says(t, "stopped", err, context.Canceled, `table "t" is dropped, and its room is given back`)
				}
				dead := filepath.Join(t.TempDir(), "dead")
				if err := os.CopyFS(dead, os.DirFS(o.Dir)); err != nil { // as if the process had died here
					t.Fatal(err)
				}
				if !complete {
					if err := db.DropTable(t.Context(), "t"); err != nil {
						t.Errorf("stop %d: once more: %v", stop, err)
					}
				}
				dropped(t, fmt.Sprint("stop ", stop), db)
				if err := db.Close(t.Context()); err != nil {
					t.Fatal(err)
				}
				sound(t, o.Dir)
				o.Dir = dead
				sound(t, dead) // what a process has left that died is no finding
				db = mustOpen(t, o)
				dropped(t, fmt.Sprint("stop ", stop, ", reopened"), db)
				if err := db.Close(t.Context()); err != nil {
					t.Fatal(err)
				}
				sound(t, o.Dir)
			}
		})
	}
}

// dropped demands that nothing is left of table t, and that table other is as it was.
func dropped(t *testing.T, what string, db *txn.DB) {
	t.Helper()
	ts, err := db.Space().Tables()
	if err != nil {
		t.Fatal(err)
	}
	if ts[1].Name != "t" || ts[1].State != layout.TableDropped || ts[1].Root != 0 {
		t.Errorf("%s: %+v", what, ts[1])
	}
	if live := quiet(t, db); live != 20 {
		t.Errorf("%s: %d blocks are in use", what, live)
	}
	other := table(t, db, "other")
	if st, err := other.Stats(t.Context()); err != nil || st.Rows != 20 ||
		len(db.Space().Extents()) != int(st.SubTables)+1 {
		t.Errorf("%s: %+v, %v, %d extents", what, st, err, len(db.Space().Extents()))
	}
	if _, err := txn.OpenTable(db, "t", txn.Uint64, txn.Bytes()); !errors.Is(err, txn.ErrNoTable) {
		t.Errorf("%s: %v", what, err)
	}
}

// TestDropForgotten: the catalog says that a table is gone, and its extents are still there: the
// next opening frees them.
func TestDropForgotten(t *testing.T) {
	o := tiny()
	o.Dir = filepath.Join(t.TempDir(), "data")
	db := mustOpen(t, o)
	other, tab := table(t, db, "other"), table(t, db, "t")
	fill(t, db, other, 20, val(7))
	fill(t, db, tab, 100, val(7))
	if err := db.Update(t.Context(), func(tx *txn.Tx) error {
		for k := range tab.Keys(tx) {
			if err := tab.Delete(tx, k); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(t.Context()); err != nil { // which reclaims the blocks
		t.Fatal(err)
	}
	db = mustOpen(t, o)
	if err := errors.Join(db.Space().ChangeTables(memory.TableChange{ID: 2, Drop: true}),
		db.Space().ForgetTable(2)); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(t.Context()); err != nil { // nobody has died, so nothing else is to be looked for
		t.Fatal(err)
	}
	db = mustOpen(t, o)
	dropped(t, "reopened", db)
}

// TestDropBesideBackup: a table that is dropped while a backup runs is in it, and then it goes.
func TestDropBesideBackup(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			db := mustOpen(t, tiny())
			other, tab := table(t, db, "a"), k.table(t, db, "b")
			fill(t, db, other, 20, val(7))
			if _, err := tab.Load(t.Context(), numbered(0, 1500), txn.LoadOptions{}); err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			drop := make(chan error, 1)
			begun := false
			_, err := db.Backup(t.Context(), &out, txn.BackupOptions{Progress: func(uint64) {
				if begun {
					return
				}
				begun = true
				go func() { drop <- db.DropTable(context.Background(), "b") }()
			}})
			if err != nil || !begun {
				t.Fatal(err, begun)
			}
			if err := <-drop; err != nil {
				t.Fatal(err)
			}
			again := mustOpen(t, tiny())
			if _, err := again.Restore(t.Context(), bytes.NewReader(out.Bytes()), txn.BackupOptions{}); err != nil {
				t.Fatal(err)
			}
			if names, err := again.Tables(); err != nil || !slices.Equal(names, []string{"a", "b"}) {
				t.Errorf("%q, %v", names, err)
			}
			quiet(t, again)
			for name, want := range map[string]uint64{"a": 20, "b": 1500} {
				r, err := txn.OpenAnyTable(again, name)
				if err != nil {
					t.Fatal(err)
				}
				if st, err := r.Stats(t.Context()); err != nil || st.Rows != want {
					t.Errorf("table %q: %d rows, %v", name, st.Rows, err)
				}
			}
			if live := quiet(t, db); live != 20 {
				t.Errorf("%d blocks are in use", live)
			}
		})
	}
}

// TestDropAndPower: the power goes when the catalog says that a table is dropped, and the blocks on
// disk are still those of before. They are free when the database is opened again.
func TestDropAndPower(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			o := tiny()
			o.Dir, o.Durability = filepath.Join(t.TempDir(), "data"), txn.DurabilityPower
			db := mustOpen(t, o)
			other, tab := table(t, db, "other"), k.table(t, db, "t")
			fill(t, db, other, 20, val(7))
			if _, err := tab.Load(t.Context(), numbered(0, 200), txn.LoadOptions{}); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(db.Space().ChangeTables(memory.TableChange{ID: 2, Drop: true}),
				db.Space().ForgetTable(2)); err != nil {
				t.Fatal(err)
			}
			lost := filepath.Join(t.TempDir(), "lost")
			if err := os.CopyFS(lost, os.DirFS(o.Dir)); err != nil {
				t.Fatal(err)
			}
			o.Dir = lost
			db = mustOpen(t, o)
			dropped(t, "after the loss of power", db)
			if err := db.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			sound(t, o.Dir)
		})
	}
}

// TestDropWithPower is the whole of it with DurabilityPower, and a loss of power at each step.
func TestDropWithPower(t *testing.T) {
	raced.Skip(t)
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			o := tiny()
			o.Dir, o.Durability = filepath.Join(t.TempDir(), "data"), txn.DurabilityPower
			db := mustOpen(t, o)
			other, tab := table(t, db, "other"), k.table(t, db, "t")
			fill(t, db, other, 20, val(7))
			if _, err := tab.Load(t.Context(), numbered(0, 200), txn.LoadOptions{}); err != nil {
				t.Fatal(err)
			}
			step := int64(1)
			if testing.Short() {
				step = 5
			}
			if k.name == "ordered" {
				step *= 8
			}
			for stop, done := int64(0), false; !done; stop += step {
				n := &atomic.Int64{}
				n.Store(stop)
				err := db.DropTable(stopping{t.Context(), n}, "t")
				if done = err == nil; !done {
					says(t, "stopped", err, context.Canceled)
				}
				lost := o
				lost.Dir = filepath.Join(t.TempDir(), "lost")
				if err := os.CopyFS(lost.Dir, os.DirFS(o.Dir)); err != nil {
					t.Fatal(err)
				}
				after := mustOpen(t, lost)
				dropped(t, fmt.Sprint("stop ", stop), after)
				if err := after.Close(t.Context()); err != nil {
					t.Fatal(err)
				}
				sound(t, lost.Dir)
			}
		})
	}
}

// TestDropSmallLogs: the records of a table are more than a transaction can delete by one record of
// the log.
func TestDropSmallLogs(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			db := mustOpen(t, txn.Options{Blades: 2, LogArea: 4 << 10, Policy: txn.PolicyFORD})
			tbl := k.table(t, db, "many")
			for n := range uint64(200) {
				if err := db.Update(t.Context(), func(tx *txn.Tx) error {
					return tbl.Insert(tx, n, []byte{1})
				}); err != nil {
					t.Fatal(err)
				}
			}
			if err := db.DropTable(t.Context(), "many"); err != nil {
				t.Error(err)
			}
			if _, err := txn.OpenTable(db, "many", txn.Uint64, txn.Bytes()); !errors.Is(err, txn.ErrNoTable) {
				t.Errorf("the table: %v", err)
			}
			close1(t, db)
		})
	}
}

// TestDropIndexedStops: the context of a drop ends when the table is gone and its index is not.
// Another call with the name of the table does the rest.
func TestDropIndexedStops(t *testing.T) {
	db := mustOpen(t, tiny())
	x := txn.NewIndex("byte", txn.Uint64, func(_ uint64, p []byte) []uint64 { return []uint64{uint64(p[0])} })
	tab, err := txn.CreateTable(db, "t", txn.Uint64, txn.Bytes(), x)
	if err != nil {
		t.Fatal(err)
	}
	fill(t, db, tab, 3, val(7))
	err = db.DropTable(&ending{t.Context(), func() bool {
		return !slices.ContainsFunc(db.Space().Layout().Tables, func(x layout.Table) bool {
			return x.Name == "t" && x.State != layout.TableDropped
		})
	}}, "t")
	if !errors.Is(err, context.Canceled) || !db.Space().Ending() {
		t.Fatalf("a drop whose context has ended: %v, all is done: %v", err, !db.Space().Ending())
	}
	if err := db.DropTable(t.Context(), "t"); err != nil {
		t.Errorf("once more: %v", err)
	}
	if db.Space().Ending() {
		t.Errorf("after another call the index is being dropped still: %+v", db.Space().Layout().Tables)
	}
	close1(t, db)
}

// ending is a context that has ended as soon as something is so.
type ending struct {
	context.Context
	so func() bool
}

func (c *ending) Err() error {
	if c.so() {
		return context.Canceled
	}
	return nil
}

// TestDropRejoins: while a drop waits for a sweep, its worker is declared dead, and has to rejoin.
// There is no goroutine that sweeps.
func TestDropRejoins(t *testing.T) {
	f, err := sim.New(sim.Options{
		Blades: []sim.BladeOptions{{Size: 32 << 20, Key: 1}}, ThreadsPerBlade: 4,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	o := onFabric(f, txn.PolicyDefault)
	o.LeaseTerm = time.Second
	db := mustOpen(t, o)
	kept := table(t, db, "kept")
	for k := range uint64(1000) {
		if err := db.Update(t.Context(), func(tx *txn.Tx) error { return kept.Put(tx, k, val(k)) }); err != nil {
			t.Fatal(err)
		}
	}
	table(t, db, "empty")
	other, err := db.NewWorker()
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Maintain(); err != nil { // it has not much time the next time
		t.Fatal(err)
	}
	db.Space().OweSweep(true)
	ctx := &asked{Context: t.Context(), fn: func() {
		if _, unswept := db.Space().Unswept(); !unswept || !db.Space().Ending() {
			t.Error("the drop waits for no sweep")
		}
		db.Space().Abandon(db.Space().NextCoordinator() - 1)
		if err := errors.Join(other.Maintain(), other.Close()); err != nil {
			t.Error(err)
		}
	}}
	from := f.Now()
	if err := db.DropTable(ctx, "empty"); err != nil {
		t.Error(err)
	}
	if ctx.fn != nil {
		t.Error("the drop has waited for nothing")
	}
	if db.Space().Ending() {
		t.Errorf("after %d ns of virtual time the table is being dropped still", f.Now()-from)
	}
	close1(t, db)
}

// asked is a context that does not end, and calls a function when it is asked for the first time
// whether it has.
type asked struct {
	context.Context
	fn func()
}

func (c *asked) Err() error {
	if fn := c.fn; fn != nil {
		c.fn = nil
		fn()
	}
	return nil
}
