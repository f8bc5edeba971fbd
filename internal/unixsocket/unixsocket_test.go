package unixsocket_test

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"txnode/internal/unixsocket"
)

func socketPath(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "sock") //nolint:usetesting // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "s")
}

func listen(t *testing.T, path string) *unixsocket.Listener {
	t.Helper()
	l, err := unixsocket.Listen("unix", path, 0o640)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestClose: a listener removes its own socket, and none that another one has made in its place.
func TestClose(t *testing.T) {
	path := socketPath(t)
	first := listen(t, path)
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o640 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	second := listen(t, path)
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatalf("the second socket, after the end of the first: %v", err)
	}
	c.Close()
	if err := second.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("its own socket is left: %v", err)
	}
}

// TestListenInPlace: a socket that nothing serves is replaced; one that is served, and what
// is no socket, stay.
func TestListenInPlace(t *testing.T) {
	path := socketPath(t)
	left, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	left.SetUnlinkOnClose(false)
	left.Close()
	l := listen(t, path)
	if _, err := unixsocket.Listen("unix", path, 0o600); err == nil ||
		!strings.Contains(err.Error(), "another process serves it") {
		t.Errorf("beside another one: %v", err)
	}
	l.Close()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := unixsocket.Listen("unix", path, 0o600); err == nil || !strings.Contains(err.Error(), "no socket") {
		t.Errorf("in the place of a file: %v", err)
	}
}

// TestListenTogether: of many that find a socket which was left, one gets its place, and can be
// reached.
func TestListenTogether(t *testing.T) {
	path := socketPath(t)
	for range 20 {
		left, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		left.SetUnlinkOnClose(false)
		left.Close()
		var mu sync.Mutex
		var got []*unixsocket.Listener
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				if l, err := unixsocket.Listen("unix", path, 0o600); err == nil {
					mu.Lock()
					got = append(got, l)
					mu.Unlock()
				}
			})
		}
		all.Wait()
		c, err := net.Dial("unix", path)
		if err != nil || len(got) != 1 {
			t.Fatalf("%d listen, and connecting: %v", len(got), err)
		}
		c.Close()
		got[0].Close()
	}
}
