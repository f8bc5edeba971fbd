package race

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"txnode/index"
	"txnode/index/indextest"
	"txnode/memory/layout"
	"txnode/rdma"
)

// pokeWord writes a word at an address of the primary.
func pokeWord(t *testing.T, m *indextest.Memory, c *rdma.Coro, a layout.Addr, w uint64) {
	t.Helper()
	pokeCopy(t, m, c, a, 0, binary.LittleEndian.AppendUint64(nil, w))
}

// isDamage demands that err is about damage at an address.
func isDamage(t *testing.T, what string, err error, at layout.Addr) {
	t.Helper()
	if c := (*CorruptError)(nil); !errors.As(err, &c) || c.Addr != at {
		t.Errorf("%s: %v, and not damage at %v", what, err, at)
	}
}

// damagedEntries are what becomes of an entry of the directory when a bit of it changes.
func damagedEntries(e Entry, depth uint8) map[string]Entry {
	return map[string]Entry{
		"elsewhere": e ^ 1<<14,
		"deeper":    MakeEntry(e.Table(), min(e.Depth()+1, depth)),
		"flatter":   MakeEntry(e.Table(), e.Depth()-1),
		"filling":   e | entryFilling,
	}
}

// TestDamagedEntry: an entry of the primary's directory leads elsewhere, or has another depth.
// Recover and Extents say so. No copy gets the entry, and Heal brings it back.
func TestDamagedEntry(t *testing.T) {
	m, ix, k := healable(t, 2)
	d := ix.dir.Load()
	for i, e := range d.entries {
		for what, bad := range damagedEntries(e, d.depth) {
			if bad == e {
				continue
			}
			at := ix.entryAddr(d, uint32(i))
			pokeWord(t, m, k.C, at, uint64(bad))
			if _, err := ix.Extents(k.C); err == nil {
				t.Errorf("entry %d, %s: Extents does not notice", i, what)
			}
			if err := ix.Recover(k.C, func(uint64) bool { return false }); err == nil {
				t.Errorf("entry %d, %s: Recover does not notice", i, what)
			}
			if w := word(m.Copies(t, k.C.Thread(), at, 8)[1], 0); Entry(w) != e {
				t.Fatalf("entry %d, %s: the copy has %v, and not %v", i, what, Entry(w), e)
			}
			if words, err := ix.Heal(k.C, ix.root); words != 1 || err != nil || Entry(peek(t, m, k.C, at)) != e {
				t.Fatalf("entry %d, %s: Heal: %d words, %v", i, what, words, err)
			}
		}
	}
	if all, err := ix.Extents(k.C); err != nil || len(all) < len(d.tables())+2 {
		t.Errorf("%d extents: %v", len(all), err)
	}
	if err := ix.Verify(k.C); err != nil {
		t.Error(err)
	}
}

