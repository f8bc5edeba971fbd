package simbench_test

import (
	"bytes"
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"txnode/benchmarks/simbench"
	"txnode/benchmarks/ycsb"
	"txnode/occ"
	"txnode/rdma"
	"txnode/rdma/sim"
)

func small(policy occ.Policy, t rdma.Techniques) simbench.Config {
	return simbench.Config{
		Workload: "smallbank", Policy: policy, Techniques: t, LikeDTX: policy == occ.PolicyFORD, Backups: 1,
		Threads: 2, Rows: 2000, Warmup: 100 * time.Microsecond, Txns: 4000, Seed: 5,
	}
}

// Equal configurations give equal points, down to the trace; another seed another.
func TestRepeatable(t *testing.T) {
	ctx := context.Background()
	for _, c := range []simbench.Config{
		small(occ.PolicyFORD, rdma.Techniques{}),
		small(occ.PolicyFORD, rdma.AllTechniques), small(occ.PolicyDefault, rdma.AllTechniques),
	} {
		data, err := simbench.Load(ctx, c, nil)
		if err != nil {
			t.Fatal(err)
		}
		var points [3]simbench.Point
		for i := range points {
			if i == 2 {
				c.Seed++
			}
			if points[i], err = simbench.Run(ctx, c, data); err != nil {
				t.Fatal(err)
			}
		}
		if points[0] != points[1] {
			t.Errorf("%s: %+v, and again %+v", c.Name(), points[0], points[1])
		}
		if points[0].TraceHash == points[2].TraceHash {
			t.Errorf("%s: two seeds are one run", c.Name())
		}
	}
}

