package docscheck

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"txnode/cmd/txnode/command"
	"txnode/internal/depcheck"
)

// TestRepository checks the pages of this repository.
func TestRepository(t *testing.T) {
	root := os.DirFS(filepath.Join("..", ".."))
	findings, err := Check(root, Options{Txnode: command.Root(), FlagsPage: "docs/operate.md"})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range findings {
		t.Error(f)
	}
	tree, err := load(root)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d pages, beside %d targets of make and %d tests", len(tree.pages), len(tree.targets), len(tree.tests))
}

// TestOperateNamesAll: the page about running names every command.
func TestOperateNamesAll(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "operate.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, cmd := range command.Root().Commands() {
		if name := cmd.Name(); name != "help" && !strings.Contains(string(page), "`txnode "+name) {
			t.Errorf("docs/operate.md does not name txnode %s; add it to the table of commands", name)
		}
	}
}

// TestOperationsNamesFlags: the pages about clusters and daemons name every flag of the daemon, and
// of what sets clusters up.
func TestOperationsNamesFlags(t *testing.T) {
	var page []byte
	for _, name := range []string{"operations.md", "daemons.md", "status.md", "deadlines.md"} {
		p, err := os.ReadFile(filepath.Join("..", "..", "docs", name))
		if err != nil {
			t.Fatal(err)
		}
		page = append(page, p...)
	}
	for _, args := range [][]string{{"serve"}, {"cluster", "init"}, {"cluster", "status"}, {"cluster", "heal"}} {
		cmd, _, err := command.Root().Find(args)
		if err != nil {
			t.Fatal(err)
		}
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if !regexp.MustCompile(`--` + f.Name + `\b`).Match(page) {
				t.Errorf("docs/operations.md, docs/daemons.md, docs/status.md and docs/deadlines.md do not "+
					"name --%s of %s", f.Name, cmd.CommandPath())
			}
		})
	}
}

// TestEngineLines: README says how many lines the packages have that a program with package txn
// contains, to a thousand.
func TestEngineLines(t *testing.T) {
	root := os.DirFS(filepath.Join("..", ".."))
	packages, err := depcheck.Load(root)
	if err != nil {
		t.Fatal(err)
	}
	lines, todo := 0, []string{"txn"}
	for i := 0; i < len(todo); i++ {
		k := slices.IndexFunc(packages, func(p depcheck.Package) bool { return p.Dir == todo[i] })
		for _, f := range packages[k].Files {
			text, err := fs.ReadFile(root, f.Path)
			if err != nil {
				t.Fatal(err)
			}
			lines += bytes.Count(text, []byte("\n"))
			for _, spec := range f.AST.Imports {
				if dir, ours := strings.CutPrefix(strings.Trim(spec.Path.Value, `"`), "txnode/"); ours &&
					!slices.Contains(todo, dir) {
					todo = append(todo, dir)
				}
			}
		}
	}
	readme, err := fs.ReadFile(root, "README.md")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`go list -deps ./txn.*?has (\d+),000\s+lines`).FindSubmatch(readme)
	if m == nil {
		t.Fatal("README.md does not say how many lines the engine has")
	}
	if said, _ := strconv.Atoi(string(m[1])); lines < said*1000-1000 || lines > said*1000+1000 {
		t.Errorf("README.md says that the engine has %d,000 lines, but it has %d", said, lines)
	}
}

// TestRepositoryIsLookedAt: what Check is there for is found in this repository.
func TestRepositoryIsLookedAt(t *testing.T) {
	tree, err := load(os.DirFS(filepath.Join("..", "..")))
	if err != nil {
		t.Fatal(err)
	}
	called := map[string]int{}
	for _, name := range tree.pages {
		for _, p := range parse(tree.text[name]) {
			for _, l := range append(p.lines, texts(p.spans())...) {
				for _, words := range split(l) {
					if len(words) > 1 {
						called[words[0]]++
					}
				}
			}
		}
	}
	for word, atLeast := range map[string]int{"make": 20, "go": 20, "txnode": 20} {
		if called[word] < atLeast {
			t.Errorf("%d calls of %s were found: the pages are written in another way", called[word], word)
		}
	}
	if len(tree.pages) < 15 || len(tree.tests) < 500 || len(tree.targets) < 10 {
		t.Errorf("%d pages, %d tests and %d targets were found: the walk is broken",
			len(tree.pages), len(tree.tests), len(tree.targets))
	}
}

func texts(spans []span) []string {
	out := make([]string, len(spans))
	for i, s := range spans {
		out[i] = s.text
	}
	return out
}

