package mutant_test

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"txnode/internal/mutant"
)

var root = filepath.Join("..", "..")

func all(t *testing.T) []mutant.Mutation {
	t.Helper()
	all, err := mutant.All(root)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestPatchesApply: each patch applies to the engine as it is, and changes something in files of
// the engine, not of tests.
func TestPatchesApply(t *testing.T) {
	for _, m := range all(t) {
		changed, err := m.Apply(root)
		if err != nil {
			t.Errorf("%v\nMake the patch anew: go run ./internal/mutant/hunt -only '^%s$' -refresh", err, m.Name)
			continue
		}
		for path, text := range changed {
			if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") ||
				strings.HasPrefix(path, "internal/mutant/") {
				t.Errorf("%s changes %s, which is no part of the engine", m.File(), path)
			}
			if text == read(t, root, path) {
				t.Errorf("%s does not change %s", m.File(), path)
			}
		}
	}
}

// TestPatchesAreAsWritten: a patch is written as hunt writes it, so that making it anew changes
// only what the engine has changed.
func TestPatchesAreAsWritten(t *testing.T) {
	sentences := map[string]string{}
	for _, m := range all(t) {
		again, err := mutant.Parse(m.Name, m.Text())
		if err != nil || again.Text() != m.Text() {
			t.Errorf("%s: what is written is not what was read: %v", m.File(), err)
		}
		if got := read(t, root, m.File()); got != m.Text() {
			t.Errorf("%s is not written as hunt -save would write it", m.File())
		}
		if !strings.HasSuffix(m.Breaks, ".") {
			t.Errorf("%s: %q is no sentence", m.File(), m.Breaks)
		}
		if other := sentences[m.Breaks]; other != "" {
			t.Errorf("%s and %s say the same", other, m.File())
		}
		sentences[m.Breaks] = m.File()
	}
	// Nothing else lies there: a misspelt extension would take a mutation out of the hunt.
	names, err := os.ReadDir(filepath.Join(root, filepath.FromSlash(mutant.Dir)))
	if err != nil || len(names) != len(sentences) {
		t.Errorf("%s has %d files, for %d patches: %v", mutant.Dir, len(names), len(sentences), err)
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
	for _, m := range all(t) {
		wanted[m.Name] = true
	}
	first := regexp.MustCompile(`-test\.run \^?(\w+)`)
	for line := range strings.Lines(read(t, "hunt", "catchers.txt")) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		words := strings.Fields(line)
		if !wanted[words[0]] {
			t.Errorf("%s is no mutation, or has two catchers", words[0])
		}
		delete(wanted, words[0])
		tests, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(words[1]), "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		name := first.FindStringSubmatch(line)
		if name == nil || !slices.ContainsFunc(tests, func(f string) bool {
			return strings.Contains(read(t, f), "func "+name[1]+"(t ")
		}) {
			t.Errorf("no such test in %s: %s", words[1], line)
		}
	}
	for name := range wanted {
		t.Errorf("%s has no line in hunt/catchers.txt", name)
	}
}

const engine = `package engine

func commit() {
	log()
	install()
	release()
}

func abort() {
	undo()
	release()
}

func log()     {}
func install() {}
func undo()    {}
func release() {}
`

// mutate is the patch of an edit of the engine above.
func mutate(t *testing.T, replacements ...string) mutant.File {
	t.Helper()
	f, ok := mutant.Diff("engine.go", engine, strings.NewReplacer(replacements...).Replace(engine))
	if !ok {
		t.Fatal("nothing is replaced")
	}
	return f
}

// TestDiff: a diff is what git apply takes, and gives the text that it was made from.
func TestDiff(t *testing.T) {
	f := mutate(t, "\tlog()\n\tinstall()\n", "\tinstall()\n\tlog()\n", "func release() {}",
		"func release() { panic(1) }")
	m := mutant.Mutation{Name: "late-log", Breaks: "The log comes late.", Files: []mutant.File{f}}
	want := `The log comes late.

--- a/engine.go
+++ b/engine.go
@@ -1,8 +1,8 @@
 package engine
 
 func commit() {
-	log()
 	install()
+	log()
 	release()
 }
 
@@ -14,4 +14,4 @@
 func log()     {}
 func install() {}
 func undo()    {}
-func release() {}
+func release() { panic(1) }
`
	if got := m.Text(); got != want {
		t.Errorf("%s", got)
	}
}

// TestApply: a hunk goes where its lines are, and nowhere if that is not clear.
func TestApply(t *testing.T) {
	abort := mutate(t, "\tundo()\n\trelease()\n", "\trelease()\n\tundo()\n")
	for name, c := range map[string]struct {
		text  string
		fuzz  int
		want  string // "": rejected
		patch mutant.File
	}{
		"as it was":    {engine, 0, "abort() {\n\trelease()\n\tundo()\n}", abort},
		"further down": {"// One more line.\n" + engine, 0, "abort() {\n\trelease()\n\tundo()\n}", abort},
		"further up": {
			strings.Replace(engine, "\tinstall()\n", "", 1), 0, "abort() {\n\trelease()\n\tundo()\n}", abort,
		},
		"changed context": {strings.Replace(engine, "func abort()", "func giveUp()", 1), 0, "", abort},
		"fuzzy": {
			strings.Replace(engine, "func abort()", "func giveUp()", 1), 3,
			"giveUp() {\n\trelease()\n\tundo()\n}", abort,
		},
		"changed lines":    {strings.Replace(engine, "undo()", "undoAll()", 1), 3, "", abort},
		"at two places":    {"// Shifted.\n" + engine + engine, 0, "", abort},
		"fuzzy, ambiguous": {"// Shifted.\n" + engine + engine, 3, "", abort},
		"gone":             {"package engine\n", 3, "", abort},
	} {
		t.Run(name, func(t *testing.T) {
			got, rejected := c.patch.Apply(c.text, c.fuzz)
			if (c.want == "") != (len(rejected) > 0) || len(rejected) == 0 && !strings.Contains(got, c.want) {
				t.Errorf("%d rejected\n%s", len(rejected), got)
			}
			if len(rejected) == len(c.patch.Hunks) && got != c.text {
				t.Errorf("nothing applies, and the text has changed:\n%s", got)
			}
		})
	}
}

// TestApplyNames: the error names the patch, the file and the hunk.
func TestApplyNames(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "engine.go"), []byte("package engine\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	m := mutant.Mutation{Name: "late-undo", Breaks: "x.", Files: []mutant.File{mutate(t, "\tundo()\n", "")}}
	_, err := m.Apply(dir)
	for _, want := range []string{"patches/late-undo.patch", "engine.go", "line 7", "-\tundo()"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("does not say %q: %v", want, err)
		}
	}
}

