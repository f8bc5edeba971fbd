package simbench

import (
	"fmt"
	"html/template"
	"io"
	"math"
	"strings"

	"txnode/benchmarks/report/published"
	"txnode/rdma/sim"
)

// WriteHTML writes one page with the curves, ours and theirs, the errors, and the
// constants of the model and of the programs. It needs no network and no script.
func WriteHTML(w io.Writer, p sim.Profile, curves []Curve, programs ...sim.Program) error {
	type figure struct {
		Title string
		SVG   template.HTML
	}
	page := struct {
		Workload string
		Machine  string
		Hardware string
		Figures  []figure
		Curves   []Curve
		Median   string
		Constant []sim.Constant
		Source   string // of what was published
		Below    string // the axis
	}{Machine: p.Name, Hardware: published.Hardware + "; " + published.Setting, Curves: curves, Constant: p.Constants(),
		Source: "figure 10", Below: "threads, of 8 coroutines each unless told otherwise"}
	if len(curves) > 0 && curves[0].idles() {
		page.Source, page.Below = "figure 11", "microseconds that each coroutine waits after a committed transaction"
	}
	for _, prog := range programs {
		for _, c := range prog.Constants() {
			page.Constant = append(page.Constant, sim.Constant{Name: prog.Name + ": " + c.Name, Value: c.Value})
		}
	}
	if len(curves) > 0 {
		page.Workload = curves[0].Workload
	}
	if m := MedianError(curves); !math.IsNaN(m) {
		e := Errors(curves)
		page.Median = fmt.Sprintf("Committed transactions: absolute error over %d points: median %.1f %%, largest %.1f %%.", len(e), 100*m, 100*e[len(e)-1])
	}
	for _, f := range []struct {
		title  string
		ours   func(Point) float64
		theirs func(published.Point) float64
	}{
		{"Committed transactions, million per second", func(p Point) float64 { return p.CommittedMps }, func(p published.Point) float64 { return p.CommittedMps }},
		{"Median latency of committed transactions, us", func(p Point) float64 { return p.P50us }, func(p published.Point) float64 { return p.P50us }},
		{"99th percentile of latency, us", func(p Point) float64 { return p.P99us }, func(p published.Point) float64 { return p.P99us }},
		{"Attempts that do not commit, percent", func(p Point) float64 { return 100 * p.NotCommitted }, func(p published.Point) float64 { return 100 * p.NotCommitted }},
		{"Work requests per attempt", func(p Point) float64 { return p.VerbsCounted }, func(p published.Point) float64 { return p.VerbsPerAttempt }},
	} {
		page.Figures = append(page.Figures, figure{f.title, plot(curves, f.ours, f.theirs)})
	}
	if err := pageTemplate.Execute(w, page); err != nil {
		return fmt.Errorf("simbench: writing the report: %w", err)
	}
	return nil
}

// Size of a plot, in pixels.
const (
	plotWidth, plotHeight    = 640, 320
	plotLeft, plotBottom     = 56, 28
	plotTop, plotRight       = 10, 12
	plotInnerW, plotInnerH   = plotWidth - plotLeft - plotRight, plotHeight - plotTop - plotBottom
	plotTicks, plotThreads24 = 5, 24
)

var plotColors = []string{"#c0392b", "#2471a3", "#1e8449", "#7d3c98", "#b9770e"}

// plot draws ours as lines and what was published as dashed ones of the same color.
func plot(curves []Curve, ours func(Point) float64, theirs func(published.Point) float64) template.HTML {
	maxX, maxY := 1.0, 0.0
	for i := range curves {
		for j, p := range curves[i].Points {
			maxX = max(maxX, curves[i].x(j))
			maxY = max(maxY, ours(p))
			if f := curves[i].Figure[j]; curves[i].Published != "" && f.Threads != 0 {
				maxY = max(maxY, theirs(f))
			}
		}
	}
	step := niceStep(maxY / plotTicks)
	maxY = max(math.Ceil(maxY/step)*step, step)
	width := maxX
	x := func(v float64) float64 { return plotLeft + v/width*plotInnerW }
	y := func(v float64) float64 { return plotTop + (1-v/maxY)*plotInnerH }
	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 0 %d %d" width="%d" height="%d" role="img">`, plotWidth, plotHeight, plotWidth, plotHeight)
	for v := 0.0; v <= maxY+step/2; v += step {
		fmt.Fprintf(&b, `<line class="grid" x1="%d" x2="%d" y1="%.1f" y2="%.1f"/><text x="%d" y="%.1f" text-anchor="end">%g</text>`,
			plotLeft, plotWidth-plotRight, y(v), y(v), plotLeft-6, y(v)+4, math.Round(v/step)*step)
	}
	if len(curves) > 0 && curves[0].idles() {
		for j := range curves[0].Points {
			fmt.Fprintf(&b, `<text x="%.1f" y="%d" text-anchor="middle">%g</text>`, x(float64(j)), plotHeight-8, curves[0].Points[j].IdleUs)
		}
		maxX = -1
	}
	for v := 0.0; v <= maxX; v += max(plotThreads24, math.Ceil(maxX/8/plotThreads24)*plotThreads24) {
		fmt.Fprintf(&b, `<text x="%.1f" y="%d" text-anchor="middle">%g</text>`, x(v), plotHeight-8, v)
	}
	for i := range curves {
		c := &curves[i]
		color := plotColors[i%len(plotColors)]
		var us, them []string
		for j, p := range c.Points {
			us = append(us, fmt.Sprintf("%.1f,%.1f", x(c.x(j)), y(ours(p))))
			if f := c.Figure[j]; c.Published != "" && f.Threads != 0 {
				them = append(them, fmt.Sprintf("%.1f,%.1f", x(c.x(j)), y(theirs(f))))
			}
		}
		fmt.Fprintf(&b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="2"/>`, strings.Join(us, " "), color)
		if them != nil {
			fmt.Fprintf(&b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="1.5" stroke-dasharray="5 4"/>`, strings.Join(them, " "), color)
		}
		for _, at := range us {
			cx, cy, _ := strings.Cut(at, ",")
			fmt.Fprintf(&b, `<circle cx="%s" cy="%s" r="3" fill="%s"/>`, cx, cy, color)
		}
	}
	b.WriteString(`</svg>`)
	return template.HTML(b.String()) //nolint:gosec // numbers and constants only
}

