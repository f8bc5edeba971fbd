package verify_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"txnode/index/race"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/occ"
	"txnode/rdma"
	"txnode/verify"
)

// dump runs one dump and returns what it wrote.
func dump(t *testing.T, dir string, limit int, run func(d *verify.Dump, db *verify.Database) error) (string, error) {
	t.Helper()
	db, _, done := attach(t, dir, false)
	defer done()
	var b bytes.Buffer
	d := db.NewDump(&b)
	d.Limit = limit
	err := run(d, db)
	return b.String(), err
}

func TestDumpsSayWhatIsThere(t *testing.T) {
	dir := t.TempDir()
	populate(t, dir, variant{2, 1, occ.PolicyDefault}, 200)
	m := dissect(t, dir)
	i := m.live(-1)
	block, slot := m.blocks[i].Addr, m.slots[i]
	img := record.Image(m.get(block, 0, int(m.blocks[i].Class.Size())))
	key := binary.BigEndian.Uint64(img.Key())
	seg := func(k layout.SegmentKind) layout.SegmentID {
		for id := range m.l.Segments {
			if m.l.Segments[id].Kind == k {
				return layout.SegmentID(id)
			}
		}
		return 0
	}
	for name, c := range map[string]struct {
		run  func(d *verify.Dump, db *verify.Database) error
		want []string
	}{
		"region": {func(d *verify.Dump, _ *verify.Database) error { return d.Region(1) },
			[]string{
				`magic "txnoderg"`, "copy 0: intact", "copy 1: intact", "blade 1 of 2, 1 backups",
				"index", "log, row 0",
			}},
		"log segment": {
			func(d *verify.Dump, _ *verify.Database) error { return d.Segment(seg(layout.KindLog)) },
			[]string{"log area of nobody"},
		},
		"index segment": {
			func(d *verify.Dump, _ *verify.Database) error { return d.Segment(seg(layout.KindIndex)) },
			[]string{"sub-table of table", "root of the index of table 1"},
		},
		"block segment": {
			func(d *verify.Dump, _ *verify.Database) error { return d.Segment(block.Segment()) },
			[]string{"never used", " 0 damaged", "live, version"},
		},
		"root": {
			func(d *verify.Dump, _ *verify.Database) error { return d.Bucket(m.ix.Root()) },
			[]string{"root of an index", "global depth", "entry 0: depth"},
		},
		"sub-table": {func(d *verify.Dump, _ *verify.Database) error {
			return d.Bucket(race.Entry(m.word(m.entry(1), 0)).Table())
		}, []string{"TXNSUBTB", "lock: free"}},
		"bucket": {
			func(d *verify.Dump, _ *verify.Database) error { return d.Bucket(slot) },
			[]string{block.String(), fmt.Sprintf("key %016x", key), "header: depth"},
		},
		"record": {func(d *verify.Dump, _ *verify.Database) error { return d.Record(block + 8) },
			[]string{"live, table 1", "checksum: matches", fmt.Sprintf("key %016x", key), "guard: free at version " +
				img.Version().String(), "copy 1: " + m.v.At(block, 1).String() + ": the same bytes"}},
		"key": {func(d *verify.Dump, db *verify.Database) error {
			table, err := db.Table("numbers")
			if err != nil {
				return err
			}
			k, err := db.ParseKey(table, fmt.Sprint(key))
			if err != nil {
				return err
			}
			return d.Key(table, k)
		}, []string{fmt.Sprintf("the slot at %v points to %v", slot, block)}},
		"tx": {
			func(d *verify.Dump, _ *verify.Database) error { return d.Tx(img.Version()) },
			[]string{"coordinator that was closed", block.String(), "have its version or its lock"},
		},
	} {
		out, err := dump(t, dir, 0, c.run)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, w := range c.want {
			if !strings.Contains(out, w) {
				t.Errorf("%s: %q is not in\n%.3000s", name, w, out)
			}
		}
	}
	for _, c := range []func(d *verify.Dump, db *verify.Database) error{
		func(d *verify.Dump, _ *verify.Database) error { return d.Region(2) },
		func(d *verify.Dump, _ *verify.Database) error { return d.Segment(0) },
		func(d *verify.Dump, _ *verify.Database) error { return d.Segment(9999) },
		func(d *verify.Dump, _ *verify.Database) error { return d.Bucket(block) },
		func(d *verify.Dump, _ *verify.Database) error { return d.Record(slot) },
		func(d *verify.Dump, _ *verify.Database) error { return d.Record(1 << 60) },
		func(d *verify.Dump, _ *verify.Database) error { d.Copy = 2; return d.Record(block) },
		func(d *verify.Dump, _ *verify.Database) error { return d.Log(1, 0) },
		func(d *verify.Dump, _ *verify.Database) error { return d.Log(99999, 0) },
		func(d *verify.Dump, _ *verify.Database) error { return d.Tx(0) },
		func(d *verify.Dump, db *verify.Database) error {
			table, _ := db.Table("2")
			return d.Key(table, []byte("no such key"))
		},
		func(_ *verify.Dump, db *verify.Database) error { _, err := db.Table("nobody"); return err },
	} {
		if out, err := dump(t, dir, 0, c); !errors.Is(err, verify.ErrNoSuch) {
			t.Errorf("%v\n%s", err, out)
		}
	}
}

