package layout

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

func testHeader() RegionHeader {
	return RegionHeader{
		Blade: 2, Blades: 3, Backups: 1, SegmentSize: 64 << 20, Epoch: 5,
		UUID: UUID{0xa0, 0xa1, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6, 0xa7, 0xa8, 0xa9, 0xaa, 0xab, 0xac, 0xad, 0xae, 0xaf},
		Size: 16 << 30,
	}
}

// TestHeaderDump pins the bytes of a region header, word by word.
func TestHeaderDump(t *testing.T) {
	notes := []string{
		"magic", "version 16 | blade 16 | blades 16 | backups 8", "segment size 32 | epoch 32",
		"uuid", "", "size of the region", "0", "checksum",
	}
	datadriven.RunTest(t, "testdata/header", func(t *testing.T, d *datadriven.TestData) string {
		var i int
		d.ScanArgs(t, "copy", &i)
		h := testHeader()
		var p [RegionHeaderSize]byte
		h.EncodeTo(p[:], i)
		var b strings.Builder
		for w := 0; w < RegionHeaderSize; w += 8 {
			text := strings.Map(func(r rune) rune {
				if r < ' ' || r > '~' {
					return '.'
				}
				return r
			}, string(p[w:w+8]))
			fmt.Fprintf(&b, "%04x  % x  |%s|  %016x  %s\n", HeaderOffset(i)+uint64(w), p[w:w+8], text,
				binary.LittleEndian.Uint64(p[w:]), notes[w/8])
		}
		return strings.ReplaceAll(b.String(), " \n", "\n")
	})
}

// TestJudge: each field of a header counts, and which fault it is.
func TestJudge(t *testing.T) {
	l := &Layout{
		Geometry: Geometry{UUID: UUID{1}, Backups: 1, SegmentSize: 1 << 20}, Epoch: 5, Opened: 3,
		Blades: []Blade{{Size: 10}, {Size: 20}},
	}
	for name, x := range map[string]struct {
		change func(h *RegionHeader)
		want   HeaderFault
	}{
		"as it is":           {func(*RegionHeader) {}, HeaderSound},
		"of an earlier time": {func(h *RegionHeader) { h.Epoch, h.Size = 3, 10 }, HeaderSound},
		"another database's": {func(h *RegionHeader) { h.UUID[0]++ }, HeaderForeign},
		"another blade's":    {func(h *RegionHeader) { h.Blade = 0 }, HeaderMisplaced},
		"of more blades":     {func(h *RegionHeader) { h.Blades++ }, HeaderMisplaced},
		"an old copy":        {func(h *RegionHeader) { h.Epoch = 2 }, HeaderBehind},
		"an old, larger one": {func(h *RegionHeader) { h.Epoch, h.Size, h.Backups = 2, 40, 2 }, HeaderBehind},
		"of more backups":    {func(h *RegionHeader) { h.Backups++ }, HeaderGeometry},
		"of other segments":  {func(h *RegionHeader) { h.SegmentSize *= 2 }, HeaderGeometry},
		"later":              {func(h *RegionHeader) { h.Epoch++ }, HeaderAhead},
		"larger":             {func(h *RegionHeader) { h.Size++ }, HeaderAhead},
	} {
		h := l.HeaderOf(1)
		x.change(&h)
		if got := l.Judge(1, &h); got != x.want {
			t.Errorf("%s: %d, want %d", name, got, x.want)
		}
	}
}

func TestHeaderRoundTrip(t *testing.T) {
	for i := range HeaderCopies {
		h := testHeader()
		var p [RegionHeaderSize]byte
		h.EncodeTo(p[:], i)
		got, blank, err := ParseHeaderCopy(p[:], i)
		if got != h || blank || err != nil {
			t.Errorf("copy %d: %+v, %v, %v", i, got, blank, err)
		}
		if _, _, err := ParseHeaderCopy(p[:], 1-i); !errors.Is(err, ErrDamaged) {
			t.Errorf("copy %d in the place of the other: %v", i, err)
		}
	}
}

func TestHeaderFaults(t *testing.T) {
	var p [RegionHeaderSize]byte
	if _, blank, err := ParseHeaderCopy(p[:], 0); !blank || err != nil {
		t.Errorf("zeroes: blank %v, %v", blank, err)
	}
	h := testHeader()
	for bit := range RegionHeaderSize * 8 {
		h.EncodeTo(p[:], 0)
		p[bit/8] ^= 1 << (bit % 8)
		want := ErrDamaged
		if bit < 64 {
			want = ErrForeign
		}
		if _, blank, err := ParseHeaderCopy(p[:], 0); blank || !errors.Is(err, want) {
			t.Errorf("bit %d flipped: blank %v, %v", bit, blank, err)
		}
	}
	h.EncodeTo(p[:], 0)
	p[8]++
	reseal(p[:], 0)
	if _, _, err := ParseHeaderCopy(p[:], 0); !errors.Is(err, ErrFormat) {
		t.Errorf("a later version: %v", err)
	}
}

