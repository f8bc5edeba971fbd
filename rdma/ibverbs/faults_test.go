package ibverbs

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"txnode/rdma"
	"txnode/rdma/tcp"
)

// bench is a server and a thread on fake devices.
type bench struct {
	net    *network
	h      *host
	client *fakeDevice
	f      *Fabric
	port   *port // of t
	t      *rdma.Thread
	buf    uint32
	told   chan error
}

// kept is a fabric that keeps the port of its thread for the test.
type kept struct {
	*Fabric
	x *bench
}

func (k kept) NewPort(c rdma.PortConfig) (rdma.Port, error) {
	p, err := k.Fabric.NewPort(c)
	if err == nil {
		k.x.port = p.(*port)
	}
	return p, err
}

func newBench(t *testing.T, o Options) *bench {
	t.Helper()
	x := &bench{net: newNetwork(), told: make(chan error, 100)}
	x.client = x.net.device("fake1")
	x.client.longest = 4096
	x.h = serve(t, x.net.device("fake0"), ServerOptions{Blades: sizes(2, 1<<16)})
	o.Report = func(err error) { x.told <- err }
	x.f = connect(t, x.client, o, x.h.addr)
	var err error
	if x.t, err = rdma.NewThread(kept{x.f, x}, rdma.ThreadOptions{Arena: 1 << 16}); err != nil {
		t.Fatal(err)
	}
	if x.buf, err = x.t.Alloc(1 << 14); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(x.t.Close(), x.f.Close()); err != nil {
			t.Error(err)
		}
	})
	return x
}

// at is a place of a blade.
func (x *bench) at(b rdma.BladeID, off uint64) rdma.RemoteAddr {
	return rdma.RemoteAddr{Blade: b, Key: x.f.Known()[b].Key, Off: off}
}

// statuses are those of a batch that was waited for.
func (x *bench) statuses(b *rdma.Batch) (all []rdma.Status) {
	_ = x.t.Plain().Do(b)
	for i := range b.Len() {
		all = append(all, b.WR(i).Status)
	}
	return all
}

func (x *bench) want(t *testing.T, b *rdma.Batch, want ...rdma.Status) {
	t.Helper()
	if got := x.statuses(b); !slices.Equal(got, want) {
		t.Errorf("statuses %v; want %v", got, want)
	}
}

// writes are n WRITEs to blade 0.
func (x *bench) writes(n int) *rdma.Batch {
	b := new(rdma.Batch)
	for i := range n {
		b.Write(x.at(0, uint64(i)*64), x.buf, 64)
	}
	return b
}

// TestBehindRefusal: what is behind a request that the blade's device refuses has no effect, and is
// told so; the other blade's queue pair goes on.
func TestBehindRefusal(t *testing.T) {
	x := newBench(t, Options{})
	b := x.writes(2)
	b.FAA(rdma.RemoteAddr{Blade: 0, Key: x.at(0, 0).Key ^ 4, Off: 0}, 1)
	b.FAA(x.at(0, 512), 1)
	b.FAA(x.at(1, 512), 1)
	x.want(t, b, rdma.StatusOK, rdma.StatusOK, rdma.StatusKey, rdma.StatusFlushed, rdma.StatusOK)
	if x.t.Uncertain() {
		t.Error("the thread takes a refused request for one that may have had effect")
	}
	if err := x.t.Reconnect(0); err != nil {
		t.Fatal(err)
	}
	b.Reset()
	i := b.FAA(x.at(0, 512), 0)
	x.want(t, b, rdma.StatusOK)
	if b.Result(i) != 0 {
		t.Errorf("a request behind a refused one has had effect: %d", b.Result(i))
	}
}

// TestAnswersLost: requests that had effect, and whose answers were lost, are never told as not
// executed, and neither are those behind them.
func TestAnswersLost(t *testing.T) {
	x := newBench(t, Options{})
	x.net.mu.Lock()
	x.net.muted = true
	x.net.mu.Unlock()
	x.want(t, x.writes(3), rdma.StatusTimeout, rdma.StatusTimeout, rdma.StatusTimeout)
	if !x.t.Uncertain() {
		t.Error("the thread is certain")
	}
	if err := <-x.told; !strings.Contains(err.Error(), "no answer after all retries") {
		t.Errorf("it was reported: %v", err)
	}
	x.want(t, x.writes(1), rdma.StatusFlushed)
	x.net.mu.Lock()
	x.net.muted = false
	x.net.mu.Unlock()
	if err := x.t.Reconnect(0); err != nil {
		t.Fatal(err)
	}
	x.want(t, x.writes(1), rdma.StatusOK)
}

