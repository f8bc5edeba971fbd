package command

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// outputFormat is the value of -o.
type outputFormat string

// Output formats.
const (
	outputTable outputFormat = "table"
	outputJSON  outputFormat = "json"
	outputCSV   outputFormat = "csv"
)

var outputFormats = []string{string(outputTable), string(outputJSON), string(outputCSV)}

// String implements pflag.Value.
func (o *outputFormat) String() string { return string(*o) }

// Type implements pflag.Value.
func (o *outputFormat) Type() string { return "format" }

// Set implements pflag.Value.
func (o *outputFormat) Set(s string) error {
	if !slices.Contains(outputFormats, s) {
		return fmt.Errorf("want one of %s", strings.Join(outputFormats, ", "))
	}
	*o = outputFormat(s)
	return nil
}

// addFlag registers -o with its completions.
func (o *outputFormat) addFlag(cmd *cobra.Command) {
	*o = outputTable
	cmd.Flags().VarP(o, "output", "o", "what to print: table, json or csv")
	completeWith(cmd, "output", outputFormats...)
}

// completeWith offers words as the completions of a flag.
func completeWith(cmd *cobra.Command, flag string, words ...string) {
	// It fails for a flag that does not exist only.
	if err := cmd.RegisterFlagCompletionFunc(flag,
		cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err)
	}
}

// completeFiles lets the shell complete the flag with files or directories.
func completeFiles(cmd *cobra.Command, flag string, directories bool) {
	directive := cobra.ShellCompDirectiveDefault
	if directories {
		directive = cobra.ShellCompDirectiveFilterDirs
	}
	if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(nil, directive)); err != nil {
		panic(err)
	}
}

// historyFlag registers the flag that names the history file.
func historyFlag(cmd *cobra.Command, path *string) {
	cmd.Flags().StringVar(path, "history-file", "", "`file` that keeps the results; by default $"+historyEnv+
		", or txnode/history.db\nin the user's cache directory")
	completeFiles(cmd, "history-file", false)
}
