package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"txnode/benchmarks/smallbank"
	"txnode/benchmarks/tatp"
	"txnode/benchmarks/workload"
)

// options are the flags of the command.
type options struct {
	workloads   []string // names of constructors in drivers
	stores      []contender
	threads     int
	coroutines  int
	rounds      int
	duration    time.Duration
	seed        uint64
	accounts    int
	subscribers int
	json        bool
}

// drivers make the workloads, each time a new one: a driver keeps the books of
// one store.
var drivers = map[string]func(o *options) (workload.Driver, error){
	"smallbank": func(o *options) (workload.Driver, error) {
		bank := smallbank.DefaultOptions()
		bank.Accounts = o.accounts
		return smallbank.New(bank)
	},
	"tatp": func(o *options) (workload.Driver, error) {
		t := tatp.DefaultOptions()
		t.Subscribers = o.subscribers
		return tatp.New(t)
	},
}

// parse reads the command line. The error has been printed already, with the
// flags, if it is flag.ErrHelp or about a flag's syntax.
func parse(args []string, all []contender, stderr io.Writer) (*options, error) {
	o := &options{}
	fs := flag.NewFlagSet("peers", flag.ContinueOnError)
	fs.SetOutput(stderr)
	workloads := fs.String("workload", "smallbank,tatp", "`names` of workloads, separated by commas")
	stores := fs.String("stores", nameList(all), "`names` of stores, separated by commas; the first is compared with the others")
	fs.IntVar(&o.threads, "threads", 2, "threads of each store, and GOMAXPROCS")
	fs.IntVar(&o.coroutines, "coroutines", 8, "workers per thread, of stores that are faster with several")
	fs.IntVar(&o.rounds, "rounds", 5, "rounds that count")
	fs.DurationVar(&o.duration, "duration", 2*time.Second, "of each store's run in a round")
	fs.Uint64Var(&o.seed, "seed", 1, "of the transactions drawn")
	fs.IntVar(&o.accounts, "accounts", 100_000, "SmallBank accounts, of which 4 % are hot")
	fs.IntVar(&o.subscribers, "subscribers", 100_000, "TATP subscribers")
	output := fs.String("output", "table", "`format` of the results: table or json")
	fs.StringVar(output, "o", "table", "short for --output")
	if err := fs.Parse(args); err != nil {
		return nil, err
	}
	var faults []error
	fault := func(bad bool, format string, args ...any) {
		if bad {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	fault(fs.NArg() > 0, "unexpected argument %q", fs.Arg(0))
	fault(o.threads < 1, "--threads is %d; it must be at least 1", o.threads)
	fault(o.coroutines < 1, "--coroutines is %d; it must be at least 1", o.coroutines)
	fault(o.rounds < 1, "--rounds is %d; it must be at least 1", o.rounds)
	fault(o.duration <= 0, "--duration is %v; it must be positive", o.duration)
	fault(*output != "table" && *output != "json", "--output is %q; it must be table or json", *output)
	o.json = *output == "json"
	o.workloads = strings.Split(*workloads, ",")
	for i, name := range o.workloads {
		if drivers[name] == nil {
			fault(true, "there is no workload %q; there are smallbank and tatp", name)
		} else if _, err := drivers[name](o); err != nil {
			fault(true, "%v", err)
		}
		fault(slices.Contains(o.workloads[:i], name), "the workload %q is named twice", name)
	}
	chosen, err := choose(all, *stores)
	fault(err != nil, "--stores: %v", err)
	o.stores = chosen
	return o, errors.Join(faults...)
}
