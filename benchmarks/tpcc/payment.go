package tpcc

import (
	"strconv"

	"txnode/benchmarks/workload"
)

// paymentClient is Payment (clause 2.5).
type paymentClient struct {
	d        uint8
	customer by
	amount   cents
	history  history
	text     []byte // scratch
}

func (x *paymentClient) draw(c *client) {
	o := &c.driver.options
	x.d = uint8(c.r.between(1, Districts))
	w, d := c.w, x.d
	if o.Warehouses > 1 && c.r.Chance(c.driver.remotePayment) {
		w, d = c.otherWarehouse(), uint8(c.r.between(1, Districts))
	}
	x.customer = c.drawCustomer(w, d)
	x.amount = cents(c.r.between(100, 500_000))
}

func (c *client) runPayment(tx workload.Tx) error {
	x := &c.payment
	id, err := c.find(tx, x.customer)
	if err != nil {
		return err
	}
	key := customerKey(x.customer.w, x.customer.d, id)
	tx.Stage(Warehouse, warehouseKey(c.w), workload.Update)
	tx.Stage(District, districtKey(c.w, x.d), workload.Update)
	tx.Stage(Customer, key, workload.Update)
	if err := c.get(tx, Warehouse, warehouseKey(c.w), &c.warehouse); err != nil {
		return err
	}
	if err := c.get(tx, District, districtKey(c.w, x.d), &c.district); err != nil {
		return err
	}
	if err := c.get(tx, Customer, key, &c.customer); err != nil {
		return err
	}
	c.warehouse.ytd += x.amount
	c.district.ytd += x.amount
	y := &c.customer
	y.balance -= x.amount
	y.paid += x.amount
	y.payments++
	if string(y.credit[:]) == badCredit {
		x.note(c, y)
	}
	if err := c.put(tx, Warehouse, warehouseKey(c.w), &c.warehouse); err != nil {
		return err
	}
	if err := c.put(tx, District, districtKey(c.w, x.d), &c.district); err != nil {
		return err
	}
	if err := c.put(tx, Customer, key, y); err != nil {
		return err
	}
	h := &x.history
	*h = history{cw: y.w, cd: y.d, c: y.id, w: c.w, d: x.d, date: c.date, amount: x.amount}
	n := copy(h.data[:], trimmed(c.warehouse.name[:]))
	n += copy(h.data[n:], "    ")
	copy(h.data[n:], trimmed(c.district.name[:]))
	return c.insert(tx, History, historyKey(y.w, y.d, y.id, y.payments), h)
}

// note puts the payment in front of the data of a customer of bad credit, whose end is cut off.
func (x *paymentClient) note(c *client, y *customer) {
	b := x.text[:0]
	for _, n := range [...]uint64{uint64(y.id), uint64(y.d), uint64(y.w), uint64(x.d), uint64(c.w)} {
		b = append(strconv.AppendUint(b, n, 10), ' ')
	}
	b = strconv.AppendInt(b, x.amount/100, 10)
	b = append(b, '.', '0'+byte(x.amount/10%10), '0'+byte(x.amount%10), '|')
	x.text = b
	copy(y.data[len(b):], y.data[:])
	copy(y.data[:], b)
}

// trimmed is a text without the zeros behind it.
func trimmed(text []byte) []byte {
	for len(text) > 0 && text[len(text)-1] == 0 {
		text = text[:len(text)-1]
	}
	return text
}
