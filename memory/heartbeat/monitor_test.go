package heartbeat_test

import (
	"slices"
	"strings"
	"testing"

	"txnode/memory"
	"txnode/memory/catalog"
	"txnode/memory/heartbeat"
	"txnode/rdma"
	"txnode/rdma/rdmatest"
)

const (
	term    = 50_000_000
	lease   = 10_000_000_000
	segment = 256 << 10
)

// bed is a database that several processes have open, in virtual time, each with a heartbeat.
type bed struct {
	t       *testing.T
	fabric  *rdmatest.Fabric
	cat     catalog.Mem
	threads []*rdma.Thread
	clock   *rdma.Coro
}

// process is one of them.
type process struct {
	space *memory.Space
	c     *rdma.Coro
	m     *heartbeat.Monitor
}

func newBed(t *testing.T, processes int) (*bed, []*process) {
	t.Helper()
	b := &bed{t: t, fabric: rdmatest.New(rdmatest.Options{Blades: 2, Size: memory.HeaderArea + 16*segment, Seed: 1})}
	b.clock = b.thread().Plain()
	t.Cleanup(func() {
		for _, th := range b.threads {
			check(t, th.Close())
		}
	})
	var all []*process
	for range processes {
		all = append(all, b.open())
	}
	return b, all
}

func (b *bed) thread() *rdma.Thread {
	b.t.Helper()
	th, err := rdma.NewThread(b.fabric, rdma.ThreadOptions{Arena: heartbeat.Arena, Index: len(b.threads)})
	if err != nil {
		b.t.Fatal(err)
	}
	b.threads = append(b.threads, th)
	return th
}

func (b *bed) open() *process {
	b.t.Helper()
	c := b.thread().Plain()
	s, err := memory.Open(c, b.fabric, &b.cat, memory.Options{Backups: 1, SegmentSize: segment, LogArea: 64 << 10, Shared: true, Until: c.Thread().Now() + lease})
	if err == nil {
		err = s.EndAlone()
	}
	if err != nil {
		b.t.Fatal(err)
	}
	return &process{s, b.thread().Plain(), heartbeat.New(s, heartbeat.Options{Term: term, Longest: 8 * term})}
}

// beat has processes turn once in a quarter of a term, for so long, and take over from those that are silent. It returns how many were.
func (b *bed) beat(long int64, ps ...*process) (dead int) {
	b.t.Helper()
	for end := b.fabric.Now() + long; b.fabric.Now() < end; b.clock.Sleep(ps[0].m.Every()) {
		for _, p := range ps {
			check(b.t, p.space.Follow()) // as the watch of the catalog has it
			if _, err := p.m.Turn(b.t.Context(), p.c); err != nil {
				b.t.Fatal(err)
			}
		}
		for _, p := range ps {
			n, err := p.space.TakeOver(b.fabric.Now())
			if err != nil {
				b.t.Fatal(err)
			}
			dead += n
		}
	}
	return dead
}

// registered are the processes that the catalog has.
func (b *bed) registered() (ids []uint32) {
	l := b.layout()
	for _, p := range l.Processes {
		ids = append(ids, p.ID)
	}
	return ids
}

// members are the members of channels that the catalog has.
func (b *bed) members() (names []string) {
	for _, r := range b.layout().Reserved {
		if strings.HasPrefix(r.Name, "channel/.host/") {
			names = append(names, r.Name)
		}
	}
	return names
}

