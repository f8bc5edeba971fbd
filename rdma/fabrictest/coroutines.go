package fabrictest

import (
	"testing"

	"txnode/rdma"
)

// coroutines: many coroutines on several threads get their own completions, and
// only those; atomics on shared words are exact.
func coroutines(tb testing.TB, open Open) {
	const threads, coros, slot = 2, 12, 1024
	r := start(tb, open, 2, 1<<16, threads)
	rounds := r.rounds(300)
	r.f.Run(threads, func(i int) {
		r.threads[i].Run(coros, func(c *rdma.Coro) {
			w := r.worker(i, c)
			base := uint64(slot * (1 + i*coros + c.ID()))
			count := [2]uint64{}
			for k := range uint64(rounds) {
				if w.Failed() {
					return
				}
				n := uint32(8 + w.t.Rand()%500)
				blade := rdma.BladeID(w.t.Rand() % 2)
				w.fill(0, n, k^base)
				w.b.Reset()
				w.b.Write(w.at(blade, base+8), w.buf, n)
				add := w.b.FAA(w.at(blade, base), 1)
				w.c.Post(&w.b)
				if w.t.Rand()%4 == 0 {
					w.c.Yield()
				}
				w.b.Read(w.at(blade, base+8), w.buf+slot, n)
				cas := w.b.CAS(w.at(blade, base), count[blade]+1, count[blade]+1)
				w.b.FAA(w.at(0, 64), 1)
				w.do()
				w.same("own data", w.t.Bytes(w.buf+slot, n), w.t.Bytes(w.buf, n))
				if v := w.b.Result(add); v != count[blade] {
					w.Errorf("coroutine %d of thread %d: FAA found %d; want %d", c.ID(), i, v, count[blade])
				}
				count[blade]++
				if v := w.b.Result(cas); v != count[blade] {
					w.Errorf("coroutine %d of thread %d: CAS found %d; want %d", c.ID(), i, v, count[blade])
				}
				switch w.t.Rand() % 16 {
				case 0:
					c.Sleep(int64(w.t.Rand() % 3000))
				case 1:
					c.Yield()
				}
			}
		})
	})
	r.run(func(w *worker) {
		if v := w.word(w.at(0, 64)); v != uint64(threads*coros*rounds) {
			w.Errorf("%d FAAs of coroutines added up to %d", threads*coros*rounds, v)
		}
	})
}

// manyBatches: one coroutine has many batches outstanding, appends to posted
// ones, waits for them in any order, and uses them again.
func manyBatches(tb testing.TB, open Open) {
	const batches = 8
	r := start(tb, open, 2, 1<<16, 1)
	run := func(w *worker) {
		var all [batches]rdma.Batch
		var next [2]uint64 // value of the counter on each blade
		id := uint64(w.c.ID())
		counter := func(blade uint64) rdma.RemoteAddr { return w.at(rdma.BladeID(blade), 64*(1+id)) }
		for range r.rounds(200) {
			var want [batches][]uint64
			for range 3 * batches {
				i, blade := w.t.Rand()%batches, w.t.Rand()%2
				all[i].FAA(counter(blade), 1)
				want[i] = append(want[i], next[blade])
				next[blade]++
				w.c.Post(&all[i])
			}
			first := w.t.Rand()
			for i := range uint64(batches) {
				b := &all[(first+i*5)%batches]
				if err := w.c.Wait(b); err != nil {
					w.Fatalf("batch failed: %v", err)
				}
				if !b.Done() || b.Err() != nil {
					w.Errorf("after Wait: done %v, error %v", b.Done(), b.Err())
				}
				for j, v := range want[(first+i*5)%batches] {
					if b.Result(j) != v {
						w.Errorf("request %d of a batch found %d; want %d", j, b.Result(j), v)
						return
					}
				}
				b.Reset()
			}
		}
	}
	r.run(run)
	r.f.Run(1, func(int) {
		r.threads[0].Run(5, func(c *rdma.Coro) {
			w := r.worker(0, c)
			w.set(w.at(0, 64*(1+uint64(c.ID()))), 0)
			w.set(w.at(1, 64*(1+uint64(c.ID()))), 0)
			run(w)
		})
	})
}
