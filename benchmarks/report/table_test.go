package report

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jedib0t/go-pretty/v6/text"
)

// A table that is wider than the terminal becomes several: no line is too long, each begins with
// the names of the rows, and no cell is missing.
func TestNarrowTerminal(t *testing.T) {
	g := &grid{left: 1}
	g.column("", "transaction")
	for i := range 9 {
		g.column([]string{"first group", "second group"}[i/5], fmt.Sprint("head", i))
	}
	for r := range 3 {
		cells := []string{fmt.Sprint("name", r)}
		for i := range 9 {
			cells = append(cells, fmt.Sprintf("cell%d-%d", r, i))
		}
		if r == 2 {
			g.rule()
		}
		g.row(cells...)
	}
	wide := g.String()
	for _, width := range []int{30, 50, 80, 200} {
		g.theme.Width = width
		out := g.String()
		parts := strings.Count(out, "transaction")
		if (parts == 1) != (width == 200) || strings.Count(out, "name1") != parts || width == 200 && out != wide {
			t.Errorf("%d columns: %d tables\n%s", width, parts, out)
		}
		for _, line := range strings.Split(out, "\n") {
			if n := text.StringWidthWithoutEscSequences(line); n > width {
				t.Errorf("%d columns: a line of %d: %s", width, n, line)
			}
		}
		for r := range 3 {
			for i := range 9 {
				if cell := fmt.Sprintf("cell%d-%d", r, i); strings.Count(out, cell) != 1 ||
					!strings.Contains(out, fmt.Sprint("head", i)) {
					t.Errorf("%d columns: %s is there %d times", width, cell, strings.Count(out, cell))
				}
			}
		}
	}
}
