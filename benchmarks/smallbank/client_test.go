package smallbank

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"txnode/benchmarks/reference"
	"txnode/benchmarks/workload"
	"txnode/benchmarks/workload/storetest"
)

// trivial is a worker and transaction that answers every Get with one balance.
type trivial struct{ value [8]byte }

func (w *trivial) Update(_ context.Context, fn func(workload.Tx) error) error { return fn(w) }
func (w *trivial) View(_ context.Context, fn func(workload.Tx) error) error   { return fn(w) }
func (w *trivial) Counters() workload.Counters                                { return workload.Counters{} }
func (w *trivial) Stage(int, uint64, workload.Mode)                           {}
func (w *trivial) Get(int, uint64) ([]byte, error)                            { return w.value[:], nil }
func (w *trivial) Put(int, uint64, []byte) error                              { return nil }
func (w *trivial) Prepare(uses []workload.Use) workload.Plan                  { return workload.PlanEach(uses) }
func (w *trivial) Insert(int, uint64, []byte) error                           { return nil }
func (w *trivial) Delete(int, uint64) error                                   { return nil }

func newDriver(t testing.TB, change func(o *Options)) *Driver {
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
	d := newDriver(t, func(o *Options) { o.RecordPadding = 56 })
	for _, balance := range []Money{0, 10_0000} { // SendPayment rolls back, or does not
		w := &trivial{}
		binary.LittleEndian.PutUint64(w.value[:], uint64(balance))
		c := d.NewClient(0, 1, w)
		n := testing.AllocsPerRun(10_000, func() {
			c.Next()
			if _, err := c.Run(t.Context()); err != nil {
				t.Error(err)
			}
		})
		if n != 0 {
			t.Errorf("balance %v: %v allocations per transaction", balance, n)
		}
	}
}

// The keys, in FORD's numbers (reads and writes per type), all announced before
// the first is used.
func TestReadAndWriteSets(t *testing.T) {
	want := map[int]string{
		Amalgamate: "update: savings a U, checking a U, checking b U; Get savings a, checking a, checking b; " +
			"Put savings a, checking a, checking b",
		Balance:         "view: savings a R, checking a R; Get savings a, checking a; Put ",
		DepositChecking: "update: checking a U; Get checking a; Put checking a",
		SendPayment:     "update: checking a U, checking b U; Get checking a, checking b; Put checking a, checking b",
		TransactSaving:  "update: savings a U; Get savings a; Put savings a",
		WriteCheck:      "update: savings a R, checking a U; Get savings a, checking a; Put checking a",
	}
	d := newDriver(t, func(o *Options) { o.Accounts, o.HotAccounts = 10, 10 })
	var (
		c     *client
		kind  string
		parts map[storetest.OpKind][]string
		fault string
	)
	store := storetest.Intercept(reference.Open(reference.Options{}), func(_ int, op storetest.Op) storetest.Verdict {
		if c == nil {
			return storetest.Verdict{} // loading
		}
		kind = "update"
		if op.View {
			kind = "view"
		}
		name := "?"
		switch op.Key {
		case c.a:
			name = tableNames[op.Table] + " a"
		case c.b:
			name = tableNames[op.Table] + " b"
		}
		switch op.Kind {
		case storetest.Stage:
			if parts[storetest.Get] != nil {
				fault = "a key is announced after another was used"
			}
			name += [...]string{workload.Read: " R", workload.Update: " U"}[op.Mode]
		case storetest.Begin, storetest.End:
			return storetest.Verdict{}
		}
		parts[op.Kind] = append(parts[op.Kind], name)
		return storetest.Verdict{}
	})
	if _, err := d.Load(t.Context(), store, nil); err != nil {
		t.Fatal(err)
	}
	err := store.Run(t.Context(), 1, 1, func(ctx context.Context, id int, w workload.Worker) error {
		c = d.NewClient(id, 1, w).(*client)
		for typ, want := range want {
			parts = map[storetest.OpKind][]string{}
			c.Draw(typ)
			if outcome, err := c.Run(ctx); err != nil || outcome != workload.Committed {
				return fmt.Errorf("%s: %v, %v", typeNames[typ], outcome, err)
			}
			list := func(k storetest.OpKind) string { return strings.Join(parts[k], ", ") }
			got := fmt.Sprintf("%s: %s; Get %s; Put %s", kind, list(storetest.Stage), list(storetest.Get),
				list(storetest.Put))
			if got != want || parts[storetest.Insert] != nil || parts[storetest.Delete] != nil {
				t.Errorf("%s:\n got %s\nwant %s", typeNames[typ], got, want)
			}
		}
		return nil
	})
	if err != nil || fault != "" {
		t.Fatal(err, fault)
	}
}

