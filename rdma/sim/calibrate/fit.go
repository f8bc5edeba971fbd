package calibrate

import (
	"context"
	"fmt"
	"math"

	"txnode/rdma"
	"txnode/rdma/sim"
)

// knob is a constant that is fitted.
type knob struct {
	name  string
	what  string
	stage int
	get   func(*sim.Profile) float64
	set   func(*sim.Profile, float64)
}

// realKnob makes a knob of a float constant.
func realKnob(name, what string, stage int, at func(*sim.Profile) *float64) knob {
	return knob{name, what, stage,
		func(p *sim.Profile) float64 { return *at(p) },
		func(p *sim.Profile, v float64) { *at(p) = v }}
}

func intKnob(name, what string, stage int, at func(*sim.Profile) *int) knob {
	return knob{name, what, stage,
		func(p *sim.Profile) float64 { return float64(*at(p)) },
		func(p *sim.Profile, v float64) { *at(p) = int(math.Round(v)) }}
}

// The stages of the fit: what no lock disturbs, doorbell registers that are
// shared, queue pairs that are shared.
const (
	stageDevice = iota
	stageDoorbell
	stageShare
	stages
)

// knobs, by stage. Constants that these measurements cannot tell apart go
// together: the processor time of a request that rings its own doorbell is the sum
// of four, and a miss of the
// WQE cache is a slope, so WQEMissNs stays one slot of the pipeline.
var knobs = []knob{
	realKnob("RoundTripNs", "idle READ, its WQE passed with the doorbell", stageDevice, func(p *sim.Profile) *float64 {
		return &p.RoundTripNs
	}),
	realKnob("FetchNs", "fetching the WQEs of a longer batch", stageDevice, func(p *sim.Profile) *float64 {
		return &p.FetchNs
	}),
	{"PostNs", "processor, each request; Batch, Doorbell and Reap each take as much", stageDevice,
		func(p *sim.Profile) float64 { return p.PostNs },
		func(p *sim.Profile, v float64) { p.PostNs, p.BatchNs, p.DoorbellNs, p.ReapNs = v, v, v, v }},
	intKnob("CPUFree", "active threads that do not disturb each other", stageDevice, func(p *sim.Profile) *int {
		return &p.CPUFree
	}),
	realKnob("CPUSlope", "processor time more for each further thread", stageDevice, func(p *sim.Profile) *float64 {
		return &p.CPUSlope
	}),
	realKnob("SiblingSlow", "processor time more, as a share, with another thread on the core",
		stageDevice, func(p *sim.Profile) *float64 { return &p.SiblingSlow }),
	{"FarDoorbellNs", "a doorbell from the socket that is far from the RNIC, more; a completion 32/55 of it",
		stageDevice,
		func(p *sim.Profile) float64 { return p.FarDoorbellNs },
		func(p *sim.Profile, v float64) { p.FarDoorbellNs, p.FarReapNs = v, tidy(v*farReap/farDoorbell) }},
	realKnob("OpsPerUs", "requests per microsecond of the device", stageDevice, func(p *sim.Profile) *float64 {
		return &p.OpsPerUs
	}),
	intKnob("WQECache", "outstanding requests that the WQE cache holds", stageDevice, func(p *sim.Profile) *int {
		return &p.WQECache
	}),
	intKnob("WQESpan", "this many more, and every request misses", stageDevice, func(p *sim.Profile) *int {
		return &p.WQESpan
	}),
	realKnob("HandoverNs", "passing on a contended lock", stageDoorbell, func(p *sim.Profile) *float64 {
		return &p.HandoverNs
	}),
	realKnob("HandoverEachNs", "more for each thread that spins", stageDoorbell, func(p *sim.Profile) *float64 {
		return &p.HandoverEachNs
	}),
	realKnob("TakeoverNs", "taking a lock that is free and that another thread has had",
		stageDoorbell, func(p *sim.Profile) *float64 { return &p.TakeoverNs }),
	realKnob("ShareNs", "serialized time of a request, two threads on a queue pair",
		stageShare, func(p *sim.Profile) *float64 { return &p.ShareNs }),
	realKnob("ShareExp", "its growth with the number of threads", stageShare, func(p *sim.Profile) *float64 {
		return &p.ShareExp
	}),
}

