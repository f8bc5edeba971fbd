package txn_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"txnode/txn"
)

// every has a field of every kind that Plain takes, and no padding.
type every struct {
	A uint64
	B int64
	C float64
	D complex128
	E uint32
	F int32
	G float32
	H complex64
	I uint16
	J int16
	K uint8
	L int8
	M bool
	N [3]byte
	O struct{ X, Y uint16 }
	_ uint16
	P [2]struct{ Q, R int32 }
	_ uint32
}

// stored is a value that has been through a table.
func stored[V any](t testing.TB, c txn.Codec[V], v V) (V, error) {
	t.Helper()
	p, err := c.Append([]byte("before"), v)
	if err != nil {
		return v, err
	}
	if !bytes.HasPrefix(p, []byte("before")) {
		t.Fatalf("Append has changed what was there: %q", p)
	}
	return c.Decode(p[len("before"):])
}

func TestPlain(t *testing.T) {
	v := every{
		A: 1, B: -2, C: 3.5, D: 4 + 5i, E: 6, F: -7, G: 8.25, H: 9 + 1i, I: 10, J: -11, K: 12, L: -13, M: true,
		N: [3]byte{14, 15, 16}, O: struct{ X, Y uint16 }{17, 18}, P: [2]struct{ Q, R int32 }{{19, -20}, {21, 22}},
	}
	if got, err := stored(t, txn.Plain[every](), v); err != nil || got != v {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := stored(t, txn.Plain[uint64](), math.MaxUint64); err != nil || got != math.MaxUint64 {
		t.Error(got, err)
	}
	if got, err := stored(t, txn.Plain[[4]int16](), [4]int16{-1, 2, -3, 4}); err != nil ||
		got != [4]int16{-1, 2, -3, 4} {
		t.Error(got, err)
	}
	if _, err := stored(t, txn.Plain[struct{}](), struct{}{}); err != nil {
		t.Error(err)
	}
	// Little-endian, whatever the machine.
	if p, err := txn.Plain[struct{ A, B uint16 }]().Append(nil, struct{ A, B uint16 }{0x0102, 0x0304}); err != nil ||
		!bytes.Equal(p, []byte{2, 1, 4, 3}) {
		t.Errorf("% x, %v", p, err)
	}
	if name := txn.Plain[every]().Name; name != fmt.Sprint("plain:", reflect.TypeFor[every]().Size()) {
		t.Errorf("name %q", name)
	}
	for _, n := range []int{0, 7, 9} {
		_, err := txn.Plain[uint64]().Decode(make([]byte, n))
		says(t, fmt.Sprintf("%d bytes of 8", n), err, txn.ErrCorrupt, fmt.Sprint(n), "8", "uint64")
	}
}

func TestPlainRoundTrip(t *testing.T) {
	c := txn.Plain[every]()
	rapid.Check(t, func(rt *rapid.T) {
		v := every{
			A: rapid.Uint64().Draw(rt, "A"), B: rapid.Int64().Draw(rt, "B"), C: rapid.Float64().Draw(rt, "C"),
			E: rapid.Uint32().Draw(rt, "E"),
			G: rapid.Float32().Draw(rt, "G"), J: rapid.Int16().Draw(rt, "J"), L: rapid.Int8().Draw(rt, "L"),
			M: rapid.Bool().Draw(rt, "M"),
		}
		v.P[1].R = rapid.Int32().Draw(rt, "P[1].R")
		p, err := c.Append(nil, v)
		if err != nil {
			rt.Fatal(err)
		}
		if got, err := c.Decode(p); err != nil || got != v {
			rt.Fatalf("%+v\n%+v\n%v", got, v, err)
		}
	})
}

// panics returns what fn has panicked with.
func panics(fn func()) (text string) {
	defer func() {
		if r := recover(); r != nil {
			text = fmt.Sprint(r)
		}
	}()
	fn()
	return ""
}

// TestPlainRefuses: what has no fixed form is refused when the codec is made, with
// the name of the field.
func TestPlainRefuses(t *testing.T) {
	type inner struct{ Names []string }
	for want, fn := range map[string]func(){
		"string":                        func() { txn.Plain[string]() },
		"int":                           func() { txn.Plain[int]() },
		"uint, ":                        func() { txn.Plain[uint]() },
		"uintptr":                       func() { txn.Plain[uintptr]() },
		"chan":                          func() { txn.Plain[chan int]() },
		"func":                          func() { txn.Plain[func()]() },
		"interface":                     func() { txn.Plain[any]() },
		"map":                           func() { txn.Plain[map[int8]int8]() },
		".When.loc is a *time.Location": func() { txn.Plain[struct{ When time.Time }]() },
		".A is a int":                   func() { txn.Plain[struct{ A, B int }]() },
		".In.Names is a []string":       func() { txn.Plain[struct{ In inner }]() },
		".In[].Names is a []string":     func() { txn.Plain[struct{ In [3]inner }]() },
		".hidden is a *int8":            func() { txn.Plain[struct{ hidden *int8 }]() },
		"7 bytes of padding": func() {
			txn.Plain[struct {
				A uint64
				B uint8
			}]()
		},
		"3 bytes of padding": func() {
			txn.Plain[struct {
				A uint8
				B uint32
			}]()
		},
		"6 bytes of padding": func() {
			txn.Plain[[2]struct {
				A uint8
				B uint32
			}]()
		},
	} {
		if got := panics(fn); !strings.Contains(got, want) || !strings.HasPrefix(got, "txn.Plain: ") {
			t.Errorf("%q does not say %q", got, want)
		}
	}
}

type point struct{ X, Y int }

func (p point) MarshalBinary() ([]byte, error) {
	if p.X < 0 {
		return nil, errRollback
	}
	return fmt.Appendf(nil, "%d/%d", p.X, p.Y), nil
}

func (p *point) UnmarshalBinary(b []byte) error {
	_, err := fmt.Sscanf(string(b), "%d/%d", &p.X, &p.Y)
	return err
}

// TestCodecs: values of every codec go through a table; what can not be encoded, or
// decoded, is an error of the operation.
func TestCodecs(t *testing.T) {
	db := mustOpen(t, tiny())
	through(t, db, "bytes", txn.Bytes(), []byte("alpha"), []byte{}, bytes.Repeat([]byte("x"), 5000))
	through(t, db, "text", txn.Text(), "", "grün", strings.Repeat("y", 300))
	through(t, db, "json", txn.JSON[map[string]any](), map[string]any{"a": 1.5, "b": []any{"c", nil}}, nil)
	through(t, db, "json of a struct", txn.JSON[*point](), &point{1, 2}, nil)
	through(t, db, "binary", txn.Binary[point](), point{3, 4}, point{5, -6})
	through(t, db, "time", txn.Binary[time.Time](), time.Unix(1, 2).UTC(), time.Time{})
	through(t, db, "plain", txn.Plain[every](), every{A: 1, M: true}, every{})

	refuses := func(what string, op func(tx *txn.Tx) error, want error) {
		t.Helper()
		if err := as(t, db, op); err == nil || want != nil && !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
	}
	jsonTab, err := txn.CreateTable(db, "functions", txn.String, txn.JSON[any]())
	if err != nil {
		t.Fatal(err)
	}
	refuses("Put of what JSON can not say", func(tx *txn.Tx) error { return jsonTab.Put(tx, "k", func() {}) }, nil)
	refuses("Insert of what JSON can not say", func(tx *txn.Tx) error {
		return jsonTab.Insert(tx, "k", math.NaN())
	}, nil)
	binary, err := txn.OpenTable(db, "binary", txn.String, txn.Binary[point]())
	if err != nil {
		t.Fatal(err)
	}
	refuses("Put of what does not marshal", func(tx *txn.Tx) error { return binary.Put(tx, "k", point{X: -1}) },
		errRollback)
	// The same bytes under another codec of the same name.
	broken, err := txn.OpenTable(db, "json", txn.String, txn.JSON[[]string]())
	if err != nil {
		t.Fatal(err)
	}
	refuses("Get of what is no list", func(tx *txn.Tx) error { _, err := broken.Get(tx, "k0"); return err }, nil)
	quiet(t, db)
}

// TestCodecErrorsSayWhere: who has hundreds of tables is told in which one, and of which key,
// a value does not fit its type.
func TestCodecErrorsSayWhere(t *testing.T) {
	db := mustOpen(t, tiny())
	type v1 struct{ A int }
	type v2 struct{ A []string }
	words := create(t, db, "words", txn.String, txn.JSON[v1]())
	numbers := create(t, db, "numbers", txn.Uint64, txn.JSON[any]())
	if err := db.Update(t.Context(), func(tx *txn.Tx) error { return words.Put(tx, "of the key", v1{3}) }); err != nil {
		t.Fatal(err)
	}
	later := create(t, db, "words", txn.String, txn.JSON[v2]())
	for _, c := range []struct {
		of, want string
		fn       func(tx *txn.Tx) error
	}{
		{"Get", `table "words": value of key "of the key" cannot be decoded: json:`, func(tx *txn.Tx) error {
			_, err := later.Get(tx, "of the key")
			return err
		}},
		{"GetForUpdate", `table "words": value of key "of the key" cannot be decoded: json:`, func(tx *txn.Tx) error {
			_, err := later.GetForUpdate(tx, "of the key")
			return err
		}},
		{"Put", `table "numbers": value of key 77 cannot be encoded: json:`, func(tx *txn.Tx) error {
			return numbers.Put(tx, 77, func() {})
		}},
		{"Insert", `table "numbers": value of key 77 cannot be encoded: json:`, func(tx *txn.Tx) error {
			return numbers.Insert(tx, 77, func() {})
		}},
	} {
		if err := db.Update(t.Context(), c.fn); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.of, err)
		}
	}
	quiet(t, db)
}

