package txn_test

import (
	"math/rand/v2"
	"testing"

	"txnode/memory/layout"
	"txnode/txn"
)

// TestManySizes: records of all sizes come and go on small blades, with fewer segments than there
// are sizes of blocks. There is room as long as a block that is large enough is free.
func TestManySizes(t *testing.T) {
	o := tiny()
	o.BladeSize, o.SegmentSize, o.LogArea = 32<<20, 1<<20, 256<<10
	db := mustOpen(t, o)
	tab := table(t, db, "t")
	r := rand.New(rand.NewPCG(1, 2))
	size := func() int { return 1 << r.IntN(15) * (4 + r.IntN(4)) / 4 } // to 28 KiB
	have := map[uint64][]byte{}
	classes := map[layout.Class]bool{}
	var keys []uint64
	for i := range times(4000) {
		k := uint64(i)
		v := make([]byte, size())
		v[0] = byte(i)
		c, _ := layout.ClassOf(uint32(len(v)) + 72)
		classes[c] = true
		gone := -1
		if len(keys) == 100 {
			gone = r.IntN(len(keys))
		}
		err := db.Update(t.Context(), func(tx *txn.Tx) error {
			if gone >= 0 {
				if err := tab.Delete(tx, keys[gone]); err != nil {
					return err
				}
			}
			return tab.Put(tx, k, v)
		})
		if err != nil {
			t.Fatalf("record %d, of %d bytes: %v", i, len(v), err)
		}
		if have[k] = v; gone >= 0 {
			delete(have, keys[gone])
			keys[gone] = k
		} else {
			keys = append(keys, k)
		}
	}
	if n := len(classes); n < 30 && !testing.Short() {
		t.Errorf("%d sizes of blocks: this tests nothing", n)
	}
	same(t, "in the end", contents(t, db, tab, 4000), have)
	quiet(t, db)
}

// TestLargeDeleted: what is deleted is used again before long, if it is large.
func TestLargeDeleted(t *testing.T) {
	o := tiny()
	o.BladeSize, o.SegmentSize, o.LogArea = 256<<20, 1<<20, 1<<20
	db := mustOpen(t, o)
	tab := table(t, db, "t")
	const size = 200_000
	for k := range uint64(times(400)) {
		if err := db.Update(t.Context(),
			func(tx *txn.Tx) error { return tab.Insert(tx, k, make([]byte, size)) }); err != nil {
			t.Fatal(err)
		}
		if err := db.Update(t.Context(), func(tx *txn.Tx) error { return tab.Delete(tx, k) }); err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	for _, g := range db.Space().Layout().Segments {
		if g.Kind == layout.KindBlocks && g.Class.Size() >= size {
			n++
		}
	}
	if n > 10 {
		t.Errorf("%d MiB of blocks for one record at a time", n)
	}
	quiet(t, db)
}
