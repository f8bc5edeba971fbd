package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"txnode/memory"
	"txnode/memory/layout"
	"txnode/memory/members"
)

// AnnounceOptions are those of Announce.
type AnnounceOptions struct {
	// Options are those of connections to the catalog, to the server itself, and to other servers.
	Options Options
	// Address is that by which processes reach the server.
	Address BladeAddress
	// Incarnations are those of its blades, by which it is told from another server at the address.
	Incarnations []uint64
	// Stamps, Release and Domain are told as Announced has them.
	Stamps          []string
	Release, Domain string
	// Term is for how long a sign of life is good, of which there are three in a term; 0:
	// DefaultServerTerm. At most an hour.
	Term time.Duration
	// Report is told what could not be done, and is tried again, and Joined what blades take part;
	// nil: nothing is. One goroutine calls each.
	Report func(error)
	Joined func(blades []int)
}

// Announce has a server of blades on sockets, which this process serves already, take part in what
// the catalog at an address is of, until ctx ends: it registers in the catalog, with a lease, and
// says three times a term that it is alive. As long as there is no cluster it is a candidate:
// AwaitServers. In a cluster it takes a vacant place, as AddBlade says, and gets its share of what
// is there, as Rebalance says. If the place of its address, or of its memory, is known, it is that
// place again. One that was drained stays outside until it is announced by another process.
//
// A catalog that does not answer is waited for: the server goes on without it, and registers
// again. At the end the registration is ended. ErrOptions: the address cannot be, and
// nothing is announced. Other errors are of ending the registration, which others notice
// when its term has passed.
func Announce(ctx context.Context, catalog string, o AnnounceOptions) error {
	if o.Term == 0 {
		o.Term = DefaultServerTerm
	}
	a := &announcer{o: o, catalog: catalog}
	var err error
	if a.self.Address, err = o.Address.absolute(); err != nil {
		return err
	}
	if _, _, shm := a.self.Address.shared(); shm {
		return fmt.Errorf("%w: %s: blades of shared memory are all there from the beginning, and cannot join",
			ErrOptions, a.self.Address)
	}
	a.self.Incarnations, a.self.Stamps, a.self.Release, a.self.Domain, a.self.Term = o.Incarnations, o.Stamps,
		o.Release, o.Domain, o.Term
	a.self.Blades = make([]uint64, len(o.Incarnations)) // as the server says, later
	if err := errors.Join(a.self.validate(), CheckCatalog(catalog)); err != nil {
		return oneLine(err)
	}
	return a.run(ctx)
}

// announcer is what Announce does.
type announcer struct {
	o       AnnounceOptions
	catalog string
	self    Announced // Number 0: not registered

	mu     sync.Mutex
	leases members.Leases
	began  time.Time   // of its clock
	others []Announced // as the catalog has said last
	told   [2]string   // by which of the two goroutines
	spread bool        // it has its place, and is to get its share; of the goroutine that joins
}

// Pauses of an announcer that has failed.
const (
	firstAnnouncePause = 100 * time.Millisecond
	lastAnnouncePause  = 10 * time.Second
)

// resignWait bounds how long the end of a registration takes.
const resignWait = 2 * time.Second

// now is the clock of the leases.
func (a *announcer) now() int64 { return int64(time.Since(a.began)) }

// tell reports an error that is another one than the last of its goroutine.
func (a *announcer) tell(who int, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if text != a.told[who] && err != nil && a.o.Report != nil {
		a.o.Report(err)
	}
	a.told[who] = text
}

