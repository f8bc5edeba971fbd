package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"txnode/txn"
)

// accesses are what manyKeys does with every key, in this order: the first makes them.
var accesses = []struct {
	what  string
	stage bool // all keys before the first
	atEnd bool // what was read is validated at the end
	do    func(t *table, tx *txn.Tx, k uint64) error
}{
	{"Insert", false, false, insert},
	{"GetForUpdate and Put", false, false, increment},
	{"Stage of all, then Get", true, false, get},
	{"Get, ValidateAtEnd", false, true, get},
	{"Get of absent keys, ValidateAtEnd", false, true, getAbsent},
	{"Get without either", false, false, get},
	{"Get of absent keys", false, false, getAbsent},
}

func insert(t *table, tx *txn.Tx, k uint64) error { return t.Insert(tx, k, [2]uint64{k}) }

func increment(t *table, tx *txn.Tx, k uint64) error {
	v, err := t.GetForUpdate(tx, k)
	if err != nil {
		return err
	}
	v[1]++
	return t.Put(tx, k, v)
}

func get(t *table, tx *txn.Tx, k uint64) error {
	v, err := t.Get(tx, k)
	if err == nil && v != [2]uint64{k, 1} {
		err = fmt.Errorf("key %d has %d", k, v)
	}
	return err
}

func getAbsent(t *table, tx *txn.Tx, k uint64) error {
	_, err := t.Get(tx, k|1<<63)
	if errors.Is(err, txn.ErrNotFound) {
		return nil
	}
	return errors.Join(fmt.Errorf("key %d is not absent", k|1<<63), err)
}

// manyKeys measures what a key costs in transactions of many.
func (b *bench) manyKeys(ctx context.Context) error {
	_, err := with(ctx, txn.Options{LogArea: 64 << 20, Arena: 1 << 30}, func(db *txn.DB, t *table) error {
		for _, a := range accesses {
			var figures []string
			// The first of each is not shown: it also takes the memory that the others use again.
			for i, n := range []int{b.txKeys / 16, b.txKeys / 16, b.txKeys / 4, b.txKeys} {
				start := time.Now()
				err := db.Update(ctx, func(tx *txn.Tx) error {
					if a.atEnd {
						tx.ValidateAtEnd()
					}
					first := uint64(i) << 32
					for k := first; a.stage && k < first+uint64(n); k++ {
						if err := t.Stage(tx, k, txn.ForRead); err != nil {
							return err
						}
					}
					for k := first; k < first+uint64(n); k++ {
						if err := a.do(t, tx, k); err != nil {
							return err
						}
					}
					return nil
				})
				if err != nil {
					return fmt.Errorf("%s, %d keys: %w", a.what, n, err)
				}
				if i > 0 {
					figures = append(figures, fmt.Sprintf("%8.1f us each of %d", each(time.Since(start), n), n))
				}
			}
			b.line("keys", a.what, "%s", strings.Join(figures, "  "))
		}
		return nil
	})
	return err
}
