package calibrate

import (
	"context"
	"errors"
	"flag"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"txnode/rdma/sim"
)

// table prints the tables of docs/simulator-fit.md.
var table = flag.Bool("table", false, "print the residuals of the default profile as tables")

func TestTable(t *testing.T) {
	if !*table {
		t.Skip("prints; use -table")
	}
	r, err := Evaluate(t.Context(), sim.ConnectX6(), Points(), 48_000)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.WriteMarkdown(os.Stdout); err != nil {
		t.Fatal(err)
	}
}

var fit = flag.Bool("fit", false, "fit the constants anew and print the residuals; takes minutes")

func TestFit(t *testing.T) {
	if !*fit {
		t.Skip("takes minutes; use -fit")
	}
	round := Progress{Round: -1}
	r, err := Fit(t.Context(), Options{Progress: func(p Progress) {
		if p.Round != round.Round || p.Stage != round.Stage {
			t.Logf("%s, round %d: %.5f", p.Stage, p.Round, p.Cost)
		}
		round = p
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.WriteText(os.Stdout); err != nil {
		t.Fatal(err)
	}
}

// The default profile is what the fit found: the residuals are what
// docs/simulator-fit.md says. In short mode, a few points.
func TestDefaultProfileIsCalibrated(t *testing.T) {
	points, requests := Points(), 20_000.0
	if len(points) != 113 {
		t.Fatalf("%d points, want 65 of figure 3a and 48 of figure 4a", len(points))
	}
	if testing.Short() {
		var some []Point
		for i := 0; i < len(points); i += 16 {
			some = append(some, points[i])
		}
		points, requests = some, 5000
	}
	r, err := Evaluate(t.Context(), sim.ConnectX6(), points, requests)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range r.Residuals {
		if math.Abs(x.Error()) > 0.30 {
			t.Errorf("figure %s, %s, %d threads, depth %d: %.3f Mop/s, measured %.3f", x.Figure, x.Name, x.Threads,
				x.Depth, x.Model, x.Mops)
		}
	}
	if m := r.MedianError(); m > 0.05 {
		t.Errorf("median error %.1f%%, want at most 5%%", 100*m)
	}
}

// From constants that are off, a search finds back to a small cost, and changes
// those of its own stage only.
func TestSearch(t *testing.T) {
	points := []Point{
		{Policy: 0, Threads: 12, Depth: 1, Mops: 5.1},
		{Policy: 0, Threads: 12, Depth: 16, Mops: 31},
	}
	good := sim.ConnectX6()
	for i := range points {
		m, err := points[i].Measure(good, 2000)
		if err != nil {
			t.Fatal(err)
		}
		points[i].Mops = m
	}
	p := good
	p.RoundTripNs *= 1.5
	p.PostNs *= 0.7
	o := Options{Requests: 1000}
	before, _, err := costOf(t.Context(), p, points, &o)
	if err != nil {
		t.Fatal(err)
	}
	rounds, last := 0, before
	o.Progress = func(p Progress) {
		if p.Cost > last || p.Constant == "" {
			t.Errorf("progress %+v after cost %g", p, last)
		}
		rounds, last = p.Round+1, p.Cost
	}
	found, err := search(t.Context(), &p, stageDevice, points, &o, "test")
	if err != nil {
		t.Fatal(err)
	}
	after, residuals, err := costOf(t.Context(), p, points, &o)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(found, residuals) {
		t.Errorf("the search has found %+v, and its constants have %+v", found, residuals)
	}
	if after > before/50 || rounds == 0 {
		t.Errorf("the search went from cost %g to %g in %d rounds", before, after, rounds)
	}
	if p.HandoverNs != good.HandoverNs || p.ShareNs != good.ShareNs {
		t.Error("it changed constants of another stage")
	}
}

func TestReport(t *testing.T) {
	r := Report{Profile: sim.ConnectX6(), Residuals: []Residual{
		{Point{Figure: "3a", Name: "QP per thread", Threads: 8, Depth: 8, Mops: 10}, 11},
		{Point{Figure: "4a", Name: "doorbell per thread", Threads: 12, Depth: 1, Mops: 10}, 8},
		{Point{Figure: "4a", Name: "doorbell per thread", Threads: 24, Depth: 1, Mops: 10}, 10},
	}}
	if m, x := r.MedianError(), r.MaxError(); math.Abs(m-0.1) > 1e-9 || math.Abs(x-0.2) > 1e-9 {
		t.Errorf("median %v, largest %v; want 0.1 and 0.2", m, x)
	}
	var b strings.Builder
	if err := r.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{
		"connectx-6", "HandoverNs", "QP per thread", "+10.0%", "-20.0%", "median 10.0%, largest 20.0%",
	} {
		if !strings.Contains(b.String(), s) {
			t.Errorf("the report lacks %q:\n%s", s, b.String())
		}
	}
	b.Reset()
	if err := r.WriteMarkdown(&b); err != nil {
		t.Fatal(err)
	}
	want := `
Figure 3a:

| threads | QP per thread |
|---|---|
| 8 | 10/11 (+10) |

Figure 4a:

| threads | depth 1 |
|---|---|
| 12 | 10/8 (-20) |
| 24 | 10/10 (+0) |

Absolute error over 3 points: median 10.0 %, largest 20.0 %.
`
	if b.String() != want {
		t.Errorf("the tables are\n%s\nwant\n%s", b.String(), want)
	}
	if (&Report{}).MaxError() != 0 {
		t.Error("no points have an error")
	}
	if tidy(1234567) != 1235000 || tidy(0.00012345) != 0.0001235 && tidy(0.00012345) != 0.0001234 || tidy(0) != 0 {
		t.Error("tidy does not round to four digits")
	}
}

// TestInterrupted: a fit, which takes minutes, ends when its context does.
func TestInterrupted(t *testing.T) {
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	r, err := Fit(ctx, Options{})
	if !errors.Is(err, cause) || r.Profile != sim.ConnectX6() || len(r.Residuals) != 0 {
		t.Errorf("Fit: %+v, %v", r, err)
	}
	var b strings.Builder
	if err := r.WriteText(&b); err != nil || !strings.Contains(b.String(), "HandoverNs") ||
		strings.Contains(b.String(), "figure") {
		t.Errorf("a report without residuals: %v\n%s", err, b.String())
	}
	if r, err := Evaluate(ctx, sim.ConnectX6(), Points(), 1000); !errors.Is(err, cause) || len(r.Residuals) != 0 {
		t.Errorf("Evaluate: %d residuals, %v", len(r.Residuals), err)
	}
}
