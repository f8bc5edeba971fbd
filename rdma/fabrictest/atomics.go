package fabrictest

import (
	"slices"
	"testing"

	"txnode/rdma"
)

// fetchAndAdd: concurrent FAAs of 1 find every number once, and none is lost.
func fetchAndAdd(tb testing.TB, open Open) {
	const threads = 3
	r := start(tb, open, 2, 1<<16, threads)
	rounds := r.rounds(10_000)
	up, down := r.at(1, 72), r.at(0, 64)
	var found [threads][]uint64
	adder := func(w *worker) {
		var mine []uint64
		met := 0
		for k := 0; w.racing(k, rounds, met); k++ {
			w.b.Reset()
			i := w.b.FAA(up, 1)
			j := w.b.FAA(up, 1)
			w.b.FAA(down, ^uint64(0))
			w.do()
			mine = append(mine, w.b.Result(i), w.b.Result(j))
			if k > 0 && mine[2*k] != mine[2*k-1]+1 {
				met++
			}
		}
		found[w.t.Index()] = mine
	}
	r.run(adder, adder, adder)
	all := slices.Concat(found[:]...)
	for _, mine := range found {
		if !slices.IsSorted(mine) {
			tb.Error("the FAAs of one queue pair found decreasing numbers")
		}
	}
	slices.Sort(all)
	for i, v := range all {
		if v != uint64(i) {
			tb.Errorf("%d FAAs of 1: number %d was found instead of %d", len(all), v, i)
			break
		}
	}
	r.run(func(w *worker) {
		if v := w.word(up); v != uint64(len(all)) {
			w.Errorf("after %d FAAs of 1 the word is %d", len(all), v)
		}
		if v, want := w.word(down), -uint64(len(all)/2); v != want {
			w.Errorf("after %d FAAs of -1 the word is %#x; want %#x", len(all)/2, v, want)
		}
	})
}

// compareAndSwap: concurrent increments by CAS are exact, on the words of a line.
func compareAndSwap(tb testing.TB, open Open) {
	const threads, off = 3, 1024
	r := start(tb, open, 1, 1<<16, threads)
	rounds := r.rounds(2_000)
	var total [threads][lineWords]uint64
	adder := func(w *worker) {
		done := &total[w.t.Index()]
		var expect [lineWords]uint64
		met := 0
		for k := 0; w.racing(k, rounds, met); k++ {
			w.b.Reset()
			for i, v := range expect {
				w.b.CAS(w.at(0, off+8*uint64(i)), v, v+1)
			}
			w.do()
			for i, v := range expect {
				prior := w.b.Result(i)
				if prior < v {
					w.Errorf("CAS found %d after %d had been there", prior, v)
					return
				}
				if expect[i] = prior; prior == v {
					expect[i]++
					done[i]++
				} else {
					met++
				}
			}
			if w.t.Rand()%64 == 0 {
				w.pause() // else, where time is virtual, the same thread may win for ever
			}
		}
	}
	r.run(adder, adder, adder)
	r.run(func(w *worker) {
		for i := range total[0] {
			want := total[0][i] + total[1][i] + total[2][i]
			if v := w.word(w.at(0, off+8*uint64(i))); v != want {
				w.Errorf("after %d+%d+%d increments by CAS word %d is %d", total[0][i], total[1][i], total[2][i], i, v)
			}
		}
	})
}

