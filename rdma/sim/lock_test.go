package sim_test

import (
	"testing"

	"txnode/rdma"
	"txnode/rdma/sim"
)

// Who takes the free lock of a register that another thread has had last waits TakeoverNs;
// who has had it last, or is the first, does not.
func TestTakeover(t *testing.T) {
	const (
		threads = 2
		rounds  = 4
		apart   = 100_000 // ns between two that never meet
	)
	run := func(takeover float64, burst int) (took [threads]int64) {
		p := quiet()
		p.Doorbells, p.LowLatency, p.TakeoverNs = 1, 0, takeover
		f := newFabric(t, 1, sim.Options{Profile: p, Freedom: sim.FreedomNone, Threads: threads})
		var ts [threads]*rdma.Thread
		for i := range ts {
			ts[i] = newThread(t, f, rdma.ThreadOptions{Index: i, Arena: 1 << 16})
		}
		f.Run(threads, func(i int) {
			var b rdma.Batch
			f.Work(float64(i * apart))
			for range rounds {
				from := f.Now()
				for range burst {
					read(t, ts[i].Plain(), &b, 0, 8)
				}
				took[i] += f.Now() - from
				f.Work(float64(threads*apart - (f.Now() - from)))
			}
		})
		return took
	}
	for _, burst := range []int{1, 5} {
		cheap, dear := run(0, burst), run(3000, burst)
		for i, want := range []int64{3000 * (rounds - 1), 3000 * rounds} { // nobody has had it before the first
			if got := dear[i] - cheap[i]; got != want {
				t.Errorf("thread %d, bursts of %d: %d ns more, want %d", i, burst, got, want)
			}
		}
	}
}

// A register that is passed on to a thread on the far socket takes FarHandoverNs more;
// to one on the near socket it does not.
func TestFarHandover(t *testing.T) {
	const rounds, apart = 4, 100_000
	run := func(far float64, first int) (took [2]int64) {
		p := quiet()
		p.Doorbells, p.LowLatency, p.DoorbellNs, p.HandoverNs, p.FarHandoverNs = 1, 0, 500, 100, far
		f := newFabric(t, 1, sim.Options{Profile: p, Freedom: sim.FreedomNone, Threads: 2})
		var ts [2]*rdma.Thread
		for i := range ts {
			ts[i] = newThread(t, f, rdma.ThreadOptions{Index: i, Arena: 1 << 16})
		}
		f.Run(2, func(i int) {
			var b rdma.Batch
			if i != first {
				f.Work(200) // comes while the other one rings
			}
			for range rounds {
				from := f.Now()
				read(t, ts[i].Plain(), &b, 0, 8)
				took[i] += f.Now() - from
				f.Work(float64(apart - (f.Now() - from)))
			}
		})
		return took
	}
	for first, want := range [][2]int64{{0, 3000 * rounds}, {0, 0}} {
		near, far := run(0, first), run(3000, first)
		for i := range far {
			if got := far[i] - near[i]; got != want[i] {
				t.Errorf("thread %d first: thread %d takes %d ns more, want %d", first, i, got, want[i])
			}
		}
	}
}
