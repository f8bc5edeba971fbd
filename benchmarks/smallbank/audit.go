package smallbank

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"

	"txnode/benchmarks/workload"
)

// audit is what reading all accounts has found.
type audit struct {
	records   int
	total     Money
	beyond    bool // the account after the last one exists
	lacking   int  // accounts that lack a record, or both
	missing   offenders
	misshapen offenders
	negative  offenders
}

// offenders counts records that break a rule and remembers one of them.
type offenders struct {
	what  string // what they are, in words
	count int
	table int
	first uint64 // the lowest account seen
}

func (o *offenders) add(table int, account uint64) {
	if o.count == 0 || account < o.first {
		o.table, o.first = table, account
	}
	o.count++
}

func (o *offenders) merge(p *offenders) {
	if p.count > 0 {
		n := o.count + p.count
		o.add(p.table, p.first)
		o.count = n
	}
}

// String says how many there are, and which one to look at.
func (o *offenders) String() string {
	if o.count == 0 {
		return "none " + o.what
	}
	return fmt.Sprintf("%d %s, the first of account %d in %s", o.count, o.what, o.first, tableNames[o.table])
}

func newAudit() *audit {
	return &audit{
		missing:   offenders{what: "missing"},
		misshapen: offenders{what: "of another length or padding"},
		negative:  offenders{what: "negative"},
	}
}

func (a *audit) merge(b *audit) {
	a.records += b.records
	a.total += b.total
	a.beyond = a.beyond || b.beyond
	a.lacking += b.lacking
	a.missing.merge(&b.missing)
	a.misshapen.merge(&b.misshapen)
	a.negative.merge(&b.negative)
}

// audit reads every account, in transactions of some accounts, while no client
// runs.
func (d *Driver) audit(ctx context.Context, store workload.Store, progress func(done, total int)) (*audit, error) {
	var (
		sum = newAudit()
		mu  sync.Mutex // guards sum
		n   = d.options.Accounts
	)
	err := workload.Scan(ctx, store, n, d.batch(), progress,
		func(w workload.Worker) func(context.Context, int, int) error {
			return func(ctx context.Context, lo, hi int) error {
				var part *audit
				err := w.View(ctx, func(tx workload.Tx) error {
					part = newAudit() // of this attempt
					stage(tx, lo, hi, workload.Read)
					for account := lo; account < hi; account++ {
						before := part.missing.count
						for table := range numTables {
							if err := d.inspect(part, tx, table, uint64(account)); err != nil {
								return err
							}
						}
						if part.missing.count > before {
							part.lacking++
						}
					}
					if hi < n {
						return nil
					}
					var err error
					_, part.beyond, err = workload.Find(tx, Savings, uint64(n))
					return err
				})
				if err != nil {
					return err
				}
				mu.Lock()
				sum.merge(part)
				mu.Unlock()
				return nil
			}
		})
	return sum, err
}

// inspect reads one record into a.
func (d *Driver) inspect(a *audit, tx workload.Tx, table int, account uint64) error {
	v, found, err := workload.Find(tx, table, account)
	if err != nil {
		return err
	}
	if !found {
		a.missing.add(table, account)
		return nil
	}
	a.records++
	if len(v) < balanceBytes {
		a.misshapen.add(table, account)
		return nil
	}
	m := Money(binary.LittleEndian.Uint64(v))
	a.total += m
	if table == Savings && m < 0 {
		a.negative.add(table, account)
	}
	whole := len(v) == balanceBytes+d.options.RecordPadding
	for i := balanceBytes; whole && i < len(v); i++ {
		whole = v[i] == padding(i)
	}
	if !whole {
		a.misshapen.add(table, account)
	}
	return nil
}
