package occ

import (
	"bytes"
	"fmt"
	"slices"

	"txnode/index"
	"txnode/log"
	"txnode/memory"
	"txnode/memory/record"
	"txnode/rdma"
)

// A commit that inserts keys into ordered tables changes nodes. A node is one more record that is
// written: locked at its version, an image in the log, on the backups, and on the primary, which
// releases it. The blocks of new records, and of nodes that a split makes, are private until then: they
// were free, and nothing leads to them. So they need neither lock nor READ. Their log entries are log.New:
// recovery writes them if their blocks still are as free as they were.
//
// Order at the primaries: private blocks first, then nodes. New records lie on the blade of their node, if
// there is room, so that one queue pair keeps the order; else they are waited for. An entry of a node that is
// not locked never leads to a free block.

// plants reports whether an item is to be linked in a node by the commit.
func (it *item) plants() bool {
	return it.write == writePut && it.table.Ordered != nil && (it.addr == 0 || it.outgrown())
}

// outgrown reports whether a record of an ordered table has come to be too large for its block. It gets another one.
func (it *item) outgrown() bool {
	return it.addr != 0 && it.table.Ordered != nil && it.wlen > it.class.Size() && it.write == writePut && !it.unlinked()
}

// plant locks the nodes of the keys that are to be inserted, and finds blocks for their records.
func (tx *Tx) plant() error {
	for i := range tx.items {
		if it := &tx.items[i]; it.outgrown() {
			k, err := tx.seek(it.table, index.PlaceOf(it.key()))
			if err != nil {
				return err
			}
			it.node = int32(k) + 1
		}
	}
	for round := 0; ; round++ {
		moved, err := tx.lockNodes()
		if err != nil {
			return err
		}
		if !moved {
			break
		}
		if round == maxOwnRounds {
			return tx.conflict(AbortPhantom, tx.firstChanged(len(tx.items)))
		}
		if err := tx.lookAgain(len(tx.items)); err != nil {
			return err
		}
	}
	for i, last := 0, len(tx.items); i < last; i++ {
		it := &tx.items[i]
		if !it.plants() {
			continue
		}
		class, ok := record.ClassFor(int(it.klen), int(it.vlen))
		if !ok {
			return &TooLargeError{What: "record", Got: int(it.wlen), Limit: int(memory.MaxBlock)}
		}
		n, op := &tx.nodes[it.node-1], index.Link
		if it.addr != 0 {
			op = index.Relink
			if err := tx.vacateBlock(i); err != nil {
				return err
			}
			it = &tx.items[i]
		}
		if err := tx.private(it, class, tx.view.At(n.addr, 0).Blade); err != nil {
			return err
		}
		n.changes = append(n.changes, index.Change{Op: op, Key: it.key(), Addr: it.addr, Class: it.class})
	}
	return nil
}

// vacateBlock appends an item that makes the block of item i, which is locked, free by the commit. Item i has no
// block then.
func (tx *Tx) vacateBlock(i int) error {
	tx.items = append(tx.items, item{})
	it, from := &tx.items[len(tx.items)-1], &tx.items[i]
	tx.nodeItem(it, from.table)
	it.addr, it.class, it.version, it.prior, it.buf, it.locked = from.addr, from.class, from.version, from.prior, from.buf, true
	tx.s.eng.forget(from.table.ID, from.key(), from.place(), it.addr)
	from.addr, from.locked, from.cached = 0, false, false
	return tx.makeFree(it)
}

// vacateNode appends an item that makes the block of a node, which is locked, free by the commit.
func (tx *Tx) vacateNode(n *node) error {
	i := tx.nodeItemOf(n)
	tx.writes-- // makeFree counts it
	return tx.makeFree(&tx.items[i])
}

// makeFree has an item whose block is locked make it free.
func (tx *Tx) makeFree(it *item) error {
	it.write = writeNone // until there is an image
	at, err := tx.reserve(record.LineSize)
	if err != nil {
		return err
	}
	it.write, it.vacates, it.w, it.wlen = writePut, true, int32(at), record.LineSize
	it.val, it.vlen = tx.logAt+uint32(at), 0
	tx.s.hold(it.addr)
	tx.writes++
	tx.edits, tx.odd, tx.vacates = true, true, true
	return nil
}

