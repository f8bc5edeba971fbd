package shm_test

import (
	"encoding/binary"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"txnode/rdma"
	"txnode/rdma/region"
	"txnode/rdma/shm"
)

// TestFilesOfDeadServer: before a new server of the name uses anything, the blades of the dead one
// are stopped, for clients that have not noticed.
func TestFilesOfDeadServer(t *testing.T) {
	dir := directory(t)
	p := spawn(t, "serve", dir, "a", 2, 1<<20)
	keys, err := os.Open(filepath.Join(dir, "a.keys"))
	if err != nil {
		t.Fatal(err)
	}
	defer keys.Close()
	p.kill(t)
	serve(t, dir, shm.ServerOptions{Blades: regions(1, 1<<20)})
	for i := range 2 {
		var word [8]byte
		if _, err := keys.ReadAt(word[:], 4096+int64(i)*region.WordsSize); err != nil ||
			binary.LittleEndian.Uint64(word[:])>>32 != 1 {
			t.Errorf("blade %d of the dead server: its control word is %x, %v; want it stopped", i, word, err)
		}
	}
}

// TestSocketRemoved: a server that cannot be reached has not ended. Its blades serve, and calls say
// that it is silent.
func TestSocketRemoved(t *testing.T) {
	dir := directory(t)
	serve(t, dir, shm.ServerOptions{Blades: regions(1, 1<<20)})
	f := dial(t, dir, shm.Options{Control: 50 * time.Millisecond})
	defer f.Close()
	if err := os.Remove(filepath.Join(dir, "a.sock")); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Grant(0); !errors.Is(err, rdma.ErrSilent) {
		t.Errorf("Grant: %v", err)
	}
	if f.Stopped() {
		t.Error("the blades of a server that lives are stopped")
	}
}

// TestLanesRemoved: processes that do not use the same file of lanes do not use the same blades.
func TestLanesRemoved(t *testing.T) {
	dir := directory(t)
	serve(t, dir, shm.ServerOptions{Blades: regions(1, 1<<20)})
	if err := os.Remove(filepath.Join(dir, "lanes")); err != nil {
		t.Fatal(err)
	}
	if _, err := shm.Dial(t.Context(), dir, shm.Options{}); !errors.Is(err, shm.ErrDirectory) {
		t.Errorf("Dial: %v", err)
	}
	serve(t, dir, shm.ServerOptions{Name: "b", Blades: regions(1, 1<<20)})
	if _, err := shm.Dial(t.Context(), dir, shm.Options{}); !errors.Is(err, shm.ErrDirectory) ||
		!strings.Contains(err.Error(), "was removed") {
		t.Errorf("Dial of servers with different files: %v", err)
	}
	if _, err := shm.NewServer(dir, shm.ServerOptions{Name: "a", Blades: regions(1, 1<<20)}); !errors.Is(err,
		shm.ErrDirectory) {
		t.Errorf("a second server of the name: %v", err)
	}
}

