package command_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"txnode/cmd/txnode/command"
)

// TestLeftovers: files and directories of processes that are gone are removed by the next command,
// and not those that a process has locked, nor others.
func TestLeftovers(t *testing.T) {
	b := newBed(t)
	makeTables(t, b)
	dir := filepath.Join(b.dir, "to")
	tmp := socketDir(t)
	for _, d := range []string{
		dir, filepath.Join(tmp, "txnode-bench-blades-1", "in"),
		filepath.Join(tmp, "txnode-bench-blades-2"), filepath.Join(tmp, "txnode-bench-blades-of-mine"),
		filepath.Join(tmp, "txnode-bank"), filepath.Join(dir, "txnode-0000000d.partial"),
	} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"txnode-0000000a.partial", "txnode-0000000b.partial", "txnode-c.partial"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o400); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("txnode-c.partial", filepath.Join(dir, "txnode-0000000e.partial")); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{
		filepath.Join(dir, "txnode-0000000b.partial"), filepath.Join(tmp, "txnode-bench-blades-2"),
	} {
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			t.Fatal(err)
		}
	}
	if code, out, stderr := b.run("backup", "$DIR/data", filepath.Join(dir, "x.backup")); code != 0 {
		t.Fatalf("exit code %d, %s%s", code, out, stderr)
	}
	made, unlock, err := command.CreateDir(tmp)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Remove(made), unlock()); err != nil {
		t.Fatal(err)
	}
	for in, want := range map[string][]string{
		dir: {
			"txnode-0000000b.partial", "txnode-0000000d.partial", "txnode-0000000e.partial",
			"txnode-c.partial", "x.backup",
		},
		tmp: {"txnode-bank", "txnode-bench-blades-2", "txnode-bench-blades-of-mine"},
	} {
		all, err := os.ReadDir(in)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, e := range all {
			names = append(names, e.Name())
		}
		if !slices.Equal(names, want) {
			t.Errorf("%v, not %v", names, want)
		}
	}
	if p, err := os.ReadFile(filepath.Join(dir, "x.backup")); err != nil || bytes.Equal(p, []byte("x")) {
		t.Errorf("%d bytes, %v", len(p), err)
	}
}

// TestBladesDir: the daemons of a benchmark can lock the directory of their sockets while the
// benchmark keeps others from taking it for left, and nothing stays.
func TestBladesDir(t *testing.T) {
	tmp := socketDir(t)
	dir, end, err := command.BladesDir(tmp)
	if err != nil {
		t.Fatal(err)
	}
	d, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(d.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		t.Errorf("a daemon waits in vain: %v", err)
	}
	d.Close()
	made, unlock, err := command.CreateDir(tmp) // removes what is left
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); err != nil {
		t.Error(err)
	}
	if err := errors.Join(os.Remove(made), unlock(), end()); err != nil {
		t.Error(err)
	}
	if all, err := os.ReadDir(tmp); err != nil || len(all) > 0 {
		t.Errorf("%v are left: %v", all, err)
	}
}
