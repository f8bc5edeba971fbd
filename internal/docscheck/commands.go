package docscheck

import (
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// commandLine checks the commands of a line of a shell.
func (c *checker) commandLine(page string, line int, text string) {
	dir := "."
	for _, words := range split(text) {
		for len(words) > 0 && (strings.Contains(words[0], "=") || words[0] == "time" || words[0] == "$") {
			words = words[1:]
		}
		if len(words) < 2 {
			continue
		}
		wrong := ""
		switch args := words[1:]; words[0] {
		case "cd":
			dir = args[0]
		case "make":
			wrong = c.makeLine(args)
		case "go":
			wrong = c.goLine(dir, args)
		case "txnode", "bin/txnode", "./bin/txnode":
			wrong = c.txnodeLine(args)
		}
		if wrong != "" {
			c.report(page, line, "%s: %s", strings.Join(words, " "), wrong)
		}
	}
}

// split cuts a line of a shell into commands, and these into words. Quotes and comments are what
// they are in a shell; variables and the like are not.
func split(line string) [][]string {
	commands := [][]string{nil}
	word, in := "", false
	end := func() {
		if in {
			n := len(commands) - 1
			commands[n] = append(commands[n], word)
		}
		word, in = "", false
	}
	var quote rune
	for _, r := range line {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word += string(r)
		case r == '\'' || r == '"':
			quote, in = r, true
		case r == '#' && !in:
			end()
			return commands
		case r == ' ' || r == '\t':
			end()
		case r == '&' || r == ';' || r == '|':
			end()
			commands = append(commands, nil)
		default:
			word, in = word+string(r), true
		}
	}
	end()
	return commands
}

// makeLine says what of the arguments of make the Makefile does not have.
func (c *checker) makeLine(args []string) string {
	for _, a := range args {
		name, _, assigns := strings.Cut(a, "=")
		switch {
		case strings.HasPrefix(a, "-"):
		case assigns && !c.tree.variables[name]:
			return "the Makefile has no variable " + name
		case !assigns && a != strings.ToUpper(a) && !c.tree.targets[a]: // TARGET stands for any
			return "the Makefile has no " + a
		}
	}
	return ""
}

// valued are the flags of the go tool that may have their value in the next word.
var valued = []string{
	"bench", "benchtime", "blockprofile", "count", "covermode", "coverpkg", "coverprofile", "cpu",
	"cpuprofile", "exec", "fuzz",
	"fuzzminimizetime", "fuzztime", "ldflags", "list", "memprofile", "mutexprofile", "o", "p", "parallel", "pgo",
	"run", "skip", "tags",
	"timeout", "trace", "vet",
}

// switches are those that have none, and -rewrite, which test binaries have of package datadriven.
var switches = []string{
	"a", "all", "benchmem", "c", "cover", "failfast", "json", "race", "rewrite", "short", "src", "u", "v", "x",
}

// standIn is a word that stands for another one.
var standIn = regexp.MustCompile(`\b(?:DIR|MYFABRIC|NAME|PACKAGE)\b`)

// goLine says what of the arguments of go is not there.
func (c *checker) goLine(dir string, args []string) string {
	verb, args := args[0], args[1:]
	if !slices.Contains([]string{"test", "run", "build", "vet", "doc"}, verb) {
		return ""
	}
	var dirs, unknown []string
	patterns := map[string]string{}
	for i := 0; i < len(args) && args[i] != "-args"; i++ {
		a := args[i]
		if name, is := strings.CutPrefix(a, "-"); is {
			name, value, has := strings.Cut(strings.TrimPrefix(name, "-"), "=")
			if slices.Contains(valued, name) {
				if i++; !has && i < len(args) {
					value = args[i]
				} else {
					i--
				}
				patterns[name] = value
			} else if !slices.Contains(switches, name) && !strings.Contains(name, ".") { // rapid.checks is a library's
				unknown = append(unknown, name)
			}
			continue
		}
		if standIn.MatchString(a) || a == "." && dir == "." {
			return "" // what the reader has
		}
		if a != "." && !strings.HasPrefix(a, "./") && !strings.HasPrefix(a, "txnode/") {
			continue // the value of a flag, or a package of others
		}
		found := c.tree.packages(dir, a)
		if len(found) == 0 {
			return "there is no package " + a
		}
		dirs = append(dirs, found...)
		if verb == "run" {
			return c.program(found, args[i+1:])
		}
	}
	if verb != "test" {
		return ""
	}
	if len(dirs) == 0 {
		dirs = c.tree.packages(dir, ".")
	}
	for _, name := range unknown {
		if !c.tree.mentions(dirs, name) {
			return "no test of these packages has a flag -" + name
		}
	}
	return c.patterns(dirs, patterns)
}

