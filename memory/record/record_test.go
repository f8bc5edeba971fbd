package record_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"txnode/memory/internal/mum"
	"txnode/memory/layout"
	"txnode/memory/record"
)

// build makes the image of a record in a block of its class, in a buffer full of
// what was there before.
func build(t testing.TB, a layout.Addr, v record.TxID, state record.State, key, value []byte,
	lock record.TxID) record.Image {
	t.Helper()
	class, ok := record.ClassFor(len(key), len(value))
	if !ok {
		t.Fatalf("no class for a key of %d and a value of %d", len(key), len(value))
	}
	b := record.Image(bytes.Repeat([]byte{0xee}, int(class.Size())))
	if n := b.Put(a, v, state, 7, class, lock, key, value); n != record.Size(len(key), len(value)) || n > len(b) {
		t.Fatalf("Put says %d bytes, Size %d, the block has %d", n, record.Size(len(key), len(value)), len(b))
	}
	return b
}

// fill is n bytes that are not zero.
func fill(n int, seed byte) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(i)*7 + seed | 1
	}
	return p
}

var keyLens = []int{0, 1, 7, 8, 9, 15, 16, 24, 25, 31, 32, 33, 40, 63, 64, 100, 1023, record.MaxKey}
var valueLens = []int{0, 1, 7, 8, 9, 16, 23, 24, 25, 31, 32, 33, 40, 64, 100, 255, 4096, 70_000, record.MaxValue}

func TestRoundTrip(t *testing.T) {
	a := layout.MakeAddr(3, 0x40)
	for _, nk := range keyLens {
		for _, nv := range valueLens {
			key, value := fill(nk, 1), fill(nv, 2)
			v, holder := record.MakeTxID(9, 100), record.MakeTxID(10, 5)
			for _, lock := range []record.TxID{0, holder} {
				b := build(t, a, v, record.Live, key, value, lock)
				name := fmt.Sprintf("key %d, value %d, lock %v", nk, nv, lock)
				n := record.Size(nk, nv)
				need, err := b[:n].Check(a)
				if err != nil || need != n {
					t.Fatalf("%s: need %d of %d, %v", name, need, n, err)
				}
				m := b.Meta()
				if b.Version() != v || m.State() != record.Live || m.Table() != 7 || m.KeyLen() != nk ||
					m.ValueLen() != nv ||
					!bytes.Equal(b.Key(), key) || !bytes.Equal(b.Value(), value) {
					t.Fatalf("%s: version %v, meta %#x", name, b.Version(), m)
				}
				if b.Lock() != lock || b.Stable() != (lock == 0) {
					t.Errorf("%s: locked by %v, stable %v", name, b.Lock(), b.Stable())
				}
				// Too few bytes: how many are needed, and that they are not here.
				if n > record.LineSize {
					if need, err := b[:record.LineSize].Check(a); need != n || !errors.Is(err, record.ErrTorn) {
						t.Errorf("%s: of the first line: need %d, %v", name, need, err)
					}
				}
				// What was in the buffer before shows nowhere.
				clean := make(record.Image, n)
				clean.Put(a, v, record.Live, m.Table(), m.Class(), lock, key, value)
				if !bytes.Equal(b[:n], clean) {
					t.Fatalf("%s: bytes that pad it are not zero", name)
				}
				// Not part of the record: the rest of the block.
				for i := n; i < len(b); i++ {
					if b[i] != 0xee {
						t.Fatalf("%s: byte %d behind the record was written", name, i)
					}
				}
				if _, err := b.Check(a + 64); !errors.Is(err, record.ErrTorn) {
					t.Errorf("%s: at another address: %v", name, err)
				}
			}
		}
	}
}

// TestLayout compares where things are with the rules of doc.go, written down
// plainly.
func TestLayout(t *testing.T) {
	pad := func(n int) int { return (n + 7) / 8 * 8 }
	for nk := range 130 {
		for nv := range 130 {
			key, value, size := 24, 64, 64+pad(nv)
			switch {
			case nk > 32:
				key, value, size = 64, 64+pad(nk), 64+pad(nk)+pad(nv)
			case 24+pad(nk)+nv <= 56:
				value, size = 24+pad(nk), 64
			}
			if k, v, n := record.KeyAt(nk), record.ValueAt(nk, nv), record.Size(nk, nv); k != key || v != value ||
				n != size {
				t.Fatalf("key of %d at %d, want %d; value of %d at %d, want %d; size %d, want %d",
					nk, k, key, nv, v, value, n, size)
			}
		}
	}
}

