package region_test

import (
	"encoding/binary"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"txnode/rdma"
	"txnode/rdma/region"
)

// lane makes a set of two regions of 64 KiB, with keys 100 and 101, and a lane on it.
// fence: without exec.
func lane(tb testing.TB, fence, readOnly bool) (*region.Set, *region.Lane) {
	tb.Helper()
	o := blades(2, 1<<16, "")
	o[1].ReadOnly = readOnly
	s, err := region.New(region.Config{Regions: o, Seed: 1})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { // behind the lanes
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
	if fence {
		s.Fence()
	}
	return s, another(tb, s)
}

// another makes one more lane, which is closed with the test.
func another(tb testing.TB, s *region.Set) *region.Lane {
	tb.Helper()
	l, err := s.NewLane(1 << 16)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := l.Close(); err != nil {
			tb.Error(err)
		}
	})
	return l
}

// TestChecks: a request that may not execute fails with the status of the first check
// that it does not pass, harms neither memory nor arena, and breaks its queue pair alone.
func TestChecks(t *testing.T) {
	const size, arena = 1 << 16, 1 << 16
	good := rdma.WR{Op: rdma.OpFAA, Blade: 1, Key: 101, Off: 8, Len: 8, Swap: 1}
	with := func(change func(w *rdma.WR)) rdma.WR { w := good; change(&w); return w }
	cases := []struct {
		name     string
		wr       rdma.WR
		readOnly bool
		want     rdma.Status
	}{
		{"atomic", good, false, rdma.StatusOK},
		{"no such blade", with(func(w *rdma.WR) { w.Blade = 2 }), false, rdma.StatusNoBlade},
		{"another blade's key", with(func(w *rdma.WR) { w.Key = 100 }), false, rdma.StatusKey},
		{"no verb", with(func(w *rdma.WR) { w.Op = rdma.NumOps }), false, rdma.StatusBadOp},
		{"atomic, unaligned", with(func(w *rdma.WR) { w.Off = 12 }), false, rdma.StatusAlign},
		{"atomic, four bytes", with(func(w *rdma.WR) { w.Len = 4 }), false, rdma.StatusAlign},
		{"atomic, at the end", with(func(w *rdma.WR) { w.Off = size }), false, rdma.StatusBounds},
		{"atomic, read-only", good, true, rdma.StatusAccess},
		{
			"masks outside", with(func(w *rdma.WR) { w.Op, w.Local = rdma.OpMaskedCAS, arena-8 }),
			false, rdma.StatusLocal,
		},
		{"READ, read-only", with(func(w *rdma.WR) { w.Op = rdma.OpRead }), true, rdma.StatusOK},
		{"READ, local end", with(func(w *rdma.WR) { w.Op, w.Local = rdma.OpRead, arena-7 }), false, rdma.StatusLocal},
		{
			"READ, local overflow", with(func(w *rdma.WR) { w.Op, w.Local, w.Len = rdma.OpRead, 1<<32-8, 16 }),
			false, rdma.StatusLocal,
		},
		{
			"READ, past the end", with(func(w *rdma.WR) { w.Op, w.Off, w.Len = rdma.OpRead, size-8, 16 }),
			false, rdma.StatusBounds,
		},
		{
			"READ, overflow", with(func(w *rdma.WR) { w.Op, w.Off, w.Len = rdma.OpRead, 1<<64-8, 16 }),
			false, rdma.StatusBounds,
		},
		{
			"WRITE, past the end", with(func(w *rdma.WR) { w.Op, w.Off, w.Len = rdma.OpWrite, size-8, 16 }),
			false, rdma.StatusBounds,
		},
		{
			"WRITE, past the end by a byte", with(func(w *rdma.WR) { w.Op, w.Off, w.Len = rdma.OpWrite, size-7, 8 }),
			false, rdma.StatusBounds,
		},
		{
			"WRITE of nothing at the end", with(func(w *rdma.WR) { w.Op, w.Off, w.Len = rdma.OpWrite, size, 0 }),
			false, rdma.StatusOK,
		},
		{"WRITE, read-only", with(func(w *rdma.WR) { w.Op = rdma.OpWrite }), true, rdma.StatusAccess},
		{
			"WRITE, stale key, past the end", with(func(w *rdma.WR) { w.Op, w.Off, w.Key = rdma.OpWrite, size, 7 }),
			false, rdma.StatusKey,
		},
		{"FLUSH, past the end", with(func(w *rdma.WR) { w.Op, w.Len = rdma.OpFlush, size }), false, rdma.StatusBounds},
	}
	for _, x := range cases {
		for _, fence := range []bool{false, true} {
			s, l := lane(t, fence, x.readOnly)
			copy(l.Arena(), "this lies in the arena")
			read := rdma.WR{Op: rdma.OpRead, Blade: 1, Key: 101, Len: 16, Local: 64}
			other := rdma.WR{Op: rdma.OpFAA, Blade: 0, Key: 100, Len: 8, Swap: 5}
			wrs := []rdma.WR{other, x.wr, read, other}
			failed := l.Execute(wrs)
			behind, count := rdma.StatusOK, 0
			if x.want != rdma.StatusOK {
				count = 1
				if x.wr.Blade == 1 {
					behind, count = rdma.StatusFlushed, 2
				}
			}
			if failed != count || wrs[0].Status != 0 || wrs[1].Status != x.want || wrs[2].Status != behind ||
				wrs[3].Status != 0 {
				t.Errorf("%s, fence %v: %d failed: %v, %v, %v, %v; want %v, then %v",
					x.name, fence, failed, wrs[0].Status, wrs[1].Status, wrs[2].Status, wrs[3].Status, x.want, behind)
			}
			if wrs[3].Result != 5 {
				t.Errorf("%s, fence %v: the other blade's word was %d; want 5", x.name, fence, wrs[3].Result)
			}
			if x.want == rdma.StatusOK {
				continue
			}
			for i, v := range s.Region(1) {
				if v != 0 {
					t.Fatalf("%s, fence %v: byte %d of the region is %d", x.name, fence, i, v)
				}
			}
			if got := string(l.Arena()[:22]); got != "this lies in the arena" {
				t.Errorf("%s, fence %v: the arena has %q", x.name, fence, got)
			}
			if err := l.Reset(1); err != nil {
				t.Fatal(err)
			}
			if again := []rdma.WR{read}; l.Execute(again) != 0 {
				t.Errorf("%s, fence %v: after Reset: %v", x.name, fence, again[0].Status)
			}
		}
	}
}

