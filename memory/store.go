package memory

import (
	"sync"
	"sync/atomic"

	"txnode/memory/layout"
	"txnode/rdma"
)

// store is the entries of the catalog as this process knows them, and the map of addresses that
// follows from them. All changes of the catalog are made by it: update, and commit within it.
//
// Invariants, under mu:
//
//	view.Epoch <= layout.Epoch                 less only while the epoch of the catalog has not
//	                                           begun here
//	rev <= revision of the catalog             and layout is what the catalog said at rev, while
//	                                           doubt == nil
//	moved <= layout.Epoch
//
// epochs is locked before turn, and turn before mu. mu is never held while a blade or the catalog
// is asked, but for an opening, beside which there is nothing else.
type store struct {
	fabric rdma.Fabric
	cat    layout.Catalog
	opts   Options
	above  above
	view   atomic.Pointer[layout.View]
	past   atomic.Pointer[layout.View] // the last one of an earlier epoch: its keys open nothing; nil: there was none

	epochs sync.Mutex // of a change of the epoch, while it is made or begun
	turn   sync.Mutex // of a change, while the catalog is asked for it: the layout and rev change in its turn alone

	mu      sync.Mutex
	making  *update // under way just now; nil: none
	skipped bool    // this process has not seen all epochs between the view and the layout
	closed  error   // ErrClosed, or why the catalog cannot be trusted any more
	doubt   *doubt  // not nil: a change of the catalog of which it is not known whether it was made
	rev     layout.Revision
	told    layout.Revision // of which all blades know: see Tell
	stamped stamped         // see stampDue
	layout  *layout.Layout
	moved   layout.Epoch // the last that this process has made
}

// stamped is when this process has seen that blades were stamped, by the fabric's clock, and of
// which revision they were told then.
type stamped struct {
	last layout.Revision
	at   int64
}
