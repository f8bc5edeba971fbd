package depcheck

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
)

const ruleReferences = "references"

var (
	// linkTo is the target of a link: ](page.md#part).
	linkTo = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	// quoted is a name between backquotes.
	quoted = regexp.MustCompile("`([A-Za-z0-9_./-]+)`")
	// heading is one that a link may lead to.
	heading = regexp.MustCompile(`^#+ +(.*)`)
	// test is the name of a test, or the beginning of several, as in a pattern.
	test = regexp.MustCompile(`\b(?:Test|Fuzz|Benchmark)[A-Z]\w*`)
	// testFunc declares one.
	testFunc = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)[A-Z]\w*)\(`)
	// made is a call of make, between backquotes or in an indented line.
	made = regexp.MustCompile("(?:`|^    )make ([^`#]*)")
	// target is a line of a Makefile that says how to make something.
	target = regexp.MustCompile(`(?m)^([a-z-]+):`)
	// notInAnchor is what the anchor of a heading leaves out.
	notInAnchor = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// References checks the Markdown pages below the root of fsys: that their relative
// links lead to files, and to headings that there are; and that what they call by a
// path between backquotes, beginning with a directory of the root, is there. What
// .gitignore'd tools make (bin) need not be. Tests that they name must be there, in
// whatever package, and so must what they say to make.
func References(fsys fs.FS) ([]Finding, error) {
	r := references{fsys: fsys, tops: map[string]bool{}, anchors: map[string]map[string]bool{}}
	if err := r.makefile(); err != nil {
		return nil, fmt.Errorf("depcheck: reading the Makefile: %w", err)
	}
	var pages []string
	entries, err := fs.ReadDir(fsys, ".")
	if err != nil {
		return nil, fmt.Errorf("depcheck: reading the source tree: %w", err)
	}
	for _, e := range entries {
		r.tops[e.Name()] = e.IsDir() && e.Name() != "bin"
	}
	err = fs.WalkDir(fsys, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && name != "." && (ignoredDir(path.Base(name)) || name == "bin"):
			return fs.SkipDir
		case entry.IsDir():
			return nil
		case path.Ext(name) == ".md":
			pages = append(pages, name)
		case strings.HasSuffix(name, "_test.go"):
			return r.testFile(name)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("depcheck: reading the source tree: %w", err)
	}
	for _, name := range pages {
		if err := r.page(name); err != nil {
			return nil, fmt.Errorf("depcheck: reading pages: %w", err)
		}
	}
	return r.findings, nil
}

type references struct {
	fsys     fs.FS
	tops     map[string]bool            // directories of the root
	anchors  map[string]map[string]bool // of pages that links lead to
	tests    []string                   // names, of all packages
	targets  []string                   // of the Makefile
	findings []Finding
}

func (r *references) makefile() error {
	text, err := fs.ReadFile(r.fsys, "Makefile")
	for _, m := range target.FindAllSubmatch(text, -1) {
		r.targets = append(r.targets, string(m[1]))
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func (r *references) testFile(name string) error {
	text, err := fs.ReadFile(r.fsys, name)
	for _, m := range testFunc.FindAllSubmatch(text, -1) {
		r.tests = append(r.tests, string(m[1]))
	}
	return err
}

func (r *references) page(name string) error {
	text, err := fs.ReadFile(r.fsys, name)
	if err != nil {
		return err
	}
	block := false // of code
	for i, line := range strings.Split(string(text), "\n") {
		if strings.HasPrefix(line, "```") {
			block = !block
		}
		if block {
			continue
		}
		report := func(format string, args ...any) {
			r.findings = append(r.findings, Finding{File: name, Line: i + 1, Rule: ruleReferences, Text: fmt.Sprintf(format, args...)})
		}
		for _, m := range linkTo.FindAllStringSubmatch(line, -1) {
			if err := r.link(name, m[1], report); err != nil {
				return err
			}
		}
		for _, name := range test.FindAllString(line, -1) {
			if !slices.ContainsFunc(r.tests, func(t string) bool { return strings.HasPrefix(t, name) }) {
				report("no test is called %s; name what took its place", name)
			}
		}
		for _, m := range made.FindAllStringSubmatch(line, -1) {
			for _, word := range strings.Fields(m[1]) {
				if strings.Contains(word, "=") {
					break // variables, whose values may have spaces
				}
				if !slices.Contains(r.targets, word) {
					report("the Makefile has no %s; name what took its place", word)
				}
			}
		}
		for _, m := range quoted.FindAllStringSubmatch(line, -1) {
			first, _, below := strings.Cut(m[1], "/")
			if below && r.tops[first] && !r.exists(m[1]) {
				report("there is no %s; name what took its place", m[1])
			}
		}
	}
	return nil
}

// link follows a link of a page.
func (r *references) link(page, target string, report func(string, ...any)) error {
	if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
		return nil
	}
	file, anchor, _ := strings.Cut(target, "#")
	to := page
	if file != "" {
		to = path.Join(path.Dir(page), file)
	}
	if !r.exists(to) {
		report("the link leads to %s, which is not there", to)
		return nil
	}
	if anchor == "" || path.Ext(to) != ".md" {
		return nil
	}
	if r.anchors[to] == nil {
		text, err := fs.ReadFile(r.fsys, to)
		if err != nil {
			return err
		}
		r.anchors[to] = anchorsOf(string(text))
	}
	if !r.anchors[to][anchor] {
		report("the link leads to %s, where no heading is called #%s", to, anchor)
	}
	return nil
}

// exists says whether a file or directory is there, or, for index/race.Index, the
// package.
func (r *references) exists(name string) bool {
	for _, n := range []string{name, strings.TrimSuffix(name, path.Ext(name))} {
		if n = path.Clean(n); fs.ValidPath(n) {
			if _, err := fs.Stat(r.fsys, n); err == nil {
				return true
			}
		}
	}
	return false
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