// TestWordsInOrder: a WRITE stores the words of a line upwards, and a READ loads them
// upwards, whatever the alignment of its ends in the arena: also those that exec does not
// execute. The other side, in the opposite direction, is loops of plain atomics.
func TestWordsInOrder(t *testing.T) {
	rounds := 20000
	if testing.Short() {
		rounds = 2000
	}
	for _, fence := range []bool{false, true} {
		for _, local := range []uint32{0, 8, 3} {
			s, l := lane(t, fence, false)
			line := (*[8]uint64)(unsafe.Pointer(&s.Region(0)[1024]))
			var side sync.WaitGroup
			var stop atomic.Bool
			side.Go(func() { // reads downwards
				for !stop.Load() {
					last := atomic.LoadUint64(&line[7])
					for i := 6; i >= 0; i-- {
						if v := atomic.LoadUint64(&line[i]); v < last {
							t.Errorf("fence %v, local %d: word %d is %d after word 7 was %d: a WRITE stores upwards",
								fence, local, i, v, last)
							return
						}
					}
				}
			})
			for k := range rounds {
				for i := range 8 {
					binary.LittleEndian.PutUint64(l.Arena()[int(local)+8*i:], uint64(k+1))
				}
				if l.Execute([]rdma.WR{{Op: rdma.OpWrite, Key: 100, Off: 1024, Local: local, Len: 64}}) != 0 {
					t.Fatal("a WRITE has failed")
				}
			}
			stop.Store(true)
			side.Wait()

			stop.Store(false)
			side.Go(func() { // writes downwards
				for k := uint64(rounds) + 1; !stop.Load(); k++ {
					for i := 7; i >= 0; i-- {
						atomic.StoreUint64(&line[i], k)
					}
				}
			})
			for range rounds {
				if l.Execute([]rdma.WR{{Op: rdma.OpRead, Key: 100, Off: 1024, Local: local, Len: 64}}) != 0 {
					t.Fatal("a READ has failed")
				}
				first := binary.LittleEndian.Uint64(l.Arena()[local:])
				for i := 1; i < 8; i++ {
					if v := binary.LittleEndian.Uint64(l.Arena()[int(local)+8*i:]); v < first {
						t.Fatalf("fence %v, local %d: word %d is %d, word 0 was %d before: a READ loads upwards",
							fence, local, i, v, first)
					}
				}
			}
			stop.Store(true)
			side.Wait()
		}
	}
}

