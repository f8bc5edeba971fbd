package index

import (
	"errors"

	"txnode/memory"
)

// Ordered is an index of keys in the order of their bytes, whose nodes are guarded blocks: they are
// locked, logged, written to all copies and released by the commit that changes them, as records
// are. The index says what to read next, what follows from what was read, and what becomes of a node
// by a change. It posts nothing for that. Package occ reads, locks, validates and commits.
//
// An answer holds as long as the versions of the nodes of level 0 that it was read from have not
// changed. Nodes of higher levels are hints: the index caches them, and nobody validates them.
//
// An Ordered is a compute-side handle that all threads of a process share. Values that are passed to it
// are those of blocks in state record.Node whose checksums match. It keeps none of them.
type Ordered interface {
	Index
	// NodeClass is the class of the blocks of all nodes.
	NodeClass() memory.Class
	// MaxKey is the length of the longest key in bytes.
	MaxKey() int
	// Root is where the block is that says where the index begins, of class 0.
	Root() memory.Addr
	// Find returns the block to be read next on the way to p, as far as what is cached leads.
	Find(p Place) Hop
	// Follow interprets the value of a block to which Find, or Follow, has led. here: the node is the one
	// that is responsible for p, or the block is that of the root, and the index does not have p.Level yet.
	// Else next is the block to be read next. An error says that the value is damaged.
	Follow(p Place, a memory.Addr, value []byte) (next Hop, here bool, err error)
	// Astray forgets what has led to a block that is no node of this index, and returns where to begin.
	Astray(p Place) Hop
	// Entry returns the block that a node of level 0 links for a key. Follow has said of the node's value that it is the one
	// that is responsible; so it has for Entries.
	Entry(node, key []byte) (c Candidate, found bool)
	// Entries appends the blocks that a node of level 0 links between two bounds to dst, at most so many, in ascending
	// order of their keys, or, if down, in descending order. more: the range goes on in the node that is
	// responsible for rest.
	Entries(dst []Candidate, node []byte, from, to Bound, down bool, most int) (blocks []Candidate, rest Place, more bool)
	// Ahead appends the nodes of level 0 that have keys between two bounds, in the order of a scan, but at
	// most n, to dst, as far as one cached node knows them.
	Ahead(dst []memory.Addr, from, to Bound, down bool, n int) []memory.Addr
	// Published tells that a commit of this process has published a node.
	Published(a memory.Addr, value []byte)
	// Owe notes changes of higher levels that follow from a split. They are hints, too: without
	// them searches take longer. Owed takes one that is due, to be made by a transaction of its own.
	Owe(p Post)
	Owed() (p Post, ok bool)
	// Owes reports whether there may be one.
	Owes() bool
	// Due reports whether a node is the one that a Post leads to, still: it may have been merged away, and its block hold
	// another one.
	Due(p Post, child []byte) bool
	// Grow returns the values of the root's block and of a new node at a, for a Post of a level
	// that the index, whose root block's value is given, does not have yet.
	Grow(root []byte, p Post, a memory.Addr) (newRoot, node []byte, err error)
	// Low is where the range of a node begins; the empty key for the first of its level. High is where it ends; bounded is
	// false for the last of its level. Empty reports whether a node of
	// level 0 links nothing.
	Low(node []byte) []byte
	High(node []byte) (key []byte, bounded bool)
	Empty(node []byte) bool
	// NewEditor returns what makes new values of nodes, for one coroutine.
	NewEditor() Editor
}

// Bound is a place between keys: just before Key, just After it, or at the End of all keys.
type Bound struct {
	Key   []byte
	After bool
	End   bool
}

// Place is what a search is for: the node of a level that is responsible for the keys just above a
// bound, or just Below it, where a descending scan goes on.
//
// A search that has taken AnewAfter hops says Anew. Then cached nodes are not asked below what was read: an old copy
// may lead to a block that holds a node of a higher level by now, and this one to the old copy again.
type Place struct {
	Bound
	Below bool
	Level int
	Anew  bool
}

// AnewAfter is how many hops a search takes with the help of cached nodes.
const AnewAfter = 16

// Hop is a block on the way to a place. Near: it should be the node that is responsible.
type Hop struct {
	Addr memory.Addr
	Near bool
}

// PlaceOf is the place of a key.
func PlaceOf(key []byte) Place { return Place{Bound: Bound{Key: key}} }

// ChangeOp is what a change does to an entry of a node.
type ChangeOp uint8

// Changes of entries.
const (
	Link   ChangeOp = iota // the node does not have the key
	Relink                 // it has, and the entry leads to another block from now on
	Unlink                 // it has, and the entry goes
)

// Change is a change of one entry of a node of level 0.
type Change struct {
	Op    ChangeOp
	Key   []byte
	Addr  memory.Addr
	Class memory.Class
}

// Post is an entry that is to be added to the node of a level that is responsible for Key: it leads to Child.
type Post struct {
	Level int
	Key   []byte
	Child memory.Addr
}

// ErrFirst says that an entry is the first one of its node. What it leads to has no left neighbour below that node, to which
// searches could be led.
var ErrFirst = errors.New("index: the first entry of a node stays")

// Editor makes the new values of nodes.
type Editor interface {
	// Edit plans the changes of a node of level 0, which are in order of their keys, each key once, all
	// the node's. It returns the number of blocks that it becomes: one, its own, or, if it is
	// split, one new one for each further value. The arguments must stay as they are until
	// the values were made.
	Edit(node []byte, changes []Change) (n int, err error)
	// EditPost is Edit of a node of a higher level, for a Post that is Due. n is 0 if it has the entry already.
	EditPost(node []byte, p Post) (n int, err error)
	// EditMerge plans the one value of a node into which its right neighbour, whose block is at a, is merged. fits is false if
	// one node has no room for both, or they are no neighbours.
	EditMerge(left, right []byte, a memory.Addr) (fits bool, err error)
	// EditUnpost plans the removal of the entry that EditPost has added. n is 0 if it is not there. ErrFirst: it is
	// the first one of the node, which stays.
	EditUnpost(node []byte, p Post) (n int, err error)
	// Size is the length of value i in bytes. Append appends it to dst; next is the block that value i+1 is for.
	Size(i int) int
	Append(dst []byte, i int, next memory.Addr) []byte
	// Post is what is owed for value i, i > 0, whose block is at a.
	Post(i int, a memory.Addr) Post
}
