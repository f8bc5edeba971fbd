package local

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"txnode/channel"
	"txnode/rdma"
)

// Catalog is a catalog in the memory of the process: names, places, members, the epoch. Its methods
// are safe for concurrent use.
type Catalog struct {
	fabric rdma.Fabric
	start  uint64 // where objects lie in each blade's region

	mu      sync.Mutex
	members channel.MemberID
	over    map[channel.MemberID]bool // declared dead, or being so; true: nothing of theirs lands any more
	entries map[string]entry
	next    []uint64 // first free byte, by blade
	made    uint32   // incarnations
	fences  int
}

type entry struct {
	spec  channel.Spec
	place channel.Place
}

// NewCatalog makes a catalog of objects from byte start on in the region of each blade of the
// fabric. The memory there is zero. Objects go to the blades in turn.
func NewCatalog(f rdma.Fabric, start uint64) *Catalog {
	k := &Catalog{fabric: f, start: start, over: map[channel.MemberID]bool{}, entries: map[string]entry{}}
	for range f.Blades() {
		k.next = append(k.next, start)
	}
	return k
}

// Fences is how often the epoch was moved.
func (k *Catalog) Fences() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.fences
}

// Names lists the objects.
func (k *Catalog) Names() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Sorted(maps.Keys(k.entries))
}

// Host makes a view for one member.
func (k *Catalog) Host() channel.Host {
	h := &host{k: k}
	h.view()
	return h
}

// host is the view of a member.
type host struct {
	k     *Catalog
	id    channel.MemberID
	keys  []rdma.Key
	lives []uint64
}

func (h *host) view() {
	h.keys, h.lives = h.keys[:0], h.lives[:0]
	for _, b := range h.k.fabric.Blades() {
		h.keys, h.lives = append(h.keys, b.Key), append(h.lives, b.Incarnation)
	}
}

func (h *host) Enroll(*rdma.Coro, string) (channel.MemberID, error) {
	h.k.mu.Lock()
	defer h.k.mu.Unlock()
	h.k.members++
	h.id = h.k.members
	return h.id, nil
}

// Leave is all but nothing: members are numbers here.
func (h *host) Leave(*rdma.Coro) error { return h.living() }

// living is ErrFenced if this member was declared dead.
func (h *host) living() error {
	h.k.mu.Lock()
	defer h.k.mu.Unlock()
	if _, over := h.k.over[h.id]; over {
		return channel.ErrFenced
	}
	return nil
}

func (h *host) Declare(c *rdma.Coro, name string, spec channel.Spec) (channel.Place, error) {
	if err := h.Refresh(c); err != nil {
		return channel.Place{}, err
	}
	k := h.k
	k.mu.Lock()
	defer k.mu.Unlock()
	e, ok := k.entries[name]
	if ok && e.spec != spec {
		return channel.Place{}, &channel.SpecError{Name: name, Have: e.spec, Want: spec}
	}
	if ok && e.place.Life == h.lives[e.place.Blade] {
		return e.place, nil
	}
	k.made++
	blade := rdma.BladeID(int(k.made-1) % len(k.next))
	n := (uint64(spec.Bytes) + 63) / 64 * 64
	if err := k.fabric.Provision(blade, k.next[blade], n); err != nil {
		return channel.Place{}, err
	}
	place := channel.Place{Blade: blade, Off: k.next[blade], Incarnation: k.made, Life: h.lives[blade], Anew: ok}
	k.next[blade] += n
	k.entries[name] = entry{spec, place}
	return place, nil
}

func (h *host) Forget(c *rdma.Coro, name string, incarnation uint32) error {
	k := h.k
	k.mu.Lock()
	if _, over := k.over[h.id]; over {
		k.mu.Unlock()
		return channel.ErrFenced
	}
	e, ok := k.entries[name]
	if ok = ok && e.place.Incarnation == incarnation; ok {
		delete(k.entries, name)
	}
	k.mu.Unlock()
	if !ok {
		return nil
	}
	return h.Fence(c, 0)
}

func (h *host) Fence(_ *rdma.Coro, id channel.MemberID) error {
	k := h.k
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, over := k.over[h.id]; over {
		return channel.ErrFenced
	}
	if id != 0 && k.over[id] {
		return nil
	}
	if id != 0 {
		k.over[id] = false
	}
	k.fences++
	for _, b := range k.fabric.Blades() {
		key, err := k.fabric.Grant(b.ID)
		if err == nil {
			err = k.fabric.Revoke(b.ID, key)
		}
		if err != nil {
			return fmt.Errorf("local: fencing member %d: %w", id, err)
		}
	}
	if id != 0 {
		k.over[id] = true
	}
	return nil
}

func (h *host) Refresh(*rdma.Coro) error {
	keys, lives := slices.Clone(h.keys), slices.Clone(h.lives)
	h.view()
	if err := h.living(); err != nil {
		h.keys, h.lives = keys, lives
		return err
	}
	return nil
}

// Confirm: no blade is declared dead here that is alive.
func (h *host) Confirm(*rdma.Coro) (bool, error) { return false, nil }

func (h *host) Key(b rdma.BladeID) rdma.Key { return h.keys[b] }

func (h *host) Valid(name string, p channel.Place) error {
	h.k.mu.Lock()
	e, ok := h.k.entries[name]
	h.k.mu.Unlock()
	if !ok || e.place != p || h.lives[p.Blade] != p.Life {
		return channel.ErrIncarnation
	}
	return nil
}
