package report_test

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"go.etcd.io/bbolt"

	"txnode/benchmarks/report"
	"txnode/benchmarks/runner"
	"txnode/benchmarks/runner/runnertest"
	"txnode/benchmarks/smallbank"
	"txnode/benchmarks/tatp"
	"txnode/benchmarks/workload"
)

// machine is where the results of tests were measured.
var machine = report.Environment{
	CPU: "Imaginary 9000", Cores: 2, GOMAXPROCS: 2, MemoryMiB: 24 << 10, HugePages: "madvise",
	OS: "linux/amd64", Kernel: "6.1", Go: "go1.26.0", Revision: "0123456789ab",
}

var embedded = report.Store{
	Name: "txnode default", Fabric: "in-process fabric: no network", Policy: "default",
	Techniques: report.Techniques, Replicas: 1, Blades: 2, BladeBytes: 16 << 30,
}

// driver returns a small workload.
func driver(t *testing.T, name string) workload.Driver {
	t.Helper()
	var (
		d   workload.Driver
		err error
	)
	switch name {
	case "smallbank":
		o := smallbank.DefaultOptions()
		o.Accounts, o.HotAccounts = 1000, 40
		d, err = smallbank.New(o)
	case "tatp":
		o := tatp.DefaultOptions()
		o.Subscribers = 200
		d, err = tatp.New(o)
	default:
		t.Fatalf("no workload %q", name)
	}
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// measured runs a workload on the virtual store.
func measured(t *testing.T, name string, o runnertest.Options, c runner.Config) *report.Result {
	t.Helper()
	res, err := runner.Bench(context.Background(), runnertest.New(o), driver(t, name), c)
	if err != nil && !errors.Is(err, runner.ErrVerification) {
		t.Fatal(err)
	}
	r := report.FromRunner(name, res)
	r.Time = time.Date(2026, 11, 21, 9, 30, 0, 0, time.UTC)
	r.Store, r.Environment = embedded, machine
	r.Parameters = []report.Parameter{{Name: "accounts", Value: "1000"}, {Name: "mix", Value: "15,15", Default: true}}
	if err != nil {
		r.Error = "verification failed"
	}
	return r
}

// TestTranscripts runs workloads on the virtual store and prints what comes
// out, in all formats. See testdata; -rewrite writes it again.
func TestTranscripts(t *testing.T) {
	// As many threads load as there are processors, and the virtual time that loading takes is
	// printed.
	processors := runtime.GOMAXPROCS(2)
	defer runtime.GOMAXPROCS(processors)
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		var r *report.Result
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var out bytes.Buffer
			var err error
			switch d.Cmd {
			case "bench":
				r = benchCommand(t, d)
				return fmt.Sprintf("%d runs\n", len(r.Runs))
			case "table":
				err = r.WriteTable(&out, report.Theme{Color: d.HasArg("color")})
			case "json":
				err = report.WriteJSON(&out, r)
			case "csv":
				err = report.WriteCSV(&out, r)
			case "list":
				err = report.WriteList(&out, report.Theme{}, []*report.Result{r})
			case "list-csv":
				err = report.WriteListCSV(&out, []*report.Result{r})
			case "compare":
				err = compareCommand(&out, d, r)
			case "explain":
				err = explainCommand(t, &out, d)
			default:
				d.Fatalf(t, "no command %q", d.Cmd)
			}
			if err != nil {
				t.Fatal(err)
			}
			checkWidth(t, d, out.String())
			return out.String()
		})
	})
}

// checkWidth holds tables to the width of a terminal.
func checkWidth(t *testing.T, d *datadriven.TestData, s string) {
	if d.Cmd == "json" || strings.Contains(d.Cmd, "csv") || d.HasArg("csv") || d.HasArg("color") {
		return
	}
	for line := range strings.Lines(s) {
		if n := len([]rune(line)); n > 114 {
			d.Fatalf(t, "a line of %d characters: %s", n, line)
		}
	}
}

