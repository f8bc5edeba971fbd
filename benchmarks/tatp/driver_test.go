package tatp

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync/atomic"
	"testing"

	"txnode/benchmarks/reference"
	"txnode/benchmarks/workload"
	"txnode/benchmarks/workload/storetest"
)

// small makes conflicts, inserts and deletes frequent.
func small(o *Options) {
	o.Subscribers = 203
	o.Mix = [NumTypes]float64{10, 20, 10, 10, 10, 20, 20}
}

func TestRulesHold(t *testing.T) {
	for name, change := range map[string]func(o *Options){
		"TATP's rules":   small,
		"FORD's rules":   func(o *Options) { small(o); o.FORDRules = true },
		"one subscriber": func(o *Options) { small(o); o.Subscribers = 1 },
	} {
		t.Run(name, func(t *testing.T) {
			d := newTestDriver(t, change)
			store := reference.Open(reference.Options{Shards: 16})
			r := storetest.Load(t, d, store)
			var p population
			rows := 0
			for s := range d.options.Subscribers {
				p.populate(uint32(s))
				rows += 2
				for k := range numKinds {
					for _, has := range append(p.hasForwarding[k][:], p.hasAccess[k], p.hasFacility[k]) {
						if has {
							rows++
						}
					}
				}
			}
			if r.Existed || r.Records != rows {
				t.Errorf("loading %d rows reports %+v", rows, r)
			}
			for range 2 { // Verify changes nothing, and rounds may follow it
				storetest.Play(t, d, store, 1500)
				v, err := d.Verify(t.Context(), store)
				if err != nil {
					t.Fatal(err)
				}
				if v.Records < 2*d.options.Subscribers || len(v.Checks) != int(numRules)+5 {
					t.Errorf("report %+v", v)
				}
			}
			if d.ledgers[0].committed[inserted] == 0 || d.ledgers[0].committed[deleted] == 0 {
				t.Errorf("nothing inserted or deleted: %+v", d.ledgers[0])
			}
		})
	}
}

func TestExistingRowsAreTheBaseline(t *testing.T) {
	store := reference.Open(reference.Options{})
	first := newTestDriver(t, small)
	loaded := storetest.Load(t, first, store)
	storetest.Play(t, first, store, 500)

	second := newTestDriver(t, small)
	var last int
	r, err := second.Load(t.Context(), store, func(done, _ int) { last = done })
	if err != nil || !r.Existed || last != 203 || r.Records == loaded.Records {
		t.Fatalf("loading again reports %+v after %+v, %v, progress %d", r, loaded, err, last)
	}
	if _, err := second.Verify(t.Context(), store); err != nil {
		t.Error(err)
	}
	storetest.Play(t, second, store, 500)
	if _, err := second.Verify(t.Context(), store); err != nil {
		t.Error(err)
	}
}

func TestForeignData(t *testing.T) {
	for name, n := range map[string]int{"fewer": 202, "more": 204} {
		store := storetest.AnySchema(reference.Open(reference.Options{}))
		storetest.Load(t, newTestDriver(t, small), store)
		d := newTestDriver(t, func(o *Options) { small(o); o.Subscribers = n })
		if _, err := d.Load(t.Context(), store, nil); !errors.Is(err, workload.ErrForeign) {
			t.Errorf("%s subscribers are accepted: %v", name, err)
		}
	}
}

