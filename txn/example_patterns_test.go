package txn_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"txnode/txn"
)

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
