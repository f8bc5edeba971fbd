package command

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"txnode/benchmarks/channelbench"
	"txnode/rdma/sim"
)

// locoOptions are the flags of txnode sim loco.
type locoOptions struct {
	experiments []string
	machine     string
	config      channelbench.Config
	output      outputFormat
	report      string
}

// AddFlags registers the flags.
func (o *locoOptions) AddFlags(cmd *cobra.Command) {
	fs, c := cmd.Flags(), &o.config
	fs.StringSliceVar(&o.experiments, "experiment", nil, "what to measure, by commas:\n"+
		strings.Join(channelbench.Names(), ", ")+"; by default all")
	fs.IntVar(&c.Nodes, "nodes", 16, "most nodes of an experiment, which is measured with 1, 2, 4, ... up to so many")
	fs.IntVar(&c.Threads, "threads", 4, "number of threads of a node, in kv, fence and transfer; one in the others")
	fs.IntVar(&c.Window, "window", 3, "operations that a thread has under way, in kv and fence; 3 as published, or 128")
	fs.IntVar(&c.Keys, "keys", 20_000, "number of keys of the map")
	fs.DurationVar(&c.Duration, "duration", 4*time.Millisecond,
		"virtual `time` of a point, after a quarter of that to warm up; that of converters is 5 times as long")
	fs.Uint64Var(&c.Seed, "seed", 1, "seed of everything that is drawn")
	machineFlag(cmd, &o.machine, sim.RoCE25())
	o.output.addFlag(cmd)
	reportFlag(cmd, &o.report)
	completeWith(cmd, "experiment", channelbench.Names()...)
}

// run measures and prints.
func (o *locoOptions) run(cmd *cobra.Command, w *World) error {
	if err := positive(cmd, "nodes", "threads", "window", "keys", "duration"); err != nil {
		return err
	}
	var err error
	c := o.config
	c.Experiments = o.experiments
	if c.Profile, err = machine(o.machine); err != nil {
		return err
	}
	if err := c.Validate(); err != nil {
		return &usageError{cause: err}
	}
	done, err := writable(o.report)
	if err != nil {
		return err
	}
	defer done()
	all := 0
	r, err := channelbench.Run(cmd.Context(), c, func(p *channelbench.Point, done, total int) {
		all = total
		w.note("%d of %d points: %s, %s, %v %s: %.1f k op/s", done, total, p.Experiment, p.Variant,
			p.X, p.XName, p.Kops)
	})
	w.note("")
	stopped := interruptedOr(cmd.Context(), err)
	if stopped != nil {
		if r == nil || len(r.Points) == 0 || !errors.Is(stopped, errInterrupted) {
			return stopped
		}
		stopped = fmt.Errorf("%w: %d of %d points were measured", stopped, len(r.Points), all)
	}
	var failed error // of a file: the figures are printed nevertheless
	if o.report != "" {
		failed = writeFile(o.report, r.WriteHTML)
	}
	write := r.WriteTable
	switch o.output {
	case outputJSON:
		write = r.WriteJSON
	case outputCSV:
		write = r.WriteCSV
	}
	if err := errors.Join(failed, write(w.Stdout)); err != nil {
		return err
	}
	return stopped
}

func newSimLOCO(w *World) *cobra.Command {
	o := &locoOptions{}
	cmd := &cobra.Command{
		Use:   "loco",
		Short: "Channel objects beside LOCO's: barrier, locks, map, fence, converters, failures",
		Long: `Runs the objects of package channel on the simulated RNIC, beside stand-ins that are made
of the verbs of LOCO's paper (arXiv 2503.19270), and of Sherman's. Prints what each does, and
what the paper claims beside what came out. The paper gives no latencies, so orders and
ratios count. docs/channel.md has the figures.`,
		Example: `  txnode sim loco --report loco.html
  txnode sim loco --experiment kv,fence --nodes 4 --window 128
  txnode sim loco --experiment lock --machine connectx-5 -o csv`,
		Args:              noArguments,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(cmd *cobra.Command, _ []string) error { return o.run(cmd, w) },
	}
	o.AddFlags(cmd)
	return cmd
}
