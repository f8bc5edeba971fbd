package txn_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"txnode/occ"
	"txnode/txn"
)

// TestUnjoinedErrors: who could not rejoin is not told to try again at once, also when
// what has broken his session, or what kept it from rejoining, is a conflict. He finds in
// it what else it is.
func TestUnjoinedErrors(t *testing.T) {
	reason := errors.New("reason")
	broken := fmt.Errorf("%w: %w", txn.ErrBroken, io.ErrUnexpectedEOF)
	conflict := &occ.ConflictError{Reason: occ.AbortLocked}
	for what, c := range map[string]struct{ broken, rejoining error }{
		"a conflict":                   {broken, txn.ErrConflict},
		"a conflict, with its reason":  {broken, conflict},
		"a conflict, and why":          {broken, fmt.Errorf("txn: rejoining: %w: %w", txn.ErrConflict, reason)},
		"somebody else was at it":      {broken, txn.ErrFenced},
		"the same, among others":       {broken, fmt.Errorf("txn: rejoining: %w", errors.Join(reason, txn.ErrFenced))},
		"it was fenced":                {fmt.Errorf("%w: %w", txn.ErrBroken, txn.ErrFenced), reason},
		"it was fenced, and so is who": {fmt.Errorf("%w: %w", txn.ErrBroken, txn.ErrFenced), conflict},
	} {
		err := fmt.Errorf("txn: begin: %w", txn.Unjoined(c.broken, c.rejoining)) // as by who passes it on
		says(t, what, err, txn.ErrBroken, c.broken.Error(), c.rejoining.Error())
		if errors.Is(err, txn.ErrConflict) || errors.Is(err, txn.ErrFenced) {
			t.Errorf("%s: who tries again at once does so for ever: %v", what, err)
		}
		if errors.Is(err, io.ErrUnexpectedEOF) != errors.Is(c.broken, io.ErrUnexpectedEOF) ||
			errors.Is(err, reason) != errors.Is(c.rejoining, reason) {
			t.Errorf("%s: it does not match what it is: %v", what, err)
		}
		var asked *occ.ConflictError
		if errors.As(err, &asked) {
			t.Errorf("%s: it is a %v", what, asked)
		}
	}
}

