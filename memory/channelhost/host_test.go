package channelhost_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"txnode/channel"
	"txnode/channel/channeltest"
	"txnode/memory"
	"txnode/memory/catalog"
	"txnode/memory/channelhost"
	"txnode/memory/layout"
	"txnode/rdma"
	"txnode/rdma/inproc"
	"txnode/rdma/rdmatest"
)

const segment = 256 << 10

// bed is a fabric with a database on it, which several processes have open.
type bed struct {
	t       *testing.T
	fabric  *refusing
	cat     catalog.Mem
	spaces  []*memory.Space
	threads []*rdma.Thread
	coros   []*rdma.Coro
}

// refusing is a fabric whose blades end no keys for a while.
type refusing struct {
	rdma.Fabric
	refuse bool
	times  int // or so often
}

func (f *refusing) Revoke(b rdma.BladeID, k rdma.Key) error {
	if f.times--; f.refuse || f.times >= 0 {
		return rdma.ErrBladeDown
	}
	return f.Fabric.Revoke(b, k)
}

func newBed(t *testing.T, blades, backups, processes int) *bed {
	t.Helper()
	o := inproc.Options{Seed: 1}
	for range blades {
		o.Blades = append(o.Blades, inproc.BladeOptions{Size: layout.HeaderArea + 16*segment})
	}
	f, err := inproc.New(o)
	if err != nil {
		t.Fatal(err)
	}
	b := &bed{t: t, fabric: &refusing{Fabric: f}}
	t.Cleanup(func() {
		for _, th := range b.threads {
			check(t, th.Close())
		}
		check(t, f.Close())
	})
	for range processes {
		b.open(memory.Options{Backups: backups, SegmentSize: segment, LogArea: 64 << 10, Shared: true})
	}
	return b
}

// open has another process open the database.
func (b *bed) open(o memory.Options) (*memory.Space, *rdma.Coro) {
	b.t.Helper()
	return b.openOn(&b.cat, o)
}

// openOn is open with a catalog of its own.
func (b *bed) openOn(cat layout.Catalog, o memory.Options) (*memory.Space, *rdma.Coro) {
	b.t.Helper()
	c := b.thread().Plain()
	s, err := memory.Open(c, b.fabric, cat, o)
	if err == nil {
		err = s.EndAlone()
	}
	if err != nil {
		b.t.Fatal(err)
	}
	b.spaces, b.coros = append(b.spaces, s), append(b.coros, c)
	return s, c
}

func (b *bed) thread() *rdma.Thread {
	b.t.Helper()
	th, err := rdma.NewThread(b.fabric, rdma.ThreadOptions{Arena: 1 << 18, Index: len(b.threads)})
	if err != nil {
		b.t.Fatal(err)
	}
	b.threads = append(b.threads, th)
	return th
}

// join makes a member of process i, whose heartbeat no other member misses for hours.
func (b *bed) join(i int) (*channel.Member, *rdma.Coro) {
	b.t.Helper()
	c := b.thread().Plain()
	m, err := channel.Join(b.t.Context(), c, channelhost.New(b.spaces[i]), identity)
	if err != nil {
		b.t.Fatal(err)
	}
	return m, c
}

// enroll makes a member of process i alone, without channels.
func (b *bed) enroll(i int) channel.Host {
	b.t.Helper()
	h := channelhost.New(b.spaces[i])
	if _, err := h.Enroll(b.coros[i], ""); err != nil {
		b.t.Fatal(err)
	}
	return h
}

// members is how many members the catalog has.
func (b *bed) members() (n int) {
	b.t.Helper()
	l, err := layout.LoadLayout(&b.cat)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, r := range l.Reserved {
		if strings.HasPrefix(r.Name, "channel/.host/") {
			n++
		}
	}
	return n
}

var identity = channel.Identity{Name: "test", Term: 3_600_000_000_000, Slots: 8}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// reserved are the names of the objects that the catalog has.
func (b *bed) reserved() (names []string) {
	b.t.Helper()
	l, err := layout.LoadLayout(&b.cat)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, r := range l.Reserved {
		if r.Size > 0 {
			names = append(names, r.Name)
		}
	}
	return names
}

// TestSuite runs the suite of channels: members are in two processes.
func TestSuite(t *testing.T) {
	channeltest.RunOn(t, func(t *testing.T) *channeltest.World {
		b := newBed(t, 2, 1, 2)
		return channeltest.NewWorldOn(t, b.fabric, func(i int) (rdma.Fabric, channel.Host) {
			return b.fabric, channelhost.New(b.spaces[i%2])
		})
	})
}

