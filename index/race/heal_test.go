package race

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"testing"

	"txnode/index/indextest"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/rdma"
)

// pokeCopy writes bytes at an address of one copy.
func pokeCopy(t *testing.T, m *indextest.Memory, c *rdma.Coro, a layout.Addr, k int, p []byte) {
	t.Helper()
	th := c.Thread()
	buf, err := th.Alloc(len(p))
	if err != nil {
		t.Fatal(err)
	}
	defer th.Free(buf, len(p))
	copy(th.Bytes(buf, uint32(len(p))), p)
	var b rdma.Batch
	b.Write(m.View().At(a, k), buf, uint32(len(p)))
	if err := c.Do(&b); err != nil {
		t.Fatal(err)
	}
}

// healable is an index whose directory has parts, with an unused handle.
func healable(t *testing.T, copies int) (*indextest.Memory, *Index, *indextest.Client) {
	t.Helper()
	m, ix, k := fixture(t, indextest.MemoryOptions{Copies: copies, SegmentSize: 64 << 10, Segments: 32},
		Options{Groups: 4, MaxDepth: 8})
	for i := range 1000 {
		if _, err := k.Insert(key(i), key(i)); err != nil {
			t.Fatal(err)
		}
	}
	for i := 0; i < 1000; i += 9 { // traces
		if err := k.Delete(key(i)); err != nil {
			t.Fatal(err)
		}
	}
	return m, ix, k
}

// TestHeal damages words of the primary, one after the other in every structure of an index and
// several at once, in ways that show. Heal brings back every byte, whichever of them is met.
func TestHeal(t *testing.T) {
	for copies := 2; copies <= 3; copies++ {
		m, ix, k := healable(t, copies)
		d := ix.dir.Load()
		if d.depth <= rootBits {
			t.Fatalf("a directory of depth %d", d.depth)
		}
		table := d.entries[1].Table()
		type place struct {
			what string
			at   layout.Addr
			n    int // bytes
		}
		var places []place
		add := func(what string, at layout.Addr, n int) { places = append(places, place{what, at, n}) }
		for o := layout.Addr(0); o < lineSize; o += 8 {
			add("root", ix.root+o, 8)
			add("part", d.parts[rootBits]+o, 8)
			if o < tableChildOff {
				add("sub-table", table+o, 8)
			}
		}
		add("the whole root", ix.root, lineSize)
		add("global depth", ix.root+depthOff, 8)
		add("child", table+tableChildOff, 8)
		for k := uint8(rootBits); k < d.depth; k++ {
			add("where a part is", ix.root+partWord(k), 8)
		}
		for i := range uint32(len(d.entries)) {
			add("entry", ix.entryAddr(d, i), 8)
		}
		// An entry of a sub-table that was made with the index is marked as filling.
		p := m.Copies(t, k.C.Thread(), ix.root+dirOff, 8)[0]
		filling := bytes.Clone(p)
		filling[7] |= 1
		pokeCopy(t, m, k.C, ix.root+dirOff, 0, filling)
		if words, err := ix.Heal(k.C, ix.root); err != nil || words != 1 {
			t.Errorf("%d copies: entry 0 marked as filling: %d words, %v", copies, words, err)
			pokeCopy(t, m, k.C, ix.root+dirOff, 0, p)
		}
		add("entries", ix.root+dirOff, rootEntries*8)
		for o := layout.Addr(tableHeader + headerOff); o < layout.Addr(ix.size); o += lineSize {
			add("header", table+o, 8)
			add("line", table+o-headerOff, lineSize)
		}
		for o := layout.Addr(tableHeader); o < layout.Addr(ix.size); o += 8 {
			if o%lineSize != headerOff {
				add("slot", table+o, 8)
			}
		}
		rng := rand.New(rand.NewPCG(uint64(copies), 3))
		for _, p := range places {
			size := m.Copies(t, k.C.Thread(), p.at, uint32(p.n))
			was := size[0]
			for _, how := range []string{"zero", "noise", "ones"} {
				bad := make([]byte, p.n)
				for i := range bad {
					switch how {
					case "noise":
						bad[i] = byte(rng.Uint32())
					case "ones":
						bad[i] = 0xff
					}
				}
				if bytes.Equal(bad, was) || p.what == "slot" && how == "zero" && Slot(word(was, 0)).Empty() {
					continue
				}
				pokeCopy(t, m, k.C, p.at, 0, bad)
				words, err := ix.Heal(k.C, p.at)
				now := m.Copies(t, k.C.Thread(), p.at, uint32(p.n))
				if err != nil || words == 0 || !bytes.Equal(now[0], was) {
					t.Errorf("%d copies: %s at %v, %s: %d words, %v:\n%x instead of\n%x", copies, p.what, p.at, how,
						words, err, now[0], was)
					pokeCopy(t, m, k.C, p.at, 0, was)
				}
			}
		}
		if err := ix.Verify(k.C); err != nil {
			t.Error(err)
		}
	}
}