// hold announces that a block is going to be freed. What an earlier transaction of the session has to say of its image does not
// matter any more.
func (s *Session) hold(a memory.Addr) {
	for _, tx := range s.txs {
		for i := range tx.flights {
			f := &tx.flights[i]
			f.installs = slices.DeleteFunc(f.installs, func(x memory.Addr) bool { return x == a })
		}
	}
	s.alloc.Hold(a)
}

// keepVacated notes that the blocks are in use still which a transaction without effect would have made free.
func (tx *Tx) keepVacated() {
	for i := range tx.items {
		if it := &tx.items[i]; it.vacates {
			tx.s.alloc.Used(it.addr)
		}
	}
}

// freeVacated gives the blocks to the allocator that the transaction has made free, when all copies say so.
func (tx *Tx) freeVacated() error {
	bg := &tx.flights[tx.flight].bg
	if err := tx.c.Drain(bg); err != nil {
		return err
	}
	if err := tx.c.Fence(rdma.FenceThread, 0, &tx.batch); err != nil {
		return err
	}
	for i := range tx.items {
		if it := &tx.items[i]; it.vacates {
			tx.s.alloc.Free(it.addr, it.class)
		}
	}
	return nil
}

// lockNodes locks the nodes of the keys that are to be inserted, at the versions that were read. moved: some have
// changed since, and items were marked that are to be looked up again.
func (tx *Tx) lockNodes() (moved bool, err error) {
	c, b := tx.c, &tx.batch
	c.Count = &tx.phases[PhaseExecute]
	b.Reset()
	for i := range tx.nodes {
		tx.nodes[i].cas = -1
	}
	for i := range tx.items {
		it := &tx.items[i]
		if !it.plants() || it.addr != 0 {
			continue
		}
		if n := &tx.nodes[it.node-1]; !n.locked && n.cas < 0 {
			g := tx.view.At(n.addr, 0)
			g.Off += record.GuardOff
			n.cas = int32(b.CAS(g, uint64(record.FreeAt(n.version)), uint64(record.HeldBy(tx.id))))
		}
	}
	if b.Len() == 0 {
		return false, nil
	}
	if err := c.Do(b); err != nil {
		return false, tx.s.stopped(err)
	}
	var failed error
	for i := range tx.nodes {
		n := &tx.nodes[i]
		if n.cas < 0 {
			continue
		}
		switch prior := record.Guard(b.Result(int(n.cas))); {
		case prior == record.FreeAt(n.version):
			n.locked, n.prior = true, prior
		case prior.Held():
			failed = tx.meet(AbortLocked, &item{table: n.table, addr: n.addr}, prior)
		default:
			// Keys that the transaction has seen absent may still be. What a scan has seen is validated.
			moved = true
			n.state, n.used, n.near = nodeNew, false, true
			for k := range tx.items {
				if it := &tx.items[k]; it.addr == 0 && int(it.node) == i+1 && it.table == n.table {
					it.changed, it.insert = true, it.insert || it.plants()
				}
			}
		}
	}
	return moved, failed
}

// private gives an item a block that nobody knows of, on a blade if there is room.
func (tx *Tx) private(it *item, class memory.Class, blade rdma.BladeID) error {
	a, class, err := tx.blockOn(tx.c, class, blade, it.state == record.Node) // the index says of which class its nodes are
	if err != nil {
		return tx.s.failed(fmt.Errorf("txn: a block for a new record of table %q: %w", it.table.Name, err))
	}
	if !tx.reaches(a) {
		tx.s.alloc.Free(a, class)
		return fmt.Errorf("%w: the memory map has changed", ErrConflict)
	}
	it.addr, it.class, it.private, it.locked = a, class, true, true
	tx.edits = true
	if !tx.s.caps.OrderedLine { // its guard follows in a WRITE of its own: see appendInstall
		if it.buf, err = tx.alloc(record.LineSize); err != nil {
			return err
		}
	}
	if tx.view.Written(a) > tx.view.Copies(a) {
		return tx.hold(it)
	}
	return nil
}