// TestEveryBit flips each bit of a record: all are noticed but those of the guard, which the
// checksum leaves out so that locks change nothing.
func TestEveryBit(t *testing.T) {
	a := layout.MakeAddr(1, 128)
	for _, c := range []struct{ nk, nv int }{{0, 0}, {8, 8}, {5, 3}, {32, 100}, {40, 5}, {16, 300}} {
		b := build(t, a, record.MakeTxID(1, 2), record.Live, fill(c.nk, 3), fill(c.nv, 4), 0)
		n := record.Size(c.nk, c.nv)
		for bit := range n * 8 {
			b[bit/8] ^= 1 << (bit % 8)
			_, err := b.Check(a)
			if guard := bit/8 >= record.GuardOff && bit/8 < record.LineSize; (err == nil) != guard {
				t.Errorf("key %d, value %d: bit %d of byte %d flipped: %v", c.nk, c.nv, bit%8, bit/8, err)
			}
			b[bit/8] ^= 1 << (bit % 8)
		}
		if _, err := b.Check(a); err != nil {
			t.Error(err)
		}
	}
}

// TestTorn: an image of which some words are those of another version is noticed,
// whichever they are.
func TestTorn(t *testing.T) {
	a := layout.MakeAddr(2, 0)
	key := fill(8, 1)
	old := build(t, a, record.MakeTxID(1, 1), record.Live, key, fill(40, 2), 0)
	cur := build(t, a, record.MakeTxID(1, 2), record.Live, key, fill(40, 3), 0)
	n := record.Size(8, 40)
	summed := func(b record.Image) string { return string(b[:record.GuardOff]) + string(b[record.LineSize:n]) }
	mixed := make(record.Image, len(old))
	for mask := range 1 << (n / 8) {
		for w := range n / 8 {
			from := old
			if mask>>w&1 != 0 {
				from = cur
			}
			copy(mixed[8*w:8*w+8], from[8*w:])
		}
		_, err := mixed.Check(a)
		if got := summed(mixed); (err == nil) != (got == summed(old) || got == summed(cur)) {
			t.Fatalf("words %b of the new image, the others of the old: %v", mask, err)
		}
	}
}

// TestCheckShort compares the fast check with Check and the comparisons that it
// stands for.
func TestCheckShort(t *testing.T) {
	a := layout.MakeAddr(9, 448)
	for _, nk := range []int{0, 7, 8, 9, 16, 33} {
		for nv := range 60 {
			for _, state := range []record.State{record.Free, record.Live, record.Absent, record.Absent + 1, 15} {
				key := fill(nk, 1)
				b := build(t, a, record.MakeTxID(1, 2), state, key, fill(nv, 2), 0)
				var k uint64
				if nk >= 8 {
					k = binary.LittleEndian.Uint64(key)
				}
				fits := nk == 8 && nv <= 24 && (state == record.Live || state == record.Absent)
				_, m, ok := record.CheckShort((*record.Line)(b), a, 7, k)
				if ok != fits || m != b.Meta() {
					t.Errorf("key %d, value %d, %v: %v, meta %#x", nk, nv, state, ok, m)
				}
				if !fits {
					continue
				}
				for name, ok := range map[string]bool{
					"another address": second(record.CheckShort((*record.Line)(b), a+64, 7, k)),
					"another table":   second(record.CheckShort((*record.Line)(b), a, 8, k)),
					"another key":     second(record.CheckShort((*record.Line)(b), a, 7, k+1)),
				} {
					if ok {
						t.Errorf("value %d, %v: it takes %s", nv, state, name)
					}
				}
				for bit := range record.LineSize * 8 {
					b[bit/8] ^= 1 << (bit % 8)
					_, err := b.Check(a)
					if _, _, ok := record.CheckShort((*record.Line)(b), a, 7, k); ok != (err == nil) {
						t.Errorf("value %d, %v: with bit %d of byte %d flipped: %v, Check says %v",
							nv, state, bit%8, bit/8, ok, err)
					}
					b[bit/8] ^= 1 << (bit % 8)
				}
			}
		}
	}
}

func second(_ record.TxID, _ record.Meta, ok bool) bool { return ok }

