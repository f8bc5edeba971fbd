package command_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"txnode/cmd/txnode/command"
	"txnode/txn"
)

// TestWords: what the engine says in the words of its options is said in those of the flags,
// and what is to be done next is said if it is of use, and not otherwise.
func TestWords(t *testing.T) {
	b := newBed(t)
	b.open = command.System().Open
	const small = "bench smallbank --accounts 100 --duration 20ms --warmup 0s --no-save "
	one := func(line string, code int, want []string, not ...string) {
		t.Helper()
		got, _, stderr := b.run(strings.Fields(line)...)
		if got != code || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%s: exit code %d, not %d: %s", line, got, code, stderr)
		}
		for _, w := range want {
			if !strings.Contains(stderr, w) {
				t.Errorf("%s: %q is not in %s", line, w, stderr)
			}
		}
		for _, w := range not {
			if strings.Contains(stderr, w) {
				t.Errorf("%s: %q is in %s", line, w, stderr)
			}
		}
	}
	one(small+"--duration -1s --rate NaN --txns -1 --latency-sample -1",
		2, []string{
			"--duration is -1s", "--rate is NaN", "--txns is -1",
			"--latency-sample is -1; it must be from 1 to 1048576, or 0 for the default",
		})
	// Times beyond what a clock can add.
	one(small+"--duration 2562047h47m16.854775807s",
		2, []string{"--duration is 2562047h47m16.854775807s; at most 876000h0m0s are possible"})
	one(small+"--duration 1000000h --warmup 2000000h", 2, []string{
		"--duration is 1000000h0m0s; at most", "--warmup is 2000000h0m0s; at most",
	})
	one(small+"--threads 1000 --coroutines 1000", 2, []string{"--threads is 1000 and --coroutines 1000"})
	one(small+"--hot-accounts 200", 2, []string{"from 2 to --accounts (100)"})
	one(small+"--verify --verify-window 0", 2, []string{"--verify-window is 0"})
	one(small+"--verify-window 10", 2, []string{"give both"})
	for _, line := range []string{"sim verbs --op cas --size 100", "sim verbs --op faa --size 64"} {
		one(line, 2, []string{"is of 8 bytes"})
	}
	for line, want := range map[string]string{
		"sim smallbank --accounts 1":           "--accounts is 1: from 100",
		"sim tatp --subscribers 1":             "--subscribers is 1: from 100",
		"sim ycsb --records 1":                 "--records is 1: from 100",
		"sim ycsb --sweep idle":                "--sweep is \"idle\"; it must be threads",
		"sim ycsb --theta 1":                   "--theta is 1; it must be from 0 to less than 1",
		"bench ycsb --workload e --table hash": "--table is hash; workload e scans, which needs ordered",
		"bench tpcc --warehouses 0 --pace -1": "--warehouses is 0; it must be from 1 to 65535; " +
			"--pace is -1",
		"bench tpcc --mix 1,2": "--mix has 2 percentages; TPC-C has 5",
		"bench ycsb --workload x --keys y": "--workload is \"x\"; it must be one of a, b, c, d, e, f, load; " +
			"--keys is \"y\"",
		"sim smallbank --idle -1s":                        "--idle is -1s",
		"sim smallbank --blades 1":                        "--blades is 1: more than --replicas (1)",
		"sim hash --compute 200":                          "--compute is 200: from 1 to --threads (96)",
		"sim hash --zipf 1":                               "--zipf, the parameter",
		"sim verbs --depth 5000 --warmup -1s":             "--depth is 5000",
		"sim verbs --change -1s --warmup -1s":             "--warmup is -1s",
		"sim verbs --threads 4 --change 1s":               "--min-threads is 36: from 1 to --threads (4)",
		"sim seeds --from 18446744073709551615":           "--from is 18446744073709551615, and --seeds 2000",
		"sim seeds --from 18446744073709551615 --seeds 2": "the last seed there is",
	} {
		one(line, 2, []string{want})
	}
	one("sim verbs --threads 2 --duration 1ns", 1, []string{"no request has ended in 1ns: measure for longer"})
	if err := os.WriteFile(filepath.Join(b.dir, "file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"check $DIR/file", "inspect region $DIR/file 0", "backup $DIR/file $DIR/other"} {
		one(line, 1, []string{"$DIR/file is no directory: name that of a database"}, "stat")
	}
	one(small+"--dir $DIR/file", 1,
		[]string{"$DIR/file is no directory, or one above it is none: name that of a database"})
	if code, _, stderr := b.run(append(strings.Fields(small+"--save"), "a\xff")...); code != 2 ||
		!strings.Contains(stderr, "a name is one l") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	one(small+"--save=", 2, []string{"--save is empty"})
	one(small+"--save a.json", 2, []string{"txnode compare takes that for a file"})
	for _, name := range []string{"a\nb", " ", "a ", "a\u200b", "\u00a0a", "a\xff"} {
		if code, _, stderr := b.run(append(strings.Fields(small+"--save"), name)...); code != 2 ||
			!strings.Contains(stderr, fmt.Sprintf("%+q; a name is one line", name)) {
			t.Errorf("%q: exit code %d: %s", name, code, stderr)
		}
	}
	one(small+"--threads 1 --coroutines 3000 --arena 1MiB",
		2, []string{"raise --arena", "fewer --coroutines"}, " Arena")
	one(small+"--threads 1 --coroutines 30000",
		2, []string{"--coroutines is 30000; a thread has room for 16379 at most"}, "raise")
	if code, out, _ := b.run(strings.Fields(small + "--threads 1 --coroutines 3000")...); code != 2 || out != "" {
		t.Errorf("exit code %d, and a report of nothing: %s", code, out)
	}
	one(small+"--blade-size 1MiB", 2, []string{"raise --blade-size to 1114112"})
	one(small+"--blade-size 64KiB", 2, []string{"--blade-size is 65536: it is too small", "at least 1114112"})
	one(small+"--blade-size 1216KiB --accounts 100000", 1, []string{"blades are full", "raise --blade-size"})

	dir := filepath.Join(b.dir, "Arena (BladeSize) of Blades and Size") // which are no options
	path := func(name string) string { return filepath.Join(dir, name) }
	if code, _, stderr := b.run(append(strings.Fields(small+"--blade-size 16MiB --segment-size 256KiB --dir"),
		dir)...); code != 0 {
		t.Fatal(stderr)
	}
	on := func(line string, code int, want []string, not ...string) {
		t.Helper()
		got, _, stderr := b.run(append(strings.Fields(line), dir)...)
		for _, w := range append(want, "") {
			if got != code || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, w) {
				t.Errorf("%s: exit code %d, %q is not in %s", line, got, w, stderr)
			}
		}
		for _, w := range not {
			if strings.Contains(stderr, w) {
				t.Errorf("%s: %q is in %s", line, w, stderr)
			}
		}
	}
	// What was loaded stays: who asks for another balance is told, and the record of the
	// run does not have it.
	for args, warned := range map[string]bool{"": false, "--initial-balance 5 ": true} {
		code, out, stderr := b.run(append(strings.Fields(small+args+"-o json --dir"), dir)...)
		if code != 0 || strings.Contains(stderr, "--initial-balance is for loading") != warned ||
			strings.Contains(out, "initial-balance\",") {
			t.Errorf("%q: exit code %d: %s%s", args, code, stderr, out)
		}
	}
	if code, _, stderr := b.run("backup", dir, ""); code != 2 ||
		!strings.Contains(stderr, "name of the file is empty") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	const optional = "may be left out"
	on(small+"--blade-size 8MiB --dir", 1, []string{optional, "; --blade-size is 8388608"})
	on(small+"--kill-blade 5ms --blade 2 --dir", 2, []string{"--blade is 2; it must be from 0 to 1"})
	for _, step := range [][2]string{
		{"blade-000.region", "x"}, {"blade-001.region", "blade-000.region"}, {"x", "blade-001.region"},
	} {
		if err := os.Rename(path(step[0]), path(step[1])); err != nil {
			t.Fatal(err)
		}
	}
	on(small+"--dir", 1, []string{"blade-000.region", "were files renamed?"}, optional, "--arena",
		"--blade-size", "--blades")
	if err := os.Remove(path("catalog.db")); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"backup $DIR/none " + b.dir + "/x", "inspect region $DIR/none 0", "check $DIR/none"} {
		one(line, 1, []string{"no database in $DIR/none"})
	}
	if code, _, stderr := b.run("backup", dir, b.dir+"/x"); code != 1 ||
		!strings.Contains(stderr, "catalog.db is missing") || !strings.Contains(stderr, "bring it back") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	if code, _, stderr := b.run("check", ""); code != 2 || !strings.Contains(stderr, "is empty") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}

