package log_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"txnode/log"
	"txnode/memory/layout"
	"txnode/memory/record"
)

// entry is what a test puts into a record.
type entry struct {
	kind  log.EntryKind
	addr  layout.Addr
	prev  record.TxID
	from  layout.Addr
	freed uint64
	image []byte
	room  int // bytes reserved, at least len(image)
}

// build lays out a record the way a transaction does: images first, entries when
// it commits.
func build(kind log.Kind, tx record.TxID, generation uint32, entries []entry) []byte {
	var b log.Builder
	b.Reset()
	var buf []byte
	at := make([]int, len(entries))
	for i, e := range entries {
		room := max(e.room, len(e.image))
		buf = append(buf, make([]byte, b.Need(room)-len(buf))...)
		for k := b.Len(); k < len(buf); k++ {
			buf[k] = 0xee // what was there before
		}
		at[i] = b.Add(buf, room)
		copy(buf[at[i]:], e.image)
	}
	if len(buf) == 0 {
		buf = make([]byte, log.HeaderSize)
	}
	for i, e := range entries {
		if e.kind == log.Dead {
			b.Kill(buf, at[i])
		} else {
			b.Set(buf, at[i], e.kind, e.addr, e.prev, uint64(e.from)+e.freed, len(e.image))
		}
	}
	return buf[:b.Finish(buf, kind, tx, generation, 0)]
}

// image is the image of a small record.
func image(a layout.Addr, v record.TxID, state record.State, key, value string) []byte {
	n := record.Size(len(key), len(value))
	img := make(record.Image, n)
	class, _ := record.ClassFor(len(key), len(value))
	img.Put(a, v, state, 3, class, 0, []byte(key), []byte(value))
	return img
}

// sample is a record with an entry of every kind.
func sample(kind log.Kind) []byte {
	at := func(seg, off uint32) layout.Addr { return layout.MakeAddr(layout.SegmentID(seg), off) }
	tx, before := record.MakeTxID(7, 42), record.MakeTxID(3, 9)
	v := tx
	if kind == log.Undo {
		v = before
	}
	return build(kind, tx, 5, []entry{
		{kind: log.Update, addr: at(2, 0x80), prev: before, image: image(at(2, 0x80), v, record.Live,
			"account1", "00001000")},
		{kind: log.Dead, image: nil, room: 72},
		{kind: log.Move, addr: at(4, 0x100), prev: before, from: at(2, 0xc0), image: image(at(4, 0x100), v, record.Live,
			"grown", strings.Repeat("v", 30)), room: 200},
		{
			kind: log.Update, addr: at(2, 0x40), freed: 8<<40 + 5,
			image: image(at(2, 0x40), v, record.Absent, "gone", ""),
		},
	})
}

// fresh is a record of a transaction that splits a node: the left part stays in its block, and a
// new block gets the right part.
func fresh() []byte {
	at := func(off uint32) layout.Addr { return layout.MakeAddr(2, off) }
	tx := record.MakeTxID(7, 42)
	return build(log.Redo, tx, 5, []entry{
		{
			kind: log.Update, addr: at(0x80), prev: record.MakeTxID(3, 9), freed: 8<<40 + 5,
			image: image(at(0x80), tx, record.Node, "", "left"),
		},
		{kind: log.New, addr: at(0x100), freed: 8<<40 + 5, image: image(at(0x100), tx, record.Node, "",
			strings.Repeat("right", 10))},
	})
}

