package fabrictest

import (
	"bytes"
	"errors"
	"sync/atomic"
	"testing"

	"txnode/rdma"
)

// accessKeys: Grant lets in a new key beside the others, Revoke shuts out those before one.
func accessKeys(tb testing.TB, open Open) {
	r := start(tb, open, 2, 1<<16, 2)
	had := map[rdma.Key]bool{0: true, r.keys[0]: true}
	r.run(func(w *worker) {
		life := w.f.Blades()[0].Incarnation
		if life == 0 {
			w.Error("a blade is in incarnation 0")
		}
		for range 5 {
			old := w.f.Blades()[0].Key
			k := w.grant(0, had)
			w.opens(old, k)
			if got := w.f.Blades()[0].Key; got != old {
				w.Errorf("the oldest key is %#x after Grant, and was %#x", got, old)
			}
			w.revoke(0, k)
			w.revoke(0, k) // again: others may have done so
			if got := w.f.Blades()[0].Key; got != k {
				w.Errorf("the oldest key is %#x after Revoke(%#x)", got, k)
			}
			w.shut(old)
			w.opens(k)
			w.b.Reset()
			w.b.FAA(w.at(1, 72), 1) // the other blade's key is unchanged
			w.do()
		}
		if got := w.f.Blades()[0].Incarnation; got != life {
			w.Errorf("incarnation %d after changes of keys, and it was %d", got, life)
		}
	}, func(*worker) {})
	r.run(func(*worker) {}, func(w *worker) { // another thread, which has not met the old keys
		w.opens(w.f.Blades()[0].Key)
		w.shut(w.keys[0])
	})
}

// orderOfKeys: Revoke ends those that were granted earlier, and no others. By a key that opens
// nothing it changes nothing.
func orderOfKeys(tb testing.TB, open Open) {
	r := start(tb, open, 2, 1<<16, 1)
	had := map[rdma.Key]bool{0: true, r.keys[0]: true}
	r.run(func(w *worker) {
		var k [6]rdma.Key
		for i := range k {
			k[i] = w.grant(0, had)
		}
		other := w.grant(1, map[rdma.Key]bool{0: true, r.keys[1]: true})
		w.revoke(0, k[1])
		unknown := k[5] + 1
		for had[unknown] || unknown == other {
			unknown++
		}
		for _, stale := range []rdma.Key{0, w.keys[0], k[0], unknown} {
			if err := w.f.Revoke(0, stale); !errors.Is(err, rdma.ErrStaleKey) {
				w.Errorf("Revoke by a key that opens nothing: %v; want ErrStaleKey", err)
			}
		}
		w.opens(k[1:]...)
		w.shut(0, w.keys[0], k[0], unknown)
		w.revoke(0, k[4])
		w.opens(k[4:]...)
		w.shut(k[1], k[2], k[3])

		// Keys that nobody uses end with others that come. That of the last Revoke does not.
		unused := k[5]
		var late [2 * rdma.MaxKeys]rdma.Key
		for i := range late {
			late[i] = w.grant(0, had)
		}
		w.opens(k[4])
		w.opens(late[len(late)-rdma.MaxKeys+1:]...)
		w.shut(unused)
		w.shut(late[:len(late)-rdma.MaxKeys+1]...)
		if err := w.f.Revoke(0, late[0]); !errors.Is(err, rdma.ErrStaleKey) {
			w.Errorf("Revoke by a key of which there were too many: %v; want ErrStaleKey", err)
		}
		w.opens(k[4])
		last := late[len(late)-1]
		w.revoke(0, last)
		w.opens(last)
		w.shut(k[4], late[len(late)-2])
		w.keys[1] = other
		w.b.Reset()
		w.b.FAA(w.at(1, 72), 1)
		w.do()
	})
}

// Rekey has a blade grant a key that is new, and ends all others: a client that has one of them
// is fenced.
func Rekey(f rdma.Fabric, b rdma.BladeID) (rdma.Key, error) {
	k, err := f.Grant(b)
	if err == nil {
		err = f.Revoke(b, k)
	}
	return k, err
}

// grant has a blade grant a key that it has not had.
func (w *worker) grant(b rdma.BladeID, had map[rdma.Key]bool) rdma.Key {
	w.Helper()
	k, err := w.f.Grant(b)
	if err != nil {
		w.Fatalf("Grant: %v", err)
	}
	if had[k] {
		w.Errorf("Grant returns key %#x, which the blade has had before", k)
	}
	had[k] = true
	return k
}

func (w *worker) revoke(b rdma.BladeID, before rdma.Key) {
	w.Helper()
	if err := w.f.Revoke(b, before); err != nil {
		w.Fatalf("Revoke(%#x): %v", before, err)
	}
}

// opens checks that keys open blade 0, each for a verb of every kind.
func (w *worker) opens(keys ...rdma.Key) {
	w.Helper()
	for _, k := range keys {
		at := rdma.RemoteAddr{Blade: 0, Key: k, Off: 64}
		before := w.word(at)
		w.b.Reset()
		w.b.Write(at, w.buf, 8)
		w.b.FAA(at, 1)
		w.b.CAS(at, before+1, before+2)
		w.b.Flush(at, 8)
		w.b.Read(at, w.buf+8, 3) // not aligned: fabrics may have another path for that
		if err := w.c.Do(&w.b); err != nil {
			w.Errorf("verbs with key %#x: %v", k, err)
			w.reset(0)
			continue
		}
		if got := w.word(at); got != before+2 {
			w.Errorf("verbs with key %#x have made %d of %d; want %d", k, got, before, before+2)
		}
	}
}

