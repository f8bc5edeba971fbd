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

// openMem opens a small database in memory, which the test closes.
func openMem(t *testing.T) *txn.DB {
	t.Helper()
	ctx := context.Background()
	db, err := txn.Open(ctx, txn.Options{Blades: 1, BladeSize: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return db
}

// entriesOf is the entries of an index, as texts.
func entriesOf(t *testing.T, db *txn.DB, x *txn.Index[uint64, person, string]) (out []string) {
	t.Helper()
	if err := db.View(context.Background(), func(tx *txn.Tx) error {
		out = nil
		for i, k := range x.Range(tx, txn.Bound[string]{}, txn.Bound[string]{}) {
			out = append(out, fmt.Sprintf("%s=%d", i, k))
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestIndexBadValue: what is wrong with a value leaves the indexes as they were, also if the
// function goes on and commits: a codec that fails, a value that is too large, a function of the
// second index that panics, and a key that another record has.
func TestIndexBadValue(t *testing.T) {
	ctx, db := context.Background(), openMem(t)
	codec := txn.JSON[person]()
	encode := codec.Append
	codec.Append = func(dst []byte, p person) ([]byte, error) {
		if p.Name == "codec" {
			return dst, errors.New("no such person")
		}
		return encode(dst, p)
	}
	byName := txn.NewIndex("by_name", txn.String, func(_ uint64, p person) []string {
		return []string{p.Name[:min(len(p.Name), 20)]}
	})
	byMail := txn.NewUniqueIndex("by_mail", txn.String, func(_ uint64, p person) []string {
		if p.Mail == "panic" {
			panic("no")
		}
		return []string{p.Mail}
	})
	people, err := txn.CreateTable(db, "people", txn.Uint64, codec, byName, byMail)
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Update(ctx, func(tx *txn.Tx) error {
		return errors.Join(people.Put(tx, 1, person{"ann", "a@x"}), people.Put(tx, 2, person{"bob", "b@x"}))
	}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		p    person
		want error
	}{
		{person{"codec", "c@x"}, nil},
		{person{strings.Repeat("n", 2<<20), "c@x"}, txn.ErrTooLarge},
		{person{"cid", "panic"}, txn.ErrIndex},
		{person{"cid", ""}, txn.ErrIndex},
		{person{"cid", "b@x"}, txn.ErrUnique},
	} {
		for _, id := range []uint64{1, 3} {
			for what, write := range map[string]func(*txn.Tx) error{
				"put": func(tx *txn.Tx) error { return people.Put(tx, id, c.p) },
				"update": func(tx *txn.Tx) error {
					return people.Update(tx, id, func(person, bool) (person, txn.Change, error) {
						return c.p, txn.Store, nil
					})
				},
			} {
				err := db.Update(ctx, func(tx *txn.Tx) error {
					if err := write(tx); err == nil || c.want != nil && !errors.Is(err, c.want) {
						return fmt.Errorf("%v, want %v", err, c.want)
					}
					return nil // what has failed has not happened
				})
				if err != nil {
					t.Errorf("%s of %.20q, %q at %d: %v", what, c.p.Name, c.p.Mail, id, err)
				}
			}
		}
	}
	if got := entriesOf(t, db, byName); !slices.Equal(got, []string{"ann=1", "bob=2"}) {
		t.Errorf("by name %q", got)
	}
	if got := entriesOf(t, db, byMail); !slices.Equal(got, []string{"a@x=1", "b@x=2"}) {
		t.Errorf("by mail %q", got)
	}
}

// TestIndexOfAnother: while a unique index is being built, a record whose key another record
// has taken meanwhile may be given another one, or be deleted. The entry is the other
// record's, and stays.
func TestIndexOfAnother(t *testing.T) {
	for _, remove := range []bool{false, true} {
		ctx, db := context.Background(), openMem(t)
		plain, err := txn.CreateTable(db, "people", txn.Uint64, txn.JSON[person]())
		if err != nil {
			t.Fatal(err)
		}
		if err := db.Update(ctx, func(tx *txn.Tx) error { return plain.Put(tx, 1, person{"ann", "a@x"}) }); err != nil {
			t.Fatal(err)
		}
		_, byMail := peopleIndexes()
		people, err := txn.CreateTable(db, "people", txn.Uint64, txn.JSON[person](), byMail)
		if err != nil {
			t.Fatal(err)
		}
		if err := db.Update(ctx,
			func(tx *txn.Tx) error { return people.Put(tx, 2, person{"bob", "a@x"}) }); err != nil {
			t.Fatal(err)
		}
		if err := byMail.Build(ctx, nil); !errors.Is(err, txn.ErrUnique) {
			t.Errorf("built with two records of one key: %v", err)
		}
		if err := db.Update(ctx, func(tx *txn.Tx) error {
			if remove {
				return people.Delete(tx, 1)
			}
			return people.Put(tx, 1, person{"ann", "c@x"})
		}); err != nil {
			t.Fatal(err)
		}
		if err := db.View(ctx,
			func(tx *txn.Tx) error { _, _, _, err := byMail.Lookup(tx, "a@x"); return err }); !errors.Is(err,
			txn.ErrBuilding) {
			t.Errorf("not built yet: %v", err)
		}
		// Entries of records that were looked at before are not made again by a build that
		// begins behind them.
		raw, err := txn.OpenAnyTable(db, "people.by_mail")
		if err != nil {
			t.Fatal(err)
		}
		if err := db.View(ctx,
			func(tx *txn.Tx) error { _, err := raw.Get(tx, txn.String.Append(nil, "a@x")); return err }); err != nil {
			t.Errorf("removed %v: the entry of the other record: %v", remove, err)
		}
		if err := byMail.Build(ctx, nil); err != nil {
			t.Error(err)
		}
		want := []string{"a@x=2", "c@x=1"}
		if remove {
			want = want[:1]
		}
		if got := entriesOf(t, db, byMail); !slices.Equal(got, want) {
			t.Errorf("removed %v: by mail %q", remove, got)
		}
	}
}

// TestIndexDefinition: indexes that cannot be are typed errors, and leave a table that can be
// opened and written without them.
func TestIndexDefinition(t *testing.T) {
	ctx, db := context.Background(), openMem(t)
	byName, byMail := peopleIndexes()
	people, err := txn.CreateTable(db, "people", txn.Uint64, txn.JSON[person](), byMail)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := txn.CreateOrderedTable(db, "people.taken", txn.String, txn.Bytes()); err != nil {
		t.Fatal(err)
	}
	name := func(_ uint64, p person) []string { return []string{p.Name} }
	number := func(k uint64, _ person) []uint64 { return []uint64{k} }
	mail := func() *txn.Index[uint64, person, string] {
		_, x := peopleIndexes()
		return x
	}
	unordered := txn.String
	unordered.Ordered = false
	type indexes = []txn.TableIndex[uint64, person]
	for what, c := range map[string]struct {
		with indexes
		want error
	}{
		"keys of another type": {indexes{
			txn.NewIndex("new", txn.String, name), txn.NewUniqueIndex("by_mail", txn.Uint64, number),
		}, txn.ErrTableType},
		"not unique any more": {indexes{
			txn.NewIndex("new", txn.String, name), txn.NewIndex("by_mail", txn.String, name),
		}, txn.ErrTableType},
		"a table is in the way": {indexes{mail(), txn.NewIndex("taken", txn.String, name)}, txn.ErrTableType},
		"no order":              {indexes{mail(), txn.NewIndex("new", unordered, name)}, txn.ErrOptions},
		"no name":               {indexes{mail(), txn.NewIndex("", txn.String, name)}, txn.ErrOptions},
		"no function": {
			indexes{mail(), txn.NewIndex[uint64, person]("new", txn.String, nil)}, txn.ErrOptions,
		},
		"twice": {indexes{mail(), mail()}, txn.ErrOptions},
		"a name that is too long": {
			indexes{mail(), txn.NewIndex(strings.Repeat("x", 250), txn.String, name)}, txn.ErrOptions,
		},
		"of another table":       {indexes{byMail}, txn.ErrOptions},
		"a key that is not UTF8": {indexes{mail(), txn.NewIndex("a\xff", txn.String, name)}, txn.ErrOptions},
	} {
		if _, err := txn.CreateTable(db, "people", txn.Uint64, txn.JSON[person](), c.with...); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", what, err, c.want)
		}
	}
	if _, err := txn.OpenTable(db, "people", txn.Uint64, txn.JSON[person](), byName,
		mail()); !errors.Is(err, txn.ErrNoTable) {
		t.Errorf("opened with an index that is not there: %v", err)
	}
	if _, err := txn.OpenTable(db, "people", txn.Int64, txn.JSON[person]()); !errors.Is(err, txn.ErrTableType) {
		t.Errorf("opened with keys of another type: %v", err)
	}
	noDecode := txn.Uint64
	noDecode.Decode = nil
	if _, err := txn.CreateTable(db, "other", noDecode, txn.JSON[person](), mail()); !errors.Is(err, txn.ErrNoDecode) {
		t.Errorf("of keys that cannot be decoded: %v", err)
	}
	if err := db.Update(ctx, func(tx *txn.Tx) error { return people.Put(tx, 1, person{"ann", "a@x"}) }); err != nil {
		t.Errorf("the handle from before: %v", err)
	}
	if err := db.View(ctx,
		func(tx *txn.Tx) error { _, _, _, err := mail().Lookup(tx, ""); return err }); !errors.Is(err, txn.ErrOptions) {
		t.Errorf("an index of no table is asked: %v", err)
	}
	if err := mail().Build(ctx, nil); !errors.Is(err, txn.ErrOptions) {
		t.Errorf("an index of no table is built: %v", err)
	}
}

// TestIndexDropped: an index that was dropped, or whose table was, is ErrDropped, and what is
// created by the same names is another one, which is empty.
func TestIndexDropped(t *testing.T) {
	ctx, db := context.Background(), openMem(t)
	create := func() (*txn.Table[uint64, person], *txn.Index[uint64, person, string],
		*txn.Index[uint64, person, string]) {
		byName, byMail := peopleIndexes()
		people, err := txn.CreateTable(db, "people", txn.Uint64, txn.JSON[person](), byName, byMail)
		if err != nil {
			t.Fatal(err)
		}
		return people, byName, byMail
	}
	fill := func(people *txn.Table[uint64, person]) error {
		return db.Update(ctx, func(tx *txn.Tx) error { return people.Put(tx, 1, person{"ann", "a@x"}) })
	}
	gone := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, txn.ErrDropped) {
			t.Errorf("%s: %v", what, err)
		}
	}
	view := func(fn func(tx *txn.Tx) error) error { return db.View(ctx, fn) }
	for _, whole := range []bool{false, true} {
		people, byName, byMail := create()
		if err := fill(people); err != nil {
			t.Fatal(err)
		}
		if err := db.DropTable(ctx, "people.by_mail"); !errors.Is(err, txn.ErrOptions) {
			t.Errorf("an index is dropped like a table: %v", err)
		}
		if whole {
			if err := db.DropTable(ctx, "people"); err != nil {
				t.Fatal(err)
			}
			gone("its other index", view(func(tx *txn.Tx) error {
				for range byName.Rows(tx, txn.Bound[string]{}, txn.Bound[string]{}) {
				}
				return nil
			}))
		} else if err := db.DropIndex(ctx, "people", "by_mail"); err != nil {
			t.Fatal(err)
		}
		gone("lookup", view(func(tx *txn.Tx) error { _, _, _, err := byMail.Lookup(tx, "a@x"); return err }))
		gone("range", view(func(tx *txn.Tx) error {
			for range byMail.Range(tx, txn.Bound[string]{}, txn.Bound[string]{}) {
			}
			return nil
		}))
		gone("build", byMail.Build(ctx, nil))
		gone("put", fill(people))
		if err := db.DropIndex(ctx, "people", "by_mail"); !errors.Is(err, txn.ErrNoTable) {
			t.Errorf("dropped twice: %v", err)
		}
		if !whole {
			byName, _ := peopleIndexes()
			if people, err := txn.OpenTable(db, "people", txn.Uint64, txn.JSON[person](), byName); err != nil {
				t.Error(err)
			} else if err := db.Update(ctx,
				func(tx *txn.Tx) error { return people.Put(tx, 1, person{"bob", "b@x"}) }); err != nil {
				t.Errorf("put with the index that is left: %v", err)
			}
		}
		_, byName, byMail = create()
		if !whole {
			if err := byMail.Build(ctx, nil); err != nil {
				t.Fatal(err)
			}
			if got := entriesOf(t, db, byMail); !slices.Equal(got, []string{"b@x=1"}) {
				t.Errorf("made anew: %q", got)
			}
			continue
		}
		if a, b := entriesOf(t, db, byName), entriesOf(t, db, byMail); len(a)+len(b) > 0 {
			t.Errorf("made anew: %q %q", a, b)
		}
	}
}