// TestSealShort compares the fast way to make a short record with the slow one.
func TestSealShort(t *testing.T) {
	a, v := layout.MakeAddr(9, 448), record.MakeTxID(3, 5)
	for nv := range record.ShortValue + 1 {
		want := build(t, a, v, record.Live, fill(8, 1), fill(nv, 2), 0)
		var got record.Line
		for i := range got {
			got[i] = 0xa5
		}
		k := binary.LittleEndian.Uint64(fill(8, 1))
		record.PutShort(&got, k, fill(nv, 2))
		record.SealShort(&got, a, v, want.Meta())
		if !bytes.Equal(got[:], want[:record.LineSize]) {
			t.Errorf("value of %d bytes:\n%x\nwant\n%x", nv, got, want[:record.LineSize])
		}
	}
}

func TestNeverUsed(t *testing.T) {
	b := make(record.Image, 64)
	if need, err := b.Check(layout.MakeAddr(1, 0)); err != nil || need != 64 {
		t.Errorf("need %d, %v", need, err)
	}
	if b.Meta().State() != record.Free || b.Lock() != 0 || b.Version() != 0 || !b.Stable() {
		t.Errorf("state %v", b.Meta().State())
	}
	b[record.GuardOff] = 3 // a late lock, perhaps
	if _, err := b.Check(layout.MakeAddr(1, 0)); err != nil || b.Stable() {
		t.Errorf("locked: stable %v, %v", b.Stable(), err)
	}
}

func TestForm(t *testing.T) {
	a := layout.MakeAddr(1, 0)
	for name, m := range map[string]record.Meta{
		"state": record.MakeMeta(4, 1, 0, 0, 0),
		"node":  record.MakeMeta(record.Node, 1, 0, 1, 0),
		"key":   record.MakeMeta(record.Live, 1, 40, record.MaxKey+1, 0),
		"value": record.MakeMeta(record.Live, 1, 63, 0, record.MaxValue+1),
		"class": record.MakeMeta(record.Live, 1, layout.NumClasses, 0, 0),
		"size":  record.MakeMeta(record.Live, 1, 0, 8, 100),
	} {
		b := make(record.Image, 64)
		binary.LittleEndian.PutUint64(b[record.MetaOff:], uint64(m))
		if need, err := b.Check(a); need != 0 || !errors.Is(err, record.ErrForm) {
			t.Errorf("%s: need %d, %v", name, need, err)
		}
	}
}

func TestTxID(t *testing.T) {
	for _, c := range []struct {
		coordinator uint32
		seq         uint64
		text        string
	}{{1, 1, "c1.1"}, {7, 42, "c7.42"}, {
		layout.MaxCoordinators - 1, 1<<record.SequenceBits - 1, "c16777215.549755813887",
	}} {
		id := record.MakeTxID(c.coordinator, c.seq)
		if id.Coordinator() != c.coordinator || id.Seq() != c.seq || id.String() != c.text || id&record.HeldBit != 0 {
			t.Errorf("%v: coordinator %d, sequence %d", id, id.Coordinator(), id.Seq())
		}
		held, free := record.HeldBy(id), record.FreeAt(id)
		if !held.Held() || held.Owner() != id || held.Version() != 0 || free.Held() || free.Owner() != 0 ||
			free.Version() != id || held == free {
			t.Errorf("%v: held %#x, free %#x", id, held, free)
		}
	}
	if a, b := record.MakeTxID(1, 1<<record.SequenceBits-1), record.MakeTxID(2, 0); a >= b {
		t.Error("ids of a later coordinator are not larger")
	}
}

func TestClassFor(t *testing.T) {
	for _, nk := range keyLens {
		for _, nv := range valueLens {
			c, ok := record.ClassFor(nk, nv)
			if !ok || int(c.Size()) < record.Size(nk, nv) || c > 0 && int((c-1).Size()) >= record.Size(nk, nv) {
				t.Errorf("key %d, value %d: class %d of %d bytes, %v", nk, nv, c, c.Size(), ok)
			}
		}
	}
}

func TestStates(t *testing.T) {
	for s, want := range map[record.State]string{
		record.Free: "free", record.Live: "live", record.Absent: "absent", 9: "state 9",
	} {
		if s.String() != want {
			t.Errorf("%q", s)
		}
	}
}

