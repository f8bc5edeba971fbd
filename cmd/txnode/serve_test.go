package main

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"txnode/rdma"
	"txnode/rdma/tcp"
)

// daemon is a process of txnode serve.
type daemon struct {
	*exec.Cmd
	line string // that it says when it serves
}

func serve(t testing.TB, args ...string) *daemon {
	t.Helper()
	d := &daemon{Cmd: exec.Command(os.Args[0], append([]string{"serve"}, args...)...)}
	d.Env = append(os.Environ(), asProgram+"=1")
	d.Stderr = os.Stderr
	out, err := d.StdoutPipe()
	if err == nil {
		err = d.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Process.Kill() })
	if d.line, err = bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	return d
}

// stop ends the process with a signal, and returns its exit code.
func (d *daemon) stop(t testing.TB, with os.Signal) int {
	t.Helper()
	if err := d.Process.Signal(with); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := d.Wait(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return d.ProcessState.ExitCode()
}

// TestServedBladesSurviveAKill: blades in files have what was written after SIGKILL, and count as
// others: other keys, another incarnation. Blades in memory are empty.
func TestServedBladesSurviveAKill(t *testing.T) {
	dir, err := os.MkdirTemp("", "serve") //nolint:usetesting // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	address := "unix:" + filepath.Join(dir, "s")
	for _, kept := range []bool{true, false} {
		args := []string{"--listen", address, "--blade", "1MiB", "--blade", "128KiB"}
		if kept {
			args = append(args, "--dir", filepath.Join(dir, "blades"))
		}
		d := serve(t, args...)
		f, err := tcp.Dial(t.Context(), []string{address}, tcp.Options{})
		if err != nil {
			t.Fatal(err)
		}
		before := f.Blades()
		words := func(f *tcp.Fabric, blades []rdma.BladeInfo, write bool) (got [2]uint64, err error) {
			t.Helper()
			th, err := rdma.NewThread(f, rdma.ThreadOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer th.Close()
			var batch rdma.Batch
			for i, b := range blades {
				at := rdma.RemoteAddr{Blade: b.ID, Key: b.Key, Off: b.Size - 8}
				if write {
					batch.FAA(at, 4711+uint64(i))
				} else {
					batch.Read(at, uint32(8*i), 8)
				}
			}
			err = th.Plain().Do(&batch)
			return [2]uint64{th.Word(0), th.Word(8)}, err
		}
		if _, err := words(f, before, true); err != nil {
			t.Fatal(err)
		}
		if code := d.stop(t, syscall.SIGKILL); code != -1 {
			t.Errorf("exit code %d", code)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		d = serve(t, args...)
		if f, err = tcp.Dial(t.Context(), []string{address}, tcp.Options{}); err != nil {
			t.Fatal(err)
		}
		after := f.Blades()
		want := [2]uint64{}
		if kept {
			want = [2]uint64{4711, 4712}
		}
		if got, err := words(f, after, false); err != nil || got != want {
			t.Errorf("kept=%v: %v, %v", kept, got, err)
		}
		for i := range after {
			if after[i].Size != before[i].Size || after[i].Incarnation <= before[i].Incarnation ||
				after[i].Key == before[i].Key {
				t.Errorf("blade %d was %+v and is %+v", i, before[i], after[i])
			}
		}
		var refused *rdma.VerbError
		if _, err := words(f, before, false); !errors.As(err, &refused) || !errors.Is(err, rdma.ErrStaleKey) {
			t.Errorf("with the keys of before: %v", err)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		if code := d.stop(t, syscall.SIGTERM); code != 0 {
			t.Errorf("kept=%v: exit code %d", kept, code)
		}
		if exists(strings.TrimPrefix(address, "unix:")) {
			t.Error("its socket is left")
		}
	}
}
