package peercred_test

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"txnode/internal/peercred"
)

// dialEnv has the test program connect to a socket, and wait to be killed.
const dialEnv = "TXNODE_PEERCRED_DIAL"

func TestMain(m *testing.M) {
	path := os.Getenv(dialEnv)
	if path == "" {
		os.Exit(m.Run())
	}
	c, err := net.Dial("unix", path)
	if err == nil {
		_, err = c.Read(make([]byte, 1))
	}
	println("the peer was not killed:", err)
	os.Exit(1)
}

// TestProcessOf: the process behind a connection is known, and can be killed, also where the system
// has no handles of peers.
func TestProcessOf(t *testing.T) {
	for name, set := range map[string]func() (restore func()){"handle": nil, "by id": peercred.WithoutPeerHandles} {
		t.Run(name, func(t *testing.T) {
			if set != nil {
				t.Cleanup(set())
			}
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
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), dialEnv+"="+l.Addr().String())
			cmd.Stderr = os.Stderr
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			c, err := l.AcceptUnix()
			if err != nil {
				t.Fatal(err)
			}
			p, err := peercred.ProcessOf(c)
			if err != nil {
				t.Fatal(err)
			}
			if p.ID != cmd.Process.Pid || p.User != uint32(os.Geteuid()) {
				t.Errorf("process %d of user %d; want %d of %d", p.ID, p.User, cmd.Process.Pid, os.Geteuid())
			}
			if err := p.Kill(); errors.Is(err, errors.ErrUnsupported) || errors.Is(err, unix.ENOSYS) {
				t.Skip(cmd.Process.Kill(), cmd.Wait())
			} else if err != nil {
				t.Error(err)
			}
			_ = cmd.Wait() // it was killed
			if s, ok := cmd.ProcessState.Sys().(interface{ Signaled() bool }); !ok || !s.Signaled() {
				t.Errorf("the process has ended so: %v", cmd.ProcessState)
			}
			if err := errors.Join(p.Kill(), p.Close()); err != nil {
				t.Errorf("a process that has ended: %v", err)
			}
			if set != nil { // by id, after its end: the connection is closed
				if q, err := peercred.ProcessOf(c); err == nil && q.Kill() == nil {
					t.Error("a process that has its id by now can be killed")
				}
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
