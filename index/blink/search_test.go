package blink_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"txnode/index/blink"
)

// TestSearch compares search, rank and fence tests with loops over all keys, for every set of keys
// up to length 3 of two bytes, between every two fences, at every place.
func TestSearch(t *testing.T) {
	keys := []string{""}
	for i := 0; i < len(keys) && len(keys[i]) < 3; i++ {
		keys = append(keys, keys[i]+"a", keys[i]+"b")
	}
	g := fit(t, blink.Geometry{MaxKey: 4})
	r := rand.New(rand.NewPCG(1, 1))
	for _, low := range keys {
		for _, high := range append([]string{"open"}, keys...) {
			c := contents{low: low, high: high, right: addrOf(1)}
			if high == "open" {
				c.high, c.open, c.right = "", true, 0
			} else if low >= high {
				continue
			}
			for range 10 {
				c.entries = nil
				for _, k := range keys {
					if k >= low && (c.open || k < high) && r.IntN(2) == 0 {
						c.entries = append(c.entries, blink.Change{Key: []byte(k), Addr: addrOf(len(c.entries) + 1)})
					}
				}
				sortChanges(c.entries)
				searchAll(t, decode(t, g, c.encode()), c, keys)
			}
		}
	}
}

func searchAll(t *testing.T, n blink.Node, c contents, keys []string) {
	t.Helper()
	bounds := []blink.Bound{{}, blink.End()}
	for _, k := range keys {
		probe := []byte(k)
		below, found := 0, false
		for _, e := range c.entries {
			switch d := bytes.Compare(e.Key, probe); {
			case d < 0:
				below++
			case d == 0:
				found = true
			}
		}
		if i, ok := n.Search(probe); i != below || ok != found {
			t.Fatalf("search of %q in %q: %d, %v, not %d, %v", k, c.entries, i, ok, below, found)
		}
		place := blink.Here
		if k < c.low {
			place = blink.NotHere
		} else if !c.open && k >= c.high {
			place = blink.GoRight
		}
		if n.Cover(probe) != place {
			t.Fatalf("%q is %v, not %v, in %q to %q (%v)", k, n.Cover(probe), place, c.low, c.high, c.open)
		}
		bounds = append(bounds, blink.Before(probe), blink.After(probe))
	}
	for _, b := range bounds {
		rank := 0
		for _, e := range c.entries {
			if blink.Before(e.Key).Compare(b) < 0 {
				rank++
			}
		}
		if n.Rank(b) != rank {
			t.Fatalf("rank %d of %v, not %d", n.Rank(b), b, rank)
		}
		checkSides(t, n, c, b)
	}
	for _, from := range bounds {
		for _, to := range bounds {
			// A range is empty when no key is in it; of keys up to any length, when from is not
			// before to.
			if from.Compare(to) >= 0 && n.Rank(from) < n.Rank(to) {
				t.Fatalf("entries between %v and %v", from, to)
			}
			if from.Compare(to) != -to.Compare(from) {
				t.Fatalf("%v and %v compare as %d and %d", from, to, from.Compare(to), to.Compare(from))
			}
		}
	}
}

// checkSides compares Above and Below with the node's own ends as bounds.
func checkSides(t *testing.T, n blink.Node, c contents, b blink.Bound) {
	t.Helper()
	low, high := blink.Before([]byte(c.low)), blink.Before([]byte(c.high))
	if c.open {
		high = blink.End()
	}
	above, below := blink.Here, blink.Here
	switch {
	case b.Compare(low) < 0:
		above = blink.NotHere
	case !c.open && b.Compare(high) >= 0:
		above = blink.GoRight
	}
	switch {
	case b.Compare(low) <= 0:
		below = blink.NotHere
	case b.Compare(high) > 0:
		below = blink.GoRight
	}
	if n.Above(b) != above || n.Below(b) != below {
		t.Fatalf("%v from %q to %q (%v): above %v, not %v; below %v, not %v", b, c.low, c.high, c.open, n.Above(b),
			above, n.Below(b), below)
	}
}

func TestPlaceString(t *testing.T) {
	if s := fmt.Sprint(blink.Here, blink.GoRight, blink.NotHere, blink.Put, blink.Op(9)); s != "here to the right "+
		"not here put operation 9" {
		t.Error(s)
	}
}
