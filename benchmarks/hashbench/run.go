package hashbench

import (
	"context"
	"errors"
	"fmt"

	"txnode/benchmarks/workload"
)

// Point is what a run measured.
type Point struct {
	Threads int     `json:"threads"`
	Theta   float64 `json:"theta"`
	IdleUs  float64 `json:"idle_us"` // waited after each operation
	Mops    float64 `json:"mops"`    // million operations per second of virtual time
	P50us   float64 `json:"p50_us"`
	P99us   float64 `json:"p99_us"`
	// Retries per update, and how the updates are distributed over the number of their
	// retries: Distribution[i] is the share that had i, the last one that had so many or
	// more. With LikeSMART as that program has it: what a thread has retried since the
	// last one of its updates ended belongs to the one that ends next. Empty without
	// updates.
	Retries      float64   `json:"retries"`
	MostRetries  int       `json:"most_retries"`
	Distribution []float64 `json:"retry_distribution,omitempty"`
	VerbsPerOp   float64   `json:"verbs_per_op"`
	// Settled says that the throughputs of the last three windows, of which the point is, are
	// within 5 % of one another. If they are not, the run has come to Config.Limit, and the point
	// is of a system that still changes.
	Settled  bool    `json:"settled"`
	WindowMs float64 `json:"window_ms"` // virtual time of one window
	TotalMs  float64 `json:"total_ms"`  // of all, those before the last three included

	Ops       uint64 `json:"ops"`
	Updates   uint64 `json:"updates"`
	AllVerbs  uint64 `json:"verbs"` // the warm-up included
	Events    uint64 `json:"events"`
	TraceHash uint64 `json:"trace_hash"`
}

// distribution has this many entries.
const distribution = 33

// Run measures one point on data of the same keys and blades; nil loads it. It is
// deterministic: equal configurations give equal points, down to the trace hash.
func Run(ctx context.Context, c Config, d *Data) (Point, error) {
	if err := c.Validate(); err != nil {
		return Point{}, err
	}
	c.defaults()
	if d == nil {
		var err error
		if d, err = Load(ctx, c, nil); err != nil {
			return Point{}, err
		}
	}
	if d.keys != c.Keys || d.blades != c.Blades {
		return Point{}, fmt.Errorf("%w: the data loaded is %d keys on %d blades, not %d on %d",
			ErrConfig, d.keys, d.blades, c.Keys, c.Blades)
	}
	w, err := c.open(d)
	if err != nil {
		return Point{}, err
	}
	m := newMeter(&c, w.fabric.Now())
	z := workload.NewZipf(max(c.Drawn, c.Keys), c.Theta)
	err = w.run(&c, c.Threads, c.Coroutines, func(k *client) error { return m.loop(ctx, &c, &z, k) })
	s := w.fabric.Stats()
	p := Point{
		Threads: c.Threads, Theta: c.Theta, IdleUs: float64(c.Idle.Nanoseconds()) / 1e3, AllVerbs: s.Verbs,
		Events: s.Events, TraceHash: w.fabric.TraceHash(),
	}
	if err := errors.Join(err, w.close()); err != nil {
		return Point{}, err
	}
	err = m.fill(&p)
	return p, err
}

// loop runs operations until the end.
func (m *meter) loop(ctx context.Context, c *Config, z *workload.Zipf, k *client) error {
	t := k.c.Thread()
	warm := true
	for n := uint64(0); ; n++ {
		if c.Idle > 0 && n > 0 {
			k.w.fabric.Spin(1)
			k.c.Sleep(c.Idle.Nanoseconds())
			k.w.fabric.Spin(-1)
		}
		start := t.Now()
		if m.over(start) {
			return nil
		}
		if warm && start >= m.begun {
			warm = false
			t.SetBackoff(c.backoff())
		}
		if n&0xf == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		key, update := workload.Scatter(z.Rank(t.Rand())%c.Keys), t.Rand()%100 < uint64(c.Mix.Updates)
		before := k.c.Count.Total()
		retries := 0
		var err error
		if update {
			retries, err = k.update(key, uint64(k.id)<<40|n)
		} else {
			_, err = k.lookup(key)
		}
		if err != nil {
			return err
		}
		end := t.Now()
		had := retries
		if update && c.LikeSMART {
			had = k.w.failed[t.Index()]
			k.w.failed[t.Index()] = 0
		}
		if !m.over(end) {
			m.count(end, k.c.Count.Total()-before, end-start, update, retries, had)
		}
	}
}
