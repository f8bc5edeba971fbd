package fabrictest

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"txnode/rdma"
)

// stopper returns the fabric's switch for blades, and skips the test if it has none.
func (r *rig) stopper() rdma.Stopper {
	r.Helper()
	s, ok := r.f.(rdma.Stopper)
	if !ok {
		r.Skip("the blades of this fabric cannot be stopped")
	}
	return s
}

// stoppedBlades: verbs to a blade that is stopped fail, with an error that names
// it, and so does its control path; the other blades go on. When it is back, its
// old key opens nothing, and its memory is what it was, or zero.
func stoppedBlades(tb testing.TB, open Open) {
	const size = 1 << 16
	r := start(tb, open, 3, size, 2)
	s := r.stopper()
	lives := []uint64{r.f.Blades()[1].Incarnation}
	had := map[rdma.Key]bool{0: true, r.keys[1]: true}
	for round, memory := range []bool{true, false} {
		var want []byte
		r.run(func(w *worker) {
			want = w.paint(1, uint64(round))
			w.paint(2, 7)
			w.word(w.at(1, 0)) // all of it is placed
		}, func(w *worker) {})
		for range 2 { // the second time it is stopped already
			if err := s.StopBlade(1); err != nil {
				tb.Fatalf("StopBlade: %v", err)
			}
		}
		r.run(func(w *worker) {
			for i, x := range downVerbs(w) {
				w.b.Reset()
				x(&w.b)
				if err := w.c.Do(&w.b); !errors.Is(err, rdma.ErrBladeDown) &&
					(i == 0 || status(err) != rdma.StatusFlushed) {
					w.Errorf("verb %d to a stopped blade: %v; want ErrBladeDown", i, err)
				} else if v := new(rdma.VerbError); !errors.As(err, &v) || v.Blade != 1 {
					w.Errorf("verb %d to a stopped blade: the error %v does not name it", i, err)
				}
			}
			if err := w.t.Reconnect(1); !errors.Is(err, rdma.ErrBladeDown) {
				w.Errorf("Reconnect to a stopped blade: %v", err)
			}
			w.set(w.at(2, 0), 5)
			if got := w.word(w.at(2, 0)); got != 5 {
				w.Errorf("the blade beside a stopped one holds %d, want 5", got)
			}
		}, func(w *worker) {})
		if k, err := r.f.Grant(1); !errors.Is(err, rdma.ErrBladeDown) {
			tb.Errorf("Grant on a stopped blade: %d, %v", k, err)
		}
		if err := r.f.Revoke(1, r.keys[1]); !errors.Is(err, rdma.ErrBladeDown) {
			tb.Errorf("Revoke on a stopped blade: %v", err)
		}
		if err := r.f.Provision(1, 0, 64); !errors.Is(err, rdma.ErrBladeDown) {
			tb.Errorf("Provision on a stopped blade: %v", err)
		}
		for range 2 {
			if err := s.RestartBlade(1, memory); err != nil {
				tb.Fatalf("RestartBlade: %v", err)
			}
		}
		if k := r.f.Blades()[1].Key; had[k] {
			tb.Errorf("a blade is back with the key %d that it had", k)
		} else {
			had[k] = true
		}
		if x := r.f.Blades()[1]; x.Unheard {
			tb.Errorf("a blade is back, and unheard: %+v", x)
		}
		if l := r.f.Blades()[1].Incarnation; slices.Contains(lives, l) {
			tb.Errorf("a blade is back in the incarnation %d, which it had before", l)
		} else {
			lives = append(lives, l)
		}
		if !memory {
			clear(want)
		}
		r.run(func(*worker) {}, func(w *worker) {
			// This one has not met the stopped blade; the old key is all it knows.
			w.b.Reset()
			w.b.Write(w.at(1, 0), w.buf, 8)
			if err := w.c.Do(&w.b); err == nil {
				w.Error("a WRITE with the key of before the stop has succeeded")
			}
			if err := w.t.Reconnect(1); err != nil {
				w.Error(err)
			}
		})
		r.run(func(w *worker) { w.isBack(want, had) }, func(*worker) {})
		r.keys[1] = r.f.Blades()[1].Key
	}
	for _, b := range []rdma.BladeID{3, 1000} {
		if err := s.StopBlade(b); !errors.Is(err, rdma.ErrBladeDown) {
			tb.Errorf("StopBlade(%d) of 3: %v", b, err)
		}
		if err := s.RestartBlade(b, true); !errors.Is(err, rdma.ErrBladeDown) {
			tb.Errorf("RestartBlade(%d) of 3: %v", b, err)
		}
	}
}

