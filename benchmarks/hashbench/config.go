package hashbench

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"txnode/rdma"
	"txnode/rdma/sim"
)

// ErrConfig is a configuration that cannot run; the text lists every fault.
var ErrConfig = errors.New("hashbench: bad configuration")

// Mix is a mix of lookups and updates.
type Mix struct {
	Name    string
	Updates int // percent
}

// Mixes that there are: YCSB's A, B and C, and updates only.
var Mixes = []Mix{{"a", 50}, {"b", 5}, {"c", 0}, {"update-only", 100}}

// MixByName returns one of Mixes.
func MixByName(name string) (Mix, error) {
	var names []string
	for _, m := range Mixes {
		if m.Name == name {
			return m, nil
		}
		names = append(names, m.Name)
	}
	return Mix{}, fmt.Errorf("%w: no mix %q: there are %s", ErrConfig, name, strings.Join(names, ", "))
}

// Config says what to run. The zero value of a field has a default, but for Mix,
// Theta and Techniques.
type Config struct {
	Mix        Mix
	Theta      float64 // of the Zipf distribution: 0 (uniform) to 0.99
	Keys       uint64  // loaded; 0: DefaultKeys
	Techniques rdma.Techniques

	Profile sim.Profile // zero: sim.ConnectX6
	Freedom sim.Freedom
	Seed    uint64

	Threads    int // over all compute blades; 0: 1
	Compute    int // compute blades; 0: 1
	Coroutines int // per thread; 0: 8
	Blades     int // memory blades; 0: 2

	// Warmup is virtual time before the measurement; 0: DefaultWarmup.
	Warmup time.Duration
	// Duration is the virtual time measured; 0: DefaultDuration.
	Duration time.Duration
	// Record collects the verbs of the whole run, for a trace; nil: none.
	Record *sim.Recording
}

// Defaults of Config.
const (
	DefaultKeys = 1_000_000
	// DefaultWarmup is what the throttle needs to find its limit, six epochs of 8 ms,
	// and conflict avoidance to follow.
	DefaultWarmup   = 52 * time.Millisecond
	DefaultDuration = 10 * time.Millisecond
)

// Limits.
const (
	maxThreads = 1024
	maxKeys    = 1 << 30
)

func (c *Config) defaults() {
	def := func(p *int, v int) {
		if *p == 0 {
			*p = v
		}
	}
	def(&c.Threads, 1)
	def(&c.Compute, 1)
	def(&c.Coroutines, 8)
	def(&c.Blades, 2)
	if c.Keys == 0 {
		c.Keys = DefaultKeys
	}
	if c.Warmup == 0 {
		c.Warmup = DefaultWarmup
	}
	if c.Duration == 0 {
		c.Duration = DefaultDuration
	}
	if c.Profile == (sim.Profile{}) {
		c.Profile = sim.ConnectX6()
	}
}

// Validate lists everything that is wrong, after defaults.
func (c Config) Validate() error {
	c.defaults()
	var bad []string
	check := func(ok bool, format string, a ...any) {
		if !ok {
			bad = append(bad, fmt.Sprintf(format, a...))
		}
	}
	check(c.Mix.Updates >= 0 && c.Mix.Updates <= 100, "%d %% updates", c.Mix.Updates)
	check(c.Theta >= 0 && c.Theta <= 0.99, "a Zipf parameter of %v: from 0 to 0.99 are possible", c.Theta)
	check(c.Keys > 0 && c.Keys <= maxKeys, "%d keys: from 1 to %d are possible", c.Keys, maxKeys)
	check(c.Compute > 0 && c.Compute <= c.Threads, "%d compute blades for %d threads", c.Compute, c.Threads)
	check(c.Threads > 0 && c.Threads <= maxThreads, "%d threads: from 1 to %d are possible", c.Threads, maxThreads)
	check(c.Coroutines > 0 && c.Coroutines <= 64, "%d coroutines: from 1 to 64 are possible", c.Coroutines)
	check(c.Blades > 0 && c.Blades <= 64, "%d blades: from 1 to 64 are possible", c.Blades)
	check(c.Warmup > 0 && c.Duration > 0, "warm-up and duration must be positive")
	errs := []error{c.Profile.Validate()}
	if bad != nil {
		errs = append(errs, fmt.Errorf("%w: %s", ErrConfig, strings.Join(bad, "; ")))
	}
	return errors.Join(errs...)
}
