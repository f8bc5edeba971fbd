package command

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"txnode/benchmarks/simbench"
	"txnode/occ"
	"txnode/rdma"
	"txnode/rdma/sim"
)

// simOptions are the flags of txnode sim smallbank and txnode sim tatp.
type simOptions struct {
	workload   string
	threads    int
	coroutines int
	policy     string
	techniques techniqueList
	sweep      string
	likeDTX    bool
	machine    string
	rows       int
	txns       int64
	warmup     time.Duration
	replicas   int
	blades     int
	seed       uint64
	verify     bool
	output     outputFormat
	report     string
	trace      string
}

const sweepThreads = "threads"

// AddFlags registers the flags.
func (o *simOptions) AddFlags(cmd *cobra.Command) {
	rows := "accounts"
	if o.workload == "tatp" {
		rows = "subscribers"
	}
	fs := cmd.Flags()
	fs.IntVar(&o.threads, "threads", 96, "number of threads")
	fs.IntVar(&o.coroutines, "coroutines", 8, "number of coroutines per thread")
	fs.StringVar(&o.policy, "policy", "", "commit `policy`: default or ford; without this flag and --techniques:\nford without techniques, ford with all, default with all, one after the other")
	o.techniques = slices.Clone(techniqueNames)
	fs.Var(&o.techniques, "techniques", "SMART's techniques to use, by commas, or all or none")
	fs.StringVar(&o.sweep, "sweep", "", "what to vary: threads, as in the published figure, up to --threads; by default nothing")
	fs.BoolVar(&o.likeDTX, "like-dtx", false, "count and retry as FORD's and SMART's programs do: one attempt, another transaction\nafter an abort, backoff after every abort; the default with --policy ford")
	machineFlag(cmd, &o.machine, sim.ConnectX6().WithPersistentMemory())
	fs.IntVar(&o.rows, rows, simbench.DefaultRows, "number of "+rows)
	fs.Int64Var(&o.txns, "txns", simbench.DefaultTxns, "number of transactions to measure at each point")
	fs.DurationVar(&o.warmup, "warmup", simbench.DefaultWarmup, "virtual `time` before the measurement")
	fs.IntVar(&o.replicas, "replicas", 1, "number of backups of each record: 0, 1 or 2")
	fs.IntVar(&o.blades, "blades", 2, "number of memory blades, more than --replicas")
	fs.Uint64Var(&o.seed, "seed", 1, "seed of everything that is drawn")
	fs.BoolVar(&o.verify, "verify", false, "check the books after each point")
	o.output.addFlag(cmd)
	fs.StringVar(&o.report, "report", "", "`file` to write a page with the curves to (HTML, self-contained); by default none")
	fs.StringVar(&o.trace, "trace", "", "`file` to write every verb to, in the Chrome trace format; one point only; by default none")
	completeWith(cmd, "policy", policies...)
	completeWith(cmd, "techniques", append([]string{"all", "none"}, techniqueNames...)...)
	completeWith(cmd, "sweep", sweepThreads)
	completeFiles(cmd, "report", false)
	completeFiles(cmd, "trace", false)
}

// configs are the systems to measure.
func (o *simOptions) configs(cmd *cobra.Command) ([]simbench.Config, error) {
	if o.sweep != "" && o.sweep != sweepThreads {
		return nil, usagef("--sweep is %q; it must be %s", o.sweep, sweepThreads)
	}
	if o.policy != "" && !slices.Contains(policies, o.policy) {
		return nil, usagef("--policy is %q; it must be default or ford", o.policy)
	}
	profile, err := machine(o.machine)
	if err != nil {
		return nil, err
	}
	base := simbench.Config{
		Workload: o.workload, Profile: profile, Seed: o.seed, Threads: o.threads, Coroutines: o.coroutines,
		Blades: o.blades, Backups: o.replicas, Rows: o.rows, Warmup: o.warmup, Txns: o.txns, Verify: o.verify,
	}
	var out []simbench.Config
	add := func(policy occ.Policy, t rdma.Techniques) {
		c := base
		c.Policy, c.Techniques, c.LikeDTX = policy, t, policy == occ.PolicyFORD
		if cmd.Flags().Changed("like-dtx") {
			c.LikeDTX = o.likeDTX
		}
		out = append(out, c)
	}
	switch {
	case o.policy == "ford":
		add(occ.PolicyFORD, o.techniques.value())
	case o.policy == "default", cmd.Flags().Changed("techniques"):
		add(occ.PolicyDefault, o.techniques.value())
	default:
		add(occ.PolicyFORD, rdma.Techniques{})
		add(occ.PolicyFORD, rdma.AllTechniques)
		add(occ.PolicyDefault, rdma.AllTechniques)
	}
	for _, n := range []int{o.threads, o.coroutines, o.rows, int(min(o.txns, 1)), int(min(o.warmup, 1))} {
		if n < 1 { // zero is a default in a Config, but not on a command line
			return nil, usagef("--threads, --coroutines, --txns, --warmup and the number of rows must be positive")
		}
	}
	for _, c := range out {
		if err := c.Validate(); err != nil {
			return nil, &usageError{cause: err}
		}
	}
	return out, nil
}

