package tpcc

import "txnode/benchmarks/workload"

// orderStatusClient is Order-Status (clause 2.6).
type orderStatusClient struct {
	customer by
}

func (x *orderStatusClient) draw(c *client) {
	x.customer = c.drawCustomer(c.w, uint8(c.r.between(1, Districts)))
}

func (c *client) runOrderStatus(tx workload.Tx) error {
	b := c.orderStatus.customer
	id, err := c.find(tx, b)
	if err != nil {
		return err
	}
	tx.Stage(Customer, customerKey(b.w, b.d, id), workload.Read)
	if err := c.get(tx, Customer, customerKey(b.w, b.d, id), &c.customer); err != nil {
		return err
	}
	from := customerOrderKey(b.w, b.d, id, 0)
	key, found, err := c.one(tx, CustomerOrder,
		workload.Range{From: from, To: from | (1<<orderBits - 1), Descending: true})
	if err != nil {
		return err
	}
	if !found { // every customer begins with an order
		return &RowError{Table: CustomerOrder, Key: from, Length: -1}
	}
	o := orderNumber(key)
	if err := c.get(tx, Order, orderKey(b.w, b.d, o), &c.order); err != nil {
		return err
	}
	if err := c.readLines(tx, b.w, b.d, o); err != nil {
		return err
	}
	if len(c.lines) != int(c.order.lines) {
		return &RowError{Table: OrderLine, Key: lineKey(b.w, b.d, o, uint8(len(c.lines)+1)), Length: -1}
	}
	return nil
}
