package hashbench

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"txnode/benchmarks/report/published"
	"txnode/internal/validate"
	"txnode/rdma"
	"txnode/rdma/sim"
)

// Curve is one line of a figure: points of a configuration of which one thing varies.
type Curve struct {
	Name string `json:"name"`
	Mix  string `json:"mix"`
	// Machine tells curves apart that have been measured on several machines; empty if there is
	// one.
	Machine string   `json:"machine,omitempty"`
	Config  []Config `json:"-"`
	Points  []Point  `json:"points"`
}

// Only leaves those points, to be measured, whose configuration is wanted.
func (c *Curve) Only(wanted func(Config) bool) {
	c.Config = slices.DeleteFunc(c.Config, func(one Config) bool { return !wanted(one) })
	c.Points = make([]Point, len(c.Config))
}

// group names what a curve is compared within: curves of one mix on one machine.
func (c *Curve) group() string {
	if c.Machine == "" {
		return "mix " + c.Mix
	}
	return "mix " + c.Mix + ", machine " + c.Machine
}

// Vary makes a curve of copies of c.
func Vary[T any](name string, c Config, values []T, set func(c *Config, v T)) Curve {
	out := Curve{Name: name, Mix: c.Mix.Name}
	for _, v := range values {
		one := c
		set(&one, v)
		out.Config = append(out.Config, one)
	}
	out.Points = make([]Point, len(out.Config))
	return out
}

// SetThreads and SetTheta are what curves vary.
func SetThreads(c *Config, n int) { c.Threads = n }

// SetIdle sets what coroutines wait after each operation, in microseconds.
func SetIdle(c *Config, us float64) { c.Idle = time.Duration(us * 1e3) }

// SetTheta sets the Zipf parameter.
func SetTheta(c *Config, theta float64) { c.Theta = theta }

// ThreadCounts are those of the figures, up to most, which is among them.
func ThreadCounts(most int) []int {
	counts := slices.DeleteFunc([]int{1, 4, 8, 16, 32, 48, 64, 80, 96}, func(n int) bool { return n >= most })
	return append(counts, most)
}

// upTo are the published thread counts up to most.
func upTo(most int, counts []int) []int {
	return slices.DeleteFunc(slices.Clone(counts), func(n int) bool { return n > most })
}

// Thetas are the Zipf parameters of figure 5b.
var Thetas = published.Figure5bThetas

// Avoidance is a degree of conflict avoidance, as in figure 14.
type Avoidance struct {
	Name                        string
	Backoff, DynLimit, CoroCred bool
}

// Avoidances that there are: none; truncated exponential backoff; with the dynamic
// limit; with coroutine throttling too.
var Avoidances = []Avoidance{
	{"none", false, false, false}, {"backoff", true, false, false}, {"dynamic", true, true, false},
	{"all", true, true, true},
}

// AvoidanceByName returns one of Avoidances.
func AvoidanceByName(name string) (Avoidance, error) {
	return validate.ByName(ErrConfig, "conflict avoidance", name, Avoidances, func(a Avoidance) string {
		return a.Name
	})
}

// Set sets what t says of conflict avoidance.
func (a Avoidance) Set(t *rdma.Techniques) {
	t.Backoff, t.DynLimit, t.CoroLimit = a.Backoff, a.DynLimit, a.CoroCred
}

// The systems of figures 7 and 8, and this engine's index with the techniques of the last.
const (
	raceName  = "RACE"
	smartName = "SMART-HT"
	oursName  = "ours"
)

var breakdown = []struct {
	name string
	t    rdma.Techniques
}{
	{raceName, rdma.Techniques{}},
	{"+ThdResAlloc", rdma.Techniques{Doorbells: true}},
	{"+WorkReqThrot", rdma.Techniques{Doorbells: true, Throttle: true}},
	{"+ConflictAvoid", rdma.AllTechniques},
}

// FigureNames are the figures of the SMART paper that Figure knows; 7 is 7a to 7c, 8 is 8a to 8c.
var FigureNames = []string{"5a", "5b", "7", "8", "8a", "8b", "8c", "9", "14"}

