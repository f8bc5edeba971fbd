package hashbench

import (
	"cmp"
	"errors"
	"time"

	"txnode/internal/validate"
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
	return validate.ByName(ErrConfig, "mix", name, Mixes, func(m Mix) string { return m.Name })
}

// Config says what to run. The zero value of a field has a default, but for Mix,
// Theta and Techniques.
type Config struct {
	Mix   Mix
	Theta float64 // of the Zipf distribution: 0 (uniform) to 0.99
	Keys  uint64  // loaded; 0: DefaultKeys
	// Drawn is how many keys the distribution is over. Ranks beyond Keys are folded onto
	// those that are loaded, so that the frequent keys are as frequent as in a table of
	// that size. 0: DefaultDrawn.
	Drawn      uint64
	Techniques rdma.Techniques
	Tuner      rdma.TunerPolicy // of Techniques.Throttle
	// LikeSMART posts the requests of SMART's program, takes its time and counts as it
	// does; see the package documentation. Otherwise it is this engine's index.
	LikeSMART bool

	Profile sim.Profile // zero: sim.ConnectX6
	Freedom sim.Freedom
	Seed    uint64

	Threads    int // over all compute blades; 0: 1
	Compute    int // compute blades; 0: 1
	Coroutines int // per thread; 0: 8
	Blades     int // memory blades; 0: 2

	// Idle is how long a coroutine waits after each operation; the thread goes on.
	Idle time.Duration

	// Warmup is virtual time before the measurement; 0: DefaultWarmup. In it the limits of conflict
	// avoidance follow the retries each millisecond, with LikeSMART too: in epochs of 20 ms they
	// would take half a second to find their places.
	Warmup time.Duration
	// Window is virtual time. The run goes on, window by window, until the throughputs of the last
	// three agree: see Point.Settled. 0: DefaultWindow. It becomes longer where it is too short for
	// the queue of operations.
	Window time.Duration
	// Limit is the virtual time of all windows, after which the run ends though they do not agree;
	// 0: DefaultLimit.
	Limit time.Duration
	// Record collects the verbs of the whole run, for a trace; nil: none.
	Record *sim.Recording
}

// Defaults of Config.
const (
	DefaultKeys  = 1_000_000
	DefaultDrawn = 100_000_000 // as published
	// DefaultWarmup is what the throttle needs to find its limit, six epochs of 8 ms,
	// and conflict avoidance to follow.
	DefaultWarmup = 52 * time.Millisecond
	DefaultWindow = 4 * time.Millisecond
	DefaultLimit  = 240 * time.Millisecond
)

// Limits.
const (
	maxThreads = 1024
	maxKeys    = 1 << 30
)

func (c *Config) defaults() {
	c.Threads, c.Compute = cmp.Or(c.Threads, 1), cmp.Or(c.Compute, 1)
	c.Coroutines, c.Blades = cmp.Or(c.Coroutines, 8), cmp.Or(c.Blades, 2)
	c.Keys, c.Drawn = cmp.Or(c.Keys, DefaultKeys), cmp.Or(c.Drawn, DefaultDrawn)
	window := DefaultWindow
	if c.backoff().EpochNs > 0 && c.Mix.Updates > 0 {
		window = time.Duration(c.backoff().EpochNs)
	}
	c.Warmup, c.Window = cmp.Or(c.Warmup, DefaultWarmup), cmp.Or(c.Window, window)
	c.Limit = cmp.Or(c.Limit, max(DefaultLimit, 2*agreeing*c.Window))
	c.Profile = cmp.Or(c.Profile, sim.ConnectX6())
}

// Validate lists everything that is wrong, after defaults.
func (c Config) Validate() error {
	c.defaults()
	var bad validate.Faults
	bad.Check(c.Mix.Updates >= 0 && c.Mix.Updates <= 100, "%d %% updates", c.Mix.Updates)
	bad.Check(c.Theta >= 0 && c.Theta <= 0.99,
		"Theta, the parameter of Zipf's distribution, is %v: from 0 to 0.99 are possible", c.Theta)
	bad.Check(c.Keys > 0 && c.Keys <= maxKeys, "Keys is %d: from 1 to %d are possible", c.Keys, maxKeys)
	bad.Check(c.Drawn <= maxKeys, "Drawn is %d: at most %d are possible", c.Drawn, maxKeys)
	bad.Check(c.Compute > 0 && c.Compute <= c.Threads, "Compute is %d: from 1 to Threads (%d) are possible",
		c.Compute, c.Threads)
	bad.Check(c.Threads > 0 && c.Threads <= maxThreads, "Threads is %d: from 1 to %d are possible",
		c.Threads, maxThreads)
	bad.Check(c.Coroutines > 0 && c.Coroutines <= 64, "Coroutines is %d: from 1 to 64 are possible", c.Coroutines)
	bad.Check(c.Blades > 0 && c.Blades <= 64, "Blades is %d: from 1 to 64 are possible", c.Blades)
	bad.Check(c.Warmup > 0 && c.Window > 0, "Warmup is %v, and Window %v: they must be positive", c.Warmup, c.Window)
	bad.Check(c.Limit >= agreeing*c.Window, "Limit is %v: %d windows of %v are needed at least",
		c.Limit, agreeing, c.Window)
	bad.Check(c.Idle >= 0 && c.Idle <= time.Second, "Idle is %v: from 0 to 1s are possible", c.Idle)
	return errors.Join(c.Profile.Validate(), bad.Err(ErrConfig))
}

// backoff returns the constants of conflict avoidance: of SMART's program where it is followed and
// has limits that move.
func (c *Config) backoff() rdma.BackoffOptions {
	if !c.LikeSMART {
		return rdma.BackoffOptions{}
	}
	o := rdma.SMARTBackoff
	if !c.Techniques.DynLimit && !c.Techniques.CoroLimit {
		o.EpochNs = 0
	}
	return o
}

// program is what runs around the verbs: of SMART's table, for whose sake
// sim.SMARTDTX's framework was read, or nothing, because this engine's index has not
// been measured apart from its transactions.
func (c *Config) program() sim.Program {
	if !c.LikeSMART {
		return sim.Program{}
	}
	p := sim.SMARTDTX(c.Techniques)
	p.Name, p.PerRecord = "smart-ht", false // requests are posted when their coroutine waits
	return p
}
