package channel

import (
	"fmt"
	"reflect"
	"unsafe"

	"golang.org/x/sys/cpu"
)

// Word is a type of one 8-byte word.
type Word interface{ ~int64 | ~uint64 }

// Codec turns values of a fixed size into bytes and back. Its functions must not allocate if the
// object's methods are not to.
type Codec[T any] struct {
	// Name is compared when an object is opened. Give another one to another layout.
	Name string
	// Size of an encoded value in bytes, from 1 to 1 MiB.
	Size int
	// Put encodes v into the Size bytes of dst.
	Put func(dst []byte, v T)
	// Get decodes the Size bytes of src, and keeps nothing of src.
	Get func(src []byte) T
}

func (c *Codec[T]) check() error {
	if c.Name == "" || c.Size < 1 || c.Size > 1<<20 || c.Put == nil || c.Get == nil {
		return fmt.Errorf("%w: a codec needs a name, Put, Get, and a size from 1 to 1 MiB: %q has size %d",
			ErrTooLarge, c.Name, c.Size)
	}
	return nil
}

// Plain is the codec of a number, a boolean, or an array or struct of these without padding, as it
// lies in memory. The name is compared when an object is opened: change it when the fields change.
// Plain panics at once if T holds anything else: the message names the field.
func Plain[T any](name string) Codec[T] {
	t := reflect.TypeFor[T]()
	if used, err := plainSize(t, t.String()); err != nil {
		panic("channel.Plain: " + err.Error())
	} else if used != t.Size() {
		panic(fmt.Sprintf("channel.Plain: %v has %d bytes of padding: reorder its fields or add blank ones",
			t, t.Size()-used))
	}
	if cpu.IsBigEndian {
		panic("channel.Plain: this processor is big-endian; use another codec")
	}
	size := int(t.Size())
	return Codec[T]{
		Name: name,
		Size: size,
		Put:  func(dst []byte, v T) { copy(dst, unsafe.Slice((*byte)(unsafe.Pointer(&v)), size)) },
		Get: func(src []byte) (v T) {
			copy(unsafe.Slice((*byte)(unsafe.Pointer(&v)), size), src)
			return v
		},
	}
}

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
			n, err := plainSize(t.Field(i).Type, path+"."+t.Field(i).Name)
			if err != nil {
				return 0, err
			}
			sum += n
		}
		return sum, nil
	}
	return 0, fmt.Errorf("%s is a %v, which has no fixed form", path, t)
}