// TestFence: nothing that a fenced member posts takes effect, in whichever process it was fenced,
// and it learns of it. Fencing it again moves nothing.
func TestFence(t *testing.T) {
	b := newBed(t, 2, 1, 3)
	late, lc := b.join(0)
	v, err := channel.OpenVar[uint64](t.Context(), lc, late.Scope("s"), "v")
	check(t, err)
	check(t, v.Store(lc, 1))
	m, c := b.join(1)
	same, err := channel.OpenVar[uint64](t.Context(), c, m.Scope("s"), "v")
	check(t, err)
	h := b.enroll(1)
	check(t, h.Fence(c, late.ID()))
	epoch := b.spaces[1].View().Epoch
	check(t, b.enroll(2).Fence(c, late.ID()))
	check(t, h.Fence(c, late.ID()))
	if now := b.spaces[2].View().Epoch; now != epoch {
		t.Errorf("fencing again has moved the epoch from %d to %d", epoch, now)
	}
	check(t, b.spaces[0].Follow()) // the process has the keys of the new epoch
	if err := v.Store(lc, 2); !errors.Is(err, channel.ErrFenced) {
		t.Errorf("a fenced member stores: %v", err)
	}
	if got, err := same.Load(c); got != 1 || err != nil {
		t.Errorf("%d, %v", got, err)
	}
	again, ac := b.join(0)
	if again.ID() <= m.ID() {
		t.Errorf("number %d after %d", again.ID(), m.ID())
	}
	w, err := channel.OpenVar[uint64](t.Context(), ac, again.Scope("s"), "v")
	check(t, err)
	check(t, w.Store(ac, 3))
	if got, err := same.Load(c); got != 3 || err != nil {
		t.Errorf("%d, %v", got, err)
	}
}

// TestUnrevoked: Fence returns nil only when the blades have ended the keys that the
// fenced member has.
func TestUnrevoked(t *testing.T) {
	b := newBed(t, 2, 1, 2)
	late, lc := b.join(0)
	v, err := channel.OpenVar[uint64](t.Context(), lc, late.Scope("s"), "v")
	check(t, err)
	_, c := b.join(1)
	h := b.enroll(1)
	b.fabric.refuse = true
	for range 3 {
		if err := h.Fence(c, late.ID()); err == nil {
			t.Fatal("the keys of the member open the blades")
		}
	}
	b.fabric.refuse = false
	check(t, h.Fence(c, late.ID()))
	if err := v.Store(lc, 2); !errors.Is(err, channel.ErrFenced) {
		t.Errorf("a fenced member stores: %v", err)
	}
}

// TestProcessGone: a member of a process that has closed the database is taken off the list without
// a new epoch, so another member's Fence moves the epoch, once.
func TestProcessGone(t *testing.T) {
	b := newBed(t, 2, 1, 2)
	gone, gc := b.join(1)
	v, err := channel.OpenVar[uint64](t.Context(), gc, gone.Scope("s"), "v")
	check(t, err)
	check(t, v.Store(gc, 1))
	check(t, b.spaces[1].Close(b.coros[1]))
	m, c := b.join(0) // its number leaves the list
	h := b.enroll(0)
	for i, moves := range []layout.Epoch{1, 0} {
		before := b.spaces[0].View().Epoch
		check(t, h.Fence(c, gone.ID()))
		if now := b.spaces[0].View().Epoch; now != before+moves {
			t.Errorf("fenced %d times: epoch %d after %d", i+1, now, before)
		}
	}
	if err := v.Store(gc, 2); err == nil {
		t.Error("a member of a process that has closed the database stores")
	}
	same, err := channel.OpenVar[uint64](t.Context(), c, m.Scope("s"), "v")
	check(t, err)
	if got, err := same.Load(c); got != 1 || err != nil {
		t.Errorf("%d, %v", got, err)
	}
}

// TestForget: an object that is forgotten is gone for all that have it open, and its memory comes
// back, blank, whichever process has forgotten it.
func TestForget(t *testing.T) {
	for by := range 2 {
		t.Run(fmt.Sprintf("by %d", by), func(t *testing.T) { testForget(t, by) })
	}
}

