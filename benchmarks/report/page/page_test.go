package page_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"testing"

	"txnode/benchmarks/report/page"
)

func Example() {
	p := page.Page{
		Title:  "throughput",
		Text:   []string{"Solid lines are the model's, dashed ones were published."},
		Legend: []string{"READ"},
		Figures: []page.Figure{{
			Title: "million a second", Below: "threads",
			Lines: []page.Line{{X: []float64{1, 96}, Y: []float64{1.9, 111}}},
		}},
	}
	if err := p.Write(io.Discard); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	// Output:
}

// The SVG is well-formed, has all points that there are, within the picture, and labels of
// both axes; what is put into the page is escaped, and nothing is loaded.
func TestPage(t *testing.T) {
	p := page.Page{
		Title:  "a < b",
		Text:   []string{"one", "two & three"},
		Legend: []string{"ours"},
		Figures: []page.Figure{
			{Title: "threads", Below: "threads", Lines: []page.Line{
				{X: []float64{1, 8, 96}, Y: []float64{1, math.NaN(), 3}},
				{Dashed: true, X: []float64{1, 8, 96}, Y: []float64{1, 2, 3.5}},
			}},
			{
				Title: "idle", Below: "us", Even: true,
				Lines: []page.Line{
					{Color: 1, X: []float64{0, 16, 8192}, Y: []float64{3, 2, 1}},
					{Color: 9, X: []float64{16, 32}, Y: []float64{1, 1}},
				},
			},
			{Title: "one point", Below: "threads", Lines: []page.Line{
				{X: []float64{4}, Y: []float64{0}}, {Dashed: true, X: []float64{4}, Y: []float64{7}},
			}},
			{Title: "none", Below: "threads"},
		},
		Tables: []page.Table{{
			Title: "t", Note: "n", Head: []string{"threads", "published"}, Rows: [][]string{{"1", "2.5"}},
		}},
		Constants: []page.Constant{
			{"TimeoutNs", 1e6}, {"LineNs", 104.28571428571428}, {"CPUSlope", 0.009941},
			{"Cold", 3.69563e-05}, {"None", 0},
		},
	}
	var b bytes.Buffer
	if err := p.Write(&b); err != nil {
		t.Fatal(err)
	}
	s := b.String()
	for _, want := range []string{
		"<h1>a &lt; b</h1>", "two &amp; three", "■ ours", `class="theirs">published`, `class="theirs">2.5`, "<p>n</p>",
		">1000000<", ">104.29<", ">0.009941<", ">0.000036956<", ">0<", ">8192</text>", ">32</text>",
		">20</text>", "stroke-dasharray",
	} {
		if !strings.Contains(s, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	for _, not := range []string{"http:", "https:", "src=", "<script", "NaN", "Inf", "e+0"} {
		if strings.Contains(s, not) {
			t.Errorf("the page has %q", not)
		}
	}
	for i, dots := range []int{2, 5, 2, 0} {
		svg := string(p.Figures[i].SVG())
		d, n := xml.NewDecoder(strings.NewReader(svg)), 0
		for {
			tok, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%v in %s", err, svg)
			}
			e, ok := tok.(xml.StartElement)
			if !ok || e.Name.Local != "circle" {
				continue
			}
			n++
			var x, y float64
			for _, a := range e.Attr {
				switch a.Name.Local {
				case "cx":
					_, err = fmt.Sscan(a.Value, &x)
				case "cy":
					_, err = fmt.Sscan(a.Value, &y)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			if !(x >= 50 && x <= 640 && y >= 0 && y <= 320) {
				t.Errorf("figure %d has a point at %v, %v", i, x, y)
			}
		}
		if n != dots {
			t.Errorf("figure %d has %d dots instead of %d:\n%s", i, n, dots, svg)
		}
	}
}

// Figures of bars and with logarithmic axes are well-formed, whatever there is to draw, and have
// their labels; what is named is escaped. Long lines have no dots.
func TestOtherFigures(t *testing.T) {
	many := page.Figure{Title: `a "b" <c>`}
	for i := range 50 {
		many.Bars = append(many.Bars, page.Bar{Name: fmt.Sprintf("n%d", i), Value: float64(i), Text: "v"})
	}
	long := page.Line{}
	for i := range 600 {
		long.X, long.Y = append(long.X, float64(i)), append(long.Y, 1e5)
	}
	for name, c := range map[string]struct {
		f       page.Figure
		rects   int
		circles int
		says    []string
	}{
		"few bars": {page.Figure{Bars: []page.Bar{
			{Name: "<x>", Below: "2 & 3", Value: 7, Text: "7 %"}, {Name: "y", Value: 0, Text: "0 %"},
		}}, 2, 0, []string{"&lt;x&gt;", "2 &amp; 3", "7 %", ">8</text>"}},
		"many bars":       {many, 50, 0, []string{">n0<", ">n48<", "a &#34;b&#34; &lt;c&gt;"}},
		"bars of nothing": {page.Figure{Bars: []page.Bar{{Name: "x"}}}, 1, 0, nil},
		"logarithmic": {page.Figure{
			Log: true, LogY: true, Lines: []page.Line{{X: []float64{0.5, 10, 3000}, Y: []float64{0.02, 5, 40_000}}},
		}, 0, 3, []string{">1000<", ">0.01<", ">100k<", ">1<"}},
		"logarithm of one": {page.Figure{
			Log: true, LogY: true, Lines: []page.Line{{X: []float64{10}, Y: []float64{10}}},
		}, 0, 1, []string{">10<", ">100<"}},
		"logarithm of 0": {page.Figure{
			Log: true, LogY: true, Lines: []page.Line{{X: []float64{0, 1}, Y: []float64{1, 2}}},
		}, 0, 2, nil},
		"no logarithm": {page.Figure{Log: true, LogY: true}, 0, 0, nil},
		"long":         {page.Figure{Lines: []page.Line{long}}, 0, 0, []string{">100k<", "polyline"}},
	} {
		svg := string(c.f.SVG())
		d, rects, circles := xml.NewDecoder(strings.NewReader(svg)), 0, 0
		for {
			tok, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v in %s", name, err, svg)
			}
			if e, ok := tok.(xml.StartElement); ok {
				switch e.Name.Local {
				case "rect":
					rects++
				case "circle":
					circles++
				}
			}
		}
		if rects != c.rects || circles != c.circles {
			t.Errorf("%s: %d bars and %d dots instead of %d and %d", name, rects, circles, c.rects, c.circles)
		}
		for _, want := range c.says {
			if !strings.Contains(svg, want) {
				t.Errorf("%s lacks %q:\n%s", name, want, svg)
			}
		}
		for _, not := range []string{"NaN", "Inf"} {
			if strings.Contains(svg, not) {
				t.Errorf("%s has %q:\n%s", name, not, svg)
			}
		}
	}
}