// TestNew: what a New is, and what none is.
func TestNew(t *testing.T) {
	r, err := log.Decode(fresh())
	if err != nil || len(r.Entries) != 2 {
		t.Fatalf("%+v, %v", r, err)
	}
	e := r.Entries[1]
	if e.Kind != log.New || e.Addr != layout.MakeAddr(2, 0x100) || e.Prev != 0 || e.From != 0 || e.Freed != 8<<40+5 ||
		e.Image.Meta().State() != record.Node {
		t.Errorf("%+v", e)
	}
	const a = 128
	tx := record.MakeTxID(7, 42)
	free := image(a, tx, record.Absent, "", "")
	record.Image(free).PutFree(a, tx, 3, 0, 1)
	for _, c := range []struct {
		name string
		kind log.Kind
		prev record.TxID
		img  []byte
		ok   bool
	}{
		{"a row", log.Redo, 0, image(a, tx, record.Live, "k", "v"), true},
		{"in an undo record", log.Undo, 0, image(a, tx, record.Node, "", "x"), false},
		{"of a block that had something", log.Redo, record.MakeTxID(3, 9), image(a, tx, record.Node, "", "x"), false},
		{"of a free image", log.Redo, 0, free, false},
		{
			"of the image of another transaction", log.Redo, 0, image(a, record.MakeTxID(3, 9), record.Node, "", "x"),
			false,
		},
		{"a node with a key", log.Redo, 0, image(a, tx, record.Node, "k", "x"), false},
	} {
		_, err := log.Decode(build(c.kind, tx, 0, []entry{{kind: log.New, addr: a, prev: c.prev, image: c.img}}))
		if (err == nil) != c.ok || err != nil && !errors.Is(err, log.ErrTorn) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// TestOtherFormat: a whole record of another release is told from none, with its
// transaction and length.
func TestOtherFormat(t *testing.T) {
	p := sample(log.Redo)
	for _, format := range []byte{3, 5} {
		p[4] = format
		if _, err := log.Decode(p); !errors.Is(err, log.ErrTorn) {
			t.Errorf("format %d, with a wrong checksum: %v", format, err)
		}
		log.Reseal(p)
		if r, err := log.Decode(p); !errors.Is(err, log.ErrFormat) || r.Tx != record.MakeTxID(7, 42) ||
			r.Length != len(p) {
			t.Errorf("format %d: %v, %+v", format, err, r)
		}
	}
}

func TestDecode(t *testing.T) {
	p := sample(log.Redo)
	for _, behind := range []int{0, 8, 1000} { // in a ring, something follows
		r, err := log.Decode(append(bytes.Clone(p), make([]byte, behind)...))
		if err != nil {
			t.Fatal(err)
		}
		if r.Kind != log.Redo || r.Tx != record.MakeTxID(7, 42) || r.Generation != 5 || r.Length != len(p) ||
			len(r.Entries) != 3 {
			t.Fatalf("%+v", r)
		}
		for i, want := range []struct {
			kind  log.EntryKind
			key   string
			from  layout.Addr
			prev  record.TxID
			freed uint64
		}{
			{log.Update, "account1", 0, record.MakeTxID(3, 9), 0},
			{log.Move, "grown", layout.MakeAddr(2, 0xc0), record.MakeTxID(3, 9), 0},
			{log.Update, "gone", 0, 0, 8<<40 + 5},
		} {
			e := r.Entries[i]
			if e.Kind != want.kind || e.From != want.from || e.Prev != want.prev || e.Freed != want.freed {
				t.Errorf("entry %d: %+v", i, e)
			}
			if need, err := e.Image.Check(e.Addr); err != nil || need != len(e.Image) ||
				string(e.Image.Key()) != want.key {
				t.Errorf("entry %d: image of %q: %d of %d bytes, %v", i, e.Image.Key(), need, len(e.Image), err)
			}
		}
	}
}

// TestEveryBit flips every bit of a record: none of them is without meaning, not even in
// the room that images do not fill, since another record may have overwritten it.
func TestEveryBit(t *testing.T) {
	for _, p := range [][]byte{sample(log.Undo), fresh()} {
		everyBit(t, p)
	}
}

func everyBit(t *testing.T, p []byte) {
	t.Helper()
	for i := range p {
		for bit := range 8 {
			p[i] ^= 1 << bit
			if r, err := log.Decode(p); err == nil {
				t.Fatalf("bit %d of byte %d is flipped, and the record is accepted: %+v", bit, i, r)
			} else if !errors.Is(err, log.ErrTorn) && !errors.Is(err, log.ErrNoRecord) {
				t.Fatalf("bit %d of byte %d: %v", bit, i, err)
			}
			p[i] ^= 1 << bit
		}
	}
	if _, err := log.Decode(p); err != nil {
		t.Fatal(err)
	}
}

// TestTornRecords: whatever prefix of a record has arrived over an older one, it
// is not taken for a record.
func TestTornRecords(t *testing.T) {
	older, newer := sample(log.Undo), sample(log.Redo)
	binary.LittleEndian.PutUint64(older[8:], uint64(record.MakeTxID(7, 41)))
	log.Reseal(older)
	for n := 0; n <= len(newer); n += 8 {
		p := append(bytes.Clone(newer[:n]), older[n:]...)
		r, err := log.Decode(p)
		switch {
		case n == 0 && (err != nil || r.Tx.Seq() != 41),
			n == len(newer) && (err != nil || r.Tx.Seq() != 42),
			n > 0 && n < len(newer) && !bytes.Equal(p, newer) && !bytes.Equal(p, older) && err == nil:
			t.Errorf("%d of %d bytes have arrived: %v, %v", n, len(newer), r.Tx, err)
		}
	}
	for n := range newer {
		if _, err := log.Decode(newer[:n:n]); !errors.Is(err, log.ErrNoRecord) && !errors.Is(err, log.ErrTorn) {
			t.Fatalf("the first %d bytes: %v", n, err)
		}
	}
}

// TestImpossible: headers and entries that no builder makes, under a checksum
// that is right.
func TestImpossible(t *testing.T) {
	const first = log.HeaderSize // the first entry
	u64 := binary.LittleEndian.PutUint64
	u32 := binary.LittleEndian.PutUint32
	for _, c := range []struct {
		name, want string
		damage     func(p []byte)
	}{
		{"unknown kind", "kind 3", func(p []byte) { p[5] = 3 }},
		{"no kind", "kind 0", func(p []byte) { p[5] = 0 }},
		{"other magic", "no record", func(p []byte) { p[0]++ }},
		{"length of nothing", "no record", func(p []byte) { u32(p[16:], 24) }},
		{"uneven length", "no record", func(p []byte) { u32(p[16:], uint32(len(p))-1) }},
		{"longer than what is there", "claims", func(p []byte) { u32(p[16:], 1<<31) }},
		{"shorter than its entries", "entry", func(p []byte) { u32(p[16:], uint32(len(p))-64) }},
		{"fewer entries", "behind the last entry", func(p []byte) { p[6]-- }},
		{"more entries", "cut off", func(p []byte) { p[6]++ }},
		{"entry of kind 0", "entry 0 has kind 0", func(p []byte) { p[first+6] = 0 }},
		{"entry of unknown kind", "entry 0 has kind 5", func(p []byte) { p[first+6] = 5 }},
		{"bits above the kind", "entry 0", func(p []byte) { p[first+7] = 1 }},
		{"image of half a line", "image of 32 bytes", func(p []byte) { u32(p[first+16:], 32) }},
		{"image longer than its room", "image of 72 bytes in 64", func(p []byte) { u32(p[first+16:], 72) }},
		{"room beyond the end", "in 4294967288", func(p []byte) { u32(p[first+20:], 1<<32-8) }},
		{"room a word beyond the end", "in 72", func(p []byte) { u32(p[first+32+64+32+72+32+200+20:], 72) }},
		{"image of another block", "image of entry 0", func(p []byte) { p[first] ^= 64 }},
		{"image with more behind it", "image of entry 2", func(p []byte) { u32(p[first+32+64+32+72+16:], 112) }},
		{"uneven room", "in 65", func(p []byte) { u32(p[first+20:], 65) }},
		{"old block of 64 bits", "entry 2", func(p []byte) { u64(p[first+32+64+32+72+24:], 1<<63) }},
	} {
		p := sample(log.Redo)
		c.damage(p)
		log.Reseal(p)
		if r, err := log.Decode(p); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %+v, %v", c.name, r, err)
		}
	}
	if _, err := log.Peek(make([]byte, 4096)); !errors.Is(err, log.ErrNoRecord) {
		t.Errorf("zeros: %v", err)
	}
}

func TestPeek(t *testing.T) {
	p := sample(log.Redo)
	if n, err := log.Peek(p[:log.HeaderSize]); n != len(p) || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if _, err := log.Peek(p[:log.HeaderSize-1]); !errors.Is(err, log.ErrNoRecord) {
		t.Errorf("%v", err)
	}
}

// drawEntries makes random entries.
func drawEntries(t *rapid.T, kind log.Kind, tx record.TxID) []entry {
	last := log.New
	if kind == log.Undo {
		last = log.Dead
	}
	addr := rapid.Custom(func(t *rapid.T) layout.Addr {
		return layout.MakeAddr(layout.SegmentID(rapid.Uint32Range(1, layout.MaxSegments-1).Draw(t, "segment")),
			rapid.Uint32Range(0, layout.MaxSegmentSize/64-1).Draw(t, "block")*64)
	})
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) entry {
		e := entry{kind: log.EntryKind(rapid.IntRange(int(log.Update), int(last)).Draw(t, "kind"))}
		e.room = rapid.IntRange(0, 300).Draw(t, "room")
		if e.kind == log.Dead {
			return e
		}
		e.addr = addr.Draw(t, "address")
		fill := string(rune(rapid.IntRange('a', 'z').Draw(t, "fill")))
		e.image = image(e.addr, record.MakeTxID(1, 2), record.Live, "key",
			strings.Repeat(fill, rapid.IntRange(0, 240).Draw(t, "value")))
		e.prev = record.MakeTxID(rapid.Uint32Range(0, 1<<24-1).Draw(t, "coordinator"),
			rapid.Uint64().Draw(t, "sequence"))
		switch e.kind {
		case log.Move:
			e.from = addr.Draw(t, "from")
		case log.New:
			e.prev, e.freed = 0, rapid.Uint64().Draw(t, "freed")
			value := strings.Repeat(fill, rapid.IntRange(0, 240).Draw(t, "node"))
			e.image = image(e.addr, tx, record.Node, "", value)
		}
		return e
	}), 0, 12).Draw(t, "entries")
}

