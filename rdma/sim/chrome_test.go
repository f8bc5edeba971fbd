package sim_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"

	"txnode/rdma"
	"txnode/rdma/sim"
)

// A recording is a valid trace in which every verb begins and ends once.
func TestChromeTrace(t *testing.T) {
	rec := &sim.Recording{Max: 100}
	f := newFabric(t, 2, sim.Options{Record: rec, ThreadsPerBlade: 1})
	var ts []*rdma.Thread
	for i := range 2 {
		ts = append(ts, newThread(t, f, rdma.ThreadOptions{Index: i, Arena: 4096}))
	}
	f.Run(2, func(i int) {
		ts[i].Run(3, func(c *rdma.Coro) {
			var b rdma.Batch
			for range 10 {
				b.Reset()
				b.CAS(at(0, 8), 0, 1)
				b.Read(at(1, 64), 0, 128)
				if err := c.Do(&b); err != nil {
					t.Error(err)
				}
			}
		})
	})
	if len(rec.Spans) != 100 || rec.Dropped != 20 {
		t.Fatalf("%d verbs recorded, %d dropped; want 100 and 20", len(rec.Spans), rec.Dropped)
	}
	for _, s := range rec.Spans {
		if s.Coro < 0 || s.Coro > 2 || !(s.Posted < s.Effect && s.Effect < s.Completed && s.Completed <= s.Reaped) {
			t.Fatalf("a verb's life: %+v", s)
		}
	}
	var out bytes.Buffer
	if err := rec.WriteChrome(&out); err != nil {
		t.Fatal(err)
	}
	var trace struct {
		TraceEvents []struct {
			Ph       string
			Pid, Tid int
			ID       int
			Ts       float64
			Name     string
		}
	}
	if err := json.Unmarshal(out.Bytes(), &trace); err != nil {
		t.Fatal(err)
	}
	open := map[int]float64{}
	tracks := map[[2]int]bool{}
	verbs := 0
	for _, e := range trace.TraceEvents {
		switch e.Ph {
		case "b":
			open[e.ID] = e.Ts
			tracks[[2]int{e.Pid, e.Tid}] = true
		case "n":
			if e.Ts <= open[e.ID] {
				t.Errorf("verb %d takes effect at %v, posted at %v", e.ID, e.Ts, open[e.ID])
			}
		case "e":
			if from, ok := open[e.ID]; !ok || e.Ts <= from {
				t.Errorf("verb %d ends at %v, posted at %v", e.ID, e.Ts, from)
			}
			delete(open, e.ID)
			verbs++
		}
	}
	if verbs != 100 || len(open) != 0 || len(tracks) != 6 {
		t.Errorf("%d verbs ended, %d did not, on %d tracks; want 100, 0 and 6", verbs, len(open), len(tracks))
	}
	if err := rec.WriteChrome(broken{}); !errors.Is(err, errBroken) {
		t.Errorf("writing to what is broken: %v", err)
	}
}

var errBroken = errors.New("broken")

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errBroken }
