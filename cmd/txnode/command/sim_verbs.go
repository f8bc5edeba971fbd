package command

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"txnode/benchmarks/report/page"
	"txnode/rdma"
	"txnode/rdma/sim"
	"txnode/rdma/sim/calibrate"
	"txnode/rdma/sim/verbs"
)

var verbOps = map[string]rdma.Op{"read": rdma.OpRead, "write": rdma.OpWrite, "cas": rdma.OpCAS, "faa": rdma.OpFAA}

var qpPolicies = map[string]rdma.QPPolicy{
	"doorbell": rdma.PerThreadDoorbell, "qp": rdma.PerThreadQP, "multiplexed": rdma.MultiplexedQP,
	"shared": rdma.SharedQP,
}

func keysOf[V any](m map[string]V) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// simVerbsOptions are the flags of txnode sim verbs.
type simVerbsOptions struct {
	verbs.Config
	op, policy, machine, figure string
	change, run, warm           time.Duration
	output                      outputFormat
	report, trace               string
	requests                    int
	markdown                    bool
}

// AddFlags registers the flags.
func (o *simVerbsOptions) AddFlags(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&o.figure, "figure", "", "repeat a `figure` of the SMART paper: "+strings.Join(verbFigures, ", ")+
		"; by default none")
	fs.StringVar(&o.op, "op", "read", "verb: "+strings.Join(keysOf(verbOps), ", "))
	fs.StringVar(&o.policy, "qp", "doorbell",
		"allocation: doorbell (one per thread), qp (one per thread, doorbells as the driver\n"+
			"maps them), multiplexed (--share threads on one), shared (one for all)")
	fs.IntVar(&o.Share, "share", 4, "threads per queue pair, with --qp multiplexed")
	fs.IntVar(&o.Threads, "threads", 96, "number of threads on each compute blade")
	fs.IntVar(&o.Compute, "compute", 1, "number of compute blades")
	fs.IntVar(&o.Blades, "blades", 1, "number of memory blades")
	fs.IntVar(&o.Depth, "depth", 8, "requests that a thread posts before it waits for all of them")
	fs.IntVar(&o.PerDoorbell, "per-doorbell", 1,
		"requests that ring one doorbell; the published benchmark rings for each")
	fs.IntVar(&o.Size, "size", 8, "bytes of a READ or WRITE")
	fs.BoolVar(&o.Throttle, "throttle", false,
		"limit the outstanding requests as SMART does; its first decision takes 48 ms of virtual time")
	fs.DurationVar(&o.change, "change", 0,
		"`interval` at which the number of threads changes, from --min-threads to --threads (table 1); 0, the "+
			"default: never")
	fs.IntVar(&o.MinThreads, "min-threads", 36, "least number of threads, with --change")
	fs.DurationVar(&o.warm, "warmup", 0,
		"virtual `time` before the measurement; 0, the default: 20us, or 60ms with --throttle")
	fs.DurationVar(&o.run, "duration", 0, "virtual `time` to measure; 0, the default: 200us, or 20ms with --throttle")
	fs.Uint64Var(&o.Seed, "seed", 1, "seed of everything that is drawn")
	fs.IntVar(&o.requests, "requests", 20_000, "with --figure: requests to measure at each point")
	machineFlag(cmd, &o.machine)
	o.output.addFlag(cmd)
	markdownFlag(cmd, &o.markdown)
	reportFlag(cmd, &o.report)
	fs.StringVar(&o.trace, "trace", "", "`file` to write every verb to, in the Chrome trace format; by default none")
	completeWith(cmd, "figure", verbFigures...)
	completeWith(cmd, "op", keysOf(verbOps)...)
	completeWith(cmd, "qp", keysOf(qpPolicies)...)
	completeFiles(cmd, "trace", false)
}