// TestGarbage puts random bytes, and bytes that are nearly right, over all parts of a
// database: the walk ends with findings, with and without repair, and every dump of
// it ends.
func TestGarbage(t *testing.T) {
	dir := t.TempDir()
	populate(t, dir, variant{2, 1, occ.PolicyDefault}, 100)
	m := dissect(t, dir)
	clean := copyOf(t, dir)
	rounds := 12
	if testing.Short() {
		rounds = 3
	}
	for seed := range rounds {
		m.dir = copyOf(t, clean)
		r := rand.New(rand.NewPCG(uint64(seed), 1))
		for range 1 + r.IntN(60) {
			id := layout.SegmentID(1 + r.IntN(len(m.l.Segments)-1))
			a := layout.MakeAddr(id, r.Uint32N(testSegment/8)*8)
			if r.IntN(2) == 0 { // where something is
				a = layout.MakeAddr(id, r.Uint32N(2048)*8)
			}
			if r.IntN(3) == 0 {
				a = m.slots[r.IntN(len(m.slots))]
			}
			p := make([]byte, min(8<<r.IntN(8), testSegment-a.Offset()))
			for i := range p {
				p[i] = byte(r.Uint32())
			}
			switch r.IntN(4) {
			case 0: // a bit
				p = m.get(a, 0, 8)
				p[r.IntN(8)] ^= 1 << r.IntN(8)
			case 1: // what is right elsewhere
				p = m.get(m.slots[r.IntN(len(m.slots))]&^63, 0, 64)
				p = p[:min(len(p), int(testSegment-a.Offset()))]
			}
			m.put(a, r.IntN(m.v.Copies(a)), p)
		}
		sum, found := check(t, m.dir, false)
		if len(found) == 0 || sum.Clean() {
			t.Errorf("seed %d: nothing found", seed)
		}
		_, left := check(t, m.dir, true)
		_, again := check(t, m.dir, true)
		if len(again) > len(left) {
			t.Logf("seed %d: %d findings, then %d after repair", seed, len(left), len(again))
		}
		db, _, done := attach(t, m.dir, false)
		d := db.NewDump(io.Discard)
		for b := range 2 {
			_ = d.Region(rdma.BladeID(b)) // errors are expected, panics are not
		}
		for id := range m.l.Segments {
			_ = d.Segment(layout.SegmentID(id))
		}
		for range 300 {
			a := layout.MakeAddr(layout.SegmentID(r.IntN(len(m.l.Segments))), r.Uint32N(4096)*8)
			d.Copy = r.IntN(2)
			_, _ = d.Bucket(a), d.Record(a)
		}
		for _, s := range m.slots[:50] {
			_ = d.Bucket(s)
		}
		done()
		m.dirty = nil
	}
}