// program is a command line for tests.
func program() *cobra.Command {
	root := &cobra.Command{Use: "txnode", Run: func(*cobra.Command, []string) {}}
	bench := &cobra.Command{Use: "bench", Run: func(*cobra.Command, []string) {}}
	small := &cobra.Command{Use: "smallbank", Run: func(*cobra.Command, []string) {}}
	small.Flags().Int("threads", 1, "")
	small.Flags().StringP("output", "o", "", "")
	check := &cobra.Command{Use: "check", Run: func(*cobra.Command, []string) {}}
	check.Flags().Bool("repair", false, "")
	bench.AddCommand(small)
	root.AddCommand(bench, check)
	return root
}

// check applies Check to a tree of pages and a few sources. "// want" marks say on which lines
// something must be found, with which words.
func check(t *testing.T, pages map[string]string) {
	t.Helper()
	files := map[string]string{
		"Makefile":    "SEEDS ?= 1\nGO := go\n\nrace: ## it\n\tgo test\n\ntest-full:\n",
		"log/ring.go": "package log\n",
		"log/ring_test.go": "package log\n\nvar _ = flag.Int(\"seeds\", 1, \"\")\n\nfunc TestRing(t *testing.T) {}\n" +
			"\nfunc TestRingIsFull(t *testing.T) {}\n\nfunc FuzzRing(f *testing.F) {}\n",
		"log/sub/a.go":  "package sub\n",
		"tool/main.go":  "package main\n\nvar _ = flag.Bool(\"only\", false, \"\")\n",
		"bin/x.md":      "[not ours](nowhere.md)\n",
		"testdata/x.md": "[not ours](nowhere.md)\n",
	}
	if pages["README.md"] == "" {
		files["README.md"] = "[pages](docs/README.md)\n"
	}
	fsys := fstest.MapFS{}
	var want []string
	for _, m := range []map[string]string{files, pages} {
		for name, text := range m {
			fsys[name] = &fstest.MapFile{Data: []byte(text)}
			for i, line := range strings.Split(text, "\n") {
				if _, words, is := strings.Cut(line, "// want "); is {
					want = append(want, fmt.Sprintf("%s:%d: %s", name, i+1, words))
				}
			}
		}
	}
	findings, err := Check(fsys, Options{Txnode: program(), FlagsPage: "docs/operate.md"})
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range want {
		place, words, _ := strings.Cut(w, ": ")
		i := slices.IndexFunc(findings, func(f Finding) bool {
			return strings.HasPrefix(f.String(), place+": ") && strings.Contains(f.Text, words)
		})
		if i < 0 {
			t.Errorf("no finding at %s with %q", place, words)
			continue
		}
		findings = slices.Delete(findings, i, i+1)
	}
	for _, f := range findings {
		t.Errorf("unexpected: %v", f)
	}
}

func TestLinks(t *testing.T) {
	check(t, map[string]string{
		"README.md": "# A tool\n\n[a](docs/a.md) [part](docs/a.md#2-how-it-works) [here](#a-tool) " +
			"[out](https://example.org/x)\n" +
			"[gone](docs/b.md) // want leads to docs/b.md\n" +
			"[part](docs/a.md#2) // want no heading is called #2\n" +
			"[here](#tool) // want no heading is called #tool\n" +
			"```\n[in code](docs/none.md)\n```\n" +
			"| [in a table](docs/none.md) | // want leads to docs/none.md\n",
		"docs/a.md": "# A\n\n## 2. How *it* works\n\n[up](../README.md) and [dir](../log)\n" +
			"[up](README.md) // want leads to docs/README.md\n[b](c.md)\n",
		"docs/c.md":      "reached\n",
		"docs/lonely.md": "// want no link leads here\n[itself](lonely.md)\n",
	})
}

func TestNames(t *testing.T) {
	check(t,
		map[string]string{"docs/README.md": "`log/ring.go`, `log`, `log.Ring`, `log/sub.Thing`, `log/NAME.go`, " +
			"`and/or`, `bin/tool` and `1/2`\n" +
			"`log/rings.go` // want there is no log/rings.go\n" +
			"`go test ./log -run 'TestRing|FuzzR'`, TestRingIsFull, a Testament\n" +
			"TestRings // want no test is called\n" +
			"`FuzzNothing` // want no test is called\n" +
			"\n    TestNone // want no test is called\n\n" +
			"```\n`log/none.go` TestNone\n```\n"})
}

