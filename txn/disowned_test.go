package txn_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"txnode/index/race"
	"txnode/internal/raced"
	"txnode/memory/catalog"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/rdma"
	"txnode/rdma/rdmatest"
	"txnode/txn"
)

// disownedDB is a database of which a record's words can be changed while it is open.
func disownedDB(t *testing.T, caps rdma.Caps, workers int) (*txn.DB, *txn.Table[uint64, []byte], *rdmatest.Fabric) {
	t.Helper()
	f := rdmatest.New(rdmatest.Options{Blades: 2, Size: 8 << 20, Seed: 1, Caps: caps})
	db, err := txn.Open(t.Context(), txn.Options{
		Fabric: f, Catalog: &catalog.Mem{}, SegmentSize: 256 << 10,
		LogArea: 64 << 10, IndexGroups: 16, LeaseTerm: -1, Workers: workers, Arena: 1 << 20,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(context.Background()); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return db, table(t, db, "t"), f
}

// lineOf is the first line of the primary of a record with a needle in it.
func lineOf(t *testing.T, db *txn.DB, f *rdmatest.Fabric, needle []byte) []byte {
	t.Helper()
	l := db.Space().Layout()
	for i := range l.Segments {
		p := &l.Segments[i].Placement
		if p.N == 0 {
			continue
		}
		part := f.Memory(p.Replicas[0].Blade)[p.Replicas[0].Base:][:l.SegmentSize]
		if at := bytes.Index(part, needle); at >= 0 && l.Segments[i].Kind == layout.KindBlocks {
			return part[at&^(record.LineSize-1):][:record.LineSize]
		}
	}
	t.Fatal("no needle")
	return nil
}

// TestLockOfTheLiving: a word of a record is damaged so that it looks as if somebody had locked it,
// or written a part of it, who is alive. He is asked, and who meets it is told that it is damaged,
// and of what; somebody who cannot answer is waited for.
func TestLockOfTheLiving(t *testing.T) {
	raced.Skip(t)
	needle := []byte("needle")
	for name, spoil := range map[string]func(line []byte){
		"a bit of the guard": func(line []byte) { line[record.GuardOff] |= 1 },
		"a lock not drawn yet": func(line []byte) {
			id := record.TxID(binary.LittleEndian.Uint64(line[record.GuardOff:]))
			binary.LittleEndian.PutUint64(line[record.GuardOff:],
				uint64(record.HeldBy(record.MakeTxID(id.Coordinator(), 1<<30))))
		},
		"the value":             func(line []byte) { line[bytes.Index(line, needle)] ^= 1 },
		"the value, and locked": func(line []byte) { line[bytes.Index(line, needle)] ^= 1; line[record.GuardOff] |= 1 },
	} {
		for _, c := range []struct {
			who  string
			caps rdma.Caps
		}{{"itself", atOnce}, {"idle", atOnce}, {"away", atOnce}, {"itself", later}, {"idle", later}, {"away", later}} {
			t.Run(fmt.Sprintf("%s, by %s, at once %v", name, c.who, c.caps.Synchronous), func(t *testing.T) {
				db, tab, f := disownedDB(t, c.caps, 2)
				reader, writer := newWorker(t, db), newWorker(t, db)
				defer func() {
					if err := errors.Join(reader.Close(), writer.Close()); err != nil {
						t.Error(err)
					}
				}()
				update := map[string]func(context.Context, func(*txn.Tx) error) error{
					"itself": reader.Update, "idle": db.Update, "away": writer.Update,
				}[c.who]
				for _, k := range []uint64{5, 7} {
					if err := update(t.Context(),
						func(tx *txn.Tx) error { return tab.Put(tx, k, needle[:k-1]) }); err != nil {
						t.Fatal(err)
					}
				}
				get := func() error {
					return reader.View(t.Context(), func(tx *txn.Tx) error { _, err := tab.Get(tx, 7); return err })
				}
				reader.Sleep(1_000_000)
				spoil(lineOf(t, db, f, needle))
				if name == "the value" { // the other copy has it, and no lock is in doubt
					err := reader.Update(t.Context(), func(tx *txn.Tx) error {
						v, err := tab.Get(tx, 7)
						if err == nil && !bytes.Equal(v, needle) {
							t.Errorf("mended, it is %q", v)
						}
						return errors.Join(err, tab.Put(tx, 7, val(1)))
					})
					if _, e := db.Backup(t.Context(), io.Discard, txn.BackupOptions{}); err != nil || e != nil {
						t.Errorf("a value that one copy has: %v, backup: %v", err, e)
					}
					return
				}
				if c.who == "away" { // which is told by nobody
					if err := get(); !errors.Is(err, txn.ErrConflict) {
						t.Fatal(err)
					}
					for range 3 { // when one begins, the last one's verbs may be under way
						if err := update(t.Context(),
							func(tx *txn.Tx) error { return tab.Put(tx, 5, val(5)) }); err != nil {
							t.Fatal(err)
						}
						reader.Sleep(1_000_000)
					}
				}
				says(t, "Get", get(), txn.ErrCorrupt, `table "t"`, "key 0000000000000007", "seg ",
					"closed, ", "can be checked")
				says(t, "Put", reader.Update(t.Context(), func(tx *txn.Tx) error { return tab.Put(tx, 7, needle) }),
					txn.ErrCorrupt)
				if err := reader.View(t.Context(),
					func(tx *txn.Tx) error { _, err := tab.Get(tx, 5); return err }); err != nil {
					t.Error(err)
				}
				if c.who != "idle" {
					return
				}
				_, err := db.Backup(t.Context(), io.Discard, txn.BackupOptions{})
				says(t, "Backup", err, txn.ErrCorrupt)
			})
		}
	}
}

// TestLockedForLong: somebody has locked a record, and keeps it, while a neighbour of his thread
// answers who asks. That is a conflict, and no damage.
func TestLockedForLong(t *testing.T) {
	raced.Skip(t)
	for _, caps := range []rdma.Caps{atOnce, later} {
		db, tab, _ := disownedDB(t, caps, 2)
		if err := db.Update(t.Context(), func(tx *txn.Tx) error { return tab.Put(tx, 7, val(1)) }); err != nil {
			t.Fatal(err)
		}
		locked, over, conflicts := false, false, 0
		err := db.Run(t.Context(), 2, 2, func(ctx context.Context, id int, w *txn.Worker) error {
			switch id {
			case 0:
				return w.Update(ctx, func(tx *txn.Tx) error {
					_, err := tab.GetForUpdate(tx, 7)
					for locked = err == nil; err == nil && !over; {
						w.Sleep(1_000_000)
					}
					return err
				})
			case 1:
				for k := uint64(100); !over; k++ {
					if err := w.Update(ctx,
						func(tx *txn.Tx) error { return tab.Put(tx, k%100+100, val(1)) }); err != nil {
						return err
					}
					w.Sleep(1_000_000)
				}
			case 2:
				defer func() { over = true }()
				for !locked {
					w.Sleep(1_000_000)
				}
				for range 3 {
					for what, fn := range map[string]func(tx *txn.Tx) error{
						"Get": func(tx *txn.Tx) error { _, err := tab.Get(tx, 7); return err },
						"Put": func(tx *txn.Tx) error { return tab.Put(tx, 7, val(2)) },
					} {
						if err := w.Update(ctx, fn); !errors.Is(err, txn.ErrConflict) ||
							errors.Is(err, txn.ErrCorrupt) {
							t.Errorf("%s of what is locked: %v", what, err)
						}
						conflicts++
					}
				}
			}
			return nil
		})
		if err != nil || conflicts != 6 {
			t.Errorf("%d, %v", conflicts, err)
		}
		if err := db.Update(t.Context(), func(tx *txn.Tx) error { return tab.Put(tx, 7, val(3)) }); err != nil {
			t.Error(err)
		}
	}
}

// TestLockOfNobody: a record looks locked by nobody who could ever release it, also since its
// version is damaged, and would look so as a guard. Who opens the database read-only is told, and
// who opens it for writing takes the lock off.
func TestLockOfNobody(t *testing.T) {
	raced.Skip(t)
	needle := []byte("a needle")
	for what, spoil := range map[string]func(version uint64) (newVersion, guard uint64){
		"its bit": func(v uint64) (uint64, uint64) { return v, v | record.HeldBit },
		"junk":    func(v uint64) (uint64, uint64) { return v, 0x5a5a5a5a5a5a5a5b },
		"a version with the bit": func(v uint64) (uint64, uint64) {
			return v | record.HeldBit, v | record.HeldBit
		},
		"a version with it, and junk": func(v uint64) (uint64, uint64) {
			return v | record.HeldBit, 0x5a5a5a5a5a5a5a5b
		},
		"a version with it, and nobody": func(v uint64) (uint64, uint64) { return v | record.HeldBit, 7 },
	} {
		t.Run(what, func(t *testing.T) {
			o := tiny()
			o.Dir, o.Retries = t.TempDir(), 3
			db := mustOpen(t, o)
			tab := table(t, db, "t")
			fill(t, db, tab, 3, val(1))
			if err := db.Update(t.Context(), func(tx *txn.Tx) error { return tab.Put(tx, 7, needle) }); err != nil {
				t.Fatal(err)
			}
			v := db.Space().View()
			close1(t, db)
			sound := false
			spoilSlots(t, o.Dir, v, needle, func(region []byte, _ int, _ race.Slot, block uint64) {
				line := region[block:]
				version, guard := spoil(binary.LittleEndian.Uint64(line))
				sound = binary.LittleEndian.Uint64(line) == version
				binary.LittleEndian.PutUint64(line, version)
				binary.LittleEndian.PutUint64(line[record.GuardOff:], guard)
			})
			for _, o.ReadOnly = range []bool{true, false} {
				db = mustOpen(t, o)
				tab = table(t, db, "t")
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
				defer cancel()
				for range 2 {
					get := db.View(ctx, func(tx *txn.Tx) error { _, err := tab.Get(tx, 7); return err })
					if sound && !o.ReadOnly {
						if get != nil {
							t.Errorf("Get: %v", get)
						}
						continue
					}
					says(t, "Get", get, txn.ErrCorrupt, "seg ", "key 0000000000000007")
					_, err := db.Backup(ctx, io.Discard, txn.BackupOptions{})
					says(t, "Backup", err, txn.ErrCorrupt)
					if !o.ReadOnly {
						says(t, "Put", db.Update(ctx, func(tx *txn.Tx) error { return tab.Put(tx, 7, needle) }),
							txn.ErrCorrupt)
					}
				}
				close1(t, db)
			}
		})
	}
}
