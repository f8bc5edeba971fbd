package remote_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"txnode/memory"
	"txnode/memory/catalog"
	"txnode/memory/catalog/catalogtest"
	"txnode/memory/catalog/remote"
	"txnode/memory/layout"
	"txnode/rdma"
	"txnode/rdma/tcp"
)

// daemon is a catalog that is served on a unix socket, in this process.
type daemon struct {
	t       testing.TB
	socket  string
	catalog func() layout.Catalog // opens it

	cat    layout.Catalog
	server *tcp.Server
	served chan error
}

// newDaemon serves a catalog until the test ends.
func newDaemon(t testing.TB, open func() layout.Catalog) *daemon {
	t.Helper()
	dir, err := os.MkdirTemp("", "remote") //nolint:usetesting // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	d := &daemon{t: t, socket: filepath.Join(dir, "s"), catalog: open}
	d.start()
	t.Cleanup(func() {
		d.stop()
		os.RemoveAll(dir)
	})
	return d
}

func (d *daemon) address() string { return "unix:" + d.socket }

func (d *daemon) start() {
	d.t.Helper()
	d.cat = d.catalog()
	var err error
	if d.server, err = tcp.NewServer(nil,
		tcp.ServerOptions{Services: map[string]tcp.Service{remote.ServiceName: remote.NewService(d.cat)}}); err != nil {
		d.t.Fatal(err)
	}
	l, err := net.Listen("unix", d.socket)
	if err != nil {
		d.t.Fatal(err)
	}
	server, served := d.server, make(chan error, 1)
	d.served = served
	go func() {
		err := server.Serve(l)
		if errors.Is(err, rdma.ErrClosed) { // stop was faster
			err = nil
		}
		served <- err
	}()
}

// stop ends the daemon in good order.
func (d *daemon) stop() {
	d.t.Helper()
	if d.server == nil {
		return
	}
	if err := errors.Join(d.server.Shutdown(context.Background()), <-d.served, d.cat.Close()); err != nil {
		d.t.Error(err)
	}
	d.server = nil
}

// cut breaks all connections, as a crash does, and returns while what the catalog is asked is still
// under way. over returns when that has ended, too.
func (d *daemon) cut() (over func()) {
	now, cancel := context.WithCancel(context.Background())
	cancel()
	done := make(chan struct{})
	server, served := d.server, d.served
	d.server = nil
	go func() {
		_ = server.Shutdown(now) // it says that it was canceled
		<-served
		close(done)
	}()
	return func() { <-done }
}

func (d *daemon) dial() *remote.Client {
	d.t.Helper()
	c, err := remote.Dial(context.Background(), d.address(), tcp.Options{})
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() {
		if err := c.Close(); err != nil {
			d.t.Error(err)
		}
	})
	return c
}

// inMemory opens a catalog that outlives its daemon.
func inMemory() func() layout.Catalog {
	m := &catalog.Mem{}
	return func() layout.Catalog { return m }
}

