package seeds

import (
	"context"

	"txnode/benchmarks/smallbank"
	"txnode/benchmarks/tatp"
	"txnode/benchmarks/workload"
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
	s := &narrow{b.store, b.plan}
	if _, err := d.Load(ctx, s, nil); err != nil {
		return err
	}
	err := b.store.Run(ctx, b.threads, b.coroutines, func(ctx context.Context, id int, w workload.Worker) error {
		c := d.NewClient(id, b.seed, impatient{w, s})
		for range b.txns {
			c.Next()
			if _, err := c.Run(ctx); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	_, err = d.Verify(ctx, s)
	return err
}

// narrow is a store whose loading and checking runs on the threads of the plan,
// whatever the number of processors that simulate it.
type narrow struct {
	workload.Store
	p *plan
}

// Run runs workers, however many are asked for.
func (s *narrow) Run(ctx context.Context, _, _ int, fn func(ctx context.Context, id int, w workload.Worker) error) error {
	return s.Store.Run(ctx, s.p.threads, 1, fn)
}

// impatient is a worker whose transactions must come to an end.
type impatient struct {
	workload.Worker
	s workload.Store
}

// Update runs a transaction.
func (w impatient) Update(ctx context.Context, fn func(workload.Tx) error) error {
	return w.Worker.Update(ctx, w.within(fn))
}

// View runs a transaction that writes nothing.
func (w impatient) View(ctx context.Context, fn func(workload.Tx) error) error {
	return w.Worker.View(ctx, w.within(fn))
}

func (w impatient) within(fn func(workload.Tx) error) func(workload.Tx) error {
	return func(tx workload.Tx) error {
		if w.s.Now() > limitNs {
			return errStuck
		}
		return fn(tx)
	}
}
