package memory

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
		UUID: UUID{0xa0, 0xa1, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6, 0xa7, 0xa8, 0xa9, 0xaa, 0xab, 0xac, 0xad, 0xae, 0xaf}, Size: 16 << 30,
	}
}

// TestHeaderDump pins the bytes of a region header, word by word.
func TestHeaderDump(t *testing.T) {
	notes := []string{
		"magic", "version 16 | blade 16 | blades 16 | backups 8", "segment size 32 | epoch 32", "uuid", "", "size of the region", "0", "checksum",
	}
	datadriven.RunTest(t, "testdata/header", func(t *testing.T, d *datadriven.TestData) string {
		var i int
		d.ScanArgs(t, "copy", &i)
		h := testHeader()
		var p [regionHeader]byte
		h.encode(p[:], i)
		var b strings.Builder
		for w := 0; w < regionHeader; w += 8 {
			text := strings.Map(func(r rune) rune {
				if r < ' ' || r > '~' {
					return '.'
				}
				return r
			}, string(p[w:w+8]))
			fmt.Fprintf(&b, "%04x  % x  |%s|  %016x  %s\n", headerOffset(i)+uint64(w), p[w:w+8], text, binary.LittleEndian.Uint64(p[w:]), notes[w/8])
		}
		return strings.ReplaceAll(b.String(), " \n", "\n")
	})
}

func TestHeaderRoundTrip(t *testing.T) {
	for i := range headerCopies {
		h := testHeader()
		var p [regionHeader]byte
		h.encode(p[:], i)
		got, blank, err := decodeHeader(p[:], i)
		if got != h || blank || err != nil {
			t.Errorf("copy %d: %+v, %v, %v", i, got, blank, err)
		}
		if _, _, err := decodeHeader(p[:], 1-i); !errors.Is(err, ErrDamaged) {
			t.Errorf("copy %d in the place of the other: %v", i, err)
		}
	}
}

func TestHeaderFaults(t *testing.T) {
	var p [regionHeader]byte
	if _, blank, err := decodeHeader(p[:], 0); !blank || err != nil {
		t.Errorf("zeroes: blank %v, %v", blank, err)
	}
	h := testHeader()
	for bit := range regionHeader * 8 {
		h.encode(p[:], 0)
		p[bit/8] ^= 1 << (bit % 8)
		want := ErrDamaged
		if bit < 64 {
			want = ErrForeign
		}
		if _, blank, err := decodeHeader(p[:], 0); blank || !errors.Is(err, want) {
			t.Errorf("bit %d flipped: blank %v, %v", bit, blank, err)
		}
	}
	h.encode(p[:], 0)
	p[8]++
	reseal(p[:], 0)
	if _, _, err := decodeHeader(p[:], 0); !errors.Is(err, ErrFormat) {
		t.Errorf("a later version: %v", err)
	}
}

func FuzzHeader(f *testing.F) {
	h := testHeader()
	var p [regionHeader]byte
	h.encode(p[:], 1)
	f.Add(p[:], false)
	f.Add(p[:], true)
	f.Add(make([]byte, regionHeader), true)
	f.Fuzz(func(t *testing.T, p []byte, fix bool) {
		if len(p) < regionHeader {
			return
		}
		p = append([]byte(nil), p[:regionHeader]...)
		if fix {
			binary.LittleEndian.PutUint64(p, regionMagic)
			reseal(p, 1)
		}
		h, blank, err := decodeHeader(p, 1)
		if err != nil || blank {
			return
		}
		// What was accepted says everything that is in the bytes, but for those
		// that are reserved.
		var again [regionHeader]byte
		h.encode(again[:], 1)
		p[15], p[48], p[49], p[50], p[51], p[52], p[53], p[54], p[55] = 0, 0, 0, 0, 0, 0, 0, 0, 0
		reseal(p, 1)
		if string(again[:]) != string(p) {
			t.Fatalf("% x is decoded as %+v, which is % x", p, h, again)
		}
	})
}
