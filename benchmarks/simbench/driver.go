package simbench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"

	"txnode/benchmarks/reference"
	"txnode/benchmarks/runner"
	"txnode/benchmarks/smallbank"
	"txnode/benchmarks/workload"
	"txnode/txn"
)

// driver is a workload on the simulator: it loads and checks the same way
// everywhere, and with single an attempt that meets a conflict is over.
type driver struct {
	workload.Driver
	single bool
	aged   bool // the bank starts with the balances of one that has been used
	verify bool
	meter  *meter      // nil: nothing is measured
	warmup int64       // ns
	idle   int64       // ns after each committed transaction
	coros  int         // of a thread
	spin   func(n int) // says that so many more coroutines of a thread idle
	work   func()      // what each transaction costs the processor; nil: nothing
	// takes the line that all threads write, as each transaction does at its beginning and when it
	// has committed; nil: there is none
	line func()
}

// Load loads.
func (d *driver) Load(ctx context.Context, s workload.Store, progress func(done, total int)) (workload.LoadReport,
	error) {
	b := bulk{s.(*store)}
	if d.aged {
		if err := loadAged(ctx, b, d.Schema(), progress); err != nil {
			return workload.LoadReport{}, err
		}
	}
	report, err := d.Driver.Load(ctx, b, progress)
	if !report.Existed {
		return report, err
	}
	// The published runs are long: every address that is ever used has been cached.
	// Load has read everything once. The cache grows by its evictions, so a small
	// database is read again.
	for range passes(report.Records) {
		if err == nil {
			_, err = d.Driver.Verify(ctx, b)
		}
	}
	return report, err
}

// passes is how often a database is read once more before the warm-up.
func passes(records int) int {
	switch {
	case records <= 300_000:
		return 2
	case records <= 2_000_000:
		return 1
	default:
		return 0
	}
}

// Verify checks the books, if asked for.
func (d *driver) Verify(ctx context.Context, s workload.Store) (workload.VerifyReport, error) {
	if !d.verify {
		return workload.VerifyReport{}, nil
	}
	return d.Driver.Verify(ctx, bulk{s.(*store)})
}

// NewClient makes a client.
func (d *driver) NewClient(id int, seed uint64, w workload.Worker) workload.Client {
	if m := d.meter; m != nil && m.from == 0 {
		m.from = m.now() + d.warmup // as the runner does: from when the first worker begins
	}
	return &client{Client: d.Driver.NewClient(id, seed, w), d: d, thread: id / d.coros, sleeper: w.(workload.Sleeper)}
}

// client counts what ends in the measured time. With single attempts, a conflict is
// an outcome like any other.
type client struct {
	workload.Client
	d       *driver
	sleeper workload.Sleeper
	thread  int
	typ     int  // drawn last
	idle    bool // the last transaction committed, and who did it is to wait
}

// Next draws.
func (c *client) Next() int {
	c.typ = c.Client.Next()
	return c.typ
}

// Run runs a transaction, or one attempt, or nothing when its thread is through.
func (c *client) Run(ctx context.Context) (workload.Outcome, error) {
	m := c.d.meter
	if m != nil && m.through(c.thread) {
		c.sleeper.Sleep(max(m.from+quotaTime-m.now(), 0))
		m.nothings[c.typ]++
		return workload.RolledBack, nil
	}
	if c.idle {
		c.idle = false
		c.d.spin(1)
		c.sleeper.Sleep(c.d.idle)
		c.d.spin(-1)
	}
	from := int64(0)
	if m != nil {
		from = m.now()
	}
	if c.d.work != nil {
		c.d.work()
	}
	if c.d.line != nil {
		c.d.line()
	}
	o, err := c.Client.Run(ctx)
	if c.d.line != nil && err == nil && o == workload.Committed {
		c.d.line()
	}
	if c.d.single && errors.Is(err, txn.ErrConflict) {
		o, err = workload.RolledBack, nil
	}
	if m != nil && err == nil {
		m.count(c.thread, o == workload.Committed, from)
	}
	c.idle = c.d.idle > 0 && o == workload.Committed && err == nil
	return o, err
}

// quotaTime is virtual time within which every thread is through with its quota, ns.
// Who is earlier sleeps until then.
const quotaTime = 100_000_000_000

// meter measures throughput from the end of the warm-up until almost all
// transactions have ended. The last of them would count for more than they are: a
// few that have backed off for long end when everybody else has gone. With a quota, as
// in the published program, it is until the last thread is through. The simulator
// runs everything on one goroutine, so it needs no lock.
type meter struct {
	now       func() int64
	from      int64  // the end of the warm-up
	limit     uint64 // transactions to count
	ended     uint64
	committed uint64
	end       int64
	latencies []int64 // ns, of the committed ones, without idling
	ends      []int64 // of the same, ns, as long as no thread is through
	// With quota, each thread has a share of the transactions, and is through when they
	// have ended. What its coroutines are asked to do then is nothing, and is counted.
	quota    uint64   // of a thread; 0: whoever is free takes the next one
	threads  []uint64 // transactions that have ended, by thread
	open     int      // threads that are not through
	nothings [MaxTypes]uint64
}

