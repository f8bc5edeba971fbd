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
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"txnode/index/race"
	"txnode/internal/raced"
	"txnode/memory"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/txn"
	"txnode/verify"
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

// TestDamagedIndex: a table whose index is damaged can not be opened, and says so; the
// others can, also if the database was not closed.
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
	tables, err := db.Space().Tables()
	if err != nil {
		t.Fatal(err)
	}
	v := db.Space().View()
	root := tables[0].Root
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
	spoilRoot(t, o.Dir, v, root)

	for range 2 {
		db = mustOpen(t, o)
		_, err = txn.OpenTable(db, "spoilt", txn.Uint64, txn.Bytes())
		says(t, "OpenTable", err, txn.ErrCorrupt, "spoilt", "seg ")
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

// spoilSlots changes the files of a closed database where they have a record with a needle, of
// which there is one: in the region of every blade, with the slot's place in it, and the block's.
func spoilSlots(t *testing.T, dir string, v *layout.View, needle []byte,
	change func(region []byte, at int, s race.Slot, block uint64)) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "blade-*.region"))
	if err != nil {
		t.Fatal(err)
	}
	spoilt := 0
	for blade, file := range files {
		p, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for at := 0; at+8 <= len(p); at += 8 {
			s := race.Slot(binary.LittleEndian.Uint64(p[at:]))
			if s.Empty() || s.Check() != nil || s.Addr().Offset() == 0 || !v.Valid(s.Addr()) {
				continue
			}
			for i := range v.Copies(s.Addr()) {
				if b := v.At(s.Addr(), i); int(b.Blade) == blade && int(b.Off)+record.LineSize <= len(p) &&
					bytes.Contains(p[b.Off:][:record.LineSize], needle) {
					change(p, at, s, b.Off)
					spoilt++
				}
			}
		}
		if err := os.WriteFile(file, p, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if spoilt != len(files) {
		t.Fatalf("%d slots lead to the record", spoilt)
	}
}

// TestNoRecordLocked: junk in the place of a record is damage, also if it looks as if somebody
// who never was had locked it.
func TestNoRecordLocked(t *testing.T) {
	raced.Skip(t)
	o := tiny()
	o.Dir, o.Retries = t.TempDir(), 3
	needle := []byte("a needle in a haystack")
	spoilSlots(t, o.Dir, hide(t, o, needle).View(), needle, func(region []byte, _ int, _ race.Slot, block uint64) {
		copy(region[block:], bytes.Repeat([]byte{0xff}, record.LineSize))
	})
	db := mustOpen(t, o)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	tab := table(t, db, "t")
	for range 2 {
		says(t, "Get", db.View(ctx, func(tx *txn.Tx) error { _, err := tab.Get(tx, 7); return err }), txn.ErrCorrupt)
		_, err := db.Backup(ctx, io.Discard, txn.BackupOptions{})
		says(t, "Backup", err, txn.ErrCorrupt, "nobody is writing it")
	}
}

// TestSlotToNowhere: a slot that leads to a segment that there is not is damage, for who
// copies the database, too.
func TestSlotToNowhere(t *testing.T) {
	raced.Skip(t)
	o := tiny()
	o.Dir, o.Retries = t.TempDir(), 3
	needle := []byte("a needle in a haystack")
	spoilSlots(t, o.Dir, hide(t, o, needle).View(), needle, func(region []byte, at int, s race.Slot, block uint64) {
		binary.LittleEndian.PutUint64(region[at:],
			uint64(race.MakeSlot(s.Fingerprint(), s.Class(), layout.MakeAddr(4000, 0))))
	})
	db := mustOpen(t, o)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	tab := table(t, db, "t")
	says(t, "Get", db.View(ctx, func(tx *txn.Tx) error { _, err := tab.Get(tx, 7); return err }), txn.ErrCorrupt)
	_, err := db.Backup(ctx, io.Discard, txn.BackupOptions{})
	says(t, "Backup", err, txn.ErrCorrupt, "no segment")
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
	spoilSlots(t, o.Dir, space.View(), needle, func(region []byte, _ int, _ race.Slot, block uint64) {
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

// TestMaintenanceBesideDamage: a coordinator has died, and the index of a table is damaged.
// What it has left in the other tables is swept, which is said once, and not over and over
// again.
func TestMaintenanceBesideDamage(t *testing.T) {
	var said atomic.Int32
	o := tiny()
	o.Dir, o.LeaseTerm = t.TempDir(), 30*time.Millisecond
	o.Logger = zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(zapcore.EncoderConfig{}),
		zapcore.AddSync(io.Discard), zap.WarnLevel),
		zap.Hooks(func(e zapcore.Entry) error {
			if strings.HasPrefix(e.Message, "maintenance has failed") {
				said.Add(1)
			}
			return nil
		}))
	db := mustOpen(t, o)
	fill(t, db, table(t, db, "spoilt"), 3, val(1))
	fill(t, db, table(t, db, "sound"), 3, val(1))
	tables, err := db.Space().Tables()
	if err != nil {
		t.Fatal(err)
	}
	close1(t, db)
	v, root := db.Space().View(), tables[0].Root
	spoilRoot(t, o.Dir, v, root)

	db = mustOpen(t, o)
	sound := table(t, db, "sound")
	if err := db.Update(t.Context(), func(tx *txn.Tx) error { return sound.Delete(tx, 1) }); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Recover(t.Context()); !errors.Is(err, txn.ErrCorrupt) { // as if its lease had expired
		t.Errorf("recovered beside a damaged index: %v", err)
	}
	before, _ := db.Space().Unswept()
	d, err := verify.Attach(db.Space().Fabric(), db.Space().Layout())
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	sum, err := d.Check(t.Context(), verify.Options{Report: func(verify.Finding) error { return nil }})
	if err != nil || sum.Absent != 0 {
		t.Errorf("%d blocks are deleted records still: %v", sum.Absent, err)
	}
	for since := time.Now(); said.Load() == 0 && time.Since(since) < 5*time.Minute; {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(300 * time.Millisecond)
	// Once for each of those who were declared dead, as a worker may be on a machine that is busy.
	after, _ := db.Space().Unswept()
	if n := int(said.Load()); n == 0 || n > 1+int(after-before) {
		t.Errorf("the damage was said %d times", n)
	}
	for k := range uint64(4) {
		if err := db.Update(t.Context(), func(tx *txn.Tx) error { return sound.Put(tx, k, val(2)) }); err != nil {
			t.Error(err)
		}
	}
}

// spoilRoot overwrites all copies of the root of an index, in the files of a database that is
// closed.
func spoilRoot(t *testing.T, dir string, v *layout.View, root layout.Addr) {
	t.Helper()
	for i := range v.Copies(root) {
		at := v.At(root, i)
		f, err := os.OpenFile(filepath.Join(dir, fmt.Sprintf("blade-%03d.region", at.Blade)), os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt([]byte("not the root of an index"), int64(at.Off)); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
