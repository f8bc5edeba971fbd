package tatp

import (
	"math"
	"math/bits"
	"slices"
	"testing"
)

// exactDistribution returns the probability of each subscriber, for A = 2^b-1,
// by counting instead of drawing: for a fixed uniform x, x OR y with y uniform
// in b bits is uniform over the 2^(zeros of x) numbers that have x's bits and
// the same high bits. The sums over subsets of bits are a zeta transform.
func exactDistribution(n, b int) []float64 {
	size := 1 << b
	p := make([]float64, n)
	for high := 0; high < n; high += size {
		f := make([]float64, size)
		for low := range f {
			if high+low < n {
				f[low] = 1 / float64(n) / float64(uint64(1)<<(b-bits.OnesCount(uint(low))))
			}
		}
		for bit := 1; bit < size; bit <<= 1 {
			for low := range f {
				if low&bit != 0 {
					f[low] += f[low^bit]
				}
			}
		}
		for low, q := range f {
			p[(high+low)%n] += q
		}
	}
	return p
}

// The figures of the evaluation that we compare with, for 100,000 subscribers.
func TestSkewIsTATPs(t *testing.T) {
	const n = 100_000
	p := exactDistribution(n, 16)
	hottest, collision := 0, 0.0
	for s, q := range p {
		if q > p[hottest] {
			hottest = s
		}
		collision += q * q * n
	}
	sorted := slices.Clone(p)
	slices.Sort(sorted)
	slices.Reverse(sorted)
	top := func(k int) (sum float64) {
		for _, q := range sorted[:k] {
			sum += q
		}
		return sum
	}
	if hottest != 65_535 {
		t.Errorf("the most frequent subscriber is %d", hottest)
	}
	for _, fact := range []struct {
		what            string
		got, want, half float64 // half a unit of the last digit
	}{
		{"hottest", p[hottest], 0.0066, 0.00005},
		{"top 0.1 %", top(n / 1000), 0.106, 0.0005},
		{"top 1 %", top(n / 100), 0.354, 0.0005},
		{"top 10 %", top(n / 10), 0.759, 0.0005},
		{"collisions", collision, 28.5, 0.05},
		{"all", top(n), 1, 1e-9},
	} {
		if math.Abs(fact.got-fact.want) > fact.half {
			t.Errorf("%s: %.6f, not %v", fact.what, fact.got, fact.want)
		}
	}
}

// What clients draw follows the exact distribution: chi square over groups of
// subscribers, hottest first, that expect at least 2,000 draws each.
func TestDrawsFollowTheDistribution(t *testing.T) {
	const n, draws = 100_000, 4_000_000
	p := exactDistribution(n, 16)
	order := make([]int, n)
	for s := range order {
		order[s] = s
	}
	slices.SortStableFunc(order, func(a, b int) int {
		switch {
		case p[a] > p[b]:
			return -1
		case p[a] < p[b]:
			return 1
		}
		return 0
	})
	c := newTestDriver(t, nil).NewClient(1, 1, &trivial{}).(*client)
	count := make([]float64, n)
	for range draws {
		count[c.drawSubscriber()]++
	}
	var chi, expect, got float64
	groups := 0
	for _, s := range order {
		expect += draws * p[s]
		got += count[s]
		if expect >= 2000 {
			chi += (got - expect) * (got - expect) / expect
			expect, got = 0, 0
			groups++
		}
	}
	free := float64(groups - 1)
	if limit := free + 5*math.Sqrt(2*free); groups < 500 || chi > limit {
		t.Errorf("chi square is %.0f over %d groups; the limit is %.0f", chi, groups, limit)
	}
}

func TestNonUniformA(t *testing.T) {
	for n, want := range map[int]uint32{1: 65_535, 100_000: 65_535, 1_000_000: 65_535, 1_000_001: 1_048_575,
		10_000_000: 1_048_575, 10_000_001: 2_097_151} {
		if got := (&Options{Subscribers: n, NonUniformA: AutoA}).nonUniformA(); got != want {
			t.Errorf("A is %d for %d subscribers, not %d", got, n, want)
		}
	}
	c := newTestDriver(t, func(o *Options) { o.Subscribers, o.NonUniformA = 10, 0 }).NewClient(1, 1,
		&trivial{}).(*client)
	var count [10]float64
	for range 100_000 {
		count[c.drawSubscriber()]++
	}
	for s, got := range count {
		if math.Abs(got-10_000) > 500 {
			t.Errorf("with A = 0 subscriber %d is drawn %v times of 100000", s, got)
		}
	}
}

// Types and parameters of a million transactions; bounds of 5 standard
// deviations, fixed seed.
func TestMixAndParameters(t *testing.T) {
	const n = 1_000_000
	d := newTestDriver(t, nil)
	c := d.NewClient(3, 42, &trivial{}).(*client)
	var (
		types           [NumTypes]float64
		kinds           [numKinds + 1]float64
		begins          [numStarts]float64
		ends            [numHours + 1]float64
		hours           [numHours + 1]float64
		withKind, dated float64
	)
	for range n {
		typ := c.Next()
		types[typ]++
		if c.s >= 100_000 {
			t.Fatalf("subscriber %d is drawn", c.s)
		}
		switch typ {
		case GetNewDestination:
			ends[c.end]++
			fallthrough
		case InsertCallForwarding, DeleteCallForwarding:
			begins[c.starts]++
			dated++
			fallthrough
		case GetAccessData, UpdateSubscriberData:
			kinds[c.kind]++
			withKind++
		}
		if typ == InsertCallForwarding {
			if !c.forwarding.whole() {
				t.Fatalf("the row %v is drawn", c.forwarding)
			}
			hours[c.forwarding[cfEnds]]++
		}
	}
	near := func(what string, i int, got, of, p float64) {
		t.Helper()
		if math.Abs(got-of*p) > 5*math.Sqrt(of*p*(1-p)) {
			t.Errorf("%s %d: %v of %v, expected %v", what, i, got, of, of*p)
		}
	}
	for typ, percent := range d.Mix() {
		near("type", typ, types[typ], n, percent/100)
	}
	for kind := 1; kind <= numKinds; kind++ {
		near("kind", kind, kinds[kind], withKind, 1.0/numKinds)
	}
	for i := range begins {
		near("start", i, begins[i], dated, 1.0/float64(numStarts))
	}
	for h := 1; h <= numHours; h++ {
		near("end asked for", h, ends[h], types[GetNewDestination], 1.0/numHours)
		near("end inserted", h, hours[h], types[InsertCallForwarding], 1.0/numHours)
	}
}
