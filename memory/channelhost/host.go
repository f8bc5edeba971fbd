package channelhost

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"txnode/channel"
	"txnode/memory"
	"txnode/rdma"
)

const (
	prefix   = "channel/"
	listName = prefix + ".host"
)

// list is what the catalog knows of members: the text of a reservation, as JSON.
type list struct {
	Next    channel.MemberID // number of the next member
	Objects uint32           // that were made
	// Left is the last epoch in which a member was taken off the list: its verbs may take effect while this is the epoch.
	Left memory.Epoch
	All  []member
}

// member is one that may be alive.
type member struct {
	ID      channel.MemberID
	Process uint32
	Name    string
}

// object is what the catalog knows of an object, beside its extent: the text of a reservation, as JSON.
type object struct {
	Spec  channel.Spec
	Place channel.Place
}

// host is the view of a member.
type host struct {
	space  *memory.Space
	id     channel.MemberID
	view   *memory.View
	layout *memory.Layout
}

// New makes a view for one member. The space stays open as long as the member uses it.
func New(s *memory.Space) channel.Host {
	h := &host{space: s}
	h.look()
	return h
}

// look takes over keys, and then what the catalog says: not the other way round, see the package.
func (h *host) look() {
	h.view = h.space.View()
	h.layout = h.space.Layout()
}

func listOf(l *memory.Layout) (x list, err error) {
	if r := l.Reservation(listName); r != nil {
		err = decode(r, &x)
	}
	return x, err
}

func decode(r *memory.Reservation, to any) error {
	if err := json.Unmarshal(r.Text, to); err != nil {
		return fmt.Errorf("%w: channelhost: what is reserved as %q: %w", memory.ErrDamaged, r.Name, err)
	}
	return nil
}

func reserve(l *memory.Layout, r memory.Reservation, text any) (err error) {
	if r.Text, err = json.Marshal(text); err == nil {
		l.Reserve(r)
	}
	return err
}

// alive reports whether a member is listed, and its process has the database open.
func (x *list) alive(l *memory.Layout, id channel.MemberID) bool {
	i := slices.IndexFunc(x.All, func(m member) bool { return m.ID == id })
	return i >= 0 && l.Registered(x.All[i].Process)
}

func (h *host) Enroll(c *rdma.Coro, name string) (channel.MemberID, error) {
	var id channel.MemberID
	err := h.space.ChangeReserved(func(l *memory.Layout, process uint32) error {
		x, err := listOf(l)
		if err != nil {
			return err
		}
		had := len(x.All)
		x.All = slices.DeleteFunc(x.All, func(m member) bool { return !l.Registered(m.Process) })
		if len(x.All) < had {
			x.Left = l.Epoch
		}
		x.Next++
		if id = x.Next; id > channel.MaxMember {
			return fmt.Errorf("%w: member number %d", channel.ErrTooLarge, id)
		}
		x.All = append(x.All, member{id, process, name})
		return reserve(l, memory.Reservation{Name: listName}, x)
	})
	if err != nil {
		return 0, err
	}
	h.id = id
	return id, h.Refresh(c) // another process may have ended this one since
}

func (h *host) Declare(c *rdma.Coro, name string, spec channel.Spec) (channel.Place, error) {
	if err := h.Refresh(c); err != nil {
		return channel.Place{}, err
	}
	if r := h.layout.Reservation(prefix + name); r != nil {
		x, ok, err := found(h.layout, r, name, spec)
		if ok || err != nil {
			return x.Place, err
		}
	}
	a, err := h.alloc(c, spec.Bytes)
	if err != nil {
		return channel.Place{}, err
	}
	var place channel.Place
	var spare memory.Reservation // extent that is not needed, or not any more
	change := func(l *memory.Layout) error {
		place, spare = channel.Place{}, memory.Reservation{}
		if r := l.Reservation(prefix + name); r != nil {
			x, ok, err := found(l, r, name, spec)
			if err != nil {
				return err
			}
			if ok {
				place, spare = x.Place, memory.Reservation{Addr: a, Size: spec.Bytes}
				return nil
			}
			spare = *r
		}
		x, err := listOf(l)
		if err != nil {
			return err
		}
		x.Objects++
		place, err = placeOf(l, a)
		if err != nil {
			return err
		}
		place.Incarnation = x.Objects
		if err := reserve(l, memory.Reservation{Name: listName}, x); err != nil {
			return err
		}
		return reserve(l, memory.Reservation{Name: prefix + name, Addr: a, Size: spec.Bytes}, object{spec, place})
	}
	var refused error
	err = h.space.ChangeReserved(func(l *memory.Layout, _ uint32) error {
		refused = change(l)
		return refused
	})
	if err != nil {
		if refused != nil { // the catalog has no other answer on its way
			err = errors.Join(err, h.free(c, a, spec.Bytes))
		}
		return channel.Place{}, err
	}
	if spare.Size > 0 {
		if err := h.free(c, spare.Addr, spare.Size); err != nil {
			return channel.Place{}, err
		}
	}
	return place, h.Refresh(c)
}

