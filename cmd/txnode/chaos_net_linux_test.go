package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// inNetwork is the directory of a test binary that is process 1 of name spaces of its own: of
// processes, mounts and the network. When it ends, in whatever way, the kernel ends all processes
// there, and nothing is left of networks and file systems.
const inNetwork = "TXNODE_TEST_IN_NETWORK"

// noNetwork is the exit code of that process if the host cannot have such a network. What it cannot
// is on standard error.
const noNetwork = 98

// apart runs the test in name spaces of its own, and reports whether it has run there. why: it
// cannot, and this is the cause.
func apart(t *testing.T, rounds int) (why string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "chaos") //nolint:usetesting // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	// this binary
	p := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.timeout", "0", "-test.v",
		fmt.Sprintf("-test.short=%v", testing.Short()),
		"-chaos.rounds", fmt.Sprint(rounds), "-chaos.seed", fmt.Sprint(*chaosSeed),
		fmt.Sprintf("-chaos.etcd=%v", *chaosEtcd), "-chaos.faults", *chaosFaults)
	p.Env = append(os.Environ(), inNetwork+"="+dir)
	p.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWPID, Pdeathsig: syscall.SIGKILL,
	}
	if os.Geteuid() != 0 {
		p.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		p.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		p.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	var errs strings.Builder
	p.Stderr = &errs
	out, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	runtime.LockOSThread() // Pdeathsig is of the thread
	defer runtime.UnlockOSThread()
	if err := p.Start(); err != nil {
		return err.Error()
	}
	for s := bufio.NewScanner(out); s.Scan(); {
		t.Log(strings.TrimSpace(s.Text()))
	}
	err = p.Wait()
	if p.ProcessState.ExitCode() == noNetwork {
		return strings.TrimSpace(errs.String())
	}
	if err != nil {
		t.Fatalf("in name spaces of its own: %v\n%s", err, errs.String())
	}
	return ""
}

// clock is one that all processes of the host share.
func clock() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err) // there is such a clock
	}
	return t.Nano()
}

// join makes the network, if this process is the one that runs there.
func join() {
	if dir := os.Getenv(inNetwork); dir != "" && os.Getpid() == 1 {
		if err := makeNetwork(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(noNetwork)
		}
	}
}

// joined is the network that this process is in, and a directory in it; nil: it is in none of its
// own.
func joined() (network, string) {
	if dir := os.Getenv(inNetwork); dir != "" && os.Getpid() == 1 {
		return namespaces{}, dir
	}
	return nil, ""
}

// makeNetwork makes the name spaces of all nodes. This process's own has a link to each, and
// forwards packets between them.
func makeNetwork(dir string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making mounts private: %w", err)
	}
	// ip has names of name spaces in /run/netns
	for _, m := range []struct{ kind, target string }{{"proc", "/proc"}, {"tmpfs", dir}, {"tmpfs", "/run"}} {
		if err := unix.Mount(m.kind, m.target, m.kind, 0, ""); err != nil {
			return fmt.Errorf("mounting %s: %w", m.target, err)
		}
	}
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0); err != nil {
		return err
	}
	if err := ip("", "link set lo up"); err != nil {
		return err
	}
	var x namespaces
	for n := range nodes {
		if err := ip("",
			"netns add "+x.name(n),
			fmt.Sprintf("link add %s type veth peer name eth0 netns %s", x.name(n), x.name(n)),
			fmt.Sprintf("addr add %s/30 dev %s", x.router(n), x.name(n)),
			fmt.Sprintf("link set %s up", x.name(n))); err != nil {
			return err
		}
		if err := ip(x.name(n), "link set lo up", "addr add "+x.host(n)+"/30 dev eth0", "link set eth0 up",
			"route add default via "+x.router(n)); err != nil {
			return err
		}
	}
	// What faults need is tried.
	for _, begin := range []func() (heal func() error, err error){
		func() (func() error, error) { return x.cut([][2]node{{0, 1}}) },
		func() (func() error, error) { return x.slow(0, 100) },
	} {
		heal, err := begin()
		if err == nil {
			err = heal()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// ip has commands of ip executed in the name space of a name, "": this one.
func ip(name string, commands ...string) error {
	args := []string{"-batch", "-"}
	if name != "" {
		args = append([]string{"-n", name}, args...)
	}
	p := exec.Command("ip", args...)
	p.Stdin = strings.NewReader(strings.Join(commands, "\n") + "\n")
	if out, err := p.CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(commands, "; "), err, out)
	}
	return nil
}

