package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"txnode/internal/mutant"
)

const engine = `package engine

// Commit makes a transaction durable before it is visible.
func Commit(log, install func()) {
	log()
	install()
}
`

// write writes files below a directory.
func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for path, text := range files {
		file := filepath.Join(dir, filepath.FromSlash(path))
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// read is what stands in a file.
func read(t *testing.T, path ...string) string {
	t.Helper()
	p, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return string(p)
}

// TestEdit: a mutation is made from copies, made anew by itself when what is around it changes, and
// left to be edited when what it changes does.
func TestEdit(t *testing.T) {
	root := t.TempDir()
	write(t, root, map[string]string{
		"go.mod": "module engine\n\ngo 1.26.0\n", "core/engine.go": engine, mutant.Dir + "/other.patch": "",
	})
	e := editor{root: root, dir: filepath.Join(t.TempDir(), "late-log")}
	copied := filepath.Join(e.dir, "core", "engine.go")
	patch := filepath.Join(root, filepath.FromSlash(mutant.Dir), "late-log.patch")

	m := mutant.Mutation{Name: "late-log", Breaks: "Write it here."}
	if err := e.edit(&m, nil); err == nil || !strings.Contains(err.Error(), "FILE") {
		t.Fatalf("without a file: %v", err)
	}
	if err := e.edit(&m, []string{"core/engine.go"}); err != nil {
		t.Fatal(err)
	}
	if err := e.save(m.Name); err == nil || !strings.Contains(err.Error(), "changes nothing") {
		t.Fatalf("nothing was edited: %v", err)
	}
	write(t, e.dir, map[string]string{
		"core/engine.go": strings.Replace(engine, "\tlog()\n", "\tnothing()\n", 1), sentence: "The log comes\nlate.\n",
	})
	if err := e.save(m.Name); err == nil || !strings.Contains(err.Error(), "late-log does not compile") ||
		!strings.Contains(err.Error(), "undefined: nothing") {
		t.Fatalf("what was edited does not compile: %v", err)
	}
	write(t, e.dir, map[string]string{"core/engine.go": strings.Replace(engine, "\tlog()\n\tinstall()\n",
		"\tinstall()\n\tlog()\n", 1)})
	if err := e.save(m.Name); err != nil {
		t.Fatal(err)
	}
	saved := read(t, patch)
	if m, err := mutant.Parse(m.Name, saved); err != nil || m.Breaks != "The log comes late." || m.Text() != saved {
		t.Fatalf("%v\n%s", err, saved)
	}

	refresh := func(text string) bool {
		t.Helper()
		write(t, root, map[string]string{"core/engine.go": text})
		m, err := mutant.Parse("late-log", read(t, patch))
		if err != nil {
			t.Fatal(err)
		}
		ok, err := e.refresh(&m)
		if err != nil {
			t.Fatal(err)
		}
		return ok
	}
	if !refresh("// Above.\n"+engine) || read(t, patch) != saved {
		t.Errorf("a patch that applies has changed:\n%s", read(t, patch))
	}
	renamed := strings.Replace(engine, "func Commit", "func Publish", 1)
	if !refresh(renamed) || !strings.Contains(read(t, patch), " func Publish") {
		t.Errorf("not made anew:\n%s", read(t, patch))
	}
	m, _ = mutant.Parse("late-log", read(t, patch))
	if texts, err := m.Apply(root); err != nil || !strings.Contains(texts["core/engine.go"], "\tinstall()\n\tlog()\n") {
		t.Errorf("%v\n%v", err, texts)
	}
	if refresh(strings.ReplaceAll(renamed, "log()", "logAll()")) || !strings.Contains(read(t, copied), "logAll()") ||
		read(t, e.dir, sentence) != "The log comes late.\n" {
		t.Errorf("what does not apply is not left to be edited:\n%s", read(t, copied))
	}
}
