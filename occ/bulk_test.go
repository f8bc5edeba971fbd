package occ_test

import (
	"errors"
	"fmt"
	"testing"

	"txnode/memory/layout"
	"txnode/occ"
	"txnode/occ/recovery"
	"txnode/rdma/inproc"
)

// TestBulkWithoutIDs: a bulk write whose coordinator has no transaction id left, at any point
// before it writes, keeps no block. Copies are being built, for which it needs one more id.
func TestBulkWithoutIDs(t *testing.T) {
	bed := newBed(t, 3, 1, occ.Options{})
	records := func() (list []occ.BulkRecord) {
		for i := range 3 {
			list = append(list, occ.BulkRecord{
				Table: bed.table, Key: fmt.Appendf(nil, "key %d", i), Value: []byte("v"),
			})
		}
		return list
	}
	_, tx := bed.session()
	must(t, tx.Begin())
	first := records()
	must(t, tx.WriteBulk(first))
	must(t, tx.Commit())
	lost := bed.space.View().Replicas(first[0].Addr)[1].Blade
	must(t, bed.fabric.(*inproc.Fabric).StopBlade(lost))
	_, err := recovery.FailOver(bed.ctl.Plain(), recovery.Options{Space: bed.space}, bed.space.DeclareDead(lost))
	must(t, err)

	s, tx := bed.session()
	held := func() (n int) {
		l := bed.space.Layout()
		for id := range l.Segments {
			if l.Segments[id].Kind != layout.KindBlocks {
				continue
			}
			for off := uint32(0); off < l.SegmentSize; off += layout.BlockAlign {
				if s.Holds(layout.MakeAddr(layout.SegmentID(id), off)) {
					n++
				}
			}
		}
		return n
	}
	for ids := uint64(1); ; ids++ {
		s.SpendIDs(ids)
		list := records()
		must(t, tx.Begin())
		err := tx.WriteBulk(list)
		if err == nil {
			v := bed.space.View()
			if a := list[0].Addr; ids != 5 || v.Written(a) == v.Copies(a) {
				t.Errorf("with %d ids, %d copies of %d that are written being full ones",
					ids, v.Copies(a), v.Written(a))
			}
			must(t, tx.Commit())
			return
		}
		if !errors.Is(err, occ.ErrFenced) {
			t.Fatal(err)
		}
		if n := held(); n > 0 {
			t.Errorf("with %d ids: %d blocks are kept: %v", ids, n, err)
		}
		for _, x := range list {
			if x.Addr != 0 {
				t.Errorf("with %d ids: record %s has block %v, which was given back or not written", ids, x.Key, x.Addr)
			}
		}
		if err := tx.Rollback(); err != nil && !errors.Is(err, occ.ErrBroken) {
			t.Fatal(err)
		}
		must(t, s.Rejoin(s.Thread().Plain()))
	}
}
