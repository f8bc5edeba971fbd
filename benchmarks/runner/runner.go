package runner

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"txnode/benchmarks/workload"
)

// grace is how long transactions may go on after an interruption before they
// are cancelled, in wall time.
const grace = 5 * time.Second

// Bench loads the workload and makes the runs that cfg asks for. It returns
// what it has measured, also with an error: a *workload.OptionsError (then nothing has
// been touched), ErrVerification, an error of the store or the workload.
//
// When ctx is cancelled the transactions that have begun end, the run so far is
// verified like any other, and the result is Interrupted; that is not an error.
// The driver and the store must be fresh, or used with each other only.
func Bench(ctx context.Context, store workload.Store, driver workload.Driver, cfg Config) (*Result, error) {
	b, disarm, err := begin(ctx, store, driver, cfg)
	defer disarm()
	if err != nil || b.res.Interrupted {
		return b.res, err
	}
	for n := range b.cfg.Runs {
		err := b.run(n)
		if b.stop.Load() && ctx.Err() != nil {
			b.res.Interrupted = true
		}
		if err != nil || b.res.Interrupted {
			return b.res, err
		}
	}
	return b.res, nil
}

// begin loads the workload. After it, b.stop and b.ctx follow ctx until disarm is called.
func begin(ctx context.Context, store workload.Store, driver workload.Driver, cfg Config) (b *bench, disarm func(),
	err error) {
	cfg, err = cfg.withDefaults()
	b = &bench{store: store, driver: driver, cfg: cfg, res: &Result{Config: cfg}}
	if err != nil {
		return b, func() {}, err
	}
	if cfg.Verify {
		rec, ok := store.(workload.Recorder)
		if !ok {
			return b, func() {}, fmt.Errorf("%w (%s); run without verification of the history",
				ErrCannotRecord, store.Name())
		}
		b.recorder = rec
	}
	if err := b.load(ctx); err != nil || b.res.Interrupted {
		return b, func() {}, err
	}
	var cut context.CancelFunc
	b.ctx, cut = context.WithCancel(context.WithoutCancel(ctx))
	unarm := context.AfterFunc(ctx, func() {
		b.stop.Store(true)
		time.AfterFunc(grace, cut)
	})
	return b, func() {
		unarm()
		cut()
	}, nil
}

// bench is one call of Bench, Member or Lead.
type bench struct {
	store    workload.Store
	driver   workload.Driver
	recorder workload.Recorder // nil without Config.Verify
	cfg      Config
	res      *Result
	ctx      context.Context // of transactions: cancelled grace after the caller's
	stop     atomic.Bool     // workers are to leave: interruption, or one has failed
}

func (b *bench) load(ctx context.Context) error {
	var progress func(done, total int)
	if b.cfg.Progress != nil {
		var last time.Time
		progress = func(done, total int) {
			if now := time.Now(); done == total || now.Sub(last) >= progressInterval {
				last = now
				b.cfg.Progress(Progress{Stage: Loading, Runs: b.cfg.Runs, Done: int64(done), Total: int64(total)})
			}
		}
	}
	end := func(bool) error { return nil }
	var err error
	if l, ok := b.store.(workload.Loader); ok {
		end, err = l.BeginLoad(ctx, func() {
			b.progress(Waiting, 0)
			if b.cfg.Waiting != nil {
				b.cfg.Waiting()
			}
		})
	}
	if err == nil {
		from := b.store.Now()
		b.res.Load, err = b.driver.Load(ctx, b.store, progress)
		b.res.LoadTime = time.Duration(b.store.Now() - from)
		err = errors.Join(err, end(err == nil))
	}
	if err != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		b.res.Interrupted = true
		return nil
	}
	return err
}

// run makes run number n, and verifies what it leaves.
func (b *bench) run(n int) error {
	r := &run{bench: b, number: n + 1, seed: b.cfg.Seed + uint64(n)}
	err := r.measure()
	out := r.result()
	b.progress(CheckingBooks, n+1)
	// The books are checked whatever has happened: an error must leave them
	// balanced too.
	out.Books, out.BooksErr = b.driver.Verify(context.WithoutCancel(b.ctx), b.store)
	if out.Interrupted && r.measured == 0 && err == nil && out.BooksErr == nil {
		return nil // interrupted before there was anything to tell
	}
	b.res.Runs = append(b.res.Runs, out)
	if out.BooksErr != nil {
		if errors.Is(out.BooksErr, workload.ErrInconsistent) {
			err = errors.Join(&verificationError{out.BooksErr}, err)
		} else {
			err = errors.Join(err, out.BooksErr)
		}
	}
	return err
}

func (b *bench) progress(s Stage, run int) {
	if b.cfg.Progress != nil {
		b.cfg.Progress(Progress{Stage: s, Run: run, Runs: b.cfg.Runs})
	}
}
