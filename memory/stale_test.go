package memory_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"txnode/memory"
	"txnode/memory/layout"
	"txnode/rdma"
)

// regionOf is a copy of the region of a blade.
func (b *bed) regionOf(blade rdma.BladeID) (region []byte) {
	for size := int(b.fabric.Blades()[blade].Size); len(region) < size; {
		region = append(region, b.peek(blade, uint64(len(region)), min(regionPart, size-len(region)))...)
	}
	return region
}

// regionPart fits the arena of a thread.
const regionPart = 512 << 10

// bringBack has a blade begin anew with what was in its region once.
func (b *bed) bringBack(blade rdma.BladeID, region []byte) {
	b.tb.Helper()
	check(b.tb, b.inner.StopBlade(blade))
	check(b.tb, b.inner.RestartBlade(blade, true))
	off := uint64(0)
	for part := range slices.Chunk(region, regionPart) {
		b.poke(blade, off, part)
		off += uint64(len(part))
	}
}

// staleBed is a shared database of three blades that was used, closed, and used again, until
// a moment at which copies of its regions were made. Then more is written, and it is closed
// or its process dies.
type staleBed struct {
	*bed
	s      *memory.Space
	c      *rdma.Coro
	copies [][]byte
	buried error
}

// staleMoments are when the copies are made.
var staleMoments = []string{"at rest", "at an opening", "while it is used", "told of the newest", "before a stamp"}

func newStaleBed(t *testing.T, backups int, when string) *staleBed {
	t.Helper()
	b := &staleBed{bed: newSharedBed(t, 3, 6, backups)}
	b.fabric.clock = new(int64)
	b.opts.Buried = func(err error) { b.buried = err }
	moment := func(is string) {
		if is == when {
			for blade := range rdma.BladeID(3) {
				b.copies = append(b.copies, b.regionOf(blade))
			}
		}
	}
	b.begin(t)
	check(t, b.s.Close(b.c))
	b.dropThreads()
	moment("at rest")
	b.begin(t)
	moment("at an opening")
	must(b.s.CreateTable("used", nil))(t)
	moment("while it is used")
	check(t, b.s.Tell(b.c))
	moment("told of the newest")
	if when == "before a stamp" { // the process dies later
		moment(when)
		*b.fabric.clock += 6_000_000_000
		check(t, b.s.Tell(b.c))
		b.dropThreads()
		*b.fabric.clock += 60_000_000_000
	} else {
		check(t, b.s.Close(b.c))
		b.dropThreads()
	}
	if len(b.copies) == 0 {
		t.Fatalf("%s: no copies were made", when)
	}
	return b
}

// begin opens the database, and has segments on all blades.
func (b *staleBed) begin(t *testing.T) {
	t.Helper()
	var err error
	b.s, b.c, err = b.tryOpen(*b.fabric.clock + 30_000_000)
	check(t, err)
	check(t, b.s.Tell(b.c))
	for range 6 {
		must(b.s.AllocExtent(b.c, testSegment/4))(t)
	}
	check(t, b.s.EndAlone())
}

