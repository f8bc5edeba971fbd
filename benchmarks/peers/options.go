package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"txnode/benchmarks/smallbank"
	"txnode/benchmarks/tatp"
	"txnode/benchmarks/tpcc"
	"txnode/benchmarks/workload"
)

// options are the flags of the command.
type options struct {
	workloads   []string // names of constructors in drivers
	stores      []contender
	threads     []int // each is measured
	coroutines  int
	rounds      int
	duration    time.Duration
	settle      time.Duration
	seed        uint64
	accounts    int
	subscribers int
	warehouses  int
	rows        []int // sizes of the rows workload; each has a store of its own
	shuffle     bool
	types       []string // of the rows workload, that are measured; nil: all
	profile     string   // file for a profile of the rounds; empty: none
	json        bool
}

// contest is a workload that stores are compared by.
type contest struct {
	name string
	// driver makes the workload, each time a new one: a driver keeps the books of one store. size
	// is one of options.rows.
	driver func(o *options, size int) (workload.Driver, error)
	sized  bool // there is a store for each size
	each   bool // each type of transaction is measured by itself, else their mix
	// coroutines is options.coroutines if that is 0.
	coroutines int
}

var contests = []contest{
	{name: "smallbank", coroutines: 8, driver: func(o *options, _ int) (workload.Driver, error) {
		bank := smallbank.DefaultOptions()
		bank.Accounts = o.accounts
		return smallbank.New(bank)
	}},
	{name: "tatp", coroutines: 8, driver: func(o *options, _ int) (workload.Driver, error) {
		t := tatp.DefaultOptions()
		t.Subscribers = o.subscribers
		return tatp.New(t)
	}},
	{name: "tpcc", coroutines: 1, driver: func(o *options, _ int) (workload.Driver, error) {
		c := tpcc.DefaultOptions()
		c.Warehouses = o.warehouses
		return tpcc.New(c)
	}},
	{name: "rows", sized: true, each: true, coroutines: 1, driver: func(o *options, size int) (workload.Driver, error) {
		return newRows(size, o.shuffle)
	}},
}

// contestOf returns the contest of a name, or nil.
func contestOf(name string) *contest {
	for i := range contests {
		if contests[i].name == name {
			return &contests[i]
		}
	}
	return nil
}

// sizes are those that the contest has stores of.
func (c *contest) sizes(o *options) []int {
	if c.sized {
		return o.rows
	}
	return []int{0}
}

// numbers is a flag whose value is a list of them.
type numbers []int

func (n *numbers) String() string {
	texts := make([]string, len(*n))
	for i, x := range *n {
		texts[i] = strconv.Itoa(x)
	}
	return strings.Join(texts, ",")
}

func (n *numbers) Set(text string) error {
	*n = nil
	for part := range strings.SplitSeq(text, ",") {
		x, err := strconv.Atoi(part)
		if err != nil || slices.Contains(*n, x) {
			return errors.New("it must be a list of different numbers, separated by commas")
		}
		*n = append(*n, x)
	}
	return nil
}

// parse reads the command line. The error has been printed already, with the
// flags, if it is flag.ErrHelp or about a flag's syntax.
func parse(args []string, all []contender, stderr io.Writer) (*options, error) {
	o := &options{threads: []int{2}, rows: []int{1_000_000}}
	fs := flag.NewFlagSet("peers", flag.ContinueOnError)
	fs.SetOutput(stderr)
	workloads := fs.String("workload", "smallbank,tatp",
		"`names` of workloads, separated by commas: smallbank, tatp, tpcc, rows")
	stores := fs.String("stores", nameList(inProcess(all)), "`names` of stores, separated by commas, of "+nameList(all)+
		";\nthe first is compared with the others")
	fs.Var((*numbers)(&o.threads), "threads",
		"threads of each store, and GOMAXPROCS; of several `numbers` each is measured")
	fs.IntVar(&o.coroutines, "coroutines", 0,
		"workers per thread, of stores that are faster with several; 0: 8, but 1 for tpcc and rows, and of servers "+
			"the best of some numbers")
	fs.IntVar(&o.rounds, "rounds", 5, "rounds that count")
	fs.DurationVar(&o.duration, "duration", 2*time.Second, "of each store's run in a round")
	fs.DurationVar(&o.settle, "settle", 200*time.Millisecond,
		"before each run: work that stores do in the background may end")
	fs.Uint64Var(&o.seed, "seed", 1, "of the transactions drawn")
	fs.IntVar(&o.accounts, "accounts", 100_000, "SmallBank accounts, of which 4 % are hot")
	fs.IntVar(&o.subscribers, "subscribers", 100_000, "TATP subscribers")
	fs.IntVar(&o.warehouses, "warehouses", 2, "TPC-C warehouses")
	fs.Var((*numbers)(&o.rows), "rows",
		"rows of the rows workload; with several `numbers`, stores of each size are compared with the first")
	fs.BoolVar(&o.shuffle, "shuffle", false,
		"load the rows of the rows workload in an order that is drawn, not in that of keys")
	types := fs.String("types", "",
		"`names` of types of the rows workload, separated by commas; only these are measured")
	fs.StringVar(&o.profile, "cpuprofile", "", "`file` for a profile of the processors in all rounds")
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
	fault(slices.Min(o.threads) < 1, "--threads is %d; it must be at least 1", slices.Min(o.threads))
	fault(o.coroutines < 0, "--coroutines is %d; it must not be negative", o.coroutines)
	fault(o.rounds < 1, "--rounds is %d; it must be at least 1", o.rounds)
	fault(o.duration <= 0, "--duration is %v; it must be positive", o.duration)
	fault(o.settle < 0, "--settle is %v; it must not be negative", o.settle)
	fault(*output != "table" && *output != "json", "--output is %q; it must be table or json", *output)
	o.json = *output == "json"
	if *types != "" {
		o.types = strings.Split(*types, ",")
	}
	for _, name := range o.types {
		fault(!slices.Contains(rowTypes[:], name), "--types has %q; there are %s",
			name, strings.Join(rowTypes[:], ", "))
	}
	o.workloads = strings.Split(*workloads, ",")
	for i, name := range o.workloads {
		c := contestOf(name)
		if c == nil {
			fault(true, "there is no workload %q; there are smallbank, tatp, tpcc and rows", name)
			continue
		}
		for _, size := range c.sizes(o) {
			_, err := c.driver(o, size)
			fault(err != nil, "%v", err)
		}
		fault(slices.Contains(o.workloads[:i], name), "the workload %q is named twice", name)
	}
	chosen, err := choose(all, *stores)
	fault(err != nil, "--stores: %v", err)
	o.stores = chosen
	return o, errors.Join(faults...)
}
