package blink

import (
	"bytes"
	"fmt"

	"txnode/memory"
)

// Totals are what a tree consists of.
type Totals struct {
	Levels  int // from the leaves to the root
	Nodes   int // of all levels
	Leaves  int
	Entries int // of the leaves
	// Unposted is the number of nodes that no parent leads to, but a right link. That is no fault: their
	// separators are still to be posted.
	Unposted int
}

// NodeError is something wrong with a tree: with the node at Addr, or with what leads there.
type NodeError struct {
	Addr  memory.Addr
	Level int // that the node should have
	Err   error
}

// Error says what is wrong and where.
func (f NodeError) Error() string {
	return fmt.Sprintf("node of level %d at %v: %v", f.Level, f.Addr, f.Err)
}

// Unwrap returns Err, which wraps ErrMalformed, ErrStructure, or the error of the function that reads.
func (f NodeError) Unwrap() error { return f.Err }

// Verify walks over a tree at rest, level by level and from left to right, and checks that
//
//   - each node passes Check, and has the level where it was found;
//   - the fences of each level tile the key space, and right links lead from each node to the next;
//   - each separator is the low fence of its child.
//
// So each key has one leaf, and each search arrives there. read returns the image at an address, which
// must stay as it is until the next call. visit is called for each node that is sound in itself, and
// report for each fault. Behind a node that is not, the walk goes on where a parent
// knows the level; of the levels below, it does not know where they begin.
// Totals count sound nodes. Verify keeps the separators of two levels.
func Verify(g Geometry, root Root, read func(memory.Addr) ([]byte, error), visit func(memory.Addr, Node), report func(NodeError)) Totals {
	v := verifier{g: g, read: read, visit: visit, report: report, seen: map[memory.Addr]bool{}}
	v.totals.Levels = root.Level + 1
	children := []child{{addr: root.Addr}}
	for level := root.Level; level >= 0; level-- {
		children = v.level(level, children)
	}
	return v.totals
}

type verifier struct {
	g      Geometry
	read   func(memory.Addr) ([]byte, error)
	visit  func(memory.Addr, Node)
	report func(NodeError)
	seen   map[memory.Addr]bool
	holes  bool // a node of a level above is not sound, so its children are not known
	totals Totals
}

// child is an entry of the level above.
type child struct {
	separator []byte
	addr      memory.Addr
}

// level walks over a level, of which the level above knows the children, and returns those of the level below.
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
			n, err := v.node(at, level)
			gap := known && err == nil && !bytes.Equal(n.Low(), next)
			switch {
			case err != nil:
				v.report(NodeError{Addr: at, Level: level, Err: err})
			case posted && !bytes.Equal(n.Low(), children[0].separator):
				v.fault(at, level, "separator %x leads to it, and it begins at %x", children[0].separator, n.Low())
			case gap:
				v.fault(at, level, "begins at %x, and the node before it ends at %x", n.Low(), next)
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
			below = v.count(n, below)
			h := n.high()
			next, ended, at = bytes.Clone(h.key), h.open, n.Right()
		}
	}
	return below
}

// node reads a node and checks it by itself.
func (v *verifier) node(at memory.Addr, level int) (Node, error) {
	if v.seen[at] {
		return Node{}, fmt.Errorf("%w: something else leads to it, too", ErrStructure)
	}
	v.seen[at] = true
	image, err := v.read(at)
	if err != nil {
		return Node{}, err
	}
	n, err := Decode(image)
	if err == nil {
		err = n.Check(v.g)
	}
	if err == nil && n.Level() != level {
		err = fmt.Errorf("%w: its level is %d", ErrStructure, n.Level())
	}
	return n, err
}

// count adds a node to the totals, and its children to those of the level.
func (v *verifier) count(n Node, below []child) []child {
	v.totals.Nodes++
	if n.Level() == 0 {
		v.totals.Leaves++
		v.totals.Entries += n.count
		return below
	}
	for i := range n.count {
		below = append(below, child{separator: n.AppendKey(nil, i), addr: n.Addr(i)})
	}
	return below
}

func (v *verifier) fault(at memory.Addr, level int, format string, a ...any) {
	v.report(NodeError{Addr: at, Level: level, Err: fmt.Errorf("%w: %s", ErrStructure, fmt.Sprintf(format, a...))})
}
