package channelhost

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"txnode/channel"
	"txnode/memory"
	"txnode/memory/layout"
	"txnode/rdma"
)

const (
	prefix       = "channel/"
	hostName     = prefix + ".host"
	prefixMember = hostName + "/"
)

// numbers is what the catalog counts: the text of a reservation, as JSON.
type numbers struct {
	Next    channel.MemberID // that were given to members
	Objects uint32           // that were made
	// Left is the last epoch in which a member has left the catalog: its verbs may take effect
	// while this is the epoch.
	Left layout.Epoch
}

// member is one that may be alive: the text of a reservation, as JSON.
type member struct {
	Process uint32
	Name    string
	// Attempt tells the call of Enroll from all others of its process.
	Attempt uint64
}

// attempts counts the calls of Enroll in this program. enrolled has those whose members may be
// alive: their hosts.
var (
	attempts atomic.Uint64
	enrolled sync.Map
)

// object is what the catalog knows of an object, beside its extent: the text of a
// reservation, as JSON.
type object struct {
	Spec  channel.Spec
	Place channel.Place
}

// host is the view of a member.
type host struct {
	space   *memory.Space
	id      channel.MemberID
	attempt uint64 // of Enroll
	view    *layout.View
	layout  *layout.Layout
}

// New makes a view for one member. The space stays open as long as the member uses it.
func New(s *memory.Space) channel.Host {
	h := &host{space: s}
	h.look()
	return h
}

// settled reports whether an object can be made: no other process can be using what a lost blade
// had. process is the number of this one.
func (h *host) settled(process uint32) bool { return h.space.LossKnown(process) }

// look takes over keys, and then what the catalog says: not the other way round, see the package.
func (h *host) look() {
	h.view = h.space.View()
	h.layout = h.space.Layout()
}

func numbersOf(l *layout.Layout) (x numbers, err error) {
	if r := l.Reservation(hostName); r != nil {
		err = decode(r, &x)
	}
	return x, err
}

func decode(r *layout.Reservation, to any) error {
	if err := json.Unmarshal(r.Text, to); err != nil {
		return fmt.Errorf("%w: channelhost: what is reserved as %q: %w", layout.ErrDamaged, r.Name, err)
	}
	return nil
}

func reserve(l *layout.Layout, r layout.Reservation, text any) (err error) {
	if r.Text, err = json.Marshal(text); err == nil {
		l.Reserve(r)
	}
	return err
}

func nameOf(id channel.MemberID) string { return fmt.Sprintf("%s%08x", prefixMember, uint32(id)) }

// alive reports whether the catalog has a member, and its process has the database open.
func alive(l *layout.Layout, id channel.MemberID) bool {
	r := l.Reservation(nameOf(id))
	return r != nil && runs(l, r)
}

// runs reports whether the process of a member has the database open.
func runs(l *layout.Layout, r *layout.Reservation) bool {
	var m member
	return decode(r, &m) == nil && l.Registered(m.Process)
}

// abandoned reports whether a member of a process is one of which Enroll or Leave has failed,
// because the answer of the catalog was lost.
func abandoned(r *layout.Reservation, process uint32) bool {
	var m member
	if decode(r, &m) != nil || m.Process != process {
		return false
	}
	_, is := enrolled.Load(m.Attempt)
	return !is
}

// living ends a change by a member that was fenced.
func (h *host) living(l *layout.Layout) error {
	if !alive(l, h.id) {
		return channel.ErrFenced
	}
	return nil
}

func (h *host) Enroll(c *rdma.Coro, name string) (channel.MemberID, error) {
	var id channel.MemberID
	enrolled.Delete(h.attempt)
	h.attempt = attempts.Add(1)
	enrolled.Store(h.attempt, nil)
	err := h.space.ChangeReserved(func(l *layout.Layout, process uint32) error {
		x, err := numbersOf(l)
		if err != nil {
			return err
		}
		if drop(l, func(r *layout.Reservation) bool { return !runs(l, r) || abandoned(r, process) }) {
			x.Left = l.Epoch
		}
		x.Next++
		if id = x.Next; id > channel.MaxMember {
			return fmt.Errorf("%w: member number %d", channel.ErrTooLarge, id)
		}
		if err := reserve(l, layout.Reservation{Name: nameOf(id), Passing: true},
			member{process, name, h.attempt}); err != nil {
			return err
		}
		return reserve(l, layout.Reservation{Name: hostName}, x)
	})
	if err == nil {
		h.id = id
		err = h.Refresh(c) // another process may have ended this one since
	}
	if err != nil {
		h.abandon()
		return 0, err
	}
	return id, nil
}

// drop takes members off the catalog, and reports whether there was one.
func drop(l *layout.Layout, which func(r *layout.Reservation) bool) bool {
	had := len(l.Reserved)
	l.Reserved = slices.DeleteFunc(l.Reserved, func(r layout.Reservation) bool {
		return strings.HasPrefix(r.Name, prefixMember) && which(&r)
	})
	return len(l.Reserved) < had
}

