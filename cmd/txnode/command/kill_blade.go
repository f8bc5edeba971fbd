package command

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"txnode/benchmarks/engine"
	"txnode/benchmarks/report"
	"txnode/benchmarks/runner"
	"txnode/benchmarks/workload"
	"txnode/rdma"
)

// killOptions make a blade die in the middle of a benchmark, and come back.
type killOptions struct {
	Kill, Restore time.Duration // 0: never; of the time measured
	Blade         int
	Memory        bool // it comes back with what it had
}

// AddFlags registers the flags.
func (o *killOptions) AddFlags(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.DurationVar(&o.Kill, "kill-blade", 0,
		"`time` into each run at which a memory blade stops, such as 5s; by default none does")
	fs.IntVar(&o.Blade, "blade", 0, "`number` of the blade that --kill-blade stops, from 0; by default the first, 0")
	fs.DurationVar(&o.Restore, "restore-blade", 0,
		"`time` into each run at which that blade comes back; by default it does not before the end of the run")
	fs.BoolVar(&o.Memory, "restore-memory", false,
		"the blade comes back with what its memory held, which is out of date, and not empty")
}

// faults lists what is wrong with the options.
func (o *killOptions) faults(cmd *cobra.Command, s *StoreOptions, r *runner.Config) []string {
	var out []string
	fs := cmd.Flags()
	if !fs.Changed("kill-blade") {
		for _, f := range []string{"blade", "restore-blade", "restore-memory"} {
			if fs.Changed(f) {
				out = append(out, fmt.Sprintf("--%s needs --kill-blade", f))
			}
		}
		return out
	}
	if o.Kill <= 0 || r.Duration > 0 && o.Kill >= r.Duration {
		out = append(out, fmt.Sprintf("--kill-blade is %v; it must be positive and less than --duration", o.Kill))
	}
	if fs.Changed("restore-blade") && (o.Restore <= o.Kill || r.Duration > 0 && o.Restore >= r.Duration) {
		out = append(out, fmt.Sprintf("--restore-blade is %v; it must be between --kill-blade and --duration",
			o.Restore))
	}
	if o.Blade < 0 || o.Blade >= s.Blades && (s.Dir == "" || s.Geometry) {
		out = append(out, fmt.Sprintf("--blade is %d; it must be from 0 to %d", o.Blade, s.Blades-1))
	}
	if s.Replicas == 0 {
		out = append(out, "--kill-blade needs --replicas 1 or 2: without backups data is lost with the blade")
	}
	if r.Runs > 1 {
		out = append(out, "--kill-blade is for a single run")
	}
	if r.Duration == 0 {
		out = append(out, "--kill-blade needs --duration")
	}
	return out
}

// events are what happens to the store; nil: nothing.
func (o *killOptions) events(s workload.Store) ([]runner.Event, error) {
	if o.Kill == 0 {
		return nil, nil
	}
	e, ok := s.(*engine.Store)
	if !ok {
		return nil, usagef("--kill-blade: %s has no blades", s.Name())
	}
	f, ok := e.DB().Space().Fabric().(rdma.Stopper)
	if !ok {
		return nil, usagef("--kill-blade: the blades of this fabric cannot be stopped")
	}
	// of a directory, which may have others than are asked for by default
	if n := len(e.DB().Space().Fabric().Blades()); o.Blade >= n {
		return nil, usagef("--blade is %d; it must be from 0 to %d", o.Blade, n-1)
	}
	b := rdma.BladeID(o.Blade)
	out := []runner.Event{{Name: fmt.Sprintf("blade %d stopped", b), At: o.Kill, Do: func() error {
		return f.StopBlade(b)
	}}}
	if o.Restore > 0 {
		name := fmt.Sprintf("blade %d came back without its memory", b)
		if o.Memory {
			name = fmt.Sprintf("blade %d came back with its memory", b)
		}
		out = append(out, runner.Event{Name: name, At: o.Restore, Do: func() error {
			return f.RestartBlade(b, o.Memory)
		}})
	}
	return out, nil
}

// settle waits, when the runs are over, until all copies are there again if they can
// be, and has a blade that is still stopped come back: a directory is to be whole.
func (o *killOptions) settle(s workload.Store) error {
	e, ok := s.(*engine.Store)
	if o.Kill == 0 || !ok {
		return nil
	}
	var err error
	if f, ok := e.DB().Space().Fabric().(rdma.Stopper); ok {
		err = f.RestartBlade(rdma.BladeID(o.Blade), o.Memory)
	}
	for until := time.Now().Add(settleTime); ; time.Sleep(10 * time.Millisecond) {
		r := e.DB().Redundancy()
		if r.Missing == 0 && len(r.Down) == 0 {
			return err
		}
		if time.Now().After(until) {
			return errors.Join(err, fmt.Errorf("copies are still missing %v after the end: %d of %d segments",
				settleTime, r.Missing, r.Segments))
		}
	}
}

// settleTime is how long the end of a benchmark waits for missing copies.
const settleTime = time.Minute

// lostBlades notes the blades that were lost though nobody had asked for it, and what of the data
// has how many copies at the end. Another process may have taken a blade in, or built copies, so
// what counts is the catalog.
func (o *killOptions) lostBlades(r *report.Result, s workload.Store) {
	e, ok := s.(*engine.Store)
	if !ok {
		return
	}
	space := e.DB().Space()
	_ = space.Follow() // without the catalog it is what was known last
	red, view := e.DB().Redundancy(), space.View()
	r.CopiesMissing, r.SegmentsLost, r.SegmentsUnavailable = red.Missing, red.Lost, red.Unavailable
	for _, x := range red.Outages {
		if o.Kill != 0 && x.Blade == o.Blade {
			continue
		}
		b := rdma.BladeID(x.Blade) // there are MaxBlades
		r.LostBlades = append(r.LostBlades, report.LostBlade{
			Blade: x.Blade, Cause: x.Cause, Back: view.Up(b), Vacant: view.Leaving(b) && !view.Up(b),
		})
	}
}

// outages completes the story of the runs by what the engine tells.
func outages(r *report.Result, res *runner.Result, s workload.Store) {
	e, ok := s.(*engine.Store)
	if !ok {
		return
	}
	all := e.DB().Redundancy().Outages
	for i := range r.Runs {
		f, t := r.Runs[i].Failover, res.Runs[i].Timeline
		if f == nil || len(t.Events) == 0 {
			continue
		}
		zero := t.Events[0].Clock - int64(t.Events[0].At) // the clock at the beginning of the measurement
		next := int64(1<<63 - 1)
		if i+1 < len(res.Runs) && res.Runs[i+1].Timeline != nil && len(res.Runs[i+1].Timeline.Events) > 0 {
			next = res.Runs[i+1].Timeline.Events[0].Clock
		}
		at := func(clock int64) int64 {
			if clock == 0 {
				return -1
			}
			return clock - zero
		}
		for _, x := range slices.Clone(all) {
			if x.Noticed < zero || x.Noticed >= next {
				continue
			}
			f.Outages = append(f.Outages, report.Outage{
				Blade: x.Blade, LostNs: at(x.Noticed), PromotedNs: at(x.Promoted), DecidedNs: at(x.Decided),
				BackNs: at(x.Back), WholeNs: at(x.Whole),
				Segments: x.Primary, Built: x.Built, Bytes: x.Copied, Finished: x.Finished, Undone: x.Undone,
			})
		}
	}
}
