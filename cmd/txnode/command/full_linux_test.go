package command_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"txnode/cmd/txnode/command"
)

// onFullDisk names the directory of the database that the test binary repairs, in a process
// to which the system gives no disk blocks.
const onFullDisk = "TXNODE_TEST_ON_FULL_DISK"

func init() { programs[onFullDisk] = replaceOnFullDisk }

// noFilter is the exit code of that process if the system cannot be told so.
const noFilter = 99

// fillDisk has every later fallocate of the process fail as on a full disk, but those that
// give blocks back, and those at the beginning of a file: region headers are there already,
// but for that of a new file, which gets the last blocks.
func fillDisk() error {
	const (
		load   = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		equal  = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		answer = unix.BPF_RET | unix.BPF_K
		number = 0          // offset in struct seccomp_data, as those of the lower halves
		mode   = 16 + 8     // of the second argument
		offset = 16 + 8 + 8 // and the third
	)
	code := []unix.SockFilter{
		{Code: load, K: number},
		{Code: equal, K: unix.SYS_FALLOCATE, Jf: 5},
		{Code: load, K: mode},
		{Code: equal, K: unix.FALLOC_FL_KEEP_SIZE, Jf: 3},
		{Code: load, K: offset},
		{Code: equal, K: 0, Jt: 1},
		{Code: answer, K: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSPC)},
		{Code: answer, K: unix.SECCOMP_RET_ALLOW},
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	program := unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]}
	failed, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC,
		uintptr(unsafe.Pointer(&program)))
	runtime.KeepAlive(code)
	switch {
	case errno != 0:
		return errno
	case failed != 0:
		return fmt.Errorf("thread %d did not follow", failed)
	}
	return nil
}

// replaceOnFullDisk is the process.
func replaceOnFullDisk(dir string) int {
	runtime.LockOSThread() // PR_SET_NO_NEW_PRIVS and the filter are of one thread, and go from it to the others
	if err := fillDisk(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return noFilter
	}
	code, err := command.ReplaceLost(context.Background(), command.World{Stdout: os.Stdout, Stderr: os.Stderr}, dir,
		200*time.Millisecond)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	return code
}

// TestReplaceLostOnFullDisk: copies of a lost region file are to be made, and there is no room
// for them. The command says why, and ends; nothing is lost, and the next one makes them.
func TestReplaceLostOnFullDisk(t *testing.T) {
	b := newBed(t)
	makeDatabase(t, b)
	dir := filepath.Join(b.dir, "data")
	if err := os.Remove(filepath.Join(dir, "blade-001.region")); err != nil {
		t.Fatal(err)
	}
	for round := range 2 { // the second one finds a blade that was given up
		var stderr bytes.Buffer
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), onFullDisk+"="+dir)
		cmd.Stderr = &stderr
		var exit *exec.ExitError
		if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		code := cmd.ProcessState.ExitCode()
		if code == noFilter {
			t.Skipf("the system does not let itself be told what to answer: %s", stderr.String())
		}
		if code != command.ExitFailure {
			t.Fatalf("round %d: exit code %d: %s", round, code, stderr.String())
		}
		for _, w := range []string{
			"copies cannot be made", "what is there is unharmed", "blade-001.region", "no space left on device",
		} {
			if !strings.Contains(stderr.String(), w) {
				t.Errorf("round %d: %q is not in %q", round, w, stderr.String())
			}
		}
		code, out, text := b.run("check", "$DIR/data")
		if code != 0 || !strings.Contains(out, "\ncopies missing: ") || !strings.Contains(out, "blocks: 3 live") {
			t.Errorf("round %d: what is left: exit code %d, %s%s", round, code, text, out)
		}
		for k := range 3 {
			whereIs(t, b, fmt.Sprint(k))
		}
	}
	code, out, stderr := b.run("check", "$DIR/data", "--replace-lost")
	if code != 0 || strings.Contains(out, "copies missing") || !strings.Contains(out, "blocks: 3 live") ||
		!strings.Contains(out, "no findings") {
		t.Fatalf("with room: exit code %d, %s%s", code, stderr, out)
	}
	if err := os.Remove(filepath.Join(dir, "blade-000.region")); err != nil { // the new one has it all
		t.Fatal(err)
	}
	if code, out, stderr = b.run("check", "$DIR/data", "--replace-lost"); code != 0 ||
		!strings.Contains(out, "blocks: 3 live") || !strings.Contains(out, "no findings") {
		t.Errorf("from the copies: exit code %d, %s%s", code, stderr, out)
	}
}
