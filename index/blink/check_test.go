package blink_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"txnode/index/blink"
	"txnode/memory/layout"
)

// samples are one good image of each kind, with and without fences, links, prefix and entries.
func samples(t testing.TB) map[string]struct {
	g blink.Geometry
	b []byte
} {
	rows := fit(t, blink.Geometry{MaxKey: 32})
	row := func(key string, i int) blink.Change {
		return blink.Change{Key: []byte(key), Addr: addrOf(i), Class: layout.Class(i)}
	}
	leaf := contents{
		low: "key1", high: "key3", right: addrOf(77),
		entries: []blink.Change{row("key1", 1), row("key1\x00", 2), row("key2", 3)},
	}
	last := leaf
	last.high, last.open, last.right = "", true, 0
	inner := contents{level: 1, low: "key1", high: "key3", right: addrOf(77), entries: []blink.Change{
		{Key: []byte("key1"), Addr: addrOf(1)}, {Key: []byte("key2"), Addr: addrOf(2)},
	}}
	all := map[string]struct {
		g blink.Geometry
		b []byte
	}{
		"empty":      {rows, blink.AppendLeaf(nil)},
		"root":       {rows, blink.AppendRoot(nil, 3, addrOf(1), []byte("m"), addrOf(2))},
		"leaf":       {rows, leaf.encode()},
		"last leaf":  {rows, last.encode()},
		"inner":      {rows, inner.encode()},
		"empty leaf": {rows, contents{low: "key1", high: "key3", right: addrOf(77)}.encode()},
	}
	for _, s := range all {
		decode(t, s.g, s.b)
	}
	return all
}

// use calls every method of a node that Decode has accepted, and returns what Check says.
// Nothing may panic.
func use(t testing.TB, g blink.Geometry, n blink.Node) error {
	t.Helper()
	c := contentsOf(n)
	probes := [][]byte{
		nil, {0}, {0xff}, []byte(c.low), []byte(c.high), append([]byte(c.low), 0), bytes.Repeat([]byte("k"), 1100),
	}
	for i, e := range c.entries {
		if i < 3 || i > len(c.entries)-3 {
			probes = append(probes, e.Key, append(bytes.Clone(e.Key), 0))
		}
	}
	for _, p := range probes {
		_ = n.Cover(p)
		for _, b := range []blink.Bound{{}, blink.Before(p), blink.After(p), blink.End()} {
			_, _ = n.Above(b), n.Below(b)
			if r := n.Rank(b); r < 0 || r > n.Count() {
				t.Fatalf("rank %d of %d", r, n.Count())
			}
			for _, i := range []int{n.ChildAbove(b), n.ChildBelow(b)} {
				if i < -1 || i >= n.Count() {
					t.Fatalf("child %d of %d", i, n.Count())
				}
			}
		}
		if i := n.Child(p); i < -1 || i >= n.Count() {
			t.Fatalf("child %d of %d", i, n.Count())
		}
	}
	err := n.Check(g)
	if err != nil {
		malformed(t, err)
		return err
	}
	if again := c.encode(); !bytes.Equal(again, n.Bytes()) {
		t.Fatalf("Check accepts a second image of the same contents:\n%x\n%x", n.Bytes(), again)
	}
	var b blink.Builder
	if images, err := b.Apply(g, n, nil); err != nil || images != 1 ||
		!bytes.Equal(b.AppendImage(nil, 0, 0), n.Bytes()) {
		t.Fatalf("%d images of no change, %v", images, err)
	}
	return nil
}

func malformed(t testing.TB, err error) {
	t.Helper()
	if !errors.Is(err, blink.ErrMalformed) || len(err.Error()) < len(blink.ErrMalformed.Error())+10 {
		t.Fatalf("%v", err)
	}
}

