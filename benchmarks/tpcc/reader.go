package tpcc

import (
	"context"
	"errors"
	"strconv"

	"txnode/benchmarks/workload"
)

// reader reads a part of the rows for an audit of its own.
type reader struct {
	*audit
	codec
	ctx    context.Context
	worker workload.Worker
	used   map[uint64]usage // of all order lines, when stock is read

	keys   []uint64
	values [][]byte
}

// rowsPerPage is how many rows are read in a transaction.
const rowsPerPage = 200

// scan calls do for all rows of a range, which is read in pages.
func (r *reader) scan(table int, from, to uint64, do func(key uint64, value []byte)) error {
	for {
		err := r.worker.View(r.ctx, func(tx workload.Tx) error {
			rt, err := workload.RangerOf(tx)
			if err != nil {
				return err
			}
			r.keys, r.values = r.keys[:0], r.values[:0] // of this attempt
			return rt.Range(table, workload.Range{
				From: from, To: to, Limit: rowsPerPage,
			}, func(key uint64, value []byte) bool {
				r.keys, r.values = append(r.keys, key), append(r.values, append([]byte(nil), value...))
				return true
			})
		})
		if err != nil {
			return err
		}
		r.rows[table] += len(r.keys)
		for i, key := range r.keys {
			do(key, r.values[i])
		}
		n := len(r.keys)
		if n < rowsPerPage || r.keys[n-1] == to {
			return nil
		}
		from = r.keys[n-1] + 1
	}
}

