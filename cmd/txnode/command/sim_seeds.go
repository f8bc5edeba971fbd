package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"txnode/benchmarks/simbench/seeds"
)

// seedsOptions are the flags of txnode sim seeds.
type seedsOptions struct {
	from, count uint64
	threads     int
	workload    string
	log         string
}

// AddFlags registers the flags.
func (o *seedsOptions) AddFlags(cmd *cobra.Command, cpus int) {
	fs := cmd.Flags()
	fs.Uint64Var(&o.from, "from", 1, "first seed")
	fs.Uint64Var(&o.count, "count", 2000, "number of seeds")
	fs.IntVar(&o.threads, "parallel", cpus, "number of seeds that run at a time")
	fs.StringVar(&o.workload, "workload", "", "workload instead of the one that each seed draws: "+strings.Join(seeds.Workloads(), ", "))
	fs.StringVar(&o.log, "log", "", "`file` to write every effect and completion to; one seed only")
	completeWith(cmd, "workload", seeds.Workloads()...)
	completeFiles(cmd, "log", false)
}

func newSimSeeds(w *World) *cobra.Command {
	o := &seedsOptions{}
	cmd := &cobra.Command{
		Use:   "seeds",
		Short: "Run the engine's tests of isolation on schedules drawn from seeds",
		Long: `Runs small workloads (bank, write skew, long fork, list append, counter, insert race,
churn) on the simulated RNIC. Each seed draws workload, threads, policy, replication,
promises of the fabric and how hostile its memory is. Every history is checked to be
strictly serializable, and the blades are looked at afterwards: no lock left, all
replicas equal. Stops at the first violation, with the command that runs it again.`,
		Example: `  txnode sim seeds --count 20000
  txnode sim seeds --from 17 --count 1 --log trace.txt`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd.Context(), w)
		},
	}
	o.AddFlags(cmd, w.CPUs)
	return cmd
}

func (o *seedsOptions) run(ctx context.Context, w *World) error {
	if o.count < 1 || o.threads < 1 {
		return usagef("--count and --parallel must be positive")
	}
	options := seeds.Options{Workload: o.workload}
	if o.log != "" {
		if o.count > 1 {
			return usagef("--log shows one seed: use it with --count 1")
		}
		return o.verdict(w, writeFile(o.log, func(f io.Writer) error {
			options.Trace = f
			r, err := seeds.Run(o.from, options)
			if err == nil {
				fmt.Fprintf(w.Stdout, "seed %d: %s\n%d transactions, %d verbs, %.3f ms of virtual time, trace %016x\n",
					r.Seed, r.Case, r.Txns, r.Verbs, float64(r.VirtualNs)/1e6, r.TraceHash)
			}
			return err
		}))
	}
	start := w.Now()
	var last atomic.Int64
	done, err := seeds.RunMany(ctx, o.from, o.count, o.threads, options, func(n uint64) {
		if now := w.Now().UnixMilli(); now-last.Load() >= 200 {
			last.Store(now)
			w.note("%d of %d seeds", n, o.count)
		}
	})
	w.note("")
	if err == nil {
		fmt.Fprintf(w.Stdout, "%d seeds, from %d: no violation (%v)\n", done, o.from, w.Now().Sub(start).Round(time.Millisecond))
	}
	return o.verdict(w, interruptedOr(ctx, err))
}

// verdict prints a violation in full: the line on standard error is cut off.
func (o *seedsOptions) verdict(w *World, err error) error {
	var v *seeds.Violation
	switch {
	case errors.As(err, &v):
		fmt.Fprintln(w.Stdout, v)
		return fmt.Errorf("seed %d violates what must hold: %w", v.Seed, errViolation)
	case errors.Is(err, seeds.ErrUnknown):
		return &usageError{cause: err}
	}
	return err
}

// errViolation ends a command that has found an error of the engine.
var errViolation = errors.New("see above")
