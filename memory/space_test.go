package memory_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"txnode/memory"
	"txnode/memory/catalog"
	"txnode/memory/layout"
	"txnode/rdma"
)

// poke changes bytes of a blade's region behind the space's back.
func (b *bed) poke(blade rdma.BladeID, off uint64, p []byte) {
	b.tb.Helper()
	t := b.thread()
	buf := must(t.Alloc(len(p)))(b.tb)
	copy(t.Bytes(buf, uint32(len(p))), p)
	var batch rdma.Batch
	batch.Write(rdma.RemoteAddr{Blade: blade, Key: b.fabric.Blades()[blade].Key, Off: off}, buf, uint32(len(p)))
	b.fabric.backing.add(blade, off, uint64(len(p)))
	check(b.tb, t.Plain().Do(&batch))
}

// peek reads bytes of a blade's region.
func (b *bed) peek(blade rdma.BladeID, off uint64, n int) []byte {
	b.tb.Helper()
	return read(b.tb, b.thread().Plain(), rdma.RemoteAddr{Blade: blade, Key: b.fabric.Blades()[blade].Key, Off: off}, n)
}

func TestCreateAndReopen(t *testing.T) {
	for f := range 3 {
		t.Run(fmt.Sprintf("f=%d", f), func(t *testing.T) {
			b := newBed(t, 3, 8, f)
			s, c := b.open()
			if s.Backups() != f || s.SegmentSize() != testSegment || s.Fabric() != rdma.Fabric(b.fabric) ||
				s.View().Epoch != 1 {
				t.Errorf("f=%d, segments of %d, epoch %d", s.Backups(), s.SegmentSize(), s.View().Epoch)
			}
			tab := must(s.CreateTable("t", []byte("options")))(t)
			tab.Options[0] = 'x' // the caller's copy
			root := must(s.AllocExtent(c, 1000))(t)
			check(t, s.SetTableRoot(tab.ID, root))
			if n := s.View().Copies(root); n != f+1 {
				t.Errorf("%d copies", n)
			}
			check(t, s.Close(c))
			for name, err := range map[string]error{
				"CreateTable":      errOf(s.CreateTable("u", nil)),
				"SetTableRoot":     s.SetTableRoot(1, 0),
				"Tables":           errOf(s.Tables()),
				"NewCoordinator":   errOf(s.NewCoordinator()),
				"CloseCoordinator": s.CloseCoordinator(1),
				"Coordinators":     errOf(s.Coordinators()),
				"AllocExtent":      errOf(s.AllocExtent(c, 1)),
				"FreeExtent":       s.FreeAt(root, 1000),
				"NewAllocator":     errOf(s.NewAllocator(c.Thread())),
				"AdvanceEpoch":     s.AdvanceEpoch(nil),
				"Close":            s.Close(c),
			} {
				if !errors.Is(err, memory.ErrClosed) {
					t.Errorf("%s after Close: %v", name, err)
				}
			}
			s, _ = b.open()
			tabs := must(s.Tables())(t)
			if len(tabs) != 1 || tabs[0].Name != "t" || string(tabs[0].Options) != "options" || tabs[0].Root != root {
				t.Errorf("tables %+v", tabs)
			}
			if x := s.Extents(); len(x) != 1 || x[0].Addr != root || x[0].Size != 1024 {
				t.Errorf("extents %+v", x)
			}
		})
	}
}

func errOf[T any](_ T, err error) error { return err }

