package txn_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"txnode/memory/record"
	"txnode/txn"
	"txnode/verify"
)

// indexFaults checks the indexes of notes, and lists what is wrong.
func indexFaults(t *testing.T, notes *txn.Table[uint64, note], repair bool) (sum txn.IndexCheck, list []string) {
	t.Helper()
	sum, err := notes.CheckIndexes(context.Background(),
		txn.IndexCheckOptions{Repair: repair, Report: func(f txn.IndexFault) error {
			list = append(list, f.String())
			return nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	if sum.Faults != uint64(len(list)) {
		t.Errorf("%d faults, and %d were reported", sum.Faults, len(list))
	}
	slices.Sort(list)
	return sum, list
}

// TestCheckIndexes: every way in which a record and an entry can be at odds is found, each once,
// and repaired if that is possible.
func TestCheckIndexes(t *testing.T) {
	for _, ordered := range []bool{false, true} {
		t.Run(fmt.Sprintf("ordered=%v", ordered), func(t *testing.T) { checkIndexes(t, ordered) })
	}
}

func checkIndexes(t *testing.T, ordered bool) {
	const n = 200
	ctx, db := context.Background(), openMem(t)
	byTag := tagIndex(true)
	byFill := txn.NewIndex("by_fill", txn.String, func(_ uint64, n note) []string { return []string{n.Fill} })
	notes := notesTable(t, db, ordered, byTag, byFill)
	if _, err := notes.Load(ctx, func(yield func(uint64, note) bool) {
		for id := range uint64(n) {
			if !yield(id, note{fmt.Sprintf("t%d", id), fmt.Sprintf("f%d", id%7)}) {
				return
			}
		}
	}, txn.LoadOptions{}); err != nil {
		t.Fatal(err)
	}
	if sum, list := indexFaults(t, notes, false); len(list) > 0 || sum.Records != n || sum.Entries != 2*n {
		t.Fatalf("%+v %q", sum, list)
	}
	raw := func(name string) *txn.RawTable {
		t.Helper()
		r, err := txn.OpenAnyTable(db, name)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	records, tags, fills := notes.Raw(), raw("notes.by_tag"), raw("notes.by_fill")
	key := func(id uint64) []byte { return txn.Uint64.Append(nil, id) }
	if err := db.Update(ctx, func(tx *txn.Tx) error {
		return errors.Join(
			tags.Force(tx, []byte("t1"), nil), // an entry is gone
			// another one
			fills.Force(tx, txn.Tuple2Key(txn.String, txn.Uint64).Append(nil, txn.T2("f2", uint64(2))), nil),
			// a record is
			records.Force(tx, key(3), nil),
			// it has another key
			records.Force(tx, key(4), []byte(`{"Tag":"other","Fill":"f4"}`)),
			// that of another record
			records.Force(tx, key(5), []byte(`{"Tag":"t6","Fill":"f5"}`)),
			// it cannot be decoded
			records.Force(tx, key(7), []byte(`{`)),
			// nor indexed
			records.Force(tx, key(8), []byte(`{"Tag":"`+strings.Repeat("x", 500)+`","Fill":"f1"}`)),
			// the entry leads to no record
			tags.Force(tx, []byte("t9"), key(n)),
			// nor this one
			tags.Force(tx, []byte("stray"), []byte("no key of a record")),
			// the record has another key
			fills.Force(tx, txn.Tuple2Key(txn.String, txn.Uint64).Append(nil, txn.T2("f1", uint64(10))), []byte{}),
		)
	}); err != nil {
		t.Fatal(err)
	}
	stray, lasting := []string{
		`table "notes", key 3: index "by_tag" has an entry "t3", and no such record has that key in it`,
		`table "notes", key 3: index "by_fill" has an entry ("f3", 3), and no such record has that key in it`,
		`table "notes", key 4: index "by_tag" has an entry "t4", and no such record has that key in it`,
		`table "notes", key 5: index "by_tag" has an entry "t5", and no such record has that key in it`,
		`table "notes", key 200: index "by_tag" has an entry "t9", and no such record has that key in it`,
		`table "notes": index "by_tag" has an entry "stray", and no such record has that key in it: `,
		`table "notes", key 10: index "by_fill" has an entry ("f1", 10), and no such record has that key in it`,
	}, []string{
		`table "notes", key 5: entry "t6" of the unique index "by_tag" leads to the record of key 6: `,
		`table "notes", key 7: the record, or its keys in indexes, cannot be read: `,
		`table "notes", key 8: the record, or its keys in indexes, cannot be read: ` +
			`txn: an index cannot be kept: index "by_tag" `,
	}
	missing := []string{
		`table "notes", key 1: index "by_tag" lacks the record's entry "t1"`,
		`table "notes", key 2: index "by_fill" lacks the record's entry ("f2", 2)`,
		`table "notes", key 4: index "by_tag" lacks the record's entry "other"`,
	}
	taken := `table "notes", key 9: entry "t9" of the unique index "by_tag" leads to the record of key 200: `
	expect := func(what string, got []string, want ...string) {
		t.Helper()
		slices.Sort(want)
		if !slices.EqualFunc(got, want, strings.HasPrefix) {
			t.Errorf("%s: found\n\t%s\nwant\n\t%s", what, strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
		}
	}
	_, found := indexFaults(t, notes, false)
	expect("at first", found, append(slices.Concat(stray, missing, lasting), taken)...)
	sum, found := indexFaults(t, notes, true)
	for i, f := range found {
		found[i] = strings.TrimSuffix(f, "; repaired")
	}
	// which no other has by then
	missing = append(missing, `table "notes", key 9: index "by_tag" lacks the record's entry "t9"`)
	expect("with repair", found, slices.Concat(stray, missing, lasting)...)
	if want := uint64(len(stray) + len(missing)); sum.Repaired != want {
		t.Errorf("%d are repaired, want %d", sum.Repaired, want)
	}
	_, found = indexFaults(t, notes, false)
	expect("after repair", found, lasting...)
}

// TestCheckIndexesBesideWriters: records change all the time, and nothing is wrong with their
// indexes.
func TestCheckIndexesBesideWriters(t *testing.T) {
	const n = 100
	ctx, db := context.Background(), openMem(t)
	notes := notesTable(t, db, false, tagIndex(true))
	put := func(id, round uint64) error {
		return db.Update(ctx, func(tx *txn.Tx) error {
			if (id+round)%5 == 0 {
				err := notes.Delete(tx, id)
				if errors.Is(err, txn.ErrNotFound) {
					err = nil
				}
				return err
			}
			return notes.Put(tx, id, note{fmt.Sprintf("t%d.%d", id, round%3), strings.Repeat("x", int(round%4)*200)})
		})
	}
	for id := range uint64(n) {
		if err := put(id, 1); err != nil {
			t.Fatal(err)
		}
	}
	wrote, stop := make(chan error), make(chan struct{})
	go func() {
		for round := uint64(2); ; round++ {
			for id := range uint64(n) {
				select {
				case <-stop:
					wrote <- nil
					return
				default:
				}
				if err := put(id, round); err != nil {
					wrote <- err
					return
				}
			}
		}
	}()
	for range 5 {
		for _, repair := range []bool{false, true} {
			if sum, list := indexFaults(t, notes, repair); len(list) > 0 || sum.Records == 0 || sum.Entries == 0 {
				t.Errorf("repair %v: %+v, %q", repair, sum, list)
			}
		}
	}
	close(stop)
	if err := <-wrote; err != nil {
		t.Error(err)
	}
}

// TestCheckIndexesOfHandles: an index that is not built is named, and not checked; a handle without
// one of them is refused; of a table without indexes there is nothing to say.
func TestCheckIndexesOfHandles(t *testing.T) {
	ctx, db := context.Background(), openMem(t)
	plain := notesTable(t, db, false)
	if err := db.Update(ctx, func(tx *txn.Tx) error { return plain.Put(tx, 1, note{"a", "b"}) }); err != nil {
		t.Fatal(err)
	}
	if sum, list := indexFaults(t, plain, true); sum.Records+sum.Faults != 0 || list != nil {
		t.Errorf("%+v %q", sum, list)
	}
	byTag := tagIndex(false)
	notes := notesTable(t, db, false, byTag)
	if sum, _ := indexFaults(t, notes, true); sum.Records != 0 || !slices.Equal(sum.Unbuilt, []string{"by_tag"}) {
		t.Errorf("not built: %+v", sum)
	}
	if _, err := plain.CheckIndexes(ctx, txn.IndexCheckOptions{}); !errors.Is(err, txn.ErrIndexes) {
		t.Errorf("without the index: %v", err)
	}
	if err := byTag.Build(ctx, nil); err != nil {
		t.Fatal(err)
	}
	stopped, stop := context.WithCancel(ctx)
	stop()
	if _, err := notes.CheckIndexes(stopped, txn.IndexCheckOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("stopped: %v", err)
	}
	enough := errors.New("enough")
	if err := db.Update(ctx,
		func(tx *txn.Tx) error { return notes.Raw().Force(tx, txn.Uint64.Append(nil, 1), nil) }); err != nil {
		t.Fatal(err)
	}
	if _, err := notes.CheckIndexes(ctx,
		txn.IndexCheckOptions{Report: func(txn.IndexFault) error { return enough }}); !errors.Is(err, enough) {
		t.Errorf("Report has had enough: %v", err)
	}
}

// damagedNotes is a table of two notes, the second of which is damaged on so many copies.
func damagedNotes(t *testing.T, ordered bool, copies int, indexes ...txn.TableIndex[uint64, note]) (*txn.DB,
	*txn.Table[uint64, note]) {
	t.Helper()
	o := tiny()
	o.Blades, o.Backups = 2, txn.F(1)
	db := mustOpen(t, o)
	notes := notesTable(t, db, ordered, indexes...)
	damaged := note{"two", "of the second note"}
	value, err := txn.JSON[note]().Append(nil, damaged)
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Update(ctx0, func(tx *txn.Tx) error {
		return errors.Join(notes.Put(tx, 1, note{"one", ""}), notes.Put(tx, 2, damaged))
	}); err != nil {
		t.Fatal(err)
	}
	p := newPoker(t, db)
	a := p.find(value)
	for k := range copies {
		p.spoil(a, k, record.MetaOff)
	}
	return db, notes
}

// TestIndexBuildBesideDamage: a record of which a copy is damaged gets its entry. One that is
// damaged on all copies ends Build, since the index could not have it.
func TestIndexBuildBesideDamage(t *testing.T) {
	for _, ordered := range []bool{false, true} {
		for copies, want := range []error{1: nil, 2: txn.ErrCorrupt} {
			if copies == 0 {
				continue
			}
			db, _ := damagedNotes(t, ordered, copies)
			byTag := tagIndex(true)
			notes := notesTable(t, db, ordered, byTag)
			err := byTag.Build(ctx0, nil)
			if !errors.Is(err, want) {
				t.Errorf("ordered %v, %d damaged copies: %v", ordered, copies, err)
			}
			if err == nil {
				if err := compareTags(db, notes, byTag); err != nil {
					t.Errorf("ordered %v: %v", ordered, err)
				}
			}
		}
	}
}

// TestCheckIndexesBesideDamage: a record that is damaged on all copies is reported, and its entry
// is not called stray. The others are checked.
func TestCheckIndexesBesideDamage(t *testing.T) {
	for _, ordered := range []bool{false, true} {
		byTag := tagIndex(true)
		db, notes := damagedNotes(t, ordered, 2, byTag)
		tags, err := txn.OpenAnyTable(db, "notes.by_tag")
		if err != nil {
			t.Fatal(err)
		}
		if err := db.Update(ctx0, func(tx *txn.Tx) error { return tags.Force(tx, []byte("one"), nil) }); err != nil {
			t.Fatal(err)
		}
		_, list := indexFaults(t, notes, false)
		lacks := `table "notes", key 1: index "by_tag" lacks the record's entry "one"`
		if !slices.Contains(list, lacks) || len(list) < 2 {
			t.Errorf("ordered %v: %q", ordered, list)
		}
		for _, f := range list {
			if f != lacks && !strings.Contains(f, "cannot be read") {
				t.Errorf("ordered %v: %s", ordered, f)
			}
		}
	}
}

// TestCheckFindsStrayEntries: a check of the database at rest, which does not have the
// functions of indexes, finds entries that lead to no record, whatever the keys are, and counts
// records to which none leads.
func TestCheckFindsStrayEntries(t *testing.T) {
	for _, ordered := range []bool{false, true} {
		t.Run(fmt.Sprintf("ordered=%v", ordered), func(t *testing.T) { strayEntries(t, ordered) })
	}
}

func strayEntries(t *testing.T, ordered bool) {
	o := tiny()
	o.Dir = t.TempDir()
	db := mustOpen(t, o)
	byTag := tagIndex(true)
	notes := notesTable(t, db, ordered, byTag)
	first := txn.NewIndex("first", txn.BytesKey, func(_ string, v []byte) [][]byte { return [][]byte{{v[0], 0}} })
	named, err := txn.CreateTable(db, "named", txn.String, txn.Bytes(), first)
	if err != nil {
		t.Fatal(err)
	}
	var letters []string
	if err := db.Update(ctx0, func(tx *txn.Tx) error {
		letters = letters[:0]
		for id := range uint64(40) {
			tag := fmt.Sprintf("t%d", id)
			if id%4 == 0 {
				tag = ""
			}
			letter := fmt.Sprintf("a\x00%d", id) // encoded as a part of an entry it becomes longer
			letters = append(letters, letter)
			if err := errors.Join(notes.Put(tx, id, note{tag, ""}),
				named.Put(tx, letter, []byte{byte(id)})); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := db.Update(ctx0, func(tx *txn.Tx) error { // records that are deleted are no faults
		return errors.Join(notes.Delete(tx, 1), named.Delete(tx, letters[1]))
	}); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(ctx0); err != nil {
		t.Fatal(err)
	}
	sound(t, o.Dir)

	db = mustOpen(t, o)
	byTag, first = tagIndex(true), txn.NewIndex("first", txn.BytesKey, func(_ string, v []byte) [][]byte {
		return [][]byte{{v[0], 0}}
	})
	notes = notesTable(t, db, ordered, byTag)
	if named, err = txn.OpenTable(db, "named", txn.String, txn.Bytes(), first); err != nil {
		t.Fatal(err)
	}
	tags, err := txn.OpenAnyTable(db, "notes.by_tag")
	if err != nil {
		t.Fatal(err)
	}
	firsts, err := txn.OpenAnyTable(db, "named.first")
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Update(ctx0, func(tx *txn.Tx) error {
		return errors.Join(
			notes.Raw().Force(tx, txn.Uint64.Append(nil, 2), nil),
			named.Raw().Force(tx, []byte(letters[3]), nil),
			tags.Force(tx, []byte("nobody"), txn.Uint64.Append(nil, 1000)),
			tags.Force(tx, []byte("t5"), nil), // an entry that is missing is no finding, but is counted
			firsts.Force(tx, []byte("no entry"), []byte{}),
		)
	}); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(ctx0); err != nil {
		t.Fatal(err)
	}
	var found []string
	sum := checkDir(t, o.Dir, func(f verify.Finding) { found = append(found, fmt.Sprintf("%s: %s", f.Kind, f.What)) })
	slices.Sort(found)
	want := []string{
		`entry: entry "no entry" of the secondary index leads to no key that can be one of table `,
		`entry: entry "nobody" of the secondary index leads to key 00000000000003e8, ` +
			`of which it has no record of table `,
		`entry: entry "t2" of the secondary index leads to key 0000000000000002, of which it has no record of table `,
		`entry: entry 0300ff00016100ff330001 of the secondary index leads to key 610033, ` +
			`of which it has no record of table `,
	}
	if len(found) != len(want) {
		t.Errorf("found %d, want %d", len(found), len(want))
	}
	for i := range min(len(found), len(want)) {
		if !strings.HasPrefix(found[i], want[i]) {
			t.Errorf("found %s\nwant  %s", found[i], want[i])
		}
	}
	for _, x := range sum.Tables {
		if want := map[string]uint64{"notes.by_tag": 11, "named.first": 0}; x.Bare != want[x.Name] {
			t.Errorf("%s: no entry leads to %d records, want %d", x.Name, x.Bare, want[x.Name])
		}
	}
	if sum.ByKind[verify.KindEntry] != sum.Findings {
		t.Errorf("%+v", sum.ByKind)
	}
}
