package simbench

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"time"

	"txnode/benchmarks/report/published"
	"txnode/occ"
	"txnode/rdma"
)

// Curve is the points of one system by threads, or by idle time, and what was published of it.
type Curve struct {
	Name      string            `json:"name"`
	Workload  string            `json:"workload"`
	Policy    string            `json:"policy"`
	LikeDTX   bool              `json:"like_dtx"`
	Published string            `json:"published"` // system of figure 10; empty: none
	Points    []Point           `json:"points"`
	Figure    []published.Point `json:"figure"` // of the same points; Threads 0: not published
}

// SystemOf names the system of figure 10 that a configuration is comparable with:
// FORD's policy with one backup on two blades, and all of SMART's techniques or none.
func SystemOf(c Config) (published.System, bool) {
	c.defaults()
	if !c.published() || c.Policy != occ.PolicyFORD || c.Backups != 1 || c.Blades != 2 || c.Coroutines != 8 {
		return "", false
	}
	switch c.Techniques {
	case rdma.Techniques{}:
		return published.FORDPlus, true
	case rdma.AllTechniques:
		return published.SMARTDTX, true
	}
	return "", false
}

// published says whether figures of the workload were published.
func (c *Config) published() bool { return len(published.Curve(c.Workload, published.FORDPlus)) > 0 }

// Name says what a configuration is, for a table.
func (c *Config) Name() string {
	var name string
	tuner := rdma.TunerThread
	if c.LikeDTX {
		tuner = rdma.TunerSMART
	}
	unthrottled := rdma.AllTechniques
	unthrottled.Throttle = false
	s, ok := SystemOf(*c)
	switch {
	case ok:
		name = string(s)
	case c.Techniques == rdma.Techniques{}:
		name = fmt.Sprintf("policy %v, no techniques", c.Policy)
	case c.Techniques == rdma.AllTechniques:
		name = fmt.Sprintf("policy %v, all techniques", c.Policy)
	case c.Techniques == unthrottled:
		name = fmt.Sprintf("policy %v, no throttle", c.Policy)
	default:
		name = fmt.Sprintf("policy %v, some techniques", c.Policy)
	}
	if c.Techniques.Throttle && c.Tuner != tuner { // another one than the program has
		name += fmt.Sprintf(", tuner %v", c.Tuner)
	}
	return name
}

// Figure10Threads are the thread counts of the published figure.
func Figure10Threads() []int {
	var out []int
	for _, p := range published.Curve("smallbank", published.FORDPlus) {
		out = append(out, p.Threads)
	}
	return out
}

// Figure11Idle are the idle times of the published figure.
func Figure11Idle() []time.Duration {
	var out []time.Duration
	for _, p := range published.IdleCurve("smallbank", published.FORDPlus) {
		out = append(out, time.Duration(p.Us)*time.Microsecond)
	}
	return out
}

// Sweep measures a configuration with each of the thread counts, several at a time
// on several processors. done, if not nil, is called after each point, by one
// goroutine at a time. When it is interrupted, or fails, it returns the points that it has.
func Sweep(ctx context.Context, c Config, data *Data, threads []int, done func(Point)) (Curve, error) {
	configs := make([]Config, len(threads))
	for i, n := range threads {
		configs[i] = c
		configs[i].Threads = n
	}
	return sweep(ctx, c, data, configs, done)
}

// SweepIdle is Sweep over idle times, as in figure 11.
func SweepIdle(ctx context.Context, c Config, data *Data, idle []time.Duration, done func(Point)) (Curve, error) {
	configs := make([]Config, len(idle))
	for i, d := range idle {
		configs[i] = c
		configs[i].Idle = d
	}
	return sweep(ctx, c, data, configs, done)
}

// figure returns what was published of a configuration: of figure 11 with idle
// times, or in a sweep over those, which has a run of its own without; of figure 10 else.
func (c *Config) figure(s published.System, idles bool) published.Point {
	if idles || c.Idle > 0 {
		for _, p := range published.IdleCurve(c.Workload, s) {
			if time.Duration(p.Us)*time.Microsecond == c.Idle && p.Threads == c.Threads {
				return p.Point
			}
		}
		return published.Point{}
	}
	p, _ := published.At(published.Curve(c.Workload, s), c.Threads)
	return p
}

func sweep(ctx context.Context, c Config, data *Data, configs []Config, done func(Point)) (Curve, error) {
	curve := Curve{Name: c.Name(), Workload: c.Workload, Policy: c.Policy.String(), LikeDTX: c.LikeDTX}
	system, known := SystemOf(c)
	if known {
		curve.Published = string(system)
	} else {
		system = published.SMARTDTX // the best that was published, to put ours beside
	}
	idles := len(configs) > 1 && configs[0].Idle != configs[1].Idle
	points := make([]Point, len(configs))
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		next = len(configs) // the largest first: they take longest
	)
	workers := min(runtime.GOMAXPROCS(0), len(configs))
	if c.Record != nil {
		workers = 1
	}
	for range workers {
		wg.Go(func() {
			for {
				mu.Lock()
				next--
				i := next
				mu.Unlock()
				if i < 0 || ctx.Err() != nil {
					return
				}
				p, err := Run(ctx, configs[i], data)
				if err != nil {
					cancel(fmt.Errorf("%d threads: %w", configs[i].Threads, err))
					return
				}
				mu.Lock()
				points[i] = p
				if done != nil {
					done(p)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	for i := range configs {
		if points[i].Attempts > 0 {
			curve.Points = append(curve.Points, points[i])
			curve.Figure = append(curve.Figure, configs[i].figure(system, idles))
		}
	}
	return curve, context.Cause(ctx)
}

// Error is the relative error of a point's throughput; NaN if nothing comparable
// was published.
func (c *Curve) Error(i int) float64 {
	if c.Published == "" || c.Figure[i].Threads == 0 {
		return math.NaN()
	}
	return c.Points[i].CommittedMps/c.Figure[i].CommittedMps - 1
}

// Errors are the absolute errors of all points of the curves that have one, sorted.
func Errors(curves []Curve) []float64 {
	var out []float64
	for i := range curves {
		for j := range curves[i].Points {
			if e := curves[i].Error(j); !math.IsNaN(e) {
				out = append(out, math.Abs(e))
			}
		}
	}
	slices.Sort(out)
	return out
}

// MedianError is the median absolute error over all points of the curves; NaN
// without any.
func MedianError(curves []Curve) float64 {
	e := Errors(curves)
	switch n := len(e); {
	case n == 0:
		return math.NaN()
	case n%2 == 1:
		return e[n/2]
	default:
		return (e[n/2-1] + e[n/2]) / 2
	}
}
