package channelhost_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"txnode/channel"
	"txnode/memory"
	"txnode/memory/catalog"
	"txnode/memory/channelhost"
	"txnode/memory/layout"
	"txnode/rdma"
	"txnode/rdma/rdmatest"
)

var churnSeeds = flag.Uint64("churn.seeds", 0, "how many seeds TestChurn runs; 0: 4, or 40 without -short")

// errDies: a member stops in the middle of what it does.
var errDies = errors.New("the member dies")

// errKilled: its process does.
var errKilled = errors.New("the process is killed")

const (
	churnProcesses = 3
	churnMembers   = 4
	churnPhases    = 3
	churnSteps     = 24
)

// churn is members in several processes of a database, and what they have seen, all together.
type churn struct {
	t      *testing.T
	r      *rand.Rand
	f      *rdmatest.Fabric
	cat    catalog.Mem
	spaces [churnProcesses]*memory.Space
	killed [churnProcesses]bool
	lost   bool // a blade
	now    int64
	count  map[string]int

	tokens map[string]uint64 // the greatest that a Lock has returned, by lock and incarnation
	inside int               // holders that have not come to their end
	pairs  map[[3]uint32]uint64
	torn   map[string]bool // the words, by lock and incarnation: a holder has died, and the next one has let them be
	queues map[uint32]*itemHistory
	item   uint64
	meets  map[int]*meeting
}

// meeting is a round of a barrier.
type meeting struct {
	rounds map[uint32]*round // by incarnation: a blade may be lost in between
	ctx    context.Context   // ends when a member cannot come: its row has no owner, and is waited for
	cancel func()
}

func newMeeting(ctx context.Context) *meeting {
	w := &meeting{rounds: map[uint32]*round{}}
	w.ctx, w.cancel = context.WithCancel(ctx)
	return w
}

type round struct{ called, passed, missed int }

// itemOp is a Push of an item, or a TryTake that has returned one. Its time is known to begin and
// end with call and ret.
type itemOp struct {
	client    int
	item      uint64
	take      bool
	again     bool
	call, ret int64 // ret 0: it has not come to its end
}

// itemHistory is what members have done with one incarnation of a queue.
type itemHistory struct {
	ops    []*itemOp
	pushed map[uint64]bool
	taken  map[uint64]bool
}

// operations is the history of the items that were seen in the end. One that was first seen again
// was taken before, by a member that has died, after it was pushed. Of the others nothing is known:
// a member may have died with one, or before it was pushed.
func (h *itemHistory) operations() (out []porcupine.Operation) {
	taken, seen := map[uint64]*itemOp{}, map[uint64]*itemOp{}
	for _, o := range h.ops {
		if o.take && o.item > 0 && o.ret > 0 {
			if !o.again {
				taken[o.item] = o
			}
			if s := seen[o.item]; s == nil || o.ret < s.ret {
				seen[o.item] = o
			}
		}
	}
	for _, o := range h.ops {
		s := seen[o.item]
		if o.take || s == nil {
			continue
		}
		ret := o.ret
		if ret == 0 {
			ret = math.MaxInt64
		}
		out = append(out, porcupine.Operation{ClientId: o.client, Input: *o, Call: o.call, Return: ret})
		by := itemOp{client: s.client, item: s.item, take: true, call: o.call, ret: s.ret}
		if t := taken[o.item]; t != nil {
			by = *t
		}
		out = append(out, porcupine.Operation{ClientId: by.client, Input: by, Call: by.call, Return: by.ret})
	}
	return out
}

// itemModel is a queue. That one looks empty says nothing: its first entry may not be filled yet.
var itemModel = porcupine.Model{
	Init: func() any { return "" },
	Step: func(state, input, _ any) (bool, any) {
		s, in := state.(string), input.(itemOp)
		if !in.take {
			return true, strings.TrimPrefix(s+" "+fmt.Sprint(in.item), " ")
		}
		first, rest, _ := strings.Cut(s, " ")
		return first == fmt.Sprint(in.item), rest
	},
}

// churner is a member with its handles.
type churner struct {
	*churn
	i, process int
	calm       bool // no more deaths
	c          *rdma.Coro
	h          channel.Host
	m          *channel.Member
	locks      [2]channel.Lock
	a, b       *channel.Var[uint64]
	queue      *channel.Queue[uint64]
}

