package memory_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"txnode/internal/raced"
	"txnode/memory"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/rdma"
)

// image is the first line of a block in a state.
func image(a layout.Addr, v record.TxID, s record.State, k layout.Class, lock record.TxID) []byte {
	p := make(record.Image, 64)
	p.Put(a, v, s, 1, k, lock, nil, nil)
	return p
}

// TestAdoption fills segments with blocks in every state and compares what a
// later session hands out with what is free.
func TestAdoption(t *testing.T) {
	raced.Skip(t)
	for _, x := range []struct {
		size uint32
		fill float64 // how much of the capacity is used in the first session
		keep int     // of 10, how many records are live at its end
	}{
		{64, 1, 10}, {64, 0.4, 9}, {64, 1, 1}, {200, 0.7, 7}, {500, 0.9, 3}, {5000, 0.5, 5}, {100_000, 0.8, 5},
		{testSegment, 1, 5}, {320, 0, 0},
	} {
		t.Run(fmt.Sprintf("size=%d,fill=%v,keep=%d", x.size, x.fill, x.keep), func(t *testing.T) {
			r := rand.New(rand.NewPCG(uint64(x.size), 5))
			b := newBed(t, 2, 6, 1)
			s, c := b.open()
			a := b.allocator(s, c)
			me := must(s.NewCoordinator())(t).ID
			k := class(x.size)
			perSegment := int(testSegment / k.Size())
			total := 5 * perSegment // one segment of each blade has logs
			used := map[layout.Addr]bool{}
			seq := uint64(0)
			id := func() record.TxID { seq++; return record.MakeTxID(me, seq) }
			for range int(x.fill * float64(total)) {
				addr := must(a.Alloc(c, k))(t)
				used[addr] = true
				switch n := r.IntN(10); {
				case n < x.keep:
					write(t, s, c, addr, image(addr, id(), []record.State{record.Live, record.Absent}[n%2], k, 0))
				case n == x.keep: // locked by somebody who is dead: not ours to take
					write(t, s, c, addr, image(addr, id(), record.Free, k, id()))
				case n == x.keep+1: // a state that does not exist
					p := image(addr, id(), record.Free, k, 0)
					binary.LittleEndian.PutUint64(p[8:], 9<<36)
					write(t, s, c, addr, p)
				case n == x.keep+2: // allocated, never written
					delete(used, addr)
				default:
					write(t, s, c, addr, image(addr, id(), record.Free, k, 0))
					delete(used, addr)
				}
			}
			// No Close: the process dies.
			b.dropThreads()
			s, c = b.open()
			a = b.allocator(s, c)
			blocks := drain(t, a, c, k)
			checkBlocks(t, s, blocks, k)
			for _, addr := range blocks {
				if used[addr] {
					t.Fatalf("%v is in use and handed out", addr)
				}
			}
			if len(blocks) != total-len(used) {
				t.Errorf("%d blocks are handed out, %d of %d are free", len(blocks), total-len(used), total)
			}
			if free, unscanned := s.FreeBlocks(k); free != 0 || unscanned != 0 {
				t.Errorf("%d blocks are free, %d not scanned", free, unscanned)
			}
		})
	}
}

