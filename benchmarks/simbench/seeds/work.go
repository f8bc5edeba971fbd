package seeds

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"txnode/check"
	"txnode/txn"
)

// work is a workload that checks itself.
type work struct {
	name   string
	weight uint64 // how often it is drawn, but for those of ranges and of indexes
	bulk   bool   // a transaction of it may write several KiB
	run    func(b *bench) error
	order  order
}

// order is which kinds of table a workload is for.
type order uint8

const (
	ownTables order = iota // it makes its own, which are hash tables
	eitherOrder
	ranges  // it needs an ordered one
	indexes // either, with secondary indexes
)

var works = []work{
	{"smallbank", 2, true, smallBank, ownTables},
	{"tatp", 2, true, telecom, ownTables},
	{"bank", 1, false, bank, eitherOrder},
	{"write-skew", 1, false, skew, eitherOrder},
	{"long-fork", 1, false, fork, eitherOrder},
	{"list-append", 2, true, lists, eitherOrder},
	{"counter", 1, false, counter, eitherOrder},
	{"insert-race", 1, false, insertRace, eitherOrder},
	{"churn", 2, false, churn, eitherOrder},
	{"queue", 0, true, queue, ranges},
	{"range-sum", 0, true, rangeSum, ranges},
	{"range-churn", 0, true, rangeChurn, ranges},
	{"secondary", 0, true, secondary, indexes},
	{"unique-race", 0, true, uniqueRace, indexes},
}

// Workloads are the names of the workloads.
func Workloads() []string {
	var out []string
	for i := range works {
		out = append(out, works[i].name)
	}
	return out
}

// pick draws a workload, of hash tables.
func pick(r *rng) *work {
	total := uint64(0)
	for i := range works {
		total += works[i].weight
	}
	x := r.n(total)
	for i := range works {
		if x < works[i].weight {
			return &works[i]
		}
		x -= works[i].weight
	}
	panic("seeds: weights")
}

// worksFor are the workloads for a kind of table.
func worksFor(kind order) []*work {
	var out []*work
	for i := range works {
		if works[i].order == kind {
			out = append(out, &works[i])
		}
	}
	return out
}

func lookup(name string) (*work, error) {
	for i := range works {
		if works[i].name == name {
			return &works[i], nil
		}
	}
	return nil, fmt.Errorf("%w: workload %q; there are %s", ErrUnknown, name, strings.Join(Workloads(), ", "))
}

// batchOfRows is how many rows are added beside the workload at a time.
const batchOfRows = 4

// bench is a workload in progress. The simulator runs everything on one goroutine,
// so its variables need no locks.
type bench struct {
	*plan
	*process // that which sets up, and looks at what is left
	rng      rng
	members  []*member // of the round in progress
	extinct  bool      // its process is dead, and no other one has the database open
	opened   int       // processes that were opened, but for those of rounds

	last   uint64          // key of the row that was added last beside the workload
	added  map[uint64]bool // first keys of the rows that were
	world  *world
	round  int       // of faults
	open   []pending // transactions whose outcome nobody was told
	ledger ledger
	sides  sides
	lists  []check.ListTxn // of list-append
	cov    Coverage
	damage atomic.Pointer[error] // see damageCore
}

type (
	rows        = txn.Table[uint64, []byte]
	orderedRows = txn.OrderedTable[uint64, []byte]
)

func num(p []byte) uint64 { return binary.LittleEndian.Uint64(p) }

func val(v uint64) []byte { return binary.LittleEndian.AppendUint64(nil, v) }

// extraRows is the first key of rows that are added beside the workload.
const extraRows = 1 << 40

// fill makes the workload's table, with keys 0 to n-1.
func (b *bench) fill(n uint64, value []byte) (err error) {
	b.last, b.added = extraRows, map[uint64]bool{}
	if err = b.table(b.process); err != nil || n == 0 {
		return err
	}
	return b.db.Update(context.Background(), func(tx *txn.Tx) error {
		for k := range n {
			if err := b.t.Insert(tx, k, value); err != nil {
				return err
			}
		}
		return nil
	})
}

// client is one worker of a run.
type client struct {
	*bench
	*process
	w   *txn.Worker
	id  int
	rng rng
	// asides are what it draws for what it does beside the workload.
	asides rng
}

// steps runs n steps in every worker, and then lets the faults end.
func (b *bench) steps(n int, step func(c *client, i int) error) error {
	all := n
	return b.run(func(q *process) error {
		n := b.ownShare(q, all)
		return q.db.Run(context.Background(), b.threads, b.coroutines, func(_ context.Context, id int,
			w *txn.Worker) error {
			id += q.slot * b.clients()
			drawn := b.seed ^ uint64(id+1)<<48 ^ uint64(b.round)<<40
			c := &client{b, q, w, id, rng(drawn), rng(drawn ^ 0xa51de)}
			for i := 0; b.another(i, n); i++ {
				if b.grow && c.rng.chance(30) {
					if err := c.lasting(c.add()); err != nil {
						return err
					}
				}
				if err := c.lasting(step(c, b.round*all+i)); err != nil {
					return err
				}
				if err := c.lasting(c.aside()); err != nil {
					return err
				}
				if err := b.keep(&c.rng, c.w); err != nil {
					return err
				}
			}
			return nil
		})
	}, b.table)
}