// TestSums: record.Sum and the hash of package memory are one, and both differ
// when seed or bytes do.
func TestSums(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	seen := map[uint64]bool{}
	for n := 0; n < 200; n += 8 {
		p := make([]byte, n)
		for range 20 {
			for i := range p {
				p[i] = byte(r.Uint32())
			}
			seed := r.Uint64()
			h := record.Sum(seed, p)
			if h != mum.Sum(seed, p) {
				t.Fatalf("%d bytes: %#x and %#x", n, h, mum.Sum(seed, p))
			}
			if seen[h] || h == record.Sum(seed+1, p) {
				t.Fatalf("%d bytes: %#x again", n, h)
			}
			seen[h] = true
		}
	}
}

// TestHash: keys and tables that differ a little have hashes that differ, in the
// upper bits as well as in the lower ones.
func TestHash(t *testing.T) {
	var buckets [2][256]int
	seen := map[uint64]string{}
	add := func(table uint16, key []byte) {
		h := record.Hash(table, key)
		name := fmt.Sprintf("%d %x", table, key)
		if old, ok := seen[h]; ok {
			t.Errorf("%s and %s have the same hash", old, name)
		}
		seen[h] = name
		buckets[0][h&255]++
		buckets[1][h>>56]++
	}
	const n = 20_000
	for i := range uint64(n) {
		add(uint16(i%3), binary.LittleEndian.AppendUint64(nil, i))
		add(uint16(i%3), fmt.Appendf(nil, "customer-%d", i))
	}
	for l := range 40 {
		add(9, make([]byte, l)) // length counts
	}
	for which, b := range buckets {
		for i, k := range b {
			if mean := 2 * n / 256; k < mean/2 || k > 2*mean {
				t.Errorf("byte %d: value %d comes %d times, %d on average", which, i, k, mean)
			}
		}
	}
}

func FuzzCheck(f *testing.F) {
	a := layout.MakeAddr(5, 192)
	for _, c := range []struct{ nk, nv int }{{0, 0}, {8, 8}, {32, 32}, {100, 10}} {
		f.Add([]byte(build(f, a, record.MakeTxID(3, 4), record.Absent, fill(c.nk, 1), fill(c.nv, 1), 0)), uint64(a),
			false)
		f.Add([]byte(build(f, a, record.MakeTxID(3, 4), record.Live, fill(c.nk, 1), fill(c.nv, 1), 5)), uint64(a), true)
	}
	f.Add(make([]byte, 64), uint64(0), false)
	f.Fuzz(func(t *testing.T, p []byte, addr uint64, fix bool) {
		if len(p) < record.LineSize {
			return
		}
		b := record.Image(bytes.Clone(p))
		a := layout.Addr(addr)
		need, err := b.Check(a)
		k := binary.LittleEndian.Uint64(b[record.KeyOff:])
		if _, m, ok := record.CheckShort((*record.Line)(b), a, b.Meta().Table(), k); ok &&
			(err != nil || m.State() == record.Free || m.KeyLen() != 8) {
			t.Fatalf("the short check passes, the long one says %v", err)
		}
		if err != nil && fix && need > 0 && need <= len(b) {
			b.Seal(a, b.Version(), b.Meta()) // get past the checksum
			need, err = b.Check(a)
			if err != nil {
				t.Fatalf("sealed, and %v", err)
			}
		}
		if err != nil {
			return
		}
		key, value := b.Key(), b.Value()
		m := b.Meta()
		if need > len(b) || need < record.LineSize || len(key) != m.KeyLen() || len(value) != m.ValueLen() {
			t.Fatalf("need %d of %d, key of %d, value of %d, meta %#x", need, len(b), len(key), len(value), m)
		}
		if b.Version() == 0 && m == 0 {
			return
		}
		// The same content has the same image.
		again := record.Image(bytes.Clone(b))
		again.Put(a, b.Version(), m.State(), m.Table(), m.Class(), 0, bytes.Clone(key), bytes.Clone(value))
		if _, err := again.Check(a); err != nil || !bytes.Equal(again.Key(), key) ||
			!bytes.Equal(again.Value(), value) {
			t.Fatalf("rebuilt: %v", err)
		}
	})
}

func BenchmarkCheck(b *testing.B) {
	a := layout.MakeAddr(1, 0)
	for _, n := range []int{8, 100, 500, 4000} {
		img := build(b, a, record.MakeTxID(1, 1), record.Live, fill(8, 1), fill(n, 1), 0)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.SetBytes(int64(record.Size(8, n)))
			for b.Loop() {
				if _, err := img.Check(a); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
