package tpcc

import (
	"fmt"

	"txnode/benchmarks/workload"
)

// Options are the parameters of the benchmark. Start from DefaultOptions or FORDOptions: the zero
// value is not valid.
type Options struct {
	// Warehouses scale the database. Default 1; at most 65,535.
	Warehouses int
	// Customers of each district, and orders that it begins with. TPC-C has 3,000; from 10 to
	// 3,000.
	Customers int
	// Items, and rows of stock of each warehouse. TPC-C has 100,000; from 100 to 100,000.
	Items int
	// Mix is the percentage of each transaction type, in the order of the type numbers. They sum to
	// 100. Default 45, 43, 4, 4, 4.
	Mix [NumTypes]float64
	// Rollback is the percentage of New-Orders that name an item which does not exist. Default 1.
	Rollback float64
	// RemoteItems is the percentage of order lines that another warehouse supplies. Default 1.
	RemoteItems float64
	// RemotePayments is the percentage of Payments by a customer of another warehouse. Default 15.
	RemotePayments float64
	// Pace multiplies TPC-C's keying and think times: 1 for the times of clause 5.2.5.7, 0 for
	// none. They are waited in a closed loop only. Default 0.
	Pace float64
}

// Sizes that do not scale.
const (
	// Districts of each warehouse.
	Districts = 10
	maxLines  = 15 // of an order
	minLines  = 5

	maxWarehouses = 1<<16 - 1
	maxCustomers  = 3000
	maxItems      = 100_000
	maxPace       = 100
)

// DefaultOptions returns TPC-C's parameters with one warehouse.
func DefaultOptions() Options {
	return Options{
		Warehouses: 1, Customers: maxCustomers, Items: maxItems, Mix: [NumTypes]float64{45, 43, 4, 4, 4},
		Rollback: 1, RemoteItems: 1, RemotePayments: 15,
	}
}

// FORDOptions returns the sizes of FORD's evaluation: 8 warehouses, 300 customers a
// district, 10,000 items.
func FORDOptions() Options {
	o := DefaultOptions()
	o.Warehouses, o.Customers, o.Items = 8, 300, 10_000
	return o
}

// Validate returns nil, or an *workload.OptionsError that lists every fault.
func (o *Options) Validate() error {
	var faults []string
	between := func(field string, value, lo, hi int) {
		if value < lo || value > hi {
			faults = append(faults, fmt.Sprintf("%s is %d; it must be from %d to %d", field, value, lo, hi))
		}
	}
	percent := func(field string, value, hi float64) {
		if !(value >= 0 && value <= hi) {
			faults = append(faults, fmt.Sprintf("%s is %v; it must be from 0 to %v", field, value, hi))
		}
	}
	between("Warehouses", o.Warehouses, 1, maxWarehouses)
	between("Customers", o.Customers, 10, maxCustomers)
	between("Items", o.Items, 100, maxItems)
	percent("Rollback", o.Rollback, 100)
	percent("RemoteItems", o.RemoteItems, 100)
	percent("RemotePayments", o.RemotePayments, 100)
	percent("Pace", o.Pace, maxPace)
	if err := workload.CheckMix(o.Mix[:]); err != nil {
		faults = append(faults, fmt.Sprintf("Mix: %v", err))
	}
	if faults != nil {
		return &workload.OptionsError{Of: "tpcc", Faults: faults}
	}
	return nil
}

// delivered is how many of the orders of a new district have been delivered: TPC-C's 2,100 of
// 3,000.
func (o *Options) delivered() int { return o.Customers * 7 / 10 }

// names is how many last names there are.
func (o *Options) names() int { return min(o.Customers, numNames) }
