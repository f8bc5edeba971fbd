package txn

import (
	"bytes"
	"fmt"
	"strings"
)

// Tuple2 is a key of two parts, the first of which comes first in order too.
type Tuple2[A, B any] struct {
	A A
	B B
}

// Tuple3 is a key of three parts.
type Tuple3[A, B, C any] struct {
	A A
	B B
	C C
}

// Tuple4 is a key of four parts.
type Tuple4[A, B, C, D any] struct {
	A A
	B B
	C C
	D D
}

// T2 makes a Tuple2.
func T2[A, B any](a A, b B) Tuple2[A, B] { return Tuple2[A, B]{a, b} }

// T3 makes a Tuple3.
func T3[A, B, C any](a A, b B, c C) Tuple3[A, B, C] { return Tuple3[A, B, C]{a, b, c} }

// T4 makes a Tuple4.
func T4[A, B, C, D any](a A, b B, c C, d D) Tuple4[A, B, C, D] { return Tuple4[A, B, C, D]{a, b, c, d} }

// Tuple2Key makes the key of tuples of two parts. The encoding is that of the parts, one after the
// other. A part that has no Cut, such as a string, is written with every byte 00 as 00 FF, and 00
// 01 at its end. So no encoding of a tuple is the beginning of another one, and the order is that
// of the first parts that differ, if all parts are ordered. A part may be of [Desc], or a tuple.
func Tuple2Key[A, B any](a Key[A], b Key[B]) Key[Tuple2[A, B]] {
	pa, pb := part(a), part(b)
	k := tuple[Tuple2[A, B]](shape(pa), shape(pb))
	if pa.Append != nil && pb.Append != nil {
		k.Append = func(dst []byte, t Tuple2[A, B]) []byte { return pb.Append(pa.Append(dst, t.A), t.B) }
	}
	if pa.Decode != nil && pb.Decode != nil {
		k.Decode = func(src []byte) (t Tuple2[A, B], err error) {
			d := cutter{src: src, name: k.Name}
			t.A, t.B = next(&d, pa), next(&d, pb)
			return t, d.end()
		}
	}
	return k
}

// Tuple3Key makes the key of tuples of three parts: see [Tuple2Key].
func Tuple3Key[A, B, C any](a Key[A], b Key[B], c Key[C]) Key[Tuple3[A, B, C]] {
	pa, pb, pc := part(a), part(b), part(c)
	k := tuple[Tuple3[A, B, C]](shape(pa), shape(pb), shape(pc))
	if pa.Append != nil && pb.Append != nil && pc.Append != nil {
		k.Append = func(dst []byte, t Tuple3[A, B, C]) []byte {
			return pc.Append(pb.Append(pa.Append(dst, t.A), t.B), t.C)
		}
	}
	if pa.Decode != nil && pb.Decode != nil && pc.Decode != nil {
		k.Decode = func(src []byte) (t Tuple3[A, B, C], err error) {
			d := cutter{src: src, name: k.Name}
			t.A, t.B, t.C = next(&d, pa), next(&d, pb), next(&d, pc)
			return t, d.end()
		}
	}
	return k
}

// Tuple4Key makes the key of tuples of four parts: see [Tuple2Key].
func Tuple4Key[A, B, C, D any](a Key[A], b Key[B], c Key[C], d Key[D]) Key[Tuple4[A, B, C, D]] {
	pa, pb, pc, pd := part(a), part(b), part(c), part(d)
	k := tuple[Tuple4[A, B, C, D]](shape(pa), shape(pb), shape(pc), shape(pd))
	if pa.Append != nil && pb.Append != nil && pc.Append != nil && pd.Append != nil {
		k.Append = func(dst []byte, t Tuple4[A, B, C, D]) []byte {
			return pd.Append(pc.Append(pb.Append(pa.Append(dst, t.A), t.B), t.C), t.D)
		}
	}
	if pa.Decode != nil && pb.Decode != nil && pc.Decode != nil && pd.Decode != nil {
		k.Decode = func(src []byte) (t Tuple4[A, B, C, D], err error) {
			d := cutter{src: src, name: k.Name}
			t.A, t.B, t.C, t.D = next(&d, pa), next(&d, pb), next(&d, pc), next(&d, pd)
			return t, d.end()
		}
	}
	return k
}