// TestCopiesAreOnDistinctBlades fills all blades and looks at every segment.
func TestCopiesAreOnDistinctBlades(t *testing.T) {
	for _, x := range []struct{ blades, f int }{{1, 0}, {2, 0}, {2, 1}, {3, 1}, {3, 2}, {5, 1}, {5, 2}} {
		t.Run(fmt.Sprintf("%d blades, f=%d", x.blades, x.f), func(t *testing.T) {
			const segments = 12
			b := newBed(t, x.blades, segments, x.f)
			s, c := b.open()
			a := b.allocator(s, c)
			for i := 0; ; i++ {
				if _, err := a.Alloc(c, class(uint32(100_000+20_000*(i%3)))); errors.Is(err, memory.ErrNoSpace) {
					break
				} else if err != nil {
					t.Fatal(err)
				}
			}
			v := s.View()
			used := make([]int, x.blades)
			primaries := make([]int, x.blades)
			for id := 1; id < v.Segments(); id++ {
				p := v.Placement(layout.SegmentID(id))
				if int(p.N) != x.f+1 {
					t.Errorf("segment %d has %d copies", id, p.N)
				}
				seen := map[rdma.BladeID]bool{}
				for i, r := range p.Replicas[:p.N] {
					if seen[r.Blade] {
						t.Errorf("segment %d has two copies on blade %d", id, r.Blade)
					}
					seen[r.Blade] = true
					used[r.Blade]++
					if i == 0 {
						primaries[r.Blade]++
					}
				}
			}
			// Greedy placement leaves at most the last few places unused.
			full := 0
			for _, n := range used {
				full += n
			}
			if full < x.blades*segments-x.f*x.f-x.f {
				t.Errorf("only %d of %d places are used: %v", full, x.blades*segments, used)
			}
			if lo, hi := slices.Min(primaries), slices.Max(primaries); hi-lo > 3 {
				t.Errorf("primaries are uneven: %v", primaries)
			}
		})
	}
}

