package verify

import (
	"bytes"
	"errors"
	"fmt"

	"txnode/index"
	"txnode/index/blink"
	"txnode/index/bucket"
	"txnode/index/tree"
	"txnode/memory/layout"
	"txnode/memory/record"
)

// The index of an ordered table is blocks like records (package index/blink), so blocks.go checks
// header, checksum, guard and copies of each node. Here is what only the tree tells: levels,
// fences, right links and separators fit together, each leaf's entries lead to blocks with their
// keys, and each block has one entry. What no entry leads to is an orphan (orphans.go).
//
// A node whose primary is damaged is read from the first copy that is intact, so that a fault of
// one copy is one finding: that of its block.

// treeWalk is the walk over the index of an ordered table.
type treeWalk struct {
	*walker
	table   *layout.Table
	sum     *TableSummary
	g       blink.Geometry
	leaf    bucket.Leaf // of an index of hashes: the one that was decoded last
	partial bool        // a part of the tree could not be followed, or does not fit
	value   []byte      // of the node that was read last
	at      layout.Addr // that node
	entries []leafEntry
}

// leafEntry is an entry of a leaf, and where the head of its block was read to.
type leafEntry struct {
	key   []byte // of a leaf of hashes: the hash, as the index has it
	block layout.Addr
	class layout.Class
	local uint32 // arena
	n     uint32 // bytes
	sound bool   // the entry can be one
	hash  uint64 // of the key of its record, once that is known
}

// nodePlace is the place of a node in a tree.
type nodePlace struct {
	table uint16
	level int
}

// rootBlock is the level of a nodePlace that is the block which says where the root is.
const rootBlock = -1

// describePlace names a node by its place.
func (w *walker) describePlace(p nodePlace) string {
	if p.level == rootBlock {
		return fmt.Sprintf("the root's block of the index of %s", w.tableName(p.table))
	}
	return fmt.Sprintf("a node of level %d of the index of %s", p.level, w.tableName(p.table))
}

// tree walks the index of an ordered table. It returns false if a part of it could not be followed.
func (w *walker) tree(t *layout.Table, sum *TableSummary) (complete bool) {
	if t.State == layout.TableDropping {
		return false // its blocks are being made free, in any order
	}
	x := &treeWalk{walker: w, table: t, sum: sum, g: tree.GeometryOf(t)}
	if err := x.g.Validate(); err != nil {
		x.found(KindRoot, t.Root, false, "the catalog says of the index of %s: %v", w.tableName(t.ID), err)
		return false
	}
	root, ok := x.readRoot()
	if !ok {
		return false
	}
	var leaf func(image []byte) (blink.Fences, error)
	if !t.Ordered() {
		leaf = func(image []byte) (f blink.Fences, err error) { x.leaf, f, err = tree.Leaf(image); return f, err }
	}
	totals := blink.Verify(x.g, root, x.read, leaf, x.visit, x.report)
	sum.Levels, sum.Leaves, sum.Unposted = totals.Levels, uint64(totals.Leaves), uint64(totals.Unposted)
	return !x.partial && !x.stopped()
}

// found reports a fault of the node at a.
func (x *treeWalk) found(kind Kind, a layout.Addr, unfinished bool, format string, args ...any) {
	x.walker.found(x.walker.at(Finding{
		Kind: kind, Table: x.table.ID, What: fmt.Sprintf(format, args...), Unfinished: unfinished,
	}, a, 0))
}

// readRoot reads the block that says where the tree begins.
func (x *treeWalk) readRoot() (r blink.Root, ok bool) {
	value, err := x.node(x.table.Root, 0)
	if err == nil {
		r, err = blink.DecodeRoot(value)
	}
	var bad *nodeError
	switch {
	case err == nil:
		x.place(rootBlock)
		return r, true
	case errors.As(err, &bad) && bad.kind == "": // the block's own finding
		x.place(rootBlock)
	default:
		x.found(KindRoot, x.table.Root, x.theirs(x.table.Root), "the root's block of the index of %s: %v",
			x.tableName(x.table.ID), err)
	}
	return r, false
}

// nodeError says why the block that something leads to is no node of the index.
type nodeError struct {
	kind Kind // empty: the block is damaged, or cannot be read, on all copies, and has a finding of its own
	what string
}

func (e *nodeError) Error() string { return e.what }

// read is what blink.Verify reads nodes by.
func (x *treeWalk) read(a layout.Addr) ([]byte, error) {
	class := x.table.Nodes
	if s := a.Segment(); int(s) < len(x.l.Segments) && x.l.Segments[s].Class == x.g.Class {
		class = x.g.Class // an inner node of an index of hashes
	}
	return x.node(a, class)
}