// Figure returns the curves of a figure of the SMART paper, to be measured. Mix,
// techniques, program and what is varied are the figure's, all else is that of c; thread
// counts are those published, up to c.Threads. Figures 7 and 8 have a curve of this
// engine's index beside.
func Figure(name string, c Config) ([]Curve, error) {
	c.defaults()
	c.LikeSMART, c.Tuner = true, rdma.TunerSMART
	counts := upTo(c.Threads, published.Figure8Threads)
	mix := func(name string) { c.Mix, _ = MixByName(name) }
	var out []Curve
	switch name {
	case "5a":
		mix("update-only")
		c.Theta, c.Techniques = 0.99, rdma.Techniques{}
		out = append(out, Vary(raceName, c, upTo(c.Threads, published.Figure5aThreads), SetThreads))
	case "5b":
		mix("update-only")
		c.Threads, c.Techniques = 16, rdma.Techniques{}
		out = append(out, Vary(raceName, c, Thetas, SetTheta))
	case "7", "8", "8a", "8b", "8c":
		c.Theta = 0.99
		mixes := []string{"a", "b", "c"}
		if len(name) == 2 {
			mixes = []string{name[1:]}
		}
		for _, m := range mixes {
			mix(m)
			for i, b := range breakdown {
				c.Techniques = b.t
				switch {
				case name[0] == '8':
					out = append(out, Vary(b.name, c, counts, SetThreads))
				case i == 0:
					out = append(out, Vary(raceName, c, counts, SetThreads))
				case i == len(breakdown)-1:
					out = append(out, Vary(smartName, c, counts, SetThreads))
				}
			}
			ours := c
			ours.LikeSMART, ours.Tuner = false, rdma.TunerThread
			out = append(out, Vary(oursName, ours, counts, SetThreads))
		}
	case "9":
		mix("c")
		c.Theta = 0.99
		for i, name := range []string{raceName, smartName} {
			c.Techniques = breakdown[i*(len(breakdown)-1)].t
			out = append(out, Vary(name, c, published.Figure9Idle, SetIdle))
		}
	case "14":
		mix("update-only")
		c.Theta = 0.99
		for _, a := range Avoidances {
			c.Techniques = rdma.Techniques{Doorbells: true, Throttle: true}
			a.Set(&c.Techniques)
			out = append(out, Vary(a.Name, c, upTo(c.Threads, published.Figure14Threads), SetThreads))
		}
	default:
		return nil, fmt.Errorf("%w: no figure %q: there are %s", ErrConfig, name, strings.Join(FigureNames, ", "))
	}
	return out, nil
}

// published returns the point of a published figure that has this configuration.
func (c Config) published() (published.HashPoint, bool) {
	c.defaults()
	if c.Profile != sim.ConnectX6() || c.Compute != 1 || c.Blades != 2 || c.Coroutines != 8 || c.Drawn != DefaultDrawn {
		return published.HashPoint{}, false
	}
	for _, figure := range FigureNames {
		curves, err := Figure(figure, c)
		if err != nil {
			return published.HashPoint{}, false
		}
		for i := range curves {
			if slices.Contains(curves[i].Config, c) {
				if x, ok := publishedIn(figure, &curves[i], &Point{
					Threads: c.Threads, Theta: c.Theta, IdleUs: float64(c.Idle) / 1e3,
				}); ok {
					return x, true
				}
			}
		}
	}
	return published.HashPoint{}, false
}

// publishedIn returns a point of a curve of a figure.
func publishedIn(figure string, c *Curve, p *Point) (published.HashPoint, bool) {
	name := c.Name
	if name == smartName {
		name = breakdown[len(breakdown)-1].name
	}
	return published.HashAt(published.HashCurve(figure, c.Mix, name), p.Threads, p.Theta, p.IdleUs)
}

// Measured is the curve without the points that an interrupted Measure has not come to.
func (c *Curve) Measured() Curve {
	out := *c
	out.Points, out.Config = nil, nil
	for i := range c.Points {
		if c.Points[i].Threads > 0 {
			out.Points, out.Config = append(out.Points, c.Points[i]), append(out.Config, c.Config[i])
		}
	}
	return out
}