// downVerbs is one verb of each kind to blade 1.
func downVerbs(w *worker) []func(b *rdma.Batch) {
	return []func(b *rdma.Batch){
		func(b *rdma.Batch) { b.Read(w.at(1, 0), w.buf, 64) },
		func(b *rdma.Batch) { b.Write(w.at(1, 64), w.buf, 64) },
		func(b *rdma.Batch) { b.CAS(w.at(1, 0), 0, 1) },
		func(b *rdma.Batch) { b.FAA(w.at(1, 8), 1) },
		func(b *rdma.Batch) { b.Flush(w.at(1, 0), 64) },
		func(b *rdma.Batch) { b.Read(w.at(1, 3), w.buf, 5) },
	}
}

// isBack checks a blade that has been restarted.
func (w *worker) isBack(want []byte, had map[rdma.Key]bool) {
	w.b.Reset()
	w.b.Read(w.at(1, 0), w.buf, 8)
	if err := w.c.Do(&w.b); err == nil {
		w.Error("a READ with the key of before the stop has succeeded")
	}
	if err := w.t.Reconnect(1); err != nil {
		w.Fatalf("Reconnect to a blade that is back: %v", err)
	}
	key := w.f.Blades()[1].Key
	at := rdma.RemoteAddr{Blade: 1, Key: key}
	w.same("memory of a blade that is back", w.read(at, uint32(len(want))), want)
	if err := w.f.Revoke(1, w.keys[1]); !errors.Is(err, rdma.ErrStaleKey) {
		w.Errorf("Revoke by a key of before the stop: %v; want ErrStaleKey", err)
	}
	at.Key = w.grant(1, had)
	w.revoke(1, at.Key)
	w.set(at, 99)
	if got := w.word(at); got != 99 {
		w.Errorf("a blade that is back holds %d, want 99", got)
	}
}

// stoppedUnderLoad: while threads write, a blade stops. Each thread sees that once,
// and afterwards nothing changes there any more.
func stoppedUnderLoad(tb testing.TB, open Open) {
	const size = 1 << 16
	for round := range 3 {
		r := start(tb, open, 2, size, 3)
		s := r.stopper()
		var posted [2]atomic.Int32
		writer := func(i int) func(w *worker) {
			return func(w *worker) {
				for n := uint64(1); !w.Failed(); n++ {
					w.t.PutWord(w.buf, n)
					w.b.Reset()
					w.b.Write(w.at(1, uint64(64*i)), w.buf, 8)
					w.b.FAA(w.at(1, uint64(64*i+8)), 1)
					w.b.Write(w.at(0, uint64(64*i)), w.buf, 8)
					posted[i].Add(1)
					if err := w.c.Do(&w.b); err != nil {
						if !errors.Is(err, rdma.ErrBladeDown) && !errors.Is(err, rdma.ErrStaleKey) ||
							w.b.WR(2).Status != rdma.StatusOK {
							w.Errorf("round %d of thread %d: %v, and the other blade says %q",
								n, i, err, w.b.WR(2).Status)
						}
						return
					}
				}
			}
		}
		var counts [2]uint64
		r.run(writer(0), writer(1), func(w *worker) {
			for (posted[0].Load() < 50 || posted[1].Load() < 50) && !w.Failed() {
				w.pause()
			}
			if err := s.StopBlade(1); err != nil {
				w.Errorf("StopBlade: %v", err)
			}
			if err := s.RestartBlade(1, true); err != nil {
				w.Errorf("RestartBlade: %v", err)
			}
			if err := w.t.Reconnect(1); err != nil {
				w.Errorf("Reconnect: %v", err)
			}
			at := rdma.RemoteAddr{Blade: 1, Key: w.f.Blades()[1].Key}
			for i := range counts {
				at.Off = uint64(64*i + 8)
				counts[i] = w.word(at)
			}
			for range 20 {
				w.pause()
				for i := range counts {
					at.Off = uint64(64*i + 8)
					if n := w.word(at); n != counts[i] {
						w.Errorf("round %d: a verb with the key of before the stop has landed: %d, then %d",
							round, counts[i], n)
					}
				}
			}
		})
		for i := range counts {
			if n := uint64(posted[i].Load()); counts[i] > n {
				tb.Error(fmt.Errorf("thread %d has posted %d additions, %d are there", i, n, counts[i]))
			}
		}
	}
}