// gather reads rows by their keys. A value is nil if there is no row.
func (r *reader) gather(table int, keys []uint64) ([][]byte, error) {
	var out [][]byte
	for lo := 0; lo < len(keys); lo += rowsPerPage {
		page := keys[lo:min(lo+rowsPerPage, len(keys))]
		err := r.worker.View(r.ctx, func(tx workload.Tx) error {
			r.values = r.values[:0] // of this attempt
			for _, key := range page {
				tx.Stage(table, key, workload.Read)
			}
			for _, key := range page {
				v, err := tx.Get(table, key)
				switch {
				case err == nil:
					v = append([]byte{}, v...)
				case errors.Is(err, workload.ErrNotFound):
					v = nil
				default:
					return err
				}
				r.values = append(r.values, v)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		out = append(out, r.values...)
	}
	return out, nil
}

// count counts a row that gather has read, and decodes it. False: it is not there, or damaged.
func (r *reader) count(table int, key uint64, value []byte, x row) bool {
	if value == nil {
		r.breaks(ruleWhole, "table %s has no row %#x", tables[table].name, key)
		return false
	}
	r.rows[table]++
	return r.whole(table, key, value, x)
}

// whole decodes a row.
func (r *reader) whole(table int, key uint64, value []byte, x row) bool {
	if err := r.decode(table, key, value, x); err != nil {
		r.breaks(ruleWhole, "%v", err)
		return false
	}
	return true
}

// orderInfo is what is known of an order of a district.
type orderInfo struct {
	order
	isNew            bool
	found, delivered int // lines
	sum              cents
	indexed          int
}

// readDistrict reads a district with its orders and customers, and checks what it alone can tell.
func (r *reader) readDistrict(w uint16, d uint8) error {
	values, err := r.gather(District, []uint64{districtKey(w, d)})
	if err != nil {
		return err
	}
	var x district
	if !r.count(District, districtKey(w, d), values[0], &x) {
		return nil
	}
	r.must(x.w == w && x.id == d, ruleWhole, "district %d of warehouse %d", d, w)
	r.districts[w][d] = x.ytd
	orders := map[uint32]*orderInfo{}
	if err := r.readOrders(w, d, orders); err != nil {
		return err
	}
	if err := r.readNewOrders(&x, orders); err != nil {
		return err
	}
	if err := r.readLines(w, d, orders); err != nil {
		return err
	}
	if err := r.readCustomers(w, d, orders); err != nil {
		return err
	}
	lines, found := 0, 0
	for id, o := range orders {
		r.must((o.carrier == 0) == o.isNew, condition5, "order %d of district %d of warehouse %d", id, d, w)
		r.must(int(o.lines) == o.found, condition6, "order %d of district %d of warehouse %d says %d, and has %d",
			id, d, w, o.lines, o.found)
		r.must(o.carrier == 0 && o.delivered == 0 || o.carrier != 0 && o.delivered == o.found, condition7,
			"order %d of district %d of warehouse %d", id, d, w)
		r.must(o.indexed == 1, ruleCustomerOrders, "order %d of district %d of warehouse %d: %d times",
			id, d, w, o.indexed)
		lines, found = lines+int(o.lines), found+o.found
	}
	r.must(lines == found, condition4, "district %d of warehouse %d: %d, found %d", d, w, lines, found)
	return nil
}

// last is the largest number of an order.
const last = 1<<orderBits - 1

func (r *reader) readOrders(w uint16, d uint8, orders map[uint32]*orderInfo) error {
	return r.scan(Order, orderKey(w, d, 0), orderKey(w, d, last), func(key uint64, value []byte) {
		o := &orderInfo{}
		if r.whole(Order, key, value, &o.order) {
			r.must(orderKey(o.w, o.d, o.id) == key && o.w == w, ruleWhole, "order %d of district %d of warehouse %d",
				o.id, d, w)
			orders[orderNumber(key)] = o
		}
	})
}

func (r *reader) readNewOrders(x *district, orders map[uint32]*orderInfo) error {
	first, top, n := uint32(0), uint32(0), 0
	err := r.scan(NewOrder, orderKey(x.w, x.id, 0), orderKey(x.w, x.id, last), func(key uint64, value []byte) {
		var y newOrder
		if r.whole(NewOrder, key, value, &y) {
			r.must(orderKey(y.w, y.d, y.o) == key, ruleWhole, "new order %#x", key)
		}
		o := orderNumber(key)
		if n++; n == 1 {
			first = o
		}
		top = o
		if orders[o] == nil {
			r.breaks(condition5, "new order %d of district %d of warehouse %d is no order", o, x.id, x.w)
			return
		}
		orders[o].isNew = true
	})
	if err != nil {
		return err
	}
	most := uint32(0)
	for o := range orders {
		most = max(most, o)
	}
	r.must(x.nextOrder == most+1 && (n == 0 || top == most), condition2,
		"district %d of warehouse %d: next is %d, the last order is %d, the last new order %d",
		x.id, x.w, x.nextOrder, most, top)
	r.must(n == 0 || int(top-first)+1 == n, condition3, "district %d of warehouse %d: %d from %d to %d",
		x.id, x.w, n, first, top)
	return nil
}

func (r *reader) readLines(w uint16, d uint8, orders map[uint32]*orderInfo) error {
	return r.scan(OrderLine, lineKey(w, d, 0, 0), lineKey(w, d, last, maxLines), func(key uint64, value []byte) {
		var l orderLine
		if !r.whole(OrderLine, key, value, &l) {
			return
		}
		r.must(lineKey(l.w, l.d, l.o, l.number) == key && l.w == w, ruleWhole, "order line %#x", key)
		o := orders[orderNumber(key>>lineBits)]
		if o == nil {
			r.breaks(condition6, "line %d of order %d of district %d of warehouse %d has no order", l.number, l.o, d, w)
			return
		}
		o.found++
		if l.delivery != 0 {
			o.delivered++
			o.sum += l.amount
		}
		if int(l.o) <= r.options.Customers {
			return // loaded
		}
		x := r.audit.used[stockKey(l.supply, l.item)]
		x.quantity, x.orders = x.quantity+uint32(l.quantity), x.orders+1
		if l.supply != w {
			x.remotes++
		}
		r.audit.used[stockKey(l.supply, l.item)] = x
	})
}

// customerInfo is what is known of a customer.
type customerInfo struct {
	customer
	delivered cents // lines
	count     int   // delivered orders since the beginning
	paid      cents // history
	names     int   // in the index
}

func (r *reader) readCustomers(w uint16, d uint8, orders map[uint32]*orderInfo) error {
	n := r.options.Customers
	all := make([]customerInfo, n+1)
	keys := make([]uint64, n)
	for c := 1; c <= n; c++ {
		keys[c-1] = customerKey(w, d, uint16(c))
	}
	values, err := r.gather(Customer, keys)
	if err != nil {
		return err
	}
	for i, v := range values {
		x := &all[i+1]
		if r.count(Customer, keys[i], v, &x.customer) {
			r.must(customerKey(x.w, x.d, x.id) == keys[i], ruleWhole, "customer %d of district %d of warehouse %d",
				i+1, d, w)
		}
	}
	for id, o := range orders {
		if c := int(o.customer); c >= 1 && c <= n && o.carrier != 0 {
			all[c].delivered += o.sum
			if int(id) > r.options.delivered() {
				all[c].count++
			}
		}
	}
	if err := r.readHistory(w, d, all); err != nil {
		return err
	}
	if err := r.readIndexes(w, d, all, orders); err != nil {
		return err
	}
	for c := 1; c <= n; c++ {
		x := &all[c]
		r.must(x.balance == x.delivered-x.paid, condition10, "customer %d of district %d of warehouse %d", c, d, w)
		r.must(x.balance+x.customer.paid == x.delivered, condition12, "customer %d of district %d of warehouse %d",
			c, d, w)
		r.must(x.names == 1, ruleNames, "customer %d of district %d of warehouse %d: %d times", c, d, w, x.names)
		r.must(int(x.deliveries) == x.count, ruleCustomers,
			"customer %d of district %d of warehouse %d: %d deliveries, %d found", c, d, w, x.deliveries, x.count)
	}
	return nil
}

// maxPayments of a customer are read. More are damage.
const maxPayments = 1 << 24

// readHistory reads the payments of all customers, and that there is none behind them.
func (r *reader) readHistory(w uint16, d uint8, all []customerInfo) error {
	var keys []uint64
	for c := 1; c < len(all); c++ {
		if all[c].payments > maxPayments {
			r.breaks(ruleCustomers, "customer %d of district %d of warehouse %d has %d payments",
				c, d, w, all[c].payments)
			continue
		}
		for p := uint32(1); p <= all[c].payments+1; p++ {
			keys = append(keys, historyKey(w, d, uint16(c), p))
		}
	}
	values, err := r.gather(History, keys)
	if err != nil {
		return err
	}
	for i, v := range values {
		c, p := customerNumber(keys[i]>>orderBits), uint32(keys[i])
		x := &all[c]
		switch {
		case p > x.payments && v == nil:
			continue // nothing is behind the last one
		case p > x.payments:
			r.breaks(ruleCustomers, "customer %d of district %d of warehouse %d has more history than its %d payments",
				c, d, w, x.payments)
		case v == nil:
			r.breaks(ruleCustomers, "customer %d of district %d of warehouse %d has no history of payment %d",
				c, d, w, p)
			continue
		}
		var h history
		if !r.count(History, keys[i], v, &h) {
			continue
		}
		if h.cw != w || h.cd != d || h.c != c || h.w < 1 || int(h.w) > r.options.Warehouses || h.d < 1 ||
			h.d > Districts {
			r.breaks(ruleWhole, "payment %d of customer %d of district %d of warehouse %d", p, c, d, w)
			continue
		}
		x.paid += h.amount
		r.history[h.w][h.d] += h.amount
	}
	return nil
}

// readIndexes reads the index of customers by name, and of orders by customer.
func (r *reader) readIndexes(w uint16, d uint8, all []customerInfo, orders map[uint32]*orderInfo) error {
	err := r.scan(CustomerName, nameKeyOf(w, d, 0), nameKey(w, d, 1<<nameBits-1,
		1<<customerBits-1), func(key uint64, value []byte) {
		var x customerName
		c := int(customerNumber(key))
		if !r.whole(CustomerName, key, value, &x) {
			return
		}
		var text [16]byte
		name := int(key >> customerBits & (1<<nameBits - 1))
		if name < numNames {
			putLastName(text[:], name)
		}
		if c < 1 || c >= len(all) || all[c].first != x.first || all[c].last != text {
			r.breaks(ruleNames, "entry %#x is of no customer of district %d of warehouse %d", key, d, w)
			return
		}
		all[c].names++
	})
	if err != nil {
		return err
	}
	return r.scan(CustomerOrder, customerOrderKey(w, d, 0, 0), customerOrderKey(w, d, 1<<customerBits-1,
		last), func(key uint64, value []byte) {
		var x customerOrder
		if !r.whole(CustomerOrder, key, value, &x) {
			return
		}
		o := orders[orderNumber(key)]
		if o == nil || o.customer != customerNumber(key>>orderBits) || o.lines != x.lines {
			r.breaks(ruleCustomerOrders, "entry %#x is of no order of district %d of warehouse %d", key, d, w)
			return
		}
		o.indexed++
	})
}

func (r *reader) readItems(lo, hi int) error {
	var keys []uint64
	for i := lo; i < hi; i++ {
		keys = append(keys, itemKey(uint32(i)))
	}
	values, err := r.gather(Item, keys)
	if err != nil {
		return err
	}
	for i, v := range values {
		var x item
		if r.count(Item, keys[i], v, &x) {
			r.must(itemKey(x.id) == keys[i] && x.price >= 100 && x.price <= 10_000, ruleWhole, "item %d", keys[i])
		}
	}
	return nil
}

func (r *reader) readStock(w uint16, lo, hi int) error {
	var keys []uint64
	for i := lo; i < hi; i++ {
		keys = append(keys, stockKey(w, uint32(i)))
	}
	values, err := r.gather(Stock, keys)
	if err != nil {
		return err
	}
	for i, v := range values {
		var x stock
		if !r.count(Stock, keys[i], v, &x) {
			continue
		}
		r.must(stockKey(x.w, x.item) == keys[i] && x.quantity >= 10 && x.quantity <= 100, ruleWhole,
			"stock of item %d of warehouse %d", x.item, w)
		u := r.used[keys[i]]
		r.must(u == usage{x.ytd, x.orders, x.remotes}, ruleStock, "item %d of warehouse %d: %+v, and it says %+v",
			x.item, w, u, usage{x.ytd, x.orders, x.remotes})
	}
	return nil
}

// readSizes looks whether there is more than was asked for, or less.
func (r *reader) readSizes() error {
	o := r.options
	for _, x := range []struct {
		table      int
		inside     uint64
		outside    uint64
		what, unit string
		n          int
	}{
		{Warehouse, warehouseKey(uint16(o.Warehouses)), uint64(o.Warehouses) + 1, "warehouses", "", o.Warehouses},
		{Item, itemKey(uint32(o.Items)), itemKey(uint32(o.Items) + 1), "items", "", o.Items},
		{
			Customer, customerKey(1, 1, uint16(o.Customers)), customerKey(1, 1, uint16(o.Customers)+1), "customers",
			" a district", o.Customers,
		},
	} {
		values, err := r.gather(x.table, []uint64{x.inside, x.outside})
		if err != nil {
			return err
		}
		switch {
		case values[0] == nil:
			r.foreign = "there are fewer than " + strconv.Itoa(x.n) + " " + x.what + x.unit
		case values[1] != nil:
			r.foreign = "there are more than " + strconv.Itoa(x.n) + " " + x.what + x.unit
		}
	}
	return nil
}

// readWarehouse checks a warehouse against what all districts have said.
func (r *reader) readWarehouse(w uint16, all *audit) error {
	values, err := r.gather(Warehouse, []uint64{warehouseKey(w)})
	if err != nil {
		return err
	}
	var x warehouse
	if !r.count(Warehouse, warehouseKey(w), values[0], &x) {
		return nil
	}
	r.must(x.id == w, ruleWhole, "warehouse %d", w)
	var districts, history cents
	for d := 1; d <= Districts; d++ {
		districts, history = districts+all.districts[w][d], history+all.history[w][d]
		r.must(all.districts[w][d] == all.history[w][d], condition9,
			"district %d of warehouse %d: %s, and its history is %s",
			d, w, money(all.districts[w][d]), money(all.history[w][d]))
	}
	r.must(x.ytd == districts, condition1, "warehouse %d: %s, and its districts %s", w, money(x.ytd), money(districts))
	r.must(x.ytd == history, condition8, "warehouse %d: %s, and its history is %s", w, money(x.ytd), money(history))
	return nil
}