func testForget(t *testing.T, by int) {
	b := newBed(t, 2, 1, 2)
	hosts := []channel.Host{b.enroll(0), b.enroll(1)}
	c := b.coros[0]
	spec := channel.Spec{Kind: channel.KindVar, Bytes: segment / 2}
	want := len(b.spaces[0].Extents())
	for round := range 2 * 16 { // more than the blades have room for
		p, err := hosts[0].Declare(c, "v", spec)
		if err != nil {
			t.Fatal(round, err)
		}
		if q, err := hosts[1].Declare(b.coros[1], "v", spec); q != p || err != nil {
			t.Fatalf("%v, and the other process has %v, %v", p, q, err)
		}
		other := spec
		other.Size++
		if _, err := hosts[1].Declare(b.coros[1], "v", other); !errors.Is(err, channel.ErrSpec) {
			t.Fatal(err)
		}
		buf := 0
		var batch rdma.Batch
		th := c.Thread()
		local, err := th.Alloc(64)
		check(t, err)
		at := rdma.RemoteAddr{Blade: p.Blade, Key: hosts[0].Key(p.Blade), Off: p.Off}
		batch.Read(at, local, 64)
		check(t, c.Do(&batch))
		for _, x := range th.Bytes(local, 64) {
			buf += int(x)
		}
		if buf != 0 {
			t.Fatalf("round %d: the object is not blank", round)
		}
		th.PutWord(local, 7)
		batch.Reset()
		batch.Write(at, local, 8)
		check(t, c.Do(&batch))
		th.Free(local, 64)
		check(t, hosts[1].Forget(b.coros[1], "v", p.Incarnation+1)) // there is none
		if err := hosts[0].Valid("v", p); err != nil {
			t.Fatal(err)
		}
		check(t, hosts[by].Forget(b.coros[by], "v", p.Incarnation))
		check(t, hosts[1-by].Refresh(b.coros[1-by]))
		for i, s := range b.spaces { // the threads of the database
			s.View().Rekey(b.coros[i].Thread())
			for blade := range b.fabric.Blades() {
				check(t, b.coros[i].Thread().Reconnect(rdma.BladeID(blade)))
			}
		}
		for i, h := range hosts {
			if err := h.Valid("v", p); !errors.Is(err, channel.ErrIncarnation) {
				t.Fatalf("process %d: %v", i, err)
			}
		}
	}
	check(t, b.spaces[0].SettleExtents(c))
	if n := len(b.spaces[0].Extents()); n != want || len(b.reserved()) > 0 {
		t.Errorf("%d extents, and there were %d; %q", n, want, b.reserved())
	}
	if _, err := hosts[0].Declare(c, "v", channel.Spec{Kind: channel.KindVar, Bytes: segment}); !errors.Is(err,
		channel.ErrTooLarge) {
		t.Errorf("an object of %d bytes: %v", segment, err)
	}
}

// TestBladeLost: an object is gone with the primary of its segment, for members that have it open,
// too; opened again it is blank, on another blade.
func TestBladeLost(t *testing.T) {
	b := newBed(t, 2, 1, 2)
	m, c := b.join(0)
	v, err := channel.OpenVar[uint64](t.Context(), c, m.Scope("s"), "v")
	check(t, err)
	check(t, v.Store(c, 1))
	lost := v.Place().Blade
	check(t, b.spaces[1].AdvanceEpoch(func(l *layout.Layout) error { l.TakeDown(lost); return nil }))
	check(t, b.spaces[0].Follow())
	if err := v.Store(c, 2); !errors.Is(err, channel.ErrIncarnation) {
		t.Errorf("the blade is gone: %v", err)
	}
	v.Close()
	w, err := channel.OpenVar[uint64](t.Context(), c, m.Scope("s"), "v")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := w.Load(c); got != 0 || err != nil || w.Place().Blade == lost {
		t.Errorf("%d, %v, on blade %d", got, err, w.Place().Blade)
	}
}

