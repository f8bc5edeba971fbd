package race

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"txnode/index"
	"txnode/index/indextest"
	"txnode/memory"
	"txnode/memory/layout"
	"txnode/rdma"
)

// poke overwrites a word on all copies.
func poke(t *testing.T, m *indextest.Memory, c *rdma.Coro, a layout.Addr, w uint64) {
	t.Helper()
	th := c.Thread()
	buf, err := th.Alloc(64)
	if err != nil {
		t.Fatal(err)
	}
	defer th.Free(buf, 64)
	th.PutWord(buf, w)
	var b rdma.Batch
	for k := range m.View().Copies(a) {
		b.Write(m.View().At(a, k), buf, 8)
	}
	if err := c.Do(&b); err != nil {
		t.Fatal(err)
	}
}

func peek(t *testing.T, m *indextest.Memory, c *rdma.Coro, a layout.Addr) uint64 {
	t.Helper()
	return binary.LittleEndian.Uint64(m.Copies(t, c.Thread(), a, 8)[0])
}

// TestVerifyFinds: each kind of damage is found where it is.
func TestVerifyFinds(t *testing.T) {
	type place struct {
		name string
		at   func(ix *Index, d *directory, slot layout.Addr) layout.Addr
		do   func(w uint64) uint64
	}
	first := func(ix *Index, d *directory, _ layout.Addr) layout.Addr { return d.entries[0].Table() }
	slot := func(_ *Index, _ *directory, s layout.Addr) layout.Addr { return s }
	entry := func(i uint32) func(ix *Index, d *directory, _ layout.Addr) layout.Addr {
		return func(ix *Index, d *directory, _ layout.Addr) layout.Addr { return ix.entryAddr(d, i) }
	}
	places := []place{
		{
			"root magic", func(ix *Index, _ *directory, _ layout.Addr) layout.Addr { return ix.root },
			func(w uint64) uint64 { return w + 1 },
		},
		{
			"root lock", func(ix *Index, _ *directory, _ layout.Addr) layout.Addr { return ix.root + dirLockOff },
			func(uint64) uint64 { return 5 << 16 },
		},
		{
			"global depth", func(ix *Index, _ *directory, _ layout.Addr) layout.Addr { return ix.root + depthOff },
			func(w uint64) uint64 { return 255 },
		},
		{"entry, wild", entry(1), func(w uint64) uint64 { return w | 1<<47 }},
		{"entry, depth", entry(1), func(w uint64) uint64 { return w - 1<<48 }},
		{"entry, filling", entry(1), func(w uint64) uint64 { return w | uint64(entryFilling) }},
		{"entry, empty", entry(1), func(uint64) uint64 { return 0 }},
		{"entry in a part, depth", entry(rootEntries + 1), func(w uint64) uint64 { return w - 1<<48 }},
		{
			"part, nowhere",
			func(ix *Index, _ *directory, _ layout.Addr) layout.Addr { return ix.root + partWord(rootBits) },
			func(uint64) uint64 { return 0 },
		},
		{
			"part, wild", func(ix *Index, _ *directory, _ layout.Addr) layout.Addr {
				return ix.root + partWord(rootBits)
			},
			func(w uint64) uint64 { return w | 1<<46 },
		},
		{
			"part, another one",
			func(ix *Index, _ *directory, _ layout.Addr) layout.Addr { return ix.root + partWord(rootBits) },
			func(w uint64) uint64 { return w + partHeader },
		},
		{
			"part magic", func(_ *Index, d *directory, _ layout.Addr) layout.Addr { return d.parts[rootBits] },
			func(uint64) uint64 { return 0 },
		},
		{"sub-table magic", first, func(w uint64) uint64 { return 0 }},
		{
			"sub-table lock",
			func(ix *Index, d *directory, s layout.Addr) layout.Addr { return first(ix, d, s) + tableLockOff },
			func(uint64) uint64 { return 5 << 16 },
		},
		{
			"sub-table child",
			func(ix *Index, d *directory, s layout.Addr) layout.Addr { return first(ix, d, s) + tableChildOff },
			func(uint64) uint64 { return 1 << 30 },
		},
		{
			"header", func(ix *Index, d *directory, s layout.Addr) layout.Addr {
				return first(ix, d, s) + 64 + headerOff
			},
			func(w uint64) uint64 { return w ^ 1 },
		},
		{"slot, wild", slot, func(w uint64) uint64 { return w | 1<<46 }},
		{"slot, unaligned", slot, func(w uint64) uint64 { return w + 8 }},
		{"slot, other block", slot, func(w uint64) uint64 { return w + 64 }},
		{"slot, fingerprint", slot, func(w uint64) uint64 { return w ^ 1<<60 }},
		{"slot, moving", slot, func(w uint64) uint64 { return w | uint64(slotMoving) }},
		{"slot, no address", slot, func(w uint64) uint64 { return w &^ addrMask }},
	}
	for _, p := range places {
		t.Run(p.name, func(t *testing.T) {
			m, ix, k := fixture(t, indextest.MemoryOptions{Copies: 2}, Options{Groups: 4, MaxDepth: 6})
			for i := range 800 {
				if _, err := k.Insert(key(i), key(i)); err != nil {
					t.Fatal(err)
				}
			}
			if ix.dir.Load().depth <= rootBits {
				t.Fatal("the directory has no parts")
			}
			if err := ix.Verify(k.C); err != nil {
				t.Fatal(err)
			}
			var some layout.Addr
			if err := ix.Walk(k.C,
				func(at layout.Addr, _ index.Candidate) error { some = at; return nil }); err != nil {
				t.Fatal(err)
			}
			at := p.at(ix, ix.dir.Load(), some)
			poke(t, m, k.C, at, p.do(peek(t, m, k.C, at)))
			err := ix.Verify(k.C)
			var c *CorruptError
			if !errors.Is(err, index.ErrCorrupt) || !errors.As(err, &c) || c.Table != 7 {
				t.Fatalf("Verify: %v", err)
			}
		})
	}
	t.Run("copies differ", func(t *testing.T) {
		m, ix, k := fixture(t, indextest.MemoryOptions{Copies: 3}, Options{Groups: 4, MaxDepth: 6})
		th := k.C.Thread()
		buf, _ := th.Alloc(64)
		th.PutWord(buf, 1)
		var b rdma.Batch
		b.Write(m.View().At(ix.dir.Load().entries[0].Table()+64+8, 2), buf, 8)
		if err := k.C.Do(&b); err != nil {
			t.Fatal(err)
		}
		if err := ix.Verify(k.C); !errors.Is(err, index.ErrCorrupt) {
			t.Fatal(err)
		}
	})
}

