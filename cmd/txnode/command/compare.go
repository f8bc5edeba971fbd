package command

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"txnode/benchmarks/report"
	"txnode/benchmarks/report/published"
)

// resultOptions are the flags of commands that print results of the history.
type resultOptions struct {
	Output  outputFormat
	History string
}

// AddFlags registers the flags.
func (o *resultOptions) AddFlags(cmd *cobra.Command) {
	o.Output.addFlag(cmd)
	historyFlag(cmd, &o.History)
}

func newCompare(w *World) *cobra.Command {
	o := &resultOptions{}
	page := ""
	cmd := &cobra.Command{
		Use:   "compare [result ...]",
		Short: "Set results beside FORD+'s and SMART-DTX's published figures",
		Long: `Sets saved results beside the published figures of FORD+ and SMART-DTX, and says
what hardware each was measured on. A result is named by its number or name in
the history, or by a file with the output of -o json, whose name ends in .json.
Without one, the newest of each workload is taken.`,
		Example: `  txnode compare
  txnode compare 12 ford
  txnode compare smallbank.json -o csv
  txnode compare --report compare.html`,
		ValidArgsFunction: completeResults(w, &o.History, true),
		RunE:              func(_ *cobra.Command, args []string) error { return runCompare(w, o, page, args) },
	}
	o.AddFlags(cmd)
	reportFlag(cmd, &page)
	return cmd
}

func runCompare(w *World, o *resultOptions, page string, args []string) (err error) {
	if err := named(args); err != nil {
		return err
	}
	h, err := w.history(o.History)
	if err != nil {
		return err
	}
	var results []*report.Result
	if len(args) == 0 {
		results, err = newestResults(h)
	} else {
		results, err = namedResults(h, args)
	}
	if err != nil {
		return err
	}
	c := report.NewComparison(results)
	if page != "" {
		for _, a := range append(args, h.Path) {
			if a != h.Path && !strings.HasSuffix(a, ".json") {
				continue // a result of the history, and no file
			}
			if err := distinct(a, page); err != nil {
				return err
			}
		}
		// The figures are printed nevertheless.
		failed := writeFile(page, func(f io.Writer) error { return c.WriteHTML(f, results) })
		defer func() { err = errors.Join(err, failed) }()
	}
	switch o.Output {
	case outputJSON:
		return report.WriteJSON(w.Stdout, c)
	case outputCSV:
		return c.WriteCSV(w.Stdout)
	default:
		return c.WriteTable(w.Stdout, w.theme())
	}
}

// newestResults are the newest of each workload; one without a run stands for a
// workload that has none, but has published figures.
func newestResults(h report.HistoryFile) ([]*report.Result, error) {
	var out []*report.Result
	for _, wl := range workloads {
		r, err := h.Newest(wl.name)
		switch {
		case errors.Is(err, report.ErrNoResult) && len(published.Curve(wl.name, published.FORDPlus)) == 0:
			continue
		case errors.Is(err, report.ErrNoResult):
			r = &report.Result{Workload: wl.name}
		case err != nil:
			return nil, err
		}
		out = append(out, r)
	}
	return out, nil
}

func namedResults(h report.HistoryFile, refs []string) ([]*report.Result, error) {
	var out []*report.Result
	for _, ref := range refs {
		r, err := resultOf(h, ref)
		if err != nil {
			return nil, err
		}
		if len(r.Runs) == 0 {
			return nil, failf("result %q has no run to compare", ref)
		}
		out = append(out, r)
	}
	return out, nil
}

// resultOf finds a result in the history, or reads it from a file of JSON.
func resultOf(h report.HistoryFile, ref string) (*report.Result, error) {
	if !strings.HasSuffix(ref, ".json") {
		return h.Find(ref)
	}
	b, err := os.ReadFile(ref)
	if err != nil {
		return nil, err
	}
	r, err := report.DecodeResult(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", ref, err)
	}
	return r, nil
}

// completeResults offers the numbers and names of the history; files, too, if asked for.
func completeResults(w *World, history *string, files bool) cobra.CompletionFunc {
	return func(_ *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		directive := cobra.ShellCompDirectiveNoFileComp
		if files {
			directive = cobra.ShellCompDirectiveDefault
		}
		h, err := w.history(*history)
		if err != nil {
			return nil, directive
		}
		results, _, err := h.All()
		if err != nil {
			return nil, directive
		}
		var out []cobra.Completion
		for _, r := range results {
			what := r.Workload + ", " + r.Time.UTC().Format("2006-01-02 15:04")
			out = append(out, cobra.CompletionWithDesc(fmt.Sprint(r.ID), what))
			if r.Name != "" {
				out = append(out, cobra.CompletionWithDesc(r.Name, what))
			}
		}
		return out, directive
	}
}
