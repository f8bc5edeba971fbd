package race

import (
	"encoding/binary"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"txnode/memory/layout"
	"txnode/memory/record"
)

var rewrite = flag.Bool("rewrite", false, "rewrite testdata")

// annotate dumps lines with what each word means.
func annotate(p []byte, what func(off int, w uint64) string) string {
	var b strings.Builder
	for o := 0; o < len(p); o += 8 {
		b.WriteString(strings.TrimRight(fmt.Sprintf("%4d  % x  %s", o, p[o:o+8], what(o, word(p, o))), " ") + "\n")
	}
	return b.String()
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *rewrite {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s: the layout has changed; if that is meant, raise the format version and run with -rewrite\n%s",
			path, got)
	}
}

func TestGoldenBucket(t *testing.T) {
	p := make([]byte, lineSize)
	put := func(i int, s Slot) { binary.LittleEndian.PutUint64(p[8*i:], uint64(s)) }
	put(0, MakeSlot(0x3f, 2, layout.MakeAddr(1, 0x40)))
	put(1, MakeSlot(0x00, 63, layout.MakeAddr(layout.MaxSegments-1, layout.MaxSegmentSize-64)))
	put(2, slotTrace|0x123456789abc)
	put(4, MakeSlot(0xff, 0, layout.MakeAddr(5, 0))|slotMoving)
	binary.LittleEndian.PutUint64(p[headerOff:],
		uint64(MakeHeader(7, 3, 0b101)|SpillBit(0x3f)|SpillBit(0xff)|headerRecount))
	if _, err := checkBucket(p, 7); err != nil {
		t.Fatal(err)
	}
	golden(t, "bucket.txt", annotate(p, func(o int, w uint64) string {
		if o == headerOff {
			return "header: " + Header(w).String()
		}
		return fmt.Sprintf("slot %d: %v", o/8, Slot(w))
	}))
}

func TestGoldenRoot(t *testing.T) {
	p := make([]byte, rootSize)
	g := Geometry{Groups: 1024, MaxDepth: 14, Table: 7}
	g.putRoot(p)
	binary.LittleEndian.PutUint64(p[depthOff:], 2)
	binary.LittleEndian.PutUint64(p[dirLockOff:], 9<<16|1)
	binary.LittleEndian.PutUint64(p[partsOff:], uint64(layout.MakeAddr(2, 0x80000)))
	for i := range 4 {
		e := MakeEntry(layout.MakeAddr(1, uint32(i&1)*0x40000), 1)
		if i == 3 {
			e = MakeEntry(layout.MakeAddr(2, 0), 2) | entryFilling
		}
		binary.LittleEndian.PutUint64(p[dirOff+8*i:], uint64(e))
	}
	if got, err := ParseRoot(p); err != nil || got != g {
		t.Fatal(got, err)
	}
	golden(t, "root.txt", annotate(p, func(o int, w uint64) string {
		switch {
		case o == rootMagicOff:
			return fmt.Sprintf("magic %q", p[:8])
		case o == rootGeometryOff:
			return fmt.Sprintf("geometry %+v", g)
		case o == rootSumOff:
			return "checksum"
		case o == depthOff:
			return fmt.Sprintf("global depth %d", w)
		case o == dirLockOff:
			return fmt.Sprintf("directory locked by client %d, thread %d", ownerOf(w), w&0xffff)
		case o >= partsOff && o < dirOff && w != 0:
			return fmt.Sprintf("part %d of the directory: %v", rootBits+(o-partsOff)/8, layout.Addr(w))
		case o >= dirOff && w != 0:
			return fmt.Sprintf("entry %02b: %v", (o-dirOff)/8, Entry(w))
		}
		return ""
	}))
}

