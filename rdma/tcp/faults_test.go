package tcp_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"txnode/rdma"
	"txnode/rdma/fabrictest"
	"txnode/rdma/region"
	"txnode/rdma/tcp"
)

// client is a thread on a fabric.
type client struct {
	*rdma.Thread
	t testing.TB
	f *tcp.Fabric
	b rdma.Batch
}

func thread(t testing.TB, f *tcp.Fabric) *client {
	t.Helper()
	th, err := rdma.NewThread(f, rdma.ThreadOptions{Arena: 16 << 20})
	if err != nil {
		t.Fatal(err)
	}
	return &client{Thread: th, t: t, f: f}
}

// close closes the thread and the fabric.
func (c *client) close() {
	c.t.Helper()
	if err := errors.Join(c.Thread.Close(), c.f.Close()); err != nil {
		c.t.Error(err)
	}
}

func (c *client) at(b rdma.BladeID, off uint64) rdma.RemoteAddr {
	return rdma.RemoteAddr{Blade: b, Key: c.f.Blades()[b].Key, Off: off}
}

// add adds 1 to a word and returns what it was.
func (c *client) add(a rdma.RemoteAddr) (uint64, error) {
	c.b.Reset()
	i := c.b.FAA(a, 1)
	if err := c.Plain().Do(&c.b); err != nil {
		return 0, err
	}
	return c.b.Result(i), nil
}

// mustAdd is add where it has to succeed.
func (c *client) mustAdd(a rdma.RemoteAddr) {
	c.t.Helper()
	if _, err := c.add(a); err != nil {
		c.t.Fatal(err)
	}
}

func isDown(err error) bool { return errors.Is(err, rdma.ErrBladeDown) }

