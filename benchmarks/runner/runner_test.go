package runner_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"txnode/benchmarks/reference"
	"txnode/benchmarks/runner"
	"txnode/benchmarks/runner/runnertest"
	"txnode/benchmarks/workload"
	"txnode/check"
)

// counters is a workload of counters: type 0 increments one, type 1 reads one
// and rolls back when it is odd, type 2 reads a key that has no record. Types
// take turns. The books: the sum is the number of increments.
type counters struct {
	keys       uint64
	increments atomic.Uint64
	types      int // 0: all three
	drawn      atomic.Int64
}

var errOdd = errors.New("odd")

func (*counters) Name() string                        { return "counters" }
func (d *counters) Schema() []workload.Table          { return []workload.Table{{Name: "t", MaxValue: 8}} }
func (*counters) Types() []string                     { return []string{"increment", "read", "absent"} }
func (*counters) Mix() []float64                      { return []float64{34, 33, 33} }
func value(v []byte) uint64                           { return binary.LittleEndian.Uint64(v) }
func encode(n uint64) []byte                          { return binary.LittleEndian.AppendUint64(nil, n) }
func (d *counters) client(w workload.Worker) *counter { return &counter{d: d, w: w} }

func (d *counters) NewClient(id int, _ uint64, w workload.Worker) workload.Client {
	c := d.client(w)
	c.n = id
	return c
}

func (d *counters) Load(ctx context.Context, s workload.Store, progress func(done, total int)) (workload.LoadReport,
	error) {
	if _, err := s.Tables(ctx, d.Schema()); err != nil {
		return workload.LoadReport{}, err
	}
	err := s.Run(ctx, 1, 1, func(ctx context.Context, _ int, w workload.Worker) error {
		for k := range d.keys {
			if err := w.Update(ctx, func(tx workload.Tx) error { return tx.Put(0, k, encode(0)) }); err != nil {
				return err
			}
			if progress != nil {
				progress(int(k+1), int(d.keys))
			}
		}
		return nil
	})
	return workload.LoadReport{Records: int(d.keys), Summary: fmt.Sprint(d.keys, " counters")}, err
}

func (d *counters) Verify(ctx context.Context, s workload.Store) (workload.VerifyReport, error) {
	var sum uint64
	err := s.Run(ctx, 1, 1, func(ctx context.Context, _ int, w workload.Worker) error {
		return w.View(ctx, func(tx workload.Tx) error {
			sum = 0
			for k := range d.keys {
				v, err := tx.Get(0, k)
				if err != nil {
					return err
				}
				sum += value(v)
			}
			return nil
		})
	})
	var r workload.VerifyReport
	if err != nil {
		return r, err
	}
	r.Add("increments are kept", sum == d.increments.Load(), "%d found, %d made", sum, d.increments.Load())
	return r, r.Err()
}

type counter struct {
	d   *counters
	w   workload.Worker
	n   int
	typ int
}

func (c *counter) Next() int {
	c.n++
	types := c.d.types
	if types == 0 {
		types = 3
	}
	c.d.drawn.Add(1)
	c.Draw(c.n % types)
	return c.typ
}

func (c *counter) Draw(typ int) { c.typ = typ }

func (c *counter) Run(ctx context.Context) (workload.Outcome, error) {
	key := uint64(c.n) % c.d.keys
	switch c.typ {
	case 0:
		err := c.w.Update(ctx, func(tx workload.Tx) error {
			v, err := tx.Get(0, key)
			if err != nil {
				return err
			}
			return tx.Put(0, key, encode(value(v)+1))
		})
		if err == nil {
			c.d.increments.Add(1)
		}
		return workload.Committed, err
	case 1:
		err := c.w.View(ctx, func(tx workload.Tx) error {
			v, err := tx.Get(0, key)
			if err == nil && value(v)%2 == 1 {
				err = errOdd
			}
			return err
		})
		if errors.Is(err, errOdd) {
			return workload.RolledBack, nil
		}
		return workload.Committed, err
	}
	err := c.w.View(ctx, func(tx workload.Tx) error {
		_, err := tx.Get(0, 1<<40)
		return err
	})
	if errors.Is(err, workload.ErrNotFound) {
		return workload.RowAbsent, nil
	}
	return workload.Committed, err
}

