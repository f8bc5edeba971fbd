package smallbank

import (
	"context"
	"encoding/binary"
	"errors"
	"math/bits"

	"txnode/benchmarks/workload"
)

// Transaction types, by number.
const (
	Amalgamate = iota
	Balance
	DepositChecking
	SendPayment
	TransactSaving
	WriteCheck
	NumTypes
)

var typeNames = [NumTypes]string{"Amalgamate", "Balance", "DepositChecking", "SendPayment", "TransactSaving", "WriteCheck"}

// Tables, by number.
const (
	Savings = iota
	Checking
	numTables
)

var tableNames = [numTables]string{"savings", "checking"}

// client is a workload.Client. Its transaction functions are bound once; their
// parameters are fields.
type client struct {
	worker workload.Worker
	driver *Driver // read only
	ledger *ledger
	rng    workload.Rand
	run    [NumTypes]func(workload.Tx) error

	drawn
	expecter workload.Expecter // nil: the worker is none
	next     drawn             // what comes after drawn, if it is known
	known    bool

	flow  flow   // of the current attempt
	total Money  // what Balance has found
	value []byte // the record to put; the padding stays
}

// drawn is a transaction.
type drawn struct {
	typ  int
	a, b uint64 // the customers; b of types that have two
}

func newClient(d *Driver, l *ledger, rng workload.Rand, w workload.Worker) *client {
	c := &client{worker: w, driver: d, ledger: l, rng: rng, value: d.newRecord(0)}
	c.expecter, _ = w.(workload.Expecter)
	c.run = [NumTypes]func(workload.Tx) error{
		Amalgamate:      c.amalgamate,
		Balance:         c.balance,
		DepositChecking: c.depositChecking,
		SendPayment:     c.sendPayment,
		TransactSaving:  c.transactSaving,
		WriteCheck:      c.writeCheck,
	}
	return c
}

// Next implements workload.Client. It draws a transaction ahead for a worker that expects
// what comes next.
func (c *client) Next() int {
	switch {
	case c.expecter != nil && c.expecter.Expects():
		c.expect()
	case c.known:
		c.drawn, c.known = c.next, false
	default:
		c.Draw(c.driver.mix.Draw(&c.rng))
	}
	return c.typ
}

// expect draws what comes after the next transaction, which it draws, too, if nobody has
// yet, and tells the worker about it.
func (c *client) expect() {
	if !c.known {
		c.Draw(c.driver.mix.Draw(&c.rng))
		c.next, c.known = c.drawn, true
	}
	c.Draw(c.driver.mix.Draw(&c.rng))
	c.next, c.drawn = c.drawn, c.next
	n, w := &c.next, c.expecter
	switch n.typ {
	case Amalgamate:
		w.Expect(Savings, n.a, workload.Update)
		w.Expect(Checking, n.a, workload.Update)
		w.Expect(Checking, n.b, workload.Update)
	case Balance:
		w.Expect(Savings, n.a, workload.Read)
		w.Expect(Checking, n.a, workload.Read)
	case DepositChecking:
		w.Expect(Checking, n.a, workload.Update)
	case SendPayment:
		w.Expect(Checking, n.a, workload.Update)
		w.Expect(Checking, n.b, workload.Update)
	case TransactSaving:
		w.Expect(Savings, n.a, workload.Update)
	case WriteCheck:
		w.Expect(Savings, n.a, workload.Read)
		w.Expect(Checking, n.a, workload.Update)
	}
}

// Draw implements workload.Client.
func (c *client) Draw(typ int) {
	c.typ = typ
	n, hot := c.driver.options.Accounts, c.driver.options.HotAccounts
	if c.rng.Chance(c.driver.hot) {
		n = hot
	}
	a := uint64(c.rng.Intn(n))
	// Uniform over the n-1 others, without drawing again.
	b := uint64(c.rng.IntnIf(n-1, uint64(customers[typ]-1)))
	_, below := bits.Sub64(b, a, 0)
	c.a, c.b = a, b+1-below
}

// customers is how many customers a transaction has.
var customers = [NumTypes]uint8{Amalgamate: 2, Balance: 1, DepositChecking: 1, SendPayment: 2, TransactSaving: 1, WriteCheck: 1}

