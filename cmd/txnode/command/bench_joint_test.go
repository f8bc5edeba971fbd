package command_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"txnode/cmd/txnode/command"
)

// TestInterruptMembers: an interruption while the processes of a benchmark start is one, although
// they end before they can report.
func TestInterruptMembers(t *testing.T) {
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	const at = 2 // the members that have been made: the first of them gets the signal before it handles it
	ctx, cancel := context.WithCancel(t.Context())
	var out, errs bytes.Buffer
	w := command.System()
	w.Stdout, w.Stderr, w.StdoutTerminal, w.StderrTerminal = &out, &errs, false, false
	made := 0
	w.Self = func(args ...string) *exec.Cmd {
		if slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, "--member=") }) {
			if made++; made == at {
				cancel()
			}
		}
		c := exec.Command(path, args...)
		c.Env = append(os.Environ(), asProgram+"=1")
		return c
	}
	code := command.Main(ctx, w, []string{
		"bench", "smallbank", "--processes", "2", "--fabric", "unix", "--blades", "1", "--replicas", "0",
		"--blade-size", "64MiB", "--accounts", "100", "--hot-accounts", "10",
		"--threads", "1", "--coroutines", "1", "--duration", "5m", "--no-save",
	})
	if code != command.ExitInterrupted || out.Len() > 0 || strings.Count(errs.String(), "\n") != 1 {
		t.Errorf("interrupted at member %d: exit code %d, %s%s", at, code, out.String(), errs.String())
	}
	cancel()
}
