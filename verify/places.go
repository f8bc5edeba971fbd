package verify

import (
	"bytes"
	"fmt"

	"txnode/memory/layout"
	"txnode/rdma"
)

// places checks that the places which the catalog calls clean are all zero: the next segment there
// takes that for granted.
func (w *walker) places() {
	zero := make([]byte, smallSize)
	for i := range w.l.Blades {
		for k := range w.l.Blades[i].Clean.All() {
			w.place(rdma.BladeID(i), k, zero)
		}
	}
}

// place checks one of them. Without a repair its first bytes that are not zero are the finding.
func (w *walker) place(b rdma.BladeID, k uint32, zero []byte) {
	for off := uint32(0); off < w.l.SegmentSize && !w.stopped(); off += smallSize {
		at := rdma.RemoteAddr{Blade: b, Key: w.v.Key(b), Off: w.l.Base(k) + uint64(off)}
		f := Finding{Kind: KindRegion, Blade: b, Off: at.Off}
		p, err := w.Database.read(at, w.small, smallSize)
		if err != nil {
			f.Kind, f.What = KindUnreadable, fmt.Sprintf("%d bytes: %v", smallSize, err)
			w.found(f)
			return
		}
		w.sum.Bytes += smallSize
		if bytes.Equal(p, zero) {
			continue
		}
		f.What = fmt.Sprintf("place %d is clean, says the catalog, and there is something", k)
		w.repair(f, "the place is cleared", zero)
		if !w.o.Repair {
			return
		}
	}
}

// smallSize divides the size of a segment.
const _ = uint(-(layout.MinSegmentSize % smallSize))
