package memory_test

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"txnode/memory"
	"txnode/memory/layout"
	"txnode/rdma"
)

func TestLogAreasAreCleared(t *testing.T) {
	b := newBed(t, 2, 8, 1)
	s, c := b.open()
	first := must(s.NewCoordinator())(t)
	dirty := bytes.Repeat([]byte{0xee}, 1000)
	scribble := func(l memory.LogArea, off uint64) {
		l.Addr.Off += off
		b.poke(l.Addr.Blade, l.Addr.Off, dirty)
	}
	scribble(first.Logs[0], 0)
	scribble(first.Logs[1], testLog-1000)
	other := must(s.NewCoordinator())(t)
	scribble(other.Logs[0], 0)
	check(t, s.CloseCoordinatorOn(c, first.ID))
	again := must(s.NewCoordinator())(t)
	if again.ID == first.ID || again.Logs[0].Addr != first.Logs[0].Addr || again.Logs[1].Addr != first.Logs[1].Addr {
		t.Errorf("areas %+v are not used again: %+v", first, again)
	}
	for _, l := range again.Logs {
		if l.Size != testLog || !isZero(read(t, c, l.Addr, int(l.Size))) {
			t.Errorf("log area at %v is not clear", l.Addr)
		}
	}
	if !bytes.Equal(read(t, c, other.Logs[0].Addr, len(dirty)), dirty) {
		t.Error("another coordinator's log is gone")
	}
}

// TestLogsOnSmallPages: the system is told of the segment of logs on each blade, and of no other,
// that little of it is used.
func TestLogsOnSmallPages(t *testing.T) {
	b := newBed(t, 2, 8, 1)
	s, _ := b.open()
	x := must(s.NewCoordinator())(t)
	if len(b.fabric.small) != len(x.Logs) {
		t.Fatalf("%+v for logs at %+v", b.fabric.small, x.Logs)
	}
	for i, l := range x.Logs {
		if a := b.fabric.small[i]; a.Blade != l.Addr.Blade || a.Off != l.Addr.Off {
			t.Errorf("%+v for a log at %+v", a, l.Addr)
		}
	}
}

func TestCoordinatorsSurvive(t *testing.T) {
	b := newBed(t, 2, 8, 1)
	s, c := b.open()
	var want []memory.Coordinator
	for range 7 { // more than a segment has areas
		want = append(want, must(s.NewCoordinator())(t))
	}
	seen := map[rdma.RemoteAddr]bool{}
	for _, x := range want {
		for blade, l := range x.Logs {
			if int(l.Addr.Blade) != blade || seen[l.Addr] {
				t.Errorf("coordinator %d: log of blade %d at %v", x.ID, blade, l.Addr)
			}
			seen[l.Addr] = true
		}
	}
	check(t, s.CloseCoordinator(want[2].ID))
	if err := s.CloseCoordinator(want[2].ID); !errors.Is(err, memory.ErrNoCoordinator) {
		t.Errorf("closed twice: %v", err)
	}
	if err := s.CloseCoordinator(99); !errors.Is(err, memory.ErrNoCoordinator) {
		t.Errorf("never opened: %v", err)
	}
	want = slices.Delete(want, 2, 3)
	check(t, s.Close(c))
	s, _ = b.open()
	got := must(s.Coordinators())(t)
	if len(got) != len(want) {
		t.Fatalf("%d coordinators", len(got))
	}
	for i := range got {
		if got[i].ID != want[i].ID || !slices.Equal(got[i].Logs, want[i].Logs) {
			t.Errorf("%+v\n%+v", got[i], want[i])
		}
	}
	if next := must(s.NewCoordinator())(t); next.ID != 8 {
		t.Errorf("the next coordinator is %d", next.ID)
	}
}

