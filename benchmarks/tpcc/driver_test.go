package tpcc

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"txnode/benchmarks/reference"
	"txnode/benchmarks/workload"
	"txnode/benchmarks/workload/storetest"
)

// small makes conflicts, rollbacks, remote rows and deliveries frequent.
func small(o *Options) {
	o.Warehouses, o.Customers, o.Items = 2, 30, 100
	o.Mix = [NumTypes]float64{40, 30, 10, 10, 10}
	o.Rollback, o.RemoteItems = 10, 20
}

func newTestDriver(t testing.TB, change func(o *Options)) *Driver {
	t.Helper()
	o := DefaultOptions()
	change(&o)
	d, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestConditionsHold(t *testing.T) {
	for name, change := range map[string]func(o *Options){
		"two warehouses": small,
		"one warehouse":  func(o *Options) { small(o); o.Warehouses = 1 },
		"no deliveries":  func(o *Options) { small(o); o.Mix = [NumTypes]float64{50, 50, 0, 0, 0} },
		"all delivered":  func(o *Options) { small(o); o.Mix = [NumTypes]float64{10, 10, 0, 80, 0} },
	} {
		t.Run(name, func(t *testing.T) {
			d := newTestDriver(t, change)
			store := reference.Open(reference.Options{Shards: 16})
			r := storetest.Load(t, d, store)
			w, o := d.options.Warehouses, &d.options
			if r.Existed || d.baseline[Warehouse] != w || d.baseline[District] != 10*w ||
				d.baseline[Customer] != 300*w || d.baseline[History] != 300*w ||
				d.baseline[Order] != 300*w || d.baseline[NewOrder] != 90*w || d.baseline[Item] != 100 ||
				d.baseline[Stock] != 100*w {
				t.Errorf("loading reports %+v, %v", r, d.baseline)
			}
			n, rolledBack := 0, uint64(0)
			for range 2 { // Verify changes nothing, and rounds may follow it
				outcomes := storetest.Play(t, d, store, 200)
				n += 8 * 200
				for typ, of := range outcomes {
					if of[workload.RowAbsent] != 0 || typ != NewOrderTxn && of[workload.RolledBack] != 0 {
						t.Errorf("%s: %v", typeNames[typ], of)
					}
					rolledBack += of[workload.RolledBack]
				}
				v, err := d.Verify(t.Context(), store)
				if err != nil {
					t.Fatal(err)
				}
				if v.Records < r.Records-d.baseline[NewOrder] || len(v.Checks) != 20 {
					t.Errorf("report of %d records and %d rules", v.Records, len(v.Checks))
				}
			}
			if want := float64(n) * o.Mix[NewOrderTxn] / 100 * o.Rollback / 100; float64(rolledBack) < want/2 ||
				float64(rolledBack) > 2*want {
				t.Errorf("%d New-Orders rolled back, want about %.0f", rolledBack, want)
			}
			// What is there is the baseline of the next run.
			next := newTestDriver(t, change)
			if r, err := next.Load(t.Context(), store, nil); err != nil || !r.Existed {
				t.Fatalf("loading again reports %+v, %v", r, err)
			}
			storetest.Play(t, next, store, 50)
			if _, err := next.Verify(t.Context(), store); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestForeignData(t *testing.T) {
	for name, change := range map[string]func(o *Options){
		"fewer than 3 warehouses": func(o *Options) { o.Warehouses = 3 },
		"more than 1 warehouses":  func(o *Options) { o.Warehouses = 1 },
		"fewer than 101 items":    func(o *Options) { o.Items = 101 },
		"more than 29 customers":  func(o *Options) { o.Customers = 29 },
	} {
		store := storetest.AnySchema(reference.Open(reference.Options{}))
		storetest.Load(t, newTestDriver(t, small), store)
		if name == "more than 1 warehouses" {
			// Payments by customers of warehouse 2 are none of a database of one.
			storetest.Play(t, newTestDriver(t, small), store, 1)
		}
		d := newTestDriver(t, func(o *Options) { small(o); change(o) })
		if _, err := d.Load(t.Context(), store, nil); !errors.Is(err, workload.ErrForeign) ||
			!strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// One broken write is found, whatever it was, by Verify and by the next Load.
func TestBrokenStoresAreCaught(t *testing.T) {
	drop := func(storetest.Op) storetest.Verdict { return storetest.Verdict{Drop: true} }
	flip := func(table int, offset int) func(op storetest.Op) storetest.Verdict {
		if offset < 0 {
			offset += sizes[table]
		}
		return func(op storetest.Op) storetest.Verdict { op.Value[offset] ^= 1; return storetest.Verdict{} }
	}
	for _, test := range []struct {
		name    string
		loading bool // break a write of Load, else of a transaction
		kind    storetest.OpKind
		table   int
		rules   []string // one of which must be broken
		spoil   func(op storetest.Op) storetest.Verdict
	}{
		{"lost warehouse payment", false, storetest.Put, Warehouse, []string{"3.3.2.1:", "3.3.2.8:"}, drop},
		{"lost district update", false, storetest.Put, District, []string{"3.3.2.1:", "3.3.2.2:", "3.3.2.9:"}, drop},
		{"lost order", false, storetest.Insert, Order, []string{"3.3.2.2:", "3.3.2.5:", "3.3.2.6:"}, drop},
		{"lost new order", false, storetest.Insert, NewOrder, []string{"3.3.2.5:", "3.3.2.3:", "3.3.2.2:"}, drop},
		{"lost line", false, storetest.Insert, OrderLine, []string{"3.3.2.4:", "3.3.2.6:"}, drop},
		{"lost carrier", false, storetest.Put, Order, []string{"3.3.2.5:", "3.3.2.7:"}, drop},
		{"lost delivery date", false, storetest.Put, OrderLine, []string{"3.3.2.7:"}, drop},
		{"lost delete", false, storetest.Delete, NewOrder, []string{"3.3.2.5:", "3.3.2.11"}, drop},
		{"lost customer", false, storetest.Put, Customer, []string{"3.3.2.10:", "3.3.2.12:"}, drop},
		{"lost history", false, storetest.Insert, History, []string{"history is that"}, drop},
		{"lost stock", false, storetest.Put, Stock, []string{"stock counts"}, drop},
		{"lost entry of an index", false, storetest.Insert, CustomerOrder, []string{"the index by customer"}, drop},
		{"stock damaged", false, storetest.Put, Stock, []string{"every row is whole"}, flip(Stock, 0)},
		{"amount damaged", false, storetest.Insert, History, []string{"3.3.2.8:"}, flip(History, -30)},
		{"customer not loaded", true, storetest.Insert, Customer, []string{"every row is whole"}, drop},
		{"name not loaded", true, storetest.Insert, CustomerName, []string{"the index by last name"}, drop},
		{
			"name damaged", true, storetest.Insert, CustomerName, []string{"the index by last name"},
			flip(CustomerName, 3),
		},
		{"history not loaded", true, storetest.Insert, History, []string{"a customer's counters"}, drop},
		{"item damaged", true, storetest.Insert, Item, []string{"every row is whole"}, flip(Item, 0)},
		{"line damaged", true, storetest.Insert, OrderLine, []string{"every row is whole"}, flip(OrderLine, 0)},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := newTestDriver(t, func(o *Options) { small(o); o.Warehouses, o.Rollback = 1, 0 })
			var loaded, spoiled atomic.Bool
			var key atomic.Uint64
			store := storetest.Intercept(reference.Open(reference.Options{}),
				func(_ int, op storetest.Op) storetest.Verdict {
					if loaded.Load() == test.loading || op.Kind != test.kind || op.Table != test.table {
						return storetest.Verdict{}
					}
					if spoiled.CompareAndSwap(false, true) {
						key.Store(op.Key)
					} else if op.Key != key.Load() { // else the transaction has begun again
						return storetest.Verdict{}
					}
					return test.spoil(op)
				})
			storetest.Load(t, d, store)
			loaded.Store(true)
			err := store.Run(t.Context(), 1, 1, func(ctx context.Context, id int, w workload.Worker) error {
				c := d.NewClient(id, 7, w)
				for !spoiled.Load() {
					c.Next()
					if _, err := c.Run(ctx); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			_, err = d.Verify(t.Context(), store)
			if !errors.Is(err, workload.ErrInconsistent) {
				t.Fatalf("Verify says %v", err)
			}
			for _, rule := range test.rules {
				if strings.Contains(err.Error(), rule) {
					return
				}
			}
			t.Errorf("Verify says %v", err)
		})
	}
}

// shared is a store that other processes have open.
type shared struct{ workload.Store }

func (shared) Others() bool { return true }

// TestBesideOthers: rules that look broken while other processes may change rows are not judged, so
// that a run can begin and end beside others. The database is called damaged where there are none.
func TestBesideOthers(t *testing.T) {
	store := storetest.AnySchema(reference.Open(reference.Options{}))
	d := newTestDriver(t, small)
	storetest.Load(t, d, store)
	if _, err := d.Verify(t.Context(), shared{store}); err != nil {
		t.Errorf("all is well, and Verify says %v", err)
	}
	if err := store.Run(t.Context(), 1, 1, func(ctx context.Context, _ int, w workload.Worker) error {
		return w.Update(ctx, func(tx workload.Tx) error { return tx.Delete(Warehouse, warehouseKey(1)) })
	}); err != nil {
		t.Fatal(err)
	}
	next := newTestDriver(t, small)
	if _, err := next.Load(t.Context(), shared{store}, nil); err != nil {
		t.Errorf("beside others Load says %v", err)
	}
	r, err := next.Verify(t.Context(), shared{store})
	if err != nil || !slices.ContainsFunc(r.Checks, func(c workload.Check) bool {
		return strings.HasPrefix(c.Detail, "not judged")
	}) {
		t.Errorf("beside others Verify says %v, %+v", err, r)
	}
	next = newTestDriver(t, small)
	if _, err := next.Load(t.Context(), store, nil); !errors.Is(err, workload.ErrInconsistent) ||
		!strings.Contains(err.Error(), "damaged before this run") {
		t.Errorf("Load says %v", err)
	}
	if _, err := d.Verify(t.Context(), store); !errors.Is(err, workload.ErrInconsistent) {
		t.Errorf("Verify says %v", err)
	}
}

// Transactions of unknown outcome are counted either way.
func TestUncertain(t *testing.T) {
	for _, there := range []bool{false, true} {
		var loaded atomic.Bool
		var n atomic.Int64
		store := storetest.Intercept(reference.Open(reference.Options{}),
			func(_ int, op storetest.Op) storetest.Verdict {
				switch {
				case !loaded.Load() || op.Kind != storetest.End || op.View || n.Add(1)%5 != 0:
				case there:
					return storetest.Verdict{After: workload.ErrUncertain}
				default:
					return storetest.Verdict{Err: workload.ErrUncertain}
				}
				return storetest.Verdict{}
			})
		d := newTestDriver(t, small)
		storetest.Load(t, d, store)
		loaded.Store(true)
		storetest.Play(t, d, store, 100)
		if _, err := d.Verify(t.Context(), store); err != nil {
			t.Errorf("they are there: %v: %v", there, err)
		}
	}
}

func TestOptions(t *testing.T) {
	_, err := New(Options{Rollback: -1, RemoteItems: 101, RemotePayments: -1, Pace: -1})
	var faults *workload.OptionsError
	if !errors.As(err, &faults) || len(faults.Faults) != 8 {
		t.Fatal(err)
	}
	for _, o := range []Options{DefaultOptions(), FORDOptions()} {
		if err := o.Validate(); err != nil {
			t.Error(err)
		}
	}
}

func TestStoreWithoutRanges(t *testing.T) {
	c := newTestDriver(t, small).NewClient(0, 1, nil).(*client)
	if err := c.runDelivery(struct{ workload.Tx }{}); !errors.Is(err, workload.ErrNoRanges) {
		t.Error(err)
	}
}