// TestEveryBit flips each bit of each sample. Either the image is rejected, or it is the image of
// other contents, which the checksum of the record would tell.
func TestEveryBit(t *testing.T) {
	for name, s := range samples(t) {
		t.Run(name, func(t *testing.T) {
			rejected := 0
			for bit := range 8 * len(s.b) {
				b := bytes.Clone(s.b)
				b[bit/8] ^= 1 << (bit % 8)
				n, err := blink.Decode(b)
				if err != nil {
					malformed(t, err)
					rejected++
					continue
				}
				if use(t, s.g, n) != nil {
					rejected++
				}
			}
			// All of the header, but the address in the right link and bits of level and flags,
			// which may make another node of the same contents.
			if least := 8 * (blink.HeaderSize - 6 - 2); rejected < least {
				t.Errorf("%d of %d flips rejected, at least %d should be", rejected, 8*len(s.b), least)
			}
		})
	}
}

// TestEveryByte sets each byte to each value, and each 16-bit number to its extremes.
func TestEveryByte(t *testing.T) {
	step := 1
	if testing.Short() {
		step = 15
	}
	for name, s := range samples(t) {
		t.Run(name, func(t *testing.T) {
			for at := range s.b {
				for v := 0; v < 256; v += step {
					b := bytes.Clone(s.b)
					b[at] = byte(v)
					if n, err := blink.Decode(b); err == nil {
						_ = use(t, s.g, n)
					}
				}
				for _, v := range []uint16{0, 1, 0x7fff, 0x8000, 0xfffe, 0xffff} {
					b := append(bytes.Clone(s.b), 0)
					binary.LittleEndian.PutUint16(b[at:], v)
					if n, err := blink.Decode(b[:len(s.b)]); err == nil {
						_ = use(t, s.g, n)
					}
				}
			}
		})
	}
}

// TestTruncated cuts each sample everywhere, with and without correcting its end, and appends to
// it.
func TestTruncated(t *testing.T) {
	for name, s := range samples(t) {
		t.Run(name, func(t *testing.T) {
			for size := range len(s.b) + 20 {
				b := append(bytes.Clone(s.b), make([]byte, 20)...)[:size:size]
				if _, err := blink.Decode(b); (err == nil) != (size == len(s.b)) {
					t.Fatalf("%d of %d bytes: %v", size, len(s.b), err)
				}
				if size < blink.HeaderSize {
					continue
				}
				binary.LittleEndian.PutUint16(b[10:], uint16(size))
				n, err := blink.Decode(b)
				if err == nil {
					err = use(t, s.g, n)
				}
				if err == nil && size < len(s.b) && name != "leaf" && name != "last leaf" && name != "inner" &&
					name != "root" {
					t.Fatalf("cut to %d of %d bytes: no error", size, len(s.b))
				}
			}
		})
	}
	for _, b := range [][]byte{nil, {}, make([]byte, blink.MaxRoom+1)} {
		if _, err := blink.Decode(b); err == nil {
			t.Errorf("%d bytes: no error", len(b))
		}
	}
}

// TestRandomBytes decodes random bytes behind plausible headers.
func TestRandomBytes(t *testing.T) {
	g := fit(t, blink.Geometry{MaxKey: 32})
	r := rand.New(rand.NewPCG(5, 6))
	accepted := 0
	for range 50000 {
		b := make([]byte, blink.HeaderSize+r.IntN(40))
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		b[0], b[1], b[3], b[5], b[7], b[9] = byte(r.IntN(2)), byte(r.IntN(2)), 0, 0, 0, 0
		b[2], b[4], b[6], b[8] = byte(r.IntN(3)), byte(r.IntN(3)), byte(r.IntN(5)), byte(r.IntN(5))
		binary.LittleEndian.PutUint16(b[10:], uint16(len(b)))
		if n, err := blink.Decode(b); err == nil {
			accepted++
			_ = use(t, g, n)
		}
	}
	if accepted == 0 {
		t.Error("not one was accepted: the test tests nothing")
	}
}

// prefixed is an image with another length of its prefix.
func prefixed(c contents, prefix byte) []byte {
	b := c.encode()
	b[4] = prefix
	return b
}

