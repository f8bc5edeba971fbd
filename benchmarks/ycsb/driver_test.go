package ycsb

import (
	"errors"
	"math"
	"strings"
	"sync/atomic"
	"testing"

	"txnode/benchmarks/engine"
	"txnode/benchmarks/reference"
	"txnode/benchmarks/workload"
	"txnode/benchmarks/workload/storetest"
	"txnode/txn"
)

func newTestDriver(t testing.TB, change func(o *Options)) *Driver {
	t.Helper()
	o := DefaultOptions()
	o.Records = 500
	if change != nil {
		change(&o)
	}
	d, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func verify(t *testing.T, d *Driver, store workload.Store) workload.VerifyReport {
	t.Helper()
	v, err := d.Verify(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// Every workload keeps its books, on a map and on the engine, with each kind of key and
// distribution.
func TestBooksBalance(t *testing.T) {
	for _, letter := range Workloads(Ordered) {
		for i, distribution := range Distributions {
			d := func() *Driver {
				return newTestDriver(t, func(o *Options) {
					o.Workload, o.Distribution = letter, distribution
					o.ValueSize = []int{8, 13, 16, 100}[i]
					o.Keys = []string{Random, Dense}[i%2]
					o.KeyType = []string{Uint64, Text}[i/2]
					if o.Table = []string{Ordered, Hash}[i%2]; letter == "e" {
						o.Table = Ordered
					}
				})
			}
			t.Run(letter+"/"+distribution, func(t *testing.T) {
				play(t, d(), reference.Open(reference.Options{}))
			})
		}
	}
	t.Run("engine", func(t *testing.T) {
		s, err := engine.Open(t.Context(), txn.Options{BladeSize: 256 << 20, SegmentSize: 4 << 20})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close(t.Context())
		play(t, newTestDriver(t, func(o *Options) { o.Workload, o.KeyType = "f", Text }), s)
	})
}

func play(t *testing.T, d *Driver, store workload.Store) {
	t.Helper()
	r := storetest.Load(t, d, store)
	if r.Existed || r.Records != 500 {
		t.Fatalf("loading reports %+v", r)
	}
	inserted := uint64(0)
	for range 2 { // Verify changes nothing, and rounds may follow it
		outcomes := storetest.Play(t, d, store, 300)
		for i, name := range d.Types() {
			if name == "Insert" {
				inserted += outcomes[i][workload.Committed]
			}
		}
		if n := outcomes.Total()[workload.Committed]; n != 8*300 {
			t.Errorf("%d of %d operations committed", n, 8*300)
		}
		v := verify(t, d, store)
		checks := 3
		if d.options.Workload == "f" {
			checks++
		}
		if d.options.Table == Ordered {
			checks++
		}
		if uint64(v.Records) != 500+inserted || len(v.Checks) != checks {
			t.Errorf("after %d inserts: %+v", inserted, v)
		}
	}
	if d.has(Insert) && inserted == 0 {
		t.Error("nothing inserted")
	}
	// What is there is the baseline of the next run.
	next, err := New(d.options)
	if err != nil {
		t.Fatal(err)
	}
	if r, err = next.Load(t.Context(), store, nil); err != nil || !r.Existed || uint64(r.Records) != 500+inserted {
		t.Fatalf("loading again reports %+v, %v", r, err)
	}
	storetest.Play(t, next, store, 50)
	verify(t, next, store)
}

func TestForeignData(t *testing.T) {
	for name, change := range map[string]func(o *Options){
		"more records": func(o *Options) { o.Records = 501 },
		"other keys":   func(o *Options) { o.Keys = Dense },
	} {
		store := storetest.AnySchema(reference.Open(reference.Options{}))
		storetest.Load(t, newTestDriver(t, nil), store)
		if _, err := newTestDriver(t, change).Load(t.Context(), store, nil); !errors.Is(err, workload.ErrForeign) {
			t.Errorf("%s are accepted: %v", name, err)
		}
	}
	store := storetest.AnySchema(reference.Open(reference.Options{}))
	storetest.Load(t, newTestDriver(t, nil), store)
	if _, err := newTestDriver(t, func(o *Options) { o.ValueSize = 101 }).Load(t.Context(), store, nil); !errors.Is(err,
		workload.ErrInconsistent) {
		t.Errorf("values of another size are accepted: %v", err)
	}
}

// One broken write is found, whatever it was.
func TestBrokenStoresAreCaught(t *testing.T) {
	for _, test := range []struct {
		name, letter, rule string
		kind               storetest.OpKind
		spoil              func(op storetest.Op) storetest.Verdict
	}{
		{"lost insert", "d", "every record that was loaded or inserted is there", storetest.Insert,
			func(storetest.Op) storetest.Verdict { return storetest.Verdict{Drop: true} }},
		{"lost read-modify-write", "f", "the words of the values add up to the read-modify-writes", storetest.Put,
			func(storetest.Op) storetest.Verdict { return storetest.Verdict{Drop: true} }},
		{"damaged value", "a", "every record has a value that was written for it", storetest.Put,
			func(op storetest.Op) storetest.Verdict { op.Value[99] ^= 1; return storetest.Verdict{} }},
		{"insert that failed and is there", "d", "no record is there whose insert failed", storetest.End, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			var loaded, spoiled atomic.Bool
			failure := errors.New("after all")
			store := storetest.Intercept(reference.Open(reference.Options{}),
				func(_ int, op storetest.Op) storetest.Verdict {
					if !loaded.Load() || op.Kind != test.kind || op.View || !spoiled.CompareAndSwap(false, true) {
						return storetest.Verdict{}
					}
					if test.spoil == nil {
						return storetest.Verdict{After: failure}
					}
					return test.spoil(op)
				})
			// Uniform, so that no other write hides the damage, or reads it.
			d := newTestDriver(t, func(o *Options) {
				o.Workload, o.Distribution, o.Table = test.letter, Uniform, Ordered
			})
			storetest.Load(t, d, store)
			loaded.Store(true)
			runUntil(t, d, store, &spoiled, failure)
			_, err := d.Verify(t.Context(), store)
			if !errors.Is(err, workload.ErrInconsistent) || !strings.Contains(err.Error(), test.rule) {
				t.Errorf("Verify says %v", err)
			}
		})
	}
}

// An insert of unknown outcome may be there or not, and those that read it find it or not.
func TestUncertainInserts(t *testing.T) {
	for _, there := range []bool{false, true} {
		var loaded atomic.Bool
		store := storetest.Intercept(reference.Open(reference.Options{}),
			func(_ int, op storetest.Op) storetest.Verdict {
				switch {
				case !loaded.Load() || op.Kind != storetest.End || op.View:
				case there:
					return storetest.Verdict{After: workload.ErrUncertain}
				default:
					return storetest.Verdict{Err: workload.ErrUncertain}
				}
				return storetest.Verdict{}
			})
		d := newTestDriver(t, func(o *Options) { o.Workload = "d" })
		storetest.Load(t, d, store)
		loaded.Store(true)
		outcomes := storetest.Play(t, d, store, 300)
		verify(t, d, store)
		if absent := outcomes.Total()[workload.RowAbsent]; (absent == 0) != there {
			t.Errorf("inserts are there: %v, and %d reads found none", there, absent)
		}
		if len(d.numbers.lost) == 0 {
			t.Error("no insert is uncertain")
		}
	}
}

// A record that vanishes under a run ends the run.
func TestReadersNotice(t *testing.T) {
	store := reference.Open(reference.Options{})
	d := newTestDriver(t, func(o *Options) { o.Workload, o.Records = "c", 1 })
	storetest.Load(t, d, store)
	for want, change := range map[string]func(tx workload.Tx) error{
		"is not there":       func(tx workload.Tx) error { return tx.Delete(table, d.keyOf(0)) },
		"has 7 bytes":        func(tx workload.Tx) error { return tx.Put(table, d.keyOf(0), make([]byte, 7)) },
		"nobody has written": func(tx workload.Tx) error { return tx.Put(table, d.keyOf(0), make([]byte, 100)) },
	} {
		err := runOne(t, store, func(w workload.Worker) error {
			if err := w.Update(t.Context(), change); err != nil {
				return err
			}
			c := d.NewClient(0, 1, w)
			c.Next()
			_, err := c.Run(t.Context())
			return err
		})
		if !errors.Is(err, workload.ErrInconsistent) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// So do scans: of a record in between, too.
func TestScansNotice(t *testing.T) {
	for want, change := range map[string]func(d *Driver) func(tx workload.Tx) error{
		"has 7 bytes": func(d *Driver) func(tx workload.Tx) error {
			return func(tx workload.Tx) error { return tx.Put(table, d.keyOf(250), make([]byte, 7)) }
		},
		"nobody has written": func(d *Driver) func(tx workload.Tx) error {
			return func(tx workload.Tx) error { return tx.Put(table, d.keyOf(250), make([]byte, 100)) }
		},
	} {
		store := reference.Open(reference.Options{})
		d := newTestDriver(t, func(o *Options) {
			o.Workload, o.Table, o.Keys, o.Distribution = "e", Ordered, Dense, Uniform
		})
		storetest.Load(t, d, store)
		err := runOne(t, store, func(w workload.Worker) error {
			if err := w.Update(t.Context(), change(d)); err != nil {
				return err
			}
			c := d.NewClient(0, 1, w)
			for range 1000 {
				c.Next()
				if _, err := c.Run(t.Context()); err != nil {
					return err
				}
			}
			return nil
		})
		if !errors.Is(err, workload.ErrInconsistent) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	d := newTestDriver(t, func(o *Options) { o.Workload = "e" })
	c := d.NewClient(0, 1, nil).(*client)
	if err := c.scan(&unordered{}); !errors.Is(err, workload.ErrNoRanges) {
		t.Errorf("a store without ranges: %v", err)
	}
}

type unordered struct{ workload.Tx }

func TestOptions(t *testing.T) {
	o := Options{
		Workload: "x", Table: "o", ScanLength: -1, Keys: "k", KeyType: "t", Distribution: "d", Records: 0,
		ValueSize: 7, Theta: 1,
	}
	_, err := New(o)
	var faults *workload.OptionsError
	if !errors.As(err, &faults) || len(faults.Faults) != 9 {
		t.Fatal(err)
	}
	o = DefaultOptions()
	o.Workload, o.Table = "e", Hash
	if o.Validate() == nil {
		t.Error("scans of a hash table are accepted")
	}
	o = DefaultOptions()
	o.Theta = math.NaN()
	if o.Validate() == nil {
		t.Error("a skew that is no number is accepted")
	}
}

// The distributions are what they say.
func TestDistributions(t *testing.T) {
	const records, draws = 1000, 200_000
	share := func(distribution string, of func(n uint64) bool) float64 {
		d := newTestDriver(t, func(o *Options) { o.Records, o.Distribution, o.Workload = records, distribution, "c" })
		c := d.NewClient(0, 3, nil).(*client)
		hits := 0
		for range draws {
			if n := c.drawNumber(); n >= records {
				t.Fatalf("%s draws record %d", distribution, n)
			} else if of(n) {
				hits++
			}
		}
		return float64(hits) / draws
	}
	hottest := 1 / 7.7289 // 1/zeta(1000, 0.99)
	for _, c := range []struct {
		distribution string
		of           func(n uint64) bool
		want         float64
	}{
		{Zipfian, func(n uint64) bool { return n == 0 }, hottest},
		{Latest, func(n uint64) bool { return n == records-1 }, hottest},
		{Uniform, func(n uint64) bool { return n < 10 }, 0.01},
	} {
		if got := share(c.distribution, c.of); math.Abs(got-c.want) > 0.02*c.want+0.002 {
			t.Errorf("%s: a share of %.4f, want %.4f", c.distribution, got, c.want)
		}
	}
	top := workload.Scatter(0) % records
	if got := share(Scrambled, func(n uint64) bool { return n == top }); got < 0.95*hottest || got > 1.3*hottest {
		t.Errorf("scrambled: the hottest record has a share of %.4f", got)
	}
	if got := share(Scrambled, func(n uint64) bool { return n < records/2 }); math.Abs(got-0.5) > 0.15 {
		t.Errorf("scrambled: the lower half has a share of %.4f", got)
	}
}

func TestValues(t *testing.T) {
	for size := minValue; size < 40; size++ {
		v := make([]byte, size)
		fill(v, 77, 5)
		if !whole(v, 77) || !likely(v, 77) || word(v) != 5 {
			t.Fatalf("%d bytes: %x", size, v)
		}
		for i := range v {
			v[i] ^= 1
			if size > 8 && whole(v, 77) {
				t.Fatalf("byte %d of %d may be anything", i, size)
			}
			v[i] ^= 1
		}
		if size > 8 && whole(v, 78) {
			t.Fatalf("%d bytes are a value of another key", size)
		}
	}
}

func TestNothingIsAllocatedPerTransaction(t *testing.T) {
	for _, letter := range Workloads(Ordered) {
		store := reference.Open(reference.Options{})
		d := newTestDriver(t, func(o *Options) { o.Workload, o.Table = letter, Ordered })
		storetest.Load(t, d, store)
		if d.has(Insert) {
			continue // the map of the store grows
		}
		err := runOne(t, store, func(w workload.Worker) error {
			c := d.NewClient(0, 1, w)
			run := func() {
				c.Next()
				if _, err := c.Run(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			for range 1000 {
				run()
			}
			if n := testing.AllocsPerRun(1000, run); n != 0 {
				t.Errorf("workload %s: %v allocations per transaction", letter, n)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
