package race

import (
	"fmt"
	"testing"

	"txnode/index/indextest"
	"txnode/memory/layout"
	"txnode/memory/record"
)

// TestSpillRate: how many lookups of keys that do not exist read the second choice,
// as sub-tables of the default size get full, and after they were split.
func TestSpillRate(t *testing.T) {
	_, ix, k := fixture(t, indextest.MemoryOptions{Copies: 1, SegmentSize: 1 << 20}, Options{Groups: DefaultGroups})
	n := 0
	rate := func() float64 {
		const samples = 4000
		before := ix.Events().Seconds
		for i := range samples {
			if err := k.Resolve(fmt.Appendf(nil, "absent %d %d", n, i)); err != nil {
				t.Fatal(err)
			}
		}
		return float64(ix.Events().Seconds-before) / samples
	}
	insert := func() {
		if _, err := k.Insert(key(n), nil); err != nil {
			t.Fatal(err)
		}
		n++
	}
	for _, c := range []struct{ load, most float64 }{
		{0.4, 0.005}, {0.5, 0.012}, {0.6, 0.03}, {0.75, 0.075}, {0.85, 0.11},
	} {
		for float64(n) < c.load*DefaultGroups*groupSlots {
			insert()
		}
		r := rate()
		t.Logf("load %.2f: %.2f %% of the lookups", c.load, 100*r)
		if r > c.most {
			t.Errorf("load %.2f: %.2f %% of the lookups read the second choice, at most %.2f %% expected",
				c.load, 100*r, 100*c.most)
		}
	}
	for ix.Events().Splits == 0 {
		insert()
	}
	r := rate()
	t.Logf("after the split: %.2f %%", 100*r)
	if r > 0.08 { // keys stay in their second choice when their first has room again
		t.Errorf("%.2f %% of the lookups read the second choice after the split", 100*r)
	}
}