func create[K, V any](t *testing.T, db *txn.DB, name string, k txn.Key[K], c txn.Codec[V]) *txn.Table[K, V] {
	t.Helper()
	tab, err := txn.CreateTable(db, name, k, c)
	if err != nil {
		t.Fatal(err)
	}
	return tab
}

// TestHalfCodec: a key or a codec without a part is refused before there is a table that
// nobody could use, or drop.
func TestHalfCodec(t *testing.T) {
	db := mustOpen(t, tiny())
	for _, c := range []struct {
		key   func(k *txn.Key[string])
		value func(v *txn.Codec[string])
		want  []string
	}{
		{func(k *txn.Key[string]) { k.Name = "" }, nil, []string{"Name of its Key"}},
		{func(k *txn.Key[string]) { k.Name = "\xff" }, nil, []string{"Name of its Key", "UTF-8"}},
		{func(k *txn.Key[string]) { k.Append = nil }, nil, []string{"Key has no Append"}},
		{nil, func(v *txn.Codec[string]) { v.Name = "" }, []string{"Name of its Codec"}},
		{nil, func(v *txn.Codec[string]) { v.Name = "a\xff" }, []string{"Name of its Codec", "UTF-8"}},
		{
			nil, func(v *txn.Codec[string]) { v.Append, v.Decode = nil, nil },
			[]string{"Codec has no Append", "Codec has no Decode"},
		},
	} {
		key, value := txn.String, txn.Text()
		if c.key != nil {
			c.key(&key)
		}
		if c.value != nil {
			c.value(&value)
		}
		_, err := txn.CreateTable(db, "t", key, value)
		if !errors.Is(err, txn.ErrOptions) {
			t.Errorf("%v: %v", c.want, err)
			continue
		}
		for _, w := range append(c.want, `"t"`) {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%q is not in: %v", w, err)
			}
		}
	}
	if names, err := db.Tables(); err != nil || len(names) != 0 {
		t.Errorf("tables %q, %v", names, err)
	}
}