func TestGoldenPart(t *testing.T) {
	p := make([]byte, partHeader)
	g, root := Geometry{Groups: 1024, MaxDepth: 14, Table: 7}, layout.MakeAddr(1, 0)
	g.putPart(p, root, 3)
	if got, r, k, err := ParsePart(p); err != nil || got != g || r != root || k != 3 {
		t.Fatal(got, r, k, err)
	}
	golden(t, "part.txt", annotate(p, func(o int, w uint64) string {
		switch o {
		case partMagicOff:
			return fmt.Sprintf("magic %q", p[:8])
		case partGeometryOff:
			return fmt.Sprintf("geometry %+v", g)
		case partRootOff:
			return fmt.Sprintf("root %v", layout.Addr(w))
		case partNumberOff:
			return fmt.Sprintf("part %d", w)
		case partSumOff:
			return "checksum"
		}
		return ""
	}))
	for i := range 8 * len(p) {
		p[i/8] ^= 1 << (i % 8)
		if _, _, _, err := ParsePart(p); err == nil {
			t.Errorf("bit %d flipped: no error", i)
		}
		p[i/8] ^= 1 << (i % 8)
	}
	g.putPart(p, root, 14)
	if _, _, _, err := ParsePart(p); err == nil {
		t.Error("part 14 of 14")
	}
}

func TestGoldenSubTable(t *testing.T) {
	p := make([]byte, lineSize)
	b := Birth{
		Geometry: Geometry{Groups: 1024, MaxDepth: 14, Table: 7}, Suffix: 0b11, Depth: 2,
		Parent: layout.MakeAddr(1, 0x40000), Root: layout.MakeAddr(1, 0),
	}
	b.put(p)
	binary.LittleEndian.PutUint64(p[tableLockOff:], 9<<16|1)
	if got, err := ParseBirth(p); err != nil || got != b {
		t.Fatal(got, err)
	}
	golden(t, "subtable.txt", annotate(p, func(o int, w uint64) string {
		switch o {
		case tableMagicOff:
			return fmt.Sprintf("magic %q", p[:8])
		case tableGeometryOff:
			return fmt.Sprintf("geometry %+v", b.Geometry)
		case tableBirthOff:
			return fmt.Sprintf("made with suffix %b of depth %d", uint32(w), w>>32)
		case tableParentOff:
			return fmt.Sprintf("split from %v", layout.Addr(w))
		case tableRootOff:
			return fmt.Sprintf("root %v", layout.Addr(w))
		case tableSumOff:
			return "checksum"
		case tableChildOff:
			return "not being split"
		}
		return fmt.Sprintf("locked by client %d, thread %d", ownerOf(w), w&0xffff)
	}))
}

func TestPlaces(t *testing.T) {
	for _, groups := range []uint32{2, 3, 64, 1024} {
		g := Geometry{Groups: groups, MaxDepth: 1}
		used := map[uint32]int{}
		const n = 20_000
		for i := range n {
			h := record.Hash(3, fmt.Append(nil, i))
			o1, o2 := g.place(h)
			for _, o := range []uint32{o1, o2} {
				if o < tableHeader || o+combinedSize > g.tableSize() || o%lineSize != 0 {
					t.Fatalf("%d groups: place %d of %d bytes", groups, o, g.tableSize())
				}
				if k := mainLine(o); k > 1 {
					t.Fatalf("%d groups: place %d begins with line %d of its group", groups, o, k)
				}
				used[o]++
			}
			if (o1-tableHeader)/groupSize == (o2-tableHeader)/groupSize {
				t.Fatalf("%d groups: hash %#x has both places in one group", groups, h)
			}
		}
		if len(used) != int(2*groups) {
			t.Errorf("%d groups: %d of %d places used", groups, len(used), 2*groups)
		}
		mean := 2 * n / len(used)
		for o, k := range used {
			if mean > 200 && (k < mean*2/3 || k > mean*3/2) {
				t.Errorf("%d groups: place %d used %d times, the mean is %d", groups, o, k, mean)
			}
		}
	}
}

func TestOptions(t *testing.T) {
	for _, o := range []Options{
		{}, {Groups: 2, MaxDepth: 1}, {Keys: 1_000_000}, {Groups: MaxGroups, MaxDepth: MaxMaxDepth},
	} {
		if err := o.Validate(); err != nil {
			t.Errorf("%+v: %v", o, err)
		}
	}
	for _, c := range []struct {
		o    Options
		want []string
	}{
		{Options{Groups: 1, MaxDepth: 21}, []string{"1 groups", "depth 21"}},
		{Options{Groups: MaxGroups + 1}, []string{"groups"}},
		{Options{Groups: 2, MaxDepth: 2, Keys: 1000}, []string{"1000 keys"}},
	} {
		err := c.o.Validate()
		for _, w := range c.want {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("%+v: %v does not mention %q", c.o, err, w)
			}
		}
	}
	if d := (Options{Groups: 1024, MaxDepth: 14, Keys: 1_000_000}).initialDepth(); uint64(1024*21)<<d < 1_000_000 ||
		d > 7 {
		t.Errorf("a million keys start at depth %d", d)
	}
}

