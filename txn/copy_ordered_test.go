package txn_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"txnode/index/blink"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/rdma"
	"txnode/txn"
)

// leaf returns the leaf of table 1 that leads to an encoded key, and how many keys it has.
func (p *poker) leaf(key []byte) (a layout.Addr, keys int) {
	p.t.Helper()
	p.v = p.db.Space().View()
	for id := 1; id < p.v.Segments(); id++ {
		first := layout.MakeAddr(layout.SegmentID(id), 0)
		if !p.v.Valid(first) {
			continue
		}
		p.do(func(b *rdma.Batch) { b.Read(p.v.At(first, 0), p.buf, p.n) })
		seg := p.th.Bytes(p.buf, p.n)
		for off := 0; off < len(seg); off += record.LineSize {
			img, at := record.Image(seg[off:]), first+layout.Addr(off)
			if _, err := img.Check(at); err != nil || img.Meta().State() != record.Node || img.Meta().Table() != 1 {
				continue
			}
			n, err := blink.Decode(img.Value())
			if err != nil || n.Level() > 0 {
				continue
			}
			if _, found := n.Search(key); found {
				return at, n.Count()
			}
		}
	}
	p.t.Fatal("no leaf has the key")
	return 0, 0
}

// TestBackupOrdered: an ordered table comes back as one, in order, with the types and the length of
// keys that it had, and with values of all sizes, from a backup of many pages.
func TestBackupOrdered(t *testing.T) {
	db := mustOpen(t, tiny())
	tab, err := txn.CreateOrderedTable(db, "t", atMost(txn.String, 40), txn.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]byte{}
	for i := range 1500 {
		want[fmt.Sprintf("key %d", i*7919%1500)] = bytes.Repeat([]byte{byte(i)}, i*i%900)
	}
	if _, err := tab.Load(t.Context(), func(yield func(string, []byte) bool) {
		for k, v := range want {
			if !yield(k, v) {
				return
			}
		}
	}, txn.LoadOptions{}); err != nil {
		t.Fatal(err)
	}
	table(t, db, "hash")
	var file bytes.Buffer
	if info, err := db.Backup(t.Context(), &file, txn.BackupOptions{}); err != nil || info.Records != 1500 {
		t.Fatal(info, err)
	}
	to := mustOpen(t, tiny())
	if _, err := to.Restore(t.Context(), bytes.NewReader(file.Bytes()), txn.BackupOptions{}); err != nil {
		t.Fatal(err)
	}
	if i, err := to.TableInfo("t"); err != nil || !i.Ordered || i.MaxKey != 40 || i.Key != "string" {
		t.Errorf("%+v, %v", i, err)
	}
	if i, err := to.TableInfo("hash"); err != nil || i.Ordered || i.MaxKey != 0 {
		t.Errorf("%+v, %v", i, err)
	}
	copied, err := txn.OpenOrderedTable(to, "t", txn.String, txn.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if err := to.View(t.Context(), func(tx *txn.Tx) error {
		var keys []string
		for k, v := range copied.All(tx) {
			if !bytes.Equal(v, want[k]) {
				t.Errorf("%q: %d bytes, want %d", k, len(v), len(want[k]))
			}
			keys = append(keys, k)
		}
		if len(keys) != len(want) || !slices.IsSorted(keys) {
			t.Errorf("%d keys", len(keys))
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// TestBackupOfDamagedTree: a record and a leaf of an ordered table are damaged. From one copy they
// are repaired; what is damaged on all is left out, and the rest is not.
func TestBackupOfDamagedTree(t *testing.T) {
	o := tiny()
	o.Backups, o.Blades = txn.F(1), 2
	db := mustOpen(t, o)
	tab := inOrder(t, db, "t")
	const n = 1000
	value := func(k uint64) []byte { return bytes.Repeat(val(k+1<<40), 3) }
	if _, err := tab.Load(t.Context(), func(yield func(uint64, []byte) bool) {
		for k := range uint64(n) {
			if !yield(k, value(k)) {
				return
			}
		}
	}, txn.LoadOptions{}); err != nil {
		t.Fatal(err)
	}
	p := newPoker(t, db)
	row, single := p.find(value(300)), p.find(value(310))
	key := binary.BigEndian.AppendUint64(nil, 600)
	leaf, lost := p.leaf(key)
	spared, _ := p.leaf(binary.BigEndian.AppendUint64(nil, 900))
	p.spoil(row, 0, record.ValueAt(8, 24)+3)
	p.spoil(leaf, 0, record.LineSize+9)
	backup := func() (left []txn.Skipped, rows int) {
		t.Helper()
		var file bytes.Buffer
		if _, err := db.Backup(t.Context(), &file,
			txn.BackupOptions{SkipDamaged: func(x txn.Skipped) { left = append(left, x) }}); err != nil {
			t.Fatal(err)
		}
		to := mustOpen(t, tiny())
		if _, err := to.Restore(t.Context(), bytes.NewReader(file.Bytes()), txn.BackupOptions{}); err != nil {
			t.Fatal(err)
		}
		copied := inOrder(t, to, "t")
		if err := to.View(t.Context(), func(tx *txn.Tx) error {
			for k, v := range copied.All(tx) {
				if rows++; !bytes.Equal(v, value(k)) {
					t.Errorf("%d: %x", k, v)
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return left, rows
	}
	if left, rows := backup(); len(left) != 0 || rows != n {
		t.Errorf("one copy is damaged: left out %+v, %d rows", left, rows)
	}
	p.whole(row, record.Size(8, 24))
	for k := range 2 {
		if _, err := p.image(leaf, k, 1<<10).Check(leaf); err != nil {
			t.Errorf("copy %d of the leaf: %v", k, err)
		}
	}
	for k := range 2 {
		p.spoil(single, k, record.ValueAt(8, 24)+3)
		p.spoil(leaf, k, record.LineSize+9)
	}
	p.spoil(spared, 0, record.LineSize+9)
	_, err := db.Backup(t.Context(), &bytes.Buffer{}, txn.BackupOptions{})
	says(t, "without SkipDamaged", err, txn.ErrCorrupt, `table "t"`)
	left, rows := backup()
	if len(left) != 2 || left[0].Block != single || binary.BigEndian.Uint64(left[0].Key) != 310 ||
		left[1].Block != leaf || left[0].Rest || left[1].Rest {
		t.Errorf("left out: %+v", left)
	}
	if rows != n-1-lost {
		t.Errorf("%d rows, want %d without the one and the %d of the leaf", rows, n, lost)
	}
}

// TestLoadOrdered: keys that come in order fill the leaves, and the transactions of a load need a
// fraction of a verb for each key beyond what the records cost.
func TestLoadOrdered(t *testing.T) {
	db := mustOpen(t, tiny())
	tab := inOrder(t, db, "t")
	const n = 4000
	before := db.Metrics()
	if _, err := tab.Load(t.Context(), func(yield func(uint64, []byte) bool) {
		for k := range uint64(n) {
			if !yield(k, val(k)) {
				return
			}
		}
	}, txn.LoadOptions{}); err != nil {
		t.Fatal(err)
	}
	after := db.Metrics()
	st, err := tab.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	verbs := float64(after.Verbs.Total()-before.Verbs.Total()) / n
	t.Logf("%.2f verbs a record; %+v", verbs, st)
	if verbs > 3 {
		t.Errorf("%.2f verbs a record", verbs)
	}
	if st.Rows != n || st.Bytes != 16*n || st.Fill < 0.85 || st.Height != 2 && st.Height != 3 || st.Leaves < n/100 ||
		st.Leaves > n/20 || st.Inner == 0 {
		t.Errorf("%+v", st)
	}
	if st.IndexBytes != (st.Leaves+st.Inner)*1024+64 {
		t.Errorf("the index has %d bytes", st.IndexBytes)
	}
}
