package peercred_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"

	"txnode/internal/peercred"
)

// TestUserOf: a connection of this process is its user's, and one that is closed has no user.
func TestUserOf(t *testing.T) {
	dir, err := os.MkdirTemp("", "peer") //nolint:usetesting // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "s")})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	c, err := l.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	user, err := peercred.UserOf(c)
	if peercred.Known && (err != nil || user != uint32(os.Geteuid())) || !peercred.Known &&
		!errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("user %d, %v", user, err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := peercred.UserOf(c); err == nil {
		t.Error("a closed connection has a user")
	}
}
