package smallbank

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"

	"txnode/benchmarks/workload"
)

// Driver is the benchmark as a workload.Driver.
type Driver struct {
	options  Options
	amounts  amounts
	mix      workload.Mix
	hot      uint64 // threshold of HotProbability
	baseline Money  // the money in the bank when Load had finished

	mu      sync.Mutex // guards what follows
	ledgers []*ledger  // one per client ever made
	joint   bool       // those of all other processes are among them
}

// New returns the benchmark with valid options, else an *workload.OptionsError.
func New(o Options) (*Driver, error) {
	a, err := o.parse()
	if err != nil {
		return nil, err
	}
	return &Driver{
		options: o,
		amounts: a,
		mix:     workload.NewMix(o.Mix[:]),
		hot:     workload.Threshold(o.HotProbability),
	}, nil
}

// Name implements workload.Driver.
func (d *Driver) Name() string { return "smallbank" }

// Schema implements workload.Driver.
func (d *Driver) Schema() []workload.Table {
	size := balanceBytes + d.options.RecordPadding
	return []workload.Table{
		Savings:  {Name: tableNames[Savings], MaxValue: size, Expect: d.options.Accounts},
		Checking: {Name: tableNames[Checking], MaxValue: size, Expect: d.options.Accounts},
	}
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
	return newClient(d, l, d.NewDraws(id, seed), w)
}

// A transaction loads or reads at most batchAccounts accounts, of batchBytes of records:
// few enough for any store.
const (
	batchAccounts = 32
	batchBytes    = 256 << 10
)

// batch is how many accounts are loaded or read in a transaction.
func (d *Driver) batch() int {
	return min(max(batchBytes/(numTables*(balanceBytes+d.options.RecordPadding)), 1), batchAccounts)
}

// Load implements workload.Driver.
func (d *Driver) Load(ctx context.Context, store workload.Store, progress func(done, total int)) (workload.LoadReport,
	error) {
	existed, err := store.Tables(ctx, d.Schema())
	if err != nil {
		return workload.LoadReport{}, fmt.Errorf("smallbank: creating tables: %w", err)
	}
	if existed {
		if err := d.adopt(ctx, store, progress); err != nil {
			return workload.LoadReport{}, err
		}
	} else {
		if err := d.fill(ctx, store, progress); err != nil {
			return workload.LoadReport{}, fmt.Errorf("smallbank: loading: %w", err)
		}
		d.baseline = d.amounts.initial * Money(numTables*d.options.Accounts)
	}
	return workload.LoadReport{
		Existed: existed,
		Records: numTables * d.options.Accounts,
		Summary: fmt.Sprintf("%d accounts, %s in all", d.options.Accounts, d.baseline),
	}, nil
}

// fill inserts all accounts.
func (d *Driver) fill(ctx context.Context, store workload.Store, progress func(done, total int)) error {
	record := d.newRecord(d.amounts.initial)
	return workload.Scan(ctx, store, d.options.Accounts, d.batch(), progress,
		func(w workload.Worker) func(context.Context, int, int) error {
			return func(ctx context.Context, lo, hi int) error {
				return w.Update(ctx, func(tx workload.Tx) error {
					stage(tx, lo, hi, workload.Update)
					for account := lo; account < hi; account++ {
						for table := range numTables {
							if err := tx.Insert(table, uint64(account), record); err != nil {
								return err
							}
						}
					}
					return nil
				})
			}
		})
}

// adopt takes the state of a database that existed as the baseline.
func (d *Driver) adopt(ctx context.Context, store workload.Store, progress func(done, total int)) error {
	a, err := d.audit(ctx, store, progress)
	if err != nil {
		return fmt.Errorf("smallbank: reading the existing accounts: %w", err)
	}
	switch {
	case a.missing.count > 0:
		return fmt.Errorf("%w: %d of the %d accounts asked for are not there, or not whole, the first of them "+
			"account %d; "+
			"the database was loaded with fewer accounts, then ask for as many, "+
			"or loading was interrupted, then remove it and load an empty one", workload.ErrForeign, a.lacking,
			d.options.Accounts, a.missing.first)
	case a.beyond:
		return fmt.Errorf("%w: it has more accounts than the %d asked for; ask for as many as were loaded, or load "+
			"an empty database",
			workload.ErrForeign, d.options.Accounts)
	case a.misshapen.count > 0:
		return fmt.Errorf("%w: records: %v; ask for the record padding that was loaded (now %d bytes), or load an "+
			"empty database",
			workload.ErrForeign, &a.misshapen, d.options.RecordPadding)
	case a.total > maxTotal || a.total < -maxTotal:
		return fmt.Errorf("%w: the accounts hold %s in all, beyond the %s that are counted exactly; load an empty "+
			"database with less",
			workload.ErrForeign, a.total, Money(maxTotal))
	}
	d.baseline = a.total
	return nil
}

// Verify implements workload.Driver. Its rules: every account has its two
// records, of the right shape; no savings balance is negative; money is
// conserved, unless processes have changed the data of which nothing is known.
func (d *Driver) Verify(ctx context.Context, store workload.Store) (workload.VerifyReport, error) {
	var r workload.VerifyReport
	a, err := d.audit(ctx, store, nil)
	if err != nil {
		return r, fmt.Errorf("smallbank: reading all accounts: %w", err)
	}
	books, whole := d.sum(store)
	r.Records = a.records
	value := d.amounts.values()
	r.Add("every account has a savings and a checking record", a.missing.count == 0 && !a.beyond, "%d records; %v",
		a.records, &a.missing)
	r.Add("records have their length and padding", a.misshapen.count == 0, "%v", &a.misshapen)
	r.Add("no savings balance is negative", a.negative.count == 0, "%v", &a.negative)
	if whole {
		r.Add("money is conserved", books.explains(a.total-books.expected(d.baseline, value), value, deposited),
			"%s, %s found", books.statement(d.baseline, value), a.total)
	}
	err = r.Err()
	return r, err
}

// sum adds the ledgers up. whole: nothing else has changed the data.
func (d *Driver) sum(store workload.Store) (books ledger, whole bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, l := range d.ledgers {
		books.add(l)
	}
	return books, d.joint || store == nil || !workload.Others(store)
}

// Books implements workload.Bookkeeper.
func (d *Driver) Books() []int64 {
	sum, _ := d.sum(nil)
	return append(sum.committed[:], sum.uncertain[:]...)
}

// AddBooks implements workload.Bookkeeper.
func (d *Driver) AddBooks(books []int64) error {
	if len(books) != 2*int(numFlows) {
		return fmt.Errorf("smallbank: %d numbers are no books", len(books))
	}
	l := new(ledger)
	copy(l.committed[:], books)
	copy(l.uncertain[:], books[numFlows:])
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ledgers, d.joint = append(d.ledgers, l), true
	return nil
}

// newRecord returns a record with a balance.
func (d *Driver) newRecord(m Money) []byte {
	record := make([]byte, balanceBytes+d.options.RecordPadding)
	binary.LittleEndian.PutUint64(record, uint64(m))
	for i := balanceBytes; i < len(record); i++ {
		record[i] = padding(i)
	}
	return record
}

// padding is the byte at offset i of every record.
func padding(i int) byte { return byte(i*7) ^ 0x5a }

func stage(tx workload.Tx, lo, hi int, mode workload.Mode) {
	for account := lo; account < hi; account++ {
		for table := range numTables {
			tx.Stage(table, uint64(account), mode)
		}
	}
}

var _ workload.Bookkeeper = (*Driver)(nil)
