package txn_test

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"txnode/internal/raced"
	"txnode/memory/embedded"
	"txnode/memory/layout"
	"txnode/txn"
	"txnode/verify"
)

var damages = flag.Int("damages", 40, "how many damaged databases TestDamageAnywhere opens")

// TestDamageAnywhere opens databases of which something was overwritten, wherever that may be: in
// the catalog, in headers, indexes, records, logs, extents, on one blade or on all. Whoever uses
// one gets errors, or what is stored; never another value, a panic or an operation without an end.
func TestDamageAnywhere(t *testing.T) {
	raced.Skip(t)
	whole := map[bool]string{}
	for _, closed := range []bool{true, false} {
		whole[closed] = anywhereDir(t, closed)
	}
	n := uint64(*damages)
	if testing.Short() {
		n = (n + 3) / 4
	}
	for seed := range n {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 9))
			dir := t.TempDir()
			if err := os.CopyFS(dir, os.DirFS(whole[rng.IntN(2) == 0])); err != nil {
				t.Fatal(err)
			}
			what := overwrite(t, dir, rng)
			if rng.IntN(2) == 0 {
				checkDamaged(t, dir, what, rng.IntN(2) == 0)
			}
			useDamaged(t, dir, what, rng)
		})
	}
}

const anywhereKeys = 300

func anywhereOptions(dir string) txn.Options {
	o := tiny()
	o.Dir, o.Blades, o.SegmentSize, o.BladeSize, o.Retries = dir, 3, 256<<10, 8<<20, 3
	return o
}

// anywhereValue is the value of a key: now and then one of several lines.
func anywhereValue(table, k uint64) []byte {
	p := binary.LittleEndian.AppendUint64(nil, table<<32|k)
	for len(p) < int(k%7*k%300) {
		p = append(p, p[:8]...)
	}
	return p
}

// anywhereDir makes a database whose indexes have split, with deleted records; if it is not
// closed, one whose process was killed in the middle of a transaction.
func anywhereDir(t *testing.T, closed bool) string {
	t.Helper()
	o := anywhereOptions(t.TempDir())
	db := mustOpen(t, o)
	for i := range uint64(2) {
		tab := table(t, db, fmt.Sprint("t", i))
		for k := range uint64(anywhereKeys) {
			if err := db.Update(t.Context(),
				func(tx *txn.Tx) error { return tab.Insert(tx, k, anywhereValue(i, k)) }); err != nil {
				t.Fatal(err)
			}
		}
		for k := uint64(0); k < anywhereKeys; k += 10 {
			if err := db.Update(t.Context(), func(tx *txn.Tx) error { return tab.Delete(tx, k) }); err != nil {
				t.Fatal(err)
			}
		}
	}
	if closed {
		close1(t, db)
		return o.Dir
	}
	tx, err := db.Begin(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	tab := table(t, db, "t0")
	if _, err := tab.GetForUpdate(tx, 1); err != nil {
		t.Fatal(err)
	}
	if err := tab.Insert(tx, 7777, anywhereValue(0, 7777)); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(o.Dir)); err != nil {
		t.Fatal(err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	close1(t, db)
	return dir
}

// overwrite changes something in the files of a database, and tells what.
func overwrite(t *testing.T, dir string, rng *rand.Rand) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.region"))
	if err != nil {
		t.Fatal(err)
	}
	files = append(files, filepath.Join(dir, "catalog.db"))
	name := files[rng.IntN(len(files))]
	p, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	end := len(p)
	for end > 0 && p[end-1] == 0 {
		end--
	}
	what := filepath.Base(name)
	for range 1 + rng.IntN(8) {
		at := rng.IntN(end) &^ 7
		for range 100 { // rather something that is in use
			if binary.LittleEndian.Uint64(p[at:]) != 0 {
				break
			}
			at = rng.IntN(end) &^ 7
		}
		if at+8 > len(p) {
			continue
		}
		w := binary.LittleEndian.Uint64(p[at:])
		to := w
		switch rng.IntN(5) {
		case 0:
			to ^= 1 << rng.IntN(64)
		case 1:
			to = rng.Uint64()
		case 2:
			to = 0
		case 3:
			to = ^uint64(0)
		case 4:
			to = binary.LittleEndian.Uint64(p[rng.IntN(end)&^7:])
		}
		what += fmt.Sprintf(", at %#x %#x instead of %#x", at, to, w)
		for _, f := range files {
			if f != name && (rng.IntN(2) == 0 || f == files[len(files)-1]) {
				continue
			}
			q, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			if at+8 > len(q) || f != name && binary.LittleEndian.Uint64(q[at:]) != w {
				continue
			}
			binary.LittleEndian.PutUint64(q[at:], to)
			if err := os.WriteFile(f, q, 0o644); err != nil {
				t.Fatal(err)
			}
			what += " " + filepath.Base(f)
		}
	}
	return what
}

// checkDamaged does what txnode check does.
func checkDamaged(t *testing.T, dir, what string, repair bool) {
	t.Helper()
	h, err := embedded.Connect(embedded.Options{Dir: dir, ReadOnly: !repair})
	if err != nil {
		return
	}
	defer func() {
		if err := h.Close(); err != nil {
			t.Logf("%s: %v", what, err)
		}
	}()
	l, err := layout.LoadLayout(h.Catalog)
	if err != nil || l == nil {
		return
	}
	d, err := verify.Attach(h.Fabric, l)
	if err != nil {
		return
	}
	_, err = d.Check(t.Context(), verify.Options{Repair: repair})
	if err = errors.Join(err, d.Close()); err != nil {
		t.Logf("%s: check: %v", what, err)
	}
}

func useDamaged(t *testing.T, dir, what string, rng *rand.Rand) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	db, err := txn.Open(ctx, anywhereOptions(dir))
	if err != nil {
		if !errors.Is(err, txn.ErrCorrupt) {
			t.Logf("%s: open: %v", what, err)
		}
		return
	}
	for i := range uint64(2) {
		tab, err := txn.OpenTable(db, fmt.Sprint("t", i), txn.Uint64, txn.Bytes())
		if err != nil {
			continue
		}
		for range 200 {
			k := rng.Uint64N(anywhereKeys)
			switch rng.IntN(6) {
			case 0:
				_ = db.Update(ctx, func(tx *txn.Tx) error { return tab.Put(tx, k, anywhereValue(i, k)) })
			case 1:
				_ = db.Update(ctx, func(tx *txn.Tx) error { return tab.Delete(tx, k) })
			case 2:
				_ = db.Update(ctx, func(tx *txn.Tx) error { return tab.Insert(tx, k+500, anywhereValue(i, k+500)) })
			default:
				var v []byte
				err := db.View(ctx, func(tx *txn.Tx) (err error) {
					v, err = tab.Get(tx, k)
					v = append([]byte(nil), v...)
					return err
				})
				if err == nil && string(v) != string(anywhereValue(i, k)) {
					t.Errorf("%s: key %d of table %d is %x", what, k, i, v)
				}
			}
		}
	}
	_, _ = db.Backup(ctx, io.Discard, txn.BackupOptions{})
	if ctx.Err() != nil {
		t.Errorf("%s: it takes more than a minute", what)
	}
	if err := db.Close(context.Background()); err != nil {
		t.Logf("%s: close: %v", what, err)
	}
}
