package txn_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"txnode/internal/raced"
	"txnode/memory/catalog"
	"txnode/memory/layout"
	"txnode/occ"
	"txnode/rdma"
	"txnode/rdma/rdmatest"
	"txnode/txn"
	"txnode/verify"
)

// slotted are the tables of a database of an earlier version: "t" of n keys, some of which are
// deleted, and some changed; "empty"; "gone", which is dropped; "ordered"; and "people", which has
// indexes.
type slotted struct {
	n      uint64
	values map[uint64][]byte // of "t"
}

func newSlotted(t testing.TB, db *txn.DB, n uint64) *slotted {
	t.Helper()
	s := &slotted{n: n, values: map[uint64][]byte{}}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	gone := table(t, db, "gone")
	_, err := gone.Load(t.Context(), numbered(0, n/8), txn.LoadOptions{})
	check(err)
	table(t, db, "empty")
	tab := table(t, db, "t")
	_, err = tab.Load(t.Context(), numbered(0, n), txn.LoadOptions{})
	check(err)
	maps.Insert(s.values, numbered(0, n))
	for k := uint64(0); k < n; k += 7 {
		check(db.Update(t.Context(), func(tx *txn.Tx) error {
			if k%2 == 0 {
				delete(s.values, k)
				return tab.Delete(tx, k)
			}
			s.values[k] = bytes.Repeat([]byte{1}, int(k%1500)) // some need a larger block
			return tab.Put(tx, k, s.values[k])
		}))
	}
	_, err = inOrder(t, db, "ordered").Load(t.Context(), numbered(0, n/8), txn.LoadOptions{})
	check(err)
	byName, byMail := peopleIndexes()
	people, err := txn.CreateTable(db, "people", txn.Uint64, txn.JSON[person](), byName, byMail)
	check(err)
	for k := range n / 20 {
		check(db.Update(t.Context(), func(tx *txn.Tx) error {
			return people.Insert(tx, k, person{fmt.Sprint("name", k%5), fmt.Sprint("mail", k)})
		}))
	}
	check(db.DropTable(t.Context(), "gone"))
	return s
}

// holds demands that all is there, and can be changed.
func (s *slotted) holds(t testing.TB, what string, db *txn.DB) {
	t.Helper()
	tab := table(t, db, "t")
	same(t, what, contents(t, db, tab, s.n+10), s.values)
	all := map[uint64][]byte{}
	if err := db.View(t.Context(), func(tx *txn.Tx) error {
		clear(all)
		for k, v := range tab.All(tx) {
			all[k] = bytes.Clone(v)
		}
		return tx.Err()
	}); err != nil || !maps.EqualFunc(all, s.values, bytes.Equal) {
		t.Errorf("%s: all records: %d of %d, or others; %v", what, len(all), len(s.values), err)
	}
	if got := contents(t, db, table(t, db, "empty"), 10); len(got) > 0 {
		t.Errorf("%s: the empty table has %d records", what, len(got))
	}
	if got := contents(t, db, inOrder(t, db, "ordered").Table, s.n/8+1); uint64(len(got)) != s.n/8 {
		t.Errorf("%s: the ordered table has %d records", what, len(got))
	}
	byName, byMail := peopleIndexes()
	people, err := txn.OpenTable(db, "people", txn.Uint64, txn.JSON[person](), byName, byMail)
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	if err := db.View(t.Context(), func(tx *txn.Tx) error {
		n := uint64(0)
		for mail, k := range byMail.Range(tx, txn.Bound[string]{}, txn.Bound[string]{}) {
			if p, err := people.Get(tx, k); err != nil || p.Mail != mail {
				return fmt.Errorf("mail %q leads to %d, which has %q: %w", mail, k, p.Mail, err)
			}
			n++
		}
		if n != s.n/20 {
			return fmt.Errorf("%d mails", n)
		}
		return tx.Err()
	}); err != nil {
		t.Errorf("%s: people: %v", what, err)
	}
	for _, k := range []uint64{0, 1, 14, s.n + 3} { // deleted, present, deleted, never there
		if err := db.Update(t.Context(), func(tx *txn.Tx) error {
			err := tab.Insert(tx, k, val(k))
			if _, there := s.values[k]; there != errors.Is(err, txn.ErrExists) {
				return fmt.Errorf("insert: %w", err)
			}
			if err = tab.Put(tx, k, val(k+1)); err != nil {
				return err
			}
			if err = tab.Delete(tx, k); err != nil {
				return err
			}
			if v, there := s.values[k]; there {
				return tab.Put(tx, k, v)
			}
			return nil
		}); err != nil {
			t.Errorf("%s: key %d: %v", what, k, err)
		}
	}
}

