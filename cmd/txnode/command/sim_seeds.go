package command

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"txnode/benchmarks/simbench/seeds"
	"txnode/check"
	"txnode/history"
	"txnode/rdma/sim"
)

// seedsOptions are the flags of txnode sim seeds.
type seedsOptions struct {
	from, count uint64
	threads     int
	workload    string
	faults      string
	only        string
	durability  string
	siege       bool
	processes   int
	trace       string
	edn         string
}

// AddFlags registers the flags.
func (o *seedsOptions) AddFlags(cmd *cobra.Command, cpus int) {
	fs := cmd.Flags()
	fs.Uint64Var(&o.from, "from", 1, "first seed")
	fs.Uint64Var(&o.count, "seeds", 2000, "number of seeds")
	fs.IntVar(&o.threads, "parallel", cpus, "number of seeds that run at a time")
	fs.StringVar(&o.workload, "workload", "", "workload instead of the one that each seed draws, by default none:\n"+
		inLines(seeds.Workloads(), 90))
	fs.StringVar(&o.faults, "faults", "none",
		"kinds of faults that each seed draws from, by commas: all, none, or of\n"+
			strings.Join(seeds.FaultNames(), ", "))
	fs.StringVar(&o.only, "only", "",
		"`faults` to inject instead of what is drawn, as expressions separated by semicolons; by default none")
	fs.StringVar(&o.durability, "durability", "",
		"process, or power, which has policy default, instead of what each seed draws, by default none")
	fs.BoolVar(&o.siege, "siege", false,
		"blades stop one after the other while the work goes on, as often as all copies are there: in\n"+
			"every run, and not only where a seed with the fault restart draws it")
	fs.IntVar(&o.processes, "processes", 0,
		"how many processes have the database open at once, from 1 to 8, instead of what each seed draws,\n"+
			"by default drawn: some seeds have 2 to 4, if no other flag but --faults decides what a seed draws")
	fs.StringVar(&o.trace, "trace", "",
		"`file` to write a trace of one seed to: every effect and completion, a line each, or,\n"+
			"if its name ends in .json, every verb in the Chrome trace format; by default none")
	fs.StringVar(&o.edn, "history", "",
		"`file` to write the history of one seed to, for Jepsen's checker Elle: EDN, of the workload list-append "+
			"for\nits model list-append, of the others for rw-register; by default none")
	completeWith(cmd, "workload", seeds.Workloads()...)
	completeWith(cmd, "durability", durabilities...)
	completeWith(cmd, "faults", append([]string{"all", "none"}, seeds.FaultNames()...)...)
	completeFiles(cmd, "trace", false)
	completeFiles(cmd, "history", false)
}

func newSimSeeds(w *World) *cobra.Command {
	o := &seedsOptions{}
	cmd := &cobra.Command{
		Use:   "seeds",
		Short: "Hold the engine against schedules drawn from seeds",
		Long: `Runs small workloads (SmallBank, TATP, bank, write skew, long fork, list append,
counter, insert race, churn, queue, ranges, secondary indexes, unique keys) on the
simulated RNIC. Each seed draws workload, compute blades, threads, policy, durability,
techniques, replication, promises of the fabric and how hostile its memory is. Every
history is checked to be strictly serializable, the books must balance, and the blades
are walked as by txnode check: no lock left, all replicas equal, no block lost. With
--faults, coordinators stop, verbs and completions are lost, delayed or torn, blades are
slow, cut off or restarted, and the catalog does not answer, as each seed draws; then
the faults end, the database is recovered, and all of this must hold, and every
transaction whose client was not told have one answer. With --siege, which some seeds
draw, blades stop whenever all copies are there, come back and are built anew, and
clients who are told of a fault go on. Several processes, with a compute blade each, may
have the database open at once: with --faults they are killed, paused and cut off from
the catalog, and they join and leave in the middle. Some have a network between them and
the blades: they have trouble of their own, are cut off blades one way or both, as is
the witness, and their clocks run apart. Stops at the first violation (exit code 3) and
prints the command that runs it again: a seed is the same run everywhere, down to the
byte.`,
		Example: `  txnode sim seeds --seeds 20000
  txnode sim seeds --seeds 20000 --faults all
  txnode sim seeds --seeds 2000 --faults all --siege
  txnode sim seeds --seeds 2000 --faults all --processes 3
  txnode sim seeds --from 17 --seeds 1 --trace trace.txt
  txnode sim seeds --from 17 --seeds 1 --only 'stop(thread=2,verb=40)'
  txnode sim seeds --from 17 --seeds 1 --workload list-append --history lists.edn`,
		Args:              noArguments,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd, w)
		},
	}
	o.AddFlags(cmd, w.CPUs)
	return cmd
}

