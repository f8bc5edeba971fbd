package published_test

import (
	"fmt"
	"math"
	"testing"

	"txnode/benchmarks/report/published"
)

var (
	smart = published.Layout{Backups: 1, Blades: 2} // SMART-DTX's setting
	ford  = published.Layout{Backups: 2, Blades: 3} // FORD's default
)

// TestVerbsOfEachType has the numbers counted in FORD's code, with both
// layouts, and the most that our policy may need with the first.
func TestVerbsOfEachType(t *testing.T) {
	want := []struct {
		workload, name     string
		trips              float64
		smart, ford        float64
		bound, boundTrips  float64
		mostSmart, mostOur float64 // of those that read more
	}{
		{"smallbank", "Amalgamate", 3, 27, 38, 17, 2, 0, 0},
		{"smallbank", "Balance", 2, 4, 4, 4, 2, 0, 0},
		{"smallbank", "DepositChecking", 3, 11, 16, 7, 2, 0, 0},
		{"smallbank", "SendPayment", 3, 19, 27, 12, 2, 0, 0},
		{"smallbank", "TransactSaving", 3, 11, 16, 7, 2, 0, 0},
		{"smallbank", "WriteCheck", 3, 13, 18, 9, 3, 0, 0},
		{"tatp", "GetSubscriberData", 1, 1, 1, 1, 1, 0, 0},
		{"tatp", "GetAccessData", 1, 1, 1, 1, 1, 0, 0},
		{"tatp", "GetNewDestination", 3, 4, 4, 4, 3, 8, 8},
		{"tatp", "UpdateSubscriberData", 3, 19, 27, 12, 2, 0, 0},
		{"tatp", "UpdateLocation", 4, 13, 18, 9, 4, 0, 0},
		{"tatp", "InsertCallForwarding", 5, 15, 20, 11, 5, 0, 0},
		{"tatp", "DeleteCallForwarding", 4, 13, 18, 9, 4, 0, 0},
	}
	i := 0
	for _, workload := range []string{"smallbank", "tatp"} {
		share := 0.0
		for _, x := range published.Transactions(workload) {
			w := want[i]
			i++
			share += x.Share
			a, b, bound := published.Sum(x.FORD(smart)), published.Sum(x.FORD(ford)), x.Bound(smart)
			if workload != w.workload || x.Name != w.name || a.RoundTrips != w.trips || a.Verbs != w.smart ||
				b.Verbs != w.ford ||
				bound.Verbs != w.bound || bound.RoundTrips != w.boundTrips {
				t.Errorf("%s: FORD %v, with two backups %v, bound %v; want %+v", x.Name, a, b, bound, w)
			}
			if w.mostSmart > 0 && (published.Sum(x.Most().FORD(smart)).Verbs != w.mostSmart ||
				x.Most().Bound(smart).Verbs != w.mostOur) {
				t.Errorf("%s: at most %v", x.Name, published.Sum(x.Most().FORD(smart)))
			}
		}
		if share != 100 {
			t.Errorf("the mix of %s sums to %v", workload, share)
		}
	}
	if i != len(want) {
		t.Errorf("%d types, want %d", i, len(want))
	}
}

func TestMeans(t *testing.T) {
	mean := func(l published.Layout, bound bool) (mean published.Cost) {
		for _, x := range published.Transactions("smallbank") {
			c := published.Sum(x.FORD(l))
			if bound {
				c = x.Bound(l)
			}
			mean.Verbs += c.Verbs * x.Share / 100
			mean.RoundTrips += c.RoundTrips * x.Share / 100
		}
		return mean
	}
	for _, c := range []struct {
		name      string
		got, want float64
	}{
		{"FORD verbs", mean(smart, false).Verbs, 14.65},
		{"FORD round trips", mean(smart, false).RoundTrips, 2.85},
		{"FORD verbs with two backups", mean(ford, false).Verbs, 20.55},
		{"bound verbs", mean(smart, true).Verbs, 9.6},
		{"bound round trips", mean(smart, true).RoundTrips, 2.15},
	} {
		if math.Abs(c.got-c.want) > 1e-9 {
			t.Errorf("%s: %v, want %v", c.name, c.got, c.want)
		}
	}
}