// x is where a point is on the axis: by threads, or, of idle times, which double from one
// to the next, by number.
func (c *Curve) x(j int) float64 {
	if c.idles() {
		return float64(j)
	}
	return float64(c.Points[j].Threads)
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

var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
	"color":   func(i int) template.CSS { return template.CSS("color:" + plotColors[i%len(plotColors)]) },
	"percent": func(v float64) string { return fmt.Sprintf("%.1f %%", 100*v) },
	"error": func(c Curve, i int) string {
		if e := c.Error(i); !math.IsNaN(e) {
			return fmt.Sprintf("%+.1f %%", 100*e)
		}
		return "–"
	},
	"f1": func(v float64) string { return fmt.Sprintf("%.1f", v) },
	"f2": func(v float64) string { return fmt.Sprintf("%.2f", v) },
	"f3": func(v float64) string { return fmt.Sprintf("%.3f", v) },
}).Parse(`<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{{.Workload}} on the simulated RNIC</title>
<style>
body{font:14px/1.5 system-ui,sans-serif;max-width:1000px;margin:2em auto;padding:0 1em;color:#222}
table{border-collapse:collapse;margin:1em 0;font-variant-numeric:tabular-nums}
td,th{padding:.15em .6em;text-align:right;border-bottom:1px solid #ddd}
svg text{font:11px system-ui,sans-serif;fill:#444} .grid{stroke:#e4e4e4}
.theirs{color:#777} h2{margin-top:2em} .name{text-align:left}
</style></head><body>
<h1>{{.Workload}} on the simulated RNIC</h1>
<p>Solid lines: the engine on the simulator, machine {{.Machine}}. Dashed lines: published measurements (SMART, {{.Source}}) on {{.Hardware}}.</p>
<p>{{range $i, $c := .Curves}}<b style="{{color $i}}">■ {{$c.Name}}</b> &nbsp; {{end}}</p>
{{if .Median}}<p>{{.Median}}</p>{{end}}
{{range .Figures}}<h2>{{.Title}}</h2>{{.SVG}}<div>{{$.Below}}</div>{{end}}
{{range $c := .Curves}}<h2>{{$c.Name}}</h2>
<table><tr><th>{{$c.Axis}}<th>M txn/s<th class="theirs">published<th>error<th>p50 us<th class="theirs">published<th>p99 us<th class="theirs">published<th>not committed<th class="theirs">published<th>verbs/attempt<th class="theirs">published</tr>
{{range $i, $p := $c.Points}}{{$f := index $c.Figure $i}}<tr><td>{{$c.At $i}}<td>{{f3 $p.CommittedMps}}<td class="theirs">{{if $f.Threads}}{{f3 $f.CommittedMps}}{{end}}<td>{{error $c $i}}<td>{{f1 $p.P50us}}<td class="theirs">{{if $f.Threads}}{{f1 $f.P50us}}{{end}}<td>{{f1 $p.P99us}}<td class="theirs">{{if $f.Threads}}{{f1 $f.P99us}}{{end}}<td>{{percent $p.NotCommitted}}<td class="theirs">{{if $f.Threads}}{{percent $f.NotCommitted}}{{end}}<td>{{f2 $p.VerbsCounted}}<td class="theirs">{{if $f.Threads}}{{f2 $f.VerbsPerAttempt}}{{end}}</tr>
{{end}}</table>{{if not $c.Published}}<p>Beside it, SMART-DTX as published, which counts differently: the errors are not told.</p>{{end}}{{end}}
<h2>The model's constants</h2>
<table>{{range .Constant}}<tr><td class="name">{{.Name}}<td>{{.Value}}</tr>{{end}}</table>
</body></html>
`))