// TestRoundTrip: what was built is what is decoded, without the dead.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kind := rapid.SampledFrom([]log.Kind{log.Redo, log.Undo}).Draw(t, "record")
		tx, generation := record.MakeTxID(1, rapid.Uint64().Draw(t, "tx")), rapid.Uint32().Draw(t, "generation")
		entries := drawEntries(t, kind, tx)
		p := build(kind, tx, generation, entries)
		r, err := log.Decode(p)
		if err != nil {
			t.Fatal(err)
		}
		if r.Kind != kind || r.Tx != tx || r.Generation != generation || r.Length != len(p) {
			t.Fatalf("%+v", r)
		}
		for _, want := range entries {
			if want.kind == log.Dead {
				continue
			}
			if len(r.Entries) == 0 {
				t.Fatalf("%+v is missing", want)
			}
			got := r.Entries[0]
			r.Entries = r.Entries[1:]
			if got.Kind != want.kind || got.Addr != want.addr || got.Prev != want.prev || got.From != want.from ||
				got.Freed != want.freed || !bytes.Equal(got.Image, want.image) {
				t.Fatalf("%+v\n%+v", got, want)
			}
		}
		if len(r.Entries) != 0 {
			t.Fatalf("%d entries too many", len(r.Entries))
		}
	})
}

