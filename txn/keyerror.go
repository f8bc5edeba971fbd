package txn

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"txnode/occ"
)

// KeyError is an ErrNotFound, ErrExists or ErrReadOnly with the table and the key that were asked
// for.
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

// Error names the table and the key: as the table's Key decodes it, if that is a key of this
// package, and else in hexadecimal, which txnode inspect record takes.
func (e *KeyError) Error() string {
	return fmt.Sprintf("%v: table %q, key %s", e.Err, e.Table, showKey(e.name, e.Key))
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

// showKey is a key for people, given the name of its Key.
func showKey(name string, p []byte) string {
	if k, ok := KeyNamed(name); ok {
		if v, err := k.Decode(p); err == nil {
			if s, ok := showPart(v); ok {
				return s
			}
		}
	}
	return fmt.Sprintf("0x%x", p)
}

// showPart shows what a Key of KeyNamed has decoded, unless that is text which is no UTF-8.
func showPart(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return fmt.Sprintf("%.64q", v), utf8.ValidString(v)
	case []byte:
		return fmt.Sprintf("0x%x", v), true
	case time.Time:
		return v.Format(time.RFC3339Nano), true
	case []any:
		parts := make([]string, len(v))
		for i, p := range v {
			s, ok := showPart(p)
			if !ok {
				return "", false
			}
			parts[i] = s
		}
		return "(" + strings.Join(parts, ", ") + ")", true
	}
	return fmt.Sprint(v), true
}
