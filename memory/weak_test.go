package memory_test

import (
	"errors"
	"fmt"
	"testing"

	"txnode/internal/raced"
	"txnode/memory"
	"txnode/memory/catalog"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/rdma"
	"txnode/rdma/rdmatest"
)

// TestWeakFabric runs everything at once on a fabric that keeps no promise
// beyond the contract: completions come late and out of order between queue
// pairs, WRITEs are placed after they completed, and nobody may wait for a lock
// that somebody holds while a verb is under way.
func TestWeakFabric(t *testing.T) {
	raced.Skip(t)
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			f := rdmatest.New(rdmatest.Options{
				Blades: 3, Size: layout.HeaderArea + 12*testSegment, Seed: seed, SpreadNs: 10_000,
			})
			cat := &catalog.Mem{}
			o := memory.Options{Backups: 1, SegmentSize: testSegment, LogArea: testLog}
			var threads []*rdma.Thread
			thread := func() *rdma.Thread {
				th := must(rdma.NewThread(f, rdma.ThreadOptions{
					Arena: 1 << 20, Index: len(threads), Techniques: rdma.AllTechniques,
				}))(t)
				threads = append(threads, th)
				return th
			}
			const workers, coros = 3, 4
			for range workers {
				thread()
			}
			extents := map[layout.Addr]bool{}
			blocks := map[layout.Addr]bool{}
			for range 2 { // the second time there is something to adopt
				main := thread().Plain()
				s := must(memory.Open(main, f, cat, o))(t)
				mail := make([][]layout.Addr, workers) // extents that another thread is to use
				f.Run(workers, func(i int) {
					a := must(s.NewAllocator(threads[i]))(t)
					coord := must(s.NewCoordinator())(t)
					threads[i].Run(coros, func(c *rdma.Coro) {
						weakWorker(t, s, c, a, coord, func(x layout.Addr, taken bool) {
							if taken && extents[x] {
								t.Errorf("extent %v is handed out twice", x)
							}
							if extents[x] = taken; !taken {
								return
							}
							to := (i + 1) % workers
							mail[to] = append(mail[to], x)
						}, func() (x layout.Addr, ok bool) {
							if n := len(mail[i]); n > 0 {
								x, mail[i] = mail[i][n-1], mail[i][:n-1]
								return x, true
							}
							return 0, false
						}, func(x layout.Addr, taken bool) {
							if taken && blocks[x] {
								t.Errorf("block %v is handed out twice", x)
							}
							blocks[x] = taken
						})
					})
					check(t, a.Close(threads[i].Plain()))
					check(t, s.CloseCoordinatorOn(threads[i].Plain(), coord.ID))
				})
				checkExtents(t, s.Extents())
				check(t, s.Close(main))
			}
			for _, th := range threads {
				check(t, th.Close())
			}
			check(t, f.Close())
		})
	}
}

// weakWorker allocates, writes to what another thread has allocated, and frees.
// put notes who has an extent, and passes it to another thread, where get gets
// it; use notes who has a block.
func weakWorker(t *testing.T, s *memory.Space, c *rdma.Coro, a *memory.Allocator, coord memory.Coordinator,
	put func(layout.Addr, bool), get func() (layout.Addr, bool), use func(layout.Addr, bool)) {
	th := c.Thread()
	buf := must(th.Alloc(64))(t)
	var batch rdma.Batch
	for round := range 12 {
		x, err := s.AllocExtent(c, 2000)
		if err == nil {
			put(x, true)
		} else if !errors.Is(err, memory.ErrNoSpace) {
			t.Error(err)
		}
		if x, ok := get(); ok {
			v := s.View()
			for i := range v.Copies(x) {
				batch.Reset()
				batch.Read(v.At(x+64, i), buf, 64)
				check(t, c.Do(&batch))
				if !isZero(th.Bytes(buf, 64)) {
					t.Errorf("copy %d of the extent %v is not zero", i, x)
				}
				th.PutWord(buf, uint64(x))
				batch.Reset()
				batch.Write(v.At(x+64, i), buf, 64)
				batch.Flush(v.At(x+64, i), 64)
				check(t, c.Do(&batch))
				c.Sleep(20_000) // whatever was on its way has been placed
				batch.Reset()
				batch.Read(v.At(x+64, i), buf, 64)
				check(t, c.Do(&batch))
				if th.Word(buf) != uint64(x) {
					t.Errorf("copy %d of the extent %v has lost what was written", i, x)
				}
			}
			if round%2 == 0 {
				put(x, false)
				check(t, s.FreeAt(x, 2000))
			}
		}
		for range 20 {
			const k = layout.Class(20)
			b, err := a.Alloc(c, k)
			if errors.Is(err, memory.ErrNoSpace) {
				continue
			}
			check(t, err)
			use(b, true)
			write(t, s, c, b, image(b, record.MakeTxID(coord.ID, 1), record.Live, k, 0))
			if round%3 > 0 {
				write(t, s, c, b, image(b, record.MakeTxID(coord.ID, 2), record.Free, k, 0))
				check(t, c.Fence(rdma.FenceThread, 0, &batch))
				use(b, false)
				a.Free(b, k)
			}
		}
		check(t, a.Maintain(c))
	}
	th.Free(buf, 64)
}
