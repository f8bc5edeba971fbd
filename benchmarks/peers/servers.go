package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// errNotInstalled is of a server that this machine does not have. Its store is left out.
var errNotInstalled = errors.New("not installed")

// find returns the path of a program: that of PATH, or of Debian's directories that are not in it.
func find(program, debian string) (string, error) {
	if path, err := exec.LookPath(program); err == nil {
		return path, nil
	}
	for _, dir := range []string{"/usr/lib/postgresql/*/bin", "/usr/sbin"} {
		if found, err := filepath.Glob(filepath.Join(dir, program)); err == nil && len(found) > 0 {
			return found[len(found)-1], nil
		}
	}
	return "", fmt.Errorf("%w: there is no %s in PATH (Debian: apt-get install %s)", errNotInstalled, program, debian)
}

// server is a private process, with a directory for its data and its sockets, which ends with the
// store.
type server struct {
	name string
	dir  string
	cmd  *exec.Cmd
	log  *os.File
	done chan struct{} // closed when the process has ended
}

// newServer makes the directory. Programs that refuse root run as owner then, if it is not empty.
func newServer(name, owner string) (s *server, as *syscall.Credential, err error) {
	s = &server{name: name}
	if s.dir, err = os.MkdirTemp("", "peers"); err != nil {
		return nil, nil, err
	}
	if owner != "" && os.Geteuid() == 0 {
		u, err := user.Lookup(owner)
		if err != nil {
			return nil, nil, errors.Join(fmt.Errorf("%w: %s refuses root, and there is no user %s",
				errNotInstalled, name, owner), s.close())
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		err = errors.Join(err1, err2, os.Chown(s.dir, int(uid), int(gid))) // 32 bits
		if err != nil {
			return nil, nil, errors.Join(err, s.close())
		}
		as = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	}
	return s, as, nil
}

// command is a command in the directory of the server.
func (s *server) command(as *syscall.Credential, path string, args ...string) *exec.Cmd {
	c := exec.Command(path, args...)
	c.Dir = s.dir
	c.SysProcAttr = &syscall.SysProcAttr{Credential: as, Setpgid: true} // an interrupt of the terminal is not for it
	return c
}

// start starts the server, and waits until ready returns nil.
func (s *server) start(ctx context.Context, c *exec.Cmd, ready func(ctx context.Context) error) (err error) {
	if s.log, err = os.Create(filepath.Join(s.dir, "log")); err != nil {
		return err
	}
	c.Stdout, c.Stderr = s.log, s.log
	if err := c.Start(); err != nil {
		return err
	}
	s.cmd, s.done = c, make(chan struct{})
	go func() {
		_ = c.Wait() // how it ended is in its log
		close(s.done)
	}()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		if err = ready(ctx); err == nil {
			return nil
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-s.done:
			return fmt.Errorf("%s has ended: %s", s.name, s.lastLog())
		case <-ctx.Done():
			return fmt.Errorf("%s does not answer: %w: %s", s.name, err, s.lastLog())
		}
	}
}

// lastLog is the end of what the server has said.
func (s *server) lastLog() string {
	p, err := os.ReadFile(filepath.Join(s.dir, "log"))
	if err != nil {
		return err.Error()
	}
	return string(p[max(len(p)-500, 0):])
}

// close ends the server, and removes its directory.
func (s *server) close() error {
	if s.cmd != nil {
		_ = s.cmd.Process.Signal(os.Interrupt) // it may have ended: without waiting for clients
		select {
		case <-s.done:
		case <-time.After(10 * time.Second):
			_ = s.cmd.Process.Kill()
			<-s.done
		}
	}
	var err error
	if s.log != nil {
		err = s.log.Close()
	}
	return errors.Join(err, os.RemoveAll(s.dir))
}
