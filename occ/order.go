package occ

import (
	"errors"
	"fmt"

	"txnode/index"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/rdma"
)

// NewNodes commits the two blocks of an empty index of nodes of table t, whose values a function
// returns: of its only node, given that node's address, and of its root. It returns where the root
// is. t.Ordered need not be set yet. The transaction is not open.
func (tx *Tx) NewNodes(t *Table, class layout.Class,
	values func(a layout.Addr) (node, root []byte)) (root layout.Addr, err error) {
	if err := tx.Begin(); err != nil {
		return 0, err
	}
	if tx.s.alloc == nil {
		return 0, tx.forgo(ErrReadOnly)
	}
	for _, c := range []layout.Class{class, 0} {
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

// unlink is what reclaiming a deleted record of an ordered table is: a transaction that takes its
// entry out of its node and makes its block free.
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
	if err := tx.vacateBlock(i); err != nil {
		return reclaimLater, tx.forgo(err)
	}
	tx.change(t.table, index.Change{Op: index.Unlink, Key: tx.items[i].indexKey(), Old: t.addr})
	tx.fetched = len(tx.items)
	if err := tx.Commit(); err != nil {
		return reclaimLater, err
	}
	_ = tx.Posts(t.table) // what fails is owed still
	return reclaimed, nil
}

// nodeError is the error of a node that is no sound one, or does not go with those beside it.
func (tx *Tx) nodeError(t *Table, err error) error {
	if bad := (*index.NodeError)(nil); errors.As(err, &bad) {
		tx.ill = ill{block: bad.Addr}
	}
	return fmt.Errorf("%w: index of table %q: %w", ErrCorrupt, t.Name, err)
}

// Posts makes what the index of a table is owed: changes of its structure that follow from commits,
// each by a transaction of its own. One that meets a lock, or has failed, is owed still. The
// transaction is not open.
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
		if err := tx.settlePost(t, p); err != nil {
			p.Tries++
			t.Ordered.Owe(p)
			if errors.Is(err, ErrConflict) {
				err = nil // whoever comes next does it
			}
			return err
		}
	}
	return nil
}

// Owing returns an ordered table that the last transaction has used and whose index owes
// something: see Posts.
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

// settlePost commits what is owed.
func (tx *Tx) settlePost(t *Table, p index.Post) error {
	if err := tx.Begin(); err != nil {
		return err
	}
	e := tx.editor(t)
	e.have = e.have[:0]
	n, err := tx.plan(e, &p)
	if err != nil {
		return tx.forgo(err)
	}
	if n > 0 {
		tx.fetched = len(tx.items)
		return tx.Commit()
	}
	err = tx.Rollback()
	tx.owePosts()
	return err
}

// seek reads the node that is responsible for a place, and locks it. It may be the root's block:
// see index.Here. The transaction depends on the node from then on, so that a further seek that
// passes it leaves it locked.
func (tx *Tx) seek(t *Table, p index.Place) (int, error) {
	ix := t.Ordered
	h := ix.Find(p)
	for hops, tries := 0, 0; tries < maxSearches && hops < maxHops; hops++ {
		if tx.vacated(h.Addr) {
			h, _, _ = ix.Follow(p, index.Node{Addr: h.Addr}, hops)
			tries++
		}
		k, stray, err := tx.readNode(t, h, true)
		if err != nil {
			return 0, err
		}
		x := index.Node{Addr: h.Addr}
		if !stray {
			x = tx.read(&tx.nodes[k])
		}
		next, step, err := ix.Follow(p, x, hops)
		if err != nil {
			tx.ill = ill{block: x.Addr}
			return 0, tx.indexError(&item{table: t}, "looking up in", err)
		}
		if step == index.Astray {
			tries++
		}
		if step != index.Here {
			if !stray {
				tx.dropNode(&tx.nodes[k])
			}
			h = next
			continue
		}
		n := &tx.nodes[k]
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

// readNode reads a node, with its lock if lock, and returns its number. stray: it is none of the
// index, and the number is -1.
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
