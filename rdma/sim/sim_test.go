package sim_test

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"txnode/rdma"
	"txnode/rdma/sim"
)

// newFabric makes a fabric with blades of 64 MiB and key 1.
func newFabric(tb testing.TB, blades int, o sim.Options) *sim.Fabric {
	tb.Helper()
	for range blades {
		o.Blades = append(o.Blades, sim.BladeOptions{Size: 64 << 20, Key: 1})
	}
	f, err := sim.New(o)
	if err != nil {
		tb.Fatal(err)
	}
	return f
}

func newThread(tb testing.TB, f rdma.Fabric, o rdma.ThreadOptions) *rdma.Thread {
	tb.Helper()
	t, err := rdma.NewThread(f, o)
	if err != nil {
		tb.Fatal(err)
	}
	return t
}

// BenchmarkVerbs is 96 threads of 8 coroutines on two blades, each coroutine in
// a loop of round trips to random places: READs, CASes and WRITEs. It reports
// verbs per second of processor time, which on a machine with nothing else to do
// is real time.
func BenchmarkVerbs(b *testing.B) {
	for name, perTrip := range map[string]int{"1": 1, "2": 2, "4": 4} {
		b.Run(name+"-per-trip", func(b *testing.B) { benchmarkVerbs(b, perTrip) })
	}
}

func benchmarkVerbs(b *testing.B, perTrip int) {
	f := newFabric(b, 2, sim.Options{Seed: 1})
	const threads, coros = 96, 8
	var ts []*rdma.Thread
	for i := range threads {
		ts = append(ts, newThread(b, f, rdma.ThreadOptions{Index: i, Techniques: rdma.AllTechniques, Arena: 1 << 16}))
	}
	cpu := processorTime(b)
	trips := b.N / (threads * coros * perTrip)
	b.ResetTimer()
	f.Run(threads, func(i int) {
		ts[i].Run(coros, func(c *rdma.Coro) {
			t := c.Thread()
			buf, err := t.Alloc(256)
			if err != nil {
				b.Error(err)
				return
			}
			var batch rdma.Batch
			for range trips + 1 {
				batch.Reset()
				for j := range perTrip {
					a := rdma.RemoteAddr{Blade: rdma.BladeID(t.Rand() & 1), Key: 1, Off: t.Rand() % (1 << 20) * 64}
					switch j & 3 {
					case 0:
						batch.Read(a, buf, 64)
					case 1:
						batch.CAS(a, 0, 1)
					default:
						batch.Write(a, buf+64, 64)
					}
				}
				if err := c.Do(&batch); err != nil {
					b.Error(err)
					return
				}
			}
		})
	})
	b.StopTimer()
	s := f.Stats()
	b.ReportMetric(float64(s.Verbs)/(processorTime(b)-cpu).Seconds()/1e6, "Mverbs/cpu-s")
	b.ReportMetric(float64(s.Events)/float64(s.Verbs), "events/verb")
	b.ReportMetric(float64(s.Verbs)/float64(f.Now())*1000, "virtual-Mverbs/s")
	for _, t := range ts {
		if err := t.Close(); err != nil {
			b.Error(err)
		}
	}
	if err := f.Close(); err != nil {
		b.Error(err)
	}
}

func processorTime(tb testing.TB) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