func TestGeometryMismatch(t *testing.T) {
	b := newBed(t, 3, 4, 1)
	s, c := b.open()
	check(t, s.Close(c))
	good := b.opts
	for want, o := range map[string]memory.Options{
		"Backups 1, not 2":             {Backups: 2, SegmentSize: testSegment, LogArea: testLog},
		"SegmentSize 262144, not":      {Backups: 1, LogArea: testLog},
		"LogArea 65536, not":           {Backups: 1, SegmentSize: testSegment, LogArea: 2 * testLog},
		"Backups is 7: 0, 1 and 2 are": {Backups: 7},
	} {
		_, err := memory.Open(c, b.fabric, b.cat, o)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	small := newBed(t, 2, 4, 1)
	_, err := memory.Open(small.thread().Plain(), small.fabric, b.cat, good)
	if !errors.Is(err, layout.ErrGeometry) || !strings.Contains(err.Error(), "Blades 3, not 2") {
		t.Errorf("fewer blades: %v", err)
	}
	short := newBed(t, 3, 3, 1)
	_, err = memory.Open(short.thread().Plain(), short.fabric, b.cat, good)
	if !errors.Is(err, layout.ErrGeometry) || !strings.Contains(err.Error(), "BladeSize of blade 0") {
		t.Errorf("smaller blades: %v", err)
	}
	s, err = memory.Open(c, b.fabric, b.cat, memory.Options{Attach: true})
	if err != nil || s.Backups() != 1 || s.SegmentSize() != testSegment {
		t.Errorf("Attach: %v", err)
	}
}

// TestTableNames: what is wrong with a name is said of the name, and what with options of the
// options.
func TestTableNames(t *testing.T) {
	s, _ := newBed(t, 1, 1, 0).open()
	for _, x := range []struct {
		name    string
		options int
		want    string
	}{
		{"", 46, "needs a name"},
		{strings.Repeat("n", layout.MaxTableName+1), 0, "the name of a table has"},
		{"t", layout.MaxTableOptions + 1, `the options of table "t" have`},
	} {
		if _, err := s.CreateTable(x.name, make([]byte, x.options)); err == nil ||
			!strings.Contains(err.Error(), x.want) {
			t.Errorf("%q: %v", x.name, err)
		}
	}
}

func TestImpossibleBlades(t *testing.T) {
	b := newBed(t, 1, 1, 1)
	if _, err := memory.Open(b.thread().Plain(), b.fabric, b.cat, b.opts); !errors.Is(err, layout.ErrGeometry) ||
		!strings.Contains(err.Error(), "at least 2") {
		t.Errorf("one blade for two copies: %v", err)
	}
	b.opts = memory.Options{SegmentSize: 2 * testSegment}
	if _, err := memory.Open(b.thread().Plain(), b.fabric, b.cat, b.opts); !errors.Is(err, layout.ErrGeometry) ||
		!strings.Contains(err.Error(), "too small") ||
		!strings.Contains(err.Error(), fmt.Sprint(64<<10+2*testSegment)) {
		t.Errorf("a blade smaller than a segment: %v", err)
	}
	if e, _, _ := b.cat.Load(); len(e) != 0 {
		t.Errorf("the catalog has %d entries after a failed Open", len(e))
	}
}

func TestAttachNeedsDatabase(t *testing.T) {
	b := newBed(t, 1, 1, 0)
	for _, o := range []memory.Options{{Attach: true}, {ReadOnly: true}} {
		if _, err := memory.Open(b.thread().Plain(), b.fabric, b.cat, o); !errors.Is(err, layout.ErrNotFormatted) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

func TestReadOnly(t *testing.T) {
	b := newBed(t, 2, 4, 1)
	s, c := b.open()
	must(s.CreateTable("t", nil))(t)
	id := must(s.NewCoordinator())(t).ID
	x := must(s.AllocExtent(c, 100))(t)
	check(t, s.Close(c))
	before, _, _ := b.cat.Load()
	b.poke(1, 0, make([]byte, 64)) // one copy of a header is lost
	b.opts.ReadOnly = true
	s, c = b.open()
	if tabs := must(s.Tables())(t); len(tabs) != 1 {
		t.Errorf("tables %+v", tabs)
	}
	for name, err := range map[string]error{
		"CreateTable":      errOf(s.CreateTable("u", nil)),
		"SetTableRoot":     s.SetTableRoot(1, 0),
		"NewCoordinator":   errOf(s.NewCoordinator()),
		"CloseCoordinator": s.CloseCoordinator(id),
		"AllocExtent":      errOf(s.AllocExtent(c, 1)),
		"FreeExtent":       s.FreeAt(x, 100),
		"NewAllocator":     errOf(s.NewAllocator(c.Thread())),
		"AdvanceEpoch":     s.AdvanceEpoch(nil),
	} {
		if !errors.Is(err, memory.ErrReadOnly) {
			t.Errorf("%s: %v", name, err)
		}
	}
	check(t, s.Close(c))
	after, _, _ := b.cat.Load()
	if fmt.Sprint(before) != fmt.Sprint(after) {
		t.Error("the catalog has changed")
	}
	if !isZero(b.peek(1, 0, 64)) {
		t.Error("the header was repaired")
	}
}

// TestDamagedHeader flips every bit of the header area's used bytes, in one copy
// and in both.
func TestDamagedHeader(t *testing.T) {
	b := newBed(t, 2, 2, 1)
	b.opts.BladeNames = []string{"first.region", "second.region"}
	s, c := b.open()
	check(t, s.Close(c))
	good := b.peek(1, 0, layout.RegionHeaderSize)
	for bit := range layout.RegionHeaderSize * 8 {
		for _, both := range []bool{false, true} {
			b.dropThreads()
			for i := range layout.HeaderCopies {
				off := uint64(i * layout.HeaderStride)
				p := b.peek(1, off, layout.RegionHeaderSize)
				if i == 0 || both {
					p[bit/8] ^= 1 << (bit % 8)
				}
				b.poke(1, off, p)
			}
			s, err := memory.Open(b.thread().Plain(), b.fabric, b.cat, b.opts)
			var be *layout.BladeError
			switch {
			case both && err == nil:
				t.Errorf("bit %d flipped in both copies: opens", bit)
			case both && (!errors.As(err, &be) || be.Blade != 1 || !strings.Contains(err.Error(), "second.region")):
				t.Errorf("bit %d flipped in both copies: %v", bit, err)
			case !both && err != nil:
				t.Errorf("bit %d flipped in one copy: %v", bit, err)
			}
			if err == nil {
				if got := b.peek(1, 0, layout.RegionHeaderSize); string(got) != string(good) {
					t.Errorf("bit %d flipped in one copy: not repaired", bit)
				}
				check(t, s.Close(b.thread().Plain()))
				continue
			}
			for i := range layout.HeaderCopies { // repair by hand
				off := uint64(i * layout.HeaderStride)
				p := b.peek(1, off, layout.RegionHeaderSize)
				p[bit/8] ^= 1 << (bit % 8)
				b.poke(1, off, p)
			}
		}
	}
}

func TestForeignBlades(t *testing.T) {
	make1 := func(uuid byte) *bed {
		b := newBed(t, 2, 2, 1)
		b.opts.UUID = layout.UUID{uuid}
		s, c := b.open()
		check(t, s.Close(c))
		return b
	}
	ours, theirs := make1(1), make1(2)
	empty := newBed(t, 2, 2, 1)
	garbage := newBed(t, 2, 2, 1)
	garbage.poke(0, 0, []byte(strings.Repeat("not a header at all ", 7)[:128]))
	for _, x := range []struct {
		name   string
		blades *bed
		cat    layout.Catalog
		want   string
	}{
		{"another database's", theirs, ours.cat, "belongs to database"},
		{"blank", empty, ours.cat, "is blank"},
		{"a database's without catalog", theirs, &catalog.Mem{}, "was the catalog lost?"},
		{"garbage, new", garbage, &catalog.Mem{}, "not blank"},
		{"garbage", garbage, ours.cat, "does not start with a region header"},
	} {
		_, err := memory.Open(x.blades.thread().Plain(), x.blades.fabric, x.cat, ours.opts)
		if !errors.Is(err, layout.ErrForeign) || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v", x.name, err)
		}
	}
	// Two blades of one database in the wrong order.
	a, z := ours.peek(0, 0, 64), ours.peek(1, 0, 64)
	a2, z2 := ours.peek(0, layout.HeaderStride, 64), ours.peek(1, layout.HeaderStride, 64)
	ours.poke(0, 0, z)
	ours.poke(1, 0, a)
	ours.poke(0, layout.HeaderStride, z2)
	ours.poke(1, layout.HeaderStride, a2)
	_, err := memory.Open(ours.thread().Plain(), ours.fabric, ours.cat, ours.opts)
	if !errors.Is(err, layout.ErrGeometry) || !strings.Contains(err.Error(), "that of blade 1 of 2, not 0") {
		t.Errorf("swapped blades: %v", err)
	}
}

// TestOldCatalog: blades that have seen a later epoch than the catalog knows.
func TestOldCatalog(t *testing.T) {
	b := newBed(t, 2, 4, 1)
	s, c := b.open()
	old, _, _ := b.cat.Load()
	check(t, s.AdvanceEpoch(nil))
	check(t, s.Close(c))
	s, c = b.open() // brings the headers up to date
	check(t, s.Close(c))
	rewrite(t, b.cat, old)
	_, err := memory.Open(b.thread().Plain(), b.fabric, b.cat, b.opts)
	if !errors.Is(err, layout.ErrGeometry) || !strings.Contains(err.Error(), "old copy") {
		t.Errorf("%v", err)
	}
}

func TestBladesGrow(t *testing.T) {
	b := newBed(t, 2, 2, 1)
	s, c := b.open()
	x := must(s.AllocExtent(c, 100))(t)
	write(t, s, c, x, []byte("content."))
	check(t, s.Close(c))
	// The same memory, but larger: copied to a larger bed.
	g := newBed(t, 2, 6, 1)
	g.cat = b.cat
	for blade := range rdma.BladeID(2) {
		for off := uint64(0); off < layout.HeaderArea+2*testSegment; off += 64 << 10 {
			g.poke(blade, off, b.peek(blade, off, 64<<10))
			g.dropThreads()
		}
	}
	s, c = g.open()
	l := s.Layout()
	if l.Blades[0].Size != layout.HeaderArea+6*testSegment {
		t.Errorf("blade 0 has %d bytes", l.Blades[0].Size)
	}
	h, err := layout.ParseRegionHeader(g.peek(1, 0, 8192))
	if want := (layout.RegionHeader{
		Blade: 1, Blades: 2, Backups: 1, SegmentSize: testSegment, Epoch: 2, UUID: l.UUID, Size: l.Blades[1].Size,
	}); err != nil || h != want {
		t.Errorf("header %+v, %v", h, err)
	}
	if got := read(t, c, s.View().At(x, 1), 8); string(got) != "content." {
		t.Errorf("%q", got)
	}
	a := g.allocator(s, c)
	for range 5 {
		must(a.Alloc(c, class(testSegment)))(t)
	}
}

// TestCatalogFails: a change that the catalog refuses has not happened, one that
// it made although it says otherwise has.
func TestCatalogFails(t *testing.T) {
	b := newBed(t, 2, 8, 1)
	s, c := b.open()
	for i, lie := range []bool{false, true} {
		b.cat.fail, b.cat.lie = true, lie
		name := fmt.Sprintf("t%d", i)
		_, err := s.CreateTable(name, nil)
		_, errCoordinator := s.NewCoordinator()
		errEpoch := s.AdvanceEpoch(nil)
		b.cat.fail = false
		check(t, s.SetCheckpoint(1)) // what has failed is in doubt until then
		tabs := must(s.Tables())(t)
		coords := must(s.Coordinators())(t)
		want := 0
		if lie {
			want = 1
		}
		if (err == nil) != lie || (errCoordinator == nil) != lie || (errEpoch == nil) != lie {
			t.Errorf("lie %v: %v, %v, %v", lie, err, errCoordinator, errEpoch)
		}
		if len(tabs) != want || len(coords) != want || s.View().Epoch != layout.Epoch(1+want) {
			t.Errorf("lie %v: %d tables, %d coordinators, epoch %d", lie, len(tabs), len(coords), s.View().Epoch)
		}
	}
	must(s.CreateTable("after", nil))(t)
	check(t, s.Close(c))
	s, _ = b.open()
	if tabs := must(s.Tables())(t); len(tabs) != 2 {
		t.Errorf("tables %+v", tabs)
	}
}

// TestCatalogUnreachable: while a catalog neither changes nor says what became of a change,
// changes fail; when it can be reached again, one that it made all the same is taken back, one
// that is late is not made any more, and everything goes on.
func TestCatalogUnreachable(t *testing.T) {
	for seed := range uint64(40) {
		b := newBed(t, 2, 60, 1)
		s, c := b.open()
		r := rand.New(rand.NewPCG(seed, 9))
		open := []uint32{must(s.NewCoordinator())(t).ID}
		failed := 0
		for n := range 60 {
			b.cat.fail, b.cat.lie = r.IntN(2) == 0, r.IntN(2) == 0
			b.cat.deaf = b.cat.fail && r.IntN(4) > 0
			if b.cat.late = r.IntN(2) == 0; b.cat.slow == nil {
				b.cat.behind = r.IntN(6)
			}
			var err error
			switch r.IntN(7) {
			case 0:
				_, err = s.CreateTable(fmt.Sprintf("t%d", n), []byte("options"))
			case 1:
				var coord memory.Coordinator
				if coord, err = s.NewCoordinatorUntil(int64(n)); err == nil {
					open = append(open, coord.ID)
				}
			case 2:
				err = s.AdvanceEpoch(nil)
			case 3:
				err = s.Renew(int64(100+n), open...)
			case 4:
				if k := r.IntN(len(open)); k > 0 {
					if err = s.CloseCoordinatorOn(c, open[k]); err == nil {
						open = slices.Delete(open, k, k+1)
					}
				}
			case 5:
				err = s.SetCheckpoint(uint32(1 + n))
			case 6:
				_, err = s.AllocExtent(c, testSegment/2)
			}
			if err != nil {
				failed++
				if !b.cat.fail && !b.cat.deaf {
					t.Fatalf("seed %d, step %d: %v", seed, n, err)
				}
			}
		}
		b.cat.fail, b.cat.deaf = false, false
		check(t, s.AdvanceEpoch(nil))
		if l, err := layout.LoadLayout(b.cat); err != nil || !reflect.DeepEqual(l, s.Layout()) {
			t.Fatalf("seed %d: the catalog says, %v,\n%+v, and the layout is\n%+v", seed, err, l, s.Layout())
		}
		if failed == 0 {
			t.Errorf("seed %d: nothing failed", seed)
		}
	}
}

func TestTables(t *testing.T) {
	b := newBed(t, 1, 4, 0)
	s, c := b.open()
	if _, err := s.CreateTable("", nil); err == nil {
		t.Error("a table without a name")
	}
	if _, err := s.CreateTable(strings.Repeat("x", layout.MaxTableName+1), nil); err == nil {
		t.Error("a table with a long name")
	}
	if _, err := s.CreateTable("x", make([]byte, layout.MaxTableOptions+1)); err == nil {
		t.Error("a table with long options")
	}
	tab := must(s.CreateTable(strings.Repeat("x", layout.MaxTableName), make([]byte, layout.MaxTableOptions)))(t)
	// it has no root yet
	if again := must(s.CreateTable(tab.Name, nil))(t); again.ID != tab.ID || len(again.Options) > 0 {
		t.Errorf("the same name: %v", again)
	}
	check(t, s.Close(c))
	s, c = b.open()
	if tabs := must(s.Tables())(t); len(tabs) != 1 || len(tabs[0].Options) > 0 {
		t.Errorf("%d tables", len(tabs))
	}
	must(s.CreateTable(tab.Name, tab.Options))(t)
	for _, id := range []uint16{0, 2, 65535} {
		if err := s.SetTableRoot(id, 0); !errors.Is(err, memory.ErrNoTable) {
			t.Errorf("root of table %d: %v", id, err)
		}
	}
	x := must(s.AllocExtent(c, 64))(t)
	block := must(b.allocator(s, c).Alloc(c, 0))(t)
	for _, root := range []layout.Addr{
		block, 1<<50 | x, layout.MakeAddr(9, 0), layout.MakeAddr(x.Segment(), testSegment),
	} {
		if err := s.SetTableRoot(1, root); err == nil {
			t.Errorf("root %v is accepted", root)
		}
	}
	check(t, s.SetTableRoot(1, x))
	if _, err := s.CreateTable(tab.Name, nil); !errors.Is(err, memory.ErrTableExists) {
		t.Errorf("the same name: %v", err)
	}
	tabs := must(s.Tables())(t)
	tabs[0].Options[0] = 1 // a copy
	if again := must(s.Tables())(t); again[0].Root != x || again[0].Options[0] != 0 {
		t.Errorf("%v", again[0].Root)
	}
}

// TestCatalogInDoubtUnchanged: a change that changes nothing, as when somebody who recovers claims
// again what he has claimed, is late: it is refused like any other.
func TestCatalogInDoubtUnchanged(t *testing.T) {
	for _, deaf := range []bool{false, true} {
		b := newBed(t, 2, 8, 1)
		s, c := b.open()
		id := must(s.NewCoordinator())(t).ID
		claim := must(s.Claim(memory.ClaimOptions{By: id}, id))(t)
		b.cat.fail, b.cat.late, b.cat.deaf, b.cat.behind = true, true, deaf, 4
		_, _ = s.Claim(memory.ClaimOptions{By: id, Again: claim, Stay: true}, id)
		b.cat.fail, b.cat.deaf, b.cat.behind = false, false, 0
		for range 2 {
			if _, err := s.Claim(memory.ClaimOptions{By: id}, id); err != nil {
				t.Fatalf("deaf %v: the catalog answers again: %v", deaf, err)
			}
		}
		check(t, s.Close(c))
	}
}

// TestReadOnlyBesideEpoch: another process begins an epoch after one that opens the database to
// read has asked the catalog, and before it looks at the regions: it asks again, and does not take
// the catalog for an old copy, or the keys for lost ones.
func TestReadOnlyBesideEpoch(t *testing.T) {
	for _, shared := range []bool{false, true} {
		b := newBed(t, 2, 4, 1)
		b.opts.Shared, b.fabric.clock = shared, new(int64)
		s, c := b.open()
		began := 0
		ro := b.opts
		ro.ReadOnly = true
		beside := &cat{Catalog: b.cat, loaded: func() {
			if began++; began == 1 {
				check(t, errors.Join(s.AdvanceEpoch(s.DeclareDead(1)), s.Admit(c, 1, nil)))
			}
		}}
		r, err := memory.Open(b.thread().Plain(), b.fabric, beside, ro)
		if err != nil {
			t.Fatalf("shared %v: %v", shared, err)
		}
		if r.View().Epoch != s.View().Epoch || began != 2 {
			t.Errorf("shared %v: epoch %d, not %d; the catalog was asked %d times",
				shared, r.View().Epoch, s.View().Epoch, began)
		}
		check(t, s.Close(c))
	}
}
