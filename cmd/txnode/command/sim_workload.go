package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"txnode/benchmarks/simbench"
	"txnode/occ"
	"txnode/rdma"
	"txnode/rdma/sim"
)

// simOptions are the flags of txnode sim smallbank, txnode sim tatp and txnode sim ycsb.
type simOptions struct {
	workload   string
	threads    threadCounts
	coroutines int
	policy     string
	index      string
	techniques techniqueList
	tuner      tunerList
	sweep      string
	likeDTX    bool
	machine    string
	rows       int
	ycsb       ycsbOptions
	txns       int64
	warmup     time.Duration
	idle       idleTimes
	replicas   int
	blades     int
	seed       uint64
	verify     bool
	output     outputFormat
	markdown   bool
	figure     string
	report     string
	trace      string
}

// What --sweep varies.
const (
	sweepThreads = "threads"
	sweepIdle    = "idle"
)

// simRows are the flags that say how many rows there are, by workload.
var simRows = map[string]string{"smallbank": "accounts", "tatp": "subscribers", "ycsb": "records"}

// published says whether FORD's and SMART's programs have the workload.
func (o *simOptions) published() bool { return o.workload != "ycsb" }

// AddFlags registers the flags.
func (o *simOptions) AddFlags(cmd *cobra.Command) {
	fs := cmd.Flags()
	o.threads = threadCounts{most: 96}
	fs.Var(&o.threads, "threads",
		"number of threads; a range such as 1..96: those of the\npublished figure that are in it; or a list by commas")
	fs.IntVar(&o.coroutines, "coroutines", 8, "number of coroutines per thread")
	fs.StringVar(&o.policy, "policy", "",
		"commit `policy`: default or ford; without this flag and --techniques:\n"+
			"ford without techniques, ford with all, default with all, one after the other")
	indexFlag(cmd, &o.index)
	o.techniques = slices.Clone(techniqueNames)
	fs.Var(&o.techniques, "techniques", "SMART's techniques to use, by commas, or all or none")
	tunerFlag(cmd, &o.tuner)
	if rows := simRows[o.workload]; o.published() {
		fs.StringVar(&o.figure, "figure", "",
			"repeat a `figure` of the SMART paper: 10 (threads) or 11 (idling), FORD+ and SMART-DTX;\nby default none")
		completeWith(cmd, "figure", "10", "11")
		fs.StringVar(&o.sweep, "sweep", "",
			"what to vary: threads, as in figure 10, up to --threads (the same as --threads 1..96);\n"+
				"idle, as in figure 11; by default nothing")
		fs.BoolVar(&o.likeDTX, "like-dtx", false,
			"count and retry as FORD's and SMART's programs do: one attempt, another transaction\n"+
				"after an abort, backoff after every abort; the default with --policy ford")
		fs.IntVar(&o.rows, rows, simbench.DefaultRows, "number of "+rows)
		completeWith(cmd, "sweep", sweepThreads, sweepIdle)
	} else {
		fs.StringVar(&o.sweep, "sweep", "",
			"what to vary: threads, up to --threads (the same as --threads 1..96); by default nothing")
		o.ycsb.AddFlags(cmd, false)
		completeWith(cmd, "sweep", sweepThreads)
	}
	machineFlag(cmd, &o.machine, sim.ConnectX6().WithPersistentMemory())
	share := ""
	if o.published() {
		share = "; with --like-dtx each\nthread has an equal share, and the time is that of the last"
	}
	fs.Int64Var(&o.txns, "txns", simbench.DefaultTxns, "number of transactions to measure at each point"+share)
	fs.Var(&o.idle, "idle",
		"virtual `time` that a worker waits after each committed transaction, or several by commas, a\n"+
			"point each, also of figure 11; by default none")
	fs.DurationVar(&o.warmup, "warmup", simbench.DefaultWarmup, "virtual `time` before the measurement")
	fs.IntVar(&o.replicas, "replicas", 1, "number of backups of each record: 0, 1 or 2")
	fs.IntVar(&o.blades, "blades", 2, "number of memory blades, more than --replicas")
	fs.Uint64Var(&o.seed, "seed", 1, "seed of everything that is drawn")
	fs.BoolVar(&o.verify, "verify", false, "check the books after each point")
	o.output.addFlag(cmd)
	markdownFlag(cmd, &o.markdown)
	reportFlag(cmd, &o.report)
	fs.StringVar(&o.trace, "trace", "",
		"`file` to write every verb to, in the Chrome trace format; one point only; by default none")
	completeWith(cmd, "policy", policies...)
	completeWith(cmd, "techniques", append([]string{"all", "none"}, techniqueNames...)...)
	completeFiles(cmd, "trace", false)
}

