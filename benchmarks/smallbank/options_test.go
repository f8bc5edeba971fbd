package smallbank

import (
	"errors"
	"math"
	"strings"
	"testing"

	"txnode/benchmarks/workload"
)

func TestDefaultOptionsAreValid(t *testing.T) {
	o := DefaultOptions()
	if err := o.Validate(); err != nil {
		t.Fatal(err)
	}
	a, _ := o.parse()
	want := amounts{
		initial: 10_000_0000, deposit: 1_3000, payment: 5_0000, savings: 20_2000, check: 5_0000, penalty: 1_0000,
	}
	if a != want {
		t.Errorf("amounts are %+v, want %+v", a, want)
	}
}

func TestValidateListsEveryFault(t *testing.T) {
	o := Options{
		Accounts:       1,
		HotAccounts:    7,
		HotProbability: math.NaN(),
		Mix:            [NumTypes]float64{50, 40},
		RecordPadding:  -1,
		InitialBalance: "-1",
		DepositAmount:  "0",
		PaymentAmount:  "five",
		SavingsAmount:  "0.0",
		CheckAmount:    "1.00001",
		CheckPenalty:   "-0.5",
	}
	err := o.Validate()
	var oe *workload.OptionsError
	if !errors.As(err, &oe) {
		t.Fatalf("Validate returned %v", err)
	}
	fields := []string{"Accounts", "HotAccounts", "HotProbability", "Mix", "RecordPadding", "InitialBalance",
		"DepositAmount", "PaymentAmount", "SavingsAmount", "CheckAmount", "CheckPenalty"}
	if len(oe.Faults) != len(fields) {
		t.Errorf("%d faults instead of %d: %v", len(oe.Faults), len(fields), err)
	}
	for i, field := range fields {
		if i < len(oe.Faults) && !strings.HasPrefix(oe.Faults[i], field) {
			t.Errorf("fault %d is %q; it must be about %s", i, oe.Faults[i], field)
		}
		if !strings.Contains(err.Error(), field) {
			t.Errorf("the text does not name %s: %v", field, err)
		}
	}
	if _, err := New(o); !errors.As(err, &oe) {
		t.Errorf("New accepts the options: %v", err)
	}
}

// Each change alone makes the default options invalid, or does not.
func TestValidateLimits(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(o *Options)
		valid  bool
	}{
		{"two accounts, hot by default", func(o *Options) { o.Accounts, o.HotAccounts = 2, 0 }, true},
		{"two accounts", func(o *Options) { o.Accounts, o.HotAccounts = 2, 2 }, true},
		{"all hot", func(o *Options) { o.HotAccounts = o.Accounts }, true},
		{"more hot than all", func(o *Options) { o.HotAccounts = o.Accounts + 1 }, false},
		{"one hot", func(o *Options) { o.HotAccounts = 1 }, false},
		{"never hot", func(o *Options) { o.HotProbability = 0 }, true},
		{"always hot", func(o *Options) { o.HotProbability = 1 }, true},
		{"hotter than always", func(o *Options) { o.HotProbability = 1.01 }, false},
		{"one type", func(o *Options) { o.Mix = [NumTypes]float64{SendPayment: 100} }, true},
		{"negative share", func(o *Options) { o.Mix = [NumTypes]float64{-10, 110} }, false},
		{"1 MiB", func(o *Options) { o.RecordPadding = 1<<20 - 8 }, true},
		{"over 1 MiB", func(o *Options) { o.RecordPadding = 1<<20 - 7 }, false},
		{"FORD's initial balance", func(o *Options) { o.InitialBalance = "1e9" }, true},
		{"too much money in all", func(o *Options) { o.InitialBalance, o.Accounts = "1e9", 10_000_000 }, false},
		{"ten million accounts", func(o *Options) { o.Accounts = 10_000_000 }, true},
		{"no money", func(o *Options) { o.InitialBalance = "0" }, true},
		{"withdrawals", func(o *Options) { o.SavingsAmount = "-20.2" }, true},
		{"no penalty", func(o *Options) { o.CheckPenalty = "0" }, true},
		{"huge payment", func(o *Options) { o.PaymentAmount = "1e6" }, false},
	} {
		o := DefaultOptions()
		test.change(&o)
		if err := o.Validate(); (err == nil) != test.valid {
			t.Errorf("%s: %v", test.name, err)
		}
	}
}

func TestParseMoney(t *testing.T) {
	for text, want := range map[string]Money{
		"0": 0, "-0": 0, "0.00000": 0, "0e99999": 0, "20.2": 20_2000, "20.20000": 20_2000,
		"-5": -5_0000, "+1.3": 1_3000,
		"1e9": 1_000_000_000_0000, "0.0001": 1, "1E-4": 1, "12300e-3": 12_3000,
		"922337203685477.5807": math.MaxInt64, "-922337203685477.5808": math.MinInt64,
	} {
		if got, err := ParseMoney(text); err != nil || got != want {
			t.Errorf("ParseMoney(%q) = %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{
		"", " 1", "1,5", "ten", "NaN", "Inf", "-Infinity", "0x10", "0.00001", "1.30001", "1e-5",
		"922337203685477.5808", "-922337203685477.5809", "1e15", "1e100000", "1e2147483647", "1e999999999999",
	} {
		if got, err := ParseMoney(text); err == nil {
			t.Errorf("ParseMoney(%q) = %d; it must fail", text, got)
		}
	}
	for m, want := range map[Money]string{
		0: "0.0000", 13000: "1.3000", -1: "-0.0001", math.MinInt64: "-922337203685477.5808",
	} {
		if got := m.String(); got != want {
			t.Errorf("Money(%d) prints as %s, not %s", int64(m), got, want)
		}
	}
}

// What is printed parses to the same amount; nothing makes ParseMoney panic.
func FuzzParseMoney(f *testing.F) {
	for _, text := range []string{
		"0", "20.2", "-1e3", "1e2147483647", "1e-2147483648", "0.0001", "sNaN5", "999999999999999999999",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		m, err := ParseMoney(text)
		if err != nil {
			return
		}
		if again, err := ParseMoney(m.String()); err != nil || again != m {
			t.Errorf("%q is %d, which prints as %s, which is %d, %v", text, int64(m), m, int64(again), err)
		}
	})
}

func TestHotAccountsDefault(t *testing.T) {
	for accounts, want := range map[int]int{2: 2, 40: 2, 75: 3, 2000: 80, 100_000: 4000} {
		o := DefaultOptions()
		o.Accounts = accounts
		d, err := New(o)
		if err != nil || d.options.HotAccounts != want {
			t.Errorf("%d accounts: %v hot ones, want %d; %v", accounts, d.options.HotAccounts, want, err)
		}
	}
}
