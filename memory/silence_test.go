package memory_test

import (
	"errors"
	"slices"
	"testing"

	"txnode/memory"
)

// TestSilence: a process that others find silent counts as one whose lease has expired: its registration, its coordinators, and its claims. It does
// not when it is heard of again.
func TestSilence(t *testing.T) {
	b := newBed(t, 2, 40, 1)
	b.opts.Shared, b.opts.Until = true, 1<<60
	open := func() *memory.Space {
		s, _ := b.open()
		check(t, s.EndAlone())
		return s
	}
	first, second, third := open(), open(), open()
	one := must(second.NewCoordinatorUntil(1 << 60))(t)
	must(first.NewCoordinatorUntil(1 << 60))(t) // of a process that cannot find itself silent
	two := must(third.NewCoordinatorUntil(1 << 60))(t)
	now := b.fabric.Now() + 1
	must(second.Claim(memory.ClaimOptions{By: second.Process(), Now: now, Until: 1 << 60}, two.ID))(t)
	check(t, first.Follow())
	expired := func(want ...uint32) {
		t.Helper()
		if got := first.Expired(now); !slices.Equal(got, want) {
			t.Fatalf("coordinators %d have expired, not %d", got, want)
		}
		if got := first.Deserted(now); got != (len(want) > 0) {
			t.Fatalf("a process is deserted: %v", got)
		}
	}
	expired()
	if _, err := first.Claim(memory.ClaimOptions{By: first.Process(), Now: now, Until: 1 << 60}, two.ID); !errors.Is(err, memory.ErrClaimed) {
		t.Fatalf("a claim that has not expired: %v", err)
	}
	first.Silence(first.Process(), second.Process())
	expired(one.ID, two.ID)
	first.Silence()
	expired()
	first.Silence(second.Process())
	if n := must(first.TakeOver(now))(t); n != 1 || first.Layout().Registered(second.Process()) || !first.Layout().Registered(first.Process()) {
		t.Fatalf("%d processes were taken over", n)
	}
	if first.Silence(); first.Lease(one.ID, now) != memory.LeaseExpired {
		t.Fatal("a coordinator of a process that is gone is not to be waited for")
	}
	must(first.Claim(memory.ClaimOptions{By: first.Process(), Now: now, Until: 1 << 60}, one.ID, two.ID))(t)
}
