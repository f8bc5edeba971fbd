package txn_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"txnode/internal/raced"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/rdma"
	"txnode/rdma/rdmatest"
	"txnode/txn"
	"txnode/verify"
)

// TestKilledInFreeing: a process is killed in the middle of the WRITE that frees the block which
// a record has left, and the index of its table is damaged when the database is opened next.
// Nothing of the index is needed any more for that: the block is free on all copies afterwards,
// and the record is there.
func TestKilledInFreeing(t *testing.T) {
	raced.Skip(t)
	for _, p := range policies(t) {
		for _, damaged := range []bool{true, false} {
			for _, other := range []bool{false, true} {
				for _, words := range []int{2, 5} {
					if !damaged && words == 2 || testing.Short() && other != (words == 5) {
						continue // without damage as with 5
					}
					t.Run(fmt.Sprintf("%v, damaged %v, other copy %v, %d words",
						p, damaged, other, words), func(t *testing.T) {
						killedInFreeing(t, p, damaged, other, words)
					})
				}
			}
		}
	}
}

// killedInFreeing is TestKilledInFreeing where so many words of the line have arrived on the
// primary, and on the other copy all or nothing.
func killedInFreeing(t *testing.T, p txn.Policy, damaged, other bool, words int) {
	var block layout.Addr
	var at []rdma.RemoteAddr
	armed, killed := false, false
	var f *rdmatest.Fabric
	line := func(k int) record.Image { return f.Memory(at[k].Blade)[at[k].Off:][:record.LineSize] }
	f = rdmatest.New(rdmatest.Options{Blades: 2, Size: 8 << 20, Caps: atOnce, Seed: 1,
		Fail: func(w *rdma.WR) rdma.Status {
			if armed && w.Op == rdma.OpWrite && w.Blade == at[0].Blade && w.Off == at[0].Off &&
				w.Len == record.LineSize {
				armed, killed = false, true
				free, m := slices.Clone(line(0)), line(0).Meta()
				free.PutFree(block, line(0).Lock(), m.Table(), m.Class(), 1<<20)
				copy(line(0), free[:words*8])
				if other {
					copy(line(1), free)
				}
			}
			if killed {
				return rdma.StatusInternal
			}
			return rdma.StatusOK
		}})
	o := onFabric(f, p)
	open := func() *txn.DB { return reopen(t, o) }
	db := open()
	tab := table(t, db, "t")
	fill(t, db, tab, 3, val(1))
	needle, long := []byte("needle"), bytes.Repeat([]byte("long"), 500)
	if err := db.Update(t.Context(), func(tx *txn.Tx) error { return tab.Put(tx, 1, needle) }); err != nil {
		t.Fatal(err)
	}
	l, v := db.Space().Layout(), db.Space().View()
	for id := range l.Segments {
		if l.Segments[id].Kind != layout.KindBlocks {
			continue
		}
		first := v.At(layout.MakeAddr(layout.SegmentID(id), 0), 0)
		if i := bytes.Index(f.Memory(first.Blade)[first.Off:][:l.SegmentSize], needle); i >= 0 {
			block = layout.MakeAddr(layout.SegmentID(id), uint32(i&^(record.LineSize-1)))
			at = []rdma.RemoteAddr{v.At(block, 0), v.At(block, 1)}
		}
	}
	armed = true
	_ = db.Update(t.Context(), func(tx *txn.Tx) error { return tab.Put(tx, 1, long) })
	if !killed {
		t.Fatal("no block was freed")
	}
	killed = false

	if damaged {
		tables, err := db.Space().Tables()
		if err != nil {
			t.Fatal(err)
		}
		var was [][]byte
		root := tables[0].Root
		for i := range v.Copies(root) {
			p := f.Memory(v.At(root, i).Blade)[v.At(root, i).Off:][:64]
			was = append(was, slices.Clone(p))
			copy(p, "not the root of an index")
		}
		close1(t, open())
		for i, p := range was {
			copy(f.Memory(v.At(root, i).Blade)[v.At(root, i).Off:], p)
		}
	}
	db = open()
	tab = table(t, db, "t")
	err := db.View(t.Context(), func(tx *txn.Tx) error {
		v, err := tab.Get(tx, 1)
		if err == nil && !bytes.Equal(v, long) {
			t.Errorf("the record has %q", v)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	close1(t, db)
	for k := range at {
		if _, err := line(k).Check(block); err != nil || !line(k).Stable() || line(k).Meta().State() != record.Free {
			t.Errorf("copy %d of the block that it has left is %v, with guard %#x of version %v: %v",
				k, line(k).Meta().State(), uint64(line(k).Guard()), line(k).Version(), err)
		}
	}
	d, err := verify.Attach(f, db.Space().Layout())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Check(t.Context(), verify.Options{Report: func(f verify.Finding) error {
		t.Errorf("%v", f)
		return nil
	}}); err != nil {
		t.Error(err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}
