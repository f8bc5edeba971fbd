package tatp

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"txnode/benchmarks/reference"
	"txnode/benchmarks/workload"
	"txnode/benchmarks/workload/storetest"
)

// trivial is a worker and transaction that answers every Get with the rows of
// subscriber 0, or with absence.
type trivial struct {
	rows   [numTables][]byte
	absent bool
}

func newTrivial() *trivial {
	w := &trivial{}
	var p population
	p.populate(0)
	p.facility[0][sfActive] = 1
	p.forwarding[0][0][cfEnds] = 12
	w.rows = [numTables][]byte{p.subscriber[:], p.secondary[:], p.facility[0][:], p.access[0][:], p.forwarding[0][0][:]}
	return w
}

func (w *trivial) Update(_ context.Context, fn func(workload.Tx) error) error { return fn(w) }
func (w *trivial) View(_ context.Context, fn func(workload.Tx) error) error   { return fn(w) }
func (w *trivial) Counters() workload.Counters                                { return workload.Counters{} }
func (w *trivial) Stage(int, uint64, workload.Mode)                           {}
func (w *trivial) Put(int, uint64, []byte) error                              { return nil }
func (w *trivial) Prepare(uses []workload.Use) workload.Plan                  { return workload.PlanEach(uses) }

func (w *trivial) Get(table int, _ uint64) ([]byte, error) {
	if w.absent && table >= SpecialFacility {
		return nil, workload.ErrNotFound
	}
	return w.rows[table], nil
}

func (w *trivial) Insert(int, uint64, []byte) error {
	if !w.absent {
		return workload.ErrExists
	}
	return nil
}

func (w *trivial) Delete(int, uint64) error {
	if w.absent {
		return workload.ErrNotFound
	}
	return nil
}

