package shm_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"txnode/rdma"
	"txnode/rdma/shm"
)

// client is a thread of this process.
type client struct {
	*rdma.Thread
	f *shm.Fabric
	b rdma.Batch
}

func connect(t testing.TB, dir string) *client {
	t.Helper()
	c := &client{f: dial(t, dir, shm.Options{})}
	var err error
	if c.Thread, err = rdma.NewThread(c.f, rdma.ThreadOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(c.Thread.Close(), c.f.Close()); err != nil {
			t.Error(err)
		}
	})
	return c
}

// add adds n to a word, and returns what it was.
func (c *client) add(k rdma.Key, n uint64) (uint64, error) {
	c.b.Reset()
	i := c.b.FAA(rdma.RemoteAddr{Key: k, Off: 4096}, n)
	err := c.Plain().Do(&c.b)
	return c.b.WR(i).Result, err
}

// rekey ends the keys of blade 0, and tells the new one.
func (c *client) rekey(t testing.TB) rdma.Key {
	t.Helper()
	k, err := c.f.Grant(0)
	if err == nil {
		err = c.f.Revoke(0, k)
	}
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// TestClientKilled: clients that die in a loop of batches keep no fence waiting, and their
// lanes become free.
func TestClientKilled(t *testing.T) {
	rounds := 20
	if testing.Short() {
		rounds = 4
	}
	dir := directory(t)
	serve(t, dir, shm.ServerOptions{Blades: regions(1, 1<<20)})
	c := connect(t, dir)
	had := c.f.Lanes()
	for i := range rounds {
		p := spawn(t, "loop", dir)
		if c.f.Lanes() != had+1 {
			t.Errorf("%d lanes are taken; want %d", c.f.Lanes(), had+1)
		}
		time.Sleep(time.Duration(i) * time.Millisecond)
		p.kill(t)
		k := c.rekey(t)
		if _, err := c.add(k, 0); err != nil {
			t.Fatal(err)
		}
		if c.f.Lanes() != had {
			t.Errorf("after the fence %d lanes are taken; want %d", c.f.Lanes(), had)
		}
	}
}

// TestFencedClient: a client in a loop of batches is told that its key has ended, and
// writes nothing then.
func TestFencedClient(t *testing.T) {
	dir := directory(t)
	serve(t, dir, shm.ServerOptions{Blades: regions(1, 1<<20)})
	c := connect(t, dir)
	p := spawn(t, "loop", dir)
	k := c.rekey(t)
	was, err := c.add(k, 0)
	if err != nil {
		t.Fatal(err)
	}
	if line, err := p.output.ReadString('\n'); err != nil || !strings.Contains(line, "key") {
		t.Errorf("the client says %q, %v", line, err)
	}
	if now, err := c.add(k, 0); now != was || err != nil {
		t.Errorf("the word was %d after the fence, and is %d, %v", was, now, err)
	}
}

// TestServerKilled: when a server dies, its blades take no verb of any client any more by the time
// that a call says so. A client connects to the next server of the name.
func TestServerKilled(t *testing.T) {
	dir := directory(t)
	p := spawn(t, "serve", dir, "a", 1, 1<<20)
	one, two := connect(t, dir), connect(t, dir)
	info := one.f.Blades()[0]
	for i, c := range []*client{one, two} {
		if n, err := c.add(info.Key, 1); n != uint64(i) || err != nil {
			t.Fatalf("addition %d: %d, %v", i, n, err)
		}
	}
	p.kill(t)
	if _, err := one.f.Grant(0); !errors.Is(err, rdma.ErrBladeDown) {
		t.Fatalf("Grant of a blade whose server is dead: %v", err)
	}
	for i, c := range []*client{one, two} { // at once
		if _, err := c.add(info.Key, 1); !errors.Is(err, rdma.ErrBladeDown) {
			t.Errorf("client %d: a verb on a blade whose server is dead: %v", i, err)
		}
		if err := c.Reconnect(0); !errors.Is(err, rdma.ErrBladeDown) {
			t.Errorf("client %d: Reconnect: %v", i, err)
		}
	}
	spawn(t, "serve", dir, "a", 1, 1<<20)
	for i, c := range []*client{one, two} {
		now := c.f.Blades()[0]
		if now.Incarnation == info.Incarnation {
			t.Fatalf("client %d: the blade that has begun anew is %+v, and was %+v", i, now, info)
		}
		if err := c.Reconnect(0); err != nil {
			t.Fatal(err)
		}
		if n, err := c.add(now.Key, 1); n != uint64(i) || err != nil {
			t.Errorf("client %d: an addition in the new memory: %d, %v", i, n, err)
		}
		if err := c.f.Provision(0, 0, 4096); err != nil {
			t.Error(err)
		}
	}
}

// TestServerKilledUnasked: clients that call nothing learn of the death of a server by their verbs.
func TestServerKilledUnasked(t *testing.T) {
	dir := directory(t)
	p := spawn(t, "serve", dir, "a", 1, 1<<20)
	c := connect(t, dir)
	k := c.f.Blades()[0].Key
	p.kill(t)
	for {
		_, err := c.add(k, 1)
		if errors.Is(err, rdma.ErrBladeDown) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestBadDirectory: what is wrong with a directory is an error that says so.
func TestBadDirectory(t *testing.T) {
	full := func(int, uint32, int64, int64) error { return unix.ENOSPC }
	header := func(change func(p []byte)) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			path := filepath.Join(dir, "lanes")
			p, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			change(p)
			if err := os.WriteFile(path, p, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, x := range map[string]struct {
		harm func(t *testing.T, dir string)
		want string
	}{
		"lanes cut short": {
			func(t *testing.T, dir string) { truncate(t, filepath.Join(dir, "lanes"), 5000) }, "5000 bytes",
		},
		"lanes empty": {
			func(t *testing.T, dir string) { truncate(t, filepath.Join(dir, "lanes"), 0) }, "was removed",
		},
		"another file":    {header(func(p []byte) { p[0]++ }), "no file of lanes"},
		"another version": {header(func(p []byte) { p[8]++ }), "version 3"},
		"keys cut short": {
			func(t *testing.T, dir string) { truncate(t, filepath.Join(dir, "a.keys"), 4096) }, "4096 bytes",
		},
		"keys of something": {
			func(t *testing.T, dir string) { truncate(t, filepath.Join(dir, "a.keys"), 0) }, "a.keys",
		},
		"no space": {func(t *testing.T, _ string) { t.Cleanup(shm.SetFallocate(full)) }, "no space left"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := directory(t)
			p := spawn(t, "serve", dir, "a", 1, 1<<20)
			p.kill(t)
			x.harm(t, dir)
			s, err := shm.NewServer(dir, shm.ServerOptions{Name: "a", Blades: regions(1, 1<<20)})
			if err == nil {
				_ = s.Close()
			}
			if !errors.Is(err, shm.ErrDirectory) || !strings.Contains(err.Error(), x.want) {
				t.Errorf("NewServer: %v; want %q", err, x.want)
			}
		})
	}
}

func truncate(t *testing.T, path string, n int64) {
	t.Helper()
	if err := os.Truncate(path, n); err != nil {
		t.Fatal(err)
	}
}

// TestRefusals: what cannot be served or dialled is refused, with what to do.
func TestRefusals(t *testing.T) {
	dir := directory(t)
	if _, err := shm.Dial(t.Context(), dir, shm.Options{}); !errors.Is(err, shm.ErrDirectory) ||
		!strings.Contains(err.Error(), "no server") {
		t.Errorf("Dial of a directory without servers: %v", err)
	}
	if _, err := shm.Dial(t.Context(), dir+"/none", shm.Options{}); !errors.Is(err, rdma.ErrBladeDown) {
		t.Errorf("Dial of no directory: %v", err)
	}
	serve(t, dir, shm.ServerOptions{Blades: regions(1, 1<<20)})
	if _, err := shm.NewServer(dir, shm.ServerOptions{Name: "a", Blades: regions(1, 1<<20)}); !errors.Is(err,
		shm.ErrDirectory) || !strings.Contains(err.Error(), "another name") {
		t.Errorf("a second server of the name: %v", err)
	}
	if _, err := shm.Dial(t.Context(), dir, shm.Options{Servers: []string{"b"}}); !errors.Is(err, rdma.ErrBladeDown) ||
		!strings.Contains(err.Error(), "server b") {
		t.Errorf("Dial of another server: %v", err)
	}
	for name, o := range map[string]shm.ServerOptions{
		"no name":    {Blades: regions(1, 1<<20)},
		"a path":     {Name: "a/b", Blades: regions(1, 1<<20)},
		"no blades":  {Name: "b"},
		"one second": {Name: "b", Blades: regions(1, 1<<20), Patience: -time.Second},
	} {
		if _, err := shm.NewServer(dir, o); !errors.Is(err, shm.ErrOptions) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestSilentServer: a server that is stopped is silent, and has not ended. A call and an opening
// wait for as long as they may, and no longer.
func TestSilentServer(t *testing.T) {
	dir := directory(t)
	p := spawn(t, "serve", dir, "a", 1, 1<<20)
	f := dial(t, dir, shm.Options{Control: 50 * time.Millisecond})
	defer f.Close()
	if _, err := f.Grant(0); err != nil { // there is a connection now
		t.Fatal(err)
	}
	if err := p.cmd.Process.Signal(unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	p.stopped(t)
	for range 2 { // with that one, and with another
		if _, err := f.Grant(0); !errors.Is(err, rdma.ErrSilent) {
			t.Errorf("Grant: %v", err)
		}
	}
	if f.Stopped() {
		t.Error("the blades of a server that lives are stopped")
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(10*time.Millisecond, cancel)
	if _, err := shm.Dial(ctx, dir, shm.Options{Connect: time.Hour}); !errors.Is(err, context.Canceled) ||
		errors.Is(err, rdma.ErrBladeDown) {
		t.Errorf("Dial: %v", err)
	}
	if err := p.cmd.Process.Signal(unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	_, err := f.Grant(0)
	for errors.Is(err, rdma.ErrSilent) { // it comes to itself
		_, err = f.Grant(0)
	}
	if err != nil {
		t.Errorf("Grant of a server that goes on: %v", err)
	}
}

// TestLanesTaken: one lane too many is an error, and not the end of the others.
func TestLanesTaken(t *testing.T) {
	dir := directory(t)
	serve(t, dir, shm.ServerOptions{Blades: regions(1, 1<<20)})
	f := dial(t, dir, shm.Options{})
	defer f.Close()
	var all []rdma.Port
	for range shm.LanesMax {
		p, err := f.NewPort(rdma.PortConfig{Arena: 4096})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	if _, err := f.NewPort(rdma.PortConfig{Arena: 4096}); !errors.Is(err, shm.ErrDirectory) ||
		!strings.Contains(err.Error(), "fewer threads") {
		t.Errorf("one lane too many: %v", err)
	}
	for _, p := range all {
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if f.Lanes() != 0 {
		t.Errorf("%d lanes are left", f.Lanes())
	}
}

// TestNothingIsAllocated: a batch allocates nothing.
func TestNothingIsAllocated(t *testing.T) {
	dir := directory(t)
	serve(t, dir, shm.ServerOptions{Blades: regions(1, 1<<20)})
	c := connect(t, dir)
	a := rdma.RemoteAddr{Key: 100, Off: 4096}
	co := c.Plain()
	if n := testing.AllocsPerRun(100, func() {
		c.b.Reset()
		c.b.Read(a, 0, 64)
		c.b.Write(a, 64, 61)
		c.b.CAS(a, 1, 2)
		if err := co.Do(&c.b); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations a batch", n)
	}
}

// TestOneClock: two fabrics tell the same time.
func TestOneClock(t *testing.T) {
	dir := directory(t)
	serve(t, dir, shm.ServerOptions{Blades: regions(1, 1<<20)})
	one, two := connect(t, dir), connect(t, dir)
	for range 1000 {
		a := one.f.Now()
		b := two.f.Now()
		if c := one.f.Now(); b < a-1000 || b > c+1000 {
			t.Fatalf("%d, %d, %d: the second is another clock's, off by more than 1 µs", a, b, c)
		}
	}
}
