package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// asProgram makes the test binary the program itself.
const asProgram = "TXNODE_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	join()
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	for env, run := range map[string]func(args string) error{asWriter: runWriter, asMember: runMember} {
		if args := os.Getenv(env); args != "" {
			if err := run(args); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			return
		}
	}
	os.Exit(m.Run())
}

// program is a process of txnode.
type program struct {
	*exec.Cmd
	out, err bytes.Buffer
}

func start(t testing.TB, args ...string) *program {
	t.Helper()
	p := &program{Cmd: exec.Command(os.Args[0], args...)}
	p.Env = append(os.Environ(), asProgram+"=1", "TXNODE_HISTORY="+filepath.Join(t.TempDir(), "history.db"))
	p.Stdout, p.Stderr = &p.out, &p.err
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Process.Kill() })
	return p
}

// end waits for the process and returns its exit code; -1 if a signal ended it.
func (p *program) end(t testing.TB) int {
	t.Helper()
	var exit *exec.ExitError
	if err := p.Wait(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return p.ProcessState.ExitCode()
}

// bench is a benchmark without end on a directory.
func bench(t *testing.T, dir string, more ...string) *program {
	t.Helper()
	return start(t, append([]string{
		"bench", "smallbank", "--dir", dir, "--accounts", "500", "--warmup", "1ms", "--duration", "1h", "--no-save",
	}, more...)...)
}

// TestOneDirectoryManyProcesses: a directory is used by one process at a time; it
// is whole after the process was interrupted, which prints what it has measured;
// it is whole after the process was killed, and has its accounts again.
func TestOneDirectoryManyProcesses(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "bank")
	// How long loading takes depends on the machine: interrupted too early, there is
	// nothing to print yet, and the next run begins with less to do.
	for delay := 200 * time.Millisecond; ; delay *= 2 {
		first := bench(t, dir)
		for !exists(filepath.Join(dir, "blade-001.region")) {
			time.Sleep(time.Millisecond)
		}
		time.Sleep(delay)
		second := bench(t, dir)
		if code := second.end(t); code != 1 || strings.Count(second.err.String(), "\n") != 1 ||
			!strings.Contains(second.err.String(), "in use") {
			t.Fatalf("a second process: exit code %d, %q", code, second.err.String())
		}
		if err := first.Process.Signal(syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
		if code := first.end(t); code != 130 || !strings.HasPrefix(first.err.String(), "txnode: interrupted") ||
			strings.Count(first.err.String(), "\n") != 1 {
			t.Fatalf("after an interrupt: exit code %d, %q", code, first.err.String())
		}
		out := first.out.String()
		if strings.Contains(out, "interrupted: these are the results until then") &&
			strings.Contains(out, "the books balance") {
			break
		}
		if out != "" || delay > time.Minute {
			t.Fatalf("after %v:\n%s", delay, out)
		}
		if err := os.RemoveAll(dir); err != nil { // perhaps half loaded
			t.Fatal(err)
		}
	}

	killed := bench(t, dir)
	time.Sleep(300 * time.Millisecond)
	if err := killed.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	killed.end(t)
	again := bench(t, dir, "--duration", "50ms")
	if code := again.end(t); code != 0 || !strings.Contains(again.out.String(), "(found in the database)") ||
		!strings.Contains(again.out.String(), "the books balance") {
		t.Errorf("after a kill: exit code %d, %s\n%s", code, again.err.String(), again.out.String())
	}
	check := start(t, "check", dir)
	if code := check.end(t); code != 0 || !strings.Contains(check.out.String(), "no findings") {
		t.Errorf("check: exit code %d, %s\n%s", code, check.err.String(), check.out.String())
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
