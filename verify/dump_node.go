package verify

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"txnode/index/blink"
	"txnode/memory"
	"txnode/memory/record"
)

// maxSteps bounds the nodes that a search reads: bytes may lead in a circle.
const maxSteps = 1 << 10

// node reads the value of a node's block: from the first copy that is intact and has a node of the table.
func (d *Database) node(t memory.Table, a memory.Addr, class memory.Class) ([]byte, error) {
	if !d.contains(a, class.Size(), memory.KindBlocks) {
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
	return nil, fmt.Errorf("%w: %v should be a node of the index of table %q, which txnode inspect record shows by that address:\n%w", ErrNoSuch, a, t.Name, all)
}

// leaf finds the leaf of an ordered table that is responsible for a key.
func (d *Database) leaf(t memory.Table, key []byte) (memory.Addr, blink.Node, error) {
	value, err := d.node(t, t.Root, 0)
	if err != nil {
		return 0, blink.Node{}, err
	}
	r, err := blink.DecodeRoot(value)
	if err != nil {
		return 0, blink.Node{}, fmt.Errorf("%w: the root's block of table %q at %v: %w", ErrNoSuch, t.Name, t.Root, err)
	}
	for a, step := r.Addr, 0; step < maxSteps; step++ {
		if value, err = d.node(t, a, t.Nodes); err != nil {
			return 0, blink.Node{}, err
		}
		n, err := blink.Decode(value)
		if err != nil {
			return 0, n, fmt.Errorf("%w: the node at %v of table %q: %w", ErrNoSuch, a, t.Name, err)
		}
		switch at := n.Cover(key); {
		case at == blink.GoRight && n.Right() != 0:
			a = n.Right()
		case at != blink.Here:
			return 0, n, fmt.Errorf("%w: the search for key %s in table %q has come to the node at %v, where it is not; run txnode check", ErrNoSuch, keyText(key), t.Name, a)
		case n.Level() == 0:
			return a, n, nil
		case n.Count() == 0:
			return 0, n, fmt.Errorf("%w: the node at %v of table %q has no children; run txnode check", ErrNoSuch, a, t.Name)
		default:
			a = n.Addr(n.Child(key))
		}
	}
	return 0, blink.Node{}, fmt.Errorf("%w: the index of table %q leads in a circle; run txnode check", ErrNoSuch, t.Name)
}

// lookupOrdered is lookup in an ordered table: leaf is where the node is that leads to the block.
func (d *Database) lookupOrdered(t memory.Table, key []byte) (leaf, block memory.Addr, err error) {
	a, n, err := d.leaf(t, key)
	if err != nil {
		return 0, 0, err
	}
	i, found := n.Search(key)
	if !found {
		return 0, 0, fmt.Errorf("%w: key %s in table %q, by the leaf at %v", ErrNoSuch, keyText(key), t.Name, a)
	}
	return a, n.Addr(i), nil
}

// NodeOf shows the leaf of an ordered table that is responsible for a key.
func (p *Dump) NodeOf(t memory.Table, key []byte) error {
	if !t.Ordered() {
		return fmt.Errorf("%w: table %q is not ordered and has no nodes; see txnode inspect record and bucket", ErrNoSuch, t.Name)
	}
	a, _, err := p.d.leaf(t, key)
	if err != nil {
		return err
	}
	return p.Node(a)
}

// Node shows the node of an ordered index in the block that an address lies in: what it is responsible for, and where
// its entries lead.
func (p *Dump) Node(a memory.Addr) error {
	if _, err := p.place(a, 1, memory.KindBlocks); err != nil {
		return err
	}
	size := p.d.l.Segments[a.Segment()].Class.Size()
	a -= memory.Addr(a.Offset() % size)
	at, err := p.place(a, size, memory.KindBlocks)
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
	t := memory.Table{ID: img.Meta().Table()}
	if id := int(t.ID); id > 0 && id <= len(p.d.l.Tables) {
		t = p.d.l.Tables[id-1]
	}
	p.printf("%v, copy %d: %v, block of %d bytes, %s%s", a, p.Copy, at, size, describe(img), lockText(img))
	value := img.Value()
	if r, err := blink.DecodeRoot(value); err == nil && (a == t.Root || len(value) == blink.RootSize) {
		p.printf("root of the index of %s: level %d at %v", p.d.tableName(t.ID), r.Level, r.Addr)
		return p.err
	}
	n, err := blink.Decode(value)
	if err != nil {
		p.printf("%v", err)
		return p.err
	}
	verdict := "sound"
	if err := n.Check(blink.Geometry{Class: t.Nodes, MaxKey: int(t.MaxKey)}); err != nil {
		verdict = err.Error()
	}
	high := "no end"
	if h, bounded := n.High(); bounded {
		high = fenceText(t, h)
	}
	p.printf("node of level %d of the index of %s, %d bytes: %s", n.Level(), p.d.tableName(t.ID), len(value), verdict)
	p.printf("keys from %s to %s; right link: %s; prefix of %d bytes", fenceText(t, n.Low()), high, addrText(uint64(n.Right())), len(n.Prefix()))
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

// fenceText is a fence or a separator: the first bytes of keys, which need not be a whole one.
func fenceText(t memory.Table, b []byte) string {
	if len(b) == 0 {
		return "the beginning"
	}
	return tableKeyText(t, b)
}

// tableKeyText is a key for people, as its table encodes keys, if that is known here.
func tableKeyText(t memory.Table, key []byte) string {
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
