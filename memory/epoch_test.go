package memory_test

import (
	"errors"
	"testing"

	"txnode/memory"
	"txnode/memory/layout"
	"txnode/rdma"
)

func TestAdvanceEpochFences(t *testing.T) {
	b := newBed(t, 2, 4, 1)
	s, c := b.open()
	a := must(b.allocator(s, c).Alloc(c, 0))(t)
	late := b.thread().Plain()
	old := s.View()
	var batch rdma.Batch
	word := must(late.Thread().Alloc(8))(t)
	late.Thread().PutWord(word, 1)
	batch.Write(old.At(a, 0), word, 8)
	check(t, late.Do(&batch))

	check(t, s.AdvanceEpoch(nil))
	v := s.View()
	if v.Epoch != old.Epoch+1 || old.Epoch != 1 {
		t.Errorf("epochs %d and %d", old.Epoch, v.Epoch)
	}
	for blade := range rdma.BladeID(2) {
		if v.Key(blade) == old.Key(blade) || b.fabric.Blades()[blade].Key != v.Key(blade) {
			t.Errorf("blade %d: key %d, then %d; the blade has %d", blade, old.Key(blade), v.Key(blade),
				b.fabric.Blades()[blade].Key)
		}
	}
	late.Thread().PutWord(word, 2)
	for i := range 2 {
		batch.Reset()
		batch.Write(old.At(a, i), word, 8)
		if err := late.Do(&batch); !errors.Is(err, rdma.ErrStaleKey) {
			t.Errorf("copy %d with an old key: %v", i, err)
		}
	}
	if got := read(t, c, v.At(a, 0), 1); got[0] != 1 {
		t.Errorf("the late WRITE has landed: %d", got[0])
	}
	check(t, s.Close(c))
	s, _ = b.open()
	if s.View().Epoch != 2 || s.View().Key(0) != v.Key(0) {
		t.Errorf("reopened in epoch %d", s.View().Epoch)
	}
}

func TestKeysDiffer(t *testing.T) {
	b := newBed(t, 3, 2, 0)
	s, _ := b.open()
	seen := map[rdma.Key]string{}
	for range 50 {
		v := s.View()
		if prev := v.Key(0); seen[prev] != "" {
			t.Errorf("key %d again", prev)
		}
		seen[v.Key(0)] = "used"
		check(t, s.AdvanceEpoch(nil))
	}
}

