package txn_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestReadmeShowsWhatIsTested: every piece of Go in README.md is part of an example of
// this package, but for spaces and line breaks.
func TestReadmeShowsWhatIsTested(t *testing.T) {
	files, err := filepath.Glob("example*_test.go")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	words := func(file string) string {
		p, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return string(p)
	}
	examples := ""
	for _, f := range files {
		examples += strings.Join(strings.Fields(words(f)), " ") + " "
	}
	pieces := strings.Split(words("../README.md"), "```go\n")[1:]
	if len(pieces) < 2 {
		t.Fatalf("README.md has %d pieces of Go", len(pieces))
	}
	for _, p := range pieces {
		p, _, _ = strings.Cut(p, "```")
		if !strings.Contains(examples, strings.Join(strings.Fields(p), " ")) {
			t.Errorf("in README.md and in no example:\n%s", p)
		}
	}
}
