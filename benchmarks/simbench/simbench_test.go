package simbench_test

import (
	"bytes"
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"txnode/benchmarks/simbench"
	"txnode/occ"
	"txnode/rdma"
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
	for _, c := range []simbench.Config{small(occ.PolicyFORD, rdma.Techniques{}), small(occ.PolicyFORD, rdma.AllTechniques), small(occ.PolicyDefault, rdma.AllTechniques)} {
		data, err := simbench.Load(ctx, c)
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

// FORD's lines count verbs as its program does, and need about as many as published
// at one thread: 13.1 an attempt, 14 % of which do not commit.
func TestLikeDTX(t *testing.T) {
	c := small(occ.PolicyFORD, rdma.Techniques{})
	c.Threads, c.Rows, c.Txns = 1, 40_000, 8000
	p, err := simbench.Run(context.Background(), c, nil)
	if err != nil {
		t.Fatal(err)
	}
	if math.Abs(p.VerbsPerAttempt/13.1-1) > 0.04 {
		t.Errorf("%.2f verbs an attempt, want about 13.1", p.VerbsPerAttempt)
	}
	if want := p.VerbsPerAttempt * (1 + 1.0/1200); math.Abs(p.VerbsCounted-want) > 1e-9 {
		t.Errorf("%v counted, want %v", p.VerbsCounted, want)
	}
	if p.NotCommitted < 0.11 || p.NotCommitted > 0.18 {
		t.Errorf("%.1f %% did not commit, want about 14", 100*p.NotCommitted)
	}
	if name := c.Runs().Name; name != "smart-dtx" {
		t.Errorf("it runs %q", name)
	}
	if name := small(occ.PolicyDefault, rdma.AllTechniques).Runs().Name; name != "txnode" {
		t.Errorf("ours runs %q", name)
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
