package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestBenchProcessDies: when a process of a benchmark is killed, the others end long before their run would, and say which is missing.
func TestBenchProcessDies(t *testing.T) {
	if testing.Short() {
		t.Skip("a process is missing after 10 s")
	}
	dir, err := os.MkdirTemp("", "cluster") //nolint:usetesting // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	a, c := "unix:"+filepath.Join(dir, "a"), "unix:"+filepath.Join(dir, "c")
	start(t, "serve", "--listen", a, "--memory", "256MiB")
	start(t, "serve", "--listen", c, "--catalog", "memory", "--memory", "0")
	for start(t, "cluster", "init", "--catalog", c, "--blade", a, "--segment-size", "1MiB").end(t) != 0 {
		time.Sleep(10 * time.Millisecond) // until both serve
	}
	p := start(t, "bench", "smallbank", "--accounts", "300", "--cluster", c, "--threads", "1", "--warmup", "1ms", "--no-save", "--processes", "3", "--duration", "1h")
	var children []string
	path := "/proc/" + strconv.Itoa(p.Process.Pid) + "/task/" + strconv.Itoa(p.Process.Pid) + "/children"
	if _, err := os.Stat(path); err != nil {
		t.Skipf("the children of a process are not told here: %v", err)
	}
	for len(children) < 3 {
		time.Sleep(10 * time.Millisecond)
		children = nil
		tasks, _ := filepath.Glob("/proc/" + strconv.Itoa(p.Process.Pid) + "/task/*/children") // a thread may be gone
		for _, task := range tasks {
			b, _ := os.ReadFile(task)
			children = append(children, strings.Fields(string(b))...)
		}
	}
	time.Sleep(3 * time.Second) // they have met by then, most likely
	victim, err := strconv.Atoi(children[len(children)-1])
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(victim, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if code := p.end(t); code == 0 || !strings.Contains(p.err.String(), "of the benchmark has ended, or stands still: channel: barrier") {
		t.Errorf("exit code %d, %s%s", code, p.out.String(), p.err.String())
	}
}
