package ycsb

import (
	"context"
	"errors"
	"math"

	"txnode/benchmarks/workload"
)

// Transaction types, by number. A workload has those with a share.
const (
	Read = iota
	Update
	Insert
	ReadModifyWrite
	Scan
	NumTypes
)

var typeNames = [NumTypes]string{"Read", "Update", "Insert", "ReadModifyWrite", "Scan"}

// table is the number of the only table.
const table = 0

// client is a workload.Client. Its transaction functions are bound once; their
// parameters are fields.
type client struct {
	worker workload.Worker
	driver *Driver
	ledger *ledger
	rng    workload.Rand
	zipf   workload.Zipf
	run    [NumTypes]func(workload.Tx) error

	typ    int // of the types that the workload has
	number uint64
	key    uint64
	taken  bool // the number to insert was taken, by an earlier run of the transaction
	word   uint64
	value  []byte
	seen   []byte // what Read has read

	length  int // records to scan
	scanned int
	last    uint64 // key
	bad     *RowError
	step    func(key uint64, value []byte) bool
}

func newClient(d *Driver, l *ledger, rng workload.Rand, w workload.Worker) *client {
	c := &client{
		worker: w, driver: d, ledger: l, rng: rng, zipf: d.zipf,
		value: make([]byte, d.options.ValueSize), seen: make([]byte, d.options.ValueSize),
	}
	c.run = [NumTypes]func(workload.Tx) error{
		Read: c.read, Update: c.update, Insert: c.insert, ReadModifyWrite: c.readModifyWrite, Scan: c.scan,
	}
	c.step = c.scanStep
	return c
}

// Next implements workload.Client.
func (c *client) Next() int {
	typ := c.driver.mix.Draw(&c.rng)
	c.Draw(typ)
	return typ
}

// Draw implements workload.Client. What latest draws depends on what other clients have inserted.
func (c *client) Draw(typ int) {
	c.typ, c.taken = c.driver.types[typ], false
	if c.typ == Insert {
		c.word = 0
		return
	}
	c.aim(c.drawNumber())
	switch c.typ {
	case Update:
		c.word = c.rng.Uint64()
	case Scan:
		c.length = 1 + c.rng.Intn(c.driver.options.ScanLength)
	}
}

func (c *client) aim(number uint64) {
	c.number, c.key = number, c.driver.keyOf(number)
}

func (c *client) drawNumber() uint64 {
	x := c.rng.Uint64()
	switch c.driver.distribution {
	case Zipfian:
		return c.zipf.Rank(x)
	case Scrambled:
		return workload.Scatter(c.zipf.Rank(x)) % c.zipf.N()
	case Latest:
		n := c.driver.numbers.limit.Load()
		c.zipf.Grow(n)
		return n - 1 - c.zipf.Rank(x)
	default:
		c.zipf.Grow(c.driver.numbers.limit.Load())
		return c.zipf.Rank(x)
	}
}

// Run implements workload.Client.
func (c *client) Run(ctx context.Context) (workload.Outcome, error) {
	switch c.typ {
	case Read, Scan:
		err := c.worker.View(ctx, c.run[c.typ])
		return c.outcome(err)
	case Insert:
		if !c.taken {
			c.aim(c.driver.numbers.take())
			c.taken = true
		}
		err := c.worker.Update(ctx, c.run[Insert])
		switch {
		case err == nil:
			c.driver.numbers.end(c.number, true, 0)
		case errors.Is(err, workload.ErrExists):
			return workload.RolledBack, nil // it has committed before
		case errors.Is(err, workload.ErrUncertain):
			c.driver.numbers.end(c.number, false, uncertain)
		default:
			c.driver.numbers.end(c.number, false, failed)
		}
		return c.outcome(err)
	}
	err := c.worker.Update(ctx, c.run[c.typ])
	if c.typ == ReadModifyWrite {
		switch {
		case err == nil:
			c.ledger.added++
		case errors.Is(err, workload.ErrUncertain):
			c.ledger.uncertain++
		}
	}
	return c.outcome(err)
}

// outcome takes a record that is absent for one whose insert has failed: only those are drawn.
func (c *client) outcome(err error) (workload.Outcome, error) {
	if err == nil {
		return workload.Committed, nil
	}
	var row *RowError
	if errors.As(err, &row) && row.Length < 0 && c.driver.numbers.isLost(row.Number) {
		return workload.RowAbsent, nil
	}
	return workload.Committed, err
}

func (c *client) read(tx workload.Tx) error {
	v, err := c.get(tx)
	copy(c.seen, v)
	return err
}

func (c *client) update(tx workload.Tx) error {
	tx.Stage(table, c.key, workload.Update)
	fill(c.value, c.key, c.word)
	return tx.Put(table, c.key, c.value)
}

func (c *client) insert(tx workload.Tx) error {
	fill(c.value, c.key, c.word)
	return tx.Insert(table, c.key, c.value)
}

func (c *client) readModifyWrite(tx workload.Tx) error {
	tx.Stage(table, c.key, workload.Update)
	v, err := c.get(tx)
	if err != nil {
		return err
	}
	fill(c.value, c.key, word(v)+1)
	return tx.Put(table, c.key, c.value)
}

func (c *client) scan(tx workload.Tx) error {
	r, err := workload.RangerOf(tx)
	if err != nil {
		return err
	}
	c.scanned, c.bad = 0, nil
	err = r.Range(table, workload.Range{From: c.key, To: math.MaxUint64, Limit: c.length}, c.step)
	if err == nil && c.bad != nil {
		return c.bad
	}
	if err == nil && (c.scanned == 0 || c.scanned > c.length) && !c.driver.numbers.isLost(c.number) {
		// at least the first is there
		return &RowError{Number: c.number, Key: c.key, Length: -1, Want: c.driver.options.ValueSize}
	}
	return err
}

// scanStep takes a record of a scan.
func (c *client) scanStep(key uint64, value []byte) bool {
	if size := c.driver.options.ValueSize; len(value) != size || !likely(value, key) || key < c.key || c.scanned > 0 &&
		key <= c.last {
		c.bad = &RowError{Key: key, Length: len(value), Want: size}
		return false
	}
	copy(c.seen, value)
	c.last = key
	c.scanned++
	return true
}

// get returns the value of the record drawn.
func (c *client) get(tx workload.Tx) ([]byte, error) {
	v, err := tx.Get(table, c.key)
	switch {
	case err == nil && len(v) == c.driver.options.ValueSize && likely(v, c.key):
		return v, nil
	case err == nil:
		return nil, &RowError{Number: c.number, Key: c.key, Length: len(v), Want: c.driver.options.ValueSize}
	case errors.Is(err, workload.ErrNotFound):
		return nil, &RowError{Number: c.number, Key: c.key, Length: -1, Want: c.driver.options.ValueSize}
	}
	return nil, err
}
