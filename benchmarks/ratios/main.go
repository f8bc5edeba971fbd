package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"os/signal"
	"runtime/pprof"
	"slices"
	"time"

	"txnode/benchmarks/engine"
	"txnode/benchmarks/smallbank"
	"txnode/benchmarks/workload"
	"txnode/txn"
)

func main() {
	rounds := flag.Int("rounds", 15, "`rounds` of each measurement, in turn; the median counts")
	txns := flag.Int("txns", 100_000, "transactions of one round")
	many := flag.Int("accounts", 10_000_000, "accounts of the large table; 0: leave that part out")
	warm := flag.Int("warm", 2_000_000, "transactions on the large table before its first round")
	profile := flag.String("cpuprofile", "",
		"only run SmallBank on the engine, `rounds` times txns, and then its bare verbs, and write a CPU profile "+
			"to this file")
	coroutines := flag.Int("coroutines", 8, "coroutines of the one thread, for the comparison of table sizes")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	var err error
	if *profile != "" {
		err = profiled(ctx, *profile, *rounds**txns)
	} else {
		err = run(ctx, *rounds, *txns, *many, *warm, *coroutines)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "ratios:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, rounds, txns, many, warm, coroutines int) error {
	v, err := newVerbs(1<<30, 1)
	if err != nil {
		return err
	}
	var batch, loop []float64
	for range rounds {
		batch = append(batch, v.reads(20_000))
		loop = append(loop, v.loop(20_000))
	}
	if err := v.close(); err != nil {
		return err
	}
	fmt.Printf("16 random 64-byte READs over 1 GiB   %7.1f ns as one batch   %7.1f ns as a plain loop   %5.2f x\n",
		median(batch), median(loop), paired(batch, loop))

	small, err := openBank(ctx, 100_000)
	if err != nil {
		return err
	}
	bare, err := newVerbs(64<<20, 2)
	if err != nil {
		return err
	}
	var eng, raw, verbs, rawVerbs []float64
	for i := range rounds {
		r, err := small.round(ctx, txns, 1, uint64(i))
		if err != nil {
			return err
		}
		ns, n := bare.smallbank(small.driver.NewDraws(0, uint64(i)), r.rolledBack)
		eng, verbs = append(eng, r.ns), append(verbs, r.verbs)
		raw, rawVerbs = append(raw, ns), append(rawVerbs, n)
	}
	if err := bare.close(); err != nil {
		return err
	}
	if a, b := median(verbs), median(rawVerbs); math.Abs(a-b) > a/100 {
		return fmt.Errorf("the engine posts %.2f verbs a transaction, and what is to be its bare verbs %.2f: they "+
			"are not those of the same transactions", a, b)
	}
	fmt.Printf("SmallBank, 1 thread, 100,000 accounts %6.1f ns on the engine   %7.1f ns its bare verbs     %4.0f %% "+
		"of the verbs' rate (%.2f and %.2f verbs each)\n",
		median(eng), median(raw), 100*paired(raw, eng), median(verbs), median(rawVerbs))

	if many > 0 {
		fmt.Fprintf(os.Stderr, "loading %d accounts\n", many)
		large, err := openBank(ctx, many)
		if err != nil {
			return err
		}
		if _, err := large.round(ctx, warm, coroutines, 1<<32); err != nil {
			return err
		}
		blind := &bank{large.store, large.driver, true}
		var ns [3][]float64
		for i := range rounds {
			for k, b := range []*bank{small, large, blind} {
				r, err := b.round(ctx, txns, coroutines, uint64(i))
				if err != nil {
					return err
				}
				ns[k] = append(ns[k], r.ns)
			}
		}
		for k, how := range []string{"", ", next not known"} {
			fmt.Printf("SmallBank, 1 x %d, %d accounts%s %6.1f ns   %7.1f ns with 100,000       %5.2f of the rate\n",
				coroutines, many, how, median(ns[k+1]), median(ns[0]), paired(ns[0], ns[k+1]))
		}
		if err := large.store.Close(ctx); err != nil {
			return err
		}
	}
	return small.store.Close(ctx)
}

// profiled runs n transactions, and then their bare verbs, under the CPU profiler.
func profiled(ctx context.Context, path string, n int) error {
	b, err := openBank(ctx, 100_000)
	if err != nil {
		return err
	}
	bare, err := newVerbs(64<<20, 2)
	if err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return err
	}
	r, err := b.round(ctx, n, 1, 1)
	if err == nil {
		bare.smallbank(b.driver.NewDraws(0, 1), r.rolledBack)
	}
	pprof.StopCPUProfile()
	return errors.Join(err, f.Close(), bare.close(), b.store.Close(ctx))
}

func median(x []float64) float64 {
	x = slices.Clone(x)
	slices.Sort(x)
	return x[len(x)/2]
}

// paired is the median of a/b, round by round.
func paired(a, b []float64) float64 {
	r := make([]float64, len(a))
	for i := range a {
		r[i] = a[i] / b[i]
	}
	return median(r)
}

// bank is a SmallBank database.
type bank struct {
	store  *engine.Store
	driver *smallbank.Driver
	blind  bool // clients do not tell what their next transactions use
}

func openBank(ctx context.Context, accounts int) (*bank, error) {
	store, err := engine.Open(ctx, txn.Options{Seed: 1})
	if err != nil {
		return nil, err
	}
	o := smallbank.DefaultOptions()
	o.Accounts = accounts
	driver, err := smallbank.New(o)
	if err != nil {
		return nil, err
	}
	_, err = driver.Load(ctx, store, nil)
	return &bank{store, driver, false}, err
}

// round is what n transactions have come to.
type round struct {
	ns, verbs  float64 // of each
	rolledBack []bool  // with one coroutine: which, in the order of the client's draws
}

// round runs n transactions on one thread. All clients draw with the seed.
func (b *bank) round(ctx context.Context, n, coroutines int, seed uint64) (round, error) {
	start, end := make([]time.Time, coroutines), make([]time.Time, coroutines)
	n = n / coroutines * coroutines
	r := round{rolledBack: make([]bool, n)}
	total := uint64(0)
	err := b.store.Run(ctx, 1, coroutines, func(ctx context.Context, id int, w workload.Worker) error {
		if b.blind {
			w = struct{ workload.Worker }{w}
		}
		c := b.driver.NewClient(id, seed, w)
		gone := r.rolledBack[n/coroutines*id : n/coroutines*(id+1)]
		start[id] = time.Now()
		for i := range gone {
			c.Next()
			outcome, err := c.Run(ctx)
			if err != nil {
				return err
			}
			gone[i] = outcome == workload.RolledBack
		}
		end[id] = time.Now()
		total += w.Counters().Verbs
		return nil
	})
	if err != nil {
		return round{}, err
	}
	first, last := slices.MinFunc(start, time.Time.Compare), slices.MaxFunc(end, time.Time.Compare)
	r.ns, r.verbs = float64(last.Sub(first))/float64(n), float64(total)/float64(n)
	return r, nil
}