// TestFigure10 holds the tables against what the paper's artifact says in
// other places: the peaks, the ends, and attempted = committed + not committed.
func TestFigure10(t *testing.T) {
	for _, c := range []struct {
		workload       string
		system         published.System
		threads        int
		best, at96     float64
		verbs1, fails1 float64
	}{
		{"smallbank", published.FORDPlus, 24, 2.12, 0.803, 13.107, 0.141},
		{"smallbank", published.SMARTDTX, 72, 4.648, 4.628, 13.092, 0.143},
		{"tatp", published.FORDPlus, 48, 4.644, 2.160, 3.347, 0.249},
		{"tatp", published.SMARTDTX, 80, 6.696, 6.504, 3.324, 0.251},
	} {
		curve := published.Curve(c.workload, c.system)
		if len(curve) != 13 {
			t.Fatalf("%s %s has %d points, want 13", c.workload, c.system, len(curve))
		}
		best := published.Best(curve)
		last, ok := published.At(curve, 96)
		if best.Threads != c.threads || best.CommittedMps != c.best || !ok || last.CommittedMps != c.at96 {
			t.Errorf("%s %s: best %+v, at 96 %+v", c.workload, c.system, best, last)
		}
		if curve[0].VerbsPerAttempt != c.verbs1 || curve[0].NotCommitted != c.fails1 {
			t.Errorf("%s %s at one thread: %+v", c.workload, c.system, curve[0])
		}
		for i, p := range curve {
			if i > 0 && p.Threads != 8*i {
				t.Errorf("point %d has %d threads", i, p.Threads)
			}
			if d := p.AttemptedMps*(1-p.NotCommitted) - p.CommittedMps; math.Abs(d) > 0.005 {
				t.Errorf("%s %s, %d threads: attempts and commits differ by %v", c.workload, c.system, p.Threads, d)
			}
			if p.P50us >= p.P99us {
				t.Errorf("%s %s, %d threads: p50 %v, p99 %v", c.workload, c.system, p.Threads, p.P50us, p.P99us)
			}
		}
	}
	if _, ok := published.At(published.Curve("tatp", published.FORDPlus), 7); ok {
		t.Error("a point with 7 threads")
	}
}

func Example() {
	best := published.Best(published.Curve("smallbank", published.FORDPlus))
	fmt.Printf("%.2f M/s with %d threads\n", best.CommittedMps, best.Threads)
	for _, t := range published.Transactions("smallbank")[:1] {
		l := published.Layout{Backups: 1, Blades: 2}
		fmt.Println(t.Name, published.Sum(t.FORD(l)).Verbs, "verbs, ours at most", t.Bound(l).Verbs)
	}
	// Output:
	// 2.12 M/s with 24 threads
	// Amalgamate 27 verbs, ours at most 17
}

func TestPerAttempt(t *testing.T) {
	for workload, want := range map[string][2]float64{"smallbank": {13.107, 0}, "tatp": {3.347, 2.9}, "tpcc": {0, 0}} {
		if ford, bound := published.PerAttempt(workload); [2]float64{ford, bound} != want {
			t.Errorf("%s: %v and %v, want %v", workload, ford, bound, want)
		}
	}
}

// The curves of the hash table say what the text of the paper does (sections 3.3, 6.2.1
// and 6.3), as far as one run of the artifact repeats another.
func TestHash(t *testing.T) {
	peak := func(c []published.HashPoint) (best published.HashPoint) {
		for _, p := range c {
			if p.Mops > best.Mops {
				best = p
			}
		}
		return best
	}
	for _, x := range []struct {
		figure, mix, curve string
		mops               float64
		threads            int
	}{
		{"7", "a", "RACE", 2.8, 8}, {"8", "a", "+ConflictAvoid", 5.7, 48}, {"8", "b", "+ConflictAvoid", 21.2, 96},
		{"8", "c", "+ConflictAvoid", 23.7, 96}, {"5a", "update-only", "RACE", 1.574, 8},
	} {
		if p := peak(published.HashCurve(x.figure, x.mix, x.curve)); p.Threads != x.threads ||
			math.Abs(p.Mops/x.mops-1) > 0.02 {
			t.Errorf("figure %s, mix %s, %s: at most %v at %d threads, the text says %v",
				x.figure, x.mix, x.curve, p.Mops, p.Threads, x.mops)
		}
	}
	none, ok := published.HashAt(published.HashCurve("14", "update-only", "none"), 96, 0.99, 0)
	if !ok || math.Abs(none.Attempts-11.5) > 0.6 || math.Abs(none.NotFollowed-(1-0.679)) > 0.04 {
		t.Errorf("figure 14 without conflict avoidance, 96 threads: %+v, %v", none, ok)
	}
	theta := published.HashCurve("5b", "update-only", "RACE")
	first, last := theta[0], theta[len(theta)-1]
	if r := last.P99us / first.P99us; r < 60 || r > 80 {
		t.Errorf("figure 5b: the 99 %% latency grows %v times", r)
	}
	for _, c := range []struct{ figure, mix, curve string }{
		{"9", "a", "RACE"}, {"8a", "b", "RACE"}, {"14", "a", "none"}, {"5a", "a", "RACE"}, {"8", "a", "none"},
	} {
		if p := published.HashCurve(c.figure, c.mix, c.curve); p != nil {
			t.Errorf("figure %s, mix %s, %s: %v", c.figure, c.mix, c.curve, p)
		}
	}
	if _, ok := published.HashAt(theta, 17, 0, 0); ok {
		t.Error("a point that was not measured")
	}
}
