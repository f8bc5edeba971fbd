package docscheck

import (
	"path"
	"strings"
	"unicode/utf8"
)

// Limits of pages.
const (
	maxColumns = 100
	maxPage    = 16 << 10 // bytes
	maxReadme  = 10 << 10 // of README.md in the root
)

// shape checks sizes and line lengths.
func (c *checker) shape(name, text string) {
	limit := maxPage
	if name == "README.md" {
		limit = maxReadme
	}
	if len(text) > limit {
		c.report(name, 1,
			"the page has %d bytes, %d are the limit: it answers more than one question, so cut it in two",
			len(text), limit)
	}
	for _, p := range parse(text) {
		if p.kind != prose {
			continue
		}
		for i, l := range p.lines {
			if n := utf8.RuneCountInString(l); n > maxColumns && !strings.Contains(l, "://") &&
				!strings.HasPrefix(l, "<!--") {
				c.report(name, p.first+i, "the line has %d columns, %d are the limit: wrap it", n, maxColumns)
			}
		}
	}
}

// reached checks that every page of docs can be reached from README.md by links.
func (c *checker) reached() {
	seen := map[string]bool{}
	next := []string{"README.md"}
	for len(next) > 0 {
		page := next[0]
		next = next[1:]
		if !seen[page] {
			seen[page] = true
			next = append(next, c.links[page]...)
		}
	}
	for _, name := range c.tree.pages {
		if path.Dir(name) == "docs" && !seen[name] {
			c.report(name, 1, "no link leads here from README.md: add one to docs/README.md")
		}
	}
}