// inFile opens the catalog of a file.
func inFile(t testing.TB) func() layout.Catalog {
	path := filepath.Join(t.TempDir(), "catalog.db")
	return func() layout.Catalog {
		b, err := catalog.OpenBolt(path, false)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
}

// TestConformance runs the suite: over both catalogs, with a client that is closed and dialled
// again, and with one that stays while the daemon restarts.
func TestConformance(t *testing.T) {
	for name, opening := range map[string]func(testing.TB) func() layout.Catalog{
		"mem": func(testing.TB) func() layout.Catalog { return inMemory() }, "bolt": inFile,
	} {
		daemons := map[layout.Catalog]*daemon{}
		open := func(t *testing.T) layout.Catalog {
			d := newDaemon(t, opening(t))
			c := d.dial()
			daemons[c] = d
			return c
		}
		t.Run(name+"/client", func(t *testing.T) {
			catalogtest.Test(t, open, func(t *testing.T, c layout.Catalog) layout.Catalog {
				d := daemons[c]
				if err := c.Close(); err != nil {
					t.Fatal(err)
				}
				c = d.dial()
				daemons[c] = d
				return c
			})
		})
		t.Run(name+"/daemon", func(t *testing.T) {
			catalogtest.Test(t, open, func(_ *testing.T, c layout.Catalog) layout.Catalog {
				daemons[c].stop()
				daemons[c].start()
				return c
			})
		})
	}
}

// must is a result without an error.
func must[T any](t testing.TB) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// loaded are the entries as text, and the revision.
func loaded(t testing.TB, c layout.Catalog) (string, layout.Revision) {
	t.Helper()
	entries, rev, err := c.Load()
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range entries {
		all = append(all, e.Key+"="+string(e.Value))
	}
	return strings.Join(all, " "), rev
}

func entry(key, value string) []layout.Entry {
	return []layout.Entry{{Key: key, Value: []byte(value)}}
}

// TestTwoClients: each sees what the other changes, and of changes of the same revision one is
// made.
func TestTwoClients(t *testing.T) {
	d := newDaemon(t, inFile(t))
	clients := []*remote.Client{d.dial(), d.dial()}
	const each = 25
	var wg sync.WaitGroup
	for i, c := range clients {
		wg.Go(func() {
			for k := range each {
				for {
					_, rev, err := c.Load()
					if err != nil {
						t.Error(err)
						return
					}
					_, err = c.Apply(rev, entry(fmt.Sprintf("%d/%02d", i, k), "x"))
					if err == nil {
						break
					}
					if !errors.Is(err, memory.ErrRevision) {
						t.Error(err)
						return
					}
				}
			}
		})
		wg.Go(func() { // it sees the entries of both
			rev := layout.Revision(0)
			for n := 0; n < 2*each; {
				if _, err := c.Await(t.Context(), rev); err != nil {
					t.Error(err)
					return
				}
				entries, now, err := c.Load()
				if rev = now; err != nil || len(entries) < n {
					t.Errorf("%d entries after %d, %v", len(entries), n, err)
					return
				}
				n = len(entries)
			}
		})
	}
	wg.Wait()
	one, _ := loaded(t, clients[0])
	if two, _ := loaded(t, clients[1]); one != two || strings.Count(one, "=") != 2*each {
		t.Errorf("%q and %q", one, two)
	}
}

// TestRestart: a change of before the restart that the catalog has moved on from hits nothing,
// and Await returns.
func TestRestart(t *testing.T) {
	d := newDaemon(t, inFile(t))
	c := d.dial()
	_, rev := loaded(t, c)
	d.stop()
	away := d.catalog() // changed behind the client's back
	_, first, err := away.Load()
	if err != nil {
		t.Fatal(err)
	}
	must[layout.Revision](t)(away.Apply(first, entry("a", "changed")))
	if err := away.Close(); err != nil {
		t.Fatal(err)
	}
	d.start()
	if _, err := until(func() (layout.Revision, error) { return c.Apply(rev, entry("a", "late")) }); !errors.Is(err,
		memory.ErrRevision) {
		t.Errorf("a change at a revision of another opening: %v", err)
	}
	now, err := c.Await(t.Context(), rev)
	if err != nil || now <= rev {
		t.Errorf("after a restart at %d: %d, %v", rev, now, err)
	}
	if _, err := c.Apply(rev, entry("a", "late")); !errors.Is(err, memory.ErrRevision) {
		t.Errorf("a change at a revision of before: %v", err)
	}
	all, at := loaded(t, c)
	if all != "a=changed" || at < now {
		t.Errorf("%q at %d, after %d", all, at, now)
	}
	if next, err := c.Apply(at, entry("a", "new")); err != nil || next <= at {
		t.Errorf("%d, %v", next, err)
	}
}

// until calls fn again while the daemon is away: the end of a connection arrives behind
// that of its server.
func until[T any](fn func() (T, error)) (v T, err error) {
	for {
		if v, err = fn(); !errors.Is(err, remote.ErrAway) {
			return v, err
		}
	}
}

// TestAwaitAcrossRestarts: what waits learns of each change, also of one that was made before it
// has connected again.
func TestAwaitAcrossRestarts(t *testing.T) {
	d := newDaemon(t, inFile(t))
	c := d.dial()
	_, rev := loaded(t, c)
	const rounds = 3
	for round := range rounds {
		type result struct {
			rev layout.Revision
			err error
		}
		got := make(chan result, 4)
		for range cap(got) { // they share a poll
			go func() {
				r, err := c.Await(context.Background(), rev)
				got <- result{r, err}
			}()
		}
		await(t, "remote.(*Client).pollOnce") // the poll is under way, or is about to be
		d.stop()
		other := d.catalog()
		_, first, err := other.Load()
		if err != nil {
			t.Fatal(err)
		}
		must[layout.Revision](t)(other.Apply(first, entry("round", fmt.Sprint(round))))
		if err := other.Close(); err != nil {
			t.Fatal(err)
		}
		d.start()
		for range cap(got) {
			if r := <-got; r.err != nil || r.rev <= rev {
				t.Fatalf("round %d: %d after %d, %v", round, r.rev, rev, r.err)
			}
		}
		all, now := loaded(t, c)
		if all != fmt.Sprintf("round=%d", round) {
			t.Fatalf("round %d: %q", round, all)
		}
		rev = now
	}
}

// await waits until a goroutine is in a function.
func await(t testing.TB, function string) {
	t.Helper()
	for !strings.Contains(stacks(), function) {
		runtime.Gosched()
	}
}

// ended waits until no goroutine is in one of the functions: one that has done its work, like
// context.AfterFunc's, may take a moment more to return.
func ended(t *testing.T, functions ...string) {
	t.Helper()
	for limit := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		s := stacks()
		if !slices.ContainsFunc(functions, func(f string) bool { return strings.Contains(s, f) }) {
			return
		}
		if time.Now().After(limit) {
			t.Fatalf("a goroutine is left:\n%s", s)
		}
	}
}