func (x *churner) open() error {
	ctx, s := x.t.Context(), x.m.Scope("churn")
	mutex, err := channel.OpenMutex(ctx, x.c, s, "mutex")
	if err != nil {
		return err
	}
	ticket, err := channel.OpenTicketLock(ctx, x.c, s, "ticket")
	if err != nil {
		return err
	}
	x.locks = [2]channel.Lock{mutex, ticket}
	if x.a, err = channel.OpenVar[uint64](ctx, x.c, s, "a"); err != nil {
		return err
	}
	if x.b, err = channel.OpenVar[uint64](ctx, x.c, s, "b"); err != nil {
		return err
	}
	x.queue, err = channel.OpenQueue(ctx, x.c, s, "queue", channel.Plain[uint64]("item"), 8, 12)
	return err
}

// join makes the thread another member.
func (x *churner) join() error {
	x.h = channelhost.New(x.spaces[x.process])
	var err error
	for range 40 {
		if x.killed[x.process] {
			return errKilled
		}
		if x.m, err = channel.Join(context.Background(), x.c, x.h, churnIdentity); err == nil {
			if err = x.open(); err == nil {
				x.count["joins"]++
				return nil
			}
			x.m.Close()
		}
		x.c.Sleep(churnIdentity.Term)
	}
	return fmt.Errorf("joining: %w", err)
}

var churnIdentity = channel.Identity{Name: "churn", Term: 500_000, Slots: 32}

// perhaps is errDies now and then, or sleeps until others may have declared the member dead.
func (x *churner) perhaps() error {
	switch n := x.r.IntN(20); {
	case x.calm:
	case x.killed[x.process]:
		return errKilled
	case n == 0:
		x.count["deaths"]++
		return errDies
	case n == 1:
		x.count["pauses"]++
		x.c.Sleep(2 * churnIdentity.Term)
	}
	return nil
}

// use takes a lock and makes two words equal, one greater.
func (x *churner) use(l channel.Lock) error {
	o := l.(interface{ Incarnation() uint32 })
	key := fmt.Sprint(l.Name(), " ", o.Incarnation())
	least := x.tokens[key]
	h, err := l.Lock(context.Background(), x.c)
	if err != nil {
		return err
	}
	if h.Token <= least && least > 0 {
		return fmt.Errorf("%w: %s: token %d after %d", errWrong, key, h.Token, least)
	}
	x.tokens[key] = max(x.tokens[key], h.Token)
	x.count["locks"]++
	// the words are the mutex's; a holder of another incarnation of it may be at work
	if l != x.locks[0] || x.inside > 0 {
		x.torn[key] = x.torn[key] || h.Abandoned
		if err := x.perhaps(); err != nil {
			return err
		}
		return l.Unlock(x.c)
	}
	x.inside++
	defer func() { x.inside-- }()
	a, err := x.a.Load(x.c)
	if err != nil {
		return err
	}
	b, err := x.b.Load(x.c)
	if err != nil {
		return err
	}
	// a lock that is lost says nothing of its holders
	pair := [3]uint32{o.Incarnation(), x.a.Incarnation(), x.b.Incarnation()}
	if done, seen := x.pairs[pair]; seen && !h.Abandoned && !x.torn[key] && (a != b || a < done) {
		return fmt.Errorf("%w: the words are %d and %d after %d, and no holder has died", errWrong, a, b, done)
	}
	next := max(a, b) + 1
	if err := x.a.Store(x.c, next); err != nil {
		return err
	}
	if err := x.perhaps(); err != nil {
		return err
	}
	if err := x.b.Store(x.c, next); err != nil {
		return err
	}
	delete(x.torn, key)
	if err := l.Unlock(x.c); err != nil {
		return err
	}
	x.pairs[pair] = next
	return nil
}

var errWrong = errors.New("a promise is broken")

func (x *churner) history() *itemHistory {
	k := x.queue.Incarnation()
	if x.queues[k] == nil {
		x.queues[k] = &itemHistory{pushed: map[uint64]bool{}, taken: map[uint64]bool{}}
	}
	return x.queues[k]
}

// record runs an operation of the queue, and notes it.
func (x *churner) record(o *itemOp, fn func() error) error {
	h := x.history()
	x.now++
	o.client, o.call = x.i, x.now
	h.ops = append(h.ops, o)
	err := fn()
	if x.now++; err == nil {
		o.ret = x.now
	}
	return err
}

