package runner

import (
	"fmt"
	"time"

	"txnode/benchmarks/workload"
	"txnode/history"
)

// Config says how to drive a workload. The zero value is one closed loop of one
// worker for 10 s after a warm-up of none.
type Config struct {
	// Processes is how many members Lead has; of no effect elsewhere.
	Processes int
	// Threads and Coroutines per thread; their product is the number of
	// workers. Default 1 and 1.
	Threads    int
	Coroutines int
	// Warmup is driven but not measured, before each run.
	Warmup time.Duration
	// Duration of each run, without warm-up. Zero: 10 s, or no limit when Txns is set.
	Duration time.Duration
	// Txns ends each run after this many transactions, of whatever outcome. Zero: no limit.
	Txns int64
	// Runs over the same data. Default 1.
	Runs int
	// Rate is the number of arrivals per second of the open loop; zero: closed loop.
	Rate float64
	// Seed of all draws. Equal seeds and numbers of workers draw equal transactions.
	Seed uint64
	// LatencySample: the closed loop measures one transaction in so many.
	// Zero: 8, or 1 with Verify. The open loop measures all.
	LatencySample int
	// Verify records and checks the history; see the package documentation.
	Verify bool
	// VerifyWindow is the number of transactions checked at a time. Default 1,000,000.
	VerifyWindow int64
	// History, if not nil, gets the recorded transactions of each window before they
	// are checked; an error ends the benchmark. Needs Verify.
	History func(txns []history.Txn) error
	// Events happen in the order in which they are given, in each run once, and make it
	// keep a Timeline. They need a Duration and a store whose clock is wall time.
	Events []Event
	// Progress, if not nil, is called a few times a second, by one goroutine at a time.
	Progress func(Progress)
	// Waiting, if not nil, is called once when another process loads, and is waited for.
	Waiting func()
}

// Defaults of Config.
const (
	// minRate is an arrival every quarter of an hour: the times of many of them are exact.
	minRate = 0.001

	DefaultDuration      = 10 * time.Second
	DefaultLatencySample = 8
	DefaultVerifyWindow  = 1_000_000

	maxWorkers = 1 << 16
	maxSample  = 1 << 20
)

// maxTime bounds each time of a run, so that a clock can add them: a century.
const maxTime = 100 * 365 * 24 * time.Hour

// withDefaults replaces zero values, or lists every fault in a *workload.OptionsError.
func (c Config) withDefaults() (Config, error) {
	var faults []string
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	if c.Threads == 0 {
		c.Threads = 1
	}
	if c.Coroutines == 0 {
		c.Coroutines = 1
	}
	if c.Threads < 0 || c.Coroutines < 0 || c.Threads > maxWorkers || c.Coroutines > maxWorkers ||
		c.Threads*c.Coroutines > maxWorkers {
		fault("Threads is %d and Coroutines %d; both must be positive, and their product at most %d",
			c.Threads, c.Coroutines, maxWorkers)
	}
	if c.Warmup < 0 {
		fault("Warmup is %v; it must not be negative", c.Warmup)
	}
	if c.Duration < 0 {
		fault("Duration is %v; it must be positive", c.Duration)
	}
	for name, d := range map[string]time.Duration{"Warmup": c.Warmup, "Duration": c.Duration} {
		if d > maxTime {
			fault("%s is %v; at most %v are possible", name, d, maxTime)
		}
	}
	if c.Txns < 0 {
		fault("Txns is %d; it must be positive", c.Txns)
	}
	if c.Duration == 0 && c.Txns == 0 {
		c.Duration = DefaultDuration
	}
	if c.Runs == 0 {
		c.Runs = 1
	}
	if c.Runs < 0 {
		fault("Runs is %d; it must be positive", c.Runs)
	}
	if c.Rate != 0 && !(c.Rate >= minRate && c.Rate <= 1e9) {
		fault("Rate is %v transactions/s; it must be 0 (closed loop), or from %v to 1e9", c.Rate, minRate)
	}
	if c.LatencySample == 0 {
		c.LatencySample = DefaultLatencySample
		if c.Verify {
			c.LatencySample = 1
		}
	}
	if c.LatencySample < 0 || c.LatencySample > maxSample {
		fault("LatencySample is %d; it must be from 1 to %d, or 0 for the default", c.LatencySample, maxSample)
	}
	if c.Rate > 0 {
		c.LatencySample = 1
	}
	if len(c.Events) > 0 && c.Duration == 0 {
		fault("events without a duration")
	}
	for i, e := range c.Events {
		if e.At < 0 || e.Do == nil || i > 0 && e.At < c.Events[i-1].At || c.Duration > 0 && e.At >= c.Duration {
			fault("event %q at %v; events must be in order and within the duration of %v", e.Name, e.At, c.Duration)
		}
	}
	if c.VerifyWindow == 0 {
		c.VerifyWindow = DefaultVerifyWindow
	}
	if c.VerifyWindow < 0 {
		fault("VerifyWindow is %d; it must be positive", c.VerifyWindow)
	}
	if faults != nil {
		return c, &workload.OptionsError{Of: "runner", Faults: faults}
	}
	return c, nil
}

// Validate returns nil, or a *workload.OptionsError that lists every fault.
func (c Config) Validate() error {
	_, err := c.withDefaults()
	return err
}

// workers is the number of workers.
func (c *Config) workers() int { return c.Threads * c.Coroutines }
