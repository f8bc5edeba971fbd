package txn_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"txnode/txn"
)

// noBound is a bound that is none.
var noBound = txn.Bound[uint64]{}

// keysOf collects what a loop over records yields.
func keysOf[V any](seq func(func(uint64, V) bool)) (keys []uint64) {
	for k := range seq {
		keys = append(keys, k)
	}
	return keys
}

// tens is an ordered table with the keys 0, 10, ... 990, whose values are their text.
func tens(t testing.TB) (*txn.DB, *txn.OrderedTable[uint64, string]) {
	t.Helper()
	db := mustOpen(t, tiny())
	tab, err := txn.CreateOrderedTable(db, "t", txn.Uint64, txn.Text())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tab.Load(t.Context(), func(yield func(uint64, string) bool) {
		for k := uint64(0); k < 1000; k += 10 {
			if !yield(k, fmt.Sprint(k)) {
				return
			}
		}
	}, txn.LoadOptions{}); err != nil {
		t.Fatal(err)
	}
	return db, tab
}

// upTo are the multiples of ten from one number to another, both included.
func upTo(from, to uint64) (keys []uint64) {
	for k := from; k <= to; k += 10 {
		keys = append(keys, k)
	}
	return keys
}

func downFrom(from, to uint64) []uint64 {
	keys := upTo(to, from)
	slices.Reverse(keys)
	return keys
}

// TestRangeBounds: every kind of bound, in both directions, with and without a limit.
func TestRangeBounds(t *testing.T) {
	db, tab := tens(t)
	in, ex := txn.Including[uint64], txn.Excluding[uint64]
	down := txn.Descending()
	for _, c := range []struct {
		what     string
		from, to txn.Bound[uint64]
		options  []txn.RangeOption
		want     []uint64
	}{
		{"all", noBound, noBound, nil, upTo(0, 990)},
		{"all, down", noBound, noBound, []txn.RangeOption{down}, downFrom(990, 0)},
		{"including", in(100), in(130), nil, upTo(100, 130)},
		{"excluding", ex(100), ex(130), nil, upTo(110, 120)},
		{"both, down", in(100), ex(130), []txn.RangeOption{down}, downFrom(120, 100)},
		{"other way, down", ex(100), in(130), []txn.RangeOption{down}, downFrom(130, 110)},
		{"between keys", in(101), in(129), nil, upTo(110, 120)},
		{"noBound below", noBound, ex(30), nil, upTo(0, 20)},
		{"noBound above", ex(970), noBound, nil, upTo(980, 990)},
		{"one key", in(500), in(500), nil, upTo(500, 500)},
		{"one absent key", in(501), in(501), nil, nil},
		{"nothing between a key and itself", ex(500), ex(500), nil, nil},
		{"from a key to just before it", in(500), ex(500), nil, nil},
		{"from just behind a key to it", ex(500), in(500), nil, nil},
		{"wrong order", in(600), in(500), nil, nil},
		{"wrong order, down", in(600), in(500), []txn.RangeOption{down}, nil},
		{"behind all", ex(990), noBound, nil, nil},
		{"before all, down", noBound, ex(0), []txn.RangeOption{down}, nil},
		{"limit", in(100), noBound, []txn.RangeOption{txn.Limit(3)}, upTo(100, 120)},
		{"limit, down", noBound, in(100), []txn.RangeOption{txn.Limit(3), down}, downFrom(100, 80)},
		{"limit of more than there are", in(980), noBound, []txn.RangeOption{txn.Limit(100)}, upTo(980, 990)},
		{"limit 0", in(980), noBound, []txn.RangeOption{txn.Limit(0)}, upTo(980, 990)},
		{"limit -1", in(980), noBound, []txn.RangeOption{txn.Limit(-1)}, upTo(980, 990)},
		{"limit of exactly what there is", in(980), noBound, []txn.RangeOption{txn.Limit(2)}, upTo(980, 990)},
	} {
		if err := db.View(t.Context(), func(tx *txn.Tx) error {
			if got := keysOf(tab.Range(tx, c.from, c.to, c.options...)); !slices.Equal(got, c.want) {
				t.Errorf("%s: %v, want %v", c.what, got, c.want)
			}
			if got := slices.Collect(tab.RangeKeys(tx, c.from, c.to, c.options...)); !slices.Equal(got, c.want) {
				t.Errorf("%s: keys %v, want %v", c.what, got, c.want)
			}
			return nil
		}); err != nil {
			t.Errorf("%s: %v", c.what, err)
		}
		if len(c.options) > 0 {
			continue
		}
		if err := db.View(t.Context(), func(tx *txn.Tx) error {
			n, err := tab.Count(tx, c.from, c.to)
			k, v, found, err1 := tab.First(tx, c.from, c.to)
			l, _, _, err2 := tab.Last(tx, c.from, c.to)
			if n != len(c.want) || found != (n > 0) || found && (k != c.want[0] || v != fmt.Sprint(k) ||
				l != c.want[n-1]) {
				t.Errorf("%s: %d records, from %d %q to %d", c.what, n, k, v, l)
			}
			return errors.Join(err, err1, err2)
		}); err != nil {
			t.Errorf("%s: %v", c.what, err)
		}
	}
}

