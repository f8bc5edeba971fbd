package shm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"txnode/rdma"
	"txnode/rdma/region"
)

// Fabric is the client's side: the blades of the servers of a directory. All methods are
// safe for concurrent use. Calls of the control path are answered by the servers, each
// within Options.Control.
type Fabric struct {
	o        Options
	dir      string
	seed     uint64
	clock    region.Clock
	lanes    *lanes
	set      *region.Set
	peers    []*peer
	places   []place // by blade
	watching sync.WaitGroup
	ctx      context.Context // ends with Close
	cancel   context.CancelFunc

	mu     sync.Mutex
	closed bool
}

// place is where a blade is.
type place struct {
	server *peer
	index  uint16
}

var (
	_ rdma.Fabric      = (*Fabric)(nil)
	_ rdma.PageAdvisor = (*Fabric)(nil)
)

// Dial connects to the servers of a directory. The blades of the fabric are those of the first
// server, then those of the second, and so on. All must answer. Errors name the server; they match
// ErrOptions, ErrDirectory, ErrRefused, or rdma.ErrBladeDown for a server that does not answer.
func Dial(ctx context.Context, dir string, o Options) (*Fabric, error) {
	o.Servers = slices.Clone(o.Servers)
	if err := o.complete(dir); err != nil {
		return nil, err
	}
	if o.Servers == nil {
		all, err := os.ReadDir(dir) // sorted
		if err != nil {
			return nil, fmt.Errorf("%w: %w: %w", ErrDirectory, err, rdma.ErrBladeDown)
		}
		for _, e := range all {
			if name, ok := strings.CutSuffix(e.Name(), socketExt); ok {
				o.Servers = append(o.Servers, name)
			}
		}
	}
	if len(o.Servers) == 0 {
		return nil, fmt.Errorf("%w: no server in %s: %w", ErrDirectory, dir, rdma.ErrBladeDown)
	}
	f := newFabric(dir, o)
	if f.seed == 0 {
		f.seed = uint64(time.Now().UnixNano())
	}
	var err error
	if f.clock, err = hostClock(); err != nil {
		return nil, err
	}
	if f.lanes, err = openLanes(dir, false, o.Control); err != nil {
		return nil, err
	}
	if err := f.open(ctx); err != nil {
		return nil, errors.Join(err, f.lanes.close())
	}
	return f, nil
}

func newFabric(dir string, o Options) *Fabric {
	f := &Fabric{o: o, dir: dir, seed: o.Seed}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	return f
}

// open maps the blades of all servers.
func (f *Fabric) open(ctx context.Context) (err error) {
	var got []*attached
	var regions []region.Options
	defer func() {
		if err != nil {
			for _, t := range got {
				err = errors.Join(err, t.discard())
			}
		}
	}()
	for _, name := range f.o.Servers {
		p := &peer{f: f, name: name, path: socketOf(f.dir, name), first: len(regions)}
		t, err := p.attach(ctx)
		if err != nil {
			return err
		}
		got = append(got, t)
		regions = append(regions, t.regions...)
		p.shape = t.shape
		f.peers = append(f.peers, p)
		for i := range t.shape {
			f.places = append(f.places, place{p, uint16(i)})
		}
	}
	if len(regions) > maxBlades {
		return fmt.Errorf("%w: %d blades: at most %d are possible", ErrOptions, len(regions), maxBlades)
	}
	f.set, err = region.New(region.Config{Regions: regions, Seed: f.seed, Lines: f.lanes, Revive: f.revive})
	for i, t := range got {
		t.regions = nil // the set has had them
		if err == nil {
			f.peers[i].mu.Lock()
			f.peers[i].took(t)
			f.peers[i].mu.Unlock()
		}
	}
	return err
}

// revive connects to the server of a blade that is stopped, if it has begun anew.
func (f *Fabric) revive(b rdma.BladeID) {
	_ = f.look(f.places[b].server)
}

// look connects to a server anew if it has begun anew. If that does not succeed its blades stay
// stopped, and what uses them says so.
func (f *Fabric) look(p *peer) error {
	ctx, cancel := context.WithTimeout(f.ctx, f.o.Control)
	defer cancel()
	return p.current(ctx)
}

// hostClock is the system's monotonic clock, which is the same for all processes.
func hostClock() (c region.Clock, err error) {
	best := time.Hour
	for range 10 { // the shortest look tells best
		start := time.Now()
		var ts unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
			return c, fmt.Errorf("shm: the monotonic clock: %w", err)
		}
		if took := time.Since(start); took < best {
			best = took
			c = region.Clock{Start: start, Base: ts.Nano() - int64(took)/2}
		}
	}
	return c, nil
}

