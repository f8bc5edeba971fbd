package ycsb

import (
	"context"
	"fmt"
	"sync"

	"txnode/benchmarks/workload"
)

// ledger counts the additions of one client. The client alone writes it; it is read while no
// client runs.
type ledger struct {
	added, uncertain uint64
	_                [128 - 16]byte
}

// Driver is the benchmark as a workload.Driver.
type Driver struct {
	options      Options
	distribution string
	types        []int // the types that have a share
	shares       []float64
	mix          workload.Mix
	zipf         workload.Zipf // over the records loaded; clients have copies
	numbers      numbers
	baseline     uint64 // sum of the words when Load had finished

	mu      sync.Mutex // guards ledgers
	ledgers []*ledger  // one per client ever made
}

// New returns the benchmark with valid options, else an *workload.OptionsError.
func New(o Options) (*Driver, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o.Table = o.table()
	d := &Driver{options: o, distribution: o.distribution()}
	for typ, share := range core[o.core()].shares {
		if share > 0 {
			d.types, d.shares = append(d.types, typ), append(d.shares, share)
		}
	}
	d.mix = workload.NewMix(d.shares)
	theta := o.Theta
	if d.distribution == Uniform {
		theta = 0
	}
	d.zipf = workload.NewZipf(uint64(o.Records), theta)
	d.numbers.reset(uint64(o.Records))
	return d, nil
}

// Name implements workload.Driver.
func (d *Driver) Name() string { return "ycsb" }

// Schema implements workload.Driver.
func (d *Driver) Schema() []workload.Table {
	return []workload.Table{{
		Name: "usertable", MaxValue: d.options.ValueSize, Expect: d.options.Records,
		Text: d.options.KeyType == Text, Ordered: d.options.Table == Ordered,
	}}
}

// Types implements workload.Driver: those of the workload.
func (d *Driver) Types() []string {
	names := make([]string, len(d.types))
	for i, typ := range d.types {
		names[i] = typeNames[typ]
	}
	return names
}

// Mix implements workload.Driver.
func (d *Driver) Mix() []float64 { return append([]float64(nil), d.shares...) }

// has reports whether the workload has a type.
func (d *Driver) has(typ int) bool { return core[d.options.core()].shares[typ] > 0 }

// keyOf returns the key of a record.
func (d *Driver) keyOf(number uint64) uint64 {
	if d.options.Keys == Dense {
		return number
	}
	return workload.Scatter(number)
}

// NewClient implements workload.Driver.
func (d *Driver) NewClient(id int, seed uint64, w workload.Worker) workload.Client {
	l := new(ledger)
	d.mu.Lock()
	d.ledgers = append(d.ledgers, l)
	d.mu.Unlock()
	return newClient(d, l, workload.NewRand(seed, uint64(id)), w)
}

// batch is how many records are loaded or read in a transaction.
const batch = 32

// Load implements workload.Driver.
func (d *Driver) Load(ctx context.Context, store workload.Store, progress func(done, total int)) (workload.LoadReport,
	error) {
	existed, err := store.Tables(ctx, d.Schema())
	if err != nil {
		return workload.LoadReport{}, fmt.Errorf("ycsb: creating the table: %w", err)
	}
	records := d.options.Records
	if existed {
		records, err = d.adopt(ctx, store, progress)
	} else {
		err = d.fill(ctx, store, progress)
	}
	if err != nil {
		return workload.LoadReport{}, err
	}
	return workload.LoadReport{Existed: existed, Records: records,
		Summary: fmt.Sprintf("workload %s, %s: %d records of %d bytes in a table of kind %s, %s keys (%s)",
			d.options.Workload, d.distribution, records, d.options.ValueSize, d.options.Table, d.options.Keys,
			d.options.KeyType)}, nil
}

// fill inserts all records.
func (d *Driver) fill(ctx context.Context, store workload.Store, progress func(done, total int)) error {
	err := workload.Scan(ctx, store, d.options.Records, batch, progress,
		func(w workload.Worker) func(context.Context, int, int) error {
			value := make([]byte, d.options.ValueSize)
			return func(ctx context.Context, lo, hi int) error {
				return w.Update(ctx, func(tx workload.Tx) error {
					for n := lo; n < hi; n++ {
						tx.Stage(table, d.keyOf(uint64(n)), workload.Update)
					}
					for n := lo; n < hi; n++ {
						key := d.keyOf(uint64(n))
						fill(value, key, 0)
						if err := tx.Insert(table, key, value); err != nil {
							return err
						}
					}
					return nil
				})
			}
		})
	if err != nil {
		return fmt.Errorf("ycsb: loading: %w", err)
	}
	return nil
}

