package command

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"txnode/benchmarks/report"
)

func newHistory(w *World) *cobra.Command {
	cmd := choose("history", "List, show and delete the results that were kept",
		`Every benchmark that ran to its end is kept in a file, under a number, and under
a name if --save gave it one; with such a name one that was interrupted, or has
failed, is kept, too, with what it had measured until then. The file is
$TXNODE_HISTORY, or txnode/history.db in the user's cache directory. Without a
command the results are listed.`,
		newHistoryList(w), newHistoryShow(w), newHistoryDelete(w))
	o := &historyListOptions{}
	o.AddFlags(cmd)
	cmd.Args = noArguments
	cmd.RunE = func(*cobra.Command, []string) error { return runHistoryList(w, o) }
	return cmd
}

// historyListOptions are the flags of txnode history list.
type historyListOptions struct {
	resultOptions
	Limit int
}

// AddFlags registers the flags.
func (o *historyListOptions) AddFlags(cmd *cobra.Command) {
	o.resultOptions.AddFlags(cmd)
	cmd.Flags().IntVarP(&o.Limit, "limit", "n", 0, "number of results to list, newest first; 0, the default: all")
}

func newHistoryList(w *World) *cobra.Command {
	o := &historyListOptions{}
	cmd := &cobra.Command{
		Use: "list", Short: "List the results, newest first",
		Args: noArguments, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(*cobra.Command, []string) error { return runHistoryList(w, o) },
	}
	o.AddFlags(cmd)
	return cmd
}

func runHistoryList(w *World, o *historyListOptions) error {
	if o.Limit < 0 {
		return usagef("--limit is %d; it must not be negative", o.Limit)
	}
	h, err := w.history(o.History)
	if err != nil {
		return err
	}
	results, unread, err := h.All()
	if err != nil {
		return err
	}
	if unread > 0 {
		fmt.Fprintf(w.Stderr,
			"txnode: warning: results left out that are damaged, or were kept by a newer txnode: %d\n", unread)
	}
	if o.Limit > 0 {
		results = results[:min(o.Limit, len(results))]
	}
	switch o.Output {
	case outputJSON:
		if results == nil {
			results = []*report.Result{}
		}
		return report.WriteJSON(w.Stdout, results)
	case outputCSV:
		return report.WriteListCSV(w.Stdout, results)
	default:
		if len(results) == 0 {
			fmt.Fprintf(w.Stderr, "txnode: no results in %s yet: txnode bench smallbank\n", h.Path)
			return nil
		}
		return report.WriteList(w.Stdout, w.theme(), results)
	}
}

func newHistoryShow(w *World) *cobra.Command {
	o := &resultOptions{}
	cmd := &cobra.Command{
		Use: "show result", Short: "Print a result as when it was measured",
		Long:    "Prints the result of a number or name, in any format.",
		Example: "  txnode history show 12\n  txnode history show ford -o json",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return errors.New("name one result, by its number or name")
			}
			return named(args)
		},
		ValidArgsFunction: completeResults(w, &o.History, false),
		RunE: func(_ *cobra.Command, args []string) error {
			h, err := w.history(o.History)
			if err != nil {
				return err
			}
			r, err := h.Find(args[0])
			if err != nil {
				return err
			}
			return printResult(w, o.Output, r)
		},
	}
	o.AddFlags(cmd)
	return cmd
}

// historyDeleteOptions are the flags of txnode history delete.
type historyDeleteOptions struct {
	History string
	All     bool
}

// AddFlags registers the flags.
func (o *historyDeleteOptions) AddFlags(cmd *cobra.Command) {
	historyFlag(cmd, &o.History)
	cmd.Flags().BoolVar(&o.All, "all", false, "delete every result")
}

// Validate finds faults.
func (o *historyDeleteOptions) Validate(args []string) error {
	if o.All == (len(args) > 0) {
		return usagef("name the results to delete, or give --all, and not both")
	}
	return named(args)
}

// named refuses a result without a name, as of a variable of the shell that is not set: all that
// were kept without one would go by it.
func named(refs []string) error {
	if slices.Contains(refs, "") {
		return usagef("a name is empty: name a result by its number or name, see txnode history list")
	}
	return nil
}

func newHistoryDelete(w *World) *cobra.Command {
	o := &historyDeleteOptions{}
	cmd := &cobra.Command{
		Use: "delete result ...", Short: "Delete results",
		Long: "Deletes the results of these numbers or names; of several with one name the newest.\n" +
			"If there is none for one of them, nothing is deleted.",
		Example:           "  txnode history delete 3 4 ford\n  txnode history delete --all",
		ValidArgsFunction: completeResults(w, &o.History, false),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := o.Validate(args); err != nil {
				return err
			}
			return runHistoryDelete(w, o, args)
		},
	}
	o.AddFlags(cmd)
	return cmd
}

func runHistoryDelete(w *World, o *historyDeleteOptions, args []string) error {
	h, err := w.history(o.History)
	if err != nil {
		return err
	}
	if o.All {
		n, err := h.DeleteAll()
		if err != nil {
			return err
		}
		fmt.Fprintf(w.Stdout, "deleted all results: %d\n", n)
		return nil
	}
	deleted, err := h.Delete(args...)
	if err != nil {
		return err
	}
	for _, r := range deleted {
		fmt.Fprintf(w.Stdout, "deleted #%d %s of %s\n", r.ID, r.Workload, r.Time.UTC().Format("2006-01-02 15:04 MST"))
	}
	return nil
}
