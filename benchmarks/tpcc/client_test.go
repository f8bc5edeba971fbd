package tpcc

import (
	"bytes"
	"context"
	"math"
	"reflect"
	"strings"
	"testing"

	"txnode/benchmarks/reference"
	"txnode/benchmarks/workload"
	"txnode/benchmarks/workload/storetest"
)

// play loads a store and gives a client of it, whose transactions all work.
func play(t *testing.T, change func(o *Options), do func(c *client, view func(fn func(tx workload.Tx) error))) {
	t.Helper()
	d := newTestDriver(t, change)
	store := reference.Open(reference.Options{})
	storetest.Load(t, d, store)
	err := store.Run(t.Context(), 1, 1, func(ctx context.Context, id int, w workload.Worker) error {
		do(d.NewClient(id, 1, w).(*client), func(fn func(tx workload.Tx) error) {
			t.Helper()
			if err := w.View(ctx, fn); err != nil {
				t.Fatal(err)
			}
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Verify(t.Context(), store); err != nil {
		t.Fatal(err)
	}
}

func run(t *testing.T, c *client) workload.Outcome {
	t.Helper()
	o, err := c.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// Each transaction does what the specification says, row by row.
func TestNewOrder(t *testing.T) {
	play(t, small, func(c *client, view func(func(tx workload.Tx) error)) {
		c.Draw(NewOrderTxn)
		x := &c.newOrder
		x.d, x.customer, x.n = 3, 7, 5
		for i := range x.lines[:x.n] {
			x.lines[i] = ordered{item: uint32(10 + i), supply: 1, quantity: uint8(1 + i)}
		}
		x.lines[4] = ordered{item: 10, supply: 2, quantity: 9}
		before := map[uint64]stock{}
		view(func(tx workload.Tx) error {
			for _, l := range x.lines[:5] {
				var s stock
				if err := c.get(tx, Stock, stockKey(l.supply, l.item), &s); err != nil {
					return err
				}
				before[stockKey(l.supply, l.item)] = s
			}
			return nil
		})
		if run(t, c) != workload.Committed {
			t.Fatal("it did not commit")
		}
		view(func(tx workload.Tx) error {
			var d district
			if err := c.get(tx, District, districtKey(1, 3), &d); err != nil || d.nextOrder != 32 {
				t.Errorf("district %+v, %v", d, err)
			}
			var o order
			want := order{w: 1, d: 3, id: 31, customer: 7, entry: o.entry, lines: 5}
			if err := c.get(tx, Order, orderKey(1, 3, 31), &o); err != nil || o.entry == 0 {
				t.Errorf("order %+v, %v", o, err)
			}
			if want.entry = o.entry; o != want {
				t.Errorf("order %+v, want %+v", o, want)
			}
			sum := cents(0)
			for i, l := range x.lines[:5] {
				var y orderLine
				var it item
				var s stock
				if err := c.get(tx, OrderLine, lineKey(1, 3, 31, uint8(i+1)), &y); err != nil {
					return err
				}
				if err := c.get(tx, Item, itemKey(l.item), &it); err != nil {
					return err
				}
				if err := c.get(tx, Stock, stockKey(l.supply, l.item), &s); err != nil {
					return err
				}
				was := before[stockKey(l.supply, l.item)]
				if y.amount != it.price*cents(l.quantity) || y.item != l.item || y.supply != l.supply ||
					y.quantity != l.quantity || y.delivery != 0 || y.info != was.dist[2] {
					t.Errorf("line %+v of item %+v", y, it)
				}
				left := was.quantity - uint16(l.quantity)
				if was.quantity < uint16(l.quantity)+10 {
					left += 91
				}
				if s.quantity != left || s.ytd != was.ytd+uint32(l.quantity) || s.orders != was.orders+1 ||
					s.remotes != uint32(l.supply-1) {
					t.Errorf("stock %d, %d, %d, %d after %d less", s.quantity, s.ytd, s.orders, s.remotes, l.quantity)
				}
				sum += y.amount
			}
			if want := total(sum, c.customer.discount, c.warehouse.tax, c.district.tax); x.total != want || want <= 0 {
				t.Errorf("a total of %d, want %d", x.total, want)
			}
			return nil
		})
		// An unused item undoes all.
		c.Draw(NewOrderTxn)
		x.lines[x.n-1].item = 101
		if run(t, c) != workload.RolledBack {
			t.Error("an unused item is accepted")
		}
	})
}

func TestTotal(t *testing.T) {
	for _, c := range []struct {
		sum    cents
		rates  [3]rate
		want   cents
		worked string
	}{
		{10_000, [3]rate{0, 0, 0}, 10_000, "100.00"},
		{10_000, [3]rate{5000, 2000, 2000}, 7000, "100 × 0.5 × 1.4"},
		{999, [3]rate{1234, 567, 89}, 933, "9.99 × 0.8766 × 1.0656 = 9.3317"},
		{1, [3]rate{5000, 0, 0}, 1, "half a cent is rounded up"},
	} {
		if got := total(c.sum, c.rates[0], c.rates[1], c.rates[2]); got != c.want {
			t.Errorf("%s: %d cents, want %d", c.worked, got, c.want)
		}
	}
}

func TestPayment(t *testing.T) {
	play(t, small, func(c *client, view func(func(tx workload.Tx) error)) {
		good, bad := 0, 0
		for id := uint16(1); id <= 30; id++ {
			var before customer
			var wh warehouse
			view(func(tx workload.Tx) error {
				if err := c.get(tx, Warehouse, 1, &wh); err != nil {
					return err
				}
				return c.get(tx, Customer, customerKey(2, 9, id), &before)
			})
			c.Draw(Payment)
			x := &c.payment
			x.d, x.customer, x.amount = 4, by{w: 2, d: 9, name: -1, id: id}, 12_345
			run(t, c)
			view(func(tx workload.Tx) error {
				var y customer
				if err := c.get(tx, Customer, customerKey(2, 9, id), &y); err != nil {
					return err
				}
				want := before
				want.balance, want.paid, want.payments = before.balance-12_345, before.paid+12_345, before.payments+1
				if before.credit == [2]byte{'B', 'C'} {
					bad++
					note := strings.Join([]string{itoa(int(id)), "9 2 4 1 123.45|"}, " ")
					if !strings.HasPrefix(string(y.data[:]), note) ||
						!bytes.Equal(y.data[len(note):], before.data[:500-len(note)]) {
						t.Errorf("data %q after %q", y.data, before.data)
					}
					want.data = y.data
				} else {
					good++
				}
				if y != want {
					t.Errorf("customer %+v, want %+v", y, want)
				}
				var h history
				if err := c.get(tx, History, historyKey(2, 9, id, 2), &h); err != nil {
					return err
				}
				text := string(trimmed(wh.name[:])) + "    " + string(trimmed(c.district.name[:]))
				if h.cw != 2 || h.cd != 9 || h.c != id || h.w != 1 || h.d != 4 || h.amount != 12_345 ||
					string(trimmed(h.data[:])) != text {
					t.Errorf("history %+v, want %q", h, text)
				}
				return nil
			})
		}
		if good == 0 || bad == 0 {
			t.Errorf("%d customers of good credit, %d of bad", good, bad)
		}
	})
}

func itoa(n int) string {
	if n < 10 {
		return string(rune('0' + n))
	}
	return itoa(n/10) + itoa(n%10)
}

// By last name: the one in the middle, by first name, rounded up.
func TestFindByName(t *testing.T) {
	if testing.Short() {
		t.Skip("loads a whole warehouse")
	}
	play(t, func(o *Options) { small(o); o.Customers = 3000; o.Warehouses = 1 },
		func(c *client, view func(func(tx workload.Tx) error)) {
			var lengths [16]int
			for name := range 1000 {
				view(func(tx workload.Tx) error {
					id, err := c.find(tx, by{w: 1, d: 2, name: name})
					if err != nil {
						return err
					}
					n, below := len(c.names), 0
					lengths[min(n, 15)]++
					var it [16]byte
					for _, x := range c.names {
						if x.id == id {
							it = x.first
						}
					}
					for _, x := range c.names {
						if bytes.Compare(x.first[:], it[:]) < 0 {
							below++
						}
					}
					if want := (n+1)/2 - 1; below != want {
						t.Errorf("%d of %d are below, want %d", below, n, want)
					}
					return nil
				})
			}
			if lengths[0] != 0 || lengths[1] == 0 || lengths[3] == 0 {
				t.Errorf("customers of a name: %v", lengths)
			}
		})
}

func TestDeliveryAndOrderStatus(t *testing.T) {
	play(t, small, func(c *client, view func(func(tx workload.Tx) error)) {
		for round := range 11 {
			c.Draw(Delivery)
			if round > 0 {
				var o order
				oldest := uint32(21 + round)
				view(func(tx workload.Tx) error { return c.get(tx, Order, orderKey(1, 5, min(oldest, 30)), &o) })
				var before customer
				view(func(tx workload.Tx) error { return c.get(tx, Customer, customerKey(1, 5, o.customer), &before) })
				run(t, c)
				var after customer
				view(func(tx workload.Tx) error { return c.get(tx, Customer, customerKey(1, 5, o.customer), &after) })
				if oldest > 30 {
					if c.delivery.delivered != 0 || after != before {
						t.Errorf("round %d delivers %d orders, and there are none", round, c.delivery.delivered)
					}
					continue
				}
				if c.delivery.delivered != 10 || after.deliveries != before.deliveries+1 ||
					after.balance <= before.balance {
					t.Errorf("round %d delivers %d orders; balance %d, then %d", round, c.delivery.delivered,
						before.balance, after.balance)
				}
				// Order-Status of that customer shows its last order, which this may be.
				c.Draw(OrderStatus)
				c.orderStatus.customer = by{w: 1, d: 5, name: -1, id: o.customer}
				run(t, c)
				if c.order.customer != o.customer || c.order.id < o.id || len(c.lines) != int(c.order.lines) {
					t.Errorf("order %+v with %d lines", c.order, len(c.lines))
				}
				if c.order.id == o.id && (c.order.carrier == 0 || c.lines[0].delivery == 0) {
					t.Errorf("order %+v is not delivered", c.order)
				}
			}
		}
	})
}

func TestStockLevel(t *testing.T) {
	play(t, small, func(c *client, view func(func(tx workload.Tx) error)) {
		c.Draw(StockLevel)
		for _, threshold := range []uint16{10, 55, 101} {
			c.stockLevel.threshold = threshold
			run(t, c)
			items := map[uint32]bool{}
			low := 0
			view(func(tx workload.Tx) error {
				for o := uint32(11); o <= 30; o++ {
					if err := c.readLines(tx, c.w, c.d, o); err != nil {
						return err
					}
					for _, l := range c.lines {
						items[l.item] = true
					}
				}
				for i := range items {
					var s stock
					if err := c.get(tx, Stock, stockKey(c.w, i), &s); err != nil {
						return err
					}
					if s.quantity < threshold {
						low++
					}
				}
				return nil
			})
			if c.stockLevel.low != low || len(c.stockLevel.items) != len(items) {
				t.Errorf("threshold %d: %d of %d items, want %d of %d", threshold, c.stockLevel.low,
					len(c.stockLevel.items), low, len(items))
			}
		}
	})
}

func TestNothingIsAllocatedPerTransaction(t *testing.T) {
	play(t, small, func(c *client, _ func(func(tx workload.Tx) error)) {
		for _, typ := range []int{OrderStatus, StockLevel} { // what others insert is the store's to allocate
			step := func() {
				c.Draw(typ)
				run(t, c)
			}
			for range 300 {
				step()
			}
			if n := testing.AllocsPerRun(100, step); n != 0 {
				t.Errorf("%s: %v allocations", typeNames[typ], n)
			}
		}
	})
}

// Rows come back as they were written, and every byte of a value belongs to a field.
func TestRows(t *testing.T) {
	var x codec
	for table, of := range tables {
		value := make([]byte, sizes[table])
		for i := range value {
			value[i] = byte(7*i + table + 1)
		}
		r := reflect.New(reflect.TypeOf(of.row).Elem()).Interface().(row)
		if err := x.decode(table, 0, value, r); err != nil {
			t.Fatal(err)
		}
		if got := x.encode(table, r); !bytes.Equal(got, value) {
			t.Errorf("%s: %x was %x", of.name, got, value)
		}
		if err := x.decode(table, 0, value[1:], r); err == nil {
			t.Errorf("%s: a value is accepted that is too short", of.name)
		}
		if sizes[table] > maxRow {
			t.Errorf("%s has %d bytes", of.name, sizes[table])
		}
	}
	if sizes[Customer] != maxRow {
		t.Errorf("the largest row has %d bytes, not %d", sizes[Customer], maxRow)
	}
}

// Keys are ordered as TPC-C's are, and keep their parts apart.
func TestKeys(t *testing.T) {
	if maxWarehouses >= 1<<16 || Districts >= 1<<districtBits || maxCustomers >= 1<<customerBits ||
		maxLines >= 1<<lineBits || numNames > 1<<nameBits || maxItems+1 >= 1<<itemBits {
		t.Error("a part does not fit its bits")
	}
	if 16+districtBits+customerBits+orderBits > 64 || 16+districtBits+orderBits+lineBits > 64 ||
		16+districtBits+nameBits+customerBits > 64 {
		t.Error("a key does not fit 64 bits")
	}
	k := lineKey(maxWarehouses, 10, 77, 15)
	if orderNumber(k>>lineBits) != 77 || customerNumber(customerOrderKey(9, 9, 3000, 5)>>orderBits) != 3000 ||
		orderNumber(customerOrderKey(9, 9, 3000, 5)) != 5 ||
		customerNumber(nameKey(2, 3, 999, 3000)) != 3000 {
		t.Error("parts do not come back")
	}
	if !(lineKey(1, 1, 2, 0) > lineKey(1, 1, 1, 15) && orderKey(1, 2, 0) > orderKey(1, 1, last) &&
		nameKey(1, 1, 5, 1) > nameKey(1, 1, 4, 3000)) {
		t.Error("keys are out of order")
	}
}

func TestLastNames(t *testing.T) {
	for n, want := range map[int]string{0: "BARBARBAR", 371: "PRICALLYOUGHT", 999: "EINGEINGEING"} {
		var text [16]byte
		for i := range text {
			text[i] = 'x'
		}
		putLastName(text[:], n)
		if string(trimmed(text[:])) != want {
			t.Errorf("name %d is %q, want %q", n, trimmed(text[:]), want)
		}
	}
}

// NURand favours numbers with many bits, and stays in its range.
func TestNonUniform(t *testing.T) {
	r := random{workload.NewRand(1, 1)}
	const draws = 300_000
	var count [3001]int
	o := DefaultOptions()
	for range draws {
		count[r.customer(&o)]++
	}
	most, some := 0, 0
	for c, n := range count {
		if n > 0 {
			some++
		}
		if c == 0 && n > 0 {
			t.Error("customer 0 is drawn")
		}
		most = max(most, n)
	}
	// The hottest of TPC-C's customers gets some 26 times the mean.
	if some < 2900 || most < 10*draws/3000 || most > 60*draws/3000 {
		t.Errorf("%d customers are drawn, the most frequent one %d times", some, most)
	}
	if delta := lastNameRun - lastNameLoad; delta < 65 || delta > 119 || delta == 96 || delta == 112 {
		t.Errorf("the constants of last names differ by %d", delta)
	}
}

func TestTexts(t *testing.T) {
	r := random{workload.NewRand(1, 1)}
	originals := 0
	for range 3000 {
		var text [50]byte
		r.data(text[:])
		n := len(trimmed(text[:]))
		if n < 26 || bytes.ContainsRune(text[:n], 0) {
			t.Fatalf("%q", text)
		}
		if bytes.Contains(text[:], []byte(original)) {
			originals++
		}
	}
	if math.Abs(float64(originals)-300) > 80 {
		t.Errorf("%d of 3000 texts are original", originals)
	}
}

// Keying and thinking take the times of the specification, on average.
func TestPause(t *testing.T) {
	d := newTestDriver(t, func(o *Options) { small(o); o.Pace = 0.5; o.Mix = [NumTypes]float64{45, 43, 4, 4, 4} })
	c := d.NewClient(0, 1, nil).(*client)
	const draws = 20_000
	sum := 0.0
	for range draws {
		sum += float64(c.Pause()) / 1e9
		if typ := c.typ; c.Next() != typ {
			t.Fatal("another transaction than was keyed in")
		}
	}
	want := 0.0
	for typ, share := range d.options.Mix {
		want += share / 100 * (keying[typ] + thinking[typ]) * 0.5
	}
	if got := sum / draws; math.Abs(got/want-1) > 0.05 {
		t.Errorf("%.2f s on average, want %.2f", got, want)
	}
	if newTestDriver(t, small).NewClient(0, 1, nil).(*client).Pause() != 0 {
		t.Error("there is a pause without Pace")
	}
}