// TestHealsWhatIsMet: whatever bits of a sub-table, the directory or the root are damaged, on the
// primary, lookups and inserts that say so go on after Heal, with an index that no copy contradicts
// where it was met; and none of those that do not say so finds a key that is not there.
func TestHealsWhatIsMet(t *testing.T) {
	rounds := 40
	if testing.Short() {
		rounds = 10
	}
	healed := 0
	for seed := range rounds {
		m, ix, k := healable(t, 2+seed%2)
		rng := rand.New(rand.NewPCG(uint64(seed), 4))
		d := ix.dir.Load()
		for range 1 + rng.IntN(4) {
			at := ix.root + depthOff + layout.Addr(8*rng.IntN((rootSize-depthOff)/8))
			if i := rng.IntN(3); i > 0 {
				at = d.entries[rng.IntN(len(d.entries))].Table() + tableHeader +
					layout.Addr(8*rng.IntN(int(ix.size-tableHeader)/8))
				if i == 1 {
					at = at&^(lineSize-1) + headerOff
				}
			}
			if at == ix.root+dirLockOff {
				continue
			}
			p := m.Copies(t, k.C.Thread(), at, 8)[0]
			p[rng.IntN(8)] ^= 1 << rng.IntN(8)
			pokeCopy(t, m, k.C, at, 0, p)
		}
		fresh, err := Open(k.C, m, ix.root, 7)
		if err != nil {
			if _, err := Heal(k.C, m, ix.root, 7); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			healed++
			if fresh, err = Open(k.C, m, ix.root, 7); err != nil {
				t.Fatalf("seed %d: after Heal: %v", seed, err)
			}
		}
		fresh.stall = 1_000_000
		cl, err := m.NewClient(k.C, fresh, 7)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 1100 {
			v, err := cl.Get(key(i))
			if errors.Is(err, indextest.ErrUnclear) { // a slot leads to what is no record
				if words, e := fresh.Heal(k.C, fresh.Near(record.Hash(7, key(i)))); e != nil || words == 0 {
					t.Fatalf("seed %d: key %d: %v; Heal: %d words, %v", seed, i, err, words, e)
				}
				healed++
				v, err = cl.Get(key(i))
			}
			var c *CorruptError
			for tries := 0; errors.As(err, &c) && tries < 5; tries++ {
				words, e := fresh.Heal(k.C, c.Addr)
				if e != nil || words == 0 {
					t.Fatalf("seed %d: key %d: %v; Heal: %d words, %v", seed, i, err, words, e)
				}
				healed++
				v, err = cl.Get(key(i))
			}
			if err != nil || v != nil && (i >= 1000 || i%9 == 0 || string(v) != string(key(i))) {
				t.Fatalf("seed %d: key %d: %q, %v", seed, i, v, err)
			}
		}
	}
	if healed < rounds/3 {
		t.Errorf("Heal was called %d times", healed)
	}
}

// TestHealBelievesNoCopy: where the copies are damaged, too, nothing is replaced.
func TestHealBelievesNoCopy(t *testing.T) {
	m, ix, k := healable(t, 2)
	d := ix.dir.Load()
	table := d.entries[1].Table()
	slot := layout.Addr(0)
	for o := layout.Addr(tableHeader); slot == 0; o += 8 {
		if s := Slot(peek(t, m, k.C, table+o)); o%lineSize != headerOff && !s.Empty() {
			slot = table + o
		}
	}
	other := peek(t, m, k.C, slot+lineSize) ^ 1<<60 // a slot or a header, but no right one here
	for _, x := range []struct {
		what          string
		at            layout.Addr
		primary, copy uint64
	}{
		{"header", table + tableHeader + headerOff, 0, 1},
		{"header of another sub-table", table + tableHeader + headerOff, 0, uint64(MakeHeader(7, 4, 2))},
		{"slot into a line", slot, 1 << 62, 8},
		{"slot to another key", slot, 1 << 62, other&^uint64(slotMoving|slotTrace) | 1<<54},
		{"entry", ix.entryAddr(d, 2), 0, uint64(d.entries[3])},
		{"global depth", ix.root + depthOff, 99, uint64(d.depth) - 1},
	} {
		size := m.Copies(t, k.C.Thread(), x.at, 8)
		w := make([]byte, 8)
		binary.LittleEndian.PutUint64(w, x.primary)
		pokeCopy(t, m, k.C, x.at, 0, w)
		binary.LittleEndian.PutUint64(w, x.copy)
		pokeCopy(t, m, k.C, x.at, 1, w)
		_, err := ix.Heal(k.C, x.at)
		if unlessDamage(err) != nil {
			t.Errorf("%s: %v", x.what, err)
		}
		if now := peek(t, m, k.C, x.at); now != x.primary {
			t.Errorf("%s: %#x was replaced by %#x", x.what, x.primary, now)
		}
		for i, p := range size {
			pokeCopy(t, m, k.C, x.at, i, p)
		}
	}
	if err := ix.Verify(k.C); err != nil {
		t.Error(err)
	}
}
