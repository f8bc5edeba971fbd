package docscheck

import (
	"path"
	"regexp"
	"slices"
	"strings"
)

var (
	// linkTo is the target of a link: ](page.md#part).
	linkTo = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	// quoted is a name between backquotes.
	quoted = regexp.MustCompile("`([A-Za-z0-9_./-]+)`")
	// heading is one that a link may lead to.
	heading = regexp.MustCompile(`^#+ +(.*)`)
	// test is the name of a test, or the beginning of several, as in a pattern.
	test = regexp.MustCompile(`\b(?:Test|Fuzz|Benchmark)[A-Z]\w*`)
	// notInAnchor is what the anchor of a heading leaves out.
	notInAnchor = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// linksOf follows the links of a piece.
func (c *checker) linksOf(page string, p piece) {
	for i, l := range p.lines {
		for _, m := range linkTo.FindAllStringSubmatch(l, -1) {
			c.link(page, p.first+i, m[1])
		}
	}
}

// link follows one link.
func (c *checker) link(page string, line int, target string) {
	if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
		return
	}
	file, anchor, _ := strings.Cut(target, "#")
	to := page
	if file != "" {
		to = path.Join(path.Dir(page), file)
	}
	if !c.tree.exists(to) {
		c.report(page, line, "the link leads to %s, which is not there", to)
		return
	}
	if path.Ext(to) != ".md" {
		return
	}
	if c.links == nil {
		c.links = map[string][]string{}
	}
	c.links[page] = append(c.links[page], to)
	if anchor != "" && !c.tree.anchors(to)[anchor] {
		c.report(page, line, "the link leads to %s, where no heading is called #%s", to, anchor)
	}
}

// namesOf checks the files and tests that a piece names.
func (c *checker) namesOf(page string, p piece) {
	for i, l := range p.lines {
		for _, name := range test.FindAllString(l, -1) {
			if !slices.ContainsFunc(c.tree.tests, func(t testFunc) bool { return strings.HasPrefix(t.name, name) }) {
				c.report(page, p.first+i, "no test is called %s; name what took its place", name)
			}
		}
		for _, m := range quoted.FindAllStringSubmatch(l, -1) {
			first, _, below := strings.Cut(m[1], "/")
			if below && c.tree.tops[first] && !standIn.MatchString(m[1]) && !c.tree.exists(m[1]) {
				c.report(page, p.first+i, "there is no %s; name what took its place", m[1])
			}
		}
	}
}

// anchorsOf are the names of the headings of a page, as GitHub makes them.
func anchorsOf(text string) map[string]bool {
	out := map[string]bool{}
	for line := range strings.Lines(text) {
		if m := heading.FindStringSubmatch(strings.TrimSpace(line)); m != nil {
			name := notInAnchor.ReplaceAllString(strings.ToLower(m[1]), "")
			out[strings.ReplaceAll(strings.TrimSpace(name), " ", "-")] = true
		}
	}
	return out
}
