package command

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"txnode/txn"
)

// rowLine is a record as JSON.
type rowLine struct {
	Table       string          `json:"table"`
	Key         any             `json:"key,omitempty"`
	KeyBase64   []byte          `json:"key_base64,omitempty"`
	Value       json.RawMessage `json:"value,omitempty"`
	ValueBase64 *[]byte         `json:"value_base64,omitempty"`
}

func rowOf(i txn.TableInfo, key, value []byte) rowLine {
	r := rowLine{Table: i.Name}
	if k, ok := txn.KeyNamed(i.Key); ok && i.Key != txn.BytesKey.Name {
		if v, err := k.Decode(key); err == nil {
			r.Key, _ = keyJSON(v)
		}
	}
	if r.Key == nil {
		r.KeyBase64 = key
	}
	switch {
	case i.Value == "json" && json.Valid(value):
		r.Value = value
	case i.Value == "string" && utf8.Valid(value):
		r.Value, _ = json.Marshal(string(value)) // a string has JSON
	default:
		r.ValueBase64 = &value
	}
	return r
}

// keyJSON is what a key is written as in JSON; ok is false for text that is no UTF-8.
func keyJSON(v any) (out any, ok bool) {
	switch v := v.(type) {
	case string:
		if !utf8.ValidString(v) {
			return nil, false
		}
	case time.Time:
		return v.Format(time.RFC3339Nano), true
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return fmt.Sprint(v), true
		}
	case []any:
		parts := make([]any, len(v))
		for i, p := range v {
			if parts[i], ok = keyJSON(p); !ok {
				return nil, false
			}
		}
		return parts, true
	}
	return v, true
}

// line writes a value as a line of JSON.
func line(out io.Writer, v any) error {
	e := json.NewEncoder(out)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// shown is a text as it is, if it takes one line and shows, or else quoted.
func shown(s string) string {
	if s == "" || !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return fmt.Sprintf("%q", s)
	}
	return s
}

// shownKey is a key for people, given the name of its Key.
func shownKey(name string, p []byte) string {
	if k, ok := txn.KeyNamed(name); ok && name != txn.BytesKey.Name {
		if v, err := k.Decode(p); err == nil {
			switch v, ok := keyJSON(v); s := v.(type) {
			case string:
				return shown(s)
			default:
				if q, err := json.Marshal(v); ok && err == nil {
					return string(q)
				}
			}
		}
	}
	return shownBytes(p)
}

func shownValue(codec string, p []byte) string {
	switch codec {
	case "string":
		return shown(string(p))
	case "json":
		var b bytes.Buffer
		if json.Compact(&b, p) == nil {
			return b.String()
		}
	}
	return shownBytes(p)
}

// shownBytes are bytes in hexadecimal, the first ones if there are many.
func shownBytes(p []byte) string {
	const most = 64
	if len(p) > most {
		return fmt.Sprintf("0x%x... (%d bytes)", p[:most], len(p))
	}
	return fmt.Sprintf("0x%x", p)
}