// configs are the systems to measure.
func (o *simOptions) configs(cmd *cobra.Command) ([]simbench.Config, error) {
	if !o.published() {
		if o.sweep != "" && o.sweep != sweepThreads {
			return nil, usagef("--sweep is %q; it must be %s", o.sweep, sweepThreads)
		}
		if _, err := o.ycsb.Driver(); err != nil {
			return nil, err
		}
		o.rows = o.ycsb.Records
	}
	if o.sweep != "" && o.sweep != sweepThreads && o.sweep != sweepIdle {
		return nil, usagef("--sweep is %q; it must be %s or %s", o.sweep, sweepThreads, sweepIdle)
	}
	switch {
	case o.sweep == sweepIdle && o.figure == "" && o.idle != nil:
		return nil, usagef("--sweep idle has the times of figure 11; leave --sweep out to give others with --idle")
	case o.sweepsIdle() && (o.sweep == sweepThreads || !o.threads.one()):
		return nil, usagef("--idle varies alone; --threads must be one number")
	}
	if o.policy != "" && !slices.Contains(policies, o.policy) {
		return nil, usagef("--policy is %q; it must be default or ford", o.policy)
	}
	if !slices.Contains(indexes, o.index) {
		return nil, usagef("--index is %q; it must be one of %s", o.index, strings.Join(indexes, ", "))
	}
	profile, err := machine(o.machine)
	if err != nil {
		return nil, err
	}
	base := simbench.Config{
		Workload: o.workload, Profile: profile, Seed: o.seed, Threads: o.threads.most, Coroutines: o.coroutines,
		Blades: o.blades, Backups: o.replicas, Rows: o.rows, YCSB: o.ycsb.Options, Warmup: o.warmup,
		Txns: o.txns, Verify: o.verify, LeafIndex: o.index == "leaves",
	}
	if !o.sweepsIdle() && o.idle != nil {
		base.Idle = o.idle[0]
	}
	var out []simbench.Config
	add := func(policy occ.Policy, t rdma.Techniques) {
		for _, throttling := range o.tuner.all() {
			c := base
			c.Policy, c.Techniques, c.LikeDTX = policy, t, policy == occ.PolicyFORD && o.published()
			if cmd.Flags().Changed("like-dtx") {
				c.LikeDTX = o.likeDTX
			}
			throttling.apply(&c.Techniques, &c.Tuner, c.LikeDTX)
			out = append(out, c)
		}
	}
	switch {
	case o.figure != "":
		add(occ.PolicyFORD, rdma.Techniques{})
		add(occ.PolicyFORD, rdma.AllTechniques)
	case o.policy == "ford":
		add(occ.PolicyFORD, o.techniques.value())
	case o.policy == "default", cmd.Flags().Changed("techniques"):
		add(occ.PolicyDefault, o.techniques.value())
	default:
		add(occ.PolicyFORD, rdma.Techniques{})
		add(occ.PolicyFORD, rdma.AllTechniques)
		add(occ.PolicyDefault, rdma.AllTechniques)
	}
	if err := positive(cmd, "threads", "coroutines", "blades", simRows[o.workload], "txns", "warmup"); err != nil {
		return nil, err
	}
	for _, c := range out {
		for _, c.Idle = range append(o.idle, c.Idle) {
			if err := c.Validate(); err != nil {
				return nil, &usageError{cause: err}
			}
		}
	}
	return out, nil
}

// fixFigure sets what --figure decides.
func (o *simOptions) fixFigure(cmd *cobra.Command) error {
	switch o.figure {
	case "":
		return nil
	case "10":
		if err := fixedBy(cmd, "figure", "idle"); err != nil {
			return err
		}
		o.sweep = sweepThreads
	case "11":
		o.sweep = sweepIdle
	default:
		return usagef("--figure is %q; it must be 10 or 11", o.figure)
	}
	return fixedBy(cmd, "figure", "policy", "techniques", "tuner", "sweep", "like-dtx", "coroutines",
		"replicas", "blades", "trace")
}

// sweepsIdle says that points differ in their idle times.
func (o *simOptions) sweepsIdle() bool { return o.sweep == sweepIdle || len(o.idle) > 1 }

// idles are the idle times to measure.
func (o *simOptions) idles() []time.Duration {
	if o.idle == nil {
		return simbench.Figure11Idle()
	}
	return o.idle
}

// counts are the thread counts to measure.
func (o *simOptions) counts() []int {
	if o.sweep != sweepThreads && o.threads.one() {
		return []int{o.threads.most}
	}
	return o.threads.among(simbench.Figure10Threads())
}

// measure measures a configuration at all points.
func (o *simOptions) measure(ctx context.Context, c simbench.Config, data *simbench.Data,
	done func(simbench.Point)) (simbench.Curve, error) {
	if o.sweepsIdle() {
		return simbench.SweepIdle(ctx, c, data, o.idles(), done)
	}
	return simbench.Sweep(ctx, c, data, o.counts(), done)
}

