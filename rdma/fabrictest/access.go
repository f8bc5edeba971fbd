package fabrictest

import (
	"bytes"
	"errors"
	"sync/atomic"
	"testing"

	"txnode/rdma"
)

// accessKeys: SetKey shuts out the old key and lets in the new one.
func accessKeys(tb testing.TB, open Open) {
	r := start(tb, open, 2, 1<<16, 2)
	r.run(func(w *worker) {
		for k := rdma.Key(0x7000); k < 0x7005; k++ {
			old := w.f.Blades()[0].Key
			life := w.f.Blades()[0].Incarnation
			if err := w.f.SetKey(0, k); err != nil {
				w.Fatalf("SetKey: %v", err)
			}
			if got := w.f.Blades()[0].Key; got != k {
				w.Errorf("the key is %#x after SetKey(%#x)", got, k)
			}
			if got := w.f.Blades()[0].Incarnation; got != life {
				w.Errorf("SetKey has made incarnation %d of %d", got, life)
			}
			w.b.Reset()
			w.b.FAA(rdma.RemoteAddr{Blade: 0, Key: old, Off: 64}, 1)
			if err := w.c.Do(&w.b); !errors.Is(err, rdma.ErrStaleKey) {
				w.Errorf("FAA with the old key: %v; want ErrStaleKey", err)
			}
			if err := w.t.Reconnect(0); err != nil {
				w.Fatal(err)
			}
			w.keys[0] = k
			w.b.Reset()
			w.b.FAA(w.at(0, 72), 1)
			w.b.FAA(w.at(1, 72), 1) // the other blade's key is unchanged
			w.do()
		}
		if a, b := w.word(w.at(0, 64)), w.word(w.at(0, 72)); a != 0 || b != 5 {
			w.Errorf("the old keys changed the word %d times, the new ones %d times; want 0 and 5", a, b)
		}
	})
	r.run(func(w *worker) { // another thread, which has not met the old keys
		if v := w.word(w.at(0, 72)); v != 5 {
			w.Errorf("another thread reads %d; want 5", v)
		}
	})
}

// fencing: while threads write to a blade as fast as they can, its key is
// changed: from SetKey's return on, nothing changes any more.
func fencing(tb testing.TB, open Open) {
	const (
		victims     = 2
		off, length = 4096, 2048 // of what they write on blade 0
		rounds, out = 64, 128    // control words on blade 1: round, then each victim's
	)
	r := start(tb, open, 2, 1<<16, victims+1)
	n := uint64(r.rounds(100))
	victim := func(w *worker) {
		at := func(k rdma.Key, off uint64) rdma.RemoteAddr { return rdma.RemoteAddr{Blade: 0, Key: k, Off: off} }
		for round := uint64(1); round <= n; round++ {
			if !w.await(w.at(1, rounds), round) {
				return
			}
			key := w.keys[0]
			if round > 1 {
				key = rdma.Key(0x8000 + round - 1)
			}
			var err error
			for i := uint64(0); err == nil && !w.Failed(); i++ {
				w.fill(0, length, i)
				w.b.Reset()
				w.b.Write(at(key, off), w.buf, length)
				w.b.FAA(at(key, off+length), 1)
				w.b.CAS(at(key, off+length+8), i, i+1)
				w.b.Write(at(key, off+length+17), w.buf, 21)
				err = w.c.Do(&w.b)
				if i%64 == 63 {
					w.pause()
				}
			}
			if !errors.Is(err, rdma.ErrStaleKey) {
				w.Errorf("a fenced thread got %v; want ErrStaleKey", err)
			}
			if err := w.t.Reconnect(0); err != nil {
				w.Fatal(err)
			}
			w.set(w.at(1, out+8*uint64(w.t.Index())), round)
		}
	}
	fencer := func(w *worker) {
		for round := uint64(1); round <= n && !w.Failed(); round++ {
			w.set(w.at(1, rounds), round)
			for range w.t.Rand() % 20 {
				w.pause()
			}
			key := rdma.Key(0x8000 + round)
			if err := w.f.SetKey(0, key); err != nil {
				w.Fatal(err)
			}
			data := rdma.RemoteAddr{Blade: 0, Key: key, Off: off}
			before := bytes.Clone(w.read(data, 2*length))
			for i := range uint64(victims) {
				if !w.await(w.at(1, out+8*i), round) {
					return
				}
			}
			w.same("memory fenced off, later", w.read(data, 2*length), before)
		}
	}
	r.run(victim, victim, fencer)
}

// fencingWords: threads write words that name the key they were written with, one
// by one, and go on with the new key when it has changed. Once SetKey has
// returned, no word appears any more that names an older key.
func fencingWords(tb testing.TB, open Open) {
	const victims, off = 2, 4096
	r := start(tb, open, 1, 1<<16, victims+1)
	rounds := rdma.Key(r.rounds(2_000))
	var stop atomic.Bool
	victim := func(w *worker) {
		a := w.at(0, off+64*uint64(w.t.Index()))
		for n := uint64(0); !stop.Load() && !w.Failed(); n++ {
			w.t.PutWord(w.buf, uint64(a.Key)<<32|n&0xffffffff)
			w.b.Reset()
			w.b.Write(a, w.buf, 8)
			switch err := w.c.Do(&w.b); {
			case err == nil:
			case errors.Is(err, rdma.ErrStaleKey):
				if err := w.t.Reconnect(0); err != nil {
					w.Fatal(err)
				}
				a.Key = w.f.Blades()[0].Key
			default:
				w.Fatal(err)
			}
			if n%64 == 63 {
				w.pause()
			}
		}
	}
	r.run(victim, victim, func(w *worker) {
		defer stop.Store(true)
		for key := rdma.Key(1); key <= rounds && !w.Failed(); key++ {
			if err := w.f.SetKey(0, key); err != nil {
				w.Fatal(err)
			}
			var first [victims]uint64
			for range 4 {
				w.read(rdma.RemoteAddr{Key: key, Off: off}, 64*victims)
				for i := range first {
					v := w.t.Word(w.buf + 64*uint32(i))
					if first[i] == 0 {
						first[i] = v
					}
					if wrote := rdma.Key(v >> 32); wrote != key && v != first[i] {
						w.Errorf("after SetKey(%d) a word appeared that was written with key %d", key, wrote)
					}
				}
			}
			w.pause()
		}
	})
}
