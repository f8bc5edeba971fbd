package txn_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"txnode/txn"
)

// note is a record of a table that an index is built for: Fill makes it outgrow its block.
type note struct{ Tag, Fill string }

func tagsOf(_ uint64, n note) []string {
	if n.Tag == "" {
		return nil
	}
	return []string{n.Tag}
}

// tagIndex is an index by tag, unique or not.
func tagIndex(unique bool) *txn.Index[uint64, note, string] {
	if unique {
		return txn.NewUniqueIndex("by_tag", txn.String, tagsOf)
	}
	return txn.NewIndex("by_tag", txn.String, tagsOf)
}

// notesTable makes, or opens, a table of notes.
func notesTable(t *testing.T, db *txn.DB, ordered bool, indexes ...txn.TableIndex[uint64, note]) *txn.Table[uint64,
	note] {
	t.Helper()
	if ordered {
		table, err := txn.CreateOrderedTable(db, "notes", txn.Uint64, txn.JSON[note](), indexes...)
		if err != nil {
			t.Fatal(err)
		}
		return table.Table
	}
	table, err := txn.CreateTable(db, "notes", txn.Uint64, txn.JSON[note](), indexes...)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// compareTags is an error if an index by tag has not exactly the entries of the records of its
// table.
func compareTags(db *txn.DB, notes *txn.Table[uint64, note], byTag *txn.Index[uint64, note, string]) error {
	return db.View(context.Background(), func(tx *txn.Tx) error {
		var got, want []string
		for tag, id := range byTag.Range(tx, txn.Bound[string]{}, txn.Bound[string]{}) {
			got = append(got, fmt.Sprintf("%s of %d", tag, id))
		}
		for id, n := range notes.All(tx) {
			for _, tag := range tagsOf(id, n) {
				want = append(want, fmt.Sprintf("%s of %d", tag, id))
			}
		}
		if tx.Err() != nil {
			return tx.Err()
		}
		slices.Sort(got)
		slices.Sort(want)
		if slices.Equal(got, want) {
			return nil
		}
		has := func(list []string) func(string) bool {
			return func(s string) bool { _, ok := slices.BinarySearch(list, s); return ok }
		}
		missing, stray := slices.DeleteFunc(slices.Clone(want), has(got)),
			slices.DeleteFunc(slices.Clone(got), has(want))
		return fmt.Errorf("%d entries of %d records: %d are missing, as %.3q, and %d stray, as %.3q",
			len(got), len(want), len(missing), missing, len(stray), stray)
	})
}

// TestIndexBuildMissesNothing: while an index is built all records of its table are replaced: they
// outgrow their blocks, change their tags, or go, and others come. The index has exactly the
// records when it is built, and a unique one admits no second record with a key.
func TestIndexBuildMissesNothing(t *testing.T) {
	for _, unique := range []bool{false, true} {
		for _, ordered := range []bool{false, true} {
			t.Run(fmt.Sprintf("unique=%v,ordered=%v", unique, ordered), func(t *testing.T) {
				buildBesideGrowth(t, unique, ordered)
			})
		}
	}
}

func buildBesideGrowth(t *testing.T, unique, ordered bool) {
	const n = 300
	ctx := context.Background()
	db, err := txn.Open(ctx, txn.Options{Blades: 2, BladeSize: 64 << 20, IndexGroups: 4})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := db.Close(ctx); err != nil {
			t.Error(err)
		}
	}()
	tag := func(id uint64) string { return fmt.Sprintf("t%03d", id) }
	if _, err := notesTable(t, db, ordered).Load(ctx, func(yield func(uint64, note) bool) {
		for id := range uint64(n) {
			if !yield(id, note{tag(id), ""}) {
				return
			}
		}
	}, txn.LoadOptions{}); err != nil {
		t.Fatal(err)
	}
	byTag := tagIndex(unique)
	notes := notesTable(t, db, ordered, byTag)
	large := strings.Repeat("x", 600)
	begun := false // others write once the first records were looked at
	if err := byTag.Build(ctx, func(uint64) {
		if begun {
			return
		}
		begun = true
		for id := range uint64(n) {
			if err := db.Update(ctx, func(tx *txn.Tx) error {
				switch id % 8 {
				case 1:
					return notes.Delete(tx, id)
				case 2, 6: // the new one takes a block that another record has left
					return errors.Join(notes.Delete(tx, id), notes.Insert(tx, n+id, note{tag(id), ""}))
				case 3:
					return notes.Put(tx, id, note{"n" + tag(id), large})
				case 4:
					return notes.Put(tx, id, note{"", large})
				}
				return notes.Put(tx, id, note{tag(id), large})
			}); err != nil {
				t.Fatal(err)
			}
		}
		for id := range uint64(2 * n) { // sub-tables are split, or leaves
			if err := db.Update(ctx, func(tx *txn.Tx) error { return notes.Insert(tx, 10*n+id, note{}) }); err != nil {
				t.Fatal(err)
			}
		}
	}); err != nil {
		t.Fatal(err)
	}
	if err := compareTags(db, notes, byTag); err != nil {
		t.Error(err)
	}
	twice := 0
	for id := uint64(0); unique && id < n; id += 8 {
		if err := db.Update(ctx,
			func(tx *txn.Tx) error { return notes.Put(tx, 2*n+id, note{tag(id), ""}) }); err == nil {
			twice++
		} else if !errors.Is(err, txn.ErrUnique) {
			t.Fatal(err)
		}
	}
	if twice > 0 {
		t.Errorf("%d keys were given to a second record", twice)
	}
}

