package seeds_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"txnode/benchmarks/simbench/seeds"
	"txnode/rdma/sim"
)

var (
	count = flag.Uint64("seeds", 100, "how many seeds TestSeeds and TestSeedsWithFaults run")
	first = flag.Uint64("from", 1, "the first of them")
)

// TestSeeds holds the engine against a part of what make simulate runs, on all
// processors.
func TestSeeds(t *testing.T) {
	n := *count
	if testing.Short() {
		n = min(n, 40)
	}
	seen, err := seeds.RunMany(t.Context(), *first, n, runtime.GOMAXPROCS(0), seeds.Options{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Log(&seen)
	enough(t, n, &seen)
}

// enough fails unless n seeds have been run, and have come to every workload, policy
// and replication, often enough for a proof.
func enough(t *testing.T, n uint64, seen *seeds.Coverage) {
	t.Helper()
	if seen.Runs != n {
		t.Errorf("%d seeds were run, want %d", seen.Runs, n)
	}
	for i, w := range seeds.Workloads() {
		if seen.Workloads[i] < n/60 {
			t.Errorf("workload %s in %d of %d runs", w, seen.Workloads[i], n)
		}
	}
	for f, k := range seen.Backups {
		if k < n/5 {
			t.Errorf("f=%d in %d of %d runs", f, k, n)
		}
	}
	if seen.Durable < n/8 {
		t.Errorf("durability power in %d of %d runs", seen.Durable, n)
	}
	if min(seen.Policies[0], seen.Policies[1]) < n/4 || seen.Grown < n/20 {
		t.Errorf("policies in %v runs, indexes split in %d, of %d", seen.Policies, seen.Grown, n)
	}
}

// TestSeedsWithFaults holds recovery against the same.
func TestSeedsWithFaults(t *testing.T) {
	kinds, err := seeds.ParseFaultKinds("all")
	if err != nil {
		t.Fatal(err)
	}
	n := *count
	if testing.Short() {
		n = min(n, 40)
	}
	seen, err := seeds.RunMany(t.Context(), *first, n, runtime.GOMAXPROCS(0), seeds.Options{Faults: kinds}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Log(&seen)
	enough(t, n, &seen)
	for _, k := range kinds {
		if seen.Struck[k] < n/20 && k != sim.FaultTrouble && k != sim.FaultClock { // these are for TestNetworks
			t.Errorf("%v has struck in %d of %d runs", k, seen.Struck[k], n)
		}
	}
	if seen.Survived < n/3 || seen.Survived > n-n/4 {
		t.Errorf("survivors went on in %d of %d runs", seen.Survived, n)
	}
	if seen.Coordinators < n || seen.Finished < n/2 || seen.Undone < n/3 || seen.Unknown < n/25 {
		t.Errorf("%d coordinators were recovered, %d transactions finished, %d undone, %d unknown outcomes "+
			"answered, in %d runs",
			seen.Coordinators, seen.Finished, seen.Undone, seen.Unknown, n)
	}
	if seen.Outages < n/20 || min(seen.Kept, seen.Erased) < n/40 || seen.Promoted < n/20 || seen.Built < n/4 ||
		seen.Gone < n/200 {
		t.Errorf("blades stopped in %d runs with their memory, in %d without; %d were declared dead, %d segments "+
			"promoted, %d copies built, %d never came back, in %d runs",
			seen.Kept, seen.Erased, seen.Outages, seen.Promoted, seen.Built, seen.Gone, n)
	}
}

// TestSieges holds the engine against blades that stop one after the other, and clients who stay.
func TestSieges(t *testing.T) {
	kinds, err := seeds.ParseFaultKinds("all")
	if err != nil {
		t.Fatal(err)
	}
	n := max(*count/20, 20)
	if testing.Short() {
		n = min(n, 10)
	}
	for _, o := range []seeds.Options{{Faults: kinds, Siege: true}, {Siege: true}} {
		seen, err := seeds.RunMany(t.Context(), *first, n, runtime.GOMAXPROCS(0), o, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Log(&seen)
		// only the last ones of a run are remembered
		if seen.Sieges != n || seen.Losses < 2*n || seen.Kept < n/3 || seen.Erased < n/3 ||
			seen.Outages < seen.Losses*9/10 {
			t.Errorf("%d sieges in %d runs: %d blades came back, with their memory in %d runs, without in %d; %d "+
				"were declared dead",
				seen.Sieges, n, seen.Losses, seen.Kept, seen.Erased, seen.Outages)
		}
	}
}

// TestSeveralProcesses holds the engine against processes that have the database open at once, and
// leave it, die or are paused.
func TestSeveralProcesses(t *testing.T) {
	kinds, err := seeds.ParseFaultKinds("all")
	if err != nil {
		t.Fatal(err)
	}
	n := max(*count/10, 20)
	if testing.Short() {
		n = min(n, 20)
	}
	for _, processes := range []int{2, 4} {
		calm, err := seeds.RunMany(t.Context(), *first, n/2, runtime.GOMAXPROCS(0), seeds.Options{Processes: processes},
			nil)
		if err != nil {
			t.Fatal(err)
		}
		if calm.Several != n/2 || calm.Closed+n/2 != calm.Processes || calm.Joined < n/8 || calm.Killed > 0 {
			t.Errorf("without faults, in %d runs: %s", n/2, &calm)
		}
		seen, err := seeds.RunMany(t.Context(), *first, n, runtime.GOMAXPROCS(0),
			seeds.Options{Processes: processes, Faults: kinds}, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Log(&seen)
		if seen.Several != n || seen.Processes != n*uint64(processes) || seen.Joined < n/5 || seen.Closed < n/10 ||
			seen.Killed < n/2 || seen.Ended < n || seen.Rejoined < n ||
			seen.Extinct < n/10 || processes > 2 && seen.Succeeded < n/20 || seen.Struck[sim.FaultPause] < n/3 {
			t.Errorf("in %d runs: %s", n, &seen)
		}
	}
}

// TestNetworks holds the engine against processes that have trouble of their own, are cut off
// blades or the catalog or both, one way or both, are stopped beyond their leases, and whose clocks
// run apart, and a witness that is cut off.
func TestNetworks(t *testing.T) {
	kinds, err := seeds.ParseFaultKinds("trouble,clock")
	if err != nil {
		t.Fatal(err)
	}
	n := max(*count/5, 20)
	if testing.Short() {
		n = 10
	}
	for _, o := range []seeds.Options{
		{Processes: 3, Faults: kinds},
		{Processes: 2, Faults: append(kinds, sim.FaultPartition, sim.FaultCatalog, sim.FaultPause)},
	} {
		seen, err := seeds.RunMany(t.Context(), *first, n, runtime.GOMAXPROCS(0), o, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Log(&seen)
		if seen.Networks < n/4 || seen.Witnessed < seen.Networks/3 || seen.Tended < seen.Networks/5 ||
			seen.Tended == seen.Networks {
			t.Errorf("in %d runs: %s", n, &seen)
		}
		for _, k := range o.Faults {
			if seen.Struck[k] < n/10 {
				t.Errorf("%v has struck in %d of %d runs", k, seen.Struck[k], n)
			}
		}
	}
}

// TestOnceFound runs again what has shown violations around the loss of a blade
// (docs/violations.md). Schedules change with the engine, so it pins little; what pins
// more is named there.
func TestOnceFound(t *testing.T) {
	for _, x := range []struct {
		seed   uint64
		faults string
		siege  bool
	}{
		{seed: 1, faults: "stop(thread=2,verb=519);stop(thread=2,verb=511);restart(blade=0,at=316.237µs,memory=true)"},
		{seed: 119, faults: "stop(thread=2,verb=68);restart(blade=0,at=219.213µs,for=3.397µs)"},
		{seed: 322, faults: "restart(blade=0,at=576.003µs,for=645.839µs)"},
		{seed: 355, faults: "restart(blade=0,at=776.667µs,for=843.702µs);slow(blade=1,x=5,from=340.549µs,for=33.5µs)"},
		{seed: 852, faults: "restart(blade=0,at=195.793µs,for=64.036µs)"},
		{
			seed:   1198,
			faults: "restart(blade=0,at=532.471µs,for=49.145µs,memory=true);slow(blade=0,x=5,from=114.172µs,for=21.283µs);slow(blade=0,x=5,from=289.788µs,for=47.191µs)",
		},
		{seed: 1570, faults: "restart(blade=0,at=440.749µs,for=842.168µs)"},
		{
			seed:   1745,
			faults: "restart(blade=0,at=385.596µs,for=49.48µs);restart(blade=1,at=93.494µs,for=649.376µs,memory=true)",
		},
		{
			seed:   8450,
			faults: "restart(blade=1,at=602.47µs);stop(thread=2,verb=36);partition(blade=1,thread=1,from=452.129µs,for=75.504µs);stop(thread=1,verb=2136)",
		},
		{
			seed:   63518,
			faults: "restart(blade=0,at=392.499µs,for=828.014µs);slow(blade=0,x=16,from=121.857µs,for=9.479µs)",
		},
		{seed: 75924, faults: "partition(blade=2,thread=2,from=259.875µs,for=41.473µs);restart(blade=0,at=438.444µs)"},
		{seed: 60210, faults: "lose(thread=1,verb=331)"},
		{seed: 3744, faults: "late(thread=1,verb=1356,by=249.649µs)"},
		{
			seed:   14001458,
			faults: "late(thread=1,verb=415,by=670.469µs);restart(blade=1,at=1.131649ms);catalog(from=1.040904ms,for=147.603µs);catalog(from=980.392µs,for=189.276µs)",
		},
		{
			seed:   714,
			faults: "stop(thread=4,verb=103);catalog(from=129.395µs,for=268.035µs);catalog(from=99.09µs,for=221.05µs)",
			siege:  true,
		},
		{seed: 20000927, faults: "stop(thread=2,verb=1227)", siege: true},
		{
			seed:   20002790,
			faults: "slow(blade=2,x=5,from=40.64µs,for=646.79µs);tear(thread=1,verb=1247,by=7.295µs);drop(thread=1,verb=318)", siege: true,
		},
	} {
		only, err := sim.ParseFaults(x.faults)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := seeds.Run(x.seed, seeds.Options{Only: only, Siege: x.siege}); err != nil {
			t.Error(err)
		}
	}
}

// TestProcessesOnceFound runs again what has shown violations of several processes.
func TestProcessesOnceFound(t *testing.T) {
	for _, x := range []struct {
		seed      uint64
		processes int
		siege     bool
		faults    string
		why       string
	}{
		{
			2801, 2, false, "restart(blade=0,at=209.616µs);catalog(compute=1,from=491.89µs,for=5.307672ms)",
			"verdicts of another process are taken back",
		},
		{
			3900, 2, false, "restart(blade=1,at=66.884µs,for=6.938µs,memory=true)",
			"a session waits for ever for one that another process has recovered",
		},
		{
			605299, 3, false, "kill(compute=2,at=685.035µs)",
			"a session waits for ever for the right of a dead process to recover an index",
		},
		{
			601298, 3, false, "restart(blade=0,at=362.702µs,for=803.435µs)",
			"a blade is cleared by a key that a fence does not know",
		},
		{602968, 3, false,
			"late(thread=129,verb=1848,by=393.924µs);tear(thread=129,verb=1010,by=16.982µs);slow(blade=2,x=7,from=80.609µs,for=5.567µs);" +
				"late(thread=1,verb=1417,by=140.423µs);pause(compute=1,from=3.306µs,for=3.937974ms)",
			"a session closes that has left a merge undecided"},
		{
			608975, 3, true, "tear(thread=130,verb=576,by=2.448µs);catalog(compute=2,from=385.181µs,for=3.387954ms)",
			"blades are called full of which one has just been lost",
		},
		{
			615851, 3, false,
			"restart(blade=1,at=45.588µs,for=21.406µs);pause(compute=1,from=43.964µs,for=10.821115ms)",
			"a reader is told that another process is alone, and not to rejoin",
		},
		{618968, 3, false,
			"catalog(from=651.701µs,for=206.781µs);pause(compute=1,from=430.138µs,for=551.716µs);catalog(compute=3,from=131.432µs,for=78.193µs)",
			"a process closes whose recoveries come later, and its unknown outcomes are kept by no process"},
		{
			51, 3, true, "clock(compute=3,x=1.007)",
			"a process registers for a nanosecond, since it has waited for longer than its term before",
		},
		{619134, 3, true,
			"drop(thread=1,verb=1886);pause(compute=2,from=178.979µs,for=9.689504ms);pause(compute=3,from=600.428µs,for=14.715489ms)",
			"a process wakes up and declares a blade dead that another one has taken in again: the last copy of a " +
				"segment is lost"},
		{
			400267, 3, true, "slow(blade=0,x=5,from=224.945µs,for=422.92µs);kill(compute=3,at=346.661µs);" +
				"partition(blade=2,compute=3,way=back,from=49.127µs,for=173.259µs)",
			"a table is not made, because fences of a thread ask by a key of before",
		},
		{
			410053, 3, true, "kill(compute=2,at=380.521µs);kill(compute=3,at=54.516µs);" +
				"pause(compute=1,from=379.5µs,for=5.727365ms);partition(blade=0,compute=4,from=104.639µs,for=3.958236ms)",
			"maintenance fails, because another process has dropped a table",
		},
		{
			410056, 3, true, "kill(compute=2,at=560.904µs);trouble(compute=1,why=greeting,from=470.661µs,for=101.27µs)",
			"an index whose table is dropped is never dropped",
		},
		{
			700144, 3, true, "trouble(compute=1,why=alert,from=222.537µs,for=627.959µs)",
			"a process without workers does not look whether it reaches a blade again",
		},
	} {
		only, err := sim.ParseFaults(x.faults)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := seeds.Run(x.seed, seeds.Options{Only: only, Processes: x.processes, Siege: x.siege}); err != nil {
			t.Errorf("%s: %v", x.why, err)
		}
	}
}

// TestRangesOnceFound runs again what has shown violations of ordered tables.
func TestRangesOnceFound(t *testing.T) {
	kinds, err := seeds.ParseFaultKinds("all")
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		seed     uint64
		workload string
		faults   []sim.FaultKind
		siege    bool
		why      string
	}{
		{1, "range-churn", nil, false, "a row that is locked for long is missing"},
		{4, "range-sum", nil, false, "validation amid a range takes its list of blocks"},
		{2, "range-sum", nil, false, "a guard is published from memory that others use"},
		{1, "queue", kinds, false, "a session waits for a merge that has failed"},
		{8, "range-sum", kinds, true, "a new block is taken for free before its image is there"},
		{12, "queue", kinds, true, "a record is found, and locked, before its image is there"},
		{19, "range-churn", kinds, true, "a lock that an image came over is given back as if it were held"},
	} {
		if _, err := seeds.Run(x.seed, seeds.Options{
			Workload: x.workload, Faults: x.faults, Siege: x.siege,
		}); err != nil {
			t.Errorf("%s: %v", x.why, err)
		}
	}
}

// A seed that is under way ends when nobody wants to know any more.
func TestCanceledInASeed(t *testing.T) {
	asked := 0
	_, err := seeds.Run(1, seeds.Options{Canceled: func() bool { asked++; return asked > 1 }})
	if !errors.Is(err, context.Canceled) || asked != 2 {
		t.Errorf("%v, after it was asked %d times", err, asked)
	}
}

// Every kind of fault can be drawn, a seed with faults is one run, too, and coordinators
// that stop or lose a verb leave transactions undone.
func TestFaultsStrike(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine")
	}
	for _, name := range seeds.FaultNames() {
		kinds, err := seeds.ParseFaultKinds(name)
		if err != nil || len(kinds) != 1 || kinds[0].String() != name {
			t.Fatal(kinds, err)
		}
		changed, drawn, processes := 0, 0, 0
		if slices.Contains([]string{"kill", "pause", "trouble", "clock"}, name) {
			processes = 2
		}
		for seed := range uint64(4) {
			with, err := seeds.Run(seed, seeds.Options{Faults: kinds, Processes: processes})
			if err != nil {
				t.Fatal(err)
			}
			again, err := seeds.Run(seed, seeds.Options{Faults: kinds, Processes: processes})
			if err != nil {
				t.Fatal(err)
			}
			without, err := seeds.Run(seed, seeds.Options{Processes: processes})
			if err != nil {
				t.Fatal(err)
			}
			if with != again {
				t.Errorf("%s: seed %d is two runs:\n%+v\n%+v", name, seed, with, again)
			}
			if strings.Contains(with.Case, " faults="+name+"(") {
				drawn++
			}
			if with.Txns != without.Txns {
				changed++
			}
		}
		if drawn == 0 || drawn < 3 && name != "restart" { // no blade of the only copy stops
			t.Errorf("%s: drawn by %d of 4 seeds", name, drawn)
		}
		if changed == 0 && (name == "kill" || name == "stop" || name == "lose" || name == "drop") {
			t.Errorf("%s changes nothing that is recorded", name)
		}
	}
	if _, err := seeds.ParseFaultKinds("stop,flood"); !errors.Is(err, seeds.ErrUnknown) {
		t.Errorf("a fault that is unknown: %v", err)
	}
}

// A violation prints the command that repeats it, and stays as it is when fewer faults
// show nothing.
func TestViolationTellsHowToRepeatIt(t *testing.T) {
	only, err := sim.ParseFaults("stop(thread=1,verb=4);slow(blade=0,x=2)")
	if err != nil {
		t.Fatal(err)
	}
	v := &seeds.Violation{
		Seed: 9, Options: seeds.Options{Workload: "bank", Only: only}, Case: "bank", Faults: only,
		Err: errors.New("wrong"),
	}
	want := "txnode sim seeds --from 9 --seeds 1 --workload bank --only 'stop(thread=1,verb=4);slow(blade=0,x=2)' " +
		"--trace trace.txt"
	if v.Replay() != want || !strings.Contains(v.Error(), "seed 9: wrong") {
		t.Errorf("%v\n%s", v, v.Replay())
	}
	v.Options.Siege, v.Faults = true, []sim.Fault{}
	if again := "txnode sim seeds --from 9 --seeds 1 --workload bank --siege --trace trace.txt"; v.Replay() != again {
		t.Errorf("under siege: %s", v.Replay())
	}
	v.Options.Siege, v.Options.Processes = false, 3
	if again := "txnode sim seeds --from 9 --seeds 1 --workload bank --processes 3 " +
		"--trace trace.txt"; v.Replay() != again {
		t.Errorf("with processes: %s", v.Replay())
	}
	v.Options.Processes, v.Options.Durability = 1, "power"
	if again := "txnode sim seeds --from 9 --seeds 1 --workload bank --durability power " +
		"--trace trace.txt"; v.Replay() != again {
		t.Errorf("with durability: %s", v.Replay())
	}
	v.Options.Durability, v.Faults = "", only
	if got := seeds.Minimize(v); got.Err.Error() != "wrong" || len(got.Faults) != 2 {
		t.Errorf("a seed without violation was minimized to %v", got)
	}
}

// trace runs a seed and returns its result and its trace.
func trace(t *testing.T, seed uint64) (seeds.Result, []byte) {
	t.Helper()
	var out bytes.Buffer
	o := seeds.Options{Trace: &out}
	if seed%3 == 2 {
		o.Processes = 2 + int(seed%2)
	}
	if seed%2 == 1 { // with faults: killed, or survived
		o.Faults, _ = seeds.ParseFaultKinds("all")
	}
	r, err := seeds.Run(seed, o)
	if err != nil {
		t.Fatal(err)
	}
	return r, out.Bytes()
}

// The same seed is the same run, to the byte: whatever ran before it, beside it, and
// whenever the garbage collector takes away what is pooled.
func TestSeedsRepeat(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine")
	}
	const n = 24
	var want [n]seeds.Result
	traces := make([][]byte, n)
	hashes := map[uint64]bool{}
	for seed := range uint64(n) {
		want[seed], traces[seed] = trace(t, seed)
		hashes[want[seed].TraceHash] = true
	}
	if len(hashes) != n {
		t.Errorf("%d seeds are %d runs", n, len(hashes))
	}
	defer debug.SetGCPercent(debug.SetGCPercent(1))
	// In a group of their own, so that the garbage collector stays busy until all are done.
	t.Run("again", func(t *testing.T) {
		for seed := range uint64(n) {
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Parallel()
				got, again := trace(t, n-1-seed)
				if got != want[n-1-seed] {
					t.Errorf("seed %d is two runs:\n%+v\n%+v", n-1-seed, want[n-1-seed], got)
				}
				if a, b, differ := difference(traces[n-1-seed], again); differ {
					t.Errorf("seed %d has two traces, which differ first in\n%s\n%s", n-1-seed, a, b)
				}
			})
		}
	})
}

// difference returns the first lines that differ.
func difference(a, b []byte) (x, y string, differ bool) {
	if bytes.Equal(a, b) {
		return "", "", false
	}
	p, q := strings.Split(string(a), "\n"), strings.Split(string(b), "\n")
	for i := range min(len(p), len(q)) {
		if p[i] != q[i] {
			return p[i], q[i], true
		}
	}
	return fmt.Sprint(len(p), " lines"), fmt.Sprint(len(q), " lines"), true
}

// Every workload runs, and records transactions.
func TestWorkloads(t *testing.T) {
	for _, w := range seeds.Workloads() {
		r, err := seeds.Run(1, seeds.Options{Workload: w})
		if err != nil {
			t.Error(err)
		}
		if r.Txns < 20 || r.Verbs < 500 {
			t.Errorf("%s: %d transactions, %d verbs", w, r.Txns, r.Verbs)
		}
		if !strings.HasPrefix(r.Case, w+" ") {
			t.Errorf("%s: the case is %s", w, r.Case)
		}
	}
	if _, err := seeds.Run(1, seeds.Options{Workload: "chess"}); !errors.Is(err, seeds.ErrUnknown) {
		t.Errorf("a workload that is unknown: %v", err)
	}
	for _, o := range []seeds.Options{{Processes: 9}, {Processes: -1}, {Processes: 2, Durability: "power"}} {
		if _, err := seeds.Run(1, o); !errors.Is(err, seeds.ErrUnknown) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	only, err := sim.ParseFaults("kill(compute=1,at=1ms)")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := seeds.Run(1, seeds.Options{Only: only}); !errors.Is(err, seeds.ErrUnknown) {
		t.Errorf("a process is killed, and there is one: %v", err)
	}
	if _, err := seeds.Run(1, seeds.Options{Durability: "some"}); !errors.Is(err, seeds.ErrUnknown) {
		t.Errorf("a durability that is unknown: %v", err)
	}
}

func TestRunManyStopsWhenCanceled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	seen, err := seeds.RunMany(ctx, 1, 1<<40, 2, seeds.Options{}, func(n uint64) {
		if n >= 3 {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) || seen.Runs < 3 || seen.Runs > 10 {
		t.Errorf("%d seeds, %v", seen.Runs, err)
	}
}

// A run that is recorded is the same run.
func TestRecord(t *testing.T) {
	plain, _ := trace(t, 3)
	rec := &sim.Recording{}
	kinds, _ := seeds.ParseFaultKinds("all")
	r, err := seeds.Run(3, seeds.Options{Record: rec, Faults: kinds})
	if err != nil {
		t.Fatal(err)
	}
	if r != plain {
		t.Errorf("recorded, seed 3 is\n%+v\notherwise\n%+v", r, plain)
	}
	var out bytes.Buffer
	if err := rec.WriteChrome(&out); err != nil || !strings.Contains(out.String(), "MCAS") &&
		!strings.Contains(out.String(), "CAS") {
		t.Errorf("%d bytes of trace, %v", out.Len(), err)
	}
}
