package calibrate

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"

	"txnode/internal/mdtable"
	"txnode/rdma"
	"txnode/rdma/sim"
	"txnode/rdma/sim/verbs"
)

// Point is one measurement.
type Point struct {
	Figure   string        `json:"figure"`     // "3a" or "4a", or one of those of Compared
	Name     string        `json:"allocation"` // of queue pairs and doorbells: Policy and Share
	Policy   rdma.QPPolicy `json:"-"`
	Share    int           `json:"-"` // threads per queue pair under MultiplexedQP
	Threads  int           `json:"threads"`
	Depth    int           `json:"depth"` // requests that a thread posts, a doorbell each, before it waits
	Mops     float64       `json:"published_mops"`
	Op       rdma.Op       `json:"-"` // READ or WRITE
	Throttle bool          `json:"throttled"`
}

// Points returns the measurements that the constants are fitted to, figure 3a first.
func Points() []Point {
	var out []Point
	for _, s := range figure3 {
		for i, m := range s.mops {
			out = append(out, Point{"3a", s.name, s.policy, s.share, figure3Threads[i], 8, m, rdma.OpRead, false})
		}
	}
	for _, s := range figure4 {
		for i, m := range s.mops {
			out = append(out, Point{
				"4a", "doorbell per thread", rdma.PerThreadDoorbell, 0, s.threads, figure4Depths[i],
				m, rdma.OpRead, false,
			})
		}
	}
	return out
}

// Measure runs the simulator on a point, for so long that about the given number of requests is
// measured, and some batches of each thread, and returns million requests per second.
func (p Point) Measure(profile sim.Profile, requests float64) (float64, error) {
	requests = max(requests, float64(8*p.Threads*p.Depth)) // of each thread some batches
	run := int64(max(requests/p.Mops*1000, 60_000))
	c := verbs.Config{
		Profile: profile, Op: p.Op, Policy: p.Policy, Share: p.Share, Threads: p.Threads, Depth: p.Depth,
		WarmNs: max(30_000, run/5), RunNs: run, Seed: 1, Throttle: p.Throttle,
	}
	if p.Throttle {
		c.WarmNs = 0 // until the tuner has chosen
	}
	r, err := verbs.Run(c)
	return r.Mops, err
}

// Residual is a point and what the model says of it.
type Residual struct {
	Point
	Model float64 `json:"model_mops"` // Mop/s
}

// Error is the relative error of the model.
func (r Residual) Error() float64 { return r.Model/r.Mops - 1 }

// Report is a profile and its residuals.
type Report struct {
	Profile   sim.Profile `json:"profile"` // with the names of its constants
	Residuals []Residual  `json:"residuals"`
}

// Evaluate runs the model on the points. More requests are more exact. When ctx is done it
// ends between two of them, with its cause and the points until then.
func Evaluate(ctx context.Context, profile sim.Profile, points []Point, requests float64) (Report, error) {
	r := Report{Profile: profile}
	for _, p := range points {
		if ctx.Err() != nil {
			return r, context.Cause(ctx)
		}
		m, err := p.Measure(profile, requests)
		if err != nil {
			return r, fmt.Errorf("calibrate: figure %s, %s, %d threads, depth %d: %w",
				p.Figure, p.Name, p.Threads, p.Depth, err)
		}
		r.Residuals = append(r.Residuals, Residual{p, m})
	}
	return r, nil
}

// MedianError is the median of the absolute relative errors.
func (r *Report) MedianError() float64 {
	e := r.sorted()
	if len(e) == 0 {
		return 0
	}
	return e[len(e)/2]
}

// MaxError is the largest absolute relative error.
func (r *Report) MaxError() float64 {
	e := r.sorted()
	if len(e) == 0 {
		return 0
	}
	return e[len(e)-1]
}

func (r *Report) sorted() []float64 {
	var e []float64
	for _, x := range r.Residuals {
		e = append(e, math.Abs(x.Error()))
	}
	slices.Sort(e)
	return e
}

// cost is what the fit makes small: the mean squared logarithm of model over
// measurement, in which being off by a factor counts the same in both directions. No
// point may be off by 30 %, so what is off by almost as much counts for more.
func (r *Report) cost() float64 {
	sum := 0.0
	for _, x := range r.Residuals {
		if x.Model <= 0 {
			return math.Inf(1)
		}
		l := math.Log(x.Model / x.Mops)
		if math.Abs(x.Error()) > 0.29 {
			l *= 3
		}
		sum += l * l
	}
	return sum / float64(len(r.Residuals))
}

// WriteText prints the fitted constants and every residual, if there are any.
func (r *Report) WriteText(w io.Writer) error {
	_, err := fmt.Fprintf(w, "profile %s\n", r.Profile.Name)
	for _, k := range knobs {
		if err == nil {
			_, err = fmt.Fprintf(w, "  %-16s %8.5g  %s\n", k.name, k.get(&r.Profile), k.what)
		}
	}
	if len(r.Residuals) == 0 {
		return err
	}
	if err == nil {
		_, err = fmt.Fprintf(w, "\n%-6s %-20s %7s %5s %10s %10s %8s\n", "figure", "policy", "threads", "depth",
			"measured", "model", "error")
	}
	for _, x := range r.Residuals {
		if err == nil {
			_, err = fmt.Fprintf(w, "%-6s %-20s %7d %5d %10.3f %10.3f %+7.1f%%\n", x.Figure, x.Name, x.Threads, x.Depth,
				x.Mops, x.Model, 100*x.Error())
		}
	}
	if err == nil {
		_, err = fmt.Fprintf(w, "\nabsolute error over %d points: median %.1f%%, largest %.1f%%\n",
			len(r.Residuals), 100*r.MedianError(), 100*r.MaxError())
	}
	return err
}

// WriteMarkdown writes the residuals as the tables of docs/simulator-fit.md: threads
// down, policies or depths across, each cell measured/model (error in %).
func (r *Report) WriteMarkdown(w io.Writer) error {
	grids := map[string]*mdtable.Table{}
	var figures []string
	for _, x := range r.Residuals {
		col := x.Name
		switch x.Figure {
		case "4a", "4b", "13b":
			col = fmt.Sprintf("depth %d", x.Depth)
		}
		if grids[x.Figure] == nil {
			grids[x.Figure] = mdtable.New("threads")
			figures = append(figures, x.Figure)
		}
		grids[x.Figure].Set(fmt.Sprint(x.Threads), col, mdtable.Cell(x.Mops, x.Model))
	}
	for _, f := range figures {
		if _, err := fmt.Fprintf(w, "\nFigure %s:\n", f); err != nil {
			return err
		}
		if err := grids[f].WriteMarkdown(w); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "\nAbsolute error over %d points: median %.1f %%, largest %.1f %%.\n",
		len(r.Residuals), 100*r.MedianError(), 100*r.MaxError())
	return err
}
