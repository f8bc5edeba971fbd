package smallbank

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"txnode/benchmarks/reference"
	"txnode/benchmarks/workload"
	"txnode/benchmarks/workload/storetest"
)

// small makes conflicts, overdrafts and lack of funds frequent.
func small(o *Options) {
	o.Accounts, o.HotAccounts, o.InitialBalance, o.RecordPadding = 300, 20, "12.34", 5
}

func TestMoneyIsConserved(t *testing.T) {
	for name, change := range map[string]func(o *Options){
		"default mix": small,
		"two accounts": func(o *Options) {
			small(o)
			o.Accounts, o.HotAccounts = 2, 2
		},
		"withdrawals": func(o *Options) {
			small(o)
			o.SavingsAmount, o.CheckPenalty = "-0.0001", "0"
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDriver(t, change)
			store := reference.Open(reference.Options{Shards: 16})
			if r := storetest.Load(t, d, store); r.Existed || r.Records != 2*d.options.Accounts {
				t.Errorf("loading an empty store reports %+v", r)
			}
			for range 2 { // Verify changes nothing, and rounds may follow it
				out := storetest.Play(t, d, store, 2000).Total()
				if out[workload.RolledBack] == 0 || out[workload.RowAbsent] != 0 ||
					out[workload.Committed]+out[workload.RolledBack] != 16000 {
					t.Errorf("outcomes %v", out)
				}
				r, err := d.Verify(t.Context(), store)
				if err != nil {
					t.Fatal(err)
				}
				if r.Records != 2*d.options.Accounts || len(r.Checks) != 4 {
					t.Errorf("report %+v", r)
				}
			}
		})
	}
}

func TestExistingAccountsAreTheBaseline(t *testing.T) {
	store := reference.Open(reference.Options{})
	first := newDriver(t, small)
	storetest.Load(t, first, store)
	storetest.Play(t, first, store, 1000)

	second := newDriver(t, func(o *Options) {
		small(o)
		o.InitialBalance = "99" // loads nothing, so it does not matter
	})
	var last, total int
	r, err := second.Load(t.Context(), store, func(d, n int) { last, total = d, n })
	if err != nil || !r.Existed || last != 300 || total != 300 {
		t.Fatalf("loading again reports %+v, %v, progress %d of %d", r, err, last, total)
	}
	if second.baseline == second.amounts.initial*600 || second.baseline == first.baseline {
		t.Errorf("the baseline %v is not what was found", second.baseline)
	}
	if !strings.Contains(r.Summary, second.baseline.String()) {
		t.Errorf("the summary %q does not tell the balance", r.Summary)
	}
	storetest.Play(t, second, store, 1000)
	if _, err := second.Verify(t.Context(), store); err != nil {
		t.Error(err)
	}
	// The first driver knows nothing of the second one's transactions.
	if _, err := first.Verify(t.Context(), store); !errors.Is(err, workload.ErrInconsistent) {
		t.Errorf("foreign deposits are not noticed: %v", err)
	}
}

func TestForeignData(t *testing.T) {
	for name, change := range map[string]func(o *Options){
		"fewer":   func(o *Options) { small(o); o.Accounts-- },
		"more":    func(o *Options) { small(o); o.Accounts++ },
		"padding": func(o *Options) { small(o); o.RecordPadding-- },
	} {
		t.Run(name, func(t *testing.T) {
			d := newDriver(t, small)
			store := storetest.AnySchema(reference.Open(reference.Options{}))
			storetest.Load(t, d, store)
			if _, err := newDriver(t, change).Load(t.Context(), store, nil); !errors.Is(err, workload.ErrForeign) {
				t.Errorf("the data is accepted: %v", err)
			}
		})
	}
}

// TestTooFewAccounts: what is missing is counted in accounts, as it is asked for, and not in the
// records of two tables.
func TestTooFewAccounts(t *testing.T) {
	store := storetest.AnySchema(reference.Open(reference.Options{}))
	storetest.Load(t, newDriver(t, small), store)
	d := newDriver(t, func(o *Options) { small(o); o.Accounts += 50 })
	if _, err := d.Load(t.Context(), store, nil); !errors.Is(err, workload.ErrForeign) ||
		!strings.Contains(err.Error(),
			"50 of the 350 accounts asked for are not there, or not whole, the first of them account 300;") {
		t.Errorf("error %v", err)
	}
}