// indexed demands that all hash tables have leaves, or slots, and returns how many have leaves.
func indexed(t testing.TB, what string, db *txn.DB, all bool) (leaves int) {
	t.Helper()
	ts, err := db.Space().Tables()
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range ts {
		switch {
		case x.State != layout.TableLive || x.Ordered():
		case x.InBlocks():
			leaves++
		case all:
			t.Errorf("%s: table %q has slots", what, x.Name)
		}
	}
	if all && len(db.Space().Extents()) > 0 {
		t.Errorf("%s: %d extents are left", what, len(db.Space().Extents()))
	}
	return leaves
}

func closed(t testing.TB, db *txn.DB) {
	t.Helper()
	if err := db.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// TestConvert: a database whose hash tables have slots is opened with leaves: the tables have them
// then, and all records. It is sound, and stays so with what opens it next, with leaves or
// without.
func TestConvert(t *testing.T) {
	raced.Skip(t)
	n := uint64(10_000)
	if testing.Short() {
		n = 1_500
	}
	for f := range 3 {
		for _, died := range []bool{false, true} {
			what := fmt.Sprintf("f %d, died %v", f, died)
			o := tiny()
			o.Dir, o.Blades, o.Backups, o.BladeSize = filepath.Join(t.TempDir(), "data"), 3, txn.F(f), 64<<20
			db := mustOpen(t, o)
			s := newSlotted(t, db, n)
			if indexed(t, what, db, false) > 0 {
				t.Fatal("a table has leaves already")
			}
			if died {
				dead := filepath.Join(t.TempDir(), "dead")
				if err := os.CopyFS(dead, os.DirFS(o.Dir)); err != nil {
					t.Fatal(err)
				}
				closed(t, db)
				o.Dir = dead
			} else {
				closed(t, db)
				sound(t, o.Dir)
			}
			o.LeafIndex = true
			db = mustOpen(t, o)
			if got := indexed(t, what, db, true); got != 3 {
				t.Errorf("%s: %d tables have leaves", what, got)
			}
			quiet(t, db)
			s.holds(t, what, db)
			closed(t, db)
			sound(t, o.Dir)
			for _, o.LeafIndex = range []bool{false, true} {
				db = mustOpen(t, o)
				indexed(t, what, db, true)
				s.holds(t, what+", again", db)
				closed(t, db)
				sound(t, o.Dir)
			}
		}
	}
}

// TestConvertReadOnly: an opening that does not write converts nothing.
func TestConvertReadOnly(t *testing.T) {
	o := tiny()
	o.Dir = filepath.Join(t.TempDir(), "data")
	db := mustOpen(t, o)
	fill(t, db, table(t, db, "t"), 100, val(3))
	closed(t, db)
	o.LeafIndex, o.ReadOnly = true, true
	db = mustOpen(t, o)
	if indexed(t, "read only", db, false) > 0 || len(contents(t, db, table(t, db, "t"), 100)) != 100 {
		t.Error("it was converted, or records are missing")
	}
}

// TestConvertDeleted: a record that is deleted, and whose block is in use still, stays linked, so
// that a transaction that meets it frees the block.
func TestConvertDeleted(t *testing.T) {
	o := tiny()
	o.Dir = filepath.Join(t.TempDir(), "data")
	db := mustOpen(t, o)
	tab := table(t, db, "t")
	fill(t, db, tab, 100, val(3))
	for k := uint64(0); k < 100; k += 2 {
		if err := db.Update(t.Context(), func(tx *txn.Tx) error { return tab.Delete(tx, k) }); err != nil {
			t.Fatal(err)
		}
	}
	db.Convert(t.Context())
	if indexed(t, "converted", db, true) != 1 {
		t.Fatal("it was not converted")
	}
	dead := o
	dead.Dir = filepath.Join(t.TempDir(), "dead")
	if err := os.CopyFS(dead.Dir, os.DirFS(o.Dir)); err != nil {
		t.Fatal(err)
	}
	sum := checkDir(t, dead.Dir, func(f verify.Finding) { t.Error(f) })
	if x := sum.Tables[0]; x.Records != 50 || x.Tombstones != 50 || x.Slots != 100 {
		t.Fatalf("%+v", x)
	}
	db = mustOpen(t, dead)
	tab = table(t, db, "t")
	if got := contents(t, db, tab, 100); len(got) != 50 {
		t.Errorf("%d records", len(got))
	}
	fill(t, db, table(t, db, "other"), 1, val(1))
	for k := uint64(0); k < 100; k += 2 {
		if err := db.Update(t.Context(), func(tx *txn.Tx) error { return tab.Insert(tx, k, val(4)) }); err != nil {
			t.Fatal(err)
		}
	}
	closed(t, db)
	sum = checkDir(t, dead.Dir, func(f verify.Finding) { t.Error(f) })
	if x := sum.Tables[0]; x.Records != 100 || x.Tombstones != 0 || x.Slots != 100 {
		t.Errorf("%+v", x)
	}
}

// TestConvertStops: a conversion that ends with its context, anywhere, and a process that dies
// then, leave a sound database that has all records. The next opening goes on, and one without
// leaves keeps the slots that there are.
func TestConvertStops(t *testing.T) {
	raced.Skip(t)
	for _, d := range []txn.Durability{txn.DurabilityProcess, txn.DurabilityPower} {
		o := tiny()
		o.Dir, o.Durability = filepath.Join(t.TempDir(), "whole"), d
		db := mustOpen(t, o)
		s := newSlotted(t, db, 400)
		closed(t, db)
		whole, some := o.Dir, 0
		step := int64(1)
		if testing.Short() {
			step = 7
		}
		for stop, done := int64(0), false; !done; stop += step {
			what := fmt.Sprintf("durability %v, stop %d", d, stop)
			o.Dir, o.LeafIndex = filepath.Join(t.TempDir(), "part"), false
			if err := os.CopyFS(o.Dir, os.DirFS(whole)); err != nil {
				t.Fatal(err)
			}
			db := mustOpen(t, o)
			n := &atomic.Int64{}
			n.Store(stop)
			db.Convert(stopping{t.Context(), n})
			done = n.Load() >= 0
			dead := filepath.Join(t.TempDir(), "dead")
			if err := os.CopyFS(dead, os.DirFS(o.Dir)); err != nil { // as if the process had died here
				t.Fatal(err)
			}
			if left := indexed(t, what, db, done); left > 0 && left < 3 {
				some++
			}
			closed(t, db)
			sound(t, o.Dir)
			if d == txn.DurabilityProcess {
				sound(t, dead) // what a process has left that died is no finding
			}
			o.Dir = dead
			for _, o.LeafIndex = range []bool{stop%2 == 0, true} {
				db = mustOpen(t, o)
				indexed(t, what, db, o.LeafIndex)
				quiet(t, db)
				s.holds(t, what, db)
				closed(t, db)
				sound(t, o.Dir)
			}
		}
		if some < 2 {
			t.Errorf("durability %v: it was stopped between two tables %d times", d, some)
		}
	}
}

// TestConvertDies: a process dies at any verb of a conversion, or in the midst of it loses power
// with all that is not on disk. The next opening has all records, converts, and leaves nothing
// behind.
func TestConvertDies(t *testing.T) {
	raced.Skip(t)
	for _, power := range []bool{false, true} {
		step := 1
		if testing.Short() {
			step = 7
		}
		for stop := 0; convertDies(t, power, stop); stop += step {
		}
	}
}

// convertDies is TestConvertDies of a process that dies after so many verbs that change something;
// false: it came to the end before.
func convertDies(t *testing.T, power bool, stop int) bool {
	left, cat := -1, &catalog.Mem{}
	var died *catalog.Mem
	caps := atOnce
	if stop%4 > 1 { // what was posted before may arrive later
		caps = later
	}
	ro := rdmatest.Options{Blades: 2, Size: 8 << 20, Caps: caps, Seed: uint64(stop), Volatile: power,
		Fail: func(w *rdma.WR) rdma.Status {
			switch {
			case left < 0 || left > 0 && w.Op == rdma.OpRead:
				return rdma.StatusOK
			case left == 0:
				if died == nil {
					died = cat.Clone()
				}
				return rdma.StatusTimeout
			}
			left--
			return rdma.StatusOK
		}}
	f := rdmatest.New(ro)
	o := onFabric(f, txn.PolicyDefault)
	if o.Catalog = cat; power {
		o.Durability = txn.DurabilityPower
	}
	db := reopen(t, o)
	tab := table(t, db, "t")
	const n = 90
	fill(t, db, tab, n, val(1))
	fill(t, db, table(t, db, "other"), 3, val(2))
	if err := db.Update(t.Context(), func(tx *txn.Tx) error { return tab.Delete(tx, 5) }); err != nil {
		t.Fatal(err)
	}
	left = stop
	db.Convert(t.Context())
	if left = -1; died == nil {
		return false
	}
	if o.Catalog = died; power {
		o.Fabric = f.LosePower(uint64(stop))
	}
	what := fmt.Sprintf("power %v, stop %d", power, stop)
	for _, o.LeafIndex = range []bool{stop%2 == 0, true} {
		db = reopen(t, o)
		tab = table(t, db, "t")
		got, nodes := contents(t, db, tab, n+1), 0
		if _, there := got[5]; there || len(got) != n-1 {
			t.Errorf("%s: %d records", what, len(got))
		}
		if got = contents(t, db, table(t, db, "other"), 4); len(got) != 3 {
			t.Errorf("%s: the other table has %d records", what, len(got))
		}
		if x := indexed(t, what, db, o.LeafIndex); x == 2 {
			nodes = nodesOf(t, n) + nodesOf(t, 3)
		} else if x == 1 {
			nodes = nodesOf(t, n)
		}
		if live := quiet(pastIndexes{t}, db); live < n+2+nodes-2 || live > n+2+nodes+1 {
			t.Errorf("%s: %d blocks are in use", what, live)
		}
		if err := db.Update(t.Context(), func(tx *txn.Tx) error { return tab.Put(tx, 5, val(1)) }); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if err := db.Update(t.Context(), func(tx *txn.Tx) error { return tab.Delete(tx, 5) }); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		close1(t, db)
	}
	return true
}

// pastIndexes is a tester that lets pass that extents, which no index uses any more, are not the
// same on all copies after a loss of power.
type pastIndexes struct{ *testing.T }

func (p pastIndexes) Errorf(format string, args ...any) {
	if !strings.HasPrefix(format, "index segment") {
		p.T.Errorf(format, args...)
	}
}

// TestConvertFull: where there is no room for leaves a table keeps its slots, and what was written
// is freed.
func TestConvertFull(t *testing.T) {
	o := spaceOptions(occ.PolicyDefault, 18)
	o.Dir = filepath.Join(t.TempDir(), "data")
	db := mustOpen(t, o)
	tab := table(t, db, "t")
	n := uint64(0)
	for db.Update(t.Context(), func(tx *txn.Tx) error { return tab.Insert(tx, n, val(n)) }) == nil {
		n++
	}
	closed(t, db)
	o.LeafIndex = true
	db = mustOpen(t, o)
	if indexed(t, "full", db, false) != 0 {
		t.Error("it was converted")
	}
	if got := contents(t, db, table(t, db, "t"), n); uint64(len(got)) != n {
		t.Errorf("%d records of %d", len(got), n)
	}
	if live := quiet(t, db); live != int(n) {
		t.Errorf("%d blocks are in use", live)
	}
	closed(t, db)
	sound(t, o.Dir)
}

// TestConvertDamaged: a record that is damaged on its primary is linked by the key that a copy
// has. One that is damaged on all leaves its table the slots, and other tables get leaves.
func TestConvertDamaged(t *testing.T) {
	for _, copies := range []int{1, 2} {
		f := rdmatest.New(rdmatest.Options{Blades: 2, Size: 8 << 20, Caps: atOnce, Seed: 1})
		o := onFabric(f, txn.PolicyDefault)
		db := reopen(t, o)
		tab := table(t, db, "t")
		needle := []byte("needle")
		fill(t, db, tab, 40, val(1))
		fill(t, db, table(t, db, "other"), 3, val(2))
		if err := db.Update(t.Context(), func(tx *txn.Tx) error { return tab.Put(tx, 7, needle) }); err != nil {
			t.Fatal(err)
		}
		l, v := db.Space().Layout(), db.Space().View()
		close1(t, db)
		found := 0
		for id := range l.Segments {
			if l.Segments[id].Kind != layout.KindBlocks {
				continue
			}
			for k := range copies {
				at := v.At(layout.MakeAddr(layout.SegmentID(id), 0), k)
				if i := bytes.Index(f.Memory(at.Blade)[at.Off:][:l.SegmentSize], needle); i >= 0 {
					f.Memory(at.Blade)[at.Off+uint64(i)]++
					found++
				}
			}
		}
		if found != copies {
			t.Fatalf("%d copies", found)
		}
		o.LeafIndex = true
		db = reopen(t, o)
		if got := indexed(t, "damaged", db, false); got != 3-copies {
			t.Errorf("%d copies are damaged: %d tables have leaves", copies, got)
		}
		tab = table(t, db, "t")
		err := db.View(t.Context(), func(tx *txn.Tx) error {
			v, err := tab.Get(tx, 7)
			if err == nil && !bytes.Equal(v, needle) {
				err = fmt.Errorf("%q", v)
			}
			return err
		})
		if copies == 1 && err != nil || copies == 2 && !errors.Is(err, txn.ErrCorrupt) {
			t.Errorf("%d copies are damaged: %v", copies, err)
		}
		close1(t, db)
	}
}
