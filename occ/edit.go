package occ

import (
	"bytes"
	"fmt"
	"slices"

	"txnode/index"
	"txnode/log"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/rdma"
)

// A commit that inserts keys into ordered tables changes nodes. A node is one more record that is
// written: locked at its version, an image in the log, on the backups, and on the primary, which
// releases it. The blocks of new records, and of nodes that a split makes, are private until then:
// they were free, and nothing leads to them. So they need neither lock nor READ. Their log entries
// are log.New: recovery writes them if their blocks still are as free as they were.
//
// Order at the primaries: private blocks first, then nodes. New records lie on the blade of their
// node, if there is room, so that one queue pair keeps the order; else they are waited for. An
// entry of a node that is not locked never leads to a free block.

// plants reports whether an item is to be linked in a node by the commit.
func (it *item) plants() bool {
	return it.write == writePut && it.table.Ordered != nil && (it.addr == 0 || it.outgrown())
}

// outgrown reports whether a record of an ordered table has come to be too large for its block.
// It gets another one.
func (it *item) outgrown() bool {
	return it.addr != 0 && it.table.Ordered != nil && it.wlen > it.class.Size() && it.write == writePut &&
		!it.unlinked()
}

// plant locks the nodes of the keys that are to be inserted, and finds blocks for their records.
func (tx *Tx) plant() error {
	for i := range tx.items {
		if it := &tx.items[i]; it.outgrown() {
			k, err := tx.seek(it.table, it.where())
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
			return &TooLargeError{What: "record", Got: int(it.wlen), Limit: int(layout.MaxBlock)}
		}
		n, c := &tx.nodes[it.node-1], index.Change{Op: index.Link, Old: it.addr}
		if it.addr != 0 {
			c.Op = index.Relink
			if err := tx.vacateBlock(i); err != nil {
				return err
			}
			it = &tx.items[i]
		}
		if err := tx.private(it, class, tx.view.At(n.addr, 0).Blade); err != nil {
			return err
		}
		c.Key, c.Addr, c.Class = it.indexKey(), it.addr, it.class
		tx.change(it.table, c)
	}
	return nil
}

// change has the commit change what the index of a table links.
func (tx *Tx) change(t *Table, c index.Change) {
	e := tx.editor(t)
	e.changes = append(e.changes, c)
}