// One broken write among thousands is found, whatever it was.
func TestBrokenStoresAreCaught(t *testing.T) {
	for _, test := range []struct {
		name  string
		rule  string // the one that must be reported broken
		only  int    // type of the transactions; -1 for the mix
		table int    // of the write that is broken
		spoil func(op storetest.Op) storetest.Verdict
	}{
		{"lost deposit", "money is conserved", DepositChecking, Checking, drop},
		{"lost saving", "money is conserved", TransactSaving, Savings, drop},
		{"lost check", "money is conserved", WriteCheck, Checking, drop},
		{"lost half of a payment", "money is conserved", SendPayment, Checking, drop},
		{"lost half of an amalgamation", "money is conserved", Amalgamate, Savings, drop},
		{"lost write of the mix", "money is conserved", -1, Checking, drop},
		{"flipped bit of the balance", "money is conserved", -1, Checking, func(op storetest.Op) storetest.Verdict {
			op.Value[1] ^= 4
			return storetest.Verdict{}
		}},
		{"flipped sign", "no savings balance is negative",
			TransactSaving, Savings, func(op storetest.Op) storetest.Verdict {
				op.Value[7] ^= 0x80
				return storetest.Verdict{}
			}},
		{"flipped bit of the padding", "records have their length and padding",
			TransactSaving, Savings, func(op storetest.Op) storetest.Verdict {
				op.Value[12] ^= 1
				return storetest.Verdict{}
			}},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := newDriver(t, func(o *Options) {
				small(o)
				o.InitialBalance = "1000" // the first write of a record changes it
				if test.only >= 0 {
					o.Mix = [NumTypes]float64{}
					o.Mix[test.only] = 100
				}
			})
			var writes atomic.Int64
			var loaded atomic.Bool
			store := storetest.Intercept(reference.Open(reference.Options{}),
				func(_ int, op storetest.Op) storetest.Verdict {
					// The first write is broken. Later ones, of the same record too, must
					// not hide it; but sign and padding are written over, so that those
					// runs end with the write.
					if loaded.Load() && op.Kind == storetest.Put && op.Table == test.table && writes.Add(1) == 1 {
						return test.spoil(op)
					}
					return storetest.Verdict{}
				})
			storetest.Load(t, d, store)
			loaded.Store(true)
			rounds := 1000
			if strings.HasPrefix(test.name, "flipped sign") ||
				strings.HasPrefix(test.name, "flipped bit of the padding") {
				rounds = 0
				playUntil(t, d, store, &writes, 1)
			}
			storetest.Play(t, d, store, rounds)
			r, err := d.Verify(t.Context(), store)
			if !errors.Is(err, workload.ErrInconsistent) {
				t.Fatalf("not noticed: %v, %+v", err, r)
			}
			for _, c := range r.Checks {
				if c.Rule == test.rule && c.Holds {
					t.Errorf("the rule %q is reported to hold; the error is %v", c.Rule, err)
				}
			}
			if !strings.Contains(err.Error(), test.rule) {
				t.Errorf("the error does not name the rule %q: %v", test.rule, err)
			}
		})
	}
}

func drop(storetest.Op) storetest.Verdict { return storetest.Verdict{Drop: true} }