// TestSilence: requests without a completion end by the fabric's own deadline, by Quit, and when the
// control connection, the server or the device is gone.
func TestSilence(t *testing.T) {
	silence := func(x *bench, on bool) {
		x.net.mu.Lock()
		defer x.net.mu.Unlock()
		x.net.silent = on
	}
	t.Run("deadline", func(t *testing.T) {
		x := newBench(t, Options{TCP: tcp.Options{Verb: 50 * time.Millisecond}})
		silence(x, true)
		b := x.writes(2)
		b.FAA(x.at(1, 0), 1)
		x.want(t, b, rdma.StatusTimeout, rdma.StatusTimeout, rdma.StatusTimeout)
		if err := <-x.told; !errors.Is(err, errSilentVerb) {
			t.Errorf("it was reported: %v", err)
		}
		silence(x, false)
		if err := x.t.Reconnect(0); err != nil {
			t.Fatal(err)
		}
		x.want(t, x.writes(2), rdma.StatusOK, rdma.StatusOK)
	})
	t.Run("quit", func(t *testing.T) {
		x := newBench(t, Options{})
		silence(x, true)
		ctx, cancel := context.WithCancel(t.Context())
		x.t.Plain().Heed(ctx)
		cancel()
		x.want(t, x.writes(1), rdma.StatusTimeout)
		x.t.Plain().Heed(context.Background()) // for the cleanup
	})
	t.Run("server", func(t *testing.T) {
		x := newBench(t, Options{})
		silence(x, true)
		b := x.writes(1)
		x.t.Plain().Post(b)
		x.h.stop()
		if err := x.t.Plain().Wait(b); !errors.Is(err, rdma.ErrBladeDown) {
			t.Errorf("a request to a server that has ended: %v", err)
		}
		err := x.t.Reconnect(0)
		if !errors.Is(err, rdma.ErrBladeDown) || rdma.EvidenceOf(err) != rdma.Refused {
			t.Errorf("Reconnect to a server that has ended: %v, evidence %v", err, rdma.EvidenceOf(err))
		}
		x.want(t, x.writes(1), rdma.StatusNoBlade)
	})
	t.Run("located", func(t *testing.T) {
		x := newBench(t, Options{})
		silence(x, true)
		b := x.writes(1)
		x.t.Plain().Post(b)
		if err := x.f.Locate(0, ""); err != nil {
			t.Fatal(err)
		}
		if err := x.t.Plain().Wait(b); !errors.Is(err, rdma.ErrBladeDown) {
			t.Errorf("a request to a server whose place is empty: %v", err)
		}
		if err := x.t.Reconnect(0); !errors.Is(err, rdma.ErrBladeDown) {
			t.Errorf("Reconnect to an empty place: %v", err)
		}
		silence(x, false)
		if err := x.f.Locate(0, x.h.addr); err != nil {
			t.Fatal(err)
		}
		for b := range rdma.BladeID(2) {
			if err := x.t.Reconnect(b); err != nil {
				t.Error(err)
			}
		}
		x.f.Blades()
		x.want(t, x.writes(1), rdma.StatusOK)
	})
	t.Run("device", func(t *testing.T) {
		x := newBench(t, Options{})
		silence(x, true)
		b := x.writes(1)
		x.t.Plain().Post(b)
		x.client.remove()
		if err := x.t.Plain().Wait(b); !errors.Is(err, rdma.ErrBladeDown) {
			t.Errorf("a request of a device that was removed: %v", err)
		}
		if err := x.t.Reconnect(0); !errors.Is(err, ErrDevice) || !errors.Is(err, rdma.ErrBladeDown) {
			t.Errorf("Reconnect without a device: %v", err)
		}
		if err := <-x.told; !strings.Contains(err.Error(), "removed") {
			t.Errorf("it was reported: %v", err)
		}
	})
}

// TestLateCompletion: completions of an earlier connection are none of the present one's requests.
func TestLateCompletion(t *testing.T) {
	x := newBench(t, Options{TCP: tcp.Options{Verb: time.Minute}})
	p := x.port
	old := p.pairs[0].id
	if err := x.t.Reconnect(0); err != nil {
		t.Fatal(err)
	}
	x.net.mu.Lock()
	x.net.silent = true
	x.net.mu.Unlock()
	b := x.writes(1)
	x.t.Plain().Post(b)
	p.pairs[0].completed(&completion{id: old | uint64(p.pairs[0].head)})
	if b.Done() {
		t.Error("a request has completed by a completion of before")
	}
	p.Quit()
	if err := x.t.Plain().Wait(b); !errors.Is(err, rdma.ErrBladeDown) {
		t.Error(err)
	}
}