// TestBuilder: room, replacement, and what a builder says of itself.
func TestBuilder(t *testing.T) {
	var b log.Builder
	b.Reset()
	if b.Len() != log.HeaderSize || b.Entries() != 0 {
		t.Fatalf("an empty record has %d bytes, %d entries", b.Len(), b.Entries())
	}
	buf := make([]byte, 4096)
	need := b.Need(65)
	one := b.Add(buf, 65)
	if b.Len() != need || need != log.HeaderSize+log.EntryHeaderSize+72 || log.Room(buf, one) != 72 {
		t.Fatalf("room of %d for 65 bytes, record of %d, needed %d", log.Room(buf, one), b.Len(), need)
	}
	// An entry that is never set is dead.
	two := b.Add(buf, 64)
	if two != one+72+log.EntryHeaderSize || b.Entries() != 2 {
		t.Fatalf("second image at %d, first at %d", two, one)
	}
	copy(buf[one:], image(64, 2, record.Live, "k", "v"))
	b.Set(buf, one, log.Update, 64, 1, 0, 64)
	n := b.Finish(buf, log.Redo, 2, 1, 0)
	if r, err := log.Decode(buf[:n]); err != nil || len(r.Entries) != 1 || r.Entries[0].Addr != 64 {
		t.Fatalf("%+v, %v", r, err)
	}
	b.Kill(buf, one)
	if log.Room(buf, one) != 72 {
		t.Errorf("a killed entry has room of %d", log.Room(buf, one))
	}
	n = b.Finish(buf, log.Redo, 2, 1, 0)
	if r, err := log.Decode(buf[:n]); err != nil || len(r.Entries) != 0 {
		t.Fatalf("%+v, %v", r, err)
	}
}

