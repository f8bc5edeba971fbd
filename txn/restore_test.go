package txn_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"txnode/internal/raced"
	"txnode/memory/embedded"
	"txnode/occ"
	"txnode/txn"
	"txnode/txn/snapshot"
)

// A directory appears only when its restore is complete, and a damaged backup
// leaves nothing behind.
func TestRestoreRefuses(t *testing.T) {
	ctx := context.Background()
	db := openMemory(t, txn.Options{})
	raw, err := txn.CreateRawTable(db, "t")
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Update(ctx, func(tx *txn.Tx) error { return raw.Put(tx, []byte("k"), []byte("v")) }); err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	if _, err := db.Backup(ctx, &file, txn.BackupOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Restore(ctx, bytes.NewReader(file.Bytes()), txn.BackupOptions{}); err == nil {
		t.Error("restored into a database that has tables")
	}
	dir := t.TempDir()
	for name, damaged := range map[string][]byte{
		"cut":     file.Bytes()[:file.Len()-1],
		"changed": append(append(slices.Clone(file.Bytes()[:40]), file.Bytes()[40]^1), file.Bytes()[41:]...),
		"longer":  append(slices.Clone(file.Bytes()), 0),
		"foreign": []byte("something else"),
		"empty":   nil,
	} {
		_, err := txn.RestoreDir(ctx, bytes.NewReader(damaged), filepath.Join(dir, name), txn.Options{},
			txn.BackupOptions{})
		if !errors.Is(err, snapshot.ErrDamaged) && !errors.Is(err, snapshot.ErrFormat) {
			t.Errorf("%s: %v", name, err)
		}
	}
	ended, end := context.WithCancel(ctx)
	end()
	if _, err := txn.RestoreDir(ended, bytes.NewReader(file.Bytes()), filepath.Join(dir, "deep", "deeper", "copy"),
		txn.Options{}, txn.BackupOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("a restore that is ended: %v", err)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) > 0 {
		t.Errorf("left behind: %v, %v", files, err)
	}
	// One at a time, and a writer that fails is reported.
	if _, err := db.Backup(ctx, failingWriter{}, txn.BackupOptions{}); !errors.Is(err, os.ErrPermission) {
		t.Errorf("a backup to a file that can not be written: %v", err)
	}
	if _, err := db.Backup(ctx, &file, txn.BackupOptions{}); err != nil {
		t.Errorf("a backup after one that failed: %v", err)
	}
}

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, os.ErrPermission }

// smallBackup is a backup of a table "t" with three records.
func smallBackup(t *testing.T) []byte {
	t.Helper()
	db := mustOpen(t, tiny())
	fill(t, db, table(t, db, "t"), 3, val(1))
	var file bytes.Buffer
	if _, err := db.Backup(t.Context(), &file, txn.BackupOptions{}); err != nil {
		t.Fatal(err)
	}
	return file.Bytes()
}