// Name returns "shm".
func (f *Fabric) Name() string { return "shm" }

// Caps returns the promises: everything completes in Post, is placed then, and lines are ordered.
// It is Durable if all blades are files.
func (f *Fabric) Caps() rdma.Caps {
	return rdma.Caps{
		RealTime: true, Synchronous: true, Placed: true, OrderedLine: true, MaskedCAS: true,
		Durable: f.set.Durable(), MaxBatch: 1 << 16,
	}
}

// Blades lists the blades with their oldest keys. Servers that have ended are tried again; what
// those that do not answer have told last is listed: rdma.BladeInfo.Unheard.
func (f *Fabric) Blades() []rdma.BladeInfo {
	unheard := make([]bool, len(f.peers))
	for i, p := range f.peers {
		unheard[i] = f.look(p) != nil
	}
	all := f.set.Blades()
	for i, p := range f.peers {
		for b := range p.shape {
			all[p.first+b].Unheard = unheard[i]
		}
	}
	return all
}

// Now is the system's monotonic clock in nanoseconds, for all processes of the host the same to
// within a microsecond.
func (f *Fabric) Now() int64 { return f.clock.Now() }

// Seed returns the seed.
func (f *Fabric) Seed() uint64 { return f.seed }

// Run runs fn(0) ... fn(n-1) on a goroutine each.
func (f *Fabric) Run(n int, fn func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { fn(i) })
	}
	wg.Wait()
}

// NewPort maps an arena and connects it to all blades. ErrDirectory: all lanes of the directory
// are taken.
func (f *Fabric) NewPort(cfg rdma.PortConfig) (rdma.Port, error) {
	l, err := f.set.NewLane(cfg.Arena)
	if err != nil {
		return nil, err
	}
	return l.Port(f.clock), nil
}

// AdviseHuge asks for transparent huge pages: rdma.PageAdvisor. It is a hint.
func (f *Fabric) AdviseHuge(p []byte) { f.set.AdviseHuge(p) }

// AdviseSmall asks for small pages: rdma.PageAdvisor. It is a hint.
func (f *Fabric) AdviseSmall(b rdma.BladeID, off, n uint64) { f.set.AdviseSmall(b, off, n) }

// Provision has the server reserve memory: rdma.Fabric.
func (f *Fabric) Provision(b rdma.BladeID, off, n uint64) error {
	_, err := f.at(b, call{action: actProvision, off: off, n: n})
	return err
}

// Grant has the server grant a key of a blade: rdma.Fabric. After an error that is
// rdma.ErrBladeDown it may have done so.
func (f *Fabric) Grant(b rdma.BladeID) (rdma.Key, error) {
	a, err := f.at(b, call{action: actGrant})
	return a.key, err
}

// Revoke has the server end keys of a blade: rdma.Fabric. It waits for clients that are in the
// middle of a batch for three quarters of Options.Control; then it ends with ErrStuck. A
// client that gives no sign of life for ServerOptions.Patience of such waiting is ended by the
// server. After an error that is rdma.ErrBladeDown the server may have done so, or may still;
// if the server has ended, which rdma.ErrBladeDown without rdma.ErrSilent says, no verb takes
// effect there any more.
func (f *Fabric) Revoke(b rdma.BladeID, before rdma.Key) error {
	_, err := f.at(b, call{action: actRevoke, key: before})
	return err
}

// at executes a call for a blade.
func (f *Fabric) at(b rdma.BladeID, x call) (answer, error) {
	f.mu.Lock()
	closed := f.closed
	f.mu.Unlock()
	if closed {
		return answer{}, fmt.Errorf("shm: %w", rdma.ErrClosed)
	}
	if int(b) >= len(f.places) {
		return answer{}, fmt.Errorf("shm: blade %d of %d: %w", b, len(f.places), rdma.ErrBladeDown)
	}
	x.blade = f.places[b].index
	return f.places[b].server.call(x)
}

// Close ends the connections and unmaps the blades. Every port must be closed. To close again does
// nothing.
func (f *Fabric) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil
	}
	if err := f.set.Close(); err != nil {
		return err
	}
	f.closed = true
	f.cancel()
	for _, p := range f.peers {
		p.close()
	}
	f.watching.Wait()
	var errs []error
	for _, p := range f.peers {
		p.mu.Lock() // calls that are under way look at keys and lanes until they find that the fabric is closed
		for _, k := range p.kept {
			errs = append(errs, k.close())
		}
		p.mu.Unlock()
	}
	return errors.Join(append(errs, f.lanes.close())...)
}
