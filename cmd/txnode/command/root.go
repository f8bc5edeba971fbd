package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"txnode/benchmarks/runner"
)

// Main runs the command that args ask for, and returns the exit code. It
// prints errors as one line, also those that are mistakes in this program.
func Main(ctx context.Context, w World, args []string) (code int) {
	defer func() {
		if p := recover(); p != nil {
			w.internalError(p, debug.Stack())
			code = ExitFailure
		}
	}()
	out := &checkedWriter{Writer: w.Stdout}
	w.Stdout, w.screen = out, out
	if w.StdoutTerminal {
		w.Stdout = plainWriter{out}
	}
	w.errScreen = w.Stderr
	if w.StderrTerminal {
		w.Stderr = plainWriter{w.Stderr}
	}
	w.StderrTerminal = w.StderrTerminal && w.Getenv("TERM") != "dumb" // which cannot move back in a line
	root := newRoot(&w)
	root.SetArgs(args)
	root.SetOut(w.Stdout)
	root.SetErr(w.Stderr)
	completeShells(root) // which takes the standard output of now
	started := false
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		started = true
		return durations(cmd)
	}
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil && out.err != nil { // help, which nobody looks after
		_ = say(w.Stderr, "txnode: %s\n", oneLine(out.err)) // there is nothing else to say it on
		return ExitFailure
	}
	if err == nil {
		return ExitOK
	}
	var panicked *runner.PanicError
	if errors.As(err, &panicked) {
		w.internalError(panicked.Value, panicked.Stack)
		return ExitFailure
	}
	code = exitCode(err)
	if !started { // cobra's complaint about arguments or flags
		code = ExitUsage
	}
	var usage *usageError
	if code == ExitUsage && !errors.As(err, &usage) {
		err = &usageError{cause: err, help: cmd.CommandPath()}
	}
	verdict := ""
	if code == ExitVerification {
		verdict = "verification failed: "
	}
	_ = say(w.Stderr, "txnode: %s%s\n", verdict, inFlags(cmd, oneLine(err))) // the exit code says it, too
	return code
}

// checkedWriter remembers that a write has failed.
type checkedWriter struct {
	io.Writer
	err error
}

func (c *checkedWriter) Write(p []byte) (int, error) {
	n, err := c.Writer.Write(p)
	if err != nil && c.err == nil {
		c.err = err
	}
	return n, err
}

// internalError reports a mistake in this program.
func (w *World) internalError(value any, stack []byte) {
	fmt.Fprintf(w.Stderr, "txnode: internal error: %s; please report this, with the output under TXNODE_DEBUG=1\n",
		oneLine(fmt.Errorf("%v", value)))
	if w.Getenv("TXNODE_DEBUG") != "" {
		_, _ = w.Stderr.Write(stack)
	}
}

// Root returns the tree of all commands, to be looked at: internal/docscheck compares the pages
// with it. Main runs commands.
func Root() *cobra.Command {
	root := newRoot(&World{})
	root.InitDefaultCompletionCmd("completion")
	return root
}

func newRoot(w *World) *cobra.Command {
	version := false
	root := &cobra.Command{
		Use:   "txnode",
		Short: "A transaction engine on memory blades: run it, measure it, explain it",
		Long: `txnode runs an embeddable, strictly serializable, replicated transaction engine
whose data lives on memory blades and is reached by one-sided verbs.

Results go to standard output; progress and warnings go to standard error,
progress only if that is a terminal.

Exit codes:
  0    success
  1    failure: one line on standard error says of what
  2    wrong usage: an unknown command, flag or value
  3    verification failed: the books do not balance, the history is not
       strictly serializable, or a check has found damage
  130  interrupted (Ctrl-C): results until then are printed

Environment:
  TXNODE_HISTORY  file that keeps the results (default: txnode/history.db in the
                  user's cache directory)
  TXNODE_DEBUG    if set, an internal error prints where it happened
  NO_COLOR        if set, tables on a terminal have no colors
  TERM            if dumb, a terminal gets neither colors nor progress`,
		Example: `  txnode bench smallbank
  txnode bench tatp --policy ford --runs 5
  txnode explain smallbank
  txnode compare`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if version {
				return runVersion(w, outputTable)
			}
			return cmd.Help()
		},
	}
	root.Flags().BoolVar(&version, "version", false, "do what txnode version does")
	root.SetFlagErrorFunc(flagError)
	root.SetHelpCommand(newHelp())
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	root.AddCommand(
		newBench(w),
		newExplain(w),
		newSim(w),
		newCompare(w),
		newHistory(w),
		newCheck(w),
		newInspect(w),
		newTables(w),
		newStats(w),
		newGet(w),
		newScan(w),
		newDump(w),
		newDrop(w),
		newBackup(w),
		newRestore(w),
		newServe(w),
		newCluster(w),
		newDoctor(w),
		newTop(w),
		newVersion(w),
	)
	return root
}

// completeShells makes cobra's completion command say what is wrong, as others do,
// when it is given no shell, or one that it does not know.
func completeShells(root *cobra.Command) {
	root.InitDefaultCompletionCmd("completion") // it is there if it is asked for
	for _, c := range root.Commands() {
		if c.Name() == "completion" {
			demandSubcommand(c)
		}
	}
}

// newHelp is cobra's help, but for what it says of a command that there is not.
func newHelp() *cobra.Command {
	return &cobra.Command{
		Use:   "help [command]",
		Short: "Explain a command and its flags",
		Long:  "Explains a command and its flags, as --help behind the command does.",
		Args: func(cmd *cobra.Command, args []string) error {
			_, err := helped(cmd, args)
			return err
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion,
			cobra.ShellCompDirective) {
			about, err := helped(cmd, args)
			if err != nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			var out []cobra.Completion
			for _, c := range about.Commands() {
				if c.IsAvailableCommand() {
					out = append(out, cobra.CompletionWithDesc(c.Name(), c.Short))
				}
			}
			return out, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			about, err := helped(cmd, args)
			if err != nil {
				return err
			}
			about.InitDefaultHelpFlag()
			return about.Help()
		},
	}
}

// helped finds the command that help is asked for.
func helped(help *cobra.Command, path []string) (*cobra.Command, error) {
	about, rest, err := help.Root().Find(path)
	if len(rest) > 0 || err != nil {
		return nil, unknownCommand(about, rest[0])
	}
	return about, nil
}

// choose is a command that only holds others.
func choose(use, short, long string, subcommands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Long: long}
	cmd.AddCommand(subcommands...)
	demandSubcommand(cmd)
	return cmd
}

// demandSubcommand makes a command an error without one of those that it holds.
func demandSubcommand(cmd *cobra.Command) {
	var names []string
	for _, s := range cmd.Commands() {
		names = append(names, s.Name())
	}
	cmd.Args = cobra.ArbitraryArgs
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return unknownCommand(cmd, args[0])
		}
		return usagef("%s needs a command: %s", cmd.CommandPath(), strings.Join(names, ", "))
	}
}
