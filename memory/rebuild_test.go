package memory_test

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"testing"

	"txnode/internal/raced"
	"txnode/memory"
	"txnode/memory/layout"
	"txnode/rdma"
)

// content reads all of a segment's copy k.
func content(t *testing.T, c *rdma.Coro, v *layout.View, id layout.SegmentID, k int) []byte {
	t.Helper()
	var all []byte
	buf := must(c.Thread().Alloc(testSegment))(t)
	defer c.Thread().Free(buf, testSegment)
	var b rdma.Batch
	b.Read(v.At(layout.MakeAddr(id, 0), k), buf, testSegment)
	check(t, c.Do(&b))
	return append(all, c.Thread().Bytes(buf, testSegment)...)
}

// alike fails unless all full copies of all segments are equal, and returns how many
// copies there are.
func alike(t *testing.T, c *rdma.Coro, s *memory.Space) (copies int) {
	t.Helper()
	v, l := s.View(), s.Layout()
	for id := 1; id < len(l.Segments); id++ {
		if l.Segments[id].Kind == layout.KindLog {
			continue
		}
		copies += int(l.Segments[id].Placement.N)
		for k := 1; k < int(l.Segments[id].Placement.N); k++ {
			p, q := content(t, c, v, layout.SegmentID(id), 0), content(t, c, v, layout.SegmentID(id), k)
			if !bytes.Equal(p, q) {
				i := 0
				for p[i] == q[i] {
					i++
				}
				t.Errorf("segment %d (%v): copy %d differs from byte %#x on", id, l.Segments[id].Kind, k, i)
			}
		}
	}
	return copies
}

// lose stops a blade and has it taken down.
func lose(t *testing.T, b *bed, s *memory.Space, blade rdma.BladeID) {
	t.Helper()
	check(t, b.inner.StopBlade(blade))
	check(t, must(declareDead(t, s, blade))(t).Forget())
}

// declareDead declares a blade dead, and claims all coordinators.
func declareDead(t *testing.T, s *memory.Space, blade rdma.BladeID) (*memory.Claim, error) {
	t.Helper()
	var ids []uint32
	for _, c := range must(s.Coordinators())(t) {
		ids = append(ids, c.ID)
	}
	return s.Claim(memory.ClaimOptions{Steal: true, Change: s.DeclareDead(blade)}, ids...)
}

// copyAll runs a copier to its end.
func copyAll(t *testing.T, c *rdma.Coro, s *memory.Space) memory.CopyProgress {
	t.Helper()
	k := s.NewCopier()
	for {
		idle, err := k.Step(c)
		check(t, err)
		if idle {
			return k.Progress()
		}
	}
}

// fill puts something into a segment of blocks and one of an index.
func fill(t *testing.T, c *rdma.Coro, s *memory.Space, a *memory.Allocator) (block layout.Addr, words layout.Addr) {
	t.Helper()
	block = must(a.Alloc(c, 3))(t)
	words = must(s.AllocExtent(c, 4096))(t)
	v := s.View()
	buf := must(c.Thread().Alloc(4096))(t)
	defer c.Thread().Free(buf, 4096)
	p := c.Thread().Bytes(buf, 4096)
	for i := range p {
		p[i] = byte(i * 7)
	}
	liveImage(c.Thread(), buf, 1<<40|2)
	var b rdma.Batch
	for k := range v.Written(block) {
		b.Write(v.At(block, k), buf, layout.Class(3).Size())
	}
	for k := range v.Copies(words) {
		b.Write(v.At(words, k), buf, 4096)
	}
	check(t, c.Do(&b))
	check(t, memory.SyncWords(c, v, words, 4096))
	return block, words
}

// liveImage makes the line at buf one of a live record of a version, unlocked.
func liveImage(t *rdma.Thread, buf uint32, version uint64) {
	t.PutWord(buf, version)
	t.PutWord(buf+8, 1<<36|3<<40)
	t.PutWord(buf+56, version)
}

