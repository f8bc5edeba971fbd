package shm_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"txnode/rdma"
	"txnode/rdma/region"
	"txnode/rdma/shm"
)

// roleEnv has the test program be another process: "serve DIR NAME BLADES SIZE [PATIENCE]", "blind
// DIR NAME BLADES SIZE [PATIENCE]", which is a server without /proc, or a role of clients.
const roleEnv = "TXNODE_SHM_ROLE"

// init has TestMain on the first thread of the process: see the role "headless".
func init() { runtime.LockOSThread() }

func TestMain(m *testing.M) {
	if role := os.Getenv(roleEnv); role != "" {
		if err := play(strings.Fields(role)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// play is the other process: it prints a line when it is ready, and goes on until its input ends.
func play(role []string) error {
	if role[0] != "serve" && role[0] != "blind" && role[0] != "bench" {
		return playClient(role)
	}
	n, err := strconv.Atoi(role[3])
	if err != nil {
		return err
	}
	if role[0] == "bench" {
		part, err := strconv.ParseUint(role[2], 10, 64)
		return errors.Join(err, playBench(role[1], part, n))
	}
	size, err := strconv.ParseUint(role[4], 10, 64)
	if err != nil {
		return err
	}
	wait := patience
	if len(role) > 5 {
		if wait, err = time.ParseDuration(role[5]); err != nil {
			return err
		}
	}
	s, err := shm.NewServer(role[1], shm.ServerOptions{
		Name: role[2], Blades: regions(n, size), Seed: 1, Patience: wait,
	})
	if err != nil {
		return err
	}
	if role[0] == "blind" {
		if err := unix.Mount("none", "/proc", "tmpfs", 0, ""); err != nil {
			return err
		}
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve() }()
	fmt.Println("ready")
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	if err := s.Close(); err != nil {
		return err
	}
	return <-served
}

// playClient is "loop DIR", which writes for ever, "stop DIR", which stops in the middle of a
// batch, or "slow DIR", which is in the middle of one until it reads a line. "headless DIR" is
// that, and its first thread has ended.
func playClient(role []string) error {
	f, err := shm.Dial(context.Background(), role[1], shm.Options{})
	if err != nil {
		return err
	}
	t, err := rdma.NewThread(f, rdma.ThreadOptions{})
	if err != nil {
		return err
	}
	var b rdma.Batch
	place := rdma.RemoteAddr{Key: f.Blades()[0].Key, Off: 4096}
	batch := func() error {
		b.Reset()
		for i := range 32 {
			b.FAA(place, 1)
			b.Write(rdma.RemoteAddr{Key: place.Key, Off: 8192 + uint64(i)*64}, 0, 64)
		}
		return t.Plain().Do(&b)
	}
	if role[0] == "stop" {
		fmt.Println("ready")
		shm.Interrupted(f, func() {
			_ = unix.Kill(os.Getpid(), unix.SIGSTOP)
			time.Sleep(time.Hour)
		})
		return nil
	}
	if role[0] == "slow" || role[0] == "headless" {
		slow := func() {
			shm.Interrupted(f, func() {
				fmt.Println("ready")
				_, _ = bufio.NewReader(os.Stdin).ReadString('\n') // it may be killed
			})
			time.Sleep(time.Hour) // it is killed
		}
		if role[0] == "headless" {
			go slow()
			_, _, errno := unix.Syscall(unix.SYS_EXIT, 0, 0, 0) // of this thread alone
			return errno
		}
		slow()
	}
	if err := batch(); err != nil {
		return err
	}
	fmt.Println("ready")
	for {
		if err := batch(); err != nil {
			fmt.Println(err)
			time.Sleep(time.Hour) // it is killed
		}
	}
}

// patience is that of servers in tests that are not about it: the machine may be busy.
const patience = 30 * time.Second

// regions are n writable blades of size bytes.
func regions(n int, size uint64) []region.Options {
	all := make([]region.Options, n)
	for i := range all {
		all[i] = region.Options{Size: size, Key: rdma.Key(100 + i)}
	}
	return all
}

// directory is one that is short enough for sockets, on memory.
func directory(tb testing.TB) string {
	tb.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "txnode") //nolint:usetesting // tb.TempDir is too long for a socket
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// serve has a server of this process until the test ends.
func serve(tb testing.TB, dir string, o shm.ServerOptions) *shm.Server {
	tb.Helper()
	if o.Name == "" {
		o.Name = "a"
	}
	if o.Patience == 0 {
		o.Patience = patience
	}
	s, err := shm.NewServer(dir, o)
	if err != nil {
		tb.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve() }()
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
		if err := <-served; err != nil {
			tb.Error(err)
		}
	})
	return s
}

// dial connects to the servers of a directory.
func dial(tb testing.TB, dir string, o shm.Options) *shm.Fabric {
	tb.Helper()
	f, err := shm.Dial(tb.Context(), dir, o)
	if err != nil {
		tb.Fatal(err)
	}
	return f
}

// process is another process of this program.
type process struct {
	cmd    *exec.Cmd
	input  io.WriteCloser
	output *bufio.Reader
	waited bool
}

// spawn starts another process in a role, waits until it is ready, and ends it with the test.
func spawn(tb testing.TB, role ...any) *process {
	tb.Helper()
	return spawnIn(tb, nil, role...)
}

// spawnIn is spawn for a process that begins in other name spaces.
func spawnIn(tb testing.TB, spaces *syscall.SysProcAttr, role ...any) *process {
	tb.Helper()
	p := &process{cmd: exec.Command(os.Args[0])}
	p.cmd.SysProcAttr = spaces
	p.cmd.Env = append(os.Environ(), roleEnv+"="+strings.TrimSpace(fmt.Sprintln(role...)))
	p.cmd.Stderr = os.Stderr
	input, err := p.cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	p.input = input
	output, err := p.cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	p.output = bufio.NewReader(output)
	if err := p.cmd.Start(); spaces != nil && errors.Is(err, unix.EPERM) {
		tb.Skipf("no other name spaces: %v", err)
	} else if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		_ = p.input.Close() // killed processes have closed it
		if !p.waited && role[0] != "serve" && role[0] != "blind" {
			_ = p.cmd.Process.Kill() // it may have ended
		}
		err := p.wait()
		if err == nil {
			return
		}
		if s, ok := p.cmd.ProcessState.Sys().(interface{ Signaled() bool }); !ok || !s.Signaled() {
			tb.Errorf("the other process: %v", err)
		}
	})
	if line, err := p.output.ReadString('\n'); err != nil {
		tb.Fatalf("the other process says %q: %v", line, err)
	}
	return p
}

func (p *process) wait() error {
	if p.waited {
		return nil
	}
	p.waited = true
	return p.cmd.Wait()
}

// kill ends the process at once, as a crash does, and waits for it.
func (p *process) kill(tb testing.TB) {
	tb.Helper()
	if err := p.cmd.Process.Signal(unix.SIGKILL); err != nil {
		tb.Fatal(err)
	}
	_ = p.wait() // it was killed
}

// stopped waits until the process has stopped itself.
func (p *process) stopped(tb testing.TB) {
	tb.Helper()
	for {
		state, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
		if err != nil {
			tb.Fatal(err)
		}
		if strings.Contains(string(state), ") T ") {
			return
		}
		time.Sleep(time.Millisecond)
	}
}
