package sim

import (
	"fmt"

	"txnode/rdma"
)

// With Options.Remote an error says what is known of the blade, as on a network: nothing was heard
// of it, nothing listens there, or the compute blade has trouble of its own.

// reachError is that a blade was not reached. It is an rdma.ErrBladeDown, and an rdma.ErrSilent if
// nothing was heard of it for long.
type reachError struct {
	what     string
	evidence rdma.Evidence
	unheard  bool
}

func (e *reachError) Error() string { return e.what + ": " + rdma.ErrBladeDown.Error() }

// Is matches rdma.ErrBladeDown, and rdma.ErrSilent.
func (e *reachError) Is(target error) bool {
	return target == rdma.ErrBladeDown || target == rdma.ErrSilent && e.unheard
}

// Evidence is what the error says of the blade: rdma.EvidenceOf.
func (e *reachError) Evidence() rdma.Evidence { return e.evidence }

// answers returns nil if the blade answers a thread of a compute blade now, counted from 1; thread
// -1: a call of the control path. Compute 0: the caller is on none.
func (f *Fabric) answers(b rdma.BladeID, thread, compute int) error {
	bl := f.blades[b]
	cut := bl.cut(f.now, thread, compute, "") > f.now
	if !f.opt.Remote {
		if f.now < bl.down || cut {
			return fmt.Errorf("sim: blade %d does not answer: %w", b, rdma.ErrBladeDown)
		}
		return nil
	}
	if compute > 0 {
		if err := f.device(compute - 1).troubled(); err != nil {
			return err
		}
	}
	switch {
	case cut:
		f.struck[FaultPartition]++
		return &reachError{fmt.Sprintf("sim: nothing is heard of blade %d", b), rdma.Silent, true}
	case f.now < bl.down:
		return &reachError{fmt.Sprintf("sim: nothing listens on blade %d", b), rdma.Refused, false}
	}
	return nil
}

// Reaches returns nil if a call of the control path from a compute blade, counted from 1, reaches a
// blade now, and else why it does not. A fabric that is one process's view of this one asks before
// it calls. It takes no time.
func (f *Fabric) Reaches(compute int, b rdma.BladeID) error {
	if int(b) >= len(f.blades) {
		return fmt.Errorf("sim: blade %d of %d: %w", b, len(f.blades), rdma.ErrBladeDown)
	}
	return f.answers(b, -1, compute)
}

// troubled returns why the compute blade connects to nothing now; nil: it does.
func (d *device) troubled() error {
	now := d.f.now
	for i := range d.troubles {
		w := &d.troubles[i]
		if w.from > now || now >= w.to {
			continue
		}
		d.f.struck[FaultTrouble]++
		e := &reachError{fmt.Sprintf("sim: compute blade %d cannot connect: %s", d.index, w.why), rdma.Own, false}
		switch w.why {
		case "alert":
			e.evidence = rdma.Alive
		case "greeting":
			e.evidence = rdma.Silent
		}
		return e
	}
	return nil
}

// pace is how a clock runs from a time on, ps.
type pace struct {
	from, shows int64
	x           float64
}

// run has the clock run x times as fast from now on.
func (d *device) run(now int64, x float64) { d.clocks = append(d.clocks, pace{now, d.shows(now), x}) }

// shows is what the clock of the compute blade shows at a time of the fabric, ps.
func (d *device) shows(t int64) int64 {
	for i := len(d.clocks) - 1; i >= 0; i-- {
		if p := &d.clocks[i]; t >= p.from {
			return p.shows + int64(float64(t-p.from)*p.x)
		}
	}
	return t
}

// when is the first time of the fabric at which the clock of the compute blade shows t, ps.
func (d *device) when(t int64) int64 {
	if t == forever {
		return t
	}
	for i := len(d.clocks) - 1; i >= 0; i-- {
		if p := &d.clocks[i]; t >= p.shows {
			at := p.from + int64(float64(t-p.shows)/p.x)
			for d.shows(at) < t {
				at++
			}
			return at
		}
	}
	return t
}

// NowOn is what the clock of a compute blade, counted from 1, shows now, in nanoseconds.
func (f *Fabric) NowOn(compute int) int64 { return f.device(compute-1).shows(f.proc().clock) / 1000 }

// When is the time of the fabric at which the clock of a compute blade, counted from 1, shows a
// time. Both are in nanoseconds.
func (f *Fabric) When(compute int, shows int64) int64 {
	if d := f.device(compute - 1); d.clocks != nil {
		return d.when(picos(shows)) / 1000
	}
	return shows
}
