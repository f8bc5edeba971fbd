package channelhost_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"txnode/channel"
	"txnode/memory"
	"txnode/memory/catalog"
	"txnode/memory/channelhost"
	"txnode/memory/layout"
	"txnode/rdma"
	"txnode/rdma/steptest"
	"txnode/verify"
)

// stage is a database that two processes have open, on a fabric on which a test decides what
// happens next. Process 0 is the victim.
type stage struct {
	t      *testing.T
	f      *steptest.Fabric
	cat    *catalog.Mem
	hands  [2]*hand
	spaces [2]*memory.Space
	number uint32           // of the victim's process
	idle   channel.MemberID // of process 1, and does nothing
	err    error            // what the victim has ended with
	lost   bool             // a completion of the victim is lost
	at     string           // where the victim is in its script
	fresh  []memory.Extent  // that the survivor has allocated, and nothing is written to
	n      int              // moves that were made
}

var errSilent = errors.New("the catalog does not answer")

// hand is the catalog as a process has it: each call is a move, and so is its answer.
type hand struct {
	*catalog.Mem
	f     *steptest.Fabric
	dead  bool
	calls int  // of Apply
	lose  int  // the call of Apply whose answer is lost, from 1
	made  bool // though the change is made
	deaf  int  // and so many questions behind it have no answer either
}

func untouched(to []steptest.Access) []steptest.Access { return to }

func (h *hand) Load() ([]layout.Entry, layout.Revision, error) {
	h.f.Step("load", untouched)
	if h.dead {
		return nil, 0, errSilent
	}
	if h.lose > 0 && h.calls >= h.lose && h.deaf > 0 {
		h.deaf--
		return nil, 0, errSilent
	}
	return h.Mem.Load()
}

func (h *hand) Revision() (layout.Revision, error) {
	h.f.Step("revision", untouched)
	if h.dead || h.lose > 0 && h.calls >= h.lose && h.deaf > 0 {
		return 0, errSilent
	}
	return h.Mem.Revision()
}

func (h *hand) Apply(rev layout.Revision, changes []layout.Entry) (layout.Revision, error) {
	h.f.Step("apply", untouched)
	if h.dead {
		return 0, errSilent
	}
	h.calls++
	lost := h.calls == h.lose
	var now layout.Revision
	var err error
	if !lost || h.made {
		now, err = h.Mem.Apply(rev, changes)
	}
	h.f.Step("is answered", untouched)
	if lost || h.dead {
		return 0, errSilent
	}
	return now, err
}

// stages makes stages, one after the other.
type stages struct {
	f     *steptest.Fabric
	begin *catalog.Mem // nil: an empty one
}

func newStages(t *testing.T, caps rdma.Caps) *stages {
	x := &stages{f: steptest.New(steptest.Options{
		Blades: 2, Size: layout.HeaderArea + 8*segment, Grain: steptest.Verbs, Caps: caps, Control: true,
	})}
	s := x.stage(t)
	var err error
	for _, space := range s.spaces {
		if err == nil {
			err = space.Close(s.thread().Plain())
		}
	}
	if err == nil {
		x.begin = s.cat.Clone()
	}
	if err != nil {
		t.Fatal(err)
	}
	x.f.Save()
	return x
}

func (x *stages) stage(t *testing.T) *stage {
	t.Helper()
	x.f.Restore()
	s := &stage{t: t, f: x.f, cat: &catalog.Mem{}}
	if x.begin != nil {
		s.cat = x.begin.Clone()
	}
	for i := range s.spaces {
		s.hands[i] = &hand{Mem: s.cat, f: s.f}
		var err error
		s.spaces[i], err = memory.Open(s.thread().Plain(), s.f, s.hands[i],
			memory.Options{Backups: 1, SegmentSize: segment, LogArea: 64 << 10, Shared: true, Until: 1 << 60})
		if err == nil {
			err = s.spaces[i].EndAlone()
		}
		if err != nil {
			t.Fatal(err)
		}
		s.hands[i].calls = 0
	}
	var err error
	if s.idle, err = channelhost.New(s.spaces[1]).Enroll(s.thread().Plain(), "idle"); err != nil {
		t.Fatal(err)
	}
	s.hands[1].calls, s.number = 0, s.spaces[0].Process()
	return s
}

// thread makes a thread, whose end is that of the stage.
func (s *stage) thread() *rdma.Thread {
	th, err := rdma.NewThread(s.f, rdma.ThreadOptions{Arena: 1 << 17, Index: s.f.Ports()})
	if err != nil {
		s.t.Fatal(err)
	}
	return th
}

var brief = channel.Identity{Name: "stop", Term: 100_000, Slots: 4}

