package cluster

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"txnode/internal/outwait"
	"txnode/memory"
	"txnode/memory/embedded"
	"txnode/memory/layout"
	"txnode/rdma"
	"txnode/rdma/ibverbs"
	"txnode/rdma/shm"
	"txnode/rdma/tcp"
	"txnode/txn"
)

// Options are those of the connections. The zero value is usable on one host.
type Options struct {
	// TCP is for the catalog, and for blades of sockets. Of a catalog of another scheme, the
	// package that registers the scheme says which of these options count. Deadlines that are 0
	// follow from Term: Connect and Verb are half of it, Control is the whole.
	TCP tcp.Options
	// Term is the lease term of the programs of the cluster, from which deadlines follow that are
	// not set; 0: txn.DefaultLeaseTerm, and in Open that of the database. A shorter one than the
	// default makes no deadline shorter.
	Term time.Duration
	// Shm is for blades of shared memory. Servers is set by this package.
	Shm shm.Options
	// RDMA is the device of this host for blades behind devices. The zero value is the first one
	// with an active port.
	RDMA ibverbs.Device
	// RDMAReport is told of events of that device, and of requests that failed for another reason
	// than their key: ibverbs.Options.Report. It must not block. nil: in Open txn.Options.Logger is
	// told, in Connect nothing is.
	RDMAReport func(error)
	// Post is how often Open has the process tell a daemon of the cluster its metrics, for txnode
	// top: the daemon of the catalog, or one of blades on sockets. It costs the reading of
	// counters, a few KiB and one connection. 0: DefaultPost; negative: never.
	Post time.Duration
}

// Host is a cluster that a process has connected to. Fabric and Catalog are for txn.Options. The
// fields must not be changed.
type Host struct {
	Fabric  rdma.Fabric
	Catalog layout.Catalog
	Servers []Server

	publisher *publisher // nil: there is none
}

// Connect connects to the cluster whose catalog is at an address (see DialCatalog). A server of
// blades on a socket that does not answer has blades that are down, until it does; one must answer,
// and of shared memory all. ctx bounds the connecting only. Close comes last, after the database's.
//
// Errors are one line and name the address: ErrOptions, ErrNone, ErrOtherBlades, ErrDamaged,
// memory.ErrAway for a catalog that does not answer, rdma.ErrBladeDown for blades that do not, and
// those of packages tcp and shm.
func Connect(ctx context.Context, address string, o Options) (*Host, error) {
	cat, err := DialCatalog(ctx, address, o)
	if err != nil {
		return nil, err
	}
	servers, err := Servers(heed(ctx, cat))
	var f rdma.Fabric
	if err == nil {
		f, err = dialServers(ctx, servers, o)
	}
	if err != nil {
		_ = cat.Close() // it was asked only
		return nil, err
	}
	if l, ok := f.(locator); ok {
		cat = &followed{Catalog: cat, fabric: l}
	}
	return &Host{Fabric: f, Catalog: cat, Servers: servers}, nil
}

// Close closes the connections. Threads of the fabric must be closed before.
func (h *Host) Close() error {
	h.publisher.stop()
	return errors.Join(h.Fabric.Close(), h.Catalog.Close())
}

// Open opens the database of the cluster whose catalog is at an address, beside the processes that
// have it open, and creates it if there is none. Fabric, Catalog, Shared and Closer of to are set
// by this function. DB.Close ends the connections. Errors are those of Connect and of txn.Open.
func Open(ctx context.Context, address string, to txn.Options, o Options) (*txn.DB, error) {
	if to.Fabric != nil || to.Catalog != nil || to.Closer != nil {
		return nil, fmt.Errorf("%w: Fabric, Catalog and Closer are the cluster's", ErrOptions)
	}
	if o.Term == 0 {
		o.Term = to.LeaseTerm
	}
	if o.RDMAReport == nil {
		o.RDMAReport = toLogger(to.Logger)
	}
	h, err := Connect(ctx, address, o)
	if err != nil {
		return nil, err
	}
	to.Fabric, to.Catalog, to.Shared, to.Closer = h.Fabric, h.Catalog, true, h
	db, err := txn.Open(ctx, to)
	if err != nil {
		return nil, oneLine(err)
	}
	h.publish(db, o)
	return db, nil
}

// toLogger tells a logger of events of the RDMA device; nil: there is no logger.
func toLogger(log *zap.Logger) func(error) {
	if log == nil {
		return nil
	}
	return func(err error) { log.Warn("the RDMA device", zap.String("event", oneLine(err).Error())) }
}

// Geometry is how a new database is laid out. It belongs to the database. The zero value has
// defaults.
type Geometry struct {
	// Backups is the number of copies of each segment beside its primary: 0, 1 or 2, and less than
	// there are blades; nil: 1, or 0 with one blade.
	Backups *int
	// SegmentSize and LogArea, in bytes, are those of memory.Options; 0: SegmentSize is what
	// package memory/embedded takes for blades of such sizes.
	SegmentSize, LogArea uint32
	// Places is how many blades there can be, at most layout.MaxBlades; 0, or less than there
	// are: as many as there are. For the others AddBlade can be called later. With shared
	// memory there are none.
	Places int
}

