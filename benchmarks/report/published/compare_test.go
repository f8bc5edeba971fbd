package published_test

import (
	"math"
	"testing"

	"txnode/benchmarks/report/published"
)

func TestCompare(t *testing.T) {
	nan := math.NaN()
	x := []float64{1, 8, 16, 32}
	c := published.Compare([]published.Series{
		{Name: "up", X: x, Published: []float64{1, 2, 3, 4}, Model: []float64{1.1, 2, 3, 4}},
		{Name: "down", X: x, Published: []float64{1, 4, 2, 1}, Model: []float64{1, 2, 4, 2}},
		{Name: "late", X: x, Published: []float64{4, 3, 2, 1}, Model: []float64{1, 2, 3, 4}},
		{Name: "few", X: x, Published: []float64{nan, nan, nan, 2}, Model: []float64{1, 1, 1, 1}},
	})
	if c.Points != 13 || c.Curves != 3 || c.Peaks != 2 {
		t.Errorf("%d points, %d of %d peaks; want 13, and 2 of 3", c.Points, c.Peaks, c.Curves)
	}
	if c.Largest != 3 || math.Abs(c.Median-0.5) > 1e-9 {
		t.Errorf("median %v, largest %v; want 0.5 and 3", c.Median, c.Largest)
	}
	if want := "13 points: median error 50 %, largest 300 %; peaks within one point in 2 " +
		"of 3 curves; "; c.String()[:len(want)] != want {
		t.Errorf("got %q", c.String())
	}
	if len(c.Falls) != 2 || c.Falls[0] != (published.Fall{Name: "down", Published: 0.25, Model: 0.5}) ||
		c.Falls[1].Name != "late" {
		t.Errorf("falls %+v", c.Falls)
	}
	two := published.Compare([]published.Series{
		{Name: "a", X: x, Published: []float64{1, 1, 2, 2}, Model: []float64{1, 9, 2, 1}},
		{Name: "b", X: x, Published: []float64{2, 1.04, 1, 1}, Model: []float64{2, 1, 1, 2}},
	})
	if two.Pairs != 3 || two.Ordered != 2 {
		t.Errorf("%d of %d pairs are in order; want 2 of 3", two.Ordered, two.Pairs)
	}
	if none := published.Compare(nil); none.String() != "" {
		t.Errorf("without points: %q", none)
	}
}
