package command

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"txnode/benchmarks/report"
	"txnode/benchmarks/runner"
	"txnode/benchmarks/workload"
)

// benchOptions are the flags of txnode bench, besides the workload's own.
type benchOptions struct {
	Store   StoreOptions
	Run     runner.Config
	Kill    killOptions
	Output  outputFormat
	Save    string // name in the history
	NoSave  bool
	History string // file
	Profile string // file
	EDN     string // file of the history of transactions
	Report  string // file of the page
	// Member is the number of this process among several; 0: it starts them, or is the only one.
	Member int
}

// AddFlags registers the flags. cpus is the default number of threads.
func (o *benchOptions) AddFlags(cmd *cobra.Command, cpus int) {
	fs, c := cmd.Flags(), &o.Run
	fs.IntVar(&c.Threads, "threads", cpus, "number of threads; the default is one per CPU")
	fs.IntVar(&c.Coroutines, "coroutines", 8, "number of coroutines per thread")
	fs.DurationVar(&c.Duration, "duration", runner.DefaultDuration,
		"`time` to measure per run, such as 30s; with --txns there is no limit by default")
	fs.DurationVar(&c.Warmup, "warmup", time.Second, "`time` to run before each measurement")
	fs.Int64Var(&c.Txns, "txns", 0, "number of transactions to measure per run; 0, the default: no limit")
	fs.IntVar(&c.Runs, "runs", 1, "number of runs over the same data; tables show medians and the spread")
	fs.Float64Var(&c.Rate, "rate", 0,
		"transactions per second that arrive, whatever the store does (open loop);\n"+
			"0, the default: each worker begins one when its last has ended (closed loop)")
	fs.Uint64Var(&c.Seed, "seed", 1, "seed of everything that is drawn; the next runs count up from it")
	fs.IntVar(&c.LatencySample, "latency-sample", 0,
		fmt.Sprintf("measure the latency of one transaction in so many, since reading the clock costs as much as "+
			"several verbs;\n0, the default: %d, or 1 with --verify; with --rate all are measured",
			runner.DefaultLatencySample))
	fs.BoolVar(&c.Verify, "verify", false,
		"record the history of all transactions and check that it is strictly serializable;\n"+
			"slower (the books are always checked)")
	fs.Int64Var(&c.VerifyWindow, "verify-window", runner.DefaultVerifyWindow,
		"number of transactions whose history is checked at a time; they take about 1 KiB of memory each")
	fs.StringVar(&o.EDN, "history", "",
		"`file` to write the history of all transactions to, with --verify, for Jepsen's checker Elle: EDN, for its "+
			"model\nrw-register; each --verify-window is a file of its own (h.edn, h.2.edn, ...); by default none")
	fs.IntVar(&c.Processes, "processes", 1,
		"number of processes that run the workload at the same time, each with --threads, on the blades of "+
			"--cluster\nor of --fabric; 1, the default: this one. They share --rate and --txns")
	fs.StringVar(&o.Store.Fabric, "fabric", "",
		"what reaches the blades that the benchmark makes: inproc (memory of this process), or shm, unix or tcp "+
			"(blades in\nprocesses of their own that end with it); default: inproc, with --processes shm, or unix "+
			"where that is missing")
	fs.IntVar(&o.Member, "member", 0, "number of this process among --processes")
	_ = fs.MarkHidden("member") // it is there
	o.Kill.AddFlags(cmd)
	o.Store.AddFlags(cmd)
	o.Output.addFlag(cmd)
	fs.StringVar(&o.Save, "save", "", "`name` to keep the result under; by default its number alone")
	fs.BoolVar(&o.NoSave, "no-save", false, "do not keep the result")
	historyFlag(cmd, &o.History)
	fs.StringVar(&o.Profile, "cpuprofile", "",
		"`file` to write a CPU profile of the whole benchmark to, for go tool pprof; by default none")
	reportFlag(cmd, &o.Report)
	completeFiles(cmd, "cpuprofile", false)
	completeWith(cmd, "fabric", fabrics...)
	completeFiles(cmd, "history", false)
}

