package sim

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"
)

// The page directory against plain bytes.
func TestMemoryAgainstBytes(t *testing.T) {
	const size = 5*pageSize + 24
	rng := rand.New(rand.NewPCG(1, 2))
	var m memory
	m.init(size)
	model := make([]byte, size)
	buf := make([]byte, size)
	for range 5000 {
		off := rng.Uint64N(size)
		n := min(rng.Uint64N(1<<rng.IntN(14)), size-off)
		switch b := buf[:n]; rng.IntN(4) {
		case 0:
			for i := range b {
				b[i] = byte(rng.Uint32())
			}
			m.write(off, b)
			copy(model[off:], b)
		case 1:
			w := off &^ 7 % (size - 8)
			v := rng.Uint64()
			m.setWord(w, v)
			binary.LittleEndian.PutUint64(model[w:], v)
			if m.word(w) != v {
				t.Fatalf("word at %#x is %#x, want %#x", w, m.word(w), v)
			}
		default:
			if n == 0 {
				continue
			}
			m.expect(off, uint32(n))
			if m.read(b, off); !bytes.Equal(b, model[off:off+n]) {
				t.Fatalf("%d bytes at %#x differ", n, off)
			}
		}
	}
	m.reset()
	if m.read(buf, 0); !bytes.Equal(buf, make([]byte, size)) || m.pages != 0 {
		t.Fatal("something is left behind a reset")
	}
}

// Address space costs a directory; memory is used where it is written.
func TestMemoryIsSparse(t *testing.T) {
	var m memory
	m.init(1 << 40)
	b := make([]byte, 64)
	for i := range uint64(100) {
		m.read(b, i<<33)
		m.expect(i<<33, 64)
	}
	if m.pages != 0 {
		t.Fatalf("reading made %d pages", m.pages)
	}
	for i := range uint64(100) {
		m.write(i<<33+8, b)
	}
	if m.pages != 100 {
		t.Fatalf("100 scattered writes made %d pages", m.pages)
	}
}

// A large memory, on huge pages where there are some, is as empty as a small one.
func TestLargeMemory(t *testing.T) {
	var m memory
	m.init(64 << 20)
	for off := uint64(0); off < 24<<20; off += pageSize {
		if m.setWord(off+8, off); m.word(off) != 0 || m.word(off+16) != 0 {
			t.Fatalf("a fresh page at %#x is not empty", off)
		}
	}
	for off := uint64(0); off < 24<<20; off += pageSize {
		if m.word(off+8) != off {
			t.Fatalf("word at %#x is %#x", off+8, m.word(off+8))
		}
	}
}
