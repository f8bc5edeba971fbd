package blink_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"txnode/index/blink"
	"txnode/memory/layout"
)

// threeLevels is a tree of small nodes whose separators are all posted.
func threeLevels(t *testing.T) *tree {
	t.Helper()
	tr := newTree(t, fit(t, blink.Geometry{MaxKey: 8, MaxEntries: 3}), 1)
	for i := range 20 {
		c := blink.Change{Op: blink.Put, Key: fmt.Append(nil, "k", string(rune('a'+i)))}
		payloadFor(&c, i+1)
		tr.commit([]blink.Change{c})
		tr.drain(false)
	}
	tr.verify(true)
	if tr.root.Level < 2 {
		t.Fatalf("level %d", tr.root.Level)
	}
	return tr
}

// nth is the i-th node of a level.
func (tr *tree) nth(level, i int) (layout.Addr, contents) {
	a, n := tr.find(target{level: level}, false)
	for range i {
		a = n.Right()
		n, _ = tr.node(a, level)
	}
	return a, contentsOf(n)
}

// TestVerifyFinds damages a tree in every way that Verify tells, one at a time. It finds each
// damage, and counts all leaves that can still be reached.
func TestVerifyFinds(t *testing.T) {
	for _, c := range []struct {
		name   string
		damage func(tr *tree)
		want   string
		leaves int // that are not sound or not reached
	}{
		{"a leaf is gone", func(tr *tree) { a, _ := tr.nth(0, 2); delete(tr.blocks, a) }, "free block", 1},
		{"an inner node is gone", func(tr *tree) { a, _ := tr.nth(1, 1); delete(tr.blocks, a) }, "free block", 0},
		{"torn", func(tr *tree) { a, _ := tr.nth(0, 2); tr.blocks[a] = tr.blocks[a][:20] }, "malformed", 1},
		{"of another level", func(tr *tree) {
			a, _ := tr.nth(0, 2)
			b, _ := tr.nth(1, 0)
			tr.blocks[a] = tr.blocks[b]
		}, "its level is 1", 1},
		{"right link skips one", func(tr *tree) {
			a, c := tr.nth(0, 1)
			c.right, _ = tr.nth(0, 3)
			tr.blocks[a] = c.encode()
		}, "the node before it ends at", 0},
		{"right link leads back", func(tr *tree) {
			a, c := tr.nth(0, 2)
			c.right, _ = tr.nth(0, 0)
			tr.blocks[a] = c.encode()
		}, "something else leads to it, too", 0},
		{"the last leaf comes too early", func(tr *tree) {
			a, c := tr.nth(0, 1)
			c.high, c.open, c.right = "", true, 0
			tr.blocks[a] = c.encode()
		}, "right links do not", 0},
		{"gap", func(tr *tree) {
			a, c := tr.nth(0, 2)
			c.low += "0"
			c.entries = nil
			tr.blocks[a] = c.encode()
		}, "and it begins at", 0},
		{"separator leads to another leaf", func(tr *tree) {
			a, c := tr.nth(1, 0)
			c.entries[1].Addr, c.entries[0].Addr = c.entries[0].Addr, c.entries[1].Addr
			tr.blocks[a] = c.encode()
		}, "and it begins at", -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			tr := threeLevels(t)
			before, _ := tr.walk(func(layout.Addr, blink.Node) {})
			c.damage(tr)
			totals, faults := tr.walk(func(layout.Addr, blink.Node) {})
			found := false
			for _, f := range faults {
				found = found || strings.Contains(f.Error(), c.want)
				if !errors.Is(f, blink.ErrMalformed) && !errors.Is(f, blink.ErrStructure) && !errors.Is(f, errFree) {
					t.Errorf("%v", f)
				}
			}
			if !found {
				t.Errorf("no fault %q in %v", c.want, faults)
			}
			if c.leaves >= 0 && totals.Leaves != before.Leaves-c.leaves {
				t.Errorf("%d leaves of %d", totals.Leaves, before.Leaves)
			}
			t.Log(faults)
		})
	}
}
