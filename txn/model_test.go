package txn_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"txnode/txn"
)

// model is the slow twin of a table: a map, and a copy of it while a transaction
// runs.
type model struct {
	db   *txn.DB
	tab  *txn.Table[uint64, []byte]
	base map[uint64][]byte
}

var errRollback = errors.New("rolled back by the test")

// transaction draws operations of one transaction and compares every result with
// the model.
func (m *model) transaction(t *rapid.T, tx *txn.Tx, now map[uint64][]byte) error {
	key := rapid.Uint64Range(0, 9)
	size := rapid.SampledFrom([]int{0, 1, 8, 24, 25, 60, 100, 300, 1000, 5000})
	for range rapid.IntRange(0, 8).Draw(t, "operations") {
		k := key.Draw(t, "key")
		have, ok := now[k]
		check := func(what string, err, wantErr error) {
			if !errors.Is(err, wantErr) {
				t.Fatalf("%s(%d): %v, want %v", what, k, err, wantErr)
			}
		}
		want := txn.ErrNotFound
		if ok {
			want = nil
		}
		switch op := rapid.SampledFrom([]string{
			"get", "lock", "has", "stage", "stage for update", "put", "insert", "delete", "execute",
		}).Draw(t, "op"); op {
		case "get", "lock":
			get := m.tab.Get
			if op == "lock" {
				get = m.tab.GetForUpdate
			}
			v, err := get(tx, k)
			check(op, err, want)
			if ok && !bytes.Equal(v, have) {
				t.Fatalf("%s(%d) is %d bytes, want %d", op, k, len(v), len(have))
			}
		case "has":
			if has, err := m.tab.Has(tx, k); has != ok || err != nil {
				t.Fatalf("has(%d): %v, %v, want %v", k, has, err, ok)
			}
		case "stage":
			check(op, m.tab.Stage(tx, k, txn.ForRead), nil)
		case "stage for update":
			check(op, m.tab.Stage(tx, k, txn.ForUpdate), nil)
		case "put", "insert":
			v := bytes.Repeat([]byte{rapid.Byte().Draw(t, "fill")}, size.Draw(t, "size"))
			if op == "put" {
				check(op, m.tab.Put(tx, k, v), nil)
			} else {
				if ok {
					want = txn.ErrExists
				} else {
					want = nil
				}
				if check(op, m.tab.Insert(tx, k, v), want); ok {
					continue
				}
			}
			now[k] = v
		case "delete":
			check(op, m.tab.Delete(tx, k), want)
			delete(now, k)
		case "execute":
			check(op, tx.Execute(), nil)
		}
	}
	if rapid.IntRange(0, 3).Draw(t, "end") == 0 {
		return errRollback
	}
	return nil
}

func (m *model) run(t *rapid.T) {
	now := make(map[uint64][]byte, len(m.base))
	for k, v := range m.base {
		now[k] = v
	}
	var err error
	if rapid.Bool().Draw(t, "begin") {
		tx, e := m.db.Begin(context.Background(), false)
		if e != nil {
			t.Fatal(e)
		}
		defer func() { _ = tx.Rollback() }() // when the test fails
		if err = m.transaction(t, tx, now); err == nil {
			err = tx.Commit()
		} else if e := tx.Rollback(); e != nil {
			t.Fatal(e)
		}
	} else {
		err = m.db.Update(context.Background(), func(tx *txn.Tx) error { return m.transaction(t, tx, now) })
	}
	switch {
	case err == nil:
		m.base = now
	case !errors.Is(err, errRollback):
		t.Fatal(err)
	}
}

// TestModel runs random transactions, one after another, beside a map: every
// operation sees what the map says, its own writes included, and at the end
// replicas are equal and no lock is left.
func TestModel(t *testing.T) {
	for _, p := range policies(t) {
		for f := range 3 {
			t.Run(fmt.Sprintf("%v/f=%d", p, f), func(t *testing.T) {
				t.Parallel()
				rapid.Check(t, func(rt *rapid.T) {
					db, err := txn.Open(context.Background(), txn.Options{
						Blades: 3, Backups: txn.F(f), Policy: p, ReadBackups: f == 2, Workers: 2,
						SegmentSize: 256 << 10, LogArea: 64 << 10,
						BladeSize: 64 << 20, Arena: 1 << 20, IndexGroups: 4, CacheBytes: 64 << 10, Seed: 7,
					})
					if err != nil {
						rt.Fatal(err)
					}
					defer func() {
						if err := db.Close(context.Background()); err != nil {
							t.Error(err)
						}
					}()
					m := &model{db: db, tab: table(t, db, "t"), base: map[uint64][]byte{}}
					for range rapid.IntRange(1, 10).Draw(rt, "transactions") {
						m.run(rt)
					}
					m.compare(rt)
					quiet(rt, db)
				})
			})
		}
	}
}

func (m *model) compare(t *rapid.T) {
	err := m.db.View(context.Background(), func(tx *txn.Tx) error {
		for k := range uint64(10) {
			v, err := m.tab.Get(tx, k)
			if want, ok := m.base[k]; ok && (err != nil || !bytes.Equal(v, want)) ||
				!ok && !errors.Is(err, txn.ErrNotFound) {
				t.Fatalf("key %d at the end: %d bytes, %v; want %d, %v", k, len(v), err, len(want), ok)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