// Validate finds faults and completes what the flags leave open.
func (o *benchOptions) Validate(cmd *cobra.Command) error {
	if o.Run.Txns > 0 && !cmd.Flags().Changed("duration") {
		o.Run.Duration = 0
	}
	var faults []string
	add := func(err error) {
		var usage *usageError
		switch {
		case errors.As(err, &usage):
			faults = append(faults, usage.cause.Error())
		case err != nil:
			faults = append(faults, strings.TrimPrefix(err.Error(), "runner: "))
		}
	}
	// Zero stands for the default in a Config, but not on a command line.
	c := o.Run
	for _, f := range []struct {
		name string
		n    *int
	}{{"threads", &c.Threads}, {"coroutines", &c.Coroutines}, {"runs", &c.Runs}} {
		if *f.n < 1 {
			faults = append(faults, fmt.Sprintf("--%s is %d; it must be at least 1", f.name, *f.n))
			*f.n = 1
		}
	}
	add(c.Validate())
	if cmd.Flags().Changed("duration") && o.Run.Duration == 0 { // less than that is a fault of the configuration
		faults = append(faults, fmt.Sprintf("--duration is %v; it must be positive", o.Run.Duration))
	}
	if changed := cmd.Flags().Changed("verify-window"); changed && !o.Run.Verify {
		faults = append(faults, "--verify-window is for what --verify records: give both")
	} else if changed && o.Run.VerifyWindow == 0 {
		faults = append(faults, "--verify-window is 0; it must be positive")
	}
	if o.EDN != "" && !o.Run.Verify {
		faults = append(faults, "--history writes what --verify records: give both")
	}
	if o.NoSave && o.Save != "" {
		faults = append(faults, "--save and --no-save exclude each other")
	}
	if _, err := strconv.Atoi(strings.TrimPrefix(o.Save, "#")); err == nil {
		faults = append(faults, fmt.Sprintf("--save is %q; a number names another result", o.Save))
	}
	switch {
	case cmd.Flags().Changed("save") && o.Save == "":
		faults = append(faults, "--save is empty; without it a result has its number alone")
	case strings.ContainsFunc(o.Save, func(r rune) bool { return !unicode.IsPrint(r) }), !utf8.ValidString(o.Save),
		strings.TrimSpace(o.Save) != o.Save:
		faults = append(faults,
			fmt.Sprintf("--save is %+q; a name is one line, of characters that can be seen, and spaces between them",
				o.Save))
	case strings.HasSuffix(o.Save, ".json"):
		faults = append(faults, fmt.Sprintf("--save is %q; txnode compare takes that for a file", o.Save))
	}
	add(o.Store.Validate(cmd))
	switch {
	case o.Run.Processes < 1 || o.Run.Processes > maxProcesses:
		faults = append(faults, fmt.Sprintf("--processes is %d; it must be from 1 to %d",
			o.Run.Processes, maxProcesses))
	case o.Run.Processes > 1 && o.Run.Verify:
		faults = append(faults, "--verify records the history of one process: leave --processes out")
	}
	if o.Store.Cluster != "" && o.Run.Verify {
		faults = append(faults, "--verify records what one process does, and others may use the data of --cluster")
	}
	faults = append(faults, o.fabricFaults(cmd)...)
	add(o.Store.hasArenaFor(c.Coroutines))
	faults = append(faults, o.Kill.faults(cmd, &o.Store, &o.Run)...)
	if len(faults) > 0 {
		return usagef("%s", strings.Join(faults, "; "))
	}
	o.Store.Seed = o.Run.Seed
	return nil
}

// maxProcesses bounds --processes.
const maxProcesses = 256

func newBench(w *World) *cobra.Command {
	var subcommands []*cobra.Command
	for i := range workloads {
		subcommands = append(subcommands, newBenchWorkload(w, i))
	}
	subcommands = append(subcommands, newBenchChannel(w))
	return choose("bench", "Run a benchmark on the embedded engine, and verify what it leaves",
		`Runs a benchmark on the embedded engine: loads it, warms up, measures, and checks
the books after every run, whatever has happened. The result is kept; see
txnode history and txnode compare.`, subcommands...)
}

func newBenchWorkload(w *World, i int) *cobra.Command {
	o := &benchOptions{}
	cmd := &cobra.Command{
		Long: workloads[i].short + `.

Workers (threads × coroutines) run transactions in a closed loop, or at a given
--rate in an open loop, where latency counts from when a transaction should have
begun. After every run the books are checked; --verify also records what every
transaction read and wrote and checks that the history is strictly serializable.
With --dir the data stays, and the next run goes on with it.
With --fabric shm, unix or tcp, or several --processes, blades and their catalog are
processes of their own (txnode serve), which end with the benchmark.`,
		Example: fmt.Sprintf(`  txnode bench %[1]s --threads 2 --coroutines 8 --duration 10s --runs 5
  txnode bench %[1]s --policy ford --techniques none --save ford
  txnode bench %[1]s --rate 100000 --duration 1m -o json
  txnode bench %[1]s --verify --duration 10s
  txnode bench %[1]s --runs 3 --report %[1]s.html
  txnode bench %[1]s --processes 4 --threads 1 --fabric unix
  txnode bench %[1]s --blades 4 --kill-blade 5s --restore-blade 8s --duration 12s`, workloads[i].name),
	}
	o.AddFlags(cmd, w.CPUs)
	return ofWorkload(cmd, i, false, o.Validate, func(cmd *cobra.Command, driver workload.Driver,
		parameters []report.Parameter) error {
		b := &benchmark{
			w: w, o: o, driver: driver, parameters: parameters, args: changedFlags(cmd),
			given: cmd.Flags().Changed, words: func(s string) string { return inFlags(cmd, s) },
		}
		b.memberArgs = func(i int) []string { return memberArgs(cmd, i, &o.Run, o.Store.Cluster) }
		if _, ok := driver.(workload.Bookkeeper); !ok && o.Run.Processes > 1 {
			return usagef("--processes: %s keeps no books that several processes can have", driver.Name())
		}
		return b.run(cmd.Context())
	})
}