// meterShare is the part of the transactions that is measured, in percent.
const meterShare = 90

// count counts a transaction that began at from.
func (m *meter) count(thread int, committed bool, from int64) {
	now := m.now()
	if now < m.from || m.quota == 0 && m.ended >= m.limit || m.through(thread) {
		return
	}
	m.ended++
	if committed {
		m.committed++
		m.latencies = append(m.latencies, now-from)
		if m.quota == 0 || m.open == len(m.threads) {
			m.ends = append(m.ends, now)
		}
	}
	m.end = now
	if m.quota == 0 {
		return
	}
	if m.threads[thread]++; m.threads[thread] == m.quota {
		m.open--
	}
}

// through says that a thread has ended its quota.
func (m *meter) through(thread int) bool { return m.quota > 0 && m.threads[thread] >= m.quota }

// agreeWithin is how far the throughputs of a run that has settled are apart.
const agreeWithin = 0.05

// settled says that about as many transactions have committed in each third of the time, as long as
// all threads ran.
func (m *meter) settled() bool {
	const thirds = 3
	if len(m.ends) == 0 {
		return false
	}
	last := slices.Max(m.ends)
	var n [thirds]int
	for _, at := range m.ends {
		n[min((at-m.from)*thirds/max(last-m.from, 1), thirds-1)]++
	}
	return float64(slices.Max(n[:])-slices.Min(n[:]))*thirds <= agreeWithin*float64(len(m.ends))
}

// quantile returns the latency that a share of the committed transactions stayed
// below, in microseconds.
func (m *meter) quantile(q float64) float64 {
	if len(m.latencies) == 0 {
		return 0
	}
	slices.Sort(m.latencies)
	return float64(m.latencies[int(q*float64(len(m.latencies)))]) / 1e3
}

// loadAged loads a bank whose accounts hold what those of a long run do.
func loadAged(ctx context.Context, s workload.Store, schema []workload.Table, progress func(done, total int)) error {
	pool, err := agedBalances()
	if err != nil {
		return fmt.Errorf("simbench: ageing a bank: %w", err)
	}
	existed, err := s.Tables(ctx, schema)
	if err != nil || existed {
		return err
	}
	accounts := schema[smallbank.Savings].Expect
	const batch = 32
	return workload.Scan(ctx, s, accounts, batch, progress, func(w workload.Worker) func(context.Context, int,
		int) error {
		var value [8]byte
		return func(ctx context.Context, lo, hi int) error {
			return w.Update(ctx, func(tx workload.Tx) error {
				for table := range schema {
					for a := lo; a < hi; a++ {
						tx.Stage(table, uint64(a), workload.Update)
					}
				}
				for a := lo; a < hi; a++ {
					for table := range schema {
						binary.LittleEndian.PutUint64(value[:], pool[a%len(pool)][table])
						if err := tx.Insert(table, uint64(a), value[:]); err != nil {
							return err
						}
					}
				}
				return nil
			})
		}
	})
}

// agedBalances are savings and checking balances of accounts that have taken part
// in some hundred transactions each. From there on the share of payments that fail
// does not change: Amalgamate empties accounts as fast as the others fill them.
var agedBalances = sync.OnceValues(func() ([][2]uint64, error) {
	const (
		accounts = 1999 // prime: no pattern with the number of hot accounts
		txns     = 300 * accounts
	)
	o := smallbank.DefaultOptions()
	o.Accounts, o.HotAccounts, o.HotProbability, o.InitialBalance = accounts, accounts, 0, "0"
	d, err := smallbank.New(o)
	if err != nil {
		return nil, err
	}
	ctx := context.Background()
	s := reference.Open(reference.Options{})
	if _, err := runner.Bench(ctx, s, d, runner.Config{Txns: txns, Seed: 1}); err != nil {
		return nil, err
	}
	pool := make([][2]uint64, accounts)
	err = s.Run(ctx, 1, 1, func(ctx context.Context, _ int, w workload.Worker) error {
		return w.View(ctx, func(tx workload.Tx) error {
			for a := range pool {
				for table := range pool[a] {
					v, err := tx.Get(table, uint64(a))
					if err != nil {
						return err
					}
					pool[a][table] = binary.LittleEndian.Uint64(v)
				}
			}
			return nil
		})
	})
	return pool, errors.Join(err, s.Close(ctx))
})