// TestMostEntries fills a record with as many entries as it can count.
func TestMostEntries(t *testing.T) {
	if testing.Short() {
		t.Skip("a record of 6 MiB")
	}
	img := image(64, 2, record.Live, "k", "v")
	buf := make([]byte, log.HeaderSize+log.MaxEntries*(log.EntryHeaderSize+len(img)))
	var b log.Builder
	b.Reset()
	for range log.MaxEntries {
		at := b.Add(buf, len(img))
		copy(buf[at:], img)
		b.Set(buf, at, log.Update, 64, 1, 0, len(img))
	}
	if r, err := log.Decode(buf[:b.Finish(buf, log.Redo, 2, 1, 0)]); err != nil || len(r.Entries) != log.MaxEntries {
		t.Fatalf("%d entries, %v", len(r.Entries), err)
	}
}

// TestFits: an entry fits as long as the buffer has room for it, and the header counts it.
func TestFits(t *testing.T) {
	var b log.Builder
	b.Reset()
	b.Add(make([]byte, 4096), 64)
	for _, size := range []int{0, 64, 128} {
		if n := b.Need(size); !b.Fits(size, n) || b.Fits(size, n-1) {
			t.Errorf("an image of %d bytes: fits %d bytes: %v, one less: %v",
				size, n, b.Fits(size, n), b.Fits(size, n-1))
		}
	}
	var e log.EntryHeader
	for b.Entries() < log.MaxEntries {
		if !b.Fits(64, 1<<30) {
			t.Fatalf("no room behind %d entries", b.Entries())
		}
		b.AddLine(&e)
	}
	if b.Fits(64, 1<<30) {
		t.Errorf("an entry fits that the header cannot count")
	}
}