// TestRangeOwn: a range has what the transaction has inserted, changed and deleted before it, in
// both directions, and nothing of what the loop does itself.
func TestRangeOwn(t *testing.T) {
	db, tab := tens(t)
	roll := errors.New("roll back")
	for _, down := range []bool{false, true} {
		var options []txn.RangeOption
		if down {
			options = append(options, txn.Descending())
		}
		err := db.Update(t.Context(), func(tx *txn.Tx) error {
			err := errors.Join(
				tab.Insert(tx, 105, "new"), tab.Put(tx, 111, "put"), tab.Put(tx, 120, "changed"), tab.Delete(tx, 130),
				tab.Insert(tx, 99, "outside"), tab.Put(tx, 135, "gone"), tab.Delete(tx, 135), tab.Insert(tx, 150, ""),
			)
			if !errors.Is(err, txn.ErrExists) {
				return fmt.Errorf("150 is there: %w", err)
			}
			got := map[uint64]string{}
			var keys []uint64
			for k, v := range tab.Range(tx, txn.Including[uint64](100), txn.Excluding[uint64](150), options...) {
				keys, got[k] = append(keys, k), v
				if k == 120 { // before and behind the loop
					if err := errors.Join(tab.Put(tx, 119, "a"), tab.Put(tx, 121, "b"), tab.Delete(tx, 140),
						tab.Delete(tx, 100)); err != nil {
						return err
					}
				}
			}
			want := []uint64{100, 105, 110, 111, 120, 140}
			if down {
				slices.Reverse(want)
			}
			if !slices.Equal(keys, want) || got[105] != "new" || got[111] != "put" || got[120] != "changed" ||
				got[110] != "110" {
				t.Errorf("down %v: %v %v, want %v", down, keys, got, want)
			}
			return roll
		})
		if !errors.Is(err, roll) {
			t.Fatal(err)
		}
	}
	if err := db.Update(t.Context(), func(tx *txn.Tx) error {
		n, err := tab.DeleteRange(tx, txn.Including[uint64](100), txn.Including[uint64](200),
			txn.Limit(4), txn.Descending())
		if n != 4 || err != nil {
			return fmt.Errorf("%d deleted: %w", n, err)
		}
		if got := keysOf(tab.Range(tx, txn.Including[uint64](150), txn.Including[uint64](210))); !slices.Equal(got,
			[]uint64{150, 160, 210}) {
			t.Errorf("%v", got)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// TestRangeIsLeft: a loop that is left early leaves the transaction as it is, and a conflict only
// with what it has passed.
func TestRangeIsLeft(t *testing.T) {
	db, tab := tens(t)
	attempts := 0
	if err := db.Update(t.Context(), func(tx *txn.Tx) error {
		attempts++
		for k := range tab.Range(tx, txn.Including[uint64](100), noBound) {
			if k == 130 {
				break
			}
		}
		if attempts == 1 { // behind what was passed: no conflict
			if err := db.Update(t.Context(), func(other *txn.Tx) error {
				return errors.Join(tab.Put(other, 700, "other"), tab.Put(other, 90, "other"))
			}); err != nil {
				return err
			}
		}
		return tab.Put(tx, 5000, "x")
	}); err != nil {
		t.Fatal(err)
	}
	if attempts != 1 {
		t.Errorf("%d attempts", attempts)
	}
	attempts = 0
	if err := db.Update(t.Context(), func(tx *txn.Tx) error {
		attempts++
		n, err := tab.Count(tx, txn.Including[uint64](100), txn.Including[uint64](200))
		if attempts == 1 && err == nil { // a key that was not there
			err = db.Update(t.Context(), func(other *txn.Tx) error { return tab.Insert(other, 155, "phantom") })
		}
		return errors.Join(err, tab.Put(tx, 5001, fmt.Sprint(n)))
	}); err != nil {
		t.Fatal(err)
	}
	if err := db.View(t.Context(), func(tx *txn.Tx) error {
		v, err := tab.Get(tx, 5001)
		if v != "12" {
			t.Errorf("%s keys are counted", v)
		}
		return err
	}); err != nil || attempts != 2 {
		t.Errorf("%d attempts, %v", attempts, err)
	}
}

// TestRangeErrors: what an ordered table refuses, and says.
func TestRangeErrors(t *testing.T) {
	db, tab := tens(t)
	unordered, mute := txn.String, txn.Uint64
	unordered.Ordered, mute.Decode = false, nil
	_, err := txn.CreateOrderedTable(db, "u", unordered, txn.Text())
	says(t, "unordered", err, txn.ErrUnordered, `"u"`, `"string"`)
	_, err = txn.CreateOrderedTable(db, "u", mute, txn.Text())
	says(t, "no decode", err, txn.ErrNoDecode, `"u"`)
	for _, n := range []int{-1, 1025} {
		_, err = txn.CreateOrderedTable(db, "u", atMost(txn.String, n), txn.Text())
		says(t, fmt.Sprint("MaxBytes ", n), err, txn.ErrOptions, `"u"`, "1024")
	}
	if names, err := db.Tables(); err != nil || !slices.Equal(names, []string{"t"}) {
		t.Errorf("%q %v", names, err)
	}
	_, err = txn.OpenOrderedTable(db, "u", txn.String, txn.Text())
	says(t, "none", err, txn.ErrNoTable, `"u"`)
	_, err = txn.OpenOrderedTable(db, "t", txn.Int64, txn.Text())
	says(t, "another key", err, txn.ErrTableType)
	_, err = txn.CreateOrderedTable(db, "t", atMost(txn.Uint64, 77), txn.Text())
	says(t, "another MaxBytes", err, txn.ErrTableType)
	table(t, db, "hash")
	_, err = txn.OpenOrderedTable(db, "hash", txn.Uint64, txn.Bytes())
	says(t, "a hash table", err, txn.ErrTableType, `"hash"`)
	raw, err := txn.OpenAnyTable(db, "hash")
	if err != nil {
		t.Fatal(err)
	}
	err = db.View(t.Context(), func(tx *txn.Tx) error {
		count(raw.Range(tx, txn.Bound[[]byte]{}, txn.Bound[[]byte]{}))
		return nil
	})
	says(t, "a range of a hash table", err, txn.ErrUnordered, `"hash"`)

	long, err := txn.CreateOrderedTable(db, "long", txn.String, txn.Text())
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(t.Context(), func(tx *txn.Tx) error {
		return long.Put(tx, strings.Repeat("k", txn.DefaultMaxKey+1), "")
	})
	says(t, "a long key", err, txn.ErrTooLarge, `"long"`, "128")
	if err := db.Update(t.Context(),
		func(tx *txn.Tx) error { return long.Put(tx, strings.Repeat("k", txn.DefaultMaxKey), "") }); err != nil {
		t.Error(err)
	}
	err = db.View(t.Context(), func(tx *txn.Tx) error { count(tab.Prefix(tx, 1, txn.Parts(1))); return nil })
	says(t, "parts of a number", err, txn.ErrOptions, `"t"`)
	err = db.View(t.Context(), func(tx *txn.Tx) error { _, err := tab.DeleteRange(tx, noBound, noBound); return err })
	says(t, "View", err, txn.ErrReadOnly)

	var kept func(func(uint64, string) bool)
	if err := db.View(t.Context(),
		func(tx *txn.Tx) error { kept = tab.Range(tx, noBound, noBound); return nil }); err != nil {
		t.Fatal(err)
	}
	if got := keysOf(kept); got != nil {
		t.Errorf("after the transaction: %v", got)
	}
	if err := db.DropTable(t.Context(), "t"); err != nil {
		t.Fatal(err)
	}
	for what, fn := range map[string]func(tx *txn.Tx) error{
		"Range":       func(tx *txn.Tx) error { count(tab.Range(tx, noBound, noBound)); return nil },
		"Count":       func(tx *txn.Tx) error { _, err := tab.Count(tx, noBound, noBound); return err },
		"First":       func(tx *txn.Tx) error { _, _, _, err := tab.First(tx, noBound, noBound); return err },
		"DeleteRange": func(tx *txn.Tx) error { _, err := tab.DeleteRange(tx, noBound, noBound); return err },
	} {
		says(t, what+" of a dropped table", db.Update(t.Context(), fn), txn.ErrDropped, `"t"`)
	}
}

// TestPrefix: of strings, bytes that end in FF, and tuples.
func TestPrefix(t *testing.T) {
	db := mustOpen(t, tiny())
	words := inserted(t, db, "words", txn.String, "a", "ab", "abc", "b", "\xff", "\xff\xff", "\xff\xffz")
	raw := inserted(t, db, "raw", txn.BytesKey, []byte{1}, []byte{1, 0xff}, []byte{1, 0xff, 0xff, 3},
		[]byte{2}, []byte{2, 0xff})
	pairs := inserted(t, db, "pairs", txn.Tuple3Key(txn.Uint64, txn.String, txn.Uint64),
		txn.T3(uint64(1), "a", uint64(1)), txn.T3(uint64(1), "a", uint64(2)),
		txn.T3(uint64(1), "ab", uint64(1)), txn.T3(uint64(1), "b", uint64(9)), txn.T3(uint64(2), "a", uint64(0)))
	if err := db.View(t.Context(), func(tx *txn.Tx) error {
		for _, c := range []struct {
			prefix string
			want   int
		}{{"", 7}, {"a", 3}, {"ab", 2}, {"abcd", 0}, {"\xff", 3}, {"\xff\xff", 2}, {"\xff\xff\xff", 0}, {"c", 0}} {
			if n := count(words.Prefix(tx, c.prefix)); n != c.want {
				t.Errorf("%q: %d, want %d", c.prefix, n, c.want)
			}
		}
		if n := count(raw.Prefix(tx, []byte{1, 0xff})); n != 2 {
			t.Errorf("01 ff: %d", n)
		}
		for parts, want := range map[int]int{1: 4, 2: 2, 3: 1} {
			if n := count(pairs.Prefix(tx, txn.T3(uint64(1), "a", uint64(1)), txn.Parts(parts))); n != want {
				t.Errorf("%d parts: %d, want %d", parts, n, want)
			}
		}
		var last uint64
		for k := range pairs.Prefix(tx, txn.T3(uint64(1), "", uint64(0)), txn.Parts(1),
			txn.Descending(), txn.Limit(1)) {
			last = k.C
		}
		if last != 9 {
			t.Errorf("the last of 1 is %d", last)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	bare, err := txn.OpenAnyTable(db, "words")
	if err != nil {
		t.Fatal(err)
	}
	if err := db.View(t.Context(), func(tx *txn.Tx) error {
		var got []string
		for k := range bare.Range(tx, txn.Excluding([]byte("a")), txn.Including([]byte("b"))) {
			got = append(got, string(k))
		}
		if want := []string{"ab", "abc", "b"}; !slices.Equal(got, want) {
			t.Errorf("raw: %q, want %q", got, want)
		}
		if n := count(bare.Prefix(tx, []byte("a"), txn.Limit(2), txn.Descending())); n != 2 {
			t.Errorf("raw prefix: %d", n)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// inserted is a new ordered table with some keys.
func inserted[K any](t *testing.T, db *txn.DB, name string, key txn.Key[K], keys ...K) *txn.OrderedTable[K, string] {
	t.Helper()
	tab, err := txn.CreateOrderedTable(db, name, key, txn.Text())
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Update(t.Context(), func(tx *txn.Tx) error {
		for _, k := range keys {
			if err := tab.Insert(tx, k, "v"); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return tab
}

// TestRangeAllocates: a range allocates a little for itself, and nothing for its rows, whose room
// it has from earlier ones.
func TestRangeAllocates(t *testing.T) {
	db, tab := tens(t)
	w, err := db.NewWorker()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	runs := func(n int) float64 {
		sum := uint64(0)
		fn := func(tx *txn.Tx) error {
			for k := range tab.RangeKeys(tx, noBound, noBound, txn.Limit(n)) {
				sum += k
			}
			return nil
		}
		return testing.AllocsPerRun(50, func() {
			if err := w.View(t.Context(), fn); err != nil {
				t.Fatal(err)
			}
		})
	}
	few, many := runs(10), runs(90)
	t.Logf("allocations of a range: %v for 10 rows, %v for 90", few, many)
	if few > 12 || many > few+1 {
		t.Errorf("a range of 10 rows costs %v allocations, one of 90 rows %v", few, many)
	}
}

// TestInsertBesideFORD: an insert that has found its key in an ordered table has locked the
// leaf for nothing. The commit of what the transaction writes to hash tables gives that lock
// back, by either policy.
func TestInsertBesideFORD(t *testing.T) {
	for _, p := range policies(t) {
		o := tiny()
		o.Policy, o.Dir = p, t.TempDir()
		db := mustOpen(t, o)
		open := func() (*txn.OrderedTable[uint64, []byte], *txn.Table[uint64, []byte]) {
			sorted, err := txn.CreateOrderedTable(db, "sorted", txn.Uint64, txn.Bytes())
			if err != nil {
				t.Fatal(err)
			}
			return sorted, table(t, db, "hash")
		}
		sorted, _ := open()
		if err := db.Update(t.Context(), func(tx *txn.Tx) error { return sorted.Put(tx, 1, val(1)) }); err != nil {
			t.Fatal(err)
		}
		if err := db.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		db = mustOpen(t, o) // which does not know where the record is
		sorted, hash := open()
		if err := db.Update(t.Context(), func(tx *txn.Tx) error {
			if err := sorted.Insert(tx, 1, val(2)); !errors.Is(err, txn.ErrExists) {
				return fmt.Errorf("insert of a key that is there: %w", err)
			}
			return hash.Put(tx, 1, val(1))
		}); err != nil {
			t.Fatal(err)
		}
		quiet(t, db)
		if err := db.Update(t.Context(), func(tx *txn.Tx) error { return sorted.Insert(tx, 2, val(2)) }); err != nil {
			t.Errorf("%v: %v", p, err)
		}
	}
}
