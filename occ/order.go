package occ

import (
	"bytes"
	"errors"
	"fmt"

	"txnode/index"
	"txnode/memory"
	"txnode/memory/record"
	"txnode/rdma"
)

// NewOrdered commits the two blocks of an empty ordered index of table t, whose values a function returns:
// of its only node, given that node's address, and of its root. It returns where the root is. t.Ordered need
// not be set yet. The transaction is not open.
func (tx *Tx) NewOrdered(t *Table, class memory.Class, values func(a memory.Addr) (node, root []byte)) (root memory.Addr, err error) {
	if err := tx.Begin(); err != nil {
		return 0, err
	}
	if tx.s.alloc == nil {
		return 0, tx.forgo(ErrReadOnly)
	}
	for _, c := range []memory.Class{class, 0} {
		if err := tx.newNode(t, c, rdma.BladeID(t.ID)%rdma.BladeID(tx.view.Blades())); err != nil {
			return 0, tx.forgo(err)
		}
	}
	node, top := values(tx.items[0].addr)
	for i, v := range [][]byte{node, top} {
		if err := tx.putNode(&tx.items[i], v); err != nil {
			return 0, tx.forgo(err)
		}
	}
	tx.odd, tx.fetched = true, len(tx.items)
	root = tx.items[1].addr
	return root, tx.Commit()
}

// unlink is what reclaiming a deleted record of an ordered table is: a transaction that takes its entry out of its
// node and makes its block free.
func (s *Session) unlink(c *rdma.Coro, t *tombstone) (reclaimResult, error) {
	if s.keeper == nil {
		tx, err := s.NewTx(c)
		if err != nil {
			return reclaimLater, nil //nolint:nilerr // there is no arena for it now
		}
		s.keeper = tx
	}
	tx := s.keeper
	tx.c = c
	result, err := tx.unlink(t)
	if errors.Is(err, ErrConflict) {
		return reclaimLater, nil
	}
	return result, err
}

func (tx *Tx) unlink(t *tombstone) (reclaimResult, error) {
	if err := tx.Begin(); err != nil {
		return reclaimLater, err
	}
	i, err := tx.Stage(t.table, t.key, true)
	if err == nil {
		err = tx.Execute()
	}
	if err != nil {
		return reclaimLater, tx.forgo(err)
	}
	if it := &tx.items[i]; it.addr != t.addr || it.version != t.version || it.state != record.Absent {
		return reclaimNever, tx.Rollback()
	}
	k, err := tx.seek(t.table, index.PlaceOf(t.key))
	if err == nil {
		err = tx.vacateBlock(i)
	}
	if err != nil {
		return reclaimLater, tx.forgo(err)
	}
	tx.nodes[k].changes = append(tx.nodes[k].changes, index.Change{Op: index.Unlink, Key: t.key})
	tx.fetched = len(tx.items)
	n := len(tx.items) // the node comes behind
	if err := tx.Commit(); err != nil {
		return reclaimLater, err
	}
	if it := &tx.items[n]; t.table.Ordered.Empty(tx.bytes(it.val, it.vlen)) {
		for tries := 0; tries < maxMerges && tx.s.broken == nil; tries++ {
			if _, err := tx.merge(t.table, 0, t.key); err == nil || !errors.Is(err, ErrConflict) {
				break // a node that stays empty does no harm
			}
			tx.c.Backoff()
		}
	}
	return reclaimed, nil
}

// maxMerges is how often the merging of a node is tried that meets locks.
const maxMerges = 4

// merge merges the node of a level that is responsible for a key with a neighbour, if one node has room for both. It is
// merged into its left neighbour, or, if it is the first one below its parent, its right neighbour into it. A node that
// is alone below its parent has no neighbour there: the parent is merged with one of its own before.
func (tx *Tx) merge(t *Table, level int, key []byte) (done bool, err error) {
	for tries := range 2 {
		done, first, high, err := tx.mergeOnce(t, level, key)
		if !first || err != nil {
			return done, err
		}
		if high != nil {
			if done, first, _, err = tx.mergeOnce(t, level, high); !first || err != nil {
				return done, err
			}
		}
		if tries > 0 {
			break
		}
		if done, err := tx.merge(t, level+1, key); !done || err != nil {
			return false, err
		}
	}
	return false, nil
}

// mergeOnce merges a node into its left neighbour; first: it is the first one below its parent, and its range ends with
// high, nil: nowhere.
func (tx *Tx) mergeOnce(t *Table, level int, key []byte) (done, first bool, high []byte, err error) {
	if err := tx.Begin(); err != nil {
		return false, false, nil, err
	}
	done, first, high, err = tx.prepareMerge(t, level, key)
	if err != nil {
		return false, false, nil, tx.forgo(err)
	}
	if !done {
		return false, first, high, tx.Rollback()
	}
	n := len(tx.items)
	tx.fetched = n
	if err := tx.Commit(); err != nil {
		return false, false, nil, err
	}
	tx.publishedNodes(t, n)
	return true, false, nil, nil
}

