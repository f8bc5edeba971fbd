package bucket

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"txnode/memory/layout"
)

// shape is what inserts and Load have to agree on: all of a leaf but its links.
type shape struct {
	low   Hash
	depth int
	body  string
}

// TestLoadIsInserts: leaves that are made at once are those that inserts make, one after the other,
// in any order.
func TestLoadIsInserts(t *testing.T) {
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 9))
		m := newModel(t, []int{22, 33, 64, 256, 4096}[r.IntN(5)])
		bits := []int{1, 5, 12, 24, 40}[r.IntN(5)]
		var list []Linked
		for i := range r.Uint64N(200) {
			h := Hash(r.Uint64N(1<<bits)) << (r.IntN(2) * (MaxDepth - bits))
			e := NewLinked(h, blockOf(r.Uint64N(1<<20)<<10|i), layout.Class(i%uint64(layout.NumClasses)))
			err := m.change(Change{Op: Link, Hash: h, Addr: e.Addr(), Class: e.Class()})
			if errors.Is(err, ErrFull) {
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, e)
		}
		slices.SortFunc(list, Linked.Compare)
		var want, got []shape
		for a := first; a != 0; {
			l := m.leaves[a].leaf(t)
			want = append(want, shape{l.low, l.depth, string(l.body)})
			a = l.Right()
		}
		var b Builder
		n, err := b.Load(m.room, slices.Clone(list))
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for i := range n {
			right := layout.Addr(0)
			if i+1 < n {
				right = blockOf(uint64(i))
			}
			s := stored{b.AppendHead(nil, i, right), b.AppendBody(nil, i)}
			l := s.leaf(t)
			if l.Right() != right {
				t.Fatalf("seed %d: leaf %d leads to %v", seed, i, l.Right())
			}
			got = append(got, shape{l.low, l.depth, string(l.body)})
		}
		if !slices.Equal(got, want) {
			t.Fatalf("seed %d: %d blocks in %d leaves; inserts make %d, or others",
				seed, len(list), len(got), len(want))
		}
	}
}

// TestLoadRefuses: no leaves are made of a list that is out of order, or has a block twice, or too
// many of one hash.
func TestLoadRefuses(t *testing.T) {
	var b Builder
	for i, x := range []struct {
		list []Linked
		want error
	}{
		{[]Linked{NewLinked(6, blockOf(1), 0), NewLinked(5, blockOf(2), 0)}, ErrChange},
		{[]Linked{NewLinked(5, blockOf(2), 0), NewLinked(5, blockOf(1), 0)}, ErrChange},
		{[]Linked{NewLinked(5, blockOf(1), 0), NewLinked(5, blockOf(1), 1)}, ErrChange},
		{[]Linked{NewLinked(1<<MaxDepth, blockOf(1), 0)}, ErrChange},
		{[]Linked{NewLinked(1, 0, 0)}, ErrChange},
		{[]Linked{NewLinked(1, blockOf(1), layout.NumClasses)}, ErrChange},
	} {
		n, err := b.Load(room, x.list)
		if !errors.Is(err, x.want) || err != nil && (n != 0 || b.Images() != 0) {
			t.Errorf("list %d: %d leaves, %v", i, n, err)
		}
	}
	var full []Linked
	for len(full) < Capacity(room, MaxDepth) {
		full = append(full, NewLinked(5, blockOf(uint64(len(full))), 0))
	}
	if _, err := b.Load(room, slices.Clone(full)); err != nil {
		t.Errorf("%d blocks of one hash: %v", len(full), err)
	}
	full = append(full, NewLinked(5, blockOf(uint64(len(full))), 0))
	if n, err := b.Load(room, full); !errors.Is(err, ErrFull) || n != 0 || b.Images() != 0 {
		t.Errorf("%d leaves, %v", n, err)
	}
}
