package sim_test

import (
	"encoding/binary"
	"testing"

	"txnode/rdma"
	"txnode/rdma/sim"
)

// seen counts which freedoms of the contract a run took.
type seen struct {
	tornAcross int // two lines of one READ were not of one time
	tornInside int // two words of one line were not
	unordered  int // a higher word of a line was placed before a lower one
	overtaken  int // a READ saw a WRITE posted behind it
	late       int // a WRITE was not placed at its completion
}

// watch has one thread write a record of two lines, all words alike, again and
// again, and another read it; an observer looks at completions.
func watch(t *testing.T, o sim.Options) (s seen) {
	t.Helper()
	f := newFabric(t, 1, o)
	w, r := newThread(t, f, rdma.ThreadOptions{Arena: 4096}), newThread(t, f, rdma.ThreadOptions{Index: 1, Arena: 4096})
	const rounds = 4000
	done := false
	f.Run(2, func(i int) {
		if i == 1 {
			var b rdma.Batch
			for !done {
				b.Reset()
				b.Read(at(0, 0), 0, 128)
				if err := r.Plain().Do(&b); err != nil {
					t.Error(err)
				}
				s.look(r.Bytes(0, 128))
			}
			return
		}
		defer func() { done = true }()
		var b rdma.Batch
		for v := uint64(1); v <= rounds; v++ {
			for k := range uint32(16) {
				w.PutWord(8*k, v)
			}
			b.Reset()
			b.Read(at(0, 0), 1024, 8)
			b.Write(at(0, 0), 0, 128)
			if err := w.Plain().Do(&b); err != nil {
				t.Error(err)
			}
			if w.Word(1024) == v {
				s.overtaken++
			}
			now := make([]byte, 128)
			if err := f.ReadMemory(0, 0, now); err != nil {
				t.Error(err)
			}
			if binary.LittleEndian.Uint64(now) != v {
				s.late++
			}
		}
	})
	return s
}

func (s *seen) look(b []byte) {
	word := func(i int) uint64 { return binary.LittleEndian.Uint64(b[8*i:]) }
	if word(0) != word(8) {
		s.tornAcross++
	}
	inside, unordered := false, false
	for i := range 15 {
		if i == 7 {
			continue
		}
		inside = inside || word(i) != word(i+1)
		// A line that is read in one piece while it is written shows new words
		// below old ones.
		unordered = unordered || word(i) < word(i+1)
	}
	if inside {
		s.tornInside++
	}
	if unordered {
		s.unordered++
	}
}

// Every freedom is taken where it may be, and only there.
func TestFreedom(t *testing.T) {
	none := watch(t, sim.Options{Seed: 1, Freedom: sim.FreedomNone})
	if none != (seen{}) {
		t.Errorf("no freedom: %+v", none)
	}
	for _, d := range []sim.Freedom{sim.FreedomMild, sim.FreedomHostile} {
		s := watch(t, sim.Options{Seed: 1, Freedom: d})
		if s.tornAcross == 0 || s.tornInside == 0 || s.overtaken == 0 || s.late == 0 {
			t.Errorf("%v: %+v", d, s)
		}
		p := watch(t, sim.Options{Seed: 1, Freedom: d, Placed: true})
		if p.late != 0 || p.overtaken == 0 {
			t.Errorf("%v, placed: %+v", d, p)
		}
		u := watch(t, sim.Options{Seed: 1, Freedom: d, UnorderedLines: true})
		if u.unordered <= s.unordered {
			t.Errorf("%v: %d upside down with unordered lines, %d without", d, u.unordered, s.unordered)
		}
	}
}

// A READ with the fence flag is not overtaken from behind: the flag is on the
// WRITE, which waits for the READ.
func TestFenceFlag(t *testing.T) {
	f := newFabric(t, 1, sim.Options{Seed: 3, Freedom: sim.FreedomHostile})
	w := newThread(t, f, rdma.ThreadOptions{Arena: 4096})
	var b rdma.Batch
	for v := uint64(1); v < 500; v++ {
		w.PutWord(0, v)
		b.Reset()
		b.Read(at(0, 0), 64, 8)
		b.Write(at(0, 0), 0, 8)
		b.Fence()
		if err := w.Plain().Do(&b); err != nil {
			t.Fatal(err)
		}
		if w.Word(64) >= v {
			t.Fatalf("round %d: a READ saw %d of the fenced WRITE behind it", v, w.Word(64))
		}
	}
}

// Nothing is ordered between queue pairs: of two WRITEs posted together to two
// blades either may come first, by more than a round trip.
func TestQueuePairsAreNotOrdered(t *testing.T) {
	f := newFabric(t, 2, sim.Options{Seed: 4, Freedom: sim.FreedomHostile})
	w := newThread(t, f, rdma.ThreadOptions{Arena: 4096})
	var first [2]int
	word := func(blade rdma.BladeID) uint64 {
		var b [8]byte
		if err := f.ReadMemory(blade, 0, b[:]); err != nil {
			t.Error(err)
		}
		return binary.LittleEndian.Uint64(b[:])
	}
	f.Run(1, func(int) {
		c := w.Plain()
		var b rdma.Batch
		for v := uint64(1); v < 500; v++ {
			w.PutWord(0, v)
			b.Reset()
			b.Write(at(0, 0), 0, 8)
			b.Write(at(1, 0), 0, 8)
			c.Post(&b)
			c.Sleep(3000)
			if x, y := word(0), word(1); x > y {
				first[0]++
			} else if y > x {
				first[1]++
			}
			if err := c.Wait(&b); err != nil {
				t.Error(err)
			}
		}
	})
	if first[0] < 20 || first[1] < 20 {
		t.Errorf("blade 0 was ahead %d times, blade 1 %d times of 500", first[0], first[1])
	}
}
