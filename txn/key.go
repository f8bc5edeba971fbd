package txn

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"
)

// Key encodes keys of type K and decodes them again. Take one of this package, combine several with
// [Tuple2Key], [Desc] and [KeyAs], or make one. A table belongs to the name of its key: if the
// encoding changes, change the name.
type Key[K any] struct {
	// Name is stored with the table and compared when it is opened; not empty.
	Name string
	// Append appends the encoding of k to dst. No two keys have one encoding. A table takes keys of
	// 1 byte to 1 KiB.
	Append func(dst []byte, k K) []byte
	// Decode returns the key that Append has encoded as src, all of it, or an error if there is
	// none. It copies what K keeps of src. Without Decode a table has everything but iteration,
	// which ends with ErrNoDecode.
	Decode func(src []byte) (K, error)
	// Ordered says that encodings, compared byte by byte, are in the order of their keys.
	Ordered bool
	// Cut returns the length of the encoding that src begins with, and 0 if src begins with none.
	// It is for keys of which no encoding is the beginning of another one, such as those of one
	// length. Other keys have none: a tuple then marks the end of the encoding itself.
	Cut func(src []byte) int
	// Parts, of a tuple, returns the length of the first n parts of the encoding src, and 0 if it
	// has none, or not so many. It is for OrderedTable.Prefix. Other keys have none.
	Parts func(src []byte, n int) int
	// MaxBytes is the length of the longest encoding that an ordered table takes which is created
	// with the Key, from 1 to 1024; 0: DefaultMaxKey. Nodes of its index have room for four such
	// keys: they have 1 KiB for keys of up to 200 bytes or so.
	MaxBytes int
}

// Keys of single values. Their encodings are in the order of their values.
var (
	// Uint64 is 8 bytes, big-endian.
	Uint64 = Key[uint64]{
		Name:    "uint64",
		Append:  func(dst []byte, k uint64) []byte { return binary.BigEndian.AppendUint64(dst, k) },
		Decode:  func(src []byte) (uint64, error) { return decodeWord("uint64", src) },
		Ordered: true, Cut: cutAt(8),
	}
	// Int64 is 8 bytes, big-endian, with the sign bit flipped.
	Int64 = Key[int64]{
		Name:   "int64",
		Append: func(dst []byte, k int64) []byte { return binary.BigEndian.AppendUint64(dst, uint64(k)^signBit) },
		Decode: func(src []byte) (int64, error) {
			w, err := decodeWord("int64", src)
			return int64(w ^ signBit), err
		},
		Ordered: true, Cut: cutAt(8),
	}
	// Float64 is 8 bytes, in the order of cmp.Compare: NaN comes before all numbers. Values that
	// cmp.Compare calls equal are one key. So -0 decodes as 0, and every NaN as the same NaN.
	Float64 = Key[float64]{
		Name:    "float64",
		Append:  appendFloat,
		Decode:  decodeFloat,
		Ordered: true, Cut: cutAt(8),
	}
	// String is the bytes of the string, in the order of Go's strings.
	String = Key[string]{
		Name:    "string",
		Append:  func(dst []byte, k string) []byte { return append(dst, k...) },
		Decode:  func(src []byte) (string, error) { return string(src), nil },
		Ordered: true,
	}
	// BytesKey is the bytes themselves, in the order of bytes.Compare.
	BytesKey = Key[[]byte]{
		Name:    "bytes",
		Append:  func(dst []byte, k []byte) []byte { return append(dst, k...) },
		Decode:  func(src []byte) ([]byte, error) { return append([]byte{}, src...), nil },
		Ordered: true,
	}
	// Time is an instant, as 12 bytes: the seconds since 1970 and the nanoseconds. Instants that
	// time.Time.Equal calls equal are one key. It decodes in UTC, without the location and the
	// monotonic clock of what was encoded.
	Time = Key[time.Time]{
		Name:    "time",
		Append:  appendTime,
		Decode:  decodeTime,
		Ordered: true, Cut: cutAt(timeBytes),
	}
)

const (
	signBit   = 1 << 63
	timeBytes = 12
)

// badKey is the error of bytes that are no key.
func badKey(name string, src []byte) error {
	return fmt.Errorf("%w: %d bytes %.32x are no key of type %s", ErrCorrupt, len(src), src, name)
}

// cutAt is the Cut of encodings of n bytes.
func cutAt(n int) func([]byte) int {
	return func(src []byte) int {
		if len(src) < n {
			return 0
		}
		return n
	}
}

func decodeWord(name string, src []byte) (uint64, error) {
	if len(src) != 8 {
		return 0, badKey(name, src)
	}
	return binary.BigEndian.Uint64(src), nil
}

// appendFloat flips all bits of negative numbers, and the sign bit of the others. NaN is zero,
// which is below the encoding of -Inf.
func appendFloat(dst []byte, k float64) []byte {
	var w uint64
	switch {
	case k != k:
	case k == 0:
		w = signBit
	default:
		w = math.Float64bits(k)
		w ^= uint64(int64(w)>>63) | signBit
	}
	return binary.BigEndian.AppendUint64(dst, w)
}

func decodeFloat(src []byte) (float64, error) {
	w, err := decodeWord("float64", src)
	if err != nil {
		return 0, err
	}
	if w == 0 {
		return math.NaN(), nil
	}
	bits := ^w
	if w&signBit != 0 {
		bits = w &^ signBit
	}
	k := math.Float64frombits(bits)
	if k != k || k == 0 && w != signBit {
		return 0, badKey("float64", src)
	}
	return k, nil
}

func appendTime(dst []byte, k time.Time) []byte {
	dst = binary.BigEndian.AppendUint64(dst, uint64(k.Unix())^signBit)
	return binary.BigEndian.AppendUint32(dst, uint32(k.Nanosecond()))
}

func decodeTime(src []byte) (time.Time, error) {
	if len(src) != timeBytes || binary.BigEndian.Uint32(src[8:]) >= 1e9 {
		return time.Time{}, badKey("time", src)
	}
	return time.Unix(int64(binary.BigEndian.Uint64(src)^signBit), int64(binary.BigEndian.Uint32(src[8:]))).UTC(), nil
}

// KeyAs stores keys of type K as those of another key: to converts, and from converts back. Both
// keep different keys different. name tells K from other types that are stored so. The key is as
// ordered as the other one is, if the two conversions keep the order.
//
//	type Line struct{ Order, Number uint64 }
//	lines := txn.KeyAs("line", txn.Tuple2Key(txn.Uint64, txn.Uint64),
//		func(l Line) txn.Tuple2[uint64, uint64] { return txn.T2(l.Order, l.Number) },
//		func(t txn.Tuple2[uint64, uint64]) Line { return Line{t.A, t.B} })
func KeyAs[K, A any](name string, key Key[A], to func(K) A, from func(A) K) Key[K] {
	k := Key[K]{Ordered: key.Ordered, Cut: key.Cut, Parts: key.Parts}
	if name != "" && key.Name != "" {
		k.Name = name + "=" + key.Name
	}
	if key.Append != nil && to != nil {
		k.Append = func(dst []byte, v K) []byte { return key.Append(dst, to(v)) }
	}
	if key.Decode != nil && from != nil {
		k.Decode = func(src []byte) (v K, err error) {
			a, err := key.Decode(src)
			if err != nil {
				return v, err
			}
			return from(a), nil
		}
	}
	return k
}