// checkBucket decodes a line and reports the first thing that is impossible in it.
func checkBucket(p []byte, table uint16) (Bucket, error) {
	if len(p) < lineSize {
		return Bucket{}, fmt.Errorf("bucket of %d bytes", len(p))
	}
	b := parseBucket(p)
	if err := b.Header.Check(table); err != nil {
		return b, err
	}
	for i, s := range b.Slots {
		if s.Empty() {
			continue
		}
		if err := s.Check(); err != nil {
			return b, fmt.Errorf("slot %d: %w", i, err)
		}
	}
	return b, nil
}

func FuzzBucket(f *testing.F) {
	p := make([]byte, lineSize)
	binary.LittleEndian.PutUint64(p, uint64(MakeSlot(1, 2, layout.MakeAddr(1, 64))))
	binary.LittleEndian.PutUint64(p[headerOff:], uint64(MakeHeader(7, 3, 5)))
	f.Add(p, uint16(7))
	f.Fuzz(func(t *testing.T, p []byte, table uint16) {
		b, err := checkBucket(p, table)
		if err != nil {
			return
		}
		if b.Header.Base() != MakeHeader(table, b.Header.Depth(), b.Header.Suffix()) ||
			!b.Header.Covers(uint64(b.Header.Suffix())) {
			t.Fatalf("header %#x", uint64(b.Header))
		}
		for _, s := range b.Slots {
			if s.Empty() {
				if s.Addr() != 0 {
					t.Fatalf("trace %#x", uint64(s))
				}
				continue
			}
			m := MakeSlot(s.Fingerprint(), s.Class(), s.Addr())
			if s.Moving() {
				m |= slotMoving
			}
			if m != s || s != 0 && (s.Addr() == 0 || s.Class() >= layout.NumClasses || s.Addr()>>layout.AddrBits != 0) {
				t.Fatalf("slot %#x", uint64(s))
			}
		}
	})
}

func FuzzEntry(f *testing.F) {
	f.Add(uint64(MakeEntry(layout.MakeAddr(1, 64), 3)), uint8(4))
	f.Fuzz(func(t *testing.T, w uint64, depth uint8) {
		e := Entry(w)
		if e.Check(depth%(MaxMaxDepth+1)) != nil {
			return
		}
		m := MakeEntry(e.Table(), e.Depth())
		if e.Filling() {
			m |= entryFilling
		}
		if m != e || e.Table() == 0 || e.Depth() > depth {
			t.Fatalf("entry %#x at depth %d", w, depth)
		}
	})
}

func FuzzRoot(f *testing.F) {
	p := make([]byte, lineSize)
	Geometry{Groups: 1024, MaxDepth: 14, Table: 7}.putRoot(p)
	f.Add(p)
	q := make([]byte, lineSize)
	Birth{Geometry: Geometry{Groups: 4, MaxDepth: 14, Table: 7}, Suffix: 1, Depth: 1, Parent: 64, Root: 128}.put(q)
	f.Add(q)
	f.Fuzz(func(t *testing.T, p []byte) {
		if g, err := ParseRoot(p); err == nil {
			q := make([]byte, lineSize)
			g.putRoot(q)
			if g2, err := ParseRoot(q); err != nil || g2 != g || g.Groups < 2 || g.tableSize() > layout.MaxSegmentSize {
				t.Fatal(g, g2, err)
			}
		}
		if b, err := ParseBirth(p); err == nil {
			q := make([]byte, lineSize)
			b.put(q)
			if b2, err := ParseBirth(q); err != nil || b2 != b || b.Depth > b.MaxDepth {
				t.Fatal(b, b2, err)
			}
		}
	})
}
