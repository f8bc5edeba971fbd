package txn_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"txnode/internal/raced"
	"txnode/memory"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/txn"
)

// TestZeroedBlock: the primary of a record is zero, as a disk leaves what it has not written: a
// block that is free, to which a slot leads. Whoever only reads is told so, every time alike; who
// writes, too, has it repaired from the other copy, and finds the record; and so does a repair.
func TestZeroedBlock(t *testing.T) {
	raced.Skip(t)
	for _, size := range []int{16, 700} {
		o := tiny()
		o.Dir, o.Retries, o.IndexGroups = t.TempDir(), 3, 128
		db := mustOpen(t, o)
		tab := table(t, db, "t")
		fill(t, db, tab, 3, val(1))
		value := bytes.Repeat([]byte("needle! "), size/8)
		if err := db.Update(t.Context(), func(tx *txn.Tx) error { return tab.Put(tx, 7777, value) }); err != nil {
			t.Fatal(err)
		}
		l := db.Space().Layout()
		close1(t, db)
		zeroPrimary(t, o.Dir, l, value)
		repaired := t.TempDir()
		if err := os.CopyFS(repaired, os.DirFS(o.Dir)); err != nil {
			t.Fatal(err)
		}
		get := func() error {
			return db.View(t.Context(), func(tx *txn.Tx) error {
				v, err := tab.Get(tx, 7777)
				if err == nil && !bytes.Equal(v, value) {
					t.Errorf("another value: %.40q", v)
				}
				return err
			})
		}

		o.ReadOnly = true
		db = mustOpen(t, o)
		tab = table(t, db, "t")
		for range 2 {
			says(t, "Get", get(), txn.ErrCorrupt, "free", "seg ")
		}
		if got := contents(t, db, tab, 3); len(got) != 3 {
			t.Errorf("others: %v", got)
		}
		close1(t, db)

		o.ReadOnly = false
		db = mustOpen(t, o)
		tab = table(t, db, "t")
		for range 2 {
			if err := get(); err != nil {
				t.Error(err)
			}
			err := db.Update(t.Context(), func(tx *txn.Tx) error { return tab.Insert(tx, 7777, val(1)) })
			says(t, "Insert", err, txn.ErrExists)
		}
		if n := db.Metrics().Mended; n != 1 {
			t.Errorf("%d records were mended", n)
		}
		var file bytes.Buffer
		if info, err := db.Backup(t.Context(), &file, txn.BackupOptions{}); err != nil || info.Records != 4 ||
			!bytes.Contains(file.Bytes(), value) {
			t.Errorf("Backup: %v, %d records", err, info.Records)
		}
		for k := uint64(100); k < 600; k++ { // which need blocks, and do not get that one
			if err := db.Update(t.Context(),
				func(tx *txn.Tx) error {
					return tab.Put(tx, k,
						bytes.Repeat([]byte("haystack"), size/8))
				}); err != nil {
				t.Fatal(err)
			}
		}
		if err := get(); err != nil {
			t.Error(err)
		}
		close1(t, db)

		o.Dir = repaired
		checkDamaged(t, o.Dir, "zeroed", true)
		db = mustOpen(t, o)
		tab = table(t, db, "t")
		if err := get(); err != nil {
			t.Error(err)
		}
		close1(t, db)
	}
}

// zeroPrimary clears the primary of the record that has a value, in the files of a
// database that is closed.
func zeroPrimary(t *testing.T, dir string, l *layout.Layout, value []byte) {
	t.Helper()
	blocks := 0
	for id := range l.Segments {
		p := &l.Segments[id].Placement
		if p.N == 0 || l.Segments[id].Kind != layout.KindBlocks {
			continue
		}
		path := filepath.Join(dir, []string{"blade-000.region", "blade-001.region"}[p.Replicas[0].Blade])
		file, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		part := file[p.Replicas[0].Base:][:l.SegmentSize]
		if at := bytes.Index(part, value); at >= 0 {
			start := at &^ (record.LineSize - 1)
			if len(value) > record.LineSize { // it is behind the first line
				start -= record.LineSize
			}
			clear(part[start : at+len(value)])
			blocks++
		}
		if err := os.WriteFile(path, file, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if blocks != 1 {
		t.Fatalf("%d blocks", blocks)
	}
}

// TestZeroedBesideDamage: the same of a process that was killed, and the index of another table is
// damaged, so that there is something left to be swept for ever. The record is repaired all the
// same.
func TestZeroedBesideDamage(t *testing.T) {
	raced.Skip(t)
	o := tiny()
	o.Dir, o.Retries = t.TempDir(), 3
	db := mustOpen(t, o)
	fill(t, db, table(t, db, "spoilt"), 3, val(1))
	tab := table(t, db, "t")
	fill(t, db, tab, 3, val(1))
	value := []byte("a needle in a haystack")
	if err := db.Update(t.Context(), func(tx *txn.Tx) error { return tab.Put(tx, 7777, value) }); err != nil {
		t.Fatal(err)
	}
	tables, err := db.Space().Tables()
	if err != nil {
		t.Fatal(err)
	}
	v, l := db.Space().View(), db.Space().Layout()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(o.Dir)); err != nil {
		t.Fatal(err)
	}
	close1(t, db)
	o.Dir = dir
	spoilRoot(t, dir, v, tables[0].Root)
	zeroPrimary(t, dir, l, value)

	db = mustOpen(t, o)
	tab = table(t, db, "t")
	if !db.Space().OnlyDamage() {
		t.Fatal("nothing is left to be swept")
	}
	get := func() {
		t.Helper()
		err := db.View(t.Context(), func(tx *txn.Tx) error {
			v, err := tab.Get(tx, 7777)
			if err == nil && !bytes.Equal(v, value) {
				t.Errorf("another value: %.40q", v)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
	get()
	for k := uint64(100); k < 400; k++ { // which need blocks, and do not get that one
		if err := db.Update(t.Context(),
			func(tx *txn.Tx) error { return tab.Put(tx, k, []byte("more of the haystack..")) }); err != nil {
			t.Fatal(err)
		}
	}
	get()
	close1(t, db)
	found := 0
	for _, name := range []string{"blade-000.region", "blade-001.region"} {
		p, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		found += bytes.Count(p, value)
	}
	if found == 0 {
		t.Error("the copy was written over")
	}
}

// TestBackupBeforeSweep: a client has died, and what he may have left is not swept yet,
// when a backup meets a record whose primary is zero. It is not left out: it is repaired
// from the other copy.
func TestBackupBeforeSweep(t *testing.T) {
	db, tab, f := disownedDB(t, atOnce, 2)
	needle := []byte("a needle")
	w, err := db.NewWorker()
	if err == nil {
		err = w.Update(t.Context(), func(tx *txn.Tx) error { return tab.Put(tx, 7, needle) })
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	clear(lineOf(t, db, f, needle))
	dead := db.Space().Layout().NextCoordinator
	if w, err = db.NewWorker(); err != nil {
		t.Fatal(err)
	}
	c, err := db.Space().Claim(memory.ClaimOptions{Steal: true}, dead)
	if err == nil {
		err = c.Forget()
	}
	if _, unswept := db.Space().Unswept(); err != nil || !unswept {
		t.Fatalf("nothing is to be swept: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	var file bytes.Buffer
	if _, err := db.Backup(ctx, &file, txn.BackupOptions{}); err != nil || !bytes.Contains(file.Bytes(), needle) {
		t.Errorf("Backup: %v, of %d bytes", err, file.Len())
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}
