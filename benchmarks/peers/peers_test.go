package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"txnode/benchmarks/reference"
	"txnode/benchmarks/tpcc"
	"txnode/benchmarks/workload"
	"txnode/benchmarks/workload/storetest"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == asTxnode { // the blades of a store
		main()
	}
	os.Exit(m.Run())
}

// Every contender keeps the same promises.
func TestContenders(t *testing.T) {
	for _, c := range contenders {
		t.Run(c.name, func(t *testing.T) {
			if c.server && testing.Short() {
				t.Skip("a server is started for each check")
			}
			storetest.Test(t, func(t *testing.T) workload.Store {
				s, err := c.open(t.Context(), &options{coroutines: 2})
				if errors.Is(err, errNotInstalled) {
					t.Skip(err)
				}
				if err != nil {
					t.Fatal(err)
				}
				return s
			})
		})
	}
}

var short = []string{
	"--rounds", "2", "--duration", "20ms", "--settle", "0", "--accounts", "200", "--subscribers", "200",
}

// TestServers: servers run SmallBank, each with the best of some numbers of workers, keep its
// books, and leave no directory. One that is not installed is left out.
func TestServers(t *testing.T) {
	// t.TempDir is too long for a socket, and closed to other users.
	tmp, err := os.MkdirTemp("", "p") //nolint:usetesting // see above
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(tmp)
	if err := os.Chmod(tmp, 0o755); err != nil { // PostgreSQL does not run as root
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", tmp)
	var servers []contender
	for _, c := range contenders {
		if c.server {
			servers = append(servers, c)
		}
	}
	var out, progress bytes.Buffer
	args := append([]string{"--workload", "smallbank", "--stores", nameList(servers)}, short...)
	if code := run(t.Context(), args, contenders, &out, &progress); code != 0 {
		t.Fatalf("exit code %d: %s", code, &progress)
	}
	for _, c := range servers {
		said := progress.String()
		if strings.Contains(said, c.name+" is left out: opening: not installed") {
			continue
		}
		if n := strings.Count(out.String(), "  "+c.name+"  "); n != 1 ||
			strings.Count(said, ": "+c.name+": with ") != len(c.workers) {
			t.Errorf("%s: %d lines in\n%s%s", c.name, n, &out, said)
		}
	}
	left, err := os.ReadDir(tmp)
	if err != nil || len(left) > 0 {
		t.Errorf("%v are left: %v", left, err)
	}

	t.Setenv("PATH", "")
	progress.Reset()
	args = append([]string{"--workload", "smallbank", "--stores", "sharded-map,redis"}, short...)
	if code := run(t.Context(), args, contenders, &out, &progress); code != 0 ||
		!strings.Contains(progress.String(),
			"smallbank: redis is left out: opening: not installed: there is no redis-server") {
		t.Errorf("exit code %d: %s", code, &progress)
	}
}

func TestTable(t *testing.T) {
	contenders := inProcess(contenders)
	var out, progress bytes.Buffer
	if code := run(t.Context(), short, contenders, &out, &progress); code != 0 {
		t.Fatalf("exit code %d: %s", code, &progress)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 3+2*len(contenders) || !strings.HasSuffix(strings.TrimSpace(lines[2]), contenders[0].name+" is") {
		t.Fatalf("the table is\n%s", &out)
	}
	for i, line := range lines[3:] {
		f := strings.Fields(line)
		want := []string{
			[...]string{"smallbank", "tatp"}[i/len(contenders)], "", "-", "2", contenders[i%len(contenders)].name,
		}
		if want[1] = want[0]; !slices.Equal(f[:5], want) {
			t.Errorf("line %d is about %v, not %v", i, f[:5], want)
		}
		if i%len(contenders) == 0 && !strings.HasSuffix(strings.TrimSpace(line), " 1.00 x") {
			t.Errorf("the first store differs from itself: %s", line)
		}
	}
	if n := strings.Count(progress.String(), "round 2 of 2"); n != 2*len(contenders) {
		t.Errorf("the progress tells of %d last rounds:\n%s", n, &progress)
	}
}

func TestJSON(t *testing.T) {
	var out, progress bytes.Buffer
	args := append([]string{"--workload", "tatp", "--stores", "buntdb,sharded-map", "--threads", "1", "-o", "json"},
		short...)
	if code := run(t.Context(), args, contenders, &out, &progress); code != 0 {
		t.Fatalf("exit code %d: %s", code, &progress)
	}
	var results []row
	if err := json.Unmarshal(out.Bytes(), &results); err != nil {
		t.Fatal(err)
	}
	if len(results) != 2 {
		t.Fatalf("%d results: %s", len(results), &out)
	}
	r := results[0]
	if r.Workload != "tatp" || r.Store != "buntdb" || r.Threads != 1 || r.Coroutines != 1 || r.Ratio != 1 ||
		len(r.Rates) != 2 {
		t.Errorf("the first result is %+v", r)
	}
	for _, r := range results {
		if !(r.Lowest > 0 && r.Lowest <= r.Median && r.Median <= r.Highest) || !(r.NotDone > 0 && r.NotDone < 0.5) {
			t.Errorf("result %+v", r)
		}
	}
}

// Each type of the rows workload is measured with each number of threads, on stores of each size.
func TestRows(t *testing.T) {
	contenders := inProcess(contenders)
	for _, order := range []string{"--shuffle=false", "--shuffle"} {
		var out, progress bytes.Buffer
		args := append(slices.Clone(short), "--workload", "rows", "--rows", "1000,3000", "--threads", "2,1", "-o",
			"json", "--rounds", "1", "--duration", "2ms", order)
		if code := run(t.Context(), args, contenders, &out, &progress); code != 0 {
			t.Fatalf("exit code %d: %s", code, &progress)
		}
		var results []row
		if err := json.Unmarshal(out.Bytes(), &results); err != nil {
			t.Fatal(err)
		}
		i := 0
		for _, threads := range []int{2, 1} {
			for _, typ := range rowTypes {
				for _, size := range []int{1000, 3000} {
					for _, c := range contenders {
						r := results[i]
						i++
						if r.Workload != "rows" || r.Types != typ || r.Rows != size || r.Store != c.name ||
							r.Threads != threads {
							t.Errorf("result %+v, want %s of %d rows on %s with %d threads",
								r, typ, size, c.name, threads)
						}
						if !(r.Lowest > 0) || !(r.Ratio > 0) || r.NotDone != 0 {
							t.Errorf("result %+v", r)
						}
					}
				}
			}
		}
		if i != len(results) {
			t.Errorf("%d results, want %d", len(results), i)
		}
	}
}

// What a store does wrong with rows is found, by the transactions or by the books.
func TestWrongRows(t *testing.T) {
	for _, test := range []struct {
		name, text string
		verdict    func(n int, op storetest.Op) storetest.Verdict
	}{
		{"loses a row that is loaded", "peers: rows: wrong:", func(n int, op storetest.Op) storetest.Verdict {
			return storetest.Verdict{Drop: op.Key == 500}
		}},
		{"loses a row that is appended", "loaded and appended", func(n int, op storetest.Op) storetest.Verdict {
			return storetest.Verdict{Drop: op.Key == 1001}
		}},
		{"damages the end of a value", "values of their keys", func(n int, op storetest.Op) storetest.Verdict {
			if op.Key == 500 {
				op.Value[rowBytes-1] ^= 1
			}
			return storetest.Verdict{}
		}},
	} {
		all := []contender{{name: "wrong", coroutines: 1, open: func(context.Context,
			*options) (workload.Store, error) {
			return storetest.Intercept(reference.Open(reference.Options{}),
				func(n int, op storetest.Op) storetest.Verdict {
					if op.Kind != storetest.Insert {
						return storetest.Verdict{}
					}
					return test.verdict(n, op)
				}), nil
		}}}
		var out, progress bytes.Buffer
		args := append([]string{"--workload", "rows", "--rows", "1000", "--threads", "1"}, short...)
		if code := run(t.Context(), args, all, &out, &progress); code != 1 ||
			!strings.Contains(progress.String(), test.text) {
			t.Errorf("a store that %s: exit code %d:\n%s", test.name, code, &progress)
		}
	}
}

// TPC-C's conditions hold on every store, with conflicts, rollbacks and deliveries.
func TestTPCC(t *testing.T) {
	for _, c := range contenders {
		t.Run(c.name, func(t *testing.T) {
			o := tpcc.DefaultOptions()
			o.Warehouses, o.Customers, o.Items = 2, 30, 100
			o.Mix = [tpcc.NumTypes]float64{40, 30, 10, 10, 10}
			o.Rollback, o.RemoteItems = 10, 20
			d, err := tpcc.New(o)
			if err != nil {
				t.Fatal(err)
			}
			s, err := c.open(t.Context(), &options{coroutines: 2})
			if errors.Is(err, errNotInstalled) {
				t.Skip(err)
			}
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := s.Close(context.WithoutCancel(t.Context())); err != nil {
					t.Error(err)
				}
			}()
			err = s.Run(t.Context(), 1, 1, func(ctx context.Context, _ int, w workload.Worker) error {
				return w.View(ctx, func(tx workload.Tx) error {
					_, err := workload.RangerOf(tx)
					return err
				})
			})
			if errors.Is(err, workload.ErrNoRanges) {
				t.Skip(err)
			}
			storetest.Load(t, d, s)
			storetest.Play(t, d, s, 200)
			if _, err := d.Verify(t.Context(), s); err != nil {
				t.Error(err)
			}
		})
	}
}

// A store that loses money fails the run.
func TestBooksAreChecked(t *testing.T) {
	all := []contender{{name: "thief", coroutines: 1, open: func(context.Context, *options) (workload.Store, error) {
		puts := 0
		return storetest.Intercept(reference.Open(reference.Options{}), func(_ int, op storetest.Op) storetest.Verdict {
			if op.Kind != storetest.Put {
				return storetest.Verdict{}
			}
			puts++
			return storetest.Verdict{Drop: puts == 1}
		}), nil
	}}}
	var out, progress bytes.Buffer
	args := append([]string{"--workload", "smallbank", "--threads", "1"}, short...)
	if code := run(t.Context(), args, all, &out, &progress); code != 1 ||
		!strings.Contains(progress.String(), "money is conserved") {
		t.Errorf("exit code %d:\n%s", code, &progress)
	}
	if out.Len() > 0 {
		t.Errorf("results are printed all the same:\n%s", &out)
	}
}

func TestFlags(t *testing.T) {
	for _, test := range []struct {
		args string
		code int
		text string
	}{
		{"--help", 0, "-duration"},
		{"--wrong", 2, "wrong"},
		{"more", 2, `unexpected argument "more"`},
		{"--threads 0 --rounds 0 --coroutines -1 --duration 0s --output xml", 2, "--threads is 0"},
		{"--threads 0 --rounds 0 --coroutines -1 --duration 0s --output xml", 2, `--output is "xml"`},
		{"--workload ycsb", 2, `no workload "ycsb"`},
		{"--threads 2,2", 2, "different numbers"},
		{"--threads 2,x", 2, "different numbers"},
		{"--settle -1s", 2, "--settle is -1s"},
		{"--workload rows --rows 999", 2, "--rows has 999"},
		{"--workload rows --types scan", 2, "--types has \"scan\""},
		{"--workload tpcc --warehouses 0", 2, "Warehouses is 0"},
		{"--workload tatp,tatp", 2, "named twice"},
		{
			"--stores badger,leveldb", 2,
			`no store "leveldb"; there are txnode,sharded-map,badger,buntdb,pebble,btree,sqlite`,
		},
		{"--stores badger,badger", 2, "named twice"},
		{"--accounts 1", 2, "Accounts is 1"},
		{"--subscribers 0", 2, "Subscribers is 0"},
	} {
		var out, errs bytes.Buffer
		code := run(t.Context(), strings.Fields(test.args), contenders, &out, &errs)
		if code != test.code || !strings.Contains(errs.String(), test.text) {
			t.Errorf("%s: exit code %d:\n%s", test.args, code, &errs)
		}
	}
}

func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out, errs bytes.Buffer
	if code := run(ctx, short, contenders, &out, &errs); code != 1 || !strings.Contains(errs.String(), "canceled") {
		t.Errorf("exit code %d:\n%s", code, &errs)
	}
}

