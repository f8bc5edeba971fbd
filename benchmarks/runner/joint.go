package runner

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"txnode/benchmarks/workload"
)

// Several processes make a run together: one leads, and drives no worker; the others are members,
// and drive what Config says each. All have the same data open, and a driver of their own.
//
//	leader   load    begin run n ─┐            add the books of all, verify    begin run n+1 ...
//	member   load                 └─ measure ──┘ Part

// Part is what a member has measured of a run. It keeps its value in JSON.
type Part struct {
	Elapsed     time.Duration
	Types       []PartType // in the order of the driver's types
	Arrivals    int64      // see Run
	Backlog     int64
	Interrupted bool
	Phases      *[workload.NumPhases]workload.PhaseCounters
	Books       []int64 // of the driver, since it was loaded
}

// PartType is what a member has measured of a transaction type: see Type.
type PartType struct {
	Outcomes [workload.NumOutcomes]uint64
	Cost     [workload.NumOutcomes]workload.Counters
	Latency  *hdrhistogram.Snapshot
}

// Member makes runs of one process among several: it loads, calls next, which returns when
// the run of a number is to begin, or false when there are no more, and gives what it has
// measured to measured. Errors are those of Bench, and of the functions. The books are not
// checked: the leader does that.
func Member(ctx context.Context, store workload.Store, driver workload.Bookkeeper, cfg Config, next func() (run int,
	more bool, err error), measured func(Part) error) error {
	b, disarm, err := begin(ctx, store, driver, cfg)
	defer disarm()
	for err == nil && !b.res.Interrupted {
		n, more, e := next()
		if e != nil || !more {
			return e
		}
		r := &run{bench: b, number: n + 1, seed: b.cfg.Seed + uint64(n)}
		if err = r.measure(); err == nil {
			err = measured(r.part(driver))
		}
	}
	return err
}

// part is what the run has measured.
func (r *run) part(driver workload.Bookkeeper) Part {
	p := Part{
		Elapsed: r.elapsed, Arrivals: r.arrivals, Backlog: r.backlog, Interrupted: r.stop.Load(),
		Phases: r.phases, Books: driver.Books(),
	}
	for i := range r.types {
		t := &r.types[i]
		p.Types = append(p.Types, PartType{t.Outcomes, t.Cost, t.Latency.Export()})
	}
	return p
}

// Partner is a member, as the leader sees it.
type Partner interface {
	// Run has the member make a run, and returns what it has measured.
	Run(n int) (Part, error)
}

// Lead is Bench for a run of several processes. The data is there when partners is called, which
// starts the members. When ctx is canceled they must end their runs by themselves.
func Lead(ctx context.Context, store workload.Store, driver workload.Bookkeeper, cfg Config, partners func() ([]Partner,
	error)) (*Result, error) {
	if cfg.Verify || len(cfg.Events) > 0 {
		return &Result{Config: cfg}, errors.New("runner: several processes record no history, and have no events")
	}
	b, disarm, err := begin(ctx, store, driver, cfg)
	defer disarm()
	if err != nil || b.res.Interrupted {
		return b.res, err
	}
	all, err := partners()
	if err != nil {
		return b.res, err
	}
	books := make([][]int64, len(all)) // that were added
	for n := range b.cfg.Runs {
		b.progress(Measuring, n+1)
		err := b.together(n, all, books)
		b.res.Interrupted = b.res.Interrupted || ctx.Err() != nil
		if err != nil || b.res.Interrupted {
			return b.res, err
		}
	}
	return b.res, nil
}

// together has all members make run n, and verifies what it leaves.
func (b *bench) together(n int, all []Partner, books [][]int64) error {
	parts, errs := make([]Part, len(all)), make([]error, len(all))
	var wg sync.WaitGroup
	for i, p := range all {
		wg.Go(func() { parts[i], errs[i] = p.Run(n) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	out := Run{Seed: b.cfg.Seed + uint64(n)}
	names, mix := b.driver.Types(), b.driver.Mix()
	for i, name := range names {
		out.Types = append(out.Types, Type{Name: name, Share: mix[i], Latency: newHistogram()})
	}
	for i := range parts {
		if err := out.add(&parts[i]); err != nil {
			return err
		}
		p := parts[i].Books
		if books[i] != nil && len(books[i]) != len(p) {
			return fmt.Errorf("runner: a member has books of %d numbers, and had some of %d", len(p), len(books[i]))
		}
		since := append([]int64(nil), p...)
		for k := range books[i] {
			since[k] -= books[i][k]
		}
		if err := b.driver.(workload.Bookkeeper).AddBooks(since); err != nil {
			return err
		}
		books[i] = p
	}
	b.progress(CheckingBooks, n+1)
	out.Books, out.BooksErr = b.driver.Verify(context.WithoutCancel(b.ctx), b.store)
	b.res.Runs = append(b.res.Runs, out)
	if errors.Is(out.BooksErr, workload.ErrInconsistent) {
		return &verificationError{out.BooksErr}
	}
	return out.BooksErr
}

// add adds what a member has measured.
func (r *Run) add(p *Part) error {
	if len(p.Types) != len(r.Types) {
		return fmt.Errorf("runner: a member has measured %d types of transactions, and there are %d",
			len(p.Types), len(r.Types))
	}
	r.Elapsed = max(r.Elapsed, p.Elapsed)
	r.Arrivals, r.Backlog = r.Arrivals+p.Arrivals, r.Backlog+p.Backlog
	r.Interrupted = r.Interrupted || p.Interrupted
	for i := range p.Types {
		t := &p.Types[i]
		if t.Latency == nil || len(t.Latency.Counts) == 0 {
			return errors.New("runner: a member has sent no latencies")
		}
		r.Types[i].merge(&Type{Outcomes: t.Outcomes, Cost: t.Cost, Latency: hdrhistogram.Import(t.Latency)})
	}
	if p.Phases != nil {
		if r.Phases == nil {
			r.Phases = new([workload.NumPhases]workload.PhaseCounters)
		}
		for i, c := range p.Phases {
			r.Phases[i].Add(c)
		}
	}
	return nil
}
