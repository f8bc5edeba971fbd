package seeds

import (
	"context"
	"fmt"

	"txnode/benchmarks/smallbank"
	"txnode/benchmarks/tatp"
	"txnode/benchmarks/workload"
	"txnode/rdma"
	"txnode/rdma/sim"
)

// smallBank is the benchmark on few accounts, with its own check of the books.
func smallBank(b *bench) error {
	o := smallbank.DefaultOptions()
	o.Accounts = 4 + int(b.rng.n(60))
	o.HotAccounts = 2 + int(b.rng.n(uint64(o.Accounts-2)))
	o.RecordPadding = []int{0, 0, 24, 100}[b.rng.n(4)]
	o.InitialBalance = []string{"10", "10000"}[b.rng.n(2)] // few: payments fail, checks overdraw
	d, err := smallbank.New(o)
	if err != nil {
		return err
	}
	return b.drive(d)
}

// telecom is TATP on few subscribers, with its own check of the rows.
func telecom(b *bench) error {
	o := tatp.DefaultOptions()
	o.Subscribers = 2 + int(b.rng.n(30))
	if b.rng.chance(70) { // more of what changes something
		o.Mix = [tatp.NumTypes]float64{10, 15, 10, 15, 10, 20, 20}
	}
	d, err := tatp.New(o)
	if err != nil {
		return err
	}
	return b.drive(d)
}

// drive loads a benchmark, runs its clients, and lets it check what they leave.
func (b *bench) drive(d workload.Driver) error {
	ctx := context.Background()
	if _, err := d.Load(ctx, narrow{b.store, b}, nil); err != nil {
		return err
	}
	err := b.run(func(q *process) error {
		n := b.ownShare(q, b.txns)
		return q.store.Run(ctx, b.threads, b.coroutines, func(ctx context.Context, id int, w workload.Worker) error {
			id += q.slot * b.clients()
			c := d.NewClient(id, b.seed^uint64(b.round)<<40, impatient{w, b})
			chance := rng(b.seed ^ uint64(id+1)<<48)
			for i := 0; b.another(i, n); i++ {
				c.Next()
				_, err := c.Run(ctx)
				if b.stays(err) {
					w.(workload.Sleeper).Sleep(breath)
					continue
				}
				if err := b.forgive(err); err != nil {
					return err
				}
				if err := b.keep(&chance, w.(maintainer)); err != nil {
					return err
				}
			}
			return nil
		})
	}, func(q *process) error {
		_, err := q.store.Tables(ctx, d.Schema())
		return err
	})
	if err != nil {
		return err
	}
	_, err = d.Verify(ctx, narrow{b.store, b})
	return err
}

// narrow is a store whose loading and checking runs on the threads of the plan,
// whatever the number of processors that simulate it.
type narrow struct {
	workload.Store
	b *bench
}

// Run runs workers, however many are asked for.
func (s narrow) Run(ctx context.Context, _, _ int, fn func(ctx context.Context, id int,
	w workload.Worker) error) error {
	return s.Store.Run(ctx, s.b.threads, 1, func(ctx context.Context, id int, w workload.Worker) error {
		return fn(ctx, id, bounded{w, s.b})
	})
}

// bounded is a worker whose transactions end soon: nothing is in their way for long.
type bounded struct {
	workload.Worker
	b *bench
}

// Update runs a transaction.
func (w bounded) Update(ctx context.Context, fn func(workload.Tx) error) error {
	return w.Worker.Update(ctx, w.soon(fn))
}

// View runs a transaction that writes nothing.
func (w bounded) View(ctx context.Context, fn func(workload.Tx) error) error {
	return w.Worker.View(ctx, w.soon(fn))
}

func (w bounded) soon(fn func(workload.Tx) error) func(workload.Tx) error {
	start := w.b.db.Now()
	return func(tx workload.Tx) error {
		if w.b.db.Now()-start > quietNs {
			return errStuck
		}
		return fn(tx)
	}
}

// impatient is a worker whose transactions must come to an end.
type impatient struct {
	workload.Worker
	b *bench
}

// Update runs a transaction.
func (w impatient) Update(ctx context.Context, fn func(workload.Tx) error) (err error) {
	answered := false
	defer func() { w.stopped(answered, &err, recover()) }()
	err = w.Worker.Update(ctx, w.within(fn))
	answered = true
	return err
}

// View runs a transaction that writes nothing.
func (w impatient) View(ctx context.Context, fn func(workload.Tx) error) error {
	return w.Worker.View(ctx, w.within(fn))
}

// stopped makes a transaction whose thread was stopped, which unwinds its caller, one
// of unknown outcome: its client keeps books.
func (w impatient) stopped(answered bool, err *error, x any) {
	switch {
	case answered:
	case x != nil && (w.b.faults == nil || !sim.Unwinds(x) && !rdma.Unwinds(x)):
		panic(x)
	default:
		*err = fmt.Errorf("%w: %w", workload.ErrUncertain, errEnded)
	}
}

func (w impatient) within(fn func(workload.Tx) error) func(workload.Tx) error {
	start := w.b.db.Now()
	return func(tx workload.Tx) error {
		if err := w.b.stuck(w.b.db.Now(), start); err != nil {
			return err
		}
		return fn(tx)
	}
}