// counts are the thread counts to measure.
func (o *simOptions) counts() []int {
	if o.sweep == "" {
		return []int{o.threads}
	}
	counts := slices.DeleteFunc(simbench.Figure10Threads(), func(n int) bool { return n > o.threads })
	if len(counts) == 0 || counts[len(counts)-1] != o.threads {
		counts = append(counts, o.threads)
	}
	return counts
}

// run measures and prints.
func (o *simOptions) run(ctx context.Context, w *World, configs []simbench.Config) error {
	counts := o.counts()
	var record *sim.Recording
	if o.trace != "" {
		if len(counts)*len(configs) > 1 {
			return usagef("--trace shows one point; choose --policy and --techniques, without --sweep")
		}
		record = &sim.Recording{}
		configs[0].Record = record
	}
	total, done := len(counts)*len(configs), 0
	var curves []simbench.Curve
	var data *simbench.Data
	like := false
	for _, c := range configs {
		if data == nil || c.LikeDTX != like {
			w.note("loading")
			var err error
			if data, err = simbench.Load(ctx, c); err != nil {
				w.note("")
				return interruptedOr(ctx, err)
			}
			like = c.LikeDTX
		}
		curve, err := simbench.Sweep(ctx, c, data, counts, func(p simbench.Point) {
			done++
			w.note("%d of %d points: %s, %d threads: %.2f M transactions/s", done, total, c.Name(), p.Threads, p.CommittedMps)
		})
		if err != nil {
			w.note("")
			return interruptedOr(ctx, err)
		}
		curves = append(curves, curve)
	}
	w.note("")
	var programs []sim.Program
	for _, c := range configs {
		if p := c.Runs(); !slices.Contains(programs, p) {
			programs = append(programs, p)
		}
	}
	if o.report != "" {
		if err := writeFile(o.report, func(f io.Writer) error { return simbench.WriteHTML(f, configs[0].Profile, curves, programs...) }); err != nil {
			return err
		}
	}
	if record != nil {
		if err := writeFile(o.trace, record.WriteChrome); err != nil {
			return err
		}
	}
	switch o.output {
	case outputJSON:
		return simbench.WriteJSON(w.Stdout, curves)
	case outputCSV:
		return simbench.WriteCSV(w.Stdout, curves)
	default:
		return simbench.WriteTable(w.Stdout, curves)
	}
}

func newSimWorkload(w *World, workload string) *cobra.Command {
	o := &simOptions{workload: workload}
	cmd := &cobra.Command{
		Use:   workload,
		Short: "Predict " + workload + " on the published hardware, beside the published figures",
		Long: fmt.Sprintf(`Runs %s by the same engine on the simulated RNIC, and prints committed
transactions, latency, what did not commit and work requests beside figure 10 of the
SMART paper, with the error of every point. FORD+ is --policy ford --techniques none,
SMART-DTX is --policy ford --techniques all, ours is --policy default.`, workload),
		Example: fmt.Sprintf(`  txnode sim %[1]s --sweep threads --report %[1]s.html
  txnode sim %[1]s --policy ford --techniques none --threads 48
  txnode sim %[1]s --threads 2 --txns 1000 --policy default --trace trace.json`, workload),
		Args:              noArguments,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			configs, err := o.configs(cmd)
			if err != nil {
				return err
			}
			return o.run(cmd.Context(), w, configs)
		},
	}
	o.AddFlags(cmd)
	return cmd
}