// program says which flag of a command line the program in a directory does not have.
func (c *checker) program(dirs, args []string) string {
	if slices.Equal(dirs, []string{"cmd/txnode"}) {
		return c.txnodeLine(args)
	}
	for _, a := range args {
		name, _, _ := strings.Cut(strings.TrimLeft(a, "-"), "=")
		if strings.HasPrefix(a, "-") && !c.tree.mentions(dirs, name) {
			return "the program has no flag " + a
		}
	}
	return ""
}

// patterns says which alternative of -run, -bench or -fuzz matches no test of the packages.
func (c *checker) patterns(dirs []string, flags map[string]string) string {
	for flag, kinds := range map[string][]string{
		"run": {"Test", "Fuzz", "Example"}, "bench": {"Benchmark"}, "fuzz": {"Fuzz"},
	} {
		for _, alternative := range alternatives(flags[flag]) {
			re, err := regexp.Compile(alternative)
			if err != nil {
				return "-" + flag + " " + alternative + " is no pattern"
			}
			if !slices.ContainsFunc(c.tree.tests, func(t testFunc) bool {
				is := func(kind string) bool { return strings.HasPrefix(t.name, kind) }
				return slices.Contains(dirs, t.dir) && slices.ContainsFunc(kinds, is) && re.MatchString(t.name)
			}) {
				return "these packages have nothing for -" + flag + " " + alternative
			}
		}
	}
	return ""
}

// alternatives cuts the first element of a pattern, which is for tests and not for subtests, at the
// bars that are in no brackets. The pattern for no test, '^$', has none.
func alternatives(pattern string) []string {
	var out []string
	depth, from := 0, 0
	take := func(to int) {
		if s := pattern[from:to]; s != "" && s != "^$" {
			out = append(out, s)
		}
		from = to + 1
	}
	for i, r := range pattern {
		switch {
		case r == '(' || r == '[':
			depth++
		case r == ')' || r == ']':
			depth--
		case r == '|' && depth == 0:
			take(i)
		case r == '/' && depth == 0:
			take(i)
			return out
		}
	}
	if from <= len(pattern) {
		take(len(pattern))
	}
	return out
}

// txnodeLine says what of a command line of txnode is not there, or nothing.
func (c *checker) txnodeLine(words []string) string {
	if c.o.Txnode == nil || len(words) == 0 {
		return ""
	}
	if words[0] == "help" {
		words = words[1:]
	}
	cmd, rest, err := c.o.Txnode.Find(words)
	if err != nil || cmd.HasSubCommands() && len(rest) > 0 && !strings.HasPrefix(rest[0], "-") {
		return "no such command"
	}
	for _, w := range rest {
		if name, long := strings.CutPrefix(w, "--"); long {
			name, _, _ = strings.Cut(name, "=")
			if flagOf(cmd, func(f *pflag.Flag) bool { return f.Name == name }) {
				continue
			}
			return "no flag --" + name
		}
		if name, short := strings.CutPrefix(w, "-"); short && name != "" && !flagOf(cmd, func(f *pflag.Flag) bool {
			return f.Shorthand == name
		}) {
			return "no flag -" + name
		}
	}
	return ""
}

// flagAlone checks a flag between backquotes without a command, on the page where these are
// txnode's.
func (c *checker) flagAlone(page string, line int, text string) {
	flag, is := strings.CutPrefix(text, "--")
	if !is || page != c.o.FlagsPage || c.o.Txnode == nil {
		return
	}
	if name := strings.FieldsFunc(flag, func(r rune) bool {
		return r == ' ' ||
			r == '='
	})[0]; !anyHas(c.o.Txnode, name) {
		c.report(page, line, "no command of txnode has a flag --%s", name)
	}
}

// anyHas says whether a command, or one below it, has a flag.
func anyHas(cmd *cobra.Command, name string) bool {
	return cmd.Flags().Lookup(name) != nil || slices.ContainsFunc(cmd.Commands(), func(c *cobra.Command) bool {
		return anyHas(c, name)
	})
}

func flagOf(cmd *cobra.Command, is func(f *pflag.Flag) bool) bool {
	found := false
	look := func(f *pflag.Flag) { found = found || is(f) }
	cmd.Flags().VisitAll(look)
	cmd.InheritedFlags().VisitAll(look)
	return found
}
