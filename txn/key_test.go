package txn_test

import (
	"bytes"
	"cmp"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"txnode/txn"
)

// kind is a Key with values to test it with, and their order as Go has it.
type kind[K any] struct {
	key     txn.Key[K]
	gen     *rapid.Generator[K]
	compare func(a, b K) int
	alone   bool // no prefix-free encoding
}

// edges makes values near each other, and near the ends, much more likely than chance.
func edges[K any](g *rapid.Generator[K], near ...K) *rapid.Generator[K] {
	return rapid.OneOf(rapid.SampledFrom(near), g)
}

var (
	// bytesGen draws from few bytes, so that one value is often the beginning of another.
	bytesGen  = rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 2, 'a', 0xfe, 0xff}), 0, 6)
	stringGen = rapid.Map(bytesGen, func(p []byte) string { return string(p) })
	timeGen   = rapid.Map(rapid.SliceOfN(rapid.Int64Range(-1<<40, 1<<40), 2, 2), func(n []int64) time.Time {
		zone := time.FixedZone("zone", int(n[1]%50000))
		return time.Unix(n[0], n[1]%3).In(zone)
	})

	uints = kind[uint64]{
		txn.Uint64, edges(rapid.Uint64(), 0, 1, 255, 256, math.MaxUint64), cmp.Compare[uint64], false,
	}
	ints = kind[int64]{
		txn.Int64, edges(rapid.Int64(), math.MinInt64, -1, 0, 1, math.MaxInt64), cmp.Compare[int64], false,
	}
	floats = kind[float64]{txn.Float64, edges(rapid.Float64(), math.Inf(-1), math.Inf(1), math.NaN(), 0,
		math.Copysign(0, -1), math.SmallestNonzeroFloat64, -math.SmallestNonzeroFloat64), cmp.Compare[float64], false}
	strs     = kind[string]{txn.String, stringGen, cmp.Compare[string], true}
	byteses  = kind[[]byte]{txn.BytesKey, bytesGen, bytes.Compare, true}
	instants = kind[time.Time]{
		txn.Time, edges(timeGen, time.Time{}, time.Unix(0, 0), time.Unix(-1, 999999999)), time.Time.Compare, false,
	}
)

func desc[K any](k kind[K]) kind[K] {
	return kind[K]{txn.Desc(k.key), k.gen, func(a, b K) int { return k.compare(b, a) }, false}
}

func tuple2[A, B any](a kind[A], b kind[B]) kind[txn.Tuple2[A, B]] {
	return kind[txn.Tuple2[A, B]]{
		txn.Tuple2Key(a.key, b.key),
		rapid.Custom(func(t *rapid.T) txn.Tuple2[A, B] { return txn.T2(a.gen.Draw(t, "A"), b.gen.Draw(t, "B")) }),
		func(x, y txn.Tuple2[A, B]) int { return cmp.Or(a.compare(x.A, y.A), b.compare(x.B, y.B)) },
		false,
	}
}

func tuple3[A, B, C any](a kind[A], b kind[B], c kind[C]) kind[txn.Tuple3[A, B, C]] {
	return kind[txn.Tuple3[A, B, C]]{
		txn.Tuple3Key(a.key, b.key, c.key),
		rapid.Custom(func(t *rapid.T) txn.Tuple3[A, B, C] {
			return txn.T3(a.gen.Draw(t, "A"), b.gen.Draw(t, "B"), c.gen.Draw(t, "C"))
		}),
		func(x, y txn.Tuple3[A, B, C]) int {
			return cmp.Or(a.compare(x.A, y.A), b.compare(x.B, y.B), c.compare(x.C, y.C))
		},
		false,
	}
}

func tuple4[A, B, C, D any](a kind[A], b kind[B], c kind[C], d kind[D]) kind[txn.Tuple4[A, B, C, D]] {
	return kind[txn.Tuple4[A, B, C, D]]{
		txn.Tuple4Key(a.key, b.key, c.key, d.key),
		rapid.Custom(func(t *rapid.T) txn.Tuple4[A, B, C, D] {
			return txn.T4(a.gen.Draw(t, "A"), b.gen.Draw(t, "B"), c.gen.Draw(t, "C"), d.gen.Draw(t, "D"))
		}),
		func(x, y txn.Tuple4[A, B, C, D]) int {
			return cmp.Or(a.compare(x.A, y.A), b.compare(x.B, y.B), c.compare(x.C, y.C), d.compare(x.D, y.D))
		},
		false,
	}
}

// mirrored stores ints with the sign changed, under a type of its own: an order that is not kept.
type mirrored struct{ n uint64 }