// TestClientGone: with the connection of a port its partners end.
func TestClientGone(t *testing.T) {
	x := newBench(t, Options{})
	if n := x.h.Pairs(); n != 2 {
		t.Fatalf("%d queue pairs of a thread with two blades", n)
	}
	second, err := rdma.NewThread(x.f, rdma.ThreadOptions{Index: 1, Arena: 1 << 12})
	if err != nil {
		t.Fatal(err)
	}
	if n := x.h.Pairs(); n != 4 {
		t.Errorf("%d queue pairs of two threads", n)
	}
	if err := second.Close(); err != nil {
		t.Error(err)
	}
	for x.h.Pairs() != 2 { // the test's own limit ends it
		time.Sleep(time.Millisecond)
	}
}

// TestPieces: a request that is longer than what the device takes goes in parts, and fails as one.
func TestPieces(t *testing.T) {
	x := newBench(t, Options{}) // 4096 bytes
	const n = 10_000
	for i := range uint32(n) {
		x.t.Bytes(x.buf, n)[i] = byte(i * 7)
	}
	want := slices.Clone(x.t.Bytes(x.buf, n))
	var b rdma.Batch
	b.Write(x.at(1, 4), x.buf, n)
	x.want(t, &b, rdma.StatusOK)
	clear(x.t.Bytes(x.buf, n))
	b.Reset()
	b.Read(x.at(1, 4), x.buf, n)
	b.FAA(x.at(1, 1<<15), 1)
	x.want(t, &b, rdma.StatusOK, rdma.StatusOK)
	if !slices.Equal(x.t.Bytes(x.buf, n), want) {
		t.Error("what was read is not what was written")
	}
	b.Reset()
	b.Write(rdma.RemoteAddr{Blade: 1, Key: x.at(1, 0).Key ^ 1}, x.buf, n)
	b.FAA(x.at(1, 1<<15), 1)
	x.want(t, &b, rdma.StatusKey, rdma.StatusFlushed)
	if err := x.t.Reconnect(1); err != nil {
		t.Fatal(err)
	}
	// The key ends between two parts: what a part has done is no longer "nothing".
	b.Reset()
	b.Write(x.at(1, 0), x.buf, n)
	x.net.mu.Lock()
	x.net.after = func(done int) {
		if done == 1 {
			for _, r := range x.net.regs {
				if r.rights&accessRemoteWrite != 0 {
					delete(x.net.regs, r.key)
				}
			}
		}
	}
	x.net.mu.Unlock()
	x.want(t, &b, rdma.StatusInternal)
}

// TestEmpty: requests of no bytes need a key that opens the blade, though devices do not look at it,
// and a READ of none has WRITEs before it placed.
func TestEmpty(t *testing.T) {
	x := newBench(t, Options{})
	for name, empty := range map[string]func(b *rdma.Batch, a rdma.RemoteAddr){
		"READ":  func(b *rdma.Batch, a rdma.RemoteAddr) { b.Read(a, x.buf, 0) },
		"WRITE": func(b *rdma.Batch, a rdma.RemoteAddr) { b.Write(a, x.buf, 0) },
		"FLUSH": func(b *rdma.Batch, a rdma.RemoteAddr) { b.Flush(a, 0) },
	} {
		var b rdma.Batch
		for _, off := range []uint64{0, 5, 1<<16 - 1, 1 << 16} {
			empty(&b, x.at(0, off))
		}
		x.want(t, &b, rdma.StatusOK, rdma.StatusOK, rdma.StatusOK, rdma.StatusOK)
		b.Reset()
		empty(&b, rdma.RemoteAddr{Key: x.at(0, 0).Key ^ 2})
		if x.want(t, &b, rdma.StatusKey); t.Failed() {
			t.Error(name)
		}
		if err := x.t.Reconnect(0); err != nil {
			t.Fatal(err)
		}
	}
}

// TestLook: what people are told of a device.
func TestLook(t *testing.T) {
	i := look(newNetwork().device("fake0"))
	if i.Name != "fake0" || !i.Active || i.GID != "10.0.0.1" || i.MTU != 4096 || i.Registers != nil || !i.Atomics {
		t.Errorf("%+v", i)
	}
}

// TestRefusedHere: behind a request that was refused before it was posted, Reset needs no server.
func TestRefusedHere(t *testing.T) {
	x := newBench(t, Options{})
	b := x.writes(1)
	b.CAS(x.at(0, 4), 0, 1)
	x.want(t, b, rdma.StatusOK, rdma.StatusAlign)
	made := x.net.next // no goroutine of the network is at work
	if err := x.t.Reconnect(0); err != nil {
		t.Fatal(err)
	}
	x.want(t, x.writes(1), rdma.StatusOK)
	if x.net.next != made {
		t.Errorf("Reset has made %d queue pairs anew", x.net.next-made)
	}
}