// abandon takes the member off the catalog of which Enroll has failed, or has the next call of
// Enroll in this process do it.
func (h *host) abandon() {
	enrolled.Delete(h.attempt)
	if h.space.Follow() != nil { // settles what is in doubt
		return
	}
	_ = h.space.ChangeReserved(func(l *layout.Layout, process uint32) error {
		x, err := numbersOf(l)
		if err != nil || !drop(l, func(r *layout.Reservation) bool { return abandoned(r, process) }) {
			return err
		}
		x.Left = l.Epoch
		return reserve(l, layout.Reservation{Name: hostName}, x)
	})
}

// Leave: after an error it can be called again, and else the next call of Enroll in this process
// does it.
func (h *host) Leave(*rdma.Coro) error {
	enrolled.Delete(h.attempt)
	return h.space.ChangeReserved(func(l *layout.Layout, _ uint32) error { return leave(l, h.id) })
}

// leave takes a member off the catalog, if it is there.
func leave(l *layout.Layout, id channel.MemberID) error {
	if l.Reservation(nameOf(id)) == nil {
		return nil
	}
	x, err := numbersOf(l)
	if err != nil {
		return err
	}
	l.Release(nameOf(id))
	x.Left = l.Epoch
	return reserve(l, layout.Reservation{Name: hostName}, x)
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
	if !h.settled(h.space.Process()) { // before memory is taken for it
		if err := h.space.Listen(); err != nil {
			return channel.Place{}, err
		}
		if !h.settled(h.space.Process()) {
			return channel.Place{}, channel.ErrUnsettled
		}
	}
	// What holders of a lock that is lost have posted with the keys of before ends before
	// the next one can be.
	if err := patient(c, h.space.EndKeys); err != nil {
		return channel.Place{}, fmt.Errorf("channelhost: ending late verbs: %w", err)
	}
	var place channel.Place
	var err error
	for tries := 0; ; tries++ {
		place, err = h.make(c, name, spec)
		if !errors.Is(err, memory.ErrExtentGone) || tries == maxTries {
			break
		}
	}
	if h.space.ExtentsDue(c.Thread().Now()) { // the extent was not needed
		if later := h.settle(c); err == nil {
			err = later // else the next NewExtent does it
		}
	}
	if err != nil {
		return channel.Place{}, err
	}
	return place, h.Refresh(c)
}

// make makes an object that the catalog does not have, unless another process was first.
func (h *host) make(c *rdma.Coro, name string, spec channel.Spec) (place channel.Place, err error) {
	extent, err := h.alloc(c, spec.Bytes)
	if err != nil {
		return place, err
	}
	err = h.space.ReserveExtent(extent, func(l *layout.Layout, process uint32) error {
		anew := false
		if r := l.Reservation(prefix + name); r != nil {
			x, ok, err := found(l, r, name, spec)
			if err != nil {
				return err
			}
			if ok { // another process was first; or the answer to the attempt before was lost
				place = x.Place
				return nil
			}
			l.Discard(r.Name)
			anew = true
		}
		if err := h.living(l); err != nil {
			return err
		}
		if !h.settled(process) {
			return channel.ErrUnsettled
		}
		x, err := numbersOf(l)
		if err != nil {
			return err
		}
		x.Objects++
		place, err = placeOf(l, extent.Addr)
		if err != nil {
			return err
		}
		place.Incarnation, place.Anew = x.Objects, anew
		if err := reserve(l, layout.Reservation{Name: hostName}, x); err != nil {
			return err
		}
		return reserve(l, layout.Reservation{Name: prefix + name, Addr: extent.Addr, Size: spec.Bytes},
			object{spec, place})
	})
	return place, err
}

// found is the object that the catalog has; ok: it is where it was when it was made. A
// *channel.SpecError: it is another one.
func found(l *layout.Layout, r *layout.Reservation, name string, spec channel.Spec) (x object, ok bool, err error) {
	if err := decode(r, &x); err != nil {
		return x, false, err
	}
	if x.Spec != spec {
		return x, false, &channel.SpecError{Name: name, Have: x.Spec, Want: spec}
	}
	ok = there(l, r, &x)
	return x, ok, nil
}

// there reports whether an object is where it was when it was made, and has been since.
func there(l *layout.Layout, r *layout.Reservation, x *object) bool {
	now, err := placeOf(l, r.Addr)
	now.Incarnation, now.Anew = x.Place.Incarnation, x.Place.Anew
	return err == nil && !r.Lost && now == x.Place
}

// placeOf is where an extent lies, without an incarnation of the object.
func placeOf(l *layout.Layout, a layout.Addr) (channel.Place, error) {
	p := &l.Segments[a.Segment()].Placement
	if p.N == 0 {
		return channel.Place{}, fmt.Errorf("channelhost: the extent at %v: %w", a, layout.ErrLost)
	}
	r := p.Replicas[0]
	return channel.Place{Blade: r.Blade, Off: r.Base + uint64(a.Offset()), Life: l.Blades[r.Blade].Incarnation}, nil
}