// takes is a Take or TryTake.
func (x *churner) takes(fn func() (channel.Item[uint64], bool, error)) (item channel.Item[uint64], ok bool, err error) {
	o := &itemOp{take: true}
	err = x.record(o, func() error {
		item, ok, err = fn()
		if ok && err == nil {
			o.item, o.again = item.Value, item.Again
		}
		return err
	})
	return item, ok, err
}

func (x *churner) push() error {
	x.item++
	n, h := x.item, x.history()
	over, cancel := context.WithCancel(context.Background())
	cancel()
	err := x.record(&itemOp{item: n}, func() error { return x.queue.Push(over, x.c, n) })
	if errors.Is(err, context.Canceled) {
		return nil // full, or pushed perhaps
	}
	h.pushed[n] = err == nil
	x.count["pushes"]++
	return err
}

func (x *churner) take() error {
	h := x.history()
	item, ok, err := x.takes(func() (channel.Item[uint64], bool, error) { return x.queue.TryTake(x.c) })
	if err != nil || !ok {
		return err
	}
	return x.took(h, item)
}

func (x *churner) took(h *itemHistory, item channel.Item[uint64]) error {
	if item.Value == 0 || item.Value > x.item || h.taken[item.Value] && !item.Again {
		return fmt.Errorf("%w: item %+v was taken before: %v", errWrong, item, h.taken[item.Value])
	}
	h.taken[item.Value] = true
	x.count["takes"]++
	if err := x.perhaps(); err != nil {
		return err
	}
	return x.queue.Done(x.c, item)
}

// meet waits at a barrier: its members pass all, when all have come, or none does.
func (x *churner) meet(phase int) error {
	w := x.meets[phase]
	b, err := channel.OpenBarrier(context.Background(), x.c, x.m.Scope("churn"),
		fmt.Sprint("barrier-", phase), churnMembers)
	if err != nil {
		w.cancel()
		return err
	}
	if err := x.perhaps(); err != nil {
		return err
	}
	if w.rounds[b.Incarnation()] == nil {
		w.rounds[b.Incarnation()] = &round{}
	}
	r := w.rounds[b.Incarnation()]
	r.called++
	err = b.Wait(w.ctx, x.c)
	switch {
	case err == nil && r.called < churnMembers:
		return fmt.Errorf("%w: a barrier was passed when %d of %d had come", errWrong, r.called, churnMembers)
	case err == nil:
		r.passed++
		x.count["passed"]++
	case errors.Is(err, context.Canceled):
		err = nil
	case errors.Is(err, channel.ErrMissing):
		r.missed++
		x.count["missed"]++
		err = nil
	default:
		w.cancel()
	}
	if r.passed > 0 && r.missed > 0 {
		return fmt.Errorf("%w: %d members have passed a barrier, and %d were told that one is missing",
			errWrong, r.passed, r.missed)
	}
	b.Close()
	return err
}

// disturb has another process die, or taken for dead, or a blade lost.
func (x *churner) disturb() error {
	space := x.spaces[x.process]
	if err := space.Follow(); err != nil {
		return nil //nolint:nilerr // it was declared dead itself
	}
	if x.r.IntN(4) == 0 && !x.lost {
		x.lost = true
		x.count["blades"]++
		if err := x.f.StopBlade(2); err != nil {
			return err
		}
		for ; ; x.c.Sleep(1000) { // while others begin epochs, too
			err := space.AdvanceEpoch(func(l *layout.Layout) error { l.TakeDown(2); return nil })
			if _ = space.Follow(); !space.View().Up(2) {
				return err
			}
		}
	}
	other := 1 + x.r.IntN(churnProcesses-1)
	if other == x.process || x.killed[other] {
		return nil
	}
	x.killed[other] = x.r.IntN(2) == 0 // or it lives
	x.count["processes"]++
	err := space.Evict(x.spaces[other].Process())
	if errors.Is(err, memory.ErrNoCoordinator) { // another one was first
		err = nil
	}
	return err
}

func (x *churner) step() error {
	if err := x.m.Beat(x.c); err != nil {
		return err
	}
	switch n := x.r.IntN(40); {
	case n == 0:
		return x.disturb()
	case n == 1:
		if err := x.m.Leave(x.c); err != nil {
			return err
		}
		return x.join()
	case n < 14:
		return x.use(x.locks[x.r.IntN(2)])
	case n < 27:
		return x.push()
	}
	return x.take()
}