// node returns the value of a node's block, from the first copy that is intact and has one.
func (x *treeWalk) node(a layout.Addr, class layout.Class) ([]byte, error) {
	if x.stopped() {
		return nil, &nodeError{what: "the check was stopped"}
	}
	x.at = a
	if what := x.noBlock(a, class); what != "" {
		return nil, &nodeError{KindNode, what}
	}
	x.link(a, class) // blink.Verify tells whether something else does, too
	bad := &nodeError{what: "no copy of its block is intact"}
	for k := range x.v.Copies(a) {
		img := record.Image(x.walker.read(a, k, x.whole[0], class.Size()))
		if img == nil {
			x.faulty(a)
			continue
		}
		_, err := img.Check(a)
		m := img.Meta()
		switch {
		case err != nil || m.Class() != class && m != 0:
			x.faulty(a)
			continue
		case m.State() == record.Free:
			bad = &nodeError{KindDangling, "the block is free"}
			x.faulty(a)
			continue
		case m.State() != record.Node || m.Table() != x.table.ID:
			return nil, &nodeError{KindNode, fmt.Sprintf("its block has no node of this table: %s", describe(img))}
		}
		x.value = append(x.value[:0], img.Value()...)
		return x.value, nil
	}
	return nil, bad
}

// faulty notes that a copy of a node's block is at fault, so that the finding of the block
// says what it is of.
func (x *treeWalk) faulty(a layout.Addr) {
	if _, ok := x.nodes[a]; !ok {
		x.nodes[a] = nodePlace{x.table.ID, rootBlock}
	}
}

// place notes the level of the node that was read last, if a copy of it is at fault.
func (x *treeWalk) place(level int) {
	if _, ok := x.nodes[x.at]; ok {
		x.nodes[x.at] = nodePlace{x.table.ID, level}
	}
}

// noBlock says why no block of a class can be at a; empty: it can.
func (w *walker) noBlock(a layout.Addr, class layout.Class) string {
	switch {
	case a == 0 || class >= layout.NumClasses || !w.contains(a, class.Size(), layout.KindBlocks):
		return "no block is there"
	case w.l.Segments[a.Segment()].Class != class || a.Offset()%class.Size() != 0:
		c := w.l.Segments[a.Segment()].Class
		return fmt.Sprintf("no block of class %d is there: the segment has blocks of class %d, of %d bytes",
			class, c, c.Size())
	}
	return ""
}

// link notes that something leads to a block. false: something else does already.
func (w *walker) link(a layout.Addr, class layout.Class) bool {
	if w.isLinked(a, class) {
		return false
	}
	i := a.Offset() / class.Size()
	w.linked[a.Segment()][i/64] |= 1 << (i % 64)
	return true
}

// theirs reports whether a block is locked by a coordinator that was not closed: what is there is
// what its transaction has come to, and whoever opens the database finishes it.
func (x *treeWalk) theirs(a layout.Addr) bool {
	if !x.contains(a, record.LineSize, layout.KindBlocks) {
		return false
	}
	p := x.walker.read(a, 0, x.whole[1], record.LineSize)
	return p != nil && record.Image(p).Guard().Held() && x.registered(record.Image(p).Lock().Coordinator())
}

// report is what blink.Verify reports faults to.
func (x *treeWalk) report(f blink.NodeError) {
	x.partial = true
	x.place(f.Level)
	var bad *nodeError
	kind, what := KindNode, f.Err.Error()
	if errors.As(f.Err, &bad) {
		if kind = bad.kind; kind == "" {
			return
		}
	}
	if kind == KindDangling { // it is the finding of what leads there
		delete(x.nodes, f.Addr)
	}
	x.found(kind, f.Addr, x.theirs(f.Addr), "%s: %s", x.describePlace(nodePlace{x.table.ID, f.Level}), what)
}

// visit checks the entries of a leaf: in pieces, of as many blocks as have room in the small
// buffer.
func (x *treeWalk) visit(a layout.Addr, n blink.Node) {
	hashed, count := !x.table.Ordered() && n.Bytes() == nil, n.Count
	if hashed {
		count = x.leaf.Count
		x.place(0)
	} else if x.place(n.Level()); n.Level() > 0 {
		return
	}
	x.sum.Slots += uint64(count())
	x.entries = x.entries[:0]
	used := uint32(0)
	for i := range count() {
		var e leafEntry
		if hashed {
			b := x.leaf.Block(i)
			e = leafEntry{key: b.Hash.AppendKey(nil), block: b.Addr, class: b.Class}
			e.n = hashedHead
		} else {
			e = leafEntry{key: n.AppendKey(nil, i), block: n.Addr(i), class: n.Class(i)}
			e.hash = record.Hash(x.table.ID, e.key)
			e.n = uint32(max(record.LineSize, record.KeyAt(len(e.key))+len(e.key)))
		}
		room := (e.n + lineSize - 1) &^ (lineSize - 1)
		if used+room > smallSize {
			x.rows(a)
			used = 0
		}
		e.local = x.small + used
		used += room
		x.entries = append(x.entries, e)
	}
	x.rows(a)
}