// prepareMerge reads and locks a node, its left neighbour and their parent, and makes items of them.
func (tx *Tx) prepareMerge(t *Table, level int, key []byte) (due, first bool, high []byte, err error) {
	ix := t.Ordered
	p := index.PlaceOf(key)
	p.Level = level
	r, err := tx.seek(t, p)
	if err != nil {
		return false, false, nil, err
	}
	at, right := tx.nodes[r].addr, tx.nodeImage(&tx.nodes[r]).Value()
	if at == ix.Root() {
		return false, false, nil, nil
	}
	low := ix.Low(right)
	if end, bounded := ix.High(right); bounded {
		high = bytes.Clone(end)
	}
	if len(low) == 0 {
		return false, true, high, nil // of its level, too
	}
	l, err := tx.seek(t, index.Place{Bound: index.Bound{Key: low}, Below: true, Level: level})
	if err != nil {
		return false, false, nil, err
	}
	up, err := tx.seek(t, index.Place{Bound: index.Bound{Key: low}, Level: level + 1})
	if err != nil {
		return false, false, nil, err
	}
	ed := tx.editor(t)
	if tx.nodes[up].addr != ix.Root() { // else the index does not have that level yet
		k, err := ed.EditUnpost(tx.nodeImage(&tx.nodes[up]).Value(), index.Post{Level: level + 1, Key: low, Child: at})
		if errors.Is(err, index.ErrFirst) {
			return false, true, high, nil
		}
		if err != nil {
			return false, false, nil, tx.nodeError(t, &tx.nodes[up], err)
		}
		if k > 0 {
			if err := tx.edited(&tx.nodes[up], ed, k); err != nil {
				return false, false, nil, err
			}
		}
	}
	fits, err := ed.EditMerge(tx.nodeImage(&tx.nodes[l]).Value(), right, at)
	if err != nil {
		return false, false, nil, tx.nodeError(t, &tx.nodes[l], err)
	}
	if !fits {
		return false, false, nil, nil
	}
	if err := tx.edited(&tx.nodes[l], ed, 1); err != nil {
		return false, false, nil, err
	}
	return true, false, nil, tx.vacateNode(&tx.nodes[r])
}

// nodeError is the error of a node that is no sound one, or does not go with those beside it.
func (tx *Tx) nodeError(t *Table, n *node, err error) error {
	tx.ill = ill{block: n.addr}
	return fmt.Errorf("%w: node %v of table %q: %w", ErrCorrupt, n.addr, t.Name, err)
}

// Posts makes what ordered indexes owe: the changes of higher levels that follow from splits, each by a transaction
// of its own. One that meets a lock, or has failed, is owed still. The transaction is not open.
func (tx *Tx) Posts(t *Table) error {
	if tx.s.alloc == nil || t.Ordered == nil || tx.s.broken != nil {
		return nil
	}
	hist := tx.hist
	tx.hist = nil // nobody reads or writes anything
	defer func() { tx.hist = hist }()
	for range maxPosts {
		p, ok := t.Ordered.Owed()
		if !ok || t.Dropped() {
			return nil
		}
		if err := tx.post(t, p); err != nil {
			t.Ordered.Owe(p)
			if errors.Is(err, ErrConflict) {
				err = nil // whoever comes next does it
			}
			return err
		}
	}
	return nil
}

// Owing returns an ordered table that the last transaction has used and whose index owes something: see Posts.
func (tx *Tx) Owing() *Table {
	for i := range tx.nodes {
		if t := tx.nodes[i].table; t.Ordered.Owes() {
			return t
		}
	}
	return nil
}

// maxPosts bounds what one call of Posts does.
const maxPosts = 64

// post commits a change of a higher level.
func (tx *Tx) post(t *Table, p index.Post) error {
	if err := tx.Begin(); err != nil {
		return err
	}
	due, err := tx.preparePost(t, p)
	if err != nil {
		return tx.forgo(err)
	}
	if !due {
		return tx.Rollback()
	}
	n := len(tx.items)
	tx.fetched = n
	if err := tx.Commit(); err != nil {
		return err
	}
	tx.publishedNodes(t, n)
	return nil
}

// publishedNodes tells the index of the nodes that the transaction has committed, as the first n of its items.
func (tx *Tx) publishedNodes(t *Table, n int) {
	for i := range tx.items[:n] {
		if it := &tx.items[i]; it.state == record.Node && !it.vacates {
			t.Ordered.Published(it.addr, tx.bytes(it.val, it.vlen))
		}
	}
}