// TestBack: an object whose blade was lost stays gone, though a copy of its segment comes back to
// the same place, and is the primary again.
func TestBack(t *testing.T) {
	b := newBed(t, 2, 1, 2)
	m, c := b.join(0)
	v, err := channel.OpenVar[uint64](t.Context(), c, m.Scope("s"), "v")
	check(t, err)
	check(t, v.Store(c, 1))
	was, s, sc := v.Place(), b.spaces[1], b.coros[1]
	renew := func() {
		s.View().Rekey(sc.Thread())
		for i := range b.fabric.Blades() {
			check(t, sc.Thread().Reconnect(rdma.BladeID(i)))
		}
	}
	for _, lost := range []rdma.BladeID{was.Blade, 1 - was.Blade} { // it is alive after all
		check(t, s.AdvanceEpoch(func(l *layout.Layout) error { l.TakeDown(lost); return nil }))
		renew()
		check(t, s.Admit(sc, lost, nil))
		k := s.NewCopier()
		for idle := false; !idle; {
			renew()
			idle, err = k.Step(sc)
			if check(t, err); err != nil {
				t.FailNow()
			}
		}
	}
	check(t, b.spaces[0].Follow())
	_, err = v.Load(c)
	if err == nil { // no verb has failed yet
		err = v.Store(c, 2)
	}
	if !errors.Is(err, channel.ErrIncarnation) {
		t.Errorf("the blade was lost: %v", err)
	}
	v.Close()
	w, err := channel.OpenVar[uint64](t.Context(), c, m.Scope("s"), "v")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := w.Load(c); got != 0 || err != nil || w.Incarnation() == was.Incarnation {
		t.Errorf("%d, %v, in incarnation %d", got, err, w.Incarnation())
	}
}

// TestAlone: the first process that opens the database when all are gone finds no object,
// and numbers go on.
func TestAlone(t *testing.T) {
	b := newBed(t, 2, 1, 1)
	m, c := b.join(0)
	_, err := channel.OpenVar[uint64](t.Context(), c, m.Scope("s"), "v")
	check(t, err)
	if n := len(b.reserved()); n != 2 { // the table of members, too
		t.Errorf("%q", b.reserved())
	}
	check(t, b.spaces[0].Close(b.coros[0]))
	b.open(memory.Options{Attach: true})
	if names := b.reserved(); names != nil {
		t.Errorf("%q", names)
	}
	again, _ := b.join(1)
	if again.ID() <= m.ID() {
		t.Errorf("number %d after %d", again.ID(), m.ID())
	}
}

// TestDeclaredAgain: no answer comes to a verb with which an object is made. The next attempt makes
// it, and the extents of those that have failed are used again in the next epoch.
func TestDeclaredAgain(t *testing.T) {
	f := rdmatest.New(rdmatest.Options{Blades: 2, Size: layout.HeaderArea + 16*segment, Seed: 1})
	b := &bed{t: t, fabric: &refusing{Fabric: f}}
	t.Cleanup(func() {
		for _, th := range b.threads {
			check(t, th.Close())
		}
	})
	b.open(memory.Options{Backups: 1, SegmentSize: segment, LogArea: 64 << 10, Shared: true})
	_, c := b.join(0)
	h := b.enroll(0)
	spec := channel.Spec{Kind: channel.KindVar, Bytes: 128}
	for n, attempt := 0, 0; attempt < 4; attempt++ { // one verb later each time
		n = attempt
		f.Fail(func(w *rdma.WR) rdma.Status {
			if n--; n == -1 {
				return rdma.StatusTimeout
			}
			return rdma.StatusOK
		})
		_, err := h.Declare(c, fmt.Sprint("object ", attempt), spec)
		f.Fail(nil)
		if failed := n < 0; failed != (err != nil) {
			t.Fatalf("attempt %d: %v", attempt, err)
		}
		if err == nil {
			break
		}
		if _, err := h.Declare(c, fmt.Sprint("object ", attempt), spec); err != nil {
			t.Fatalf("attempt %d, again: %v", attempt, err)
		}
	}
	check(t, b.spaces[0].AdvanceEpoch(nil))
	for range 2 { // the first one finds keys of the epoch before
		if _, err := h.Declare(c, "last", spec); err != nil {
			t.Fatal(err)
		}
	}
	if all := b.spaces[0].Extents(); b.spaces[0].ExtentsDue(0) || len(all) != len(b.reserved()) {
		t.Errorf("extents %v, and the objects are %q", all, b.reserved())
	}
}