// script joins, makes objects, uses them under a lock, fences a member, forgets an object and
// leaves: all that a host does.
func (s *stage) script(process int, lock func(h channel.Held)) (err error) {
	ctx, space := context.Background(), s.spaces[process]
	step := func(what string) {
		if process == 0 {
			s.at = what
		}
	}
	step("join")
	th := s.thread()
	c, h := th.Plain(), channelhost.New(space)
	m, err := channel.Join(ctx, c, h, brief)
	if err != nil {
		return fmt.Errorf("joining: %w", err)
	}
	defer func() {
		if err != nil {
			for n := 0; m.Leave(c) != nil && n < 8; n++ { // it may be fenced
			}
		}
	}()
	step("open")
	l, err := channel.OpenMutex(ctx, c, m.Scope("s"), "lock")
	if err != nil {
		return fmt.Errorf("opening the lock: %w", err)
	}
	v, err := channel.OpenVar[uint64](ctx, c, m.Scope("s"), "word")
	if err != nil {
		return fmt.Errorf("opening the word: %w", err)
	}
	step("lock")
	held, err := l.Lock(ctx, c)
	if err != nil {
		return fmt.Errorf("locking: %w", err)
	}
	step("locked")
	lock(held)
	x, err := v.Load(c)
	if err == nil {
		err = v.Store(c, x+1)
	}
	if err != nil {
		return fmt.Errorf("counting: %w", err)
	}
	step("unlock")
	if err := l.Unlock(c); err != nil {
		return fmt.Errorf("unlocking: %w", err)
	}
	step("fence")
	if err := h.Fence(c, s.idle); err != nil {
		return fmt.Errorf("fencing: %w", err)
	}
	step("forget")
	for _, o := range []interface {
		Name() string
		Incarnation() uint32
		Close()
	}{v, l} {
		name, incarnation := o.Name(), o.Incarnation()
		o.Close()
		if err := h.Forget(c, name, incarnation); err != nil {
			return fmt.Errorf("forgetting %s: %w", name, err)
		}
	}
	step("leave")
	if err := m.Leave(c); err != nil {
		return fmt.Errorf("leaving: %w", err)
	}
	step("left")
	return nil
}

// victim runs the script in process 0, and joins again after an error that says how to
// go on, if it is to.
func (s *stage) victim(again int) *steptest.Client {
	return s.f.GoIn(1, func() {
		s.f.Step("begins", untouched)
		for n := 0; ; n++ {
			if s.err = s.script(0, func(channel.Held) {}); !s.typed() {
				s.t.Errorf("the victim, at %q: %v", s.at, s.err)
			}
			if s.err == nil || n == again {
				return
			}
		}
	})
}

// move makes the next move, and returns the client whose it was.
func (s *stage) move() *steptest.Client {
	s.t.Helper()
	moves := s.f.Moves()
	if s.n++; len(moves) == 0 || s.n > 20_000 {
		s.t.Fatalf("%d moves after %d: a client waits for ever", len(moves), s.n)
	}
	m := moves[s.n%len(moves)]
	of := s.f.Of(m)
	s.f.Do(m)
	return of
}

// end makes moves until a client has come to its end.
func (s *stage) end(c *steptest.Client) {
	s.t.Helper()
	for !c.Ended() {
		s.move()
	}
}

// survive runs the script in process 1 while the victim is where it is, after that process
// was declared dead, if it is to be. The lock must say that it was abandoned if, and only if,
// the victim had it.
func (s *stage) survive(dies bool) {
	s.t.Helper()
	var err error
	run := s.f.GoIn(2, func() {
		s.f.Step("begins", untouched)
		space, th := s.spaces[1], s.thread()
		c := th.Plain()
		if dies {
			if err = space.Evict(s.number); err != nil {
				err = fmt.Errorf("taking over: %w", err)
				return
			}
		}
		was := s.at
		if err = s.script(1, func(h channel.Held) {
			if had := was == "locked"; h.Abandoned != had && was != "lock" && was != "unlock" {
				s.t.Errorf("the victim was at %q, and the lock is %+v", was, h)
			}
		}); err == nil {
			err = collect(space, c)
		}
		for n := 0; err == nil && n < 3; n++ {
			var x memory.Extent
			if x, err = space.NewExtent(c, 1000); err == nil {
				s.fresh = append(s.fresh, x)
			}
		}
	})
	s.end(run)
	if err != nil {
		s.t.Errorf("the survivor: %v", err)
	}
}