func (a *announcer) run(ctx context.Context) error {
	a.began = time.Now()
	pause := firstAnnouncePause
	for {
		cat, err := a.dial(ctx)
		if err == nil {
			since := time.Now()
			err = a.follow(ctx, cat)
			if time.Since(since) > a.o.Term { // it was there: soon again
				pause = firstAnnouncePause
			}
			if ctx.Err() != nil {
				return err
			}
		}
		a.tell(0, err)
		if sleep(ctx, pause); ctx.Err() != nil {
			return nil //nolint:nilerr // it was told
		}
		pause = min(2*pause, lastAnnouncePause, a.o.Term)
	}
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// dial connects to the catalog, and asks the server itself at its address: others must reach it
// there.
func (a *announcer) dial(ctx context.Context) (layout.Catalog, error) {
	p := probe(ctx, Server{Address: a.self.Address}, a.o.Options)
	if p.err != nil {
		return nil, fmt.Errorf("the server cannot be reached at the address that it announces: %w", p.err)
	}
	var incarnations []uint64
	for i, b := range p.blades {
		incarnations = append(incarnations, b.Incarnation)
		if i < len(a.self.Blades) {
			a.self.Blades[i] = b.Size
		}
	}
	if !a.self.sameLife(incarnations) {
		return nil, fmt.Errorf("%w: %s leads to another server: announce the address of this one (--advertise)",
			ErrOtherBlades, a.self.Address)
	}
	return DialCatalog(ctx, a.catalog, a.o.Options)
}

// follow registers the server in a catalog, and keeps it there, until ctx ends, for which it
// returns nil, or the catalog is of no use.
func (a *announcer) follow(ctx context.Context, cat layout.Catalog) (err error) {
	defer func() { err = oneLine(err, cat.Close()) }()
	if err := a.register(cat); err != nil {
		return err
	}
	life, stop := context.WithCancel(ctx)
	var joining sync.WaitGroup
	joining.Go(func() { a.join(life, cat) })
	for err == nil && ctx.Err() == nil {
		err = a.beat(cat)
		if errors.Is(err, memory.ErrEnded) { // others have taken it for gone, or the catalog has been replaced
			if err = a.register(cat); err == nil {
				err = a.beat(cat)
			}
			if errors.Is(err, memory.ErrEnded) {
				err = fmt.Errorf("the catalog at %s does not know that servers are members: its daemon is of an "+
					"earlier release: replace it by this one: %w", cat.Name(), err)
			}
		}
		if errors.Is(err, memory.ErrAway) { // the connection makes itself anew
			a.tell(0, err)
			err = nil
		} else if err == nil {
			a.tell(0, nil)
		}
		if err == nil {
			sleep(ctx, a.o.Term/3)
		}
	}
	stop()
	joining.Wait()
	if err == nil {
		err = a.resign(cat)
	}
	return err
}

// beat says that the server is alive, and ends registrations of servers that have been silent for
// long, and have no place.
func (a *announcer) beat(cat layout.Catalog) error {
	all, err := cat.KeepAlive(layout.Beat{Member: a.self.Number})
	if err != nil {
		return err
	}
	a.mu.Lock()
	a.leases.Heed(all, a.now())
	over := slices.ContainsFunc(a.others, a.over)
	a.mu.Unlock()
	if !over {
		return nil
	}
	return changeAny(cat, func(x *content) error {
		a.mu.Lock()
		defer a.mu.Unlock()
		x.announced = slices.DeleteFunc(x.announced, func(o Announced) bool {
			return placeOf(x.servers, o.Address) < 0 && a.over(o)
		})
		a.others = nil // until the catalog has changed
		return nil
	})
}

// forgetTerms is after how many terms without a sign of life a server is forgotten that has no
// place.
const forgetTerms = 100

// over reports whether a server has been silent for so long; a.mu is held.
func (a *announcer) over(o Announced) bool {
	return o.Number != a.self.Number && a.leases.Over(o.Number, int64(o.Term), forgetTerms, a.now())
}

// ended reports whether the server at an address has resigned, or its lease has expired.
func (a *announcer) ended(address BladeAddress) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return !slices.ContainsFunc(a.others, func(o Announced) bool {
		return o.Address == address && a.leases.State(o.Number, int64(o.Term), a.now()) != members.LeaseExpired
	})
}