// FORD's lines count verbs as its program does: by type, from its code, and with what our
// index needs beside.
func TestLikeDTX(t *testing.T) {
	const other = -1
	for _, c := range []struct {
		workload string
		rows     int
		txns     int64
		verbs    []float64 // by type; other: see below
		near     float64   // relative
		mix      float64   // published, at one thread
	}{
		// some addresses are not cached
		{"smallbank", 20_000, 8000, []float64{27, 4, 11, other, 11, 13}, 0.002, 13.107},
		{"tatp", 5000, 20_000, []float64{1, 2.33, 1, 13.48, 13, other, 5.63}, 0.1, 3.347},
	} {
		cfg := small(occ.PolicyFORD, rdma.Techniques{})
		cfg.Workload, cfg.Threads, cfg.Coroutines, cfg.Rows, cfg.Txns, cfg.Freedom = c.workload, 1, 1, c.rows,
			c.txns, sim.FreedomNone
		p, err := simbench.Run(context.Background(), cfg, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range c.verbs {
			if got := p.Types[i]; want != other && math.Abs(got.VerbsPerAttempt/want-1) > c.near {
				t.Errorf("%s: %.3f verbs an attempt, want %.2f", got.Name, got.VerbsPerAttempt, want)
			}
		}
		if c.workload == "smallbank" {
			// A payment posts 19 requests, or 8 when the account has not enough.
			pay := p.Types[3]
			if want := 19 - 11*pay.NotCommitted; math.Abs(pay.VerbsPerAttempt/want-1) > c.near ||
				math.Abs(pay.NotCommitted-0.564) > 0.03 {
				t.Errorf("%s: %.3f verbs an attempt, want %.3f, and %.3f of them fail, want 0.564",
					pay.Name, pay.VerbsPerAttempt, want, pay.NotCommitted)
			}
		}
		// Other draws of the mix: three standard deviations of its mean.
		if math.Abs(p.VerbsCounted/c.mix-1) > 0.03 {
			t.Errorf("%s: %.2f verbs an attempt, published are %.2f", c.workload, p.VerbsCounted, c.mix)
		}
		// Of what ends after the warm-up, one attempt began before.
		if p.Attempts != uint64(c.txns) && p.Attempts != uint64(c.txns)-1 {
			t.Errorf("%s: %d attempts of a thread that has %d to do", c.workload, p.Attempts, c.txns)
		}
		if p.Conflicts != 0 {
			t.Errorf("%s: %.4f conflicts with one coroutine", c.workload, p.Conflicts)
		}
	}
}

// YCSB keeps its books on the simulator, its values and keys matter, and one seed is one run.
func TestYCSB(t *testing.T) {
	var hashes []uint64
	for _, change := range []func(o *ycsb.Options){
		func(*ycsb.Options) {}, func(*ycsb.Options) {}, func(o *ycsb.Options) { o.ValueSize = 300 },
		func(o *ycsb.Options) { o.KeyType = ycsb.Text },
		func(o *ycsb.Options) { o.Workload, o.Table, o.ScanLength = "e", ycsb.Ordered, 10 },
	} {
		cfg := small(occ.PolicyDefault, rdma.AllTechniques)
		cfg.Workload, cfg.Threads, cfg.Rows, cfg.Txns, cfg.Verify, cfg.Warmup = "ycsb", 2, 500, 2000, true,
			100*time.Microsecond
		cfg.YCSB = ycsb.DefaultOptions()
		cfg.YCSB.Workload = "d"
		change(&cfg.YCSB)
		p, err := simbench.Run(context.Background(), cfg, nil)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Contains([]string{"Read Insert", "Insert Scan"}, p.Types[0].Name+" "+p.Types[1].Name) ||
			p.Types[0].Attempts == 0 || p.Types[1].Attempts == 0 {
			t.Errorf("types %+v", p.Types)
		}
		hashes = append(hashes, p.TraceHash)
	}
	if hashes[0] != hashes[1] || hashes[0] == hashes[2] || hashes[0] == hashes[3] || hashes[2] == hashes[3] {
		t.Errorf("runs %x", hashes)
	}
	cfg := small(occ.PolicyFORD, rdma.AllTechniques)
	cfg.Workload, cfg.LikeDTX = "ycsb", true
	if err := cfg.Validate(); !errors.Is(err, simbench.ErrConfig) {
		t.Errorf("LikeDTX is accepted: %v", err)
	}
}

// The page needs nothing from elsewhere, and tells the constants of model and program.
func TestWriteHTML(t *testing.T) {
	c := small(occ.PolicyFORD, rdma.Techniques{})
	curve, err := simbench.Sweep(context.Background(), c, nil, []int{1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var page bytes.Buffer
	if err := simbench.WriteHTML(&page, c.Profile, []simbench.Curve{curve}, c.Runs()); err != nil {
		t.Fatal(err)
	}
	s := page.String()
	for _, want := range []string{"<svg", "HandoverNs", "smart-dtx: WaitNs", "Work requests per attempt"} {
		if !strings.Contains(s, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	for _, not := range []string{"http:", "https:", "src=", "<script"} {
		if strings.Contains(s, not) {
			t.Errorf("the page has %q", not)
		}
	}
}

// Idle times make the throughput smaller, and leave the latency; an interrupted sweep
// has the points that it had measured.
func TestSweepIdle(t *testing.T) {
	c := small(occ.PolicyFORD, rdma.Techniques{})
	data, err := simbench.Load(context.Background(), c, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	idle := []time.Duration{0, 50 * time.Microsecond, 500 * time.Microsecond}
	curve, err := simbench.SweepIdle(ctx, c, data, idle, nil)
	if err != nil || len(curve.Points) != len(idle) || curve.Axis() != "idle us" || curve.At(2) != 500 {
		t.Fatalf("%d points by %s, %v", len(curve.Points), curve.Axis(), err)
	}
	p := curve.Points
	if p[0].CommittedMps < 1.2*p[1].CommittedMps || p[1].CommittedMps < 3*p[2].CommittedMps {
		t.Errorf("%.3f, %.3f and %.3f M/s", p[0].CommittedMps, p[1].CommittedMps, p[2].CommittedMps)
	}
	if p[2].P50us > p[0].P50us || p[2].P50us < 5 {
		t.Errorf("median latency %.1f us, with long idle times %.1f", p[0].P50us, p[2].P50us)
	}
	var page bytes.Buffer
	if err := simbench.WriteHTML(&page, c.Profile, []simbench.Curve{curve}, c.Runs()); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(page.String(), "figure 11") || !strings.Contains(page.String(), ">500</text>") {
		t.Error("the page does not say what it shows")
	}

	wide := c
	wide.Threads = 96
	curve, err = simbench.SweepIdle(ctx, wide, data, []time.Duration{0, 16 * time.Microsecond}, nil)
	if err != nil || curve.Figure[0].CommittedMps != 0.893 || curve.Figure[1].CommittedMps != 0.939 {
		t.Errorf("beside 0.893 and 0.939, of figure 11: %+v, %v", curve.Figure, err)
	}

	n := 0
	curve, err = simbench.SweepIdle(ctx, c, data, append(idle, idle...), func(simbench.Point) {
		if n++; n == 1 {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) || len(curve.Points) == 0 || len(curve.Points) > len(idle) ||
		len(curve.Figure) != len(curve.Points) {
		t.Errorf("interrupted after the first of six points: %d points, %d published, %v",
			len(curve.Points), len(curve.Figure), err)
	}
}

// The published program's memory: what a thread has not used yet grows with the number
// of threads, who share the attempts, and so does what each waits for its memory.
func TestDTXProgram(t *testing.T) {
	for _, w := range []string{"smallbank", "tatp"} { // it runs no other
		var last sim.Program
		for _, n := range []int{1, 8, 32, 96} {
			p := simbench.Config{Workload: w, LikeDTX: true, Threads: n}.Runs()
			if err := p.Validate(); err != nil {
				t.Fatal(err)
			}
			if p.Cold <= last.Cold || p.Cold > 0.3 || p.TxnNs <= last.TxnNs || p.TxnNs > 2000 {
				t.Errorf("%s with %d threads: %.3f of the records are new, %.0f ns of memory a transaction; before "+
					"%.3f and %.0f", w, n, p.Cold, p.TxnNs, last.Cold, last.TxnNs)
			}
			last = p
		}
		if want := map[string][2]int{"smallbank": {64, 1416}, "tatp": {96, 2120}}[w]; last.Item != want[0] ||
			last.Bucket != want[1] {
			t.Errorf("%s: records of %d and buckets of %d bytes, want %v", w, last.Item, last.Bucket, want)
		}
	}
}

// The name of a configuration tells apart what a command can put side by side.
func TestNames(t *testing.T) {
	unthrottled := rdma.AllTechniques
	unthrottled.Throttle = false
	for _, c := range []struct {
		want   string
		config simbench.Config
	}{
		{"FORD+", simbench.Config{
			Workload: "tatp", Policy: occ.PolicyFORD, LikeDTX: true, Backups: 1, Tuner: rdma.TunerSMART,
		}},
		{"SMART-DTX", simbench.Config{
			Workload: "tatp", Policy: occ.PolicyFORD, LikeDTX: true, Backups: 1,
			Techniques: rdma.AllTechniques, Tuner: rdma.TunerSMART,
		}},
		{"SMART-DTX, tuner thread", simbench.Config{
			Workload: "tatp", Policy: occ.PolicyFORD, LikeDTX: true, Backups: 1, Techniques: rdma.AllTechniques,
		}},
		{"policy default, all techniques", simbench.Config{Workload: "ycsb", Techniques: rdma.AllTechniques}},
		{
			"policy default, all techniques, tuner smart",
			simbench.Config{Workload: "ycsb", Techniques: rdma.AllTechniques, Tuner: rdma.TunerSMART},
		},
		{"policy default, no throttle", simbench.Config{Workload: "ycsb", Techniques: unthrottled}},
		{"policy default, no techniques", simbench.Config{Workload: "ycsb"}},
		{
			"policy default, some techniques",
			simbench.Config{Workload: "ycsb", Techniques: rdma.Techniques{Doorbells: true}},
		},
	} {
		if got := c.config.Name(); got != c.want {
			t.Errorf("%+v: %q, want %q", c.config, got, c.want)
		}
	}
}
