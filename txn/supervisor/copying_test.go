package supervisor_test

import (
	"testing"
	"time"

	"txnode/memory"
	"txnode/txn/supervisor"
)

// TestCopyProgress: how far copies are has a rate and the time that is left; each pass begins anew;
// it is logged when it has taken long, and then as rarely.
func TestCopyProgress(t *testing.T) {
	var c supervisor.Copying
	says := 0
	step := func(passes int, done uint64, active bool, at time.Duration) supervisor.CopyMetrics {
		var say bool
		c, say = c.Next(memory.CopyProgress{Total: 1000, Done: done, Passes: passes}, active, int64(at))
		if say {
			says++
		}
		return c.Metrics()
	}
	for i, s := range []struct {
		passes int
		done   uint64
		active bool
		at     time.Duration
		want   supervisor.CopyMetrics
		says   int
	}{
		{1, 0, false, time.Second, supervisor.CopyMetrics{}, 0},
		{1, 0, true, 100 * time.Second, supervisor.CopyMetrics{Total: 1000}, 0},
		{1, 100, true, 101 * time.Second, supervisor.CopyMetrics{
			Done: 100, Total: 1000, Rate: 100, Left: 9 * time.Second,
		}, 0},
		{1, 200, true, 104 * time.Second, supervisor.CopyMetrics{
			Done: 200, Total: 1000, Rate: 50, Left: 16 * time.Second,
		}, 0},
		{2, 0, true, 108 * time.Second, supervisor.CopyMetrics{Total: 1000}, 0},
		{2, 100, true, 110 * time.Second, supervisor.CopyMetrics{
			Done: 100, Total: 1000, Rate: 50, Left: 18 * time.Second,
		}, 1},
		{
			2, 600, true, 119 * time.Second, supervisor.CopyMetrics{Done: 600, Total: 1000, Rate: 54, Left: 7333333333},
			1,
		},
		{
			2, 900, true, 120 * time.Second, supervisor.CopyMetrics{Done: 900, Total: 1000, Rate: 75, Left: 1333333333},
			2,
		},
		{2, 1000, true, 150 * time.Second, supervisor.CopyMetrics{Done: 1000, Total: 1000, Rate: 23}, 2},
		{2, 1000, false, 151 * time.Second, supervisor.CopyMetrics{}, 2},
	} {
		if m := step(s.passes, s.done, s.active, s.at); m != s.want || says != s.says {
			t.Errorf("%d: %+v, logged %d times; want %+v, %d", i, m, says, s.want, s.says)
		}
	}
}
