package fabrictest

import (
	"sync/atomic"
	"testing"

	"txnode/rdma"
)

// placed: what a WRITE wrote is visible to all when a later READ or atomic of the
// same queue pair has completed and, with Caps.Placed, when the WRITE has.
func placed(tb testing.TB, open Open) {
	visible(tb, open, func(w *worker, _ uint64) {
		w.b.Read(w.at(0, 0), w.buf+2048, 0)
		w.do()
	})
	visible(tb, open, func(w *worker, _ uint64) {
		w.b.FAA(w.at(0, 0), 1)
		w.do()
	})
	visible(tb, open, func(w *worker, k uint64) {
		w.do()
		w.cas(w.at(0, 8), k, k)
	})
	visible(tb, open, func(w *worker, _ uint64) {
		if !w.caps.Placed {
			w.b.Read(w.at(0, data), w.buf+2048, 8)
		}
		w.do()
	})
}

// flush: what a WRITE wrote is visible to all when a later FLUSH has completed.
func flush(tb testing.TB, open Open) {
	visible(tb, open, func(w *worker, _ uint64) {
		w.b.Flush(w.at(0, data), dataSize)
		w.do()
	})
	r := start(tb, open, 1, 1<<16, 1)
	r.run(func(w *worker) {
		for _, x := range []struct {
			off uint64
			n   uint32
		}{{0, 0}, {0, 1 << 16}, {1 << 16, 0}, {4095, 2}, {1<<16 - 1, 1}} {
			w.b.Reset()
			w.b.Flush(w.at(0, x.off), x.n)
			w.do()
		}
	})
}

// fences: everything before LOCO's fences is complete, and visible to all,
// behind them.
func fences(tb testing.TB, open Open) {
	var scratch rdma.Batch
	fence := func(f func(w *worker) error) func(w *worker, k uint64) {
		return func(w *worker, _ uint64) {
			w.c.Post(&w.b) // nobody waits for it
			if err := f(w); err != nil {
				w.Fatalf("fence: %v", err)
			}
			if !w.b.Done() {
				w.Fatal("requests posted before a fence are outstanding behind it")
			}
		}
	}
	visible(tb, open, fence(func(w *worker) error { return w.c.Fence(rdma.FencePair, 0, &scratch) }))
	visible(tb, open, fence(func(w *worker) error { return w.c.Fence(rdma.FenceThread, 0, &scratch) }))
	visible(tb, open, fence(func(w *worker) error { return rdma.GlobalFence([]*rdma.Thread{w.t}, &scratch) }))
}

const data, dataSize = 4096, 320

// visible has a thread WRITE and then call told, which is to make sure that the
// data is visible; another thread, told so, must see it.
func visible(tb testing.TB, open Open, told func(w *worker, k uint64)) {
	tb.Helper()
	r := start(tb, open, 1, 1<<16, 2)
	rounds := r.rounds(1_000)
	var stamp atomic.Uint64
	r.run(func(w *worker) {
		for k := uint64(1); w.racing(int(k), rounds, always); k++ {
			for i := uint32(0); i < dataSize; i += 8 {
				w.t.PutWord(w.buf+i, k)
			}
			w.b.Reset()
			w.b.Write(w.at(0, data), w.buf, dataSize)
			told(w, k)
			stamp.Store(k)
			if k%8 == 0 {
				w.pause()
			}
		}
	}, func(w *worker) {
		last, met := uint64(0), 0
		for k := 0; w.racing(k, rounds, met); k++ {
			seen := stamp.Load()
			w.read(w.at(0, data), dataSize)
			for i := uint32(0); i < dataSize; i += 8 {
				if v := w.t.Word(w.buf + i); v < seen {
					w.Errorf("WRITE %d should be visible, but word %d is still at %d", seen, i/8, v)
					return
				}
			}
			if seen != last {
				last = seen
				met++
			}
			if k%8 == 0 {
				w.pause()
			}
		}
	})
}
