package main

import (
	"context"
	"errors"

	"txnode/benchmarks/workload"
)

// buffered is a transaction on a server: keys that are staged are fetched together, and writes are
// kept until the end.
type buffered struct {
	ctx     context.Context
	fetch   func(ctx context.Context) error // fetches the rows that are not fetched
	rows    []bufferedRow                   // in the order in which they were named first
	fetched int                             // of them
}

// bufferedRow is a record that the transaction uses.
type bufferedRow struct {
	table  int
	key    uint64
	update bool   // it is written, most likely
	was    []byte // as it was fetched; nil: it has no value
	now    []byte // likewise, for the transaction
	dirty  bool   // now is to be written
}

// errAgain ends an attempt that conflicts with another transaction.
var errAgain = errors.New("peers: a conflict: the transaction has to run again")

// begin starts an attempt.
func (b *buffered) begin(ctx context.Context) { b.ctx, b.rows, b.fetched = ctx, b.rows[:0], 0 }

// row returns the row of a key, fetched if it must be.
func (b *buffered) row(table int, key uint64, update, fetch bool) (*bufferedRow, error) {
	i := 0
	for i < len(b.rows) && (b.rows[i].table != table || b.rows[i].key != key) {
		i++
	}
	if i == len(b.rows) {
		b.rows = append(b.rows, bufferedRow{table: table, key: key, update: update})
	}
	if fetch && i >= b.fetched {
		if err := b.fetch(b.ctx); err != nil {
			return nil, err
		}
		for k := range b.rows[b.fetched:] {
			r := &b.rows[b.fetched+k]
			r.now = r.was
		}
		b.fetched = len(b.rows)
	}
	return &b.rows[i], nil
}

// Stage implements workload.Tx. The error is that of the next Get.
func (b *buffered) Stage(table int, key uint64, mode workload.Mode) {
	_, _ = b.row(table, key, mode == workload.Update, false) // fetches nothing
}

// Get implements workload.Tx.
func (b *buffered) Get(table int, key uint64) ([]byte, error) {
	r, err := b.row(table, key, false, true)
	if err == nil && r.now == nil {
		err = workload.ErrNotFound
	}
	if err != nil {
		return nil, err
	}
	return r.now, nil
}

// Put implements workload.Tx.
func (b *buffered) Put(table int, key uint64, value []byte) error {
	r, err := b.row(table, key, true, true)
	if err == nil {
		r.now, r.dirty = append([]byte{}, value...), true
	}
	return err
}

// Insert implements workload.Tx.
func (b *buffered) Insert(table int, key uint64, value []byte) error {
	r, err := b.row(table, key, true, true)
	if err == nil && r.now != nil {
		err = workload.ErrExists
	}
	if err != nil {
		return err
	}
	return b.Put(table, key, value)
}

// Delete implements workload.Tx.
func (b *buffered) Delete(table int, key uint64) error {
	r, err := b.row(table, key, true, true)
	if err == nil && r.now == nil {
		err = workload.ErrNotFound
	}
	if err == nil {
		r.now, r.dirty = nil, true
	}
	return err
}
