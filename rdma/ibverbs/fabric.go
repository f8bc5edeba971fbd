package ibverbs

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"txnode/rdma"
	"txnode/rdma/tcp"
)

// Fabric is the client's side: the blades of one or several servers, reached through one device of
// this host. Its control path is that of package tcp. All methods are safe for concurrent use.
type Fabric struct {
	*tcp.Fabric // the control path
	o           Options
	dev         device
	caps        rdma.Caps
	ends        ends
	spin        int64
	flush       bool        // the device has FLUSH
	gone        atomic.Bool // the device
	events      sync.WaitGroup

	mu     sync.Mutex
	ports  int
	closed bool
}

var _ rdma.Fabric = (*Fabric)(nil)

const prefix = "rdma:"

// ControlAddress is where the control path of a server is, for package tcp: of "rdma:HOST:PORT",
// also with two slashes behind the colon, it is "tcp:HOST:PORT". false: it is no such address.
func ControlAddress(address string) (string, bool) {
	rest, ok := strings.CutPrefix(address, prefix)
	if !ok {
		return "", false
	}
	control := "tcp:" + strings.TrimPrefix(rest, "//")
	_, _, err := tcp.ParseAddress(control)
	return control, err == nil
}

// control is ControlAddress with an error; "" stays.
func control(address string) (string, error) {
	if address == "" {
		return "", nil
	}
	a, ok := ControlAddress(address)
	if !ok {
		return "", fmt.Errorf("%w: address %q: it must be rdma:HOST:PORT", ErrOptions, address)
	}
	return a, nil
}

// Dial connects to servers, as tcp.Dial does: "rdma:HOST:PORT" is the address of a server's control
// path. Errors match ErrOptions, ErrNotBuilt, ErrDevice, or are those of tcp.Dial.
func Dial(ctx context.Context, addresses []string, o Options) (*Fabric, error) {
	dev, err := openDevice(o.Device)
	if err != nil {
		return nil, err
	}
	return dial(ctx, dev, addresses, o)
}

// maxDepth is how many requests a queue pair has at most.
const maxDepth = 256

// dial has the device from then on.
func dial(ctx context.Context, dev device, addresses []string, o Options) (*Fabric, error) {
	f := &Fabric{o: o, dev: dev, ends: endsOf(dev)}
	fail := func(err error) (*Fabric, error) { return nil, errors.Join(err, dev.close()) }
	if err := usable(dev); err != nil {
		return fail(err)
	}
	controls := make([]string, len(addresses))
	for i, a := range addresses {
		var err error
		if controls[i], err = control(a); err != nil {
			return fail(err)
		}
	}
	to := o.TCP
	to.Elsewhere = true
	var err error
	if f.Fabric, err = tcp.Dial(ctx, controls, to); err != nil {
		return fail(err)
	}
	if f.o.TCP.Verb == 0 {
		f.o.TCP.Verb = tcp.DefaultVerb
	}
	if f.o.TCP.Control == 0 {
		f.o.TCP.Control = tcp.DefaultControl
	}
	a := dev.attributes()
	f.flush = a.flush
	switch {
	case o.Spin > 0:
		f.spin = int64(o.Spin)
	case o.Spin == 0 && !a.software:
		f.spin = int64(DefaultSpin)
	}
	blades := len(f.Known())
	depth := min(maxDepth, a.depth, a.entries/max(blades, 1))
	if depth < 2 {
		return nil, errors.Join(fmt.Errorf("%w: %s has completion queues of %d entries, too few for %d blades",
			ErrDevice, a.name, a.entries, blades), f.Fabric.Close(), dev.close())
	}
	f.caps = rdma.Caps{RealTime: true, Remote: true, MaxBatch: 1 << (bits.Len(uint(depth)) - 1)}
	f.events.Go(func() { watch(dev, o.Report, func() { f.gone.Store(true) }) })
	return f, nil
}

// Name returns "ibverbs".
func (f *Fabric) Name() string { return "ibverbs" }

// Caps returns the promises: time is real. A WRITE that has completed need not be placed, and
// nothing says in which order its words are.
func (f *Fabric) Caps() rdma.Caps { return f.caps }

// Locate is that of tcp.Fabric, with an address of Dial.
func (f *Fabric) Locate(server int, address string) error {
	a, err := control(address)
	if err != nil {
		return err
	}
	return f.Fabric.Locate(server, a)
}

