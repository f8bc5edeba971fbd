package tatp

import (
	"context"
	"fmt"
	"sync"

	"txnode/benchmarks/workload"
)

// change is what a transaction does to the number of call forwarding rows.
type change uint8

const (
	unchanged change = iota
	inserted
	deleted
	numChanges
)

// ledger counts the transactions of one client by change. The client alone
// writes it; it is read while no client runs.
type ledger struct {
	committed [numChanges]int
	uncertain [numChanges]int // may have committed or not
	_         [128 - 2*numChanges*8]byte
}

// Driver is the benchmark as a workload.Driver.
type Driver struct {
	options  Options
	a        uint32 // of the non-uniform distribution
	mix      workload.Mix
	baseline [numTables]int // rows when Load had finished

	mu      sync.Mutex // guards what follows
	ledgers []*ledger  // one per client ever made
	joint   bool       // those of all other processes are among them
}

// New returns the benchmark with valid options, else an *workload.OptionsError.
func New(o Options) (*Driver, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	return &Driver{options: o, a: o.nonUniformA(), mix: workload.NewMix(o.Mix[:])}, nil
}

// Name implements workload.Driver.
func (d *Driver) Name() string { return "tatp" }

// Schema implements workload.Driver.
func (d *Driver) Schema() []workload.Table {
	schema := make([]workload.Table, numTables)
	for i, t := range tables {
		schema[i] = workload.Table{Name: t.name, MaxValue: t.size, Expect: (d.options.Subscribers*t.per + 99) / 100}
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
	return newClient(d, l, workload.NewRand(seed, uint64(id)), w)
}

// batch is how many subscribers are loaded or read in a transaction: up to 88
// rows.
const batch = 4

// Load implements workload.Driver.
func (d *Driver) Load(ctx context.Context, store workload.Store, progress func(done, total int)) (workload.LoadReport,
	error) {
	existed, err := store.Tables(ctx, d.Schema())
	if err != nil {
		return workload.LoadReport{}, fmt.Errorf("tatp: creating tables: %w", err)
	}
	if existed {
		err = d.adopt(ctx, store, progress)
	} else {
		err = d.fill(ctx, store, progress)
	}
	if err != nil {
		return workload.LoadReport{}, err
	}
	report := workload.LoadReport{Existed: existed}
	for _, n := range d.baseline {
		report.Records += n
	}
	report.Summary = fmt.Sprintf("%d subscribers, %d special facilities, %d access info, %d call forwarding rows",
		d.baseline[Subscriber], d.baseline[SpecialFacility], d.baseline[AccessInfo], d.baseline[CallForwarding])
	return report, nil
}

// fill inserts all rows.
func (d *Driver) fill(ctx context.Context, store workload.Store, progress func(done, total int)) error {
	var (
		mu   sync.Mutex // guards rows
		rows [numTables]int
	)
	err := workload.Scan(ctx, store, d.options.Subscribers, batch, progress,
		func(w workload.Worker) func(context.Context, int, int) error {
			var all [batch]population
			return func(ctx context.Context, lo, hi int) error {
				for s := lo; s < hi; s++ {
					all[s-lo].populate(uint32(s))
				}
				var part [numTables]int
				err := w.Update(ctx, func(tx workload.Tx) error {
					part = [numTables]int{} // of this attempt
					for s := lo; s < hi; s++ {
						all[s-lo].stage(tx, uint32(s))
					}
					for s := lo; s < hi; s++ {
						if err := all[s-lo].load(tx, uint32(s), &part); err != nil {
							return err
						}
					}
					return nil
				})
				if err != nil {
					return err
				}
				mu.Lock()
				defer mu.Unlock()
				for t, n := range part {
					rows[t] += n
				}
				return nil
			}
		})
	if err != nil {
		return fmt.Errorf("tatp: loading: %w", err)
	}
	d.baseline = rows
	return nil
}

// adopt takes the rows of a database that existed as the baseline.
func (d *Driver) adopt(ctx context.Context, store workload.Store, progress func(done, total int)) error {
	a, err := d.audit(ctx, store, progress)
	if err != nil {
		return fmt.Errorf("tatp: reading the existing rows: %w", err)
	}
	switch {
	case a.rows[Subscriber] < d.options.Subscribers:
		return fmt.Errorf("%w: %d of the %d subscribers asked for are there; the database was loaded with fewer, "+
			"then ask for as many, "+
			"or loading was interrupted, then remove it and load an empty one", workload.ErrForeign, a.rows[Subscriber],
			d.options.Subscribers)
	case a.beyond:
		return fmt.Errorf("%w: it has more than the %d subscribers asked for; ask for as many as were loaded, or "+
			"load an empty database",
			workload.ErrForeign, d.options.Subscribers)
	}
	var r workload.VerifyReport
	a.report(&r)
	if err := r.Err(); err != nil {
		return fmt.Errorf("tatp: the database was damaged before this run: %w", err)
	}
	d.baseline = a.rows
	return nil
}

// Verify implements workload.Driver. Its rules are those of audit.report, and
// that the numbers of rows are those of Load plus what clients have inserted
// and deleted, unless processes have changed the data of which nothing is known.
func (d *Driver) Verify(ctx context.Context, store workload.Store) (workload.VerifyReport, error) {
	var r workload.VerifyReport
	a, err := d.audit(ctx, store, nil)
	if err != nil {
		return r, fmt.Errorf("tatp: reading all rows: %w", err)
	}
	books, whole := d.sum(store)
	for _, n := range a.rows {
		r.Records += n
	}
	a.report(&r)
	for _, t := range []int{Subscriber, Secondary, SpecialFacility, AccessInfo} {
		r.Add("no "+tables[t].name+" row appears or disappears", a.rows[t] == d.baseline[t],
			"%d at the start, %d found", d.baseline[t], a.rows[t])
	}
	least := d.baseline[CallForwarding] +
		books.committed[inserted] - books.committed[deleted] - books.uncertain[deleted]
	most := least + books.uncertain[deleted] + books.uncertain[inserted]
	expected := fmt.Sprintf("%d expected", least)
	if most != least {
		expected = fmt.Sprintf("%d to %d expected, because %d transactions have an unknown outcome",
			least, most, most-least)
	}
	if whole {
		r.Add("call_forwarding rows are those at the start plus inserts minus deletes",
			least <= a.rows[CallForwarding] && a.rows[CallForwarding] <= most,
			"%d at the start, %d inserted, %d deleted; %s, %d found", d.baseline[CallForwarding],
			books.committed[inserted], books.committed[deleted], expected, a.rows[CallForwarding])
	}
	err = r.Err()
	return r, err
}

// sum adds the ledgers up. whole: nothing else has changed the data.
func (d *Driver) sum(store workload.Store) (books ledger, whole bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, l := range d.ledgers {
		for c := range numChanges {
			books.committed[c] += l.committed[c]
			books.uncertain[c] += l.uncertain[c]
		}
	}
	return books, d.joint || store == nil || !workload.Others(store)
}

// Books implements workload.Bookkeeper.
func (d *Driver) Books() (books []int64) {
	sum, _ := d.sum(nil)
	for c := range numChanges {
		books = append(books, int64(sum.committed[c]), int64(sum.uncertain[c]))
	}
	return books
}

// AddBooks implements workload.Bookkeeper.
func (d *Driver) AddBooks(books []int64) error {
	if len(books) != 2*int(numChanges) {
		return fmt.Errorf("tatp: %d numbers are no books", len(books))
	}
	l := new(ledger)
	for c := range numChanges {
		l.committed[c], l.uncertain[c] = int(books[2*c]), int(books[2*c+1])
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ledgers, d.joint = append(d.ledgers, l), true
	return nil
}

var _ workload.Bookkeeper = (*Driver)(nil)
