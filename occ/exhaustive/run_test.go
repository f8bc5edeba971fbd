package exhaustive

import (
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// TestMain runs the tests; with -full it shows on a terminal how far they have come, and
// ends with a table of what was run, also when it is interrupted.
func TestMain(m *testing.M) {
	flag.Parse()
	if !*full {
		os.Exit(m.Run())
	}
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt, syscall.SIGTERM)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	over := make(chan int, 1)
	go func() { over <- m.Run() }()
	terminal := false
	if i, err := os.Stderr.Stat(); err == nil {
		terminal = i.Mode()&os.ModeCharDevice != 0
	}
	for {
		select {
		case <-tick.C:
			if terminal {
				fmt.Fprintf(os.Stderr, "\r\033[K%s", done.progress())
			}
			continue
		case code := <-over:
			clearLine(terminal)
			fmt.Print(done.table())
			os.Exit(code)
		case <-interrupted:
			clearLine(terminal)
			fmt.Printf("%sinterrupted: what was being tried is not counted\n", done.table())
			os.Exit(130)
		}
	}
}

func clearLine(terminal bool) {
	if terminal {
		fmt.Fprint(os.Stderr, "\r\033[K")
	}
}

// each runs fn for every kind of database; with -full for several at once, beside other tests.
func each(t *testing.T, all []config, fn func(t *testing.T, c config)) {
	if *full {
		t.Parallel()
	}
	t.Cleanup(func() { t.Log(done.of(t.Name())) })
	for _, c := range all {
		t.Run(c.String(), func(t *testing.T) {
			if *full {
				t.Parallel()
			}
			fn(t, c)
		})
	}
}

// try runs a case of a test on the world, and fails the test with its error, which may be a
// panic.
func (w *world) try(t *testing.T, fn func() error) {
	t.Helper()
	w.t = t
	defer w.f.End()
	defer done.begin(t.Name())()
	if err := guarded(fn); err != nil {
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

// done counts what the tests of this process have tried.
var done = tally{began: time.Now(), spent: map[string]time.Duration{}}

// tally counts schedules, by test and kind of schedule.
type tally struct {
	mu      sync.Mutex
	began   time.Time
	rows    []*row
	total   int
	running []string                 // names of cases
	spent   map[string]time.Duration // in cases, by test
}

type row struct {
	test, kind string
	n          int
	more       int // cases of which not all schedules were tried
}

func (r *row) what() string {
	if r.more == 0 {
		return r.kind
	}
	return fmt.Sprintf("%s; %d cases have more", r.kind, r.more)
}

// row is the one of a test and kind. The lock is held.
func (y *tally) row(test, kind string) *row {
	for _, r := range y.rows {
		if r.test == test && r.kind == kind {
			return r
		}
	}
	r := &row{test: test, kind: kind}
	y.rows = append(y.rows, r)
	return r
}

// begin notes that a case runs; what it returns, that it is over.
func (y *tally) begin(name string) (end func()) {
	since := time.Now()
	y.mu.Lock()
	defer y.mu.Unlock()
	y.running = append(y.running, name)
	return func() {
		y.mu.Lock()
		defer y.mu.Unlock()
		for i, n := range y.running {
			if n == name {
				y.running = append(y.running[:i], y.running[i+1:]...)
				break
			}
		}
		test, _, _ := strings.Cut(name, "/")
		y.spent[test] += time.Since(since)
	}
}

// orders is the kind of schedules of two clients.
const orders = "orders of two clients"

// more notes a case of which not all schedules were tried.
func (y *tally) more(t testing.TB, kind string) {
	test, _, _ := strings.Cut(t.Name(), "/")
	y.mu.Lock()
	defer y.mu.Unlock()
	y.row(test, kind).more++
}

// add counts n schedules of a test.
func (y *tally) add(t testing.TB, kind string, n int) {
	if n == 0 {
		return
	}
	test, _, _ := strings.Cut(t.Name(), "/")
	y.mu.Lock()
	defer y.mu.Unlock()
	y.row(test, kind).n += n
	y.total += n
}

// of says what a test has tried.
func (y *tally) of(test string) string {
	y.mu.Lock()
	defer y.mu.Unlock()
	var parts []string
	for _, r := range y.rows {
		if r.test == test {
			parts = append(parts, fmt.Sprintf("%d %s", r.n, r.what()))
		}
	}
	return strings.Join(parts, ", ")
}

// progress is one line.
func (y *tally) progress() string {
	y.mu.Lock()
	defer y.mu.Unlock()
	return fmt.Sprintf("%8v  %d schedules; at %s", time.Since(y.began).Round(time.Second), y.total,
		strings.Join(y.running, ", "))
}

// table is all of it, and the sum.
func (y *tally) table() string {
	y.mu.Lock()
	defer y.mu.Unlock()
	var b strings.Builder
	fmt.Fprintf(&b, "%-26s %12s  %-46s %10s\n", "test", "schedules", "", "time")
	last := ""
	for _, r := range y.rows {
		name, spent := r.test, y.spent[r.test].Round(time.Second).String()
		if name == last {
			name, spent = "", ""
		}
		last = r.test
		fmt.Fprintf(&b, "%-26s %12d  %-46s %10s\n", name, r.n, r.what(), spent)
	}
	fmt.Fprintf(&b, "%-26s %12d  %-46s %10v\n", "all", y.total, "", time.Since(y.began).Round(time.Second))
	return b.String()
}