// playUntil runs transactions in one worker until writes reaches n.
func playUntil(t *testing.T, d *Driver, store workload.Store, writes *atomic.Int64, n int64) {
	t.Helper()
	err := store.Run(t.Context(), 1, 1, func(ctx context.Context, id int, w workload.Worker) error {
		c := d.NewClient(id, 7, w)
		for writes.Load() < n {
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
}

// A record lost while loading is missed by a transaction, with an error that
// names it, and by Verify.
func TestMissingRecord(t *testing.T) {
	d := newDriver(t, func(o *Options) { small(o); o.Mix = [NumTypes]float64{Balance: 100} })
	store := storetest.Intercept(reference.Open(reference.Options{}), func(_ int, op storetest.Op) storetest.Verdict {
		return storetest.Verdict{Drop: op.Kind == storetest.Insert && op.Table == Checking && op.Key == 17}
	})
	storetest.Load(t, d, store)
	if r, err := d.Verify(t.Context(), store); !errors.Is(err, workload.ErrInconsistent) ||
		!strings.Contains(err.Error(), "account 17 in checking") {
		t.Errorf("Verify: %v, %+v", err, r)
	}
	err := store.Run(t.Context(), 1, 1, func(ctx context.Context, id int, w workload.Worker) error {
		c := d.NewClient(id, 1, w).(*client)
		c.Draw(Balance)
		c.a = 17
		_, err := c.Run(ctx)
		return err
	})
	var missing *RecordError
	if !errors.As(err, &missing) || missing.Account != 17 || missing.Table != Checking ||
		!errors.Is(err, workload.ErrInconsistent) {
		t.Errorf("the transaction returned %v", err)
	}
}

// Transactions of unknown outcome are accepted either way, but not as an excuse
// for anything else.
func TestUncertainTransactions(t *testing.T) {
	for _, lose := range []bool{false, true} {
		d := newDriver(t, small)
		var loaded atomic.Bool
		var ends, writes, uncertain atomic.Int64
		store := storetest.Intercept(reference.Open(reference.Options{}),
			func(_ int, op storetest.Op) storetest.Verdict {
				switch {
				case !loaded.Load():
				case op.Kind == storetest.End:
					switch n := ends.Add(1); {
					case n%500 == 0:
						uncertain.Add(1)
						return storetest.Verdict{Err: workload.ErrUncertain} // it did not
					case n%500 == 250:
						uncertain.Add(1)
						return storetest.Verdict{After: workload.ErrUncertain} // it did
					}
				case lose && op.Kind == storetest.Put && op.Table == Checking && writes.Add(1) == 1000:
					op.Value[0] ^= 1 // an amount that no transaction moves
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
		if lose != errors.Is(err, workload.ErrInconsistent) || (err != nil) != lose {
			t.Errorf("with a lost write %v: %v", lose, err)
		}
		if text := r.Checks[3].Detail; !strings.Contains(text, "of unknown outcome") {
			t.Errorf("the report does not mention uncertain transactions: %s", text)
		}
	}
}

// The rate of insufficient funds is FORD's on the way to the long run (package
// documentation): 12.67 % of transactions 90,000 to 270,000.
func TestInsufficientFundsResembleFORD(t *testing.T) {
	d := newDriver(t, nil)
	store := reference.Open(reference.Options{})
	storetest.Load(t, d, store)
	err := store.Run(t.Context(), 1, 1, func(ctx context.Context, id int, w workload.Worker) error {
		c := d.NewClient(id, 5, w)
		rolledBack := 0
		for i := range 270_000 {
			c.Next()
			o, err := c.Run(ctx)
			if err != nil {
				return err
			}
			if o == workload.RolledBack && i >= 90_000 {
				rolledBack++
			}
		}
		if rate := float64(rolledBack) / 180_000; rate < 0.122 || rate > 0.132 {
			t.Errorf("%.2f %% of transactions lack funds", 100*rate)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestLoadStopsAtAnError(t *testing.T) {
	full := errors.New("no space")
	d := newDriver(t, small)
	store := storetest.Intercept(reference.Open(reference.Options{}), func(_ int, op storetest.Op) storetest.Verdict {
		if op.Kind == storetest.Insert && op.Key == 100 {
			return storetest.Verdict{Err: full}
		}
		return storetest.Verdict{}
	})
	if _, err := d.Load(t.Context(), store, nil); !errors.Is(err, full) {
		t.Errorf("Load returned %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := d.Load(ctx, reference.Open(reference.Options{}), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("Load with a cancelled context returned %v", err)
	}
}