// vacateBlock appends an item that makes the block of item i, which is locked, free by the commit.
// Item i has no block then.
func (tx *Tx) vacateBlock(i int) error {
	tx.items = append(tx.items, item{})
	it, from := &tx.items[len(tx.items)-1], &tx.items[i]
	tx.nodeItem(it, from.table)
	it.addr, it.class, it.version, it.prior, it.buf, it.locked = from.addr, from.class, from.version,
		from.prior, from.buf, true
	tx.s.eng.forget(from.table.ID, from.key(), from.place(), it.addr)
	from.addr, from.locked, from.cached = 0, false, false
	return tx.makeFree(it)
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

// hold announces that a block is going to be freed. What an earlier transaction of the session has
// to say of its image does not matter any more.
func (s *Session) hold(a layout.Addr) {
	for _, tx := range s.txs {
		for i := range tx.flights {
			f := &tx.flights[i]
			f.installs = slices.DeleteFunc(f.installs, func(x layout.Addr) bool { return x == a })
		}
	}
	s.alloc.Hold(a)
}

// keepVacated notes that the blocks are in use still which a transaction without effect
// would have made free.
func (tx *Tx) keepVacated() {
	for i := range tx.items {
		if it := &tx.items[i]; it.vacates {
			tx.s.alloc.Used(it.addr)
		}
	}
}

// freeVacated gives the blocks to the allocator that the transaction has made free, when
// all copies say so.
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

// lockNodes locks the nodes of the keys that are to be inserted, at the versions that were read.
// moved: some have changed since, and items were marked that are to be looked up again.
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
			// Keys that the transaction has seen absent may still be. What a scan has
			// seen is validated.
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
func (tx *Tx) private(it *item, class layout.Class, blade rdma.BladeID) error {
	// the index says of which class its nodes are
	a, class, err := tx.blockOn(tx.c, class, blade, it.state == record.Node)
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

// hold writes a locked image to the primary of a private block of which a copy is being built: who
// builds it must see that the block is not free any more, before the transaction writes to that
// copy. The block is like that of a record then.
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
	for i := range tx.editors {
		e := &tx.editors[i]
		if len(e.changes) == 0 {
			continue
		}
		slices.SortFunc(e.changes, func(x, y index.Change) int { return bytes.Compare(x.Key, y.Key) })
		e.have = e.have[:0]
		for k := range tx.nodes {
			if n := &tx.nodes[k]; n.table == e.table && n.locked && n.state == nodeRead {
				e.have = append(e.have, tx.read(n))
			}
		}
		if _, err := tx.plan(e, nil); err != nil {
			return err
		}
	}
	return nil
}

// plan makes items of what becomes of nodes by the changes of a table, or, if p is not nil, by what
// is owed to its index. It reads what the index needs for that. n is how many items are new.
func (tx *Tx) plan(e *tableEditor, p *index.Post) (n int, err error) {
	for range maxHops {
		var edits []index.Edit
		var needs []index.Need
		if p == nil {
			edits, needs, err = e.Plan(e.have, e.changes)
		} else {
			edits, needs, err = e.Settle(e.have, *p)
		}
		if err != nil {
			return 0, tx.nodeError(e.table, err)
		}
		if len(needs) == 0 {
			return len(edits), tx.edited(e, edits)
		}
		for _, need := range needs {
			x, err := tx.obtain(e.table, need)
			if err != nil {
				return 0, err
			}
			e.have = append(e.have, x)
		}
	}
	return 0, tx.conflict(AbortStale, &item{table: e.table})
}

// obtain reads a node that a plan needs.
func (tx *Tx) obtain(t *Table, need index.Need) (index.Node, error) {
	if need.At == 0 {
		k, err := tx.seek(t, need.Place)
		if err != nil {
			return index.Node{}, err
		}
		return tx.read(&tx.nodes[k]), nil
	}
	none := index.Node{Addr: need.At}
	if tx.vacated(need.At) {
		return none, nil
	}
	k, stray, err := tx.readNode(t, index.Hop{Addr: need.At}, false)
	if stray || err != nil {
		return none, err
	}
	n := &tx.nodes[k]
	if !n.free() {
		return none, tx.meet(AbortReadLocked, &item{table: t, addr: need.At}, n.guard)
	}
	n.used, tx.valid = true, false
	return tx.read(n), nil
}

// editor returns what plans changes of the nodes of a table. It is good until the next call.
func (tx *Tx) editor(t *Table) *tableEditor {
	for i := range tx.editors {
		if tx.editors[i].table == t {
			return &tx.editors[i]
		}
	}
	tx.editors = append(tx.editors, tableEditor{table: t, Editor: t.Ordered.NewEditor()})
	return &tx.editors[len(tx.editors)-1]
}

// tableEditor is the editor of a table, and what it is given.
type tableEditor struct {
	table *Table
	index.Editor
	changes []index.Change // of the transaction
	have    []index.Node
	at      []layout.Addr // blocks of the edits
	posts   []index.Post
}

// edited makes items of edits: of blocks that are locked, and of new ones.
func (tx *Tx) edited(e *tableEditor, edits []index.Edit) error {
	t, first := e.table, len(tx.items)
	e.at = e.at[:0]
	for _, x := range edits {
		if x.At == 0 {
			if err := tx.newNode(t, x.Class, tx.nextBlade()); err != nil {
				return err
			}
		} else {
			n := &tx.nodes[tx.node(t, index.Hop{Addr: x.At})]
			if !n.locked {
				return fmt.Errorf("txn: the index of table %q changes node %v, which is not locked; this is a bug",
					t.Name, x.At)
			}
			tx.nodeItemOf(n)
		}
		e.at = append(e.at, tx.items[len(tx.items)-1].addr)
	}
	for i, x := range edits {
		it := &tx.items[first+i]
		if x.Free {
			tx.writes-- // makeFree counts it
			if err := tx.makeFree(it); err != nil {
				return err
			}
			continue
		}
		tx.scratch = e.Append(tx.scratch[:0], i, e.at)
		if err := tx.putNode(it, tx.scratch); err != nil {
			return err
		}
	}
	e.posts = e.Posts(e.posts[:0], e.at)
	for _, p := range e.posts {
		tx.posts = append(tx.posts, tablePost{t, p})
	}
	return nil
}

// nodeItemOf appends an item for a node that is locked, and returns its number.
func (tx *Tx) nodeItemOf(n *node) int {
	tx.items = append(tx.items, item{})
	it := &tx.items[len(tx.items)-1]
	tx.nodeItem(it, n.table)
	it.addr, it.class, it.version, it.prior, it.buf, it.locked = n.addr, n.class, n.version, n.prior, n.buf, true
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
func (tx *Tx) newNode(t *Table, class layout.Class, blade rdma.BladeID) error {
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

// publishPrivate writes the private blocks of a transaction that has committed to their
// primaries. When it returns, whoever reads a node after a WRITE that is posted later to the
// node's blade finds them.
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

// rememberPrivate notes where the records are of a transaction that has committed, if their images
// are complete: who locked a block before could lose the lock to the image.
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
	tx.owePosts()
}

// owePosts notes what is owed to indexes.
func (tx *Tx) owePosts() {
	for _, p := range tx.posts {
		p.table.Ordered.Owe(p.Post)
	}
}

// publishedNodes tells indexes of the nodes that the transaction has committed.
func (tx *Tx) publishedNodes() {
	for i := range tx.items {
		if it := &tx.items[i]; it.state == record.Node && it.write == writePut && !it.vacates &&
			it.table.Ordered != nil {
			it.table.Ordered.Published(index.Node{Addr: it.addr, Body: tx.bytes(it.val, it.vlen)})
		}
	}
}

// installed notes that the private blocks of a transaction are in use, whose images are complete at
// their primaries: from now on nobody takes them for free.
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
func (tx *Tx) blockOn(c *rdma.Coro, class layout.Class, blade rdma.BladeID, exact bool) (layout.Addr,
	layout.Class, error) {
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