// TestDoubleBesideDamage: an entry is damaged when the directory is to be doubled. It is not copied
// to the upper half.
func TestDoubleBesideDamage(t *testing.T) {
	m, ix, k := healable(t, 2)
	d := ix.dir.Load()
	i := uint32(5)
	at := ix.entryAddr(d, i)
	pokeWord(t, m, k.C, at, uint64(d.entries[i]^1<<14))
	s := ix.get()
	defer ix.put(s)
	sp := split{locks: locks{ix: ix, c: k.C, s: s}, from: d.entries[0].Table(), depth: d.depth}
	depth := peek(t, m, k.C, ix.root+depthOff)
	if err := sp.lockDirectory(); err != nil {
		t.Fatal(err)
	}
	dir, err := ix.readDirectory(k.C, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = sp.double(dir)
	isDamage(t, "double", err, at)
	if now := peek(t, m, k.C, ix.root+depthOff); now != depth {
		t.Errorf("global depth %d instead of %d", now, depth)
	}
}

// TestPublishBesideDamage: the entry that a split is to change is damaged. The split ends before it
// changes anything else.
func TestPublishBesideDamage(t *testing.T) {
	m, ix, k := fixture(t, indextest.MemoryOptions{Copies: 2}, Options{Groups: 64})
	for i := range 100 {
		if _, err := k.Insert(key(i), key(i)); err != nil {
			t.Fatal(err)
		}
	}
	s := ix.get()
	defer ix.put(s)
	from := ix.dir.Load().entries[0].Table()
	for round := range 2 { // to depth 1, and to depth 2 with a damaged entry
		sp := split{locks: locks{ix: ix, c: k.C, s: s}, from: from, depth: uint8(round)}
		if ok, err := sp.take(from + tableLockOff); !ok || err != nil {
			t.Fatal(ok, err)
		}
		if round == 0 {
			if err := sp.run(); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if _, err := sp.prepare(); err != nil {
			t.Fatal(err)
		}
		d, err := ix.readDirectory(k.C, nil)
		if err != nil {
			t.Fatal(err)
		}
		if d, err = sp.double(d); err != nil {
			t.Fatal(err)
		}
		at := ix.entryAddr(d, 2)
		pokeWord(t, m, k.C, at, uint64(MakeEntry(from, 2)))
		isDamage(t, "publish", sp.publish(), at)
		if h := Header(peek(t, m, k.C, from+tableHeader+headerOff)); h.Depth() != 1 {
			t.Errorf("a bucket of %v", h)
		}
		if words, err := ix.Heal(k.C, at); words != 1 || err != nil {
			t.Fatalf("Heal: %d words, %v", words, err)
		}
		if err := firstOf(sp.publish(), sp.unlock(ix.root+dirLockOff)); err != nil {
			t.Fatal(err)
		}
		if err := sp.fill(); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 100 {
		if v, err := k.Get(key(i)); err != nil || string(v) != string(key(i)) {
			t.Errorf("key %d: %q, %v", i, v, err)
		}
	}
	if err := ix.Verify(k.C); err != nil {
		t.Error(err)
	}
}

// TestDamagedLock: a lock is damaged while a live client has it, so that it seems to be that of a
// dead one, or of none. Nobody takes it over, and the client releases it on all copies.
func TestDamagedLock(t *testing.T) {
	words := map[string]uint64{"of the dead": 9 << 16, "of no client": 1, "of somebody who has given up": Nobody << 16}
	for what, bad := range words {
		damagedLock(t, what+", of a sub-table", false, bad)
		damagedLock(t, what+", of the directory", true, bad)
	}
}

func damagedLock(t *testing.T, what string, directory bool, bad uint64) {
	r := newRig(t, 2, 8)
	at := r.ix[0].dir.Load().entries[0].Table() + tableLockOff
	if directory {
		at = r.ix[0].root + dirLockOff
	}
	s := r.ix[0].get()
	l := locks{ix: r.ix[0], c: r.k[0].C, s: s}
	if ok, err := l.take(at); !ok || err != nil {
		t.Fatal(ok, err)
	}
	pokeWord(t, r.m, r.k[0].C, at, bad)
	if err := r.ix[1].Recover(r.k[1].C, func(owner uint64) bool { return owner == 9 }); !errors.Is(err, index.ErrBusy) {
		t.Errorf("%s: Recover beside the client: %v", what, err)
	}
	if w := peek(t, r.m, r.k[0].C, at); w != bad {
		t.Errorf("%s: taken over by %#x", what, w)
	}
	if err := l.unlock(at); err != nil {
		t.Errorf("%s: %v", what, err)
	}
	for k, p := range r.m.Copies(t, r.k[0].C.Thread(), at, 8) {
		if !bytes.Equal(p, make([]byte, 8)) {
			t.Errorf("%s: copy %d is %x", what, k, p)
		}
	}
	r.ix[0].put(s)
	// At rest nobody has it, and it is taken over.
	pokeWord(t, r.m, r.k[0].C, at, bad)
	r.recoveredFromNine(t)
	r.grows(t, 1)
}

// recoveredFromNine has client 2 recover, to which owner 9 is dead.
func (r *rig) recoveredFromNine(t *testing.T) {
	t.Helper()
	if err := r.ix[1].Recover(r.k[1].C, func(owner uint64) bool { return owner == 9 }); err != nil {
		t.Fatal(err)
	}
	if err := r.ix[1].Verify(r.k[1].C); err != nil {
		t.Fatal(err)
	}
}

// TestInsertBesideDamage: the buckets of the second choice of a key are none, as when the directory
// leads elsewhere. The first choice is crowded, so the second is looked at. It gets no slot.
func TestInsertBesideDamage(t *testing.T) {
	m, ix, k := fixture(t, indextest.MemoryOptions{Copies: 2}, Options{Groups: 2})
	table := ix.dir.Load().entries[0].Table()
	second := table + tableHeader + groupSize
	for line := range layout.Addr(groupLines) {
		pokeWord(t, m, k.C, second+line*lineSize+headerOff, 0)
	}
	damaged := 0
	for i := range 40 {
		if _, err := k.Insert(key(i), key(i)); err != nil {
			if !errors.Is(err, index.ErrCorrupt) {
				t.Fatal(err)
			}
			damaged++
		}
	}
	if damaged == 0 {
		t.Error("no insert has met the damage")
	}
	for at := second; at < second+groupSize; at += 8 {
		if at%lineSize == headerOff {
			continue
		}
		if w := peek(t, m, k.C, at); w != 0 {
			t.Errorf("%#x was written to %v", w, at)
		}
	}
}
