package txn_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"reflect"
	"testing"
	"time"

	"txnode/txn"
)

// numbered yields n records from key first on, whose values have sizes up to 600.
func numbered(first, n uint64) iter.Seq2[uint64, []byte] {
	return func(yield func(uint64, []byte) bool) {
		for k := first; k < first+n; k++ {
			if !yield(k, bytes.Repeat([]byte{byte(k)}, int(k*k%600))) {
				return
			}
		}
	}
}

// TestLoad: any number of records, more than a transaction can write, over some that are there.
func TestLoad(t *testing.T) {
	db := mustOpen(t, tiny())
	tab := table(t, db, "t")
	fill(t, db, tab, 20, val(1))
	var told []uint64
	n, err := tab.Load(t.Context(), numbered(10, 3000), txn.LoadOptions{Progress: func(n uint64) {
		told = append(told, n)
	}})
	if n != 3000 || err != nil {
		t.Fatal(n, err)
	}
	if len(told) < 10 || told[len(told)-1] != 3000 {
		t.Errorf("progress: %d", told)
	}
	for i := range told[1:] {
		if told[i] >= told[i+1] {
			t.Errorf("progress: %d", told)
		}
	}
	want := maps.Collect(numbered(10, 3000))
	for k := range uint64(10) {
		want[k] = val(1)
	}
	if err := db.View(t.Context(), func(tx *txn.Tx) error {
		same(t, "loaded", listed(t, tx, tab), want)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if n, err := tab.Load(t.Context(), numbered(0, 0), txn.LoadOptions{}); n != 0 || err != nil {
		t.Error(n, err)
	}
	large := func(yield func(uint64, []byte) bool) { yield(7, make([]byte, 40<<10)) } // beyond a batch
	if n, err := tab.Load(t.Context(), large, txn.LoadOptions{}); n != 1 || err != nil {
		t.Error(n, err)
	}
	quiet(t, db)
}

// TestLoadIndexed: a table with indexes is loaded as others are: an iterator may use its buffers
// again, batches are halved until they fit the log, and an error leaves whole batches, a prefix.
// The index has what the table has.
func TestLoadIndexed(t *testing.T) {
	db := mustOpen(t, tiny())
	tail := txn.NewUniqueIndex("tail", txn.BytesKey, func(_, v []byte) [][]byte { return [][]byte{v[len(v)-4:]} })
	tab, err := txn.CreateTable(db, "t", txn.BytesKey, txn.Bytes(), tail)
	if err != nil {
		t.Fatal(err)
	}
	var key, value []byte
	reused := func(n, size int) iter.Seq2[[]byte, []byte] {
		return func(yield func(k, v []byte) bool) {
			for i := range n {
				key = fmt.Appendf(key[:0], "k%03d", i)
				value = fmt.Appendf(append(value[:0], make([]byte, size)...), "%04d", i)
				if !yield(key, value) {
					return
				}
			}
		}
	}
	holds := func(n, size int) {
		t.Helper()
		if err := db.View(t.Context(), func(tx *txn.Tx) error {
			got := 0
			for v, k := range tail.Range(tx, txn.Bound[[]byte]{}, txn.Bound[[]byte]{}) {
				if want := fmt.Sprintf("k%03d %04d", got, got); fmt.Sprintf("%s %s", k, v) != want {
					return fmt.Errorf("entry %d is %s of %s", got, v, k)
				}
				if v, err := tab.Get(tx, k); err != nil || len(v) != size+4 {
					return fmt.Errorf("record %s has %d bytes: %w", k, len(v), err)
				}
				got++
			}
			if got != n {
				return fmt.Errorf("%d entries of %d records", got, n)
			}
			return tx.Err()
		}); err != nil {
			t.Error(err)
		}
	}
	if n, err := tab.Load(t.Context(), reused(200, 0), txn.LoadOptions{}); n != 200 || err != nil {
		t.Fatal(n, err)
	}
	holds(200, 0)
	var told []uint64
	if n, err := tab.Load(t.Context(), reused(200, 1500),
		txn.LoadOptions{Batch: 1000, Progress: func(n uint64) { told = append(told, n) }}); n != 200 || err != nil {
		t.Fatal(n, err)
	}
	if len(told) < 3 || told[0] >= 200 {
		t.Errorf("progress: %d", told)
	}
	holds(200, 1500)
	n, err := tab.Load(t.Context(), func(yield func(k, v []byte) bool) {
		for i := range 100 {
			if !yield(fmt.Appendf(nil, "n%03d", i), fmt.Appendf(nil, "n%03d", min(i, 50))) {
				return
			}
		}
	}, txn.LoadOptions{Batch: 8})
	if n != 48 || !errors.Is(err, txn.ErrUnique) {
		t.Error(n, err)
	}
	quiet(t, db)
}

// TestLoadStops: an error leaves whole batches, a prefix, of the size that was asked for.
func TestLoadStops(t *testing.T) {
	db := mustOpen(t, tiny())
	tab := create(t, db, "t", txn.Uint64, txn.JSON[any]())
	stop := func(at uint64, then any) iter.Seq2[uint64, any] {
		return func(yield func(uint64, any) bool) {
			for k := range uint64(100) {
				v := any(k)
				if k == at {
					v = then
				}
				if !yield(k, v) {
					return
				}
			}
		}
	}
	n, err := tab.Load(t.Context(), stop(57, func() {}), txn.LoadOptions{Batch: 10})
	if n != 50 || err == nil {
		t.Errorf("a value that has no encoding: %d, %v", n, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	n, err = tab.Load(ctx, stop(1000, nil), txn.LoadOptions{Batch: 9, Progress: func(n uint64) {
		if n == 27 {
			cancel()
		}
	}})
	if n != 27 {
		t.Errorf("canceled: %d", n)
	}
	says(t, "canceled", err, context.Canceled, `table "t"`, "after 27 records")
	if err := db.View(t.Context(), func(tx *txn.Tx) error {
		for k := range uint64(60) {
			if has, err := tab.Has(tx, k); err != nil || has != (k < 50) {
				return fmt.Errorf("key %d: %v, %w", k, has, err)
			}
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	_, err = tab.Load(t.Context(), stop(0, nil), txn.LoadOptions{Batch: -1})
	says(t, "a negative batch", err, txn.ErrOptions, "Batch is -1")
	if err := db.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, err = tab.Load(t.Context(), stop(0, nil), txn.LoadOptions{})
	says(t, "closed", err, txn.ErrClosed)
}

// TestStats counts what is there, in a table that grows and shrinks.
func TestStats(t *testing.T) {
	db := mustOpen(t, tiny())
	tab := table(t, db, "t")
	st, err := tab.Stats(t.Context())
	if err != nil || st.Rows != 0 || st.Bytes != 0 || st.Blocks != 0 || st.Buckets == 0 || st.Load != 0 ||
		st.SubTables == 0 || st.IndexBytes == 0 {
		t.Errorf("empty: %+v, %v", st, err)
	}
	small := st
	if _, err := tab.Load(t.Context(), numbered(0, 1000), txn.LoadOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := db.Update(t.Context(),
		func(tx *txn.Tx) error { return errors.Join(tab.Delete(tx, 1), tab.Delete(tx, 2)) }); err != nil {
		t.Fatal(err)
	}
	rows, size, largest := uint64(0), uint64(0), uint64(0)
	for k, v := range numbered(0, 1000) {
		if k != 1 && k != 2 {
			rows++
			size += 8 + uint64(len(v))
			largest = max(largest, 8+uint64(len(v)))
		}
	}
	st, err = tab.Stats(t.Context())
	if err != nil || st.Rows != rows || st.Bytes != size || st.Largest != largest || st.Blocks < rows ||
		st.Stored < size ||
		st.Load <= 0.1 || st.Load > 1 || st.SubTables <= small.SubTables || st.IndexBytes <= small.IndexBytes ||
		st.Buckets <= small.Buckets {
		t.Errorf("%+v, %v; want %d rows of %d bytes, the largest %d", st, err, rows, size, largest)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := tab.Stats(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestOpenAnyTable: a table without its types, as tools see it.
func TestOpenAnyTable(t *testing.T) {
	db := mustOpen(t, tiny())
	key := txn.Tuple2Key(txn.String, txn.Desc(txn.Int64))
	tab := create(t, db, "t", key, txn.JSON[int]())
	k := txn.T2("a\x00b", int64(-7))
	if err := db.Update(t.Context(), func(tx *txn.Tx) error { return tab.Put(tx, k, 12) }); err != nil {
		t.Fatal(err)
	}
	i, err := db.TableInfo("t")
	if want := (txn.TableInfo{
		Name: "t", Key: "tuple(string,desc(int64))", Value: "json", Index: "race",
	}); !reflect.DeepEqual(i, want) || err != nil {
		t.Errorf("%+v, %v", i, err)
	}
	raw, err := txn.OpenAnyTable(db, "t")
	if err != nil {
		t.Fatal(err)
	}
	p, err := txn.ParseKey(i.Key, `["a\u0000b", -7]`)
	if err != nil || !bytes.Equal(p, key.Append(nil, k)) {
		t.Errorf("%x, %v", p, err)
	}
	if err := db.View(t.Context(), func(tx *txn.Tx) error {
		for key, v := range raw.All(tx) {
			if !bytes.Equal(key, p) || string(v) != "12" {
				t.Errorf("%x: %q", key, v)
			}
		}
		v, err := raw.Get(tx, p)
		if string(v) != "12" {
			t.Errorf("%q", v)
		}
		return err
	}); err != nil {
		t.Error(err)
	}
	_, err = txn.OpenAnyTable(db, "none")
	says(t, "no table", err, txn.ErrNoTable, `"none"`)
	_, err = db.TableInfo("none")
	says(t, "no table", err, txn.ErrNoTable, `"none"`)
}

// TestParseKey: text is the key that errors show as that text, and other text is refused.
func TestParseKey(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	for _, c := range []struct {
		name, text string
		want       []byte
	}{
		{"uint64", "7", txn.Uint64.Append(nil, 7)},
		{"int64", "-7", txn.Int64.Append(nil, -7)},
		{"float64", "-1.5e3", txn.Float64.Append(nil, -1500)},
		{"float64", "NaN", make([]byte, 8)},
		{"string", "a b", []byte("a b")},
		{"string", "0x00ff", []byte{0, 255}},
		{"own", "0x00ff", []byte{0, 255}},
		{"string", `"0x00ff"`, []byte("0x00ff")},
		{"line=string", `"\"a\tb\""`, []byte("\"a\tb\"")},
		{"string", `"a`, []byte(`"a`)},
		{"desc(string)", `"0x"`, txn.Desc(txn.String).Append(nil, "0x")},
		{"tuple(string,uint64)", `["\"x\"", 1]`, txn.Tuple2Key(txn.String, txn.Uint64).Append(nil,
			txn.T2(`"x"`, uint64(1)))},
		{"time", "2026-01-02T03:04:05.000000006Z", txn.Time.Append(nil, at)},
		{"time", "2026-01-02T04:04:05.000000006+01:00", txn.Time.Append(nil, at)},
		{"desc(string)", "ab", txn.Desc(txn.String).Append(nil, "ab")},
		{"desc(uint64)", "1", txn.Desc(txn.Uint64).Append(nil, 1)},
		{
			"line=tuple(uint64,string)",
			`[1, "x"]`, txn.Tuple2Key(txn.Uint64, txn.String).Append(nil, txn.T2(uint64(1), "x")),
		},
		{"tuple(tuple(string,int64),desc(time))", `[["x", -1], "2026-01-02T03:04:05.000000006Z"]`,
			txn.Tuple2Key(txn.Tuple2Key(txn.String, txn.Int64), txn.Desc(txn.Time)).Append(nil,
				txn.T2(txn.T2("x", int64(-1)), at))},
	} {
		if p, err := txn.ParseKey(c.name, c.text); err != nil || !bytes.Equal(p, c.want) {
			t.Errorf("%s %s: %x, %v, want %x", c.name, c.text, p, err, c.want)
		}
	}
	for name, texts := range map[string][]string{
		"uint64": {"", "-1", "x", "0xg", "18446744073709551616"}, "time": {"today"}, "bytes": {"x"}, "own": {"x"},
		"tuple(uint64,string)": {"", "1", "[1]", `[1,"x",2]`, `["a","b"]`, `{"a":1}`, `[null,"x"]`},
		"tuple(own,string)":    {`["a","b"]`}, "desc(own)": {"x"},
	} {
		for _, text := range texts {
			if p, err := txn.ParseKey(name, text); !errors.Is(err, txn.ErrOptions) {
				t.Errorf("%s %q: %x, %v", name, text, p, err)
			}
		}
	}
}
