package bucket

import (
	"math/rand/v2"
	"testing"
)

// simulated is a leaf of which only counts matter.
type simulated struct {
	low    Hash
	depth  int
	hashes []Hash // by which its entries were placed
	marks  uint16 // of hashes that have entries in their second leaves
}

// TestSecondChoice simulates RACE's second choice on leaves: a key whose first leaf is full goes to
// a second one, if that has room, before anything splits; a mark in the first leaf has lookups read
// the second one, too. It brings little, because leaves split one by one: a leaf is cut in halves
// as soon as its own second choices are full, while RACE's buckets wait until all of a sub-table
// are. So it is not built. The gate was a load of .85.
func TestSecondChoice(t *testing.T) {
	for _, choices := range []int{1, 2} {
		r := rand.New(rand.NewPCG(1, 2))
		var dir []*simulated
		dir, bits := append(dir, &simulated{}), 0
		find := func(h Hash) *simulated { return dir[h>>(MaxDepth-bits)] }
		set := func(l *simulated) {
			for ; l.depth > bits; bits++ {
				larger := make([]*simulated, 2*len(dir))
				for i := range larger {
					larger[i] = dir[i/2]
				}
				dir = larger
			}
			for i := l.low >> (MaxDepth - bits); i < (l.low+width(l.depth))>>(MaxDepth-bits); i++ {
				dir[i] = l
			}
		}
		insert := func(h, second Hash) {
			l := find(h)
			for len(l.hashes) == Capacity(room, l.depth) {
				if m := find(second); choices == 2 && len(m.hashes) < Capacity(room, m.depth) {
					m.hashes = append(m.hashes, second)
					l.marks |= 1 << (h % 16)
					return
				}
				l.depth++
				right := &simulated{low: l.low | width(l.depth), depth: l.depth, marks: l.marks}
				old := l.hashes
				l.hashes = nil
				for _, x := range old {
					if x >= right.low {
						right.hashes = append(right.hashes, x)
					} else {
						l.hashes = append(l.hashes, x)
					}
				}
				set(right)
				set(l)
				l = find(h)
			}
			l.hashes = append(l.hashes, h)
		}
		sum, n := 0.0, 0
		for keys, next := 0, 20_000; keys < 160_000; keys++ {
			insert(Hash(r.Uint64()>>24), Hash(r.Uint64()>>24))
			if keys < next {
				continue
			}
			next += next / 10
			room, leaves, marks := 0, map[*simulated]bool{}, 0
			for _, l := range dir {
				if !leaves[l] {
					leaves[l] = true
					room += Capacity(256, l.depth)
					for m := l.marks; m != 0; m &= m - 1 {
						marks++
					}
				}
			}
			load := float64(keys) / float64(room)
			sum += load
			n++
			t.Logf("%d choices, %6d keys: load %.3f, %.1f bytes a key, %.2f of absent keys need a second READ",
				choices, keys, load, 320*float64(len(leaves))/float64(keys), float64(marks)/16/float64(len(leaves)))
		}
		t.Logf("%d choices: load %.3f on average", choices, sum/float64(n))
		if sum/float64(n) >= .85 {
			t.Error("the second choice is worth its while: see the package's documentation")
		}
	}
}
