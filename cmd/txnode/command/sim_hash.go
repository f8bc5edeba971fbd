package command

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"txnode/benchmarks/hashbench"
	"txnode/rdma/sim"
)

// hashOptions are the flags of txnode sim hash.
type hashOptions struct {
	figure, mix, sweep string
	avoidance          []string
	techniques         techniqueList
	tuner              tunerList
	theta              float64
	keys, drawn        uint64
	likeSMART          bool
	threads            threadCounts
	coroutines         int
	compute, blades    int
	warmup, window     time.Duration
	limit, idle        time.Duration
	seed               uint64
	machines           []string
	output             outputFormat
	markdown           bool
	report             string
	trace              string
}

// What --sweep of txnode sim hash can vary.
var hashSweeps = []string{sweepThreads, "zipf"}

// AddFlags registers the flags.
func (o *hashOptions) AddFlags(cmd *cobra.Command) {
	var mixes, avoidances []string
	for _, m := range hashbench.Mixes {
		mixes = append(mixes, m.Name)
	}
	for _, a := range hashbench.Avoidances {
		avoidances = append(avoidances, a.Name)
	}
	fs := cmd.Flags()
	fs.StringVar(&o.figure, "figure", "", "repeat a `figure` of the SMART paper: "+strings.Join(hashbench.FigureNames,
		", ")+"; by default none")
	fs.StringVar(&o.mix, "mix", "a",
		"`mix` of YCSB: a (half of it updates), b (5 % updates), c (lookups), or update-only")
	fs.StringSliceVar(&o.avoidance, "conflict-avoidance", []string{"all"},
		"what is done about retries, a curve each: none, backoff (truncated exponential),\n"+
			"dynamic (its limit follows the retries), all (coroutines are throttled too)")
	o.techniques = techniqueList{"doorbells", "throttle"}
	fs.Var(&o.techniques, "techniques", "SMART's techniques beneath: doorbells and throttle, one of them, or none")
	tunerFlag(cmd, &o.tuner)
	fs.Float64Var(&o.theta, "zipf", 0.99, "parameter of the distribution of keys, 0 (uniform) to 0.99")
	fs.StringVar(&o.sweep, "sweep", "",
		"what to vary: threads, up to --threads, or zipf, from 0 to 0.99; by default nothing")
	fs.Uint64Var(&o.keys, "keys", hashbench.DefaultKeys,
		"number of keys, 8 bytes each, with values of 8 bytes; some 190 bytes of memory each and copy")
	fs.Uint64Var(&o.drawn, "drawn", hashbench.DefaultDrawn,
		"number of keys that the distribution is over; those beyond --keys are folded onto the others,\n"+
			"so that frequent keys are as frequent as in a table of that size")
	fs.BoolVar(&o.likeSMART, "like-smart", true,
		"post, spend and count what SMART's program does, of which the figures are; with =false, this engine's "+
			"lookups,\nof one bucket where that is enough")
	o.threads = threadCounts{most: 96}
	fs.Var(&o.threads, "threads",
		"number of threads, over all compute blades; a range such as 1..96, or a list by commas; with --figure\n"+
			"those of the figure that are meant")
	fs.IntVar(&o.coroutines, "coroutines", 8, "number of coroutines per thread")
	fs.IntVar(&o.compute, "compute", 1, "number of compute blades")
	fs.IntVar(&o.blades, "blades", 2, "number of memory blades")
	fs.DurationVar(&o.idle, "idle", 0, "virtual `time` that a coroutine waits after each operation; by default none")
	fs.DurationVar(&o.warmup, "warmup", 0, "virtual `time` before the measurement; 0, the default: 52ms")
	fs.DurationVar(&o.window, "window", 0,
		"virtual `time` of a window: the run goes on until three successive ones agree within 5 %;\n"+
			"0, the default: 4ms, or as long as the limits take to move; too short a window is doubled")
	fs.DurationVar(&o.limit, "limit", 0,
		"virtual `time` of all windows, after which the run ends though they do not agree; 0, the\ndefault: 240ms")
	fs.Uint64Var(&o.seed, "seed", 1, "seed of everything that is drawn")
	machinesFlag(cmd, &o.machines)
	o.output.addFlag(cmd)
	markdownFlag(cmd, &o.markdown)
	reportFlag(cmd, &o.report)
	fs.StringVar(&o.trace, "trace", "",
		"`file` to write every verb to, in the Chrome trace format; one point only; by default none")
	completeWith(cmd, "figure", hashbench.FigureNames...)
	completeWith(cmd, "mix", mixes...)
	completeWith(cmd, "conflict-avoidance", avoidances...)
	completeWith(cmd, "techniques", "none", "doorbells", "throttle")
	completeWith(cmd, "sweep", hashSweeps...)
	completeFiles(cmd, "trace", false)
}

