package smallbank

import (
	"fmt"

	"txnode/benchmarks/workload"
)

// Options are the parameters of the benchmark. Start from DefaultOptions: the
// zero value is not valid.
type Options struct {
	// Accounts is the number of customers, each with a savings and a checking
	// record. Default 100,000; at least 2.
	Accounts int
	// HotAccounts is the number of customers that hot transactions draw from.
	// Default 0: HotOf(Accounts); otherwise from 2 to Accounts.
	HotAccounts int
	// HotProbability is the probability that a transaction draws all its
	// customers from the hot ones. Default 0.9; 0 draws all customers
	// uniformly.
	HotProbability float64
	// Mix is the percentage of each transaction type, in the order of the type
	// numbers. They sum to 100. Default 15, 15, 15, 25, 15, 15.
	Mix [NumTypes]float64
	// RecordPadding is the number of bytes that follow the 8-byte balance in
	// each record. Default 0; at most 1 MiB - 8.
	RecordPadding int
	// InitialBalance is what each savings and each checking record is loaded
	// with: a decimal number of at least 0 with at most 4 decimals, like all
	// amounts here. Default "10000".
	InitialBalance string
	// DepositAmount is what DepositChecking adds. Default "1.3"; positive.
	DepositAmount string
	// PaymentAmount is what SendPayment moves. Default "5"; positive.
	PaymentAmount string
	// SavingsAmount is what TransactSaving adds. Default "20.2"; not zero,
	// negative to withdraw.
	SavingsAmount string
	// CheckAmount is what WriteCheck subtracts. Default "5"; positive.
	CheckAmount string
	// CheckPenalty is what WriteCheck subtracts in addition if the customer's
	// money does not cover the check. Default "1"; at least 0.
	CheckPenalty string
}

// DefaultOptions returns FORD's parameters (its SmallBank configuration and
// program; the initial balance is ours, see the package documentation).
func DefaultOptions() Options {
	return Options{
		Accounts:       100_000,
		HotProbability: 0.9,
		Mix:            [NumTypes]float64{15, 15, 15, 25, 15, 15},
		InitialBalance: "10000",
		DepositAmount:  "1.3",
		PaymentAmount:  "5",
		SavingsAmount:  "20.2",
		CheckAmount:    "5",
		CheckPenalty:   "1",
	}
}

// HotOf returns how many of so many customers are hot in FORD's benchmark: 4 %
// (4,000 of its 100,000), but at least 2, which a transaction may need.
func HotOf(accounts int) int { return max(accounts/25, 2) }

const (
	balanceBytes = 8
	maxValue     = 1 << 20
	maxAccounts  = 1 << 31
	// maxTotal bounds the money in the bank, so that no balance can overflow
	// before 10^13 deposits have been made.
	maxTotal = 1 << 62
	// maxAmount bounds the money of one transaction for the same reason.
	maxAmount = 1 << 32
)

// amounts are the parsed decimal fields of Options.
type amounts struct {
	initial, deposit, payment, savings, check, penalty Money
}

// Validate returns nil, or an *workload.OptionsError that lists every fault.
func (o *Options) Validate() error {
	complete := *o
	_, err := complete.parse()
	return err
}

// parse completes and checks the options.
func (o *Options) parse() (amounts, error) {
	var faults []string
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }

	if o.Accounts < 2 || o.Accounts > maxAccounts {
		fault("Accounts is %d; it must be from 2 to %d", o.Accounts, maxAccounts)
	}
	if o.HotAccounts == 0 {
		o.HotAccounts = HotOf(o.Accounts)
	} else if o.HotAccounts < 2 || o.HotAccounts > o.Accounts {
		fault("HotAccounts is %d; it must be from 2 to Accounts (%d)", o.HotAccounts, o.Accounts)
	}
	if !(o.HotProbability >= 0 && o.HotProbability <= 1) {
		fault("HotProbability is %v; it must be from 0 to 1", o.HotProbability)
	}
	if err := workload.CheckMix(o.Mix[:]); err != nil {
		fault("Mix: %v", err)
	}
	if o.RecordPadding < 0 || o.RecordPadding > maxValue-balanceBytes {
		fault("RecordPadding is %d bytes; it must be from 0 to %d", o.RecordPadding, maxValue-balanceBytes)
	}
	amount := func(field, text, must string, ok func(Money) bool) Money {
		m, err := ParseMoney(text)
		switch {
		case err != nil:
			fault("%s: %v", field, err)
		case !ok(m):
			fault("%s is %s; it must be %s", field, m, must)
		}
		return m
	}
	var (
		largest  = Money(maxAmount).String()
		positive = func(m Money) bool { return m > 0 && m <= maxAmount }
	)
	a := amounts{
		initial: amount("InitialBalance", o.InitialBalance, "at least 0", func(m Money) bool { return m >= 0 }),
		deposit: amount("DepositAmount", o.DepositAmount, "positive and at most "+largest, positive),
		payment: amount("PaymentAmount", o.PaymentAmount, "positive and at most "+largest, positive),
		savings: amount("SavingsAmount", o.SavingsAmount, "other than 0, and at most "+largest+" up or down",
			func(m Money) bool { return m != 0 && m <= maxAmount && m >= -maxAmount }),
		check: amount("CheckAmount", o.CheckAmount, "positive and at most "+largest, positive),
		penalty: amount("CheckPenalty", o.CheckPenalty, "at least 0 and at most "+largest,
			func(m Money) bool { return m >= 0 && m <= maxAmount }),
	}
	if o.Accounts >= 2 && o.Accounts <= maxAccounts && a.initial > maxTotal/Money(2*o.Accounts) {
		fault("InitialBalance %s times 2 x %d accounts is more than the %s that is counted exactly; lower it",
			a.initial, o.Accounts, Money(maxTotal))
	}
	if faults != nil {
		return amounts{}, &workload.OptionsError{Of: "smallbank", Faults: faults}
	}
	return a, nil
}
