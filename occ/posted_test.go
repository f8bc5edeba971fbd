package occ_test

import (
	"bytes"
	"errors"
	"testing"

	"txnode/index"
	"txnode/index/blink"
	"txnode/index/tree"
	"txnode/memory/layout"
	"txnode/occ"
)

// TestSeparatorOfMergedLeaf: a separator is owed for a leaf that is merged away before it is added,
// and the block is that of another leaf by then, which begins farther right. A root that led there
// for the keys in between would make them unreachable for ever.
func TestSeparatorOfMergedLeaf(t *testing.T) {
	b := newBed(t, 1, 0, occ.Options{ReclaimAfter: 1})
	s, tx := b.session()
	b.table = b.ordered(tx, 2, 2)
	// last is where the last leaf is.
	last := func() (a layout.Addr, low []byte) {
		must(t, b.table.Ordered.(*tree.Tree).Leaves(tx.Coro(), func(at layout.Addr, value []byte) error {
			n, err := blink.Decode(value)
			a, low = at, bytes.Clone(n.Low())
			return err
		}))
		return a, low
	}
	for k := range uint64(3) {
		must(t, b.insert(tx, k))
	}
	separator, owed := b.table.Ordered.Owed()
	if !owed {
		t.Fatal("no separator is owed")
	}
	merged, low := last()
	if n := b.leaves(tx); n != 2 || !bytes.Equal(low, key8(2)) {
		t.Fatalf("%d leaves, the last one from %x on", n, low)
	}
	must(t, b.do(tx, del(string(key8(2)))))
	_, err := s.MakeRoom(tx.Coro())
	must(t, err)
	if n := b.leaves(tx); n != 1 {
		t.Fatalf("%d leaves: the empty one was not merged", n)
	}
	const first = 10
	end := uint64(first)
	for a := merged + 1; a != merged; end++ {
		if end == 1000 {
			t.Fatalf("block %v is not used again", merged)
		}
		must(t, b.insert(tx, end))
		a, _ = last()
	}
	for range 4 {
		must(t, tx.Posts(b.table))
	}
	b.table.Ordered.Owe(separator)
	must(t, tx.Posts(b.table))
	for k := range end {
		must(t, tx.Begin())
		i, err := tx.Stage(b.table, key8(k), false)
		must(t, err)
		if err := tx.Execute(); err != nil {
			t.Fatalf("key %d: %v", k, err)
		}
		if _, ok := tx.Read(i); ok != (k < 2 || k >= first) {
			t.Errorf("key %d: %v", k, ok)
		}
		must(t, tx.Commit())
	}
	must(t, tx.Begin())
	if keys, _ := b.scanKeys(tx, index.Bound{}, index.Bound{End: true}, false, 0); uint64(len(keys)) != 2+end-first {
		t.Errorf("%d keys", keys)
	}
	must(t, tx.Commit())
}

// TestHandleLeftBehind: the handle of another process knows the root of an empty table, which has
// grown by hundreds of leaves since. A search that gives up on the right links begins at the new
// root when it is repeated.
func TestHandleLeftBehind(t *testing.T) {
	b := newBed(t, 1, 0, occ.Options{})
	_, tx := b.session()
	_, other := b.session()
	b.table = b.ordered(tx, 2, 2)
	tr := b.table.Ordered.(*tree.Tree)
	behind, err := tree.New(b.space, tr.Geometry(), 2, tr.Root())
	must(t, err)
	far := &occ.Table{ID: 2, Name: b.table.Name, Ordered: behind}
	read := func(k uint64) (ok bool, err error) {
		must(t, other.Begin())
		i, err := other.Stage(far, key8(k), false)
		must(t, err)
		if err := other.Execute(); err != nil {
			return false, errors.Join(err, other.Rollback())
		}
		_, ok = other.Read(i)
		return ok, other.Commit()
	}
	ok, err := read(1)
	if must(t, err); ok {
		t.Fatal("a key of an empty table")
	}
	const n = 600
	for k := range uint64(n) {
		must(t, b.insert(tx, k))
		must(t, tx.Posts(b.table))
	}
	for tries := 0; ; tries++ {
		ok, err := read(n) // whose record no cache knows
		if errors.Is(err, occ.ErrConflict) && tries < 2 {
			continue
		}
		if must(t, err); ok {
			t.Error("a key that was not inserted")
		}
		return
	}
}