// maskedCompareAndSwap: Coro.MaskedCAS, native or emulated, compares and changes
// the bits of its masks only, also when others change the other bits.
func maskedCompareAndSwap(tb testing.TB, open Open) {
	const threads = 3
	r := start(tb, open, 1, 1<<16, threads)
	a := r.at(0, 512)
	r.run(func(w *worker) {
		word := uint64(0)
		for range r.rounds(200) {
			compare, cmpMask := word^1<<(w.t.Rand()%64), w.t.Rand()
			cmpMask &= w.t.Rand() // a quarter: so it succeeds as often as not
			swap, swapMask := w.t.Rand(), w.t.Rand()
			prior, err := w.c.MaskedCAS(&w.b, a, compare, cmpMask, swap, swapMask, w.buf)
			if err != nil || prior != word {
				w.Fatalf("MaskedCAS found %#x, %v; want %#x", prior, err, word)
			}
			if word&cmpMask == compare&cmpMask {
				word = word&^swapMask | swap&swapMask
			}
			if v := w.word(a); v != word {
				w.Fatalf("after MaskedCAS(%#x/%#x, %#x/%#x) the word is %#x; want %#x",
					compare, cmpMask, swap, swapMask, v, word)
			}
		}
		w.set(a, 0)
		if _, err := w.c.MaskedCAS(&w.b, w.at(0, 516), 0, 1, 1, 1, w.buf); status(err) != rdma.StatusAlign {
			w.Errorf("MaskedCAS of an unaligned word: %v; want status %q", err, rdma.StatusAlign)
		}
		if err := w.t.Reconnect(0); err != nil {
			w.Fatal(err)
		}
	})

	// Each thread counts in 16 bits of its own, and all in the upper ones.
	rounds := r.rounds(5_000)
	var total [threads]uint64
	adder := func(w *worker) {
		shift := 16 * w.t.Index()
		mask := uint64(0xffff) << shift
		last, met := uint64(0), 0
		for k := uint64(0); w.racing(int(k), rounds, met); k++ {
			prior, err := w.c.MaskedCAS(&w.b, a, k<<shift, mask, (k+1)<<shift, mask, w.buf)
			if err != nil {
				w.Fatal(err)
			}
			if got := prior & mask >> shift; got != k&0xffff {
				w.Errorf("MaskedCAS of bits %d to %d found %d there; want %d", shift, shift+15, got, k&0xffff)
				return
			}
			if prior&^mask != last&^mask+1<<48 {
				met++
			}
			last = prior
			w.b.Reset()
			w.b.FAA(a, 1<<48)
			w.do()
			total[w.t.Index()] = k + 1
		}
	}
	r.run(adder, adder, adder)
	r.run(func(w *worker) {
		want := total[0]&0xffff | total[1]&0xffff<<16 | total[2]&0xffff<<32 | (total[0]+total[1]+total[2])<<48
		if v := w.word(a); v != want {
			w.Errorf("after %d masked increments the word is %#x; want %#x", total, v, want)
		}
	})
}

// atomicsAgainstWrites: an atomic and an aligned 8-byte WRITE of the same word
// happen one after the other: no atomic brings back what a WRITE replaced.
func atomicsAgainstWrites(tb testing.TB, open Open) {
	r := start(tb, open, 1, 1<<16, 3)
	rounds := r.rounds(10_000)
	marked, summed := r.at(0, 64), r.at(0, 128)
	// The stamps that the writer writes are even; another thread sets bit 0 of
	// what it finds, by CAS, and a third one adds to the upper half.
	r.run(func(w *worker) {
		for n := 1; w.racing(n, rounds, always); n++ {
			k := 2 * uint64(n)
			w.t.PutWord(w.buf, k)
			w.b.Reset()
			w.b.Write(marked, w.buf, 8)
			w.b.Write(summed, w.buf, 8)
			w.b.Read(marked, w.buf+8, 8)
			w.b.Read(summed, w.buf+16, 8)
			w.do()
			if v := w.t.Word(w.buf + 8); v&^1 != k {
				w.Errorf("a CAS undid a WRITE of %d: the word is %d", k, v)
			}
			if v := w.t.Word(w.buf + 16); v&0xffffffff != k {
				w.Errorf("a FAA undid a WRITE of %d: the word is %#x", k, v)
			}
		}
	}, func(w *worker) {
		met := 0
		for k := 0; w.racing(k, rounds, met); k++ {
			v := w.word(marked)
			if w.cas(marked, v, v|1) != v {
				met++
			}
		}
	}, func(w *worker) {
		last, met := uint64(0), 0
		for k := 0; w.racing(k, rounds, met); k++ {
			w.b.Reset()
			i := w.b.FAA(summed, 1<<32)
			w.do()
			if v := w.b.Result(i); uint32(v) != uint32(last) {
				last = v
				met++
			}
		}
	})
}