// complete checks the flags.
func (o *simVerbsOptions) complete(cmd *cobra.Command) error {
	if err := notMarkdown(cmd, o.markdown); err != nil {
		return err
	}
	if o.markdown && o.figure == "" {
		return usagef("--markdown is for --figure")
	}
	var ok bool
	if o.Op, ok = verbOps[o.op]; !ok {
		return usagef("--op is %q; it must be one of %s", o.op, strings.Join(keysOf(verbOps), ", "))
	}
	if o.Policy, ok = qpPolicies[o.policy]; !ok {
		return usagef("--qp is %q; it must be one of %s", o.policy, strings.Join(keysOf(qpPolicies), ", "))
	}
	if o.figure != "" && !slices.Contains(verbFigures, o.figure) {
		return usagef("--figure is %q; it must be one of %s", o.figure, strings.Join(verbFigures, ", "))
	}
	if err := positive(cmd, "requests", "threads", "compute", "blades", "depth", "per-doorbell", "size",
		"share"); err != nil {
		return err
	}
	if (o.Op == rdma.OpCAS || o.Op == rdma.OpFAA) && o.Size != 8 && o.figure == "" {
		return usagef("--size is %d, and a %s is of 8 bytes: --size is for read and write", o.Size, o.op)
	}
	o.ChangeNs, o.WarmNs, o.RunNs = int64(o.change), int64(o.warm), int64(o.run)
	var err error
	if o.Profile, err = machine(o.machine); err != nil {
		return err
	}
	if err := o.Validate(); err != nil {
		return &usageError{cause: err}
	}
	return nil
}

func newSimVerbs(w *World) *cobra.Command {
	o := &simVerbsOptions{}
	cmd := &cobra.Command{
		Use:   "verbs",
		Short: "Single verbs in a loop: figures 3 and 4 of the SMART paper, or any other setting",
		Example: `  txnode sim verbs --figure 4a --report verbs.html
  txnode sim verbs --op write --size 64 --threads 96 --depth 16 --throttle
  txnode sim verbs --threads 96 --depth 64 --throttle --change 32ms --duration 2s`,
		Args:              noArguments,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.complete(cmd); err != nil {
				return err
			}
			if o.figure != "" {
				if err := fixedBy(cmd, "figure", "op", "qp", "share", "threads", "compute", "blades", "depth",
					"per-doorbell", "size",
					"throttle", "change", "min-threads", "warmup", "duration", "seed", "trace"); err != nil {
					return err
				}
				done, err := writable(o.report)
				if err != nil {
					return err
				}
				defer done()
				return o.runFigure(cmd.Context(), w)
			}
			if cmd.Flags().Changed("requests") {
				return usagef("--requests is for --figure; --duration is how long else is measured")
			}
			if o.report != "" {
				return usagef("--report shows the curves of a figure: give --figure, too")
			}
			done, err := writable(o.trace)
			if err != nil {
				return err
			}
			defer done()
			return o.runOne(cmd.Context(), w)
		},
	}
	o.AddFlags(cmd)
	return cmd
}

// runOne measures the setting of the flags.
func (o *simVerbsOptions) runOne(ctx context.Context, w *World) error {
	if o.trace != "" {
		o.Record = &sim.Recording{}
	}
	o.Canceled = func() bool { return ctx.Err() != nil }
	r, err := verbs.Run(o.Config)
	if err != nil {
		return err
	}
	if !r.Canceled {
		return o.writeOne(w, &r)
	}
	if r.Verbs == 0 {
		return errInterrupted
	}
	took := time.Duration(r.RunNs)
	return errors.Join(o.writeOne(w, &r), fmt.Errorf("%w: %v of virtual time were measured",
		errInterrupted, took.Round(time.Microsecond)))
}

// writeOne prints what was measured, and writes the trace.
func (o *simVerbsOptions) writeOne(w *World, r *verbs.Result) error {
	var failed error
	if o.trace != "" {
		failed = writeFile(o.trace, o.Record.WriteChrome)
	}
	return errors.Join(failed, o.printOne(w, r))
}

func (o *simVerbsOptions) printOne(w *World, r *verbs.Result) error {
	switch o.output {
	case outputJSON:
		e := json.NewEncoder(w.Stdout)
		e.SetIndent("", "  ")
		return e.Encode(r)
	case outputCSV:
		out := csv.NewWriter(w.Stdout)
		return out.WriteAll([][]string{
			{"op", "qp", "threads", "depth", "bytes", "mops", "mean_ns", "p50_ns", "p99_ns", "trace_hash"},
			{
				o.op, o.policy, strconv.Itoa(o.Threads), strconv.Itoa(o.Depth), strconv.Itoa(o.Size),
				fmt.Sprintf("%.3f", r.Mops),
				fmt.Sprintf("%.0f", r.MeanNs), strconv.FormatInt(r.P50Ns, 10), strconv.FormatInt(r.P99Ns, 10),
				fmt.Sprintf("%016x", r.TraceHash),
			},
		})
	}
	limit := "not throttled"
	if r.CMax > 0 {
		limit = fmt.Sprintf("throttled, at the end to %d requests a thread", r.CMax)
	}
	_, err := fmt.Fprintf(w.Stdout, `%d threads, %d requests of %d bytes at a time, %d a doorbell, queue pairs: %s, %s
%.2f M %s/s, %.0f MiB/s
from the first post to the last completion: mean %.2f us, p50 %.2f us, p99 %.2f us
%d queue pairs, %d verbs simulated, trace %016x
`, o.Threads, o.Depth, o.Size, o.PerDoorbell, o.policy, limit, r.Mops, strings.ToUpper(o.op), r.MiBps,
		r.MeanNs/1e3, float64(r.P50Ns)/1e3, float64(r.P99Ns)/1e3, r.Connections, r.AllVerbs, r.TraceHash)
	return err
}

