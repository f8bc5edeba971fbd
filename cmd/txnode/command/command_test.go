package command_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"go.uber.org/goleak"

	"txnode/benchmarks/reference"
	"txnode/benchmarks/report"
	"txnode/benchmarks/runner"
	"txnode/benchmarks/runner/runnertest"
	"txnode/benchmarks/workload"
	"txnode/cmd/txnode/command"
)

// programs are what the test binary is instead, by the environment variables that say so.
var programs = map[string]func(value string) (code int){}

func TestMain(m *testing.M) {
	for name, run := range programs {
		if v := os.Getenv(name); v != "" {
			os.Exit(run(v))
		}
	}
	goleak.VerifyTestMain(m)
}

// bed is a world for a test: the virtual store, a clock that stands still, a
// machine that does not exist, and a directory of its own.
type bed struct {
	dir     string
	store   runnertest.Options
	env     map[string]string
	openErr error
	open    func(ctx context.Context, o command.StoreOptions) (workload.Store, error)
	opened  command.StoreOptions // at the last call
	// interruptAt is the time of the store at which the command is interrupted; 0: never.
	interruptAt int64
	// interruptOn is what a command has to show on standard error, a terminal then, to be
	// interrupted.
	interruptOn string
	terminal    bool   // standard output is one
	stdin       string // all of standard input
	hours       int    // since the clock was set
}

// watcher cancels when what is written to it has a text in it.
type watcher struct {
	bytes.Buffer
	on     string
	cancel func()
}

func (w *watcher) Write(p []byte) (int, error) {
	if w.on != "" && bytes.Contains(p, []byte(w.on)) {
		w.cancel()
	}
	return w.Buffer.Write(p)
}

func newBed(t *testing.T) *bed {
	return &bed{dir: t.TempDir(), store: runnertest.Options{TxnNs: 2000}, env: map[string]string{}}
}

// run runs a command line; $DIR in it is the bed's directory.
func (b *bed) run(args ...string) (code int, stdout, stderr string) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var out bytes.Buffer
	err := watcher{on: b.interruptOn, cancel: cancel}
	w := command.World{
		Stdin:  strings.NewReader(b.stdin),
		Stdout: &out,
		Stderr: &err,

		StdoutTerminal: b.terminal,
		StderrTerminal: b.interruptOn != "",

		CPUs:   2,
		Getenv: func(k string) string { return b.env[k] },
		Now: func() time.Time {
			b.hours++
			return time.Date(2026, 11, 21, b.hours, 0, 0, 0, time.UTC)
		},
		Environment: func() runner.Environment {
			return runner.Environment{
				CPU: "Imaginary 9000", Cores: 2, GOMAXPROCS: 2, MemoryMiB: 24 << 10,
				OS: "linux/amd64", Kernel: "6.1", Go: "go1.26.0", Version: "v1.2.3",
			}
		},
		CacheDir: func() (string, error) { return b.dir, nil },
		Fabric:   "virtual fabric",
		Open: func(ctx context.Context, o command.StoreOptions) (workload.Store, error) {
			b.opened = o
			if b.openErr != nil {
				return nil, b.openErr
			}
			if b.open != nil {
				return b.open(ctx, o)
			}
			so := b.store
			so.Fail = func(now int64) error {
				if b.interruptAt > 0 && now >= b.interruptAt {
					cancel()
				}
				return nil
			}
			return runnertest.New(so), nil
		},
	}
	for i, a := range args {
		args[i] = strings.ReplaceAll(a, "$DIR", b.dir)
	}
	code = command.Main(ctx, w, args)
	clean := func(s string) string { return strings.ReplaceAll(s, b.dir, "$DIR") }
	return code, clean(out.String()), clean(err.String())
}

// TestTranscripts runs command lines in this process; see testdata, which
// -rewrite writes again. Commands:
//
//	world [txn-ns=] [conflict-every=] [lose-every=] [interrupt-at=] [open-error=...] [env=K=V]
//	txnode
//	the arguments, by spaces
//
// The output is what was printed, and the exit code if it is not 0.
func TestTranscripts(t *testing.T) {
	// As many threads load as there are processors, and the virtual time that loading takes is
	// printed.
	processors := runtime.GOMAXPROCS(2)
	defer runtime.GOMAXPROCS(processors)
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		b := newBed(t)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "world":
				b.configure(t, d)
				return ""
			case "write":
				var name string
				d.ScanArgs(t, "file", &name)
				if err := os.WriteFile(filepath.Join(b.dir, name), []byte(d.Input), 0o644); err != nil {
					t.Fatal(err)
				}
				return ""
			case "txnode":
				code, stdout, stderr := b.run(strings.Fields(d.Input)...)
				s := stdout
				if stderr != "" {
					s += "stderr: " + stderr
				}
				if code != 0 {
					s += fmt.Sprintf("exit code %d\n", code)
				}
				return s
			}
			d.Fatalf(t, "no command %q", d.Cmd)
			return ""
		})
	})
}