// TestRebuild: a blade dies, its segments go on with a copy less, new copies are built
// on other blades, or on itself when it is back, with its memory or without; and all
// of it is there after a reopening.
func TestRebuild(t *testing.T) {
	raced.Skip(t)
	for _, c := range []struct{ blades, backups int }{{2, 1}, {3, 1}, {3, 2}, {4, 2}} {
		for _, keep := range []bool{true, false} {
			t.Run(fmt.Sprintf("%d blades, f=%d, memory %v", c.blades, c.backups, keep), func(t *testing.T) {
				b := newBed(t, c.blades, 20, c.backups)
				s, co := b.open()
				must(s.NewCoordinator())(t)
				a := b.allocator(s, co)
				for range 6 {
					fill(t, co, s, a)
				}
				want := alike(t, co, s)
				for blade := range rdma.BladeID(c.blades) {
					lose(t, b, s, blade)
					v := s.View()
					if v.Up(blade) || v.UpBlades() != c.blades-1 {
						t.Fatalf("blade %d is up: %v; %d are", blade, v.Up(blade), v.UpBlades())
					}
					if r := s.Redundancy(); r.Lost > 0 || r.Missing == 0 || len(r.Down) != 1 ||
						(r.Building > 0) != (c.blades > c.backups+1) {
						t.Errorf("without blade %d: %+v", blade, r)
					}
					fill(t, co, s, a)
					copyAll(t, co, s)
					alike(t, co, s)
					coord := must(s.NewCoordinator())(t)
					if coord.Logs[blade].Size != 0 {
						t.Error("a log area on a blade that is down")
					}
					if err := s.Admit(co, blade, nil); !errors.Is(err, rdma.ErrBladeDown) {
						t.Errorf("a blade that is stopped is taken in: %v", err)
					}
					check(t, b.inner.RestartBlade(blade, keep))
					check(t, s.Admit(co, blade, nil))
					check(t, s.Admit(co, blade, nil)) // it is up
					coord, v, err := s.Coordinator(coord.ID)
					check(t, err)
					if coord.Logs[blade].Size == 0 || !v.Up(blade) {
						t.Error("no log area on a blade that is back")
					}
					if p := read(t, co, coord.Logs[blade].Addr,
						int(coord.Logs[blade].Size)); len(bytes.Trim(p, "\x00")) > 0 {
						t.Error("the log area on a blade that is back is not clear")
					}
					copyAll(t, co, s)
					if r := s.Redundancy(); r.Missing+r.Lost+r.Building+len(r.Down) != 0 {
						t.Errorf("with blade %d back: %+v", blade, r)
					}
					fill(t, co, s, a)
				}
				if got := alike(t, co, s); got < want {
					t.Errorf("%d copies; there were %d", got, want)
				}
				check(t, a.Close(co))
				check(t, s.Close(co))
				s, co = b.open()
				alike(t, co, s)
			})
		}
	}
}

// TestEveryCopyGone: with f+1 copies gone, the segment is lost, and says so; others
// are as they were.
func TestEveryCopyGone(t *testing.T) {
	b := newBed(t, 3, 20, 1)
	s, c := b.open()
	a := b.allocator(s, c)
	var blocks []layout.Addr
	for range 6 {
		x, y := fill(t, c, s, a)
		blocks = append(blocks, x, y)
	}
	must(s.NewCoordinator())(t)
	// Both at once: the second one before anything could be built.
	check(t, b.inner.StopBlade(0))
	check(t, b.inner.StopBlade(1))
	if _, err := declareDead(t, s, 0); !errors.Is(err, rdma.ErrBladeDown) {
		t.Errorf("two blades are gone, one was declared dead: %v", err)
	}
	if _, err := s.NewCoordinator(); !errors.Is(err, memory.ErrGated) {
		t.Errorf("a coordinator before all is decided: %v", err)
	}
	if _, err := declareDead(t, s, 0); !errors.Is(err, layout.ErrDown) {
		t.Errorf("declared dead twice: %v", err)
	}
	check(t, must(declareDead(t, s, 1))(t).Forget())
	lost := 0
	for _, x := range blocks {
		err := s.LostError(x)
		if s.View().Lost(x) != (err != nil) || s.View().Valid(x) == (err != nil) {
			t.Errorf("%v: %v", x, err)
		}
		if err != nil {
			lost++
			var e *memory.LostError
			if !errors.As(err, &e) || !errors.Is(err, layout.ErrLost) || e.Segment != x.Segment() ||
				len(e.Blades) != 2 {
				t.Errorf("%v", err)
			}
		}
	}
	if lost == 0 || lost == len(blocks) {
		t.Errorf("%d of %d blocks are lost", lost, len(blocks))
	}
	if _, err := declareDead(t, s, 2); !errors.Is(err, layout.ErrLost) {
		t.Errorf("the last blade was declared dead: %v", err)
	}
	fill(t, c, s, a) // what is left takes data
	check(t, b.inner.RestartBlade(0, true))
	check(t, s.Admit(c, 0, nil))
	copyAll(t, c, s)
	alike(t, c, s)
}

