package main

import (
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// processesIn are the ids of the processes whose command line has a text.
func processesIn(t *testing.T, text string) (pids []int) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if p, err := os.ReadFile(f); err == nil && strings.Contains(string(p), text) { // it may have ended
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(f)))
			if err != nil {
				t.Fatal(err)
			}
			pids = append(pids, pid)
		}
	}
	return pids
}

// TestBenchOwnBlades: a benchmark starts blades of its own for its processes. It says what reaches
// them; nothing is left of them when it ends, is interrupted, cannot begin, or is killed.
func TestBenchOwnBlades(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("processes are looked for in /proc")
	}
	dir, err := os.MkdirTemp("", "own") //nolint:usetesting // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	t.Setenv("TMPDIR", dir)
	t.Setenv("TXNODE_HTTP", "127.0.0.1:1") // of another daemon
	mark := filepath.Join(dir, "txnode")   // is on the command line of a catalog and of its clients
	bench := func(more ...string) *program {
		return start(t, append([]string{
			"bench", "smallbank", "--accounts", "300", "--threads", "1", "--warmup", "1ms",
			"--no-save", "--segment-size", "1MiB", "--blade-size", "256MiB",
		}, more...)...)
	}
	gone := func() {
		t.Helper()
		left, err := filepath.Glob(filepath.Join(dir, "txnode*"))
		if pids := processesIn(t, mark); err != nil || len(left) > 0 || len(pids) > 0 {
			t.Errorf("%v are left, and processes %v: %v", left, pids, err)
		}
	}
	for _, c := range []struct {
		args []string
		says []string
	}{
		{[]string{"--processes", "2"}, []string{
			"2 processes × 1 thread", "2 blades of 256 MiB, 1 backup per record",
			"shared memory of blades in processes of their own",
		}},
		{
			[]string{"--processes", "3", "--fabric", "unix", "--blades", "3", "--replicas", "2"},
			[]string{
				"3 processes × 1 thread", "3 blades of 256 MiB, 2 backups per record",
				"unix sockets to blades in processes of their own",
			},
		},
		{[]string{"--fabric", "tcp"}, []string{
			"1 thread × 8 coroutines", "TCP on loopback to blades in processes of their own",
		}},
	} {
		p := bench(append(c.args, "--txns", "300", "--runs", "2")...)
		code := p.end(t)
		out := strings.Join(strings.Fields(p.out.String()), " ")
		for _, x := range append(c.says, "300 transactions", "money is conserved", "after every run: 4 rules") {
			if code != 0 || !strings.Contains(out, x) || p.err.Len() > 0 {
				t.Errorf("%v: exit code %d, no %q in\n%s%s", c.args, code, x, p.out.String(), p.err.String())
			}
		}
		gone()
	}

	if p := bench("--processes", "2", "--blade-size", "1MiB"); p.end(t) != 2 ||
		strings.Count(p.err.String(), "\n") != 1 {
		t.Errorf("exit code %d, %s", p.ProcessState.ExitCode(), p.err.String())
	}
	gone()

	for _, wait := range []time.Duration{0, 3 * time.Second} { // it may be anywhere, and measures most likely
		p := bench("--processes", "2", "--fabric", "unix", "--duration", "1h")
		for len(processesIn(t, mark)) == 0 {
			time.Sleep(time.Millisecond)
		}
		time.Sleep(wait)
		if err := p.Process.Signal(syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
		code := p.end(t)
		if code != 130 || p.out.Len() > 0 && !strings.Contains(p.out.String(), "money is conserved") {
			t.Errorf("interrupted after %v: exit code %d, %s%s", wait, code, p.out.String(), p.err.String())
		}
		gone()
	}

	p := bench("--processes", "2", "--duration", "1h")
	for len(processesIn(t, mark)) < 3 { // the catalog, and two that drive workers
		time.Sleep(time.Millisecond)
	}
	if err := p.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	p.end(t)
	for len(processesIn(t, mark)) > 0 { // with the test, if they do not end
		time.Sleep(time.Millisecond)
	}
	p = bench("--processes", "2", "--txns", "300", "--runs", "1") // removes what nothing could remove
	if code := p.end(t); code != 0 {
		t.Errorf("exit code %d, %s", code, p.err.String())
	}
	gone()
}