func (b *bed) configure(t *testing.T, d *datadriven.TestData) {
	b.store = runnertest.Options{TxnNs: 2000}
	b.interruptAt, b.openErr = 0, nil
	for _, a := range d.CmdArgs {
		v := strings.Join(a.Vals, " ")
		number := func() int64 {
			var n int64
			if _, err := fmt.Sscan(v, &n); err != nil {
				d.Fatalf(t, "%s: %v", a.Key, err)
			}
			return n
		}
		switch a.Key {
		case "txn-ns":
			b.store.TxnNs = number()
		case "conflict-every":
			b.store.ConflictEvery = int(number())
		case "lose-every":
			b.store.LoseEvery = int(number())
		case "interrupt-at":
			b.interruptAt = number()
		case "open-error":
			b.openErr = errors.New(v)
		case "env":
			b.env[a.Vals[0]] = a.Vals[1]
		default:
			d.Fatalf(t, "no argument %q", a.Key)
		}
	}
}

func TestStoreOptionsReachTheStore(t *testing.T) {
	b := newBed(t)
	code, _, stderr := b.run("bench", "smallbank", "--txns", "10", "--accounts", "10",
		"--hot-accounts", "5", "--no-save",
		"--policy", "ford", "--warmup", "1ms", "--techniques", "throttle, doorbells", "--replicas", "2", "--blades",
		"4", "--blade-size", "1.5gib", "--segment-size", "2MiB", "--dir", "$DIR/data", "--seed", "9")
	if code != 0 {
		t.Fatal(code, stderr)
	}
	o := b.opened
	if o.Policy != "ford" || o.Replicas != 2 || o.Blades != 4 || o.BladeSize != 3<<29 || o.SegmentSize != 2<<20 ||
		!strings.HasSuffix(o.Dir, "/data") || o.Seed != 9 || !o.Geometry ||
		!o.Techniques.Throttle || !o.Techniques.Doorbells || o.Techniques.Backoff || o.Techniques.DynLimit ||
		o.Techniques.CoroLimit {
		t.Errorf("%+v", o)
	}
	// A directory knows its own geometry unless the user insists.
	if code, _, _ := b.run("explain", "tatp", "--dir", "$DIR/data", "--txns", "10", "--warmup-txns", "10"); code != 0 ||
		b.opened.Geometry {
		t.Errorf("exit code %d, %+v", code, b.opened)
	}
}

func TestJSONIsAResult(t *testing.T) {
	b := newBed(t)
	code, stdout, stderr := b.run("bench", "tatp", "--subscribers", "100", "--txns", "1000", "--warmup", "1ms",
		"--verify", "-o", "json", "--runs", "2", "--threads", "2")
	if code != 0 || stderr != "" {
		t.Fatal(code, stderr)
	}
	r, err := report.DecodeResult([]byte(stdout))
	if err != nil {
		t.Fatal(err)
	}
	if r.Workload != "tatp" || len(r.Runs) != 2 || !r.Verified || !r.Runs[0].History.Serializable || r.ID != 1 ||
		r.Store.Policy != "default" || len(r.Store.Techniques) != 5 || r.Drive.Txns != 1000 ||
		r.Drive.DurationNs != 0 || r.Environment.CPU == "" {
		t.Errorf("%+v", r)
	}
	found := false
	for _, p := range r.Parameters {
		found = found || p == report.Parameter{Name: "subscribers", Value: "100"}
	}
	if !found {
		t.Errorf("parameters %+v", r.Parameters)
	}
	var explanation report.Explanation
	code, stdout, _ = b.run("explain", "smallbank", "--txns", "100", "--warmup-txns", "100", "-o", "json")
	if err := json.Unmarshal([]byte(stdout), &explanation); err != nil || code != 0 ||
		explanation.Schema != report.ExplanationSchema || len(explanation.Types) != 6 {
		t.Errorf("exit code %d, %v, %+v", code, err, explanation)
	}
	var comparison report.Comparison
	code, stdout, _ = b.run("compare", "-o", "json")
	if err := json.Unmarshal([]byte(stdout), &comparison); err != nil || code != 0 || len(comparison.Workloads) != 2 ||
		len(comparison.Workloads[1].Rows) != 7 {
		t.Errorf("exit code %d, %v, %+v", code, err, comparison)
	}
}

