package index

import (
	"fmt"

	"txnode/memory/layout"
)

// Node is a block in state record.Node of the index's table, as it was read: its checksum matches.
type Node struct {
	Addr layout.Addr
	// Body is the value of the block. nil: there is no node of the index at Addr, or none any more.
	Body []byte
}

// Index finds the blocks of records by nodes, which are guarded blocks: a commit that inserts a key
// locks, logs, copies and releases the nodes that it changes as it does records. So an index is
// pure. It says which block to read next, what follows from what was read, and what becomes of
// nodes by a change. Package occ reads, locks, validates and commits. The index posts nothing,
// holds no lock, and needs no recovery.
//
// The nodes at which a search ends are its evidence: the answer holds while their versions do. All
// other nodes are hints. The index caches them, and nobody validates them.
//
// An Index is a compute-side handle that all threads of a process share. It keeps nothing of the
// nodes that are passed to it.
type Index interface {
	// NodeClass is the largest class of the blocks of nodes. Those of a smaller one lie in
	// segments of that class.
	NodeClass() layout.Class
	// MaxKey is the length of the longest key in bytes.
	MaxKey() int
	// Root is where the block is that says where the index begins. Its place never changes.
	Root() layout.Addr
	// Find returns the block to be read next on the way to p, as far as what is cached leads.
	Find(p Place) Hop
	// Follow interprets a node to which Find, or Follow, has led, after so many hops since Find.
	Follow(p Place, n Node, hops int) (Hop, Step, error)
	// Candidates appends the blocks that may hold a key to dst, by the evidence of the search for
	// it.
	Candidates(dst []Candidate, key []byte, evidence []Node) []Candidate
	// NewEditor returns what plans changes of nodes, for one coroutine.
	NewEditor() Editor
	// Published tells that a commit of this process has published a node.
	Published(n Node)
	// Owe notes what is to be done by a transaction of its own: see Post. Owed takes one.
	Owe(p Post)
	Owed() (p Post, ok bool)
	// Owes reports whether there may be one.
	Owes() bool
}

// Ranged is an index whose nodes of level 0 link the records in the order of their keys.
type Ranged interface {
	Index
	// Entries appends the blocks that a node of level 0 links between two bounds to dst, at most so
	// many, in ascending order of their keys, or, if down, in descending order. Follow has said
	// Here of the node. more: the range goes on in the node that is responsible for rest.
	Entries(dst []Candidate, n Node, from, to Bound, down bool, most int) (blocks []Candidate, rest Place, more bool)
	// Ahead appends the nodes of level 0 that have keys between two bounds, in the order of a scan,
	// but at most n, to dst, as far as one cached node knows them.
	Ahead(dst []layout.Addr, from, to Bound, down bool, n int) []layout.Addr
}

// Step is what Follow says of a node.
type Step uint8

// Steps of a search.
const (
	// Here: the node is the one that is responsible, or the block is that of the root, and the
	// index does not have the level yet. The search is at its end.
	Here Step = iota
	// Next: the search goes on at the hop.
	Next
	// Astray: what has led to the block was stale, and is forgotten. The search begins anew at the
	// hop.
	Astray
)

// Hop is a block on the way to a place. Near: it should be the node that is responsible.
type Hop struct {
	Addr layout.Addr
	Near bool
}

// Bound is a place between keys: just before Key, just After it, or at the End of all keys.
type Bound struct {
	Key   []byte
	After bool
	End   bool
}

// Place is what a search is for: the node of a level that is responsible for the keys just above a
// bound, or just Below it, where a descending scan goes on.
type Place struct {
	Bound
	Below bool
	Level int
}

// AppendHash appends the key that an index of hashes has for a record.Hash: its upper 40 bits,
// big-endian, so that the order of keys is that of the hashes.
func AppendHash(dst []byte, h uint64) []byte {
	return append(dst, byte(h>>56), byte(h>>48), byte(h>>40), byte(h>>32), byte(h>>24))
}

// PlaceOf is the place of a key.
func PlaceOf(key []byte) Place { return Place{Bound: Bound{Key: key}} }

// ChangeOp is what a change does to an entry of a node.
type ChangeOp uint8

// Changes of entries.
const (
	Link   ChangeOp = iota // the index does not link a block of the key
	Relink                 // it links Old, and Addr instead from now on
	Unlink                 // it links Old, and no block of the key from now on
)

// Change is a change of the block that the index links for a key.
type Change struct {
	Op   ChangeOp
	Key  []byte
	Old  layout.Addr
	Addr layout.Addr
	// Class is the one of the block at Addr.
	Class layout.Class
}

// Editor plans changes of nodes. Plan and Settle are pure: they are called with the nodes that
// they have got by now, none at first, until they need no more. What they return, and the methods
// below, are good until the next call of either. Nodes and changes must stay as they are as long.
// Errors wrap *NodeError.
type Editor interface {
	// Plan plans changes of the entries of a table, in order of their keys, each key once.
	// The nodes are locked.
	Plan(have []Node, changes []Change) (edits []Edit, needs []Need, err error)
	// Settle plans what is owed. have are the answers to the needs, in their order. No edits: there
	// is nothing (left) to do.
	Settle(have []Node, p Post) (edits []Edit, needs []Need, err error)
	// Append appends the new value of the block of edit i to dst. at are the blocks of all edits.
	Append(dst []byte, i int, at []layout.Addr) []byte
	// Posts appends what is owed when the edits are committed, or, if there are none, in any case.
	// The keys are the caller's.
	Posts(dst []Post, at []layout.Addr) []Post
}

// Edit is what becomes of a block.
type Edit struct {
	At    layout.Addr // the block of a node that the plan has; 0: a new one, of Class
	Class layout.Class
	Free  bool // the block becomes free
}

// Need is a node that a plan needs, too: the one that is responsible for a place, locked, or the
// root's block if the index does not have that level; or whatever is at an address, not locked,
// which the commit depends on.
type Need struct {
	Place Place
	At    layout.Addr // 0: the one of Place
}

// PostOp says what is owed.
type PostOp uint8

// What is owed.
const (
	// Separator: an entry is to be added to the node of Level that is responsible for Key. It leads
	// to Child, which a split has made.
	Separator PostOp = iota
	// Merge: the node of Level that is responsible for Key is to be merged with a neighbour, if one
	// node has room for both.
	Merge
)

// Post is a change of structure that follows from a commit, and is made by a transaction of
// its own. Without it searches take longer, and nodes stay that link little. So it may be
// lost with its process.
type Post struct {
	Op    PostOp
	Level int
	Key   []byte
	Child layout.Addr
	Below int // of a Merge: how many levels below are to be merged then
	Tries int // how often it has failed
}

// NodeError is what is wrong with a node that a plan has.
type NodeError struct {
	Addr layout.Addr
	Err  error
}

// Error says what is wrong with which node.
func (e *NodeError) Error() string { return fmt.Sprintf("node %v: %v", e.Addr, e.Err) }

// Unwrap returns Err.
func (e *NodeError) Unwrap() error { return e.Err }