// hold writes a locked image to the primary of a private block of which a copy is being built: who builds it
// must see that the block is not free any more, before the transaction writes to that copy. The block is like
// that of a record then.
func (tx *Tx) hold(it *item) error {
	n := uint32(record.Size(int(it.klen), 0))
	at, err := tx.alloc(n)
	if err != nil {
		return err
	}
	version, err := tx.s.nextTx()
	if err != nil {
		return err
	}
	it.buf, it.bufLen, it.prior = at, n, record.FreeAt(tx.id)
	record.Image(tx.bytes(at, n)).Put(it.addr, version, record.Absent, it.table.ID, it.class, tx.id, it.key(), nil)
	b := &tx.batch
	b.Reset()
	b.Write(tx.view.At(it.addr, 0), at, n)
	it.private, it.inserted = false, true
	if err := tx.c.Do(b); err != nil {
		return tx.s.fail(err)
	}
	if err := tx.c.Fence(rdma.FenceThread, 0, b); err != nil {
		return tx.s.fail(err)
	}
	return nil
}

// unlinked reports whether an item has a block that only the commit links in a node.
func (it *item) unlinked() bool { return it.private || it.inserted && it.table.Ordered != nil }

// freePrivate gives the private blocks back of a transaction that has no effect.
func (tx *Tx) freePrivate() {
	for i := range tx.items {
		if it := &tx.items[i]; it.private {
			tx.s.alloc.Free(it.addr, it.class)
			it.private, it.locked = false, false
		}
	}
}

// edit makes items of the nodes that the commit changes.
func (tx *Tx) edit() error {
	for i := range tx.nodes {
		n := &tx.nodes[i]
		if len(n.changes) == 0 {
			continue
		}
		slices.SortFunc(n.changes, func(x, y index.Change) int { return bytes.Compare(x.Key, y.Key) })
		ed := tx.editor(n.table)
		k, err := ed.Edit(tx.nodeImage(n).Value(), n.changes)
		if err != nil {
			return tx.nodeError(n.table, n, err)
		}
		if err := tx.edited(n, ed, k); err != nil {
			return err
		}
	}
	return nil
}

// editor returns what changes nodes of a table.
func (tx *Tx) editor(t *Table) index.Editor {
	for i := range tx.editors {
		if tx.editors[i].table == t {
			return tx.editors[i].Editor
		}
	}
	tx.editors = append(tx.editors, tableEditor{t, t.Ordered.NewEditor()})
	return tx.editors[len(tx.editors)-1].Editor
}

type tableEditor struct {
	table *Table
	index.Editor
}

// edited makes items of the k values that an editor has made of a node: of its own block, and of new ones.
func (tx *Tx) edited(n *node, ed index.Editor, k int) error {
	t := n.table
	first := tx.nodeItemOf(n)
	for i := 1; i < k; i++ {
		if err := tx.newNode(t, t.Ordered.NodeClass(), tx.nextBlade()); err != nil {
			return err
		}
		tx.posts = append(tx.posts, tablePost{t, ed.Post(i, tx.items[len(tx.items)-1].addr)})
	}
	for i := range k {
		var next memory.Addr
		if i+1 < k {
			next = tx.items[first+i+1].addr
		}
		tx.scratch = ed.Append(tx.scratch[:0], i, next)
		if err := tx.putNode(&tx.items[first+i], tx.scratch); err != nil {
			return err
		}
	}
	return nil
}

// nodeItemOf appends an item for a node that is locked, and returns its number.
func (tx *Tx) nodeItemOf(n *node) int {
	tx.items = append(tx.items, item{})
	it := &tx.items[len(tx.items)-1]
	tx.nodeItem(it, n.table)
	it.addr, it.class, it.version, it.prior, it.buf, it.locked = n.addr, n.class(), n.version, n.prior, n.buf, true
	n.locked, n.used = false, false // the item has the lock now
	tx.writes++
	tx.edits, tx.odd = true, true
	return len(tx.items) - 1
}

// nextBlade is the blade for a new node: all in turn, so that an index does not stay on one.
func (tx *Tx) nextBlade() rdma.BladeID { return rdma.BladeID(tx.s.seq % uint64(tx.view.Blades())) }

// tablePost is what is owed to the index of a table when the transaction has committed.
type tablePost struct {
	table *Table
	index.Post
}

