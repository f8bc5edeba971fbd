package txn_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"txnode/txn"
)

type person struct{ Name, Mail string }

func peopleIndexes() (byName *txn.Index[uint64, person, string], byMail *txn.Index[uint64, person, string]) {
	byName = txn.NewIndex("by_name", txn.String, func(_ uint64, p person) []string { return []string{p.Name} })
	byMail = txn.NewUniqueIndex("by_mail", txn.String, func(_ uint64, p person) []string {
		if p.Mail == "" {
			return nil
		}
		return []string{p.Mail}
	})
	return byName, byMail
}

// TestSecondaryIndex compares the indexes of a table with what its records say, through writes of
// all kinds in random order; and again when the database was opened anew.
func TestSecondaryIndex(t *testing.T) {
	ctx, dir := context.Background(), t.TempDir()
	o := txn.Options{Dir: dir, Blades: 2, BladeSize: 64 << 20}
	db, err := txn.Open(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	byName, byMail := peopleIndexes()
	people, err := txn.CreateTable(db, "people", txn.Uint64, txn.JSON[person](), byName, byMail)
	if err != nil {
		t.Fatal(err)
	}
	model := map[uint64]person{}
	r := rand.New(rand.NewPCG(1, 2))
	check := func() {
		t.Helper()
		if err := db.View(ctx, func(tx *txn.Tx) error {
			var got, want []string
			for name, id := range byName.Range(tx, txn.Bound[string]{}, txn.Bound[string]{}) {
				got = append(got, fmt.Sprintf("%s %020d", name, id))
			}
			for id, p := range model {
				want = append(want, fmt.Sprintf("%s %020d", p.Name, id))
			}
			if slices.Sort(want); !slices.Equal(got, want) {
				return fmt.Errorf("by name: %q, want %q", got, want)
			}
			mails := map[string]uint64{}
			for mail, id := range byMail.Range(tx, txn.Bound[string]{}, txn.Bound[string]{}) {
				mails[mail] = id
			}
			n := 0
			for id, p := range model {
				if p.Mail != "" {
					if n++; mails[p.Mail] != id {
						return fmt.Errorf("mail %q leads to %d, not %d", p.Mail, mails[p.Mail], id)
					}
				}
			}
			if n != len(mails) {
				return fmt.Errorf("%d mails, not %d", len(mails), n)
			}
			some := fmt.Sprintf("n%d", r.IntN(8))
			rows := map[uint64]person{}
			for id, p := range byName.Rows(tx, txn.Including(some), txn.Including(some)) {
				rows[id] = p
			}
			if !maps.Equal(rows, subset(model, func(p person) bool { return p.Name == some })) {
				return fmt.Errorf("rows of %q: %v", some, rows)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	for n := range 400 {
		if n%20 == 0 {
			check()
		}
		next := maps.Clone(model)
		err := db.Update(ctx, func(tx *txn.Tx) error {
			next = maps.Clone(model)
			for range 1 + r.IntN(3) {
				id := r.Uint64N(30)
				p := person{fmt.Sprintf("n%d", r.IntN(8)), fmt.Sprintf("m%d", r.IntN(60))}
				if r.IntN(4) == 0 {
					p.Mail = ""
				}
				taken := p.Mail != "" && len(subset(next, func(x person) bool { return x.Mail == p.Mail })) > 0 &&
					next[id].Mail != p.Mail
				var err error
				_, has := next[id]
				switch r.IntN(4) {
				case 0:
					if err = people.Delete(tx, id); has != (err == nil) {
						return fmt.Errorf("delete of %d: %w", id, err)
					}
					delete(next, id)
					continue
				case 1:
					err = people.Insert(tx, id, p)
					if has {
						if !errors.Is(err, txn.ErrExists) {
							return fmt.Errorf("insert of %d: %w", id, err)
						}
						continue
					}
				case 2:
					err = people.Update(tx, id, func(person, bool) (person, txn.Change, error) {
						return p, txn.Store, nil
					})
				default:
					err = people.Put(tx, id, p)
				}
				if taken {
					if u := (*txn.UniqueError)(nil); !errors.As(err, &u) || u.Index != "by_mail" ||
						!strings.Contains(u.Error(), p.Mail) {
						return fmt.Errorf("mail %q of %d is taken: %w", p.Mail, id, err)
					}
					if r.IntN(2) == 0 {
						return errTaken
					}
					continue // as if it had not been called
				}
				if err != nil {
					return err
				}
				next[id] = p
			}
			return nil
		})
		if errors.Is(err, errTaken) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		model = next
	}
	check()
	if names, err := db.Tables(); err != nil || !slices.Equal(names, []string{"people"}) {
		t.Errorf("tables %q %v", names, err)
	}
	if err := db.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if db, err = txn.Open(ctx, o); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := db.Close(ctx); err != nil {
			t.Error(err)
		}
	}()
	// Without the indexes the table can be read, and not written.
	plain, err := txn.OpenTable(db, "people", txn.Uint64, txn.JSON[person]())
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Update(ctx, func(tx *txn.Tx) error { return plain.Put(tx, 1, person{}) }); !errors.Is(err,
		txn.ErrIndexes) {
		t.Errorf("put without the indexes: %v", err)
	}
	byName, byMail = peopleIndexes()
	if people, err = txn.OpenTable(db, "people", txn.Uint64, txn.JSON[person](), byName, byMail); err != nil {
		t.Fatal(err)
	}
	check()
	_ = people
}

var errTaken = errors.New("rolled back")

func subset(m map[uint64]person, ok func(person) bool) map[uint64]person {
	out := map[uint64]person{}
	for k, v := range m {
		if ok(v) {
			out[k] = v
		}
	}
	return out
}

// TestIndexBuild: an index that is defined for a table with records is built beside writers, and is
// whole then. A build that is stopped goes on.
func TestIndexBuild(t *testing.T) {
	ctx := context.Background()
	db, err := txn.Open(ctx, txn.Options{Blades: 2, BladeSize: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := db.Close(ctx); err != nil {
			t.Error(err)
		}
	}()
	plain, err := txn.CreateTable(db, "people", txn.Uint64, txn.JSON[person]())
	if err != nil {
		t.Fatal(err)
	}
	const n = 500
	if _, err := plain.Load(ctx, func(yield func(uint64, person) bool) {
		for id := range uint64(n) {
			if !yield(id, person{fmt.Sprintf("n%d", id%10), fmt.Sprintf("m%d", id)}) {
				return
			}
		}
	}, txn.LoadOptions{}); err != nil {
		t.Fatal(err)
	}
	byName, byMail := peopleIndexes()
	people, err := txn.CreateTable(db, "people", txn.Uint64, txn.JSON[person](), byName, byMail)
	if err != nil {
		t.Fatal(err)
	}
	count := func() (n int, err error) {
		err = db.View(ctx, func(tx *txn.Tx) error {
			n = 0
			for range byName.Range(tx, txn.Including("n3"), txn.Including("n3")) {
				n++
			}
			return nil
		})
		return n, err
	}
	if _, err := count(); !errors.Is(err, txn.ErrBuilding) {
		t.Errorf("an index that is not built: %v", err)
	}
	stopped, stop := context.WithCancel(ctx)
	if err := byName.Build(stopped, func(uint64) { stop() }); !errors.Is(err, context.Canceled) {
		t.Errorf("a build that is stopped: %v", err)
	}
	wrote := make(chan error)
	go func() {
		for id := range uint64(n) {
			if err := db.Update(ctx, func(tx *txn.Tx) error {
				if id%50 == 0 {
					return people.Delete(tx, id)
				}
				return people.Put(tx, id, person{fmt.Sprintf("n%d", (id+1)%10), fmt.Sprintf("m%d", id)})
			}); err != nil {
				wrote <- err
				return
			}
		}
		wrote <- nil
	}()
	looked := uint64(0)
	if err := errors.Join(byName.Build(ctx, func(k uint64) { looked = k }), byMail.Build(ctx, nil),
		<-wrote); err != nil {
		t.Fatal(err)
	}
	if looked == 0 {
		t.Error("no progress")
	}
	if got, err := count(); got != n/10 || err != nil {
		t.Errorf("%d of %d: %v", got, n/10, err)
	}
	if err := db.DropIndex(ctx, "people", "by_mail"); err != nil {
		t.Error(err)
	}
	if err := db.DropTable(ctx, "people"); err != nil {
		t.Error(err)
	}
}

// TestIndexFunction: a function that panics, or returns an empty key, is an error that names the
// index, and leaves nothing behind.
func TestIndexFunction(t *testing.T) {
	ctx := context.Background()
	db, err := txn.Open(ctx, txn.Options{Blades: 1, BladeSize: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := db.Close(ctx); err != nil {
			t.Error(err)
		}
	}()
	x := txn.NewIndex("bad", txn.String, func(_ uint64, v string) []string {
		if v == "panic" {
			panic("no")
		}
		return []string{v}
	})
	table, err := txn.CreateOrderedTable(db, "t", txn.Uint64, txn.Text(), x)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range []string{"panic", "", strings.Repeat("x", 500)} {
		err := db.Update(ctx, func(tx *txn.Tx) error { return table.Put(tx, 1, v) })
		if !errors.Is(err, txn.ErrIndex) || !strings.Contains(err.Error(), "bad") {
			t.Errorf("%.9q: %v", v, err)
		}
	}
	if err := db.View(ctx, func(tx *txn.Tx) error {
		if n, err := table.Count(tx, txn.Bound[uint64]{}, txn.Bound[uint64]{}); n != 0 || err != nil {
			return fmt.Errorf("%d records: %w", n, err)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

// TestBackupBesideBuild: an index is built, and a table is made, while a backup draws its
// cut. What the backup says of both is what was so at the cut: an index that is built later
// lacks entries there.
func TestBackupBesideBuild(t *testing.T) {
	ctx := context.Background()
	db, err := txn.Open(ctx, txn.Options{Blades: 1, BladeSize: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := db.Close(ctx); err != nil {
			t.Error(err)
		}
	}()
	plain, err := txn.CreateTable(db, "people", txn.Uint64, txn.JSON[person]())
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Update(ctx, func(tx *txn.Tx) error { return plain.Put(tx, 1, person{"n1", "m1"}) }); err != nil {
		t.Fatal(err)
	}
	byName, _ := peopleIndexes()
	if _, err := txn.CreateTable(db, "people", txn.Uint64, txn.JSON[person](), byName); err != nil {
		t.Fatal(err)
	}
	draws := uint64(0)
	cut, tables, err := db.TablesAt(func() uint64 {
		switch draws++; draws {
		case 1:
			err = byName.Build(ctx, nil)
		case 2:
			_, err = txn.CreateTable(db, "later", txn.Uint64, txn.Bytes())
		}
		if err != nil {
			t.Fatal(err)
		}
		return draws
	})
	if err != nil {
		t.Fatal(err)
	}
	if cut != 3 || len(tables) != 3 || !strings.Contains(string(tables[0].Options), `"built":true`) {
		t.Errorf("cut %d: %d tables, the first one %s", cut, len(tables), tables[0].Options)
	}
}
