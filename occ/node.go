package occ

import (
	"bytes"

	"txnode/index"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/rdma"
)

// An ordered table has an index of nodes (index.Ranged), which are blocks like records. A lookup
// reads the node that is responsible for its key, as far as cached inner nodes know. Lookups of one
// transaction share the READ of a node. That a key is absent holds as long as its node has the
// version that was read: 8 bytes tell, whatever the node's size.
//
// To insert a key, its node is locked: with the fetch if the key was staged with Insert, else by
// the commit (plant). The commit changes the node (edit.go).

// node is a block of an ordered index that the transaction has read.
type node struct {
	table   *Table
	addr    layout.Addr
	class   layout.Class // of the block, once that is to be read
	version record.TxID  // as read, and as held while locked
	guard   record.Guard // as read
	prior   record.Guard // as the lock was taken
	buf     uint32       // arena: image as read; 0: none yet
	cas, rd int32        // requests in the batch
	state   nodeState
	tries   uint8
	near    bool // it should be the node that is responsible, and may be locked unread
	locked  bool
	used    bool // the transaction depends on the version
	stale   bool // it was not the one that was looked for: to be read again when a search leads there once more
}

type nodeState uint8

const (
	nodeNew   nodeState = iota // not read, or to be read again
	nodeAsked                  // a READ is in the batch
	nodeRead
)

// node returns the number of a block in tx.nodes.
func (tx *Tx) node(t *Table, h index.Hop) int {
	for i := len(tx.nodes) - 1; i >= 0; i-- {
		if n := &tx.nodes[i]; n.addr == h.Addr && n.table == t {
			return i
		}
	}
	if k := len(tx.nodes); k < cap(tx.nodes) {
		tx.nodes = tx.nodes[:k+1]
	} else {
		tx.nodes = append(tx.nodes, node{})
	}
	n := &tx.nodes[len(tx.nodes)-1]
	*n = node{table: t, addr: h.Addr, near: h.Near}
	return len(tx.nodes) - 1
}

// nodeClass is the class of the block at an address if that is a node's. A stale hint may lead to a
// block that is larger than any node.
func (tx *Tx) nodeClass(t *Table, a layout.Addr) layout.Class {
	return min(tx.view.Class(a), t.Ordered.NodeClass())
}

func (tx *Tx) nodeImage(n *node) record.Image { return record.Image(tx.bytes(n.buf, n.class.Size())) }

// read is a node as it was read.
func (tx *Tx) read(n *node) index.Node {
	return index.Node{Addr: n.addr, Body: tx.nodeImage(n).Value()}
}

// appendNode appends the READ of a node to the batch, unless that was done or is not necessary.
// lock: with its lock in front.
func (tx *Tx) appendNode(n *node, lock bool) error {
	if n.state != nodeNew && !n.stale || n.state == nodeAsked {
		return nil
	}
	n.stale = false
	if !tx.reaches(n.addr) {
		return tx.lost(&item{table: n.table}, n.addr)
	}
	if n.buf == 0 {
		n.class = tx.nodeClass(n.table, n.addr)
		at, err := tx.alloc(n.class.Size() + record.LineSize)
		if err != nil {
			return err
		}
		n.buf = (at + record.LineSize - 1) &^ (record.LineSize - 1)
	}
	b, from := &tx.batch, tx.view.At(n.addr, 0)
	n.cas = -1
	if lock && n.near && !n.locked && tx.s.caps.MaskedCAS {
		g := from
		g.Off += record.GuardOff
		n.cas = int32(b.MaskedCAS(g, 0, uint64(record.HeldBy(tx.id)), tx.s.masks))
	}
	n.rd = int32(b.Read(from, n.buf, n.class.Size()))
	n.state = nodeAsked
	return nil
}

