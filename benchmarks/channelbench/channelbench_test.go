package channelbench_test

import (
	"bytes"
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"txnode/benchmarks/channelbench"
)

// small is a configuration that takes a second or two.
var small = channelbench.Config{Nodes: 4, Threads: 2, Keys: 400, Duration: 100 * time.Microsecond, Seed: 1}

// TestRun: all experiments check what they compute, measure something, and are repeatable.
func TestRun(t *testing.T) {
	var first *channelbench.Report
	for range 2 {
		n := 0
		r, err := channelbench.Run(context.Background(), small, func(p *channelbench.Point, done, total int) {
			if n++; done != n || done > total {
				t.Errorf("%d of %d points after %d", done, total, n)
			}
			if p.Ops == 0 || p.MeanUs <= 0 || p.P99Us < p.P50Us {
				t.Errorf("nothing was measured: %+v", p)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = r
		} else if !reflect.DeepEqual(r.Points, first.Points) {
			t.Error("a second run has other points")
		}
	}
	if len(first.Claims) < 12 {
		t.Errorf("%d claims: %v", len(first.Claims), first.Claims)
	}
	for _, e := range []string{"barrier", "lock", "failure"} {
		for _, p := range first.Points {
			if p.Experiment == e && p.Kops <= 0 {
				t.Errorf("no rate: %+v", p)
			}
		}
	}
	var table, page bytes.Buffer
	for _, err := range []error{
		first.WriteTable(&table), first.WriteHTML(&page), first.WriteCSV(&table), first.WriteJSON(&table),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	for _, want := range []string{"The map: updates, Zipf 0.99", "LOCO > Sherman", "test and set", `"verbs_per_op"`} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("the output lacks %q", want)
		}
	}
	if !strings.Contains(page.String(), "<svg") || strings.Contains(page.String(), "<script") {
		t.Error("the page has no figure, or a script")
	}
}

// TestCosts: an uncontended operation of the stand-ins has the verbs that the paper tells.
func TestCosts(t *testing.T) {
	c := small
	c.Experiments, c.Nodes, c.Threads, c.Window = []string{"kv", "fence"}, 2, 1, 1
	r, err := channelbench.Run(context.Background(), c, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][2]float64{ // verbs of an update, and of a lookup
		"ours, KV": {4, 1}, "LOCO's layout": {5, 1}, "LOCO's layout, no fence": {4, 1},
		"leaves of 1 KiB, test and set": {4, 1},
	}
	for _, p := range r.Points {
		if p.X != 1 || !strings.Contains(p.Setting, "uniform") && p.Setting != "" ||
			strings.HasPrefix(p.Setting, "half") {
			continue
		}
		verbs := want[p.Variant][0]
		if strings.HasPrefix(p.Setting, "read-only") {
			verbs = want[p.Variant][1]
		}
		if p.VerbsOp < verbs || p.VerbsOp > verbs+0.25 {
			t.Errorf("%s, %s: %.3f verbs, want %v", p.Variant, p.Setting, p.VerbsOp, verbs)
		}
	}
}

// TestWindow: a thread has as many operations under way as LOCO's window of 128 has, and more of
// them are done than with 3.
func TestWindow(t *testing.T) {
	c := small
	c.Experiments, c.Nodes, c.Threads, c.Keys = []string{"fence"}, 2, 1, 4000
	rates := map[int]float64{}
	for _, c.Window = range []int{3, 128} {
		r, err := channelbench.Run(context.Background(), c, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range r.Points {
			if p.Variant == "ours, KV" && p.X == 2 {
				rates[c.Window] = p.Kops
			}
		}
	}
	if rates[128] < 2*rates[3] || rates[3] == 0 {
		t.Errorf("thousands of updates a second, by window: %v", rates)
	}
}

// TestConfig: faults are listed, all of them, and a run that is interrupted has the points before.
func TestConfig(t *testing.T) {
	err := channelbench.Config{
		Experiments: []string{"chess"}, Nodes: 65, Threads: 1000, Keys: -1, Duration: -1,
	}.Validate()
	if !errors.Is(err, channelbench.ErrConfig) {
		t.Fatal(err)
	}
	for _, want := range []string{"chess", "Nodes", "Threads", "Keys", "Duration"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %s", err, want)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	c := small
	c.Experiments = []string{"lock"}
	r, err := channelbench.Run(ctx, c, func(_ *channelbench.Point, done, _ int) {
		if done == 2 {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) || len(r.Points) != 2 || len(r.Claims) != 0 {
		t.Errorf("%v, %+v", err, r)
	}
}

// TestObjects: each operation works on several threads at once, and checks what it does.
func TestObjects(t *testing.T) {
	for _, threads := range []int{1, 3} {
		r, err := channelbench.RunObjects(context.Background(), channelbench.ObjectsConfig{
			Threads: threads, Duration: 5 * time.Millisecond,
		}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Points) != len(channelbench.Operations()) {
			t.Errorf("%d operations, want %d", len(r.Points), len(channelbench.Operations()))
		}
		for _, p := range r.Points {
			if p.Ops == 0 || p.VerbsOp == 0 && p.Variant != "ring" || p.X != float64(threads) {
				t.Errorf("nothing was measured: %+v", p)
			}
		}
	}
	err := channelbench.ObjectsConfig{Operations: []string{"chess"}, Threads: 65, Duration: -1}.Validate()
	if !errors.Is(err, channelbench.ErrConfig) || !strings.Contains(err.Error(), "chess") ||
		!strings.Contains(err.Error(), "Threads") {
		t.Error(err)
	}
}
