package verify

import (
	"fmt"

	"txnode/memory/layout"
)

// indexes walks the indexes of all tables.
func (w *walker) indexes() {
	for i := range w.l.Tables {
		if w.stopped() {
			return
		}
		t, sum := &w.l.Tables[i], &w.sum.Tables[i]
		switch {
		case t.Root == 0:
			// a load was cut short: its blocks are to be freed
			sum.Unwalked = t.State == layout.TableDropping
			// else the process that created the table did not come further; the next that opens it does
		case !t.InBlocks():
			sum.Unwalked = true
			w.earlier(t)
		default:
			sum.Unwalked = !w.tree(t, sum)
		}
	}
	w.unclaimed()
	for id := range w.l.Segments {
		if s := &w.l.Segments[id]; s.Kind == layout.KindIndex && s.Placement.N > 0 {
			w.advance(uint64(w.l.SegmentSize))
		}
	}
}

// earlier reports a table whose index is of an earlier version.
func (w *walker) earlier(t *layout.Table) {
	w.found(w.at(Finding{
		Kind: KindEarlier, Table: t.ID, Unfinished: true,
		What: fmt.Sprintf("%s has an index of an earlier version, which is not checked: open the database for "+
			"writing, which converts the table", w.tableName(t.ID)),
	}, t.Root, 0))
}