// Each transaction on given balances: the customers are a = (savings, checking)
// and b = (0, 1).
func TestTransactions(t *testing.T) {
	for _, test := range []struct {
		typ              int
		savings, checks  string
		outcome          workload.Outcome
		savingsA, checkA string
		checkB           string
	}{
		{Amalgamate, "10", "2.5", workload.Committed, "0.0000", "0.0000", "13.5000"},
		{Amalgamate, "0", "-7", workload.Committed, "0.0000", "0.0000", "-6.0000"}, // debts move, too
		{Balance, "10", "2.5", workload.Committed, "10.0000", "2.5000", "1.0000"},
		{DepositChecking, "10", "-2.5", workload.Committed, "10.0000", "-1.2000", "1.0000"},
		{SendPayment, "10", "5", workload.Committed, "10.0000", "0.0000", "6.0000"},
		{SendPayment, "10", "4.9999", workload.RolledBack, "10.0000", "4.9999", "1.0000"}, // savings do not count
		{TransactSaving, "0", "-1", workload.Committed, "20.2000", "-1.0000", "1.0000"},
		{WriteCheck, "10", "-5", workload.Committed, "10.0000", "-10.0000", "1.0000"}, // covered exactly
		{WriteCheck, "9.9999", "-5", workload.Committed, "9.9999", "-11.0000", "1.0000"},
	} {
		d := newDriver(t, func(o *Options) { o.Accounts, o.HotAccounts = 2, 2 })
		store := reference.Open(reference.Options{})
		if _, err := d.Load(t.Context(), store, nil); err != nil {
			t.Fatal(err)
		}
		err := store.Run(t.Context(), 1, 1, func(ctx context.Context, id int, w workload.Worker) error {
			c := d.NewClient(id, 1, w).(*client)
			c.Draw(test.typ)
			c.a, c.b = 0, 1
			set := func(tx workload.Tx, table int, account uint64, text string) {
				m, err := ParseMoney(text)
				if err == nil {
					err = tx.Put(table, account, c.record(m))
				}
				if err != nil {
					t.Error(err)
				}
			}
			err := w.Update(ctx, func(tx workload.Tx) error {
				set(tx, Savings, 0, test.savings)
				set(tx, Checking, 0, test.checks)
				set(tx, Savings, 1, "0")
				set(tx, Checking, 1, "1")
				return nil
			})
			if err != nil {
				return err
			}
			outcome, err := c.Run(ctx)
			if err != nil {
				return err
			}
			return w.View(ctx, func(tx workload.Tx) error {
				var got [4]Money
				for i := range got {
					value, err := tx.Get(i%2, uint64(i/2))
					if err != nil {
						return err
					}
					got[i] = Money(binary.LittleEndian.Uint64(value))
				}
				if outcome != test.outcome || got[0].String() != test.savingsA || got[1].String() != test.checkA ||
					got[2] != 0 || got[3].String() != test.checkB {
					t.Errorf("%s with savings %s and checking %s: %v, then %v", typeNames[test.typ], test.savings,
						test.checks, outcome, got)
				}
				if before := c.total; test.typ == Balance && before.String() != "12.5000" {
					t.Errorf("Balance found %v", before)
				}
				return nil
			})
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestSavingsAreNotOverdrawn(t *testing.T) {
	d := newDriver(t, func(o *Options) { o.SavingsAmount = "-20.2" })
	w := &trivial{}
	c := d.NewClient(0, 1, w)
	for balance, want := range map[Money]workload.Outcome{20_2000: workload.Committed, 20_1999: workload.RolledBack} {
		binary.LittleEndian.PutUint64(w.value[:], uint64(balance))
		c.Draw(TransactSaving)
		if got, err := c.Run(t.Context()); err != nil || got != want {
			t.Errorf("withdrawing 20.2 of %v: %v, %v; want %v", balance, got, err, want)
		}
	}
}

// The draws of a million transactions, against the probabilities. The bounds
// are 5 standard deviations, and the seed is fixed.
func TestDistribution(t *testing.T) {
	const n = 1_000_000
	d := newDriver(t, nil)
	c := d.NewClient(3, 42, &trivial{}).(*client)
	var types [NumTypes]float64
	var hot, both, two float64
	for range n {
		typ := c.Next()
		types[typ]++
		isHot := c.a < 4000
		if isHot {
			hot++
		}
		if typ == Amalgamate || typ == SendPayment {
			two++
			if c.a == c.b {
				t.Fatalf("both customers are %d", c.a)
			}
			if isHot == (c.b < 4000) {
				both++
			}
		}
		if max(c.a, c.b) >= 100_000 {
			t.Fatalf("customers %d and %d drawn of 100000", c.a, c.b)
		}
	}
	near := func(what string, count, of, p float64) {
		t.Helper()
		if sigma := math.Sqrt(of * p * (1 - p)); math.Abs(count-of*p) > 5*sigma {
			t.Errorf("%s: %v of %v, expected %v ± %.0f", what, count, of, of*p, sigma)
		}
	}
	for typ, percent := range d.Mix() {
		near(typeNames[typ], types[typ], n, percent/100)
	}
	near("hot first customers", hot, n, 0.9+0.1*0.04)
	near("both customers on one side", both, two, 0.9+0.1*(0.04*0.04+0.96*0.96))
}

func TestSequencesDependOnSeedAndClient(t *testing.T) {
	d := newDriver(t, nil)
	draw := func(id int, seed uint64) string {
		c := d.NewClient(id, seed, &trivial{}).(*client)
		text := ""
		for range 5 {
			text += fmt.Sprint(c.Next(), c.a, c.b, " ")
		}
		return text
	}
	if first, second := draw(1, 1), draw(1, 1); first != second {
		t.Error("the same client and seed draw differently")
	}
	if draw(1, 1) == draw(2, 1) || draw(1, 1) == draw(1, 2) || draw(1, 2) == draw(2, 1) {
		t.Error("another client or seed draws the same")
	}
}

// TestDrawsAreThoseOfClients: who replays a client's draws gets its transactions, and the
// records that they use.
func TestDrawsAreThoseOfClients(t *testing.T) {
	d, w := newDriver(t, nil), &clairvoyant{off: true}
	c, draws := d.NewClient(2, 5, w).(*client), d.NewDraws(2, 5)
	for i := range 300 {
		c.Next()
		w.staged = nil
		if _, err := c.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		drawn := draws.Next()
		var used []string
		for _, u := range Uses(drawn.Type) {
			used = append(used, fmt.Sprint(u.Table, drawn.Customer(u), u.Mode))
		}
		if drawn.Type != c.typ || !slices.Equal(used, w.staged) {
			t.Fatalf("draw %d is of type %d and uses %v; the client runs type %d with %v",
				i, drawn.Type, used, c.typ, w.staged)
		}
	}
}

// clairvoyant is a worker that expects keys, and collects them.
type clairvoyant struct {
	trivial
	off    bool
	told   []string // of the transaction after the next one
	staged []string
}

func (w *clairvoyant) Expects() bool { return !w.off }
func (w *clairvoyant) Expect(table int, key uint64, m workload.Mode) {
	w.told = append(w.told, fmt.Sprint(table, key, m))
}

func (w *clairvoyant) Stage(table int, key uint64, m workload.Mode) {
	w.staged = append(w.staged, fmt.Sprint(table, key, m))
}
func (w *clairvoyant) Update(_ context.Context, fn func(workload.Tx) error) error { return fn(w) }
func (w *clairvoyant) View(_ context.Context, fn func(workload.Tx) error) error   { return fn(w) }

// TestExpect: a worker that expects keys is told before each transaction what exactly the
// one after it will announce; and it gets the transactions that any other worker gets.
func TestExpect(t *testing.T) {
	d := newDriver(t, nil)
	plain, w := d.NewClient(0, 1, &trivial{}).(*client), &clairvoyant{off: true}
	c := d.NewClient(0, 1, w).(*client)
	want, types := []string(nil), map[int]bool{}
	for i := range 300 {
		w.off = i < 3 || i >= 200 && i < 210 // the tables grow; and as if they had shrunk
		w.told = nil
		if typ := c.Next(); typ != plain.Next() || c.a != plain.a || c.b != plain.b {
			t.Fatalf("transaction %d is %v %d %d, another worker gets %v %d %d",
				i, c.typ, c.a, c.b, plain.typ, plain.a, plain.b)
		}
		w.staged = nil
		if _, err := c.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if want != nil && !slices.Equal(want, w.staged) {
			t.Fatalf("transaction %d announces %v, expected was %v", i, w.staged, want)
		}
		if (w.told == nil) != w.off {
			t.Fatalf("transaction %d: the worker was told %v", i, w.told)
		}
		want = w.told
		types[c.typ] = true
	}
	if len(types) != NumTypes {
		t.Errorf("only types %v were drawn", types)
	}
}
