package index

import (
	"txnode/memory"
	"txnode/rdma"
)

// Scanner is an index that can list its blocks inside of a transaction.
type Scanner interface {
	Index
	// NewScan starts a walk over all blocks that are linked. It posts nothing.
	NewScan() Scan
}

// Walker is an index that can list its blocks outside of transactions.
type Walker interface {
	Index
	// Walk calls fn for each block that is linked, and where the link is, until fn returns an error, which it
	// returns. A block that is linked all the time is met at least once; changes meanwhile may be met or not.
	Walk(c *rdma.Coro, fn func(at memory.Addr, x Candidate) error) error
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