// TestCheck has one image for each thing that Check finds.
func TestCheck(t *testing.T) {
	rows := fit(t, blink.Geometry{MaxKey: 4, MaxEntries: 3})
	row := func(key string) blink.Change { return blink.Change{Key: []byte(key), Addr: addrOf(1)} }
	good := contents{low: "b", high: "d", right: addrOf(2), entries: []blink.Change{row("b"), row("c")}}
	with := func(f func(*contents)) contents {
		c := good
		f(&c)
		return c
	}
	for _, c := range []struct {
		want string
		g    blink.Geometry
		contents
	}{
		{"", rows, good},
		{"level 64: at most 63", rows, with(func(c *contents) { c.level = 64 })},
		{"4 entries of", rows, with(func(c *contents) {
			c.entries = []blink.Change{row("b"), row("ba"), row("bb"), row("c")}
		})},
		{"fences of 5 and 1 bytes", rows, with(func(c *contents) { c.low = "bbbbb"; c.entries = nil })},
		{"fences of 1 and 5 bytes", rows, with(func(c *contents) { c.high = "ddddd" })},
		{"right link 0x0 with a high fence: true", rows, with(func(c *contents) { c.right = 0 })},
		{"with a high fence: false", rows, with(func(c *contents) { c.high, c.open = "", true })},
		{"right link to", rows, with(func(c *contents) { c.right = 64 })},
		{"right link to", rows, with(func(c *contents) { c.right++ })},
		{"is not below the high fence 62", rows, with(func(c *contents) { c.high = "b"; c.entries = nil })},
		{"entry 1 (key 64) is not below the high fence", rows, with(func(c *contents) {
			c.entries = []blink.Change{row("b"), row("d")}
		})},
		{"entry 1 (key 62) is not above", rows, with(func(c *contents) {
			c.entries = []blink.Change{row("b"), row("b")}
		})},
		{"entry 1 (key 62) is not above", rows, with(func(c *contents) {
			c.entries = []blink.Change{row("c"), row("b")}
		})},
		{"entry 0 (key 61) is below the low fence", rows, with(func(c *contents) {
			c.entries = []blink.Change{row("a")}
		})},
		{"key of 5 bytes: at most 4", rows, with(func(c *contents) { c.entries = []blink.Change{row("bbbbb")} })},
		{"leads to seg 0", rows, with(func(c *contents) { c.entries = []blink.Change{{Key: []byte("b"), Addr: 64}} })},
		{"class 64", rows, with(func(c *contents) {
			c.entries = []blink.Change{{Key: []byte("b"), Addr: addrOf(1), Class: 64}}
		})},
		{"without children", rows, with(func(c *contents) { c.level, c.entries = 1, nil })},
		{"first separator 63 is not the low fence 62", rows, with(func(c *contents) {
			c.level, c.entries = 1, []blink.Change{row("c")}
		})},
	} {
		n, err := blink.Decode(c.encode())
		if err != nil {
			t.Fatalf("%q: %v", c.want, err)
		}
		switch err := n.Check(c.g); {
		case (err == nil) != (c.want == ""):
			t.Errorf("%v, expected was %q", err, c.want)
		case err != nil && !strings.Contains(err.Error(), c.want):
			t.Errorf("%q, expected was %q", err, c.want)
		}
	}
	// A prefix that is too short is not canonical, nor is one of an empty last leaf or a last inner
	// node.
	long := contents{low: "ba", open: true, entries: []blink.Change{row("ba")}}.encode()
	short := bytes.Clone(long)
	short[4] = 1
	short[10]++
	short = append(short, 'a')
	for name, b := range map[string][]byte{
		"too short":            prefixed(contents{low: "ba", high: "bc", right: addrOf(1)}, 0),
		"too short, last leaf": short,
		"of an empty leaf":     prefixed(contents{low: "ba", open: true}, 1),
	} {
		if n, err := blink.Decode(b); err != nil || n.Check(rows) == nil ||
			!strings.Contains(n.Check(rows).Error(), "prefix of") {
			t.Errorf("a prefix that is %s: %v", name, err)
		}
	}
	if n, err := blink.Decode(long); err != nil || n.Check(rows) != nil {
		t.Errorf("a good prefix: %v", err)
	}
}