// register puts the server into the catalog, instead of those that had its address before, unless
// it is there. The caller has no number, or one that the catalog may have ended.
func (a *announcer) register(cat layout.Catalog) error {
	return changeAny(cat, func(x *content) error {
		if slices.ContainsFunc(x.announced, func(o Announced) bool {
			return o.Number == a.self.Number && o.sameLife(a.self.Incarnations)
		}) {
			return nil
		}
		left := false
		x.announced = slices.DeleteFunc(x.announced, func(o Announced) bool {
			left = left || o.Address == a.self.Address && o.sameLife(a.self.Incarnations) && o.Left
			return o.Address == a.self.Address
		})
		self := a.self
		self.Left = left
		for self.Number = 0; self.Number < layout.FirstServer ||
			slices.ContainsFunc(x.announced, func(o Announced) bool { return o.Number == self.Number }); {
			self.Number = rand.Uint32()
		}
		a.mu.Lock()
		a.self.Number = self.Number
		a.mu.Unlock()
		x.announced = append(x.announced, self)
		return nil
	})
}

// resign ends the registration.
func (a *announcer) resign(cat layout.Catalog) error {
	done := make(chan error, 1)
	go func() {
		done <- changeAny(cat, func(x *content) error {
			x.announced = slices.DeleteFunc(x.announced, func(o Announced) bool { return o.Number == a.self.Number })
			return nil
		})
	}()
	t := time.NewTimer(resignWait)
	defer t.Stop()
	select {
	case err := <-done:
		return err
	case <-t.C: // Close ends the request
		return fmt.Errorf("%w: the catalog at %s does not answer, and was not told that the server at %s ends: "+
			"its lease does", memory.ErrAway, cat.Name(), a.self.Address)
	}
}

// join has the server take its place in the cluster, whenever the catalog changes, until ctx ends.
func (a *announcer) join(ctx context.Context, cat layout.Catalog) {
	pause := firstAnnouncePause
	for ctx.Err() == nil {
		rev, err := a.place(ctx, cat)
		if ctx.Err() != nil {
			return
		}
		if a.tell(1, err); err != nil {
			sleep(ctx, pause)
			pause = min(2*pause, lastAnnouncePause)
			continue
		}
		pause = firstAnnouncePause
		if _, err := cat.Await(ctx, rev); err != nil {
			sleep(ctx, pause) // the next look says what is wrong
		}
	}
}

// place looks whether the server has its place, and gets one for it, and its share.
func (a *announcer) place(ctx context.Context, cat layout.Catalog) (layout.Revision, error) {
	entries, rev, err := cat.Load()
	if err != nil {
		return 0, err
	}
	x, err := contentOf(cat, entries)
	if err != nil {
		return 0, err
	}
	a.mu.Lock()
	a.others = x.announced
	number := a.self.Number
	a.mu.Unlock()
	me := slices.IndexFunc(x.announced, func(o Announced) bool { return o.Number == number })
	if x.servers == nil || x.unmade || x.layout == nil || me < 0 || x.announced[me].Left {
		return rev, nil
	}
	if i := placeOf(x.servers, a.self.Address); i < 0 {
		ids, err := addServer(ctx, a.catalog, Server{Address: a.self.Address, Domain: a.self.Domain},
			a.ended, a.o.Options)
		if err != nil {
			return rev, err
		}
		if a.spread = true; a.o.Joined != nil {
			a.o.Joined(ids)
		}
	} else if x.servers[i].Domain != a.self.Domain {
		a.spread = true
		if err := change(cat, a.moveDomain); err != nil {
			return rev, err
		}
	}
	if a.spread {
		if _, err := Rebalance(ctx, a.catalog, nil, a.o.Options); err != nil {
			return rev, fmt.Errorf("getting its share of what is on other servers: %w", err)
		}
		a.spread = false
	}
	return rev, nil
}