// options are those of the memory of a database on such blades.
func (g Geometry) options(blades []rdma.BladeInfo) memory.Options {
	least, n := uint64(math.MaxUint64), 0
	for _, b := range blades {
		if b.Size > 0 {
			least, n = min(least, b.Size), n+1
		}
	}
	e := embedded.Options{BladeSize: least, SegmentSize: g.SegmentSize, LogArea: g.LogArea}.WithDefaults()
	m := memory.Options{
		Backups: min(txn.DefaultBackups, n-1), SegmentSize: e.SegmentSize, LogArea: g.LogArea, Shared: true,
	}
	if g.Backups != nil {
		m.Backups = *g.Backups
	}
	return m
}

// Init writes into an empty catalog which servers have its blades, in the order of the blades' ids,
// and creates a database on them, which has no tables. Paths that are relative to the working
// directory are written as absolute ones. Each server must answer: it tells how many blades it has,
// and their sizes. One that has announced itself is in the domain that it has said. ErrExists: the
// catalog is not empty; ErrSame: it has a cluster that is the same, and the servers were not asked.
// After an error, or the end of the process, it may be called again with the same servers, and ends
// what it had begun. Other errors are those of Connect, of the catalog, and of memory.Open.
func Init(ctx context.Context, cat layout.Catalog, addresses []BladeAddress, g Geometry, o Options) error {
	cat = heed(ctx, cat)
	addresses = slices.Clone(addresses)
	for i, a := range addresses {
		var err error
		if addresses[i], err = a.absolute(); err != nil {
			return err
		}
	}
	if err := check(addresses); err != nil {
		return err
	}
	if err := made(cat, addresses, g); err != nil {
		return err
	}
	servers := make([]Server, len(addresses))
	entries, _, err := cat.Load()
	if err != nil {
		return err
	}
	announced, err := announcedIn(entries)
	if err != nil {
		return err
	}
	for i, a := range addresses {
		servers[i].Address = a
		if k := slices.IndexFunc(announced, func(x Announced) bool { return x.Address == a }); k >= 0 {
			servers[i].Domain = announced[k].Domain
		}
	}
	blades := 0
	of := incarnations{}
	for i, p := range probeAll(ctx, servers, o) {
		if p.err != nil {
			return p.err
		}
		if other := of.add(i, p.blades); other >= 0 {
			return fmt.Errorf("%w: %s and %s are the same server", ErrOptions, addresses[other], addresses[i])
		}
		for _, b := range p.blades {
			servers[i].Blades = append(servers[i].Blades, b.Size)
		}
		blades += len(p.blades)
	}
	if _, _, shm := addresses[0].shared(); shm && g.Places > blades {
		return fmt.Errorf("%w: %d places: blades of shared memory are all there from the beginning",
			ErrOptions, g.Places)
	}
	var vacant []Server
	for ; blades < g.Places; blades++ {
		vacant = append(vacant, Server{Blades: []uint64{0}})
	}
	servers = slices.Concat(servers, vacant)
	if blades > layout.MaxBlades {
		return fmt.Errorf("%w: %d blades: at most %d are possible", ErrOptions, blades, layout.MaxBlades)
	}
	f, err := dialServers(ctx, servers, o)
	if err != nil {
		return err
	}
	m := g.options(f.Blades())
	for i := range servers {
		m.Domains = append(m.Domains, slices.Repeat([]string{servers[i].domainOf()}, len(servers[i].Blades))...)
	}
	if err = errors.Join(m.Validate(), m.Fit(f.Blades())); err != nil {
		err = fmt.Errorf("%w: %w", ErrOptions, err)
	} else if err = ctx.Err(); err != nil {
		err = fmt.Errorf("cluster: creating the database: %w", err)
	} else if err = write(cat, servers); err == nil {
		err = outwait.Await(ctx, func() error { return create(f, cat, m) }, func(error) { _ = f.Close() })
		if errors.Is(err, rdma.ErrLeft) && !errors.Is(err, memory.ErrAway) {
			return fmt.Errorf("cluster: creating the database: %w", err) // which goes on as far as it gets
		}
		if err == nil {
			err = written(cat)
		}
	}
	return oneLine(err, f.Close())
}

// create creates a database.
func create(f rdma.Fabric, cat layout.Catalog, m memory.Options) error {
	t, err := rdma.NewThread(f, rdma.ThreadOptions{})
	if err != nil {
		return err
	}
	m.Until = f.Now() + int64(txn.DefaultLeaseTerm)
	s, err := memory.Open(t.Plain(), f, cat, m)
	if err == nil {
		err = s.Close(t.Plain())
	}
	return errors.Join(err, t.Close())
}