// collect gives back what is left of processes that are gone, as the maintenance of a database
// does.
func collect(space *memory.Space, c *rdma.Coro) error {
	renew := func() {
		space.View().Rekey(c.Thread())
		for _, b := range space.Fabric().Blades() {
			_ = c.Thread().Reconnect(b.ID)
		}
	}
	var mine []memory.Extent
	for n := 0; ; n++ {
		l := space.Layout()
		if !slices.ContainsFunc(l.Segments, func(g layout.Segment) bool {
			return g.Kind == layout.KindIndex && g.Placement.N > 0 && !l.Registered(g.Owner)
		}) {
			break
		}
		renew()
		x, err := space.NewExtent(c, segment/4)
		if err != nil || n > 40 {
			return fmt.Errorf("adopting segments: %w", err)
		}
		mine = append(mine, x)
	}
	renew()
	if err := space.SettleExtents(c); err != nil { // reads the tables
		return fmt.Errorf("reading tables: %w", err)
	}
	for _, x := range space.DeadExtents() {
		if !slices.ContainsFunc(space.Layout().Reserved, func(r layout.Reservation) bool {
			return r.Size > 0 && r.Addr == x.Addr
		}) {
			mine = append(mine, x)
		}
	}
	for _, x := range mine {
		if _, err := space.FreeExtent(x); err != nil {
			return err
		}
	}
	if err := space.SettleExtents(c); err != nil {
		return fmt.Errorf("settling: %w", err)
	}
	return nil
}

// settled has a process do all that is due with its extents.
func settled(space *memory.Space, c *rdma.Coro) error {
	for n := 0; ; n++ {
		err := space.Follow()
		space.View().Rekey(c.Thread())
		for _, b := range space.Fabric().Blades() {
			if space.View().Up(b.ID) {
				err = errors.Join(err, c.Thread().Reconnect(b.ID))
			}
		}
		c.Sleep(2e9) // late extents wait for a second
		if err = errors.Join(err, space.SettleExtents(c)); err == nil && !space.ExtentsDue(c.Thread().Now()) || n == 4 {
			return err
		}
	}
}

// sound reports what check finds.
func sound(t *testing.T, f rdma.Fabric, l *layout.Layout) {
	t.Helper()
	d, err := verify.Attach(f, l)
	if err != nil {
		t.Fatal(err)
	}
	sum, err := d.Check(context.Background(), verify.Options{Report: func(f verify.Finding) error {
		t.Errorf("check: %v", f)
		return nil
	}})
	if err = errors.Join(err, d.Close()); err != nil || sum.Findings > 0 || sum.Unfinished > 0 {
		t.Errorf("check: %+v, %v", sum, err)
	}
}

// over looks at what is left when all have come to their ends: members and objects in the catalog,
// extents, what check finds, and whether a late verb has come to where it must not.
func (s *stage) over(alive ...int) {
	s.t.Helper()
	if s.t.Failed() {
		return
	}
	th := s.thread()
	c := th.Plain()
	for _, i := range alive {
		if err := settled(s.spaces[i], c); err != nil {
			s.t.Errorf("process %d: extents are not settled: %v", i, err)
		}
	}
	h := channelhost.New(s.spaces[alive[0]])
	_, err := h.Enroll(c, "last")
	if err = errors.Join(err, h.Leave(c)); err != nil {
		s.t.Errorf("another member: %v", err)
	}
	l, err := layout.LoadLayout(s.cat)
	if err != nil {
		s.t.Fatal(err)
	}
	objects := 0
	for _, r := range l.Reserved {
		switch {
		case strings.HasPrefix(r.Name, "channel/.host"):
			if strings.HasPrefix(r.Name, "channel/.host/") {
				s.t.Errorf("%q is a member still", r.Name)
			}
		case r.Name == "channel/.members":
			objects++
		default:
			s.t.Errorf("%q is in the catalog", r.Name)
		}
	}
	extents := 0
	for _, i := range alive {
		extents += len(s.spaces[i].Extents())
	}
	if extents != objects+len(s.fresh) {
		s.t.Errorf("%d extents are allocated, %d are objects, and %d the survivor's", extents, objects, len(s.fresh))
	}
	for _, x := range s.fresh {
		at := s.spaces[alive[0]].View().At(x.Addr, 0)
		local, err := th.Alloc(int(x.Size))
		if err != nil {
			s.t.Fatal(err)
		}
		var b rdma.Batch
		b.Read(at, local, x.Size)
		if err := c.Do(&b); err != nil {
			s.t.Fatal(err)
		}
		if slices.ContainsFunc(th.Bytes(local, x.Size), func(x byte) bool { return x != 0 }) {
			s.t.Errorf("a late verb has come to %v", x)
		}
		if _, err := s.spaces[1].FreeExtent(x); err != nil {
			s.t.Error(err)
		}
	}
	if err := s.spaces[1].SettleExtents(c); err != nil {
		s.t.Error(err)
	}
	sound(s.t, s.f, l)
}

