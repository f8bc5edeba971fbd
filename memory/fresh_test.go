package memory_test

import (
	"slices"
	"testing"
	"time"

	"txnode/memory"
	"txnode/memory/layout"
)

// TestLossKnown: a process counts as one that knows of the loss of a blade when it has
// said so, or has registered since another process has seen the loss: not when it has only
// said that it is alive.
func TestLossKnown(t *testing.T) {
	b := newBed(t, 4, 40, 1)
	b.opts.Shared, b.opts.Until = true, b.fabric.Now()+int64(time.Hour)
	open := func() *memory.Space {
		s, _ := b.open()
		check(t, s.EndAlone())
		return s
	}
	one, two, three := open(), open(), open()
	known := func(what string, want bool) {
		t.Helper()
		check(t, one.Listen())
		if got := one.LossKnown(one.Process()); got != want {
			t.Errorf("%s: the loss is known to all: %v", what, got)
		}
	}
	known("no blade was lost", true)
	check(t, two.Renew(b.fabric.Now()+2*int64(time.Hour)))
	check(t, three.Renew(b.fabric.Now()+2*int64(time.Hour)))
	check(t, three.AdvanceEpoch(three.DeclareDead(1)))
	known("two processes have renewed their registrations before", false)
	check(t, two.Renew(b.fabric.Now()+3*int64(time.Hour)))
	check(t, three.Renew(b.fabric.Now()+3*int64(time.Hour)))
	known("both have renewed their registrations", true)
	check(t, one.AdvanceEpoch(nil))
	known("no other blade was lost", true)

	check(t, one.AdvanceEpoch(one.DeclareDead(2)))
	known("another one was lost", false)
	check(t, two.Renew(b.fabric.Now()+int64(time.Hour)))
	check(t, three.Renew(b.fabric.Now()+int64(time.Hour)))
	known("both are alive, and have not heard of it", false)
	check(t, two.Acknowledge()) // likewise
	known("it knows nothing to acknowledge", false)
	for _, s := range []*memory.Space{two, three} {
		check(t, s.Follow())
		check(t, s.Acknowledge())
	}
	known("both have acknowledged the loss", true)
	before := must(b.cat.KeepAlive(layout.Beat{}))(t)
	check(t, two.Acknowledge())
	if now := must(b.cat.KeepAlive(layout.Beat{}))(t); !slices.Equal(now, before) {
		t.Error("an epoch is acknowledged twice")
	}

	check(t, three.AdvanceEpoch(nil))
	check(t, three.AdvanceEpoch(nil))
	known("a blade may have been taken in and lost in two epochs", false)

	four, c := b.open()
	check(t, four.EndAlone())
	if four.LossKnown(four.Process()) {
		t.Error("a process that has just joined cannot tell what others know")
	}
	for _, s := range []*memory.Space{one, two, three} {
		check(t, s.Renew(b.fabric.Now()+4*int64(time.Hour)))
	}
	check(t, four.Listen())
	if !four.LossKnown(four.Process()) {
		t.Error("all others have renewed their registrations since")
	}
	check(t, four.Close(c))
	known("one has closed the database", true)
}

// TestLossOfDead: a process that is registered no more, or whose registration has expired,
// is not waited for.
func TestLossOfDead(t *testing.T) {
	b := newBed(t, 3, 40, 1)
	b.opts.Shared, b.opts.Until = true, b.fabric.Now()+int64(time.Hour)
	one, c := b.open()
	check(t, one.EndAlone())
	b.opts.Until = b.fabric.Now() + int64(time.Second)
	dead, _ := b.open()
	check(t, dead.EndAlone())
	check(t, one.Follow())
	check(t, one.AdvanceEpoch(one.DeclareDead(1)))
	if one.LossKnown(one.Process()) {
		t.Error("a process may be alive that knows nothing of the loss")
	}
	c.Sleep(int64(time.Second) + 1)
	if !one.LossKnown(one.Process()) {
		t.Error("a process is waited for whose registration has expired")
	}
	if n := must(one.TakeOver(b.fabric.Now()))(t); n != 1 || !one.LossKnown(one.Process()) {
		t.Errorf("%d processes were taken over", n)
	}
}