// preparePost reads and locks what a change of a higher level needs, and makes items of it. due is false if
// there is nothing to do.
func (tx *Tx) preparePost(t *Table, p index.Post) (due bool, err error) {
	if tx.vacated(p.Child) {
		return false, nil // it was merged away since
	}
	// The child proves that the change is still right: its version is validated.
	child, _, err := tx.readNode(t, index.Hop{Addr: p.Child}, false)
	if err != nil || child < 0 {
		return false, err
	}
	if !tx.nodes[child].free() {
		return false, tx.meet(AbortReadLocked, &item{table: t, addr: p.Child}, tx.nodes[child].guard)
	}
	if !t.Ordered.Due(p, tx.nodeImage(&tx.nodes[child]).Value()) {
		return false, nil
	}
	tx.nodes[child].used, tx.valid = true, false
	k, err := tx.seek(t, index.Place{Bound: index.Bound{Key: p.Key}, Level: p.Level})
	if err != nil {
		return false, err
	}
	n := &tx.nodes[k]
	if n.addr == t.Ordered.Root() {
		return true, tx.grow(t, k, p)
	}
	ed := tx.editor(t)
	images, err := ed.EditPost(tx.nodeImage(n).Value(), p)
	if err != nil {
		return false, tx.nodeError(t, n, err)
	}
	if images == 0 {
		return false, nil
	}
	return true, tx.edited(n, ed, images)
}

// grow makes items of the root's block, which is locked, and of a new node above all others.
func (tx *Tx) grow(t *Table, k int, p index.Post) error {
	root := tx.nodeItemOf(&tx.nodes[k])
	if err := tx.newNode(t, t.Ordered.NodeClass(), tx.nextBlade()); err != nil {
		return err
	}
	top, node, err := t.Ordered.Grow(tx.nodeImage(&tx.nodes[k]).Value(), p, tx.items[len(tx.items)-1].addr)
	if err != nil {
		return err
	}
	if err := tx.putNode(&tx.items[root], top); err != nil {
		return err
	}
	return tx.putNode(&tx.items[root+1], node)
}

// seek reads the node that is responsible for a place, and locks it. It may be the root's block: see
// index.Ordered.Follow. The transaction depends on the node from then on, so that a further seek that passes it
// leaves it locked.
func (tx *Tx) seek(t *Table, p index.Place) (int, error) {
	h := t.Ordered.Find(p)
	for hops, tries := 0, 0; tries < maxSearches && hops < maxHops; hops++ {
		if tx.vacated(h.Addr) {
			h, tries = t.Ordered.Astray(p), tries+1
		}
		k, stray, err := tx.readNode(t, h, true)
		if err != nil {
			return 0, err
		}
		if stray {
			h, tries = t.Ordered.Astray(p), tries+1
			continue
		}
		n := &tx.nodes[k]
		p.Anew = hops > index.AnewAfter
		next, here, err := t.Ordered.Follow(p, n.addr, tx.nodeImage(n).Value())
		if err != nil {
			tx.ill = ill{block: n.addr}
			return 0, tx.indexError(&item{table: t}, "looking up in", err)
		}
		if !here {
			if next.Addr == t.Ordered.Root() {
				tries++
			}
			tx.dropNode(n)
			h = next
			continue
		}
		if !n.locked {
			if !n.free() {
				return 0, tx.meet(AbortLocked, &item{table: t, addr: n.addr}, n.guard)
			}
			if err := tx.lockNode(n); err != nil {
				return 0, err
			}
		}
		n.used = true
		return k, nil
	}
	return 0, tx.conflict(AbortStale, &item{table: t})
}

// lockNode locks a node at the version that was read.
func (tx *Tx) lockNode(n *node) error {
	b := &tx.batch
	b.Reset()
	g := tx.view.At(n.addr, 0)
	g.Off += record.GuardOff
	cas := b.CAS(g, uint64(record.FreeAt(n.version)), uint64(record.HeldBy(tx.id)))
	if err := tx.c.Do(b); err != nil {
		return tx.s.stopped(err)
	}
	switch prior := record.Guard(b.Result(cas)); {
	case prior == record.FreeAt(n.version):
		n.locked, n.prior = true, prior
		return nil
	case prior.Held():
		return tx.meet(AbortLocked, &item{table: n.table, addr: n.addr}, prior)
	}
	return tx.conflict(AbortPhantom, &item{table: n.table, addr: n.addr})
}

// readNode reads a node, with its lock if lock, and returns its number. stray: it is none of the index, and the
// number is -1.
func (tx *Tx) readNode(t *Table, h index.Hop, lock bool) (k int, stray bool, err error) {
	c, b := tx.c, &tx.batch
	c.Count = &tx.phases[PhaseExecute]
	k = tx.node(t, h)
	tx.nodes[k].near = tx.nodes[k].near || h.Near
	for {
		b.Reset()
		n := &tx.nodes[k]
		if err := tx.appendNode(n, lock); err != nil {
			return -1, false, err
		}
		if err := c.Do(b); err != nil {
			return -1, false, tx.s.stopped(err)
		}
		ok, stray, err := tx.acceptNode(n)
		if stray || err != nil {
			return -1, stray, err
		}
		if ok {
			return k, false, nil
		}
	}
}