// TestPartsOfWords: two lanes WRITE different bytes of one word; neither loses the other's.
func TestPartsOfWords(t *testing.T) {
	s, a := lane(t, false, false)
	b := another(t, s)
	var both sync.WaitGroup
	for at, l := range map[uint32]*region.Lane{1: a, 5: b} {
		both.Go(func() {
			for k := range 100000 {
				l.Arena()[0], l.Arena()[1] = byte(k), byte(k>>8)
				wrs := []rdma.WR{
					{Op: rdma.OpWrite, Key: 100, Off: uint64(at), Len: 2},
					{Op: rdma.OpRead, Key: 100, Off: uint64(at), Local: 64, Len: 2},
				}
				if l.Execute(wrs) != 0 || string(l.Arena()[:2]) != string(l.Arena()[64:66]) {
					t.Errorf("at byte %d: wrote % x and read % x", at, l.Arena()[:2], l.Arena()[64:66])
					return
				}
			}
		})
	}
	both.Wait()
}

// TestKeyFenceWaits: Revoke and StopBlade return no sooner than a request that was let in
// with the key before has ended, and later ones fail.
func TestKeyFenceWaits(t *testing.T) {
	for name, change := range changes {
		for _, fence := range []bool{false, true} {
			s, l := lane(t, fence, false)
			other := another(t, s)
			var ended atomic.Bool
			changed := make(chan error)
			slow := rdma.WR{Op: rdma.OpFAA, Key: 100, Len: 8, Swap: 1}
			status := l.Slowly(&slow, func() {
				go func() {
					err := change(s)
					if !ended.Load() {
						err = errors.Join(err, errors.New("it returned while the request was under way"))
					}
					changed <- err
				}()
				probe := []rdma.WR{{Op: rdma.OpRead, Key: 100}}
				tries := 0
				for ; tries < 1e5 && other.Execute(probe) == 0; tries++ { // until the key has changed
					runtime.Gosched()
				}
				if tries == 1e5 {
					t.Errorf("%s: the key before opens the region on and on", name)
				}
				for range 1000 { // the change may return
					runtime.Gosched()
				}
				ended.Store(true)
			})
			if status != rdma.StatusOK {
				t.Errorf("%s: the request that was let in: %v", name, status)
			}
			if err := <-changed; err != nil {
				t.Errorf("%s, fence %v: %v", name, fence, err)
			}
			if late := []rdma.WR{{Op: rdma.OpRead, Key: 100}}; l.Execute(late) != 1 {
				t.Errorf("%s: the key before opens the region", name)
			}
			if l.Executing() {
				t.Errorf("%s: the lane still announces itself", name)
			}
		}
	}
}

// changes end the key 100 of the first region.
var changes = map[string]func(s *region.Set) error{
	"Revoke": func(s *region.Set) error {
		k, err := s.Grant(0)
		return errors.Join(err, s.Revoke(0, k))
	},
	"StopBlade": func(s *region.Set) error { return s.StopBlade(0) },
}

// TestKeyFenceLeavesDisks: Revoke and StopBlade return while a disk writes for FLUSHes that were
// let in with the key before. Those change no memory.
func TestKeyFenceLeavesDisks(t *testing.T) {
	for name, change := range changes {
		for _, n := range []int{1, 3} { // alone, and several at once
			s, err := region.New(region.Config{Regions: blades(1, 1<<16, t.TempDir())})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { s.Close() }) // behind the lane
			l := another(t, s)
			changed := make(chan error, 1)
			var once sync.Once
			restore := region.SetMsync(func([]byte, int) error {
				once.Do(func() { changed <- change(s) })
				return nil
			})
			wrs := make([]rdma.WR, n)
			for i := range wrs {
				wrs[i] = rdma.WR{Op: rdma.OpFlush, Key: 100, Len: 8}
			}
			if failed := l.Execute(wrs); failed != 0 {
				t.Errorf("%s: %d of %d FLUSHes have failed, which were let in", name, failed, n)
			}
			if err := <-changed; err != nil {
				t.Errorf("%s: %v", name, err)
			}
			restore()
			if l.Execute(wrs) != n {
				t.Errorf("%s: the key before opens the region", name)
			}
		}
	}
}

