package report

import (
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// pageWidth is the width of a terminal that everything printed fits into.
const pageWidth = 110

// Theme says how to print for people. The zero value is plain text.
type Theme struct {
	Color bool // ANSI escapes for bold, green and red
	Width int  // columns of the terminal; 0: not known, tables are as wide as they need
}

func (t Theme) paint(s string, c ...text.Color) string {
	if !t.Color {
		return s
	}
	return text.Colors(c).EscapeSeq() + s + text.Reset.EscapeSeq()
}

func (t Theme) bold(s string) string  { return t.paint(s, text.Bold) }
func (t Theme) faint(s string) string { return t.paint(s, text.Faint) }
func (t Theme) good(s string) string  { return t.paint(s, text.FgGreen) }
func (t Theme) bad(s string) string   { return t.paint(s, text.Bold, text.FgRed) }

// grid is a table for people: a text column, then columns of numbers.
type grid struct {
	theme  Theme
	groups []string // heading above the heads, one per column; equal neighbours are one
	heads  []string
	left   int // columns from the left that are text; at least one
	rows   [][]string
	rules  map[int]bool // a line before this row
	strong map[int]bool // rows in bold
}

// column adds a column under a group heading, which may be empty.
func (g *grid) column(group, head string) {
	g.groups = append(g.groups, group)
	g.heads = append(g.heads, head)
}

func (g *grid) row(cells ...string) { g.rows = append(g.rows, cells) }

// rule draws a line before the next row.
func (g *grid) rule() {
	if g.rules == nil {
		g.rules = make(map[int]bool)
	}
	g.rules[len(g.rows)] = true
}

// embolden makes the last row bold.
func (g *grid) embolden() {
	if g.strong == nil {
		g.strong = make(map[int]bool)
	}
	g.strong[len(g.rows)-1] = true
}

// String renders the table; the last line ends with a line feed. A table that is wider than the
// terminal becomes several, each of which begins with the columns of text.
func (g *grid) String() string {
	names, n := max(g.left, 1), len(g.heads)
	if g.theme.Width == 0 || n <= names+1 || g.width() < g.theme.Width {
		return g.render()
	}
	var parts []string
	for from := names; from < n; {
		part, to := g.part(names, from, from+1), from+1
		for to < n {
			next := g.part(names, from, to+1)
			if next.width() >= g.theme.Width {
				break
			}
			part, to = next, to+1
		}
		if start := g.groupStart(to); start > from { // a group is not cut if it can stay together
			part, to = g.part(names, from, start), start
		}
		parts = append(parts, part.render())
		from = to
	}
	return strings.Join(parts, "\n")
}

// groupStart is where the group begins that a column goes on with; the column's own number
// if that begins one.
func (g *grid) groupStart(at int) int {
	start := at
	for start > 0 && start < len(g.groups) && g.groups[start] != "" && g.groups[start-1] == g.groups[start] {
		start--
	}
	return start
}

// part is the table with its first columns and those from one to before another.
func (g *grid) part(first, from, to int) *grid {
	pick := func(cells []string) []string {
		out := append([]string(nil), cells[:min(first, len(cells))]...)
		return append(out, cells[min(from, len(cells)):min(to, len(cells))]...)
	}
	p := &grid{
		theme: g.theme, groups: pick(g.groups), heads: pick(g.heads), left: g.left, rules: g.rules, strong: g.strong,
	}
	for _, r := range g.rows {
		p.rows = append(p.rows, pick(r))
	}
	return p
}

func (g *grid) render() string {
	w := table.NewWriter()
	style := table.StyleLight
	style.Box.Left, style.Box.Right, style.Box.MiddleVertical = "", "", ""
	style.Options = table.Options{SeparateHeader: true}
	style.Format.Header = text.FormatDefault
	w.SetStyle(style)

	grouped := false
	for _, name := range g.groups {
		grouped = grouped || name != ""
	}
	var configs []table.ColumnConfig
	for i := range g.heads {
		align := text.AlignRight
		if i == 0 || i < g.left {
			align = text.AlignLeft
		}
		configs = append(configs, table.ColumnConfig{Number: i + 1, Align: align, AlignHeader: align})
	}
	w.SetColumnConfigs(configs)
	w.AppendHeader(g.cells(g.heads, false))
	for i, r := range g.rows {
		if g.rules[i] {
			w.AppendSeparator()
		}
		w.AppendRow(g.cells(r, g.strong[i]))
	}
	lines := strings.Split(w.Render(), "\n")
	if grouped {
		lines = append([]string{g.groupLine(lines[0])}, lines...)
	}
	if g.theme.Color {
		head := 1
		if grouped {
			head = 2
		}
		for i := range head {
			lines[i] = g.theme.faint(lines[i])
		}
	}
	var b strings.Builder
	for _, l := range lines {
		b.WriteString(strings.TrimRight(l, " ") + "\n")
	}
	return b.String()
}

func (g *grid) cells(row []string, bold bool) table.Row {
	out := make(table.Row, len(row))
	for i, c := range row {
		if bold && c != "" {
			c = g.theme.bold(c)
		}
		out[i] = c
	}
	return out
}

// groupLine centres each group heading over its columns, between lines, by
// finding the columns' ends in the rendered line of heads.
func (g *grid) groupLine(heads string) string {
	line := []rune(strings.Repeat(" ", len([]rune(heads))))
	ends := g.columnEnds([]rune(heads))
	for i := 0; i < len(g.groups); {
		j := i
		for j+1 < len(g.groups) && g.groups[j+1] == g.groups[i] {
			j++
		}
		if name := []rune(g.groups[i]); len(name) > 0 {
			from := 0
			if i > 0 {
				from = ends[i-1] + 2
			}
			to := ends[j]
			label := name
			if len(name)+4 <= to-from { // a line on either side
				for k := from; k < to; k++ {
					line[k] = '─'
				}
				label = []rune(" " + g.groups[i] + " ")
			}
			copy(line[max(from, from+(to-from-len(label))/2):to], label)
		}
		i = j + 1
	}
	return string(line)
}

// width is that of the rendered table.
func (g *grid) width() int {
	ends := g.columnEnds(make([]rune, 1<<16))
	return ends[len(ends)-1]
}

// columnEnds returns, per column, the position behind its last character, from
// the widths of its cells: every cell has a space on both sides.
func (g *grid) columnEnds(heads []rune) []int {
	ends := make([]int, len(g.heads))
	at := 0
	for i, h := range g.heads {
		width := text.StringWidthWithoutEscSequences(h)
		for _, r := range g.rows {
			if i < len(r) {
				width = max(width, text.StringWidthWithoutEscSequences(r[i]))
			}
		}
		at += width + 2
		ends[i] = min(at-1, len(heads))
	}
	return ends
}
