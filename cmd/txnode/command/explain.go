package command

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"txnode/benchmarks/report"
	"txnode/benchmarks/runner"
	"txnode/benchmarks/workload"
)

// explainOptions are the flags of txnode explain, besides the workload's own.
type explainOptions struct {
	Store  StoreOptions
	Run    runner.ExplainConfig
	Output outputFormat
}

// AddFlags registers the flags.
func (o *explainOptions) AddFlags(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.IntVar(&o.Run.Samples, "txns", runner.DefaultExplainSamples, "number of transactions to count of each type")
	fs.IntVar(&o.Run.Warmup, "warmup-txns", runner.DefaultExplainWarmup,
		"number of transactions, drawn by the mix, that fill the caches before")
	fs.Uint64Var(&o.Run.Seed, "seed", 1, "seed of everything that is drawn")
	o.Store.AddFlags(cmd)
	o.Output.addFlag(cmd)
}

// Validate finds faults.
func (o *explainOptions) Validate(cmd *cobra.Command) error {
	if o.Run.Samples < 1 || o.Run.Warmup < 1 {
		return usagef("--txns is %d and --warmup-txns %d; both must be at least 1", o.Run.Samples, o.Run.Warmup)
	}
	o.Store.Seed = o.Run.Seed
	return o.Store.Validate(cmd)
}

func newExplain(w *World) *cobra.Command {
	var subcommands []*cobra.Command
	for i := range workloads {
		subcommands = append(subcommands, newExplainWorkload(w, i))
	}
	return choose("explain", "Count what each transaction type costs, beside FORD",
		`Runs transactions of each type with one worker, without conflicts and with all
addresses cached, and prints verbs and round trips by phase, beside those that
FORD needs and the most that the default policy may need by design. The numbers
are counted, and do not depend on the machine.`, subcommands...)
}

func newExplainWorkload(w *World, i int) *cobra.Command {
	o := &explainOptions{}
	cmd := &cobra.Command{
		Example: fmt.Sprintf(`  txnode explain %[1]s
  txnode explain %[1]s --policy ford --replicas 2 --blades 3`, workloads[i].name),
	}
	o.AddFlags(cmd)
	return ofWorkload(cmd, i, true, o.Validate, func(cmd *cobra.Command, driver workload.Driver,
		parameters []report.Parameter) error {
		return runExplain(cmd.Context(), w, o, driver, parameters)
	})
}

func runExplain(ctx context.Context, w *World, o *explainOptions, driver workload.Driver,
	parameters []report.Parameter) error {
	store, err := w.Open(ctx, o.Store)
	if err != nil {
		return interruptedOr(ctx, err)
	}
	progress := newProgress(w)
	cfg := o.Run
	cfg.Progress = progress.callback()
	x, err := runner.Explain(ctx, store, driver, cfg)
	progress.close()
	description := o.Store.describe(store, w.Fabric)
	if err = errors.Join(err, store.Close(context.WithoutCancel(ctx))); err != nil {
		return interruptedOr(ctx, err)
	}
	e := report.NewExplanation(driver.Name(), description, x)
	e.Parameters = parameters
	switch o.Output {
	case outputJSON:
		return report.WriteJSON(w.Stdout, e)
	case outputCSV:
		return e.WriteCSV(w.Stdout)
	default:
		return e.WriteTable(w.Stdout, w.theme())
	}
}
