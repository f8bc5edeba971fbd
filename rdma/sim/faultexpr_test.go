package sim_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"txnode/rdma/sim"
)

var expressions = []string{
	"stop(thread=3,verb=17)",
	"stop(thread=3,at=2ms)",
	"lose(thread=1,verb=9)",
	"drop(thread=1,verb=9)",
	"late(thread=1,verb=9,by=5ms)",
	"delay(thread=1,verb=9,by=10µs)",
	"tear(thread=0,verb=1,by=2µs)",
	"slow(blade=1,x=10,from=1ms,for=3ms)",
	"slow(blade=0,x=2.5)",
	"partition(blade=1)",
	"partition(blade=1,from=1ms,for=3ms)",
	"partition(blade=1,thread=2,from=1ms)",
	"restart(blade=1,at=1ms,for=500µs)",
	"restart(blade=0,at=1ms,for=500µs,memory=true)",
	"catalog(from=1ms)",
	"catalog(compute=2,from=1ms,for=3ms)",
	"kill(compute=1,at=2ms)",
	"pause(compute=3,from=1ms,for=2ms)",
	"partition(blade=1,compute=2,way=back,from=1ms,for=3ms)",
	"trouble(compute=2,why=descriptors,from=1ms,for=3ms)",
	"clock(compute=1,x=1.05)",
}

func TestFaultsPrintThemselves(t *testing.T) {
	for _, s := range expressions {
		x, err := sim.ParseFault(s)
		if err != nil {
			t.Error(err)
			continue
		}
		if x.String() != s {
			t.Errorf("%s prints as %v", s, x)
		}
	}
	all, err := sim.ParseFaults(strings.Join(expressions, "; "))
	if err != nil || len(all) != len(expressions) {
		t.Errorf("a list of %d gives %d faults and error %v", len(expressions), len(all), err)
	}
	x, err := sim.ParseFault(" delay( verb=9, thread=1 ,by=10us) ")
	if err != nil || x.String() != expressions[5] {
		t.Errorf("with spaces: %v, %v", x, err)
	}
}

func TestBadFaults(t *testing.T) {
	for s, why := range map[string]string{
		"":                                "write it as",
		"stop":                            "write it as",
		"stop(thread=1,verb=2":            "write it as",
		"explode(thread=1)":               "no such fault",
		"stop(thread=1)":                  "either verb",
		"stop(thread=1,verb=1,at=1ms)":    "either verb",
		"stop(verb=1)":                    "thread is missing",
		"kill(compute=0,at=1ms)":          "counted from 1",
		"pause(compute=1,for=0s)":         "ends after a time",
		"lose(thread=1,verb=0)":           "counted from 1",
		"lose(thread=-1,verb=1)":          "negative",
		"lose(thread=1,verb=x)":           "parameter verb",
		"lose(thread=1,thread=1,verb=1)":  "twice",
		"lose(thread=1,verb=1,by=1ms)":    "no parameter",
		"slow(blade=-1,x=2)":              "no such blade",
		"slow(blade=0,x=0.5)":             "from 1",
		"clock(compute=1,x=3)":            "from 0.5 to 2",
		"clock(compute=0,x=1)":            "counted from 1",
		"trouble(compute=1)":              "why is missing",
		"trouble(compute=1,why=fate)":     "descriptors, ports",
		"partition(blade=1,way=up)":       "there or back",
		"slow(blade=0,x=NaN)":             "from 1",
		"late(thread=1,verb=1,by=-1ms)":   "times",
		"late(thread=1,verb=1,by=999h)":   "times",
		"restart(blade=0,memory=perhaps)": "parameter memory",
	} {
		_, err := sim.ParseFault(s)
		if !errors.Is(err, sim.ErrFault) || !strings.Contains(err.Error(), why) {
			t.Errorf("%q: %v; want an error about %q", s, err, why)
		}
	}
	f := newFabric(t, 1, sim.Options{})
	if err := f.Inject(sim.Fault{Kind: sim.FaultSlow, Blade: 1, X: 2}); !errors.Is(err, sim.ErrFault) {
		t.Errorf("a fault of a blade that is not there: %v", err)
	}
}

func FuzzParseFault(f *testing.F) {
	for _, s := range expressions {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		x, err := sim.ParseFault(s)
		if err != nil {
			return
		}
		again, err := sim.ParseFault(x.String())
		if err != nil || again != x {
			t.Fatalf("%q is %v, which reads as %v, %v", s, x, again, err)
		}
	})
}

func TestDrawnFaultsAreValid(t *testing.T) {
	plan := sim.FaultPlan{Threads: 5, Blades: 3, Computes: 2, Verbs: 100, Span: time.Millisecond, N: 50}
	for k := sim.FaultStop; k <= sim.FaultClock; k++ {
		plan.Kinds = append(plan.Kinds, k)
	}
	seen := map[sim.FaultKind]bool{}
	for seed := range uint64(20) {
		faults := plan.Draw(seed)
		if !slices.Equal(faults, plan.Draw(seed)) {
			t.Fatal("one seed, two plans")
		}
		f := newFabric(t, 3, sim.Options{})
		if err := f.Inject(faults...); err != nil {
			t.Fatal(err)
		}
		for _, x := range faults {
			seen[x.Kind] = true
			if y, err := sim.ParseFault(x.String()); err != nil || y != x {
				t.Fatalf("%v reads as %v, %v", x, y, err)
			}
		}
	}
	if len(seen) != len(plan.Kinds) {
		t.Errorf("only %d kinds of %d were drawn", len(seen), len(plan.Kinds))
	}
}