// config checks the flags, and returns what all curves have in common.
func (o *hashOptions) config(cmd *cobra.Command) (hashbench.Config, error) {
	c := hashbench.Config{
		Theta: o.theta, Keys: o.keys, Seed: o.seed, Threads: o.threads.most,
		Coroutines: o.coroutines, Compute: o.compute,
		Drawn: o.drawn, LikeSMART: o.likeSMART, Blades: o.blades, Warmup: o.warmup, Window: o.window, Limit: o.limit,
		Idle: o.idle, Techniques: o.techniques.value(),
	}
	if err := positive(cmd, "keys", "drawn", "threads", "coroutines", "compute", "blades"); err != nil {
		return c, err
	}
	switch {
	case o.sweep != "" && !slices.Contains(hashSweeps, o.sweep):
		return c, usagef("--sweep is %q; it must be one of %s", o.sweep, strings.Join(hashSweeps, ", "))
	case o.sweep != "" && o.sweep != sweepThreads && !o.threads.one():
		return c, usagef("--sweep %s varies that alone; --threads must be one number", o.sweep)
	case c.Techniques.Backoff || c.Techniques.DynLimit || c.Techniques.CoroLimit:
		return c, usagef("--techniques are doorbells and throttle here; the others are those of --conflict-avoidance")
	case len(o.avoidance) == 0:
		return c, usagef("--conflict-avoidance is empty; give one or more of none, backoff, dynamic, all")
	}
	var err error
	if c.Mix, err = hashbench.MixByName(o.mix); err != nil {
		return c, &usageError{cause: err}
	}
	return c, nil
}

// plan checks the flags, and returns what is to be loaded and measured: the curves on each machine.
func (o *hashOptions) plan(cmd *cobra.Command) (hashbench.Config, []hashbench.Curve, error) {
	c, err := o.config(cmd)
	if err != nil {
		return c, nil, err
	}
	var out []hashbench.Curve
	var first hashbench.Config
	for i, name := range o.machines {
		if c.Profile, err = machine(name); err != nil {
			return c, nil, err
		}
		if err := c.Validate(); err != nil {
			return c, nil, &usageError{cause: err}
		}
		curves, err := o.curves(c)
		if err != nil {
			return c, nil, err
		}
		for j := range curves {
			if len(o.machines) > 1 {
				curves[j].Machine = name
			}
		}
		if out = append(out, curves...); i == 0 {
			first = c
		}
	}
	return first, out, nil
}

// curves are those of one machine.
func (o *hashOptions) curves(c hashbench.Config) ([]hashbench.Curve, error) {
	if o.figure != "" {
		curves, err := hashbench.Figure(o.figure, c)
		if err != nil {
			return nil, &usageError{cause: err}
		}
		if o.threads.one() {
			return curves, nil
		}
		for i := range curves {
			if curves[i].Only(func(
				c hashbench.Config) bool {
				return o.threads.has(c.Threads)
			}); len(curves[i].Config) == 0 {
				return nil, usagef("--threads is %v: figure %s has none of them", &o.threads, o.figure)
			}
		}
		return curves, nil
	}
	var curves []hashbench.Curve
	for _, name := range o.avoidance {
		a, err := hashbench.AvoidanceByName(strings.TrimSpace(name))
		if err != nil {
			return nil, &usageError{cause: err}
		}
		for _, t := range o.tuner.all() {
			one, name := c, a.Name
			a.Set(&one.Techniques)
			if t.apply(&one.Techniques, &one.Tuner, o.likeSMART); len(o.tuner) > 1 {
				name += ", tuner " + t.name
			}
			switch {
			case o.sweep == sweepThreads || !o.threads.one():
				curves = append(curves,
					hashbench.Vary(name, one, o.threads.among(hashbench.ThreadCounts(o.threads.most)),
						hashbench.SetThreads))
			case o.sweep == "":
				curves = append(curves, hashbench.Vary(name, one, []int{o.threads.most}, hashbench.SetThreads))
			default:
				curves = append(curves, hashbench.Vary(name, one, hashbench.Thetas, hashbench.SetTheta))
			}
		}
	}
	return curves, nil
}

