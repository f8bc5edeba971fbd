package txn_test

import (
	"bytes"
	"context"
	"testing"

	"txnode/txn"
)

// TestZeroDB: a database that nobody has opened is one that is closed, and nothing panics.
func TestZeroDB(t *testing.T) {
	ctx := t.Context()
	source := mustOpen(t, tiny())
	fill(t, source, table(t, source, "t"), 3, val(1))
	var backup bytes.Buffer
	if _, err := source.Backup(ctx, &backup, txn.BackupOptions{}); err != nil {
		t.Fatal(err)
	}
	var db txn.DB
	nothing := func(*txn.Tx) error { return nil }
	for what, call := range map[string]func() error{
		"Update":    func() error { return db.Update(ctx, nothing) },
		"View":      func() error { return db.View(ctx, nothing) },
		"Begin":     func() error { _, err := db.Begin(ctx, false); return err },
		"NewWorker": func() error { _, err := db.NewWorker(); return err },
		"Run": func() error {
			return db.Run(ctx, 1, 1, func(context.Context, int, *txn.Worker) error { return nil })
		},
		"CreateTable":  func() error { _, err := txn.CreateTable(&db, "t", txn.Uint64, txn.Bytes()); return err },
		"OpenRawTable": func() error { _, err := txn.OpenRawTable(&db, "t"); return err },
		"Tables":       func() error { _, err := db.Tables(); return err },
		"Outcome":      func() error { _, err := db.Outcome(ctx, 8<<32); return err },
		"Recover":      func() error { _, err := db.Recover(ctx); return err },
		"Backup":       func() error { _, err := db.Backup(ctx, &bytes.Buffer{}, txn.BackupOptions{}); return err },
		"Restore": func() error {
			_, err := db.Restore(ctx, bytes.NewReader(backup.Bytes()), txn.BackupOptions{})
			return err
		},
		"Close":          func() error { return db.Close(ctx) },
		"Close, again":   func() error { return db.Close(ctx) },
		"View, in Close": func() error { return db.View(ctx, nothing) },
	} {
		says(t, what, call(), txn.ErrClosed)
	}
	db.Record(nil)
	if m := db.Metrics(); m.Committed != 0 || db.Now() != 0 || db.Space() != nil || len(db.Redundancy().Outages) != 0 {
		t.Errorf("a database that is none has metrics %+v", m)
	}
}

// TestZeroTx: a transaction that nobody has begun is one that has ended.
func TestZeroTx(t *testing.T) {
	db := mustOpen(t, tiny())
	tab := table(t, db, "t")
	raw, err := txn.CreateRawTable(db, "raw")
	if err != nil {
		t.Fatal(err)
	}
	var tx txn.Tx
	row := txn.Row{Table: raw, Key: []byte("12345678")}
	for what, call := range map[string]func() error{
		"Commit":       func() error { return tx.Commit() },
		"Execute":      func() error { return tx.Execute() },
		"Fetch":        func() error { return tx.Fetch([]txn.Row{row}) },
		"Row.Put":      func() error { return row.Put(&tx, val(1)) },
		"Stage":        func() error { return tab.Stage(&tx, 1, txn.ForUpdate) },
		"Get":          func() error { _, err := tab.Get(&tx, 1); return err },
		"GetForUpdate": func() error { _, err := tab.GetForUpdate(&tx, 1); return err },
		"Has":          func() error { _, err := tab.Has(&tx, 1); return err },
		"Put":          func() error { return tab.Put(&tx, 1, val(1)) },
		"Insert":       func() error { return tab.Insert(&tx, 1, val(1)) },
		"Delete":       func() error { return tab.Delete(&tx, 1) },
		"raw Stage":    func() error { return raw.Stage(&tx, row.Key, txn.ForRead) },
		"raw Get":      func() error { _, err := raw.Get(&tx, row.Key); return err },
		"raw Put":      func() error { return raw.Put(&tx, row.Key, val(1)) },
		"raw Delete":   func() error { return raw.Delete(&tx, row.Key) },
	} {
		says(t, what, call(), txn.ErrTxDone)
	}
	tx.ValidateAtEnd()
	if err := tx.Rollback(); err != nil || tx.ID() != 0 {
		t.Errorf("Rollback, which can be deferred: %v; ID %d", err, tx.ID())
	}
}

// TestUnknownMode: a key is staged to be read or to be updated, and not for anything else.
func TestUnknownMode(t *testing.T) {
	db := mustOpen(t, tiny())
	tab := table(t, db, "t")
	raw, err := txn.CreateRawTable(db, "raw")
	if err != nil {
		t.Fatal(err)
	}
	const mode = txn.Mode(9)
	key := []byte("12345678")
	for what, call := range map[string]func(tx *txn.Tx) error{
		"Stage":        func(tx *txn.Tx) error { return tab.Stage(tx, 1, mode) },
		"StageAll":     func(tx *txn.Tx) error { return tab.StageAll(tx, mode, 1, 2) },
		"raw Stage":    func(tx *txn.Tx) error { return raw.Stage(tx, key, mode) },
		"raw StageAll": func(tx *txn.Tx) error { return raw.StageAll(tx, txn.ForUpdate+1, key) },
		"Fetch":        func(tx *txn.Tx) error { return tx.Fetch([]txn.Row{{Table: raw, Key: key, Mode: mode}}) },
		"Fetch of a long key": func(tx *txn.Tx) error {
			return tx.Fetch([]txn.Row{{Table: raw, Key: []byte("a key of no 8 bytes"), Mode: mode}})
		},
	} {
		says(t, what, as(t, db, call), txn.ErrOptions, "Mode", "ForRead and ForUpdate are possible")
		if err := db.View(t.Context(),
			func(tx *txn.Tx) error { says(t, what+" in View", call(tx), txn.ErrOptions); return nil }); err != nil {
			t.Error(err)
		}
	}
	untouched := contents(t, db, tab, 3)
	if len(untouched) != 0 {
		t.Errorf("there is something: %v", untouched)
	}
}
