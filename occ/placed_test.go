package occ_test

import (
	"fmt"
	"testing"

	"txnode/index"
	"txnode/memory"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/occ"
	"txnode/rdma"
	"txnode/rdma/rdmatest"
)

// placedIndex is an index that looks at the memory itself when a slot is to lead to a block.
type placedIndex struct {
	index.Slots
	b       *bed
	asked   int
	missing int
}

func (x *placedIndex) Insert(c *rdma.Coro, q *index.Query, a layout.Addr, class layout.Class) error {
	at := x.b.space.View().At(a, 0)
	image := x.b.fabric.(*rdmatest.Fabric).Memory(at.Blade)[at.Off : at.Off+uint64(class.Size())]
	x.asked++
	if _, err := record.Image(image).Check(a); err != nil || string(record.Image(image).Key()) != string(q.Key) {
		x.missing++
	}
	return x.Slots.Insert(c, q, a, class)
}

// TestPlaceholderIsPlaced: where a completed WRITE may become visible later, the block of an
// insert is there before a slot leads to it. Who reads the slot and not yet the block takes
// the key for another one and inserts it again.
func TestPlaceholderIsPlaced(t *testing.T) {
	for _, p := range policies {
		t.Run(fmt.Sprint(p), func(t *testing.T) {
			f := rdmatest.New(rdmatest.Options{Blades: 2, Size: 8 << 20, Seed: 1, SpreadNs: 20_000})
			b := newBedOn(t, f, memory.Options{Backups: 1, SegmentSize: 1 << 20, LogArea: 64 << 10},
				occ.Options{Policy: p})
			x := &placedIndex{Slots: b.table.Index, b: b}
			b.table.Index = x
			_, tx := b.session()
			for i := range 40 {
				must(t, b.do(tx, put(fmt.Sprint("key ", i), "value"), put(fmt.Sprint("another ", i), "value")))
			}
			if x.asked < 80 || x.missing > 0 {
				t.Errorf("%d of %d slots lead to a block that is not there", x.missing, x.asked)
			}
		})
	}
}