func newTestDriver(t testing.TB, change func(o *Options)) *Driver {
	t.Helper()
	o := DefaultOptions()
	if change != nil {
		change(&o)
	}
	d, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestNothingIsAllocatedPerTransaction(t *testing.T) {
	for _, ford := range []bool{false, true} {
		for _, absent := range []bool{false, true} {
			w := newTrivial()
			w.absent = absent
			c := newTestDriver(t, func(o *Options) { o.FORDRules = ford }).NewClient(0, 1, w)
			n := testing.AllocsPerRun(10_000, func() {
				c.Next()
				if _, err := c.Run(t.Context()); err != nil {
					t.Error(err)
				}
			})
			if n != 0 {
				t.Errorf("FORD's rules %v, rows absent %v: %v allocations per transaction", ford, absent, n)
			}
		}
	}
}

// recorder writes down what a client asks of its store, a line per round trip
// that staging makes possible.
type recorder struct {
	client *client
	steps  []string
}

func (r *recorder) watch(_ int, op storetest.Op) storetest.Verdict {
	if r.client == nil || op.Kind == storetest.End {
		return storetest.Verdict{}
	}
	if op.Kind == storetest.Begin {
		r.steps = []string{map[bool]string{true: "view", false: "update"}[op.View]}
		return storetest.Verdict{}
	}
	key := "?"
	s, kind := r.client.s, r.client.kind
	switch op.Table {
	case Subscriber:
		if op.Key == subscriberKey(s) {
			key = "sub"
		}
	case Secondary:
		if op.Key == subscriberNumber(s) {
			key = "sec"
		}
	case SpecialFacility:
		if op.Key == facilityKey(s, kind) {
			key = "sf"
		}
	case AccessInfo:
		if op.Key == accessKey(s, kind) {
			key = "ai"
		}
	case CallForwarding:
		for _, start := range starts {
			if op.Key == forwardingKey(s, kind, start) {
				key = fmt.Sprintf("cf%d", start)
			}
		}
	}
	text := op.Kind.String() + " " + key
	if op.Kind == storetest.Stage && op.Mode == workload.Update {
		text += "!"
	}
	r.steps = append(r.steps, text)
	return storetest.Verdict{}
}

// Each type on chosen rows: its outcome, and the operations in their order, with
// FORD's numbers of reads, writes and dependent steps.
func TestTransactions(t *testing.T) {
	const s, kind = 5, 2
	facility := func(active byte) func(tx workload.Tx) error {
		return func(tx workload.Tx) error {
			return tx.Put(SpecialFacility, facilityKey(s, kind), []byte{active, 0, 0, 'A', 'B', 'C', 'D', 'E'})
		}
	}
	forwarding := func(start uint64, end byte) func(tx workload.Tx) error {
		return func(tx workload.Tx) error {
			return tx.Put(CallForwarding, forwardingKey(s, kind, start), append([]byte{end}, "012345678901234"...))
		}
	}
	access := func(tx workload.Tx) error {
		return tx.Put(AccessInfo, accessKey(s, kind), append([]byte{1, 2}, "ABCDEFGH\x00\x00\x00\x00\x00\x00"...))
	}
	type setup []func(tx workload.Tx) error
	const newDestination = "view, Get sf, Stage cf0, Stage cf8, Get cf0, Get cf8"
	for _, test := range []struct {
		typ     int
		ford    bool
		rows    setup
		outcome workload.Outcome
		change  change
		ops     string
	}{
		{GetSubscriberData, false, nil, workload.Committed, unchanged, "view, Get sub"},
		{GetAccessData, false, setup{access}, workload.Committed, unchanged, "view, Get ai"},
		{GetAccessData, false, nil, workload.RowAbsent, unchanged, "view, Get ai"},

		// From 8 o'clock on, until 10.
		{GetNewDestination, false, nil, workload.RowAbsent, unchanged, "view, Get sf"},
		{
			GetNewDestination, false, setup{facility(0), forwarding(0, 24)}, workload.RowAbsent,
			unchanged, "view, Get sf",
		},
		{GetNewDestination, false, setup{facility(1)}, workload.RowAbsent, unchanged, newDestination},
		{
			GetNewDestination, false, setup{facility(1), forwarding(8, 10)}, workload.RowAbsent,
			unchanged, newDestination,
		},
		{
			GetNewDestination, false, setup{facility(1), forwarding(8, 11)}, workload.Committed,
			unchanged, newDestination,
		},
		{
			GetNewDestination, false, setup{facility(1), forwarding(16, 20)}, workload.RowAbsent,
			unchanged, newDestination,
		},
		{GetNewDestination, true, setup{facility(1), forwarding(8, 11)}, workload.RowAbsent, unchanged,
			"view, Get sf, Stage cf0, Stage cf8, Get cf0"},
		{
			GetNewDestination, true, setup{facility(1), forwarding(0, 3), forwarding(8, 11)}, workload.Committed,
			unchanged, newDestination,
		},
		{
			GetNewDestination, true, setup{facility(1), forwarding(0, 3), forwarding(8, 10)}, workload.RowAbsent,
			unchanged, newDestination,
		},

		{UpdateSubscriberData, false, setup{facility(1)}, workload.Committed, unchanged,
			"update, Stage sub!, Stage sf!, Get sub, Get sf, Put sub, Put sf"},
		{
			UpdateSubscriberData, false, nil, workload.RowAbsent, unchanged,
			"update, Stage sub!, Stage sf!, Get sub, Get sf",
		},

		{
			UpdateLocation, false, nil, workload.Committed, unchanged,
			"update, Stage sec, Get sec, Stage sub!, Get sub, Put sub",
		},

		{
			InsertCallForwarding, false, nil, workload.RowAbsent, unchanged,
			"update, Stage sec, Get sec, Stage sf, Get sf",
		},
		{InsertCallForwarding, false, setup{facility(0)}, workload.Committed, inserted,
			"update, Stage sec, Get sec, Stage sf, Get sf, Stage cf8!, Insert cf8"},
		{InsertCallForwarding, false, setup{facility(0), forwarding(8, 9)}, workload.RolledBack, unchanged,
			"update, Stage sec, Get sec, Stage sf, Get sf, Stage cf8!, Insert cf8"},
		{InsertCallForwarding, true, setup{facility(0)}, workload.Committed, inserted,
			"update, Stage sec, Get sec, Stage sf, Get sf, Stage cf8!, Get cf8, Put cf8"},
		{InsertCallForwarding, true, setup{facility(0), forwarding(8, 9)}, workload.Committed, unchanged,
			"update, Stage sec, Get sec, Stage sf, Get sf, Stage cf8!, Get cf8, Put cf8"},

		{DeleteCallForwarding, false, setup{facility(0), forwarding(8, 9)}, workload.Committed, deleted,
			"update, Stage sec, Get sec, Stage cf8!, Delete cf8"},
		{DeleteCallForwarding, false, setup{facility(0), forwarding(0, 3)}, workload.RowAbsent, unchanged,
			"update, Stage sec, Get sec, Stage cf8!, Delete cf8"},
	} {
		d := newTestDriver(t, func(o *Options) { o.Subscribers, o.FORDRules = 10, test.ford })
		r := &recorder{}
		store := storetest.Intercept(reference.Open(reference.Options{}), r.watch)
		if _, err := d.Load(t.Context(), store, nil); err != nil {
			t.Fatal(err)
		}
		err := store.Run(t.Context(), 1, 1, func(ctx context.Context, id int, w workload.Worker) error {
			c := d.NewClient(id, 1, w).(*client)
			err := w.Update(ctx, func(tx workload.Tx) error {
				remove := func(table int, key uint64) {
					if err := tx.Delete(table, key); err != nil && !errors.Is(err, workload.ErrNotFound) {
						t.Error(err)
					}
				}
				remove(AccessInfo, accessKey(s, kind))
				remove(SpecialFacility, facilityKey(s, kind))
				for _, start := range starts {
					remove(CallForwarding, forwardingKey(s, kind, start))
				}
				for _, row := range test.rows {
					if err := row(tx); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				return err
			}
			c.Draw(test.typ)
			c.s, c.kind, c.starts, c.end = s, kind, 1, 10
			c.forwarding.draw(&c.rng)
			want := c.forwarding
			r.client = c
			outcome, err := c.Run(ctx)
			r.client = nil
			if err != nil {
				return err
			}
			name := fmt.Sprintf("%s (FORD's rules %v, %d rows)", typeNames[test.typ], test.ford, len(test.rows))
			if ops := strings.Join(r.steps, ", "); outcome != test.outcome || ops != test.ops {
				t.Errorf("%s: %v by\n%s\nwant %v by\n%s", name, outcome, ops, test.outcome, test.ops)
			}
			if outcome == workload.Committed && (c.ledger.committed[test.change] != 1 || c.change != test.change) {
				t.Errorf("%s: counted as change %d, not %d", name, c.change, test.change)
			}
			return w.View(ctx, func(tx workload.Tx) error { return effect(t, tx, c, outcome, want) })
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// effect checks what a committed transaction has written.
func effect(t *testing.T, tx workload.Tx, c *client, outcome workload.Outcome, row forwardingRow) error {
	if outcome != workload.Committed {
		return nil
	}
	switch c.typ {
	case UpdateSubscriberData, UpdateLocation:
		var subscriber subscriberRow
		if err := need(tx, Subscriber, subscriberKey(c.s), subscriber[:]); err != nil {
			return err
		}
		var p population
		p.populate(c.s)
		if c.typ == UpdateLocation {
			p.subscriber.setLocation(c.location)
		} else {
			p.subscriber.setBit1(c.bit)
			var facility facilityRow
			if err := need(tx, SpecialFacility, facilityKey(c.s, c.kind), facility[:]); err != nil {
				return err
			}
			if want := (facilityRow{1, 0, c.data, 'A', 'B', 'C', 'D', 'E'}); facility != want {
				t.Errorf("the facility is %x, not %x", facility, want)
			}
		}
		if subscriber != p.subscriber {
			t.Errorf("%s makes subscriber %x, not %x", typeNames[c.typ], subscriber, p.subscriber)
		}
	case InsertCallForwarding, DeleteCallForwarding:
		var got forwardingRow
		err := want(tx, CallForwarding, forwardingKey(c.s, c.kind, starts[c.starts]), got[:])
		if c.typ == DeleteCallForwarding && !errors.Is(err, ErrRowAbsent) {
			t.Errorf("the row deleted is %x, %v", got, err)
		}
		if c.typ == InsertCallForwarding && (err != nil || got != row) {
			t.Errorf("the row inserted is %x, %v, not %x", got, err, row)
		}
	}
	return nil
}