// TestCopierBesideWriters: records and words of an index change while copies are
// built; in the end all copies are equal.
func TestCopierBesideWriters(t *testing.T) {
	for _, backups := range []int{1, 2} {
		b := newBed(t, backups+2, 20, backups)
		s, c := b.open()
		a := b.allocator(s, c)
		block, words := fill(t, c, s, a)
		lose(t, b, s, s.View().At(block, 0).Blade)
		if s.Redundancy().Building == 0 {
			t.Fatal("nothing is built")
		}
		var stop sync.WaitGroup
		quit := make(chan struct{})
		cut := map[layout.Addr]bool{} // words that were being changed
		var mu sync.Mutex
		for i := range 2 {
			w := b.thread()
			stop.Go(func() {
				at := writeOn(t, w.Plain(), s, block, words, uint64(i+2)<<40, quit)
				mu.Lock()
				defer mu.Unlock()
				cut[at] = true
			})
		}
		p := copyAll(t, c, s)
		close(quit)
		stop.Wait()
		if p.Finished == 0 || p.Passes == 0 {
			t.Errorf("%+v", p)
		}
		// What the last epoch has cut off in the middle is brought into order by those
		// who recover it: the block that is locked, and words that are changed on some copies.
		v, size := s.View(), layout.Class(3).Size()
		if g := read(t, c, v.At(block, 0), 64)[56:]; g[0]&1 != 0 {
			level(t, c, v, block, size)
		}
		for w := range cut {
			level(t, c, v, w, 8)
		}
		alike(t, c, s)
	}
}

// level makes all copies of n bytes like the primary.
func level(t *testing.T, c *rdma.Coro, v *layout.View, a layout.Addr, n uint32) {
	t.Helper()
	buf := must(c.Thread().Alloc(int(n)))(t)
	defer c.Thread().Free(buf, int(n))
	var b rdma.Batch
	b.Read(v.At(a, 0), buf, n)
	check(t, c.Do(&b))
	b.Reset()
	for k := 1; k < v.Copies(a); k++ {
		b.Write(v.At(a, k), buf, n)
	}
	check(t, c.Do(&b))
}