func scan[T any](t *testing.T, d *datadriven.TestData, name string, v *T) {
	t.Helper()
	if d.HasArg(name) {
		var text string
		d.ScanArgs(t, name, &text)
		if dur, ok := any(v).(*time.Duration); ok {
			x, err := time.ParseDuration(text)
			if err != nil {
				t.Fatal(err)
			}
			*dur = x
			return
		}
		if _, err := fmt.Sscan(text, v); err != nil {
			d.Fatalf(t, "%s: %v", name, err)
		}
	}
}

func benchCommand(t *testing.T, d *datadriven.TestData) *report.Result {
	name := "smallbank"
	o := runnertest.Options{TxnNs: 2000}
	c := runner.Config{Threads: 2, Coroutines: 2, Txns: 4000, Seed: 1}
	var id uint64
	var label string
	scan(t, d, "workload", &name)
	scan(t, d, "conflict-every", &o.ConflictEvery)
	scan(t, d, "lose-every", &o.LoseEvery)
	scan(t, d, "stall-at", &o.StallAt)
	scan(t, d, "stall-ns", &o.StallNs)
	scan(t, d, "txns", &c.Txns)
	scan(t, d, "duration", &c.Duration)
	scan(t, d, "warmup", &c.Warmup)
	scan(t, d, "runs", &c.Runs)
	scan(t, d, "rate", &c.Rate)
	scan(t, d, "id", &id)
	scan(t, d, "name", &label)
	c.Verify = d.HasArg("verify")
	r := measured(t, name, o, c)
	r.ID, r.Name = id, label
	for i := range r.Runs {
		if h := r.Runs[i].History; h != nil {
			h.CheckNs = 1e6 // wall time
		}
	}
	return r
}

func compareCommand(out *bytes.Buffer, d *datadriven.TestData, r *report.Result) error {
	results := []*report.Result{r}
	if d.HasArg("nothing") {
		results = []*report.Result{{Workload: "smallbank"}}
	}
	c := report.NewComparison(results)
	switch {
	case d.HasArg("csv"):
		return c.WriteCSV(out)
	case d.HasArg("json"):
		return report.WriteJSON(out, c)
	}
	return c.WriteTable(out, report.Theme{})
}

func explainCommand(t *testing.T, out *bytes.Buffer, d *datadriven.TestData) error {
	name := "smallbank"
	store := embedded
	scan(t, d, "workload", &name)
	scan(t, d, "replicas", &store.Replicas)
	scan(t, d, "blades", &store.Blades)
	x, err := runner.Explain(context.Background(), runnertest.New(runnertest.Options{TxnNs: 1000}), driver(t, name),
		runner.ExplainConfig{Warmup: 1000, Samples: 500})
	if err != nil {
		return err
	}
	if !x.Phased {
		t.Fatal("the virtual store knows its phases")
	}
	x.Phased = !d.HasArg("without-phases")
	e := report.NewExplanation(name, store, x)
	if d.HasArg("csv") {
		return e.WriteCSV(out)
	}
	return e.WriteTable(out, report.Theme{})
}