func (o *seedsOptions) run(cmd *cobra.Command, w *World) error {
	if err := positive(cmd, "seeds", "parallel"); err != nil {
		return err
	}
	ctx := cmd.Context()
	options := seeds.Options{Workload: o.workload, Durability: o.durability, Siege: o.siege, Processes: o.processes}
	var err error
	if options.Faults, err = seeds.ParseFaultKinds(o.faults); err != nil {
		return usagef("--faults: %v", err)
	}
	if options.Only, err = sim.ParseFaults(o.only); err != nil {
		return usagef("--only: %v", err)
	}
	if o.from+(o.count-1) < o.from {
		return usagef("--from is %d, and --seeds %d: the last seed there is, is %d",
			o.from, o.count, uint64(math.MaxUint64))
	}
	if (o.trace != "" || o.edn != "") && o.count > 1 {
		return usagef("--trace and --history show one seed: use them with --seeds 1")
	}
	done, err := writable(o.trace, o.edn)
	if err != nil {
		return err
	}
	defer done()
	if o.count == 1 {
		options.Canceled = func() bool { return ctx.Err() != nil }
		return o.verdict(w, interruptedOr(ctx, o.one(w, options)))
	}
	start := w.Now()
	var last atomic.Int64
	seen, err := seeds.RunMany(ctx, o.from, o.count, o.threads, options, func(n uint64) {
		if now := w.Now(); now.UnixMilli()-last.Load() >= 200 {
			last.Store(now.UnixMilli())
			w.note("%d of %d seeds, %.0f/s", n, o.count, float64(n)/max(now.Sub(start).Seconds(), 1e-3))
		}
	})
	w.note("")
	err = interruptedOr(ctx, err)
	if err == nil || errors.Is(err, errInterrupted) {
		took, of := w.Now().Sub(start), ""
		if err != nil {
			of = fmt.Sprintf(" of %d", o.count)
		}
		fmt.Fprintf(w.Stdout, "%d%s seeds, from %d: no violation (%v, %.0f seeds/s)\n",
			seen.Runs, of, o.from, took.Round(time.Millisecond), float64(seen.Runs)/max(took.Seconds(), 1e-3))
		fmt.Fprintln(w.Stdout, &seen)
	}
	return o.verdict(w, err)
}

// one runs one seed, and tells what it was.
func (o *seedsOptions) one(w *World, options seeds.Options) (err error) {
	if o.edn != "" {
		var written error
		defer func() { err = errors.Join(err, written) }()
		options.History = func(txns []history.Txn, lists []check.ListTxn) {
			written = writeEDN(o.edn, 0o666, func(w io.Writer) error {
				if lists != nil {
					return check.WriteElleLists(w, lists)
				}
				return check.WriteElle(w, txns)
			})
		}
	}
	run := func() error {
		r, err := seeds.Run(o.from, options)
		if err == nil {
			fmt.Fprintf(w.Stdout, "seed %d: %s\n%d transactions, %d verbs, %.3f ms of virtual time, trace %016x\n",
				r.Seed, r.Case, r.Txns, r.Verbs, float64(r.VirtualNs)/1e6, r.TraceHash)
		}
		return err
	}
	switch {
	case o.trace == "":
		return run()
	case strings.HasSuffix(o.trace, ".json"):
		options.Record = &sim.Recording{}
		err = run()
		return errors.Join(err, writeFile(o.trace, options.Record.WriteChrome))
	}
	written := writeFile(o.trace, func(f io.Writer) error {
		trace := &keeping{to: f}
		options.Trace = trace
		err = run()
		return trace.err
	})
	return errors.Join(err, written)
}

// verdict prints a violation in full: the line on standard error is cut off.
func (o *seedsOptions) verdict(w *World, err error) error {
	var v *seeds.Violation
	switch {
	case errors.As(err, &v):
		fmt.Fprintln(w.Stdout, seeds.Minimize(v))
		return fmt.Errorf("seed %d violates what must hold: %w", v.Seed, errViolation)
	case errors.Is(err, seeds.ErrUnknown):
		return &usageError{cause: err}
	}
	return err
}

// errViolation ends a command that has found an error of the engine.
var errViolation = errors.New("see above")

// inLines joins words by commas, in lines of so many bytes at most.
func inLines(words []string, most int) string {
	var b strings.Builder
	line := 0
	for i, w := range words {
		if i < len(words)-1 {
			w += ","
		}
		switch {
		case line > 0 && line+1+len(w) > most:
			b.WriteByte('\n')
			line = 0
		case line > 0:
			b.WriteByte(' ')
			line++
		}
		b.WriteString(w)
		line += len(w)
	}
	return b.String()
}
