package txn_test

import (
	"bytes"

	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/rdma"
	"txnode/txn"
)

// quiet holds the blades of a database without transactions against what must be
// true of them: no lock is held, every image is intact, the replicas of every block
// and of every index structure are equal. It returns how many blocks are in use.
func quiet(t tester, db *txn.DB) (live int) {
	t.Helper()
	space := db.Space()
	th, err := rdma.NewThread(space.Fabric(), rdma.ThreadOptions{Index: 77, Arena: 16 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer th.Close()
	c := th.Plain()
	var b rdma.Batch
	const chunk = 1 << 20
	var buf [layout.MaxReplicas]uint32
	for k := range buf {
		if buf[k], err = th.Alloc(chunk); err != nil {
			t.Fatal(err)
		}
	}
	l, v := space.Layout(), space.View()
	for id := range l.Segments {
		seg := &l.Segments[id]
		if seg.Kind != layout.KindBlocks && seg.Kind != layout.KindIndex || seg.Vacant {
			continue
		}
		step := uint32(chunk)
		if seg.Kind == layout.KindBlocks {
			step = chunk / seg.Class.Size() * seg.Class.Size()
		}
		for off := uint32(0); off < l.SegmentSize; off += step {
			n := min(step, l.SegmentSize-off)
			a := layout.MakeAddr(layout.SegmentID(id), off)
			b.Reset()
			for k := range v.Copies(a) {
				b.Read(v.At(a, k), buf[k], n)
			}
			if err := c.Do(&b); err != nil {
				t.Fatal(err)
			}
			first := th.Bytes(buf[0], n)
			if seg.Kind == layout.KindIndex {
				for k := 1; k < v.Copies(a); k++ {
					if copyK := th.Bytes(buf[k], n); !bytes.Equal(first, copyK) {
						t.Errorf("index segment %d differs on copy %d from %#x on",
							id, k, int(off)+firstDifference(first, copyK))
					}
				}
				continue
			}
			size := seg.Class.Size()
			for at := uint32(0); at+size <= n; at += size {
				block := layout.MakeAddr(layout.SegmentID(id), off+at)
				img := record.Image(first[at : at+size])
				need, err := img.Check(block)
				if err != nil {
					t.Errorf("block %v: %v", block, err)
					continue
				}
				if img.Guard().Held() {
					t.Errorf("block %v (%v) is locked by %v", block, img.Meta().State(), img.Lock())
				}
				if img.Meta().State() == record.Free {
					continue
				}
				live++
				for k := 1; k < v.Copies(block); k++ {
					if copyK := th.Bytes(buf[k]+at, uint32(need)); !bytes.Equal(img[:need], copyK) {
						t.Errorf("block %v (%v, key %x) differs on copy %d from byte %d on: version %v and %v",
							block, img.Meta().State(),
							img.Key(), k, firstDifference(img[:need], copyK), img.Version(),
							record.Image(copyK).Version())
					}
				}
			}
		}
	}
	return live
}

// tester is a testing.TB or a rapid.T.
type tester interface {
	Helper()
	Fatal(args ...any)
	Errorf(format string, args ...any)
}

func firstDifference(a, b []byte) int {
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return -1
}