// TestAdoptionOfTorn: somebody frees a block of an earlier session's record, as a move does, and
// a part of the words has arrived when another one scans the segment. It is not handed out
// before it is given back.
func TestAdoptionOfTorn(t *testing.T) {
	const k = layout.Class(1)
	guard, meta, version := 1<<(record.GuardOff/8), 1<<(record.MetaOff/8), 1<<(record.VersionOff/8)
	for _, first := range []int{^version, guard | meta, ^guard, meta, ^(guard | version)} { // words
		b := newBed(t, 2, 9, 1)
		s, c := b.open()
		a := b.allocator(s, c)
		old := must(s.NewCoordinator())(t).ID
		x := must(a.Alloc(c, k))(t)
		write(t, s, c, x, image(x, record.MakeTxID(old, 1), record.Live, k, 0))
		b.dropThreads()
		s, c = b.open()
		coord := must(s.NewCoordinator())(t).ID
		line := image(x, record.MakeTxID(old, 1), record.Live, k, record.MakeTxID(coord, 1))
		write(t, s, c, x, line)
		mine, other := b.allocator(s, c), b.allocator(s, c)
		mine.Hold(x)
		free := make(record.Image, record.LineSize)
		free.PutFree(x, record.MakeTxID(coord, 1), 1, k, s.CountFree(x))
		for i := range record.LineSize / 8 {
			if first>>i&1 != 0 {
				copy(line[8*i:], free[8*i:8*i+8])
			}
		}
		write(t, s, c, x, line)
		for range testSegment / k.Size() {
			if must(other.Alloc(c, k))(t) == x {
				t.Fatalf("words %#x first: it is handed out while it is being freed", first&0xff)
			}
		}
		write(t, s, c, x, free)
		mine.Free(x, k)
		if got := must(mine.Alloc(c, k))(t); got != x {
			t.Errorf("%v was given back, %v is handed out", x, got)
		}
	}
}