// maxTries bounds how often an extent is asked for while the epoch moves, or others forget what
// has just been made.
const maxTries = 64

func (h *host) alloc(c *rdma.Coro, size uint32) (x memory.Extent, err error) {
	err = h.repeat(c, func() (err error) {
		x, err = h.space.NewExtent(c, size)
		return err
	})
	if errors.Is(err, memory.ErrTooLarge) {
		err = fmt.Errorf("%w: %w", channel.ErrTooLarge, err)
	}
	return x, err
}

// settle has extents that were given back used again, those that other processes have discarded,
// too.
func (h *host) settle(c *rdma.Coro) error {
	err := h.repeat(c, func() error { return h.space.SettleExtents(c) })
	if errors.Is(err, rdma.ErrStaleKey) {
		return nil // the next NewExtent does it
	}
	return err
}

// repeat calls fn until its verbs do not fail because the epoch has moved, maxTries times.
// After another failure of a verb it is for the caller to try again: the queue pairs are
// connected for that.
func (h *host) repeat(c *rdma.Coro, fn func() error) (err error) {
	for range maxTries {
		if err = fn(); err == nil || !errors.Is(err, rdma.ErrVerb) && !errors.Is(err, rdma.ErrStaleKey) {
			return err
		}
		if err := h.rekey(c); err != nil {
			return err
		}
		if !errors.Is(err, rdma.ErrStaleKey) {
			return err
		}
	}
	return err
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

// How long a blade that does not answer is waited for, and between two looks.
const (
	patienceNs = int64(1e9)
	pauseNs    = int64(5e6)
)

// patient calls fn until it does not fail because a blade does not answer, for patienceNs: a
// process that uses the database declares that blade dead meanwhile.
func patient(c *rdma.Coro, fn func() error) error {
	for began := c.Thread().Now(); ; c.Sleep(pauseNs) {
		err := fn()
		if !errors.Is(err, rdma.ErrBladeDown) || c.Thread().Now()-began > patienceNs {
			return err
		}
	}
}

func (h *host) Forget(c *rdma.Coro, name string, incarnation uint32) error {
	return patient(c, func() error { return h.forget(c, name, incarnation) })
}

func (h *host) forget(c *rdma.Coro, name string, incarnation uint32) error {
	err := h.space.AdvanceEpoch(func(l *layout.Layout) error {
		if err := h.living(l); err != nil {
			return err
		}
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
		l.Discard(r.Name)
		return nil
	})
	if errors.Is(err, errDone) {
		return h.space.Follow()
	}
	if err == nil {
		err = h.space.EndKeys()
	}
	if err != nil {
		return err
	}
	if err := h.rekey(c); err != nil {
		return err
	}
	return h.settle(c)
}

// errDone ends a change of the epoch that is not needed.
var errDone = errors.New("channelhost: nothing is to be done")

func (h *host) Fence(c *rdma.Coro, id channel.MemberID) error {
	return patient(c, func() error { return h.fence(id) })
}

func (h *host) fence(id channel.MemberID) error {
	if id == 0 { // before another epoch, which would be in vain
		if err := h.space.EndKeys(); err != nil {
			return fmt.Errorf("channelhost: ending late verbs: %w", err)
		}
	}
	err := h.space.AdvanceEpoch(func(l *layout.Layout) error {
		if err := h.living(l); err != nil || id == 0 {
			return err
		}
		x, err := numbersOf(l)
		if err != nil {
			return err
		}
		if l.Reservation(nameOf(id)) == nil && l.Epoch > x.Left {
			return errDone
		}
		return leave(l, id)
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
	if err := h.living(l); err != nil {
		return err
	}
	h.view, h.layout = v, l
	_ = h.space.Acknowledge() // the next sign of life does, else
	return nil
}

// Confirm: while the registration of this process lasts, others wait until it has told that it
// knows of the loss of a blade, and then the view is not the newest. Behind that the catalog alone
// says what exists, and a member that cannot ask it stops.
func (h *host) Confirm(c *rdma.Coro) (changed bool, err error) {
	if h.space.Fresh(h.view, c.Thread()) {
		return false, nil
	}
	if h.space.Lapsed(c.Thread()) {
		if err := h.space.Follow(); err != nil {
			return false, fmt.Errorf("%w, as far as its process can tell, whose registration is over: %w",
				channel.ErrFenced, err)
		}
	}
	return true, h.Refresh(c)
}

// Key is 0 for a blade that was declared dead since: it may have kept the key, if it is alive after
// all, and what lies on it is not the object any more.
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
	if x.Place != p || !there(h.layout, r, &x) {
		return channel.ErrIncarnation
	}
	return nil
}
