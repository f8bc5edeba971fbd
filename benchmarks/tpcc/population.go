package tpcc

import (
	"context"

	"txnode/benchmarks/workload"
)

// The initial population (clause 4.3.3.1). Each unit below has its own stream of random numbers, so
// databases of equal sizes have equal rows, whoever loads them.

// loadDate is the date of everything that is loaded; no date is zero.
const loadDate = 1

// Amounts that a district of 3,000 customers begins with, by customer, so that the conditions
// hold with fewer, too.
const (
	firstPayment = 1000 // cents: 10.00 of each customer
	creditLimit  = 5_000_000
)

// unit is a part of the population that is loaded in one transaction.
type unit struct {
	kind   unitKind
	w      uint16
	d      uint8
	lo, hi int // items, or customers and orders: lo to hi-1, from 1 on
}

type unitKind uint8

const (
	loadItems unitKind = iota
	loadWarehouse
	loadStock
	loadDistrict
	loadCustomers // and as many orders
)

// Rows of a unit.
const (
	itemsPerUnit     = 50
	customersPerUnit = 5
)

// units lists the population.
func (o *Options) units() []unit {
	var out []unit
	parts := func(n, size int, add func(lo, hi int)) {
		for lo := 1; lo <= n; lo += size {
			add(lo, min(lo+size, n+1))
		}
	}
	parts(o.Items, itemsPerUnit, func(lo, hi int) { out = append(out, unit{kind: loadItems, lo: lo, hi: hi}) })
	for w := uint16(1); int(w) <= o.Warehouses; w++ {
		out = append(out, unit{kind: loadWarehouse, w: w})
		parts(o.Items, itemsPerUnit, func(lo, hi int) { out = append(out, unit{loadStock, w, 0, lo, hi}) })
		for d := uint8(1); d <= Districts; d++ {
			out = append(out, unit{kind: loadDistrict, w: w, d: d})
			parts(o.Customers, customersPerUnit, func(lo, hi int) {
				out = append(out, unit{loadCustomers, w, d, lo, hi})
			})
		}
		if w == maxWarehouses {
			break
		}
	}
	return out
}

// stream is the number of the random numbers of a unit.
func (u *unit) stream() uint64 {
	return uint64(u.kind)<<48 | uint64(u.w)<<32 | uint64(u.d)<<24 | uint64(u.lo)
}

// loader loads units, one after the other.
type loader struct {
	codec
	options *Options
	unit    unit
	r       random
	rows    [numTables]int
	// perm is the order of the customers of a district by their first orders.
	perm  []uint16
	permW uint16
	permD uint8
}

// load loads a unit. It may be called again for another attempt.
func (l *loader) load(tx workload.Tx) error {
	u := &l.unit
	l.r = random{workload.NewRand(1, u.stream())}
	switch u.kind {
	case loadItems:
		return l.items(tx)
	case loadWarehouse:
		return l.warehouse(tx)
	case loadStock:
		return l.stock(tx)
	case loadDistrict:
		return l.district(tx)
	default:
		return l.customers(tx)
	}
}

func (l *loader) add(tx workload.Tx, table int, key uint64, r row) error {
	l.rows[table]++
	return l.insert(tx, table, key, r)
}

func (l *loader) items(tx workload.Tx) error {
	for i := l.unit.lo; i < l.unit.hi; i++ {
		x := item{id: uint32(i), image: uint16(l.r.between(1, 10_000)), price: cents(l.r.between(100, 10_000))}
		l.r.text(x.name[:], 14)
		l.r.data(x.data[:])
		if err := l.add(tx, Item, itemKey(x.id), &x); err != nil {
			return err
		}
	}
	return nil
}

func (a *address) draw(r *random) {
	r.text(a.street1[:], 10)
	r.text(a.street2[:], 10)
	r.text(a.city[:], 10)
	for i := range a.state {
		a.state[i] = 'A' + byte(r.Intn(26))
	}
	r.digits(a.zip[:4])
	copy(a.zip[4:], "11111")
}

func (l *loader) warehouse(tx workload.Tx) error {
	x := warehouse{
		id: l.unit.w, tax: rate(l.r.between(0, 2000)), ytd: cents(l.options.Customers) * Districts * firstPayment,
	}
	l.r.text(x.name[:], 6)
	x.address.draw(&l.r)
	return l.add(tx, Warehouse, warehouseKey(x.id), &x)
}

func (l *loader) stock(tx workload.Tx) error {
	for i := l.unit.lo; i < l.unit.hi; i++ {
		x := stock{w: l.unit.w, item: uint32(i), quantity: uint16(l.r.between(10, 100))}
		for d := range x.dist {
			l.r.text(x.dist[d][:], len(x.dist[d]))
		}
		l.r.data(x.data[:])
		if err := l.add(tx, Stock, stockKey(x.w, x.item), &x); err != nil {
			return err
		}
	}
	return nil
}

