package txn

import "strings"

// KeyNamed returns the key that has this name, for programs that show keys of tables whose types they
// do not know: Uint64, Int64, Float64, String, BytesKey, Time, tuples and Desc of these, and KeyAs of
// these, whose keys it decodes as what they are stored as. A tuple decodes as []any. ok is false for
// other names. The key has no Append.
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