// TestRestart: a stopped region answers nothing and is told so; restarted, it has a key
// that it never had, and what its memory held, or zeros.
func TestRestart(t *testing.T) {
	for _, memory := range []bool{true, false} {
		s, l := lane(t, false, false)
		seen := map[rdma.Key]bool{100: true}
		for range 5 {
			k := s.Blades()[0].Key
			if l.Execute([]rdma.WR{{Op: rdma.OpFAA, Key: k, Len: 8, Swap: 1}}) != 0 {
				t.Fatal("FAA has failed")
			}
			if err := s.StopBlade(0); err != nil {
				t.Fatal(err)
			}
			down := []rdma.WR{{Op: rdma.OpFAA, Key: k, Len: 8, Swap: 100}}
			if l.Execute(down) != 1 || down[0].Status != rdma.StatusNoBlade {
				t.Errorf("stopped: %v", down[0].Status)
			}
			for call, err := range map[string]error{
				"Reset": l.Reset(0), "Revoke": s.Revoke(0, k), "Provision": s.Provision(0, 0, 8),
			} {
				if !errors.Is(err, rdma.ErrBladeDown) {
					t.Errorf("stopped: %s: %v", call, err)
				}
			}
			if err := s.RestartBlade(0, memory); err != nil {
				t.Fatal(err)
			}
			if k = s.Blades()[0].Key; seen[k] {
				t.Errorf("restarted with key %d, which it had before", k)
			}
			seen[k] = true
			if err := l.Reset(0); err != nil {
				t.Fatal(err)
			}
		}
		read := []rdma.WR{{Op: rdma.OpRead, Key: s.Blades()[0].Key, Len: 8}}
		if l.Execute(read); binary.LittleEndian.Uint64(l.Arena()) != map[bool]uint64{true: 5, false: 0}[memory] {
			t.Errorf("memory %v: the word is % x", memory, l.Arena()[:8])
		}
	}
}

// TestClose: a set is closed behind its lanes; what is executed on a closed lane fails.
func TestClose(t *testing.T) {
	s, l := lane(t, false, false)
	if l.Executing() {
		t.Error("a new lane is executing")
	}
	if s.Close() == nil {
		t.Error("a set was closed with a lane open")
	}
	for range 2 {
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if wrs := []rdma.WR{{Key: 100}}; l.Execute(wrs) != 1 || wrs[0].Status != rdma.StatusNoBlade {
		t.Errorf("on a closed lane: %v", wrs[0].Status)
	}
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.NewLane(64); !errors.Is(err, rdma.ErrClosed) {
		t.Errorf("NewLane of a closed set: %v", err)
	}
	if err := s.Sync(0); !errors.Is(err, rdma.ErrClosed) {
		t.Errorf("Sync of a closed set: %v", err)
	}
}

// TestAllocations: executing allocates nothing, in exec and in its twin.
func TestAllocations(t *testing.T) {
	for _, fence := range []bool{false, true} {
		_, l := lane(t, fence, false)
		wrs := []rdma.WR{
			{Op: rdma.OpRead, Key: 100, Len: 64},
			{Op: rdma.OpWrite, Key: 100, Off: 3, Local: 64, Len: 61},
			{Op: rdma.OpCAS, Blade: 1, Key: 101, Len: 8},
			{Op: rdma.OpMaskedCAS, Blade: 1, Key: 101, Len: 8},
			{Op: rdma.OpRead, Blade: 1, Key: 101, Local: 1, Len: 8000},
		}
		if n := testing.AllocsPerRun(100, func() { l.Execute(wrs) }); n != 0 {
			t.Errorf("fence %v: %v allocations", fence, n)
		}
	}
}
