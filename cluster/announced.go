package cluster

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"txnode/memory"
	"txnode/memory/layout"
)

// Announced is a server of blades that has announced itself in a catalog: Announce.
type Announced struct {
	// Number is that of its lease in the catalog.
	Number  uint32       `json:"-"`
	Address BladeAddress `json:"address"`
	Blades  []uint64     `json:"blades"` // sizes in bytes
	// Incarnations are those of its blades, by which the server is told from others that
	// have had the address.
	Incarnations []uint64 `json:"incarnations"`
	// Stamps are the identities of the files of its blades; none: blades in memory.
	Stamps  []string `json:"stamps,omitempty"`
	Release string   `json:"release,omitempty"`
	Domain  string   `json:"domain,omitempty"` // see Server.Domain
	// Term is for how long a sign of life is good.
	Term time.Duration `json:"term_ns"`
	// Left: its blades were drained, or given up, since it has announced itself. It does not come
	// in again before it is started anew.
	Left bool `json:"left,omitempty"`
}

const announcedHeadline = "txnode server 1 "

// Bounds of Announced.Term.
const (
	DefaultServerTerm = 2 * time.Second
	maxServerTerm     = time.Hour
)

func (a *Announced) key() string { return layout.KeyOf(layout.PrefixServer, a.Number) }

func (a *Announced) entry() layout.Entry {
	return layout.Entry{Key: a.key(), Value: sealed(announcedHeadline, a)}
}

// validate lists the faults of what a server says of itself.
func (a *Announced) validate() error {
	var faults []error
	if err := check([]BladeAddress{a.Address}); err != nil {
		faults = append(faults, err)
	}
	if len(a.Blades) == 0 || len(a.Blades) > layout.MaxBlades || len(a.Incarnations) != len(a.Blades) {
		faults = append(faults, fmt.Errorf("%w: %s: %d blades, and %d incarnations: 1 to %d are possible",
			ErrOptions, a.Address, len(a.Blades), len(a.Incarnations), layout.MaxBlades))
	}
	if len(a.Domain) > layout.MaxDomain {
		faults = append(faults, fmt.Errorf("%w: %s: a domain of %d bytes: at most %d are possible",
			ErrOptions, a.Address, len(a.Domain), layout.MaxDomain))
	}
	if a.Term <= 0 || a.Term > maxServerTerm {
		faults = append(faults, fmt.Errorf("%w: %s: a term of %v: more than 0s and at most %v are possible",
			ErrOptions, a.Address, a.Term, maxServerTerm))
	}
	return oneLine(faults...)
}

// announcedIn are the servers that have announced themselves, by number: ErrDamaged.
func announcedIn(entries []layout.Entry) (all []Announced, err error) {
	for _, e := range entries {
		text, ok := strings.CutPrefix(e.Key, layout.PrefixServer)
		if !ok {
			continue
		}
		number, err := strconv.ParseUint(text, 16, 32)
		a := Announced{Number: uint32(number)} // of 32 bits
		if err != nil || a.key() != e.Key {
			return nil, fmt.Errorf("%w: the entry %s is of no server", ErrDamaged, e.Key)
		}
		if err := unsealed(e.Key, announcedHeadline, e.Value, &a); err != nil {
			return nil, err
		}
		if err := a.validate(); err != nil {
			return nil, fmt.Errorf("%w: the entry %s: %w", ErrDamaged, e.Key, err)
		}
		all = append(all, a)
	}
	return all, nil
}

// content is what a catalog has at one revision.
type content struct {
	servers   []Server // nil: no cluster was made yet
	announced []Announced
	layout    *layout.Layout // nil: there is no database of a cluster yet
	unmade    bool           // Init has begun the cluster, and has not ended
}

// contentOf takes the entries of a catalog apart.
func contentOf(cat layout.Catalog, entries []layout.Entry) (*content, error) {
	x := &content{unmade: has(entries, keyInit)}
	var err error
	if x.announced, err = announcedIn(entries); err != nil {
		return nil, fmt.Errorf("the catalog at %s: %w", cat.Name(), err)
	}
	switch x.servers, err = find(cat, entries); {
	case errors.Is(err, ErrNone):
		return x, nil
	case err != nil:
		return nil, err
	}
	x.layout, err = layout.Decode(cat.Name(), entries)
	return x, err
}

// entries are those of the content, in the order of keys.
func (x *content) entries() (out []layout.Entry) {
	for i := range x.announced {
		out = append(out, x.announced[i].entry())
	}
	if x.servers != nil {
		out = append(out, layout.Entry{Key: keyServers, Value: encode(x.servers)})
	}
	if x.layout != nil {
		out = append(out, x.layout.Entries()...)
	}
	slices.SortFunc(out, func(a, b layout.Entry) int { return strings.Compare(a.Key, b.Key) })
	return out
}

// leaves notes that the server at an address was drained.
func (x *content) leaves(a BladeAddress) {
	for i := range x.announced {
		x.announced[i].Left = x.announced[i].Left || x.announced[i].Address == a
	}
}

// change changes the content of a catalog that has a cluster, in one step. fn may be called several
// times; if it changes nothing, or fails, nothing is changed. ErrNone: there is no cluster.
func change(cat layout.Catalog, fn func(x *content) error) error {
	return changeAny(cat, func(x *content) error {
		if x.servers == nil {
			_, err := find(cat, nil)
			return err
		}
		return fn(x)
	})
}

// changeAny is change for a catalog that may have no cluster.
func changeAny(cat layout.Catalog, fn func(x *content) error) error {
	for {
		entries, rev, err := cat.Load()
		if err != nil {
			return err
		}
		x, err := contentOf(cat, entries)
		if err != nil {
			return err
		}
		was := x.entries()
		if err := fn(x); err != nil {
			return err
		}
		changes := layout.Difference(was, x.entries())
		if len(changes) == 0 {
			return nil
		}
		if _, err = cat.Apply(rev, changes); !errors.Is(err, memory.ErrRevision) {
			return err
		}
	}
}

// sameLife reports whether a server is the one that has announced itself: its blades are in the
// same incarnations.
func (a *Announced) sameLife(incarnations []uint64) bool {
	return slices.Equal(a.Incarnations, incarnations)
}