func TestRatiosAreTakenWithinRounds(t *testing.T) {
	enter := func(name string, rates ...uint64) *entrant {
		e := &entrant{contender: contender{name: name}, rounds: make([][]round, 1), driver: &rowsDriver{}}
		for _, n := range rates {
			e.rounds[0] = append(e.rounds[0],
				round{seconds: 2, outcomes: [workload.NumOutcomes]uint64{
					workload.Committed: 2 * n, workload.RolledBack: n,
				}, aborts: 3 * n, mallocs: 6 * n})
		}
		return e
	}
	got := rowsOf(&options{threads: []int{1}}, &contest{name: "w"},
		[]*entrant{enter("a", 100, 10, 60), enter("b", 50, 5, 10)})
	if got[0].Median != 60 || got[1].Median != 10 || got[1].Lowest != 5 || got[1].Highest != 50 {
		t.Errorf("throughput: %+v", got)
	}
	if got[0].Ratio != 1 || got[1].Ratio != 2 {
		t.Errorf("ratios %v and %v; within rounds b is 2, 2 and 6 times slower", got[0].Ratio, got[1].Ratio)
	}
	if math.Abs(got[0].NotDone-1.0/3) > 1e-12 || got[0].Conflicts != 1 || got[0].Mallocs != 2 {
		t.Errorf("fractions: %+v", got[0])
	}
	if m := median([]float64{4, 1, 2, 3}); m != 2.5 {
		t.Errorf("the median of 1, 2, 3, 4 is %v", m)
	}
}

func TestArena(t *testing.T) {
	var a arena
	first := append(a.take(3), "abc"...)
	second := append(a.take(arenaBytes), bytes.Repeat([]byte("x"), arenaBytes)...)
	third := append(a.take(2), "de"...)
	if string(first) != "abc" || string(third) != "de" || len(bytes.Trim(second, "x")) > 0 {
		t.Errorf("slices overlap: %q, %q, %d bytes", first, third, len(second))
	}
	if grown := append(first, 'z'); &grown[0] == &first[0] {
		t.Error("a slice can grow into the next one")
	}
	if n := testing.AllocsPerRun(100, func() {
		a.reset()
		for range 50 {
			a.take(100)
		}
	}); n != 0 {
		t.Errorf("%v allocations per transaction", n)
	}
}