// Close closes the control path and the device. Every port must be closed. To close again does
// nothing.
func (f *Fabric) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ports > 0 {
		return fmt.Errorf("ibverbs: %d ports are still open", f.ports)
	}
	if f.closed {
		return nil
	}
	f.closed = true
	err := errors.Join(f.Fabric.Close(), f.dev.close())
	f.events.Wait()
	return err
}

// NewPort maps and registers an arena, and connects a queue pair to every blade. A blade that cannot
// be reached is no error: its queue pair is in the error state, and Reset tries again. Policies that
// share queue pairs between threads are the simulator's.
func (f *Fabric) NewPort(cfg rdma.PortConfig) (rdma.Port, error) {
	if cfg.Arena <= 0 || cfg.Arena > math.MaxInt32-1<<16 {
		return nil, fmt.Errorf("ibverbs: arena of %d bytes: between 1 and 2^31-1-65536 are possible", cfg.Arena)
	}
	if cfg.Policy != rdma.PerThreadDoorbell && cfg.Policy != rdma.PerThreadQP {
		return nil, fmt.Errorf("%w: threads that share queue pairs (%v) are known to the simulator only", ErrOptions,
			cfg.Policy)
	}
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return nil, fmt.Errorf("ibverbs: %w", rdma.ErrClosed)
	}
	f.ports++
	f.mu.Unlock()
	p, err := newPort(f, cfg)
	if err != nil {
		f.leave()
		return nil, err
	}
	return p, nil
}

// leave says that a port is closed.
func (f *Fabric) leave() {
	f.mu.Lock()
	f.ports--
	f.mu.Unlock()
}

// down says that a blade cannot be reached, and why.
func down(b rdma.BladeID, err error) error {
	if !errors.Is(err, rdma.ErrBladeDown) {
		err = fmt.Errorf("%w: %w", err, rdma.ErrBladeDown)
	}
	if errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, rdma.ErrSilent) {
		err = fmt.Errorf("%w: %w", err, rdma.ErrSilent)
	}
	return fmt.Errorf("ibverbs: blade %d: %w", b, err)
}

// link is the connection of a port to the service of one server. With the connection the server's
// side of the queue pairs ends.
type link struct {
	f      *Fabric
	server int
	at     string // address of the caller
	caller *tcp.Caller
	gone   <-chan struct{} // closed when the connection has ended
}

// alive reports whether the connection of the last call is there, and the server has not moved.
func (l *link) alive() bool {
	if l.caller == nil || l.f.Address(l.server) != l.at {
		return false
	}
	select {
	case <-l.gone:
		return false
	default:
		return true
	}
}

// connect has the server make partners of queue pairs.
func (l *link) connect(rows []row) (theirs ends, answers []answer, err error) {
	at := l.f.Address(l.server)
	if at == "" {
		return theirs, nil, fmt.Errorf("there is no server for it yet: %w", rdma.ErrBladeDown)
	}
	if l.caller == nil || l.at != at {
		l.close()
		to := l.f.o.TCP
		to.Absent = nil
		c, err := tcp.NewCaller(at, ServiceName, to)
		if err != nil {
			return theirs, nil, err
		}
		l.caller, l.at = c, at
	}
	request := head(&l.f.ends, len(rows))
	for i := range rows {
		request = rows[i].append(request)
	}
	ctx, cancel := context.WithTimeout(context.Background(), l.f.o.TCP.Control)
	defer cancel()
	reply, err := l.caller.Call(ctx, request)
	l.gone = l.caller.Gone()
	if err != nil {
		return theirs, nil, err
	}
	theirs, n, err := getHead(reply, answerSize)
	if err == nil && (n != len(rows) || theirs.ethernet != l.f.ends.ethernet) {
		err = fmt.Errorf("%w: %d queue pairs for %d", errMessage, n, len(rows))
	}
	if err != nil {
		return theirs, nil, err
	}
	answers = make([]answer, n)
	for i := range answers {
		answers[i].get(reply[headSize+i*answerSize:])
	}
	return theirs, answers, nil
}

func (l *link) close() {
	if l.caller != nil {
		_ = l.caller.Close() // what it would say was said
	}
	l.caller = nil
}

// pollEvery is how long a thread sleeps at most before it looks whether its connections are there.
const pollEvery = int64(20 * time.Millisecond)
