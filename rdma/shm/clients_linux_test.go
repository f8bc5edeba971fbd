package shm_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"txnode/rdma"
	"txnode/rdma/shm"
)

// TestClientStopped: a client that is stopped in the middle of a batch gives no sign of life. The
// server ends it, says so, and Revoke returns when it has ended.
func TestClientStopped(t *testing.T) {
	dir := directory(t)
	said := make(chan error, 8)
	serve(t, dir, shm.ServerOptions{
		Blades: regions(1, 1<<20), Patience: 100 * time.Millisecond, Report: func(err error) { said <- err },
	})
	c := connect(t, dir)
	p := spawn(t, "stop", dir)
	p.stopped(t)
	c.rekey(t)
	var ws unix.WaitStatus
	pid, err := unix.Wait4(p.cmd.Process.Pid, &ws, unix.WNOHANG, nil)
	// its lock is free already, and it executes nothing: the system is about to say that it has
	// ended
	for pid == 0 && err == nil {
		if stat, e := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid)); e != nil ||
			strings.Contains(string(stat), ") T ") {
			t.Fatalf("the client that was stopped is there still: %q, %v", stat, e)
		}
		time.Sleep(time.Millisecond)
		pid, err = unix.Wait4(p.cmd.Process.Pid, &ws, unix.WNOHANG, nil)
	}
	p.waited = pid == p.cmd.Process.Pid
	if err != nil || pid != p.cmd.Process.Pid || !ws.Signaled() || ws.Signal() != unix.SIGKILL {
		t.Fatalf("the client that was stopped: %d, %#x, %v; want SIGKILL", pid, ws, err)
	}
	if c.f.Lanes() != 1 {
		t.Errorf("%d lanes are taken; want 1", c.f.Lanes())
	}
	var ended *shm.KilledError
	if err := <-said; !errors.As(err, &ended) || ended.Process != pid || ended.User != uint32(os.Geteuid()) ||
		ended.Silent < 100*time.Millisecond {
		t.Errorf("the server reports %v", err)
	}
}

// TestSlowClient: a client that lives, and is in the middle of a batch for longer than the
// patience, is not ended. Revoke waits, and fails with ErrStuck when its time is over. It succeeds
// once the batch has ended. So it is with one whose first thread has ended, which the system lists
// as a process that is no more.
func TestSlowClient(t *testing.T) {
	for _, role := range []string{"slow", "headless"} {
		t.Run(role, func(t *testing.T) {
			t.Parallel() // they wait
			dir := directory(t)
			said := make(chan error, 8)
			s := serve(t, dir, shm.ServerOptions{
				Blades: regions(1, 1<<20), Patience: 2 * time.Second, Report: func(err error) { said <- err },
			})
			p := spawn(t, role, dir)
			f := dial(t, dir, shm.Options{})
			defer f.Close()
			k, err := f.Grant(0)
			if err != nil {
				t.Fatal(err)
			}
			err = f.Revoke(0, k)
			if !errors.Is(err, shm.ErrStuck) || !errors.Is(err, rdma.ErrUnfenced) ||
				errors.Is(err, rdma.ErrBladeDown) ||
				!strings.Contains(err.Error(), fmt.Sprint("process ", p.cmd.Process.Pid)) {
				t.Fatalf("Revoke beside a client in the middle of a batch: %v", err)
			}
			if err := <-said; !errors.Is(err, shm.ErrStuck) {
				t.Errorf("the server reports %v", err)
			}
			if n := s.Clients(); n != 2 {
				t.Errorf("the server knows %d clients; want 2", n)
			}
			if _, err := fmt.Fprintln(p.input); err != nil {
				t.Fatal(err)
			}
			for err = f.Revoke(0, k); errors.Is(err, shm.ErrStuck); {
				err = f.Revoke(0, k)
			}
			if err != nil {
				t.Errorf("Revoke when the batch has ended: %v", err)
			}
		})
	}
}

// TestUnseenClient: a fence waits for a client that the server does not see: it has no /proc, or is
// in another name space of process ids. A server that may not end such a client says so.
func TestUnseenClient(t *testing.T) {
	spaces := func(flags uintptr) *syscall.SysProcAttr {
		root := func(id int) []syscall.SysProcIDMap { return []syscall.SysProcIDMap{{HostID: id, Size: 1}} }
		return &syscall.SysProcAttr{
			Cloneflags:  flags | unix.CLONE_NEWUSER | unix.CLONE_NEWNS,
			UidMappings: root(os.Getuid()), GidMappings: root(os.Getgid()),
		}
	}
	for name, x := range map[string]struct {
		flags uintptr
		role  string
	}{
		"no proc":    {0, "slow"},
		"name space": {unix.CLONE_NEWPID, "slow"},
		"stopped":    {unix.CLONE_NEWPID, "stop"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := directory(t)
			spawnIn(t, spaces(x.flags), "blind", dir, "a", 1, 1<<20, "2s")
			p := spawn(t, x.role, dir)
			if x.role == "stop" {
				p.stopped(t)
			}
			f := dial(t, dir, shm.Options{})
			defer f.Close()
			k, err := f.Grant(0)
			if err != nil {
				t.Fatal(err)
			}
			if err := f.Revoke(0, k); !errors.Is(err, shm.ErrStuck) ||
				strings.Contains(err.Error(), "cannot be killed") != (x.role == "stop") {
				t.Errorf("Revoke beside a client in the middle of a batch: %v", err)
			}
			if err := p.cmd.Process.Signal(unix.Signal(0)); err != nil {
				t.Errorf("the client: %v", err)
			}
			p.kill(t)
			for err = f.Revoke(0, k); errors.Is(err, shm.ErrStuck); {
				err = f.Revoke(0, k)
			}
			if err != nil {
				t.Errorf("Revoke when the client has ended: %v", err)
			}
		})
	}
}

