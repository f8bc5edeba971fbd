package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
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
	profile := flag.String("cpuprofile", "", "only run SmallBank on the engine, `rounds` times txns, and write a CPU profile to this file")
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
	var eng, raw []float64
	for i := range rounds {
		ns, err := small.round(ctx, txns, 1, uint64(i))
		if err != nil {
			return err
		}
		eng = append(eng, ns)
		raw = append(raw, bare.smallbank(txns, uint64(i)))
	}
	if err := bare.close(); err != nil {
		return err
	}
	fmt.Printf("SmallBank, 1 thread, 100,000 accounts %6.1f ns on the engine   %7.1f ns its bare verbs     %4.0f %% of the verbs' rate\n",
		median(eng), median(raw), 100*paired(raw, eng))

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
				x, err := b.round(ctx, txns, coroutines, uint64(i))
				if err != nil {
					return err
				}
				ns[k] = append(ns[k], x)
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

// profiled runs n transactions under the CPU profiler.
func profiled(ctx context.Context, path string, n int) error {
	b, err := openBank(ctx, 100_000)
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
	_, err = b.round(ctx, n, 1, 1)
	pprof.StopCPUProfile()
	return errors.Join(err, f.Close(), b.store.Close(ctx))
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
	driver workload.Driver
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

// round runs n transactions on one thread and returns nanoseconds of each.
func (b *bank) round(ctx context.Context, n, coroutines int, seed uint64) (float64, error) {
	start, end := make([]time.Time, coroutines), make([]time.Time, coroutines)
	err := b.store.Run(ctx, 1, coroutines, func(ctx context.Context, id int, w workload.Worker) error {
		if b.blind {
			w = struct{ workload.Worker }{w}
		}
		c := b.driver.NewClient(id, seed, w)
		start[id] = time.Now()
		for range n / coroutines {
			c.Next()
			if _, err := c.Run(ctx); err != nil {
				return err
			}
		}
		end[id] = time.Now()
		return nil
	})
	if err != nil {
		return 0, err
	}
	first, last := slices.MinFunc(start, time.Time.Compare), slices.MaxFunc(end, time.Time.Compare)
	return float64(last.Sub(first)) / float64(n/coroutines*coroutines), nil
}
