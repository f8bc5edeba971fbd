package memory_test

import (
	"errors"
	"slices"
	"testing"

	"txnode/memory"
	"txnode/memory/layout"
	"txnode/rdma"
)

// TestCutOff: a process that is cut off a blade places, logs and allocates on the others, begins
// no epoch and takes no right, and gives up a coordinator to processes that reach the blade. It
// does all of that when it reaches the blade again. An epoch of another process begins in it
// without the blade.
func TestCutOff(t *testing.T) {
	b := newBed(t, 4, 40, 1)
	b.opts.Shared, b.opts.Until = true, 1<<60
	open := func() (*memory.Space, *rdma.Coro) {
		s, c := b.open()
		check(t, s.EndAlone())
		return s, c
	}
	near, _ := open()
	far, c := open()
	early := must(far.NewCoordinatorUntil(1 << 60))(t)
	blocks := func() (on uint64) {
		t.Helper()
		a := must(far.NewAllocator(c.Thread()))(t)
		for range 1000 {
			addr := must(a.Alloc(c, 0))(t)
			on |= memory.BladesOf(far.View(), addr)
		}
		check(t, a.Close(c))
		return on
	}
	if on := blocks(); on != 0b1111 {
		t.Fatalf("blocks are on blades %b", on)
	}
	far.CutOff(map[rdma.BladeID]string{1: "it is heard by others"})
	if !far.IsCutOff() || near.IsCutOff() || far.Suffices(0b0111) || !far.Suffices(0b0011) {
		t.Error("it is not known what is left")
	}
	if on := blocks(); on != 0b1101 {
		t.Errorf("blocks are on blades %b", on)
	}
	if _, err := far.NewExtent(c, far.SegmentSize()-8192); err != nil { // in a segment of its own
		t.Error(err)
	}
	l := far.Layout()
	if p := &l.Segments[len(l.Segments)-1].Placement; p.On(1) {
		t.Errorf("a new segment is on %+v", p)
	}
	late := must(far.NewCoordinatorUntil(1 << 60))(t)
	if early.Logs[1].Size == 0 || late.Logs[1].Size != 0 || late.Logs[0].Size == 0 {
		t.Errorf("log areas: %+v before, %+v now", early.Logs, late.Logs)
	}
	var x *memory.CutOffError
	now := b.fabric.Now() + 1
	for what, err := range map[string]error{
		"an epoch":         far.AdvanceEpoch(nil),
		"ending keys":      far.EndKeys(),
		"being alone":      far.BeginAlone(),
		"taking processes": second(far.TakeOver(now)),
		"a claim": second(far.Claim(memory.ClaimOptions{By: far.Process(), Now: now, Until: 1 << 60},
			late.ID)),
	} {
		if !errors.Is(err, memory.ErrCutOff) || !errors.As(err, &x) || !slices.Equal(x.Blades, []rdma.BladeID{1}) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if far.AcquireRight(layout.RightCopies) {
		t.Error("it has the right to build copies")
	}
	if l := far.Layout(); l.Epoch != near.Layout().Epoch || l.Keyless() {
		t.Errorf("epoch %d was begun; a blade has no key: %v", l.Epoch, l.Keyless())
	}

	check(t, far.GiveUp(early.ID))
	check(t, near.Follow())
	if got := near.Expired(now); !near.GivenUp() || !slices.Equal(got, []uint32{early.ID}) {
		t.Errorf("coordinators %d are to be recovered", got)
	}
	if got := far.Expired(now); len(got) > 0 {
		t.Errorf("it is to recover %d itself", got)
	}
	claim := must(near.Claim(memory.ClaimOptions{By: near.Process(), Now: now, Until: 1 << 60}, early.ID))(t)
	check(t, claim.Forget())
	check(t, far.Follow())
	if far.View().Epoch != near.View().Epoch || !far.Unrevoked() || near.Unrevoked() || far.GivenUp() {
		t.Errorf("epoch %d, and %d; late verbs: %v, %v", far.View().Epoch, near.View().Epoch,
			far.Unrevoked(), near.Unrevoked())
	}

	far.CutOff(nil)
	check(t, far.EndKeys())
	if far.IsCutOff() || far.Unrevoked() || far.CutOffError(1<<1) != nil {
		t.Error("it is cut off still")
	}
	check(t, far.AdvanceEpoch(nil))
	if c := must(far.NewCoordinatorUntil(1 << 60))(t); c.Logs[1].Size == 0 {
		t.Errorf("log areas: %+v", c.Logs)
	}
}

// second is an error with what comes before it left out.
func second[T any](_ T, err error) error { return err }

// TestCutOffDeclares: a process that is cut off a blade declares another one dead all the same,
// which needs an epoch.
func TestCutOffDeclares(t *testing.T) {
	b := newBed(t, 4, 40, 1)
	b.opts.Shared, b.opts.Until = true, 1<<60
	s, _ := b.open()
	check(t, s.EndAlone())
	s.CutOff(map[rdma.BladeID]string{1: "it is heard by nobody, and is waited for"})
	if err := s.AdvanceEpoch(s.DeclareDead(2)); errors.Is(err, memory.ErrCutOff) || s.View().Up(2) {
		t.Errorf("%v; blade 2 is up: %v", err, s.View().Up(2))
	}
}
