package blink

import (
	"bytes"
	"fmt"

	"txnode/memory/layout"
)

// Totals are what a tree consists of.
type Totals struct {
	Levels  int // from the leaves to the root
	Nodes   int // of all levels
	Leaves  int
	Entries int // of the leaves
	// Unposted is the number of nodes that no parent leads to, but a right link. That is no fault:
	// their separators are still to be posted.
	Unposted int
}

// NodeError is something wrong with a tree: with the node at Addr, or with what leads there.
type NodeError struct {
	Addr  layout.Addr
	Level int // that the node should have
	Err   error
}

// Error says what is wrong and where.
func (f NodeError) Error() string {
	return fmt.Sprintf("node of level %d at %v: %v", f.Level, f.Addr, f.Err)
}

// Unwrap returns Err, which wraps ErrMalformed, ErrStructure, or the error of the
// function that reads.
func (f NodeError) Unwrap() error { return f.Err }

// Verify walks over a tree at rest, level by level and from left to right, and checks that
//
//   - each node passes Check, and has the level where it was found;
//   - the fences of each level tile the key space, and right links lead from each node to the next;
//   - each separator is the low fence of its child.
//
// So each key has one leaf, and each search arrives there. read returns the image at an address,
// which must stay as it is until the next call. visit is called for each node that is sound in
// itself, and report for each fault. Behind a node that is not, the walk goes on where a parent
// knows the level; of the levels below, it does not know where they begin. Totals count sound
// nodes. Verify keeps the separators of two levels.
//
// leaf, if not nil, decodes and checks leaves, which are of another package; visit has no Node of
// them.
func Verify(g Geometry, root Root, read func(layout.Addr) ([]byte, error),
	leaf func([]byte) (Fences, error), visit func(layout.Addr, Node), report func(NodeError)) Totals {
	v := verifier{g: g, read: read, leaf: leaf, visit: visit, report: report, seen: map[layout.Addr]bool{}}
	v.totals.Levels = root.Level + 1
	children := []child{{addr: root.Addr}}
	for level := root.Level; level >= 0; level-- {
		children = v.level(level, children)
	}
	return v.totals
}

// Fences are what Verify must know of a leaf: the keys that it is responsible for, from Low, before
// High, or, if Open, to the end; where its right link leads; and how many entries it has.
type Fences struct {
	Low, High []byte
	Open      bool
	Right     layout.Addr
	Entries   int
}

type verifier struct {
	g      Geometry
	read   func(layout.Addr) ([]byte, error)
	leaf   func([]byte) (Fences, error)
	visit  func(layout.Addr, Node)
	report func(NodeError)
	seen   map[layout.Addr]bool
	holes  bool // a node of a level above is not sound, so its children are not known
	totals Totals
}

// child is an entry of the level above.
type child struct {
	separator []byte
	addr      layout.Addr
}

// level walks over a level, of which the level above knows the children, and returns those
// of the level below.
func (v *verifier) level(level int, children []child) (below []child) {
	next, known := []byte{}, !v.holes // where the next node is to begin, if that is known
	for ended := false; len(children) > 0; {
		at := children[0].addr
		if ended {
			v.fault(at, level, "separator %x leads to it, and right links do not", children[0].separator)
			known = false
		}
		for at != 0 {
			posted := len(children) > 0 && children[0].addr == at
			n, f, err := v.node(at, level)
			gap := known && err == nil && !bytes.Equal(f.Low, next)
			switch {
			case err != nil:
				v.report(NodeError{Addr: at, Level: level, Err: err})
			case posted && !bytes.Equal(f.Low, children[0].separator):
				v.fault(at, level, "separator %x leads to it, and it begins at %x", children[0].separator, f.Low)
			case gap:
				v.fault(at, level, "begins at %x, and the node before it ends at %x", f.Low, next)
			}
			known = err == nil
			v.holes = v.holes || !known
			switch {
			case posted:
				children = children[1:]
			case gap && len(children) > 0: // it comes behind the next child
				v.seen[at], known = false, false
			case known:
				v.totals.Unposted++
			}
			if !known {
				break // the children know more of the level
			}
			v.visit(at, n)
			below = v.count(n, level, f.Entries, below)
			next, ended, at = bytes.Clone(f.High), f.Open, f.Right
		}
	}
	return below
}

// node reads a node and checks it by itself.
func (v *verifier) node(at layout.Addr, level int) (n Node, f Fences, err error) {
	if v.seen[at] {
		return n, f, fmt.Errorf("%w: something else leads to it, too", ErrStructure)
	}
	v.seen[at] = true
	image, err := v.read(at)
	if err != nil {
		return n, f, err
	}
	if v.leaf != nil && level == 0 {
		f, err = v.leaf(image)
		return n, f, err
	}
	if n, err = Decode(image); err == nil {
		err = n.Check(v.g)
	}
	if err == nil && n.Level() != level {
		err = fmt.Errorf("%w: its level is %d", ErrStructure, n.Level())
	}
	if err != nil {
		return n, f, err
	}
	h := n.high()
	return n, Fences{n.Low(), h.key, h.open, n.Right(), n.count}, nil
}

// count adds a node to the totals, and its children to those of the level.
func (v *verifier) count(n Node, level, entries int, below []child) []child {
	v.totals.Nodes++
	if level == 0 {
		v.totals.Leaves++
		v.totals.Entries += entries
		return below
	}
	for i := range n.count {
		below = append(below, child{separator: n.AppendKey(nil, i), addr: n.Addr(i)})
	}
	return below
}

func (v *verifier) fault(at layout.Addr, level int, format string, a ...any) {
	v.report(NodeError{Addr: at, Level: level, Err: fmt.Errorf("%w: %s", ErrStructure, fmt.Sprintf(format, a...))})
}
