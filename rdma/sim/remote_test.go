package sim_test

import (
	"errors"
	"fmt"
	"testing"

	"txnode/rdma"
	"txnode/rdma/sim"
)

// remote runs body on the first thread of each of two compute blades of a fabric that is
// remote, under faults.
func remote(t *testing.T, faults string, body func(i int, b *bench)) *sim.Fabric {
	t.Helper()
	xs, err := sim.ParseFaults(faults)
	if err != nil {
		t.Fatal(err)
	}
	f := newFabric(t, 2, sim.Options{Freedom: sim.FreedomNone, Remote: true, ThreadsPerBlade: 4})
	var all []*bench
	for i := range 2 {
		th := newThread(t, f, rdma.ThreadOptions{Index: 4 * i, Arena: 1 << 16})
		all = append(all, &bench{T: t, f: f, t: th, c: th.Plain()})
	}
	if err := f.Inject(xs...); err != nil {
		t.Fatal(err)
	}
	f.Run(2, func(i int) { body(i, all[i]) })
	f.Settle()
	return f
}

// TestTroubleIsOnesOwn: who cannot connect says why, and what that is evidence of. Connections that
// are there go on, and another compute blade has no trouble.
func TestTroubleIsOnesOwn(t *testing.T) {
	for why, want := range map[string]rdma.Evidence{
		"descriptors": rdma.Own, "ports": rdma.Own, "name": rdma.Own, "permission": rdma.Own, "alert": rdma.Alive,
		"greeting": rdma.Silent,
	} {
		remote(t, fmt.Sprintf("trouble(compute=1,why=%s)", why), func(i int, b *bench) {
			b.set(at(0, 64), 7)
			if err := b.c.Do(&b.b); err != nil {
				t.Errorf("%s: a connection that is there ends on compute blade %d: %v", why, i+1, err)
			}
			err := b.t.Reconnect(0)
			_, e := b.f.NewPort(rdma.PortConfig{Index: 4*i + 1, Arena: 64})
			reaches := b.f.Reaches(i+1, 0)
			if i == 1 {
				if err := errors.Join(err, e, reaches); err != nil {
					t.Errorf("%s: of another one: %v", why, err)
				}
				return
			}
			for _, err := range []error{err, e, reaches} {
				if !errors.Is(err, rdma.ErrBladeDown) || errors.Is(err, rdma.ErrSilent) ||
					rdma.EvidenceOf(err) != want {
					t.Errorf("%s: %v, evidence %v, want %v", why, err, rdma.EvidenceOf(err), want)
				}
			}
		})
	}
}

// TestPartitionOneWay: what is lost on its way there has no effect, and what is lost on its way
// back has one. A compute blade that is not cut off notices nothing. Without a fault of its own a
// blade that is down refuses.
func TestPartitionOneWay(t *testing.T) {
	for way, arrives := range map[string]uint64{"there": 0, "back": 5} {
		f := remote(t, fmt.Sprintf("partition(blade=0,compute=1,way=%s)", way), func(i int, b *bench) {
			b.set(at(0, uint64(64+8*i)), 5)
			err := b.c.Do(&b.b)
			again := b.t.Reconnect(0)
			if i == 1 {
				if err := errors.Join(err, again); err != nil {
					t.Errorf("way %s: another one: %v", way, err)
				}
				return
			}
			if !errors.Is(err, rdma.ErrSilent) || !errors.Is(again, rdma.ErrSilent) ||
				rdma.EvidenceOf(again) != rdma.Silent {
				t.Errorf("way %s: %v, and again: %v", way, err, again)
			}
		})
		b := bench{T: t, f: f}
		if got := b.word(0, 64); got != arrives {
			t.Errorf("way %s: the word is %d, want %d", way, got, arrives)
		}
		if got := b.word(0, 72); got != 5 {
			t.Errorf("way %s: the word of another one is %d", way, got)
		}
		if err := f.StopBlade(1); err != nil {
			t.Fatal(err)
		}
		if err := f.Reaches(2, 1); rdma.EvidenceOf(err) != rdma.Refused || errors.Is(err, rdma.ErrSilent) {
			t.Errorf("a blade that is down: %v", err)
		}
	}
}

// TestClockRuns: a clock that runs faster is ahead, and never goes back, also when faults end; a
// wait ends when it shows the time.
func TestClockRuns(t *testing.T) {
	var shown [2]int64
	f := remote(t, "clock(compute=1,x=1.5)", func(i int, b *bench) {
		from := b.t.Now()
		b.c.Sleep(1_000_000)
		if took := b.t.Now() - from; took < 1_000_000 || took > 1_010_000 {
			t.Errorf("compute blade %d: a millisecond took %d ns by its clock", i+1, took)
		}
		shown[i] = b.f.Now()
		if i == 0 {
			if on := b.f.NowOn(1); on-b.t.Now() > 1 || b.f.When(1, on)-shown[0] > 2 {
				t.Errorf("it shows %d, or %d, which was at %d and is at %d", on, b.t.Now(), b.f.When(1, on), shown[0])
			}
		}
	})
	if shown[0] > 700_000 || shown[1] < 1_000_000 {
		t.Errorf("a millisecond by clocks of which one is faster by half took %d ns and %d", shown[0], shown[1])
	}
	was := f.NowOn(1)
	f.Heal()
	if is := f.NowOn(1); is < was || f.NowOn(2) != f.Now() {
		t.Errorf("when faults ended the clock went from %d to %d; that of another one is %d of %d",
			was, is, f.NowOn(2), f.Now())
	}
}