// TestLines: what is laid out for images of one line is, byte for byte, what is for any.
func TestLines(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 5).Draw(t, "entries")
		tx := record.MakeTxID(7, rapid.Uint64Range(1, 99).Draw(t, "sequence"))
		generation, ahead := rapid.Uint32Range(0, 9).Draw(t, "generation"), rapid.Uint64Range(0, 99).Draw(t, "ahead")
		var every, lines log.Builder
		every.Reset()
		lines.Reset()
		// what was there before
		want := bytes.Repeat([]byte{0xee}, log.HeaderSize+n*(log.EntryHeaderSize+record.LineSize))
		got := bytes.Clone(want)
		header := func(at int) *log.EntryHeader { return (*log.EntryHeader)(got[at:]) }
		at := make([]int, n)
		for i := range at {
			e := header(lines.Len())
			at[i] = every.Add(want, record.LineSize)
			if k := lines.AddLine(e); k != at[i] || lines.Len() != every.Len() ||
				!bytes.Equal(want[:at[i]], got[:at[i]]) {
				t.Fatalf("entry %d at %d, of lines %d:\n%x\n%x", i, at[i], k, want[:at[i]], got[:at[i]])
			}
			img := image(layout.MakeAddr(2, uint32(64*i)), tx, record.Live, "k", fmt.Sprint(i))
			copy(want[at[i]:], img)
			copy(got[at[i]:], img)
		}
		sums := uint64(0)
		for i, at := range at {
			addr, prev := layout.MakeAddr(2, uint32(64*i)),
				record.MakeTxID(3, rapid.Uint64Range(0, 9).Draw(t, "version"))
			freed := rapid.Uint64().Draw(t, "freed")
			every.Set(want, at, log.Update, addr, prev, freed, record.LineSize)
			h := at - log.EntryHeaderSize
			sums ^= log.SetLine(header(h), uint32(h), addr, prev, tx, freed, record.Image(got[at:]).Checksum())
		}
		k := every.Finish(want, log.Redo, tx, generation, ahead)
		if m := lines.FinishLines(header(0), log.Redo, tx, generation, ahead, sums); m != k || !bytes.Equal(want, got) {
			t.Fatalf("%d bytes, of lines %d:\n%x\n%x", k, m, want, got)
		}
	})
}

func TestBuildDoesNotAllocate(t *testing.T) {
	buf := make([]byte, 1024)
	img := image(64, 2, record.Live, "k", "v")
	var b log.Builder
	if n := testing.AllocsPerRun(100, func() {
		b.Reset()
		at := b.Add(buf, len(img))
		copy(buf[at:], img)
		b.Set(buf, at, log.Update, 64, 1, 0, len(img))
		b.Finish(buf, log.Redo, 2, 1, 0)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// Example writes a record and reads it back.
func Example() {
	addr := layout.MakeAddr(2, 0x80)
	tx, before := record.MakeTxID(7, 42), record.MakeTxID(3, 9)
	key, value := []byte("account1"), []byte("00001000")
	size := record.Size(len(key), len(value))

	var b log.Builder
	b.Reset()
	buf := make([]byte, b.Need(size)) // of a registered arena, usually
	at := b.Add(buf, size)
	record.Image(buf[at:at+size]).Put(addr, tx, record.Live, 3, 0, 0, key, value)
	b.Set(buf, at, log.Update, addr, before, 0, size)
	n := b.Finish(buf, log.Redo, tx, 1, 0)

	r, err := log.Decode(buf[:n])
	if err != nil {
		panic(err)
	}
	for _, e := range r.Entries {
		fmt.Printf("transaction %v replaces %v of %s by %s\n", r.Tx, e.Prev, e.Image.Key(), e.Image.Value())
	}
	// Output: transaction c7.42 replaces c3.9 of account1 by 00001000
}

// TestAhead: a record says how many ids were drawn since its own: exactly, if they are
// few; never less, and less than twice as many, or, of so many that nobody has them in
// flight, all.
func TestAhead(t *testing.T) {
	var b log.Builder
	for _, ahead := range []uint64{0, 1, 2, 3, 4, 30, 31, 32, 33, 63, 64, 100, 1<<36 - 1, 1 << 36, record.MaxSequence} {
		most := 2 * ahead
		switch {
		case ahead < 32:
			most = ahead
		case ahead >= 1<<36:
			most = record.MaxSequence
		}
		for _, kind := range []log.Kind{log.Redo, log.Undo} {
			b.Reset()
			buf := make([]byte, log.HeaderSize)
			r, err := log.Decode(buf[:b.Finish(buf, kind, 2, 1, ahead)])
			if err != nil || r.Kind != kind || r.Ahead < ahead || r.Ahead > most {
				t.Errorf("%d ids ahead of a record of kind %d: %+v, %v", ahead, kind, r, err)
			}
		}
	}
}
