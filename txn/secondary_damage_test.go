package txn_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/txn"
)

// damagedPeople is a table of three people with indexes, of which the record 2 is damaged on all
// copies.
type damagedPeople struct {
	t              *testing.T
	db             *txn.DB
	people         *txn.Table[uint64, person]
	byName, byMail *txn.Index[uint64, person, string]
}

func newDamagedPeople(t *testing.T, o txn.Options, ordered bool) *damagedPeople {
	t.Helper()
	d := &damagedPeople{t: t, db: mustOpen(t, o)}
	d.open(ordered)
	for k := range uint64(3) {
		if err := d.put(k+1, person{fmt.Sprint("name", k+1), fmt.Sprint(k+1, "@x")}); err != nil {
			t.Fatal(err)
		}
	}
	d.spoil(person{"name2", "2@x"})
	says(t, "a reader", d.do(func(tx *txn.Tx) error { _, err := d.people.Get(tx, 2); return err }), txn.ErrCorrupt)
	return d
}

// open makes the table with its indexes, or opens it.
func (d *damagedPeople) open(ordered bool) {
	d.t.Helper()
	d.byName, d.byMail = peopleIndexes()
	var err error
	if ordered {
		var x *txn.OrderedTable[uint64, person]
		if x, err = txn.CreateOrderedTable(d.db, "people", txn.Uint64, txn.JSON[person](), d.byName,
			d.byMail); err == nil {
			d.people = x.Table
		}
	} else {
		d.people, err = txn.CreateTable(d.db, "people", txn.Uint64, txn.JSON[person](), d.byName, d.byMail)
	}
	if err != nil {
		d.t.Fatal(err)
	}
}

// spoil damages the record with a value on all copies.
func (d *damagedPeople) spoil(v person) {
	d.t.Helper()
	p, err := json.Marshal(v)
	if err != nil {
		d.t.Fatal(err)
	}
	d.spoilBlock(newPoker(d.t, d.db).find(p), record.ValueAt(8, len(p))+3)
}

func (d *damagedPeople) spoilBlock(a layout.Addr, off int) {
	p := newPoker(d.t, d.db)
	for k := range p.v.Copies(a) {
		p.spoil(a, k, off)
	}
}

func (d *damagedPeople) do(fn func(tx *txn.Tx) error) error { return d.db.Update(d.t.Context(), fn) }

func (d *damagedPeople) put(k uint64, v person) error {
	return d.do(func(tx *txn.Tx) error { return d.people.Put(tx, k, v) })
}

// has compares the entries of both indexes, and what CheckIndexes says.
func (d *damagedPeople) has(what string, names, mails []string) {
	d.t.Helper()
	if got := entriesOf(d.t, d.db, d.byName); !slices.Equal(got, names) {
		d.t.Errorf("%s: by name %q, want %q", what, got, names)
	}
	if got := entriesOf(d.t, d.db, d.byMail); !slices.Equal(got, mails) {
		d.t.Errorf("%s: by mail %q, want %q", what, got, mails)
	}
	if sum, err := d.people.CheckIndexes(d.t.Context(), txn.IndexCheckOptions{}); err != nil || sum.Faults != 0 {
		d.t.Errorf("%s: %+v, %v", what, sum, err)
	}
}

