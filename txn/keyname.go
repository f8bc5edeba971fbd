package txn

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// KeyNamed returns the key that has this name, for programs that show keys of tables whose types
// they do not know: Uint64, Int64, Float64, String, BytesKey, Time, tuples and Desc of these, and
// KeyAs of these, whose keys it decodes as what they are stored as. A tuple decodes as []any. ok is
// false for other names. The key has no Append.
func KeyNamed(name string) (k Key[any], ok bool) {
	if _, of, is := strings.Cut(name, "="); is && !strings.ContainsAny(name[:strings.IndexByte(name, '=')], "(,") {
		k, ok = KeyNamed(of)
		k.Name = name
		return k, ok
	}
	if of, is := enclosed(name, "desc"); is {
		k, ok = KeyNamed(of)
		if ok {
			k = Desc(k)
		}
		k.Name = name
		return k, ok
	}
	if of, is := enclosed(name, "tuple"); is {
		return tupleNamed(name, splitNames(of))
	}
	switch name {
	case Uint64.Name:
		return anyKey(Uint64), true
	case Int64.Name:
		return anyKey(Int64), true
	case Float64.Name:
		return anyKey(Float64), true
	case String.Name:
		return anyKey(String), true
	case BytesKey.Name:
		return anyKey(BytesKey), true
	case Time.Name:
		return anyKey(Time), true
	}
	return Key[any]{}, false
}

// anyKey is k, decoding only.
func anyKey[K any](k Key[K]) Key[any] {
	decode := func(src []byte) (any, error) { return k.Decode(src) }
	return Key[any]{Name: k.Name, Decode: decode, Ordered: k.Ordered, Cut: k.Cut}
}

func tupleNamed(name string, names []string) (Key[any], bool) {
	parts := make([]Key[any], len(names))
	shapes := make([]partShape, len(names))
	for i, n := range names {
		p, ok := KeyNamed(n)
		if !ok {
			return Key[any]{}, false
		}
		parts[i] = part(p)
		shapes[i] = shape(parts[i])
	}
	k := tuple[any](shapes...)
	k.Name = name
	k.Decode = func(src []byte) (any, error) {
		d := cutter{src: src, name: name}
		t := make([]any, len(parts))
		for i, p := range parts {
			t[i] = next(&d, p)
		}
		return t, d.end()
	}
	return k, true
}

// enclosed returns what stands in the parentheses of "of(...)".
func enclosed(name, of string) (string, bool) {
	rest, ok := strings.CutPrefix(name, of+"(")
	if !ok {
		return "", false
	}
	return strings.CutSuffix(rest, ")")
}

// splitNames splits at the commas that are in no parentheses.
func splitNames(s string) []string {
	var names []string
	depth, from := 0, 0
	for i := range len(s) {
		switch s[i] {
		case '(':
			depth++
		case ')':
			depth--
		case ',':
			if depth == 0 {
				names = append(names, s[from:i])
				from = i + 1
			}
		}
	}
	return append(names, s[from:])
}

// ParseKey encodes a key from text, given the name of its Key, for programs that ask people for
// keys. The text is what errors show of numbers, a time as RFC 3339 has it, a string as it is, and
// a tuple as a JSON array of such texts and numbers. After 0x it is the encoding of any key, in
// hexadecimal. A string can also be written in JSON, as txnode dump prints it: one that begins with
// 0x, or that is a string of JSON itself, must be.
func ParseKey(name, text string) ([]byte, error) {
	if h, ok := strings.CutPrefix(text, "0x"); ok {
		p, err := hex.DecodeString(h)
		if err != nil {
			return nil, fmt.Errorf("%w: key %.64q: behind 0x there must be bytes in hexadecimal", ErrOptions, text)
		}
		return p, nil
	}
	if s, ok := quoted(text); ok && isText(name) {
		text = s
	}
	p, err := parseKey(name, text)
	if err != nil {
		return nil, fmt.Errorf("%w: %.64q is no key of type %s: %w", ErrOptions, text, name, err)
	}
	return p, nil
}

// quoted is the string that a text is in JSON; ok: it is one.
func quoted(text string) (s string, ok bool) {
	ok = strings.HasPrefix(text, `"`) && json.Unmarshal([]byte(text), &s) == nil
	return s, ok
}

// isText reports whether the keys of a Key are strings.
func isText(name string) bool {
	if own, of, is := strings.Cut(name, "="); is && !strings.ContainsAny(own, "(,") {
		return isText(of)
	}
	if of, is := enclosed(name, "desc"); is {
		return isText(of)
	}
	return name == String.Name
}

var (
	errNoParts  = errors.New("an array in JSON is needed, with as many texts or numbers as it has parts")
	errNoSyntax = errors.New("give the bytes of the key in hexadecimal, behind 0x")
)

func parseKey(name, text string) ([]byte, error) {
	if own, of, is := strings.Cut(name, "="); is && !strings.ContainsAny(own, "(,") {
		return parseKey(of, text)
	}
	if of, is := enclosed(name, "desc"); is {
		k, ok := KeyNamed(of)
		p, err := parseKey(of, text)
		if err != nil || !ok {
			return nil, err
		}
		p = encodePart(k, p)
		flip(p)
		return p, nil
	}
	if of, is := enclosed(name, "tuple"); is {
		return parseTuple(splitNames(of), text)
	}
	switch name {
	case Uint64.Name:
		n, err := strconv.ParseUint(text, 10, 64)
		return Uint64.Append(nil, n), err
	case Int64.Name:
		n, err := strconv.ParseInt(text, 10, 64)
		return Int64.Append(nil, n), err
	case Float64.Name:
		x, err := strconv.ParseFloat(text, 64)
		return Float64.Append(nil, x), err
	case Time.Name:
		at, err := time.Parse(time.RFC3339Nano, text)
		return Time.Append(nil, at), err
	case String.Name:
		return []byte(text), nil
	}
	return nil, errNoSyntax
}

func parseTuple(names []string, text string) ([]byte, error) {
	var parts []json.RawMessage
	if err := json.Unmarshal([]byte(text), &parts); err != nil || len(parts) != len(names) {
		return nil, errNoParts
	}
	var out []byte
	for i, raw := range parts {
		s := string(raw)
		if s[0] == '"' {
			if err := json.Unmarshal(raw, &s); err != nil {
				return nil, errNoParts
			}
		}
		k, ok := KeyNamed(names[i])
		if !ok {
			return nil, errNoSyntax
		}
		p, err := parseKey(names[i], s)
		if err != nil {
			return nil, err
		}
		out = append(out, encodePart(k, p)...)
	}
	return out, nil
}

// encodePart is the encoding of a key as a part of a tuple.
func encodePart(k Key[any], p []byte) []byte {
	if k.Cut == nil {
		return escape(p, 0)
	}
	return p
}