// TestStrangeHistoryFile: a history file that is cut off, or no file, is one line that says
// so; nobody waits for a pipe, and what is not there is not made to be emptied.
func TestStrangeHistoryFile(t *testing.T) {
	b := newBed(t)
	path := filepath.Join(b.dir, "h.db")
	run := func(code int, want, line string) {
		t.Helper()
		got, _, stderr := b.run(append(strings.Fields(line), "--history-file", path)...)
		if got != code || strings.Count(stderr, "\n") > 1 || !strings.Contains(stderr, want) ||
			strings.Contains(stderr, "runtime error") {
			t.Errorf("%s: exit code %d, not %d, with %q: %s", line, got, code, want, stderr)
		}
	}
	const bench = "bench smallbank --accounts 100 --txns 50 --warmup 1ms --threads 1"
	run(0, "", "history delete --all")
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("there is a file: %v", err)
	}
	// An empty file has no results, and is made a history.
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"history", "compare"} {
		run(0, "", line)
	}
	run(1, "no such result", "history show 1")
	run(0, "", bench)
	// It is not written over by something else, by whatever name, nor are two things
	// written to one file.
	other := filepath.Join(b.dir, "other")
	if err := os.Symlink(path, other+".link"); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"--verify --history " + path, "--cpuprofile " + other + ".link",
		"--verify --history " + other + " --cpuprofile " + b.dir + "/./other",
	} {
		run(2, "one file", bench+" "+line)
	}
	// No name is none, also where results without one are kept.
	for _, args := range [][]string{
		{"history", "show", ""}, {"history", "delete", ""}, {"history", "delete", "1", ""}, {"compare", ""},
	} {
		if code, stdout, stderr := b.run(append(args, "--history-file", path)...); code != command.ExitUsage ||
			stdout != "" || !strings.Contains(stderr, "empty") {
			t.Errorf("%q: exit code %d, %s%s", args, code, stdout, stderr)
		}
	}
	run(0, "", "history show 1")
	if err := os.Truncate(path, 9000); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"history", "compare", "history show 1", "history delete 1", "history delete --all"} {
		run(1, "damaged", line)
	}
	run(0, "not kept", bench)
	if err := errors.Join(os.Remove(path), unix.Mkfifo(path, 0o644)); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"history", "compare", "history show 1", "history delete --all"} {
		run(1, "is no file", line)
	}
	run(0, "not kept", bench)
}