func bench(t *testing.T, s workload.Store, d workload.Driver, c runner.Config) *runner.Result {
	t.Helper()
	res, err := runner.Bench(context.Background(), s, d, c)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func ended(r *runner.Run) uint64 {
	sum := r.Total()
	return sum.Ended()
}

func TestClosedLoopCountsWhatIsMeasuredOnly(t *testing.T) {
	// 4 workers, 1 µs a transaction: 4 million a second of virtual time.
	for _, sample := range []int{1, 8, 100} {
		t.Run(fmt.Sprint("sample ", sample), func(t *testing.T) {
			d := &counters{keys: 10}
			res := bench(t, runnertest.New(runnertest.Options{TxnNs: 1000}), d, runner.Config{
				Threads: 2, Coroutines: 2, Warmup: 3 * time.Millisecond, Duration: 5 * time.Millisecond,
				LatencySample: sample,
			})
			run := &res.Runs[0]
			// The clock is looked at every sample-th transaction: that much is exact.
			slack := uint64(4 * sample)
			if n := ended(run); n < 20_000-slack || n > 20_000+slack {
				t.Errorf("%d transactions in 5 ms, want about 20000", n)
			}
			if got := float64(ended(run)) / run.Elapsed.Seconds(); got < 3.99e6 || got > 4.01e6 {
				t.Errorf("%.0f transactions/s, want 4 million", got)
			}
			if drawn := d.drawn.Load(); drawn < 32_000-int64(slack) || drawn > 32_000+2*int64(slack) {
				t.Errorf("%d transactions with the warm-up, want about 32000", drawn)
			}
			for i, n := range []workload.Outcome{workload.Committed, workload.NumOutcomes, workload.RowAbsent} {
				ty := &run.Types[i]
				if n < workload.NumOutcomes && ty.Outcomes[n] != ty.Ended() {
					t.Errorf("%s: outcomes %v, want all %v", ty.Name, ty.Outcomes, n)
				}
			}
			lat := run.Types[0].Latency
			if lat.Min() != 1000 || lat.Max() != 1000 {
				t.Errorf("latency from %d to %d ns, want 1000", lat.Min(), lat.Max())
			}
			if want := int64(run.Types[0].Ended()) / int64(sample); lat.TotalCount() < want/2 ||
				lat.TotalCount() > want*2+4 {
				t.Errorf("%d samples of %d, one in %d wanted", lat.TotalCount(), run.Types[0].Ended(), sample)
			}
		})
	}
}

func TestCostsByTypeAndOutcome(t *testing.T) {
	res := bench(t, runnertest.New(runnertest.Options{TxnNs: 1000, ConflictEvery: 10}),
		&counters{keys: 10}, runner.Config{
			Threads: 1, Coroutines: 3, Txns: 3000, Warmup: time.Millisecond,
		})
	run := &res.Runs[0]
	if n := ended(run); n != 3000 {
		t.Fatalf("%d transactions, want 3000", n)
	}
	inc := &run.Types[0]
	cost := inc.Cost[workload.Committed]
	// runnertest: 2 to lock and read, then 2 + 2 + 1; an attempt in conflict has the first 2.
	if want := 7*inc.Outcomes[workload.Committed] + 2*inc.Conflicts(); cost.Verbs != want {
		t.Errorf("%d verbs, want %d", cost.Verbs, want)
	}
	if want := 2*inc.Outcomes[workload.Committed] + inc.Conflicts(); cost.RoundTrips != want {
		t.Errorf("%d round trips, want %d", cost.RoundTrips, want)
	}
	absent := &run.Types[2]
	if absent.Cost[workload.RowAbsent].Verbs != absent.Ended()+absent.Conflicts() ||
		absent.Cost[workload.Committed].Verbs != 0 {
		t.Errorf("absent rows: costs %+v", absent.Cost)
	}
	sum := run.Total()
	if c := sum.Conflicts(); c < 300 || c > 350 {
		t.Errorf("%d conflicts, want one attempt in 10", c)
	}
	total := sum.TotalCost()
	for r, n := range total.Aborts {
		if n < 40 {
			t.Errorf("%d conflicts of reason %v, want a sixth of %d", n, workload.AbortReason(r), sum.Conflicts())
		}
	}
}

func TestRunsTxnsAndSeeds(t *testing.T) {
	d := &counters{keys: 10}
	res := bench(t, runnertest.New(runnertest.Options{TxnNs: 500}), d, runner.Config{
		Threads: 3, Coroutines: 5, Txns: 1001, Runs: 3, Seed: 40,
	})
	if len(res.Runs) != 3 {
		t.Fatalf("%d runs", len(res.Runs))
	}
	for i := range res.Runs {
		r := &res.Runs[i]
		if ended(r) != 1001 || r.Seed != 40+uint64(i) || r.Interrupted || r.BooksErr != nil ||
			len(r.Books.Checks) != 1 {
			t.Errorf("run %d: %d transactions, seed %d, interrupted %v, books %v (%v)",
				i, ended(r), r.Seed, r.Interrupted, r.Books, r.BooksErr)
		}
	}
	if d.drawn.Load() != 3003 {
		t.Errorf("%d transactions drawn, want 3003", d.drawn.Load())
	}
}

func TestOpenLoopKeepsTheRateAndMeasuresFromTheIntendedStart(t *testing.T) {
	// Capacity is 2 million/s; 100,000/s arrive. For 1 ms from 1.005 s on
	// the store stands still: about 100 arrivals wait, up to 1 ms.
	const stall = int64(time.Millisecond)
	s := runnertest.New(runnertest.Options{TxnNs: 1000, StallAt: 1e9 + 5e6, StallNs: stall})
	res := bench(t, s, &counters{keys: 1, types: 1}, runner.Config{
		Threads: 1, Coroutines: 2, Rate: 100_000, Warmup: 2 * time.Millisecond, Duration: 20 * time.Millisecond,
	})
	run := &res.Runs[0]
	if run.Arrivals != 2000 || run.Backlog != 0 || ended(run) != 2000 {
		t.Errorf("%d arrivals, %d ended, backlog %d; want 2000, 2000, 0", run.Arrivals, ended(run), run.Backlog)
	}
	if run.Elapsed < 20*time.Millisecond || run.Elapsed > 20*time.Millisecond+2*time.Microsecond {
		t.Errorf("measured for %v, want 20 ms", run.Elapsed)
	}
	lat := run.Types[0].Latency
	if lat.TotalCount() != 2000 {
		t.Errorf("%d latencies, want all 2000", lat.TotalCount())
	}
	if p50 := lat.ValueAtQuantile(50); p50 != 1000 {
		t.Errorf("p50 is %d ns, want 1000", p50)
	}
	// Without coordinated omission 5 % of the arrivals show the stall, not two.
	slow := 0
	for _, b := range lat.Distribution() {
		if b.From > 2000 {
			slow += int(b.Count)
		}
	}
	if slow < 95 || slow > 110 {
		t.Errorf("%d latencies show the stall, want about 100", slow)
	}
	if m := lat.Max(); m < stall*99/100 || m > stall*102/100 {
		t.Errorf("the largest latency is %d ns, want the stall of %d", m, stall)
	}
}

func TestOpenLoopOverload(t *testing.T) {
	// 1 million/s can be served, 2 million/s arrive: half of them wait at the end.
	res := bench(t, runnertest.New(runnertest.Options{TxnNs: 1000}), &counters{keys: 1, types: 1}, runner.Config{
		Rate: 2e6, Duration: 10 * time.Millisecond,
	})
	run := &res.Runs[0]
	if run.Arrivals != 20_000 || run.Backlog < 9_990 || run.Backlog > 10_010 {
		t.Errorf("%d arrivals, backlog %d; want 20000 and 10000", run.Arrivals, run.Backlog)
	}
	if m := run.Types[0].Latency.Max(); m < 4_900_000 || m > 5_100_000 {
		t.Errorf("the largest latency is %d ns, want 5 ms", m)
	}
}

func TestOpenLoopWithTxns(t *testing.T) {
	res := bench(t, runnertest.New(runnertest.Options{TxnNs: 1000}), &counters{keys: 1, types: 1}, runner.Config{
		Threads: 4, Rate: 1e6, Txns: 500, Warmup: time.Millisecond,
	})
	run := &res.Runs[0]
	if ended(run) != 500 || run.Arrivals != 500 || run.Backlog != 0 {
		t.Errorf("%d ended of %d arrivals, backlog %d; want 500, 500, 0", ended(run), run.Arrivals, run.Backlog)
	}
	if got := 500 / run.Elapsed.Seconds(); got < 0.99e6 || got > 1.01e6 {
		t.Errorf("%.0f/s, want the rate of 1 million", got)
	}
}

// TestOpenLoopLasts: a run lasts as long as it says, though its last arrival was long before.
func TestOpenLoopLasts(t *testing.T) {
	for _, c := range []struct {
		rate     float64
		duration time.Duration
		txns     int64
		arrivals int64
		lasts    time.Duration
	}{
		{0.001, 100 * time.Second, 0, 1, 100 * time.Second},
		{0.05, 100 * time.Second, 0, 5, 100 * time.Second},
		{0.05, 100 * time.Second, 2, 2, 40 * time.Second},
		{0.05, 0, 2, 2, 40 * time.Second},
	} {
		for _, verify := range []bool{false, true} {
			s := runnertest.New(runnertest.Options{TxnNs: 1000})
			begun := s.Now()
			res := bench(t, s, &counters{keys: 1, types: 1},
				runner.Config{
					Threads: 2, Rate: c.rate, Duration: c.duration, Txns: c.txns, Verify: verify, VerifyWindow: 1000,
				})
			run := &res.Runs[0]
			if run.Elapsed < c.lasts || run.Elapsed > c.lasts+time.Millisecond || run.Arrivals != c.arrivals ||
				ended(run) != uint64(c.arrivals) {
				t.Errorf("%+v, verified %v: %v, %d of %d arrivals", c, verify, run.Elapsed, ended(run), run.Arrivals)
			}
			if took := time.Duration(s.Now() - begun); took < c.lasts || took > c.lasts+time.Second {
				t.Errorf("%+v, verified %v: it took %v", c, verify, took)
			}
		}
	}
}

func TestOpenLoopOnWallClock(t *testing.T) {
	res := bench(t, reference.Open(reference.Options{}), &counters{keys: 100}, runner.Config{
		Threads: 2, Coroutines: 2, Rate: 10_000, Txns: 300,
	})
	if run := &res.Runs[0]; ended(run) != 300 || run.Elapsed < 29*time.Millisecond {
		t.Errorf("%d transactions in %v, want 300 in about 30 ms", ended(run), run.Elapsed)
	}
}

func TestVerifyChecksTheHistoryInWindows(t *testing.T) {
	s := runnertest.New(runnertest.Options{TxnNs: 1000, ConflictEvery: 7})
	res := bench(t, s, &counters{keys: 5}, runner.Config{
		Threads: 2, Coroutines: 2, Txns: 5000, Warmup: time.Millisecond, Verify: true, VerifyWindow: 1000, Runs: 2,
	})
	for i := range res.Runs {
		r := &res.Runs[i]
		h := r.History
		if h == nil || h.Err != nil || h.Ambiguous != 0 {
			t.Fatalf("run %d: history %+v", i, h)
		}
		// 5000 measured and about 4000 of the warm-up; those that roll back or
		// miss a row are not recorded.
		if h.Windows < 8 || h.Windows > 11 || h.Txns < 3000 || h.Txns > 9100 || h.Edges.WW == 0 {
			t.Errorf("run %d: %+v", i, h)
		}
		if ended(r) != 5000 {
			t.Errorf("run %d measured %d transactions, want 5000", i, ended(r))
		}
		if got := float64(ended(r)) / r.Elapsed.Seconds(); got < 3e6 || got > 4.1e6 {
			t.Errorf("run %d: %.0f/s over the windows, want about 3.5 million", i, got)
		}
	}
}

func TestVerifyWindowsOfADuration(t *testing.T) {
	s := runnertest.New(runnertest.Options{TxnNs: 1000})
	for _, rate := range []float64{0, 1e6} {
		res := bench(t, s, &counters{keys: 5, types: 1}, runner.Config{
			Threads: 2, Duration: 5 * time.Millisecond, Verify: true, VerifyWindow: 999, Rate: rate,
		})
		r := &res.Runs[0]
		if r.Elapsed < 4900*time.Microsecond || r.Elapsed > 5100*time.Microsecond || r.History.Windows < 5 {
			t.Errorf("rate %v: %v in %d windows, want 5 ms in several", rate, r.Elapsed, r.History.Windows)
		}
		if r.Backlog != 0 {
			t.Errorf("rate %v: backlog %d", rate, r.Backlog)
		}
		s = runnertest.New(runnertest.Options{TxnNs: 1000})
	}
}

func TestVerificationFailures(t *testing.T) {
	lossy := runnertest.Options{TxnNs: 1000, LoseEvery: 500}
	t.Run("books", func(t *testing.T) {
		res, err := runner.Bench(context.Background(), runnertest.New(lossy), &counters{keys: 5},
			runner.Config{Txns: 3000, Runs: 2})
		if !errors.Is(err, runner.ErrVerification) || !errors.Is(err, workload.ErrInconsistent) {
			t.Fatalf("error %v", err)
		}
		if len(res.Runs) != 1 || res.Runs[0].BooksErr == nil || res.Runs[0].Books.Checks[0].Holds ||
			ended(&res.Runs[0]) != 3000 {
			t.Errorf("runs %+v", res.Runs)
		}
	})
	t.Run("history", func(t *testing.T) {
		res, err := runner.Bench(context.Background(), runnertest.New(lossy), &counters{keys: 5},
			runner.Config{Txns: 3000, Verify: true})
		if !errors.Is(err, runner.ErrVerification) || !errors.Is(err, check.ErrViolation) {
			t.Fatalf("error %v", err)
		}
		if h := res.Runs[0].History; h.Err == nil || h.Windows != 1 {
			t.Errorf("history %+v", h)
		}
		if res.Runs[0].BooksErr == nil {
			t.Error("the books were not checked after the history had failed")
		}
	})
	t.Run("history between windows", func(t *testing.T) {
		// One key and windows of one increment: no window by itself shows a
		// contradiction, only what is carried from one to the next does.
		_, err := runner.Bench(context.Background(), runnertest.New(runnertest.Options{TxnNs: 1000, LoseEvery: 50}),
			&counters{keys: 1, types: 1},
			runner.Config{Txns: 300, Verify: true, VerifyWindow: 1})
		if !errors.Is(err, check.ErrViolation) {
			t.Fatalf("error %v", err)
		}
	})
	t.Run("store cannot record", func(t *testing.T) {
		_, err := runner.Bench(context.Background(), reference.Open(reference.Options{}), &counters{keys: 1},
			runner.Config{Verify: true})
		if !errors.Is(err, runner.ErrCannotRecord) {
			t.Fatalf("error %v", err)
		}
	})
}

func TestStoreErrorEndsTheRunAndBooksAreChecked(t *testing.T) {
	broken := errors.New("broken")
	s := runnertest.New(runnertest.Options{TxnNs: 1000, Fail: func(now int64) error {
		if now > 1e9+2e6 && now < 1e9+3e6 {
			return broken
		}
		return nil
	}})
	res, err := runner.Bench(context.Background(), s, &counters{keys: 5}, runner.Config{Threads: 3, Txns: 1e6, Runs: 2})
	if !errors.Is(err, broken) || errors.Is(err, runner.ErrVerification) {
		t.Fatalf("error %v", err)
	}
	if len(res.Runs) != 1 || ended(&res.Runs[0]) == 0 {
		t.Fatalf("runs %+v", res.Runs)
	}
	// The store is broken for Verify, too: that is reported, and is not a verdict.
	if e := res.Runs[0].BooksErr; e == nil || errors.Is(e, workload.ErrInconsistent) {
		t.Errorf("books: %v", e)
	}
	if res.Interrupted {
		t.Error("an error counts as an interruption")
	}
}

// panicking is a driver whose transactions panic after a while.
type panicking struct{ *counters }

func (d panicking) NewClient(id int, seed uint64, w workload.Worker) workload.Client {
	return &panicker{Client: d.counters.NewClient(id, seed, w)}
}

type panicker struct {
	workload.Client
	n int
}

func (p *panicker) Run(ctx context.Context) (workload.Outcome, error) {
	if p.n++; p.n > 10 {
		panic("at the disco")
	}
	return p.Client.Run(ctx)
}

func TestPanicInAWorkerIsAnError(t *testing.T) {
	for _, s := range []workload.Store{
		runnertest.New(runnertest.Options{TxnNs: 1}), reference.Open(reference.Options{}),
	} {
		_, err := runner.Bench(context.Background(), s, panicking{&counters{keys: 5}}, runner.Config{Threads: 2})
		var p *runner.PanicError
		if !errors.As(err, &p) || len(p.Stack) == 0 || !strings.Contains(p.Error(), "at the disco") {
			t.Errorf("%s: error %v", s.Name(), err)
		}
	}
}

func TestInterruption(t *testing.T) {
	for _, cfg := range []runner.Config{
		{Threads: 2, Duration: time.Hour, Runs: 3},
		{Threads: 2, Duration: time.Hour, Rate: 100},
		{Threads: 2, Duration: time.Hour, Rate: 1e9},
	} {
		ctx, cancel := context.WithCancel(context.Background())
		var at atomic.Int64
		s := runnertest.New(runnertest.Options{TxnNs: 1000, Fail: func(now int64) error {
			if now > 1e9+5e7 && at.CompareAndSwap(0, now) {
				cancel()
			}
			return nil
		}})
		res, err := runner.Bench(ctx, s, &counters{keys: 5}, cfg)
		if err != nil {
			t.Fatal(err)
		}
		if !res.Interrupted || len(res.Runs) != 1 || !res.Runs[0].Interrupted {
			t.Fatalf("rate %v: interrupted %v, %d runs", cfg.Rate, res.Interrupted, len(res.Runs))
		}
		r := &res.Runs[0]
		if ended(r) == 0 || r.BooksErr != nil || len(r.Books.Checks) != 1 {
			t.Errorf("rate %v: %d transactions, books %v %v", cfg.Rate, ended(r), r.Books, r.BooksErr)
		}
		if s := r.Elapsed.Seconds(); s < 0.049 {
			t.Errorf("rate %v: measured for %v, want the 50 ms before the interruption", cfg.Rate, r.Elapsed)
		}
		if cfg.Rate == 100 && (r.Backlog != 0 || r.Arrivals < 5) {
			t.Errorf("%d arrivals, backlog %d", r.Arrivals, r.Backlog)
		}
	}
}

func TestInterruptionWhileLoading(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	s := runnertest.New(runnertest.Options{TxnNs: 1000, Fail: func(now int64) error {
		if now > 1e9+5000 {
			cancel()
		}
		return nil
	}})
	res, err := runner.Bench(ctx, s, &counters{keys: 100}, runner.Config{})
	if err != nil || !res.Interrupted || len(res.Runs) != 0 {
		t.Errorf("error %v, interrupted %v, %d runs", err, res.Interrupted, len(res.Runs))
	}
}

func TestInterruptionInTheWarmUp(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	s := runnertest.New(runnertest.Options{TxnNs: 1000, Fail: func(now int64) error {
		if now > 1e9+5e5 {
			cancel()
		}
		return nil
	}})
	res, err := runner.Bench(ctx, s, &counters{keys: 10}, runner.Config{Warmup: time.Hour})
	if err != nil || !res.Interrupted || len(res.Runs) != 0 {
		t.Errorf("error %v, interrupted %v, %d runs", err, res.Interrupted, len(res.Runs))
	}
}

func TestConfigListsEveryFault(t *testing.T) {
	err := runner.Config{
		Threads: -1, Warmup: -1, Duration: -1, Txns: -1, Runs: -1, Rate: -1, LatencySample: -1, VerifyWindow: -1,
	}.Validate()
	var c *workload.OptionsError
	if !errors.As(err, &c) || len(c.Faults) != 8 {
		t.Errorf("error %v", err)
	}
	for _, rate := range []float64{1e-9, 2e9, math.NaN(), math.Inf(1)} {
		if (runner.Config{Rate: rate}).Validate() == nil {
			t.Errorf("a rate of %v", rate)
		}
	}
	if err := (runner.Config{}).Validate(); err != nil {
		t.Errorf("zero config: %v", err)
	}
}

func TestProgress(t *testing.T) {
	var seen [runner.CheckingBooks + 1]int
	bench(t, reference.Open(reference.Options{}), &counters{keys: 100}, runner.Config{
		Threads: 2, Warmup: 300 * time.Millisecond, Duration: 300 * time.Millisecond,
		Progress: func(p runner.Progress) {
			if p.Total > 0 && (p.Done < 0 || p.Done > p.Total) {
				t.Errorf("progress %+v", p)
			}
			seen[p.Stage]++
		},
	})
	if seen[runner.Loading] == 0 || seen[runner.CheckingBooks] != 1 ||
		seen[runner.WarmingUp]+seen[runner.Measuring] == 0 {
		t.Errorf("calls by stage: %v", seen)
	}
}

func TestEnvironment(t *testing.T) {
	e := runner.ReadEnvironment()
	if e.CPU == "" || e.Cores < 1 || e.GOMAXPROCS < 1 || e.Go == "" || !strings.Contains(e.OS, "/") {
		t.Errorf("environment %+v", e)
	}
}

// paced waits before each transaction.
type paced struct{ *counters }

type pacedClient struct{ workload.Client }

func (d paced) NewClient(id int, seed uint64, w workload.Worker) workload.Client {
	return pacedClient{d.counters.NewClient(id, seed, w)}
}

func (pacedClient) Pause() int64 { return 1_000_000 }

// A closed loop waits for a client that wants it, and no latency has the wait in it. It ends in
// time.
func TestPacer(t *testing.T) {
	store := runnertest.New(runnertest.Options{TxnNs: 1000})
	res, err := runner.Bench(t.Context(), store, paced{&counters{keys: 10}}, runner.Config{
		Threads: 1, Coroutines: 4, Duration: 50 * time.Millisecond, LatencySample: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	n := uint64(0)
	for i := range res.Runs[0].Types {
		typ := &res.Runs[0].Types[i]
		n += typ.Ended()
		if most := typ.Latency.Max(); most >= 1_000_000 {
			t.Errorf("type %d has a latency of %d ns", i, most)
		}
	}
	// 4 workers, each 1 ms and some after the last transaction.
	if n < 4*45 || n > 4*50 {
		t.Errorf("%d transactions in 50 ms", n)
	}
}