func stacks() string {
	p := make([]byte, 1<<20)
	return string(p[:runtime.Stack(p, true)])
}

// TestAway: while the daemon is away, Load and Apply say so with the address, and a context that
// has ended does not wait; all go on afterwards.
func TestAway(t *testing.T) {
	d := newDaemon(t, inMemory())
	c := d.dial()
	_, rev := loaded(t, c)
	waiting := make(chan error, 1)
	go func() {
		_, err := c.Await(context.Background(), rev)
		waiting <- err
	}()
	d.stop()
	for _, call := range []func() error{
		func() error { _, _, err := c.Load(); return err },
		func() error { _, err := c.Apply(rev, entry("a", "1")); return err },
		func() error { _, err := c.Revision(); return err },
	} {
		err := call()
		if !errors.Is(err, remote.ErrAway) || !strings.Contains(err.Error(), d.socket) ||
			!strings.Contains(err.Error(), "start it again") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v", err)
		}
	}
	if _, err := remote.Dial(t.Context(), d.address(), tcp.Options{}); !errors.Is(err, remote.ErrAway) ||
		!strings.Contains(err.Error(), d.socket) {
		t.Errorf("Dial: %v", err)
	}
	d.start()
	_, _ = until(c.Revision)
	all, rev := loaded(t, c)
	if all != "" {
		t.Errorf("a change that has failed was made: %q", all)
	}
	if _, err := c.Apply(rev, entry("a", "2")); err != nil {
		t.Error(err)
	}
	if err := <-waiting; err != nil {
		t.Errorf("Await: %v", err)
	}
}

// halting is a catalog whose Apply stops before it makes the change, or after, until it is
// released.
type halting struct {
	layout.Catalog
	after   bool
	stopped chan struct{}
	release chan struct{}
}

func (h *halting) Apply(rev layout.Revision, changes []layout.Entry) (layout.Revision, error) {
	if !h.after {
		h.stopped <- struct{}{}
		<-h.release
		return 0, errors.New("it was killed")
	}
	rev, err := h.Catalog.Apply(rev, changes)
	h.stopped <- struct{}{}
	<-h.release
	return rev, err
}

// TestKilledInApply: the daemon is gone in the middle of a change: the client is told that it may
// have been made, and finds what there is.
func TestKilledInApply(t *testing.T) {
	for _, after := range []bool{false, true} {
		t.Run(fmt.Sprintf("after=%v", after), func(t *testing.T) {
			m := &catalog.Mem{}
			h := &halting{m, after, make(chan struct{}), make(chan struct{})}
			opened := 0
			d := newDaemon(t, func() layout.Catalog {
				if opened++; opened == 1 {
					return h
				}
				return m
			})
			c := d.dial()
			_, rev := loaded(t, c)
			failed := make(chan error, 1)
			go func() {
				_, err := c.Apply(rev, entry("a", "1"))
				failed <- err
			}()
			<-h.stopped
			over := d.cut()
			if err := <-failed; !errors.Is(err, remote.ErrAway) || errors.Is(err, memory.ErrRevision) {
				t.Errorf("Apply: %v", err)
			}
			close(h.release)
			over()
			d.start()
			all, now := loaded(t, c)
			if all != map[bool]string{false: "", true: "a=1"}[after] || (now > rev) != after {
				t.Errorf("%q at %d, after %d", all, now, rev)
			}
		})
	}
}

// counting counts who waits.
type counting struct {
	layout.Catalog
	now, most atomic.Int64
}

func (c *counting) Await(ctx context.Context, after layout.Revision) (layout.Revision, error) {
	if n := c.now.Add(1); n > c.most.Load() {
		c.most.Store(n)
	}
	defer c.now.Add(-1)
	return c.Catalog.Await(ctx, after)
}

