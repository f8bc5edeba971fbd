package page

import (
	"fmt"
	"html/template"
	"math"
	"slices"
	"strconv"
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

// colors are those of lines and bars on white paper, and on a dark screen: a color of the style
// sheet each, c0 and so on.
var colors = [][2]string{
	{"#c0392b", "#ff6f60"}, {"#2471a3", "#5dade2"}, {"#1e8449", "#52c77f"}, {"#7d3c98", "#c39bd3"},
	{"#b9770e", "#f0b04a"}, {"#34495e", "#a9bccf"},
	{"#e67e22", "#ff9f4a"}, {"#17a589", "#48d6b8"}, {"#d81b60", "#ff6d9d"}, {"#7f8c8d", "#b2babb"},
	{"#5d4037", "#bf9c90"},
}

// color is the i-th color, by its name in the style sheet.
func color(i int) string { return fmt.Sprintf("var(--c%d)", i%len(colors)) }

// palette is the part of the style sheet that names the colors, for a screen that is dark or not.
func palette(dark bool) template.CSS {
	var b strings.Builder
	for i, c := range colors {
		which := c[0]
		if dark {
			which = c[1]
		}
		fmt.Fprintf(&b, "--c%d:%s;", i, which)
	}
	return template.CSS(b.String()) // constants only
}

// plot is a figure that is being drawn.
type plot struct {
	strings.Builder
	x, y func(v float64) float64 // of a value, in pixels
}

// SVG draws the figure.
func (f Figure) SVG() template.HTML {
	p := &plot{}
	fmt.Fprintf(p, `<svg viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-label="%s">`,
		plotWidth, plotHeight, plotWidth, plotHeight, template.HTMLEscapeString(f.Title))
	if len(f.Bars) > 0 {
		p.bars(f.Bars)
	} else {
		p.lines(&f)
	}
	p.WriteString(`</svg>`)
	return template.HTML(p.String()) // numbers, constants, and text that was escaped
}

// lines draws a figure of lines.
func (p *plot) lines(f *Figure) {
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
	minX := 0.0
	place := func(v float64) float64 { return v }
	switch {
	case f.Even:
		place = func(v float64) float64 { return float64(slices.Index(at, v)) }
		maxX = float64(len(at) - 1)
	case len(at) == 0:
	case f.Log && at[0] > 0:
		place = math.Log10
		minX, maxX = math.Log10(at[0]), math.Log10(at[len(at)-1])
	default:
		maxX = at[len(at)-1]
	}
	width := max(maxX-minX, math.SmallestNonzeroFloat64)
	p.x = func(v float64) float64 { return plotLeft + (place(v)-minX)/width*plotInnerW }
	if f.LogY {
		p.decadesY(f.Lines)
	} else {
		p.axisY(maxY)
	}
	for _, v := range f.ticks(at) {
		fmt.Fprintf(p, `<text x="%.1f" y="%d" text-anchor="middle">%s</text>`, p.x(v), plotHeight-8, label(v))
	}
	for i := range f.Lines {
		p.line(&f.Lines[i])
	}
}

// axisY draws the grid and its labels, for values from 0 to a largest.
func (p *plot) axisY(most float64) {
	step := niceStep(most / plotTicksY)
	most = max(math.Ceil(most/step)*step, step)
	p.y = func(v float64) float64 { return plotTop + (1-v/most)*plotInnerH }
	for v := 0.0; v <= most+step/2; v += step {
		p.gridY(math.Round(v/step) * step)
	}
}

// decadesY is axisY for a logarithmic axis.
func (p *plot) decadesY(lines []Line) {
	least, most := math.Inf(1), 0.0
	for _, l := range lines {
		for _, y := range l.Y {
			if y > 0 {
				least, most = min(least, y), max(most, y)
			}
		}
	}
	if most == 0 {
		least, most = 1, 1
	}
	from := math.Floor(math.Log10(least))
	to := max(math.Ceil(math.Log10(most)), from+1)
	p.y = func(v float64) float64 { return plotTop + (to-math.Log10(v))/(to-from)*plotInnerH }
	for i := from; i <= to; i++ {
		p.gridY(math.Pow(10, i))
	}
}

// gridY draws a line of the grid, with its label.
func (p *plot) gridY(v float64) {
	fmt.Fprintf(p,
		`<line class="grid" x1="%d" x2="%d" y1="%.1f" y2="%.1f"/><text x="%d" y="%.1f" text-anchor="end">%s</text>`,
		plotLeft, plotWidth-plotRight, p.y(v), p.y(v), plotLeft-6, p.y(v)+4, label(v))
}

// label writes a value of an axis: with four digits, those of large ones in short.
func label(v float64) string {
	unit := ""
	for _, u := range []struct {
		from float64
		name string
	}{{1e9, "G"}, {1e6, "M"}, {2e4, "k"}} {
		if v >= u.from {
			if u.name == "k" {
				u.from = 1e3
			}
			v, unit = v/u.from, u.name
			break
		}
	}
	v, _ = strconv.ParseFloat(strconv.FormatFloat(v, 'g', 4, 64), 64)
	return strconv.FormatFloat(v, 'f', -1, 64) + unit
}

// line draws a line.
func (p *plot) line(l *Line) {
	var points []string
	for i := range l.X {
		if !math.IsNaN(l.Y[i]) {
			points = append(points, fmt.Sprintf("%.1f,%.1f", p.x(l.X[i]), p.y(l.Y[i])))
		}
	}
	if len(points) == 0 {
		return
	}
	style := `stroke-width="2"`
	if l.Dashed {
		style = `stroke-width="1.5" stroke-dasharray="5 4"`
	}
	fmt.Fprintf(p, `<g style="color:%s"><polyline points="%s" fill="none" stroke="currentColor" %s/>`,
		color(l.Color), strings.Join(points, " "), style)
	for _, at := range points {
		cx, cy, _ := strings.Cut(at, ",")
		switch {
		case !l.Dashed && len(points) <= maxDots:
			fmt.Fprintf(p, `<circle cx="%s" cy="%s" r="3" fill="currentColor"/>`, cx, cy)
		case len(points) == 1: // which a line does not show
			fmt.Fprintf(p, `<circle cx="%s" cy="%s" r="3" fill="none" stroke="currentColor"/>`, cx, cy)
		}
	}
	p.WriteString(`</g>`)
}

// maxDots is how many points a line may have to have a dot at each.
const maxDots = 64

// bars draws a figure of bars, side by side.
func (p *plot) bars(bars []Bar) {
	most := 0.0
	for _, b := range bars {
		most = max(most, b.Value)
	}
	p.axisY(most)
	each := float64(plotInnerW) / float64(len(bars))
	gap := min(each*0.15, 12)
	for i, b := range bars {
		x, y := plotLeft+float64(i)*each+gap/2, p.y(b.Value)
		what := b.Name + ": " + b.Text
		fmt.Fprintf(p,
			`<g style="color:%s"><rect x="%.2f" y="%.2f" width="%.2f" height="%.2f" `+
				`fill="currentColor"><title>%s</title></rect></g>`,
			color(b.Color), x, y, each-gap, max(p.y(0)-y, 0), template.HTMLEscapeString(what))
		if len(bars) <= maxNamed {
			mid := x + (each-gap)/2
			fmt.Fprintf(p, `<text x="%.1f" y="%.1f" text-anchor="middle">%s</text>`,
				mid, max(y-3, plotTop-1), template.HTMLEscapeString(b.Text))
			fmt.Fprintf(p, `<text x="%.1f" y="%d" text-anchor="middle">%s</text>`,
				mid, plotHeight-16, template.HTMLEscapeString(b.Name))
			fmt.Fprintf(p, `<text x="%.1f" y="%d" text-anchor="middle">%s</text>`,
				mid, plotHeight-4, template.HTMLEscapeString(b.Below))
			continue
		}
		if i%(len(bars)/maxNamed+1) == 0 {
			fmt.Fprintf(p, `<text x="%.1f" y="%d" text-anchor="middle">%s</text>`, x+each-gap, plotHeight-12,
				template.HTMLEscapeString(b.Name))
		}
	}
}

// maxNamed is how many bars may each have a name, and their value in words.
const maxNamed = 10

// ticks are the values that have a label on the axis.
func (f *Figure) ticks(at []float64) (out []float64) {
	if f.Even || len(at) == 0 {
		return at
	}
	last := at[len(at)-1]
	if f.Log && at[0] > 0 {
		for v := math.Pow(10, math.Ceil(math.Log10(at[0]))); v <= last; v *= 10 {
			out = append(out, v)
		}
		return out
	}
	step := niceStep(last / plotTicksX)
	for i := 0.0; i*step <= last*(1+1e-9); i++ {
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
