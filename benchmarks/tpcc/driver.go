package tpcc

import (
	"context"
	"fmt"
	"sync"

	"txnode/benchmarks/workload"
)

// ledger counts the transactions of one client. The client alone writes it; it is read
// while no client runs.
type ledger struct {
	committed, uncertain effects
	_                    [128 - 2*24]byte
}

// effects are what transactions have done that can be counted in the tables.
type effects struct {
	orders, payments, deliveries int
}

func (l *ledger) count(c *client, e *effects) {
	switch c.typ {
	case NewOrderTxn:
		e.orders++
	case Payment:
		e.payments++
	case Delivery:
		e.deliveries += c.delivery.delivered
	}
}

func (e *effects) add(x *effects) {
	e.orders, e.payments, e.deliveries = e.orders+x.orders, e.payments+x.payments, e.deliveries+x.deliveries
}

// counts adds up rows. Its methods may be called concurrently.
type counts struct {
	mu   sync.Mutex
	rows [numTables]int
}

func (c *counts) add(rows *[numTables]int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for t, n := range rows {
		c.rows[t] += n
	}
}

// Driver is the benchmark as a workload.Driver.
type Driver struct {
	options                             Options
	mix                                 workload.Mix
	rollback, remoteItem, remotePayment uint64 // thresholds of Rand.Chance
	now                                 func() int64
	baseline                            [numTables]int // rows when Load had finished

	mu      sync.Mutex // guards ledgers
	ledgers []*ledger  // one per client ever made
	joint   bool       // those of all other processes are among them
}

// New returns the benchmark with valid options, else an *workload.OptionsError.
func New(o Options) (*Driver, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	return &Driver{
		options: o, mix: workload.NewMix(o.Mix[:]), now: func() int64 { return loadDate },
		rollback: workload.Threshold(o.Rollback / 100), remoteItem: workload.Threshold(o.RemoteItems / 100),
		remotePayment: workload.Threshold(o.RemotePayments / 100),
	}, nil
}

// Name implements workload.Driver.
func (d *Driver) Name() string { return "tpcc" }

// Schema implements workload.Driver.
func (d *Driver) Schema() []workload.Table {
	o := &d.options
	customers := o.Warehouses * Districts * o.Customers
	expect := [numTables]int{
		Warehouse: o.Warehouses, District: o.Warehouses * Districts, Customer: customers,
		CustomerName: customers, History: customers,
		NewOrder: customers * 3 / 10, Order: customers, CustomerOrder: customers,
		OrderLine: customers * (minLines + maxLines) / 2,
		Item:      o.Items, Stock: o.Warehouses * o.Items,
	}
	schema := make([]workload.Table, numTables)
	for i, t := range tables {
		schema[i] = workload.Table{Name: t.name, MaxValue: sizes[i], Expect: expect[i], Ordered: t.ordered}
	}
	return schema
}

// Types implements workload.Driver.
func (d *Driver) Types() []string { return append([]string(nil), typeNames[:]...) }

// Mix implements workload.Driver.
func (d *Driver) Mix() []float64 { return append([]float64(nil), d.options.Mix[:]...) }

// NewClient implements workload.Driver.
func (d *Driver) NewClient(id int, seed uint64, w workload.Worker) workload.Client {
	l := new(ledger)
	d.mu.Lock()
	d.ledgers = append(d.ledgers, l)
	d.mu.Unlock()
	return newClient(d, l, id, workload.NewRand(seed, uint64(id)), w)
}

// Load implements workload.Driver.
func (d *Driver) Load(ctx context.Context, store workload.Store, progress func(done, total int)) (workload.LoadReport,
	error) {
	existed, err := store.Tables(ctx, d.Schema())
	if err != nil {
		return workload.LoadReport{}, fmt.Errorf("tpcc: creating tables: %w", err)
	}
	d.now = func() int64 { return max(store.Now(), loadDate) }
	if existed {
		err = d.adopt(ctx, store, progress)
	} else if d.baseline, err = d.fill(ctx, store, progress); err != nil {
		err = fmt.Errorf("tpcc: loading: %w", err)
	}
	if err != nil {
		return workload.LoadReport{}, err
	}
	report := workload.LoadReport{Existed: existed}
	for _, n := range d.baseline {
		report.Records += n
	}
	report.Summary = fmt.Sprintf("%d warehouses, %d items, %d customers, %d orders, %d order lines",
		d.baseline[Warehouse], d.baseline[Item], d.baseline[Customer], d.baseline[Order], d.baseline[OrderLine])
	return report, nil
}