// TestKilled: a server's process is killed while two threads work on its blade and on
// another server's. What they wait for there fails, what they ask of it later, too, and the
// other server goes on.
func TestKilled(t *testing.T) {
	for _, network := range []string{"unix", "tcp"} {
		t.Run(network, func(t *testing.T) {
			victim, other := spawn(t, "serve", network, 1, 1<<16), spawn(t, "serve", network, 2, 1<<16)
			f := dial(t, tcp.Options{Connect: time.Second}, victim.addr, other.addr)
			first, second := thread(t, f), thread(t, f)
			defer first.close()
			defer func() {
				if err := second.Thread.Close(); err != nil {
					t.Error(err)
				}
			}()
			var done atomic.Int64
			f.Run(3, func(i int) {
				if i == 2 {
					for done.Load() < 1000 {
						time.Sleep(time.Millisecond)
					}
					victim.kill(t)
					return
				}
				c := []*client{first, second}[i]
				a, b := c.at(0, 64), c.at(2, 64)
				for {
					c.b.Reset()
					for range 10 {
						c.b.FAA(a, 1)
						c.b.FAA(b, 1)
					}
					if err := c.Plain().Do(&c.b); err != nil {
						if !isDown(err) {
							t.Errorf("thread %d: %v", i, err)
						}
						if !c.Uncertain() {
							t.Errorf("thread %d takes additions that a killed server has not answered for certain", i)
						}
						break
					}
					done.Add(1)
				}
				for n := range c.b.Len() {
					if w := c.b.WR(n); w.Blade == 2 && w.Status != rdma.StatusOK {
						t.Errorf("the other server: %v", w.Status)
					}
				}
				if _, err := c.add(a); err == nil {
					t.Error("an addition without Reconnect has succeeded")
				}
				if err := c.Reconnect(0); !isDown(err) {
					t.Errorf("Reconnect: %v", err)
				}
				if _, err := c.add(a); !isDown(err) {
					t.Errorf("an addition after a Reconnect that has failed: %v", err)
				}
				c.mustAdd(b)
			})
			if _, err := f.Grant(0); !isDown(err) {
				t.Errorf("Grant: %v", err)
			}
			if err := f.Revoke(0, 9); !isDown(err) {
				t.Errorf("Revoke: %v", err)
			}
			if err := f.Provision(0, 0, 64); !isDown(err) {
				t.Errorf("Provision: %v", err)
			}
			k, err := fabrictest.Rekey(f, 1)
			if err != nil {
				t.Errorf("keys of the other server: %v", err)
			}
			if b := f.Blades(); len(b) != 3 || b[0].Size != 1<<16 || b[1].Key != k {
				t.Errorf("Blades: %+v", b)
			}
			late := thread(t, f) // a thread that is made now is one for the blades that are left
			late.mustAdd(late.at(2, 64))
			if _, err := late.add(late.at(0, 64)); !isDown(err) || late.Uncertain() {
				t.Errorf("a new thread's addition: %v, uncertain: %v", err, late.Uncertain())
			}
			if err := late.Thread.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestServerComesBack: a server that was shut down and is started again on its address is used
// again, by the threads and by the control path.
func TestServerComesBack(t *testing.T) {
	h := serve(t, "unix", regions(1, 1<<16), tcp.ServerOptions{})
	c := thread(t, dial(t, tcp.Options{}, h.addr))
	defer c.close()
	a := c.at(0, 0)
	c.mustAdd(a)
	h.stop()
	if _, err := c.add(a); !isDown(err) {
		t.Errorf("while it is away: %v", err)
	}
	if err := c.Reconnect(0); !isDown(err) {
		t.Errorf("Reconnect while it is away: %v", err)
	}

	back := regions(1, 1<<16)
	back[0].Key = 4711
	again(t, h.addr, back)
	if err := c.Reconnect(0); err != nil {
		t.Fatal(err)
	}
	if _, err := c.add(a); !errors.Is(err, rdma.ErrStaleKey) {
		t.Errorf("with the key of before: %v", err)
	}
	if err := c.Reconnect(0); err != nil {
		t.Fatal(err)
	}
	if n, err := c.add(c.at(0, 0)); err != nil || n != 0 {
		t.Errorf("the new region has %d, %v", n, err)
	}
}

// again serves regions on an address that a server had before.
func again(t *testing.T, addr string, all []region.Options) {
	t.Helper()
	set, err := region.New(region.Config{Regions: all})
	if err != nil {
		t.Fatal(err)
	}
	s, err := tcp.NewServer(set, tcp.ServerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	network, address, _ := strings.Cut(addr, ":")
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	h := &host{Set: set, Server: s, served: make(chan error, 1)}
	go func() { h.served <- s.Serve(l) }()
	t.Cleanup(h.stop)
}

// TestSilent: a server's process is stopped, so that its connections live on and say
// nothing. Everything that is asked of it ends with an error all the same, and it is used
// again when it goes on.
func TestSilent(t *testing.T) {
	for _, network := range []string{"unix", "tcp"} {
		t.Run(network, func(t *testing.T) {
			p := spawn(t, "serve", network, 1, 1<<16)
			bound := 200 * time.Millisecond
			f := dial(t, tcp.Options{Connect: 3 * bound, Control: bound, Verb: bound}, p.addr)
			c := thread(t, f)
			defer c.close()
			a := c.at(0, 64)
			signal := func(s unix.Signal) {
				if err := p.cmd.Process.Signal(s); err != nil {
					t.Fatal(err)
				}
			}
			signal(unix.SIGSTOP)
			err := error(nil)
			for err == nil { // the signal takes its time
				c.b.Reset()
				c.b.Write(a, 0, 8)
				c.b.Read(a, 8, 8)
				err = c.Plain().Do(&c.b)
			}
			var v *rdma.VerbError
			if !errors.As(err, &v) || v.Status != rdma.StatusTimeout || c.b.WR(1).Status != rdma.StatusTimeout ||
				!c.Uncertain() {
				t.Errorf("verbs: %v, %v", err, c.b.WR(1).Status)
			}
			if err := f.Revoke(0, 1); !isDown(err) {
				t.Errorf("Revoke: %v", err)
			}
			if err := c.Reconnect(0); !isDown(err) {
				t.Errorf("Reconnect: %v", err)
			}
			if _, err := tcp.Dial(t.Context(), []string{p.addr}, tcp.Options{Connect: bound}); !isDown(err) {
				t.Errorf("Dial: %v", err)
			}
			signal(unix.SIGCONT)
			for c.Reconnect(0) != nil { // it may be busy with what it was asked meanwhile
				time.Sleep(time.Millisecond)
			}
			for {
				if a.Key, err = fabrictest.Rekey(f, 0); err == nil {
					break
				}
				time.Sleep(time.Millisecond)
			}
			c.mustAdd(a)
		})
	}
}

// TestMute: a program that accepts connections and never answers is no server; the error comes in
// time.
func TestMute(t *testing.T) {
	for _, network := range []string{"unix", "tcp"} {
		l, addr := listen(t, network)
		_, err := tcp.Dial(t.Context(), []string{addr}, tcp.Options{Connect: 50 * time.Millisecond})
		if !isDown(err) || !strings.Contains(err.Error(), addr) {
			t.Errorf("%s: %v", network, err)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if _, err := tcp.Dial(t.Context(), []string{addr}, tcp.Options{}); !isDown(err) ||
			!strings.Contains(err.Error(), addr) {
			t.Errorf("%s, where nothing listens: %v", network, err)
		}
	}
}

// reports collects what a server reports.
type reports struct {
	mu  sync.Mutex
	all []error
}

func (r *reports) add(_ string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, err)
}

// await returns when so many reports match an error.
func (r *reports) await(n int, target error) {
	for {
		r.mu.Lock()
		matching := 0
		for _, err := range r.all {
			if errors.Is(err, target) {
				matching++
			}
		}
		r.mu.Unlock()
		if matching >= n {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// raw is a client that speaks the protocol as far as it likes.
func raw(t *testing.T, addr string, sends ...[]byte) net.Conn {
	t.Helper()
	network, address, _ := strings.Cut(addr, ":")
	c, err := net.Dial(network, address)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range sends {
		if _, err := c.Write(p); err != nil && !errors.Is(err, unix.EPIPE) && !errors.Is(err, unix.ECONNRESET) {
			t.Fatal(err)
		}
	}
	return c
}

// greeted is raw after the welcome of a server without a secret.
func greeted(t *testing.T, addr string, control bool, sends ...[]byte) net.Conn {
	t.Helper()
	c := raw(t, addr, tcp.HelloFrame(control, 0), make([]byte, tcp.ProofSize))
	if _, err := io.ReadFull(c, make([]byte, tcp.ChallengeSize+tcp.WelcomeSize)); err != nil {
		t.Fatal(err)
	}
	for _, p := range sends {
		if _, err := c.Write(p); err != nil && !errors.Is(err, unix.EPIPE) && !errors.Is(err, unix.ECONNRESET) {
			t.Fatal(err)
		}
	}
	return c
}

// TestGarbage: clients that send something else than frames lose their connections; others go on,
// and no memory changes.
func TestGarbage(t *testing.T) {
	for _, network := range []string{"unix", "tcp"} {
		t.Run(network, func(t *testing.T) {
			var r reports
			h := serve(t, network, regions(1, 1<<16), tcp.ServerOptions{Report: r.add, Timeout: 50 * time.Millisecond})
			honest := thread(t, dial(t, tcp.Options{}, h.addr))
			defer honest.close()
			a := honest.at(0, 4096)
			honest.mustAdd(a)
			noise := make([]byte, 1<<20)
			for i := range noise {
				noise[i] = byte(i*i>>3 | 0x88)
			}
			hello := tcp.HelloFrame(false, 0)
			conns := []net.Conn{
				raw(t, h.addr, noise),
				raw(t, h.addr,
					[]byte("GET / HTTP/1.1\r\nHost: blade\r\n\r\nto be at least as long as a hello, 64 bytes")),
				greeted(t, h.addr, false, noise),
				greeted(t, h.addr, true, noise),
				greeted(t, h.addr, false, tcp.ReadFrame(100, 0, tcp.MaxPiece+1)),
			}
			r.await(len(conns), tcp.ErrProtocol)
			late := []net.Conn{
				raw(t, h.addr),             // says nothing
				raw(t, h.addr, hello[:60]), // half of a hello
				raw(t, h.addr, hello),      // no proof
				greeted(t, h.addr, false, tcp.ReadFrame(100, 0, 64)[:20]), // a part of a frame
				greeted(t, h.addr, true, make([]byte, 5)),                 // a part of a call
			}
			for _, c := range append(conns, late...) {
				// The server closes each: a Read ends, with what was still to be read or without.
				_, _ = io.Copy(io.Discard, c) // its error may be a reset
				if err := c.Close(); err != nil {
					t.Error(err)
				}
			}
			if n, err := honest.add(a); err != nil || n != 1 {
				t.Errorf("the word of an honest client: %d, %v", n, err)
			}
		})
	}
}

// TestNotReading: a client that asks for much and reads nothing loses its connection when the
// server's patience ends, and does not hold up another one.
func TestNotReading(t *testing.T) {
	var r reports
	h := serve(t, "unix", regions(1, 1<<20), tcp.ServerOptions{Report: r.add, Timeout: 100 * time.Millisecond})
	honest := thread(t, dial(t, tcp.Options{}, h.addr))
	defer honest.close()
	a := honest.at(0, 0)
	c := greeted(t, h.addr, false)
	defer c.Close()
	go func() {
		for {
			if _, err := c.Write(tcp.ReadFrame(a.Key, 0, tcp.MaxPiece)); err != nil {
				return
			}
		}
	}()
	for n := 0; ; n++ {
		honest.mustAdd(a)
		r.mu.Lock()
		over := len(r.all) > 0
		r.mu.Unlock()
		if over {
			break
		}
	}
}

// TestHogs: clients that ask for as much as they can take do not keep another one from its work.
func TestHogs(t *testing.T) {
	h := serve(t, "unix", regions(1, 1<<20), tcp.ServerOptions{})
	honest := thread(t, dial(t, tcp.Options{}, h.addr))
	defer honest.close()
	a := honest.at(0, 0)
	var hogs sync.WaitGroup
	var conns []net.Conn
	for range 4 {
		c := greeted(t, h.addr, false)
		conns = append(conns, c)
		flood := bytes.Repeat(tcp.ReadFrame(a.Key, 0, tcp.MaxPiece), 100)
		hogs.Go(func() { _, _ = io.Copy(io.Discard, c) }) // until the end of the test
		hogs.Go(func() {
			for {
				if _, err := c.Write(flood); err != nil {
					return
				}
			}
		})
	}
	for range 200 {
		honest.mustAdd(a)
	}
	for _, c := range conns {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	hogs.Wait()
}

// TestMuchAtOnce posts more bytes in both directions than all buffers hold: neither side may wait
// for the other one for ever.
func TestMuchAtOnce(t *testing.T) {
	for _, network := range []string{"unix", "tcp"} {
		t.Run(network, func(t *testing.T) {
			const size, piece, rounds = 8 << 20, 192<<10 + 24, 40
			h := serve(t, network, regions(1, size), tcp.ServerOptions{Depth: 16})
			c := thread(t, dial(t, tcp.Options{}, h.addr))
			defer c.close()
			a := c.at(0, 0)
			for i := range uint32(piece) {
				c.Bytes(0, piece)[i] = byte(i * 7)
			}
			c.b.Reset()
			for i := range uint32(rounds) {
				a.Off = uint64(i) * 100_000
				c.b.Write(a, 0, piece)
				c.b.Read(a, piece+i*piece, piece)
			}
			if err := c.Plain().Do(&c.b); err != nil {
				t.Fatal(err)
			}
			for i := range uint32(rounds) {
				if string(c.Bytes(piece+i*piece, piece)) != string(c.Bytes(0, piece)) {
					t.Fatalf("READ %d differs from what was written", i)
				}
			}
		})
	}
}

// TestLongPastTheEnd: a long request that goes past the end of the region fails before its first
// piece has an effect.
func TestLongPastTheEnd(t *testing.T) {
	const size = 1 << 20
	h := serve(t, "unix", regions(1, size), tcp.ServerOptions{})
	c := thread(t, dial(t, tcp.Options{}, h.addr))
	defer c.close()
	for i := range c.Bytes(0, size) {
		c.Bytes(0, size)[i] = 0xff
	}
	for _, x := range []struct {
		off uint64
		n   uint32
	}{
		{8, size}, {0, size + 1}, {size - 300<<10, 300<<10 + 8}, {1 << 63, size}, {^uint64(0) - 500<<10, size},
		{size, 500 << 10},
	} {
		for _, op := range []rdma.Op{rdma.OpWrite, rdma.OpRead} {
			a := c.at(0, x.off)
			c.b.Reset()
			if op == rdma.OpWrite {
				c.b.Write(a, 0, x.n)
			} else {
				c.b.Read(a, 4<<20, x.n)
			}
			var v *rdma.VerbError
			if err := c.Plain().Do(&c.b); !errors.As(err, &v) || v.Status != rdma.StatusBounds {
				t.Errorf("%v of %d bytes at %#x: %v", op, x.n, x.off, err)
			}
			if err := c.Reconnect(0); err != nil {
				t.Fatal(err)
			}
		}
	}
	c.b.Reset()
	c.b.Read(c.at(0, 0), 2<<20, size)
	if err := c.Plain().Do(&c.b); err != nil {
		t.Fatal(err)
	}
	for i, x := range c.Bytes(2<<20, size) {
		if x != 0 {
			t.Fatalf("byte %#x of the region is %#x", i, x)
		}
	}
	for i, x := range c.Bytes(4<<20, size) {
		if x != 0 {
			t.Fatalf("byte %#x of the arena is %#x", i, x)
		}
	}
}

// TestShutdown: a server that is shut down while clients work answers what it has executed: what a
// client was told is there, at most what it has posted.
func TestShutdown(t *testing.T) {
	set, err := region.New(region.Config{Regions: regions(1, 1<<16)})
	if err != nil {
		t.Fatal(err)
	}
	s, err := tcp.NewServer(set, tcp.ServerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	l, addr := listen(t, "unix")
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	c := thread(t, dial(t, tcp.Options{}, addr))
	defer c.close()
	a := c.at(0, 0)
	answered, posted := uint64(0), uint64(0)
	c.f.Run(2, func(i int) {
		if i == 1 {
			if err := errors.Join(s.Shutdown(t.Context()), <-served); err != nil {
				t.Error(err)
			}
			return
		}
		for {
			posted++
			if _, err := c.add(a); err != nil {
				if !isDown(err) {
					t.Error(err)
				}
				return
			}
			answered++
		}
	})
	if n := s.Connections(); n != 0 {
		t.Errorf("%d connections after Shutdown", n)
	}
	lane, err := set.NewLane(64)
	if err != nil {
		t.Fatal(err)
	}
	wr := []rdma.WR{{Op: rdma.OpFAA, Key: a.Key, Len: 8}}
	if lane.Execute(wr) != 0 || wr[0].Result < answered || wr[0].Result > posted {
		t.Errorf("%d additions were answered and %d posted; the word is %d", answered, posted, wr[0].Result)
	}
	if err := errors.Join(lane.Close(), set.Close()); err != nil {
		t.Error(err)
	}
	if l, _ := listen(t, "unix"); !errors.Is(s.Serve(l), rdma.ErrClosed) {
		t.Error("Serve after Shutdown")
	}
}

// TestNothingIsAllocated: neither side allocates for a batch, whatever its verbs.
func TestNothingIsAllocated(t *testing.T) {
	h := serve(t, "unix", regions(2, 1<<20), tcp.ServerOptions{})
	c := thread(t, dial(t, tcp.Options{}, h.addr))
	defer c.close()
	at := []rdma.RemoteAddr{c.at(0, 0), c.at(1, 0)}
	round := func() {
		c.b.Reset()
		for i := range uint32(8) {
			a := at[i%2]
			c.b.Read(a, 4096+64*i, 64)
			c.b.Write(a, 4096, 200)
			c.b.CAS(a, 1, 2)
			c.b.FAA(a, 1)
			c.b.MaskedCAS(a, 1, 2, 0)
			c.b.Flush(a, 64)
		}
		c.b.Read(at[0], 8192, 256<<10)
		if err := c.Plain().Do(&c.b); err != nil {
			t.Fatal(err)
		}
	}
	round()
	if n := testing.AllocsPerRun(200, round); n != 0 {
		t.Errorf("%v allocations a batch, both sides together", n)
	}
}