// Run implements workload.Client.
func (c *client) Run(ctx context.Context) (workload.Outcome, error) {
	var err error
	c.flow = noFlow
	if c.typ == Balance {
		err = c.worker.View(ctx, c.run[Balance])
	} else {
		err = c.worker.Update(ctx, c.run[c.typ])
	}
	switch {
	case err == nil:
		c.ledger.committed[c.flow]++
		return workload.Committed, nil
	case errors.Is(err, ErrInsufficientFunds):
		return workload.RolledBack, nil
	case errors.Is(err, workload.ErrUncertain):
		c.ledger.uncertain[c.flow]++
	}
	return 0, err
}

func (c *client) amalgamate(tx workload.Tx) error {
	tx.Stage(Savings, c.a, workload.Update)
	tx.Stage(Checking, c.a, workload.Update)
	tx.Stage(Checking, c.b, workload.Update)
	savings, err := get(tx, Savings, c.a)
	if err != nil {
		return err
	}
	checking, err := get(tx, Checking, c.a)
	if err != nil {
		return err
	}
	target, err := get(tx, Checking, c.b)
	if err != nil {
		return err
	}
	if err := c.put(tx, Savings, c.a, 0); err != nil {
		return err
	}
	if err := c.put(tx, Checking, c.a, 0); err != nil {
		return err
	}
	return c.put(tx, Checking, c.b, target+savings+checking)
}

func (c *client) balance(tx workload.Tx) error {
	tx.Stage(Savings, c.a, workload.Read)
	tx.Stage(Checking, c.a, workload.Read)
	savings, err := get(tx, Savings, c.a)
	if err != nil {
		return err
	}
	checking, err := get(tx, Checking, c.a)
	if err != nil {
		return err
	}
	c.total = savings + checking
	return nil
}

func (c *client) depositChecking(tx workload.Tx) error {
	tx.Stage(Checking, c.a, workload.Update)
	checking, err := get(tx, Checking, c.a)
	if err != nil {
		return err
	}
	c.flow = deposited
	return c.put(tx, Checking, c.a, checking+c.driver.amounts.deposit)
}

func (c *client) sendPayment(tx workload.Tx) error {
	tx.Stage(Checking, c.a, workload.Update)
	tx.Stage(Checking, c.b, workload.Update)
	source, err := get(tx, Checking, c.a)
	if err != nil {
		return err
	}
	amount := c.driver.amounts.payment
	if source < amount {
		return ErrInsufficientFunds
	}
	target, err := get(tx, Checking, c.b)
	if err != nil {
		return err
	}
	if err := c.put(tx, Checking, c.a, source-amount); err != nil {
		return err
	}
	return c.put(tx, Checking, c.b, target+amount)
}

func (c *client) transactSaving(tx workload.Tx) error {
	tx.Stage(Savings, c.a, workload.Update)
	savings, err := get(tx, Savings, c.a)
	if err != nil {
		return err
	}
	savings += c.driver.amounts.savings
	if savings < 0 {
		return ErrInsufficientFunds
	}
	c.flow = saved
	return c.put(tx, Savings, c.a, savings)
}

func (c *client) writeCheck(tx workload.Tx) error {
	tx.Stage(Savings, c.a, workload.Read)
	tx.Stage(Checking, c.a, workload.Update)
	savings, err := get(tx, Savings, c.a)
	if err != nil {
		return err
	}
	checking, err := get(tx, Checking, c.a)
	if err != nil {
		return err
	}
	amount := c.driver.amounts.check
	c.flow = checked
	if savings+checking < amount {
		amount += c.driver.amounts.penalty
		c.flow = overdrawn
	}
	return c.put(tx, Checking, c.a, checking-amount)
}

// get reads a balance.
func get(tx workload.Tx, table int, account uint64) (Money, error) {
	v, err := tx.Get(table, account)
	if err != nil {
		if errors.Is(err, workload.ErrNotFound) {
			return 0, &RecordError{Table: table, Account: account, Length: -1}
		}
		return 0, err
	}
	if len(v) < balanceBytes {
		return 0, &RecordError{Table: table, Account: account, Length: len(v)}
	}
	return Money(binary.LittleEndian.Uint64(v)), nil
}

// put writes a balance, and the padding.
func (c *client) put(tx workload.Tx, table int, account uint64, m Money) error {
	binary.LittleEndian.PutUint64(c.value, uint64(m))
	return tx.Put(table, account, c.value)
}