// typed reports whether the error of the victim is one that says how to go on.
func (s *stage) typed() bool {
	for _, may := range []error{channel.ErrFenced, channel.ErrIncarnation, channel.ErrNotOwner} {
		if errors.Is(s.err, may) {
			return true
		}
	}
	return s.err == nil || errors.Is(s.err, errSilent) && s.hands[0].lose > 0 || s.hands[0].dead || s.lost &&
		(errors.Is(s.err, rdma.ErrVerb) || errors.Is(s.err, channel.ErrUncertain))
}

// weakly are the promises under which processes are stopped.
func weakly(t *testing.T, fn func(t *testing.T, x *stages)) {
	for _, placed := range []bool{true, false} {
		if placed && testing.Short() {
			continue
		}
		t.Run(fmt.Sprintf("placed=%v", placed), func(t *testing.T) {
			fn(t, newStages(t, rdma.Caps{Placed: placed, MaskedCAS: placed, OrderedLine: placed}))
		})
	}
}

// TestStops: a process stops at each verb, each change of the catalog and each call to a blade of
// all that its host does, or before the answer to a change. It is declared dead, and another one
// goes on: with the objects, with the lock, and with the memory.
func TestStops(t *testing.T) {
	weakly(t, func(t *testing.T, x *stages) { everyMove(t, x, true, false) })
}

// TestPauses: as TestStops, but the process only sleeps while another one goes on, which declares
// it dead, or its member. What is late of it has no effect, it learns that it was declared dead,
// and can join again.
func TestPauses(t *testing.T) {
	for _, dies := range []bool{true, false} {
		t.Run(fmt.Sprintf("dies=%v", dies), func(t *testing.T) {
			weakly(t, func(t *testing.T, x *stages) { everyMove(t, x, dies, true) })
		})
	}
}

func everyMove(t *testing.T, x *stages, dies, wakes bool) {
	begun := map[string]int{}
	for at, more := 0, true; more && !t.Failed(); at++ {
		s := x.stage(t)
		again := 0
		if wakes {
			again = 3
		}
		v := s.victim(again)
		for did := 0; did < at && !v.Ended(); {
			if s.move() == v {
				did++
			}
		}
		begun[s.at]++
		switch more = !v.Ended(); {
		case !more:
		case wakes:
			v.Pause()
			s.survive(dies)
			v.Resume()
			s.end(v)
		default:
			s.hands[0].dead = true
			v.Stop()
			s.survive(dies)
		}
		if wakes || !more {
			if s.err != nil {
				t.Errorf("the victim, which has joined again: %v", s.err)
			}
			s.over(1, 0)
		} else {
			s.over(1)
		}
		if t.Failed() {
			t.Logf("at move %d of the victim, at %q", at, s.at)
		}
		if !more {
			t.Logf("%d moves: %v", at, begun)
			if at < 80 || len(begun) < 8 {
				t.Errorf("the victim has ended after %d moves: %v", at, begun)
			}
		}
	}
}

// TestAnswersLost: the answer to each change of the catalog is lost in turn, whether it was made or
// not, and it can be asked at once, later, or when the process tries again.
func TestAnswersLost(t *testing.T) {
	weakly(t, func(t *testing.T, x *stages) {
		for _, made := range []bool{true, false} {
			for _, deaf := range []int{0, 1, 2, 4} {
				for lose := 1; !t.Failed(); lose++ {
					s := x.stage(t)
					h := s.hands[0]
					h.lose, h.made, h.deaf = lose, made, deaf
					v := s.victim(8)
					s.end(v)
					if h.calls < lose {
						if lose < 8 {
							t.Errorf("there are %d changes", h.calls)
						}
						break
					}
					if s.err != nil {
						t.Errorf("in the end: %v", s.err)
					}
					s.survive(false)
					s.over(1, 0)
					if t.Failed() {
						t.Logf("the answer to change %d, made: %v, deaf: %d", lose, made, deaf)
					}
				}
			}
		}
	})
}

// TestCompletionsLost: the completion of each verb is lost in turn. The process goes on, or tries
// again.
func TestCompletionsLost(t *testing.T) {
	weakly(t, func(t *testing.T, x *stages) {
		for lose := 0; !t.Failed(); lose++ {
			s := x.stage(t)
			port := s.f.Ports() // of the first attempt
			v := s.victim(8)
			for s.f.Ports() == port {
				s.move()
			}
			s.f.LoseFrom(lose)
			s.lost = true
			s.end(v)
			if s.f.Executed(port) <= lose {
				if lose < 20 {
					t.Errorf("there are %d verbs", lose)
				}
				break
			}
			if s.err != nil {
				t.Errorf("in the end: %v", s.err)
			}
			s.survive(false)
			s.over(1, 0)
			if t.Failed() {
				t.Logf("the completion of verb %d", lose)
			}
		}
	})
}