// TestOldRegion: a blade comes with a copy of its region of before. Whenever that was made, the
// blade counts as lost, and is taken in blank, since all that it had is on others. The newest
// regions are taken as they are.
func TestOldRegion(t *testing.T) {
	for _, when := range staleMoments {
		t.Run(when, func(t *testing.T) {
			b := newStaleBed(t, 1, when)
			newest := b.regionOf(1)
			b.bringBack(1, b.copies[1])
			was := must(layout.LoadLayout(b.cat))(t)
			o := b.opts
			o.ReadOnly, o.Attach = true, true
			if _, err := memory.Open(b.thread().Plain(), b.fabric, b.cat, o); !errors.Is(err, layout.ErrStale) {
				t.Errorf("read-only: %v", err)
			}
			s, c, err := b.tryOpen(0)
			check(t, err)
			stale, ok := errors.AsType[*layout.StaleError](b.buried)
			if !ok || stale.Blade != 1 || stale.Has >= stale.Knows || stale.Knows != was.Blades[1].Told {
				t.Errorf("buried: %v, and the catalog has %d", b.buried, was.Blades[1].Told)
			}
			if l := s.Layout(); l.Blades[1].State != layout.BladeDown || l.Redundancy().Lost > 0 {
				t.Errorf("%+v, %+v", l.Blades[1], l.Redundancy())
			}
			check(t, s.Admit(c, 1, nil))
			if got, knows := layout.ToldIn(b.peek(1, 0, 128)), s.Layout().Blades[1].Told; knows == 0 || got < knows ||
				knows <= stale.Has {
				t.Errorf("taken in again, it was told of revision %d, and the catalog knows of %d", got, knows)
			}
			check(t, s.EndAlone())
			check(t, s.Close(c))
			b.dropThreads()
			b.bringBack(1, newest) // that of before it counted as lost
			b.buried = nil
			if _, _, err = b.tryOpen(0); err != nil || !errors.Is(b.buried, layout.ErrStale) {
				t.Errorf("what the blade had before it was taken in: %v, buried %v", err, b.buried)
			}
		})
	}
	for _, when := range []string{"while it is used", "before a stamp"} {
		b := newStaleBed(t, 1, when)
		for blade := range rdma.BladeID(3) { // all servers were stopped
			b.bringBack(blade, b.regionOf(blade))
		}
		s, _, err := b.tryOpen(0)
		if err != nil || b.buried != nil || s.Layout().UpBlades() != 3 {
			t.Errorf("%s: the newest regions: %v, buried %v", when, err, b.buried)
		}
	}
}

// TestOldRegionsOfAll: the last copies of segments are on blades that come with old regions. The
// database is not opened, and nothing changes, until the newest are back, or an operator takes the
// old ones for the newest, or gives them up.
func TestOldRegionsOfAll(t *testing.T) {
	const when = "while it is used"
	open := func(b *staleBed) (*layout.Layout, error) {
		s, _, err := b.tryOpen(0)
		if err != nil {
			return nil, err
		}
		return s.Layout(), nil
	}
	for name, x := range map[string]struct {
		backups int
		blades  []rdma.BladeID
	}{
		"one without backups": {0, []rdma.BladeID{1}}, "two": {1, []rdma.BladeID{0, 2}},
		"all": {1, []rdma.BladeID{0, 1, 2}},
	} {
		for _, then := range []string{"the newest", "trusted", "given up"} {
			if then == "given up" && len(x.blades) == 3 {
				continue // no blade would be left
			}
			t.Run(fmt.Sprintf("%s, %s", name, then), func(t *testing.T) {
				b := newStaleBed(t, x.backups, when)
				newest := map[rdma.BladeID][]byte{}
				for _, blade := range x.blades {
					newest[blade] = b.regionOf(blade)
					b.bringBack(blade, b.copies[blade])
				}
				rev, was := must(b.cat.Revision())(t), must(layout.LoadLayout(b.cat))(t)
				if _, err := open(b); !errors.Is(err, layout.ErrStale) || !strings.Contains(err.Error(), "--trust") ||
					b.buried != nil {
					t.Errorf("opened: %v, buried %v", err, b.buried)
				}
				if now := must(b.cat.Revision())(t); now != rev {
					t.Error("the catalog was changed")
				}
				b.dropThreads()
				switch then {
				case "the newest":
					for blade, region := range newest {
						b.bringBack(blade, region)
					}
				case "trusted":
					check(t, layout.Trust(b.cat, was, nil, x.blades...))
				case "given up":
					b.opts.GiveUp = true
				}
				l, err := open(b)
				check(t, err)
				lost := then == "given up"
				for i := range l.Blades {
					if down := l.Blades[i].State == layout.BladeDown; down != (lost &&
						slices.Contains(x.blades, rdma.BladeID(i))) {
						t.Errorf("blade %d is down: %v", i, down)
					}
				}
				if (l.Redundancy().Lost > 0) != lost || then == "trusted" && !l.Unswept {
					t.Errorf("%+v, unswept %v", l.Redundancy(), l.Unswept)
				}
			})
		}
	}
}