// TestOwnThreadStuck: a fence does not kill its own process. It returns an error, and other
// calls go on meanwhile.
func TestOwnThreadStuck(t *testing.T) {
	dir := directory(t)
	s := serve(t, dir, shm.ServerOptions{Blades: regions(1, 1<<20), Patience: time.Millisecond})
	c := connect(t, dir)
	shm.Interrupted(c.f, func() {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		k, err := s.Set().Grant(0)
		if err != nil {
			t.Fatal(err)
		}
		fenced := make(chan error, 1)
		go func() { fenced <- s.Set().RevokeContext(ctx, 0, k) }()
		for c.f.Blades()[0].Key != k { // it has ended the keys, and waits
			time.Sleep(time.Millisecond)
		}
		if _, err := c.f.Grant(0); err != nil || ctx.Err() != nil {
			t.Errorf("Grant while a fence waits: %v, %v", err, ctx.Err())
		}
		if err := <-fenced; !errors.Is(err, shm.ErrStuck) || errors.Is(err, rdma.ErrBladeDown) {
			t.Errorf("Revoke: %v", err)
		}
	})
	c.rekey(t)
}

// TestOtherMember: a fence waits for no line of a member that has ended, and takes no line of one
// that lives. What a line says of processes harms none: a server ends its own clients alone.
func TestOtherMember(t *testing.T) {
	dir := directory(t)
	serve(t, dir, shm.ServerOptions{Blades: regions(1, 1<<20), Patience: time.Millisecond})
	c := connect(t, dir)
	victim := spawn(t, "loop", dir).cmd.Process
	m, end, err := shm.Join(dir)
	if err != nil {
		t.Fatal(err)
	}
	gone, over, err := shm.Join(dir)
	if err == nil {
		err = over()
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		name       string
		member     uint64
		odd        bool
		taken, err bool
	}{
		{"lives", m, false, true, false},
		{"lives, in the middle of a batch", m, true, true, true},
		{"has ended", gone, false, false, false},
		{"has ended, in the middle of a batch", gone, true, false, false},
		{"is none", uint64(victim.Pid), true, false, false},
	} {
		c.f.Claim(x.member, victim.Pid, x.odd)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		err := c.f.Settle(ctx)
		cancel()
		if errors.Is(err, shm.ErrStuck) != x.err || err != nil != x.err {
			t.Errorf("the member %s: the fence of a client: %v", x.name, err)
		}
		if k, err := c.f.Grant(0); err != nil {
			t.Fatal(err)
		} else if x.err { // so does the fence of a server
			f := dial(t, dir, shm.Options{Control: 200 * time.Millisecond})
			if err := f.Revoke(0, k); !errors.Is(err, shm.ErrStuck) {
				t.Errorf("the member %s: the fence of the server: %v", x.name, err)
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if c.f.Claimed() != x.taken {
			t.Errorf("the member %s: its line is taken: %v", x.name, c.f.Claimed())
		}
		if err := victim.Signal(unix.Signal(0)); err != nil {
			t.Fatalf("the member %s: the process that its line names: %v", x.name, err)
		}
	}
	if err := end(); err != nil {
		t.Fatal(err)
	}
}

// TestStoppedClientOfDeadServer: while a client of a dead server is in the middle of a verb, no
// call says that the blade is down, and no server of the name begins. None of them ends it.
func TestStoppedClientOfDeadServer(t *testing.T) {
	dir := directory(t)
	s := spawn(t, "serve", dir, "a", 1, 1<<20)
	p := spawn(t, "stop", dir)
	p.stopped(t)
	f := dial(t, dir, shm.Options{Control: 200 * time.Millisecond})
	defer f.Close()
	s.kill(t)
	if _, err := f.Grant(0); !errors.Is(err, shm.ErrStuck) || errors.Is(err, rdma.ErrBladeDown) {
		t.Errorf("Grant: %v", err)
	}
	o := shm.ServerOptions{Name: "a", Blades: regions(1, 1<<20), Patience: time.Millisecond}
	defer shm.SetKillWait(10 * time.Millisecond)()
	if next, err := shm.NewServer(dir, o); !errors.Is(err, shm.ErrStuck) {
		t.Errorf("NewServer: %v", err)
		if err == nil {
			_ = next.Close()
		}
	}
	if err := p.cmd.Process.Signal(unix.Signal(0)); err != nil {
		t.Errorf("the client: %v", err)
	}
	p.kill(t)
	if _, err := f.Grant(0); !errors.Is(err, rdma.ErrBladeDown) || errors.Is(err, rdma.ErrSilent) {
		t.Errorf("Grant when the client has ended: %v", err)
	}
	serve(t, dir, o)
}
