package orders

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"txnode/rdma/steptest"
)

var (
	full   = flag.Bool("full", false, "many more schedules")
	only   = flag.String("schedule", "", "this schedule, in the one case that -run selects")
	single = flag.Bool("replay", false, "only what -schedule says, which may be empty; its moves are logged")
	fine   = flag.Bool("queues", false,
		"a move is what a client has posted for one blade, not what it has posted at once; -full tries both")
)

// table is what was tried, with -full.
var table []string

// TestMain runs the tests; with -full it ends with a table of what was run.
func TestMain(m *testing.M) {
	flag.Parse()
	code := m.Run()
	if *full {
		fmt.Println(strings.Join(table, "\n"))
	}
	os.Exit(code)
}

// extent is how much is tried of a scenario.
type extent struct {
	orders  int // schedules, but for those that differ in the order of moves that commute
	bound   int // of interruptions, where there are more
	bounded int // schedules of these
	drawn   int
}

func extentOf() extent {
	switch {
	case *full:
		return extent{20_000, 2, 8_000, 2_000}
	case testing.Short():
		return extent{25, 1, 60, 15}
	}
	return extent{75, 1, 120, 50}
}

// begins has the processes begin a scenario.
func (w *world) begins(x *scenario, g steptest.Grain) {
	w.restart()
	if x.before != nil {
		if err := x.before(w); err != nil {
			w.t.Fatal(err)
		}
	}
	for i, p := range w.procs {
		p.start(x.watches, x.do[i]...)
	}
	if x.kind.remote {
		w.witnesses()
	}
	w.f.SetGrain(g, false)
}

// try tries orders of a scenario.
func (x *scenario) try(t *testing.T) {
	grain := steptest.Batches
	if *fine {
		grain = steptest.Queues
	}
	if *only != "" || *single {
		x.replay(t, grain)
		return
	}
	x.explore(t, grain)
	if *full && !*fine {
		*fine = true
		defer func() { *fine = false }()
		x.explore(t, steptest.Queues)
	}
}

// explore runs schedules until one fails, and prints what repeats that.
func (x *scenario) explore(t *testing.T, grain steptest.Grain) {
	w := newWorld(t, x.kind)
	defer w.f.End()
	n, most := 0, 0
	var last steptest.Schedule
	begin := func() { w.begins(x, grain) }
	visit := func(s steptest.Schedule) error {
		n++
		last, most = s, max(most, len(s))
		return guarded(func() error { return w.judge(x) })
	}
	how, e := "all orders", extentOf()
	err := guarded(func() error {
		_, all, err := w.f.Interleave(e.orders, true, begin, visit)
		if err != nil || all {
			return err
		}
		runs, all, err := w.f.Bounded(e.bound, e.bounded, begin, visit)
		if how = fmt.Sprintf("some orders, and %d with up to %d interruptions", runs, e.bound); all {
			how = fmt.Sprintf("some orders, and all %d with up to %d interruptions", runs, e.bound)
		}
		if err != nil {
			return err
		}
		return w.f.Walks(e.drawn, begin, visit)
	})
	line := fmt.Sprintf("%-20s %7d schedules of up to %3d moves: %s", x.name, n, most, how)
	if *fine {
		line += ", by queues"
	}
	table = append(table, line)
	t.Log(line)
	if err != nil {
		flags := ""
		if *fine {
			flags = " -queues"
		}
		t.Fatalf("%v\ngo test ./txn/orders -run '^%s$' -v -replay%s -schedule '%v'",
			err, strings.ReplaceAll(t.Name(), "/", "$/^"), flags, last)
	}
}

// replay runs the schedule of the flags.
func (x *scenario) replay(t *testing.T, grain steptest.Grain) {
	w := newWorld(t, x.kind)
	defer w.f.End()
	s, err := steptest.ParseSchedule(*only)
	if err != nil {
		t.Fatal(err)
	}
	w.begins(x, grain)
	for i := 0; ; i++ {
		moves := w.f.Moves()
		if len(moves) == 0 {
			break
		}
		n := 0
		if i < len(s) && s[i] < len(moves) {
			n = s[i]
		}
		t.Logf("%3d, of %d: %s", i, len(moves), w.f.Describe(moves[n]))
		w.f.Do(moves[n])
	}
	if err := w.judge(x); err != nil {
		t.Fatal(err)
	}
}

// guarded makes an error of a panic.
func guarded(fn func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	return fn()
}
