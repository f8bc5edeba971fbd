package index

import (
	"errors"
	"fmt"

	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/rdma"
)

// Errors of indexes.
var (
	// ErrDuplicate: another block with the same key is linked; the caller's is not.
	ErrDuplicate = errors.New("index: another block holds the key")
	// ErrChanged: the slot no longer points to the expected block.
	ErrChanged = errors.New("index: slot has changed")
	// ErrFull: the index cannot grow any more.
	ErrFull = errors.New("index: full")
	// ErrCorrupt: the structure on the blades is damaged; wrapped with the place.
	ErrCorrupt error = layout.DamageError("index: damaged structure")
	// ErrBusy: another client has begun a change that stands in the way, and has not finished it
	// for much longer than it should take. Try again, or recover the index if that client is dead.
	// The message names client and place.
	ErrBusy = errors.New("index: unfinished change of another client")
)

// UnclearError is an ErrDuplicate: the other block may hold the key, and cannot be made out; it is
// free, or damaged, however often it was looked at.
type UnclearError struct{ Block layout.Addr }

func (e *UnclearError) Error() string {
	return fmt.Sprintf("index: block %v, which a slot leads to, may hold the key, and is free, or damaged", e.Block)
}

// Is matches ErrDuplicate.
func (e *UnclearError) Is(target error) bool { return target == ErrDuplicate }

// Candidate is a block that may hold the key.
type Candidate struct {
	Addr  layout.Addr
	Class layout.Class
	// Version is for the caller to set: that of the block when it was seen to hold
	// another key. A block that is freed may be used again at once, even for
	// the key of the query, so Validate and Unchanged look at the version, too.
	// Resolve sets it to zero, which says that the block was not looked at.
	Version record.TxID
}

// Query is the lookup of one key. It is made once and reused; it belongs to one
// coroutine. Key and Local must stay as they are from Search to the last call
// that uses the query.
type Query struct {
	Key   []byte
	Hash  uint64 // record.Hash of table and key
	Local uint32 // arena buffer of Index.BufferSize bytes, 64-byte aligned

	// View is the map by which the index and its candidates are addressed. The index replaces it by
	// a newer one if it finds something in a segment that the view does not know. So every
	// candidate is Valid in it.
	View *layout.View
	// Thread is the thread that the query was resolved on: whose arena Local is
	// in. Resolve sets it.
	Thread *rdma.Thread

	// Candidates are the blocks that may hold the key, after Resolve. Some may hold other keys with
	// a similar hash. While another client inserts a key that is there already, there can be two of
	// the key: a record counts more than a block that is locked and has no value.
	Candidates []Candidate

	// State belongs to the index.
	State [16]uint64
}

// Finder looks up keys outside of transactions.
type Finder interface {
	// BufferSize is how many bytes of arena a query needs.
	BufferSize() int
	// Search appends the READs of a lookup to b.
	Search(b *rdma.Batch, q *Query)
	// Resolve interprets the READs that have completed: it fills q.Candidates,
	// none if the key has no block. again means that the structure has moved:
	// the caller repeats Search (Resolve has refreshed what was stale, with
	// round trips of its own if need be).
	Resolve(c *rdma.Coro, q *Query) (again bool, err error)
}

// Slots is an index of slots, words that lead to blocks and change one by one, outside of the
// commit. One Slots object is a compute-side handle that all threads of a process may share;
// queries and coroutines are the caller's.
type Slots interface {
	Finder
	// Validate appends READs that repeat what a resolved query saw. When they have completed,
	// Unchanged says whether the candidates are still the same, with the versions that the caller
	// has set. If none of them held the key, it says whether the key still has no block, and had
	// none in between that was linked and unlinked. It may say no when only other keys have
	// changed. buffer is arena of BufferSize bytes other than q.Local.
	Validate(b *rdma.Batch, q *Query, buffer uint32)
	Unchanged(q *Query, buffer uint32) bool
	// Insert links the block a, which holds q's key and is locked by the caller
	// and placed on the primary, on every replica of the index. The query must have
	// been resolved. It returns ErrDuplicate, with the block unlinked, when
	// another block of the same key is linked: the caller searches again. It may
	// grow the index. After any other error the block may be linked: Remove tells.
	Insert(c *rdma.Coro, q *Query, a layout.Addr, class layout.Class) error
	// Replace makes the slot of block old point to block a: the record has moved.
	// The caller holds the locks of both blocks. ErrChanged: old is not linked.
	Replace(c *rdma.Coro, q *Query, old, a layout.Addr, class layout.Class) error
	// Remove unlinks the block, whose lock the caller holds, from every replica.
	// ErrChanged: it is not linked.
	Remove(c *rdma.Coro, q *Query, a layout.Addr) error
}