// TestParseRefuses: what is no patch is refused, and the error says why.
func TestParseRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"--- a/x.go\n+++ b/x.go\n@@ -1,1 +1,1 @@\n-a\n+b\n":     "sentence is missing",
		"\n\n--- a/x.go\n+++ b/x.go\n@@ -1,1 +1,1 @@\n-a\n+b\n": "sentence is missing",
		"Breaks.\n": "no line of a unified diff",
		"Breaks.\n\n--- a/x.go\n+++ b/y.go\n@@ @@\n":               "no line of a unified diff",
		"Breaks.\n\n--- a/x.go\n+++ b/x.go\n":                      "no change of x.go",
		"Breaks.\n\n--- a/x.go\n+++ b/x.go\n@@ -1,1 +1,1 @@\n a\n": "changes nothing",
		"Breaks.\n\n--- a/x.go\n+++ b/x.go\n@@ what @@\n a\n":      "@@ what @@",
	} {
		if _, err := mutant.Parse("name", text); err == nil || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), "name.patch") {
			t.Errorf("%q: %v, not %q", text, err, want)
		}
	}
}

// TestDiffOfAnything: for texts of few different lines, where many places look alike, a diff
// applies to where it came from, and gives where it leads.
func TestDiffOfAnything(t *testing.T) {
	texts := map[string]bool{}
	for n := 1; n < 3*3*3*3*3*3; n++ {
		text := ""
		for k := n; k > 0; k /= 3 {
			text += strings.Repeat("x\n", k%2) + string(rune('a'+k%3)) + "\n"
		}
		texts[text] = true
	}
	list := slices.Sorted(maps.Keys(texts))
	for i, from := range list {
		to := list[(i*7919+13)%len(list)]
		f, ok := mutant.Diff("x.go", from, to)
		if ok != (from != to) {
			t.Fatalf("%q to %q: %v", from, to, ok)
		}
		if got, rejected := f.Apply(from, 0); got != to || len(rejected) > 0 {
			t.Fatalf("%q to %q gives %q, %d rejected", from, to, got, len(rejected))
		}
	}
}
