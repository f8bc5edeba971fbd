package txn_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"txnode/index/bucket"
	"txnode/index/tree"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/txn"
	"txnode/txn/snapshot"
)

// backupOfKinds is a backup of two tables, "hash" and "ordered", of n records each, with
// values of many sizes.
func backupOfKinds(t testing.TB, n uint64) []byte {
	t.Helper()
	db := mustOpen(t, tiny())
	for _, k := range kinds {
		if _, err := k.table(t, db, k.name).Load(t.Context(), func(yield func(uint64, []byte) bool) {
			for i := range n {
				if !yield(i, bytes.Repeat([]byte{byte(i)}, int(i)%300)) {
					return
				}
			}
		}, txn.LoadOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	var file bytes.Buffer
	if _, err := db.Backup(t.Context(), &file, txn.BackupOptions{}); err != nil {
		t.Fatal(err)
	}
	return file.Bytes()
}

// hasKinds demands that a database has what backupOfKinds has copied, and at most so many
// blocks more: nodes.
func hasKinds(t testing.TB, what string, db *txn.DB, n uint64, nodes int) {
	t.Helper()
	for _, k := range kinds {
		got := contents(t, db, k.table(t, db, k.name), n)
		for i := range n {
			if v, ok := got[i]; !ok || !bytes.Equal(v, bytes.Repeat([]byte{byte(i)}, int(i)%300)) {
				t.Fatalf("%s: table %s: record %d: %d bytes, %v", what, k.name, i, len(v), ok)
			}
		}
	}
	if live := quiet(t, db); live > int(2*n)+nodes {
		t.Errorf("%s: %d blocks are in use", what, live)
	}
}

// TestRestoreCutShort: a restore that is cut short anywhere leaves a database without tables.
// The next restore frees what there is of them, and so does the next opening after a crash,
// or a loss of power.
func TestRestoreCutShort(t *testing.T) {
	const n = 1200
	file := backupOfKinds(t, n)
	for _, leaves := range []bool{false, true} {
		restoreCutShort(t, file, n, leaves)
	}
}

func restoreCutShort(t *testing.T, file []byte, n uint64, leaves bool) {
	fresh := tiny()
	fresh.LeafIndex = leaves
	whole := mustOpen(t, fresh)
	if _, err := whole.Restore(t.Context(), bytes.NewReader(file), txn.BackupOptions{}); err != nil {
		t.Fatal(err)
	}
	nodes := quiet(t, whole) - int(2*n)
	if nodes < 2 || nodes > int(n)/10 {
		t.Fatalf("%d nodes", nodes)
	}
	step := 3
	if testing.Short() {
		step = 11
	}
	for _, d := range []txn.Durability{txn.DurabilityProcess, txn.DurabilityPower} {
		stops := 0
		for stop, done := 1, false; !done; stop += step {
			o := fresh
			o.Dir, o.Durability = filepath.Join(t.TempDir(), "data"), d
			db := mustOpen(t, o)
			ctx, cancel := context.WithCancel(t.Context())
			told := 0
			_, err := db.Restore(ctx, bytes.NewReader(file), txn.BackupOptions{Progress: func(uint64) {
				if told++; told == stop {
					cancel()
				}
			}})
			cancel()
			what := fmt.Sprintf("leaves %v, durability %v, stop %d", leaves, d, stop)
			lost := o
			lost.Dir = filepath.Join(t.TempDir(), "lost")
			if err := os.CopyFS(lost.Dir, os.DirFS(o.Dir)); err != nil {
				t.Fatal(err)
			}
			if done = err == nil; done {
				hasKinds(t, what, db, n, nodes)
				hasKinds(t, what+", after a crash", mustOpen(t, lost), n, nodes)
				break
			}
			stops++
			says(t, what, err, context.Canceled)
			if names, err := db.Tables(); err != nil || len(names) > 0 {
				t.Errorf("%s: tables %q, %v", what, names, err)
			}
			if d == txn.DurabilityProcess {
				sound(t, lost.Dir)
			}
			after := mustOpen(t, lost)
			if names, err := after.Tables(); err != nil || len(names) > 0 {
				t.Errorf("%s: tables after a crash: %q, %v", what, names, err)
			}
			if live := quiet(t, after); live != 0 {
				t.Errorf("%s: %d blocks are in use after a crash", what, live)
			}
			if err := after.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			sound(t, lost.Dir)
			if _, err := db.Restore(t.Context(), bytes.NewReader(file), txn.BackupOptions{}); err != nil {
				t.Fatalf("%s: again: %v", what, err)
			}
			hasKinds(t, what+", again", db, n, nodes)
			if err := db.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			sound(t, o.Dir)
		}
		if stops < 2 {
			t.Errorf("leaves %v, durability %v: it was cut short at %d places", leaves, d, stops)
		}
	}
}

// endingReader ends a context with a read.
type endingReader struct {
	*bytes.Reader
	end   func()
	reads int // until then
	after int // reads behind it
}

func (r *endingReader) Read(p []byte) (int, error) {
	if r.reads--; r.reads < 0 {
		r.after++
	} else if r.reads == 0 {
		r.end()
	}
	return r.Reader.Read(p[:min(len(p), 4096)])
}

// TestRestoreHears: a restore ends with its context while it verifies the file, and when all
// records are written and only indexes are missing.
func TestRestoreHears(t *testing.T) {
	const n = 1200
	file := backupOfKinds(t, n)
	dir := filepath.Join(t.TempDir(), "data")
	ctx, cancel := context.WithCancel(t.Context())
	src := &endingReader{Reader: bytes.NewReader(file), end: cancel, reads: 3}
	_, err := txn.RestoreDir(ctx, src, dir, tiny(), txn.BackupOptions{})
	if says(t, "while the file is verified", err, context.Canceled); src.after > 0 {
		t.Errorf("%d reads after the context has ended", src.after)
	}
	db := mustOpen(t, tiny())
	ctx, cancel = context.WithCancel(t.Context())
	defer cancel()
	_, err = db.Restore(ctx, bytes.NewReader(file), txn.BackupOptions{Progress: func(done uint64) {
		if done == 2*n {
			cancel()
		}
	}})
	says(t, "before indexes", err, context.Canceled)
	if _, err := db.Restore(t.Context(), bytes.NewReader(file), txn.BackupOptions{}); err != nil {
		t.Fatal(err)
	}
	hasKinds(t, "again", db, n, n/10)
}

// TestRestoreTwice: of records of one key the last one counts, and the others take no room.
func TestRestoreTwice(t *testing.T) {
	from := mustOpen(t, tiny())
	tab := table(t, from, "t")
	fill(t, from, tab, 1, val(0))
	var file bytes.Buffer
	if _, err := from.Backup(t.Context(), &file, txn.BackupOptions{}); err != nil {
		t.Fatal(err)
	}
	r, err := snapshot.Open(bytes.NewReader(file.Bytes()), nil)
	if err != nil {
		t.Fatal(err)
	}
	file.Reset()
	w, err := snapshot.NewWriter(&file, *r.Header())
	if err != nil {
		t.Fatal(err)
	}
	want := map[uint64][]byte{}
	for i := range uint64(3000) { // several transactions, of several records of a key each
		k := i * 7919 % 500
		want[k] = bytes.Repeat([]byte{byte(i)}, int(i)%200)
		if err := w.Base(1, txn.Uint64.Append(nil, k), want[k]); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Finish(0, r.Tables()); err != nil {
		t.Fatal(err)
	}
	for _, leaves := range []bool{false, true} {
		o, nodes := tiny(), 0
		if o.LeafIndex = leaves; leaves {
			nodes = nodesOf(t, 500)
		}
		to := mustOpen(t, o)
		if _, err := to.Restore(t.Context(), bytes.NewReader(file.Bytes()), txn.BackupOptions{}); err != nil {
			t.Fatal(err)
		}
		got := contents(t, to, table(t, to, "t"), 500)
		if !maps.EqualFunc(got, want, bytes.Equal) {
			t.Errorf("leaves %v: %d of %d records, or others", leaves, len(got), len(want))
		}
		if live := quiet(t, to); live != 500+nodes {
			t.Errorf("leaves %v: %d blocks are in use", leaves, live)
		}
	}
}

// nodesOf is how many nodes the index of leaves has of a table with number 1 whose keys are so
// many, from
// 0 on, if it was built at once.
func nodesOf(t testing.TB, keys int) (nodes int) {
	t.Helper()
	var list []bucket.Linked
	for i := range keys {
		h := bucket.HashOf(record.Hash(1, txn.Uint64.Append(nil, uint64(i))))
		list = append(list, bucket.NewLinked(h, layout.MakeAddr(1, uint32(i)*layout.BlockAlign), 0))
	}
	slices.SortFunc(list, bucket.Linked.Compare)
	if _, err := tree.Build(tree.HashesOf(tree.LeafClass, tree.Options{}), list, func(_ layout.Class, n int,
		_ func(dst []byte, i int, at []layout.Addr) []byte) ([]layout.Addr, error) {
		nodes += n
		return slices.Repeat([]layout.Addr{layout.MakeAddr(2, 0)}, n), nil
	}); err != nil {
		t.Fatal(err)
	}
	return nodes
}

// TestRestoreBesideLoss: a blade is lost while a backup is restored, and copies are built of
// what is written meanwhile. No record is missing on any copy, and nothing of what was
// written in vain is left.
func TestRestoreBesideLoss(t *testing.T) {
	const n = 20_000
	from := openMemory(t, txn.Options{})
	if _, err := table(t, from, "t").Load(t.Context(), numbered(0, n), txn.LoadOptions{}); err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	if _, err := from.Backup(t.Context(), &file, txn.BackupOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, leaves := range []bool{false, true} {
		restoreBesideLoss(t, file.Bytes(), n, leaves)
	}
}

func restoreBesideLoss(t *testing.T, file []byte, n int, leaves bool) {
	db := openMemory(t, txn.Options{Blades: 4, Backups: txn.F(1), LeaseTerm: -1, LeafIndex: leaves})
	patiently := func(what string, done func() bool) {
		for end := time.Now().Add(20 * time.Second); !done(); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s: %+v", what, db.Redundancy())
			}
		}
	}
	told := 0
	if _, err := db.Restore(t.Context(), bytes.NewReader(file), txn.BackupOptions{Progress: func(uint64) {
		switch told++; told {
		case 1: // the next transaction finds out, in the midst of its writes
			if err := stopper(t, db).StopBlade(1); err != nil {
				t.Error(err)
			}
		case 2:
			patiently("no copy is built", func() bool {
				r := db.Redundancy()
				return r.Building > 0 || r.BuildDone > 0 || r.Missing == 0
			})
		}
	}}); err != nil {
		t.Fatal(err)
	}
	if told < 3 {
		t.Fatalf("progress was told %d times", told)
	}
	patiently("copies are missing", func() bool { return db.Redundancy().Missing == 0 })
	got := contents(t, db, table(t, db, "t"), uint64(n))
	if len(got) != n {
		t.Errorf("leaves %v: %d records", leaves, len(got))
	}
	nodes := 0
	if leaves {
		nodes = nodesOf(t, n)
	}
	if live := quiet(t, db); live != n+nodes {
		t.Errorf("leaves %v: %d blocks are in use", leaves, live)
	}
}
