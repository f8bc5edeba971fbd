package occ_test

import (
	"errors"
	"fmt"
	"testing"

	"txnode/index"
	"txnode/index/blink"
	"txnode/index/tree"
	"txnode/memory"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/occ"
	"txnode/rdma"
	"txnode/rdma/rdmatest"
)

// TestLinksLeadToImages: at no moment does a leaf that is not locked link a block whose image is
// not in place at the primary, nor does its right link lead to one. Recovery relies on that, and so
// do searches. The rows and the leaves that a split makes are on both blades.
func TestLinksLeadToImages(t *testing.T) {
	for _, caps := range []rdma.Caps{
		{Placed: true, OrderedLine: true, MaskedCAS: true}, {OrderedLine: true, MaskedCAS: true}, {},
	} {
		t.Run(fmt.Sprintf("%+v", caps), func(t *testing.T) {
			f := rdmatest.New(rdmatest.Options{Blades: 2, Size: 8 << 20, Seed: 5, Caps: caps, SpreadNs: 50_000})
			b := newBedOn(t, f, memory.Options{SegmentSize: 1 << 20, LogArea: 64 << 10}, occ.Options{})
			_, tx := b.session()
			b.table = b.ordered(tx, 2, 4)
			var first layout.Addr // of the leaves: it stays that
			must(t, b.table.Ordered.(*tree.Tree).Leaves(tx.Coro(), func(a layout.Addr, _ []byte) error {
				first = a
				return nil
			}))
			must(t, tx.Drain())
			leaves, rows, seen := 0, 0, map[layout.Addr]bool{}
			var bad error
			f.Fail(func(*rdma.WR) rdma.Status {
				if bad == nil {
					leaves, rows, bad = b.links(f, first, seen)
				}
				return rdma.StatusOK
			})
			for k := range uint64(60) {
				must(t, b.insert(tx, k*37%60)) // anywhere
				must(t, tx.Posts(b.table))
			}
			must(t, tx.Drain())
			f.Fail(nil)
			must(t, bad)
			if n := b.leaves(tx); leaves < n/2 || rows < 30 {
				t.Errorf("%d leaves of %d, and %d rows, were looked at last", leaves, n, rows)
			}
		})
	}
}

// links looks at the leaves of the table's index in memory, from the first one on. It returns how
// many are whole and not locked, and how many rows these link. seen are the blocks that had images
// before: a later one may be in the middle of being written.
func (b *bed) links(f *rdmatest.Fabric, first layout.Addr, seen map[layout.Addr]bool) (leaves, rows int, err error) {
	class := b.table.Ordered.NodeClass()
	for a := first; a != 0; {
		img := b.block(f, a, class)
		if torn(img, a) {
			break // it is being written
		}
		n, err := blink.Decode(img.Value())
		if err != nil {
			return leaves, rows, fmt.Errorf("leaf %v: %w", a, err)
		}
		if img.Guard() != record.FreeAt(img.Version()) {
			a = n.Right()
			continue
		}
		leaves++
		for i := range n.Count() {
			rows++
			if err := b.whole(f, n.Addr(i), n.Class(i), record.Live, seen); err != nil {
				return leaves, rows, fmt.Errorf("leaf %v of version %v, entry %d: %w", a, img.Version(), i, err)
			}
		}
		if a = n.Right(); a != 0 {
			if err := b.whole(f, a, class, record.Node, seen); err != nil {
				return leaves, rows, fmt.Errorf("the right link of version %v: %w", img.Version(), err)
			}
		}
	}
	return leaves, rows, nil
}

func torn(img record.Image, a layout.Addr) bool {
	_, err := img.Check(a)
	return err != nil
}

// block is the primary of a block, as it is in memory.
func (b *bed) block(f *rdmatest.Fabric, a layout.Addr, class layout.Class) record.Image {
	at := b.space.View().At(a, 0)
	return record.Image(f.Memory(at.Blade)[at.Off : at.Off+uint64(class.Size())])
}

// whole says what a block lacks that is to have a whole image of a state.
func (b *bed) whole(f *rdmatest.Fabric, a layout.Addr, class layout.Class, s record.State,
	seen map[layout.Addr]bool) error {
	if seen[a] {
		return nil
	}
	img := b.block(f, a, class)
	if _, err := img.Check(a); err != nil {
		return fmt.Errorf("block %v: %w", a, err)
	}
	if img.Meta().State() != s {
		return fmt.Errorf("block %v is %v", a, img.Meta().State())
	}
	seen[a] = true
	return nil
}