// verbFigures are the figures that --figure knows; the simulator is fitted to the first two.
var verbFigures = []string{"3a", "4a", "3b", "4b", "13a", "13b"}

// runFigure measures a published figure.
func (o *simVerbsOptions) runFigure(ctx context.Context, w *World) error {
	points := slices.DeleteFunc(append(calibrate.Points(), calibrate.Compared()...), func(p calibrate.Point) bool {
		return p.Figure != o.figure
	})
	r, err := evaluate(ctx, w, o.Profile, points, o.requests)
	stopped := interruptedOr(ctx, err)
	if stopped != nil && !errors.Is(stopped, errInterrupted) {
		return stopped
	}
	if err := writeCalibration(w, o.output, o.markdown, o.report, &r); err != nil || stopped == nil {
		return err
	}
	return fmt.Errorf("%w: %d of %d points were measured", stopped, len(r.Residuals), len(points))
}

// evaluate is calibrate.Evaluate, and says how far it is.
func evaluate(ctx context.Context, w *World, profile sim.Profile, points []calibrate.Point,
	requests int) (calibrate.Report, error) {
	defer w.note("")
	r := calibrate.Report{Profile: profile}
	for i, p := range points {
		w.note("%d of %d points", i, len(points))
		one, err := calibrate.Evaluate(ctx, profile, []calibrate.Point{p}, float64(requests))
		if err != nil {
			return r, err
		}
		r.Residuals = append(r.Residuals, one.Residuals...)
	}
	return r, nil
}

// writeCalibration prints a profile and its residuals, and writes the page of them if a
// file is named.
func writeCalibration(w *World, o outputFormat, markdown bool, report string, r *calibrate.Report) error {
	var failed error
	if report != "" {
		failed = writeFile(report, calibrationPage(r).Write)
	}
	if markdown {
		return errors.Join(failed, r.WriteMarkdown(w.Stdout))
	}
	return errors.Join(failed, printCalibration(w, o, r))
}

func printCalibration(w *World, o outputFormat, r *calibrate.Report) error {
	switch o {
	case outputJSON:
		e := json.NewEncoder(w.Stdout)
		e.SetIndent("", "  ")
		return e.Encode(r)
	case outputCSV:
		rows := [][]string{{"figure", "allocation", "threads", "depth", "published_mops", "model_mops", "error"}}
		for _, x := range r.Residuals {
			rows = append(rows, []string{
				x.Figure, x.Name, strconv.Itoa(x.Threads), strconv.Itoa(x.Depth),
				fmt.Sprintf("%.3f", x.Mops), fmt.Sprintf("%.3f", x.Model), fmt.Sprintf("%.4f", x.Error()),
			})
		}
		return csv.NewWriter(w.Stdout).WriteAll(rows)
	default:
		return r.WriteText(w.Stdout)
	}
}

