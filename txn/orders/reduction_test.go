package orders

import (
	"fmt"
	"testing"

	"txnode/rdma/steptest"
)

// TestReduction holds the schedules that are left out against those that are run: both have
// the same outcomes.
func TestReduction(t *testing.T) {
	for _, x := range scenarios() {
		if !x.small {
			continue
		}
		w := newWorld(t, x.kind)
		var outcomes [2]map[string]int
		var runs [2]int
		for i := range outcomes {
			outcomes[i] = map[string]int{}
			var all bool
			var err error
			runs[i], all, err = w.f.Interleave(20_000, i == 0, func() { w.begins(&x, steptest.Batches) },
				func(steptest.Schedule) error {
					l, err := w.layout()
					outcomes[i][fmt.Sprint(w.procs[0].errs, w.procs[1].errs, w.procs[0].got,
						w.procs[1].got, l, w.f.Hash())]++
					return err
				})
			if err != nil || !all {
				t.Fatalf("%s: all %v after %d schedules: %v", x.name, all, runs[i], err)
			}
		}
		t.Logf("%s: %d schedules stand for %d; %d outcomes", x.name, runs[0], runs[1], len(outcomes[0]))
		for o := range outcomes[1] {
			if outcomes[0][o] == 0 {
				t.Errorf("%s: an outcome is missed: %s", x.name, o)
			}
		}
		w.f.End()
	}
}
