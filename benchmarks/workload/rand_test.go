package workload_test

import (
	"math"
	"math/bits"
	"testing"

	"txnode/benchmarks/workload"
)

// The sequence is part of what a seed promises: the same on every platform and
// in every version.
func TestRandIsPinned(t *testing.T) {
	r := workload.NewRand(1, 2)
	s := r.Split()
	got := [...]uint64{r.Uint64(), r.Uint64(), s.Uint64(), s.Uint64(), uint64(r.Intn(1000)), uint64(r.Bits32())}
	want := [...]uint64{
		0xab52629dd6279148, 0xa1792774449cf08, 0xfb024b06d865d0a5, 0xa7ff4872af044de4, 0x2aa, 0x3a8f5b51,
	}
	if got != want {
		t.Errorf("got %#x", got)
	}
}

// Streams that differ in one bit of seed or stream number share no pattern: the
// bits of their first numbers differ in about half of all places.
func TestStreamsAreUnrelated(t *testing.T) {
	distance, n := 0, 0
	for seed := range uint64(64) {
		for stream := range uint64(64) {
			a := workload.NewRand(seed, stream)
			b := workload.NewRand(seed^1, stream)
			c := workload.NewRand(seed, stream^1)
			x := a.Uint64()
			distance += bits.OnesCount64(x^b.Uint64()) + bits.OnesCount64(x^c.Uint64())
			n += 2 * 64
		}
	}
	if share := float64(distance) / float64(n); math.Abs(share-0.5) > 0.005 {
		t.Errorf("%.4f of the bits differ", share)
	}
}

func TestIntnIsUniform(t *testing.T) {
	const n, draws = 10, 1_000_000
	var count [n]float64
	r := workload.NewRand(9, 9)
	for range draws {
		count[r.Intn(n)]++
	}
	chi := 0.0
	for _, c := range count {
		chi += (c - draws/n) * (c - draws/n) / (draws / n)
	}
	if chi > 33.7 { // 9 degrees of freedom, 1 in 10,000
		t.Errorf("chi square %.1f: %v", chi, count)
	}
	if r.Intn(1) != 0 {
		t.Error("Intn(1) is not 0")
	}
}

func TestChance(t *testing.T) {
	r := workload.NewRand(1, 1)
	for p, want := range map[float64]float64{0: 0, 1: 100_000, 0.25: 25_000} {
		threshold, n := workload.Threshold(p), 0.0
		for range 100_000 {
			if r.Chance(threshold) {
				n++
			}
		}
		if math.Abs(n-want) > 5*math.Sqrt(100_000*p*(1-p)) {
			t.Errorf("probability %v: %v of 100000", p, n)
		}
	}
}

func TestMix(t *testing.T) {
	percent := []float64{0, 35, 0, 64.9, 0.1, 0}
	if err := workload.CheckMix(percent); err != nil {
		t.Fatal(err)
	}
	m := workload.NewMix(percent)
	r := workload.NewRand(3, 0)
	count := make([]float64, len(percent))
	const draws = 1_000_000
	for range draws {
		count[m.Draw(&r)]++
	}
	for i, p := range percent {
		p /= 100
		if math.Abs(count[i]-draws*p) > 5*math.Sqrt(draws*p*(1-p)) {
			t.Errorf("type %d of %v %% is drawn %v times of %d", i, percent[i], count[i], draws)
		}
	}
	for _, bad := range [][]float64{{}, {99}, {50, 51}, {-1, 101}, {math.NaN(), 100}, {math.Inf(1)}, {200, -100}} {
		if workload.CheckMix(bad) == nil {
			t.Errorf("the mix %v is accepted", bad)
		}
	}
	// Shares whose sum is not exactly 100 in floating point are drawn all the same.
	tenths := make([]float64, 1000)
	for i := range tenths {
		tenths[i] = 0.1
	}
	if err := workload.CheckMix(tenths); err != nil {
		t.Error(err)
	}
}