func via(k kind[uint64]) kind[mirrored] {
	return kind[mirrored]{
		txn.KeyAs("own", k.key, func(m mirrored) uint64 { return m.n }, func(n uint64) mirrored { return mirrored{n} }),
		rapid.Map(k.gen, func(n uint64) mirrored { return mirrored{n} }),
		func(a, b mirrored) int { return k.compare(a.n, b.n) },
		false,
	}
}

// TestKeyKinds: the order of encodings is the order of values, two values have one encoding
// only if they are equal, none is the beginning of another, each decodes as what it was,
// and by its name too.
func TestKeyKinds(t *testing.T) {
	testKind(t, uints)
	testKind(t, ints)
	testKind(t, floats)
	testKind(t, strs)
	testKind(t, byteses)
	testKind(t, instants)
	testKind(t, desc(uints))
	testKind(t, desc(strs))
	testKind(t, desc(floats))
	testKind(t, desc(desc(byteses)))
	testKind(t, via(uints))
	testKind(t, tuple2(strs, byteses))
	testKind(t, tuple2(byteses, desc(strs)))
	testKind(t, tuple2(desc(byteses), uints))
	testKind(t, tuple3(strs, desc(instants), ints))
	testKind(t, tuple3(via(uints), strs, strs))
	testKind(t, tuple4(floats, strs, desc(byteses), instants))
	testKind(t, tuple2(tuple2(strs, strs), desc(tuple2(strs, uints))))
}

func testKind[K any](t *testing.T, k kind[K]) {
	t.Run(k.key.Name, func(t *testing.T) {
		if !k.key.Ordered {
			t.Error("it is not Ordered")
		}
		rapid.Check(t, func(t *rapid.T) { checkPair(t, k, k.gen.Draw(t, "a"), k.gen.Draw(t, "b")) })
	})
}

func checkPair[K any](t *rapid.T, k kind[K], a, b K) {
	x, y := k.key.Append([]byte("before"), a), k.key.Append(nil, b)
	if !bytes.HasPrefix(x, []byte("before")) {
		t.Fatal("Append has changed what was there")
	}
	x = x[len("before"):]
	want := k.compare(a, b)
	if got := bytes.Compare(x, y); got != want {
		t.Fatalf("%v and %v compare as %d, their encodings %x and %x as %d", a, b, want, x, y, got)
	}
	if k.alone != (k.key.Cut == nil) {
		t.Fatal("Cut is there, or is not")
	}
	if !k.alone {
		if want != 0 && (bytes.HasPrefix(x, y) || bytes.HasPrefix(y, x)) {
			t.Fatalf("%x and %x: one is the beginning of the other", x, y)
		}
		if n := k.key.Cut(append(bytes.Clone(x), y...)); n != len(x) {
			t.Fatalf("%x, with %x behind it, is cut at %d", x, y, n)
		}
		if n := k.key.Cut(x[:len(x)-1]); n != 0 {
			t.Fatalf("%x without its last byte is cut at %d", x, n)
		}
		if _, err := k.key.Decode(append(bytes.Clone(x), 7)); !errors.Is(err, txn.ErrCorrupt) {
			t.Fatalf("%x with a byte behind it decodes: %v", x, err)
		}
		if _, err := k.key.Decode(x[:len(x)-1]); !errors.Is(err, txn.ErrCorrupt) {
			t.Fatalf("%x without its last byte decodes: %v", x, err)
		}
	}
	again := bytes.Clone(x)
	v, err := k.key.Decode(again)
	if err != nil || k.compare(v, a) != 0 || !bytes.Equal(again, x) {
		t.Fatalf("%v decodes as %v, %v", a, v, err)
	}
	clear(again)
	if k.compare(v, a) != 0 {
		t.Fatalf("%v is in the memory that it was decoded from", v)
	}
	byName, ok := txn.KeyNamed(k.key.Name)
	if !ok || byName.Name != k.key.Name || byName.Ordered != k.key.Ordered {
		t.Fatalf("%q: %v", k.key.Name, byName)
	}
	if _, err := byName.Decode(x); err != nil {
		t.Fatalf("by name: %v", err)
	}
}