// Measure measures all points of the curves, several at a time on several
// processors. done, if not nil, is called after each point, by one goroutine at a time.
func Measure(ctx context.Context, curves []Curve, d *Data, done func(c *Curve, p *Point)) error {
	type job struct{ curve, point int }
	var jobs []job
	workers := runtime.GOMAXPROCS(0)
	for i := range curves {
		for j := range curves[i].Config {
			jobs = append(jobs, job{i, j})
			if curves[i].Config[j].Record != nil {
				workers = 1
			}
		}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	var mu sync.Mutex
	for range min(workers, len(jobs)) {
		wg.Go(func() {
			for {
				mu.Lock()
				if len(jobs) == 0 || ctx.Err() != nil {
					mu.Unlock()
					return
				}
				next := jobs[len(jobs)-1]
				jobs = jobs[:len(jobs)-1]
				mu.Unlock()
				curve := &curves[next.curve]
				p, err := Run(ctx, curve.Config[next.point], d)
				if err != nil {
					cancel(fmt.Errorf("%s, mix %s, %d threads: %w",
						curve.Name, curve.Mix, curve.Config[next.point].Threads, err))
					return
				}
				mu.Lock()
				curve.Points[next.point] = p
				if done != nil {
					done(curve, &curve.Points[next.point])
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

// Statement is something that the paper says of a figure in words, beside what the
// model says.
type Statement struct {
	What      string  `json:"what"`
	Published string  `json:"published"`
	Model     float64 `json:"model"`
	Unit      string  `json:"unit,omitempty"`
}

// Statements compares measured curves of a figure with what sections 3.3, 6.2.1 and
// 6.3 of the paper say; of several machines, those measured on the first. What they call retries of
// figure 14 are attempts: see published.HashCurve.
func Statements(figure string, curves []Curve) []Statement {
	of := func(name, mix string) []Point {
		for i := range curves {
			if curves[i].Name == name && curves[i].Mix == mix {
				return curves[i].Points
			}
		}
		return nil
	}
	var out []Statement
	add := func(what, published string, model float64, unit string) {
		out = append(out, Statement{what, published, model, unit})
	}
	peak := func(ps []Point) (best Point) {
		for _, p := range ps {
			if p.Mops > best.Mops {
				best = p
			}
		}
		return best
	}
	switch figure {
	case "5a":
		ps := of(raceName, "update-only")
		best, worst := peak(ps), 0.0
		for _, p := range ps {
			if p.Threads > best.Threads {
				worst = max(worst, p.P99us/best.P99us)
			}
		}
		add("threads with the highest throughput", "8", float64(best.Threads), "")
		add("99 % latency with more threads, at most", "17.1", worst, "times that")
	case "5b":
		if ps := of(raceName, "update-only"); len(ps) > 1 {
			first, last := ps[0], ps[len(ps)-1]
			add("median latency, from theta 0 to 0.99", "1.9", last.P50us/first.P50us, "times")
			add("99 % latency, from theta 0 to 0.99", "78.4", last.P99us/first.P99us, "times")
		}
	case "7":
		for _, x := range []struct{ name, mix, most, at string }{
			{raceName, "a", "2.8", "8"}, {smartName, "a", "5.7", "48"}, {raceName, "b", "below 11.4", ""},
			{smartName, "b", "21.2", ""},
			{raceName, "c", "below 11.4", ""}, {smartName, "c", "23.7", "from 64 on"},
		} {
			best := peak(of(x.name, x.mix))
			add(fmt.Sprintf("%s, mix %s: highest throughput", x.name, x.mix), x.most, best.Mops, "Mop/s")
			if x.at != "" {
				add(fmt.Sprintf("%s, mix %s: reached with", x.name, x.mix), x.at, float64(best.Threads), "threads")
			}
		}
	case "14":
		last := func(name string) (p Point) {
			if ps := of(name, "update-only"); len(ps) > 0 {
				p = ps[len(ps)-1]
			}
			return p
		}
		none, backoff, dynamic, all := last("none"), last("backoff"), last("dynamic"), last("all")
		if len(none.Distribution) == 0 || len(all.Distribution) == 0 {
			return nil
		}
		gain := 0.0
		for i, p := range of("all", "update-only") {
			gain = max(gain, p.Mops/of("backoff", "update-only")[i].Mops)
		}
		add("attempts per update without conflict avoidance", "11.5", 1+none.Retries, "")
		add("updates with retries without conflict avoidance", "67.9", 100*(1-none.Distribution[0]), "%")
		add("attempts per update with backoff", "below 1.7", 1+backoff.Retries, "")
		add("attempts per update with all", "1.1", 1+all.Retries, "")
		add("updates without retries with all", "93.3", 100*all.Distribution[0], "%")
		add("throughput of the dynamic limit over backoff", "1.6", dynamic.Mops/backoff.Mops, "times")
		add("throughput of all over backoff, at most", "1.67", gain, "times")
		add("throughput of all over none", "-", all.Mops/none.Mops, "times")
	}
	return slices.DeleteFunc(out, func(s Statement) bool { return math.IsNaN(s.Model) || math.IsInf(s.Model, 0) })
}