// TestSharedPoll: several that wait have one poll, which learns of the end of the client;
// Close ends what waits.
func TestSharedPoll(t *testing.T) {
	m := &counting{Catalog: &catalog.Mem{}}
	d := newDaemon(t, func() layout.Catalog { return m })
	c := d.dial()
	_, rev := loaded(t, c)
	const n = 20
	done := make(chan error, n)
	for range n {
		go func() {
			_, err := c.Await(context.Background(), rev)
			done <- err
		}()
	}
	for m.now.Load() == 0 {
		runtime.Gosched()
	}
	ctx, cancel := context.WithCancel(t.Context())
	go cancel()
	if now, err := c.Await(ctx, rev); now != 0 || !errors.Is(err, context.Canceled) {
		t.Errorf("%d, %v", now, err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	for range n {
		if err := <-done; !errors.Is(err, memory.ErrClosed) {
			t.Errorf("Await of a closed client: %v", err)
		}
	}
	if most := m.most.Load(); most != 1 {
		t.Errorf("%d polls at a time", most)
	}
	for m.now.Load() > 0 { // the daemon learns that the client is gone
		runtime.Gosched()
	}
	allClosed(t, c, rev)
	if err := c.Close(); err != nil {
		t.Errorf("Close again: %v", err)
	}
	ended(t, "remote.(*Client)", "tcp.(*line)")
}

// TestErrors: errors that callers test for keep their identity on the way.
func TestErrors(t *testing.T) {
	d := newDaemon(t, inFile(t))
	c := d.dial()
	_, rev := loaded(t, c)
	if _, err := c.Apply(rev, []layout.Entry{{Key: "", Value: []byte("x")}}); err == nil ||
		errors.Is(err, memory.ErrRevision) || errors.Is(err, remote.ErrAway) {
		t.Errorf("an entry without a key: %v", err)
	}
	if _, err := c.Apply(rev+1, entry("a", "1")); !errors.Is(err, memory.ErrRevision) ||
		!strings.Contains(err.Error(), "revision") {
		t.Errorf("a revision that is not yet: %v", err)
	}
	if _, err := c.Apply(0, entry("a", "1")); !errors.Is(err, memory.ErrRevision) {
		t.Errorf("no revision: %v", err)
	}
	if _, err := d.dial().Apply(1, entry("a", "1")); !errors.Is(err, memory.ErrRevision) {
		t.Errorf("a client that has not looked yet: %v", err)
	}
	if _, err := c.Apply(rev, entry("a", strings.Repeat("x", tcp.MaxMessage))); !errors.Is(err, tcp.ErrTooLong) {
		t.Errorf("a change too long: %v", err)
	}
	if c.Name() != d.address() {
		t.Errorf("its name is %q", c.Name())
	}
	waiting := make(chan error, 1)
	go func() {
		_, err := c.Await(context.Background(), rev)
		waiting <- err
	}()
	await(t, "remote.(*service).await")
	if err := d.cat.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-waiting; !errors.Is(err, memory.ErrClosed) {
		t.Errorf("Await of a closed catalog: %v", err)
	}
	allClosed(t, c, rev)
}

// allClosed: all methods return ErrClosed.
func allClosed(t *testing.T, c layout.Catalog, rev layout.Revision) {
	t.Helper()
	_, _, loading := c.Load()
	_, applying := c.Apply(rev, nil)
	_, waiting := c.Await(t.Context(), rev)
	_, asking := c.Revision()
	for i, err := range []error{loading, applying, waiting, asking} {
		if !errors.Is(err, memory.ErrClosed) {
			t.Errorf("call %d: %v", i, err)
		}
	}
}

// stuck is a catalog that does not answer.
type stuck struct {
	layout.Catalog
	release chan struct{}
}

func (s *stuck) Load() ([]layout.Entry, layout.Revision, error) {
	<-s.release
	return nil, 0, nil
}

// TestSilent: a daemon that does not answer is away after Options.Control.
func TestSilent(t *testing.T) {
	s := &stuck{&catalog.Mem{}, make(chan struct{})}
	d := newDaemon(t, func() layout.Catalog { return s })
	c, err := remote.Dial(t.Context(), d.address(), tcp.Options{Control: 30 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, _, err := c.Load(); !errors.Is(err, remote.ErrAway) || !strings.Contains(err.Error(), d.socket) {
		t.Errorf("%v", err)
	}
	close(s.release)
	l, err := net.Listen("unix", d.socket+"2")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := remote.Dial(t.Context(), "unix:"+d.socket+"2",
		tcp.Options{Connect: 30 * time.Millisecond}); !errors.Is(err, remote.ErrAway) {
		t.Errorf("a server that says nothing: %v", err)
	}
	none, err := tcp.NewServer(nil,
		tcp.ServerOptions{Services: map[string]tcp.Service{"other": func(context.Context, []byte) ([]byte, error) {
			return nil, nil
		}}})
	if err != nil {
		t.Fatal(err)
	}
	l, err = net.Listen("unix", d.socket+"3")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- none.Serve(l) }()
	if _, err := remote.Dial(t.Context(), "unix:"+d.socket+"3", tcp.Options{}); !errors.Is(err, tcp.ErrRefused) ||
		!strings.Contains(err.Error(), `"catalog"`) {
		t.Errorf("a server without a catalog: %v", err)
	}
	if err := errors.Join(none.Shutdown(t.Context()), <-served); err != nil {
		t.Error(err)
	}
}