func through[V any](t *testing.T, db *txn.DB, name string, c txn.Codec[V], values ...V) {
	t.Helper()
	tab, err := txn.CreateTable(db, name, txn.String, c)
	if err != nil {
		t.Fatal(err)
	}
	if tab.Name() != name {
		t.Errorf("table %q is called %q", name, tab.Name())
	}
	key := func(i int) string { return fmt.Sprint("k", i) }
	if err := db.Update(t.Context(), func(tx *txn.Tx) error {
		for i, v := range values {
			if err := tab.Put(tx, key(i), v); err != nil {
				return err
			}
			if got, err := tab.Get(tx, key(i)); err != nil || !reflect.DeepEqual(got, v) {
				t.Errorf("%s: own write of %v reads %v, %v", name, v, got, err)
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := db.View(t.Context(), func(tx *txn.Tx) error {
		for i, v := range values {
			if got, err := tab.Get(tx, key(i)); err != nil || !reflect.DeepEqual(got, v) {
				t.Errorf("%s: %v reads %v, %v", name, v, got, err)
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// TestKeyOrder: the order of encodings is that of the values, and no two are alike.
func TestKeyOrder(t *testing.T) {
	ordered(t, txn.Uint64, []uint64{0, 1, 255, 256, 1<<32 - 1, 1 << 32, 1 << 63, math.MaxUint64})
	ordered(t, txn.Int64, []int64{
		math.MinInt64, math.MinInt64 + 1, -1 << 32, -256, -1, 0, 1, 255, 1 << 40, math.MaxInt64,
	})
	ordered(t, txn.String, []string{"", "\x00", "a", "a\x00", "aa", "b", "\xff", "\xff\xff"})
	ordered(t, txn.BytesKey, [][]byte{{}, {0}, {0, 0}, {0, 1}, {1}, {255}})
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.Int64().Draw(t, "a"), rapid.Int64().Draw(t, "b")
		if c := bytes.Compare(txn.Int64.Append(nil, a), txn.Int64.Append(nil, b)); (c < 0) != (a < b) ||
			(c == 0) != (a == b) {
			t.Fatalf("%d and %d compare as %d", a, b, c)
		}
		if c := bytes.Compare(txn.Uint64.Append(nil, uint64(a)),
			txn.Uint64.Append(nil, uint64(b))); (c < 0) != (uint64(a) < uint64(b)) || (c == 0) != (a == b) {
			t.Fatalf("%d and %d compare as %d", uint64(a), uint64(b), c)
		}
	})
}

func ordered[K any](t *testing.T, k txn.Key[K], values []K) {
	t.Helper()
	var all [][]byte
	for _, v := range values {
		p := k.Append([]byte("p"), v)
		if p[0] != 'p' {
			t.Errorf("%s: Append has changed what was there", k.Name)
		}
		all = append(all, p[1:])
	}
	if !slices.IsSortedFunc(all, bytes.Compare) {
		t.Errorf("%s: %q are not in order", k.Name, all)
	}
	for i := range all[1:] {
		if bytes.Equal(all[i], all[i+1]) {
			t.Errorf("%s: %v and %v have the same encoding", k.Name, values[i], values[i+1])
		}
	}
}

// TestKeys: keys of every length and kind, alike but for little, are different keys.
func TestKeys(t *testing.T) {
	db := mustOpen(t, tiny())
	tab, err := txn.CreateTable(db, "t", txn.BytesKey, txn.Plain[uint64]())
	if err != nil {
		t.Fatal(err)
	}
	var keys [][]byte
	for _, n := range []int{1, 2, 7, 8, 9, 15, 16, 31, 32, 33, 63, 64, 65, 1000, 1023, 1024} {
		for _, last := range []byte{0, 1, 'z'} {
			k := make([]byte, n)
			k[n-1] = last
			keys = append(keys, k)
		}
	}
	for i, k := range keys {
		if err := db.Update(t.Context(), func(tx *txn.Tx) error { return tab.Insert(tx, k, uint64(i)) }); err != nil {
			t.Fatalf("key %d: %v", i, err)
		}
	}
	for i, k := range keys {
		if err := db.View(t.Context(), func(tx *txn.Tx) error {
			v, err := tab.Get(tx, k)
			if err == nil && v != uint64(i) {
				err = fmt.Errorf("it is %d", v)
			}
			return err
		}); err != nil {
			t.Errorf("key %d of %d bytes: %v", i, len(k), err)
		}
	}
	quiet(t, db)
}

// TestRawTable is the same table without codecs.
func TestRawTable(t *testing.T) {
	db := mustOpen(t, tiny())
	raw, err := txn.CreateRawTable(db, "t")
	if err != nil {
		t.Fatal(err)
	}
	typed, err := txn.OpenTable(db, "t", txn.BytesKey, txn.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := txn.CreateTable(db, "other", txn.Uint64, txn.Text()); err != nil {
		t.Fatal(err)
	}
	_, err = txn.CreateRawTable(db, "other")
	says(t, "a table of other types", err, txn.ErrTableType)
	k, l := []byte("k"), []byte("l")
	if err := db.Update(t.Context(), func(tx *txn.Tx) error {
		if err := raw.Insert(tx, k, []byte("1")); err != nil {
			return err
		}
		says(t, "Insert", raw.Insert(tx, k, nil), txn.ErrExists)
		says(t, "Delete", raw.Delete(tx, l), txn.ErrNotFound)
		if err := raw.Stage(tx, l, txn.ForUpdate); err != nil {
			return err
		}
		v, err := raw.GetForUpdate(tx, k)
		if err != nil {
			return err
		}
		v = append(v[:1:1], "2345"...)
		if err := raw.Put(tx, k, v); err != nil {
			return err
		}
		if v, err = raw.Get(tx, k); err != nil {
			return err
		}
		return raw.Put(tx, k, v[1:]) // of the image that it replaces
	}); err != nil {
		t.Fatal(err)
	}
	if err := db.View(t.Context(), func(tx *txn.Tx) error {
		v, err := typed.Get(tx, k)
		if string(v) != "2345" {
			t.Errorf("%q, %v", v, err)
		}
		return raw.Stage(tx, l, txn.ForRead)
	}); err != nil {
		t.Fatal(err)
	}
	if raw.Name() != "t" {
		t.Error(raw.Name())
	}
	if err := db.Update(t.Context(), func(tx *txn.Tx) error { return raw.Delete(tx, k) }); err != nil {
		t.Fatal(err)
	}
	var kept *txn.Tx
	_ = db.View(t.Context(), func(tx *txn.Tx) error { kept = tx; return nil })
	says(t, "Put after the end", raw.Put(kept, k, k), txn.ErrTxDone)
	quiet(t, db)
}