func (l *loader) district(tx workload.Tx) error {
	x := district{
		w: l.unit.w, id: l.unit.d, tax: rate(l.r.between(0, 2000)),
		ytd: cents(l.options.Customers) * firstPayment, nextOrder: uint32(l.options.Customers) + 1,
	}
	l.r.text(x.name[:], 6)
	x.address.draw(&l.r)
	return l.add(tx, District, districtKey(x.w, x.id), &x)
}

func (l *loader) customers(tx workload.Tx) error {
	l.permute()
	for i := l.unit.lo; i < l.unit.hi; i++ {
		if err := l.customer(tx, i); err != nil {
			return err
		}
		if err := l.order(tx, i); err != nil {
			return err
		}
	}
	return nil
}

// permute makes the permutation of the district.
func (l *loader) permute() {
	w, d, n := l.unit.w, l.unit.d, l.options.Customers
	if l.permW == w && l.permD == d {
		return
	}
	l.permW, l.permD, l.perm = w, d, l.perm[:0]
	for c := range n {
		l.perm = append(l.perm, uint16(c+1))
	}
	r := workload.NewRand(2, districtKey(w, d))
	for i := n - 1; i > 0; i-- {
		j := r.Intn(i + 1)
		l.perm[i], l.perm[j] = l.perm[j], l.perm[i]
	}
}

func (l *loader) customer(tx workload.Tx, number int) error {
	w, d, r := l.unit.w, l.unit.d, &l.r
	x := customer{
		w: w, d: d, id: uint16(number), since: loadDate, creditLimit: creditLimit,
		discount: rate(r.between(0, 5000)), balance: -firstPayment, paid: firstPayment, payments: 1,
	}
	name := number - 1
	if number > numNames {
		name = r.lastName(l.options, lastNameLoad)
	}
	r.text(x.first[:], 8)
	copy(x.middle[:], "OE")
	putLastName(x.last[:], name)
	x.address.draw(r)
	r.digits(x.phone[:])
	if copy(x.credit[:], "GC"); r.Intn(10) == 0 {
		copy(x.credit[:], badCredit)
	}
	r.text(x.data[:], 300)
	if err := l.add(tx, Customer, customerKey(w, d, x.id), &x); err != nil {
		return err
	}
	if err := l.add(tx, CustomerName, nameKey(w, d, name, x.id), &customerName{first: x.first}); err != nil {
		return err
	}
	h := history{cw: w, cd: d, c: x.id, w: w, d: d, date: loadDate, amount: firstPayment}
	r.text(h.data[:], 12)
	return l.add(tx, History, historyKey(w, d, x.id, 1), &h)
}

const badCredit = "BC"

func (l *loader) order(tx workload.Tx, number int) error {
	w, d, r := l.unit.w, l.unit.d, &l.r
	x := order{
		w: w, d: d, id: uint32(number), customer: l.perm[number-1], entry: loadDate,
		lines: uint8(r.between(minLines, maxLines)), allLocal: 1,
	}
	delivered := number <= l.options.delivered()
	if delivered {
		x.carrier = uint8(r.between(1, 10))
	}
	if err := l.add(tx, Order, orderKey(w, d, x.id), &x); err != nil {
		return err
	}
	if err := l.add(tx, CustomerOrder, customerOrderKey(w, d, x.customer, x.id),
		&customerOrder{lines: x.lines}); err != nil {
		return err
	}
	for n := uint8(1); n <= x.lines; n++ {
		y := orderLine{
			w: w, d: d, o: x.id, number: n, item: uint32(r.between(1, l.options.Items)), supply: w, quantity: 5,
		}
		if delivered {
			y.delivery = loadDate
		} else {
			y.amount = cents(r.between(1, 999_999))
		}
		r.text(y.info[:], len(y.info))
		if err := l.add(tx, OrderLine, lineKey(w, d, x.id, n), &y); err != nil {
			return err
		}
	}
	if delivered {
		return nil
	}
	return l.add(tx, NewOrder, orderKey(w, d, x.id), &newOrder{w: w, d: d, o: x.id})
}

// fill loads all units and returns the rows of each table.
func (d *Driver) fill(ctx context.Context, store workload.Store, progress func(done, total int)) (rows [numTables]int,
	err error) {
	units := d.options.units()
	var sum counts
	err = workload.Scan(ctx, store, len(units), 1, progress, func(w workload.Worker) func(context.Context, int,
		int) error {
		l := &loader{options: &d.options}
		return func(ctx context.Context, lo, hi int) error {
			for _, u := range units[lo:hi] {
				l.unit = u
				err := w.Update(ctx, func(tx workload.Tx) error {
					l.rows = [numTables]int{} // of this attempt
					return l.load(tx)
				})
				if err != nil {
					return err
				}
				sum.add(&l.rows)
			}
			return nil
		}
	})
	return sum.rows, err
}