// What a thread on the far socket waits longer, by Intel's Memory Latency Checker on
// machines of that generation. A doorbell crosses the link between the sockets once, as a
// load of the other socket's memory does: 134 less 79 ns. Lines that the RNIC writes are
// in pages of either socket in turn; on its own socket they are then in the last level (26
// ns) or in the other's memory (134), from the far one in the other's cache (145) or in
// memory of its own (79). The measurements cannot tell doorbells and completions apart.
const (
	farDoorbell = 134 - 79
	farReap     = (145+79)/2 - (26+134)/2
)

// Options of Fit. The zero value is what sim.ConnectX6 was made with.
type Options struct {
	// Start of the search; zero: sim.ConnectX6.
	Start sim.Profile
	// Requests per point and evaluation; 0: 12,000.
	Requests float64
	// Progress is called after each constant that was tried; nil: not.
	Progress func(Progress)
}

// Progress is how far a fit has come.
type Progress struct {
	Stage    string
	Round    int
	Constant string  // tried last
	Cost     float64 // of the best so far: the mean squared logarithm of the error
}

// Fit searches for the constants, stage after stage, one constant after the other: a step up or
// down by a fraction that halves when nothing helps any more. It is deterministic. It returns the
// residuals of all points; when ctx is done before, the constants found until then, the residuals
// of the points that were fitted, as they were measured then, and the cause.
func Fit(ctx context.Context, o Options) (Report, error) {
	p := o.Start
	if p == (sim.Profile{}) {
		p = sim.ConnectX6()
	}
	if o.Requests == 0 {
		o.Requests = 12_000
	}
	names := [stages]string{"device", "doorbells", "shared queue pairs"}
	var found []Residual
	for stage := range stages {
		var points []Point
		for _, x := range Points() {
			if stageOf(x) == stage {
				points = append(points, x)
			}
		}
		best, err := search(ctx, &p, stage, points, &o, names[stage])
		found = append(found, best...)
		if err != nil {
			return Report{Profile: p, Residuals: found}, err
		}
	}
	return Evaluate(ctx, p, Points(), 4*o.Requests)
}

func stageOf(p Point) int {
	switch p.Policy {
	case rdma.PerThreadDoorbell:
		return stageDevice
	case rdma.PerThreadQP:
		return stageDoorbell
	default:
		return stageShare
	}
}

// Steps of the search, as fractions of a constant.
const (
	firstStep = 0.16
	lastStep  = 0.01
)

// search fits the constants of a stage. It returns the residuals of its points with the best of
// them, also if ctx ends it.
func search(ctx context.Context, p *sim.Profile, stage int, points []Point, o *Options,
	name string) ([]Residual, error) {
	best, found, err := costOf(ctx, *p, points, o)
	if err != nil {
		return found, err // those that were measured
	}
	round := 0
	for step := firstStep; step >= lastStep; step /= 2 {
		for improved := true; improved; round++ {
			improved = false
			for _, k := range knobs {
				if k.stage != stage {
					continue
				}
				for _, by := range []float64{1 + step, 1 / (1 + step)} {
					try := *p
					k.set(&try, tidy(k.get(p)*by))
					c, residuals, err := costOf(ctx, try, points, o)
					if err != nil {
						return found, err
					}
					if c < best*0.9995 {
						best, found, *p, improved = c, residuals, try, true
						break
					}
				}
				if o.Progress != nil {
					o.Progress(Progress{name, round, k.name, best})
				}
			}
		}
	}
	return found, nil
}

func costOf(ctx context.Context, p sim.Profile, points []Point, o *Options) (float64, []Residual, error) {
	if err := p.Validate(); err != nil {
		return math.Inf(1), nil, nil //nolint:nilerr // a step into nonsense is merely a bad step
	}
	r, err := Evaluate(ctx, p, points, o.Requests)
	if err != nil {
		return 0, r.Residuals, fmt.Errorf("calibrate: evaluating: %w", err)
	}
	return r.cost(), r.Residuals, nil
}

// tidy rounds to four digits, which is more than the measurements have.
func tidy(v float64) float64 {
	if v == 0 {
		return 0
	}
	m := math.Pow(10, 3-math.Floor(math.Log10(math.Abs(v))))
	return math.Round(v*m) / m
}
