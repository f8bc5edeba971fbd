package docscheck

import (
	"cmp"
	"fmt"
	"io/fs"
	"path"
	"slices"

	"github.com/spf13/cobra"
)

// A Finding is one place where a page is wrong.
type Finding struct {
	File string // slash-separated, relative to the root
	Line int    // 1-based; 1 when the finding is about the whole page
	Text string // what is wrong
}

// String prints a finding as compilers do, so that editors can jump to it.
func (f Finding) String() string { return fmt.Sprintf("%s:%d: %s", f.File, f.Line, f.Text) }

// Options of Check.
type Options struct {
	// Txnode is the tree of the program's commands; nil: its command lines are not looked at.
	Txnode *cobra.Command
	// FlagsPage is the page whose flags between backquotes, without a command, are those of some
	// command of Txnode. Other pages name flags of other programs, too.
	FlagsPage string
}

// Check reads the pages below the root of fsys, and returns what is wrong with them in order of
// file and line. An error says that the tree could not be read.
func Check(fsys fs.FS, o Options) ([]Finding, error) {
	t, err := load(fsys)
	if err != nil {
		return nil, fmt.Errorf("docscheck: reading the source tree: %w", err)
	}
	c := &checker{tree: t, o: o}
	for _, name := range t.pages {
		c.page(name)
	}
	c.reached()
	slices.SortStableFunc(c.findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
	})
	return c.findings, nil
}

type checker struct {
	tree     *tree
	o        Options
	findings []Finding
	links    map[string][]string // from a page to the pages that it links to
}

func (c *checker) report(file string, line int, format string, args ...any) {
	c.findings = append(c.findings, Finding{File: file, Line: line, Text: fmt.Sprintf(format, args...)})
}

// page checks one page.
func (c *checker) page(name string) {
	text := c.tree.text[name]
	if path.Base(name) != "CHANGELOG.md" {
		c.shape(name, text)
	}
	for _, p := range parse(text) {
		switch p.kind {
		case prose, table:
			c.linksOf(name, p)
			c.namesOf(name, p)
			for _, s := range p.spans() {
				c.commandLine(name, s.line, s.text)
				c.flagAlone(name, s.line, s.text)
			}
		case indented, shell:
			if p.kind == indented {
				c.namesOf(name, p)
			}
			for i, l := range p.lines {
				c.commandLine(name, p.first+i, l)
			}
		case other:
		}
	}
}