// TestRestoreDirNames: a directory may be written with a slash at its end, or below others
// that are not there yet; an empty one may be there.
func TestRestoreDirNames(t *testing.T) {
	file := smallBackup(t)
	restore := func(dir string) error {
		_, err := txn.RestoreDir(t.Context(), bytes.NewReader(file), dir, txn.Options{Backups: txn.F(0), Blades: 1},
			txn.BackupOptions{})
		return err
	}
	top := t.TempDir()
	if err := os.Mkdir(filepath.Join(top, "empty"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"slash", "empty", "below/others"} {
		dir := filepath.Join(top, name) + "/"
		if err := restore(dir); err != nil {
			t.Fatal(err)
		}
		copied := mustOpen(t, txn.Options{Dir: dir, ReadOnly: true})
		if got := contents(t, copied, table(t, copied, "t"), 3); len(got) != 3 {
			t.Errorf("%s: %v", name, got)
		}
		if err := restore(dir); err == nil || !strings.Contains(err.Error(), "not empty") {
			t.Errorf("%s: %v", name, err)
		}
	}
	t.Chdir(top)
	if err := restore(""); err == nil || !strings.Contains(err.Error(), "name") {
		t.Errorf("no name: %v", err)
	}
	if left, err := filepath.Glob(top + "*.restoring"); err != nil || len(left) != 0 {
		t.Errorf("%v, %v", left, err)
	}
}

// TestRestoreDirThere: a directory that is there stays the same one, whatever leads to it, and what
// comes to be meanwhile is left alone.
func TestRestoreDirThere(t *testing.T) {
	raced.Skip(t)
	file := smallBackup(t)
	busy := t.TempDir() // two at once: nobody is told to remove what the other is at work in
	if _, err := txn.RestoreDir(t.Context(), bytes.NewReader(file), busy, txn.Options{},
		txn.BackupOptions{Progress: func(uint64) {
			if _, err := txn.RestoreDir(t.Context(), bytes.NewReader(file), busy, txn.Options{},
				txn.BackupOptions{}); err == nil || !strings.Contains(err.Error(), "another restore") {
				t.Error(err)
			}
		}}); err != nil {
		t.Error(err)
	}
	top := t.TempDir()
	at := func(name string) string { return filepath.Join(top, name) }
	restore := func(name string, progress func(uint64)) error {
		o := txn.Options{Backups: txn.F(0), Blades: 1}
		_, err := txn.RestoreDir(t.Context(), bytes.NewReader(file), at(name), o, txn.BackupOptions{Progress: progress})
		return err
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.Mkdir(at("private"), 0o700))
	must(os.Mkdir(at("private/lost+found"), 0o700))
	must(os.Symlink("private", at("link")))
	must(restore("link", nil))
	if st, err := os.Lstat(at("link")); err != nil || st.Mode()&fs.ModeSymlink == 0 {
		t.Errorf("the link is %v, %v", st, err)
	}
	if st, err := os.Stat(at("private")); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("the directory is %v, %v", st, err)
	}
	copied := mustOpen(t, txn.Options{Dir: at("private"), ReadOnly: true})
	if got := contents(t, copied, table(t, copied, "t"), 3); len(got) != 3 {
		t.Error(got)
	}
	if _, err := os.Stat(at("private/restoring")); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	must(os.Symlink("nowhere", at("dangling")))
	if err := restore("dangling", nil); err == nil || !strings.Contains(err.Error(), "is a link") {
		t.Error(err)
	}
	// Somebody else makes something of that name, or uses the directory.
	for _, name := range []string{"file", "used/blade-000.region", "used/catalog.db"} {
		must(os.MkdirAll(filepath.Dir(at(name)), 0o755))
		dir, _, _ := strings.Cut(name, "/")
		if err := restore(dir, func(uint64) { must(os.WriteFile(at(name), []byte("mine"), 0o644)) }); err == nil {
			t.Errorf("%s was overwritten", name)
		}
		if p, err := os.ReadFile(at(name)); string(p) != "mine" {
			t.Errorf("%s: %q, %v", name, p, err)
		}
		must(os.Remove(at(name)))
		if files, _ := os.ReadDir(at("used")); len(files) > 0 {
			t.Errorf("%v are left", files)
		}
	}
	// Who is told of the progress panics.
	for range 2 {
		for _, name := range []string{"used", "new"} {
			func() {
				defer func() {
					if p := recover(); p != "enough" {
						t.Errorf("%s: %v", name, p)
					}
				}()
				t.Error(restore(name, func(uint64) { panic("enough") }))
			}()
		}
	}
	must(restore("used", nil))
	must(restore("new", nil))
	if left, err := filepath.Glob(at("*restoring")); err != nil || len(left) != 0 {
		t.Errorf("%v, %v", left, err)
	}
}

// TestRestoreStoppedWhileMoving: who dies while he moves the files of a restore into a directory
// that is there leaves nothing that opens as a database: what opens it, or restores to it, says so,
// as long as a region is there.
func TestRestoreStoppedWhileMoving(t *testing.T) {
	whole := filepath.Join(t.TempDir(), "whole")
	if _, err := txn.RestoreDir(t.Context(), bytes.NewReader(smallBackup(t)), whole, txn.Options{},
		txn.BackupOptions{}); err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir(whole)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "restoring"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if f.Name() == embedded.CatalogName || f.Name() == "LOCK" {
			continue
		}
		if err := os.Rename(filepath.Join(whole, f.Name()), filepath.Join(dir, f.Name())); err != nil {
			t.Fatal(err)
		}
		if db, err := txn.Open(t.Context(), txn.Options{Dir: dir}); err == nil {
			close1(t, db)
			t.Errorf("with %s it opens", f.Name())
		}
		if _, err := txn.RestoreDir(t.Context(), bytes.NewReader(smallBackup(t)), dir, txn.Options{},
			txn.BackupOptions{}); err == nil || !strings.Contains(err.Error(), "not empty") {
			t.Errorf("with %s: %v", f.Name(), err)
		}
	}
}

