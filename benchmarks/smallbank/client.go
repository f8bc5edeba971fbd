package smallbank

import (
	"context"
	"encoding/binary"
	"errors"

	"txnode/benchmarks/workload"
	"txnode/internal/sentinel"
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
	draws  Draws
	run    [NumTypes]func(workload.Tx) error

	typ      int // of what is run next
	a, b     uint64
	expecter workload.Expecter // nil: the worker is none
	next     Transaction       // what comes after that, if it is known
	known    bool

	flow  flow  // of the current attempt
	total Money // what Balance has found
	rows  [maxUses]workload.Row
	value []byte // the record to put; the padding stays
}

func newClient(d *Driver, l *ledger, draws Draws, w workload.Worker) *client {
	c := &client{worker: w, driver: d, ledger: l, draws: draws, value: d.newRecord(0)}
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
		c.take(c.next)
		c.known = false
	default:
		c.take(c.draws.Next())
	}
	return c.typ
}

// take makes t what is run next.
func (c *client) take(t Transaction) { c.typ, c.a, c.b = t.Type, t.A, t.B }

// expect draws what comes after the next transaction, which it draws, too, if nobody has
// yet, and tells the worker about it.
func (c *client) expect() {
	if !c.known {
		c.next, c.known = c.draws.Next(), true
	}
	c.take(c.next)
	c.next = c.draws.Next()
	for _, u := range uses[c.next.Type] {
		c.expecter.Expect(u.Table, c.next.Customer(u), u.Mode)
	}
}

// Draw implements workload.Client.
func (c *client) Draw(typ int) { c.take(c.draws.Of(typ)) }

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
	case sentinel.Is(err, ErrInsufficientFunds):
		return workload.RolledBack, nil
	case errors.Is(err, workload.ErrUncertain):
		c.ledger.uncertain[c.flow]++
	}
	return 0, err
}

func (c *client) amalgamate(tx workload.Tx) error {
	rows, err := c.fetch(tx)
	if err != nil {
		return err
	}
	savings, err := balance(&rows[0])
	if err != nil {
		return err
	}
	checking, err := balance(&rows[1])
	if err != nil {
		return err
	}
	target, err := balance(&rows[2])
	if err != nil {
		return err
	}
	if err := c.set(tx, &rows[0], 0); err != nil {
		return err
	}
	if err := c.set(tx, &rows[1], 0); err != nil {
		return err
	}
	return c.set(tx, &rows[2], target+savings+checking)
}

func (c *client) balance(tx workload.Tx) error {
	rows, err := c.fetch(tx)
	if err != nil {
		return err
	}
	savings, err := balance(&rows[0])
	if err != nil {
		return err
	}
	checking, err := balance(&rows[1])
	if err != nil {
		return err
	}
	c.total = savings + checking
	return nil
}

func (c *client) depositChecking(tx workload.Tx) error {
	rows, err := c.fetch(tx)
	if err != nil {
		return err
	}
	checking, err := balance(&rows[0])
	if err != nil {
		return err
	}
	c.flow = deposited
	return c.set(tx, &rows[0], checking+c.driver.amounts.deposit)
}

func (c *client) sendPayment(tx workload.Tx) error {
	rows, err := c.fetch(tx)
	if err != nil {
		return err
	}
	source, err := balance(&rows[0])
	if err != nil {
		return err
	}
	amount := c.driver.amounts.payment
	if source < amount {
		return ErrInsufficientFunds
	}
	target, err := balance(&rows[1])
	if err != nil {
		return err
	}
	if err := c.set(tx, &rows[0], source-amount); err != nil {
		return err
	}
	return c.set(tx, &rows[1], target+amount)
}

func (c *client) transactSaving(tx workload.Tx) error {
	rows, err := c.fetch(tx)
	if err != nil {
		return err
	}
	savings, err := balance(&rows[0])
	if err != nil {
		return err
	}
	savings += c.driver.amounts.savings
	if savings < 0 {
		return ErrInsufficientFunds
	}
	c.flow = saved
	return c.set(tx, &rows[0], savings)
}

func (c *client) writeCheck(tx workload.Tx) error {
	rows, err := c.fetch(tx)
	if err != nil {
		return err
	}
	savings, err := balance(&rows[0])
	if err != nil {
		return err
	}
	checking, err := balance(&rows[1])
	if err != nil {
		return err
	}
	amount := c.driver.amounts.check
	c.flow = checked
	if savings+checking < amount {
		amount += c.driver.amounts.penalty
		c.flow = overdrawn
	}
	return c.set(tx, &rows[1], checking-amount)
}

// fetch gets what the transaction uses, in the order of Uses.
func (c *client) fetch(tx workload.Tx) ([]workload.Row, error) {
	uses := uses[c.typ]
	rows := c.rows[:len(uses)]
	for i := range rows {
		r, u := &rows[i], &uses[i]
		r.Table, r.Mode, r.Key = u.Table, u.Mode, c.a
		if u.Second {
			r.Key = c.b
		}
	}
	return rows, tx.Fetch(rows)
}

// balance is what a row that was fetched holds.
func balance(r *workload.Row) (Money, error) {
	if len(r.Value) < balanceBytes {
		return 0, misshapen(r)
	}
	return Money(binary.LittleEndian.Uint64(r.Value)), nil
}

// misshapen is the error of a row that is not there, or too short.
func misshapen(r *workload.Row) error {
	e := &RecordError{Table: r.Table, Account: r.Key, Length: len(r.Value)}
	if r.Value == nil {
		e.Length = -1
	}
	return e
}

// set writes a balance, and the padding.
func (c *client) set(tx workload.Tx, r *workload.Row, m Money) error {
	binary.LittleEndian.PutUint64(c.value, uint64(m))
	return tx.Set(r, c.value)
}
