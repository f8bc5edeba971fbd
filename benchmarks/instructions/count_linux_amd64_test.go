package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// spinning is the variable by which a test makes this program a child that spins.
const spinning = "INSTRUCTIONS_SPIN"

func TestMain(m *testing.M) {
	if s := os.Getenv(spinning); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			panic(err)
		}
		runtime.LockOSThread()
		fmt.Println(threadID())
		for {
			marker()
			spin(n)
		}
	}
	if len(os.Args) > 1 && os.Args[1] == "--child" {
		main()
		return
	}
	os.Exit(m.Run())
}

var spun uint64

//go:noinline
func spin(n int) {
	for range n {
		spun++
	}
}

// spinner starts a child that spins, and returns its process and the thread that spins.
func spinner(t *testing.T, n int) (cmd *exec.Cmd, tid int) {
	t.Helper()
	cmd = exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", spinning, n), "GODEBUG=asyncpreemptoff=1")
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(pipe).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	if tid, err = strconv.Atoi(strings.TrimSpace(line)); err != nil {
		t.Fatal(err)
	}
	return cmd, tid
}

// mayTrace skips a test where ptrace is forbidden.
func mayTrace(t *testing.T, err error) {
	t.Helper()
	if errors.Is(err, unix.EPERM) {
		t.Skip("ptrace is not allowed here")
	}
	if err != nil {
		t.Fatal(err)
	}
}

// counted counts n rounds of k turns in a child.
func counted(t *testing.T, k, n int, stop chan struct{}, progress func(int)) (c counts, done int) {
	t.Helper()
	err := errWaits
	for i := 0; i < tries && errors.Is(err, errWaits); i++ {
		cmd, tid := spinner(t, k)
		c, done, err = count(cmd.Process.Pid, tid, markerPC(), n, stop, progress)
	}
	mayTrace(t, err)
	return c, done
}

// spins counts what a child executes of spin in n rounds of k turns each.
func spins(t *testing.T, k, n int) function {
	t.Helper()
	told := 0
	c, done := counted(t, k, n, nil, func(done int) { told = done })
	if done != n || told != n {
		t.Fatalf("%d rounds counted and %d told of, instead of %d", done, told, n)
	}
	for _, f := range functions(c) {
		if f.name == "txnode/benchmarks/instructions.spin" {
			return f
		}
	}
	t.Fatal("spin was not counted")
	return function{}
}

// Every turn of a loop is so many instructions, and nothing is lost or counted twice.
func TestCount(t *testing.T) {
	a, b, c := spins(t, 100, 1), spins(t, 200, 1), spins(t, 300, 5)
	turn := b.instructions - a.instructions
	if turn%100 != 0 || turn == 0 || b.instructions < a.instructions {
		t.Errorf("100 turns more are %d instructions more", turn)
	}
	if want := 5 * (b.instructions + turn); c.instructions != want {
		t.Errorf("5 times 300 turns are %d instructions instead of %d", c.instructions, want)
	}
	if a.calls != 1 || c.calls != 5 {
		t.Errorf("%d and %d calls instead of 1 and 5", a.calls, c.calls)
	}
}

// Who stops early gets what was counted until then.
func TestCountStops(t *testing.T) {
	stop := make(chan struct{})
	c, done := counted(t, 10, 1000, stop, func(done int) {
		if done == 3 {
			close(stop)
		}
	})
	if calls := c[uint64(reflect.ValueOf(spin).Pointer())]; done != 3 || calls != 3 {
		t.Errorf("%d rounds, with %d calls, instead of 3", done, calls)
	}
}

func TestCountOfNobody(t *testing.T) {
	cmd, tid := spinner(t, 10)
	_, _, err := count(cmd.Process.Pid, 1, markerPC(), 1, nil, func(int) {})
	if errors.Is(err, unix.EPERM) {
		t.Skip("ptrace is not allowed here")
	}
	if err == nil || !strings.Contains(err.Error(), "no thread 1") {
		t.Errorf("thread 1 of a process with thread %d: %v", tid, err)
	}
}

// What a user runs, on both workloads and policies.
func TestCountTransactions(t *testing.T) {
	for _, o := range []options{
		{workload: "smallbank", policy: "default", warm: 100},
		{workload: "tatp", policy: "ford", typ: "UpdateLocation", warm: 100},
	} {
		t.Run(o.workload, func(t *testing.T) {
			var out, notes strings.Builder
			mayTrace(t, o.count(&out, &notes, 2, 40, ""))
			for _, part := range []string{
				"instructions a transaction, of 2", "txnode/occ\n", "txnode/rdma/region.exec", "txnode/occ.(*Tx).Begin",
			} {
				if !strings.Contains(out.String(), part) {
					t.Errorf("no %q in the report:\n%s%s", part, &out, &notes)
				}
			}
		})
	}
}