// TestOperationErrors: an operation that is refused says so, leaves everything as
// it was, and leaves the transaction usable.
func TestOperationErrors(t *testing.T) {
	db := mustOpen(t, tiny())
	tab, err := txn.CreateTable(db, "t", txn.String, txn.Text())
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Update(t.Context(), func(tx *txn.Tx) error { return tab.Put(tx, "k", "v") }); err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("k", 1025)
	says(t, "Get", as(t, db, func(tx *txn.Tx) error { _, err := tab.Get(tx, "none"); return err }),
		txn.ErrNotFound, "not found")
	says(t, "GetForUpdate", as(t, db, func(tx *txn.Tx) error { _, err := tab.GetForUpdate(tx, "none"); return err }),
		txn.ErrNotFound)
	says(t, "Delete", as(t, db, func(tx *txn.Tx) error { return tab.Delete(tx, "none") }), txn.ErrNotFound)
	says(t, "Insert", as(t, db, func(tx *txn.Tx) error { return tab.Insert(tx, "k", "w") }), txn.ErrExists, "exists")
	for what, op := range map[string]func(tx *txn.Tx) error{
		"Get of a long key":    func(tx *txn.Tx) error { _, err := tab.Get(tx, long); return err },
		"Has of a long key":    func(tx *txn.Tx) error { _, err := tab.Has(tx, long); return err },
		"Put of a long key":    func(tx *txn.Tx) error { return tab.Put(tx, long, "") },
		"Stage of a long key":  func(tx *txn.Tx) error { return tab.Stage(tx, long, txn.ForRead) },
		"Delete of a long key": func(tx *txn.Tx) error { return tab.Delete(tx, long) },
	} {
		err := as(t, db, op)
		says(t, what, err, txn.ErrTooLarge, "key", "1025", "1024")
		var e *occ.TooLargeError
		if !errors.As(err, &e) || e.Got != 1025 || e.Limit != 1024 || e.What != "key" {
			t.Errorf("%s: %+v", what, e)
		}
	}
	for what, op := range map[string]func(tx *txn.Tx, v string) error{
		"Put":    func(tx *txn.Tx, v string) error { return tab.Put(tx, "k", v) },
		"Insert": func(tx *txn.Tx, v string) error { return tab.Insert(tx, "new", v) },
		"Put after GetForUpdate": func(tx *txn.Tx, v string) error {
			if _, err := tab.GetForUpdate(tx, "k"); err != nil {
				return err
			}
			return tab.Put(tx, "k", v)
		},
	} {
		says(t, what, as(t, db, func(tx *txn.Tx) error { return op(tx, strings.Repeat("v", 1<<20+1)) }),
			txn.ErrTooLarge, "value", "1048577", "1048576")
		says(t, what, as(t, db, func(tx *txn.Tx) error { return op(tx, strings.Repeat("v", 70<<10)) }), txn.ErrTooLarge,
			"log record", "65472", "LogArea")
	}
	if err := as(t, db, func(tx *txn.Tx) error { _, err := tab.Get(tx, ""); return err }); err == nil ||
		!strings.Contains(err.Error(), "empty key") {
		t.Errorf("an empty key: %v", err)
	}
	if err := db.View(t.Context(), func(tx *txn.Tx) error {
		if v, err := tab.Get(tx, "k"); err != nil || v != "v" {
			t.Errorf("k is %q, %v", v, err)
		}
		if has, err := tab.Has(tx, "new"); err != nil || has {
			t.Errorf("new is there: %v, %v", has, err)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	quiet(t, db)
}

func TestReadOnlyTransactions(t *testing.T) {
	db := mustOpen(t, tiny())
	tab := table(t, db, "t")
	fill(t, db, tab, 2, val(1))
	writes := map[string]func(tx *txn.Tx) error{
		"Put":              func(tx *txn.Tx) error { return tab.Put(tx, 1, val(2)) },
		"Insert":           func(tx *txn.Tx) error { return tab.Insert(tx, 9, val(2)) },
		"Delete":           func(tx *txn.Tx) error { return tab.Delete(tx, 1) },
		"GetForUpdate":     func(tx *txn.Tx) error { _, err := tab.GetForUpdate(tx, 1); return err },
		"Stage for update": func(tx *txn.Tx) error { return tab.Stage(tx, 1, txn.ForUpdate) },
	}
	for what, op := range writes {
		says(t, what+" in View", db.View(t.Context(), op), txn.ErrReadOnly, "Update")
		if err := db.View(t.Context(), func(tx *txn.Tx) error {
			_ = op(tx)
			_, err := tab.Get(tx, 1)
			return err
		}); err != nil {
			t.Errorf("reading after %s in View: %v", what, err)
		}
		tx, err := db.Begin(t.Context(), true)
		if err != nil {
			t.Fatal(err)
		}
		says(t, what+" in Begin(readOnly)", op(tx), txn.ErrReadOnly)
		if err := tx.Commit(); err != nil {
			t.Error(err)
		}
	}
	if err := db.View(t.Context(), func(tx *txn.Tx) error {
		if p, err := tab.Get(tx, 1); err != nil || num(p) != 1 {
			t.Errorf("1 is %v, %v", p, err)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	quiet(t, db)
}

// TestDone: what has ended says so, and nothing happens.
func TestDone(t *testing.T) {
	db := mustOpen(t, tiny())
	tab := table(t, db, "t")
	fill(t, db, tab, 2, val(1))
	uses := map[string]func(tx *txn.Tx) error{
		"Get":     func(tx *txn.Tx) error { _, err := tab.Get(tx, 1); return err },
		"Has":     func(tx *txn.Tx) error { _, err := tab.Has(tx, 1); return err },
		"Put":     func(tx *txn.Tx) error { return tab.Put(tx, 1, val(2)) },
		"Insert":  func(tx *txn.Tx) error { return tab.Insert(tx, 7, val(2)) },
		"Delete":  func(tx *txn.Tx) error { return tab.Delete(tx, 1) },
		"Stage":   func(tx *txn.Tx) error { return tab.Stage(tx, 1, txn.ForUpdate) },
		"Execute": func(tx *txn.Tx) error { return tx.Execute() },
		"Commit":  func(tx *txn.Tx) error { return tx.Commit() },
	}
	var kept *txn.Tx
	var id uint64
	if err := db.Update(t.Context(), func(tx *txn.Tx) error {
		kept, id = tx, tx.ID()
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for what, use := range uses {
		says(t, what+" after Update", use(kept), txn.ErrTxDone, "ended")
	}
	if kept.ID() != id {
		t.Errorf("the id was %d, and is %d after Update", id, kept.ID())
	}
	for _, commit := range []bool{true, false} {
		tx, err := db.Begin(t.Context(), false)
		if err != nil {
			t.Fatal(err)
		}
		id := tx.ID()
		if commit {
			err = tx.Commit()
		} else {
			err = tx.Rollback()
		}
		if err != nil {
			t.Fatal(err)
		}
		for what, use := range uses {
			says(t, what+" after the end", use(tx), txn.ErrTxDone)
		}
		if err := tx.Rollback(); err != nil {
			t.Errorf("Rollback after the end: %v", err)
		}
		fill(t, db, tab, 0, nil) // others use the worker
		if tx.ID() != id || id == 0 {
			t.Errorf("the id was %d, and is %d after the end", id, tx.ID())
		}
	}
	quiet(t, db)
}

// TestManaged: a function that ends the transaction which Update ends is told so, and
// nothing that it has done happens, whether it listens or not.
func TestManaged(t *testing.T) {
	db := mustOpen(t, tiny())
	tab := table(t, db, "t")
	fill(t, db, tab, 1, val(1))
	for what, end := range map[string]func(tx *txn.Tx) error{
		"Commit": (*txn.Tx).Commit, "Rollback": (*txn.Tx).Rollback,
	} {
		for _, returned := range []error{nil, errRollback} {
			runs := 0
			err := db.Update(t.Context(), func(tx *txn.Tx) error {
				runs++
				if err := tab.Put(tx, 0, val(2)); err != nil {
					t.Error(err)
				}
				says(t, what+" inside of Update", end(tx), txn.ErrManaged, "DB.Begin")
				says(t, "Put after it", tab.Put(tx, 0, val(3)), txn.ErrManaged)
				return returned
			})
			says(t, "Update with "+what, err, txn.ErrManaged)
			if runs != 1 {
				t.Errorf("%s: the function ran %d times", what, runs)
			}
			says(t, "View with "+what, db.View(t.Context(), func(tx *txn.Tx) error { _ = end(tx); return returned }),
				txn.ErrManaged)
		}
	}
	if err := db.View(t.Context(), func(tx *txn.Tx) error {
		if p, err := tab.Get(tx, 0); err != nil || num(p) != 1 {
			t.Errorf("0 is %v, %v", p, err)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	quiet(t, db)
}

func TestConflictAfterRetries(t *testing.T) {
	for _, p := range policies(t) {
		o := tiny()
		o.Policy, o.Retries = p, 3
		db := mustOpen(t, o)
		tab := table(t, db, "t")
		fill(t, db, tab, 2, val(1))
		tx, err := db.Begin(t.Context(), false)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tab.GetForUpdate(tx, 1); err != nil {
			t.Fatal(err)
		}
		attempts := 0
		before := db.Metrics().Conflicts[occ.AbortLocked]
		err = db.Update(t.Context(), func(tx *txn.Tx) error {
			attempts++
			return tab.Put(tx, 1, val(2))
		})
		says(t, "Update of a locked key", err, txn.ErrConflict, "4 attempts", "locked")
		var c *occ.ConflictError
		if !errors.As(err, &c) || c.Reason != occ.AbortLocked {
			t.Errorf("reason %v", c)
		}
		if attempts != 4 || db.Metrics().Conflicts[occ.AbortLocked]-before != 4 {
			t.Errorf("%d attempts, %d conflicts counted", attempts, db.Metrics().Conflicts[occ.AbortLocked]-before)
		}
		err = db.View(t.Context(), func(tx *txn.Tx) error { _, err := tab.Get(tx, 1); return err })
		says(t, "View of a locked key", err, txn.ErrConflict, "read-locked")
		if err := tx.Rollback(); err != nil {
			t.Error(err)
		}
		if err := db.Update(t.Context(), func(tx *txn.Tx) error { return tab.Put(tx, 1, val(3)) }); err != nil {
			t.Error(err)
		}
		quiet(t, db)
	}
}

func TestTableErrors(t *testing.T) {
	db := mustOpen(t, tiny())
	_, err := txn.OpenTable(db, "accounts", txn.Uint64, txn.Text())
	says(t, "OpenTable", err, txn.ErrNoTable, "accounts", "CreateTable")
	if _, err := txn.CreateTable(db, "accounts", txn.Uint64, txn.Text()); err != nil {
		t.Fatal(err)
	}
	_, err = txn.CreateTable(db, "accounts", txn.String, txn.Text())
	says(t, "another key", err, txn.ErrTableType, "accounts", "uint64", "string")
	_, err = txn.OpenTable(db, "accounts", txn.Uint64, txn.Plain[[3]uint64]())
	says(t, "another value", err, txn.ErrTableType, "accounts", "plain:24")
	if _, err := txn.OpenTable(db, "accounts", txn.Uint64, txn.Text()); err != nil {
		t.Error(err)
	}
	_, err = txn.OpenRawTable(db, "accounts")
	says(t, "bytes", err, txn.ErrTableType, "accounts", "bytes")
	_, err = txn.CreateTable(db, "", txn.String, txn.Text())
	says(t, "no name", err, txn.ErrOptions, "a table needs a name")
	if strings.Contains(fmt.Sprint(err), "bytes") {
		t.Errorf("no name: %v", err)
	}
	_, err = txn.CreateRawTable(db, strings.Repeat("n", 1000))
	says(t, "a long name", err, txn.ErrOptions, "its name has 1000 bytes")
	_, err = txn.OpenRawTable(db, "none")
	says(t, "no such raw table", err, txn.ErrNoTable, "none")
	if names, err := db.Tables(); err != nil || len(names) != 1 || names[0] != "accounts" {
		t.Errorf("tables %v, %v", names, err)
	}
}

func TestOptionErrors(t *testing.T) {
	fabric := mustOpen(t, tiny()).Space().Fabric()
	for _, c := range []struct {
		o     txn.Options
		texts []string
	}{
		{txn.Options{
			Blades: -1, Workers: -2, Retries: -3, Arena: -4, CacheBytes: -5, BladeSize: 1000, SegmentSize: 7,
			LogArea: 9, IndexGroups: 1, Policy: 9, ReadOnly: true, Durability: 7,
		},
			[]string{
				"Blades is -1", "Workers is -2", "Retries is -3", "Arena is -4", "CacheBytes is -5",
				"BladeSize is 1000", "SegmentSize is 7", "LogArea is 9", "IndexGroups", "Policy 9",
				"ReadOnly needs Dir", "Durability 7 is unknown",
			}},
		{txn.Options{LeaseTerm: math.MaxInt64}, []string{
			"LeaseTerm is 2562047h47m16.854775807s", "for ever is a negative one",
		}},
		{txn.Options{Blades: 65}, []string{"Blades is 65", "64"}},
		{txn.Options{BladeSize: 64 << 10}, []string{"BladeSize is 65536: it is too small", "at least 1114112"}},
		{txn.Options{BladeSize: 64 << 10, Dir: "somewhere"}, []string{
			"BladeSize is 65536: it is too small", "at least 1114112",
		}},
		{
			txn.Options{BladeSize: 4 << 20, SegmentSize: 4 << 20},
			[]string{"BladeSize is 4194304: it is too small for segments of 4194304 bytes, at least 16842752"},
		},
		{txn.Options{BladeSize: 64<<40 + 64<<10}, []string{"BladeSize is 70368744243200: at most 70368744177664"}},
		{txn.Options{BladeSize: 1 << 62}, []string{"BladeSize is 4611686018427387904: at most 70368744177664"}},
		{txn.Options{BladeSize: 1 << 62, Dir: "somewhere"}, []string{"at most"}},
		{txn.Options{Backups: txn.F(2)}, []string{"Backups is 2", "there are 2"}},
		{txn.Options{Backups: txn.F(3), Blades: 8}, []string{"Backups is 3"}},
		{txn.Options{Backups: txn.F(-1)}, []string{"Backups is -1"}},
		{txn.Options{Workers: 1 << 20}, []string{"Workers is 1048576"}},
		{txn.Options{ClockDrift: math.NaN(), QPPolicy: 99}, []string{"ClockDrift is NaN", "QPPolicy 99"}},
		{txn.Options{Arena: 1000}, []string{"Arena is 1000", "1 MiB"}},
		{txn.Options{HugePages: true, Dir: "somewhere"}, []string{"HugePages", "somewhere"}},
		{txn.Options{Fabric: fabric}, []string{"Catalog"}},
		{txn.Options{Fabric: fabric, Blades: 3, Dir: "x"}, []string{"Catalog", "do not go with Fabric"}},
	} {
		_, err := txn.Open(t.Context(), c.o)
		says(t, strings.Join(c.texts, ", "), err, txn.ErrOptions, c.texts...)
	}
	db := mustOpen(t, tiny())
	says(t, "Run", db.Run(t.Context(), 0, 1, nil), txn.ErrOptions, "0 threads")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errRollback)
	if _, err := txn.Open(ctx, tiny()); !errors.Is(err, errRollback) {
		t.Errorf("Open with a context that is done: %v", err)
	}
}

// TestForeign: directories that are no databases, or in use, or different.
func TestForeign(t *testing.T) {
	o := tiny()
	o.Dir = t.TempDir()
	db := mustOpen(t, o)
	_, err := txn.Open(t.Context(), o)
	says(t, "opened twice", err, txn.ErrLocked, o.Dir)
	if err := db.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for what, change := range map[string]func(o *txn.Options){
		"Blades 3":           func(o *txn.Options) { o.Blades = 3 },
		"Backups 0":          func(o *txn.Options) { o.Backups = txn.F(0) },
		"SegmentSize 524288": func(o *txn.Options) { o.SegmentSize = 512 << 10 },
		"LogArea 131072":     func(o *txn.Options) { o.LogArea = 128 << 10 },
	} {
		x := o
		change(&x)
		_, err := txn.Open(t.Context(), x)
		says(t, what, err, txn.ErrGeometry, what[strings.IndexByte(what, ' ')+1:])
	}
	other := tiny()
	other.Dir = t.TempDir()
	close1(t, mustOpen(t, other))
	name := "blade-001.region"
	region := filepath.Join(o.Dir, name)
	if err := os.Rename(region, region+".away"); err != nil {
		t.Fatal(err)
	}
	_, err = txn.Open(t.Context(), o)
	says(t, "without a region file", err, txn.ErrMissing, name)
	if err := os.Rename(filepath.Join(other.Dir, name), region); err != nil {
		t.Fatal(err)
	}
	_, err = txn.Open(t.Context(), o)
	says(t, "with another database's region file", err, txn.ErrForeign, name)
	empty := t.TempDir()
	if _, err = txn.Open(t.Context(), txn.Options{Dir: empty, ReadOnly: true}); err == nil ||
		!strings.Contains(err.Error(), empty) {
		t.Errorf("read-only and empty: %v", err)
	}
}

// TestTableOfAnotherDatabase: a table belongs to its database, whatever numbers the
// tables of another one have; nothing is read or written through it, and the
// transaction ends with the error even if the function ignores it.
func TestTableOfAnotherDatabase(t *testing.T) {
	a, ta := bank(t, occ.PolicyDefault)
	b, tb := bank(t, occ.PolicyDefault)
	raw, err := txn.CreateRawTable(b, "raw")
	if err != nil {
		t.Fatal(err)
	}
	for name, use := range map[string]func(tx *txn.Tx) error{
		"Get":       func(tx *txn.Tx) error { _, err := tb.Get(tx, 0); return err },
		"Has":       func(tx *txn.Tx) error { _, err := tb.Has(tx, 0); return err },
		"Stage":     func(tx *txn.Tx) error { return tb.Stage(tx, 0, txn.ForUpdate) },
		"Put":       func(tx *txn.Tx) error { return tb.Put(tx, 0, val(1)) },
		"Insert":    func(tx *txn.Tx) error { return tb.Insert(tx, 99, val(1)) },
		"Delete":    func(tx *txn.Tx) error { return tb.Delete(tx, 0) },
		"raw Get":   func(tx *txn.Tx) error { _, err := raw.Get(tx, []byte("k")); return err },
		"raw Has":   func(tx *txn.Tx) error { _, err := raw.Has(tx, []byte("k")); return err },
		"raw Put":   func(tx *txn.Tx) error { return raw.Put(tx, []byte("k"), nil) },
		"raw Stage": func(tx *txn.Tx) error { return raw.StageAll(tx, txn.ForRead, []byte("k")) },
	} {
		err := a.Update(t.Context(), func(tx *txn.Tx) error {
			if err := ta.Put(tx, 0, val(5)); err != nil {
				return err
			}
			if err := use(tx); !errors.Is(err, txn.ErrOtherDatabase) {
				t.Errorf("%s: %v", name, err)
			}
			return nil
		})
		if !errors.Is(err, txn.ErrOtherDatabase) {
			t.Errorf("%s, ignored: %v", name, err)
		}
	}
	untouched(t, a, ta)
	untouched(t, b, tb)
}
