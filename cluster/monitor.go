package cluster

import (
	"context"
	"slices"
	"sync"
	"time"

	"txnode/memory/layout"
	"txnode/rdma/tcp"
)

// Monitor looks at a cluster again and again, over connections that it keeps. It has none to the
// blades' memory. Its methods are for one goroutine.
type Monitor struct {
	o       Options
	cat     layout.Catalog
	servers []Server
	layout  *layout.Layout
	beats   []layout.Beat
	callers map[string]*tcp.Caller
}

// Sight is what a Monitor has seen.
type Sight struct {
	At      time.Time
	Catalog string
	// Err is why the catalog could not be asked; then Servers and Layout are what it has said last.
	// nil: it has answered.
	Err     error
	Servers []ServerSight
	Layout  *layout.Layout // nil: there is no database yet
	Beats   []layout.Beat  // what processes have said last, of being alive
	// Processes are those that report, by their numbers, each as the daemon has it that was told
	// last.
	Processes []ProcessReport
}

// ServerSight is a server of blades.
type ServerSight struct {
	Server
	Report *Report // nil: it does not answer
	Err    error
}

// NewMonitor connects to the catalog at an address, as Connect does. Errors are those of Connect.
func NewMonitor(ctx context.Context, address string, o Options) (*Monitor, error) {
	cat, err := DialCatalog(ctx, address, o)
	if err != nil {
		return nil, err
	}
	m := &Monitor{o: o, cat: cat, callers: map[string]*tcp.Caller{}}
	if m.servers, m.layout, err = read(cat); err != nil {
		return nil, oneLine(err, cat.Close())
	}
	return m, nil
}

func read(cat layout.Catalog) ([]Server, *layout.Layout, error) {
	servers, err := Servers(cat)
	if err != nil {
		return nil, nil, err
	}
	l, err := layout.LoadLayout(cat)
	return servers, l, err
}

// Look asks the catalog and all servers, each within the deadlines of Options, or until ctx ends.
func (m *Monitor) Look(ctx context.Context) *Sight {
	s := &Sight{At: time.Now(), Catalog: m.cat.Name()}
	if servers, l, err := read(m.cat); err != nil {
		s.Err = oneLine(err)
	} else {
		m.servers, m.layout = servers, l
	}
	if beats, err := m.cat.KeepAlive(layout.Beat{}); err == nil {
		m.beats = beats
	} else if s.Err == nil {
		s.Err = oneLine(err)
	}
	s.Layout, s.Beats = m.layout, m.beats
	addresses := addressesOf(m.servers)
	if own := m.cat.Name(); onSockets(own) && !slices.Contains(addresses, own) {
		addresses = append(addresses, own) // behind the servers
	}
	reports, errs := m.ask(ctx, addresses)
	for i := range m.servers {
		s.Servers = append(s.Servers, ServerSight{m.servers[i], reports[i], errs[i]})
	}
	s.Processes = latest(reports)
	return s
}

// ask asks daemons at once.
func (m *Monitor) ask(ctx context.Context, addresses []string) ([]*Report, []error) {
	reports, errs := make([]*Report, len(addresses)), make([]error, len(addresses))
	callers := make([]*tcp.Caller, len(addresses))
	var wg sync.WaitGroup
	for i, a := range addresses {
		callers[i] = m.callers[a]
		wg.Go(func() {
			if !onSockets(a) {
				reports[i], errs[i] = AskReport(ctx, a, m.o)
				return
			}
			if callers[i] == nil {
				if callers[i], errs[i] = tcp.DialService(ctx, controlOf(a), ReportService, m.o.tcp()); errs[i] != nil {
					errs[i] = oneLine(errs[i])
					return
				}
			}
			p, err := callers[i].Call(ctx, nil)
			if err == nil {
				reports[i], err = decodeReport(a, p)
			}
			errs[i] = oneLine(err)
		})
	}
	wg.Wait()
	for i, a := range addresses {
		if callers[i] != nil {
			m.callers[a] = callers[i]
		}
	}
	return reports, errs
}

// Close ends the connections.
func (m *Monitor) Close() error {
	var errs []error
	for _, c := range m.callers {
		errs = append(errs, c.Close())
	}
	return oneLine(append(errs, m.cat.Close())...)
}
