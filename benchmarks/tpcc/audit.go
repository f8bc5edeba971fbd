package tpcc

import (
	"context"
	"fmt"
	"sync"

	"txnode/benchmarks/workload"
)

// rule is one that rows must keep: the consistency conditions of clause 3.3.2, by their
// numbers, and others behind them. Condition 11 is in Driver.Verify, because it counts what
// was delivered since.
type rule int

const (
	_ rule = iota
	condition1
	condition2
	condition3
	condition4
	condition5
	condition6
	condition7
	condition8
	condition9
	condition10
	_ // 11
	condition12
	ruleWhole
	ruleNames
	ruleCustomerOrders
	ruleCustomers
	ruleStock
	numRules
)

var ruleTexts = [numRules]string{
	condition1:         "3.3.2.1: a warehouse's payments are the sum of its districts'",
	condition2:         "3.3.2.2: a district's next order follows its last order, and its last new order",
	condition3:         "3.3.2.3: a district's new orders have no gaps",
	condition4:         "3.3.2.4: a district has as many order lines as its orders say",
	condition5:         "3.3.2.5: an order has no carrier if and only if it is a new order",
	condition6:         "3.3.2.6: each order has as many lines as it says",
	condition7:         "3.3.2.7: a line has no delivery date if and only if its order has no carrier",
	condition8:         "3.3.2.8: a warehouse's payments are the sum of its history",
	condition9:         "3.3.2.9: a district's payments are the sum of its history",
	condition10:        "3.3.2.10: a balance is the delivered lines minus the history of its customer",
	condition12:        "3.3.2.12: a balance plus what was paid is the delivered lines of its customer",
	ruleWhole:          "every row is whole, and has the numbers of its key",
	ruleNames:          "the index by last name has each customer once",
	ruleCustomerOrders: "the index by customer has each order once",
	ruleCustomers:      "a customer's counters are its history and its deliveries",
	ruleStock:          "stock counts what was ordered since the beginning",
}

// audit is what reading all rows has found.
type audit struct {
	options *Options
	foreign string // why the sizes are not those asked for; empty: they are
	rows    [numTables]int
	broken  [numRules]struct {
		count int
		first string
	}

	// By warehouse and district, from 1 on: the history paid there, and what the districts say.
	history, districts [][Districts + 1]cents
	used               map[uint64]usage // by key of the stock
}

// usage is what order lines have taken from the stock of an item since the beginning.
type usage struct{ quantity, orders, remotes uint32 }

func newAudit(o *Options) *audit {
	return &audit{
		options: o, history: make([][Districts + 1]cents, o.Warehouses+1),
		districts: make([][Districts + 1]cents, o.Warehouses+1),
		used:      map[uint64]usage{},
	}
}

func (a *audit) breaks(r rule, where string, args ...any) {
	b := &a.broken[r]
	if b.count == 0 {
		b.first = fmt.Sprintf(where, args...)
	}
	b.count++
}

// must is breaks if something does not hold.
func (a *audit) must(holds bool, r rule, where string, args ...any) {
	if !holds {
		a.breaks(r, where, args...)
	}
}

func (a *audit) merge(b *audit) {
	for t, n := range b.rows {
		a.rows[t] += n
	}
	for r := range b.broken {
		if x := &b.broken[r]; x.count > 0 {
			if y := &a.broken[r]; y.count == 0 || x.first < y.first {
				y.first = x.first
			}
			a.broken[r].count += x.count
		}
	}
	if a.foreign == "" {
		a.foreign = b.foreign
	}
	for w := range b.history {
		for d := range b.history[w] {
			a.history[w][d] += b.history[w][d]
			a.districts[w][d] += b.districts[w][d]
		}
	}
	for key, x := range b.used {
		y := a.used[key]
		a.used[key] = usage{y.quantity + x.quantity, y.orders + x.orders, y.remotes + x.remotes}
	}
}

// report adds a check for each rule.
func (a *audit) report(r *workload.VerifyReport) {
	for i := range a.broken {
		if ruleTexts[i] == "" {
			continue
		}
		b, detail := &a.broken[i], "without exception"
		if b.count > 0 {
			detail = fmt.Sprintf("%d exceptions, the first: %s", b.count, b.first)
		}
		r.Add(ruleTexts[i], b.count == 0, "%s", detail)
	}
}

// audit reads every row, while no client runs: districts, then items and stock, then warehouses.
func (d *Driver) audit(ctx context.Context, store workload.Store, progress func(done, total int)) (*audit, error) {
	o := &d.options
	sum := newAudit(o)
	var mu sync.Mutex // guards into
	into := sum
	districts, parts := o.Warehouses*Districts, (o.Items+itemsPerUnit-1)/itemsPerUnit
	part := func(total int, progress func(done, total int), do func(r *reader, i int) error) error {
		return workload.Scan(ctx, store, total, 1, progress, func(w workload.Worker) func(context.Context, int,
			int) error {
			return func(ctx context.Context, lo, hi int) error {
				for i := lo; i < hi; i++ {
					r := &reader{audit: newAudit(o), ctx: ctx, worker: w, used: sum.used}
					if err := do(r, i); err != nil {
						return err
					}
					mu.Lock()
					into.merge(r.audit)
					mu.Unlock()
				}
				return nil
			}
		})
	}
	err := part(districts, progress, func(r *reader, i int) error {
		return r.readDistrict(uint16(i/Districts+1), uint8(i%Districts+1))
	})
	if err != nil {
		return sum, err
	}
	err = part((1+o.Warehouses)*parts, nil, func(r *reader, i int) error {
		lo := 1 + i%parts*itemsPerUnit
		hi := min(lo+itemsPerUnit, o.Items+1)
		if i < parts {
			return r.readItems(lo, hi)
		}
		return r.readStock(uint16(i/parts), lo, hi)
	})
	if err != nil {
		return sum, err
	}
	err = part(1, nil, func(r *reader, _ int) error { return r.readSizes() })
	if err != nil {
		return sum, err
	}
	into = newAudit(o) // they read what sum says of all districts
	err = part(o.Warehouses, nil, func(r *reader, i int) error {
		return r.readWarehouse(uint16(i+1), sum)
	})
	sum.merge(into)
	return sum, err
}