// Desc makes the key whose order is the reverse of the order of k, for parts of a tuple or alone:
// all bits are flipped. Its type is that of k.
func Desc[K any](k Key[K]) Key[K] {
	p := part(k)
	d := Key[K]{Ordered: k.Ordered}
	if k.Name != "" {
		d.Name = "desc(" + k.Name + ")"
	}
	if p.Append != nil {
		d.Append = func(dst []byte, v K) []byte {
			n := len(dst)
			dst = p.Append(dst, v)
			flip(dst[n:])
			return dst
		}
	}
	if p.Decode != nil {
		d.Decode = func(src []byte) (K, error) { return p.Decode(flipped(src)) }
	}
	d.Cut = func(src []byte) int { return p.Cut(flipped(src)) }
	return d
}

func flip(p []byte) {
	for i := range p {
		p[i] = ^p[i]
	}
}

func flipped(p []byte) []byte {
	p = bytes.Clone(p)
	flip(p)
	return p
}

// part is the key k in a form that has Cut.
func part[K any](k Key[K]) Key[K] {
	if k.Cut != nil {
		return k
	}
	p := Key[K]{Name: k.Name, Ordered: k.Ordered, Cut: cutEscaped}
	if k.Append != nil {
		p.Append = func(dst []byte, v K) []byte {
			n := len(dst)
			return escape(k.Append(dst, v), n)
		}
	}
	if k.Decode != nil {
		p.Decode = func(src []byte) (v K, err error) {
			src, ok := unescape(src)
			if !ok {
				return v, badKey(k.Name, src)
			}
			return k.Decode(src)
		}
	}
	return p
}

// escape makes of dst[n:] an escaped part: with 00 FF for each 00, and 00 01 at the end. 00 01 is
// less than whatever may follow the same bytes in another part, 00 FF included.
func escape(dst []byte, n int) []byte {
	zeroes := bytes.Count(dst[n:], []byte{0})
	from := len(dst)
	for range zeroes {
		dst = append(dst, 0)
	}
	for to := len(dst); to > from; {
		from--
		to--
		if dst[from] == 0 {
			dst[to] = 0xff
			to--
		}
		dst[to] = dst[from]
	}
	return append(dst, 0, 1)
}

// unescape undoes escape; ok is false, and src as it was, if it is no escaped part.
func unescape(src []byte) (p []byte, ok bool) {
	if len(src) == 0 || cutEscaped(src) != len(src) {
		return src, false
	}
	src = src[:len(src)-2]
	if bytes.IndexByte(src, 0) >= 0 {
		src = bytes.ReplaceAll(src, []byte{0, 0xff}, []byte{0})
	}
	return src, true
}

// cutEscaped is the Cut of escaped parts.
func cutEscaped(src []byte) int {
	for i := 0; i+1 < len(src); i++ {
		if src[i] != 0 {
			continue
		}
		switch src[i+1] {
		case 1:
			return i + 2
		case 0xff:
			i++
		default:
			return 0
		}
	}
	return 0
}

// partShape is what a tuple needs to know of a part, whatever its type.
type partShape struct {
	name    string
	ordered bool
	cut     func([]byte) int
}

func shape[K any](p Key[K]) partShape { return partShape{p.Name, p.Ordered, p.Cut} }

// tuple is the key of a tuple of these parts, without its functions. It has no name if a part has
// none.
func tuple[T any](parts ...partShape) Key[T] {
	k := Key[T]{Ordered: true}
	names := make([]string, len(parts))
	named := true
	for i, p := range parts {
		names[i] = p.name
		named = named && p.name != ""
		k.Ordered = k.Ordered && p.ordered
	}
	if named {
		k.Name = "tuple(" + strings.Join(names, ",") + ")"
	}
	k.Cut = func(src []byte) int { return k.Parts(src, len(parts)) }
	k.Parts = func(src []byte, n int) int {
		if n < 1 || n > len(parts) {
			return 0
		}
		sum := 0
		for _, p := range parts[:n] {
			n := p.cut(src[sum:])
			if n <= 0 || n > len(src)-sum {
				return 0
			}
			sum += n
		}
		return sum
	}
	return k
}

// cutter decodes the parts of a tuple.
type cutter struct {
	src  []byte
	name string
	err  error
}

// next decodes the next part.
func next[K any](d *cutter, p Key[K]) (v K) {
	if d.err != nil {
		return v
	}
	n := p.Cut(d.src)
	if n <= 0 || n > len(d.src) {
		d.err = badKey(d.name, d.src)
		return v
	}
	v, err := p.Decode(d.src[:n])
	if err != nil {
		d.err = fmt.Errorf("txn: part of a key %s: %w", d.name, err)
	}
	d.src = d.src[n:]
	return v
}

func (d *cutter) end() error {
	if d.err == nil && len(d.src) > 0 {
		d.err = badKey(d.name, d.src)
	}
	return d.err
}
