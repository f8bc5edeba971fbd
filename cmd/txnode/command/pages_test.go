package command_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"txnode/cmd/txnode/command"
)

var (
	// commandLine is what a page has between backquotes, or alone in an indented line, and that
	// calls txnode.
	commandLine = regexp.MustCompile("(?:`|^    )(?:go run \\./cmd/txnode|bin/txnode|txnode) ([^`#]*)")
	// someFlag is a flag by itself, of a command that was named before.
	someFlag = regexp.MustCompile("`--([a-z-]+)")
)

// TestPagesCallWhatIsThere: the command lines that README, CHANGELOG and docs name have commands
// and flags that there are; so have the flags that the page about the commands names alone.
func TestPagesCallWhatIsThere(t *testing.T) {
	root := filepath.Join("..", "..", "..")
	pages, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	lines := 0
	for _, page := range append(pages, filepath.Join(root, "README.md"), filepath.Join(root, "CHANGELOG.md")) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(string(text), "\n") {
			for _, m := range commandLine.FindAllStringSubmatch(line, -1) {
				lines++
				if wrong := wrongIn(m[1]); wrong != "" {
					t.Errorf("%s:%d: txnode %s: %s", filepath.Base(page), i+1, m[1], wrong)
				}
			}
			if filepath.Base(page) != "operate.md" { // others name flags of other programs, too
				continue
			}
			for _, m := range someFlag.FindAllStringSubmatch(line, -1) {
				if !anyHas(command.Root(), m[1]) {
					t.Errorf("operate.md:%d: no command has a flag --%s", i+1, m[1])
				}
			}
		}
	}
	if lines < 50 {
		t.Errorf("%d command lines were found: the pages are written in another way", lines)
	}
}

// TestOperateNamesAll: the page about running names every command.
func TestOperateNamesAll(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "operate.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, cmd := range command.Root().Commands() {
		if name := cmd.Name(); name != "help" && !strings.Contains(string(page), "`txnode "+name) {
			t.Errorf("docs/operate.md does not name txnode %s; add it to the table of commands", name)
		}
	}
}

// TestPagesAreLookedAt: what TestPagesCallWhatIsThere is there for is found.
func TestPagesAreLookedAt(t *testing.T) {
	for line, wrong := range map[string]string{
		"bench smallbank --threads 2 -o json": "", "history show 3": "", "check DIR --repair": "", "help bench smallbank": "", "compare [result ...]": "",
		"sweep": "no such command", "history forget": "no such command", "bench smallbank --thread 2": "no flag --thread", "check -q DIR": "no flag -q",
	} {
		if got := wrongIn(line); got != wrong {
			t.Errorf("txnode %s: %q, not %q", line, got, wrong)
		}
	}
}

// wrongIn says what of a command line is not there, or nothing.
func wrongIn(line string) string {
	words := strings.Fields(line)
	if len(words) == 0 {
		return ""
	}
	if words[0] == "help" {
		words = words[1:]
	}
	cmd, rest, err := command.Root().Find(words)
	if err != nil || cmd.HasSubCommands() && len(rest) > 0 && !strings.HasPrefix(rest[0], "-") {
		return "no such command"
	}
	for _, w := range rest {
		if name, long := strings.CutPrefix(w, "--"); long {
			if name, _, _ = strings.Cut(name, "="); flagOf(cmd, func(f *pflag.Flag) bool { return f.Name == name }) {
				continue
			}
			return "no flag --" + name
		}
		if name, short := strings.CutPrefix(w, "-"); short && !flagOf(cmd, func(f *pflag.Flag) bool { return f.Shorthand == name }) {
			return "no flag -" + name
		}
	}
	return ""
}

// anyHas says whether a command, or one below it, has a flag.
func anyHas(cmd *cobra.Command, name string) bool {
	if cmd.Flags().Lookup(name) != nil {
		return true
	}
	for _, c := range cmd.Commands() {
		if anyHas(c, name) {
			return true
		}
	}
	return false
}

func flagOf(cmd *cobra.Command, is func(f *pflag.Flag) bool) bool {
	found := false
	look := func(f *pflag.Flag) { found = found || is(f) }
	cmd.Flags().VisitAll(look)
	cmd.InheritedFlags().VisitAll(look)
	return found
}
