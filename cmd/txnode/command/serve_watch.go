package command

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"txnode/cluster"
	"txnode/memory"
	"txnode/memory/layout"
	"txnode/rdma/region"
	"txnode/rdma/tcp"
	"txnode/txn"
)

// How often a daemon with --http looks at itself, and for how long it remembers.
const (
	watchEvery   = time.Second
	watchCatalog = 5 // every so many looks, at the catalog, too
	watchFor     = 60
	rateOver     = 10 // looks that a rate is over
)

// look is what a daemon sees of itself at a moment.
type look struct {
	At, Began time.Time
	Limit     int // of connections
	Sockets   bool
	Counted   bool // the daemon executes the verbs, and counts them
	Net       tcp.Stats
	Blades    []bladeLook
	Disks     []diskLook

	// Of the catalog, if the daemon has one. Database is nil if there is none in it.
	Catalog   string
	Database  *layout.Layout
	Servers   []cluster.Server
	Processes []processLook
	Build     txn.CopyMetrics // how far copies are, as far as this daemon is told
	Err       error           // why the catalog could not be read
}

type bladeLook struct {
	ID     string // for ever; "": none
	Region region.Stats
	Data   tcp.BladeStats
}

// processLook is a process that is registered in the catalog. Clocks of processes are not compared:
// a lease lasts for its term by the clock of this process, from when it was last seen to change.
type processLook struct {
	ID     uint32
	Closed bool // it has closed the database, and has left segments
	Live   bool
	Term   time.Duration
	Since  time.Duration // the last sign of life, as far as this process has seen it
}

// watch remembers what was seen for a minute, so that a page can tell rates.
type watch struct {
	d *daemon

	mu     sync.Mutex
	far    farLook
	past   []look // without the catalog; the last are the newest, watchEvery apart
	leases leases
}

// leases are those of processes, as they were seen to change last.
type leases map[uint32]lease

type lease struct {
	until   int64
	count   uint64 // of signs of life
	changed time.Time
}

// farLook is what a catalog elsewhere has said last.
type farLook struct {
	database *layout.Layout
	servers  []cluster.Server
	beats    []layout.Beat
	err      error
}

// follow looks at the catalog of --cluster again and again, until ctx ends. It waits for a catalog
// that does not answer, and no page does.
func (w *watch) follow(ctx context.Context) {
	address := w.d.o.Cluster
	if address == "" {
		return
	}
	w.setFar(farLook{err: fmt.Errorf("%s has not answered yet: %w", address, memory.ErrAway)})
	ticks := time.NewTicker(watchCatalog * watchEvery)
	defer ticks.Stop()
	var cat layout.Catalog
	for ctx.Err() == nil {
		var l farLook
		if cat == nil {
			cat, l.err = cluster.DialCatalog(ctx, address,
				cluster.Options{TCP: tcp.Options{Credentials: w.d.files.Client}})
		}
		if l.err == nil {
			l.database, l.err = layout.LoadLayout(cat)
		}
		if l.err == nil {
			l.servers, _ = cluster.Servers(cat) // a database without a cluster has none
			l.beats, l.err = cat.KeepAlive(layout.Beat{})
		}
		w.setFar(l)
		select {
		case <-ctx.Done():
		case <-ticks.C:
		}
	}
	if cat != nil {
		_ = cat.Close() // it was asked only
	}
}

func (w *watch) setFar(l farLook) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.far = l
}

func newWatch(d *daemon) *watch { return &watch{d: d} }

// run looks until ctx ends.
func (w *watch) run(ctx context.Context) {
	ticks := time.NewTicker(watchEvery)
	defer ticks.Stop()
	for n := 0; ; n++ {
		now := time.Now()
		s := w.d.look(now)
		if n%watchCatalog == 0 {
			l := s
			w.catalog(&l)
		}
		w.keep(&s)
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
	}
}

func (w *watch) keep(s *look) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.past) > watchFor {
		w.past = append(w.past[:0], w.past[1:]...)
	}
	w.past = append(w.past, *s)
}

// look looks now, at the catalog, too.
func (w *watch) look(now time.Time) look {
	s := w.d.look(now)
	w.catalog(&s)
	return s
}

// before are the looks of the last minute, the oldest first.
func (w *watch) before() []look {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]look(nil), w.past...)
}

// catalog adds what the catalog says.
func (w *watch) catalog(s *look) {
	c := w.d.catalog
	var beats []layout.Beat
	switch {
	case c != nil:
		s.Catalog = w.d.o.catalogName()
		if s.Database, s.Err = layout.LoadLayout(c); s.Err == nil {
			s.Servers, _ = cluster.Servers(c) // a database without a cluster has none
			beats, s.Err = c.KeepAlive(layout.Beat{})
		}
	case w.d.o.Cluster != "":
		w.mu.Lock()
		s.Catalog, s.Database, s.Servers, s.Err, beats = w.d.o.Cluster, w.far.database, w.far.servers,
			w.far.err, w.far.beats
		w.mu.Unlock()
	default:
		return
	}
	if s.Err != nil || s.Database == nil {
		return
	}
	s.Build = w.d.reporter.Build()
	w.mu.Lock()
	defer w.mu.Unlock()
	s.Processes = w.leases.look(s.Database.Processes, beats, s.At)
}

// look takes note of leases.
func (s *leases) look(all []layout.ProcessEntry, beats []layout.Beat, now time.Time) (out []processLook) {
	seen := leases{}
	for _, p := range all {
		is := lease{p.Until, 0, now}
		if i := slices.IndexFunc(beats, func(b layout.Beat) bool { return b.Member == p.ID }); i >= 0 {
			is.count = beats[i].Count
		}
		l, known := (*s)[p.ID]
		if !known || l.until != is.until || l.count != is.count {
			l = is
		}
		seen[p.ID] = l
		x := processLook{ID: p.ID, Closed: p.Resigned(), Term: time.Duration(p.Term), Since: now.Sub(l.changed)}
		x.Live = !x.Closed && (p.Term == 0 || x.Since <= x.Term)
		out = append(out, x)
	}
	*s = seen
	return out
}

// regionStats are those of the blades, on sockets or mapped.
func (d *daemon) regionStats() []region.Stats {
	switch {
	case d.shared != nil:
		return d.shared.Set().Stats()
	case d.set != nil:
		return d.set.Stats()
	case d.device != nil:
		return d.device.Stats()
	}
	return nil
}

// look is what the daemon sees of itself, but for the catalog.
func (d *daemon) look(now time.Time) look {
	s := look{
		At: now, Began: d.began, Limit: d.o.Connections, Sockets: d.server != nil,
		Counted: d.set != nil, Disks: d.disks(),
	}
	if d.server != nil {
		s.Net = d.server.Stats()
	}
	if d.shared != nil {
		s.Net.Connections += d.shared.Connections()
	}
	for i, r := range d.regionStats() {
		b := bladeLook{Region: r}
		if d.dir != nil {
			b.ID = d.dir.ids[i]
		}
		if d.set != nil {
			b.Data = s.Net.Blades[i]
		}
		s.Blades = append(s.Blades, b)
	}
	return s
}
