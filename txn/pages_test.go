package txn_test

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"txnode/txn"
)

// page reads a page of the repository.
func page(t *testing.T, name string) string {
	t.Helper()
	p, err := os.ReadFile(filepath.Join("..", filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return string(p)
}

// TestPagesShowWhatIsTested: every piece of Go in README.md and in the guide is part of an example
// of this package, but for spaces and line breaks.
func TestPagesShowWhatIsTested(t *testing.T) {
	files, err := filepath.Glob("example*_test.go")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	examples := ""
	for _, f := range files {
		examples += strings.Join(strings.Fields(page(t, "txn/"+f)), " ") + " "
	}
	for name, atLeast := range map[string]int{"README.md": 1, "docs/guide.md": 5} {
		pieces := strings.Split(page(t, name), "```go\n")[1:]
		if len(pieces) < atLeast {
			t.Fatalf("%s has %d pieces of Go", name, len(pieces))
		}
		for _, p := range pieces {
			p, _, _ = strings.Cut(p, "```")
			if !strings.Contains(examples, strings.Join(strings.Fields(p), " ")) {
				t.Errorf("in %s and in no example:\n%s", name, p)
			}
		}
	}
}

// TestGuideNamesAll: the guide names every option and every error of the package.
func TestGuideNamesAll(t *testing.T) {
	guide := page(t, "docs/guide.md")
	options := reflect.TypeFor[txn.Options]()
	for i := range options.NumField() {
		if name := options.Field(i).Name; !strings.Contains(guide, "`"+name+"`") {
			t.Errorf("docs/guide.md does not name the option %s; add it to the table of options", name)
		}
	}
	declared := regexp.MustCompile(`(?m)^\t(Err\w+) += `).FindAllStringSubmatch(page(t, "txn/errors.go"), -1)
	if len(declared) < 20 {
		t.Fatalf("%d errors were found in errors.go: it is written in another way", len(declared))
	}
	for _, m := range declared {
		if !strings.Contains(guide, "`"+m[1]+"`") {
			t.Errorf("docs/guide.md does not name %s; add it to the table of errors", m[1])
		}
	}
}
