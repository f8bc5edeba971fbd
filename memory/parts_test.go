package memory_test

import (
	"errors"
	"testing"

	"txnode/internal/raced"
	"txnode/memory"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/rdma"
)

// backed is how many bytes of the segments of a kind have memory.
func backed(s *memory.Space, kind layout.SegmentKind) (n uint32) {
	l := s.Layout()
	for id := range l.Segments {
		if l.Segments[id].Kind == kind {
			n += l.Backed(layout.SegmentID(id))
		}
	}
	return n
}

// TestPartsGrow: the parts of segments that have memory follow what is in use, over an opening
// too, in few steps.
func TestPartsGrow(t *testing.T) {
	const unit, block = 64 << 10, 1 << 10
	b := newBed(t, 2, 40, 1)
	s, c := b.open()
	a := b.allocator(s, c)
	taken := map[layout.Addr]bool{}
	for used := uint32(block); used <= 8*testSegment; used += block {
		if used == 3*testSegment/2 {
			s, c = b.open() // as after a crash
			a = b.allocator(s, c)
		}
		x := must(a.Alloc(c, class(block)))(t)
		if taken[x] {
			t.Fatalf("%v was handed out twice", x)
		}
		taken[x] = true
		write(t, s, c, x, image(x, record.MakeTxID(1, 1), record.Live, class(block), 0))
		a.Used(x)
		if got := backed(s, layout.KindBlocks); got > 2*used+4*unit {
			t.Fatalf("%d bytes of blocks are in use, and %d have memory", used, got)
		}
	}
	if n := b.fabric.backing.calls; n > 60 {
		t.Errorf("%d calls of Provision for %d segments", n, len(s.Layout().Segments)-1)
	}
	if got := backed(s, layout.KindIndex); got != 0 {
		t.Errorf("%d bytes of indexes have memory, and there are none", got)
	}
	before := s.Layout()
	x := must(s.AllocExtent(c, 100))(t)
	after := s.Layout()
	if n := after.Backed(x.Segment()); n != unit || len(after.Segments) != len(before.Segments)+1 {
		t.Errorf("an extent of 100 bytes takes %d", n)
	}
}

// TestPartsFull: the memory of the blades ends at any step. What needs more fails with
// ErrNoSpace and harms nothing, and what has memory is still handed out. When there is memory
// again, all goes on.
func TestPartsFull(t *testing.T) {
	raced.Skip(t)
	const block = 4 << 10
	for most, failed := 1, true; failed; most++ {
		failed = false
		b := newBed(t, 2, 20, 1)
		b.opts.LogArea = testSegment
		k := b.fabric.backing
		k.most = most
		space, err := memory.Open(b.thread().Plain(), b.fabric, b.cat, b.opts)
		if err != nil {
			failed, k.most = true, 0
			space, err = memory.Open(b.thread().Plain(), b.fabric, b.cat, b.opts)
			check(t, err)
		}
		c := b.threads[len(b.threads)-1].Plain()
		a := b.allocator(space, c)
		taken := map[layout.Addr]bool{}
		try := func(what string, fn func() error) {
			t.Helper()
			before := len(space.Layout().Segments)
			err := fn()
			if err == nil {
				return
			}
			failed = true
			if !errors.Is(err, memory.ErrNoSpace) {
				t.Errorf("the first %d calls of Provision have succeeded; %s: %v", most, what, err)
			}
			check(t, space.Layout().Validate())
			if n := len(space.Layout().Segments); n > before+2 {
				t.Errorf("%s has failed and left %d segments", what, n-before)
			}
		}
		use := func() {
			t.Helper()
			var coord memory.Coordinator
			try("NewCoordinator", func() (err error) { coord, err = space.NewCoordinator(); return err })
			for coord.ID != 0 && coord.Logs[0].Size < coord.LogMax {
				size := coord.Logs[0].Size
				try("GrowLogs", func() error {
					x, err := space.GrowLogs(coord.ID)
					if err == nil {
						coord = x
					}
					return err
				})
				if coord.Logs[0].Size == size {
					break
				}
			}
			for range 3 * testSegment / block {
				try("Alloc", func() error {
					x, err := a.Alloc(c, class(block))
					if err != nil {
						return err
					}
					if taken[x] {
						t.Errorf("%v was handed out twice", x)
					}
					taken[x] = true
					write(t, space, c, x, image(x, record.MakeTxID(1, 1), record.Live, class(block), 0))
					a.Used(x)
					return nil
				})
			}
			for range 20 {
				try("AllocExtent", func() error {
					x, err := space.AllocExtent(c, 30<<10)
					if err == nil {
						write(t, space, c, x, []byte("content."))
					}
					return err
				})
			}
		}
		use()
		if k.most == 0 {
			continue
		}
		was := failed
		k.most = 0
		failed = false
		use()
		if failed {
			t.Errorf("the first %d calls of Provision have succeeded, and all later ones: something fails still", most)
		}
		failed = was
		check(t, space.Close(c))
	}
}