// calibrationPage is the page of what calibrate has found: a figure for each of the
// published ones, by threads.
func calibrationPage(r *calibrate.Report) *page.Page {
	p := &page.Page{
		Title: "Single verbs on the simulated RNIC", Constants: page.Constants(r.Profile),
		Text: []string{fmt.Sprintf("Solid lines: 8-byte READs on the simulator, machine %s. Dashed lines: published "+
			"measurements (SMART, figures 3a and 4a), on two 24-core Xeon Gold 6240R and a 200 Gb/s ConnectX-6.",
			r.Profile.Name)},
	}
	if len(r.Residuals) > 0 {
		p.Text = append(p.Text,
			fmt.Sprintf("Absolute error over %d points: median %.1f %%, largest %.1f %%. The constants were fitted "+
				"to figures 3a and 4a, all of their points.",
				len(r.Residuals), 100*r.MedianError(), 100*r.MaxError()))
	}
	byFigure := map[string]*page.Figure{}
	var curves []string // figure and name, in order; two lines of the figure each
	for _, x := range r.Residuals {
		name := x.Name
		if x.Figure == "4a" || x.Figure == "4b" || x.Figure == "13b" {
			name = fmt.Sprintf("%s, %d requests", name, x.Depth)
		}
		f := byFigure[x.Figure]
		if f == nil {
			f = &page.Figure{Title: fmt.Sprintf("Figure %s: million requests per second", x.Figure), Below: "threads"}
			byFigure[x.Figure] = f
		}
		key := x.Figure + " " + name
		i := slices.Index(curves, key)
		if i < 0 {
			i = len(curves)
			curves = append(curves, key)
			p.Legend = append(p.Legend, name)
			p.Tables = append(p.Tables, page.Table{
				Title: fmt.Sprintf("Figure %s: %s", x.Figure, name),
				Head:  []string{"threads", "M/s", "published", "error"},
			})
			f.Lines = append(f.Lines, page.Line{Color: i}, page.Line{Color: i, Dashed: true})
		}
		p.Tables[i].Rows = append(p.Tables[i].Rows, []string{
			strconv.Itoa(x.Threads), fmt.Sprintf("%.3f", x.Model),
			fmt.Sprintf("%.3f", x.Mops), fmt.Sprintf("%+.1f %%", 100*x.Error()),
		})
		for k := range f.Lines {
			if l := &f.Lines[k]; l.Color == i {
				l.X, l.Y = append(l.X, float64(x.Threads)),
					append(l.Y, map[bool]float64{false: x.Model, true: x.Mops}[l.Dashed])
			}
		}
	}
	for _, name := range verbFigures {
		if f := byFigure[name]; f != nil {
			p.Figures = append(p.Figures, *f)
		}
	}
	return p
}

func newSimCalibrate(w *World) *cobra.Command {
	var (
		output   outputFormat
		check    bool
		from     string
		report   string
		requests int
		markdown bool
	)
	cmd := &cobra.Command{
		Use:   "calibrate",
		Short: "Fit the simulator's constants to figures 3a and 4a, and print every residual",
		Long: `Fits the constants of the simulated RNIC to two published measurements, figures 3a
and 4a of the SMART paper and nothing else, by running the simulator on their
micro-benchmark. It starts from the present constants and prints what it finds with
the residual of every point: some five minutes. --check prints the residuals of the
present constants only.`,
		Example:           "  txnode sim calibrate\n  txnode sim calibrate --check -o csv",
		Args:              noArguments,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := notMarkdown(cmd, markdown); err != nil {
				return err
			}
			if err := positive(cmd, "requests"); err != nil {
				return err
			}
			profile, err := machine(from)
			if err != nil {
				return err
			}
			done, err := writable(report)
			if err != nil {
				return err
			}
			defer done()
			var r calibrate.Report
			if check {
				r, err = evaluate(cmd.Context(), w, profile, calibrate.Points(), requests)
			} else {
				r, err = calibrate.Fit(cmd.Context(),
					calibrate.Options{Start: profile, Requests: float64(requests),
						Progress: func(p calibrate.Progress) {
							w.note("%s, round %d: mean squared logarithm of the error %.5f after %s",
								p.Stage, p.Round, p.Cost, p.Constant)
						}})
				w.note("")
			}
			stopped := interruptedOr(cmd.Context(), err)
			if stopped != nil && !errors.Is(stopped, errInterrupted) {
				return stopped
			}
			if err := writeCalibration(w, output, markdown, report, &r); err != nil {
				return err
			}
			switch {
			case stopped == nil:
				return nil
			case check:
				return fmt.Errorf("%w: %d of %d points were measured", stopped, len(r.Residuals),
					len(calibrate.Points()))
			}
			return fmt.Errorf("%w: these are the constants that were found until then, and the residuals of %d of %d "+
				"points with them", stopped, len(r.Residuals), len(calibrate.Points()))
		},
	}
	cmd.Flags().BoolVar(&check, "check", false, "do not fit")
	cmd.Flags().IntVar(&requests, "requests", 12_000, "requests to measure at each point")
	machineFlag(cmd, &from)
	output.addFlag(cmd)
	markdownFlag(cmd, &markdown)
	reportFlag(cmd, &report)
	return cmd
}