// One broken write is found, whatever it was, by Verify and by the next Load.
func TestBrokenStoresAreCaught(t *testing.T) {
	drop := func(storetest.Op) storetest.Verdict { return storetest.Verdict{Drop: true} }
	flip := func(offset int, bit byte) func(op storetest.Op) storetest.Verdict {
		return func(op storetest.Op) storetest.Verdict {
			op.Value[offset] ^= bit
			return storetest.Verdict{}
		}
	}
	forward, rows := ruleNames[ruleForwarding], "call_forwarding rows are those at the start plus inserts minus deletes"
	for _, test := range []struct {
		name    string
		loading bool // break a write of Load, else of a transaction
		kind    storetest.OpKind
		table   int
		rule    string
		spoil   func(op storetest.Op) storetest.Verdict
	}{
		{"lost insert", false, storetest.Insert, CallForwarding, rows, drop},
		{"lost delete", false, storetest.Delete, CallForwarding, rows, drop},
		{"damaged subscriber", false, storetest.Put, Subscriber, ruleNames[ruleSubscriber], flip(subNumber+1, 1)},
		{"damaged facility", false, storetest.Put, SpecialFacility, ruleNames[ruleFacility], flip(sfDataB, 0x80)},
		{"damaged end", false, storetest.Insert, CallForwarding, forward, flip(cfEnds, 0x40)},
		{"damaged number", false, storetest.Insert, CallForwarding, forward, flip(cfNumber+7, 0x40)},
		{"subscriber not loaded", true, storetest.Insert, Subscriber, ruleNames[ruleSubscriber], drop},
		{"secondary not loaded", true, storetest.Insert, Secondary, ruleNames[ruleSecondary], drop},
		{
			"secondary leads elsewhere", true, storetest.Insert, Secondary, ruleNames[ruleSecondary],
			flip(secSubscriber, 1),
		},
		{
			"access info not loaded", true, storetest.Insert, AccessInfo, "no access_info row appears or disappears",
			drop,
		},
		{"access info damaged", true, storetest.Insert, AccessInfo, ruleNames[ruleAccess], flip(aiData4, 0x80)},
		{"call forwarding not loaded", true, storetest.Insert, CallForwarding, rows, drop},
		{"facility not loaded", true, storetest.Insert, SpecialFacility, ruleNames[ruleReference], drop},
		{"inactive or active", true, storetest.Insert, SpecialFacility, ruleNames[ruleFacility], flip(sfActive, 2)},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := newTestDriver(t, small)
			var loaded, spoiled atomic.Bool
			store := storetest.Intercept(reference.Open(reference.Options{}),
				func(worker int, op storetest.Op) storetest.Verdict {
					if loaded.Load() == test.loading || op.Kind != test.kind || op.Table != test.table {
						return storetest.Verdict{}
					}
					// A facility with call forwarding, for the rule of references.
					if test.rule == ruleNames[ruleReference] && !hasForwarding(op.Key) {
						return storetest.Verdict{}
					}
					if spoiled.CompareAndSwap(false, true) {
						return test.spoil(op)
					}
					return storetest.Verdict{}
				})
			storetest.Load(t, d, store)
			loaded.Store(true)
			err := store.Run(t.Context(), 1, 1, func(ctx context.Context, id int, w workload.Worker) error {
				c := d.NewClient(id, 7, w).(*client)
				for !spoiled.Load() {
					c.Next()
					outcome, err := c.Run(ctx)
					if err != nil {
						return err
					}
					if spoiled.Load() && test.kind != storetest.Put && outcome != workload.Committed {
						// The store would have refused the operation that was dropped;
						// the client is right not to count it. Break another.
						spoiled.Store(false)
					}
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			r, err := d.Verify(t.Context(), store)
			if !errors.Is(err, workload.ErrInconsistent) || !strings.Contains(err.Error(), test.rule) {
				t.Errorf("not noticed as %q: %v, %+v", test.rule, err, r)
			}
			for _, c := range r.Checks {
				if c.Rule == test.rule && c.Holds {
					t.Errorf("the rule is reported to hold")
				}
			}
		})
	}
}

func hasForwarding(facility uint64) bool {
	var p population
	p.populate(uint32(facility))
	return p.hasForwarding[facility>>32-1] != [numStarts]bool{}
}

func TestDamagedDatabaseIsNotAdopted(t *testing.T) {
	store := storetest.Intercept(reference.Open(reference.Options{}), func(_ int, op storetest.Op) storetest.Verdict {
		return storetest.Verdict{Drop: op.Kind == storetest.Insert && op.Table == Secondary &&
			op.Key == subscriberNumber(17)}
	})
	storetest.Load(t, newTestDriver(t, small), store)
	_, err := newTestDriver(t, small).Load(t.Context(), store, nil)
	if !errors.Is(err, workload.ErrInconsistent) || !strings.Contains(err.Error(), "subscriber 17") {
		t.Errorf("Load returned %v", err)
	}
}

// A row that no transaction removes is missed by a transaction, with an error
// that names it.
func TestMissingRow(t *testing.T) {
	store := storetest.Intercept(reference.Open(reference.Options{}), func(_ int, op storetest.Op) storetest.Verdict {
		return storetest.Verdict{Drop: op.Kind == storetest.Insert && op.Table <= Secondary && op.Key == 7}
	})
	d := newTestDriver(t, small)
	storetest.Load(t, d, store)
	err := store.Run(t.Context(), 1, 1, func(ctx context.Context, id int, w workload.Worker) error {
		c := d.NewClient(id, 1, w).(*client)
		for typ, table := range map[int]int{
			GetSubscriberData: Subscriber, UpdateSubscriberData: Subscriber, UpdateLocation: Secondary,
			InsertCallForwarding: Secondary, DeleteCallForwarding: Secondary,
		} {
			c.Draw(typ)
			c.s = 7
			_, err := c.Run(ctx)
			var missing *RowError
			if !errors.As(err, &missing) || missing.Table != table || missing.Key != 7 ||
				!errors.Is(err, workload.ErrInconsistent) {
				t.Errorf("%s returned %v", typeNames[typ], err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Inserts and deletes of unknown outcome are accepted either way, but not as an
// excuse for more.
func TestUncertainTransactions(t *testing.T) {
	for _, lost := range []int64{0, 1000} {
		d := newTestDriver(t, func(o *Options) {
			small(o)
			o.Mix = [NumTypes]float64{InsertCallForwarding: 50, DeleteCallForwarding: 50}
		})
		var loaded atomic.Bool
		var ends, uncertain, inserts atomic.Int64
		store := storetest.Intercept(reference.Open(reference.Options{}),
			func(_ int, op storetest.Op) storetest.Verdict {
				switch {
				case !loaded.Load():
				case op.Kind == storetest.End:
					switch n := ends.Add(1); {
					case n%200 == 0:
						uncertain.Add(1)
						return storetest.Verdict{Err: workload.ErrUncertain} // it did not
					case n%200 == 100:
						uncertain.Add(1)
						return storetest.Verdict{After: workload.ErrUncertain} // it did
					}
				case op.Kind == storetest.Delete && inserts.Add(1) <= lost:
					return storetest.Verdict{Drop: true}
				}
				return storetest.Verdict{}
			})
		storetest.Load(t, d, store)
		loaded.Store(true)
		storetest.Play(t, d, store, 1000)
		loaded.Store(false)
		r, err := d.Verify(t.Context(), store)
		if uncertain.Load() < 10 {
			t.Fatalf("%d uncertain transactions; the test needs more", uncertain.Load())
		}
		if errors.Is(err, workload.ErrInconsistent) != (lost > 0) || (err != nil) != (lost > 0) {
			t.Errorf("with %d lost deletes: %v", lost, err)
		}
		if text := r.Checks[len(r.Checks)-1].Detail; !strings.Contains(text, "unknown outcome") {
			t.Errorf("the report does not mention uncertain transactions: %s", text)
		}
	}
}

// The shares of outcomes are TATP's: 62.5 % of types that need one of four
// kinds of row find it, half of that for those that need a call forwarding row
// present, or absent. With 2,000 uniformly drawn subscribers the bounds are
// wide enough for the population's own deviation.
func TestOutcomes(t *testing.T) {
	for _, ford := range []bool{false, true} {
		d := newTestDriver(t, func(o *Options) {
			o.Subscribers, o.NonUniformA, o.FORDRules = 2000, 0, ford
			o.Mix = [NumTypes]float64{10, 20, 10, 10, 10, 20, 20}
		})
		store := reference.Open(reference.Options{})
		storetest.Load(t, d, store)
		out := storetest.Play(t, d, store, 5000)
		share := func(typ int, o workload.Outcome) float64 {
			sum := out[typ][workload.Committed] + out[typ][workload.RolledBack] + out[typ][workload.RowAbsent]
			return float64(out[typ][o]) / float64(sum)
		}
		insert, exists, destination := 0.3125, 0.3125, 0.204
		if ford {
			// An insert succeeds whether the row exists or not, which fills the
			// table up: a key is present after an insert, absent after a delete.
			insert, exists, destination = 0.625, 0, 0.087
		}
		for _, test := range []struct {
			typ   int
			o     workload.Outcome
			want  float64
			close float64
		}{
			{GetSubscriberData, workload.Committed, 1, 0},
			{UpdateLocation, workload.Committed, 1, 0},
			{GetAccessData, workload.Committed, 0.625, 0.03},
			{GetAccessData, workload.RowAbsent, 0.375, 0.03},
			{UpdateSubscriberData, workload.Committed, 0.625, 0.03},
			{DeleteCallForwarding, workload.Committed, 0.3125, 0.03},
			{InsertCallForwarding, workload.Committed, insert, 0.03},
			{InsertCallForwarding, workload.RolledBack, exists, 0.03},
			{GetNewDestination, workload.Committed, destination, 0.03},
			{GetNewDestination, workload.RolledBack, 0, 0},
		} {
			if got := share(test.typ, test.o); math.Abs(got-test.want) > test.close {
				t.Errorf("FORD's rules %v: %.1f %% of %s %v, expected %.1f %%", ford, 100*got, typeNames[test.typ],
					test.o, 100*test.want)
			}
		}
	}
}

func TestValidate(t *testing.T) {
	o := DefaultOptions()
	if err := o.Validate(); err != nil {
		t.Fatal(err)
	}
	o = Options{Subscribers: 0, NonUniformA: -2, Mix: [NumTypes]float64{1}}
	var oe *workload.OptionsError
	if err := o.Validate(); !errors.As(err, &oe) || len(oe.Faults) != 3 {
		t.Errorf("Validate returned %v", err)
	}
	for i, field := range []string{"Subscribers", "NonUniformA", "Mix"} {
		if oe != nil && i < len(oe.Faults) && !strings.HasPrefix(oe.Faults[i], field) {
			t.Errorf("fault %d is %q; it must be about %s", i, oe.Faults[i], field)
		}
	}
	if _, err := New(o); !errors.As(err, &oe) {
		t.Errorf("New accepts the options: %v", err)
	}
}
