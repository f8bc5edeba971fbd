package hashbench

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"txnode/benchmarks/workload"
)

// Point is what a run measured.
type Point struct {
	Threads int     `json:"threads"`
	Theta   float64 `json:"theta"`
	Mops    float64 `json:"mops"` // million operations per second of virtual time
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
		return Point{}, fmt.Errorf("%w: the data loaded is %d keys on %d blades, not %d on %d", ErrConfig, d.keys, d.blades, c.Keys, c.Blades)
	}
	w, err := c.open(d)
	if err != nil {
		return Point{}, err
	}
	m := &meter{from: w.fabric.Now() + c.Warmup.Nanoseconds()}
	m.end = m.from + c.Duration.Nanoseconds()
	z := workload.NewZipf(max(c.Drawn, c.Keys), c.Theta)
	err = w.run(&c, c.Threads, c.Coroutines, func(k *client) error { return m.loop(ctx, &c, &z, k) })
	s := w.fabric.Stats()
	p := Point{Threads: c.Threads, Theta: c.Theta, AllVerbs: s.Verbs, Events: s.Events, TraceHash: w.fabric.TraceHash()}
	if err := errors.Join(err, w.close()); err != nil {
		return Point{}, err
	}
	if m.ops == 0 {
		return Point{}, fmt.Errorf("%w: no operation has ended in %v: measure for longer", ErrConfig, c.Duration)
	}
	m.fill(&p)
	return p, nil
}

// meter collects what ends in the measured time. The simulator runs everything on one
// goroutine, so it needs no lock.
type meter struct {
	from, end int64
	ops       uint64
	updates   uint64
	retries   uint64
	most      int
	counts    [distribution]uint64
	verbs     uint64
	latencies []int64 // a sample when there are many
}

// loop runs operations until the end.
func (m *meter) loop(ctx context.Context, c *Config, z *workload.Zipf, k *client) error {
	t := k.c.Thread()
	for n := uint64(0); ; n++ {
		start := t.Now()
		if start >= m.end {
			return nil
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
		if end < m.from || end >= m.end {
			continue
		}
		m.ops++
		m.verbs += k.c.Count.Total() - before
		if stride := uint64(1 + len(m.latencies)>>20); m.ops%stride == 0 {
			m.latencies = append(m.latencies, end-start)
		}
		if update {
			m.updates++
			m.retries += uint64(retries)
			m.most = max(m.most, retries)
			m.counts[min(had, distribution-1)]++
		}
	}
}

func (m *meter) fill(p *Point) {
	p.Ops, p.Updates = m.ops, m.updates
	p.Mops = float64(m.ops) * 1000 / float64(m.end-m.from)
	p.VerbsPerOp = float64(m.verbs) / float64(m.ops)
	slices.Sort(m.latencies)
	at := func(q float64) float64 {
		return float64(m.latencies[min(int(q*float64(len(m.latencies))), len(m.latencies)-1)]) / 1e3
	}
	p.P50us, p.P99us = at(0.5), at(0.99)
	if m.updates == 0 {
		return
	}
	p.Retries = float64(m.retries) / float64(m.updates)
	p.MostRetries = m.most
	for _, n := range m.counts {
		p.Distribution = append(p.Distribution, float64(n)/float64(m.updates))
	}
}
