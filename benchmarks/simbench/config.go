package simbench

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"time"

	"txnode/benchmarks/smallbank"
	"txnode/benchmarks/tatp"
	"txnode/benchmarks/workload"
	"txnode/benchmarks/ycsb"
	"txnode/internal/validate"
	"txnode/memory/layout"
	"txnode/occ"
	"txnode/rdma"
	"txnode/rdma/sim"
)

// ErrConfig is a configuration that cannot run; the text lists every fault.
var ErrConfig = errors.New("simbench: bad configuration")

// Workloads are the benchmarks that there are.
var Workloads = []string{"smallbank", "tatp", "ycsb"}

// Config says what to run. The zero value of a field has a default, but for
// Workload and Techniques.
type Config struct {
	Workload   string // of Workloads
	Policy     occ.Policy
	Techniques rdma.Techniques
	Tuner      rdma.TunerPolicy // of Techniques.Throttle
	LeafIndex  bool             // see txn.Options
	// LikeDTX counts and retries as FORD's and SMART's programs do; see the
	// package documentation.
	LikeDTX bool

	Profile sim.Profile // zero: sim.ConnectX6 with persistent memory
	Freedom sim.Freedom
	// Program that the machine runs; zero: sim.Engine, with LikeDTX sim.SMARTDTX.
	Program sim.Program
	Seed    uint64

	Threads    int // 0: 1
	Coroutines int // per thread; 0: 8
	Blades     int // memory blades; 0: 2
	Backups    int // as it is: 0, 1 or 2

	// Rows is the number of accounts, subscribers or records; 0: 100,000.
	Rows int
	// YCSB has the other parameters of workload ycsb; zero: its defaults.
	YCSB ycsb.Options
	// Warmup is virtual time before the measurement. 0: DefaultWarmup.
	Warmup time.Duration
	// Txns is the number of attempts to measure; 0: DefaultTxns. With LikeDTX each thread
	// has an equal share of them to do, and the measurement ends with the last.
	Txns int64
	// Idle is how long a worker waits after each transaction that it has committed, as
	// in figure 11; its thread goes on.
	Idle time.Duration
	// Verify checks the books at the end: every row is read.
	Verify bool
	// Record collects the verbs of the measured part, for a trace; nil: none.
	Record *sim.Recording
}

// Defaults of Config.
const (
	DefaultRows = 100_000
	DefaultTxns = 60_000
	// DefaultWarmup is what the throttle needs to find its limit, six epochs of 8 ms,
	// and conflict avoidance to follow.
	DefaultWarmup = 52 * time.Millisecond
)

func (c *Config) defaults() {
	c.Threads, c.Coroutines = cmp.Or(c.Threads, 1), cmp.Or(c.Coroutines, 8)
	c.Blades, c.Rows = cmp.Or(c.Blades, 2), cmp.Or(c.Rows, DefaultRows)
	c.Warmup, c.Txns = cmp.Or(c.Warmup, DefaultWarmup), cmp.Or(c.Txns, DefaultTxns)
	if c.Workload == "ycsb" {
		c.YCSB = cmp.Or(c.YCSB, ycsb.DefaultOptions())
		c.YCSB.Records = c.Rows
	}
	c.Profile = cmp.Or(c.Profile, sim.ConnectX6().WithPersistentMemory())
	if c.Program == (sim.Program{}) {
		c.Program = sim.Engine()
		if c.LikeDTX {
			c.Program = c.dtxProgram()
		}
	}
}

// Runs returns the program that the configuration runs, after defaults.
func (c Config) Runs() sim.Program {
	c.defaults()
	return c.Program
}

// Validate lists everything that is wrong, after defaults.
func (c Config) Validate() error {
	c.defaults()
	var bad validate.Faults
	bad.Check(slices.Contains(Workloads, c.Workload), "workload %q: there are %s",
		c.Workload, strings.Join(Workloads, ", "))
	bad.Check(c.Workload != "ycsb" || !c.LikeDTX,
		"LikeDTX is for smallbank and tatp: FORD's and SMART's programs have no ycsb")
	if c.Workload == "ycsb" {
		var faults *workload.OptionsError
		if errors.As(c.YCSB.Validate(), &faults) {
			for _, f := range faults.Faults {
				bad.Check(false, "YCSB: %s", f)
			}
		}
	}
	bad.Check(c.Threads > 0 && c.Threads <= 1024, "Threads is %d: from 1 to 1024 are possible", c.Threads)
	bad.Check(c.Coroutines > 0 && c.Coroutines <= 64, "Coroutines is %d: from 1 to 64 are possible", c.Coroutines)
	bad.Check(c.Backups >= 0 && c.Backups <= 2, "Backups is %d: 0, 1 and 2 are possible", c.Backups)
	bad.Check(c.Blades > c.Backups && c.Blades <= layout.MaxBlades,
		"Blades is %d: more than Backups (%d) are needed, at most %d are possible",
		c.Blades, c.Backups, layout.MaxBlades)
	bad.Check(c.Rows >= minRows && c.Rows <= 100_000_000, "Rows is %d: from %d to 100000000 are possible",
		c.Rows, minRows)
	bad.Check(c.Warmup > 0, "Warmup is %v: it must be positive", c.Warmup)
	bad.Check(c.Idle >= 0 && c.Idle <= time.Second, "Idle is %v: from 0 to 1s are possible", c.Idle)
	bad.Check(c.Txns > 0, "Txns is %d: it must be positive", c.Txns)
	return errors.Join(c.Profile.Validate(), bad.Err(ErrConfig))
}

// minRows leaves hot accounts to draw from.
const minRows = 100

// driver makes the workload, with the published parameters.
func (c *Config) driver() (workload.Driver, error) {
	if c.Workload == "ycsb" {
		d, err := ycsb.New(c.YCSB)
		if err != nil {
			return nil, err
		}
		return d, nil
	}
	if c.Workload == "tatp" {
		o := tatp.DefaultOptions()
		o.Subscribers = c.Rows
		o.FORDRules = c.LikeDTX
		d, err := tatp.New(o)
		if err != nil {
			return nil, err
		}
		return d, nil
	}
	o := smallbank.DefaultOptions()
	// Fewer accounts keep the share of the hot ones.
	o.Accounts = c.Rows
	if c.LikeDTX {
		// In their runs of 60 million attempts Amalgamate has emptied almost every
		// account; from there, what TransactSaving and DepositChecking bring in
		// decides how many payments fail.
		o.InitialBalance = "0"
	}
	d, err := smallbank.New(o)
	if err != nil {
		return nil, err
	}
	return d, nil
}