// adopt takes the rows of a database that existed as the baseline.
func (d *Driver) adopt(ctx context.Context, store workload.Store, progress func(done, total int)) error {
	a, err := d.audit(ctx, store, progress)
	if err != nil {
		return fmt.Errorf("tpcc: reading the existing rows: %w", err)
	}
	if a.foreign != "" {
		return fmt.Errorf("%w: %s; ask for the sizes that were loaded, or load an empty database",
			workload.ErrForeign, a.foreign)
	}
	var r workload.VerifyReport
	a.report(&r)
	if err := r.Err(); err != nil && !workload.Others(store) {
		return fmt.Errorf("tpcc: the database was damaged before this run: %w", err)
	}
	d.baseline = a.rows
	return nil
}

// unjudge has rules that do not hold count as not judged, beside other processes: rows are
// read in many transactions, and one of others that commits between two of them breaks rules
// for a reader of both.
func unjudge(r *workload.VerifyReport) {
	for i := range r.Checks {
		if c := &r.Checks[i]; !c.Holds {
			c.Holds, c.Detail = true, "not judged, since other processes have changed rows while they were read: "+
				c.Detail
		}
	}
}

// sum adds the ledgers up.
func (d *Driver) sum() (sum ledger) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, l := range d.ledgers {
		sum.committed.add(&l.committed)
		sum.uncertain.add(&l.uncertain)
	}
	return sum
}

// Books implements workload.Bookkeeper.
func (d *Driver) Books() (books []int64) {
	sum := d.sum()
	for _, e := range []effects{sum.committed, sum.uncertain} {
		books = append(books, int64(e.orders), int64(e.payments), int64(e.deliveries))
	}
	return books
}

// AddBooks implements workload.Bookkeeper.
func (d *Driver) AddBooks(books []int64) error {
	if len(books) != 6 {
		return fmt.Errorf("tpcc: %d numbers are no books", len(books))
	}
	of := func(p []int64) effects { return effects{int(p[0]), int(p[1]), int(p[2])} }
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ledgers, d.joint = append(d.ledgers, &ledger{committed: of(books), uncertain: of(books[3:])}), true
	return nil
}

// Verify implements workload.Driver: TPC-C's consistency conditions, and what was done since Load,
// unless processes have changed the data of which nothing is known.
func (d *Driver) Verify(ctx context.Context, store workload.Store) (workload.VerifyReport, error) {
	var r workload.VerifyReport
	a, err := d.audit(ctx, store, nil)
	if err != nil {
		return r, fmt.Errorf("tpcc: reading all rows: %w", err)
	}
	for _, n := range a.rows {
		r.Records += n
	}
	a.report(&r)
	r.Add("the sizes are those that were loaded", a.foreign == "", "%s", a.foreign)
	sum := d.sum()
	done, doubt := sum.committed, sum.uncertain
	if !d.joint && workload.Others(store) {
		unjudge(&r)
		return r, nil
	}
	books := func(rule string, at int, done, doubt, found int) {
		r.Add(rule, at+done <= found && found <= at+done+doubt,
			"%d at the start, %d since, %d of unknown outcome, %d found", at, done, doubt, found)
	}
	books("orders are those at the start plus New-Orders", d.baseline[Order], done.orders, doubt.orders, a.rows[Order])
	books("history is that at the start plus Payments", d.baseline[History], done.payments,
		doubt.payments, a.rows[History])
	books("delivered orders are those at the start plus Deliveries (3.3.2.11)",
		d.baseline[Order]-d.baseline[NewOrder], done.deliveries, doubt.deliveries, a.rows[Order]-a.rows[NewOrder])
	err = r.Err()
	return r, err
}

var (
	_ workload.Bookkeeper = (*Driver)(nil)
	_ workload.Pacer      = (*client)(nil)
)
