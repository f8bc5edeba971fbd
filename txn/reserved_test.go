package txn_test

import (
	"bytes"
	"fmt"
	"maps"
	"testing"

	"txnode/txn"
)

// firstByte is an index of the first bytes of values.
func firstByte(name string) *txn.Index[[]byte, []byte, []byte] {
	return txn.NewIndex(name, txn.BytesKey, func(_, v []byte) [][]byte { return [][]byte{bytes.Clone(v[:1])} })
}

// TestReservedTables: a write that would leave a table and its indexes different is ErrIndexes,
// by whatever handle and in whatever way it is made, and changes nothing, also if its
// transaction commits.
func TestReservedTables(t *testing.T) {
	for _, ordered := range []bool{false, true} {
		t.Run(fmt.Sprintf("ordered=%v", ordered), func(t *testing.T) {
			ctx, db := t.Context(), openMem(t)
			first, second := firstByte("first"), firstByte("second")
			whole := bytesTable(t, db, ordered, first, second)
			short, long := []byte("8 bytes."), []byte("a key that is longer")
			if err := db.Update(ctx, func(tx *txn.Tx) error {
				for _, k := range [][]byte{short, long} {
					if err := whole.Put(tx, k, []byte("a")); err != nil {
						return err
					}
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			raw, err := txn.OpenAnyTable(db, "t")
			if err != nil {
				t.Fatal(err)
			}
			index, err := txn.OpenAnyTable(db, "t.first")
			if err != nil {
				t.Fatal(err)
			}
			entries := txn.BytesKey
			entries.Name, entries.MaxBytes = "index(bytes,bytes)", 0
			typed, err := txn.OpenOrderedTable(db, "t.first", entries, txn.Bytes())
			if err != nil {
				t.Fatal(err)
			}
			was := recordsOf(t, db, "t", "t.first", "t.second")
			ways := map[string]func(tx *txn.Tx, k, v []byte) error{}
			rawWays := func(name string, r *txn.RawTable) {
				ways[name+" Put"] = r.Put
				ways[name+" Insert"] = func(tx *txn.Tx, k, v []byte) error {
					return r.Insert(tx, append(bytes.Clone(k), "..."...), v)
				}
				ways[name+" Delete"] = func(tx *txn.Tx, k, _ []byte) error { return r.Delete(tx, k) }
				for _, mode := range []txn.Mode{txn.ForRead, txn.ForUpdate} {
					ways[fmt.Sprint(name, " Row.Put ", mode)] = func(tx *txn.Tx, k, v []byte) error {
						rows := []txn.Row{{Table: r, Key: k, Mode: mode}}
						if err := tx.Fetch(rows); err != nil {
							return err
						}
						return rows[0].Put(tx, v)
					}
				}
			}
			typedWays := func(name string, x *txn.Table[[]byte, []byte]) {
				ways[name+" Put"] = x.Put
				ways[name+" Insert"] = func(tx *txn.Tx, k, v []byte) error {
					return x.Insert(tx, append(bytes.Clone(k), "..."...), v)
				}
				ways[name+" Delete"] = func(tx *txn.Tx, k, _ []byte) error { return x.Delete(tx, k) }
				for _, change := range []txn.Change{txn.Store, txn.Remove} {
					ways[fmt.Sprint(name, " Update ", change)] = func(tx *txn.Tx, k, v []byte) error {
						return x.Update(tx, k, func([]byte, bool) ([]byte, txn.Change, error) { return v, change, nil })
					}
				}
			}
			rawWays("raw", raw)
			none, one := reopenBytes(t, db, ordered), reopenBytes(t, db, ordered, firstByte("first"))
			typedWays("no index", none)
			typedWays("one of two indexes", one)
			try := func(way string, write func(tx *txn.Tx, k, v []byte) error, k []byte) {
				t.Helper()
				for _, v := range []string{
					"b", "b, and more than what a short record has room for, which is some thirty bytes",
				} {
					var got error
					if err := db.Update(ctx, func(tx *txn.Tx) error {
						got = write(tx, k, []byte(v))
						return nil
					}); err != nil {
						t.Errorf("%s of %q: the transaction: %v", way, k, err)
					}
					says(t, fmt.Sprintf("%s of %q", way, k), got, txn.ErrIndexes, `"t"`)
				}
			}
			for way, write := range ways {
				try(way, write, short)
				try(way, write, long)
			}
			clear(ways)
			rawWays("index", index)
			typedWays("index, typed", typed.Table)
			for way, write := range ways {
				for k := range was["t.first"] {
					try(way, write, []byte(k))
				}
			}
			for what, x := range map[string]*txn.Table[[]byte, []byte]{
				"no index": none, "one of two indexes": one, "index": typed.Table,
			} {
				_, err := x.Load(ctx, func(yield func(k, v []byte) bool) { yield(short, []byte("b")) },
					txn.LoadOptions{})
				says(t, "Load, "+what, err, txn.ErrIndexes)
			}
			says(t, "DeleteRange", db.Update(ctx, func(tx *txn.Tx) error {
				_, err := typed.DeleteRange(tx, txn.Bound[[]byte]{}, txn.Bound[[]byte]{})
				return err
			}), txn.ErrIndexes)
			if now := recordsOf(t, db, "t", "t.first", "t.second"); !maps.EqualFunc(was, now, maps.Equal) {
				t.Errorf("it was %q, and is %q", was, now)
			}
			// The handle that has all indexes writes, and others do when the indexes are dropped.
			if err := db.Update(ctx, func(tx *txn.Tx) error { return whole.Put(tx, short, []byte("b")) }); err != nil {
				t.Error(err)
			}
			for _, x := range []string{"first", "second"} {
				if err := db.DropIndex(ctx, "t", x); err != nil {
					t.Fatal(err)
				}
			}
			if err := db.Update(ctx, func(tx *txn.Tx) error { return raw.Put(tx, long, []byte("b")) }); err != nil {
				t.Errorf("without indexes: %v", err)
			}
		})
	}
}

func bytesTable(t *testing.T, db *txn.DB, ordered bool, indexes ...txn.TableIndex[[]byte, []byte]) *txn.Table[[]byte,
	[]byte] {
	t.Helper()
	if !ordered {
		x, err := txn.CreateTable(db, "t", txn.BytesKey, txn.Bytes(), indexes...)
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	x, err := txn.CreateOrderedTable(db, "t", txn.BytesKey, txn.Bytes(), indexes...)
	if err != nil {
		t.Fatal(err)
	}
	return x.Table
}

// reopenBytes opens that table with some of its indexes.
func reopenBytes(t *testing.T, db *txn.DB, ordered bool, indexes ...txn.TableIndex[[]byte, []byte]) *txn.Table[[]byte,
	[]byte] {
	t.Helper()
	if !ordered {
		x, err := txn.OpenTable(db, "t", txn.BytesKey, txn.Bytes(), indexes...)
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	x, err := txn.OpenOrderedTable(db, "t", txn.BytesKey, txn.Bytes(), indexes...)
	if err != nil {
		t.Fatal(err)
	}
	return x.Table
}

// recordsOf returns the records of tables.
func recordsOf(t *testing.T, db *txn.DB, tables ...string) map[string]map[string]string {
	t.Helper()
	all := map[string]map[string]string{}
	for _, name := range tables {
		r, err := txn.OpenAnyTable(db, name)
		if err != nil {
			t.Fatal(err)
		}
		all[name] = map[string]string{}
		if err := db.View(t.Context(), func(tx *txn.Tx) error {
			for k, v := range r.All(tx) {
				all[name][string(k)] = string(v)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	return all
}
