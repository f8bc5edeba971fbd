package tcp_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"txnode/rdma/region"
	"txnode/rdma/tcp"
)

// roleEnv has the test program be something else: "serve NETWORK BLADES SIZE", "service NETWORK" or
// "echo NETWORK IN OUT".
const roleEnv = "TXNODE_TCP_ROLE"

func TestMain(m *testing.M) {
	if role := os.Getenv(roleEnv); role != "" {
		if err := play(strings.Fields(role)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// play is the other process: it prints its address and goes on until its input ends.
func play(role []string) error {
	number := func(i int) int {
		n, err := strconv.Atoi(role[i])
		if err != nil {
			panic(err)
		}
		return n
	}
	address := "127.0.0.1:0"
	if role[1] == "unix" {
		dir, err := os.MkdirTemp("", "tcp")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		address = dir + "/s"
	}
	l, err := net.Listen(role[1], address)
	if err != nil {
		return err
	}
	fmt.Printf("%s:%s\n", role[1], l.Addr())
	if role[0] == "echo" {
		go echo(l, number(2), number(3))
		_, err := io.Copy(io.Discard, os.Stdin)
		return err
	}
	var set *region.Set
	so := tcp.ServerOptions{Services: services()}
	if role[0] == "serve" {
		so.Services = nil
		if set, err = region.New(region.Config{Regions: regions(number(2), uint64(number(3))), Seed: 1}); err != nil {
			return err
		}
	}
	s, err := tcp.NewServer(set, so)
	if err != nil {
		return err
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := s.Shutdown(ctx); err != nil {
		return err
	}
	if err := <-served; err != nil || set == nil {
		return err
	}
	return set.Close()
}

// echo answers each in bytes with out bytes.
func echo(l net.Listener, in, out int) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			from, to := make([]byte, in), make([]byte, out)
			for {
				if _, err := io.ReadFull(c, from); err != nil {
					return
				}
				if _, err := c.Write(to); err != nil {
					return
				}
			}
		}()
	}
}

// process is another process of this program.
type process struct {
	addr  string
	cmd   *exec.Cmd
	input io.WriteCloser
}

// spawn starts another process in a role and ends it with the test.
func spawn(tb testing.TB, role ...any) *process {
	tb.Helper()
	p := &process{cmd: exec.Command(os.Args[0])}
	p.cmd.Env = append(os.Environ(), roleEnv+"="+strings.TrimSpace(fmt.Sprintln(role...)))
	p.cmd.Stderr = os.Stderr
	input, err := p.cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	p.input = input
	output, err := p.cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	line, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		tb.Fatalf("the other process says no address: %v", err)
	}
	p.addr = strings.TrimSpace(line)
	tb.Cleanup(func() {
		_ = p.input.Close() // killed processes have closed it
		err := p.cmd.Wait()
		if s, ok := p.cmd.ProcessState.Sys().(interface{ Signaled() bool }); err != nil && (!ok || !s.Signaled()) {
			tb.Errorf("the other process: %v", err)
		}
	})
	return p
}

// kill ends the process at once, as a crash does.
func (p *process) kill(tb testing.TB) {
	tb.Helper()
	if err := p.cmd.Process.Signal(unix.SIGKILL); err != nil {
		tb.Fatal(err)
	}
}