// run measures and prints.
func (o *hashOptions) run(cmd *cobra.Command, w *World) error {
	ctx := cmd.Context()
	c, curves, err := o.plan(cmd)
	if err != nil {
		return err
	}
	total := 0
	for i := range curves {
		total += len(curves[i].Config)
	}
	var record *sim.Recording
	if o.trace != "" {
		if total != 1 {
			return usagef("--trace shows one point: use it without --figure and --sweep, with one --conflict-avoidance")
		}
		record = &sim.Recording{}
		curves[0].Config[0].Record = record
	}
	done, err := writable(o.report, o.trace)
	if err != nil {
		return err
	}
	defer done()
	data, err := hashbench.Load(ctx, c, func(done, total uint64) { w.note("loading: %d of %d keys", done, total) })
	n := 0
	if err == nil {
		w.note("0 of %d points", total)
		err = hashbench.Measure(ctx, curves, data, func(c *hashbench.Curve, p *hashbench.Point) {
			n++
			w.note("%d of %d points: %s, %d threads: %.2f M operations/s", n, total, c.Name, p.Threads, p.Mops)
		})
	}
	w.note("")
	stopped := interruptedOr(ctx, err)
	if stopped != nil {
		if !errors.Is(stopped, errInterrupted) {
			return stopped
		}
		if n == 0 {
			return fmt.Errorf("%w: 0 of %d points were measured", stopped, total)
		}
		for i := range curves {
			curves[i] = curves[i].Measured()
		}
		curves = slices.DeleteFunc(curves, func(c hashbench.Curve) bool { return len(c.Points) == 0 })
		stopped = fmt.Errorf("%w: %d of %d points were measured", stopped, n, total)
	}
	var failed error // of a file: the figures are printed nevertheless
	if record != nil {
		failed = writeFile(o.trace, record.WriteChrome)
	}
	r := hashbench.NewReport(o.figure, c, curves)
	if stopped != nil {
		r.Statements = nil // they are about whole curves
	}
	if o.report != "" {
		failed = errors.Join(failed, writeFile(o.report, func(f io.Writer) error { return r.WriteHTML(f, c.Profile) }))
	}
	write := r.WriteTable
	switch o.output {
	case outputJSON:
		write = r.WriteJSON
	case outputCSV:
		write = r.WriteCSV
	}
	if o.markdown {
		write = r.WriteMarkdown
	}
	if err := errors.Join(failed, write(w.Stdout)); err != nil {
		return err
	}
	return stopped
}

func newSimHash(w *World) *cobra.Command {
	o := &hashOptions{}
	cmd := &cobra.Command{
		Use:   "hash",
		Short: "The RACE index alone, under YCSB's mixes: figures 5, 7 to 9 and 14 of the SMART paper",
		Long: `Looks up and updates keys in the RACE index of the engine on the simulated RNIC, as
section 6.2.1 of the SMART paper does: 8-byte keys and values, no locks, a key drawn
from a Zipf distribution; an update whose compare-and-swap fails is tried again.
Prints throughput, latency, verbs and retries with their distribution, and what was
published of the same configuration, if anything. The paper's RACE is --techniques none
--conflict-avoidance none, its SMART-HT is the default, ours is --like-smart=false.`,
		Example: `  txnode sim hash --mix update-only --threads 96 --conflict-avoidance none,backoff,dynamic,all
  txnode sim hash --figure 14 --report hash.html
  txnode sim hash --mix c --sweep threads --techniques none --conflict-avoidance none`,
		Args:              noArguments,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := notMarkdown(cmd, o.markdown); err != nil {
				return err
			}
			if o.figure != "" {
				if err := fixedBy(cmd, "figure", "mix", "conflict-avoidance", "techniques", "zipf", "sweep",
					"like-smart", "tuner", "idle", "trace"); err != nil {
					return err
				}
			}
			return o.run(cmd, w)
		},
	}
	o.AddFlags(cmd)
	return cmd
}
