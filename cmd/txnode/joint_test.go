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

// joint is a cluster of two blades, for benchmarks of several processes.
type joint struct {
	catalog string
	blades  [2]*program
}

func newJoint(t *testing.T, replicas string) *joint {
	t.Helper()
	dir, err := os.MkdirTemp("", "cluster") //nolint:usetesting // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	a, b := "unix:"+filepath.Join(dir, "a"), "unix:"+filepath.Join(dir, "b")
	j := &joint{catalog: "unix:" + filepath.Join(dir, "c")}
	for i, x := range []string{a, b} {
		j.blades[i] = start(t, "serve", "--listen", x, "--memory", "256MiB")
	}
	start(t, "serve", "--listen", j.catalog, "--catalog", "memory", "--memory", "0")
	for start(t, "cluster", "init", "--catalog", j.catalog, "--blade", a, "--blade", b, "--replicas", replicas,
		"--segment-size", "1MiB").end(t) != 0 {
		time.Sleep(10 * time.Millisecond) // until all serve
	}
	return j
}

// bench starts a benchmark of so many processes, and returns when they are there.
func (j *joint) bench(t *testing.T, n int, more ...string) (p *program, members []int) {
	t.Helper()
	p = start(t, append([]string{
		"bench", "smallbank", "--accounts", "300", "--cluster", j.catalog, "--threads", "1", "--warmup", "1ms",
		"--no-save", "--processes", strconv.Itoa(n),
	}, more...)...)
	tasks := "/proc/" + strconv.Itoa(p.Process.Pid) + "/task/"
	if _, err := os.Stat(tasks + strconv.Itoa(p.Process.Pid) + "/children"); err != nil {
		t.Skipf("the children of a process are not told here: %v", err)
	}
	for len(members) < n {
		time.Sleep(10 * time.Millisecond)
		members = nil
		all, _ := filepath.Glob(tasks + "*/children") // a thread may be gone
		for _, task := range all {
			b, _ := os.ReadFile(task)
			for _, x := range strings.Fields(string(b)) {
				pid, err := strconv.Atoi(x)
				if err != nil {
					t.Fatal(err)
				}
				members = append(members, pid)
			}
		}
	}
	return p, members
}

func kill(t *testing.T, pid int, s syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(pid, s); err != nil {
		t.Fatal(err)
	}
}

// TestBenchProcessDies: when a process of a benchmark is killed, or stands still, the others end
// long before their run would, and the command says which it was.
func TestBenchProcessDies(t *testing.T) {
	for _, c := range []struct {
		signal syscall.Signal
		says   string
	}{{syscall.SIGKILL, "it has ended"}, {syscall.SIGSTOP, "it has stood still for 10s, and was killed"}} {
		if c.signal == syscall.SIGSTOP && testing.Short() {
			continue
		}
		p, members := newJoint(t, "1").bench(t, 3, "--duration", "1h")
		time.Sleep(time.Second) // they measure by then, most likely
		kill(t, members[len(members)-1], c.signal)
		if code := p.end(t); code != 1 || !strings.Contains(p.err.String(), " of the benchmark: "+c.says) {
			t.Errorf("%v: exit code %d, %s%s", c.signal, code, p.out.String(), p.err.String())
		}
	}
}

// TestBenchLeaderDies: when the first process is killed, the others end, too.
func TestBenchLeaderDies(t *testing.T) {
	p, members := newJoint(t, "1").bench(t, 2, "--duration", "1h")
	time.Sleep(time.Second)
	kill(t, p.Process.Pid, syscall.SIGKILL)
	p.end(t)
	for _, pid := range members {
		for { // with the test, if it does not end
			line, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
			if err != nil || len(line) == 0 { // or nothing has waited for it yet
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// TestBenchBladeDies: the processes of a benchmark measure on when a blade is lost that has copies
// elsewhere, and the books balance. If it was the only one, each says so.
func TestBenchBladeDies(t *testing.T) {
	for i := range 2 {
		j := newJoint(t, "1")
		p, _ := j.bench(t, 2, "--duration", "4s")
		time.Sleep(time.Second)
		kill(t, j.blades[i].Process.Pid, syscall.SIGKILL)
		if code := p.end(t); code != 0 || !strings.Contains(p.out.String(), "money is conserved") ||
			!strings.Contains(p.out.String(), "was lost meanwhile") {
			t.Errorf("blade %d: exit code %d, %s%s", i, code, p.out.String(), p.err.String())
		}
	}
	j := newJoint(t, "0")
	p, _ := j.bench(t, 2, "--duration", "1h")
	time.Sleep(time.Second)
	kill(t, j.blades[1].Process.Pid, syscall.SIGKILL)
	if code := p.end(t); code != 1 || !strings.Contains(p.err.String(), "blade 1") {
		t.Errorf("exit code %d, %s%s", code, p.out.String(), p.err.String())
	}
}
