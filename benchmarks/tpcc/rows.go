package tpcc

import (
	"encoding/binary"
	"fmt"
)

// Tables, by number.
const (
	Warehouse = iota
	District
	Customer
	CustomerName // index of Customer by last name
	History
	NewOrder
	Order
	CustomerOrder // index of Order by customer
	OrderLine
	Item
	Stock
	numTables
)

// tables have ranges if ordered.
var tables = [numTables]struct {
	name    string
	row     row
	ordered bool
}{
	Warehouse:     {"warehouse", &warehouse{}, false},
	District:      {"district", &district{}, false},
	Customer:      {"customer", &customer{}, false},
	CustomerName:  {"customer_name", &customerName{}, true},
	History:       {"history", &history{}, false},
	NewOrder:      {"new_order", &newOrder{}, true},
	Order:         {"orders", &order{}, true},
	CustomerOrder: {"customer_order", &customerOrder{}, true},
	OrderLine:     {"order_line", &orderLine{}, true},
	Item:          {"item", &item{}, false},
	Stock:         {"stock", &stock{}, false},
}

// Bits of the parts of keys. Warehouse, district and customer or order number stand from the
// highest bit on, so that keys are ordered as TPC-C's primary keys are.
const (
	districtBits = 4
	customerBits = 12
	orderBits    = 32
	lineBits     = 4
	nameBits     = 10
	itemBits     = 17
)

func warehouseKey(w uint16) uint64         { return uint64(w) }
func districtKey(w uint16, d uint8) uint64 { return uint64(w)<<districtBits | uint64(d) }
func itemKey(i uint32) uint64              { return uint64(i) }
func stockKey(w uint16, i uint32) uint64   { return uint64(w)<<itemBits | uint64(i) }
func orderNumber(key uint64) uint32        { return uint32(key) }
func customerNumber(key uint64) uint16     { return uint16(key & (1<<customerBits - 1)) }
func nameKeyOf(w uint16, d uint8, name int) uint64 {
	return districtKey(w, d)<<(nameBits+customerBits) | uint64(name)<<customerBits
}

func customerKey(w uint16, d uint8, c uint16) uint64 {
	return districtKey(w, d)<<customerBits | uint64(c)
}

// nameKey is of the index by last name: customers of one name are neighbours.
func nameKey(w uint16, d uint8, name int, c uint16) uint64 { return nameKeyOf(w, d, name) | uint64(c) }

// orderKey is of the tables new_order and orders.
func orderKey(w uint16, d uint8, o uint32) uint64 { return districtKey(w, d)<<orderBits | uint64(o) }

func lineKey(w uint16, d uint8, o uint32, line uint8) uint64 {
	return orderKey(w, d, o)<<lineBits | uint64(line)
}

// customerOrderKey is of the index by customer: the last order has the largest key.
func customerOrderKey(w uint16, d uint8, c uint16, o uint32) uint64 {
	return customerKey(w, d, c)<<orderBits | uint64(o)
}

// historyKey numbers the payments of a customer.
func historyKey(w uint16, d uint8, c uint16, payment uint32) uint64 {
	return customerKey(w, d, c)<<orderBits | uint64(payment)
}

// cents are US dollars times 100. TPC-C's amounts have two decimals, so sums are exact.
type cents = int64

// rate is a tax or a discount, in units of 0.0001.
type rate = uint16

// row is a row of a table. Its value is its fields one after the other, little endian, texts padded
// with zeros.
type row interface {
	// layout visits the fields, to read or to write them.
	layout(c *cursor)
}

// cursor goes through the fields of a value.
type cursor struct {
	b    []byte
	read bool
	size int // counted without b
}

func (c *cursor) next(n int) []byte {
	c.size += n
	if c.b == nil {
		return nil
	}
	b := c.b[:n]
	c.b = c.b[n:]
	return b
}

func (c *cursor) u8(p *uint8) {
	if b := c.next(1); b == nil {
	} else if c.read {
		*p = b[0]
	} else {
		b[0] = *p
	}
}

func (c *cursor) u16(p *uint16) {
	if b := c.next(2); b == nil {
	} else if c.read {
		*p = binary.LittleEndian.Uint16(b)
	} else {
		binary.LittleEndian.PutUint16(b, *p)
	}
}

func (c *cursor) u32(p *uint32) {
	if b := c.next(4); b == nil {
	} else if c.read {
		*p = binary.LittleEndian.Uint32(b)
	} else {
		binary.LittleEndian.PutUint32(b, *p)
	}
}

func (c *cursor) i64(p *int64) {
	if b := c.next(8); b == nil {
	} else if c.read {
		*p = int64(binary.LittleEndian.Uint64(b))
	} else {
		binary.LittleEndian.PutUint64(b, uint64(*p))
	}
}

func (c *cursor) text(p []byte) {
	if b := c.next(len(p)); b == nil {
	} else if c.read {
		copy(p, b)
	} else {
		copy(b, p)
	}
}

// sizeOf returns the size of the values of a row type.
func sizeOf(r row) int {
	c := cursor{}
	r.layout(&c)
	return c.size
}

