package command

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// noArguments is cobra.NoArgs with a plain word about what is too much.
func noArguments(cmd *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		return nil
	case cmd.HasAvailableSubCommands():
		return unknownCommand(cmd, args[0])
	}
	return fmt.Errorf("%s takes no argument, and %q is one", cmd.CommandPath(), args[0])
}

// fixedBy fails if a flag was given of what another one decides.
func fixedBy(cmd *cobra.Command, by string, names ...string) error {
	for _, name := range names {
		if cmd.Flags().Changed(name) {
			return usagef("--%s decides that: --%s cannot be given with it", by, name)
		}
	}
	return nil
}

// positive fails if one of the flags is zero or less: zero is a default in a configuration, but
// not on a command line.
func positive(cmd *cobra.Command, names ...string) error {
	var faults []string
	for _, name := range names {
		if v := cmd.Flags().Lookup(name).Value.String(); v == "0" || v == "0s" || strings.HasPrefix(v, "-") {
			faults = append(faults, fmt.Sprintf("--%s is %s; it must be positive", name, v))
		}
	}
	if faults == nil {
		return nil
	}
	return usagef("%s", strings.Join(faults, "; "))
}

// maxTime bounds each duration of a command line, so that a clock can add them: a century.
const maxTime = 100 * 365 * 24 * time.Hour

// durations fails if one of the flags is a duration that is too long.
func durations(cmd *cobra.Command) error {
	var faults []string
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if f.Value.Type() != "duration" {
			return
		}
		if d, err := cmd.Flags().GetDuration(f.Name); err == nil && d > maxTime {
			faults = append(faults, fmt.Sprintf("--%s is %v; at most %v are possible", f.Name, d, maxTime))
		}
	})
	if faults == nil {
		return nil
	}
	return usagef("%s", strings.Join(faults, "; "))
}

// unknownCommand says which commands there are instead.
func unknownCommand(parent *cobra.Command, name string) error {
	var names []string
	for _, c := range parent.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	where := parent.CommandPath() + ": "
	if !parent.HasParent() {
		where = ""
	}
	if len(names) == 0 {
		return usagef("%sunknown command %q; there is none", where, name)
	}
	return usagef("%sunknown command %q%s; there are %s", where, name, meant(name, "", names),
		strings.Join(names, ", "))
}

var (
	// parsing is what package strconv says before what is wrong with a number.
	parsing = regexp.MustCompile(`strconv\.\w+: parsing "(?:[^"\\]|\\.)*": `)
	// unitless is what package time says of a duration that is only a number.
	unitless = regexp.MustCompile(`time: missing unit in duration "(.*)"$`)
)

// flagError says in plain words what pflag has found wrong.
func flagError(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if errors.As(err, &unknown) && len(unknown.GetSpecifiedName()) > 1 {
		var names []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		return fmt.Errorf("%w%s", err, meant(unknown.GetSpecifiedName(), "--", names))
	}
	text := parsing.ReplaceAllString(err.Error(), "")
	return errors.New(unitless.ReplaceAllString(text, "a unit is missing, as in ${1}s or ${1}m"))
}

// meant asks whether the name nearest to a wrong one was meant, if one is near.
func meant(wrong, prefix string, names []string) string {
	nearest, least := "", 3
	for _, n := range names {
		d := distance(wrong, n)
		if strings.HasPrefix(n, wrong) {
			d = min(d, 2)
		}
		if d < least && d < len(wrong) {
			nearest, least = n, d
		}
	}
	if nearest == "" {
		return ""
	}
	return fmt.Sprintf(" (did you mean %s%s?)", prefix, nearest)
}

// distance counts the letters to insert, remove and replace between two words.
func distance(a, b string) int {
	row := make([]int, len(b)+1) // of a's first letters to b's first j
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