// writeOn replaces a record and counts words up, as transactions and indexes do, until
// quit is closed or the epoch moves. It returns the word that it was at.
func writeOn(t *testing.T, c *rdma.Coro, s *memory.Space, block, words layout.Addr, id uint64,
	quit chan struct{}) (w layout.Addr) {
	th, v := c.Thread(), s.View()
	w = words
	size := layout.Class(3).Size()
	buf, err := th.Alloc(int(size))
	if err != nil {
		t.Error(err)
		return words
	}
	var b rdma.Batch
	do := func() bool {
		err := c.Do(&b)
		if err != nil && !errors.Is(err, rdma.ErrStaleKey) {
			t.Error(err)
		}
		return err == nil
	}
	read := func(a rdma.RemoteAddr) (uint64, bool) {
		b.Reset()
		b.Read(a, buf, 8)
		ok := do()
		return th.Word(buf), ok
	}
	cas := func(a rdma.RemoteAddr, was, to uint64) (bool, bool) {
		b.Reset()
		b.CAS(a, was, to)
		ok := do()
		return ok && b.Result(0) == was, ok
	}
	for n := uint64(2); ; n += 2 {
		select {
		case <-quit:
			return w
		default:
		}
		g := v.At(block, 0)
		g.Off += 56
		was, ok := read(g)
		if !ok {
			return w
		}
		if was&1 == 0 {
			mine, ok := cas(g, was, id|n|1)
			if !ok {
				return w
			}
			if mine {
				p := th.Bytes(buf, size)
				for i := range p {
					p[i] = byte(n)
				}
				liveImage(th, buf, id|n)
				for k := v.Written(block) - 1; k >= 0; k-- {
					b.Reset()
					if k == 0 { // the line last
						a := v.At(block, 0)
						a.Off += 64
						b.Write(a, buf+64, size-64)
						b.Write(v.At(block, 0), buf, 64)
					} else {
						b.Write(v.At(block, k), buf, size)
					}
					if !do() {
						return w
					}
				}
			}
		}
		w = words + layout.Addr(8*(n/2%64))
		x, ok := read(v.At(w, 0))
		if !ok {
			return w
		}
		mine, ok := cas(v.At(w, 0), x, x+1)
		if !ok {
			return w
		}
		for k := 1; mine && k < v.Copies(w); k++ {
			for done := false; !done; {
				if done, ok = cas(v.At(w, k), x, x+1); !ok {
					return w
				}
			}
		}
		if mine {
			if err := memory.SyncWords(c, v, w, 8); err != nil {
				if !errors.Is(err, rdma.ErrStaleKey) {
					t.Error(err)
				}
				return w
			}
		}
	}
}

// TestBuildOnFullDisk: copies could be built on a blade, and there is no memory for them. Who
// wants to begin them is told, instead of waiting for what does not come.
func TestBuildOnFullDisk(t *testing.T) {
	b := newBed(t, 3, 20, 1)
	s, c := b.open()
	a := b.allocator(s, c)
	fill(t, c, s, a)
	b.fabric.full = true
	lose(t, b, s, 1)
	if s.CanBuild() == 0 {
		t.Fatal("there is nothing to build")
	}
	epoch := s.View().Epoch
	if n, err := s.Build(); n != 0 || !errors.Is(err, rdma.ErrNoMemory) {
		t.Errorf("%d copies were begun: %v", n, err)
	}
	if s.View().Epoch != epoch {
		t.Error("there was a new epoch for nothing")
	}
	b.fabric.full = false
	if n, err := s.Build(); n == 0 || err != nil {
		t.Errorf("with room: %d copies were begun: %v", n, err)
	}
	copyAll(t, c, s)
	if r := s.Redundancy(); r.Missing != 0 {
		t.Errorf("%d copies are missing", r.Missing)
	}
}

// TestAdmitGoesOn: how far the clearing of a blade has come can be told, and who has enough of it
// leaves the blade where it was; the next one goes on from there.
func TestAdmitGoesOn(t *testing.T) {
	b := newBed(t, 2, 20, 1)
	s, c := b.open()
	must(s.NewCoordinator())(t)
	a := b.allocator(s, c)
	for range 6 {
		fill(t, c, s, a)
	}
	lose(t, b, s, 1)
	check(t, b.inner.RestartBlade(1, true))
	dirty := s.Redundancy().Dirty
	if dirty < 3 {
		t.Fatalf("%d places are dirty", dirty)
	}
	for left := dirty; left > 1; left-- {
		parts := 0
		check(t, s.Admit(c, 1, func() bool { parts++; return parts > 1 }))
		if r := s.Redundancy(); s.View().Up(1) || r.Dirty != left-1 {
			t.Fatalf("of %d: %+v", left, r)
		}
	}
	check(t, s.Admit(c, 1, func() bool { return false }))
	if r := s.Redundancy(); !s.View().Up(1) || r.Dirty != 0 {
		t.Fatalf("%+v", r)
	}
	copyAll(t, c, s)
	alike(t, c, s)
}