// TestDamagedRecordOfIndexes: a record of which every copy is damaged is replaced or deleted in a
// table with indexes as in one without, and no entry leads to what it was.
func TestDamagedRecordOfIndexes(t *testing.T) {
	for _, ordered := range []bool{false, true} {
		for _, p := range policies(t) {
			t.Run(fmt.Sprintf("ordered=%v,%v", ordered, p), func(t *testing.T) {
				o := tiny()
				o.Policy, o.Blades, o.Backups = p, 2, txn.F(1)
				d := newDamagedPeople(t, o, ordered)
				ctx := t.Context()
				says(t, "Insert", d.do(func(tx *txn.Tx) error { return d.people.Insert(tx, 2, person{"x", "x"}) }),
					txn.ErrCorrupt)
				says(t, "a loop", d.db.View(ctx, func(tx *txn.Tx) error {
					for range d.byName.Rows(tx, txn.Bound[string]{}, txn.Bound[string]{}) {
						continue
					}
					return nil
				}), txn.ErrCorrupt, "people")
				says(t, "the mail of another record", d.put(2, person{"new", "3@x"}), txn.ErrUnique)
				says(t, "its mail", d.put(4, person{"four", "2@x"}), txn.ErrUnique)
				// A transaction that goes on behind that does not take the record for
				// one that is empty.
				says(t, "an error that is passed over", d.do(func(tx *txn.Tx) error {
					_ = d.people.Put(tx, 2, person{"new", "3@x"})
					if v, err := d.people.Get(tx, 2); err == nil {
						t.Errorf("it reads %+v", v)
					}
					return nil
				}), txn.ErrUnique)
				if err := d.do(func(tx *txn.Tx) error { // twice in a transaction
					if err := d.people.Put(tx, 2, person{"once", "2@x"}); err != nil {
						return err
					}
					return d.people.Put(tx, 2, person{"new", "new@x"})
				}); err != nil {
					t.Fatalf("Put: %v", err)
				}
				d.has("put", []string{"name1=1", "name3=3", "new=2"}, []string{"1@x=1", "3@x=3", "new@x=2"})
				if err := d.put(4, person{"four", "2@x"}); err != nil {
					t.Errorf("the mail that is free: %v", err)
				}
				d.spoil(person{"new", "new@x"})
				if err := d.do(func(tx *txn.Tx) error { return d.people.Delete(tx, 2) }); err != nil {
					t.Fatalf("Delete: %v", err)
				}
				d.has("deleted", []string{"four=4", "name1=1", "name3=3"}, []string{"1@x=1", "2@x=4", "3@x=3"})
				quiet(t, d.db)
			})
		}
	}
}

// TestDamagedEntry: an entry of an index of which every copy is damaged is replaced, or deleted,
// by a write of the record that it is of. An entry of a unique index, which may be another
// record's, is ErrCorrupt.
func TestDamagedEntry(t *testing.T) {
	d := newDamagedPeople(t, tiny(), false)
	if err := d.put(2, person{"name2", "2@x"}); err != nil {
		t.Fatal(err)
	}
	spoil := func(index string, key []byte) {
		t.Helper()
		a := newPoker(t, d.db).findKey(key)
		d.spoilBlock(a, record.ChecksumOff)
		says(t, index, d.db.View(t.Context(), func(tx *txn.Tx) error {
			r, err := txn.OpenAnyTable(d.db, index)
			if err != nil {
				return err
			}
			_, err = r.Get(tx, key)
			return err
		}), txn.ErrCorrupt)
	}
	byName := func(name string, k uint64) []byte {
		return txn.Tuple2Key(txn.String, txn.Uint64).Append(nil, txn.T2(name, k))
	}
	spoil("people.by_name", byName("name2", 2))
	if err := d.put(2, person{"renamed", "2@x"}); err != nil {
		t.Fatal(err)
	}
	spoil("people.by_mail", []byte("2@x"))
	says(t, "a key that may be another record's", d.put(5, person{"five", "2@x"}), txn.ErrCorrupt)
	if err := d.put(2, person{"renamed", "new@x"}); err != nil {
		t.Fatal(err)
	}
	d.has("renamed", []string{"name1=1", "name3=3", "renamed=2"}, []string{"1@x=1", "3@x=3", "new@x=2"})
	spoil("people.by_name", byName("renamed", 2))
	if err := d.do(func(tx *txn.Tx) error { return d.people.Delete(tx, 2) }); err != nil {
		t.Fatal(err)
	}
	d.has("deleted", []string{"name1=1", "name3=3"}, []string{"1@x=1", "3@x=3"})
}

// findKey returns the block of the record with a key.
func (p *poker) findKey(key []byte) layout.Addr {
	p.t.Helper()
	p.v = p.db.Space().View()
	for id := 1; id < p.v.Segments(); id++ {
		a := layout.MakeAddr(layout.SegmentID(id), 0)
		if !p.v.Valid(a) {
			continue
		}
		img := p.image(a, 0, int(p.n))
		for off := 0; off+record.LineSize <= len(img); off += record.LineSize {
			x := img[off:]
			if _, err := x.Check(a + layout.Addr(off)); err == nil && x.Meta().State() == record.Live &&
				string(x.Key()) == string(key) {
				return a + layout.Addr(off)
			}
		}
	}
	p.t.Fatal("the key is in no segment")
	return 0
}
