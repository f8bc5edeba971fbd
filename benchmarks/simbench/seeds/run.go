package seeds

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"txnode/check"
	"txnode/history"
	"txnode/memory/catalog"
	"txnode/rdma/sim"
	"txnode/txn"
)

// Options of a run. The zero value takes everything from the seed.
type Options struct {
	// Workload instead of the one that the seed draws.
	Workload string
	// Trace gets a line for each effect and each completion; nil: none.
	Trace io.Writer
}

// Result is what a run did.
type Result struct {
	Seed      uint64
	Case      string // what the seed has drawn
	Txns      int    // recorded
	Verbs     uint64
	VirtualNs int64
	TraceHash uint64
}

// Violation is something that must not happen, and how to see it again.
type Violation struct {
	Seed     uint64
	Workload string // as in Options
	Case     string
	Err      error
}

// Error tells seed, case and command.
func (v *Violation) Error() string {
	return fmt.Sprintf("seed %d: %v\n\tcase: %s\n\tagain: %s", v.Seed, v.Err, v.Case, v.Replay())
}

// Unwrap returns what was violated.
func (v *Violation) Unwrap() error { return v.Err }

// Replay is the command that runs the seed again.
func (v *Violation) Replay() string {
	w := ""
	if v.Workload != "" {
		w = " --workload " + v.Workload
	}
	return fmt.Sprintf("txnode sim seeds --from %d --count 1%s --log trace.txt", v.Seed, w)
}

// ErrUnknown is a workload that there is not.
var ErrUnknown = errors.New("seeds: no such workload")

// errStuck: the run does not come to an end.
var errStuck = errors.New("no end in sight: a transaction still conflicts after the whole run should be over")

// limitNs is the virtual time within which a run has to end; it takes some 10 ms.
const limitNs = 3_000_000_000

// Run runs a seed. The error is a *Violation, or says what is wrong with the options.
func Run(seed uint64, o Options) (Result, error) {
	k, err := draw(seed, o.Workload)
	if err != nil {
		return Result{}, err
	}
	r := Result{Seed: seed, Case: k.String()}
	if err := k.run(&r, o.Trace); err != nil {
		return r, &Violation{seed, o.Workload, r.Case, err}
	}
	return r, nil
}

// Sizes: small, so that segments fill, logs wrap and tables grow.
const (
	bladeSize   = 1 << 30
	segmentSize = 256 << 10
	logArea     = 64 << 10
	arena       = 4 << 20
	cacheBytes  = 64 << 10
)

func (k *kase) run(r *Result, trace io.Writer) (err error) {
	defer func() {
		if p := recover(); p != nil {
			if e, ok := p.(*sim.DeadlockError); ok {
				err = e
				return
			}
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	so := sim.Options{
		Profile: k.profile, Seed: k.seed, Freedom: k.freedom, Placed: k.placed, UnorderedLines: k.unordered, Trace: trace,
	}
	for range k.blades {
		so.Blades = append(so.Blades, sim.BladeOptions{Size: bladeSize, Key: 1})
	}
	f, err := sim.New(so)
	if err != nil {
		return err
	}
	defer func() {
		s := f.Stats()
		r.Verbs, r.VirtualNs, r.TraceHash = s.Verbs, f.Now(), f.TraceHash()
		err = errors.Join(err, f.Close())
	}()
	rec := &history.Recorder{}
	db, err := txn.Open(context.Background(), txn.Options{
		Fabric: f, Catalog: &catalog.Mem{}, Backups: &k.backups, Policy: k.policy, Techniques: &k.techniques, QPPolicy: k.qp,
		ReadBackups: k.readBackups, Workers: 2, Retries: math.MaxInt32, Arena: arena, CacheBytes: cacheBytes, LogArea: logArea,
		SegmentSize: segmentSize, IndexGroups: k.groups, Seed: k.seed, History: rec,
	})
	if err != nil {
		return err
	}
	b := &bench{kase: k, db: db, rng: rng(k.seed)}
	err = k.work.run(b)
	txns := rec.Txns()
	r.Txns = len(txns)
	if err == nil && len(txns) == 0 {
		err = errors.New("nothing was recorded")
	}
	// What was read decides, not what went wrong after it.
	if e := check.Check(txns, check.Options{FromEmpty: true}).Err(); e != nil {
		err = errors.Join(e, err)
	}
	if err == nil {
		f.Settle()
		err = quiet(db)
	}
	return errors.Join(err, db.Close(context.Background()))
}

// RunMany runs the seeds from, from+1, ... on several processors, until one
// violates something; it returns how many were run, and that violation. progress,
// if not nil, is called now and then.
func RunMany(ctx context.Context, from, count uint64, workers int, o Options, progress func(done uint64)) (done uint64, err error) {
	var (
		next, ran atomic.Uint64
		stop      atomic.Bool
		mu        sync.Mutex
		found     error
		at        uint64
		wg        sync.WaitGroup
	)
	for range max(workers, 1) {
		wg.Go(func() {
			for !stop.Load() && ctx.Err() == nil {
				i := next.Add(1) - 1
				if i >= count {
					return
				}
				_, err := Run(from+i, o)
				n := ran.Add(1)
				mu.Lock()
				if err != nil && (found == nil || i < at) {
					found, at = err, i
					stop.Store(true)
				}
				if progress != nil {
					progress(n)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if found == nil {
		found = context.Cause(ctx)
	}
	return ran.Load(), found
}
