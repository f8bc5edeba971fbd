package tpcc

import (
	"slices"

	"txnode/benchmarks/workload"
)

// stockLevelClient is Stock-Level (clause 2.8).
type stockLevelClient struct {
	threshold uint16
	items     []uint32
	stock     stock
	low       int // items below the threshold
}

// recentOrders is how many orders Stock-Level looks back.
const recentOrders = 20

func (c *client) runStockLevel(tx workload.Tx) error {
	x, w, d := &c.stockLevel, c.w, c.d
	if err := c.get(tx, District, districtKey(w, d), &c.district); err != nil {
		return err
	}
	next := c.district.nextOrder
	first := uint32(1)
	if next > recentOrders {
		first = next - recentOrders
	}
	c.lines = c.lines[:0]
	err := c.scan(tx, OrderLine, workload.Range{From: lineKey(w, d, first, 0), To: lineKey(w, d, next, 0)}, c.lineStep)
	if err != nil {
		return err
	}
	x.items = x.items[:0]
	for i := range c.lines {
		x.items = append(x.items, c.lines[i].item)
	}
	slices.Sort(x.items)
	x.items = slices.Compact(x.items)
	for _, i := range x.items {
		tx.Stage(Stock, stockKey(w, i), workload.Read)
	}
	x.low = 0
	for _, i := range x.items {
		if err := c.get(tx, Stock, stockKey(w, i), &x.stock); err != nil {
			return err
		}
		if x.stock.quantity < x.threshold {
			x.low++
		}
	}
	return nil
}
