package cluster

import (
	"context"
	"errors"
	"sync"
	"time"

	"txnode/memory"
	"txnode/memory/layout"
	"txnode/memory/members"
	"txnode/rdma"
	"txnode/rdma/tcp"
)

// WitnessOptions are those of Witness.
type WitnessOptions struct {
	// TCP is for connections to the servers of blades, of which it keeps one each.
	TCP tcp.Options
	// Term is that of Options, from which deadlines of TCP follow that are not set.
	Term time.Duration
	// Every is how often it asks each of them by itself; 0: DefaultWitness. About a blade of which
	// another member asks, it asks at once.
	Every time.Duration
	// Report is told what the witness cannot do, unless it was the last thing told; nil: nothing
	// is.
	Report func(error)
}

// DefaultWitness is the default of WitnessOptions.Every.
const DefaultWitness = time.Second

// Witness has the server of a catalog be a member of the cluster that is there (package
// memory/members), until ctx ends: it asks the servers of blades whether they answer, notes in the
// catalog what it finds, and answers the questions of processes. So the trouble of a process that
// is alone with a database decides nothing, and a blade that dies while no process uses it is
// noticed. Blades of shared memory are left out: their host knows what became of them.
func Witness(ctx context.Context, cat layout.Catalog, o WitnessOptions) {
	w := &witness{cat: cat, o: o, links: map[BladeAddress]*tcp.Fabric{}}
	if w.o.Every <= 0 {
		w.o.Every = DefaultWitness
	}
	w.o.TCP = Options{TCP: w.o.TCP, Term: w.o.Term}.tcp()
	w.o.TCP.Absent = nil
	defer w.close()
	for fresh := true; ctx.Err() == nil; {
		rev, err := w.look(ctx, fresh)
		if ctx.Err() != nil {
			return
		}
		if w.tell(err); err == nil {
			fresh = false
		}
		until, cancel := context.WithTimeout(ctx, w.o.Every)
		if err != nil {
			<-until.Done()
		} else {
			_, _ = w.cat.Await(until, rev) // the next look says what is wrong
		}
		cancel()
	}
}

type witness struct {
	cat   layout.Catalog
	o     WitnessOptions
	links map[BladeAddress]*tcp.Fabric
	asked time.Time // all servers
	told  string
}

func (w *witness) close() {
	for _, f := range w.links {
		_ = f.Close() // nothing is under way there
	}
}

// tell reports an error that is another one than the last.
func (w *witness) tell(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != w.told && err != nil && w.o.Report != nil {
		w.o.Report(err)
	}
	w.told = text
}

// look asks servers of blades, all or those in question, and notes what it finds; fresh: what an
// earlier witness has said is over. It returns the revision that it has seen, or made.
func (w *witness) look(ctx context.Context, fresh bool) (layout.Revision, error) {
	entries, rev, err := w.cat.Load()
	if err != nil {
		return 0, err
	}
	servers, err := find(w.cat, entries)
	if errors.Is(err, ErrNone) {
		return rev, nil
	}
	var l *layout.Layout
	if err == nil {
		l, err = layout.LoadLayout(w.cat)
	}
	if err != nil || l == nil {
		return rev, err
	}
	all := fresh || time.Since(w.asked) >= w.o.Every
	found := w.ask(ctx, l, servers, all)
	if ctx.Err() != nil {
		return rev, ctx.Err()
	}
	if all {
		w.asked = time.Now()
	}
	return w.note(found, fresh)
}

// note answers in the catalog.
func (w *witness) note(found map[rdma.BladeID]layout.Says, fresh bool) (layout.Revision, error) {
	for {
		l, rev, err := layout.Load(w.cat)
		if err != nil || l == nil || !l.Formatted { // a database that is being created
			return rev, err
		}
		changes := members.Testify(l, found, fresh)
		if len(changes) == 0 {
			return rev, nil
		}
		if rev, err = w.cat.Apply(rev, changes); !errors.Is(err, memory.ErrRevision) {
			return rev, err
		}
	}
}

// ask asks servers at once: all, or those with blades of which a member asks that the
// witness has not answered.
func (w *witness) ask(ctx context.Context, l *layout.Layout, servers []Server, all bool) map[rdma.BladeID]layout.Says {
	found := map[rdma.BladeID]layout.Says{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	first := 0
	for i := range servers {
		s, from := &servers[i], first
		first += len(s.Blades)
		if s.Vacant() || !onSockets(string(s.Address)) || !all && !w.inQuestion(l, from, len(s.Blades)) {
			continue
		}
		wg.Go(func() {
			infos, says := w.askServer(ctx, &mu, s.Address)
			mu.Lock()
			defer mu.Unlock()
			for k := range s.Blades {
				b := from + k
				if b >= len(l.Blades) || l.Blades[b].State != layout.BladeUp {
					continue
				}
				found[rdma.BladeID(b)] = says // there are MaxBlades
				if had := l.Blades[b].Incarnation; k < len(infos) && had != 0 && !infos[k].Unheard &&
					infos[k].Incarnation != had {
					found[rdma.BladeID(b)] = layout.Silent // it has begun anew, and what it had is not heard any more
				}
			}
		})
	}
	wg.Wait()
	return found
}

// inQuestion reports whether a member asks about one of n blades from one on.
func (w *witness) inQuestion(l *layout.Layout, from, n int) bool {
	for b := from; b < min(from+n, len(l.Blades)); b++ {
		if members.InQuestion(l, rdma.BladeID(b)) { // there are MaxBlades
			return true
		}
	}
	return false
}

// askServer asks one server for its blades.
func (w *witness) askServer(ctx context.Context, mu *sync.Mutex, a BladeAddress) ([]rdma.BladeInfo, layout.Says) {
	mu.Lock()
	f := w.links[a]
	mu.Unlock()
	if f == nil {
		var err error
		to := w.o.TCP
		to.Elsewhere = a.device()
		if f, err = tcp.Dial(ctx, []string{controlOf(string(a))}, to); err != nil {
			return nil, saysOf(err)
		}
		mu.Lock()
		w.links[a] = f
		mu.Unlock()
	}
	if err := f.Ask(0); err != nil {
		return nil, saysOf(err)
	}
	return f.Known(), layout.Hears
}

// saysOf is what an error of asking a server says: one that does not want to talk to the witness
// lives.
func saysOf(err error) layout.Says {
	switch rdma.EvidenceOf(err) {
	case rdma.Alive:
		return layout.Hears
	case rdma.Silent, rdma.Refused, rdma.Restarted:
		return layout.Silent
	}
	return layout.Troubled
}
