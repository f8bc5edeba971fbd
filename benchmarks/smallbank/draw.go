package smallbank

import (
	"math/bits"

	"txnode/benchmarks/workload"
)

// Transaction is a transaction as it is drawn.
type Transaction struct {
	Type int
	A, B uint64 // the customers; B of types that have two
}

// Draws is an endless sequence of transactions: types by the mix, customers from all or
// from the hot ones. The client of the same number and seed runs the same sequence. It
// is a small value, not safe for concurrent use.
type Draws struct {
	rng           workload.Rand
	mix           workload.Mix
	hot           uint64 // threshold of HotProbability
	accounts, few int
}

// NewDraws returns the sequence of a client.
func (d *Driver) NewDraws(id int, seed uint64) Draws {
	return Draws{
		rng: workload.NewRand(seed, uint64(id)), mix: d.mix,
		hot: d.hot, accounts: d.options.Accounts, few: d.options.HotAccounts,
	}
}

// Next draws a transaction.
func (d *Draws) Next() Transaction { return d.Of(d.mix.Draw(&d.rng)) }

// Of draws the customers of a transaction of a type.
func (d *Draws) Of(typ int) Transaction {
	n := d.accounts
	if d.rng.Chance(d.hot) {
		n = d.few
	}
	a := uint64(d.rng.Intn(n))
	// Uniform over the n-1 others, without drawing again.
	b := uint64(d.rng.IntnIf(n-1, uint64(customers[typ]-1)))
	_, below := bits.Sub64(b, a, 0)
	return Transaction{typ, a, b + 1 - below}
}

// customers is how many customers a transaction has.
var customers = [NumTypes]uint8{
	Amalgamate: 2, Balance: 1, DepositChecking: 1, SendPayment: 2, TransactSaving: 1, WriteCheck: 1,
}

// Use is a record that the transactions of a type use.
type Use struct {
	Table  int
	Second bool // of customer B
	Mode   workload.Mode
}

// Uses lists the records that a transaction of a type uses, in the order in which it
// announces them.
func Uses(typ int) []Use { return uses[typ] }

// maxUses is how many records a transaction uses at most.
const maxUses = 3

var uses = [NumTypes][]Use{
	Amalgamate: {
		{Savings, false, workload.Update}, {Checking, false, workload.Update}, {Checking, true, workload.Update},
	},
	Balance:         {{Savings, false, workload.Read}, {Checking, false, workload.Read}},
	DepositChecking: {{Checking, false, workload.Update}},
	SendPayment:     {{Checking, false, workload.Update}, {Checking, true, workload.Update}},
	TransactSaving:  {{Savings, false, workload.Update}},
	WriteCheck:      {{Savings, false, workload.Read}, {Checking, false, workload.Update}},
}

// Customer returns the customer that a use is of.
func (t *Transaction) Customer(u Use) uint64 {
	if u.Second {
		return t.B
	}
	return t.A
}