func (b *bed) layout() *memory.Layout {
	b.t.Helper()
	l, err := memory.LoadLayout(&b.cat)
	if err != nil {
		b.t.Fatal(err)
	}
	return l
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// TestSilent: a process that stands still for a term is taken for dead, and not before, while its lease goes on. It registers anew, and may be
// silent for twice as long.
func TestSilent(t *testing.T) {
	b, ps := newBed(t, 3)
	if n := b.beat(10*term, ps...); n != 0 {
		t.Fatalf("%d processes that are alive were taken for dead", n)
	}
	late := ps[2]
	id := late.space.Process()
	if n := b.beat(term, ps[:2]...); n != 0 || !slices.Contains(b.registered(), id) {
		t.Fatalf("%d processes were taken for dead within a term", n)
	}
	if n := b.beat(term, ps[:2]...); n != 1 || slices.Contains(b.registered(), id) {
		t.Fatalf("%d processes were taken for dead within two terms; registered are %d", n, b.registered())
	}
	b.beat(3*term, ps...)
	again := late.space.Process()
	if s := late.m.Stats(); again == id || s.Ended != 1 || s.Term != 2*term || !slices.Contains(b.registered(), again) {
		t.Fatalf("late as %d: %+v", again, s)
	}
	if n := b.beat(2*term, ps[:2]...); n != 0 {
		t.Error("a process that may be silent for two terms was taken for dead before")
	}
	if n := b.beat(2*term, ps[:2]...); n != 1 {
		t.Error("a process that is silent for four terms was not taken for dead")
	}
	for range 8 {
		b.beat(2*term, ps...)
		b.beat(10*term, ps[:2]...)
	}
	if s := late.m.Stats(); s.Term != 8*term {
		t.Errorf("the longest term is %d, and it wants %d", 8*term, s.Term)
	}
	if s := ps[0].m.Stats(); s.Silent == 0 || s.Ended != 0 || s.Turns == 0 {
		t.Errorf("%+v", s)
	}
}

// TestHostStalls: all processes stand still together for many terms, and go on one after the other. None is taken for dead.
func TestHostStalls(t *testing.T) {
	b, ps := newBed(t, 2)
	b.beat(5*term, ps...)
	for range 5 {
		b.beat(term/4, ps[0]) // it has seen the last count of the other one
		b.clock.Sleep(20 * term)
		if n := b.beat(term/2, ps[0]); n != 0 {
			t.Fatal("a process that was paused along with its observer was taken for dead")
		}
		b.beat(term, ps...)
	}
	if s := ps[0].m.Stats(); s.Late != 5 {
		t.Errorf("the observer was late 5 times, and knows of %d", s.Late)
	}
}

// TestLapsesBefore: a process that stands still knows that it may be taken for gone before others do so, though its lease goes on. Until then
// its reads need no catalog, and from then on it asks.
func TestLapsesBefore(t *testing.T) {
	b, ps := newBed(t, 2)
	late, id := ps[1], ps[1].space.Process()
	lapsed := func() bool { return late.space.Lapsed(late.c.Thread()) }
	if b.beat(0, ps...); lapsed() {
		t.Error("it is taken for gone before others can see it")
	}
	b.beat(5*term, ps...)
	for steps := 0; slices.Contains(b.registered(), id); steps++ {
		fresh := late.space.Fresh(late.space.View(), late.c.Thread())
		if fresh == lapsed() {
			t.Fatalf("lapsed %v, fresh %v", lapsed(), fresh)
		}
		now, err := late.space.FreshNow(late.space.View())
		check(t, err)
		if !now || steps < 2 && !fresh || steps > 100 {
			t.Fatalf("after %d halves of a term its reads count: %v, and by the catalog: %v", steps, fresh, now)
		}
		b.clock.Sleep(term / 4)
		was := lapsed()
		b.beat(1, ps[0])
		if !slices.Contains(b.registered(), id) && !was {
			t.Error("it was taken for gone, and did not know")
		}
	}
	check(t, late.space.Renew(b.fabric.Now()+lease)) // as a new one, which has not been seen
	_, err := late.m.Turn(t.Context(), late.c)
	check(t, err)
	if lapsed() {
		t.Error("it counts itself as gone though it beats")
	}
	check(t, late.m.Leave(late.c))
	if b.clock.Sleep(2 * term); lapsed() {
		t.Error("it counts itself as gone though it has no heartbeat")
	}
}

// TestNeverSeen: a process that has not been seen to move is not judged by its heartbeat: it has none, or none since it was watched.
func TestNeverSeen(t *testing.T) {
	b, ps := newBed(t, 3)
	_, err := ps[1].m.Turn(t.Context(), ps[1].c) // once, and before the others look
	check(t, err)
	if n := b.beat(20*term, ps[0]); n != 0 || len(b.registered()) != 3 {
		t.Errorf("%d were taken for dead that had no heartbeat", n)
	}
}

// TestTableLost: the blade with the table is lost, and a process dies with it. The others join another table under the numbers that they
// have, and leave that process to its lease.
func TestTableLost(t *testing.T) {
	b, ps := newBed(t, 3)
	b.beat(5*term, ps...)
	before := b.members()
	r := b.layout().Reservation("channel/.engine/heartbeat/rows")
	if r == nil {
		t.Fatal("there is no table")
	}
	blade := b.layout().Segments[r.Addr.Segment()].Placement.Replicas[0].Blade
	check(t, b.fabric.StopBlade(blade))
	check(t, ps[0].space.AdvanceEpoch(func(l *memory.Layout) error { l.TakeDown(blade); return nil }))
	failed := 0
	for range 200 {
		for _, p := range ps[:2] {
			if _, err := p.m.Turn(t.Context(), p.c); err != nil {
				failed++
			}
		}
		b.clock.Sleep(term / 4)
	}
	if failed == 0 {
		t.Error("no turn has failed")
	}
	if n := b.beat(10*term, ps[:2]...); n != 0 || len(b.registered()) != 3 {
		t.Errorf("%d processes were taken for dead without a table", n)
	}
	if after := b.members(); len(before) != 3 || !slices.Equal(before, after) {
		t.Errorf("members were %q and are %q", before, after)
	}
	if n := b.beat(2*term, ps[0]); n != 1 || len(b.registered()) != 2 {
		t.Errorf("%d processes were taken for dead: one has stood still since", n)
	}
}

// TestLeave: a process that has ended its heartbeat is not silent.
func TestLeave(t *testing.T) {
	b, ps := newBed(t, 2)
	b.beat(5*term, ps...)
	check(t, ps[1].m.Leave(ps[1].c))
	if n := b.beat(20*term, ps[0]); n != 0 || len(b.registered()) != 2 {
		t.Errorf("%d were taken for dead", n)
	}
}

// TestUnreadable: a process is silent, and before another one takes over from it, the table cannot be read any more. Then its lease counts.
func TestUnreadable(t *testing.T) {
	b, ps := newBed(t, 2)
	b.beat(5*term, ps...)
	one := ps[0]
	for range 8 {
		b.clock.Sleep(one.m.Every())
		_, err := one.m.Turn(t.Context(), one.c)
		check(t, err)
	}
	if !one.space.Deserted(b.fabric.Now()) {
		t.Fatal("a process that is silent is not found so")
	}
	for blade := range rdma.BladeID(2) {
		check(t, b.fabric.StopBlade(blade))
	}
	if _, err := one.m.Turn(t.Context(), one.c); err == nil {
		t.Fatal("no blade is up, and the table can be read")
	}
	if one.space.Deserted(b.fabric.Now()) {
		t.Error("a process counts as silent without a table")
	}
}