// adopt takes the records of a database that existed as the baseline: those asked for, and what
// earlier runs have inserted behind them.
func (d *Driver) adopt(ctx context.Context, store workload.Store, progress func(done, total int)) (int, error) {
	n := uint64(d.options.Records)
	a, err := d.audit(ctx, store, 0, n, progress)
	if err != nil {
		return 0, fmt.Errorf("ycsb: reading the existing records: %w", err)
	}
	if a.absent > 0 {
		return 0, fmt.Errorf("%w: %d of the %d records asked for are there (the first missing is %d); the database "+
			"was loaded with other options, "+
			"then ask for these, or loading was interrupted, then remove it and load an empty one",
			workload.ErrForeign, a.records, n, a.firstAbsent)
	}
	lost := map[uint64]fate{}
	for { // the inserts of earlier runs, and gaps where some of them failed
		more, err := d.audit(ctx, store, n, n+adoptAhead, nil)
		if err != nil {
			return 0, fmt.Errorf("ycsb: reading the existing records: %w", err)
		}
		if more.records == 0 {
			break
		}
		for _, x := range more.missing {
			if x < more.last {
				lost[x] = failed
			}
		}
		n = more.last + 1
		a.merge(more)
	}
	if a.damaged > 0 {
		return 0, fmt.Errorf("%w: %d of the existing records have values of other records, or damaged ones (the "+
			"first is %d)",
			workload.ErrInconsistent, a.damaged, a.firstDamaged)
	}
	d.numbers.reset(n)
	d.numbers.lost = lost
	d.baseline = a.sum
	return a.records, nil
}

// adoptAhead is how many numbers without a record say that there are no more.
const adoptAhead = 4096

// Verify implements workload.Driver.
func (d *Driver) Verify(ctx context.Context, store workload.Store) (workload.VerifyReport, error) {
	var r workload.VerifyReport
	a, err := d.audit(ctx, store, 0, d.numbers.next, nil)
	if err != nil {
		return r, fmt.Errorf("ycsb: reading all records: %w", err)
	}
	r.Records = a.records
	missing, ghosts, doubtful := 0, 0, 0
	for _, n := range a.missing {
		if _, lost := d.numbers.lost[n]; !lost {
			missing++
		}
	}
	for n, f := range d.numbers.lost {
		switch {
		case f == uncertain:
			doubtful++
		case !a.isMissing(n):
			ghosts++
		}
	}
	r.Add("every record that was loaded or inserted is there", missing == 0, "%d of %d are not", missing,
		d.numbers.next-uint64(len(d.numbers.lost)))
	r.Add("no record is there whose insert failed", ghosts == 0, "%d of %d are, and %d inserts have an unknown outcome",
		ghosts, len(d.numbers.lost)-doubtful, doubtful)
	detail := "without exception"
	if a.damaged > 0 {
		detail = fmt.Sprintf("%d have not, the first is record %d", a.damaged, a.firstDamaged)
	}
	r.Add("every record has a value that was written for it", a.damaged == 0, "%s", detail)
	if workload.Others(store) { // which may have inserted, or added
		err = r.Err()
		return r, err
	}
	if d.options.Table == Ordered {
		n, err := d.count(ctx, store)
		if err != nil {
			return r, fmt.Errorf("ycsb: scanning all records: %w", err)
		}
		r.Add("a scan of the table finds the same records", n == a.records, "%d by key, %d by scan", a.records, n)
	}
	if d.has(ReadModifyWrite) && !d.has(Update) {
		var sum ledger
		d.mu.Lock()
		for _, l := range d.ledgers {
			sum.added += l.added
			sum.uncertain += l.uncertain
		}
		d.mu.Unlock()
		found := a.sum - d.baseline
		r.Add("the words of the values add up to the read-modify-writes", found-sum.added <= sum.uncertain,
			"%d committed, %d of unknown outcome, %d found", sum.added, sum.uncertain, found)
	}
	err = r.Err()
	return r, err
}

var _ workload.Driver = (*Driver)(nil)
