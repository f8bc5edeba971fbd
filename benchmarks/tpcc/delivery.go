package tpcc

import "txnode/benchmarks/workload"

// deliveryClient is Delivery (clause 2.7): the oldest order of each district, all in one
// transaction.
type deliveryClient struct {
	carrier   uint8
	orders    [Districts]uint32 // to deliver; 0: the district has none
	customers [Districts]uint16
	sums      [Districts]cents
	delivered int
}

func (c *client) runDelivery(tx workload.Tx) error {
	x, w := &c.delivery, c.w
	x.delivered = 0
	for i := range x.orders {
		d := uint8(i + 1)
		key, found, err := c.one(tx, NewOrder, workload.Range{
			From: orderKey(w, d, 0), To: orderKey(w, d, 1<<orderBits-1),
		})
		if err != nil {
			return err
		}
		if x.orders[i] = 0; !found {
			continue // clause 2.7.4.2: it is skipped
		}
		x.orders[i] = orderNumber(key)
		x.delivered++
	}
	for i, o := range x.orders {
		if o != 0 {
			tx.Stage(NewOrder, orderKey(w, uint8(i+1), o), workload.Update)
			tx.Stage(Order, orderKey(w, uint8(i+1), o), workload.Update)
		}
	}
	c.lines = c.lines[:0]
	for i, o := range x.orders {
		if o == 0 {
			continue
		}
		if err := c.take(tx, i, o); err != nil {
			return err
		}
	}
	for j := range c.lines { // all of them in one round trip; a range would fetch what is staged
		l := &c.lines[j]
		tx.Stage(OrderLine, lineKey(w, l.d, l.o, l.number), workload.Update)
	}
	for j := range c.lines {
		l := &c.lines[j]
		l.delivery = c.date
		x.sums[l.d-1] += l.amount
		if err := c.put(tx, OrderLine, lineKey(w, l.d, l.o, l.number), l); err != nil {
			return err
		}
	}
	for i, o := range x.orders {
		if o != 0 {
			tx.Stage(Customer, customerKey(w, uint8(i+1), x.customers[i]), workload.Update)
		}
	}
	for i, o := range x.orders {
		if o == 0 {
			continue
		}
		key := customerKey(w, uint8(i+1), x.customers[i])
		if err := c.get(tx, Customer, key, &c.customer); err != nil {
			return err
		}
		c.customer.balance += x.sums[i]
		c.customer.deliveries++
		if err := c.put(tx, Customer, key, &c.customer); err != nil {
			return err
		}
	}
	return nil
}

// take takes an order of a district from those that are pending, and adds its lines to c.lines.
func (c *client) take(tx workload.Tx, i int, o uint32) error {
	x, w, d := &c.delivery, c.w, uint8(i+1)
	key := orderKey(w, d, o)
	if err := tx.Delete(NewOrder, key); err != nil {
		return err
	}
	if err := c.get(tx, Order, key, &c.order); err != nil {
		return err
	}
	c.order.carrier = x.carrier
	if err := c.put(tx, Order, key, &c.order); err != nil {
		return err
	}
	x.customers[i], x.sums[i] = c.order.customer, 0
	first := len(c.lines)
	if err := c.addLines(tx, w, d, o); err != nil {
		return err
	}
	for j := first; j < len(c.lines); j++ {
		if l := &c.lines[j]; l.w != w || l.d != d || l.o != o {
			return &RowError{Table: OrderLine, Key: lineKey(w, d, o, l.number), Length: -1}
		}
	}
	return nil
}
