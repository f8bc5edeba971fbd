package mutant_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// declared lists the names that a file of this package declares in its only block.
func declared(t *testing.T, file string) (names []string) {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range f.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, s := range g.Specs {
			if v, ok := s.(*ast.ValueSpec); ok {
				for _, n := range v.Names {
					names = append(names, n.Name)
				}
			}
		}
	}
	return names
}

// TestLists: both builds know the same mutations, and each is used somewhere.
func TestLists(t *testing.T) {
	on, off := declared(t, "list_on.go"), declared(t, "list_off.go")
	if !slices.Equal(on, off) {
		t.Errorf("the builds differ:\n%v\n%v", on, off)
	}
	used := map[string]bool{}
	use := regexp.MustCompile(`\bmutant\.([A-Z]\w*)`)
	err := filepath.WalkDir(filepath.Join("..", ".."), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		p, err := os.ReadFile(path)
		for _, m := range use.FindAllSubmatch(p, -1) {
			used[string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range off {
		if !used[n] {
			t.Errorf("%s is used nowhere", n)
		}
	}
}