// TestDamage overwrites random words of an index. No operation may panic, hang or
// let a verb leave its region; each fails with an error of this package, or works.
func TestDamage(t *testing.T) {
	rounds := 200
	if testing.Short() {
		rounds = 60
	}
	for seed := range rounds {
		r := rand.New(rand.NewPCG(4, uint64(seed)))
		m, ix, k := fixture(t, indextest.MemoryOptions{Copies: 1 + seed%2, SegmentSize: 64 << 10, Segments: 16},
			Options{Groups: 2, MaxDepth: 6})
		ix.stall = 100_000
		for i := range 60 << (seed % 4) {
			if _, err := k.Insert(key(1000+i), key(1000+i)); err != nil {
				t.Fatal(err)
			}
		}
		d := ix.dir.Load()
		for range 1 + r.IntN(3) {
			at := ix.root + layout.Addr(8*r.IntN(dirOff/8+min(len(d.entries), rootEntries)))
			if k := rootBits + r.IntN(3); k < int(d.depth) {
				at = d.parts[k] + layout.Addr(8*r.IntN(int(partSize(uint8(k)))/8))
			}
			if r.IntN(4) > 0 {
				at = d.entries[r.IntN(len(d.entries))].Table() + layout.Addr(8*r.IntN(int(ix.size)/8))
			}
			w := peek(t, m, k.C, at)
			switch r.IntN(4) {
			case 0:
				w ^= 1 << r.IntN(64)
			case 1:
				w = r.Uint64()
			case 2:
				w = ^uint64(0)
			case 3:
				w += uint64(r.IntN(1 << 20))
			}
			poke(t, m, k.C, at, w)
		}
		allowed := func(what string, err error) {
			t.Helper()
			for _, e := range []error{index.ErrCorrupt, index.ErrBusy, index.ErrFull,
				index.ErrChanged, index.ErrDuplicate,
				indextest.ErrExists, indextest.ErrNotFound, indextest.ErrLocked, memory.ErrNoSpace,
				indextest.ErrUnclear} {
				if err == nil || errors.Is(err, e) {
					return
				}
			}
			t.Errorf("seed %d: %s: %v", seed, what, err)
		}
		for i := range 100 {
			_, err := k.Get(key(1000 + i))
			allowed(fmt.Sprint("get ", i), err)
			if _, err = k.Unchanged(); err != nil {
				t.Errorf("seed %d: validation: %v", seed, err)
			}
			_, err = k.Insert(key(60+i), key(60+i))
			allowed(fmt.Sprint("insert ", 60+i), err)
		}
		for i := range 20 {
			allowed("move", k.Move(key(1000+i)))
			allowed("delete", k.Delete(key(1000+i)))
		}
		allowed("walk", ix.Walk(k.C, func(layout.Addr, index.Candidate) error { return nil }))
		_, err := ix.Stats(k.C)
		allowed("stats", err)
		allowed("verify", ix.Verify(k.C))
		_, err = Open(k.C, m, ix.root, 7)
		allowed("open", err)
		allowed("recover", ix.Recover(k.C, func(owner uint64) bool { return owner != 1 }))
		if t.Failed() {
			return
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	m, ix, k := fixture(t, indextest.MemoryOptions{}, Options{Groups: 4, MaxDepth: 4})
	for _, c := range []struct {
		name  string
		root  layout.Addr
		table uint16
	}{
		{"another table", ix.root, 8},
		{"no root", ix.root + 64, 7},
		{"unaligned", ix.root + 8, 7},
		{"no segment", layout.MakeAddr(999, 0), 7},
		{"past the end", layout.MakeAddr(1, layout.MaxSegmentSize-64), 7},
		{"zero", 0, 7},
	} {
		if _, err := Open(k.C, m, c.root, c.table); !errors.Is(err, index.ErrCorrupt) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