// lines is several errors in one line.
type lines struct {
	text string
	all  []error
}

// Error returns the texts, with semicolons between them.
func (l *lines) Error() string { return l.text }

// Unwrap returns the errors.
func (l *lines) Unwrap() []error { return l.all }

// oneLine joins errors, of which some may have several lines; nil are left out.
func oneLine(all ...error) error {
	all = slices.DeleteFunc(all, func(err error) bool { return err == nil })
	if len(all) == 0 {
		return nil
	}
	var texts []string
	for _, err := range all {
		texts = append(texts, strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return &lines{strings.Join(texts, "; "), all}
}

// fabricOf connects to servers.
func fabricOf(ctx context.Context, servers []Server, o Options) (rdma.Fabric, error) {
	var names []string
	dir, _, shared := servers[0].Address.shared()
	for _, s := range servers {
		name := string(s.Address)
		if shared {
			_, name, _ = s.Address.shared()
		}
		names = append(names, name)
	}
	if shared {
		so := o.Shm
		so.Servers = names
		f, err := shm.Dial(ctx, dir, so)
		if err != nil {
			return nil, oneLine(fmt.Errorf("%s%s: %w", shmPrefix, dir, err))
		}
		return f, nil
	}
	if slices.ContainsFunc(servers, func(s Server) bool { return s.Address.device() }) {
		f, err := ibverbs.Dial(ctx, names, ibverbs.Options{TCP: o.tcp(), Device: o.RDMA, Report: o.RDMAReport})
		if err != nil {
			return nil, oneLine(err)
		}
		return f, nil
	}
	f, err := tcp.Dial(ctx, names, o.tcp())
	if err != nil {
		return nil, oneLine(err)
	}
	return f, nil
}

// dialServers is fabricOf for servers that must have the blades that the catalog says.
func dialServers(ctx context.Context, servers []Server, o Options) (rdma.Fabric, error) {
	var want []uint64
	for _, s := range servers {
		want = append(want, s.Blades...)
		o.TCP.Absent = append(o.TCP.Absent, s.Blades)
	}
	f, err := fabricOf(ctx, servers, o)
	if err != nil {
		return nil, err
	}
	o.TCP.Absent = nil
	if err = compare("together", want, f.Blades()); err == nil {
		return f, nil
	}
	for i, p := range probeAll(ctx, servers, o) { // which one is it?
		if p.err == nil && !servers[i].Vacant() {
			p.err = compare(string(servers[i].Address), servers[i].Blades, p.blades)
		}
		if p.err != nil {
			return nil, oneLine(p.err, f.Close())
		}
	}
	return nil, oneLine(err, f.Close())
}

// compare compares blades with the sizes that the catalog says. A blade may have become larger.
func compare(address string, want []uint64, have []rdma.BladeInfo) error {
	if len(have) != len(want) {
		return fmt.Errorf("%w: %s: it has %d blades, and the catalog says %d",
			ErrOtherBlades, address, len(have), len(want))
	}
	for i, b := range have {
		if b.Size < want[i] {
			return fmt.Errorf("%w: %s: its blade %d has %d bytes, and the catalog says %d",
				ErrOtherBlades, address, i, b.Size, want[i])
		}
	}
	return nil
}

// incarnations are the servers, by their places, with blades of incarnations: numbers that
// no two servers draw.
type incarnations map[uint64]int

// add adds the blades of server i. It returns the server that has one of them by another address,
// or -1.
func (x incarnations) add(i int, blades []rdma.BladeInfo) int {
	for _, b := range blades {
		if b.Unheard {
			continue
		}
		if other, ok := x[b.Incarnation]; ok && other != i {
			return other
		}
		x[b.Incarnation] = i
	}
	return -1
}

// probed is what a server has answered.
type probed struct {
	blades []rdma.BladeInfo
	heads  [][]byte // of the regions of its blades, if they were read
	err    error
}

// probeAll asks all servers at once for their blades; those of a vacant place are none.
func probeAll(ctx context.Context, servers []Server, o Options) []probed {
	out := make([]probed, len(servers))
	var wg sync.WaitGroup
	for i := range servers {
		if servers[i].Vacant() {
			continue
		}
		wg.Go(func() { out[i] = probe(ctx, servers[i], o) })
	}
	wg.Wait()
	return out
}

// probe asks a server for its blades. Of blades behind a device it needs the control path alone.
func probe(ctx context.Context, s Server, o Options) probed {
	var f rdma.Fabric
	var err error
	if s.Address.device() {
		to := o.tcp()
		to.Elsewhere = true
		f, err = tcp.Dial(ctx, []string{controlOf(string(s.Address))}, to)
	} else {
		f, err = fabricOf(ctx, []Server{s}, o)
	}
	if err != nil {
		return probed{err: err}
	}
	return probed{blades: f.Blades(), err: oneLine(f.Close())}
}
