package crashtest

import (
	"context"
	"fmt"

	"txnode/rdma"
	"txnode/rdma/rdmatest"
	"txnode/txn"
)

// volatile is a database of one table with DurabilityPower, on blades that lose what was not
// flushed when the power goes.
type volatile struct {
	l     *life
	f     *rdmatest.Fabric
	cat   *powered
	db    *txn.DB
	table *txn.Table[uint64, uint64]
	down  bool // nothing is executed any more
}

// someKeys is how many records are put at a time.
const someKeys = 12

// newVolatile makes one. Every request is shown to before, until the power goes: it may refuse
// it, or end everything by down.
func newVolatile(l *life, seed uint64, before func(v *volatile, w *rdma.WR) rdma.Status) (*volatile, error) {
	v := &volatile{l: l}
	fail := func(w *rdma.WR) rdma.Status {
		s := before(v, w)
		if v.down {
			return rdma.StatusNoBlade
		}
		return s
	}
	v.f = rdmatest.New(rdmatest.Options{Blades: l.Blades, Size: 4 << 20, Seed: seed, Volatile: true, Fail: fail,
		Caps: rdma.Caps{Synchronous: true, Placed: true, OrderedLine: true, MaskedCAS: true}})
	v.cat = &powered{down: &v.down}
	db, err := txn.Open(context.Background(), v.options())
	if err != nil {
		return nil, err
	}
	v.db = db
	v.table, err = txn.CreateTable(db, "records", txn.Uint64, txn.Plain[uint64]())
	return v, err
}

// options are what the database is opened with.
func (v *volatile) options() txn.Options { return v.l.onFabric(v.f, v.cat) }

// losePower takes the power, and gives it back.
func (v *volatile) losePower(seed uint64) {
	v.down = false
	v.f = v.f.LosePower(seed)
}

// open opens the database and its table again.
func (v *volatile) open() (err error) {
	if v.db, err = txn.Open(context.Background(), v.options()); err != nil {
		return fmt.Errorf("opening it: %w", err)
	}
	v.table, err = txn.OpenTable(v.db, "records", txn.Uint64, txn.Plain[uint64]())
	return err
}

// put puts a value into the records from one on, in one transaction of whose Update that is.
func (v *volatile) put(update func(context.Context, func(*txn.Tx) error) error, from, value uint64) error {
	return update(context.Background(), func(tx *txn.Tx) error { return v.fill(tx, from, value) })
}

// fill is put in a transaction.
func (v *volatile) fill(tx *txn.Tx, from, value uint64) error {
	for k := range uint64(someKeys) {
		if err := v.table.Put(tx, from+k, value); err != nil {
			return err
		}
	}
	return nil
}