// found is the object that the catalog has; ok: it is where it was when it was made. A *channel.SpecError: it is another one.
func found(l *memory.Layout, r *memory.Reservation, name string, spec channel.Spec) (x object, ok bool, err error) {
	if err := decode(r, &x); err != nil {
		return x, false, err
	}
	if x.Spec != spec {
		return x, false, &channel.SpecError{Name: name, Have: x.Spec, Want: spec}
	}
	now, err := placeOf(l, r.Addr)
	now.Incarnation = x.Place.Incarnation
	return x, err == nil && now == x.Place, nil
}

// placeOf is where an extent lies, without an incarnation of the object.
func placeOf(l *memory.Layout, a memory.Addr) (channel.Place, error) {
	p := &l.Segments[a.Segment()].Placement
	if p.N == 0 {
		return channel.Place{}, fmt.Errorf("channelhost: the extent at %v: %w", a, memory.ErrLost)
	}
	r := p.Replicas[0]
	return channel.Place{Blade: r.Blade, Off: r.Base + uint64(a.Offset()), Life: l.Blades[r.Blade].Incarnation}, nil
}

// maxTries bounds how often an extent is asked for while the epoch moves.
const maxTries = 64

func (h *host) alloc(c *rdma.Coro, size uint32) (a memory.Addr, err error) {
	for range maxTries {
		if a, err = h.space.AllocExtent(c, size); !errors.Is(err, rdma.ErrStaleKey) {
			break
		}
		if err := h.rekey(c); err != nil {
			return 0, err
		}
	}
	if errors.Is(err, memory.ErrTooLarge) {
		err = fmt.Errorf("%w: %w", channel.ErrTooLarge, err)
	}
	return a, err
}

// free gives an extent back that no view leads to.
func (h *host) free(c *rdma.Coro, a memory.Addr, size uint32) error {
	if err := h.space.FreeExtent(a, size); err != nil {
		return err
	}
	for range maxTries {
		err := h.space.SettleExtents(c)
		if !errors.Is(err, rdma.ErrStaleKey) {
			return err
		}
		if err := h.rekey(c); err != nil {
			return err
		}
	}
	return nil // the next AllocExtent does it
}

// rekey brings the queue pairs of the thread into the present epoch.
func (h *host) rekey(c *rdma.Coro) error {
	if err := h.Refresh(c); err != nil {
		return err
	}
	h.view.Rekey(c.Thread())
	for b := range rdma.BladeID(h.view.Blades()) {
		if h.view.Up(b) {
			_ = c.Thread().Reconnect(b) // the next attempt says why not
		}
	}
	return nil
}

func (h *host) Forget(c *rdma.Coro, name string, incarnation uint32) error {
	var was memory.Reservation
	err := h.space.AdvanceEpoch(func(l *memory.Layout) error {
		r := l.Reservation(prefix + name)
		if r == nil {
			return errDone
		}
		var x object
		if err := decode(r, &x); err != nil {
			return err
		}
		if x.Place.Incarnation != incarnation {
			return errDone
		}
		was = *r
		l.Release(r.Name)
		return nil
	})
	if errors.Is(err, errDone) {
		return h.space.Follow()
	}
	if err == nil {
		err = h.space.EndKeys()
	}
	if err != nil { // if the name has ended, the next process that is alone gives the extent back
		return err
	}
	if err := h.rekey(c); err != nil {
		return err
	}
	return h.free(c, was.Addr, was.Size)
}

// errDone ends a change of the epoch that is not needed.
var errDone = errors.New("channelhost: nothing is to be done")

func (h *host) Fence(_ *rdma.Coro, id channel.MemberID) error {
	err := h.space.AdvanceEpoch(func(l *memory.Layout) error {
		x, err := listOf(l)
		if err != nil || id == 0 {
			return err
		}
		i := slices.IndexFunc(x.All, func(m member) bool { return m.ID == id })
		if i < 0 {
			if l.Epoch > x.Left {
				return errDone
			}
			return nil
		}
		x.All, x.Left = slices.Delete(x.All, i, i+1), l.Epoch
		return reserve(l, memory.Reservation{Name: listName}, x)
	})
	if errors.Is(err, errDone) {
		err = h.space.Follow()
	}
	if err == nil {
		err = h.space.EndKeys()
	}
	if err != nil {
		return fmt.Errorf("channelhost: fencing member %d: %w", id, err)
	}
	return nil
}

func (h *host) Refresh(*rdma.Coro) error {
	if err := h.space.Follow(); err != nil {
		return err
	}
	v, l := h.space.View(), h.space.Layout()
	x, err := listOf(l)
	if err != nil {
		return err
	}
	if !x.alive(l, h.id) {
		return channel.ErrFenced
	}
	h.view, h.layout = v, l
	return nil
}

// Key is 0 for a blade that was declared dead since: it may have kept the key, if it is alive after all, and what lies on it is not
// the object any more.
func (h *host) Key(b rdma.BladeID) rdma.Key {
	if !h.space.View().Up(b) {
		return 0
	}
	return h.view.Key(b)
}

func (h *host) Valid(name string, p channel.Place) error {
	r := h.layout.Reservation(prefix + name)
	if r == nil {
		return channel.ErrIncarnation
	}
	var x object
	if err := decode(r, &x); err != nil {
		return err
	}
	if now, err := placeOf(h.layout, r.Addr); err != nil || x.Place != p || now.Blade != p.Blade || now.Off != p.Off || now.Life != p.Life {
		return channel.ErrIncarnation
	}
	return nil
}