// acceptNode looks at a node that was read. ok is false if it is to be read again. stray: it is no
// node of the index (any more).
func (tx *Tx) acceptNode(n *node) (ok, stray bool, err error) {
	if n.state == nodeRead {
		return true, false, nil
	}
	if n.state == nodeNew { // another item has seen that it is to be read again
		return false, false, nil
	}
	n.state = nodeNew
	if n.cas >= 0 {
		if prior := record.Guard(tx.batch.Result(int(n.cas))); !prior.Held() {
			n.locked, n.prior = true, prior
		}
	}
	img := tx.nodeImage(n)
	_, bad := img.Check(n.addr)
	switch g := img.Guard(); {
	case bad != nil:
		if n.tries++; n.tries > maxRereads {
			return false, false, tx.meet(AbortReadLocked, &item{table: n.table, addr: n.addr}, g)
		}
		if n.tries > 2 {
			tx.c.Yield()
		}
		return false, false, nil
	case img.Meta().State() != record.Node || img.Meta().Table() != n.table.ID:
		tx.dropNode(n)
		return false, true, nil
	case n.locked && (g != record.HeldBy(tx.id) || img.Version() != n.prior.Version()):
		n.tries++ // the last lines of the image before are still on their way
		if n.tries > maxRereads {
			return false, false, tx.meet(AbortReadLocked, &item{table: n.table, addr: n.addr}, g)
		}
		return false, false, nil
	case n.used && img.Version() != n.version:
		return false, false, tx.conflict(AbortPhantom, &item{table: n.table, addr: n.addr})
	}
	n.guard, n.version = img.Guard(), img.Version()
	n.state = nodeRead
	return true, false, nil
}

// free reports whether nobody but the transaction has the node locked, as it was read.
func (n *node) free() bool { return n.locked || n.guard == record.FreeAt(n.version) }

// dropStale gives the locks back of nodes that turned out not to be the right ones.
func (tx *Tx) dropStale() {
	for i := range tx.nodes {
		if n := &tx.nodes[i]; n.stale && n.locked {
			tx.dropNode(n)
		}
	}
}

// dropNode forgets what was read of a node that turned out not to be the right one.
func (tx *Tx) dropNode(n *node) {
	if n.used {
		return
	}
	n.state = nodeNew
	if !n.locked {
		return
	}
	// The block may be in other hands by now: only the transaction's own lock is replaced.
	g := tx.view.At(n.addr, 0)
	g.Off += record.GuardOff
	f := &tx.flights[tx.flight]
	f.bg.CAS(g, uint64(record.HeldBy(tx.id)), uint64(n.prior))
	tx.c.Post(&f.bg)
	n.locked = false
}

// vacated reports whether an address, which a cached node leads to, is in a segment that has gone
// back, or is about to.
func (tx *Tx) vacated(a layout.Addr) bool { return tx.view.Gone(a) && !tx.reaches(a) }

// appendSearch appends what an item of an ordered table needs to be looked up.
func (tx *Tx) appendSearch(it *item) error {
	ix, h := it.table.Ordered, it.hop
	if h.Addr == 0 {
		h = ix.Find(it.where())
	}
	if tx.vacated(h.Addr) {
		h, _, _ = ix.Follow(it.where(), index.Node{Addr: h.Addr}, 0)
	}
	it.node = int32(tx.node(it.table, h)) + 1
	n := &tx.nodes[it.node-1]
	n.near = n.near || h.Near
	return tx.appendNode(n, it.insert)
}

// searchedNode interprets what appendSearch has read.
func (tx *Tx) searchedNode(it *item) error {
	n := &tx.nodes[it.node-1]
	ok, stray, err := tx.acceptNode(n)
	if err != nil {
		return err
	}
	ix, p := it.table.Ordered, it.where()
	if stray {
		it.hop, _, _ = ix.Follow(p, index.Node{Addr: n.addr}, int(it.hops))
		return tx.searchAgain(it)
	}
	if !ok {
		return nil // and stays at this step
	}
	x := tx.read(n)
	h, step, err := ix.Follow(p, x, int(it.hops))
	if err != nil {
		tx.ill = ill{block: n.addr}
		return tx.indexError(it, "looking up in", err)
	}
	if step != index.Here {
		if it.hops++; it.hops > maxHops {
			return tx.giveUp(it)
		}
		n.stale = !n.used // others that have come here may find what they look for
		it.hop = h
		return nil
	}
	it.hop, it.passed, it.leaf = index.Hop{}, 0, n.version
	return tx.candidate(it, x)
}