// TestRegionsWithoutStamp: a database whose catalog does not know of what its blades were told, of
// an earlier release, is believed once.
func TestRegionsWithoutStamp(t *testing.T) {
	b := newStaleBed(t, 1, "at rest")
	newest := b.regionOf(1)
	unstamp(t, b.cat)
	b.bringBack(1, b.copies[1])
	s, c, err := b.tryOpen(0)
	if err != nil || b.buried != nil {
		t.Fatalf("without a stamp: %v, buried %v", err, b.buried)
	}
	for i, x := range s.Layout().Blades {
		if x.Told == 0 {
			t.Errorf("blade %d has no stamp after an opening", i)
		}
	}
	check(t, s.EndAlone())
	check(t, s.Close(c))
	b.dropThreads()
	b.bringBack(1, newest)
	if _, _, err := b.tryOpen(0); err != nil || !errors.Is(b.buried, layout.ErrStale) {
		t.Errorf("with one: %v, buried %v", err, b.buried)
	}
}

// TestStampFlushed: the catalog knows of what a blade was told only after the blade has flushed its
// word: after a loss of power the newest region is not taken for an old copy.
func TestStampFlushed(t *testing.T) {
	b := newSharedBed(t, 2, 4, 1)
	flushed := map[rdma.BladeID]bool{}
	b.fabric.before = func(w *rdma.WR) {
		if w.Op == rdma.OpFlush && w.Off == layout.ToldOffset {
			flushed[w.Blade] = true
		}
	}
	s, c := b.open()
	for blade := range rdma.BladeID(2) {
		if ok := flushed[blade]; !ok || s.Layout().Blades[blade].Told == 0 {
			t.Errorf("blade %d: flushed %v, and the catalog has %d", blade, ok, s.Layout().Blades[blade].Told)
		}
	}
	b.fabric.failing = func(w *rdma.WR) bool { return w.Op == rdma.OpFlush && w.Off == layout.ToldOffset }
	had := s.Layout().Blades[0].Told
	must(s.CreateTable("more", nil))(t)
	if err := s.Stamp(c); !errors.Is(err, rdma.ErrVerb) || s.Layout().Blades[0].Told != had {
		t.Errorf("stamped without a flush: %v, and the catalog has %d, before %d", err, s.Layout().Blades[0].Told, had)
	}
}

// TestUnflushedRegion: the host of a blade has restarted before its region was on the disk, which
// its server has noted in it. The blade counts as lost if all that it had is on others; if no copy
// is sure, the database is not opened until an operator trusts one. In a database that is not
// shared, what is promised was flushed. When the blade was told of something since, all is as ever.
func TestUnflushedRegion(t *testing.T) {
	doubt := func(b *staleBed, blades ...rdma.BladeID) {
		for _, blade := range blades {
			region := b.regionOf(blade)
			copy(region[layout.DoubtOffset:], region[layout.ToldOffset:][:8])
			b.bringBack(blade, region)
		}
	}
	for _, trusted := range []bool{false, true} {
		b := newStaleBed(t, 1, "at rest")
		doubted := []rdma.BladeID{1}
		if trusted {
			doubted = []rdma.BladeID{0, 1, 2}
		}
		doubt(b, doubted...)
		if trusted {
			if _, _, err := b.tryOpen(0); !errors.Is(err, layout.ErrStale) ||
				!strings.Contains(err.Error(), "its host has restarted") {
				t.Errorf("none is sure: %v", err)
			}
			b.dropThreads()
			check(t, layout.Trust(b.cat, nil, nil, doubted...))
		}
		s, c, err := b.tryOpen(0)
		check(t, err)
		stale, _ := errors.AsType[*layout.StaleError](b.buried)
		if trusted != (b.buried == nil) || stale != nil && (stale.Blade != 1 || !stale.Unflushed ||
			stale.Has < stale.Knows) || s.Layout().Redundancy().Lost > 0 {
			t.Errorf("trusted %v: buried %v, %+v", trusted, b.buried, s.Layout().Redundancy())
		}
		if !trusted {
			check(t, s.Admit(c, 1, nil))
		}
		check(t, s.EndAlone())
		check(t, s.Close(c))
		b.dropThreads()
		b.buried = nil
		for blade := range rdma.BladeID(3) { // the word is there still
			b.bringBack(blade, b.regionOf(blade))
		}
		if _, _, err := b.tryOpen(0); err != nil || b.buried != nil {
			t.Errorf("trusted %v, and used since: %v, buried %v", trusted, err, b.buried)
		}
	}
	one := newBed(t, 2, 4, 1)
	s, c := one.open()
	check(t, s.Close(c))
	one.poke(1, layout.DoubtOffset, one.peek(1, layout.ToldOffset, 8))
	one.open()
}
