package txn

import (
	"encoding/binary"
	"fmt"
	"unicode/utf8"

	"txnode/occ"
)

// KeyError is an ErrNotFound, ErrExists or ErrReadOnly with the table and the key that were asked for.
type KeyError struct {
	Table string
	Key   []byte // as the table's Key has encoded it; the error's own
	Err   error  // ErrNotFound, ErrExists or ErrReadOnly

	name string // of the Key, if it is known
	own  [24]byte
}

func keyError(err error, t *occ.Table, key []byte) error {
	e := &KeyError{Table: t.Name, Err: err}
	e.Key = append(e.own[:0], key...)
	return e
}

// Error names the table and the key: integers and text as such, other keys in hexadecimal, which
// txnode inspect record takes.
func (e *KeyError) Error() string {
	key := fmt.Sprintf("0x%x", e.Key)
	switch {
	case e.name == Uint64.Name && len(e.Key) == 8:
		key = fmt.Sprint(binary.BigEndian.Uint64(e.Key))
	case e.name == Int64.Name && len(e.Key) == 8:
		key = fmt.Sprint(int64(binary.BigEndian.Uint64(e.Key) ^ 1<<63))
	case e.name == String.Name && utf8.Valid(e.Key):
		key = fmt.Sprintf("%.64q", e.Key)
	}
	return fmt.Sprintf("%v: table %q, key %s", e.Err, e.Table, key)
}

// Unwrap returns Err.
func (e *KeyError) Unwrap() error { return e.Err }

// named is err with the name of the table's Key, which says how a key is shown.
func named(err error, name string) error {
	if e, ok := err.(*KeyError); ok { //nolint:errorlint // it comes unwrapped, and errors.As would allocate for nil
		e.name = name
	}
	return err
}
