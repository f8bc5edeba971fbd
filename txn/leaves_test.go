package txn_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"testing"

	"txnode/index"
	"txnode/memory/record"
	"txnode/txn"
	"txnode/verify"
)

// leafTwins are keys of table 1 that an index of leaves cannot tell apart, big-endian.
var leafTwins = [][2]uint64{{481682, 5413279}, {1076554, 4236419}, {1848640, 4700351}, {1355965, 3617495}}

func bigEndian(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

// fillLeaves fills a table with keys of which so many lie before the first twins, in the order of the
// index: pages of a backup end at each of their positions.
func fillLeaves(t *testing.T, db *txn.DB, before int) (*txn.Table[[]byte, []byte], map[string]string) {
	t.Helper()
	tab, err := txn.CreateTable(db, "t", txn.BytesKey, txn.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	hash := func(n uint64) uint64 { return record.Hash(1, bigEndian(n)) }
	a, b := leafTwins[0][0], leafTwins[0][1]
	if x, y := index.AppendHash(nil, hash(a)), index.AppendHash(nil, hash(b)); !bytes.Equal(x, y) {
		t.Fatalf("%x and %x are no twins", x, y)
	}
	model := map[string]string{}
	for _, x := range leafTwins {
		for _, n := range x {
			model[string(bigEndian(n))] = fmt.Sprint("twin ", n)
		}
	}
	for n, found := uint64(0), 0; found < before; n++ {
		if k := string(bigEndian(n)); hash(n) < hash(a) {
			model[k] = fmt.Sprint("value ", n)
			found++
		}
	}
	if err := db.Update(context.Background(), func(tx *txn.Tx) error {
		for k, v := range model {
			if err := tab.Put(tx, []byte(k), []byte(v)); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return tab, model
}

// sameAs compares a table with a model, by lookups and by a walk.
func sameAs(t *testing.T, db *txn.DB, tab *txn.Table[[]byte, []byte], model map[string]string) {
	t.Helper()
	if err := db.View(context.Background(), func(tx *txn.Tx) error {
		n := 0
		for k, v := range tab.All(tx) {
			n++
			if model[string(k)] != string(v) {
				t.Errorf("the walk has %q for %x", v, k)
			}
		}
		if n != len(model) {
			t.Errorf("the walk has %d records of %d", n, len(model))
		}
		for k, v := range model {
			if got, err := tab.Get(tx, []byte(k)); err != nil || string(got) != v {
				t.Errorf("%x: %q, %v; want %q", k, got, err, v)
			}
		}
		return tx.Err()
	}); err != nil {
		t.Fatal(err)
	}
}

// TestLeavesBackup: a backup of a table with an index of leaves has all records, also those with one
// hash, between which a page must not end.
func TestLeavesBackup(t *testing.T) {
	for _, before := range []int{0, 254, 255, 256} {
		t.Run(fmt.Sprint(before), func(t *testing.T) {
			ctx := context.Background()
			db := openMemory(t, txn.Options{LeafIndex: true, NodeEntries: 8})
			tab, model := fillLeaves(t, db, before)
			sameAs(t, db, tab, model)
			var file bytes.Buffer
			if _, err := db.Backup(ctx, &file, txn.BackupOptions{}); err != nil {
				t.Fatal(err)
			}
			copied := openMemory(t, txn.Options{})
			if _, err := copied.Restore(ctx, bytes.NewReader(file.Bytes()), txn.BackupOptions{}); err != nil {
				t.Fatal(err)
			}
			restored, err := txn.OpenTable(copied, "t", txn.BytesKey, txn.Bytes())
			if err != nil {
				t.Fatal(err)
			}
			sameAs(t, copied, restored, model)
		})
	}
}

// TestLeavesStay: a table keeps its index whatever the option says later, and a check knows it.
func TestLeavesStay(t *testing.T) {
	o := tiny()
	o.Dir = t.TempDir()
	o.LeafIndex = true
	db := mustOpen(t, o)
	tab, model := fillLeaves(t, db, 500)
	st, err := tab.Stats(context.Background())
	if err != nil || st.Leaves < 20 || st.Rows != uint64(len(model)) {
		t.Errorf("%+v, %v", st, err)
	}
	if err := db.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	sum := checkDir(t, o.Dir, func(f verify.Finding) { t.Error(f) })
	if sum.Live != uint64(len(model)) || sum.Tables[0].Leaves != st.Leaves {
		t.Errorf("%+v", sum)
	}
	o.LeafIndex = false
	db = mustOpen(t, o)
	if tab, err = txn.CreateTable(db, "t", txn.BytesKey, txn.Bytes()); err != nil {
		t.Fatal(err)
	}
	sameAs(t, db, tab, model)
	if err := db.DropTable(context.Background(), "t"); err != nil {
		t.Fatal(err)
	}
	other, err := txn.CreateTable(db, "t", txn.BytesKey, txn.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if st, err := other.Stats(context.Background()); err != nil || st.SubTables == 0 || st.Rows != 0 {
		t.Errorf("%+v, %v", st, err)
	}
	if err := db.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	sound(t, o.Dir)
}
