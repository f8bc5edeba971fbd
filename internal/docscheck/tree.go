package docscheck

import (
	"errors"
	"io/fs"
	"path"
	"regexp"
	"strings"
)

var (
	// declared is the declaration of a test.
	declared = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark|Example)\w*)\(`)
	// target is a line of a Makefile that says how to make something.
	target = regexp.MustCompile(`(?m)^([a-z-]+):`)
	// variable is a line of a Makefile that says what a variable is by default.
	variable = regexp.MustCompile(`(?m)^([A-Z_]+) *[?:]?=`)
)

// A tree is what pages may name.
type tree struct {
	fsys      fs.FS
	tops      map[string]bool            // directories of the root
	pages     []string                   // in order
	text      map[string]string          // of the pages
	heads     map[string]map[string]bool // anchors of pages that links lead to
	tests     []testFunc                 // of all packages
	sources   map[string][]string        // Go files of a directory
	targets   map[string]bool            // of the Makefile
	variables map[string]bool            // of the Makefile
}

// A testFunc is a test, benchmark, fuzz test or example.
type testFunc struct{ dir, name string }

// load reads a source tree. What tools make (bin), and what the go tool leaves out, is not looked
// at.
func load(fsys fs.FS) (*tree, error) {
	t := &tree{
		fsys: fsys, tops: map[string]bool{}, text: map[string]string{}, heads: map[string]map[string]bool{},
		sources: map[string][]string{}, targets: map[string]bool{}, variables: map[string]bool{},
	}
	entries, err := fs.ReadDir(fsys, ".")
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		t.tops[e.Name()] = e.IsDir() && e.Name() != "bin"
	}
	if err := t.makefile(); err != nil {
		return nil, err
	}
	return t, fs.WalkDir(fsys, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && name != "." && ignored(name):
			return fs.SkipDir
		case entry.IsDir():
			return nil
		}
		return t.file(name)
	})
}

func ignored(dir string) bool {
	base := path.Base(dir)
	return base == "testdata" || base == "vendor" || base[0] == '.' || base[0] == '_' || dir == "bin"
}

// file takes note of a file.
func (t *tree) file(name string) error {
	ext := path.Ext(name)
	if ext != ".md" && ext != ".go" {
		return nil
	}
	text, err := fs.ReadFile(t.fsys, name)
	if err != nil {
		return err
	}
	dir := path.Dir(name)
	switch {
	case ext == ".md":
		t.pages = append(t.pages, name)
		t.text[name] = string(text)
		return nil
	case strings.HasSuffix(name, "_test.go"):
		for _, m := range declared.FindAllSubmatch(text, -1) {
			t.tests = append(t.tests, testFunc{dir, string(m[1])})
		}
	}
	t.sources[dir] = append(t.sources[dir], name)
	return nil
}

func (t *tree) makefile() error {
	text, err := fs.ReadFile(t.fsys, "Makefile")
	for _, m := range target.FindAllSubmatch(text, -1) {
		t.targets[string(m[1])] = true
	}
	for _, m := range variable.FindAllSubmatch(text, -1) {
		t.variables[string(m[1])] = true
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// exists says whether a file or directory is there, or, for index/race.Index, the package.
func (t *tree) exists(name string) bool {
	for _, n := range []string{name, strings.TrimSuffix(name, path.Ext(name))} {
		if n = path.Clean(n); fs.ValidPath(n) {
			if _, err := fs.Stat(t.fsys, n); err == nil {
				return true
			}
		}
	}
	return false
}

// anchors are those of a page.
func (t *tree) anchors(page string) map[string]bool {
	if t.heads[page] == nil {
		t.heads[page] = anchorsOf(t.text[page])
	}
	return t.heads[page]
}

// packages are the directories with Go files that a pattern of the go tool means, seen from a
// directory: ./txn, ./txn/..., txnode/txn.
func (t *tree) packages(from, pattern string) []string {
	pattern, all := strings.CutSuffix(pattern, "...")
	dir := path.Join(from, pattern)
	if rest, ok := strings.CutPrefix(pattern, "txnode/"); ok {
		dir = path.Clean(rest)
	}
	var out []string
	for d := range t.sources {
		if d == dir || all && (dir == "." || strings.HasPrefix(d, dir+"/")) {
			out = append(out, d)
		}
	}
	return out
}

// mentions says whether a Go file of one of the directories has a string of this content: that of a
// flag, where it is declared.
func (t *tree) mentions(dirs []string, content string) bool {
	for _, d := range dirs {
		for _, name := range t.sources[d] {
			if text, err := fs.ReadFile(t.fsys, name); err == nil && strings.Contains(string(text), `"`+content+`"`) {
				return true
			}
		}
	}
	return false
}