// TestFreedBesideOlderImage: a record is deleted and reclaimed before the transaction that has
// inserted it has noted, on another coroutine, that its image is in place. The block stays the
// session's until it is free.
func TestFreedBesideOlderImage(t *testing.T) {
	f := rdmatest.New(rdmatest.Options{Blades: 1, Size: 8 << 20, Seed: 1, SpreadNs: 20_000})
	b := newBedOn(t, f, memory.Options{SegmentSize: 1 << 20, LogArea: 64 << 10}, occ.Options{ReclaimAfter: 1})
	s, tx := b.session()
	w := b.watch(tx)
	later, err := s.NewTx(tx.Coro())
	must(t, err)
	must(t, tx.Begin())
	i, err := tx.Stage(b.table, key8(1), true)
	must(t, err)
	must(t, tx.Insert(i, []byte("v")))
	must(t, tx.Execute())
	must(t, tx.Commit())
	a := tx.ItemAddr(i)
	must(t, b.do(later, del(string(key8(1)))))
	if !s.Holds(a) {
		t.Fatal("the block counts as used already: the test shows nothing")
	}
	tried := false
	w.edits = func() { // the block has been announced
		w.edits, tried = nil, true
		must(t, tx.Drain())
		if !s.Holds(a) {
			t.Error("the block counts as used, and is about to be freed")
		}
	}
	_, err = s.MakeRoom(tx.Coro())
	must(t, err)
	if !tried || s.Holds(a) {
		t.Errorf("reclaimed: %v; the block is on its way: %v", tried, s.Holds(a))
	}
}

// watched is an ordered index that reports what is about to happen.
type watched struct {
	*tree.Tree
	edits func()              // a transaction makes an editor: it has the locks of the nodes that it changes
	finds func(p index.Place) // a search begins
	owed  func(p index.Post)  // a change of a higher level is taken
	lone  bool                // separators that are owed are lost
}

// watch makes an ordered table with leaves of four entries, whose index is watched.
func (b *bed) watch(tx *occ.Tx) *watched {
	b.t.Helper()
	b.table = b.ordered(tx, 2, 4)
	w := &watched{Tree: b.table.Ordered.(*tree.Tree)}
	b.table.Ordered = w
	return w
}

func (w *watched) NewEditor() index.Editor {
	if w.edits != nil {
		w.edits()
	}
	return w.Tree.NewEditor()
}

func (w *watched) Find(p index.Place) index.Hop {
	if w.finds != nil {
		w.finds(p)
	}
	return w.Tree.Find(p)
}

func (w *watched) Owed() (index.Post, bool) {
	p, ok := w.Tree.Owed()
	for ok && w.lone && p.Op == index.Separator {
		p, ok = w.Tree.Owed()
	}
	if ok && w.owed != nil {
		w.owed(p)
	}
	return p, ok
}

// TestSeparatorOfLeafThatGoes: a leaf is merged away after its separator was found to be due, and
// before the node above is locked. Its version is validated, so that the separator is not added.
func TestSeparatorOfLeafThatGoes(t *testing.T) {
	b := newBed(t, 2, 1, occ.Options{ReclaimAfter: 1})
	_, tx := b.session()
	s, other := b.session()
	w := b.watch(tx)
	want := map[uint64]bool{}
	for k := uint64(0); k < 500; k += 10 {
		must(t, b.insert(tx, k))
		must(t, tx.Posts(b.table))
		want[k] = true
	}
	for k := uint64(201); !w.Owes(); k++ {
		must(t, b.insert(tx, k))
		want[k] = true
	}
	var post index.Post
	gone := false
	w.owed = func(p index.Post) { post = p }
	w.finds = func(p index.Place) {
		if p.Level == 0 {
			return
		}
		w.finds, w.owed, w.lone = nil, nil, true
		for k := range want {
			if string(key8(k)) >= string(post.Key) && k < 245 {
				must(t, b.do(other, del(string(key8(k)))))
				delete(want, k)
			}
		}
		_, err := s.MakeRoom(other.Coro())
		must(t, err)
		gone, w.lone = true, false
		must(t, w.Leaves(other.Coro(), func(a layout.Addr, _ []byte) error {
			gone = gone && a != post.Child
			return nil
		}))
	}
	must(t, tx.Posts(b.table))
	if !gone || post.Level != 1 {
		t.Fatalf("the leaf is there still: the test shows nothing (%+v)", post)
	}
	must(t, tx.Posts(b.table))
	b.eng.ForgetAddresses()
	for k := range uint64(500) {
		must(t, tx.Begin())
		i, err := tx.Stage(b.table, key8(k), false)
		must(t, err)
		if err := tx.Execute(); err != nil {
			t.Fatalf("key %d: %v", k, errors.Join(err, tx.Rollback()))
		}
		if _, ok := tx.Read(i); ok != want[k] {
			t.Errorf("key %d: %v", k, ok)
		}
		must(t, tx.Commit())
	}
}

// TestEachScanIsEvidence: a transaction that has read two ranges depends on both,
// whatever their order.
func TestEachScanIsEvidence(t *testing.T) {
	b, _, tx, other := tens(t, 50)
	for i, k := range []uint64{105, 305} {
		must(t, tx.Begin())
		for _, from := range []uint64{100, 300} {
			b.scanKeys(tx, index.Bound{Key: key8(from)}, index.Bound{Key: key8(from + 50)}, false, 0)
		}
		n, err := tx.Stage(b.table, key8(0), true)
		must(t, err)
		must(t, tx.Put(n, []byte("w")))
		must(t, b.insert(other, k))
		if err := tx.Commit(); !errors.Is(err, occ.ErrConflict) {
			t.Errorf("range %d: %v", i, err)
		}
	}
}