// TestPartsInTurn: a database of before there were parts is opened with them, and one that has
// them without.
func TestPartsInTurn(t *testing.T) {
	for _, first := range []bool{false, true} {
		b := newBed(t, 2, 40, 1)
		taken := map[layout.Addr]bool{}
		for i := range 4 {
			b.opts.Parts = first == (i%2 == 0)
			s, c := b.open()
			coord := must(s.NewCoordinator())(t)
			a := b.allocator(s, c)
			for range testSegment / 1024 * 2 / 3 {
				x := must(a.Alloc(c, class(1024)))(t)
				if taken[x] {
					t.Fatalf("%v was handed out twice", x)
				}
				taken[x] = true
				write(t, s, c, x, image(x, record.MakeTxID(1, 1), record.Live, class(1024), 0))
				a.Used(x)
			}
			write(t, s, c, must(s.AllocExtent(c, 50<<10))(t), []byte("content."))
			check(t, s.CloseCoordinator(coord.ID))
			check(t, a.Close(c))
			check(t, s.Close(c))
		}
	}
}

// TestPartsOfLogs: all that coordinators use of their log areas has memory, on blades that come up
// later, too.
func TestPartsOfLogs(t *testing.T) {
	b := newBed(t, 2, 20, 1)
	b.opts.LogArea = testSegment / 2
	s, c := b.open()
	first := must(s.NewCoordinator())(t)
	lose(t, b, s, 1)
	for range 9 {
		first = must(s.NewCoordinator())(t)
	}
	must(s.GrowLogs(first.ID))(t)
	check(t, b.inner.RestartBlade(1, true))
	check(t, s.Admit(c, 1, nil))
	for _, coord := range must(s.Coordinators())(t) {
		for _, area := range coord.Logs {
			a := area.Addr
			a.Key = s.View().Key(a.Blade)
			buf := must(c.Thread().Alloc(int(area.Size)))(t)
			var batch rdma.Batch
			batch.Write(a, buf, area.Size)
			check(t, c.Do(&batch))
			c.Thread().Free(buf, int(area.Size))
		}
	}
}

// TestPartsOfCopies: a copy that is built has memory behind as much as the others, and gets more
// with them while it is built.
func TestPartsOfCopies(t *testing.T) {
	b := newBed(t, 3, 40, 1)
	s, c := b.open()
	a := b.allocator(s, c)
	buf := must(c.Thread().Alloc(64))(t)
	defer c.Thread().Free(buf, 64)
	use := func() {
		t.Helper()
		for range testSegment / 1024 {
			x := must(a.Alloc(c, class(1024)))(t)
			v := s.View()
			copy(c.Thread().Bytes(buf, 64), image(x, record.MakeTxID(1, 1), record.Live, class(1024), 0))
			var batch rdma.Batch
			for k := range v.Written(x) {
				batch.Write(v.At(x, k), buf, 64)
			}
			check(t, c.Do(&batch))
			a.Used(x)
		}
		for range 8 {
			x := must(s.AllocExtent(c, 20<<10))(t)
			write(t, s, c, x, []byte("content."))
			check(t, memory.SyncWords(c, s.View(), x, 8))
		}
	}
	use()
	lose(t, b, s, 1)
	use()
	copyAll(t, c, s)
	use()
	alike(t, c, s)
}

// TestPartsOfReturned: a blade that was lost and comes back has memory for what is in use, and no
// more, whatever had been in its places.
func TestPartsOfReturned(t *testing.T) {
	for _, durable := range []bool{false, true} {
		for _, blank := range []bool{false, true} {
			b := newBed(t, 2, 20, 1)
			b.opts.Durable = durable
			s, c := b.open()
			must(s.NewCoordinator())(t)
			block, words := fill(t, c, s, b.allocator(s, c))
			lose(t, b, s, 1)
			check(t, b.inner.RestartBlade(1, blank))
			if blank {
				b.fabric.backing.forget(1)
			}
			check(t, s.Admit(c, 1, nil))
			copyAll(t, c, s)
			alike(t, c, s)
			most := layout.HeaderArea + len(s.Layout().Segments)*64<<10
			if got := b.fabric.backing.of(1); blank && !durable && got > most {
				t.Errorf("%v and %v take %d bytes of the blade", block, words, got)
			}
		}
	}
}