// table opens the workload's table in a process, or makes it.
func (p *plan) table(q *process) (err error) {
	var all []txn.TableIndex[uint64, []byte]
	if p.work.order == indexes {
		all = q.indexes()
	}
	if !p.ordered {
		q.t, err = txn.CreateTable(q.db, p.work.name, txn.Uint64, txn.Bytes(), all...)
		return err
	}
	short := txn.Uint64
	short.MaxBytes = 8
	if q.o, err = txn.CreateOrderedTable(q.db, p.work.name, short, txn.Bytes(), all...); err != nil {
		return err
	}
	q.t = q.o.Table
	return nil
}

// lasting is forgive for a client who goes on if he can.
func (c *client) lasting(err error) error {
	if c.stays(err) {
		c.w.Sleep(breath)
		return nil
	}
	return c.forgive(err)
}

// add inserts a few rows that nobody else uses, so that the table grows.
func (c *client) add() error {
	first := c.last + 1
	c.last += batchOfRows
	return c.update(func(tx *txn.Tx) error {
		for k := first; k < first+batchOfRows; k++ {
			if err := c.t.Insert(tx, k, val(k)); err != nil {
				return err
			}
		}
		return nil
	}, func() { c.added[first] = true })
}

// update runs a transaction that must come to an end. done, unless it is nil, is
// called when the transaction has committed: now, or when its outcome is known.
func (c *client) update(fn func(tx *txn.Tx) error, done func()) error {
	var id uint64
	answered := false
	defer func() {
		if !answered { // the thread was stopped
			c.ledger.note(id, toldNothing)
			c.open = append(c.open, pending{id, done})
		}
	}()
	start := c.w.Now()
	err := c.w.Update(context.Background(), func(tx *txn.Tx) error {
		c.ledger.note(id, toldAborted) // the attempt before
		id = tx.ID()
		if err := c.stuck(c.w.Now(), start); err != nil {
			return err
		}
		return fn(tx)
	})
	switch {
	case errors.Is(err, txn.ErrOutcomeUnknown) && c.faults != nil:
		c.ledger.note(id, toldUnknown)
		c.ledger.by[id] = c.process
		c.open = append(c.open, pending{id, done})
	case err != nil:
		c.ledger.note(id, toldAborted)
	default:
		c.ledger.note(id, toldCommitted)
		if done != nil {
			done()
		}
	}
	answered = true
	return err
}

// view runs a transaction that writes nothing, and must come to an end.
func (c *client) view(fn func(tx *txn.Tx) error) error {
	start := c.w.Now()
	return c.w.View(context.Background(), func(tx *txn.Tx) error {
		if err := c.stuck(c.w.Now(), start); err != nil {
			return err
		}
		return fn(tx)
	})
}

// quietNs is how long a transaction may take when nobody else is there.
const quietNs = 50_000_000

// finally reads all rows, so that the history ends with what is there, and hands
// each row of the workload that exists to look.
func (b *bench) finally(n uint64, look func(k uint64, value []byte) error) error {
	const batch = 16
	read := func(lo, hi uint64, look func(k uint64, value []byte) error) error {
		start := b.db.Now()
		return b.db.View(context.Background(), func(tx *txn.Tx) error {
			if b.db.Now()-start > quietNs {
				return errStuck
			}
			for k := lo; k < hi; k++ {
				_ = b.t.Stage(tx, k, txn.ForRead)
			}
			for k := lo; k < hi; k++ {
				p, err := b.t.Get(tx, k)
				if errors.Is(err, txn.ErrNotFound) {
					continue
				}
				if err == nil && look != nil {
					err = look(k, p)
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	for k := uint64(0); k < n; k += batch {
		if err := read(k, min(k+batch, n), look); err != nil {
			return err
		}
	}
	for first := uint64(extraRows) + 1; first <= b.last; first += batchOfRows {
		got := 0
		err := read(first, first+batchOfRows, func(k uint64, p []byte) error {
			got++
			if len(p) != 8 || num(p) != k {
				return fmt.Errorf("the row %#x that was added is %x", k, p)
			}
			return nil
		})
		if err != nil {
			return err
		}
		if want := batchOfRows; b.added[first] && got != want || !b.added[first] && got != 0 {
			return fmt.Errorf("%d of %d rows from %#x on are there, and adding them was a success: %v",
				got, want, first, b.added[first])
		}
	}
	return nil
}