// TestKeysRepeat: a device that gives an rkey again does not give a key again.
func TestKeysRepeat(t *testing.T) {
	x := newBench(t, Options{})
	had := map[rdma.Key]bool{x.at(0, 0).Key: true}
	for i := range 40 {
		if i%4 == 1 {
			x.net.mu.Lock()
			x.net.repeat = 2
			x.net.mu.Unlock()
		}
		k, err := x.f.Grant(0)
		if err != nil {
			t.Fatal(err)
		}
		if had[k] || k == 0 {
			t.Errorf("Grant %d returns key %#x again", i, k)
		}
		had[k] = true
		if err := x.f.Revoke(0, k); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRevokeAgain: a Revoke whose registrations do not end has not succeeded, and the next one waits
// for them.
func TestRevokeAgain(t *testing.T) {
	x := newBench(t, Options{})
	old := x.at(0, 0)
	k, err := x.f.Grant(0)
	if err != nil {
		t.Fatal(err)
	}
	var refuse atomic.Bool
	refuse.Store(true)
	x.net.mu.Lock()
	x.net.fails = func(*fakeReg) error {
		if refuse.Load() {
			return syscall.EBUSY
		}
		return nil
	}
	x.net.mu.Unlock()
	if err := x.h.Revoke(0, k); !errors.Is(err, rdma.ErrUnfenced) {
		t.Errorf("Revoke, whose registration does not end: %v", err)
	}
	refuse.Store(false)
	if err := x.h.Revoke(0, k); err != nil {
		t.Error(err)
	}
	var b rdma.Batch
	b.FAA(old, 1)
	x.want(t, &b, rdma.StatusKey)
}

// TestOneKind: blades on sockets and blades behind a device are told apart when a client connects.
func TestOneKind(t *testing.T) {
	x := newBench(t, Options{})
	control, _ := ControlAddress(x.h.addr)
	if _, err := tcp.Dial(t.Context(), []string{control}, tcp.Options{}); !errors.Is(err, tcp.ErrRefused) ||
		!strings.Contains(err.Error(), "rdma:") {
		t.Errorf("blades behind a device, dialled as sockets: %v", err)
	}
	f, err := tcp.Dial(t.Context(), []string{control}, tcp.Options{Elsewhere: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := rdma.NewThread(f, rdma.ThreadOptions{}); !errors.Is(err, tcp.ErrOptions) {
		t.Errorf("a thread on a control path alone: %v", err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

// TestUnusable: devices on which the engine cannot be right are refused, and so are policies that
// belong to the simulator.
func TestUnusable(t *testing.T) {
	n := newNetwork()
	n.atomics = false
	if s, err := newServer(n.device("fake0"), ServerOptions{Blades: sizes(1, 1<<16)}); !errors.Is(err, ErrDevice) {
		t.Errorf("a device without atomics: %v, %v", s, err)
	}
	_, err := dial(t.Context(), n.device("fake0"), []string{"rdma:127.0.0.1:1"}, Options{})
	if !errors.Is(err, ErrDevice) {
		t.Errorf("a device without atomics: %v", err)
	}
	if _, err := NewServer(ServerOptions{Blades: []uint64{100}}); !errors.Is(err, ErrOptions) {
		t.Errorf("a blade of 100 bytes: %v", err)
	}
	if !Built {
		if _, err := NewServer(ServerOptions{Blades: sizes(1, 1<<16)}); !errors.Is(err, ErrNotBuilt) {
			t.Errorf("a program without libibverbs: %v", err)
		}
	}
	n.atomics = true
	_, err = dial(t.Context(), n.device("fake0"), []string{"tcp:127.0.0.1:1"}, Options{})
	if !errors.Is(err, ErrOptions) {
		t.Errorf("an address of sockets: %v", err)
	}
	x := newBench(t, Options{})
	if _, err := rdma.NewThread(x.f, rdma.ThreadOptions{Policy: rdma.SharedQP}); !errors.Is(err, ErrOptions) {
		t.Errorf("threads that share queue pairs: %v", err)
	}
}

// TestWords: statuses and events that are known say what to do.
func TestWords(t *testing.T) {
	for _, s := range []uint32{wcFlushed, wcRemoteAccess, wcRetryExceeded, 21} {
		if text := words(s); !strings.Contains(text, ": ") || strings.Contains(text, "look it up") {
			t.Errorf("status %d: %q", s, text)
		}
	}
	for _, k := range []uint32{eventDeviceFatal, eventPortActive, eventPortError} {
		if text := (event{k}).String(); strings.Contains(text, "look it up") {
			t.Errorf("event %d: %q", k, text)
		}
	}
	if text := (event{99}).String() + words(99); strings.Count(text, "look it up") != 2 {
		t.Errorf("what is not known: %q", text)
	}
}