func TestInterruptionPrintsWhatThereIs(t *testing.T) {
	b := newBed(t)
	b.interruptAt = 1e9 + 20e6
	code, stdout, stderr := b.run("bench", "smallbank", "--duration", "1h", "--accounts", "100", "--hot-accounts", "10",
		"--warmup", "1ms", "--runs", "5")
	if code != command.ExitInterrupted || !strings.Contains(stdout, "interrupted: these are the results until then") ||
		!strings.Contains(stdout, "the books balance") || stderr != "txnode: interrupted\n" {
		t.Errorf("exit code %d\n%s\n%s", code, stdout, stderr)
	}
	if _, list, _ := b.run("history", "list"); list != "" {
		t.Errorf("a result that was cut short was kept:\n%s", list)
	}
	b.interruptAt = 1e9
	for _, args := range [][]string{{"bench", "smallbank"}, {"bench", "smallbank", "--dir", "$DIR/db"}} {
		says := "interrupted while loading\n"
		if len(args) > 2 {
			says = "while loading: unless the data was in $DIR/db before, it has a part of it now, which the " +
				"next run clears"
		}
		if code, stdout, stderr := b.run(args...); code != command.ExitInterrupted || stdout != "" ||
			!strings.Contains(stderr, says) {
			t.Errorf("%v: exit code %d\n%s\n%s", args, code, stdout, stderr)
		}
	}
	if code, stdout, _ := b.run("explain", "tatp"); code != command.ExitInterrupted || stdout != "" {
		t.Errorf("explaining: exit code %d\n%s", code, stdout)
	}
}

func TestReferenceStore(t *testing.T) {
	b := newBed(t)
	b.open = func(context.Context, command.StoreOptions) (workload.Store, error) {
		return reference.Open(reference.Options{}), nil
	}
	for _, args := range [][]string{
		{"bench", "smallbank", "--accounts", "1000", "--hot-accounts", "20", "--threads", "2", "--coroutines", "4"},
		{"bench", "tatp", "--subscribers", "500", "--threads", "2", "--coroutines", "4"},
		{"bench", "tatp", "--subscribers", "500", "--rate", "20000"},
		{"bench", "ycsb", "--records", "500", "--workload", "d", "--threads", "2", "--coroutines", "4"},
		{
			"bench", "ycsb", "--records", "500", "--workload", "e", "--table", "ordered", "--threads", "2",
			"--coroutines", "4",
		},
		{"bench", "tpcc", "--customers", "10", "--items", "100", "--threads", "2", "--coroutines", "4"},
	} {
		args = append(args, "--duration", "100ms", "--warmup", "20ms", "--runs", "2", "--no-save")
		if code, stdout, stderr := b.run(args...); code != 0 ||
			!strings.Contains(stdout, "the books balance after every run") {
			t.Errorf("%v: exit code %d\n%s%s", args, code, stdout, stderr)
		}
	}
	if code, _, stderr := b.run("bench", "tatp", "--verify"); code != command.ExitFailure ||
		!strings.Contains(stderr, "cannot record") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}

// brokenStore panics in a worker, or when it is opened.
type brokenStore struct{ *runnertest.Store }

func (brokenStore) Run(context.Context, int, int, func(context.Context, int, workload.Worker) error) error {
	panic("of a store\nover two lines")
}

func TestPanicsAreOneLine(t *testing.T) {
	b := newBed(t)
	b.open = func(context.Context, command.StoreOptions) (workload.Store, error) {
		return brokenStore{runnertest.New(runnertest.Options{})}, nil
	}
	code, stdout, stderr := b.run("bench", "smallbank")
	if code != command.ExitFailure || stdout != "" || strings.Count(stderr, "\n") != 1 ||
		!strings.HasPrefix(stderr, "txnode: internal error: of a store; over two lines; please report") {
		t.Errorf("exit code %d, stderr %q", code, stderr)
	}
	b.env["TXNODE_DEBUG"] = "1"
	if _, _, stderr := b.run("bench", "smallbank"); !strings.Contains(stderr, "goroutine") {
		t.Errorf("no stack under TXNODE_DEBUG: %q", stderr)
	}
}

// flagEntry is the begin of a flag's help: its name, and the word for its value
// if it takes one.
var flagEntry = regexp.MustCompile(`(?m)^  (?:-\w, |    )--([a-z-]+)(?: ([a-z]+))?  +`)

