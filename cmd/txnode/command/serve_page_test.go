package command_test

import (
	"bytes"
	"math"
	"testing"

	"txnode/benchmarks/report/page/pagetest"
	"txnode/cmd/txnode/command"
)

// TestStatusPage: a browser without JavaScript draws shares and rates in proportion, in the colors
// of the screen; a fault is red.
func TestStatusPage(t *testing.T) {
	const width, height = 1000, 900
	// 16 seconds: rates of 100, 200, ... 1500 READs.
	var verbs []uint64
	sum := uint64(0)
	for i := range uint64(16) {
		sum += 100 * i
		verbs = append(verbs, sum)
	}
	for name, colors := range map[string]struct{ paper, bar, bad string }{
		"light": {"#ffffff", "#2471a3", "#c0392b"}, "dark": {"#16181c", "#5dade2", "#ff6f60"},
	} {
		for _, faults := range [][]string{nil, {"blade 1 is stopped"}} {
			if testing.Short() && (name == "light") == (faults == nil) {
				continue // a browser takes seconds to begin
			}
			var b bytes.Buffer
			if err := command.StatusPage(&b, []uint64{1 << 28, 1 << 30, 0}, verbs, faults...); err != nil {
				t.Fatal(err)
			}
			// The last ten seconds have rates from 600 to 1500.
			has(t, "the page", b.String(), "over the last 10 s", "<td>1.05 k<td>0<td>0", "<td>65.6 KiB<td>0 B",
				"256 MiB", "at most 1.50 k")
			img := pagetest.Shot(t, b.Bytes(), width, height, name == "dark")
			if got := pagetest.Color(img, 2, 2); got != colors.paper {
				t.Errorf("%s: the ground is %s", name, got)
			}
			bar, bad := 0, 0
			for y := range height {
				for x := range width {
					switch pagetest.Color(img, x, y) {
					case colors.bar:
						bar++
					case colors.bad:
						bad++
					}
				}
			}
			// Two shares of 25 and 100 pixels by 12, and 15 bars of 8 pixels, of which the last
			// is 96 pixels high.
			want := 125*12 + 8*96*(1+15)*15/2/15
			if math.Abs(float64(bar-want)) > 8*15 { // the upper ends of bars are between two pixels
				t.Errorf("%s: %d pixels of shares and rates, want %d", name, bar, want)
			}
			if (bad > 50) != (faults != nil) {
				t.Errorf("%s: %d red pixels with faults %q", name, bad, faults)
			}
		}
	}
}
