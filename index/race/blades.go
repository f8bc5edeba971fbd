package race

import (
	"txnode/index"
	"txnode/memory"
	"txnode/memory/layout"
)

// Blades returns the blades to which a change of the slots of a resolved query is written: a bit
// for each (rdma.BladeBit). A change that makes a sub-table grow is written to others, too.
func (ix *Index) Blades(q *index.Query) (blades uint64) {
	for _, at := range []uint64{q.State[stFirst], q.State[stSecond]} {
		blades |= memory.BladesOf(q.View, layout.Addr(at))
	}
	return blades
}
