package verbs

import (
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"

	"txnode/rdma"
	"txnode/rdma/sim"
)

func run(t *testing.T, c Config) Result {
	t.Helper()
	r, err := Run(c)
	if err != nil {
		t.Fatal(err)
	}
	if r.Verbs == 0 || r.Mops <= 0 || r.P50Ns <= 0 || r.P99Ns < r.P50Ns || r.MeanNs <= 0 {
		t.Fatalf("%+v: %+v", c, r)
	}
	return r
}

func TestRepeatable(t *testing.T) {
	c := Config{Threads: 24, Policy: rdma.PerThreadQP, Seed: 5}
	a, b := run(t, c), run(t, c)
	if !reflect.DeepEqual(a, b) {
		t.Errorf("one configuration, two results:\n%+v\n%+v", a, b)
	}
	c.Seed = 6
	if d := run(t, c); d.TraceHash == a.TraceHash {
		t.Error("two seeds, one run")
	}
}

// A run that is canceled ends at once, and says what it has measured until then.
func TestCanceled(t *testing.T) {
	asked := 0
	c := Config{Threads: 24, Seed: 5, Canceled: func() bool { asked++; return asked > 700 }}
	all := run(t, Config{Threads: 24, Seed: 5})
	part := run(t, c)
	if !part.Canceled || part.RunNs <= 0 || part.RunNs >= all.RunNs || part.Verbs >= all.Verbs ||
		math.Abs(part.Mops/all.Mops-1) > 0.1 {
		t.Errorf("all: %+v\npart: %+v", all, part)
	}
	if all.Canceled || all.RunNs != 200_000 {
		t.Errorf("nobody has canceled %+v", all)
	}
	asked = 700 // in the warm-up
	if r, err := Run(c); err != nil || !r.Canceled || r.Verbs != 0 || r.Mops != 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

// Figure 3: at 96 threads each policy beats the one before by far.
func TestPolicies(t *testing.T) {
	last, scale := 0.0, int64(4)
	if testing.Short() {
		scale = 2
	}
	for _, p := range []rdma.QPPolicy{rdma.SharedQP, rdma.MultiplexedQP, rdma.PerThreadQP, rdma.PerThreadDoorbell} {
		for _, op := range []rdma.Op{rdma.OpRead, rdma.OpWrite} {
			r := run(t, Config{Threads: 96, Policy: p, Op: op, WarmNs: scale * 1_000_000, RunNs: scale * 2_000_000})
			if r.Mops < 1.2*last {
				t.Errorf("%v, %v: %.2f Mop/s after %.2f", p, op, r.Mops, last)
			}
			if op == rdma.OpWrite {
				last = r.Mops
			}
		}
	}
}

// Figure 4: the device's limit with 8 requests per doorbell, thrashing with 32,
// which throttling avoids (figure 13).
func TestThrashingAndThrottling(t *testing.T) {
	limit := sim.ConnectX6().OpsPerUs
	if r := run(t, Config{Threads: 96}); r.Mops < 0.95*limit {
		t.Errorf("depth 8: %.1f Mop/s of %.1f", r.Mops, limit)
	}
	thrash := run(t, Config{Threads: 96, Depth: 32})
	if thrash.Mops > 0.65*limit {
		t.Errorf("depth 32: %.1f Mop/s of %.1f, although the WQE cache does not hold that", thrash.Mops, limit)
	}
	if testing.Short() {
		return
	}
	r := run(t, Config{Threads: 96, Depth: 32, Throttle: true, WarmNs: 49_000_000, RunNs: 1_000_000})
	if r.Mops < 1.5*thrash.Mops || r.CMax > 12 {
		t.Errorf("throttled to %d requests: %.1f Mop/s, %.1f without", r.CMax, r.Mops, thrash.Mops)
	}
}

// Table 1: the number of threads changes, and throughput is that of fewer.
func TestChangingThreads(t *testing.T) {
	c := Config{Threads: 40, Depth: 4, RunNs: 1_000_000}
	all := run(t, c)
	c.MinThreads, c.ChangeNs = 1, 50_000
	some := run(t, c)
	if some.Mops > 0.8*all.Mops || some.Mops < 0.2*all.Mops {
		t.Errorf("%.1f Mop/s with 1 to 40 threads, %.1f with 40", some.Mops, all.Mops)
	}
}

// Large transfers are bound by bandwidth, in each direction.
func TestBandwidth(t *testing.T) {
	limit := sim.ConnectX6().BytesPerNs * 1e9 / (1 << 20)
	for _, op := range []rdma.Op{rdma.OpRead, rdma.OpWrite} {
		r := run(t, Config{Op: op, Threads: 32, Size: 4096, Region: 1 << 24, RunNs: 2_000_000})
		if r.MiBps > 1.01*limit || r.MiBps < 0.9*limit {
			t.Errorf("%v: %.0f MiB/s of %.0f", op, r.MiBps, limit)
		}
	}
}

// Atomics on one word wait for each other.
func TestAtomics(t *testing.T) {
	pr := sim.ConnectX6()
	for _, op := range []rdma.Op{rdma.OpCAS, rdma.OpFAA} {
		one := run(t, Config{Op: op, Threads: 16, Region: 8, RunNs: 2_000_000})
		if limit := 1000 / pr.AtomicAddrNs; one.Mops > 1.05*limit || one.Mops < 0.9*limit {
			t.Errorf("%v on one word: %.2f Mop/s of %.2f", op, one.Mops, limit)
		}
		many := run(t, Config{Op: op, Threads: 64, Region: 1 << 20})
		if many.Mops > 1.05*pr.AtomicsPerUs || many.Mops < 0.5*pr.AtomicsPerUs {
			t.Errorf("%v on many words: %.2f Mop/s of %.2f", op, many.Mops, pr.AtomicsPerUs)
		}
		if two := run(t, Config{Op: op, Threads: 64, Region: 1 << 20, Blades: 2}); two.Mops < 1.3*many.Mops {
			t.Errorf("%v on two blades: %.2f Mop/s, on one %.2f", op, two.Mops, many.Mops)
		}
	}
}

// Devices are bound each for itself: two compute blades do twice as much on two
// memory blades, and on one as much as that can.
func TestComputeBlades(t *testing.T) {
	limit := sim.ConnectX6().OpsPerUs
	if r := run(t, Config{Threads: 96, Compute: 2, Blades: 2}); r.Mops < 1.8*limit || r.Connections != 384 {
		t.Errorf("two on two: %.1f Mop/s of %.1f, %d connections", r.Mops, 2*limit, r.Connections)
	}
	if r := run(t, Config{Threads: 96, Compute: 2}); r.Mops > 1.01*limit || r.Mops < 0.9*limit {
		t.Errorf("two on one: %.1f Mop/s of %.1f", r.Mops, limit)
	}
	// A register is not shared between compute blades.
	one, four := run(t, Config{Threads: 12, Policy: rdma.PerThreadQP, RunNs: 1_000_000}),
		run(t, Config{Threads: 12, Compute: 4, Policy: rdma.PerThreadQP, RunNs: 1_000_000})
	if four.Mops < 3.7*one.Mops {
		t.Errorf("12 threads: %.1f Mop/s; on each of four blades: %.1f", one.Mops, four.Mops)
	}
}

func TestRecord(t *testing.T) {
	rec := &sim.Recording{}
	r := run(t, Config{Threads: 2, RunNs: 50_000, Record: rec})
	if uint64(len(rec.Spans)) != r.AllVerbs {
		t.Errorf("%d verbs recorded of %d", len(rec.Spans), r.AllVerbs)
	}
}

func TestBadConfig(t *testing.T) {
	for what, c := range map[string]Config{
		"READ, WRITE":  {Op: rdma.OpFlush},
		"Threads":      {Threads: -1},
		"Compute":      {Compute: 65},
		"MinThreads":   {Threads: 4, MinThreads: 9, ChangeNs: 1},
		"Depth":        {Depth: 1 << 20},
		"Size":         {Size: 64, Region: 32},
		"Blades":       {Blades: 100},
		"RunNs":        {RunNs: -1},
		"WarmNs":       {WarmNs: -1},
		"no request":   {RunNs: 1},
		"OpsPerUs is ": {Profile: sim.Profile{OpsPerUs: -1}},
	} {
		_, err := Run(c)
		if err == nil || !strings.Contains(err.Error(), what) ||
			!(errors.Is(err, ErrConfig) || errors.Is(err, sim.ErrOptions)) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
