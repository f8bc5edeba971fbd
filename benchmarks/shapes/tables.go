package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"txnode/txn"
)

// manyTables measures how long it takes to make a table, and what it takes.
func (b *bench) manyTables(ctx context.Context) error {
	dir, remove, err := b.temporary()
	if err != nil {
		return err
	}
	defer remove()
	if err := b.makeTables(ctx, "in memory", b.tables, txn.Options{}, func() (float64, error) {
		return resident(),
			nil
	}); err != nil {
		return err
	}
	return b.makeTables(ctx, "in a directory, IndexGroups 4", b.tables/10, txn.Options{Dir: dir, IndexGroups: 4},
		func() (float64, error) { return onDisk(dir) })
}

func (b *bench) makeTables(ctx context.Context, where string, n int, o txn.Options,
	size func() (float64, error)) error {
	_, err := with(ctx, o, func(db *txn.DB, _ *table) error {
		before, err := size()
		if err != nil {
			return err
		}
		var done atomic.Int64
		defer b.watch("tables", &done, n)()
		tables, took := make([]*table, n), make([]time.Duration, 10) // of each tenth
		for i := range tables {
			start := time.Now()
			if tables[i], err = txn.CreateTable(db, fmt.Sprintf("table %d", i), txn.Uint64,
				txn.Plain[[2]uint64]()); err != nil {
				return err
			}
			took[i*10/n] += time.Since(start)
			done.Add(1)
			if err := ctx.Err(); err != nil {
				return err
			}
		}
		after, err := size()
		if err != nil {
			return err
		}
		err = db.Update(ctx, func(tx *txn.Tx) error {
			for i, t := range tables {
				if err := insert(t, tx, uint64(i)); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		for i, t := range tables {
			if err := expect(ctx, db, t, uint64(i), uint64(i), true); err != nil {
				return err
			}
		}
		b.line("tables", fmt.Sprintf("%d %s", n, where),
			"%.2f MiB each; of the first tenth each made in %.2f ms, of the last in %.2f",
			(after-before)/float64(n)/mib, each(took[0], n/10)/1e3, each(took[9], n/10)/1e3)
		return nil
	})
	return err
}

// values measures what memory is left to a table whose values grow and shrink.
func (b *bench) values(ctx context.Context) error {
	n := min(500, b.keys/10)
	_, err := with(ctx, txn.Options{}, func(db *txn.DB, _ *table) error {
		t, err := txn.CreateTable(db, "values", txn.Uint64, txn.Bytes())
		if err != nil {
			return err
		}
		for round := range 4 {
			for j := range 28 {
				value := make([]byte, 8<<min(j, 27-j))
				for k := range uint64(n) {
					if err := db.Update(ctx, func(tx *txn.Tx) error { return t.Put(tx, k, value) }); err != nil {
						return err
					}
				}
			}
			b.line("values", fmt.Sprintf("%d, from 8 bytes to 64 KiB and back, time %d", n, round+1),
				"process %4.0f MiB", resident()/mib)
		}
		return db.View(ctx, func(tx *txn.Tx) error {
			for k := range uint64(n) {
				if v, err := t.Get(tx, k); err != nil || len(v) != 8 {
					return fmt.Errorf("key %d has %d bytes, %w", k, len(v), err)
				}
			}
			return nil
		})
	})
	return err
}
