package command_test

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"txnode/rdma/tcp"
)

// process is a daemon in a process of its own.
type process struct {
	cmd  *exec.Cmd
	line string // what it has said
}

// serveTo starts txnode serve in a process of its own, whose log goes to a file.
func serveTo(t *testing.T, log *os.File, args ...string) *process {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{cmd: exec.Command(path, append([]string{"serve"}, args...)...)}
	p.cmd.Env = append(os.Environ(), asProgram+"=1")
	p.cmd.Stderr = log
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.cmd.Process.Kill() })
	if p.line, err = bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("it does not begin: %v", err)
	}
	return p
}

// end interrupts the daemon, and returns how it has ended.
func (p *process) end(t *testing.T) string {
	t.Helper()
	if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	_ = p.cmd.Wait() // which says what String says
	return p.cmd.ProcessState.String()
}

// TestServeLogOfNobody: a daemon whose log nobody reads, or can be written no more, serves on, lets
// go of the clients that it refuses, and ends when it is asked to.
func TestServeLogOfNobody(t *testing.T) {
	for _, closed := range []bool{false, true} {
		name := "full"
		if closed {
			name = "closed"
		}
		t.Run(name, func(t *testing.T) {
			dir := socketDir(t)
			secret := filepath.Join(dir, "secret")
			if err := os.WriteFile(secret, []byte("correct horse battery staple\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			if !closed { // nothing more fits
				fd := int(w.Fd()) // which has it block
				if err := unix.SetNonblock(fd, true); err != nil {
					t.Fatal(err)
				}
				for err = nil; err == nil; _, err = unix.Write(fd, make([]byte, 512)) {
				}
				if !errors.Is(err, unix.EAGAIN) {
					t.Fatal(err)
				}
				if err := unix.SetNonblock(fd, false); err != nil {
					t.Fatal(err)
				}
			}
			listen := "unix:" + filepath.Join(dir, "s")
			d := serveTo(t, w, "--listen", listen, "--memory", "1MiB", "--secret-file", secret, "--connections", "4")
			w.Close()
			if closed {
				if line, err := bufio.NewReader(r).ReadString('\n'); err != nil || !strings.Contains(line, "serving") {
					t.Fatalf("%q, %v", line, err)
				}
				r.Close()
			}
			for range 40 { // each is a line of the log; 16 at a time may be about to prove that they may connect
				if _, err := tcp.Dial(t.Context(), []string{listen},
					tcp.Options{Secret: []byte("not the secret of it")}); !errors.Is(err, tcp.ErrRefused) {
					t.Fatalf("a client without the secret: %v", err)
				}
			}
			f, err := tcp.Dial(t.Context(), []string{listen},
				tcp.Options{Secret: []byte("correct horse battery staple")})
			if err != nil {
				t.Fatal(err)
			}
			if err := f.Close(); err != nil {
				t.Error(err)
			}
			if how := d.end(t); how != "exit status 0" {
				t.Errorf("it ends by %s", how)
			}
		})
	}
}