// marksOf compares the marks of all sub-tables with those that the slots need; it
// returns how many there are and how many of them no slot needs.
func marksOf(t *testing.T, ix *Index, k *indextest.Client) (all, idle int) {
	t.Helper()
	d := ix.dir.Load()
	for _, i := range d.tables() {
		e := d.entries[i]
		s := ix.get()
		m := mover{split: &split{locks: locks{ix: ix, c: k.C, s: s}, from: e.Table(), depth: e.Depth(), suffix: i}}
		m.needed = make([]Header, ix.geo.Groups*groupLines)
		if err := m.read(tableHeader, ix.size-tableHeader); err != nil {
			t.Fatal(err)
		}
		if err := m.hashes(m.items); err != nil {
			t.Fatal(err)
		}
		m.stay = m.items
		m.count()
		err := m.eachHeader(func(at layout.Addr, h Header) (Header, error) {
			need := m.needed[(at-e.Table()-tableHeader)/lineSize]
			for fp := Header(1) << spillShift; fp&spillMask != 0; fp <<= 1 {
				if h&fp != 0 {
					all++
					if need&fp == 0 {
						idle++
					}
				} else if need&fp != 0 {
					t.Errorf("%v at %v lacks a mark", h, at)
				}
			}
			return h, nil
		}, func() error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		ix.put(s)
	}
	return all, idle
}

// TestRecount: marks stay when their keys go, until a split counts them.
func TestRecount(t *testing.T) {
	_, ix, k := fixture(t, indextest.MemoryOptions{Copies: 2, SegmentSize: 1 << 20}, Options{Groups: 64})
	n := 0
	insert := func() {
		if _, err := k.Insert(key(n), nil); err != nil {
			t.Fatal(err)
		}
		n++
	}
	for float64(n) < 0.8*64*groupSlots {
		insert()
	}
	if all, idle := marksOf(t, ix, k); all < 50 || idle != 0 {
		t.Errorf("%d marks, %d of them idle", all, idle)
	}
	for i := 0; i < n; i += 2 {
		if _, img, err := k.Find(key(i)); err != nil || img == nil {
			t.Fatal(err)
		}
		a, _, _ := k.Find(key(i))
		if err := ix.Remove(k.C, &k.Query, a); err != nil {
			t.Fatal(err)
		}
	}
	if all, idle := marksOf(t, ix, k); idle < all/4 {
		t.Errorf("%d marks, %d of them idle after half of the keys were removed", all, idle)
	}
	for ix.Events().Splits == 0 {
		insert()
	}
	if all, idle := marksOf(t, ix, k); all == 0 || idle != 0 {
		t.Errorf("%d marks, %d of them idle after the split", all, idle)
	}
	if err := ix.Verify(k.C); err != nil {
		t.Error(err)
	}
}

// TestSpillVerbs counts what an insert into a second choice costs.
func TestSpillVerbs(t *testing.T) {
	for copies := 1; copies <= 3; copies++ {
		_, ix, k := fixture(t, indextest.MemoryOptions{Copies: copies, SegmentSize: 1 << 20}, Options{})
		made, relied := false, false
		for n := 0; !made || !relied; n++ {
			if n > DefaultGroups*groupSlots*8/10 {
				t.Fatalf("copies %d: made a mark: %v, relied on one: %v", copies, made, relied)
			}
			a, class, err := k.NewBlock(record.MakeTxID(1, uint64(n+1)), key(n), nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := k.Resolve(key(n)); err != nil {
				t.Fatal(err)
			}
			q := &k.Query
			l := words(k.C.Thread(), q.Local)
			was := marked(q, l)
			read := q.State[stBoth] != 0
			before := *k.C.Count
			if err := ix.Insert(k.C, q, a, class); err != nil {
				t.Fatal(err)
			}
			d := k.C.Count.Sub(&before)
			own, _ := ownSlot(ix.matches(k.C, &scratch{}, q), a)
			// The slot, on the primary; on the backups, with the search that follows.
			trips, verbs := uint64(2), uint64(copies+2)
			// it has looked at the second, and was put into the first
			if !isSecond(own.line) && !read && d.Total() == verbs+1 {
				trips, verbs = 3, verbs+1
			}
			if len(q.Candidates) > 1 { // the other's block, twice, and a second search between
				continue
			}
			if isSecond(own.line) {
				if !read {
					trips, verbs = trips+1, verbs+1
				}
				switch {
				case !was: // the mark on the primary, then on the backups
					made = true
					trips, verbs = trips+1+min(1, uint64(copies-1)), verbs+uint64(copies)
				case copies > 1: // it is on all copies
					relied = true
					trips, verbs = trips+1, verbs+uint64(copies)
				default:
					relied = true
				}
			}
			if d.RoundTrips != trips || d.Total() != verbs {
				t.Fatalf("copies %d, key %d, second choice %v, marked %v: %d round trips, %d verbs; %d and "+
					"%d are enough",
					copies, n, isSecond(own.line), was, d.RoundTrips, d.Total(), trips, verbs)
			}
		}
	}
}

// TestHeaderAfter: the order in which a header takes its values.
func TestHeaderAfter(t *testing.T) {
	h := MakeHeader(7, 3, 0b101)
	a, b := SpillBit(0), SpillBit(255)
	deeper := MakeHeader(7, 4, 0b1101)
	order := []Header{h, h | a, h | a | b, deeper | a | b | headerRecount, deeper | a, deeper | a | b}
	for i, x := range order {
		for j, y := range order {
			want := i >= j
			if i == j {
				want = !x.Recount() // never asked: a word that holds the new value is done
			}
			if x.after(y) != want {
				t.Errorf("%v after %v: %v", x, y, !want)
			}
		}
	}
	for _, o := range []Header{
		MakeHeader(8, 3, 0b101), MakeHeader(7, 3, 0b100), MakeHeader(7, 4, 0b1100), 0, ^Header(0),
	} {
		if o.after(h) {
			t.Errorf("%#x comes after %v", uint64(o), h)
		}
	}
	for fp := range 256 {
		bit := SpillBit(uint8(fp))
		if bit&spillMask == 0 || bit&(bit-1) != 0 || !(h | bit).Spills(uint8(fp)) || (h|bit).Base() != h ||
			h.Spills(uint8(fp)) {
			t.Fatalf("bit %#x of fingerprint %d", uint64(bit), fp)
		}
	}
}
