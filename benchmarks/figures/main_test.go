package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"txnode/cmd/txnode/command"
)

func TestReplace(t *testing.T) {
	const page = "a\n<!-- txnode sim x -->\nold\n<!-- end -->\nb\n<!-- txnode sim y -->\n<!-- end -->\n"
	got, err := replace(page, "sim y", "\n| t |\n")
	if err != nil {
		t.Fatal(err)
	}
	if want := strings.Replace(page, "sim y -->\n", "sim y -->\n\n| t |\n\n", 1); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	again, err := replace(got, "sim x", "new")
	if err != nil || !strings.Contains(again, "sim x -->\n\nnew\n\n<!-- end -->\nb") || strings.Contains(again, "old") {
		t.Errorf("%v: %q", err, again)
	}
	for _, command := range []string{"sim z", "sim"} {
		if _, err := replace(page, command, ""); err == nil {
			t.Errorf("%s: replaced", command)
		}
	}
	if _, err := replace("<!-- txnode sim x -->\nold\n", "sim x", ""); err == nil {
		t.Error("replaced without an end")
	}
}

// The tables of the pages are printed by commands that there are.
func TestPages(t *testing.T) {
	pages, err := filepath.Glob(filepath.Join("..", "..", "docs", "simulator-*.md"))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, page := range pages {
		commands, err := commandsOf(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range commands {
			n++
			c, rest, err := command.Root().Find(strings.Fields(line))
			if err != nil {
				t.Errorf("%s: txnode %s: %v", page, line, err)
				continue
			}
			if err := c.ParseFlags(append(slices.Clone(rest), "--markdown")); err != nil {
				t.Errorf("%s: txnode %s: %v", page, line, err)
			}
		}
	}
	if n < 2 {
		t.Errorf("%d tables", n)
	}
	file := filepath.Join(t.TempDir(), "page.md")
	if err := os.WriteFile(file, []byte("<!-- txnode sim x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := commandsOf(file); err == nil {
		t.Error("a comment that does not end is none")
	}
}