// TestKeyEncodings pins what is on disk.
func TestKeyEncodings(t *testing.T) {
	utc := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	for _, c := range []struct {
		got  []byte
		want string
	}{
		{txn.Uint64.Append(nil, 258), "\x00\x00\x00\x00\x00\x00\x01\x02"},
		{txn.Int64.Append(nil, -1), "\x7f\xff\xff\xff\xff\xff\xff\xff"},
		{txn.Float64.Append(nil, 1), "\xbf\xf0\x00\x00\x00\x00\x00\x00"},
		{txn.Float64.Append(nil, -1), "\x40\x0f\xff\xff\xff\xff\xff\xff"},
		{txn.Float64.Append(nil, math.NaN()), "\x00\x00\x00\x00\x00\x00\x00\x00"},
		{txn.Float64.Append(nil, math.Copysign(0, -1)), "\x80\x00\x00\x00\x00\x00\x00\x00"},
		{txn.String.Append(nil, "a\x00"), "a\x00"},
		{txn.BytesKey.Append(nil, []byte{0, 1}), "\x00\x01"},
		{txn.Time.Append(nil, time.Unix(1, 2)), "\x80\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x02"},
		{txn.Time.Append(nil, utc.In(time.FixedZone("", 3600))), string(txn.Time.Append(nil, utc))},
		{txn.Desc(txn.String).Append(nil, "a\x00"), "\x9e\xff\x00\xff\xfe"},
		{
			txn.Tuple2Key(txn.String, txn.Uint64).Append(nil, txn.T2("\x00b", uint64(1))),
			"\x00\xffb\x00\x01\x00\x00\x00\x00\x00\x00\x00\x01",
		},
	} {
		if string(c.got) != c.want {
			t.Errorf("%x, want %x", c.got, c.want)
		}
	}
	if v, err := txn.Float64.Decode(make([]byte, 8)); err != nil || !math.IsNaN(v) {
		t.Errorf("NaN is %v, %v", v, err)
	}
	if v, err := txn.Time.Decode(txn.Time.Append(nil, utc.In(time.FixedZone("", 3600)))); err != nil || !v.Equal(utc) ||
		v.Location() != time.UTC {
		t.Errorf("the time is %v, %v", v, err)
	}
	for _, p := range []string{
		"\x7f\xff\xff\xff\xff\xff\xff\xff", // -0
		"\x00\x00\x00\x00\x00\x00\x00\x01", // another NaN
		"\xff\xff\xff\xff\xff\xff\xff\xff", // another one
	} {
		if v, err := txn.Float64.Decode([]byte(p)); !errors.Is(err, txn.ErrCorrupt) {
			t.Errorf("%x decodes as %v, %v", p, v, err)
		}
	}
	if _, err := txn.Time.Decode([]byte("\x80\x00\x00\x00\x00\x00\x00\x01\x3b\x9a\xca\x00")); !errors.Is(err,
		txn.ErrCorrupt) {
		t.Errorf("a second of 10^9 ns: %v", err)
	}
}

// TestKeyParts: what a part lacks, the tuple lacks, and a table is refused that cannot work.
func TestKeyParts(t *testing.T) {
	half := txn.Key[string]{Name: "half", Append: txn.String.Append}
	none := txn.Key[string]{Name: "none", Decode: txn.String.Decode}
	nameless := txn.String
	nameless.Name = ""
	if k := txn.Tuple2Key(txn.Uint64, half); k.Decode != nil || k.Append == nil || k.Ordered {
		t.Error("a tuple without Decode of a part decodes, or is ordered")
	}
	if k := txn.Tuple3Key(none, txn.Uint64, txn.Uint64); k.Append != nil {
		t.Error("a tuple without Append of a part encodes")
	}
	if k := txn.Tuple4Key(txn.Uint64, txn.Uint64, txn.Uint64, nameless); k.Name != "" {
		t.Errorf("a tuple of a nameless part is %q", k.Name)
	}
	if k := txn.Desc(txn.KeyAs("", txn.String, strings.ToUpper, strings.ToLower)); k.Name != "" {
		t.Errorf("desc of a nameless key is %q", k.Name)
	}
	if k := txn.KeyAs[int]("x", txn.String, nil, nil); k.Append != nil || k.Decode != nil {
		t.Error("KeyAs without conversions has functions")
	}
	db := mustOpen(t, tiny())
	for _, k := range []txn.Key[txn.Tuple2[string, string]]{
		txn.Tuple2Key(none, txn.String), txn.Tuple2Key(nameless, txn.String),
	} {
		if _, err := txn.CreateTable(db, "t", k, txn.Text()); !errors.Is(err, txn.ErrOptions) {
			t.Errorf("%q: %v", k.Name, err)
		}
	}
	for _, name := range []string{
		"", "uint", "tuple()", "tuple(uint64", "tuple(uint64,,uint64)", "desc()", "x=", "tuple(uint64,own)",
	} {
		if k, ok := txn.KeyNamed(name); ok {
			t.Errorf("%q is a key: %v", name, k.Name)
		}
	}
}

