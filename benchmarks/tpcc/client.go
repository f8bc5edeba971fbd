package tpcc

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"math"
	"slices"

	"txnode/benchmarks/workload"
)

// Transaction types, by number.
const (
	NewOrderTxn = iota
	Payment
	OrderStatus
	Delivery
	StockLevel
	NumTypes
)

var typeNames = [NumTypes]string{"NewOrder", "Payment", "OrderStatus", "Delivery", "StockLevel"}

// client is a workload.Client: a terminal. Its transaction functions are bound once; their
// parameters are fields.
type client struct {
	codec
	worker  workload.Worker
	driver  *Driver // read only
	ledger  *ledger
	r       random
	run     [NumTypes]func(workload.Tx) error
	attempt func(workload.Tx) error // of the type that is drawn
	w       uint16                  // of the terminal
	d       uint8                   // of the terminal, for Stock-Level

	typ   int
	drawn bool // the next transaction, by Pause
	date  int64
	think int64 // after the last transaction, ns

	newOrder    newOrderClient
	payment     paymentClient
	orderStatus orderStatusClient
	delivery    deliveryClient
	stockLevel  stockLevelClient

	// What transactions have in common.
	warehouse warehouse
	district  district
	customer  customer
	order     order
	pending   newOrder
	index     customerOrder
	name      customerName
	names     []named
	lines     []orderLine
	err       error // of a step of a range
	nameStep  func(key uint64, value []byte) bool
	lineStep  func(key uint64, value []byte) bool
	keyStep   func(key uint64, value []byte) bool
	key       uint64 // that keyStep has met last
	found     bool
}

// named is a customer of some last name.
type named struct {
	first [16]byte
	id    uint16
}

func newClient(d *Driver, l *ledger, id int, r workload.Rand, w workload.Worker) *client {
	o := &d.options
	c := &client{
		worker: w, driver: d, ledger: l, r: random{r},
		w: uint16(1 + id%o.Warehouses), d: uint8(1 + id/o.Warehouses%Districts),
	}
	c.run = [NumTypes]func(workload.Tx) error{
		NewOrderTxn: c.runNewOrder, Payment: c.runPayment, OrderStatus: c.runOrderStatus, Delivery: c.runDelivery,
		StockLevel: c.runStockLevel,
	}
	c.attempt = func(tx workload.Tx) error {
		if late, ok := tx.(workload.EndValidator); ok {
			late.ValidateAtEnd() // no transaction of TPC-C does anything with a state that never was but end
		}
		return c.run[c.typ](tx)
	}
	c.nameStep, c.lineStep, c.keyStep = c.takeName, c.takeLine, c.takeKey
	return c
}

// Next implements workload.Client.
func (c *client) Next() int {
	if !c.drawn {
		c.Draw(c.driver.mix.Draw(&c.r.Rand))
	}
	c.drawn = false
	return c.typ
}

// Draw implements workload.Client.
func (c *client) Draw(typ int) {
	c.typ = typ
	switch typ {
	case NewOrderTxn:
		c.newOrder.draw(c)
	case Payment:
		c.payment.draw(c)
	case OrderStatus:
		c.orderStatus.draw(c)
	case Delivery:
		c.delivery.carrier = uint8(c.r.between(1, 10))
	case StockLevel:
		c.stockLevel.threshold = uint16(c.r.between(10, 20))
	}
}

// Times of clause 5.2.5.7, in seconds.
var (
	keying   = [NumTypes]float64{18, 3, 2, 2, 2}
	thinking = [NumTypes]float64{12, 12, 10, 5, 5}
)

// Pause implements workload.Pacer: the think time after the last transaction, and the keying time
// before the next one, which it draws.
func (c *client) Pause() int64 {
	pace := c.driver.options.Pace
	if pace == 0 {
		return 0
	}
	ns := c.think
	if !c.drawn {
		c.Draw(c.driver.mix.Draw(&c.r.Rand))
		c.drawn = true
	}
	ns += int64(keying[c.typ] * pace * 1e9)
	u := float64(c.r.Uint64()>>11+1) / (1 << 53)
	c.think = int64(min(-math.Log(u), 10) * thinking[c.typ] * pace * 1e9)
	return ns
}

