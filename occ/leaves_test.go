package occ_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"txnode/index"
	"txnode/index/tree"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/occ"
	"txnode/rdma"
)

// tens makes an ordered table of the keys 0, 10, ... below 10n, with leaves of four entries.
func tens(t *testing.T, n uint64) (b *bed, s *occ.Session, tx, other *occ.Tx) {
	b = newBed(t, 2, 1, occ.Options{ReclaimAfter: 1})
	s, tx = b.session()
	_, other = b.session()
	b.table = b.ordered(tx, 2, 4)
	for k := range n {
		must(t, b.insert(tx, 10*k))
		must(t, tx.Posts(b.table))
	}
	return b, s, tx, other
}

// ranged begins a transaction, has it read a range, and write a key that is far away.
func (b *bed) ranged(tx *occ.Tx, from, to uint64, down bool) (keys []uint64) {
	b.t.Helper()
	must(b.t, tx.Begin())
	keys, _ = b.scanKeys(tx, index.Bound{Key: key8(from)}, index.Bound{Key: key8(to)}, down, 0)
	n, err := tx.Stage(b.table, key8(0), true)
	must(b.t, err)
	must(b.t, tx.Put(n, []byte("w")))
	return keys
}

// TestEachLeafIsEvidence: a key that is inserted anywhere in a range, in the first leaf, the last,
// or any between, is a conflict.
func TestEachLeafIsEvidence(t *testing.T) {
	b, _, tx, other := tens(t, 50)
	for k := uint64(205); k < 400; k += 10 {
		b.ranged(tx, 200, 400, k%20 == 5)
		must(t, b.insert(other, k))
		if err := tx.Commit(); !errors.Is(err, occ.ErrConflict) {
			t.Errorf("key %d was inserted: %v", k, err)
		}
		b.ranged(tx, 200, 400, k%20 == 5)
		must(t, tx.Commit())
	}
}

// TestHeldLeaf: while another transaction has a leaf locked, because it inserts a key
// there, the leaf proves neither that a range is as it was read, nor that a key is absent,
// nor what is in a range.
func TestHeldLeaf(t *testing.T) {
	b, _, tx, other := tens(t, 50)
	b.ranged(tx, 200, 300, false)
	hold := func() {
		must(t, other.Begin())
		n, err := other.Stage(b.table, key8(255), true)
		must(t, err)
		must(t, other.Insert(n, []byte("v")))
		must(t, other.Execute())
	}
	hold()
	if err := tx.Commit(); !errors.Is(err, occ.ErrConflict) {
		t.Errorf("validation of the range: %v", err)
	}
	if err := b.do(tx, get(string(key8(256)))); !errors.Is(err, occ.ErrConflict) {
		t.Errorf("an absent key: %v", err)
	}
	must(t, tx.Begin())
	s, err := tx.Range(b.table, index.Bound{Key: key8(251)}, index.Bound{Key: key8(259)}, false, 0)
	must(t, err)
	if _, _, ok, err := s.Next(); ok || !errors.Is(err, occ.ErrConflict) {
		t.Errorf("a range: %v %v", ok, err)
	}
	must(t, tx.Rollback())
	must(t, b.do(tx, get(string(key8(250))), get(string(key8(260))))) // rows are not locked
	must(t, other.Commit())
	if keys := b.ranged(tx, 251, 259, false); len(keys) != 1 || keys[0] != 255 {
		t.Error(keys)
	}
	must(t, tx.Commit())
}

// TestAbsenceIsValidated: that a key was absent is a conflict for the transaction that has written
// by it, if the key was inserted since, even if it was deleted again.
func TestAbsenceIsValidated(t *testing.T) {
	b, _, tx, other := tens(t, 50)
	for k, x := range map[uint64]struct {
		do       func(k uint64) error
		conflict bool
	}{
		105: {func(k uint64) error { return b.insert(other, k) }, true},
		115: {func(k uint64) error { return b.insert(other, k+100) }, true},
		125: {func(k uint64) error { return errors.Join(b.insert(other, k), b.do(other, del(string(key8(k))))) }, true},
		135: {func(uint64) error { return b.insert(other, 455) }, false},
		145: {func(uint64) error { return b.do(other, put(string(key8(140)), "w")) }, false},
	} {
		must(t, tx.Begin())
		must(t, b.apply(tx, get(string(key8(k))), get(string(key8(k+100)))))
		must(t, x.do(k))
		if err := commitWith(tx, b.apply(tx, lazyPut(string(key8(10)), "w"))); errors.Is(err,
			occ.ErrConflict) != x.conflict {
			t.Errorf("key %d: %v, a conflict: %v", k, err, x.conflict)
		}
	}
}

