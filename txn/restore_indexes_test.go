package txn_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"txnode/memory/record"
	"txnode/txn"
)

// backupOf copies a database, without what is damaged, of which it must leave out so much,
// and restores that.
func backupOf(t *testing.T, db *txn.DB, skipped uint64, to txn.Options) *txn.DB {
	t.Helper()
	var file bytes.Buffer
	info, err := db.Backup(t.Context(), &file, txn.BackupOptions{SkipDamaged: func(txn.Skipped) {}})
	if err != nil || info.Skipped != skipped {
		t.Fatalf("%+v, %v", info, err)
	}
	restored := mustOpen(t, to)
	if got, err := restored.Restore(t.Context(), bytes.NewReader(file.Bytes()), txn.BackupOptions{}); err != nil ||
		got != info {
		t.Fatalf("restored: %+v, %v; the backup was %+v", got, err, info)
	}
	return restored
}

// TestBackupCounts: what a backup says it has are records, and entries of indexes apart.
func TestBackupCounts(t *testing.T) {
	d := &damagedPeople{t: t, db: mustOpen(t, tiny())}
	d.open(false)
	for k := range uint64(3) {
		if err := d.put(k, person{fmt.Sprint("name", k), fmt.Sprint(k, "@x")}); err != nil {
			t.Fatal(err)
		}
	}
	if info, err := d.db.Backup(t.Context(), io.Discard, txn.BackupOptions{}); err != nil || info.Records != 3 ||
		info.Entries != 6 {
		t.Errorf("%+v, %v", info, err)
	}
}

// TestRestoreWithoutDamaged: a backup leaves out a record that is damaged. The indexes of the
// restored database have no entry that leads to it: its key in a unique index is free.
func TestRestoreWithoutDamaged(t *testing.T) {
	for _, ordered := range []bool{false, true} {
		for _, shared := range []bool{false, true} {
			t.Run(fmt.Sprintf("ordered=%v,shared=%v", ordered, shared), func(t *testing.T) {
				o, to := tiny(), tiny()
				if shared {
					o, to = sharedOn(t, 2), sharedOn(t, 2)
				}
				d := newDamagedPeople(t, o, ordered)
				if shared { // whose cut has the record written again from the log of its worker, unless that was closed
					if err := errors.Join(d.put(2, person{"name2", "2@x"}), d.db.Close(t.Context())); err != nil {
						t.Fatal(err)
					}
					d.db = mustOpen(t, o)
					d.open(ordered)
					d.spoil(person{"name2", "2@x"})
				}
				d.db = backupOf(t, d.db, 1, to)
				d.open(ordered)
				d.has("restored", []string{"name1=1", "name3=3"}, []string{"1@x=1", "3@x=3"})
				if err := d.put(4, person{"four", "2@x"}); err != nil {
					t.Errorf("the mail of the record that is not there: %v", err)
				}
				d.has("put", []string{"four=4", "name1=1", "name3=3"}, []string{"1@x=1", "2@x=4", "3@x=3"})
				quiet(t, d.db)
			})
		}
	}
}

// TestRestoreWithoutEntry: a backup leaves out an entry of an index. The index of the restored
// database is built anew.
func TestRestoreWithoutEntry(t *testing.T) {
	d := newDamagedPeople(t, tiny(), false)
	d.spoilBlock(newPoker(t, d.db).findKey([]byte("3@x")), record.ChecksumOff)
	d.db = backupOf(t, d.db, 2, tiny())
	d.open(false)
	says(t, "an index that lacks an entry", d.db.View(t.Context(), func(tx *txn.Tx) error {
		_, _, _, err := d.byMail.Lookup(tx, "3@x")
		return err
	}), txn.ErrBuilding)
	if got := entriesOf(t, d.db, d.byName); !slices.Equal(got, []string{"name1=1", "name3=3"}) {
		t.Errorf("the other index has %q", got)
	}
	if err := d.put(4, person{"four", "2@x"}); err != nil {
		t.Errorf("the mail of the record that is not there: %v", err)
	}
	if err := d.byMail.Build(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	d.has("built", []string{"four=4", "name1=1", "name3=3"}, []string{"1@x=1", "2@x=4", "3@x=3"})
}

// TestRestoreOwnKeys: entries of an index whose Key only the program knows do not tell to which
// records they lead. Of a database from which a record was left out it is built anew; of another
// one it is as it was.
func TestRestoreOwnKeys(t *testing.T) {
	own := txn.String
	own.Name = "own"
	index := func() *txn.Index[uint64, person, string] {
		return txn.NewIndex("by_own", own, func(_ uint64, p person) []string { return []string{p.Name} })
	}
	d := &damagedPeople{t: t, db: mustOpen(t, tiny())}
	open := func() *txn.Index[uint64, person, string] {
		t.Helper()
		x := index()
		d.people = must(txn.CreateTable(d.db, "people", txn.Uint64, txn.JSON[person](), x))
		return x
	}
	open()
	for k := range uint64(3) {
		if err := d.put(k, person{Name: fmt.Sprint("name", k)}); err != nil {
			t.Fatal(err)
		}
	}
	from := d.db
	d.db = backupOf(t, from, 0, tiny())
	if got := entriesOf(t, d.db, open()); len(got) != 3 {
		t.Errorf("of a sound database: %q", got)
	}
	d.db = from
	d.spoil(person{Name: "name2"})
	d.db = backupOf(t, from, 1, tiny())
	x := open()
	if err := x.Build(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if got := entriesOf(t, d.db, x); !slices.Equal(got, []string{"name0=0", "name1=1"}) {
		t.Errorf("without the record: %q", got)
	}
}

// TestRestoreUnbuilt: an index that was not built when the database was copied can be built in the
// restored one, which has coordinators of its own.
func TestRestoreUnbuilt(t *testing.T) {
	d := &damagedPeople{t: t, db: mustOpen(t, tiny())}
	d.people = must(txn.CreateTable(d.db, "people", txn.Uint64, txn.JSON[person]()))
	for k := range uint64(3) {
		if err := d.put(k, person{Name: fmt.Sprint("name", k)}); err != nil {
			t.Fatal(err)
		}
	}
	for range 20 { // coordinators
		w := must(d.db.NewWorker())
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	d.open(false)
	d.db = backupOf(t, d.db, 0, tiny())
	d.open(false)
	tx, err := d.db.Begin(t.Context(), false) // which keeps the indexes, as all transactions of this database do
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, err := d.people.Get(tx, 1); err != nil {
		t.Fatal(err)
	}
	for _, x := range []*txn.Index[uint64, person, string]{d.byName, d.byMail} {
		if err := x.Build(ctx, nil); err != nil {
			t.Fatal(err)
		}
	}
	d.has("built", []string{"name0=0", "name1=1", "name2=2"}, nil)
}
