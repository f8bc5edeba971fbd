package verify

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"txnode/index/blink"
	"txnode/index/bucket"
	"txnode/index/tree"
	"txnode/memory/layout"
	"txnode/memory/record"
)

// maxSteps bounds the nodes that a search reads: bytes may lead in a circle.
const maxSteps = 1 << 10

// node reads the value of a node's block: from the first copy that is intact and has a
// node of the table.
func (d *Database) node(t layout.Table, a layout.Addr, class layout.Class) ([]byte, error) {
	if !d.contains(a, class.Size(), layout.KindBlocks) {
		return nil, fmt.Errorf("%w: a node at %v", ErrNoSuch, a)
	}
	var all error
	for k := range d.v.Copies(a) {
		p, err := d.copyOf(d.v.At(a, k), class.Size())
		if err != nil {
			return nil, err
		}
		img := record.Image(p)
		_, err = img.Check(a)
		if m := img.Meta(); err == nil && (m.State() != record.Node || m.Table() != t.ID) {
			err = errors.New(describe(img))
		}
		if err == nil {
			return img.Value(), nil
		}
		all = errors.Join(all, fmt.Errorf("copy %d: %w", k, err))
	}
	return nil, fmt.Errorf("%w: %v should be a node of the index of table %q, which txnode inspect record shows by "+
		"that address:\n%w", ErrNoSuch, a, t.Name, all)
}

// leaf finds the leaf of the index of a table that is responsible for a key, and returns its image.
func (d *Database) leaf(t layout.Table, key []byte) (layout.Addr, []byte, error) {
	value, err := d.node(t, t.Root, 0)
	if err != nil {
		return 0, nil, err
	}
	r, err := blink.DecodeRoot(value)
	if err != nil {
		return 0, nil, fmt.Errorf("%w: the root's block of table %q at %v: %w", ErrNoSuch, t.Name, t.Root, err)
	}
	at, hash := key, bucket.HashOf(record.Hash(t.ID, key))
	if !t.Ordered() {
		at = hash.AppendSeparator(nil)
	}
	for a, step := r.Addr, 0; step < maxSteps; step++ {
		class := t.Nodes
		if s := a.Segment(); int(s) < len(d.l.Segments) && d.l.Segments[s].Class == tree.GeometryOf(&t).Class {
			class = d.l.Segments[s].Class
		}
		if value, err = d.node(t, a, class); err != nil {
			return 0, nil, err
		}
		where, right, down := blink.NotHere, layout.Addr(0), layout.Addr(0)
		if l, _, e := tree.Leaf(value); !t.Ordered() && blink.IsLeaf(value) {
			where, right, err = [...]blink.Place{blink.Here, blink.GoRight, blink.NotHere}[l.Where(hash)], l.Right(), e
		} else {
			var n blink.Node
			if n, err = blink.Decode(value); err == nil {
				where, right = n.Cover(at), n.Right()
				if n.Level() > 0 && where == blink.Here && n.Count() > 0 {
					down = n.Addr(n.Child(at))
				} else if n.Level() > 0 && where == blink.Here {
					return 0, nil, fmt.Errorf("%w: the node at %v of table %q has no children; run txnode check",
						ErrNoSuch, a, t.Name)
				}
			}
		}
		if err != nil {
			return 0, nil, fmt.Errorf("%w: the node at %v of table %q: %w", ErrNoSuch, a, t.Name, err)
		}
		switch {
		case where == blink.GoRight && right != 0:
			a = right
		case where != blink.Here:
			return 0, nil, fmt.Errorf("%w: the search for key %s in table %q has come to the node at %v, where it is "+
				"not; run txnode check", ErrNoSuch, keyText(key), t.Name, a)
		case down == 0:
			return a, value, nil
		default:
			a = down
		}
	}
	return 0, nil, fmt.Errorf("%w: the index of table %q leads in a circle; run txnode check",
		ErrNoSuch, t.Name)
}

// lookupNode is lookup in a table with an index of nodes: leaf is where the node is that leads to the
// block.
func (d *Database) lookupNode(t layout.Table, key []byte) (leaf, block layout.Addr, err error) {
	a, value, err := d.leaf(t, key)
	if err != nil {
		return 0, 0, err
	}
	if t.Ordered() {
		n := blink.Accepted(value)
		if i, found := n.Search(key); found {
			return a, n.Addr(i), nil
		}
		return 0, 0, fmt.Errorf("%w: key %s in table %q, by the leaf at %v", ErrNoSuch, keyText(key), t.Name, a)
	}
	l, _, err := tree.Leaf(value)
	if err != nil {
		return 0, 0, err
	}
	hash, sole := bucket.HashOf(record.Hash(t.ID, key)), layout.Addr(0)
	for i, n := l.Rank(hash), 0; i < l.Count() && l.Block(i).Hash == hash; i, n = i+1, n+1 {
		x := l.Block(i)
		if sole = x.Addr; n > 0 {
			sole = 0
		}
		if d.hasKey(x.Addr, x.Class, key) {
			return a, x.Addr, nil
		}
	}
	if sole != 0 { // whatever its block has become
		return a, sole, nil
	}
	return 0, 0, fmt.Errorf("%w: key %s in table %q, by the leaf at %v", ErrNoSuch, keyText(key), t.Name, a)
}