// TestLockAfterRange: a transaction that locks a leaf which it has read in a range depends on the
// version that it has read then, and not on the one that the lock was taken at.
func TestLockAfterRange(t *testing.T) {
	b, _, tx, other := tens(t, 50)
	for i, how := range []string{"insert", "update", "late"} {
		k := uint64(205 + 10*i)
		for _, changed := range []bool{true, false} {
			b.ranged(tx, 200, 300, false)
			if changed {
				must(t, b.insert(other, k))
			}
			n, err := tx.Stage(b.table, key8(k+1), how != "late")
			must(t, err)
			if how == "insert" {
				must(t, tx.Insert(n, []byte("v")))
			}
			if err = tx.Execute(); err == nil && how != "insert" {
				err = tx.Put(n, []byte("v"))
			}
			if err := commitWith(tx, err); errors.Is(err, occ.ErrConflict) != changed || err != nil && !changed {
				t.Errorf("%s, changed %v: %v", how, changed, err)
			}
		}
	}
}

// commitWith commits a transaction unless an error says that it cannot be.
func commitWith(tx *occ.Tx, err error) error {
	if err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// TestLeafChangedBeforeLock: the commit that locks a leaf looks again if the leaf has changed since
// it was read: neither entry is lost, and a key that is there by now is not linked twice.
func TestLeafChangedBeforeLock(t *testing.T) {
	b, _, tx, other := tens(t, 20)
	for k := uint64(5); k < 190; k += 10 {
		must(t, tx.Begin())
		must(t, b.apply(tx, lazyPut(string(key8(k)), "mine")))
		beside := k + 1
		if k%20 == 5 {
			beside = k
		}
		must(t, b.insert(other, beside))
		if err := tx.Commit(); err != nil && !errors.Is(err, occ.ErrConflict) {
			t.Fatal(err)
		} else if err != nil {
			must(t, b.do(tx, lazyPut(string(key8(k)), "mine")))
		}
		must(t, tx.Posts(b.table))
		must(t, tx.Begin())
		keys, values := b.scanKeys(tx, index.Bound{Key: key8(k - 1)}, index.Bound{Key: key8(k + 2)}, false, 0)
		must(t, tx.Commit())
		want := []uint64{k}
		if beside != k {
			want = append(want, beside)
		}
		if fmt.Sprint(keys) != fmt.Sprint(want) || values[0] != "mine" {
			t.Errorf("%d %q, want %d", keys, values, want)
		}
	}
}

// TestReinsertedStays: a record that was deleted and inserted again before its entry was taken out
// stays.
func TestReinsertedStays(t *testing.T) {
	b, s, tx, other := tens(t, 20)
	for k := uint64(0); k < 200; k += 10 {
		must(t, b.do(tx, del(string(key8(k)))))
		if k%20 == 0 {
			must(t, b.do(other, put(string(key8(k)), "again")))
		}
	}
	_, err := s.MakeRoom(tx.Coro())
	must(t, err)
	for range 3 {
		must(t, s.Maintain(tx.Coro()))
	}
	for k := uint64(0); k < 200; k += 10 {
		if v, ok := b.value(tx, string(key8(k))); ok != (k%20 == 0) || ok && v != "again" {
			t.Errorf("key %d: %q, %v", k, v, ok)
		}
	}
	must(t, tx.Begin())
	keys, _ := b.scanKeys(tx, index.Bound{}, index.Bound{End: true}, false, 0)
	must(t, tx.Commit())
	if len(keys) != 10 {
		t.Error(keys)
	}
}

// waysBehind is another process, with caches of its own: for each key of a table it has handles
// that know the way to it.
type waysBehind struct {
	*bed
	tx     *occ.Tx
	tables [][3]*occ.Table
}

func (b *bed) waysBehind(n int) *waysBehind {
	w := &waysBehind{bed: &bed{
		t: b.t, fabric: b.fabric, space: b.space, eng: occ.NewEngine(b.space, b.opts), next: 50, opts: b.opts,
	}}
	_, w.tx = w.session()
	w.tables = make([][3]*occ.Table, n)
	tr := b.table.Ordered.(*tree.Tree)
	for k := range w.tables {
		for i := range w.tables[k] {
			h, err := tree.New(b.space, tr.Geometry(), b.table.ID, tr.Root())
			must(b.t, err)
			_, err = h.Leaf(w.tx.Coro(), index.PlaceOf(key8(uint64(k))))
			must(b.t, err)
			w.tables[k][i] = &occ.Table{ID: b.table.ID, Name: b.table.Name, Ordered: h}
		}
	}
	return w
}

// find looks each key up, and in ranges of both directions, each time by a handle that has not
// found out anything.
func (w *waysBehind) find(t *testing.T, there func(k uint64) bool) {
	t.Helper()
	for n, tables := range w.tables {
		k := uint64(n)
		w.table = tables[0]
		must(t, w.tx.Begin())
		i, err := w.tx.Stage(w.table, key8(k), false)
		must(t, err)
		if err := w.tx.Execute(); err != nil {
			t.Fatalf("key %d: %v", k, err)
		}
		if _, ok := w.tx.Read(i); ok != there(k) {
			t.Errorf("key %d: %v", k, ok)
		}
		must(t, w.tx.Commit())
		for i, down := range []bool{false, true} {
			w.table = tables[1+i]
			must(t, w.tx.Begin())
			keys, _ := w.scanKeys(w.tx, index.Bound{Key: key8(k)}, index.Bound{Key: key8(k), After: true}, down, 0)
			must(t, w.tx.Commit())
			if len(keys) == 1 != there(k) {
				t.Errorf("key %d, down %v: %d", k, down, keys)
			}
		}
	}
}

// TestNodesOfOthers: blocks to which cached nodes lead are free by now, or nodes of another table.
// Lookups and ranges find that out, and what they look for.
func TestNodesOfOthers(t *testing.T) {
	b := newBed(t, 1, 0, occ.Options{ReclaimAfter: 1})
	s, tx := b.session()
	b.table = b.ordered(tx, 2, 4)
	mine := b.table
	tr := mine.Ordered.(*tree.Tree)
	const n = 200
	for k := range uint64(n) {
		must(t, b.insert(tx, k))
		must(t, tx.Posts(b.table))
	}
	ways := b.waysBehind(n)
	before := map[layout.Addr]bool{}
	must(t, tr.Leaves(tx.Coro(), func(a layout.Addr, _ []byte) error {
		before[a] = true
		return nil
	}))
	for k := range uint64(n) {
		must(t, b.do(tx, del(string(key8(k)))))
	}
	_, err := s.MakeRoom(tx.Coro())
	must(t, err)
	// Some of the blocks stay free. Others come to be nodes of another table, with keys
	// of the same range.
	b.table = b.ordered(tx, 3, 4)
	again := func() (n int) {
		must(t, b.table.Ordered.(*tree.Tree).Leaves(tx.Coro(), func(a layout.Addr, _ []byte) error {
			if before[a] {
				n++
			}
			return nil
		}))
		return n
	}
	for k := uint64(1000); again() == 0; k++ { // until the others are used up
		if k == 3000 {
			t.Fatal("no block is used again")
		}
		must(t, b.insert(tx, k))
	}
	for k := range uint64(n) {
		must(t, b.insert(tx, n-1-k))
	}
	if again() < 10 {
		t.Fatalf("%d of %d blocks are used again", again(), len(before))
	}
	b.table = mine
	there := func(k uint64) bool { return k%3 == 0 }
	for k := range uint64(n) {
		if there(k) {
			must(t, b.insert(tx, k))
			must(t, tx.Posts(mine))
		}
	}
	ways.find(t, there)
}

// TestNodesThatAreRows: blocks to which cached nodes lead hold rows of the same table by now.
// Lookups and ranges find that out, and what they look for.
func TestNodesThatAreRows(t *testing.T) {
	b := newBed(t, 1, 0, occ.Options{ReclaimAfter: 1})
	s, tx := b.session()
	b.table = b.ordered(tx, 2, 4)
	tr := b.table.Ordered.(*tree.Tree)
	const n = 100
	for k := range uint64(n) {
		must(t, b.insert(tx, k))
		must(t, tx.Posts(b.table))
	}
	ways := b.waysBehind(n)
	var before []layout.Addr
	must(t, tr.Leaves(tx.Coro(), func(a layout.Addr, _ []byte) error {
		before = append(before, a)
		return nil
	}))
	for k := range uint64(n) {
		must(t, b.do(tx, del(string(key8(k)))))
	}
	_, err := s.MakeRoom(tx.Coro())
	must(t, err)
	rows := func() (n int) {
		th := tx.Coro().Thread()
		buf, err := th.Alloc(record.LineSize)
		must(t, err)
		defer th.Free(buf, record.LineSize)
		for _, a := range before {
			var batch rdma.Batch
			batch.Read(b.space.View().At(a, 0), buf, record.LineSize)
			must(t, tx.Coro().Do(&batch))
			if record.Image(th.Bytes(buf, record.LineSize)).Meta().State() == record.Live {
				n++
			}
		}
		return n
	}
	// Rows whose blocks are as large as nodes.
	size := int(tr.NodeClass().Size())
	value := strings.Repeat("v", size-record.Size(8, 0))
	for k := uint64(1000); rows() < len(before)/2; k++ {
		if k == 3000 {
			t.Fatalf("%d of %d blocks are used again", rows(), len(before))
		}
		must(t, tx.Begin())
		i, err := tx.Stage(b.table, key8(k), true)
		must(t, err)
		must(t, tx.Insert(i, []byte(value)))
		must(t, tx.Execute())
		must(t, tx.Commit())
	}
	there := func(k uint64) bool { return k%3 == 0 }
	for k := range uint64(n) {
		if there(k) {
			must(t, b.insert(tx, k))
			must(t, tx.Posts(b.table))
		}
	}
	ways.find(t, there)
}

// TestOwedStill: a separator that could not be added, because the node above was locked, is owed
// still.
func TestOwedStill(t *testing.T) {
	b := newBed(t, 2, 1, occ.Options{})
	_, tx := b.session()
	_, other := b.session()
	b.table = b.ordered(tx, 2, 2)
	for k := range uint64(3) {
		must(t, b.insert(tx, 10*k))
	}
	if !b.table.Ordered.Owes() {
		t.Fatal("nothing is owed")
	}
	// The new leaf is locked by an insert.
	must(t, other.Begin())
	n, err := other.Stage(b.table, key8(25), true)
	must(t, err)
	must(t, other.Insert(n, []byte("v")))
	must(t, other.Execute())
	must(t, tx.Posts(b.table))
	if !b.table.Ordered.Owes() {
		t.Error("what could not be added is owed no more")
	}
	must(t, other.Commit())
	must(t, tx.Posts(b.table))
	if b.table.Ordered.Owes() {
		t.Error("it is owed still")
	}
	s, err := b.table.Ordered.(*tree.Tree).Stats(tx.Coro())
	if must(t, err); s.Height != 2 {
		t.Errorf("%+v", s)
	}
}

// TestLeavesStayLocked: two records outgrow their blocks. The search for the leaf of the second one
// passes the leaf of the first one, because no separator leads around it. The first leaf stays
// locked for all that.
func TestLeavesStayLocked(t *testing.T) {
	b := newBed(t, 2, 1, occ.Options{})
	_, tx := b.session()
	_, other := b.session()
	w := b.watch(tx)
	for k := range uint64(5) {
		must(t, b.insert(tx, 10*k))
	}
	if n := b.leaves(tx); n != 2 || !w.Owes() {
		t.Fatalf("%d leaves; owing %v", n, w.Owes())
	}
	beside := errors.New("it was not tried")
	w.edits = func() {
		w.edits = nil
		beside = b.insert(other, 5)
	}
	long := strings.Repeat("x", 300)
	_, third := b.session() // which has no editor yet
	must(t, b.do(third, put(string(key8(0)), long), put(string(key8(40)), long)))
	if !errors.Is(beside, occ.ErrConflict) {
		t.Errorf("an insert into the first leaf, while it was to be locked: %v", beside)
	}
	must(t, b.insert(other, 6))
	must(t, tx.Begin())
	keys, values := b.scanKeys(tx, index.Bound{}, index.Bound{End: true}, false, 0)
	must(t, tx.Commit())
	if fmt.Sprint(keys) != "[0 6 10 20 30 40]" || values[0] != long || values[5] != long {
		t.Errorf("keys %d", keys)
	}
}

// TestDeletedListedOnce: ranges come by the deleted records of a coordinator that is gone. However
// many do, each record is on the list of what the session reclaims once; and again when it was
// reclaimed, inserted and deleted.
func TestDeletedListedOnce(t *testing.T) {
	b, s, tx, other := tens(t, 20)
	for round := range 2 {
		for k := uint64(50); k < 100; k += 10 {
			must(t, b.do(other, del(string(key8(k)))))
			for range 4 {
				s.AddTombstone(b.table, key8(k), other.ItemAddr(0), 0, other.ID())
			}
		}
		if n := s.Tombstones(); n != 5 {
			t.Errorf("%d records are to be reclaimed, and 5 were deleted", n)
		}
		freed, err := s.MakeRoom(tx.Coro())
		if must(t, err); freed != 5 || s.Tombstones() != 0 {
			t.Errorf("%d of 5 records were reclaimed, and %d are on the list", freed, s.Tombstones())
		}
		for k := uint64(50); k < 100 && round == 0; k += 10 {
			must(t, b.insert(other, k))
		}
	}
}