func TestAdvanceEpochRejects(t *testing.T) {
	b := newBed(t, 2, 4, 1)
	s, c := b.open()
	must(s.AllocExtent(c, 1))(t)
	boom := errors.New("boom")
	for name, change := range map[string]func(*layout.Layout) error{
		"its own error": func(*layout.Layout) error { return boom },
		"geometry":      func(l *layout.Layout) error { l.SegmentSize *= 2; return nil },
		"formatted":     func(l *layout.Layout) error { l.Formatted = false; return nil },
		"coordinators":  func(l *layout.Layout) error { l.NextCoordinator++; return nil },
		"segments":      func(l *layout.Layout) error { l.Segments = l.Segments[:1]; return nil },
		"two copies on one blade": func(l *layout.Layout) error {
			p := &l.Segments[1].Placement
			p.Replicas[1].Blade = p.Replicas[0].Blade
			return nil
		},
	} {
		if err := s.AdvanceEpoch(change); !errors.Is(err, layout.ErrLayout) && !errors.Is(err, boom) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if s.View().Epoch != 1 {
		t.Errorf("epoch %d", s.View().Epoch)
	}
}

// TestPromotion takes a blade down under a running allocator.
func TestPromotion(t *testing.T) {
	b := newBed(t, 3, 8, 1)
	s, c := b.open()
	a := b.allocator(s, c)
	var blocks []layout.Addr
	for range 3 * memory.ChunkBlocks(4) {
		x := must(a.Alloc(c, 4))(t)
		write(t, s, c, x, []byte("12345678"))
		blocks = append(blocks, x)
	}
	x := must(s.AllocExtent(c, 100))(t)
	check(t, s.AdvanceEpoch(func(l *layout.Layout) error { l.TakeDown(1); return nil }))
	v := s.View()
	for _, x := range append(blocks, x) {
		if !v.Valid(x) {
			t.Fatalf("%v is lost", x)
		}
		for i := range v.Copies(x) {
			if at := v.At(x, i); at.Blade == 1 {
				t.Errorf("%v has a copy on the blade that is down", x)
			}
		}
	}
	for _, x := range blocks {
		if got := read(t, c, v.At(x, 0), 8); string(got) != "12345678" {
			t.Errorf("%v has %q after promotion", x, got)
		}
	}
	// Everything goes on, on the two blades that are left.
	for range 200 {
		x := must(a.Alloc(c, 4))(t)
		a.Free(x, 4)
		x = must(a.Alloc(c, 40))(t)
		if at := s.View().At(x, 0); at.Blade == 1 {
			t.Errorf("%v is on the blade that is down", x)
		}
		a.Free(x, 40)
	}
	check(t, a.Close(c))
	check(t, s.Close(c))
	s, _ = b.open()
	if st := s.Layout().Blades[1].State; st != layout.BladeDown {
		t.Errorf("blade 1 is in state %d after a reopen", st)
	}
}

// TestLostSegments: without backups, the blocks of a blade that is down are
// never handed out again.
func TestLostSegments(t *testing.T) {
	b := newBed(t, 2, 8, 0)
	s, c := b.open()
	a, other := b.allocator(s, c), b.allocator(s, c)
	for _, x := range []*memory.Allocator{a, other} {
		var list []layout.Addr
		for range 3 * memory.ChunkBlocks(4) {
			list = append(list, must(x.Alloc(c, 4))(t))
		}
		for _, addr := range list {
			x.Free(addr, 4)
		}
	}
	check(t, other.Close(c))
	check(t, s.AdvanceEpoch(func(l *layout.Layout) error { l.TakeDown(0); return nil }))
	for range 1000 {
		x := must(a.Alloc(c, 4))(t)
		if !s.View().Valid(x) {
			t.Fatalf("%v is lost, and handed out", x)
		}
	}
}

// TestLostSegmentsAreNotScanned: nor are those of an earlier session.
func TestLostSegmentsAreNotScanned(t *testing.T) {
	for _, scanned := range []bool{false, true} {
		b := newBed(t, 2, 8, 0)
		s, c := b.open()
		a := b.allocator(s, c)
		for range 6 * int(testSegment/layout.Class(4).Size()) {
			must(a.Alloc(c, 4))(t)
		}
		b.dropThreads()
		s, c = b.open()
		a = b.allocator(s, c)
		if scanned {
			must(a.Alloc(c, 4))(t)
		}
		check(t, s.AdvanceEpoch(func(l *layout.Layout) error { l.TakeDown(0); return nil }))
		for _, x := range drain(t, a, c, 4) {
			if !s.View().Valid(x) {
				t.Fatalf("scanned %v: %v is lost, and handed out", scanned, x)
			}
		}
	}
}

// A segment that is newer than the map of a thread that was fenced is no damage: the
// thread's verbs would fail.
func TestMissing(t *testing.T) {
	b := newBed(t, 2, 4, 1)
	s, c := b.open()
	must(s.AllocExtent(c, 64))(t)
	old := s.View()
	check(t, s.AdvanceEpoch(nil))
	var a layout.Addr
	for a == 0 || old.Valid(a) {
		a = must(s.AllocExtent(c, 8<<10))(t)
	}
	if err := s.Missing(old, a); !errors.Is(err, rdma.ErrStaleKey) || !errors.Is(err, rdma.ErrVerb) {
		t.Errorf("a segment that was added later: %v", err)
	}
	if err := s.Missing(s.View(), a); err != nil {
		t.Errorf("a segment of the map: %v", err)
	}
	if err := s.Missing(old, layout.Addr(1000)<<layout.OffsetBits); err != nil {
		t.Errorf("a segment that there is not: %v", err)
	}
}
