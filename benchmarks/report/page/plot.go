package page

import (
	"fmt"
	"html/template"
	"math"
	"slices"
	"strings"
)

// Size of a plot, in pixels.
const (
	plotWidth, plotHeight  = 640, 320
	plotLeft, plotBottom   = 56, 28
	plotTop, plotRight     = 10, 12
	plotInnerW, plotInnerH = plotWidth - plotLeft - plotRight, plotHeight - plotTop - plotBottom
	plotTicksX, plotTicksY = 8, 5
)

var colors = []string{
	"#c0392b", "#2471a3", "#1e8449", "#7d3c98", "#b9770e", "#34495e", "#e67e22", "#17a589", "#d81b60", "#7f8c8d", "#5d4037",
}

func color(i int) string { return colors[i%len(colors)] }

// SVG draws the figure.
func (f Figure) SVG() template.HTML {
	var at []float64 // all values of X
	maxX, maxY := 0.0, 0.0
	for _, l := range f.Lines {
		at = append(at, l.X...)
		for _, y := range l.Y {
			if !math.IsNaN(y) {
				maxY = max(maxY, y)
			}
		}
	}
	slices.Sort(at)
	at = slices.Compact(at)
	if len(at) > 0 {
		maxX = at[len(at)-1]
	}
	place := func(v float64) float64 { return v }
	if f.Even {
		place = func(v float64) float64 { return float64(slices.Index(at, v)) }
		maxX = float64(len(at) - 1)
	}
	stepY := niceStep(maxY / plotTicksY)
	maxY = max(math.Ceil(maxY/stepY)*stepY, stepY)
	width := max(maxX, math.SmallestNonzeroFloat64)
	x := func(v float64) float64 { return plotLeft + v/width*plotInnerW }
	y := func(v float64) float64 { return plotTop + (1-v/maxY)*plotInnerH }
	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 0 %d %d" width="%d" height="%d" role="img">`, plotWidth, plotHeight, plotWidth, plotHeight)
	for v := 0.0; v <= maxY+stepY/2; v += stepY {
		fmt.Fprintf(&b, `<line class="grid" x1="%d" x2="%d" y1="%.1f" y2="%.1f"/><text x="%d" y="%.1f" text-anchor="end">%.4g</text>`,
			plotLeft, plotWidth-plotRight, y(v), y(v), plotLeft-6, y(v)+4, math.Round(v/stepY)*stepY)
	}
	for _, v := range f.ticks(at) {
		fmt.Fprintf(&b, `<text x="%.1f" y="%d" text-anchor="middle">%.4g</text>`, x(place(v)), plotHeight-8, v)
	}
	for _, l := range f.Lines {
		var points []string
		for i := range l.X {
			if !math.IsNaN(l.Y[i]) {
				points = append(points, fmt.Sprintf("%.1f,%.1f", x(place(l.X[i])), y(l.Y[i])))
			}
		}
		if len(points) == 0 {
			continue
		}
		style := `stroke-width="2"`
		if l.Dashed {
			style = `stroke-width="1.5" stroke-dasharray="5 4"`
		}
		fmt.Fprintf(&b, `<polyline points="%s" fill="none" stroke="%s" %s/>`, strings.Join(points, " "), color(l.Color), style)
		for _, p := range points {
			cx, cy, _ := strings.Cut(p, ",")
			switch {
			case !l.Dashed:
				fmt.Fprintf(&b, `<circle cx="%s" cy="%s" r="3" fill="%s"/>`, cx, cy, color(l.Color))
			case len(points) == 1: // which a line does not show
				fmt.Fprintf(&b, `<circle cx="%s" cy="%s" r="3" fill="none" stroke="%s"/>`, cx, cy, color(l.Color))
			}
		}
	}
	b.WriteString(`</svg>`)
	return template.HTML(b.String()) //nolint:gosec // numbers and constants only
}

// ticks are the values that have a label on the axis.
func (f Figure) ticks(at []float64) []float64 {
	if f.Even || len(at) == 0 {
		return at
	}
	step := niceStep(at[len(at)-1] / plotTicksX)
	var out []float64
	for i := 0.0; i*step <= at[len(at)-1]*(1+1e-9); i++ {
		out = append(out, i*step)
	}
	return out
}

// niceStep rounds up to 1, 2 or 5 times a power of ten.
func niceStep(v float64) float64 {
	if !(v > 0) {
		return 1
	}
	p := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 2, 5} {
		if v <= m*p {
			return m * p
		}
	}
	return 10 * p
}