// shut checks that keys do not open blade 0.
func (w *worker) shut(keys ...rdma.Key) {
	w.Helper()
	for _, k := range keys {
		w.b.Reset()
		w.b.FAA(rdma.RemoteAddr{Blade: 0, Key: k, Off: 128}, 1)
		if err := w.c.Do(&w.b); !errors.Is(err, rdma.ErrStaleKey) {
			w.Errorf("FAA with key %#x: %v; want ErrStaleKey", k, err)
		}
		w.reset(0)
	}
	if n := w.word(rdma.RemoteAddr{Blade: 0, Key: w.f.Blades()[0].Key, Off: 128}); n != 0 {
		w.Errorf("%d verbs with keys that open nothing have taken effect", n)
	}
}

// reset takes the queue pair to a blade out of the error state.
func (w *worker) reset(b rdma.BladeID) {
	w.Helper()
	if err := w.t.Reconnect(b); err != nil {
		w.Fatal(err)
	}
}

// keysThatStay: while keys come and go, a thread that uses one which stays sees nothing of it.
func keysThatStay(tb testing.TB, open Open) {
	r := start(tb, open, 1, 1<<16, 2)
	n := r.rounds(300)
	var use, used atomic.Uint32
	use.Store(uint32(r.keys[0]))
	var stop atomic.Bool
	r.run(func(w *worker) {
		for i := 0; !stop.Load() && !w.Failed(); i++ {
			k := use.Load()
			at := rdma.RemoteAddr{Blade: 0, Key: rdma.Key(k), Off: 64}
			w.b.Reset()
			w.b.Write(at, w.buf, 8)
			w.b.FAA(at, 1)
			w.b.Read(at, w.buf+8, 5)
			if err := w.c.Do(&w.b); err != nil {
				w.Errorf("a verb with key %#x, which stays: %v", k, err)
			}
			used.Store(k)
			if i%8 == 7 {
				w.pause()
			}
		}
	}, func(w *worker) {
		defer stop.Store(true)
		had := map[rdma.Key]bool{0: true, r.keys[0]: true}
		for i := 0; i < n && !w.Failed(); i++ {
			for range i % 3 {
				w.grant(0, had)
			}
			k := w.grant(0, had)
			use.Store(uint32(k))
			for used.Load() != uint32(k) && !w.Failed() {
				w.pause()
			}
			for range i % 4 {
				w.grant(0, had)
			}
			w.revoke(0, k)
			if i%5 == 0 {
				w.pause()
			}
		}
	})
}

// fencing: while threads write to a blade as fast as they can, its keys are
// changed. Until Revoke is called, they go on; from its return on, nothing changes any more.
func fencing(tb testing.TB, open Open) {
	const (
		victims     = 2
		off, length = 4096, 2048 // of what they write on blade 0
		rounds, out = 64, 128    // control words on blade 1: round, then each victim's
	)
	r := start(tb, open, 2, 1<<16, victims+1)
	n := uint64(r.rounds(100))
	var now atomic.Uint32      // the key that the victims use
	var revoking atomic.Uint64 // the last round in which Revoke was called
	now.Store(uint32(r.keys[0]))
	victim := func(w *worker) {
		at := func(k rdma.Key, off uint64) rdma.RemoteAddr { return rdma.RemoteAddr{Blade: 0, Key: k, Off: off} }
		for round := uint64(1); round <= n; round++ {
			if !w.await(w.at(1, rounds), round) {
				return
			}
			key := rdma.Key(now.Load())
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
			if at := revoking.Load(); at != round {
				w.Errorf("round %d: a thread is fenced while Revoke was called in round %d last", round, at)
			}
			w.reset(0)
			w.set(w.at(1, out+8*uint64(w.t.Index())), round)
		}
	}
	fencer := func(w *worker) {
		had := map[rdma.Key]bool{0: true, r.keys[0]: true}
		for round := uint64(1); round <= n && !w.Failed(); round++ {
			w.set(w.at(1, rounds), round)
			for range w.t.Rand() % 20 {
				w.pause()
			}
			key := w.grant(0, had)
			for range w.t.Rand() % 20 {
				w.pause()
			}
			revoking.Store(round)
			w.revoke(0, key)
			data := rdma.RemoteAddr{Blade: 0, Key: key, Off: off}
			before := bytes.Clone(w.read(data, 2*length))
			for i := range uint64(victims) {
				if !w.await(w.at(1, out+8*i), round) {
					return
				}
			}
			w.same("memory fenced off, later", w.read(data, 2*length), before)
			now.Store(uint32(key))
		}
	}
	r.run(victim, victim, fencer)
}

// fencingWords: threads write words that name the key they were written with, one
// by one, and go on with the new key when it has changed. Once Revoke has
// returned, no word appears any more that names an older key.
func fencingWords(tb testing.TB, open Open) {
	const victims, off = 2, 4096
	r := start(tb, open, 1, 1<<16, victims+1)
	rounds := r.rounds(2_000)
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
				w.reset(0)
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
		had := map[rdma.Key]bool{0: true, r.keys[0]: true}
		for round := 0; round < rounds && !w.Failed(); round++ {
			key := w.grant(0, had)
			w.revoke(0, key)
			var first [victims]uint64
			for range 4 {
				w.read(rdma.RemoteAddr{Key: key, Off: off}, 64*victims)
				for i := range first {
					v := w.t.Word(w.buf + 64*uint32(i))
					if first[i] == 0 {
						first[i] = v
					}
					if wrote := rdma.Key(v >> 32); wrote != key && v != first[i] {
						w.Errorf("after Revoke(%d) a word appeared that was written with key %d", key, wrote)
					}
				}
			}
			w.pause()
		}
	})
}
