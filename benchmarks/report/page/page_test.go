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
		Title:   "throughput",
		Text:    []string{"Solid lines are the model's, dashed ones were published."},
		Legend:  []string{"READ"},
		Figures: []page.Figure{{Title: "million a second", Below: "threads", Lines: []page.Line{{X: []float64{1, 96}, Y: []float64{1.9, 111}}}}},
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
			{Title: "idle", Below: "us", Even: true, Lines: []page.Line{{Color: 1, X: []float64{0, 16, 8192}, Y: []float64{3, 2, 1}}, {Color: 9, X: []float64{16, 32}, Y: []float64{1, 1}}}},
			{Title: "one point", Below: "threads", Lines: []page.Line{{X: []float64{4}, Y: []float64{0}}, {Dashed: true, X: []float64{4}, Y: []float64{7}}}},
			{Title: "none", Below: "threads"},
		},
		Tables:    []page.Table{{Title: "t", Note: "n", Head: []string{"threads", "published"}, Rows: [][]string{{"1", "2.5"}}}},
		Constants: []page.Constant{{"TimeoutNs", 1e6}, {"LineNs", 104.28571428571428}, {"CPUSlope", 0.009941}, {"Cold", 3.69563e-05}, {"None", 0}},
	}
	var b bytes.Buffer
	if err := p.Write(&b); err != nil {
		t.Fatal(err)
	}
	s := b.String()
	for _, want := range []string{
		"<h1>a &lt; b</h1>", "two &amp; three", "■ ours", `class="theirs">published`, `class="theirs">2.5`, "<p>n</p>",
		">1000000<", ">104.29<", ">0.009941<", ">0.000036956<", ">0<", ">8192</text>", ">32</text>", ">20</text>", "stroke-dasharray",
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