func TestCommands(t *testing.T) {
	check(t, map[string]string{
		"docs/README.md": "[run](operate.md)\n\n" +
			"`make race`, `make race SEEDS=1`, `make TARGET`, `make -j2 test-full`, to make up, `a make up`\n" +
			"`make raise` // want the Makefile has no raise\n" +
			"`make race SEED=1` // want no variable SEED\n" +
			"\n    make race raise # twice // want has no raise\n" +
			"    A=1 make raise | cat // want has no raise\n" +
			"\n`go test ./log -run TestRing/sub -seeds 3 -count=1 -rapid.checks 5`\n" +
			"`go test ./logs` // want there is no package ./logs\n" +
			"`go test ./log -run 'TestRing|Wring'` // want nothing for -run Wring\n" +
			"`go test ./log/... -run '^$' -bench Ring` // want nothing for -bench Ring\n" +
			"`go test ./log -fuzz FuzzRing`, `cd log && go test . -run FuzzRing`\n" +
			"`cd log && go test -run Fuzzy` // want nothing for -run Fuzzy\n" +
			"`go test ./log -seed 3` // want has a flag -seed\n" +
			"`go run ./tool --only`, `go doc txnode/log`, `go mod tidy`, `go run .`,\n" +
			"`go test ./...`, `go test ./PACKAGE -golden`, `go test ./log -rewrite -args -golden`\n" +
			"`go run ./tool --lonely` // want has no flag --lonely\n" +
			"`go doc txnode/logs` // want no package txnode/logs\n" +
			"`txnode bench smallbank --threads 2 -o json`, `txnode help bench smallbank`,\n" +
			"`bin/txnode check DIR --repair`\n" +
			"`txnode sweep` // want no such command\n" +
			"`txnode bench forget` // want no such command\n" +
			"| `txnode bench smallbank --thread 2` | // want no flag --thread\n" +
			"| `txnode check -q DIR` | // want no flag -q\n" +
			"\n```sh\ntxnode check --all // want no flag --all\n```\n\n```\ntxnode 1 2 3\n```\n" +
			"`--anything`\n",
		"docs/operate.md": "`--threads`, `--repair`, `--threads 2`\n`--tread` // want has a flag --tread\n",
		"CHANGELOG.md":    strings.Repeat("long ", 40) + "`make raise` // want has no raise\n",
	})
}

// TestSpans: what is between backquotes may go over the end of a line.
func TestSpans(t *testing.T) {
	check(t, map[string]string{"docs/README.md": "One `make\nrace`.\n"})
	got := parse("a `b\nc` d\ne `f` g\n")[0].spans()
	if want := []span{{1, "b c"}, {3, "f"}}; !slices.Equal(got, want) {
		t.Errorf("%v, not %v", got, want)
	}
}

func TestShape(t *testing.T) {
	fill := strings.Repeat("x", 99)
	check(t, map[string]string{
		"README.md": "[pages](docs/README.md) // want the page has\n" + strings.Repeat("a line\n", 10<<10/7),
		"docs/README.md": "[big](big.md)\nä" + fill + "\n" + fill + "xy // want columns, 100 are the limit\n" + fill +
			" https://example.org\n\n<!-- " + fill + " -->\n\n    " + fill + "\n\n| " + fill + " |\n\n```\n" + fill +
			"xx\n```\n",
		"docs/big.md": "// want the page has\n" + strings.Repeat("a line\n", 16<<10/7),
	})
}

func TestSplit(t *testing.T) {
	for line, want := range map[string]string{
		"make a b":                      "[[make a b]]",
		"cd x && make 'a b' # c":        "[[cd x] [] [make a b]]",
		`go test -run "A|B"; make "" |`: "[[go test -run A|B] [make ] []]",
		"a#b":                           "[[a#b]]",
	} {
		if got := fmt.Sprint(split(line)); got != want {
			t.Errorf("%s: %s, not %s", line, got, want)
		}
	}
	if got := fmt.Sprint(alternatives("TestA(B|C)|D/e|f")); got != "[TestA(B|C) D]" {
		t.Error(got)
	}
}

// TestUnreadable: a tree that cannot be read is an error, not a tree without pages.
func TestUnreadable(t *testing.T) {
	if _, err := Check(unreadable{}, Options{}); err == nil {
		t.Error("no error")
	}
}

type unreadable struct{}

func (unreadable) Open(name string) (fs.File, error) {
	return nil, &fs.PathError{Op: "open", Path: path.Clean(name), Err: fs.ErrPermission}
}