// TestFencedHost: a member that was fenced fences none, moves no epoch, forgets and makes no
// object, though its process has not followed.
func TestFencedHost(t *testing.T) {
	b := newBed(t, 2, 1, 2)
	late, lc := b.join(0)
	m, c := b.join(1)
	v, err := channel.OpenVar[uint64](t.Context(), c, m.Scope("s"), "v")
	check(t, err)
	h := b.enroll(0)
	id, err := h.Enroll(b.coros[0], "")
	check(t, err)
	check(t, b.enroll(1).Fence(c, id))
	epoch := b.spaces[1].View().Epoch
	for what, err := range map[string]error{
		"fences":          h.Fence(lc, m.ID()),
		"moves the epoch": h.Fence(lc, 0),
		"forgets":         h.Forget(lc, v.Name(), v.Incarnation()),
		"refreshes":       h.Refresh(lc),
	} {
		if !errors.Is(err, channel.ErrFenced) {
			t.Errorf("a fenced member %s: %v", what, err)
		}
	}
	if _, err := h.Declare(lc, "new", channel.Spec{Kind: channel.KindVar, Bytes: 128}); !errors.Is(err,
		channel.ErrFenced) {
		t.Errorf("a fenced member declares: %v", err)
	}
	check(t, b.spaces[1].Follow())
	if now := b.spaces[1].View().Epoch; now != epoch {
		t.Errorf("epoch %d after %d", now, epoch)
	}
	check(t, v.Store(c, 1)) // v is there
	check(t, late.Beat(lc))
}

// TestFenceBesideLoss: a blade does not answer while a member is fenced and an object forgotten.
// Once it has been declared dead, or has come to itself, that is done.
func TestFenceBesideLoss(t *testing.T) {
	b := newBed(t, 2, 1, 2)
	m, c := b.join(1)
	v, err := channel.OpenVar[uint64](t.Context(), c, m.Scope("s"), "v")
	check(t, err)
	id, err := b.enroll(0).Enroll(b.coros[0], "")
	check(t, err)
	n := b.members()
	h := b.enroll(1)
	b.fabric.times = 3
	check(t, h.Fence(c, id))
	if b.fabric.times >= 0 || b.members() != n {
		t.Errorf("%d refusals are left, and %d members of %d and 1", b.fabric.times, b.members(), n)
	}
	b.fabric.times = 3
	check(t, h.Forget(c, v.Name(), v.Incarnation()))
	if _, err := v.Load(c); !errors.Is(err, channel.ErrIncarnation) {
		t.Errorf("a forgotten object: %v", err)
	}
}

// TestMembersEnd: the catalog has members that may be alive, and no others: one that leaves is
// taken off, and so are all when no process is left, whether the database is shared or not.
func TestMembersEnd(t *testing.T) {
	for _, shared := range []bool{true, false} {
		t.Run(fmt.Sprintf("shared %v", shared), func(t *testing.T) {
			b := newBed(t, 1, 0, 0)
			o := memory.Options{SegmentSize: segment, LogArea: 64 << 10, Shared: shared}
			_, c := b.open(o)
			stays, sc := b.join(0)
			v, err := channel.OpenVar[uint64](t.Context(), sc, stays.Scope("s"), "v")
			check(t, err)
			var last channel.MemberID
			const joins = 3000 // their names are more than a text has room for
			for range joins {
				m, err := channel.Join(t.Context(), c, channelhost.New(b.spaces[0]),
					channel.Identity{Name: "a member with a name", Term: identity.Term, Slots: 8})
				if err != nil {
					t.Fatal(last, err)
				}
				last = m.ID()
				check(t, m.Leave(c))
				check(t, m.Leave(c))
				if err := m.Beat(c); err != nil {
					t.Fatal(err)
				}
				if _, err := channel.OpenVar[uint64](t.Context(), c, m.Scope("s"), "w"); !errors.Is(err,
					channel.ErrFenced) {
					t.Fatalf("a member that has left opens an object: %v", err)
				}
			}
			if n := b.members(); n != 1 {
				t.Errorf("%d members, and one has not left", n)
			}
			check(t, v.Store(sc, 1))
			h, epoch := b.enroll(0), b.spaces[0].View().Epoch
			for i, want := range []layout.Epoch{epoch + 1, epoch + 1} { // its verbs take effect before
				check(t, h.Fence(c, last))
				if now := b.spaces[0].View().Epoch; now != want {
					t.Errorf("fenced %d times: epoch %d, want %d", i+1, now, want)
				}
			}
			if n := b.members(); n != 2 {
				t.Errorf("%d members, and two have not left", n)
			}
			check(t, b.spaces[0].Close(c))
			o.Attach = true
			b.open(o)
			if n := b.members(); n != 0 {
				t.Errorf("%d members of processes that are gone", n)
			}
			if again, _ := b.join(1); again.ID() != joins+3 {
				t.Errorf("number %d behind %d", again.ID(), joins+2)
			}
		})
	}
}
