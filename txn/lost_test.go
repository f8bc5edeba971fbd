package txn_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"txnode/index"
	"txnode/index/race"
	"txnode/internal/raced"
	"txnode/memory/embedded"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/rdma"
	"txnode/rdma/rdmatest"
	"txnode/txn"
)

// lostTables is a database in a directory with some tables of some hundred records each.
func lostTables(t *testing.T, o txn.Options, tables int) {
	t.Helper()
	ctx := context.Background()
	db, err := txn.Open(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	for i := range tables {
		table, err := txn.CreateTable(db, fmt.Sprint("table ", i), txn.Uint64, txn.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		for k := range uint64(300) {
			if err := db.Update(ctx, func(tx *txn.Tx) error { return table.Put(tx, k, lostValue(i, k)) }); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := db.Close(ctx); err != nil {
		t.Fatal(err)
	}
}

func lostValue(table int, k uint64) []byte {
	return []byte(strings.Repeat(fmt.Sprint(table, ":", k, ";"), 1+int(k%7)*20))
}

// readLost reads every record, and writes it again, and tells how many are there and how
// many are lost. Any other error, or value, is a failure.
func readLost(t *testing.T, db *txn.DB, tables int) (there, lost int) {
	t.Helper()
	ctx := context.Background()
	for i := range tables {
		table, err := txn.OpenTable(db, fmt.Sprint("table ", i), txn.Uint64, txn.Bytes())
		if errors.Is(err, txn.ErrLost) {
			lost += 300
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		for k := range uint64(300) {
			err := db.Update(ctx, func(tx *txn.Tx) error {
				v, err := table.Get(tx, k)
				if err == nil && string(v) != string(lostValue(i, k)) {
					return fmt.Errorf("key %d of table %d is %.20q", k, i, v)
				}
				if err != nil {
					return err
				}
				return table.Put(tx, k, v)
			})
			switch {
			case err == nil:
				there++
			case errors.Is(err, txn.ErrLost):
				lost++
			default:
				t.Fatal(err)
			}
		}
	}
	return there, lost
}

// TestReplaceLost: region files of a directory at rest are removed, or made blank. The
// database is refused, with the reason and the remedy; opened with ReplaceLost, it has
// everything as long as a copy is left, builds the others anew, and is whole when it is
// opened again without.
func TestReplaceLost(t *testing.T) {
	raced.Skip(t)
	ctx := context.Background()
	for _, c := range []struct {
		blades, backups int
		gone            []int
		blank           bool
	}{{2, 1, []int{0}, false}, {3, 1, []int{1}, true}, {4, 2, []int{1, 3}, false}} {
		t.Run(fmt.Sprintf("%d blades, f=%d, without %v, blank %v", c.blades, c.backups, c.gone,
			c.blank), func(t *testing.T) {
			o := txn.Options{
				Dir: filepath.Join(t.TempDir(), "db"), Blades: c.blades, Backups: txn.F(c.backups),
				BladeSize: 64 << 20, SegmentSize: 256 << 10, LogArea: 64 << 10, IndexGroups: 16,
			}
			lostTables(t, o, 3)
			for _, b := range c.gone {
				path := filepath.Join(o.Dir, fmt.Sprintf("blade-%03d.region", b))
				st, err := os.Stat(path)
				if err != nil {
					t.Fatal(err)
				}
				if err := os.Remove(path); err != nil {
					t.Fatal(err)
				}
				if c.blank {
					if err := errors.Join(os.WriteFile(path, nil, 0o644), os.Truncate(path, st.Size())); err != nil {
						t.Fatal(err)
					}
				}
			}
			if lost, missing, err := embedded.Lost(o.Dir); err != nil || missing != 0 || len(lost) != len(c.gone) {
				t.Errorf("lost are %v, %v", lost, err)
			}
			if _, err := txn.Open(ctx, o); err == nil || !strings.Contains(err.Error(), "--replace-lost") ||
				!strings.Contains(err.Error(), fmt.Sprintf("blade-%03d.region", c.gone[0])) {
				t.Fatalf("opened without its regions: %v", err)
			}
			o.ReplaceLost = true
			db, err := txn.Open(ctx, o)
			if err != nil {
				t.Fatal(err)
			}
			if there, lost := readLost(t, db, 3); there != 900 || lost != 0 {
				t.Errorf("%d records are there, %d lost", there, lost)
			}
			whole(t, db, 0)
			audit(t, db)
			if err := db.Close(ctx); err != nil {
				t.Fatal(err)
			}
			o.ReplaceLost = false
			if db, err = txn.Open(ctx, o); err != nil {
				t.Fatal(err)
			}
			if there, lost := readLost(t, db, 3); there != 900 || lost != 0 {
				t.Errorf("opened again: %d records are there, %d lost", there, lost)
			}
			audit(t, db)
			if err := db.Close(ctx); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestReplaceTooMany: with every copy of some segments in the files that are gone, what
// was in them fails with an error that says so, and the rest works.
func TestReplaceTooMany(t *testing.T) {
	raced.Skip(t)
	ctx := context.Background()
	o := txn.Options{
		Dir: filepath.Join(t.TempDir(), "db"), Blades: 4, Backups: txn.F(1), BladeSize: 64 << 20,
		SegmentSize: 256 << 10, LogArea: 64 << 10, IndexGroups: 16,
	}
	lostTables(t, o, 8)
	for _, b := range []int{0, 1} {
		if err := os.Remove(filepath.Join(o.Dir, fmt.Sprintf("blade-%03d.region", b))); err != nil {
			t.Fatal(err)
		}
	}
	o.ReplaceLost = true
	for range 2 { // the second time nothing is missing any more
		db, err := txn.Open(ctx, o)
		if err != nil {
			t.Fatal(err)
		}
		there, lost := readLost(t, db, 8)
		if there == 0 || lost == 0 || there+lost != 8*300 {
			t.Errorf("%d records are there, %d lost", there, lost)
		}
		table, err := txn.CreateTable(db, "another", txn.Uint64, txn.Plain[int64]())
		if err == nil {
			err = db.Update(ctx, func(tx *txn.Tx) error { return table.Put(tx, 1, 2) })
		}
		if err != nil {
			t.Errorf("a table that is made now: %v", err)
		}
		whole(t, db, 0)
		if err := db.Close(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Remove(filepath.Join(o.Dir, "blade-000.region")),
		os.Remove(filepath.Join(o.Dir, "blade-001.region")),
		os.Remove(filepath.Join(o.Dir, "blade-002.region")),
		os.Remove(filepath.Join(o.Dir, "blade-003.region"))); err != nil {
		t.Fatal(err)
	}
	if _, err := txn.Open(ctx, o); !errors.Is(err, txn.ErrLost) {
		t.Errorf("opened without any region: %v", err)
	}
}

// TestLockedBesideLostIndex: somebody has died who had locked a deleted record, and then the
// index of its table is lost. Who knows where that record is gets told so, and not that
// others are in the way.
func TestLockedBesideLostIndex(t *testing.T) {
	f := rdmatest.New(rdmatest.Options{Blades: 4, Size: 8 << 20, Caps: atOnce, Seed: 1})
	o := onFabric(f, txn.PolicyDefault)
	o.Backups = txn.F(1)
	db := mustOpen(t, o)
	tab := table(t, db, "t")
	const n = 12 // records in segments of many classes, some of which have no blade in common with it
	for k := range uint64(n) {
		if err := db.Update(t.Context(),
			func(tx *txn.Tx) error { return tab.Put(tx, k, make([]byte, 20<<k)) }); err != nil {
			t.Fatal(err)
		}
	}
	tables, err := db.Space().Tables()
	if err != nil {
		t.Fatal(err)
	}
	th, err := rdma.NewThread(f, rdma.ThreadOptions{Index: 100, Techniques: rdma.AllTechniques, Arena: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	v, root := db.Space().View(), tables[0].Root
	ix, err := race.Open(th.Plain(), db.Space(), root, tables[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	lost := map[rdma.BladeID]bool{v.At(root, 0).Blade: true, v.At(root, 1).Blade: true}
	dead := db.Space().Layout().NextCoordinator
	w := newWorker(t, db)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	var keys []uint64
	var guards []record.Image
	if err := ix.Walk(th.Plain(), func(_ layout.Addr, x index.Candidate) error {
		p := v.At(x.Addr, 0)
		line := record.Image(f.Memory(p.Blade)[p.Off:][:record.LineSize])
		if k := uint64(line.Key()[7]); k < n && !lost[p.Blade] && !lost[v.At(x.Addr, 1).Blade] {
			keys, guards = append(keys, k), append(guards, line)
		}
		return nil
	}); err != nil || len(keys) == 0 {
		t.Fatal(keys, err)
	}
	for i, k := range keys {
		if err := db.Update(t.Context(), func(tx *txn.Tx) error { return tab.Delete(tx, k) }); err != nil {
			t.Fatal(err)
		}
		if err := db.View(t.Context(), func(tx *txn.Tx) error { _, err := tab.Get(tx, k); return err }); !errors.Is(err,
			txn.ErrNotFound) {
			t.Fatal(err)
		}
		guards[i].SetGuard(record.HeldBy(record.MakeTxID(dead, 7)))
	}
	for b := range lost {
		if err := f.StopBlade(b); err != nil {
			t.Fatal(err)
		}
	}
	for _, k := range keys {
		says(t, "Get", db.View(t.Context(), func(tx *txn.Tx) error { _, err := tab.Get(tx, k); return err }),
			txn.ErrLost)
		says(t, "Put", db.Update(t.Context(), func(tx *txn.Tx) error { return tab.Put(tx, k, val(1)) }), txn.ErrLost)
	}
}

// TestNoWorkerLeavesNothing: while the last blade is gone, nobody can have a worker, and programs
// try again, as often as they are asked for something. That takes no memory.
func TestNoWorkerLeavesNothing(t *testing.T) {
	o := tiny()
	o.Blades, o.Backups = 1, txn.F(0)
	db := mustOpen(t, o)
	if err := db.Space().Fabric().(rdma.Stopper).StopBlade(0); err != nil {
		t.Fatal(err)
	}
	try := func(n int) (used uint64) {
		for range n {
			if w, err := db.NewWorker(); err == nil { // there were log areas left
				if err := w.Close(); err != nil && !errors.Is(err, txn.ErrLost) && !errors.Is(err, txn.ErrBroken) {
					t.Fatal(err)
				}
			}
		}
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := try(200)
	if after := try(2000); after > before+1<<20 {
		t.Errorf("2,000 workers that nobody got have taken %d bytes", after-before)
	}
	if w, err := db.NewWorker(); err == nil {
		t.Error("a worker without a blade", w.Close())
	}
}
