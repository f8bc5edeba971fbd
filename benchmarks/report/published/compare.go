package published

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Series is a published curve beside a model's: values at the same, increasing places.
type Series struct {
	Name             string
	X                []float64
	Published, Model []float64
}

// Comparison says how far a model is from published curves, and whether the curves have the same
// shape.
type Comparison struct {
	Points          int     `json:"points"`
	Median, Largest float64 `json:"-"` // absolute relative error
	// Peaks are curves of three or more points whose highest one is published and modelled at
	// places that are neighbours, or the same; of Curves.
	Peaks  int `json:"peaks"`
	Curves int `json:"curves"`
	// Pairs are pairs of curves at one place whose published values differ by more than 5 %, and
	// Ordered those of them that the model has in the same order.
	Ordered int `json:"ordered"`
	Pairs   int `json:"pairs"`
	// Falls are the curves that fall behind their peak, in the publication or the model.
	Falls []Fall `json:"falls,omitempty"`
}

// Fall is the last value of a curve as a share of its highest one.
type Fall struct {
	Name             string
	Published, Model float64
}

// falls is a share of the peak below which a curve has fallen.
const falls = 0.8

// Compare compares curves. What a curve lacks in one of the two is NaN, and does not count.
func Compare(series []Series) Comparison {
	var c Comparison
	var errs []float64
	for i := range series {
		s := series[i].known()
		for j := range s.X {
			errs = append(errs, math.Abs(s.Model[j]/s.Published[j]-1))
		}
		if len(s.X) < 3 {
			continue
		}
		c.Curves++
		p, m := peak(s.Published), peak(s.Model)
		if p-m <= 1 && m-p <= 1 {
			c.Peaks++
		}
		last := len(s.X) - 1
		if f := (Fall{s.Name, s.Published[last] / s.Published[p], s.Model[last] / s.Model[m]}); min(f.Published,
			f.Model) < falls {
			c.Falls = append(c.Falls, f)
		}
	}
	for i := range series {
		for j := range i {
			c.order(&series[i], &series[j])
		}
	}
	c.Points = len(errs)
	if c.Points > 0 {
		slices.Sort(errs)
		c.Median, c.Largest = (errs[(len(errs)-1)/2]+errs[len(errs)/2])/2, errs[len(errs)-1]
	}
	return c
}

// known is the series without places at which a value is missing.
func (s *Series) known() Series {
	out := Series{Name: s.Name}
	for i := range s.X {
		if s.Published[i] > 0 && s.Model[i] > 0 {
			out.X, out.Published, out.Model = append(out.X, s.X[i]), append(out.Published, s.Published[i]),
				append(out.Model, s.Model[i])
		}
	}
	return out
}

// order counts the places at which two curves are in the published order.
func (c *Comparison) order(a, b *Series) {
	const apart = 1.05
	for i := range a.X {
		j := slices.Index(b.X, a.X[i])
		if j < 0 || !(a.Published[i] > 0 && a.Model[i] > 0 && b.Published[j] > 0 && b.Model[j] > 0) {
			continue
		}
		p, m := a.Published[i]/b.Published[j], a.Model[i]/b.Model[j]
		if p < apart && p > 1/apart {
			continue
		}
		c.Pairs++
		if (p > 1) == (m > 1) {
			c.Ordered++
		}
	}
}

func peak(v []float64) int {
	best := 0
	for i := range v {
		if v[i] > v[best] {
			best = i
		}
	}
	return best
}

// String says it in a sentence or two, with a line end; empty without points.
func (c Comparison) String() string {
	if c.Points == 0 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d points: median error %.0f %%, largest %.0f %%", c.Points, 100*c.Median, 100*c.Largest)
	if c.Curves > 0 {
		fmt.Fprintf(&b, "; peaks within one point in %d of %d curves", c.Peaks, c.Curves)
	}
	if c.Pairs > 0 {
		fmt.Fprintf(&b, "; order of curves right at %.0f %% of %d places",
			100*float64(c.Ordered)/float64(c.Pairs), c.Pairs)
	}
	b.WriteString(".\n")
	if len(c.Falls) > 0 {
		var each []string
		for _, f := range c.Falls {
			each = append(each, fmt.Sprintf("%s %.0f/%.0f %%", f.Name, 100*f.Published, 100*f.Model))
		}
		fmt.Fprintf(&b, "Last point as a share of the peak, published/model: %s.\n", strings.Join(each, ", "))
	}
	return b.String()
}