// TestRestoreUnwound: a database into which a restore was, that a panic unwound, can be closed.
func TestRestoreUnwound(t *testing.T) {
	file := smallBackup(t)
	to, err := txn.Open(t.Context(), tiny())
	if err != nil {
		t.Fatal(err)
	}
	func() {
		defer func() { _ = recover() }()
		_, _ = to.Restore(t.Context(), bytes.NewReader(file), txn.BackupOptions{Progress: func(uint64) {
			panic("enough")
		}})
	}()
	if err := to.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestRestoreOfFull: the backup of a database that is full can be restored, though its blocks and
// indexes lie otherwise.
func TestRestoreOfFull(t *testing.T) {
	raced.Skip(t)
	step := 250
	if testing.Short() {
		step = 600
	}
	for size := 8; size <= 1000; size += step {
		db := openMemory(t, txn.Options{
			BladeSize: 8 << 20, SegmentSize: 256 << 10, LogArea: 16 << 10, CacheBytes: 1 << 20, Blades: 2,
		})
		tab := table(t, db, "t")
		n := uint64(0)
		for ; ; n++ {
			err := db.Update(t.Context(), func(tx *txn.Tx) error { return tab.Put(tx, n, make([]byte, size)) })
			if errors.Is(err, txn.ErrNoSpace) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
		}
		if _, err := txn.CreateTable(db, "late", txn.Uint64, txn.Bytes()); err != nil &&
			!errors.Is(err, txn.ErrNoSpace) {
			t.Fatal(err)
		}
		var file bytes.Buffer
		if _, err := db.Backup(t.Context(), &file, txn.BackupOptions{}); err != nil {
			t.Fatal(err)
		}
		o := txn.Options{Dir: filepath.Join(t.TempDir(), "copy")}
		if _, err := txn.RestoreDir(t.Context(), bytes.NewReader(file.Bytes()), o.Dir, o,
			txn.BackupOptions{}); err != nil {
			t.Fatalf("%d records of %d bytes: %v", n, size, err)
		}
		copied := mustOpen(t, o)
		if got := contents(t, copied, table(t, copied, "t"), n); uint64(len(got)) != n {
			t.Errorf("%d records of %d", len(got), n)
		}
		o.Dir, o.BladeSize = filepath.Join(t.TempDir(), "small"), 4<<20
		_, err := txn.RestoreDir(t.Context(), bytes.NewReader(file.Bytes()), o.Dir, o, txn.BackupOptions{})
		says(t, "blades of a size that was given",
			err, txn.ErrNoSpace, "2 blades of 4194304 bytes are too small for 2 copies",
			"give a larger BladeSize, or none")
		if strings.Contains(fmt.Sprint(err), "delete records") {
			t.Errorf("nothing can be deleted: %v", err)
		}
	}
}

// TestRestoreLargeRecords: a record that just fits a transaction is restored in one of its
// own, whatever comes before it.
func TestRestoreLargeRecords(t *testing.T) {
	ctx := context.Background()
	o := txn.Options{BladeSize: 256 << 20, SegmentSize: 1 << 20, LogArea: 1 << 17, CacheBytes: 1 << 20}
	db := openMemory(t, o)
	table, err := txn.CreateTable(db, "t", txn.Uint64, txn.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	const keys = 200
	size := func(k uint64) int {
		if k%8 == 0 {
			return int(o.LogArea) - 500
		}
		return 1000
	}
	for k := range uint64(keys) {
		if err := db.Update(ctx,
			func(tx *txn.Tx) error { return table.Put(tx, k, make([]byte, size(k))) }); err != nil {
			t.Fatal(err)
		}
	}
	var file bytes.Buffer
	if _, err := db.Backup(ctx, &file, txn.BackupOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := openMemory(t, o).Restore(ctx, bytes.NewReader(file.Bytes()), txn.BackupOptions{}); err != nil {
		t.Fatal(err)
	}
}

// TestRestoreToLargerSegments: blades are as large as larger segments need, if it is not said how
// large: each class of blocks begins one.
func TestRestoreToLargerSegments(t *testing.T) {
	ctx := context.Background()
	db := openMemory(t, txn.Options{
		BladeSize: 16 << 20, SegmentSize: 256 << 10, LogArea: 64 << 10, CacheBytes: 1 << 20, Blades: 2,
	})
	tab := table(t, db, "t")
	const sizes = 30
	size := func(k uint64) int { return 64 << (k / 3) >> (k % 3) }
	for k := range uint64(sizes) {
		if err := db.Update(ctx, func(tx *txn.Tx) error { return tab.Put(tx, k, make([]byte, size(k))) }); err != nil {
			t.Fatal(k, err)
		}
	}
	var file bytes.Buffer
	if _, err := db.Backup(ctx, &file, txn.BackupOptions{}); err != nil {
		t.Fatal(err)
	}
	o := txn.Options{SegmentSize: 8 << 20}
	dir := filepath.Join(t.TempDir(), "copy")
	if _, err := txn.RestoreDir(ctx, bytes.NewReader(file.Bytes()), dir, o, txn.BackupOptions{}); err != nil {
		t.Fatal(err)
	}
	o.Dir = dir
	db = mustOpen(t, o)
	tab = table(t, db, "t")
	for k := range uint64(sizes) {
		err := db.View(ctx, func(tx *txn.Tx) error {
			v, err := tab.Get(tx, k)
			if err == nil && len(v) != size(k) {
				err = fmt.Errorf("%d bytes, want %d", len(v), size(k))
			}
			return err
		})
		if err != nil {
			t.Errorf("key %d: %v", k, err)
		}
	}
}

// TestRestoreToSmallLog: a database whose log takes a few records at a time, or one, can be had
// again from its backup, as it was.
func TestRestoreToSmallLog(t *testing.T) {
	ctx := context.Background()
	for _, log := range []uint32{4 << 10, 16 << 10} {
		db := openMemory(t, txn.Options{
			BladeSize: 64 << 20, SegmentSize: 256 << 10, LogArea: log, CacheBytes: 1 << 20, Blades: 2,
		})
		tab := table(t, db, "t")
		const keys = 300
		size := func(k uint64) int { return int(k) * 17 % 3500 }
		for k := range uint64(keys) {
			if err := db.Update(ctx,
				func(tx *txn.Tx) error { return tab.Put(tx, k, make([]byte, size(k))) }); err != nil {
				t.Fatal(k, err)
			}
		}
		var file bytes.Buffer
		if _, err := db.Backup(ctx, &file, txn.BackupOptions{}); err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(t.TempDir(), "copy")
		var said uint64
		if _, err := txn.RestoreDir(ctx, bytes.NewReader(file.Bytes()), dir, txn.Options{},
			txn.BackupOptions{Progress: func(n uint64) { said = n }}); err != nil {
			t.Errorf("a log of %d bytes: %v", log, err)
			continue
		}
		if said != keys {
			t.Errorf("%d records are said to be done, of %d", said, keys)
		}
		db = mustOpen(t, txn.Options{Dir: dir})
		tab = table(t, db, "t")
		got := contents(t, db, tab, keys+1)
		for k := range uint64(keys) {
			if v, ok := got[k]; !ok || len(v) != size(k) {
				t.Errorf("key %d: %d bytes, want %d", k, len(v), size(k))
			}
		}
	}
}

// TestRestoreFull: a database that fills its blades, and whose index is more than three quarters
// full, can be restored to blades of the same size.
func TestRestoreFull(t *testing.T) {
	raced.Skip(t)
	o := spaceOptions(occ.PolicyDefault, 18)
	const groups, tables = 200, 16
	o.IndexGroups = groups
	from := mustOpen(t, o)
	tab := table(t, from, "t")
	insert := func(k uint64) error {
		return from.Update(t.Context(), func(tx *txn.Tx) error { return tab.Insert(tx, k, val(k)) })
	}
	n := uint64(0)
	for insert(n) == nil {
		n++
	}
	if s := from.Splits("t"); s != tables-1 || n <= groups*21*tables*3/4 {
		t.Fatalf("%d records, %d splits", n, s)
	}
	var file bytes.Buffer
	if _, err := from.Backup(t.Context(), &file, txn.BackupOptions{}); err != nil {
		t.Fatal(err)
	}
	if info, err := mustOpen(t, o).Restore(t.Context(), bytes.NewReader(file.Bytes()),
		txn.BackupOptions{}); err != nil || info.Records != n {
		t.Errorf("%d of %d records: %v", info.Records, n, err)
	}
}
