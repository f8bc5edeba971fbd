package rdma_test

import (
	"slices"
	"testing"

	"txnode/rdma"
)

// TestKeys runs the table of a blade against a list that keeps every rule the long way.
func TestKeys(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand64(seed)
		k := rdma.NewKeys(rdma.Key(seed%2*77), seed)
		open := []rdma.Key{k.Oldest()}
		had := []rdma.Key{k.Oldest(), 0}
		for step := range 400 {
			switch r := rng() % 16; {
			case r < 9:
				x := k.Grant()
				if slices.Contains(had, x) {
					t.Fatalf("seed %d, step %d: key %d was granted before", seed, step, x)
				}
				had = append(had, x)
				if open = append(open, x); len(open) > rdma.MaxKeys {
					open = slices.Delete(open, 1, 2)
				}
			case r < 15:
				x := had[rng()%uint64(len(had))]
				if r < 13 {
					x = open[rng()%uint64(len(open))]
				}
				at := slices.Index(open, x)
				if got := k.Revoke(x); got != (at >= 0) {
					t.Fatalf("seed %d, step %d: Revoke(%d): %v; open are %v", seed, step, x, got, open)
				}
				open = open[max(at, 0):]
			default:
				x := k.Renew()
				if slices.Contains(had, x) {
					t.Fatalf("seed %d, step %d: key %d was granted before", seed, step, x)
				}
				had, open = append(had, x), []rdma.Key{x}
			}
			if k.Oldest() != open[0] {
				t.Fatalf("seed %d, step %d: the oldest is %d of %v", seed, step, k.Oldest(), open)
			}
			for _, x := range had {
				if k.Opens(x) != slices.Contains(open, x) {
					t.Fatalf("seed %d, step %d: key %d opens: %v; open are %v", seed, step, x, k.Opens(x), open)
				}
			}
		}
	}
}

// rand64 is a generator of its own for each seed.
func rand64(seed uint64) func() uint64 {
	return func() uint64 {
		seed += 0x9e3779b97f4a7c15
		z := seed
		z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		return z ^ z>>31
	}
}