func TestCoordinatorNumbersEnd(t *testing.T) {
	b := newBed(t, 1, 4, 0)
	s, _ := b.open()
	s.SetNextCoordinator(layout.MaxCoordinators - 1)
	last := must(s.NewCoordinator())(t)
	if last.ID != layout.MaxCoordinators-1 {
		t.Errorf("the last is %d", last.ID)
	}
	check(t, s.CloseCoordinator(last.ID))
	if _, err := s.NewCoordinator(); !errors.Is(err, layout.ErrExhausted) {
		t.Errorf("%v", err)
	}
}

// TestCloseCoordinatorFails: when the areas cannot be cleared, the coordinator
// stays registered.
func TestCloseCoordinatorFails(t *testing.T) {
	b := newBed(t, 2, 8, 1)
	s, _ := b.open()
	x := must(s.NewCoordinator())(t)
	b.fabric.stop = &stop{left: 1}
	if err := s.CloseCoordinator(x.ID); err == nil {
		t.Error("closed without clearing")
	}
	b.fabric.stop = nil
	if l := must(s.Coordinators())(t); len(l) != 1 {
		t.Errorf("%+v", l)
	}
	check(t, s.CloseCoordinator(x.ID))
}

// TestCloseOfDead: a coordinator that is closed when it has just been declared dead keeps its
// logs, which somebody reads, and its areas, which he will clear.
func TestCloseOfDead(t *testing.T) {
	b := newBed(t, 2, 8, 1)
	s, c := b.open()
	x := must(s.NewCoordinator())(t)
	record := bytes.Repeat([]byte{0xee}, 64)
	b.poke(x.Logs[0].Addr.Blade, x.Logs[0].Addr.Off, record)
	claim := must(s.Claim(memory.ClaimOptions{}, x.ID))(t)
	if err := s.CloseCoordinatorOn(c, x.ID); !errors.Is(err, memory.ErrNoCoordinator) {
		t.Errorf("one that was declared dead is closed: %v", err)
	}
	at := x.Logs[0].Addr
	at.Key = s.View().Key(at.Blade)
	if !bytes.Equal(read(t, c, at, len(record)), record) {
		t.Error("its log is gone")
	}
	if y := must(s.NewCoordinator())(t); y.Logs[0].Addr.Off == at.Off && y.Logs[0].Addr.Blade == at.Blade {
		t.Error("somebody else has its log area")
	}
	check(t, claim.Forget())
	if err := s.CloseCoordinatorOn(c, x.ID); !errors.Is(err, memory.ErrNoCoordinator) {
		t.Errorf("it was recovered: %v", err)
	}
}

// TestClaimsWithoutLeases: of two who recover a coordinator, each by a claim that does not expire
// and in nobody's name, the second one shuts the first out, who cannot go on by trying again.
func TestClaimsWithoutLeases(t *testing.T) {
	s, _ := newBed(t, 2, 8, 1).open()
	id := must(s.NewCoordinator())(t).ID
	first := must(s.Claim(memory.ClaimOptions{}, id))(t)
	if _, err := s.Claim(memory.ClaimOptions{}, id); !errors.Is(err, memory.ErrClaimed) {
		t.Errorf("a claim of somebody else's: %v", err)
	}
	second := must(s.Claim(memory.ClaimOptions{Steal: true}, id))(t)
	if _, err := s.Claim(memory.ClaimOptions{Again: first, Stay: true}, id); !errors.Is(err, memory.ErrClaimed) {
		t.Errorf("the first one tries again: %v", err)
	}
	check(t, second.Decide([]layout.Verdict{{Coordinator: id}}))
	third := must(s.Claim(memory.ClaimOptions{Again: first, Stay: true, Steal: true}, id))(t)
	if third.View().Epoch == second.View().Epoch {
		t.Errorf("the second one's verbs may be on their way, and epoch %d has not moved", third.View().Epoch)
	}
	if err := second.Forget(); !errors.Is(err, memory.ErrClaimed) {
		t.Errorf("the second one, who is shut out: %v", err)
	}
	again := must(s.Claim(memory.ClaimOptions{Again: third, Stay: true}, id))(t)
	if again.View().Epoch != third.View().Epoch {
		t.Errorf("who has the claim tries again, and the epoch is %d, not %d", again.View().Epoch, third.View().Epoch)
	}
	check(t, again.Renew(0))
	check(t, again.Forget())
}