// TestStrangersDirectory: neither a server nor a client uses a directory that other users may write
// to, or files in it that are not what they should be.
func TestStrangersDirectory(t *testing.T) {
	dir := directory(t)
	both := func(want string) {
		t.Helper()
		_, err := shm.Dial(t.Context(), dir, shm.Options{Servers: []string{"b"}})
		s, failed := shm.NewServer(dir, shm.ServerOptions{Name: "b", Blades: regions(1, 1<<20)})
		if failed == nil {
			_ = s.Close()
		}
		for _, err := range []error{err, failed} {
			if !errors.Is(err, shm.ErrDirectory) || !strings.Contains(err.Error(), want) {
				t.Errorf("%v; want %q", err, want)
			}
		}
	}
	serve(t, dir, shm.ServerOptions{Blades: regions(1, 1<<20)})
	all, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		if st, err := e.Info(); err != nil || st.Mode()&0o077 != 0 {
			t.Errorf("%s has mode %v, %v", e.Name(), st.Mode(), err)
		}
	}
	for _, mode := range []os.FileMode{0o777 | os.ModeSticky, 0o770} {
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		both("chmod 700")
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	lanes := filepath.Join(dir, "lanes")
	if err := errors.Join(os.Rename(lanes, lanes+".real"), os.Symlink(lanes+".real", lanes)); err != nil {
		t.Fatal(err)
	}
	both("too many levels of symbolic links")
	if err := errors.Join(os.Remove(lanes), unix.Mkfifo(lanes, 0o600)); err != nil {
		t.Fatal(err)
	}
	both("no regular file")
	if os.Geteuid() == 0 {
		if err := os.Chown(dir, 65534, -1); err != nil {
			t.Fatal(err)
		}
		if _, err := shm.NewServer(dir, shm.ServerOptions{Name: "b", Blades: regions(1, 1<<20)}); !errors.Is(err,
			shm.ErrDirectory) || !strings.Contains(err.Error(), "user 65534") {
			t.Errorf("a server in the directory of another user: %v", err)
		}
	}
}

// TestConnections: beyond its limit a server refuses connections, and does not keep those that do
// not listen to that.
func TestConnections(t *testing.T) {
	dir := directory(t)
	serve(t, dir, shm.ServerOptions{Blades: regions(1, 1<<20), Connections: 2})
	f := dial(t, dir, shm.Options{})
	defer f.Close()
	if _, err := f.Grant(0); err != nil { // a second connection
		t.Fatal(err)
	}
	if _, err := shm.Dial(t.Context(), dir, shm.Options{}); !errors.Is(err, shm.ErrRefused) ||
		errors.Is(err, rdma.ErrBladeDown) {
		t.Errorf("a connection too many: %v", err)
	}
	var all []net.Conn
	for range shm.MaxRefused + 2 {
		c, err := net.Dial("unixpacket", filepath.Join(dir, "a.sock"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		all = append(all, c)
	}
	if n, err := all[len(all)-1].Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("one that says nothing, beyond all: %d, %v; want its end", n, err)
	}
	if _, err := f.Grant(0); err != nil {
		t.Errorf("Grant beside them: %v", err)
	}
}

// TestNotForked: a child that is forked has neither the memory of blades nor lanes and keys.
func TestNotForked(t *testing.T) {
	dir := directory(t)
	serve(t, dir, shm.ServerOptions{Blades: regions(1, 1<<20)})
	connect(t, dir)
	maps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Skip(err)
	}
	n, of := 0, ""
	for line := range strings.Lines(string(maps)) {
		if strings.Contains(line, dir) || strings.Contains(line, "txnode blade") {
			of = line
		}
		if flags, ok := strings.CutPrefix(line, "VmFlags:"); ok && of != "" {
			if n++; !slices.Contains(strings.Fields(flags), "dc") {
				t.Errorf("a child that is forked has %s", of)
			}
			of = ""
		}
	}
	if n < 6 { // lanes, keys and memory, of both sides
		t.Errorf("%d mappings; want 6 or more", n)
	}
}

// TestLinesOfBefore: lines of processes that have all ended are free for a server, whatever they
// announce, and however the system has ended.
func TestLinesOfBefore(t *testing.T) {
	dir := directory(t)
	p := make([]byte, shm.LanesSize)
	binary.LittleEndian.PutUint64(p, 0x73656e616c2e7874)
	p[8], p[17], p[24] = shm.Version, 4096>>8, 1
	p[40] = 1
	p[4096+7] = 1 << 4 // a member has the first line
	p[4096+8] = 1      // in the middle of a batch
	if err := os.WriteFile(filepath.Join(dir, "lanes"), p, 0o600); err != nil {
		t.Fatal(err)
	}
	serve(t, dir, shm.ServerOptions{Blades: regions(1, 1<<20)})
	c := connect(t, dir)
	if n := c.f.Lanes(); n != 1 {
		t.Errorf("%d lanes are taken; want 1", n)
	}
}