func TestParseRegionHeader(t *testing.T) {
	old, cur := testHeader(), testHeader()
	cur.Epoch++
	region := func(a, b *RegionHeader) []byte {
		p := make([]byte, 8192)
		for i, h := range []*RegionHeader{a, b} {
			if h != nil {
				h.EncodeTo(p[HeaderOffset(i):], i)
			}
		}
		return p
	}
	damaged := func(p []byte, at ...int) []byte {
		for _, i := range at {
			p[i] ^= 1
		}
		return p
	}
	for name, c := range map[string]struct {
		p    []byte
		want RegionHeader
		err  error
	}{
		"both":           {region(&cur, &cur), cur, nil},
		"first is newer": {region(&cur, &old), cur, nil},
		"first only":     {region(&old, nil), old, nil},
		"second only":    {region(nil, &old), old, nil},
		"first damaged":  {damaged(region(&cur, &old), 20), old, nil},
		"second damaged": {damaged(region(&old, &cur), 4096), old, nil},
		"both damaged":   {damaged(region(&old, &cur), 20, 4116), RegionHeader{}, ErrDamaged},
		"no header":      {damaged(region(&old, &cur), 0, 4096), RegionHeader{}, ErrForeign},
		"blank":          {region(nil, nil), RegionHeader{}, ErrNotFormatted},
		"short":          {region(&cur, &cur)[:4100], RegionHeader{}, ErrDamaged},
		"nothing":        {nil, RegionHeader{}, ErrDamaged},
	} {
		if h, err := ParseRegionHeader(c.p); !errors.Is(err, c.err) || c.err == nil && (err != nil || h != c.want) {
			t.Errorf("%s: %+v, %v", name, h, err)
		}
	}
}

func FuzzHeader(f *testing.F) {
	h := testHeader()
	var p [RegionHeaderSize]byte
	h.EncodeTo(p[:], 1)
	f.Add(p[:], false)
	f.Add(p[:], true)
	f.Add(make([]byte, RegionHeaderSize), true)
	f.Fuzz(func(t *testing.T, p []byte, fix bool) {
		if len(p) < RegionHeaderSize {
			return
		}
		p = append([]byte(nil), p[:RegionHeaderSize]...)
		if fix {
			binary.LittleEndian.PutUint64(p, regionMagic)
			reseal(p, 1)
		}
		h, blank, err := ParseHeaderCopy(p, 1)
		if err != nil || blank {
			return
		}
		// What was accepted says everything that is in the bytes, but for those
		// that are reserved.
		var again [RegionHeaderSize]byte
		h.EncodeTo(again[:], 1)
		p[15], p[48], p[49], p[50], p[51], p[52], p[53], p[54], p[55] = 0, 0, 0, 0, 0, 0, 0, 0, 0
		reseal(p, 1)
		if string(again[:]) != string(p) {
			t.Fatalf("% x is decoded as %+v, which is % x", p, h, again)
		}
	})
}

// TestCatalogDump pins the bytes of the catalog's entries.
func TestCatalogDump(t *testing.T) {
	l := &Layout{
		Geometry:  Geometry{UUID: testHeader().UUID, Backups: 1, SegmentSize: 1 << 20, LogArea: 1 << 20},
		Formatted: true, Epoch: 3, NextCoordinator: 18,
		Blades: []Blade{{
			Size: HeaderArea + 4<<20, Used: 3, Key: 0xa1a2a3a4, Incarnation: 0xb1b2b3b4b5b6b7b8, Told: 0xc1c2c3,
		}, {Size: HeaderArea + 4<<20, Used: 3, State: BladeDown}},
		Segments: []Segment{
			{},
			{Kind: KindLog, Placement: Placement{N: 1, Replicas: [3]Replica{{0, HeaderArea}}}},
			{Kind: KindLog, Placement: Placement{}},
			{
				Kind:      KindIndex,
				Placement: Placement{N: 2, Replicas: [3]Replica{{0, HeaderArea + 1<<20}, {1, HeaderArea + 1<<20}}},
			},
			{
				Kind: KindBlocks, Class: 9,
				Placement: Placement{N: 2, Replicas: [3]Replica{{1, HeaderArea + 2<<20}, {0, HeaderArea + 2<<20}}},
			},
		},
		Tables:       []Table{{ID: 1, Name: "accounts", Root: MakeAddr(3, 8192), Options: []byte("opaque")}},
		Coordinators: []CoordinatorEntry{{ID: 17, Slot: 0}},
	}
	if err := l.Validate(); err != nil {
		t.Fatal(err)
	}
	datadriven.RunTest(t, "testdata/catalog", func(t *testing.T, d *datadriven.TestData) string {
		var b strings.Builder
		for _, e := range l.Entries() {
			fmt.Fprintf(&b, "%s\n", e.Key)
			for at := 0; at < len(e.Value); at += 8 {
				note := ""
				switch at {
				case 0:
					note = "  kind, version, length"
				case len(e.Value) - 8:
					note = "  checksum"
				}
				fmt.Fprintf(&b, "  %04x  % x%s\n", at, e.Value[at:at+8], note)
			}
		}
		return b.String()
	})
}