type address struct {
	street1, street2, city [20]byte
	state                  [2]byte
	zip                    [9]byte
}

func (a *address) layout(c *cursor) {
	c.text(a.street1[:])
	c.text(a.street2[:])
	c.text(a.city[:])
	c.text(a.state[:])
	c.text(a.zip[:])
}

type warehouse struct {
	id   uint16
	name [10]byte
	address
	tax rate
	ytd cents
}

func (r *warehouse) layout(c *cursor) {
	c.u16(&r.id)
	c.text(r.name[:])
	r.address.layout(c)
	c.u16(&r.tax)
	c.i64(&r.ytd)
}

type district struct {
	w    uint16
	id   uint8
	name [10]byte
	address
	tax       rate
	ytd       cents
	nextOrder uint32
}

func (r *district) layout(c *cursor) {
	c.u16(&r.w)
	c.u8(&r.id)
	c.text(r.name[:])
	r.address.layout(c)
	c.u16(&r.tax)
	c.i64(&r.ytd)
	c.u32(&r.nextOrder)
}

type customer struct {
	w      uint16
	d      uint8
	id     uint16
	first  [16]byte
	middle [2]byte
	last   [16]byte
	address
	phone       [16]byte
	since       int64
	credit      [2]byte
	creditLimit cents
	discount    rate
	balance     cents
	paid        cents // c_ytd_payment
	payments    uint32
	deliveries  uint32
	data        [500]byte
}

func (r *customer) layout(c *cursor) {
	c.u16(&r.w)
	c.u8(&r.d)
	c.u16(&r.id)
	c.text(r.first[:])
	c.text(r.middle[:])
	c.text(r.last[:])
	r.address.layout(c)
	c.text(r.phone[:])
	c.i64(&r.since)
	c.text(r.credit[:])
	c.i64(&r.creditLimit)
	c.u16(&r.discount)
	c.i64(&r.balance)
	c.i64(&r.paid)
	c.u32(&r.payments)
	c.u32(&r.deliveries)
	c.text(r.data[:])
}

type customerName struct{ first [16]byte }

func (r *customerName) layout(c *cursor) { c.text(r.first[:]) }

type history struct {
	cw     uint16
	cd     uint8
	c      uint16
	w      uint16
	d      uint8
	date   int64
	amount cents
	data   [24]byte
}

func (r *history) layout(c *cursor) {
	c.u16(&r.cw)
	c.u8(&r.cd)
	c.u16(&r.c)
	c.u16(&r.w)
	c.u8(&r.d)
	c.i64(&r.date)
	c.i64(&r.amount)
	c.text(r.data[:])
}

type newOrder struct {
	w uint16
	d uint8
	o uint32
}

func (r *newOrder) layout(c *cursor) {
	c.u16(&r.w)
	c.u8(&r.d)
	c.u32(&r.o)
}

type order struct {
	w        uint16
	d        uint8
	id       uint32
	customer uint16
	entry    int64
	carrier  uint8 // 0: null
	lines    uint8
	allLocal uint8
}

func (r *order) layout(c *cursor) {
	c.u16(&r.w)
	c.u8(&r.d)
	c.u32(&r.id)
	c.u16(&r.customer)
	c.i64(&r.entry)
	c.u8(&r.carrier)
	c.u8(&r.lines)
	c.u8(&r.allLocal)
}

type customerOrder struct{ lines uint8 }

func (r *customerOrder) layout(c *cursor) { c.u8(&r.lines) }

type orderLine struct {
	w        uint16
	d        uint8
	o        uint32
	number   uint8
	item     uint32
	supply   uint16
	delivery int64 // 0: null
	quantity uint8
	amount   cents
	info     [24]byte
}

func (r *orderLine) layout(c *cursor) {
	c.u16(&r.w)
	c.u8(&r.d)
	c.u32(&r.o)
	c.u8(&r.number)
	c.u32(&r.item)
	c.u16(&r.supply)
	c.i64(&r.delivery)
	c.u8(&r.quantity)
	c.i64(&r.amount)
	c.text(r.info[:])
}

type item struct {
	id    uint32
	image uint16
	name  [24]byte
	price cents
	data  [50]byte
}

func (r *item) layout(c *cursor) {
	c.u32(&r.id)
	c.u16(&r.image)
	c.text(r.name[:])
	c.i64(&r.price)
	c.text(r.data[:])
}

type stock struct {
	w        uint16
	item     uint32
	quantity uint16
	dist     [Districts][24]byte
	ytd      uint32
	orders   uint32
	remotes  uint32
	data     [50]byte
}

func (r *stock) layout(c *cursor) {
	c.u16(&r.w)
	c.u32(&r.item)
	c.u16(&r.quantity)
	for i := range r.dist {
		c.text(r.dist[i][:])
	}
	c.u32(&r.ytd)
	c.u32(&r.orders)
	c.u32(&r.remotes)
	c.text(r.data[:])
}

// money prints an amount in dollars.
func money(c cents) string {
	sign := ""
	if c < 0 {
		sign, c = "-", -c
	}
	return fmt.Sprintf("%s%d.%02d", sign, c/100, c%100)
}
