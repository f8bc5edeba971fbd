package channelbench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"txnode/internal/validate"
	"txnode/rdma/sim"
)

// ErrConfig is a configuration that cannot run; the text lists every fault.
var ErrConfig = errors.New("channelbench: bad configuration")

// errWrong: an experiment has computed something else than it should have.
var errWrong = errors.New("channelbench: wrong result")

// Config says what to measure on the simulator. The zero value of a field has a default.
type Config struct {
	Experiments []string      // of Names; empty: all
	Profile     sim.Profile   // zero: sim.RoCE25
	Nodes       int           // the most that an experiment has; 0: 16
	Threads     int           // of a node, in kv, fence and transfer; 0: 4
	Window      int           // operations under way of a thread, in kv and fence; 0: 3
	Keys        int           // of the map; 0: 20000
	Duration    time.Duration // virtual, of a point, behind a quarter of that to warm up; 0: 4ms
	Seed        uint64
}

// Point is what was measured of one variant in one setting.
type Point struct {
	Experiment string `json:"experiment"`
	Setting    string `json:"setting"` // what the variants are compared in; empty if there is one
	Variant    string `json:"variant"`
	// X is what varies, XName tells: nodes, or the period of a controller in microseconds.
	X     float64 `json:"x"`
	XName string  `json:"x_name"`

	Ops     uint64  `json:"ops"`
	Kops    float64 `json:"kops"` // thousand operations per second, all nodes together
	MeanUs  float64 `json:"mean_us"`
	P50Us   float64 `json:"p50_us"`
	P99Us   float64 `json:"p99_us"`
	VerbsOp float64 `json:"verbs_per_op"`
	TripsOp float64 `json:"round_trips_per_op"`
	// Least is how many operations the member has done that has done the fewest, as a
	// share of the mean.
	Least float64 `json:"least"`
	// Deviation and Peak are of the output of the converters, as a share of what it should be.
	Deviation float64 `json:"deviation,omitempty"`
	Peak      float64 `json:"peak,omitempty"`
}

// experiment is one of those that there are.
type experiment struct {
	name   string
	points func(c *Config) []setup
}

// setup measures one point.
type setup struct {
	Point
	run func(ctx context.Context, c *Config, p *Point) error
}

var experiments = []experiment{
	{"barrier", barriers}, {"lock", locks}, {"handover", handOvers}, {"transfer", transfers}, {"kv", maps},
	{"fence", fences}, {"converter", converters}, {"failure", failures},
}

// Names lists the experiments.
func Names() (names []string) {
	for _, e := range experiments {
		names = append(names, e.name)
	}
	return names
}

func (c *Config) defaults() {
	if len(c.Experiments) == 0 {
		c.Experiments = Names()
	}
	c.Profile = cmp.Or(c.Profile, sim.RoCE25())
	c.Nodes, c.Threads, c.Window, c.Keys = cmp.Or(c.Nodes, 16), cmp.Or(c.Threads, 4), cmp.Or(c.Window, 3),
		cmp.Or(c.Keys, 20_000)
	c.Duration = cmp.Or(c.Duration, 4*time.Millisecond)
}

// Limits.
const (
	maxNodes   = 64
	maxSeats   = 3072
	maxKeys    = 1 << 20
	maxRuntime = time.Second
)

// Validate lists everything that is wrong, after defaults.
func (c Config) Validate() error {
	c.defaults()
	var bad validate.Faults
	for _, name := range c.Experiments {
		bad.Check(slices.Contains(Names(), name), "experiment %q: it must be one of %s",
			name, strings.Join(Names(), ", "))
	}
	bad.Check(c.Nodes >= 2 && c.Nodes <= maxNodes, "Nodes is %d: from 2 to %d are possible", c.Nodes, maxNodes)
	bad.Check(c.Threads > 0 && c.Window > 0 && c.Nodes*c.Threads*c.Window <= maxSeats,
		"Threads is %d, and Window %d: with %d nodes at most %d are possible all together",
		c.Threads, c.Window, c.Nodes, maxSeats)
	bad.Check(c.Keys > 0 && c.Keys <= maxKeys, "Keys is %d: from 1 to %d are possible", c.Keys, maxKeys)
	bad.Check(c.Duration > 0 && c.Duration <= maxRuntime, "Duration is %v: up to %v are possible",
		c.Duration, maxRuntime)
	return errors.Join(c.Profile.Validate(), bad.Err(ErrConfig))
}

// counts are numbers of nodes, doubling, up to the most.
func (c *Config) counts(least, most int) (all []int) {
	for n := least; n < min(most, c.Nodes); n *= 2 {
		all = append(all, n)
	}
	return append(all, min(most, c.Nodes))
}

// Run measures all points of the experiments, in order. progress hears of each; done and total
// count them. When ctx ends, the points measured so far are returned with its cause.
func Run(ctx context.Context, c Config, progress func(p *Point, done, total int)) (*Report, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c.defaults()
	var todo []setup
	for _, e := range experiments {
		if slices.Contains(c.Experiments, e.name) {
			for _, s := range e.points(&c) {
				s.Experiment = e.name
				todo = append(todo, s)
			}
		}
	}
	r := &Report{Machine: c.Profile.Name, Seed: c.Seed, profile: c.Profile}
	for i := range todo {
		s := &todo[i]
		if err := ctx.Err(); err != nil {
			return r.judged(len(todo)), context.Cause(ctx)
		}
		if err := s.run(ctx, &c, &s.Point); err != nil {
			if ctx.Err() != nil {
				return r.judged(len(todo)), context.Cause(ctx)
			}
			return nil, fmt.Errorf("channelbench: %s, %s %s at %v %s: %w",
				s.Experiment, s.Variant, s.Setting, s.X, s.XName, err)
		}
		r.Points = append(r.Points, s.Point)
		if progress != nil {
			progress(&s.Point, i+1, len(todo))
		}
	}
	return r.judged(len(todo)), nil
}