// TestClaimOfNobody: the catalog has a claim that does not expire, and a blade does not get its new
// key: whoever was about to claim is told that it has failed, and gives up. Others may claim.
func TestClaimOfNobody(t *testing.T) {
	b := newBed(t, 2, 8, 1)
	s, _ := b.open()
	var ids [3]uint32
	for i := range ids {
		ids[i] = must(s.NewCoordinator())(t).ID
	}
	b.fabric.stop = &stop{left: 1}
	if _, err := s.Claim(memory.ClaimOptions{By: ids[0], Now: 10}, ids[0]); !errors.Is(err, errStopped) {
		t.Fatalf("a blade that does not get its key: %v", err)
	}
	b.fabric.stop = nil
	if l := s.Lease(ids[0], 11); l != memory.LeaseExpired {
		t.Errorf("the lease is %v, and nobody has the claim", l)
	}
	c := must(s.Claim(memory.ClaimOptions{By: ids[1], Now: 11, Stay: true}, ids[0]))(t)
	if got, want := s.Fabric().Blades()[1].Key, c.View().Key(1); got != want {
		t.Errorf("the key is %#x, not %#x", got, want)
	}
	if _, err := s.Claim(memory.ClaimOptions{By: ids[2], Now: 1e12}, ids[0]); !errors.Is(err, memory.ErrClaimed) {
		t.Errorf("a claim of somebody else's: %v", err)
	}
	check(t, c.Forget())
}

// TestClaimDuel: two recover a coordinator, and each needs more time than a claim is good
// for: they take over from one another, and one of them comes to his end, since claims last
// longer and longer.
func TestClaimDuel(t *testing.T) {
	const term, need = 100, 5000
	s, _ := newBed(t, 2, 8, 1).open()
	var ids [3]uint32 // who is recovered, and the two
	for i := range ids {
		ids[i] = must(s.NewCoordinatorUntil(1e12))(t).ID
	}
	dead, now := ids[0], int64(1000)
	var has [3]*memory.Claim
	var since int64
	for i := 1; ; i = 3 - i {
		if now > 20*need {
			t.Fatalf("at %d none of them has come to his end", now)
		}
		c, err := s.Claim(memory.ClaimOptions{By: ids[i], Now: now, Until: now + term, Again: has[i]}, dead)
		if errors.Is(err, memory.ErrClaimed) {
			if now-since >= need {
				check(t, has[3-i].Forget())
				break
			}
			now += term / 2
			i = 3 - i // he goes on asking
			continue
		}
		check(t, err)
		has[i], since = c, now
		again := must(s.Claim(memory.ClaimOptions{By: ids[i], Now: now, Until: now + term, Again: c, Stay: true},
			dead))(t)
		has[i] = again
	}
	other := ids[1]
	first := must(s.Claim(memory.ClaimOptions{By: ids[2], Now: now, Until: now + term}, other))(t)
	if s.Lease(other, now+term) != memory.LeaseClaimed || s.Lease(other, now+term+1) != memory.LeaseExpired {
		t.Errorf("a first claim is good for longer than it was asked for, or not so long")
	}
	check(t, first.Forget())
}