// run is what a thread does in a phase.
func (x *churner) run(phase int) error {
	err := x.join()
	if err == nil {
		err = x.meet(phase)
	} else {
		x.meets[phase].cancel()
	}
	for n := 0; ; n++ {
		for err != nil {
			x.count[kindOf(err)]++
			switch {
			case errors.Is(err, errKilled):
				return nil
			case errors.Is(err, errWrong):
				return err
			case errors.Is(err, errDies), errors.Is(err, channel.ErrFenced), errors.Is(err, channel.ErrIncarnation),
				errors.Is(err, channel.ErrNotOwner),
				errors.Is(err, channel.ErrUncertain), errors.Is(err, rdma.ErrBladeDown), errors.Is(err, rdma.ErrVerb),
				errors.Is(err, rdma.ErrStaleKey), errors.Is(err, memory.ErrUnrevoked):
				err = x.join() // what the member had stays behind
			default:
				return fmt.Errorf("step %d: %w", n, err)
			}
		}
		switch {
		case n < churnSteps:
			err = x.step()
		case n == churnSteps+20:
			return errors.New("it cannot leave")
		default:
			if err = x.m.Leave(x.c); err == nil {
				return nil
			}
		}
	}
}

func kindOf(err error) string {
	for _, e := range []error{errDies, channel.ErrFenced, channel.ErrIncarnation, channel.ErrUncertain, rdma.ErrVerb} {
		if errors.Is(err, e) {
			return e.Error()
		}
	}
	return "other"
}

// space opens the database in a process.
func (s *churn) space(i int) {
	th := s.thread(i)
	defer th.Close()
	var err error
	s.spaces[i], err = memory.Open(th.Plain(), s.f, &s.cat, memory.Options{
		Backups: 1, SegmentSize: segment, LogArea: 64 << 10, Shared: true, Until: s.f.Now() + 50*churnIdentity.Term,
	})
	if err == nil {
		err = s.spaces[i].EndAlone()
	}
	if err != nil {
		s.t.Fatal(err)
	}
	s.killed[i] = false
}

// watch has the processes that live follow the catalog, and renew their registrations now and then,
// as long as members run.
func (s *churn) watch(running *int) {
	th := s.thread(9)
	defer th.Close()
	c := th.Plain()
	for n := 1; *running > 0; n++ {
		for i, space := range s.spaces {
			switch {
			case s.killed[i] || space.Follow() != nil:
			case n%16 == 0:
				_ = space.Listen()
			default:
				_ = space.Acknowledge()
			}
		}
		c.Sleep(churnIdentity.Term / 4)
	}
}

// bury has a process that is dead found so, if that has not happened.
func (s *churn) bury(i int) {
	s.spaces[0].Recoverer() // it may have to register process 0 anew
	if err := s.spaces[0].Evict(s.spaces[i].Process()); err != nil && !errors.Is(err, memory.ErrNoCoordinator) {
		s.t.Fatal(err)
	}
}

func (s *churn) thread(i int) *rdma.Thread {
	th, err := rdma.NewThread(s.f, rdma.ThreadOptions{Arena: 1 << 18, Index: i})
	if err != nil {
		s.t.Fatal(err)
	}
	return th
}

// TestChurn: members in several processes of one database join, use objects, die, sleep past their
// terms and leave, processes die or are taken for dead, and a blade is lost, as seeds have it. What
// they see of locks, a queue and barriers is right, and in the end nothing is left.
func TestChurn(t *testing.T) {
	seeds := *churnSeeds
	if seeds == 0 {
		if seeds = 40; testing.Short() {
			seeds = 4
		}
	}
	count := map[string]int{}
	for seed := range seeds {
		if t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) { testChurn(t, seed, count) }); t.Failed() {
			t.Fatalf("go test ./memory/channelhost -run '^TestChurn$/^seed=%d$' -churn.seeds %d", seed, seed+1)
		}
	}
	t.Log(count)
	for _, what := range []string{
		"joins", "deaths", "pauses", "locks", "pushes", "takes", "passed", "missed", "processes", "blades",
	} {
		if count[what] == 0 && seeds >= 40 {
			t.Errorf("no %s: this test tests less than it says", what)
		}
	}
}

