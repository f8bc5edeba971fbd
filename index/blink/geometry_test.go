package blink_test

import (
	"errors"
	"strings"
	"testing"

	"txnode/index/blink"
	"txnode/memory/layout"
	"txnode/memory/record"
)

// TestFit: the class is the smallest in which four longest entries fit between the longest fences,
// and the longest image fits the block as a record's value.
func TestFit(t *testing.T) {
	for _, c := range []struct {
		g    blink.Geometry
		size uint32
	}{
		{blink.Geometry{MaxKey: 8}, 1024},
		{blink.Geometry{MaxKey: 150}, 1024},
		{blink.Geometry{MaxKey: 200}, 1536},
		{blink.Geometry{MaxKey: record.MaxKey}, 7168},
	} {
		g := fit(t, c.g)
		if g.Class.Size() != c.size {
			t.Errorf("%s: blocks of %d bytes, not %d", kindName(g), g.Class.Size(), c.size)
		}
		if class, ok := layout.ClassOf(uint32(record.Size(0, g.Room()))); !ok || class != g.Class {
			t.Errorf("%s: a record of %d bytes has class %d, not %d", kindName(g), g.Room(), class, g.Class)
		}
		smaller := g
		smaller.Class--
		if err := smaller.Validate(); c.size > 1024 && !errors.Is(err, blink.ErrGeometry) {
			t.Errorf("%s: a smaller class would do", kindName(g))
		}
		longest(t, g)
	}
}

// longest builds the node that a geometry must have room for.
func longest(t *testing.T, g blink.Geometry) {
	t.Helper()
	if g.MaxKey < 2 {
		return
	}
	key := func(first byte) string { return string(first) + strings.Repeat("k", g.MaxKey-1) }
	c := contents{low: key(0), high: key(9), right: addrOf(1)}
	for i := range 4 {
		e := blink.Change{Key: []byte(key(byte(1 + i)))}
		payloadFor(&e, i+1)
		c.entries = append(c.entries, e)
	}
	decode(t, g, c.encode())
}

func TestGeometryFaults(t *testing.T) {
	for _, c := range []struct {
		g    blink.Geometry
		want []string
	}{
		{blink.Geometry{MaxEntries: 1}, []string{"longest key of 0 bytes", "at most 1 entries"}},
		{blink.Geometry{MaxKey: record.MaxKey + 1}, []string{"longest key of 1025 bytes"}},
	} {
		_, err := c.g.Fit()
		if !errors.Is(err, blink.ErrGeometry) {
			t.Errorf("%+v: %v", c.g, err)
			continue
		}
		for _, w := range c.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%+v: %q lacks %q", c.g, err, w)
			}
		}
	}
	for class, want := range map[layout.Class]string{
		64: "class 64", 4: "class 4 has room for 256 bytes", 63: "class 63 has room for",
	} {
		if err := (blink.Geometry{MaxKey: 150, Class: class}).Validate(); !errors.Is(err, blink.ErrGeometry) ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%v, expected was %q", err, want)
		}
	}
}

func TestRoot(t *testing.T) {
	for _, r := range []blink.Root{{Addr: addrOf(1)}, {Addr: 1<<48 - 64, Level: blink.MaxLevel}} {
		b := r.Append([]byte("before"))
		if got, err := blink.DecodeRoot(b[len("before"):]); err != nil || got != r || string(b[:6]) != "before" {
			t.Errorf("%v becomes %v, %v", r, got, err)
		}
		for bit := range 8 * blink.RootSize {
			flipped := r.Append(nil)
			flipped[bit/8] ^= 1 << (bit % 8)
			if got, err := blink.DecodeRoot(flipped); err != nil {
				malformed(t, err)
			} else if string(got.Append(nil)) != string(flipped) {
				t.Errorf("%x becomes %x", flipped, got.Append(nil))
			}
		}
		if _, err := blink.DecodeRoot(b); !errors.Is(err, blink.ErrMalformed) {
			t.Errorf("%d bytes: %v", len(b), err)
		}
	}
	for _, b := range []blink.Root{{}, {Addr: addrOf(1), Level: blink.MaxLevel + 1}, {Addr: 65}} {
		if _, err := blink.DecodeRoot(b.Append(nil)); !errors.Is(err, blink.ErrMalformed) {
			t.Errorf("%v: %v", b, err)
		}
	}
}