// TestEveryFlagIsExplained holds the help of every flag of every command to what
// it promises: a description, and its default unless that is nothing.
func TestEveryFlagIsExplained(t *testing.T) {
	b := newBed(t)
	var commands [][]string
	var walk func(path []string)
	walk = func(path []string) {
		commands = append(commands, path)
		_, help, _ := b.run(append(append([]string{}, path...), "--help")...)
		_, list, _ := strings.Cut(help, "Available Commands:\n")
		for line := range strings.Lines(list) {
			f := strings.Fields(line)
			if len(f) == 0 {
				break
			}
			walk(append(append([]string{}, path...), f[0]))
		}
	}
	walk(nil)
	if len(commands) < 12 {
		t.Fatalf("%d commands: %v", len(commands), commands)
	}
	for _, path := range commands {
		code, help, _ := b.run(append(append([]string{}, path...), "--help")...)
		if code != 0 {
			t.Errorf("%v --help: exit code %d", path, code)
		}
		if path != nil && path[0] == "completion" {
			continue // cobra's
		}
		_, flags, _ := strings.Cut(help, "Flags:\n")
		flags, _, _ = strings.Cut(flags, "\n\n")
		found := flagEntry.FindAllStringSubmatchIndex(flags, -1)
		for n, at := range found {
			end := len(flags)
			if n+1 < len(found) {
				end = found[n+1][0]
			}
			name, boolean, text := flags[at[2]:at[3]], at[4] < 0, flags[at[1]:end]
			if strings.TrimSpace(text) == "" || !boolean && !strings.Contains(text, "default") {
				t.Errorf("%v: the help of --%s does not say what its default is: %s", path, name, text)
			}
		}
		if len(found) == 0 {
			t.Errorf("%v: no flags found in its help", path)
		}
		for line := range strings.Lines(flags) {
			if n := len([]rune(line)); n > 150 {
				t.Errorf("%v: a line of %d characters: %s", path, n, line)
			}
		}
	}
}

func TestCompletion(t *testing.T) {
	b := newBed(t)
	if code, _, stderr := b.run("bench", "smallbank", "--txns", "10", "--accounts", "10", "--hot-accounts", "5",
		"--warmup", "1ms", "--save", "mine"); code != 0 {
		t.Fatal(stderr)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"bench", ""}, "smallbank"},
		{[]string{"bench", "smallbank", "--policy", ""}, "ford"},
		{[]string{"bench", "tatp", "--output", ""}, "csv"},
		{[]string{"history", "show", ""}, "mine"},
		{[]string{"compare", ""}, "1\tsmallbank"},
		{[]string{"check", ""}, ":16"}, // directories
		{[]string{"check", "x", ""}, ":4"},
		{[]string{"backup", ""}, ":16"},
		{[]string{"backup", "x", ""}, ":0"}, // files
		{[]string{"restore", ""}, ":0"},
		{[]string{"restore", "x", ""}, ":16"},
		{[]string{"restore", "x", "y", ""}, ":4"},
	} {
		_, out, _ := b.run(append([]string{"__complete"}, c.args...)...)
		if !strings.Contains(out, c.want) {
			t.Errorf("%v completes to %q, want %q among it", c.args, out, c.want)
		}
	}
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if code, out, _ := b.run("completion", shell); code != 0 || len(out) < 1000 {
			t.Errorf("%s: exit code %d, %d bytes", shell, code, len(out))
		}
	}
	for _, args := range [][]string{{"completion"}, {"completion", "csh"}} {
		if code, out, stderr := b.run(args...); code != command.ExitUsage || out != "" ||
			!strings.Contains(stderr, "bash, fish, powershell, zsh") {
			t.Errorf("%v: exit code %d, %s%s", args, code, out, stderr)
		}
	}
}

func TestEmbeddedEngine(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the whole engine")
	}
	b := newBed(t)
	b.open = command.System().Open
	for _, workloadArgs := range [][]string{
		{"smallbank", "--accounts", "300", "--hot-accounts", "20"},
		{"tatp", "--subscribers", "100"},
		{"ycsb", "--workload", "f", "--records", "100", "--key-type", "text"},
		{"ycsb", "--workload", "e", "--records", "100", "--table", "ordered", "--scan-length", "10"},
		{"tpcc", "--warehouses", "2", "--customers", "20", "--items", "100"},
	} {
		for _, policy := range []string{"default", "ford"} {
			args := append([]string{"bench"}, workloadArgs...)
			args = append(args, "--policy", policy, "--threads", "2", "--coroutines", "2", "--txns", "2000", "--warmup",
				"1ms", "--verify", "--no-save")
			code, stdout, stderr := b.run(args...)
			if code != 0 || !strings.Contains(stdout, "the books balance") ||
				!strings.Contains(stdout, "strictly serializable") {
				t.Errorf("%v: exit code %d\n%s%s", args, code, stdout, stderr)
			}
		}
	}
}
