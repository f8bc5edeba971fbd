package seeds

import (
	"errors"
	"slices"

	"txnode/memory"
	"txnode/memory/catalog"
	"txnode/rdma/sim"
)

// unreliable is a catalog that does not answer while a fault says so. Of the changes that it
// is asked for then it makes every third at once, and every third later, if it still can.
type unreliable struct {
	*catalog.Mem
	f       *sim.Fabric
	compute int // blade of the process whose handle it is, from 1; 0: there is one process
	asked   int
	late    []memory.Entry // to be made at revision rev, before so many more calls are answered
	rev     memory.Revision
	calls   int
}

var errNoAnswer = errors.New("the catalog does not answer")

// Load fails while the catalog does not answer.
func (u *unreliable) Load() ([]memory.Entry, memory.Revision, error) {
	if u.f.Killed(u.compute) || u.f.CatalogDown(u.compute) {
		return nil, 0, errNoAnswer
	}
	u.arrive()
	return u.Mem.Load()
}

// Apply fails while the catalog does not answer, also when it makes the changes.
func (u *unreliable) Apply(rev memory.Revision, changes []memory.Entry) (memory.Revision, error) {
	if u.f.Killed(u.compute) { // what is unwound there has no effect
		return 0, errNoAnswer
	}
	if !u.f.CatalogDown(u.compute) {
		u.arrive()
		return u.Mem.Apply(rev, changes)
	}
	switch u.asked++; u.asked % 3 {
	case 0:
		if _, err := u.Mem.Apply(rev, changes); err != nil {
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
		_, _ = u.Mem.Apply(u.rev, u.late)
		u.late = nil
	}
}