// namespaces is a network of name spaces, one for each node.
type namespaces struct{}

// name is the name of a node's name space, and of the link to it.
func (namespaces) name(n node) string { return fmt.Sprintf("txnode%d", n) }

func (namespaces) host(n node) string   { return fmt.Sprintf("10.77.%d.2", n) }
func (namespaces) router(n node) string { return fmt.Sprintf("10.77.%d.1", n) }

func (x namespaces) inside(n node, fn func()) error {
	runtime.LockOSThread() // until it is back: after an error the thread ends with its goroutine
	own, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return err
	}
	defer own.Close()
	its, err := os.Open("/run/netns/" + x.name(n))
	if err != nil {
		return err
	}
	defer its.Close()
	if err := unix.Setns(int(its.Fd()), unix.CLONE_NEWNET); err != nil {
		return err
	}
	fn()
	if err := unix.Setns(int(own.Fd()), unix.CLONE_NEWNET); err != nil {
		return err
	}
	runtime.UnlockOSThread()
	return nil
}

func (x namespaces) cut(pairs [][2]node) (heal func() error, err error) {
	var begin, end []string
	for _, p := range pairs {
		rule := fmt.Sprintf("from %s to %s blackhole", x.host(p[0]), x.host(p[1]))
		begin, end = append(begin, "rule add "+rule), append(end, "rule del "+rule)
	}
	return func() error { return ip("", end...) }, ip("", begin...)
}

func (x namespaces) slow(n node, kbit int) (heal func() error, err error) {
	tc := func(args string) error {
		out, err := exec.Command("tc", strings.Fields(args)...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("tc %s: %w: %s", args, err, out)
		}
		return nil
	}
	in, out := "dev "+x.name(n)+" root", "dev eth0 root"
	heal = func() error {
		return errors.Join(tc("qdisc del "+in), tc("-n "+x.name(n)+" qdisc del "+out))
	}
	rate := fmt.Sprintf(" tbf rate %dkbit burst 4kb latency 1s", kbit)
	return heal, errors.Join(tc("qdisc add "+in+rate), tc("-n "+x.name(n)+" qdisc add "+out+rate))
}

func (x namespaces) ports(n node) (heal func() error, err error) {
	const of, reserved = "/proc/sys/net/ipv4/ip_local_port_range", "/proc/sys/net/ipv4/ip_local_reserved_ports"
	set := func(ports, not string) (err error) {
		return errors.Join(x.inside(n, func() {
			err = errors.Join(os.WriteFile(of, []byte(ports), 0), os.WriteFile(reserved, []byte(not), 0))
		}), err)
	}
	return func() error { return set("32768 60999", "") }, set("40000 40001", "40000-40001")
}

func (namespaces) disk(dir string, mib int) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	return unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%dm", mib))
}

func (namespaces) fill(dir string) (heal func() error, err error) {
	path := filepath.Join(dir, "filler")
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	for page := make([]byte, 4096); err == nil; {
		_, err = f.Write(page)
	}
	if !errors.Is(err, unix.ENOSPC) {
		return nil, err
	}
	return func() error { return os.Remove(path) }, nil
}

// limit sets a limit of a writer, and returns what sets it back.
func (c *chaos) limit(i, of int, to uint64) (heal func() error, err error) {
	p := c.writers[i].Process.Pid
	var was unix.Rlimit
	if err := unix.Prlimit(p, of, nil, &was); err != nil {
		return nil, err
	}
	err = unix.Prlimit(p, of, &unix.Rlimit{Cur: min(to, was.Max), Max: was.Max}, nil)
	return func() error {
		if err := unix.Prlimit(p, of, &was, nil); !errors.Is(err, unix.ESRCH) { // else it has ended, for lack of that
			return err
		}
		return nil
	}, err
}
