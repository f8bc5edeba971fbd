package txn

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"unsafe"
)

// Codec encodes values of type V. Methods of the table return its errors and panics, name the key,
// and leave the transaction as it was. A codec must not use the transaction itself.
type Codec[V any] struct {
	// Name is stored with the table and compared when the table is opened. It is not empty. Nothing
	// else is kept of V: two types whose codecs have one name are not told apart.
	Name string
	// Append appends the encoding of v to dst.
	Append func(dst []byte, v V) ([]byte, error)
	// Decode decodes src, which is engine memory. It copies what V keeps of src, unless V is used
	// only inside the transaction.
	Decode func(src []byte) (V, error)
}

// Bytes stores byte slices as they are. The slice that Get returns aliases engine memory and is
// valid until the transaction function returns. A function that changes it in place must put it:
// later calls of Get in the transaction may return the changed bytes.
func Bytes() Codec[[]byte] {
	return Codec[[]byte]{
		Name:   "bytes",
		Append: func(dst []byte, v []byte) ([]byte, error) { return append(dst, v...), nil },
		Decode: func(src []byte) ([]byte, error) { return src, nil },
	}
}

// Text stores strings.
func Text() Codec[string] {
	return Codec[string]{
		Name:   "string",
		Append: func(dst []byte, v string) ([]byte, error) { return append(dst, v...), nil },
		Decode: func(src []byte) (string, error) { return string(src), nil },
	}
}

// JSON stores values as encoding/json does. Its name is "json" for every V, so a type may change. A
// value that does not fit V is an error of Get.
func JSON[V any]() Codec[V] {
	return Codec[V]{
		Name: "json",
		Append: func(dst []byte, v V) ([]byte, error) {
			p, err := json.Marshal(v)
			return append(dst, p...), err
		},
		Decode: func(src []byte) (v V, err error) {
			err = json.Unmarshal(src, &v)
			return v, err
		},
	}
}

// Binary stores values that marshal themselves. Its name is "binary" for every V.
func Binary[V any, P interface {
	*V
	encoding.BinaryMarshaler
	encoding.BinaryUnmarshaler
}]() Codec[V] {
	return Codec[V]{
		Name: "binary",
		Append: func(dst []byte, v V) ([]byte, error) {
			p, err := P(&v).MarshalBinary()
			return append(dst, p...), err
		},
		Decode: func(src []byte) (v V, err error) {
			err = P(&v).UnmarshalBinary(src)
			return v, err
		},
	}
}

// Plain stores a struct of fixed size as it lies in memory, little-endian, without allocating:
// numbers, booleans, arrays and structs of these. Plain panics at once if V holds anything else
// (pointers, strings, slices, int, uint, uintptr) or padding, whose bytes would be undefined. The
// message names the field.
//
// The name of the codec has the size of V, and name, if one is given. Give each struct a name, and
// another one when its fields change: a table of another struct of the same size then does not
// open. Without a name such a change is not noticed.
func Plain[V any](name ...string) Codec[V] {
	t := reflect.TypeFor[V]()
	if used, err := plainSize(t, t.String()); err != nil {
		panic("txn.Plain: " + err.Error())
	} else if used != t.Size() {
		panic(fmt.Sprintf("txn.Plain: %v has %d bytes of padding: reorder its fields or add blank ones",
			t, t.Size()-used))
	}
	if !littleEndian {
		panic("txn.Plain: this processor is big-endian; use another codec")
	}
	size := int(t.Size())
	full := fmt.Sprintf("plain:%d", size)
	if len(name) > 1 || len(name) == 1 && name[0] == "" {
		panic(fmt.Sprintf("txn.Plain: the names of %v are %q: one is possible, of one letter or more", t, name))
	} else if len(name) == 1 {
		full += ":" + name[0]
	}
	return Codec[V]{
		Name: full,
		Append: func(dst []byte, v V) ([]byte, error) {
			return append(dst, unsafe.Slice((*byte)(unsafe.Pointer(&v)), size)...), nil
		},
		Decode: func(src []byte) (v V, err error) {
			if len(src) != size {
				return v, fmt.Errorf("txn: value of %d bytes where %v takes %d: %w", len(src), t, size, ErrCorrupt)
			}
			copy(unsafe.Slice((*byte)(unsafe.Pointer(&v)), size), src)
			return v, nil
		},
	}
}

var littleEndian = func() bool {
	x := uint16(1)
	return *(*byte)(unsafe.Pointer(&x)) == 1
}()

// plainSize returns the bytes of t without padding, or which part has no fixed form.
func plainSize(t reflect.Type, path string) (uintptr, error) {
	switch t.Kind() {
	case reflect.Bool, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint8, reflect.Uint16,
		reflect.Uint32, reflect.Uint64, reflect.Float32, reflect.Float64, reflect.Complex64, reflect.Complex128:
		return t.Size(), nil
	case reflect.Array:
		n, err := plainSize(t.Elem(), path+"[]")
		return n * uintptr(t.Len()), err
	case reflect.Struct:
		var sum uintptr
		for i := range t.NumField() {
			f := t.Field(i)
			n, err := plainSize(f.Type, path+"."+f.Name)
			if err != nil {
				return 0, err
			}
			sum += n
		}
		return sum, nil
	}
	return 0, fmt.Errorf("%s is a %v, which has no fixed form", path, t)
}
