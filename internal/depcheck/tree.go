package depcheck

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// A Finding is one place where the repository breaks a rule.
type Finding struct {
	File string // slash-separated, relative to the root given to Load
	Line int    // 1-based; 1 when the finding is about the whole file
	Rule string // "layering", "determinism" or "documentation"
	Text string // what is wrong and what to do instead
}

// String prints a finding as compilers do, so that editors can jump to it.
func (f Finding) String() string {
	return fmt.Sprintf("%s:%d: %s: %s", f.File, f.Line, f.Rule, f.Text)
}

// A Package is the set of Go files of one directory, tests left out.
type Package struct {
	// Dir is slash-separated and relative to the root: "index/race"; "." for
	// the root itself. The import path is the module path, a slash, and Dir.
	Dir   string
	Name  string
	Files []File // non-test files, sorted by path; empty for a directory of tests alone
}

// A File is one parsed non-test source file.
type File struct {
	Path string // relative to the root of Load
	AST  *ast.File
	fset *token.FileSet
}

// line gives the line number of a position in this file.
func (f *File) line(pos token.Pos) int { return f.fset.Position(pos).Line }

// finding reports a breach of rule at pos.
func (f *File) finding(pos token.Pos, rule, format string, args ...any) Finding {
	return Finding{File: f.Path, Line: f.line(pos), Rule: rule, Text: fmt.Sprintf(format, args...)}
}

// testOnly tells a package that exists for tests: a conformance suite or a
// fault injector that test files import.
func (p *Package) testOnly() bool {
	return strings.HasSuffix(path.Base(p.Dir), "test")
}

// Load parses the packages below the root of fsys, sorted by directory. It
// follows the go tool in what it leaves out: directories named testdata or
// vendor, and files and directories that begin with a dot or an underscore.
// Unlike the go tool it enters nested modules, since the rules hold there too.
// A file that does not parse is an error, since nothing can be said about it.
func Load(fsys fs.FS) ([]Package, error) {
	var packages []Package
	fset := token.NewFileSet()
	err := fs.WalkDir(fsys, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if !entry.IsDir() {
			return nil
		}
		if name != "." && ignoredDir(path.Base(name)) {
			return fs.SkipDir
		}
		p, found, err := loadDir(fsys, fset, name)
		if found {
			packages = append(packages, p)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("depcheck: reading the source tree: %w", err)
	}
	slices.SortFunc(packages, func(a, b Package) int { return cmp.Compare(a.Dir, b.Dir) })
	return packages, nil
}

func ignoredDir(base string) bool {
	return base == "testdata" || base == "vendor" || base[0] == '.' || base[0] == '_'
}

// loadDir parses the files of one directory; found says whether it holds any
// Go file at all, tests included.
func loadDir(fsys fs.FS, fset *token.FileSet, dir string) (p Package, found bool, err error) {
	entries, err := fs.ReadDir(fsys, dir)
	if err != nil {
		return p, false, err
	}
	p.Dir = dir
	for _, e := range entries {
		base := e.Name()
		if e.IsDir() || path.Ext(base) != ".go" || base[0] == '.' || base[0] == '_' {
			continue
		}
		found = true
		if strings.HasSuffix(base, "_test.go") {
			continue
		}
		name := path.Join(dir, base)
		source, err := fs.ReadFile(fsys, name)
		if err != nil {
			return p, found, err
		}
		tree, err := parser.ParseFile(fset, name, source, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return p, found, err
		}
		p.Name = tree.Name.Name
		p.Files = append(p.Files, File{Path: name, AST: tree, fset: fset})
	}
	return p, found, nil
}

// Check applies every rule to the packages of the module with the given path
// and returns the findings in order of file and line.
func Check(module string, packages []Package) []Finding {
	findings := slices.Concat(
		Layering(module, packages),
		Determinism(packages),
		Documentation(packages),
	)
	slices.SortStableFunc(findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
	})
	return findings
}