// TestAbandon: the lease of a coordinator that nobody stands for has expired, if it has one or
// not, until somebody recovers it; and if who does so gives up, it has expired again from the
// time that he says.
func TestAbandon(t *testing.T) {
	const never, now = int64(0), int64(1000)
	for _, until := range []int64{never, 1e12} {
		s, _ := newBed(t, 2, 8, 1).open()
		id, by := must(s.NewCoordinatorUntil(until))(t).ID, must(s.NewCoordinatorUntil(until))(t).ID
		lease := func(at int64, want memory.LeaseState) {
			t.Helper()
			if have := s.Lease(id, at); have != want ||
				slices.Contains(s.Expired(at), id) != (want == memory.LeaseExpired) {
				t.Errorf("until %d, at %d: the lease is %v, not %v; expired: %v", until, at, have, want, s.Expired(at))
			}
		}
		s.Abandon(99)
		lease(now, memory.LeaseLive)
		s.Abandon(id)
		lease(now, memory.LeaseExpired)
		check(t, s.Renew(2e12, by)) // whatever else happens
		lease(now, memory.LeaseExpired)
		first := must(s.Claim(memory.ClaimOptions{By: by, Now: now}, id))(t)
		lease(now, memory.LeaseClaimed)
		s.Abandon(id) // its session, which is late
		lease(now, memory.LeaseClaimed)
		first.Abandon(2 * now)
		lease(2*now, memory.LeaseClaimed)
		if _, err := s.Claim(memory.ClaimOptions{Now: 2 * now}, id); !errors.Is(err, memory.ErrClaimed) {
			t.Errorf("until %d: claimed too early: %v", until, err)
		}
		lease(2*now+1, memory.LeaseExpired)
		second := must(s.Claim(memory.ClaimOptions{Now: 2*now + 1, Stay: true}, id))(t)
		if second.View().Epoch == first.View().Epoch {
			t.Errorf("until %d: two who recover it have one epoch", until)
		}
		first.Abandon(now) // it is not his any more
		lease(3*now, memory.LeaseClaimed)
		check(t, second.Forget())
		lease(3*now, memory.LeaseGone)
		s.Abandon(id)
		lease(3*now, memory.LeaseGone)
	}
}

// TestLogsBesideFullDisks: a coordinator does without a log area on a blade whose disk is full, as
// long as f+1 blades have one. What the others have stays, a reopened database knows of it, and
// when there is room again all blades have areas of new ones.
func TestLogsBesideFullDisks(t *testing.T) {
	b := newBed(t, 3, 16, 1)
	s, c := b.open()
	on := func(x memory.Coordinator) (blades []int) {
		for i, l := range x.Logs {
			if l.Size > 0 {
				blades = append(blades, i)
			}
		}
		return blades
	}
	expect := func(what string, x memory.Coordinator, want ...int) memory.Coordinator {
		t.Helper()
		if !slices.Equal(on(x), want) {
			t.Errorf("%s: coordinator %d has log areas on %v, and not on %v", what, x.ID, on(x), want)
		}
		return x
	}
	first := expect("room everywhere", must(s.NewCoordinator())(t), 0, 1, 2)
	b.fabric.fullOn = []rdma.BladeID{1}
	var without []memory.Coordinator
	for range 2 * testSegment / testLog { // rows
		x := must(s.NewCoordinator())(t)
		if expect("blade 1 is full", x, 0, 2); x.Logs[1].Size == 0 {
			without = append(without, x)
		}
	}
	b.fabric.fullOn = []rdma.BladeID{1, 2}
	var none *memory.NoSpaceError
	for {
		x, err := s.NewCoordinator() // until no area is left that has memory
		if err == nil {
			expect("blades 1 and 2 are full", x, 0, 2)
			continue
		}
		if !errors.As(err, &none) || none.Backing == nil {
			t.Errorf("one blade of three has room: %v", err)
		}
		break
	}
	b.fabric.fullOn = nil
	again := expect("room again", must(s.NewCoordinator())(t), 0, 1, 2)
	check(t, s.CloseCoordinatorOn(c, without[0].ID))
	expect("room again", must(s.NewCoordinator())(t), 0, 1, 2)
	for _, x := range []memory.Coordinator{first, again} {
		now, _, err := s.Coordinator(x.ID)
		if err != nil {
			t.Fatal(err)
		}
		expect("still", now, 0, 1, 2)
	}
	l := must(layout.LoadLayout(b.cat))(t)
	if err := l.Validate(); err != nil {
		t.Error(err)
	}
}