// hasKey reports whether a copy of a block that is intact has the record of a key.
func (d *Database) hasKey(a layout.Addr, class layout.Class, key []byte) bool {
	if !d.v.Valid(a) || class >= layout.NumClasses {
		return false
	}
	for k := range d.v.Copies(a) {
		p, err := d.copyOf(d.v.At(a, k), class.Size())
		if err != nil {
			continue
		}
		if img := record.Image(p); !badImage(img, a) && bytes.Equal(img.Key(), key) {
			return true
		}
	}
	return false
}

func badImage(img record.Image, a layout.Addr) bool {
	_, err := img.Check(a)
	return err != nil
}

// NodeOf shows the leaf of a table that is responsible for a key.
func (p *Dump) NodeOf(t layout.Table, key []byte) error {
	if !t.InBlocks() {
		return fmt.Errorf("%w: the index of table %q has no nodes; see txnode inspect record and bucket",
			ErrNoSuch, t.Name)
	}
	a, _, err := p.d.leaf(t, key)
	if err != nil {
		return err
	}
	return p.Node(a)
}

// Node shows the node of an ordered index in the block that an address lies in: what it is
// responsible for, and where its entries lead.
func (p *Dump) Node(a layout.Addr) error {
	if _, err := p.place(a, 1, layout.KindBlocks); err != nil {
		return err
	}
	size := p.d.l.Segments[a.Segment()].Class.Size()
	a -= layout.Addr(a.Offset() % size)
	at, err := p.place(a, size, layout.KindBlocks)
	if err != nil {
		return err
	}
	q, err := p.read(at, size)
	if err != nil {
		return err
	}
	img := record.Image(q)
	if _, err := img.Check(a); err != nil {
		return fmt.Errorf("%w: a node at %v: %w; txnode inspect record shows the block", ErrNoSuch, a, err)
	}
	if img.Meta().State() != record.Node {
		return fmt.Errorf("%w: a node at %v: %s", ErrNoSuch, a, describe(img))
	}
	t := layout.Table{ID: img.Meta().Table()}
	if id := int(t.ID); id > 0 && id <= len(p.d.l.Tables) {
		t = p.d.l.Tables[id-1]
	}
	p.printf("%v, copy %d: %v, block of %d bytes, %s%s", a, p.Copy, at, size, describe(img), lockText(img))
	value := img.Value()
	if r, err := blink.DecodeRoot(value); err == nil && (a == t.Root || len(value) == blink.RootSize) {
		p.printf("root of the index of %s: level %d at %v", p.d.tableName(t.ID), r.Level, r.Addr)
		return p.err
	}
	if t.InBlocks() && !t.Ordered() && blink.IsLeaf(value) {
		return p.hashLeaf(t, value)
	}
	n, err := blink.Decode(value)
	if err != nil {
		p.printf("%v", err)
		return p.err
	}
	verdict := "sound"
	if err := n.Check(tree.GeometryOf(&t)); err != nil {
		verdict = err.Error()
	}
	high := "no end"
	if h, bounded := n.High(); bounded {
		high = fenceText(t, h)
	}
	p.printf("node of level %d of the index of %s, %d bytes: %s", n.Level(), p.d.tableName(t.ID), len(value), verdict)
	p.printf("keys from %s to %s; right link: %s; prefix of %d bytes", fenceText(t, n.Low()), high,
		addrText(uint64(n.Right())), len(n.Prefix()))
	for i := range n.Count() {
		if p.more(i, n.Count()) {
			break
		}
		key := n.AppendKey(nil, i)
		if n.Level() > 0 {
			p.printf("%5d  from %s: %v", i, fenceText(t, key), n.Addr(i))
		} else {
			p.printf("%5d  %s: %v, class %d", i, tableKeyText(t, key), n.Addr(i), n.Class(i))
		}
	}
	return p.err
}

// hashLeaf shows a leaf of an index of hashes.
func (p *Dump) hashLeaf(t layout.Table, value []byte) error {
	l, f, err := tree.Leaf(value)
	if err != nil {
		p.printf("leaf of the index of %s, %d bytes: %v", p.d.tableName(t.ID), len(value), err)
		return p.err
	}
	p.printf("leaf of the index of %s, %d bytes: sound", p.d.tableName(t.ID), len(value))
	high := "the end"
	if !f.Open {
		h, _ := l.High()
		high = fmt.Sprintf("%010x", uint64(h))
	}
	p.printf("hashes from %010x to %s, depth %d; right link: %s", uint64(l.Low()), high, l.Depth(),
		addrText(uint64(l.Right())))
	for i := range l.Count() {
		if p.more(i, l.Count()) {
			break
		}
		x := l.Block(i)
		p.printf("%5d  %010x: %v, class %d", i, uint64(x.Hash), x.Addr, x.Class)
	}
	return p.err
}

// fenceText is a fence or a separator: the first bytes of keys, which need not be a whole one.
func fenceText(t layout.Table, b []byte) string {
	if len(b) == 0 {
		return "the beginning"
	}
	return tableKeyText(t, b)
}

// tableKeyText is a key for people, as its table encodes keys, if that is known here.
func tableKeyText(t layout.Table, key []byte) string {
	var o struct {
		Key string `json:"key"`
	}
	_ = json.Unmarshal(t.Options, &o) // what is not known is shown as bytes
	switch {
	case o.Key == "uint64" && len(key) == 8:
		return strconv.FormatUint(binary.BigEndian.Uint64(key), 10)
	case o.Key == "int64" && len(key) == 8:
		return strconv.FormatInt(int64(binary.BigEndian.Uint64(key)^1<<63), 10)
	}
	return keyText(key)
}