// Run implements workload.Client.
func (c *client) Run(ctx context.Context) (workload.Outcome, error) {
	c.date = c.driver.now()
	var err error
	if c.typ == OrderStatus || c.typ == StockLevel {
		err = c.worker.View(ctx, c.attempt)
	} else {
		err = c.worker.Update(ctx, c.attempt)
	}
	if err != nil && errors.Is(err, ErrUnusedItem) {
		return workload.RolledBack, nil
	}
	switch {
	case err == nil:
		c.ledger.count(c, &c.ledger.committed)
	case errors.Is(err, workload.ErrUncertain):
		c.ledger.count(c, &c.ledger.uncertain)
	}
	return workload.Committed, err
}

// by is a customer, by number or by last name.
type by struct {
	w    uint16
	d    uint8
	name int // -1: by number
	id   uint16
}

// drawCustomer draws a customer of a district, 60 % of them by last name.
func (c *client) drawCustomer(w uint16, d uint8) by {
	b := by{w: w, d: d, name: -1}
	if c.r.Intn(100) < 60 {
		b.name = c.r.lastName(&c.driver.options, lastNameRun)
	} else {
		b.id = c.r.customer(&c.driver.options)
	}
	return b
}

// find returns the number of a customer: among those of a last name, ordered by first name, the one
// in the middle, rounded up (clause 2.5.2.2).
func (c *client) find(tx workload.Tx, b by) (uint16, error) {
	if b.name < 0 {
		return b.id, nil
	}
	c.names = c.names[:0]
	from := nameKeyOf(b.w, b.d, b.name)
	if err := c.scan(tx, CustomerName, workload.Range{From: from, To: from | (1<<customerBits - 1)},
		c.nameStep); err != nil {
		return 0, err
	}
	if len(c.names) == 0 {
		return 0, &RowError{Table: CustomerName, Key: from, Length: -1}
	}
	slices.SortFunc(c.names, func(a, b named) int {
		return cmp.Or(bytes.Compare(a.first[:], b.first[:]), cmp.Compare(a.id, b.id))
	})
	return c.names[(len(c.names)-1)/2].id, nil
}

// scan reads a range with a step that sets c.err if it fails.
func (c *client) scan(tx workload.Tx, table int, r workload.Range, step func(key uint64, value []byte) bool) error {
	rt, err := workload.RangerOf(tx)
	if err != nil {
		return err
	}
	c.err = nil
	if err := rt.Range(table, r, step); err != nil {
		return err
	}
	return c.err
}

func (c *client) takeName(key uint64, value []byte) bool {
	if c.err = c.decode(CustomerName, key, value, &c.name); c.err != nil {
		return false
	}
	c.names = append(c.names, named{c.name.first, customerNumber(key)})
	return true
}

func (c *client) takeLine(key uint64, value []byte) bool {
	c.lines = append(c.lines, orderLine{})
	c.err = c.decode(OrderLine, key, value, &c.lines[len(c.lines)-1])
	return c.err == nil
}

func (c *client) takeKey(key uint64, _ []byte) bool {
	c.key, c.found = key, true
	return true
}

// readLines reads the lines of an order.
func (c *client) readLines(tx workload.Tx, w uint16, d uint8, o uint32) error {
	c.lines = c.lines[:0]
	return c.addLines(tx, w, d, o)
}

func (c *client) addLines(tx workload.Tx, w uint16, d uint8, o uint32) error {
	return c.scan(tx, OrderLine, workload.Range{From: lineKey(w, d, o, 0), To: lineKey(w, d, o, maxLines)}, c.lineStep)
}

// one returns the first key of a range of one.
func (c *client) one(tx workload.Tx, table int, r workload.Range) (key uint64, found bool, err error) {
	c.found, r.Limit = false, 1
	err = c.scan(tx, table, r, c.keyStep)
	return c.key, c.found, err
}
