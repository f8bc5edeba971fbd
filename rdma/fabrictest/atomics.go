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
	rounds := r.rounds(3_000)
	var found [threads][]uint64
	adder := func(w *worker) {
		mine := make([]uint64, 0, 2*rounds)
		for range rounds {
			w.b.Reset()
			i := w.b.FAA(w.at(1, 72), 1)
			j := w.b.FAA(w.at(1, 72), 1)
			w.b.FAA(w.at(0, 64), ^uint64(0))
			w.do()
			mine = append(mine, w.b.Result(i), w.b.Result(j))
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
		if v := w.word(w.at(1, 72)); v != uint64(len(all)) {
			w.Errorf("after %d FAAs of 1 the word is %d", len(all), v)
		}
		if v, want := w.word(w.at(0, 64)), -uint64(threads*rounds); v != want {
			w.Errorf("after %d FAAs of -1 the word is %#x; want %#x", threads*rounds, v, want)
		}
	})
}

// compareAndSwap: concurrent increments by CAS are exact.
func compareAndSwap(tb testing.TB, open Open) {
	const threads = 3
	r := start(tb, open, 1, 1<<16, threads)
	rounds := uint64(r.rounds(2_000))
	adder := func(w *worker) {
		a := w.at(0, 1024)
		expect := uint64(0)
		for done := uint64(0); done < rounds && !w.Failed(); {
			prior := w.cas(a, expect, expect+1)
			if prior == expect {
				done++
				prior++
			} else if prior < expect {
				w.Errorf("CAS found %d after %d had been there", prior, expect)
			}
			expect = prior
		}
	}
	r.run(adder, adder, adder)
	r.run(func(w *worker) {
		if v := w.word(w.at(0, 1024)); v != threads*rounds {
			w.Errorf("after %d increments by CAS the word is %d", threads*rounds, v)
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
			compare, cmpMask := word^1<<(w.t.Rand()%64), w.t.Rand()&w.t.Rand()
			swap, swapMask := w.t.Rand(), w.t.Rand()
			prior, err := w.c.MaskedCAS(&w.b, a, compare, cmpMask, swap, swapMask, w.buf)
			if err != nil || prior != word {
				w.Fatalf("MaskedCAS found %#x, %v; want %#x", prior, err, word)
			}
			if word&cmpMask == compare&cmpMask {
				word = word&^swapMask | swap&swapMask
			}
			if v := w.word(a); v != word {
				w.Fatalf("after MaskedCAS(%#x/%#x, %#x/%#x) the word is %#x; want %#x", compare, cmpMask, swap, swapMask, v, word)
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

	rounds := uint64(r.rounds(1_000))
	adder := func(w *worker) { // each in its own 16 bits
		shift := 16 * w.t.Index()
		mask := uint64(0xffff) << shift
		for k := range rounds {
			prior, err := w.c.MaskedCAS(&w.b, a, k<<shift, mask, (k+1)<<shift, mask, w.buf)
			if err != nil {
				w.Fatal(err)
			}
			if got := prior & mask >> shift; got != k {
				w.Errorf("MaskedCAS of bits %d to %d found %d there; want %d", shift, shift+15, got, k)
				return
			}
			w.b.Reset()
			w.b.FAA(a, 1<<48)
			w.do()
		}
	}
	r.run(adder, adder, adder)
	r.run(func(w *worker) {
		want := rounds | rounds<<16 | rounds<<32 | threads*rounds<<48
		if v := w.word(a); v != want {
			w.Errorf("after concurrent masked increments the word is %#x; want %#x", v, want)
		}
	})
}

// atomicsAgainstWrites: an atomic and an aligned 8-byte WRITE of the same word
// happen one after the other: no atomic brings back what a WRITE replaced.
func atomicsAgainstWrites(tb testing.TB, open Open) {
	r := start(tb, open, 1, 1<<16, 3)
	rounds := uint64(r.rounds(10_000))
	marked, summed := r.at(0, 64), r.at(0, 128)
	// The stamps that the writer writes are even; another thread sets bit 0 of
	// what it finds, by CAS, and a third one adds to the upper half.
	r.run(func(w *worker) {
		for k := uint64(2); k < 2*rounds && !w.Failed(); k += 2 {
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
		for range rounds {
			v := w.word(marked)
			w.cas(marked, v, v|1)
		}
	}, func(w *worker) {
		for range rounds {
			w.b.Reset()
			w.b.FAA(summed, 1<<32)
			w.do()
		}
	})
}
