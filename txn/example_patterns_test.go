package txn_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"txnode/txn"
)

// The index of a table is a hash table, which has no order. A program that lists what it has
// stored keeps pages of keys, and changes them in the transaction that inserts a record.
func Example_iteration() {
	ctx := context.Background()
	db := inMemory(ctx)
	defer db.Close(ctx)
	users := must(txn.CreateTable(db, "users", txn.String, txn.Text()))
	pages := must(txn.CreateTable(db, "user pages", txn.Uint64, txn.JSON[[]string]()))

	const perPage = 2 // some hundreds in a real program
	add := func(id uint64, name, mail string) error {
		return db.Update(ctx, func(tx *txn.Tx) error {
			if err := users.Insert(tx, name, mail); err != nil {
				return err // ErrExists: the page has the name already
			}
			names, err := pages.GetForUpdate(tx, id/perPage)
			if err != nil && !errors.Is(err, txn.ErrNotFound) {
				return err
			}
			return pages.Put(tx, id/perPage, append(names, name))
		})
	}
	for id, name := range []string{"ada", "bob", "cyd"} {
		ok(add(uint64(id), name, name+"@example.org"))
	}
	ok(db.View(ctx, func(tx *txn.Tx) error {
		for page := uint64(0); ; page++ {
			names, err := pages.Get(tx, page)
			if errors.Is(err, txn.ErrNotFound) {
				return nil
			} else if err != nil {
				return err
			}
			if err := users.StageAll(tx, txn.ForRead, names...); err != nil {
				return err // one round trip for the records of a page
			}
			for _, name := range names {
				mail, err := users.Get(tx, name)
				if err != nil {
					return err
				}
				fmt.Println(name, mail)
			}
		}
	}))
	// Output:
	// ada ada@example.org
	// bob bob@example.org
	// cyd cyd@example.org
}

// A backup is the state at one moment, although transactions run meanwhile.
func ExampleDB_Backup() {
	ctx := context.Background()
	db := inMemory(ctx)
	defer db.Close(ctx)
	notes := must(txn.CreateTable(db, "notes", txn.String, txn.Text()))
	ok(db.Update(ctx, func(tx *txn.Tx) error { return notes.Put(tx, "a", "kept") }))
	dir := must(os.MkdirTemp("", "notes"))
	defer os.RemoveAll(dir)

	backup := func(name string) (err error) {
		f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		if _, err := db.Backup(ctx, f, txn.BackupOptions{}); err != nil {
			return err // what is in the file is no backup, and Restore refuses it
		}
		return f.Sync()
	}
	ok(backup(filepath.Join(dir, "notes.backup")))

	f := must(os.Open(filepath.Join(dir, "notes.backup")))
	defer f.Close()
	info := must(txn.RestoreDir(ctx, f, filepath.Join(dir, "restored"), txn.Options{}, txn.BackupOptions{}))
	fmt.Println(info.Records, "record")
	// Output: 1 record
}

// Metrics are running totals; the difference of two says what happened between them.
func ExampleDB_Metrics() {
	ctx := context.Background()
	db := inMemory(ctx)
	defer db.Close(ctx)
	counters := must(txn.CreateTable(db, "counters", txn.Uint64, txn.Plain[int64]()))
	before := db.Metrics()
	for range 3 {
		ok(db.Update(ctx, func(tx *txn.Tx) error { return counters.Put(tx, 1, 1) }))
	}
	m := db.Metrics()
	conflicts := uint64(0)
	for reason := range m.Conflicts { // by txn.AbortReason
		conflicts += m.Conflicts[reason] - before.Conflicts[reason]
	}
	verbs := m.Verbs.Sub(&before.Verbs)
	fmt.Println(m.Committed-before.Committed, "committed,", conflicts, "conflicts, verbs posted:", verbs.Total() > 0)
	// Output: 3 committed, 0 conflicts, verbs posted: true
}
