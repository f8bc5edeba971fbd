package blink_test

import (
	"encoding/binary"
	"fmt"
	"testing"

	"txnode/index/blink"
)

// full is a leaf in the middle of a tree, with as many 8-byte keys as have room, and every second
// of the keys between the first and the last; and what does not fit any more.
func full(t testing.TB, g blink.Geometry) (blink.Node, blink.Change) {
	t.Helper()
	key := func(i int) []byte { return binary.BigEndian.AppendUint64([]byte(nil), uint64(1<<40+i)) }
	c := contents{low: string(key(0)), high: string(key(1 << 16)), right: addrOf(9)}
	n := decode(t, g, c.encode())
	var b blink.Builder
	for i := 0; ; i += 2 {
		change := blink.Change{Op: blink.Put, Key: key(i)}
		payloadFor(&change, i+1)
		images, err := b.Apply(g, n, []blink.Change{change})
		if err != nil {
			t.Fatal(err)
		}
		if images > 1 {
			change.Key = key(i/2 | 1)
			return n, change
		}
		n = decode(t, g, b.AppendImage(nil, 0, 0))
	}
}

// TestAllocations: search and fence tests allocate nothing; neither does a Builder that has been
// used before, into a buffer with room.
func TestAllocations(t *testing.T) {
	g := fit(t, blink.Geometry{MaxKey: 8})
	n, change := full(t, g)
	image, key := n.Bytes(), change.Key
	none(t, g, "search", func() {
		n, err := blink.Decode(image)
		if err != nil || n.Cover(key) != blink.Here || n.Rank(blink.Before(key)) > n.Rank(blink.End()) ||
			n.Below(blink.After(key)) != blink.Here {
			t.Fatal(err)
		}
		if i, _ := n.Search(key); n.Suffix(i) == nil || n.Child(key) < 0 || n.Addr(i) == 1 || n.Class(i) > 64 {
			t.Fatal("no entry")
		}
		if err := n.Check(g); err != nil {
			t.Fatal(err)
		}
	})
	var b blink.Builder
	buffer := make([]byte, 0, g.Room())
	changes := []blink.Change{{Op: blink.Delete, Key: n.AppendKey(nil, n.Count()/2)}}
	none(t, g, "apply", func() {
		if images, err := b.Apply(g, n, changes); err != nil || images != 1 ||
			len(b.AppendImage(buffer, 0, 0)) >= len(image) {
			t.Fatal(images, err)
		}
	})
	changes[0] = change
	none(t, g, "split", func() {
		if images, err := b.Apply(g, n, changes); err != nil || images != 2 {
			t.Fatal(images, err)
		}
		if len(b.AppendImage(buffer, 0, addrOf(5)))+len(b.AppendImage(buffer, 1, 0)) < len(image)/2 {
			t.Fatal("halves that are too small")
		}
	})
	left, right := halves(t, g, n, change)
	none(t, g, "merge", func() {
		if err := b.Merge(g, left, right, addrOf(5)); err != nil || len(b.AppendImage(buffer, 0, 0)) < len(image)/2 {
			t.Fatal(err)
		}
	})
}

// halves are the two leaves of a split, of which the right one has lost most of its entries.
func halves(t testing.TB, g blink.Geometry, n blink.Node, change blink.Change) (left, right blink.Node) {
	t.Helper()
	var b blink.Builder
	if images, err := b.Apply(g, n, []blink.Change{change}); err != nil || images != 2 {
		t.Fatal(images, err)
	}
	left, right = decode(t, g, b.AppendImage(nil, 0, addrOf(5))), decode(t, g, b.AppendImage(nil, 1, 0))
	var deletes []blink.Change
	for _, e := range contentsOf(right).entries[4:] {
		deletes = append(deletes, blink.Change{Op: blink.Delete, Key: e.Key})
	}
	if _, err := b.Apply(g, right, deletes); err != nil {
		t.Fatal(err)
	}
	return left, decode(t, g, b.AppendImage(nil, 0, 0))
}

func none(t *testing.T, g blink.Geometry, what string, f func()) {
	t.Helper()
	if allocs := testing.AllocsPerRun(100, f); allocs != 0 {
		t.Errorf("%s, %s: %v allocations", kindName(g), what, allocs)
	}
}

func BenchmarkDecode(b *testing.B) {
	bench(b, func(g blink.Geometry, n blink.Node, _ blink.Change) func() {
		image := n.Bytes()
		return func() { _, _ = blink.Decode(image) }
	})
}

func BenchmarkCheck(b *testing.B) {
	bench(b, func(g blink.Geometry, n blink.Node, _ blink.Change) func() {
		return func() { _ = n.Check(g) }
	})
}

// BenchmarkSearch is one search of a full leaf, for keys in turn.
func BenchmarkSearch(b *testing.B) {
	bench(b, func(_ blink.Geometry, n blink.Node, _ blink.Change) func() {
		var keys [][]byte
		for i := range n.Count() {
			keys = append(keys, n.AppendKey(nil, i*37%n.Count()))
		}
		i := 0
		return func() {
			_, _ = n.Search(keys[i])
			if i++; i == len(keys) {
				i = 0
			}
		}
	})
}

// BenchmarkApply is an insert into the middle of a leaf that has room for one entry, image
// included.
func BenchmarkApply(b *testing.B) {
	bench(b, func(g blink.Geometry, n blink.Node, c blink.Change) func() {
		var builder blink.Builder
		if _, err := builder.Apply(g, n, []blink.Change{{Op: blink.Delete, Key: n.AppendKey(nil, 1)}}); err != nil {
			b.Fatal(err)
		}
		n = decode(b, g, builder.AppendImage(nil, 0, 0))
		changes, buffer := []blink.Change{c}, make([]byte, 0, g.Room())
		return func() {
			if images, err := builder.Apply(g, n, changes); err != nil || images != 1 {
				b.Fatal(images, err)
			}
			builder.AppendImage(buffer, 0, 0)
		}
	})
}

// BenchmarkSplit is an insert into a full leaf, both images included.
func BenchmarkSplit(b *testing.B) {
	bench(b, func(g blink.Geometry, n blink.Node, c blink.Change) func() {
		var builder blink.Builder
		changes, buffer := []blink.Change{c}, make([]byte, 0, g.Room())
		return func() {
			if images, err := builder.Apply(g, n, changes); err != nil || images != 2 {
				b.Fatal(images, err)
			}
			builder.AppendImage(buffer, 0, addrOf(5))
			builder.AppendImage(buffer, 1, 0)
		}
	})
}

func bench(b *testing.B, f func(blink.Geometry, blink.Node, blink.Change) func()) {
	g := fit(b, blink.Geometry{MaxKey: 8})
	n, change := full(b, g)
	b.Run(fmt.Sprintf("entries=%d", n.Count()), func(b *testing.B) {
		run := f(g, n, change)
		b.ReportAllocs()
		for b.Loop() {
			run()
		}
	})
}
