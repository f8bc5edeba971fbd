package workload

import (
	"math"
	"testing"
)

// Drawn often, ranks are as frequent as the distribution says, also if it has grown.
func TestZipf(t *testing.T) {
	for _, theta := range []float64{0, 0.5, 0.99} {
		const n, draws = 1000, 400_000
		z, grown := NewZipf(n, theta), NewZipf(1, theta)
		for i := range uint64(n) {
			grown.Grow(i + 1)
		}
		if math.Abs(grown.zetan/z.zetan-1) > 1e-12 || math.Abs(grown.eta-z.eta) > 1e-12 || grown.alpha != z.alpha ||
			grown.N() != n {
			t.Errorf("theta %v: %+v has grown to %+v", theta, z, grown)
		}
		var counts [n]int
		for r := range uint64(draws) {
			counts[grown.Rank(Scatter(r+1))]++
		}
		for _, band := range [][2]int{{0, 1}, {1, 2}, {2, 10}, {10, 100}, {100, n}} {
			want, got := 0.0, 0
			for i := band[0]; i < band[1]; i++ {
				want += draws / math.Pow(float64(i+1), theta) / z.zetan
				got += counts[i]
			}
			// The method is exact for the first two ranks and within a few percent beyond.
			if math.Abs(float64(got)/want-1) > 0.12 {
				t.Errorf("theta %v: ranks from %d to %d were drawn %d times, want %.0f",
					theta, band[0], band[1], got, want)
			}
		}
	}
	if a, b := zeta(exactTerms+5000, 0.99), zeta(exactTerms, 0.99); a <= b ||
		math.Abs(a-b-5000/math.Pow(exactTerms, 0.99)) > 1e-4 {
		t.Errorf("the sum goes on from %v with %v", b, a)
	}
}

// Small distributions stay within their ranks.
func TestZipfOfFew(t *testing.T) {
	for n := uint64(1); n < 6; n++ {
		z := NewZipf(n, 0.99)
		for r := range uint64(1000) {
			if x := z.Rank(Scatter(r)); x >= n {
				t.Fatalf("rank %d of %d", x, n)
			}
		}
		if x := z.Rank(math.MaxUint64); x >= n {
			t.Fatalf("rank %d of %d", x, n)
		}
	}
}

// No two numbers have one key.
func TestScatterIsABijection(t *testing.T) {
	seen := map[uint64]bool{}
	for i := range uint64(100_000) {
		seen[Scatter(i)] = true
	}
	if len(seen) != 100_000 {
		t.Errorf("100000 numbers have %d keys", len(seen))
	}
	if Scatter(0) == 0 || Scatter(1)-Scatter(0) < 1<<32 && Scatter(0)-Scatter(1) < 1<<32 {
		t.Error("neighbours stay neighbours")
	}
}