// hashedHead is how much of a block that a leaf of hashes leads to is read at first: a key of usual
// length lies in it.
const hashedHead = 2 * record.LineSize

// rows checks the entries of the leaf at a, and forgets them.
func (x *treeWalk) rows(a layout.Addr) {
	x.checkRows(a)
	for i := range x.entries {
		x.keyed(x.table.ID, x.entries[i].hash, x.entries[i].hash != 0)
	}
	x.entries = x.entries[:0]
}

// checkRows reads the heads of the blocks of entries with one doorbell.
func (x *treeWalk) checkRows(a layout.Addr) {
	if x.stopped() {
		return
	}
	x.batch.Reset()
	for i := range x.entries {
		e := &x.entries[i]
		what := x.noBlock(e.block, e.class)
		if e.sound = what == ""; !e.sound {
			x.found(KindSlot, a, false, "the entry of key %s leads to %v: %s", keyText(e.key), e.block, what)
			continue
		}
		e.n = min(e.n, e.class.Size())
		x.batch.Read(x.v.At(e.block, 0), e.local, e.n)
	}
	if err := x.do(&x.batch); err != nil {
		x.partial = true
		x.unreadableRows(a, err)
		return
	}
	x.walker.sum.Bytes += uint64(x.batch.Len()) * lineSize
	for i := range x.entries {
		e := &x.entries[i]
		if !e.sound {
			continue
		}
		kind, what := Kind(""), ""
		if !x.hasKey(record.Image(x.t.Bytes(e.local, e.n)), e) {
			kind, what = x.byWholeBlock(e)
		}
		if kind == "" && !x.link(e.block, e.class) {
			kind, what = KindDuplicate, "another entry leads to this block, too"
		}
		if kind != "" {
			x.found(kind, a, x.theirs(a), "the entry of key %s leads to %v: %s", keyText(e.key), e.block, what)
		}
	}
}

// hasKey reports whether a block, whose head is given, has the record of an entry: with a
// value, or deleted.
func (x *treeWalk) hasKey(img record.Image, e *leafEntry) bool {
	m := img.Meta()
	if m.State() != record.Live && m.State() != record.Absent || m.Table() != x.table.ID || m.Class() != e.class {
		return false
	}
	at, n := record.KeyAt(m.KeyLen()), m.KeyLen()
	if n == 0 || at+n > len(img) {
		return false
	}
	if x.table.Ordered() {
		return bytes.Equal(img[at:at+n], e.key)
	}
	hash := record.Hash(x.table.ID, img[at:at+n])
	if !bytes.Equal(index.AppendHash(nil, hash), e.key) {
		return false
	}
	e.hash = hash
	return true
}

// byWholeBlock judges an entry by the whole of its block: by the first copy that is intact and in
// use. That it is free on the primary alone is the block's fault. If no copy can be judged by, the
// entry passes, and the block is reported with the blocks.
func (x *treeWalk) byWholeBlock(e *leafEntry) (kind Kind, what string) {
	free := false
	for k := range x.v.Copies(e.block) {
		img := record.Image(x.walker.read(e.block, k, x.whole[0], e.class.Size()))
		if img == nil {
			continue
		}
		if _, err := img.Check(e.block); err != nil {
			continue
		}
		if img.Meta().State() == record.Free {
			free = free || k == 0
			continue
		}
		if x.hasKey(img, e) {
			return "", ""
		}
		return KindSlot, fmt.Sprintf("its block has not that key: %s", describe(img))
	}
	if free {
		return KindDangling, "the block is free"
	}
	return "", ""
}

// unreadableRows reports that blocks of entries cannot be read: each, if a file cannot be.
func (x *treeWalk) unreadableRows(a layout.Addr, err error) {
	if !errors.Is(err, ErrFault) {
		x.found(KindUnreadable, a, false, "the blocks of its entries: %v", err)
		for b := range x.v.Blades() {
			_ = x.t.Reconnect(x.f.Blades()[b].ID)
		}
		return
	}
	for i := range x.entries {
		if e := &x.entries[i]; e.sound {
			x.walker.read(e.block, 0, x.whole[0], e.n)
		}
	}
}
