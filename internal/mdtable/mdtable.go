package mdtable

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// Table is a table of the docs: rows, columns and cells in the order in which they came.
type Table struct {
	corner        string
	rows, columns []string
	cells         map[[2]string]string
}

// New returns an empty table, whose first column is named.
func New(corner string) *Table { return &Table{corner: corner, cells: map[[2]string]string{}} }

// Set sets a cell.
func (g *Table) Set(row, column, cell string) {
	g.rows, g.columns = with(g.rows, row), with(g.columns, column)
	g.cells[[2]string{row, column}] = cell
}

func with(l []string, s string) []string {
	if slices.Contains(l, s) {
		return l
	}
	return append(l, s)
}

// columnsMost is how many columns of a table fit into 100 characters.
const columnsMost = 5

// WriteMarkdown writes the table, as several if it is wide, an empty line before each.
func (g *Table) WriteMarkdown(w io.Writer) error {
	if len(g.columns) == 0 {
		return nil
	}
	var b strings.Builder
	tables := (len(g.columns) + columnsMost - 1) / columnsMost
	for some := range slices.Chunk(g.columns, (len(g.columns)+tables-1)/tables) {
		fmt.Fprintf(&b, "\n| %s |", g.corner)
		for _, c := range some {
			fmt.Fprintf(&b, " %s |", c)
		}
		fmt.Fprintf(&b, "\n|---|%s\n", strings.Repeat("---|", len(some)))
		for _, row := range g.rows {
			fmt.Fprintf(&b, "| %s |", row)
			for _, c := range some {
				fmt.Fprintf(&b, " %s |", g.cells[[2]string{row, c}])
			}
			b.WriteString("\n")
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// lineMost is how many characters a line of text has.
const lineMost = 100

// WriteText writes lines as text behind a table, an empty line before it: wrapped, and a line that
// begins with "* " as a paragraph of its own. No text writes nothing.
func WriteText(w io.Writer, text string) error {
	var b strings.Builder
	column := 0
	for line := range strings.Lines(text) {
		if note := strings.HasPrefix(line, "* "); note || b.Len() == 0 {
			b.WriteString(strings.Repeat("\n", min(b.Len(), 1)+1))
			if column = 0; note {
				line = `\` + line
			}
		}
		for word := range strings.FieldsSeq(line) {
			n := utf8.RuneCountInString(word)
			switch {
			case column == 0:
			case column+1+n > lineMost:
				b.WriteString("\n")
				column = 0
			default:
				b.WriteString(" ")
				column++
			}
			b.WriteString(word)
			column += n
		}
	}
	if b.Len() > 0 {
		b.WriteString("\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Cell is a published value beside the model's: published/model (error in %). Without a published
// value it is the model's alone.
func Cell(was, model float64) string {
	if !(was > 0) {
		return number(model)
	}
	return fmt.Sprintf("%s/%s (%+.0f)", number(was), number(model), 100*(model/was-1))
}

// number has three digits.
func number(v float64) string {
	if v >= 1000 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}