// candidate goes on with the next block that the node of an item, x as it was read, links for the
// key: one, or, of a table of hashes, all that have its hash, one after the other. If none has the
// key, it is absent, as long as the node has the version that was read: a block that is linked keeps
// its key.
func (tx *Tx) candidate(it *item, x index.Node) error {
	n := &tx.nodes[it.node-1]
	tx.evidence = append(tx.evidence[:0], x)
	tx.cands = it.table.Ordered.Candidates(tx.cands[:0], it.indexKey(), tx.evidence)
	if int(it.passed) < len(tx.cands) {
		x := tx.cands[it.passed]
		if !tx.reaches(x.Addr) || x.Class >= layout.NumClasses {
			return tx.lost(it, x.Addr)
		}
		it.addr, it.class, it.bufLen = x.Addr, x.Class, 0
		it.step, it.unsure = stepProbe, len(tx.cands) > 1 || it.table.Hashed && it.insert
		return nil
	}
	if !n.free() {
		it.step = stepSearch
		if it.tries++; it.tries > heldLooks {
			return tx.meet(AbortReadLocked, &item{table: n.table, addr: n.addr}, n.guard)
		}
		if it.tries > 2 {
			tx.c.Yield()
		}
		n.state = nodeNew
		return nil
	}
	n.used, n.stale = true, false
	return tx.absent(it)
}

// maxHops is how many nodes a search follows at most that are not the one it is for. Nodes that do
// not fit together could lead it in a circle.
const maxHops = 200

// heldLooks is how often a locked node is read again before that is a conflict: inserters of other
// keys lock it, for two round trips.
const heldLooks = 8

// notHere is notThis for an item of an ordered table: the block that its node links does not
// hold the key. Of a table of hashes, it may be that of another key with the same hash.
func (tx *Tx) notHere(it *item, img record.Image) error {
	it.addr = 0
	n := &tx.nodes[it.node-1]
	if m := img.Meta(); it.table.Hashed && m.State() != record.Free && m.Table() == it.table.ID &&
		n.state == nodeRead && n.version == it.leaf && it.collides(img.Key()) {
		it.passed++
		return tx.candidate(it, tx.read(n))
	}
	if n.used || n.locked {
		return tx.conflict(AbortStale, it)
	}
	n.state = nodeNew
	return tx.searchAgain(it)
}

// collides reports whether another key has the item's hash.
func (it *item) collides(key []byte) bool {
	return bytes.Equal(index.AppendHash(nil, record.Hash(it.table.ID, key)), it.indexKey())
}

// leans reports whether the transaction depends on versions of nodes that are not locked.
func (tx *Tx) leans() bool {
	for i := range tx.nodes {
		if n := &tx.nodes[i]; n.used && !n.locked {
			return true
		}
	}
	return false
}

// appendNodeGuards appends the READs of the guards of nodes that the transaction depends on.
func (tx *Tx) appendNodeGuards() {
	for i := range tx.nodes {
		if n := &tx.nodes[i]; n.used && !n.locked {
			g := tx.view.At(n.addr, 0)
			g.Off += record.GuardOff
			tx.batch.Read(g, n.buf+record.GuardOff, 8)
		}
	}
}

// checkNodeGuards compares them.
func (tx *Tx) checkNodeGuards() error {
	for i := range tx.nodes {
		n := &tx.nodes[i]
		if !n.used || n.locked {
			continue
		}
		g := record.Guard(tx.s.thread.Word(n.buf + record.GuardOff))
		if g == record.FreeAt(n.version) {
			continue
		}
		if it := (&item{table: n.table, addr: n.addr}); g.Held() {
			return tx.meet(AbortReadLocked, it, g)
		} else { //nolint:revive // it is of both
			return tx.conflict(AbortPhantom, it)
		}
	}
	return nil
}

// releaseNodes appends what gives locks of nodes back, at the versions found.
func (tx *Tx) releaseNodes(bg *rdma.Batch) {
	for i := range tx.nodes {
		n := &tx.nodes[i]
		if !n.locked {
			continue
		}
		g := tx.view.At(n.addr, 0)
		g.Off += record.GuardOff
		n.locked = false
		if n.state != nodeRead {
			// It was not seen what block that is: the lock may be lost to the image of a new one.
			bg.CAS(g, uint64(record.HeldBy(tx.id)), uint64(n.prior))
			continue
		}
		at := n.buf + record.GuardOff
		tx.s.thread.PutWord(at, uint64(n.prior))
		bg.Write(g, at, 8)
	}
}
