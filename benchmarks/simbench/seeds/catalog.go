package seeds

import (
	"errors"

	"txnode/memory"
	"txnode/memory/catalog"
	"txnode/rdma/sim"
)

// unreliable is a catalog that does not answer while a fault says so. Every second change
// that it is asked for then it makes all the same.
type unreliable struct {
	catalog.Mem
	f     *sim.Fabric
	asked int
}

var errNoAnswer = errors.New("the catalog does not answer")

// Load fails while the catalog does not answer.
func (u *unreliable) Load() ([]memory.Entry, memory.Revision, error) {
	if u.f.CatalogDown() {
		return nil, 0, errNoAnswer
	}
	return u.Mem.Load()
}

// Apply fails while the catalog does not answer, also when it makes the changes.
func (u *unreliable) Apply(rev memory.Revision, changes []memory.Entry) (memory.Revision, error) {
	if !u.f.CatalogDown() {
		return u.Mem.Apply(rev, changes)
	}
	if u.asked++; u.asked%2 == 0 {
		if _, err := u.Mem.Apply(rev, changes); err != nil {
			return 0, err
		}
	}
	return 0, errNoAnswer
}