// moveDomain notes in which domain the server is now.
func (a *announcer) moveDomain(x *content) error {
	i := placeOf(x.servers, a.self.Address)
	if i < 0 || x.layout == nil {
		return nil
	}
	s := &x.servers[i]
	s.Domain = a.self.Domain
	for k := range s.Blades {
		x.layout.Blades[first(x.servers, i)+k].Domain = s.domainOf()
	}
	return nil
}

// AwaitServers waits until servers with so many blades have announced themselves in a catalog and
// are alive, and returns the addresses for Init, those of different domains first. If the catalog
// has a cluster of so many blades already, or Init has begun one, it returns its addresses at once.
// progress, if not nil, is called by this goroutine when the number of blades has changed. Errors
// are that of ctx, those of the catalog, and ErrExists.
func AwaitServers(ctx context.Context, cat layout.Catalog, blades int, progress func(have int)) ([]BladeAddress,
	error) {
	var leases members.Leases
	began, last := time.Now(), -1
	for {
		x, beats, err := lookAt(cat)
		switch {
		case errors.Is(err, memory.ErrAway) && ctx.Err() == nil: // it may be back in a moment
			sleep(ctx, awaitEvery)
			continue
		case err != nil:
			return nil, err
		case x.servers != nil:
			return x.there(cat, blades)
		}
		now := int64(time.Since(began))
		leases.Heed(beats, now)
		unknown := false // whether one is alive that may be in another domain
		alive := slices.DeleteFunc(x.announced, func(a Announced) bool {
			l := leases.State(a.Number, int64(a.Term), now)
			unknown = unknown || !a.Left && l == members.LeaseUnknown && leases.Known(a.Number)
			return a.Left || l != members.LeaseAlive && l != members.LeaseLate
		})
		have := 0
		for i := range alive {
			have += len(alive[i].Blades)
		}
		if have >= blades && !unknown {
			return chosen(alive, blades), nil
		}
		if have != last && progress != nil {
			progress(have)
		}
		last = have
		sleep(ctx, awaitEvery)
		if ctx.Err() != nil {
			return nil, fmt.Errorf("servers with %d of %d blades have announced themselves in the catalog at %s "+
				"(txnode serve --join): %w", have, blades, cat.Name(), ctx.Err())
		}
	}
}

// lookAt asks a catalog for its content, and for signs of life.
func lookAt(cat layout.Catalog) (x *content, beats []layout.Beat, err error) {
	entries, _, err := cat.Load()
	if err == nil {
		x, err = contentOf(cat, entries)
	}
	if err == nil {
		beats, err = cat.KeepAlive(layout.Beat{})
	}
	return x, beats, err
}

// awaitEvery is how often AwaitServers looks.
const awaitEvery = 100 * time.Millisecond

// there are the addresses of the cluster that there is.
func (x *content) there(cat layout.Catalog, blades int) (addresses []BladeAddress, err error) {
	n := 0
	for i := range x.servers {
		if s := &x.servers[i]; !s.Vacant() {
			addresses = append(addresses, s.Address)
			n += len(s.Blades)
		}
	}
	if n < blades {
		return nil, fmt.Errorf("%w: the catalog at %s has a cluster of %d blades already, and not of %d: use "+
			"an empty one", ErrExists, cat.Name(), n, blades)
	}
	return addresses, nil
}

// chosen are servers with so many blades: one of each domain after the other, by address.
func chosen(all []Announced, blades int) (out []BladeAddress) {
	slices.SortFunc(all, func(a, b Announced) int {
		if a.Address < b.Address {
			return -1
		}
		return 1
	})
	used := map[string]int{}
	rounds := make([]int, len(all)) // how many servers of the domain come before
	for i := range all {
		if d := all[i].Domain; d != "" {
			rounds[i] = used[d]
			used[d]++
		}
	}
	for round := 0; blades > 0; round++ {
		for i := range all {
			if rounds[i] == round && blades > 0 {
				out = append(out, all[i].Address)
				blades -= len(all[i].Blades)
			}
		}
	}
	return out
}
