package txn_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"txnode/index/bucket"
	"txnode/index/tree"
	"txnode/internal/raced"
	"txnode/memory"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/txn"
)

// hide makes a database that has a value at key 7 of table t, beside others, and closes it.
func hide(t *testing.T, o txn.Options, value []byte) *memory.Space {
	t.Helper()
	db := mustOpen(t, o)
	tab := table(t, db, "t")
	fill(t, db, tab, 3, val(1))
	if err := db.Update(t.Context(), func(tx *txn.Tx) error { return tab.Put(tx, 7, value) }); err != nil {
		t.Fatal(err)
	}
	close1(t, db)
	return db.Space()
}

// spoil changes a byte in the middle of what is found in the files of all blades of a
// closed database.
func spoil(t *testing.T, dir string, what []byte) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "blade-*.region"))
	if err != nil {
		t.Fatal(err)
	}
	spoilt := 0
	for _, file := range files {
		p, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for at := 0; ; spoilt++ {
			i := bytes.Index(p[at:], what)
			if i < 0 {
				break
			}
			at += i + len(what)
			p[at-len(what)/2] ^= 4
		}
		if err := os.WriteFile(file, p, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if spoilt < len(files) {
		t.Fatalf("%q is in %d places", what, spoilt)
	}
}

// TestDamagedRecord: a record whose checksum does not match is said to be damaged, by
// whoever meets it and however it is read, and not taken for a conflict for ever. What is
// not damaged goes on.
func TestDamagedRecord(t *testing.T) {
	raced.Skip(t)
	for _, size := range []int{16, 700, 9000} {
		for _, policy := range policies(t) {
			t.Run(fmt.Sprint(policy, " ", size), func(t *testing.T) {
				o := tiny()
				o.Dir, o.Policy, o.Retries = t.TempDir(), policy, 3
				value := bytes.Repeat([]byte("needle! "), size/8)
				hide(t, o, value)
				spoil(t, o.Dir, value)

				db := mustOpen(t, o)
				tab := table(t, db, "t")
				for range 2 {
					for what, read := range map[string]func(tx *txn.Tx) error{
						"Get": func(tx *txn.Tx) error { _, err := tab.Get(tx, 7); return err },
						"GetForUpdate": func(tx *txn.Tx) error {
							_, err := tab.GetForUpdate(tx, 7)
							return err
						},
						"Get, and Put": func(tx *txn.Tx) error {
							_, err := tab.Get(tx, 7)
							return errors.Join(err, tab.Put(tx, 7, value))
						},
						"Insert":                       func(tx *txn.Tx) error { return tab.Insert(tx, 7, value) },
						"a Get whose error is ignored": func(tx *txn.Tx) error { _, _ = tab.Get(tx, 7); return nil },
					} {
						err := db.Update(t.Context(), read)
						says(t, what, err, txn.ErrCorrupt, "checksum", "seg ")
						if errors.Is(err, txn.ErrConflict) {
							t.Errorf("%s: %v is a conflict, too", what, err)
						}
					}
				}
				_, err := db.Backup(t.Context(), io.Discard, txn.BackupOptions{})
				says(t, "Backup", err, txn.ErrCorrupt, "checksum")
				if err := db.Update(t.Context(), func(tx *txn.Tx) error { return tab.Put(tx, 2, val(5)) }); err != nil {
					t.Error(err)
				}
				close1(t, db)

				o.ReadOnly = true
				db = mustOpen(t, o)
				tab = table(t, db, "t")
				says(t, "a reader",
					db.View(t.Context(), func(tx *txn.Tx) error { _, err := tab.Get(tx, 7); return err }),
					txn.ErrCorrupt)
				if got := contents(t, db, tab, 3); len(got) != 3 || num(got[2]) != 5 {
					t.Errorf("%v", got)
				}
			})
		}
	}
}

// TestDamagedIndex: an operation that needs a leaf that is damaged on all copies says so; the
// others go on, also if the database was not closed.
func TestDamagedIndex(t *testing.T) {
	for _, closed := range []bool{true, false} {
		t.Run(fmt.Sprint("closed=", closed), func(t *testing.T) { damagedIndex(t, closed) })
	}
}

func damagedIndex(t *testing.T, closed bool) {
	o := tiny()
	o.Dir = t.TempDir()
	db := mustOpen(t, o)
	fill(t, db, table(t, db, "spoilt"), 3, val(1))
	fill(t, db, table(t, db, "sound"), 3, val(1))
	v := db.Space().View()
	leaf := db.Leads("spoilt", txn.Uint64.Append(nil, 1))
	if closed {
		close1(t, db)
	} else {
		// The files of a process that was killed in the middle of a transaction which has locks.
		tx, err := db.Begin(t.Context(), false)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := table(t, db, "sound").GetForUpdate(tx, 1); err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		if err := os.CopyFS(dir, os.DirFS(o.Dir)); err != nil {
			t.Fatal(err)
		}
		o.Dir = dir
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
		close1(t, db)
	}
	spoilLeaf(t, o.Dir, v, leaf)

	for range 2 {
		db = mustOpen(t, o)
		spoilt := table(t, db, "spoilt")
		err := db.View(t.Context(), func(tx *txn.Tx) error { _, err := spoilt.Get(tx, 1); return err })
		says(t, "Get", err, txn.ErrCorrupt, fmt.Sprint(leaf))
		err = db.Update(t.Context(), func(tx *txn.Tx) error { return spoilt.Put(tx, 9, val(1)) })
		says(t, "Put", err, txn.ErrCorrupt, fmt.Sprint(leaf))
		sound := table(t, db, "sound")
		for k := range uint64(4) {
			if err := db.Update(t.Context(), func(tx *txn.Tx) error { return sound.Put(tx, k, val(2)) }); err != nil {
				t.Error(err)
			}
		}
		if got := contents(t, db, sound, 4); len(got) != 4 {
			t.Errorf("%v", got)
		}
		_, err = db.Backup(t.Context(), io.Discard, txn.BackupOptions{})
		says(t, "Backup", err, txn.ErrCorrupt, "spoilt")
		var left []txn.Skipped
		_, err = db.Backup(t.Context(), io.Discard, txn.BackupOptions{SkipDamaged: func(x txn.Skipped) {
			left = append(left, x)
		}})
		if err != nil || len(left) != 1 || left[0].Table != "spoilt" || !left[0].Rest {
			t.Errorf("Backup that skips damage: %v, %+v", err, left)
		}
		close1(t, db)
	}

	o.ReadOnly = true
	db = mustOpen(t, o)
	if got := contents(t, db, table(t, db, "sound"), 4); len(got) != 4 {
		t.Errorf("read-only: %v", got)
	}
}

// spoilBlocks changes the files of a closed database where they have the record with a needle, of
// which there is one: in the region of every blade, with the block's place in it.
func spoilBlocks(t *testing.T, dir string, v *layout.View, needle []byte,
	change func(region []byte, block uint64)) {
	t.Helper()
	spoilImages(t, dir, v, func(img record.Image) bool {
		return img.Meta().State() == record.Live && bytes.Contains(img[:record.LineSize], needle)
	}, func(_ layout.Addr, region []byte, block uint64) { change(region, block) })
}

// spoilImages changes the files of a closed database where they have an intact block that is wanted,
// of which there is one.
func spoilImages(t *testing.T, dir string, v *layout.View, wanted func(img record.Image) bool,
	change func(a layout.Addr, region []byte, block uint64)) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "blade-*.region"))
	if err != nil {
		t.Fatal(err)
	}
	regions, spoilt := make([][]byte, len(files)), 0
	for i, file := range files {
		if regions[i], err = os.ReadFile(file); err != nil {
			t.Fatal(err)
		}
	}
	for id := 1; id < v.Segments(); id++ {
		first := layout.MakeAddr(layout.SegmentID(id), 0)
		if !v.Valid(first) {
			continue
		}
		for off := 0; v.Valid(first + layout.Addr(off)); off += record.LineSize {
			a := first + layout.Addr(off)
			at := v.At(a, 0)
			if off > 0 && a.Segment() != first.Segment() || int(at.Off)+record.LineSize > len(regions[at.Blade]) {
				break
			}
			img := record.Image(regions[at.Blade][at.Off:])
			if img.Meta() == 0 {
				continue
			}
			if _, err := img.Check(a); err != nil || !wanted(img) {
				continue
			}
			for k := range v.Copies(a) {
				at := v.At(a, k)
				change(a, regions[at.Blade], at.Off)
				spoilt++
			}
		}
	}
	if spoilt != len(files) {
		t.Fatalf("%d copies are spoilt", spoilt)
	}
	for i, file := range files {
		if err := os.WriteFile(file, regions[i], 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestNoRecordLocked: junk in the place of a record is damage, also if it looks as if somebody
// who never was had locked it.
func TestNoRecordLocked(t *testing.T) {
	raced.Skip(t)
	o := tiny()
	o.Dir, o.Retries = t.TempDir(), 3
	needle := []byte("a needle in a haystack")
	spoilBlocks(t, o.Dir, hide(t, o, needle).View(), needle, func(region []byte, block uint64) {
		copy(region[block:], bytes.Repeat([]byte{0xff}, record.LineSize))
	})
	db := mustOpen(t, o)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	tab := table(t, db, "t")
	for range 2 {
		says(t, "Get", db.View(ctx, func(tx *txn.Tx) error { _, err := tab.Get(tx, 7); return err }), txn.ErrCorrupt)
		_, err := db.Backup(ctx, io.Discard, txn.BackupOptions{})
		says(t, "Backup", err, txn.ErrCorrupt, "no copy of it is intact")
	}
}

// TestEntryToNowhere: an entry of a leaf that leads to a segment that there is not is damage, for a
// backup, too.
func TestEntryToNowhere(t *testing.T) {
	raced.Skip(t)
	o := tiny()
	o.Dir, o.Retries = t.TempDir(), 3
	needle := []byte("a needle in a haystack")
	space := hide(t, o, needle)
	var list []bucket.Linked
	for i, k := range []uint64{0, 1, 2, 7} {
		h := bucket.HashOf(record.Hash(1, txn.Uint64.Append(nil, k)))
		list = append(list, bucket.NewLinked(h, layout.MakeAddr(4000, uint32(i)*record.LineSize), 0))
	}
	slices.SortFunc(list, bucket.Linked.Compare)
	var leaf bucket.Builder
	if n, err := leaf.Load(int(tree.LeafClass.Size())-record.LineSize, list); err != nil || n != 1 {
		t.Fatal(n, err)
	}
	spoilImages(t, o.Dir, space.View(), func(img record.Image) bool {
		return img.Meta().State() == record.Node && img.Meta().Class() == tree.LeafClass && img.Meta().Table() == 1
	}, func(a layout.Addr, region []byte, block uint64) {
		img := record.Image(region[block:][:tree.LeafClass.Size()])
		img.Put(a, img.Version(), record.Node, 1, tree.LeafClass, 0, nil, leaf.AppendBody(leaf.AppendHead(nil, 0, 0), 0))
	})
	db := mustOpen(t, o)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	tab := table(t, db, "t")
	says(t, "Get", db.View(ctx, func(tx *txn.Tx) error { _, err := tab.Get(tx, 7); return err }), txn.ErrCorrupt)
	_, err := db.Backup(ctx, io.Discard, txn.BackupOptions{})
	says(t, "Backup", err, txn.ErrCorrupt)
}

// TestTornByTheLiving: junk in a block that looks as if somebody had written it who is alive, and
// had not come to its end. A backup waits for him, and not for ever.
func TestTornByTheLiving(t *testing.T) {
	raced.Skip(t)
	o := tiny()
	o.Dir, o.Retries = t.TempDir(), 3
	needle := []byte("a needle")
	space := hide(t, o, needle)
	next := space.Layout().NextCoordinator
	spoilBlocks(t, o.Dir, space.View(), needle, func(region []byte, block uint64) {
		binary.LittleEndian.PutUint64(region[block:], uint64(record.MakeTxID(next, 9)))
	})
	db := mustOpen(t, o)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	_, err := db.Backup(ctx, io.Discard, txn.BackupOptions{}) // by that coordinator
	says(t, "Backup", err, txn.ErrCorrupt, "checksum")
}

// TestDamagedFiles: what is wrong with a file of the database is ErrCorrupt, too.
func TestDamagedFiles(t *testing.T) {
	for _, name := range []string{"catalog.db", "blade-001.region"} {
		o := tiny()
		o.Dir = t.TempDir()
		close1(t, mustOpen(t, o))
		f, err := os.OpenFile(filepath.Join(o.Dir, name), os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, at := range []int64{16, 4<<10 + 16} { // both copies of the header
			if _, err := f.WriteAt(bytes.Repeat([]byte("junk"), 8), at); err != nil {
				t.Fatal(err)
			}
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		_, err = txn.Open(t.Context(), o)
		says(t, name, err, txn.ErrCorrupt, name)
	}
}

// spoilLeaf overwrites all copies of a node of an index, in the files of a database that is closed.
func spoilLeaf(t *testing.T, dir string, v *layout.View, leaf layout.Addr) {
	t.Helper()
	for i := range v.Copies(leaf) {
		at := v.At(leaf, i)
		f, err := os.OpenFile(filepath.Join(dir, fmt.Sprintf("blade-%03d.region", at.Blade)), os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt([]byte("not what the leaf of an index says"), int64(at.Off)+record.LineSize); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