// nodeItem makes an item that of a node.
func (tx *Tx) nodeItem(it *item, t *Table) {
	it.fresh(t, true)
	it.klen, it.short, it.long = 0, 0, nil
	it.step, it.state, it.write = stepDone, record.Node, writePut
}

// newNode appends an item with a private block for a node.
func (tx *Tx) newNode(t *Table, class memory.Class, blade rdma.BladeID) error {
	tx.items = append(tx.items, item{})
	it := &tx.items[len(tx.items)-1]
	tx.nodeItem(it, t)
	it.write = writeNone
	if err := tx.private(it, class, blade); err != nil {
		return err
	}
	it.write = writePut
	tx.writes++
	return nil
}

// putNode places the value of a node's item in the log record.
func (tx *Tx) putNode(it *item, value []byte) error {
	n := record.Size(0, len(value))
	at, err := tx.reserve(n)
	if err != nil {
		return err
	}
	it.w, it.wlen, it.vlen = int32(at), uint32(n), uint32(len(value))
	it.val = tx.logAt + uint32(at) + uint32(record.ValueAt(0, len(value)))
	record.Image(tx.logBytes()[at:at+n]).PutBody(nil, value)
	return nil
}

// publishPrivate writes the private blocks of a transaction that has committed to their primaries. When it returns,
// whoever reads a node after a WRITE that is posted later to the node's blade finds them.
func (tx *Tx) publishPrivate() error {
	f := &tx.flights[tx.flight]
	bg := &f.bg
	var homes bladeSet // of nodes that lead to them
	var privates bladeSet
	for i := range tx.items {
		switch it := &tx.items[i]; {
		case it.unlinked():
			privates.add(tx.view.At(it.addr, 0).Blade)
			tx.appendInstall(it, tx.view.At(it.addr, 0))
		case it.state == record.Node && it.write == writePut:
			homes.add(tx.view.At(it.addr, 0).Blade)
		}
	}
	if privates == 0 || privates == homes && homes.len() == 1 {
		return nil
	}
	tx.c.Post(bg)
	if err := tx.c.Wait(bg); err != nil {
		return err
	}
	return tx.c.Fence(rdma.FenceThread, 0, &tx.batch)
}

// rememberPrivate notes where the records are of a transaction that has committed, if their images are complete: who locked a
// block before could lose the lock to the image.
func (tx *Tx) rememberPrivate() {
	for i := range tx.items {
		if it := &tx.items[i]; it.unlinked() && it.state != record.Node {
			tx.remember(it)
		}
	}
}

// usePrivate notes which private blocks come to be in use, and what indexes are owed.
func (tx *Tx) usePrivate() {
	for i := range tx.items {
		it := &tx.items[i]
		if !it.unlinked() {
			continue
		}
		f := &tx.flights[tx.flight]
		f.installs = append(f.installs, it.addr)
	}
	for _, p := range tx.posts {
		p.table.Ordered.Owe(p.Post)
	}
}

// installed notes that the private blocks of a transaction are in use, whose images are complete at their primaries: from now
// on nobody takes them for free.
func (tx *Tx) installed(f *flight) error {
	if len(f.installs) == 0 {
		return nil
	}
	if !tx.s.caps.Placed {
		if err := tx.c.Fence(rdma.FenceThread, 0, &tx.batch); err != nil {
			return tx.s.fail(err)
		}
	}
	for _, a := range f.installs {
		tx.s.alloc.Used(a)
	}
	f.installs = f.installs[:0]
	return nil
}

// blockOn is block with a blade that the primary should be on. exact: no larger block does.
func (tx *Tx) blockOn(c *rdma.Coro, class memory.Class, blade rdma.BladeID, exact bool) (memory.Addr, memory.Class, error) {
	tx.asked |= 1 << class
	a, err := tx.s.alloc.AllocOn(c, class, blade)
	if err != nil && !exact {
		return tx.block(c, class)
	}
	return a, class, err
}

// logged is kind and previous version of an item's log entry.
func (it *item) logged() (log.EntryKind, record.TxID) {
	if it.unlinked() {
		return log.New, 0
	}
	return log.Update, it.version
}
