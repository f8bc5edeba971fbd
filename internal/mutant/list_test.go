package mutant_test

import (
	"fmt"
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

// read reads a file that is so far from here.
func read(t *testing.T, path ...string) string {
	t.Helper()
	p, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return string(p)
}

// TestCatchers: hunt knows a test for each mutation, and that test is there.
func TestCatchers(t *testing.T) {
	wanted := map[string]bool{}
	for _, m := range regexp.MustCompile(`= mutation\("([^"]+)"`).FindAllStringSubmatch(read(t, "list_on.go"), -1) {
		wanted[m[1]] = true
	}
	first := regexp.MustCompile(`-test\.run \^?(\w+)`)
	for _, line := range strings.Split(strings.TrimSpace(read(t, "hunt", "catchers.txt")), "\n") {
		if strings.HasPrefix(line, "#") {
			continue
		}
		words := strings.Fields(line)
		if !wanted[words[0]] {
			t.Errorf("%s is no mutation, or has two catchers", words[0])
		}
		delete(wanted, words[0])
		tests, err := filepath.Glob(filepath.Join("..", "..", filepath.FromSlash(words[1]), "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		name := first.FindStringSubmatch(line)
		if name == nil || !slices.ContainsFunc(tests, func(f string) bool { return strings.Contains(read(t, f), "func "+name[1]+"(t ") }) {
			t.Errorf("no such test in %s: %s", words[1], line)
		}
	}
	for name := range wanted {
		t.Errorf("%s has no line in hunt/catchers.txt", name)
	}
}

// TestPagesCount: the pages that say how many mutations there are say the right number.
func TestPagesCount(t *testing.T) {
	n := len(declared(t, "list_off.go"))
	for page, text := range map[string]string{"promises.md": "%d deliberate mistakes", "verification.md": "%d wrong versions"} {
		if want := fmt.Sprintf(text, n); !strings.Contains(read(t, "..", "..", "docs", page), want) {
			t.Errorf("docs/%s does not say %q", page, want)
		}
	}
}