func TestJSONRoundTrip(t *testing.T) {
	r := measured(t, "tatp", runnertest.Options{TxnNs: 1000, ConflictEvery: 9},
		runner.Config{Threads: 2, Txns: 2000, Runs: 2, Verify: true, Warmup: time.Millisecond})
	var b bytes.Buffer
	if err := report.WriteJSON(&b, r); err != nil {
		t.Fatal(err)
	}
	back, err := report.DecodeResult(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(r, back) {
		t.Errorf("JSON loses something:\n%+v\n%+v", r, back)
	}
	if back.Runs[0].All.Conflicts.Total() == 0 {
		t.Error("no conflicts to lose")
	}
}

func TestDecodeRejects(t *testing.T) {
	for _, s := range []string{
		``, `{}`, `[]`, `{"schema":"txnode/result"}`, `{"schema":"txnode/result","schema_version":2}`,
		`{"schema":"other","schema_version":1}`, `{"schema":"txnode/result","schema_version":1,"runs":7}`,
	} {
		if _, err := report.DecodeResult([]byte(s)); !errors.Is(err, report.ErrSchema) {
			t.Errorf("%s: error %v", s, err)
		}
	}
}

func TestConflictsOfUnknownReasonAreOther(t *testing.T) {
	var c report.Conflicts
	if err := c.UnmarshalJSON([]byte(`{"locked":2,"gamma rays":3,"other":1}`)); err != nil {
		t.Fatal(err)
	}
	if c[workload.AbortLocked] != 2 || c[workload.AbortOther] != 4 {
		t.Errorf("%v", c)
	}
}

func TestCSVHasAllColumns(t *testing.T) {
	r := measured(t, "smallbank", runnertest.Options{TxnNs: 1000}, runner.Config{Txns: 500, Runs: 2})
	var b bytes.Buffer
	if err := report.WriteCSV(&b, r); err != nil {
		t.Fatal(err)
	}
	lines, err := csv.NewReader(&b).ReadAll() // fails where lines differ in length
	if err != nil {
		t.Fatal(err)
	}
	if want := 1 + 2*(len(r.Runs[0].Types)+1); len(lines) != want {
		t.Errorf("%d lines, want %d", len(lines), want)
	}
}

func TestSummaryLeavesOutRunsThatWereCutShort(t *testing.T) {
	r := measured(t, "smallbank", runnertest.Options{TxnNs: 1000}, runner.Config{Txns: 500, Runs: 3})
	if n := len(r.Summary); n != len(r.Runs[0].Types)+1 || r.All().Name != "all" {
		t.Fatalf("%d summaries, the last %q", n, r.Summary[n-1].Name)
	}
	s := r.All().CommittedPerS
	if s.Min > s.Median || s.Median > s.Max || s.Min <= 0 {
		t.Errorf("%+v", s)
	}
}

func saved(t *testing.T, h report.HistoryFile, name, wl string) *report.Result {
	t.Helper()
	r := &report.Result{
		Schema: report.ResultSchema, SchemaVersion: report.ResultVersion, Name: name, Workload: wl,
		Runs: []report.Run{{}}, Time: time.Unix(1, 0).UTC(),
	}
	if err := h.Save(r); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestHistoryFile(t *testing.T) {
	h := report.HistoryFile{Path: filepath.Join(t.TempDir(), "new", "history.db")}
	if all, _, err := h.All(); err != nil || len(all) != 0 {
		t.Fatalf("a file that does not exist: %v, %v", all, err)
	}
	if _, err := h.Find("1"); !errors.Is(err, report.ErrNoResult) {
		t.Fatalf("error %v", err)
	}
	for i, name := range []string{"a", "b", "a", ""} {
		if r := saved(t, h, name, []string{"smallbank", "tatp"}[i%2]); r.ID != uint64(i+1) {
			t.Errorf("ID %d, want %d", r.ID, i+1)
		}
	}
	for ref, want := range map[string]uint64{"2": 2, "#4": 4, "a": 3, "b": 2} {
		if r, err := h.Find(ref); err != nil || r.ID != want {
			t.Errorf("%q: %v, %v", ref, r, err)
		}
	}
	if r, err := h.Newest("smallbank"); err != nil || r.ID != 3 {
		t.Errorf("newest: %v, %v", r, err)
	}
	if _, err := h.Newest("tpcc"); !errors.Is(err, report.ErrNoResult) {
		t.Errorf("newest of none: %v", err)
	}
	for _, missing := range []string{"9", "c", ""} { // then none is deleted
		if r, err := h.Delete("1", "b", missing); !errors.Is(err, report.ErrNoResult) || r != nil {
			t.Errorf("delete with %q: %v, %v", missing, r, err)
		}
	}
	if all, _, err := h.All(); err != nil || len(all) != 4 {
		t.Errorf("after nothing was deleted: %v, %v", all, err)
	}
	if r, err := h.Delete("a", "3"); err != nil || len(r) != 1 || r[0].ID != 3 {
		t.Errorf("delete: %v, %v", r, err)
	}
	if r, err := h.Find("a"); err != nil || r.ID != 1 {
		t.Errorf("after the newest was deleted: %v, %v", r, err)
	}
	all, _, err := h.All()
	if err != nil || len(all) != 3 || all[0].ID != 4 || all[2].ID != 1 {
		t.Errorf("all: %v, %v", all, err)
	}
	if n, err := h.DeleteAll(); err != nil || n != 3 {
		t.Errorf("delete all: %d, %v", n, err)
	}
	if r := saved(t, h, "", "tatp"); r.ID != 5 {
		t.Errorf("a number was given twice: %d", r.ID)
	}
}

func TestHistoryFileThatIsNone(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, b []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	foreign := filepath.Join(dir, "foreign")
	db, err := bbolt.Open(foreign, 0o644, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Update(func(tx *bbolt.Tx) error {
		_,
			err := tx.CreateBucket([]byte("theirs"))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	good := report.HistoryFile{Path: filepath.Join(dir, "good")}
	for range 50 {
		saved(t, good, strings.Repeat("x", 500), "tatp")
	}
	bytesOfGood, err := os.ReadFile(good.Path)
	if err != nil {
		t.Fatal(err)
	}
	// Everything behind the two meta pages is noise: bbolt notices that, if at
	// all, by a panic.
	noisy := bytes.Clone(bytesOfGood)
	for i := 2 * os.Getpagesize(); i < len(noisy); i++ {
		noisy[i] = byte(i*31) ^ byte(i>>8)
	}
	locked := report.HistoryFile{Path: filepath.Join(dir, "locked")}
	saved(t, locked, "", "tatp")
	holder, err := bbolt.Open(locked.Path, 0o644, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Close()

	for name, path := range map[string]string{
		"text":          write("text", []byte(strings.Repeat("hello, world\n", 5000))),
		"short":         write("short", []byte("x")),
		"foreign":       foreign,
		"truncated":     write("truncated", bytesOfGood[:3*os.Getpagesize()]),
		"noise":         write("noise", noisy),
		"a directory":   dir,
		"not writable":  filepath.Join(foreign, "history.db"),
		"in use":        locked.Path,
		"without right": "/proc/1/mem",
	} {
		h := report.HistoryFile{Path: path}
		for what, err := range map[string]error{
			"all":  second(h.All()),
			"save": h.Save(&report.Result{Schema: report.ResultSchema, SchemaVersion: 1}),
		} {
			var he *report.HistoryError
			if what == "all" && errors.Is(err, fs.ErrNotExist) {
				continue // nothing there to read is no error
			}
			if !errors.As(err, &he) || strings.Contains(err.Error(), "\n") ||
				!strings.Contains(err.Error(), "--history-file") {
				t.Errorf("%s, %s: error %v", name, what, err)
			}
		}
	}
}

func second(_ []*report.Result, _ int, err error) error { return err }

func TestHistoryLeavesNewerResultsOut(t *testing.T) {
	h := report.HistoryFile{Path: filepath.Join(t.TempDir(), "h")}
	r := saved(t, h, "", "tatp")
	r.SchemaVersion++
	if err := h.Save(r); err != nil {
		t.Fatal(err)
	}
	all, newer, err := h.All()
	if err != nil || len(all) != 1 || newer != 1 {
		t.Errorf("%d results, %d newer, %v", len(all), newer, err)
	}
	if _, err := h.Find("2"); !errors.Is(err, report.ErrSchema) {
		t.Errorf("error %v", err)
	}
}