// TestAdoptionBesideFrees: while segments are scanned, blocks in them are freed,
// announced or not yet, before and behind the scan. No block is handed out twice.
func TestAdoptionBesideFrees(t *testing.T) {
	const k = layout.Class(1)
	b := newBed(t, 2, 9, 1)
	s, c := b.open()
	a := b.allocator(s, c)
	old := must(s.NewCoordinator())(t).ID
	var live []layout.Addr
	for range 8 * int(testSegment/k.Size()) * 3 / 4 {
		x := must(a.Alloc(c, k))(t)
		write(t, s, c, x, image(x, record.MakeTxID(old, 1), record.Live, k, 0))
		live = append(live, x)
	}
	b.dropThreads()
	s, _ = b.open()

	const workers = 3
	var mu sync.Mutex
	owned := map[layout.Addr]bool{} // live, or freed on the blades but not yet announced
	for _, x := range live {
		owned[x] = true
	}
	var threads []*rdma.Thread
	for range workers {
		threads = append(threads, b.thread())
	}
	b.fabric.Run(workers, func(i int) {
		th := threads[i]
		c := th.Plain()
		a := b.allocator(s, c)
		coord, err := s.NewCoordinator()
		if err != nil {
			t.Error(err)
			return
		}
		r := rand.New(rand.NewPCG(uint64(i), 6))
		seq := uint64(0)
		var mine, late []layout.Addr
		for j := i; j < len(live); j += workers {
			mine = append(mine, live[j])
		}
		r.Shuffle(len(mine), func(i, j int) { mine[i], mine[j] = mine[j], mine[i] })
		free := func(n int) { // on the blades, to be announced later
			for range min(n, len(mine)) {
				x := mine[len(mine)-1]
				mine = mine[:len(mine)-1]
				seq++
				a.Hold(x)
				write(t, s, c, x, image(x, record.MakeTxID(coord.ID, seq), record.Free, k, 0))
				late = append(late, x)
			}
		}
		free(len(mine) / 3)
		for range 3000 {
			switch r.IntN(60) {
			default:
				x, err := a.Alloc(c, k)
				if errors.Is(err, memory.ErrNoSpace) {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				if owned[x] {
					t.Errorf("%v is handed out twice", x)
				}
				owned[x] = true
				mu.Unlock()
				seq++
				write(t, s, c, x, image(x, record.MakeTxID(coord.ID, seq), record.Live, k, 0))
				a.Used(x)
				mine = append(mine, x)
			case 0:
				r.Shuffle(len(mine), func(i, j int) { mine[i], mine[j] = mine[j], mine[i] })
				free(60)
			case 1:
				for _, x := range late[:len(late)/4] {
					mu.Lock()
					delete(owned, x)
					mu.Unlock()
					a.Free(x, k)
				}
				late = late[len(late)/4:]
			}
		}
		for _, x := range late {
			mu.Lock()
			delete(owned, x)
			mu.Unlock()
			a.Free(x, k)
		}
		if err := a.Close(c); err != nil {
			t.Error(err)
		}
	})
	c = b.thread().Plain()
	rest := drain(t, b.allocator(s, c), c, k)
	checkBlocks(t, s, rest, k)
	for _, x := range rest {
		if owned[x] {
			t.Fatalf("%v is in use and handed out", x)
		}
	}
	capacity := 0
	for _, seg := range s.Layout().Segments {
		if seg.Kind == layout.KindBlocks {
			capacity += int(testSegment / k.Size())
		}
	}
	if len(rest)+len(owned) != capacity {
		t.Errorf("%d blocks are free and %d in use, of %d", len(rest), len(owned), capacity)
	}
}

// TestAdoptionIsLazy: the first block after a reopen does not cost a scan of
// everything, and no new segment while an old one has a never-used part.
func TestAdoptionIsLazy(t *testing.T) {
	raced.Skip(t)
	const k = layout.Class(0)
	b := newBed(t, 2, 40, 1)
	s, c := b.open()
	a := b.allocator(s, c)
	for range 39 * int(testSegment/k.Size()) / 2 {
		x := must(a.Alloc(c, k))(t)
		write(t, s, c, x, image(x, record.MakeTxID(1, 1), record.Live, k, 0))
	}
	b.dropThreads()
	s, c = b.open()
	a = b.allocator(s, c)
	segments := len(s.Layout().Segments)
	before := *c.Count
	must(a.Alloc(c, k))(t)
	cost := c.Count.Sub(&before)
	if cost.Verbs[rdma.OpRead] > 12*128 {
		t.Errorf("the first block cost %d READs", cost.Verbs[rdma.OpRead])
	}
	// The two youngest segments are partly used; their rest comes first.
	for range testSegment/k.Size()/2 - 1 {
		must(a.Alloc(c, k))(t)
	}
	if n := len(s.Layout().Segments); n != segments {
		t.Errorf("%d segments, then %d", segments, n)
	}
}

// TestAdoptionVerbFails: a range whose READs failed is scanned again.
func TestAdoptionVerbFails(t *testing.T) {
	const k = layout.Class(2)
	b := newBed(t, 1, 4, 0)
	s, c := b.open()
	a := b.allocator(s, c)
	n := int(testSegment/k.Size()) * 3
	for range n {
		x := must(a.Alloc(c, k))(t)
		state := record.Live
		if x.Offset()/k.Size()%3 == 0 {
			state = record.Free
		}
		write(t, s, c, x, image(x, record.MakeTxID(0, 1), state, k, 0))
	}
	b.dropThreads()
	s, c = b.open()
	a = b.allocator(s, c)
	var got []layout.Addr
	for fail := 0; ; fail++ {
		b.fabric.stop = &stop{left: fail % 5}
		x, err := a.Alloc(c, k)
		stopped := b.fabric.stop.left == 0
		b.fabric.stop = nil
		if errors.Is(err, memory.ErrNoSpace) {
			break
		}
		if err != nil {
			if !stopped {
				t.Fatal(err)
			}
			check(t, c.Thread().Reconnect(0))
			if fail%5 == 4 {
				x, err = a.Alloc(c, k)
				if errors.Is(err, memory.ErrNoSpace) {
					break
				}
				check(t, err)
				got = append(got, x)
			}
			continue
		}
		got = append(got, x)
	}
	checkBlocks(t, s, got, k)
	perSegment := int(testSegment / k.Size())
	want := perSegment + 3*((perSegment+2)/3) // one segment was never opened
	if len(got) != want {
		t.Errorf("%d blocks, want %d", len(got), want)
	}
}
