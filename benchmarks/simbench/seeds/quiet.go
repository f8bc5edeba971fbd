package seeds

import (
	"bytes"
	"errors"
	"fmt"

	"txnode/memory"
	"txnode/memory/record"
	"txnode/rdma"
	"txnode/txn"
)

// quiet holds the blades of a database without transactions against what must be
// true of them: no lock is held, every image is intact, the replicas of every
// block and of every index structure are equal.
func quiet(db *txn.DB) (err error) {
	space := db.Space()
	th, err := rdma.NewThread(space.Fabric(), rdma.ThreadOptions{Index: 1 << 15, Arena: 4 << 20})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, th.Close()) }()
	layout := space.Layout()
	var buf [memory.MaxReplicas]uint32
	for k := range buf {
		if buf[k], err = th.Alloc(int(layout.SegmentSize)); err != nil {
			return err
		}
	}
	for id := range layout.Segments {
		seg := &layout.Segments[id]
		if seg.Kind == memory.KindBlocks || seg.Kind == memory.KindIndex {
			if err := quietSegment(th, space.View(), memory.SegmentID(id), seg, layout.SegmentSize, buf); err != nil {
				return err
			}
		}
	}
	return nil
}

func quietSegment(th *rdma.Thread, v *memory.View, id memory.SegmentID, seg *memory.Segment, size uint32, buf [memory.MaxReplicas]uint32) error {
	var b rdma.Batch
	start := memory.MakeAddr(id, 0)
	copies := v.Copies(start)
	for k := range copies {
		b.Read(v.At(start, k), buf[k], size)
	}
	if err := th.Plain().Do(&b); err != nil {
		return err
	}
	if seg.Kind == memory.KindIndex {
		for k := 1; k < copies; k++ {
			if first, other := th.Bytes(buf[0], size), th.Bytes(buf[k], size); !bytes.Equal(first, other) {
				return fmt.Errorf("index segment %d differs on copy %d from %#x on", id, k, differs(first, other))
			}
		}
		return nil
	}
	step := seg.Class.Size()
	for off := uint32(0); off+step <= size; off += step {
		img := record.Image(th.Bytes(buf[0]+off, step))
		block := memory.MakeAddr(id, off)
		need, err := img.Check(block)
		if err != nil {
			return fmt.Errorf("block %v: %w", block, err)
		}
		if img.Guard().Held() {
			return fmt.Errorf("block %v (%v) is locked by %v", block, img.Meta().State(), img.Lock())
		}
		if img.Meta().State() == record.Free {
			continue
		}
		for k := 1; k < copies; k++ {
			if other := th.Bytes(buf[k]+off, uint32(need)); !bytes.Equal(img[:need], other) {
				return fmt.Errorf("block %v (%v, key %x) differs on copy %d from byte %d on: version %v and %v", block, img.Meta().State(),
					img.Key(), k, differs(img[:need], other), img.Version(), record.Image(other).Version())
			}
		}
	}
	return nil
}

// differs returns where two slices of equal length first differ.
func differs(a, b []byte) int {
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return -1
}