// TestIndexBuildAfterOlderTransaction: a transaction that began before an index was defined
// changes a record after one has that keeps the index. The entry that it leaves behind is gone
// when the index is built.
func TestIndexBuildAfterOlderTransaction(t *testing.T) {
	ctx, db := context.Background(), openMem(t)
	plain := notesTable(t, db, false)
	if err := db.Update(ctx, func(tx *txn.Tx) error { return plain.Put(tx, 1, note{"first", ""}) }); err != nil {
		t.Fatal(err)
	}
	older, err := db.Begin(ctx, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := plain.Put(older, 1, note{"older", ""}); err != nil {
		t.Fatal(err)
	}
	byTag := tagIndex(true)
	notes := notesTable(t, db, false, byTag)
	if err := errors.Join(
		db.Update(ctx, func(tx *txn.Tx) error { return notes.Put(tx, 1, note{"later", ""}) }),
		older.Commit(),
		byTag.Build(ctx, nil),
		compareTags(db, notes, byTag),
		db.Update(ctx, func(tx *txn.Tx) error { return notes.Put(tx, 2, note{"later", ""}) }),
	); err != nil {
		t.Error(err)
	}
}

// TestIndexBuildOfTwins: two records have a key of a unique index. It is not built while they do,
// also if both are replaced meanwhile.
func TestIndexBuildOfTwins(t *testing.T) {
	ctx, db := context.Background(), openMem(t)
	plain := notesTable(t, db, false)
	if err := db.Update(ctx, func(tx *txn.Tx) error {
		return errors.Join(plain.Put(tx, 1, note{"twin", ""}), plain.Put(tx, 2, note{"twin", ""}))
	}); err != nil {
		t.Fatal(err)
	}
	byTag := tagIndex(true)
	notes := notesTable(t, db, false, byTag)
	put := func(id uint64, tag string) error {
		return db.Update(ctx, func(tx *txn.Tx) error { return notes.Put(tx, id, note{tag, strings.Repeat("x", 600)}) })
	}
	if err := errors.Join(put(1, "twin"), put(2, "twin")); err != nil {
		t.Errorf("they cannot be written: %v", err)
	}
	if u := (*txn.UniqueError)(nil); !errors.As(byTag.Build(ctx, nil), &u) || u.Index != "by_tag" {
		t.Errorf("built: %v", u)
	}
	if err := errors.Join(put(2, "other"), byTag.Build(ctx, nil), compareTags(db, notes, byTag)); err != nil {
		t.Error(err)
	}
}