// run measures and prints. When it is interrupted it prints what it has.
func (o *simOptions) run(ctx context.Context, w *World, configs []simbench.Config) error {
	each := len(o.counts())
	if o.sweepsIdle() {
		each = len(o.idles())
	}
	var record *sim.Recording
	if o.trace != "" {
		if each*len(configs) > 1 {
			return usagef("--trace shows one point; choose --policy and --techniques, without --sweep")
		}
		record = &sim.Recording{}
		configs[0].Record = record
	}
	unused, err := writable(o.report, o.trace)
	if err != nil {
		return err
	}
	defer unused()
	total, done := each*len(configs), 0
	var stopped error // by Ctrl-C, in the middle
	var curves []simbench.Curve
	var data *simbench.Data
	like := false
	for _, c := range configs {
		if data == nil || c.LikeDTX != like {
			w.note("loading")
			var err error
			if data, err = simbench.Load(ctx, c, func(done, total int) {
				w.note("loading: %d of %d records",
					done, total)
			}); err != nil {
				stopped = interruptedOr(ctx, err)
				break
			}
			like = c.LikeDTX
			w.note("%d of %d points", done, total)
		}
		curve, err := o.measure(ctx, c, data, func(p simbench.Point) {
			done++
			w.note("%d of %d points: %s, %d threads: %.2f M transactions/s",
				done, total, c.Name(), p.Threads, p.CommittedMps)
		})
		if len(curve.Points) > 0 {
			curves = append(curves, curve)
		}
		if err != nil {
			stopped = interruptedOr(ctx, err)
			break
		}
	}
	w.note("")
	if len(curves) == 0 || stopped != nil && !errors.Is(stopped, errInterrupted) {
		return stopped
	}
	var programs []sim.Program
	for _, c := range configs {
		p := c.Runs() // with so many threads
		if !slices.ContainsFunc(programs, func(q sim.Program) bool { return q.Name == p.Name }) {
			programs = append(programs, p)
		}
	}
	var failed error // of a file: the figures are printed nevertheless
	if o.report != "" {
		failed = writeFile(o.report, func(f io.Writer) error {
			return simbench.WriteHTML(f, configs[0].Profile, curves, programs...)
		})
	}
	if record != nil {
		failed = errors.Join(failed, writeFile(o.trace, record.WriteChrome))
	}
	write := simbench.WriteTable
	switch o.output {
	case outputJSON:
		write = simbench.WriteJSON
	case outputCSV:
		write = simbench.WriteCSV
	}
	if o.markdown {
		write = simbench.WriteMarkdown
	}
	if err := errors.Join(failed, write(w.Stdout, curves)); err != nil {
		return err
	}
	if stopped != nil {
		return fmt.Errorf("%w: %d of %d points were measured", stopped, done, total)
	}
	return nil
}

func newSimWorkload(w *World, workload string) *cobra.Command {
	o := &simOptions{workload: workload}
	cmd := &cobra.Command{
		Use:   workload,
		Short: "Predict " + workload + " on the published hardware, beside the published figures",
		Example: fmt.Sprintf(`  txnode sim %[1]s --sweep threads --report %[1]s.html
  txnode sim %[1]s --sweep idle --policy ford
  txnode sim %[1]s --policy ford --techniques none --threads 48
  txnode sim %[1]s --threads 2 --txns 1000 --policy default --trace trace.json`, workload),
		Long: fmt.Sprintf(`Runs %s by the same engine on the simulated RNIC, and prints committed
transactions, latency, what did not commit and work requests beside figure 10 of the
SMART paper, with the error of every point. FORD+ is --policy ford --techniques none,
SMART-DTX is --policy ford --techniques all, ours is --policy default.`, workload),
		Args:              noArguments,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := errors.Join(notMarkdown(cmd, o.markdown), o.fixFigure(cmd)); err != nil {
				return err
			}
			configs, err := o.configs(cmd)
			if err != nil {
				return err
			}
			return o.run(cmd.Context(), w, configs)
		},
	}
	if !o.published() {
		cmd.Short = "Predict " + workload + " on the hardware of the published measurements"
		cmd.Long = `Runs YCSB by the same engine on the simulated RNIC, and prints committed transactions,
latency, what did not commit and work requests. FORD and SMART-DTX have not been measured
with it, so nothing stands beside that. Systems are FORD's commit policy without and with
SMART's techniques, and ours.`
		cmd.Example = `  txnode sim ycsb --workload c --sweep threads --policy default
  txnode sim ycsb --workload a --theta 0 --threads 48
  txnode sim ycsb --workload d --value-size 8 --report ycsb.html`
	}
	o.AddFlags(cmd)
	return cmd
}
