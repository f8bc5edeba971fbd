package seeds

import (
	"errors"
	"slices"

	"txnode/memory/catalog"
	"txnode/memory/layout"
	"txnode/rdma/sim"
)

// unreliable is a catalog that does not answer while a fault says so. Of the changes that it
// is asked for then it makes every third at once, and every third later, if it still can.
type unreliable struct {
	*catalog.Mem
	f       *sim.Fabric
	compute int // blade of the process whose handle it is, from 1; 0: there is one process
	asked   int
	late    []layout.Entry // to be made at revision rev, before so many more calls are answered
	rev     layout.Revision
	calls   int
	net     *network // nil: there is no network
}

var errNoAnswer = errors.New("the catalog does not answer")

// Load fails while the catalog does not answer.
func (u *unreliable) Load() ([]layout.Entry, layout.Revision, error) {
	if u.away() {
		return nil, 0, errNoAnswer
	}
	u.arrive()
	return u.Mem.Load()
}

// Apply fails while the catalog does not answer, also when it makes the changes.
func (u *unreliable) Apply(rev layout.Revision, changes []layout.Entry) (layout.Revision, error) {
	if u.f.Killed(u.compute) { // what is unwound there has no effect
		return 0, errNoAnswer
	}
	if !u.f.CatalogDown(u.compute) {
		u.arrive()
		return u.apply(rev, changes)
	}
	switch u.asked++; u.asked % 3 {
	case 0:
		if _, err := u.apply(rev, changes); err != nil {
			return 0, err
		}
	case 1:
		u.late, u.rev, u.calls = slices.Clone(changes), rev, u.asked/3%4
	}
	return 0, errNoAnswer
}

// arrive makes a change that was late, if the catalog is still at its revision.
func (u *unreliable) arrive() {
	if u.calls--; u.late != nil && u.calls < 0 {
		_, _ = u.apply(u.rev, u.late)
		u.late = nil
	}
}

// apply makes changes, and holds them against what is known of members.
func (u *unreliable) apply(rev layout.Revision, changes []layout.Entry) (layout.Revision, error) {
	if u.net == nil {
		return u.Mem.Apply(rev, changes)
	}
	was, _, err := layout.Load(u.Mem)
	now, failed := u.Mem.Apply(rev, changes)
	if err == nil && failed == nil && was != nil {
		if is, _, err := layout.Load(u.Mem); err == nil && is != nil {
			u.net.changed(was, is, u.compute)
		}
	}
	return now, failed
}

// Revision fails while the catalog does not answer.
func (u *unreliable) Revision() (layout.Revision, error) {
	if u.away() {
		return 0, errNoAnswer
	}
	u.arrive()
	return u.Mem.Revision()
}

// KeepAlive fails while the catalog does not answer.
func (u *unreliable) KeepAlive(b layout.Beat) ([]layout.Beat, error) {
	if u.away() {
		return nil, errNoAnswer
	}
	u.arrive()
	all, err := u.Mem.KeepAlive(b)
	if err == nil && b.Member != 0 && u.net != nil {
		u.net.alive(b.Member, u.compute)
	}
	return all, err
}

func (u *unreliable) away() bool { return u.f.Killed(u.compute) || u.f.CatalogDown(u.compute) }
