package recovery

import (
	"txnode/memory/record"
	"txnode/rdma"
)

// taken reports whether the log space of a transaction has another record of its
// coordinator on a blade, which may be newer, and the last copy of it that is left: then
// the transaction is at rest, though the loss of a blade makes it look otherwise.
func (r *run) taken(x *tx, b rdma.BladeID) bool {
	if r.lines == nil {
		r.lines = map[areaOn]lineSet{}
		for _, y := range r.txs {
			for _, b := range y.on {
				r.occupy(y, b)
			}
		}
	}
	first, end := x.span()
	return r.lines[areaOn{x.Tx.Coordinator(), b}].any(first, end)
}

// occupy notes that a transaction's record is on a blade.
func (r *run) occupy(x *tx, b rdma.BladeID) {
	if r.lines == nil {
		return
	}
	at := areaOn{x.Tx.Coordinator(), b}
	first, end := x.span()
	r.lines[at] = r.lines[at].with(first, end)
}

// areaOn is a coordinator's log area on a blade.
type areaOn struct {
	coordinator uint32
	blade       rdma.BladeID
}

// span returns which lines of its log area the record of a transaction has.
func (x *tx) span() (first, end uint32) {
	return x.off / record.LineSize, (x.off + uint32(len(x.raw)) + record.LineSize - 1) / record.LineSize
}

// lineSet is a set of lines of a log area. The zero value is empty.
type lineSet []uint64

// with returns the set with the lines from first to before end. It may change s.
func (s lineSet) with(first, end uint32) lineSet {
	if n := int(end+63) / 64; n > len(s) {
		s = append(s, make(lineSet, n-len(s))...)
	}
	for i := first; i < end; i++ {
		s[i/64] |= 1 << (i % 64)
	}
	return s
}

// any reports whether a line from first to before end is in the set.
func (s lineSet) any(first, end uint32) bool {
	for i := first; i < min(end, uint32(len(s))*64); i++ {
		if s[i/64]>>(i%64)&1 != 0 {
			return true
		}
	}
	return false
}