// full is an output that takes nothing.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("it is full") }

// TestFullOutput: what cannot be printed is an error, help too, of which its library says nothing.
func TestFullOutput(t *testing.T) {
	b := newBed(t)
	makeDatabase(t, b)
	db, err := txn.Open(t.Context(), txn.Options{Dir: b.dir + "/data"})
	if err != nil {
		t.Fatal(err)
	}
	accounts, err := txn.OpenTable(db, "accounts", txn.Uint64, txn.Text())
	if err == nil {
		err = db.Update(t.Context(), func(tx *txn.Tx) error {
			return accounts.Put(tx, 9, strings.Repeat("much to show ", 1000))
		})
	}
	if err = errors.Join(err, db.Close(t.Context())); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{}, {"help"}, {"bench", "--help"}, {"bench", "smallbank", "--help"}, {"version"},
		{"completion", "bash"}, {"compare"},
		{"inspect", "region", b.dir + "/data", "0"}, {
			"inspect", "record", b.dir + "/data", "--table", "accounts", "--key", "9", "--limit", "0",
		},
	} {
		var stderr bytes.Buffer
		w := command.System()
		w.Stdout, w.Stderr = full{}, &stderr
		w.CacheDir = func() (string, error) { return t.TempDir(), nil }
		if code := command.Main(t.Context(), w, args); code != command.ExitFailure ||
			stderr.String() != "txnode: it is full\n" {
			t.Errorf("%q: exit code %d, %q", args, code, stderr.String())
		}
	}
}

// TestLargestFile: where a file may not be as large as a blade, the error names the
// limit and the flag.
func TestLargestFile(t *testing.T) {
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// 8,000,000 units of 512 bytes; a blade has 16 GiB
	c := exec.Command("sh", "-c", `ulimit -f 8000000 && exec "$0" "$@"`, path, "bench", "smallbank", "--accounts",
		"100", "--duration", "20ms", "--no-save", "--dir", filepath.Join(t.TempDir(), "d"))
	c.Env = append(os.Environ(), asProgram+"=1")
	out, err := c.CombinedOutput()
	if code := c.ProcessState.ExitCode(); code != 1 || !strings.Contains(string(out), "(ulimit -f)") ||
		!strings.Contains(string(out), "choose a smaller --blade-size") {
		t.Errorf("exit code %d, %v: %s", code, err, out)
	}
}