// TestDumpOfPart shows a part of a directory.
func TestDumpOfPart(t *testing.T) {
	dir := t.TempDir()
	populateOf(t, dir, variant{2, 1, occ.PolicyDefault}, 300, 2)
	m := dissect(t, dir)
	db, _, done := attach(t, dir, false)
	defer done()
	var out strings.Builder
	if err := db.NewDump(&out).Bucket(m.entry(8) - 64); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"part of a directory", "part 3", "entry 8: depth", "entry 15: depth"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, out.String())
		}
	}
}

// TestStopping ends a check by its context and by its reporter.
func TestStopping(t *testing.T) {
	dir := t.TempDir()
	populate(t, dir, variant{2, 1, occ.PolicyDefault}, 50)
	db, _, done := attach(t, dir, false)
	defer func() { done() }()
	ctx, cancel := context.WithCancel(context.Background())
	var last verify.Progress
	_, err := db.Check(ctx, verify.Options{Progress: func(p verify.Progress) {
		last = p
		if p.Stage == "indexes" {
			cancel()
		}
	}})
	if !errors.Is(err, context.Canceled) || last.Done == 0 || last.Done >= last.Total {
		t.Errorf("%v, %+v", err, last)
	}
	_, err = db.Check(context.Background(), verify.Options{Progress: func(p verify.Progress) { last = p }})
	if err != nil || last.Done != last.Total {
		t.Errorf("%v, %+v", err, last)
	}
	done()
	db, _, done = attach(t, dir, true)
	var files []uint64 // a repair reads all of them before anything else
	_, err = db.Check(context.Background(), verify.Options{Repair: true, Progress: func(p verify.Progress) {
		if last = p; p.Stage == "files" {
			files = append(files, p.Done)
		}
	}})
	if err != nil || last.Done != last.Total || len(files) < 3 || !slices.IsSorted(files) ||
		files[len(files)-1] >= last.Total {
		t.Errorf("%v, %+v, %d", err, last, files)
	}
}

func TestParse(t *testing.T) {
	for s, want := range map[string]layout.Addr{
		"seg 3 +0x40": layout.MakeAddr(3, 0x40), "3+0x40": layout.MakeAddr(3, 0x40), " 3 + 64 ": layout.MakeAddr(3, 64),
		"0xc000040": layout.MakeAddr(3, 0x40), "segment 7 +0": layout.MakeAddr(7, 0),
	} {
		if a, err := verify.ParseAddr(s); err != nil || a != want {
			t.Errorf("%q: %v, %v", s, a, err)
		}
		if a, err := verify.ParseAddr(want.String()); err != nil || a != want {
			t.Errorf("%v is not read as it is printed: %v", want, err)
		}
	}
	for _, s := range []string{"", "3", "x+1", "4194304+0", "1+0x4000000", "0x1000000000000", "-1+3"} {
		if a, err := verify.ParseAddr(s); !errors.Is(err, verify.ErrSyntax) {
			t.Errorf("%q: %v, %v", s, a, err)
		}
	}
	id := record.MakeTxID(7, 42)
	for _, s := range []string{
		"c7.42", fmt.Sprint(uint64(id)), fmt.Sprintf("%#x", uint64(id)), fmt.Sprintf("%#x", uint64(record.HeldBy(id))),
	} {
		if x, err := verify.ParseTx(s); err != nil || x != id {
			t.Errorf("%q: %v, %v", s, x, err)
		}
	}
	for _, s := range []string{"", "7.42", "c7", "c16777216.1", "c1.x", "0x"} {
		if x, err := verify.ParseTx(s); !errors.Is(err, verify.ErrSyntax) {
			t.Errorf("%q: %v, %v", s, x, err)
		}
	}
}
