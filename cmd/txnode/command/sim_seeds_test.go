package command_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"txnode/cmd/txnode/command"
)

func TestSimSeeds(t *testing.T) {
	b := newBed(t)
	code, stdout, stderr := b.run("sim", "seeds", "--from", "5", "--seeds", "8")
	if code != 0 || !strings.HasPrefix(stdout, "8 seeds, from 5: no violation (") {
		t.Fatal(code, stdout, stderr)
	}
	// The trace of a seed, and the same twice.
	var traces [2]string
	for i := range traces {
		code, stdout, stderr := b.run("sim", "seeds", "--from", "5", "--seeds", "1", "--trace",
			filepath.Join(b.dir, "trace.txt"))
		p, err := os.ReadFile(filepath.Join(b.dir, "trace.txt"))
		if code != 0 || err != nil || !strings.HasPrefix(stdout, "seed 5: ") {
			t.Fatal(code, err, stdout, stderr)
		}
		traces[i] = stdout + string(p)
	}
	if traces[0] != traces[1] || len(traces[0]) < 10_000 {
		t.Errorf("traces of %d and %d bytes", len(traces[0]), len(traces[1]))
	}
	code, _, stderr = b.run("sim", "seeds", "--from", "5", "--seeds", "1", "--workload", "bank", "--trace",
		filepath.Join(b.dir, "trace.json"))
	if p, err := os.ReadFile(filepath.Join(b.dir, "trace.json")); code != 0 || err != nil ||
		!strings.HasPrefix(string(p), "{") {
		t.Errorf("%d, %v, %s: %.40s", code, err, stderr, p)
	}
	for _, args := range [][]string{
		{"--seeds", "0"}, {"--parallel", "0"}, {"--seeds", "2", "--trace", "x"},
		{"--seeds", "1", "--workload", "chess"}, {"--seeds", "2", "--history", "x"},
		{"--seeds", "1", "--only", "stop(thread=99,verb=1)"}, {"--seeds", "1", "--only", "slow(blade=9,x=2)"}, {"x"},
	} {
		if code, _, stderr := b.run(append([]string{"sim", "seeds"}, args...)...); code != command.ExitUsage {
			t.Errorf("%v: exit code %d, %s", args, code, stderr)
		}
	}
	// What is refused leaves no file behind, nor takes one away.
	link, none, old := filepath.Join(b.dir, "link"), filepath.Join(b.dir, "none"), filepath.Join(b.dir, "old")
	if err := errors.Join(os.Symlink("elsewhere", link), os.WriteFile(old, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	for path, stays := range map[string]bool{none: false, link: true, old: true} {
		code, _, stderr := b.run("sim", "seeds", "--seeds", "1", "--workload", "chess", "--trace", path)
		if _, err := os.Lstat(path); code != command.ExitUsage || (err == nil) != stays {
			t.Errorf("%s: exit code %d, %v, %s", path, code, err, stderr)
		}
	}
}

// TestSimSeedsHistory: histories in EDN, of lists for Elle's model of lists, with their
// elements; of others with versions; and no file for more than one seed.
func TestSimSeedsHistory(t *testing.T) {
	b := newBed(t)
	for workload, want := range map[string]string{"list-append": "[:append 0 ", "bank": "[:w "} {
		for _, faults := range []string{"none", "stop"} {
			path := filepath.Join(b.dir, "h.edn")
			code, stdout, stderr := b.run("sim", "seeds", "--from", "7", "--seeds", "1", "--faults", faults,
				"--workload", workload, "--history", path)
			p, err := os.ReadFile(path)
			if code != 0 || err != nil {
				t.Fatal(code, err, stdout, stderr)
			}
			invoked, ok := strings.Count(string(p), ":type :invoke"), strings.Count(string(p), ":type :ok")
			if !strings.Contains(string(p), want) || invoked < 50 || ok == 0 || ok > invoked ||
				strings.Count(string(p), "\n") != 2*invoked {
				t.Errorf("%s, faults %s: %d :invoke, %d :ok, in\n%.300s", workload, faults, invoked, ok, p)
			}
		}
	}
	if code, stdout, stderr := b.run("sim", "seeds", "--seeds", "1", "--history",
		filepath.Join(b.dir, "nowhere", "h.edn")); code != command.ExitFailure || stdout != "" ||
		!strings.Contains(stderr, "nowhere") {
		t.Errorf("a history that cannot be written: exit code %d, %s%s", code, stdout, stderr)
	}
	// One file for two things, by any name.
	at := filepath.Join(b.dir, "one")
	if err := os.Symlink("one", at+".link"); err != nil {
		t.Fatal(err)
	}
	for _, other := range []string{at, b.dir + "/./one", at + ".link"} {
		if code, stdout, stderr := b.run("sim", "seeds", "--seeds", "1", "--history", at, "--trace",
			other); code != command.ExitUsage || stdout != "" || !strings.Contains(stderr, "one file") {
			t.Errorf("%s: exit code %d, %s%s", other, code, stdout, stderr)
		}
	}
}

func TestSimHash(t *testing.T) {
	b := newBed(t)
	small := []string{
		"sim", "hash", "--keys", "500", "--threads", "4", "--coroutines", "2", "--warmup", "100us",
		"--window", "100us", "--limit", "300us",
	}
	code, stdout, stderr := b.run(append(small, "--mix", "update-only", "--conflict-avoidance", "none,all")...)
	if code != 0 || strings.Count(stdout, "retries/update") != 2 || !strings.Contains(stdout, "none, mix update-only") {
		t.Error(code, stdout, stderr)
	}
	code, stdout, stderr = b.run(append(small, "--sweep", "zipf", "-o", "csv", "--techniques", "none", "--mix", "c")...)
	if code != 0 || strings.Count(stdout, "\nall,c,4,") != 6 {
		t.Error(code, stdout, stderr)
	}
	code, stdout, stderr = b.run(append(small, "--trace", filepath.Join(b.dir, "hash.json"), "-o", "json")...)
	if p, err := os.ReadFile(filepath.Join(b.dir, "hash.json")); code != 0 || err != nil ||
		!strings.Contains(string(p), "CAS") || !strings.Contains(stdout, `"trace_hash"`) {
		t.Error(code, err, stdout, stderr)
	}
	code, stdout, stderr = b.run(append(small, "--idle", "20us", "--tuner", "thread", "--markdown")...)
	if code != 0 || !strings.Contains(stdout, "| threads | all |") || !strings.Contains(stdout, "| p99, us |") {
		t.Error(code, stdout, stderr)
	}
	// Some points of a figure, on two machines: nothing is published of 4 threads.
	code, stdout, stderr = b.run(append(small, "--figure", "14", "--threads", "1,4,16", "--markdown", "--machine",
		"connectx-6,AtomicAddrNs=111", "--machine", "connectx-6,AtomicAddrNs=400")...)
	if code != 0 || strings.Count(stdout, "\n| 1 | ") != 2 || strings.Count(stdout, "\n| 16 | ") != 2 ||
		strings.Contains(stdout, "\n| 4 | ") ||
		!strings.Contains(stdout, "\nMix update-only, machine connectx-6,AtomicAddrNs=400:\n") ||
		strings.Count(stdout, "median error") != 2 {
		t.Error(code, stdout, stderr)
	}
	// A list of threads and of tuners without a figure, of which none leaves the throttle out.
	code, stdout, stderr = b.run(append(small, "--threads", "3,2", "--tuner", "thread,none", "-o", "csv")...)
	if code != 0 || strings.Count(stdout, "\n\"all, tuner thread\",a,") != 2 ||
		strings.Count(stdout, "\n\"all, tuner none\",a,3,") != 1 {
		t.Error(code, stdout, stderr)
	}
	for _, args := range [][]string{
		{"--figure", "14", "--threads", "3,5"}, {"--figure", "14", "--machine", "abacus"},
		{"--sweep", "zipf", "--threads", "1,2"}, {"--threads", "4,0"}, {"--threads", "4..2"},
		{"--tuner", "smart,smart"}, {"--machine", "connectx-6", "--machine", "abacus"},
		{"--mix", "d"}, {"--zipf", "1"}, {"--sweep", "moon"}, {"--figure", "6"}, {"--tuner", "nobody"},
		{"--markdown", "-o", "csv"}, {"--figure", "9", "--idle", "1us"}, {"--conflict-avoidance", "some"},
		{"--techniques", "backoff"},
		{"--threads", "0"}, {"--machine", "abacus"}, {"--sweep", "threads", "--trace", "x"},
		{"--conflict-avoidance", ""}, {"x"},
		{"--figure", "14", "--mix", "a"}, {"--figure", "5a", "--zipf", "0"}, {"--figure", "7", "--sweep", "threads"},
	} {
		if code, _, stderr := b.run(append(small, args...)...); code != command.ExitUsage {
			t.Errorf("%v: exit code %d, %s", args, code, stderr)
		}
	}
}

// TestSimInterrupted: Ctrl-C in the middle of many points or seeds leaves those that
// were done.
func TestSimInterrupted(t *testing.T) {
	for _, c := range []struct {
		on, stdout, stderr string
		args               []string
	}{
		{"1 of 2 points", "SMART-DTX", " of 2 points were measured",
			[]string{
				"sim", "smallbank", "--threads", "1..2", "--accounts", "100", "--txns", "2000", "--warmup", "20us",
				"--policy", "ford", "--report", "$DIR/r.html",
			}},
		{"1 of 6 points", "retries/update", " of 6 points were measured",
			[]string{
				"sim", "hash", "--keys", "500", "--threads", "4", "--coroutines", "2", "--warmup", "100us",
				"--window", "100us", "--limit", "300us", "--sweep", "zipf",
			}},
		{"0 of 6 points", "", "interrupted: 0 of 6 points were measured",
			[]string{
				"sim", "hash", "--keys", "500", "--threads", "4", "--coroutines", "2", "--window", "10ms",
				"--limit", "30ms", "--sweep", "zipf",
			}},
		{
			"1 of 8 points", "ours, TicketLock", "1 of 8 points were measured",
			[]string{"sim", "loco", "--experiment", "lock", "--nodes", "2", "--duration", "100us"},
		},
		{
			"1 of 15 operations", "var-add", "1 of 15 operations were measured",
			[]string{"bench", "channel", "--duration", "1ms"},
		},
		{
			"1 of 48 points", "doorbell per thread", " of 48 points were measured",
			[]string{"sim", "verbs", "--figure", "4a", "--requests", "50"},
		},
		{
			"1 of 113 points", "shared QP", " of 113 points were measured",
			[]string{"sim", "calibrate", "--check", "--requests", "50"},
		},
		{
			"device, round 0", "doorbell per thread", "the residuals of 61 of 113 points",
			[]string{"sim", "calibrate", "--requests", "50"},
		},
		{
			" of 100000 seeds", " of 100000 seeds, from 1: no violation",
			"interrupted", []string{"sim", "seeds", "--seeds", "100000"},
		},
	} {
		b := newBed(t)
		b.interruptOn = c.on
		code, stdout, stderr := b.run(c.args...)
		if code != command.ExitInterrupted || !strings.Contains(stdout, c.stdout) ||
			!strings.Contains(stderr, c.stderr) {
			t.Errorf("%v: exit code %d\n%s\n%s", c.args, code, stdout, stderr)
		}
		if strings.Contains(stdout, " 0.000 │") {
			t.Errorf("%v prints points that were not measured:\n%s", c.args, stdout)
		}
	}
}

// TestSimVerbsFlags: flags that would be without effect are refused.
func TestSimVerbsFlags(t *testing.T) {
	b := newBed(t)
	code, stdout, stderr := b.run("sim", "verbs", "--threads", "4", "-o", "csv", "--trace",
		filepath.Join(b.dir, "v.json"))
	if p, err := os.ReadFile(filepath.Join(b.dir, "v.json")); code != 0 || err != nil ||
		!strings.Contains(string(p), "READ") || !strings.Contains(stdout, "\nread,doorbell,4,8,8,") {
		t.Error(code, err, stdout, stderr)
	}
	for _, args := range [][]string{
		{"--figure", "4a", "--trace", "x"}, {"--figure", "4a", "--op", "write"}, {"--figure", "3a", "--threads", "8"},
		{"--figure", "3"}, {"--requests", "10"},
		{"--report", "x"}, {"--op", "fetch"}, {"--qp", "none"}, {"--threads", "0"}, {"--duration", "-1s"},
		{"--min-threads", "9", "--threads", "8", "--change", "1ms"}, {"x"},
	} {
		if code, _, stderr := b.run(append([]string{"sim", "verbs"}, args...)...); code != command.ExitUsage {
			t.Errorf("%v: exit code %d, %s", args, code, stderr)
		}
	}
}

// TestSimPositive: what has to be positive, and is not, is named.
func TestSimPositive(t *testing.T) {
	b := newBed(t)
	for line, want := range map[string]string{
		"smallbank --accounts 0 --threads 0": "--threads is 0; it must be positive; --accounts is 0; it " +
			"must be positive",
		"tatp --subscribers -1 --warmup 0s": "--subscribers is -1; it must be positive; --warmup is 0s; it " +
			"must be positive",
		"verbs --depth 0":            "--depth is 0; it must be positive",
		"hash --keys 0 --threads -1": "--keys is 0; it must be positive; --threads is -1; it must be positive",
		"seeds --seeds 0 --parallel -1": "--seeds is 0; it must be positive; --parallel is -1; it " +
			"must be positive",
		"calibrate --requests 0": "--requests is 0; it must be positive",
	} {
		if code, stdout, stderr := b.run(append([]string{"sim"},
			strings.Fields(line)...)...); code != command.ExitUsage || stdout != "" || stderr != "txnode: "+want+"\n" {
			t.Errorf("%s: exit code %d, %s%s", line, code, stderr, stdout)
		}
	}
}

// TestSimUnwritable: a file that cannot be written ends a command before it runs, for
// minutes with these flags.
func TestSimUnwritable(t *testing.T) {
	for _, args := range [][]string{
		{"smallbank", "--sweep", "threads", "--report"}, {"tatp", "--policy", "ford", "--txns", "100000000", "--trace"},
		{"hash", "--figure", "8", "--report"},
		{"calibrate", "--report"}, {"verbs", "--figure", "4a", "--requests", "10000000", "--report"},
		{"verbs", "--duration", "1h", "--trace"},
	} {
		b := newBed(t)
		code, stdout, stderr := b.run(append(append([]string{"sim"}, args...), "$DIR/none/file")...)
		if code != command.ExitFailure || stdout != "" ||
			stderr != "txnode: open $DIR/none/file: no such file or directory\n" {
			t.Errorf("%v: exit code %d, %s%s", args, code, stderr, stdout)
		}
	}
}

// TestSimFullDisk: when a file cannot be written to its end, that is the error, and no
// violation; and what was measured is printed.
func TestSimFullDisk(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("there is no /dev/full here")
	}
	tiny := []string{"--threads", "1", "--txns", "100", "--warmup", "20us", "--policy", "default"}
	for _, args := range [][]string{
		{"sim", "seeds", "--seeds", "1", "--trace"}, {"sim", "seeds", "--seeds", "1", "--history"},
		append(append([]string{"sim", "smallbank", "--accounts", "100"}, tiny...), "--report"),
		append(append([]string{"sim", "tatp", "--subscribers", "100"}, tiny...), "--trace"),
		{
			"sim", "hash", "--keys", "500", "--threads", "1", "--coroutines", "1", "--warmup",
			"10us", "--window", "30us",
			"--limit", "100us", "--report",
		},
		{"sim", "verbs", "--threads", "1", "--trace"},
		{"sim", "verbs", "--figure", "4a", "--requests", "10", "--report"},
		{"sim", "calibrate", "--check", "--requests", "10", "--report"}, {
			"bench", "smallbank", "--accounts", "50", "--txns", "50", "--warmup", "1ms", "--cpuprofile",
		},
	} {
		code, stdout, stderr := newBed(t).run(append(args, "/dev/full")...)
		if code != command.ExitFailure || stdout == "" || strings.Count(stderr, "\n") != 1 ||
			!strings.Contains(stderr, "no space left") {
			t.Errorf("%v: exit code %d, %s%s", args, code, stderr, stdout)
		}
	}
}

// TestSimReports: every command with curves writes a page of them, which loads nothing.
func TestSimReports(t *testing.T) {
	b := newBed(t)
	for name, c := range map[string]struct {
		args  []string
		plots int
		has   []string
	}{
		"verbs": {
			[]string{"verbs", "--figure", "4a", "--requests", "50"}, 1,
			[]string{"Figure 4a: doorbell per thread, 32 requests", "HandoverNs"},
		},
		"calibrate": {
			[]string{"calibrate", "--check", "--requests", "50"}, 2,
			[]string{"Figure 3a: shared QP", "Absolute error over 113 points"},
		},
		"hash": {
			[]string{
				"hash", "--keys", "500", "--threads", "1", "--coroutines", "2", "--warmup", "100us", "--window",
				"100us", "--limit", "300us", "--figure", "7",
			}, 11,
			[]string{
				"ours, mix c", "Mix b: retries of an update", "smart-ht: WaitNs", "Absolute error of the throughput",
			},
		},
		"tatp": {
			[]string{"tatp", "--threads", "1", "--subscribers", "100", "--txns", "200", "--warmup", "20us"}, 5,
			[]string{"SMART-DTX", "published", "LineHoldNs"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(b.dir, name+".html")
			code, stdout, stderr := b.run(append(append([]string{"sim"}, c.args...), "--report", path)...)
			p, err := os.ReadFile(path)
			if code != 0 || err != nil || stdout == "" {
				t.Fatal(code, err, stdout, stderr)
			}
			s := string(p)
			if n := strings.Count(s, "<svg "); n != c.plots {
				t.Errorf("%d figures instead of %d", n, c.plots)
			}
			for _, want := range append(c.has, "stroke-dasharray", "The model's constants", "</html>") {
				if !strings.Contains(s, want) {
					t.Errorf("the page lacks %q", want)
				}
			}
			for _, not := range []string{"http:", "https:", "src=", "<script", "NaN"} {
				if strings.Contains(s, not) {
					t.Errorf("the page has %q", not)
				}
			}
		})
	}
}

func TestThreadRange(t *testing.T) {
	b := newBed(t)
	small := []string{
		"sim", "smallbank", "--accounts", "100", "--txns", "500", "--warmup", "20us", "--policy", "ford",
		"-o", "csv", "--threads",
	}
	for r, want := range map[string]int{"3": 1, "2..3": 2, "3..3": 1, "1..10": 3} { // of the published 1, 8, ...
		if code, stdout, stderr := b.run(append(small, r)...); code != 0 || strings.Count(stdout, "\n")-1 != want {
			t.Errorf("--threads %s: exit code %d, %s\n%s", r, code, stderr, stdout)
		}
	}
	for _, r := range []string{"", "x", "2..1", "0..3", "0", "-1", "1..", "..2", "1-2"} {
		if code, _, stderr := b.run(append(small, r)...); code != command.ExitUsage ||
			!strings.Contains(stderr, "--threads") {
			t.Errorf("--threads %q: exit code %d, %s", r, code, stderr)
		}
	}
}

// TestIdleTimes: one time, several, and some of figure 11, beside what was published of them.
func TestIdleTimes(t *testing.T) {
	b := newBed(t)
	small := []string{"sim", "smallbank", "--accounts", "100", "--txns", "200", "--warmup", "20us", "--markdown"}
	for _, c := range []struct {
		args   []string
		curves int
		rows   []string
	}{
		{[]string{"--policy", "ford", "--threads", "2", "--idle", "64us"}, 1, []string{"\n| threads |", "\n| 2 |"}},
		{
			[]string{"--policy", "ford", "--threads", "2", "--idle", "0,3us"}, 1,
			[]string{"\n| idle us |", "\n| 0 |", "\n| 3 |"},
		},
		{[]string{"--figure", "11", "--idle", "16us,128us"}, 2, []string{
			"\n| 16 | 0.939/", "\n| 128 | 1.03/", "\n| 16 | 4.58/", "\n| 128 | 3.28/",
		}},
	} {
		code, stdout, stderr := b.run(append(small, c.args...)...)
		if code != 0 || strings.Count(stdout, "not committed, % |") != c.curves {
			t.Errorf("%v: exit code %d, %s\n%s", c.args, code, stderr, stdout)
		}
		for _, row := range c.rows {
			if !strings.Contains(stdout, row) {
				t.Errorf("%v: no %q in\n%s", c.args, row, stdout)
			}
		}
	}
	for _, args := range [][]string{
		{"--idle", "x"}, {"--idle", ""}, {"--idle", "1us,1us"}, {"--idle", "1us,-1us"},
		{"--idle", "0,1us", "--threads", "1,2"}, {"--idle", "0,1us", "--sweep", "threads"},
		{"--figure", "10", "--idle", "1us"}, {"--sweep", "idle", "--idle", "1us"},
		{"--sweep", "idle", "--threads", "1..2"},
	} {
		if code, stdout, stderr := b.run(append(small, args...)...); code != command.ExitUsage ||
			!strings.Contains(stderr, "idle") {
			t.Errorf("%v: exit code %d, %s%s", args, code, stderr, stdout)
		}
	}
}
