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

var typeNames = [NumTypes]string{
	"Amalgamate", "Balance", "DepositChecking", "SendPayment", "TransactSaving", "WriteCheck",
}

// Tables, by number.
const (
	Savings = iota
	Checking
	numTables
)

var tableNames = [numTables]string{"savings", "checking"}

// client is a workload.Client. Its transaction functions are made once; their
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
	teller   Teller            // likewise
	amounts  Amounts           // for it
	next     Transaction       // what comes after that, if it is known
	known    bool

	flow  flow   // of the current attempt
	total Money  // what Balance has found
	value []byte // the record to put; the padding stays
}

// plan is what the transactions of a type use.
type plan struct {
	workload.Plan
	rows [maxUses]row
	used int // of these
}

// row is a record that they use.
type row struct {
	workload.Row
	customer *uint64 // whose: a or b of the client
	balance  Money   // set by load
	table    int
}

func newClient(d *Driver, l *ledger, draws Draws, w workload.Worker) *client {
	c := &client{worker: w, driver: d, ledger: l, draws: draws, value: d.newRecord(0)}
	c.expecter, _ = w.(workload.Expecter)
	if t, ok := w.(Teller); ok && d.options.RecordPadding == 0 {
		c.teller, c.amounts = t, Amounts{
			d.amounts.deposit, d.amounts.payment, d.amounts.savings, d.amounts.check, d.amounts.penalty,
		}
	}
	for typ, transaction := range [NumTypes]func(c *client, p *plan) func(workload.Tx) error{
		Amalgamate:      (*client).amalgamate,
		Balance:         (*client).balance,
		DepositChecking: (*client).depositChecking,
		SendPayment:     (*client).sendPayment,
		TransactSaving:  (*client).transactSaving,
		WriteCheck:      (*client).writeCheck,
	} {
		c.run[typ] = transaction(c, c.newPlan(typ))
	}
	return c
}

func (c *client) newPlan(typ int) *plan {
	used := make([]workload.Use, len(uses[typ]))
	for i, u := range uses[typ] {
		used[i] = workload.Use{Table: u.Table, Mode: u.Mode}
	}
	p := &plan{Plan: c.worker.Prepare(used), used: len(used)}
	for i, r := range p.Rows() {
		p.rows[i] = row{Row: r, customer: &c.a, table: used[i].Table}
		if uses[typ][i].Second {
			p.rows[i].customer = &c.b
		}
	}
	return p
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
	switch {
	case c.teller != nil:
		err = c.tell(ctx)
	case c.typ == Balance:
		err = c.worker.View(ctx, c.run[Balance])
	default:
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

// Amounts is the money that transactions move: see Options.
type Amounts struct{ Deposit, Payment, Savings, Check, Penalty Money }

// Teller is a [workload.Worker] of a store that runs whole transactions, as procedures on a server.
type Teller interface {
	workload.Worker
	// Transact runs a transaction on the records that Uses lists, which are balances of 8 bytes,
	// little-endian. uncovered: it was a check that the customer's money did not cover.
	// ErrInsufficientFunds: nothing has changed. Other errors are those of Worker.Update.
	Transact(ctx context.Context, t Transaction, a *Amounts) (uncovered bool, err error)
}

// tell has the teller run what was drawn.
func (c *client) tell(ctx context.Context) error {
	uncovered, err := c.teller.Transact(ctx, Transaction{c.typ, c.a, c.b}, &c.amounts)
	switch {
	case c.typ == DepositChecking:
		c.flow = deposited
	case c.typ == TransactSaving:
		c.flow = saved
	case c.typ == WriteCheck && uncovered:
		c.flow = overdrawn
	case c.typ == WriteCheck:
		c.flow = checked
	}
	return err
}

func (c *client) amalgamate(p *plan) func(tx workload.Tx) error {
	return func(tx workload.Tx) error {
		if err := p.load(tx); err != nil {
			return err
		}
		if err := p.Set(tx, 0, c.record(0)); err != nil {
			return err
		}
		if err := p.Set(tx, 1, c.record(0)); err != nil {
			return err
		}
		savings, checking, target := p.rows[0].balance, p.rows[1].balance, p.rows[2].balance
		return p.Set(tx, 2, c.record(target+savings+checking))
	}
}

func (c *client) balance(p *plan) func(tx workload.Tx) error {
	return func(tx workload.Tx) error {
		if err := p.load(tx); err != nil {
			return err
		}
		savings, checking := p.rows[0].balance, p.rows[1].balance
		c.total = savings + checking
		return nil
	}
}

func (c *client) depositChecking(p *plan) func(tx workload.Tx) error {
	return func(tx workload.Tx) error {
		if err := p.load(tx); err != nil {
			return err
		}
		c.flow = deposited
		checking := p.rows[0].balance
		return p.Set(tx, 0, c.record(checking+c.driver.amounts.deposit))
	}
}

func (c *client) sendPayment(p *plan) func(tx workload.Tx) error {
	return func(tx workload.Tx) error {
		if err := p.load(tx); err != nil {
			return err
		}
		source, target, amount := p.rows[0].balance, p.rows[1].balance, c.driver.amounts.payment
		if source < amount {
			return ErrInsufficientFunds
		}
		if err := p.Set(tx, 0, c.record(source-amount)); err != nil {
			return err
		}
		return p.Set(tx, 1, c.record(target+amount))
	}
}

func (c *client) transactSaving(p *plan) func(tx workload.Tx) error {
	return func(tx workload.Tx) error {
		if err := p.load(tx); err != nil {
			return err
		}
		savings := p.rows[0].balance + c.driver.amounts.savings
		if savings < 0 {
			return ErrInsufficientFunds
		}
		c.flow = saved
		return p.Set(tx, 0, c.record(savings))
	}
}

func (c *client) writeCheck(p *plan) func(tx workload.Tx) error {
	return func(tx workload.Tx) error {
		if err := p.load(tx); err != nil {
			return err
		}
		savings, checking, amount := p.rows[0].balance, p.rows[1].balance, c.driver.amounts.check
		c.flow = checked
		if savings+checking < amount {
			amount += c.driver.amounts.penalty
			c.flow = overdrawn
		}
		return p.Set(tx, 1, c.record(checking-amount))
	}
}

// load fetches what the transaction uses, in the order of Uses.
func (p *plan) load(tx workload.Tx) error {
	rows := p.rows[:p.used]
	for i := range rows {
		rows[i].Key.Set(*rows[i].customer)
	}
	if err := p.Fetch(tx); err != nil {
		return err
	}
	for i := range rows {
		v := *rows[i].Value
		if len(v) < balanceBytes {
			return misshapen(&rows[i])
		}
		rows[i].balance = Money(binary.LittleEndian.Uint64(v))
	}
	return nil
}

// misshapen is the error of a row that is not there, or too short.
func misshapen(r *row) error {
	e := &RecordError{Table: r.table, Account: r.Key.Number(), Length: len(*r.Value)}
	if *r.Value == nil {
		e.Length = -1
	}
	return e
}

// record is a record with a balance, until the next call.
func (c *client) record(m Money) []byte {
	binary.LittleEndian.PutUint64(c.value, uint64(m))
	return c.value
}
