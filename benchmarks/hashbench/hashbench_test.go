package hashbench

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"txnode/benchmarks/workload"
	"txnode/rdma"
	"txnode/rdma/sim"
)

func small() Config {
	return Config{
		Mix: Mixes[0], Theta: 0.99, Keys: 3000, Techniques: rdma.AllTechniques, Threads: 8, Coroutines: 4,
		Warmup: 200 * time.Microsecond, Window: 300 * time.Microsecond, Limit: time.Millisecond,
	}
}

func load(t *testing.T, c Config) *Data {
	t.Helper()
	d, err := Load(t.Context(), c, nil)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func point(t *testing.T, c Config, d *Data) Point {
	t.Helper()
	p, err := Run(t.Context(), c, d)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Requests per operation, where nobody is in the way: 3 for a lookup and 5 for an update
// are RACE's; ours reads one bucket less where the first choice is enough. Fingerprints
// that two keys share cost a little more.
func TestVerbs(t *testing.T) {
	c := small()
	c.Threads, c.Coroutines, c.Theta = 1, 1, 0
	d := load(t, c)
	for _, x := range []struct {
		mix  Mix
		like bool
		want float64
	}{{Mixes[2], true, 3}, {Mixes[3], true, 5}, {Mixes[2], false, 2}, {Mixes[3], false, 4}} {
		c.Mix, c.LikeSMART = x.mix, x.like
		if p := point(t, c, d); p.VerbsPerOp < x.want || p.VerbsPerOp > x.want+0.15 || p.Retries != 0 {
			t.Errorf("mix %s, like SMART %v: %.2f verbs an operation and %.2f retries, want %v and none",
				x.mix.Name, x.like, p.VerbsPerOp, p.Retries, x.want)
		}
	}
}

// A retry of SMART's program is four requests (READs of both buckets and of the block, the
// CAS); ours are three (the block is written again beside one READ, and not read).
// Few keys: every update conflicts, and nearly all requests are those of retries.
func TestVerbsOfRetries(t *testing.T) {
	c := small()
	c.Mix, c.Keys, c.Drawn, c.Theta = Mixes[3], 2, 2, 0
	c.Techniques = rdma.Techniques{Doorbells: true}
	d := load(t, c)
	for like, each := range map[bool][2]float64{true: {5, 4}, false: {4, 3}} {
		c.LikeSMART = like
		p := point(t, c, d)
		per := (p.VerbsPerOp - each[0]) / p.Retries
		if p.Retries < 2 || math.Abs(per/each[1]-1) > 0.1 {
			t.Errorf("like SMART %v: %.2f retries of %.2f requests each, want %v", like, p.Retries, per, each[1])
		}
	}
}

// Keys beyond those that are loaded do not change how frequent the first ones are, and
// SMART's count of retries moves them between updates of a thread, but loses none.
func TestDrawn(t *testing.T) {
	c := small()
	c.Mix, c.Drawn, c.LikeSMART = Mixes[3], 1<<20, true
	d := load(t, c)
	few := c
	few.Drawn = c.Keys
	a, b := point(t, c, d), point(t, few, d)
	if a.Retries <= 0 || a.Retries >= b.Retries {
		t.Errorf("%.3f retries an update of 2^20 keys, %.3f of %d: the frequent ones are rarer among more",
			a.Retries, b.Retries, c.Keys)
	}
	sum, mean := 0.0, 0.0
	for i, x := range a.Distribution {
		sum += x
		mean += float64(i) * x
	}
	// Updates that are under way when the time is over have retried, too.
	if math.Abs(sum-1) > 1e-9 || mean < 0.9*a.Retries {
		t.Errorf("the distribution sums up to %v, its mean is %.3f of %.3f", sum, mean, a.Retries)
	}
}

// Equal configurations are equal points, to the byte; another seed is another.
func TestRepeats(t *testing.T) {
	c := small()
	d := load(t, c)
	a, b := point(t, c, d), point(t, c, load(t, c))
	c.Seed++
	other := point(t, c, d)
	if a.TraceHash != b.TraceHash || a.Ops != b.Ops || a.Mops != b.Mops {
		t.Errorf("two runs of one configuration:\n%+v\n%+v", a, b)
	}
	if a.TraceHash == other.TraceHash {
		t.Error("two seeds are one run")
	}
}

// Updates are never lost: whoever wins the slot last, its block is what a lookup
// finds; blocks that were replaced are used again, and no two slots share one.
func TestUpdatesTakeEffect(t *testing.T) {
	c := small()
	c.Mix, c.Keys = Mixes[3], 40
	c.defaults()
	d := load(t, c)
	w, err := c.open(d)
	if err != nil {
		t.Fatal(err)
	}
	type write struct {
		start, end int64
		value      uint64
	}
	writes := map[uint64][]write{}
	retried := 0
	z := workload.NewZipf(c.Keys, c.Theta)
	err = w.run(&c, c.Threads, c.Coroutines, func(k *client) error {
		th := k.c.Thread()
		for n := range uint64(60) {
			key, value := workload.Scatter(z.Rank(th.Rand())), uint64(k.id)<<32|n
			start := th.Now()
			r, err := k.update(key, value)
			if err != nil {
				return err
			}
			retried += r
			writes[key] = append(writes[key], write{start, th.Now(), value})
			got, err := k.lookup(key)
			if err != nil {
				return err
			}
			if got != value { // then somebody else's, who was not done when ours began
				found := false
				for _, x := range writes[key] {
					found = found || x.value == got && x.end >= start
				}
				if !found && got>>32 == uint64(k.id) {
					t.Errorf("key %#x: read %#x of this client after it wrote %#x", key, got, value)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if retried < 100 {
		t.Errorf("%d retries: nothing was contended", retried)
	}
	// What is left is the value of a write that no other one followed.
	c.Threads, c.Coroutines = 1, 1
	err = w.run(&c, 1, 1, func(k *client) error {
		for rank := range c.Keys {
			key := workload.Scatter(rank)
			got, err := k.lookup(key)
			if err != nil {
				return err
			}
			if len(writes[key]) == 0 {
				if got != rank {
					t.Errorf("key %#x, which nobody wrote, has %#x instead of %#x", key, got, rank)
				}
				continue
			}
			last := int64(math.MinInt64)
			for _, x := range writes[key] {
				last = max(last, x.start)
			}
			ok := false
			for _, x := range writes[key] {
				ok = ok || x.value == got && x.end >= last
			}
			if !ok {
				t.Errorf("key %#x has %#x, which was not among the last writes", key, got)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.index.Verify(w.control.Plain()); err != nil {
		t.Error(err)
	}
	if err := w.close(); err != nil {
		t.Error(err)
	}
}

// Conflict avoidance does what it is for: fewer retries, more operations.
func TestConflictAvoidance(t *testing.T) {
	c := small()
	c.Mix, c.Threads, c.Coroutines = Mixes[3], 48, 8
	// the limits move once a millisecond
	c.Warmup, c.Window, c.Limit = 16*time.Millisecond, time.Millisecond, 3*time.Millisecond
	d := load(t, c)
	var ps []Point
	for _, a := range Avoidances {
		c.Techniques = rdma.Techniques{Doorbells: true}
		a.Set(&c.Techniques)
		ps = append(ps, point(t, c, d))
	}
	for i, p := range ps[1:] {
		if p.Mops < 2*ps[0].Mops || p.Retries > ps[0].Retries/2 {
			t.Errorf("%s: %.2f Mop/s with %.2f retries, without any %.2f with %.2f", Avoidances[i+1].Name, p.Mops,
				p.Retries, ps[0].Mops, ps[0].Retries)
		}
	}
	for i, p := range ps {
		sum := 0.0
		for _, x := range p.Distribution {
			sum += x
		}
		if math.Abs(sum-1) > 1e-9 {
			t.Errorf("%s: the distribution of retries sums up to %v", Avoidances[i].Name, sum)
		}
	}
}

func TestConfig(t *testing.T) {
	c := small()
	c.Theta, c.Threads, c.Coroutines, c.Mix.Updates = 1, 5000, 65, 101
	err := c.Validate()
	if !errors.Is(err, ErrConfig) {
		t.Fatalf("got %v", err)
	}
	for _, part := range []string{
		"Theta, the parameter of Zipf's distribution, is 1:", "Threads is 5000", "Coroutines is 65", "101 % updates",
	} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %q", err, part)
		}
	}
	d := load(t, small())
	c = small()
	c.Keys = 7
	if _, err := Run(t.Context(), c, d); !errors.Is(err, ErrConfig) {
		t.Errorf("data of another size: %v", err)
	}
	for _, err := range []error{second(MixByName("z")), second(AvoidanceByName("z")), second(Figure("z", c))} {
		if !errors.Is(err, ErrConfig) {
			t.Errorf("got %v", err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Run(ctx, small(), d); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
}

func second[T any](_ T, err error) error { return err }

// Figures have the curves that their statements ask for.
func TestFigures(t *testing.T) {
	c := small()
	c.Keys, c.Threads, c.Coroutines, c.Window, c.Limit = 500, 4, 2, 100*time.Microsecond, 300*time.Microsecond
	d := load(t, c)
	for name, want := range map[string]int{"5a": 2, "5b": 2, "7": 9, "8": 0, "14": 8} {
		curves, err := Figure(name, c)
		if err != nil {
			t.Fatal(err)
		}
		done := 0
		for i := range curves {
			for j := range curves[i].Config {
				curves[i].Config[j].Threads = min(curves[i].Config[j].Threads, 4)
			}
		}
		if err := Measure(t.Context(), curves, d, func(*Curve, *Point) { done++ }); err != nil {
			t.Fatal(err)
		}
		r := NewReport(name, c, curves)
		if len(r.Statements) != want {
			t.Errorf("figure %s: %d statements, want %d", name, len(r.Statements), want)
		}
		var table, list, object bytes.Buffer
		if err := errors.Join(r.WriteTable(&table), r.WriteCSV(&list), r.WriteJSON(&object)); err != nil {
			t.Error(err)
		}
		if n := strings.Count(list.String(), "\n"); n != done+1 {
			t.Errorf("figure %s: %d lines for %d points", name, n, done)
		}
		if !strings.Contains(table.String(), curves[0].Name) || !strings.Contains(object.String(), `"mops"`) {
			t.Errorf("figure %s:\n%s", name, &table)
		}
	}
}

// A run that is of no figure has beside it what was published of the same configuration,
// and nothing if anything differs.
func TestPublished(t *testing.T) {
	of := func(mix string, threads int, theta float64, like bool, techniques rdma.Techniques,
		more func(*Config)) float64 {
		c := Config{Theta: theta, Threads: threads, LikeSMART: like, Techniques: techniques, Tuner: rdma.TunerSMART}
		var err error
		if c.Mix, err = MixByName(mix); err != nil {
			t.Fatal(err)
		}
		if more != nil {
			more(&c)
		}
		curve := Curve{Name: "mine", Mix: mix, Config: []Config{c}, Points: []Point{{Threads: threads, Theta: theta}}}
		x, _ := NewReport("", c, []Curve{curve}).published(&curve, 0)
		return x.Mops
	}
	table := rdma.Techniques{Doorbells: true, Throttle: true}
	dynamic := table
	dynamic.Backoff, dynamic.DynLimit = true, true
	for _, test := range []struct {
		got, want float64
		what      string
	}{
		{of("update-only", 96, 0.99, true, table, nil), 0.176, "figure 14, none"},
		{of("update-only", 96, 0.99, true, dynamic, nil), 2.445, "figure 14, dynamic"},
		{of("update-only", 8, 0.99, true, rdma.Techniques{}, nil), 1.574, "figure 5a"},
		{of("update-only", 16, 0.4, true, rdma.Techniques{}, nil), 3.641, "figure 5b"},
		{of("c", 48, 0.99, true, rdma.Techniques{}, nil), 11.502, "figure 8c, RACE"},
		{of("b", 24, 0.99, true, rdma.AllTechniques, nil), 9.699, "figure 8b, all techniques"},
		{of("c", 48, 0.99, false, rdma.AllTechniques, nil), 0, "ours"},
		{of("c", 47, 0.99, true, rdma.Techniques{}, nil), 0, "47 threads"},
		{of("c", 48, 0.9, true, rdma.Techniques{}, nil), 0, "another distribution"},
		{
			of("c", 48, 0.99, true, rdma.Techniques{}, func(c *Config) { c.Profile = sim.RoCE25() }),
			0, "another machine",
		},
		{of("c", 48, 0.99, true, rdma.Techniques{}, func(c *Config) { c.Blades = 3 }), 0, "three blades"},
		{of("c", 48, 0.99, true, rdma.Techniques{}, func(c *Config) { c.Drawn = 1000 }), 0, "fewer keys"},
	} {
		if test.got != test.want {
			t.Errorf("%s: %v million operations a second were published, found %v", test.what, test.want, test.got)
		}
	}
}

// A trace of a run is a trace of its verbs.
func TestRecord(t *testing.T) {
	c := small()
	c.Record = &sim.Recording{}
	point(t, c, load(t, c))
	var out bytes.Buffer
	if err := c.Record.WriteChrome(&out); err != nil || !strings.Contains(out.String(), "CAS") {
		t.Errorf("%d bytes, %v", out.Len(), err)
	}
}

func TestKeyIsLittleEndian(t *testing.T) {
	if p := putKey(make([]byte, 8), 258); binary.LittleEndian.Uint64(p) != 258 {
		t.Errorf("key 258 is %x", p)
	}
}