// TestTupleTable: a table under tuples, and how its errors show them.
func TestTupleTable(t *testing.T) {
	db := mustOpen(t, tiny())
	type k = txn.Tuple3[string, time.Time, int64]
	tab := create(t, db, "t", txn.Tuple3Key(txn.String, txn.Desc(txn.Time), txn.Int64), txn.Text())
	key := txn.T3("a\x00b", time.Unix(0, 5).UTC(), int64(-3))
	if err := db.Update(t.Context(), func(tx *txn.Tx) error { return tab.Insert(tx, key, "v") }); err != nil {
		t.Fatal(err)
	}
	if err := db.View(t.Context(), func(tx *txn.Tx) error {
		if v, err := tab.Get(tx, key); v != "v" {
			t.Errorf("%q, %v", v, err)
		}
		_, err := tab.Get(tx, k{A: "other"})
		return err
	}); !errors.Is(err, txn.ErrNotFound) || !strings.HasSuffix(err.Error(), `key ("other", 0001-01-01T00:00:00Z, 0)`) {
		t.Error(err)
	}
	if err := db.Update(t.Context(), func(tx *txn.Tx) error { return tab.Insert(tx, key, "") }); !errors.Is(err,
		txn.ErrExists) || !strings.Contains(err.Error(), `("a\x00b", 1970-01-01T00:00:00.000000005Z, -3)`) {
		t.Error(err)
	}
	quiet(t, db)
}

// FuzzKeyDecode: no bytes make a Key panic, and what decodes encodes as the same bytes.
func FuzzKeyDecode(f *testing.F) {
	f.Add([]byte("\x00\xffb\x00\x01\x00\x00\x00\x00\x00\x00\x00\x01"))
	f.Add([]byte("\x9e\xff\x00\xff\xfe"))
	f.Add(make([]byte, 12))
	f.Fuzz(func(t *testing.T, p []byte) {
		fuzzKey(t, uints.key, p)
		fuzzKey(t, ints.key, p)
		fuzzKey(t, floats.key, p)
		fuzzKey(t, instants.key, p)
		fuzzKey(t, strs.key, p)
		fuzzKey(t, byteses.key, p)
		fuzzKey(t, desc(strs).key, p)
		fuzzKey(t, tuple2(strs, uints).key, p)
		fuzzKey(t, tuple3(byteses, desc(strs), via(uints)).key, p)
		fuzzKey(t, tuple4(instants, floats, tuple2(strs, strs), ints).key, p)
	})
}

func fuzzKey[K any](t *testing.T, k txn.Key[K], p []byte) {
	v, err := k.Decode(p)
	if err == nil && !bytes.Equal(k.Append(nil, v), p) {
		t.Errorf("%s: %x decodes as %v, which is %x", k.Name, p, v, k.Append(nil, v))
	}
	if err != nil && !errors.Is(err, txn.ErrCorrupt) {
		t.Errorf("%s: %v", k.Name, err)
	}
	if k.Cut == nil {
		return
	}
	n := k.Cut(p)
	if n < 0 || n > len(p) {
		t.Fatalf("%s: %x is cut at %d", k.Name, p, n)
	}
	if err == nil && n != len(p) {
		t.Errorf("%s: %x decodes and is cut at %d", k.Name, p, n)
	}
}

// FuzzKeyPair draws pairs of keys from the input, for which TestKeyKinds holds.
func FuzzKeyPair(f *testing.F) {
	f.Fuzz(rapid.MakeFuzz(func(t *rapid.T) {
		k := tuple4(strs, desc(byteses), floats, tuple2(strs, desc(instants)))
		checkPair(t, k, k.gen.Draw(t, "a"), k.gen.Draw(t, "b"))
	}))
}

// FuzzKeyNamed: whatever is in a catalog as the name of a key makes nothing panic.
func FuzzKeyNamed(f *testing.F) {
	for _, name := range []string{
		"uint64", "tuple(desc(string),line=tuple(int64,time))", "desc(desc(", "tuple(,)", "a=b=c",
	} {
		f.Add(name, []byte("\x00\x01\xff\xfe"))
	}
	f.Fuzz(func(t *testing.T, name string, p []byte) {
		k, ok := txn.KeyNamed(name)
		if ok != (k.Decode != nil) {
			t.Fatal(name, ok)
		}
		if !ok {
			return
		}
		if v, err := k.Decode(p); err == nil && reflect.ValueOf(v).Kind() == reflect.Invalid {
			t.Errorf("%q decodes %x as nothing", name, p)
		}
	})
}