func testChurn(t *testing.T, seed uint64, count map[string]int) {
	placed := seed%2 == 0
	s := &churn{
		t: t, r: rand.New(rand.NewPCG(seed, 1)), count: count, tokens: map[string]uint64{}, torn: map[string]bool{},
		pairs: map[[3]uint32]uint64{}, queues: map[uint32]*itemHistory{}, meets: map[int]*meeting{},
		f: rdmatest.New(rdmatest.Options{
			Blades: 3, Size: layout.HeaderArea + 16*segment, Seed: seed + 1,
			SpreadNs: 3000, Caps: rdma.Caps{Placed: placed, MaskedCAS: placed, OrderedLine: placed},
		}),
	}
	for i := range s.spaces {
		s.space(i)
	}
	for phase := range churnPhases {
		s.meets[phase] = newMeeting(t.Context())
		s.inside = 0
		running := churnMembers
		s.f.Run(churnMembers+1, func(i int) {
			if i == churnMembers {
				s.watch(&running)
				return
			}
			defer func() { running-- }()
			x := &churner{churn: s, i: i, process: i % churnProcesses, c: s.thread(10 + i).Plain()}
			defer x.c.Thread().Close()
			if err := x.run(phase); err != nil {
				t.Errorf("phase %d, member %d: %v", phase, i, err)
			}
		})
		if t.Failed() {
			return
		}
		for i := range s.spaces {
			if s.killed[i] {
				s.bury(i)
				s.space(i)
			}
		}
	}
	s.f.Run(1, func(int) { s.end() })
	if t.Failed() {
		return
	}
	for k, h := range s.queues {
		if porcupine.CheckOperationsTimeout(itemModel, h.operations(), time.Minute) != porcupine.Ok {
			t.Errorf("incarnation %d of the queue: the history is not that of a queue: %+v", k, h.ops)
		}
	}
	l, err := layout.LoadLayout(&s.cat)
	if err != nil {
		t.Fatal(err)
	}
	sound(t, s.f, l)
}

// end looks at the objects when all have left, ends them, and has all memory come back.
func (s *churn) end() {
	t := s.t
	x := &churner{churn: s, i: churnMembers, c: s.thread(50).Plain()}
	x.calm = true
	defer x.c.Thread().Close()
	err := x.join()
	if err == nil {
		err = errors.Join(x.use(x.locks[0]), x.use(x.locks[1]))
	}
	if err != nil {
		t.Errorf("the last member: %v", err)
		return
	}
	h := x.history()
	for began := x.c.Thread().Now(); ; x.c.Sleep(20_000) {
		if !slices.ContainsFunc(slices.Collect(keys(h.pushed)), func(n uint64) bool {
			return h.pushed[n] && !h.taken[n]
		}) {
			break
		}
		if x.c.Thread().Now()-began > 40*churnIdentity.Term {
			t.Errorf("items are missing: pushed %v, taken %v", h.pushed, h.taken)
			return
		}
		over, cancel := context.WithCancel(context.Background())
		cancel()
		item, _, err := x.takes(func() (channel.Item[uint64], bool, error) {
			item, err := x.queue.Take(over, x.c)
			return item, true, err
		})
		if errors.Is(err, context.Canceled) {
			continue
		}
		if err == nil {
			err = x.took(h, item)
		}
		if err != nil {
			t.Errorf("the last member: %v", err)
			return
		}
	}
	for _, r := range x.spaces[0].Layout().Reserved {
		name, ok := strings.CutPrefix(r.Name, "channel/churn/")
		if !ok {
			continue
		}
		n, err := incarnationOf(r.Text)
		if err == nil {
			err = x.h.Forget(x.c, "churn/"+name, n)
		}
		if err != nil {
			t.Errorf("forgetting %s: %v", name, err)
		}
	}
	if err := x.m.Leave(x.c); err != nil {
		t.Error(err)
	}
	for i, space := range s.spaces {
		if err := settled(space, x.c); err != nil {
			t.Errorf("process %d: %v", i, err)
		}
	}
	if err := collect(s.spaces[0], x.c); err != nil {
		t.Error(err)
	}
	for i, space := range s.spaces {
		if err := settled(space, x.c); err != nil {
			t.Errorf("process %d: %v", i, err)
		}
	}
	l := s.spaces[0].Layout()
	for _, r := range l.Reserved {
		if r.Size > 0 && r.Name != "channel/.members" {
			g := l.Segments[r.Addr.Segment()]
			t.Errorf("%q is in the catalog, of the segment %+v; processes %+v", r.Name, g, l.Processes)
		}
	}
}

func keys(m map[uint64]bool) func(func(uint64) bool) {
	return func(yield func(uint64) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// incarnationOf is that of an object, by its text in the catalog.
func incarnationOf(text []byte) (uint32, error) {
	var x struct{ Place channel.Place }
	err := json.Unmarshal(text, &x)
	return x.Place.Incarnation, err
}
