package index

import (
	"txnode/memory/layout"
	"txnode/rdma"
)

// Scanner is an index that can list its blocks inside of a transaction.
type Scanner interface {
	Slots
	// NewScan starts a walk over all blocks that are linked. It posts nothing.
	NewScan() Scan
}

// Linked is a place of an index that leads to a block.
type Linked struct {
	At layout.Addr
	Candidate
}

// Walker is an index that can list its blocks outside of transactions.
type Walker interface {
	// Pieces reads the index piece by piece, and calls fn with the links of each, until fn returns
	// an error, which it returns. A block that is linked all the time is met at least once; changes
	// meanwhile may be met or not. The next piece is read when fn has returned, so fn can meet each
	// key that has a record all the time: it follows a link that by then leads to another block,
	// and one that leads nowhere was moved to a piece that is still to come, or its key was
	// deleted. fn may use the coroutine, and does not keep links.
	Pieces(c *rdma.Coro, fn func(links []Linked) error) error
}

// Each is a function for Pieces that calls fn for each link.
func Each(fn func(at layout.Addr, x Candidate) error) func(links []Linked) error {
	return func(links []Linked) error {
		for _, x := range links {
			if err := fn(x.At, x.Candidate); err != nil {
				return err
			}
		}
		return nil
	}
}

// Scan walks over an index piece by piece, and notes what it has read. It belongs to one coroutine.
// No order of the blocks is promised. A block that is linked all the time is met at least once.
type Scan interface {
	// Next reads a piece and appends the blocks that it links to dst. A block may come twice. more
	// false: there was no piece left, and dst is as it was.
	Next(c *rdma.Coro, dst []Candidate) (blocks []Candidate, more bool, err error)
	// Again makes the next call of Next read the last piece once more, because blocks have left
	// their places meanwhile.
	Again()
	// Unchanged reads everything that Next has read once more, and reports whether all slots are as
	// they were, and no key can have been linked elsewhere. If the walk was complete, no key was
	// linked in between that it has not met.
	Unchanged(c *rdma.Coro) (bool, error)
	// Restart begins the walk anew. What it has read before is forgotten.
	Restart()
}
