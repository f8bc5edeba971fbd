package tpcc

import (
	"errors"

	"txnode/benchmarks/workload"
)

// newOrderClient is New-Order (clause 2.4).
type newOrderClient struct {
	d        uint8
	customer uint16
	lines    [maxLines]ordered
	n        int
	item     item
	stock    stock
	total    cents // with discount and taxes, what the terminal would show
}

// ordered is an order line as it is keyed in.
type ordered struct {
	item     uint32
	supply   uint16
	quantity uint8
}

func (x *newOrderClient) draw(c *client) {
	o := &c.driver.options
	x.d, x.customer = uint8(c.r.between(1, Districts)), c.r.customer(o)
	x.n = c.r.between(minLines, maxLines)
	for i := range x.lines[:x.n] {
		x.lines[i] = ordered{item: c.r.item(o), supply: c.w, quantity: uint8(c.r.between(1, 10))}
		if o.Warehouses > 1 && c.r.Chance(c.driver.remoteItem) {
			x.lines[i].supply = c.otherWarehouse()
		}
	}
	if c.r.Chance(c.driver.rollback) {
		x.lines[x.n-1].item = uint32(o.Items) + 1 // unused
	}
}

// otherWarehouse draws a warehouse that is not the terminal's.
func (c *client) otherWarehouse() uint16 {
	w := uint16(c.r.between(1, c.driver.options.Warehouses-1))
	if w >= c.w {
		w++
	}
	return w
}

func (c *client) runNewOrder(tx workload.Tx) error {
	x, w := &c.newOrder, c.w
	lines := x.lines[:x.n]
	tx.Stage(District, districtKey(w, x.d), workload.Update)
	tx.Stage(Warehouse, warehouseKey(w), workload.Read)
	tx.Stage(Customer, customerKey(w, x.d, x.customer), workload.Read)
	for i := range lines {
		tx.Stage(Item, itemKey(lines[i].item), workload.Read)
		if lines[i].item <= uint32(c.driver.options.Items) {
			tx.Stage(Stock, stockKey(lines[i].supply, lines[i].item), workload.Update)
		}
	}
	if err := c.get(tx, District, districtKey(w, x.d), &c.district); err != nil {
		return err
	}
	if err := c.get(tx, Warehouse, warehouseKey(w), &c.warehouse); err != nil {
		return err
	}
	if err := c.get(tx, Customer, customerKey(w, x.d, x.customer), &c.customer); err != nil {
		return err
	}
	number := c.district.nextOrder
	c.district.nextOrder++
	if err := c.put(tx, District, districtKey(w, x.d), &c.district); err != nil {
		return err
	}
	c.order = order{w: w, d: x.d, id: number, customer: x.customer, entry: c.date, lines: uint8(x.n), allLocal: 1}
	for i := range lines {
		if lines[i].supply != w {
			c.order.allLocal = 0
		}
	}
	c.lines = c.lines[:0]
	sum := cents(0)
	for i := range lines {
		if err := c.orderLine(tx, uint8(i+1), &lines[i]); err != nil {
			return err
		}
		sum += c.lines[i].amount
	}
	x.total = total(sum, c.customer.discount, c.warehouse.tax, c.district.tax)
	return c.insertOrder(tx)
}

// orderLine takes a line from the stock, and appends it to c.lines.
func (c *client) orderLine(tx workload.Tx, number uint8, l *ordered) error {
	x := &c.newOrder
	v, err := tx.Get(Item, itemKey(l.item))
	switch {
	case err == nil:
	case errors.Is(err, workload.ErrNotFound) && l.item > uint32(c.driver.options.Items):
		return ErrUnusedItem
	case errors.Is(err, workload.ErrNotFound):
		return &RowError{Table: Item, Key: itemKey(l.item), Length: -1}
	default:
		return err
	}
	if err := c.decode(Item, itemKey(l.item), v, &x.item); err != nil {
		return err
	}
	key := stockKey(l.supply, l.item)
	if err := c.get(tx, Stock, key, &x.stock); err != nil {
		return err
	}
	s := &x.stock
	if s.quantity < uint16(l.quantity)+10 {
		s.quantity += 91
	}
	s.quantity -= uint16(l.quantity)
	s.ytd += uint32(l.quantity)
	s.orders++
	if l.supply != c.w {
		s.remotes++
	}
	c.lines = append(c.lines, orderLine{
		w: c.w, d: x.d, o: c.order.id, number: number, item: l.item, supply: l.supply, quantity: l.quantity,
		amount: cents(l.quantity) * x.item.price, info: s.dist[x.d-1],
	})
	return c.put(tx, Stock, key, s)
}

// insertOrder inserts the order, its lines, and its rows in the other tables.
func (c *client) insertOrder(tx workload.Tx) error {
	o := &c.order
	key, index := orderKey(o.w, o.d, o.id), customerOrderKey(o.w, o.d, o.customer, o.id)
	tx.Stage(Order, key, workload.Update)
	tx.Stage(NewOrder, key, workload.Update)
	tx.Stage(CustomerOrder, index, workload.Update)
	for i := range c.lines {
		tx.Stage(OrderLine, lineKey(o.w, o.d, o.id, c.lines[i].number), workload.Update)
	}
	if err := c.insert(tx, Order, key, o); err != nil {
		return err
	}
	c.pending = newOrder{w: o.w, d: o.d, o: o.id}
	if err := c.insert(tx, NewOrder, key, &c.pending); err != nil {
		return err
	}
	c.index = customerOrder{lines: o.lines}
	if err := c.insert(tx, CustomerOrder, index, &c.index); err != nil {
		return err
	}
	for i := range c.lines {
		if err := c.insert(tx, OrderLine, lineKey(o.w, o.d, o.id, c.lines[i].number), &c.lines[i]); err != nil {
			return err
		}
	}
	return nil
}

// total is sum × (1 - discount) × (1 + taxes), rounded to cents, half away from zero.
func total(sum cents, discount, warehouseTax, districtTax rate) cents {
	const one = 10_000
	exact := sum * (one - cents(discount)) * (one + cents(warehouseTax) + cents(districtTax)) // in 1/100,000,000 cents
	return (exact + one*one/2) / (one * one)
}
