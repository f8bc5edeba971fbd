package fabrictest

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"txnode/rdma"
)

// errorState: everything behind a failed request fails without effect, until
// Reconnect; what was before it has happened.
func errorState(tb testing.TB, open Open) {
	const size = 1 << 16
	r := start(tb, open, 2, size, 1)
	r.run(func(w *worker) {
		want := w.paint(0, 1)
		for k := range uint64(r.rounds(20)) {
			var b, behind rdma.Batch
			w.fill(0, 64, k)
			b.Write(w.at(0, 0), w.buf, 64)
			copy(want, w.t.Bytes(w.buf, 64))
			bad := b.Read(w.at(0, size-8), w.buf+64, 16)
			b.Write(w.at(0, 128), w.buf, 64)
			b.FAA(w.at(0, 192), 1)
			b.CAS(w.at(0, 200), 0, 1)
			b.Write(w.at(1, 0), w.buf, 64)
			b.Read(w.at(0, 0), w.buf+128, 64)
			w.c.Post(&b)
			behind.Write(w.at(0, 256), w.buf, 64)
			behind.FAA(w.at(0, 192), 1)
			w.c.Post(&behind)

			if err := w.c.Wait(&b); status(err) != rdma.StatusBounds || !errors.Is(err, rdma.ErrVerb) {
				w.Errorf("batch with a bad READ: %v; want ErrVerb, %q", err, rdma.StatusBounds)
			}
			for i := range b.Len() {
				s := rdma.StatusOK
				switch {
				case i == bad:
					s = rdma.StatusBounds
				case i > bad && b.WR(i).Blade == 0:
					s = rdma.StatusFlushed
				}
				if b.WR(i).Status != s {
					w.Errorf("request %d of the batch: %q; want %q", i, b.WR(i).Status, s)
				}
			}
			if err := w.c.Wait(&behind); status(err) != rdma.StatusFlushed {
				w.Errorf("batch posted behind a bad READ: %v; want %q", err, rdma.StatusFlushed)
			}
			behind.Reset()
			behind.FAA(w.at(0, 192), 1)
			if err := w.c.Do(&behind); status(err) != rdma.StatusFlushed {
				w.Errorf("batch posted after a bad READ: %v; want %q", err, rdma.StatusFlushed)
			}
			if err := w.t.Reconnect(0); err != nil {
				w.Fatalf("Reconnect: %v", err)
			}
			b.Reset()
			if err := b.Err(); err != nil {
				w.Errorf("an empty batch has the error %v", err)
			}
			for range 7 {
				b.Read(w.at(0, 0), w.buf+128, 64)
			}
			if err := w.c.Do(&b); err != nil {
				w.Errorf("after Reconnect: %v", err)
			}
			for i := range b.Len() {
				if s := b.WR(i).Status; s != rdma.StatusOK {
					w.Errorf("request %d of a batch used again: %q", i, s)
				}
			}
			w.same("memory after Reconnect", w.contents(0), want)
		}
	})
	r.run(func(w *worker) {
		if err := w.t.Reconnect(2); err == nil {
			w.Error("Reconnect to blade 2 of 2: no error")
		}
	})
}

// errorScope: the error state is that of one thread's queue pair to one blade.
func errorScope(tb testing.TB, open Open) {
	const size = 1 << 16
	r := start(tb, open, 2, size, 2)
	break0 := func(w *worker) {
		w.b.Reset()
		w.b.Write(w.at(0, size), w.buf, 8)
		if err := w.c.Do(&w.b); status(err) != rdma.StatusBounds {
			w.Errorf("WRITE past the end: %v", err)
		}
	}
	use := func(w *worker, b rdma.BladeID) {
		w.b.Reset()
		w.b.FAA(w.at(b, 0), 1)
		w.do()
	}
	r.run(func(w *worker) { break0(w); use(w, 1) }, func(w *worker) { use(w, 0); use(w, 1) })
	r.run(func(w *worker) {}, func(w *worker) { use(w, 0); use(w, 1) })
	r.run(func(w *worker) {
		if err := w.t.Reconnect(0); err != nil {
			w.Fatal(err)
		}
		use(w, 0)
		if a, b := w.word(w.at(0, 0)), w.word(w.at(1, 0)); a != 3 || b != 3 {
			w.Errorf("the counters are %d and %d; want 3 and 3", a, b)
		}
	}, func(w *worker) {})
}

// badVerb is a request that must fail.
type badVerb struct {
	name  string
	add   func(w *worker, b *rdma.Batch)
	want  []rdma.Status // any of them
	blade rdma.BladeID
}

func badOnes(size uint64, native bool) []badVerb {
	bounds := []rdma.Status{rdma.StatusBounds}
	local := []rdma.Status{rdma.StatusLocal}
	key := []rdma.Status{rdma.StatusKey}
	align := []rdma.Status{rdma.StatusAlign}
	var all []badVerb
	add := func(want []rdma.Status, name string, f func(w *worker, b *rdma.Batch)) {
		all = append(all, badVerb{name: name, add: f, want: want})
	}
	for _, x := range []struct {
		off uint64
		n   uint32
	}{
		{size, 1}, {size - 4, 8}, {size - 63, 64}, {size + 1, 0}, {1 << 40, 64}, {1 << 63, 64}, {^uint64(0), 1},
		{^uint64(0) - 63, 64}, {^uint64(0) - 7, 8},
	} {
		name := fmt.Sprintf("%d bytes at %#x", x.n, x.off)
		add(bounds, "READ of "+name, func(w *worker, b *rdma.Batch) { b.Read(w.at(0, x.off), w.buf, x.n) })
		add(bounds, "WRITE of "+name, func(w *worker, b *rdma.Batch) { b.Write(w.at(0, x.off), w.buf, x.n) })
		add(bounds, "FLUSH of "+name, func(w *worker, b *rdma.Batch) { b.Flush(w.at(0, x.off), x.n) })
	}
	for _, off := range []uint64{size, size + 8, 1 << 40, ^uint64(0) - 7} {
		add(bounds, fmt.Sprintf("CAS at %#x", off), func(w *worker, b *rdma.Batch) { b.CAS(w.at(0, off), 0, 1) })
		add(bounds, fmt.Sprintf("FAA at %#x", off), func(w *worker, b *rdma.Batch) { b.FAA(w.at(0, off), 1) })
	}
	for _, off := range []uint64{1, 4, 4095, 60} {
		add(align, fmt.Sprintf("CAS at %#x", off), func(w *worker, b *rdma.Batch) { b.CAS(w.at(0, off), 0, 1) })
		add(align, fmt.Sprintf("FAA at %#x", off), func(w *worker, b *rdma.Batch) { b.FAA(w.at(0, off), 1) })
	}
	add(append(bounds, align...), "CAS astride the end", func(w *worker, b *rdma.Batch) {
		b.CAS(w.at(0, size-4), 0, 1)
	})
	if native {
		add(align, "masked CAS at 12", func(w *worker, b *rdma.Batch) { b.MaskedCAS(w.at(0, 12), 0, 1, w.buf) })
		add(bounds, "masked CAS past the end", func(w *worker, b *rdma.Batch) {
			b.MaskedCAS(w.at(0, size), 0, 1, w.buf)
		})
		add(local, "masked CAS with masks outside the arena", func(w *worker, b *rdma.Batch) {
			b.MaskedCAS(w.at(0, 8), 0, 1, w.end()-8)
		})
	}
	for _, x := range []struct {
		back uint32 // from the arena's end
		n    uint32
	}{{0, 1}, {7, 8}, {64, 1 << 12}, {8, ^uint32(7)}} {
		name := fmt.Sprintf("%d bytes, %d before the end of the arena", x.n, x.back)
		want := local
		if uint64(x.n) > size {
			want = append(bounds, local...)
		}
		add(want, "READ of "+name, func(w *worker, b *rdma.Batch) { b.Read(w.at(0, 0), w.end()-x.back, x.n) })
		add(want, "WRITE of "+name, func(w *worker, b *rdma.Batch) { b.Write(w.at(0, 0), w.end()-x.back, x.n) })
	}
	add(local, "READ to the last byte of the address range", func(w *worker, b *rdma.Batch) {
		b.Read(w.at(0, 0), ^uint32(0), 8)
	})
	stale := func(w *worker, off uint64) rdma.RemoteAddr {
		a := w.at(0, off)
		a.Key ^= 1 << (off % 32)
		return a
	}
	add(key, "READ with another key", func(w *worker, b *rdma.Batch) { b.Read(stale(w, 8), w.buf, 64) })
	add(key, "WRITE with another key", func(w *worker, b *rdma.Batch) { b.Write(stale(w, 31), w.buf, 64) })
	add(key, "CAS with another key", func(w *worker, b *rdma.Batch) { b.CAS(stale(w, 0), 0, 1) })
	add(key, "FAA with another key", func(w *worker, b *rdma.Batch) { b.FAA(stale(w, 16), 1) })
	add(key, "FLUSH with another key", func(w *worker, b *rdma.Batch) { b.Flush(stale(w, 16), 8) })
	for _, op := range []rdma.Op{rdma.NumOps, 255} {
		add([]rdma.Status{rdma.StatusBadOp}, op.String(), func(w *worker, b *rdma.Batch) {
			b.WR(b.Write(w.at(0, 0), w.buf, 8)).Op = op
		})
	}
	for _, blade := range []rdma.BladeID{2, 63, 64, 65535} {
		all = append(all, badVerb{
			fmt.Sprintf("WRITE to blade %d of 2", blade),
			func(w *worker, b *rdma.Batch) { b.Write(rdma.RemoteAddr{Blade: blade, Key: w.keys[0]}, w.buf, 8) },
			[]rdma.Status{rdma.StatusNoBlade}, blade,
		})
	}
	return all
}

// end is the arena's end.
func (w *worker) end() uint32 {
	n := uint32(arena)
	for { // arenas may be larger than asked for
		if !holds(w.t, n) {
			return n
		}
		n++
	}
}

// holds says whether the arena has a byte at local.
func holds(t *rdma.Thread, local uint32) (ok bool) {
	defer func() { ok = recover() == nil }()
	t.Bytes(local, 1)
	return
}

// badVerbs: a verb outside its region, with another key, misplaced or unknown
// fails with an error that names blade, offset, length and cause, and changes
// neither the blades' memory nor the arena.
func badVerbs(tb testing.TB, open Open) {
	const size = 1 << 17
	r := start(tb, open, 2, size, 2)
	r.run(func(w *worker) {
		var want [2][]byte
		for b := range want {
			want[b] = w.paint(rdma.BladeID(b), uint64(b))
		}
		mem := w.t.Bytes(0, w.end())
		pattern(mem, 99)
		before := bytes.Clone(mem)
		var b rdma.Batch
		for _, x := range badOnes(size, w.caps.MaskedCAS) {
			b.Reset()
			x.add(w, &b)
			err := w.c.Do(&b)
			w.refused(x, b.WR(0), err)
			if !bytes.Equal(mem, before) {
				w.Fatalf("%s: it changed the arena", x.name)
			}
			if x.blade < 2 {
				if err := w.t.Reconnect(x.blade); err != nil {
					w.Fatal(err)
				}
			}
		}
		for b := range want {
			w.same(fmt.Sprintf("memory of blade %d after bad verbs", b), w.contents(rdma.BladeID(b)), want[b])
		}
	})
}

// refused checks the error of a bad verb.
func (w *worker) refused(x badVerb, wr *rdma.WR, err error) {
	var v *rdma.VerbError
	if !errors.As(err, &v) || !errors.Is(err, rdma.ErrVerb) {
		w.Errorf("%s: %v; want a VerbError", x.name, err)
		return
	}
	if v.Op != wr.Op || v.Blade != x.blade || v.Off != wr.Off || v.Len != wr.Len {
		w.Errorf("%s: the error speaks of %v of %d bytes at %#x of blade %d: %v",
			x.name, v.Op, v.Len, v.Off, v.Blade, err)
	}
	if !bytes.ContainsRune(statuses(x.want), rune(v.Status)) {
		w.Errorf("%s: status %q; want one of %v", x.name, v.Status, x.want)
	}
	if errors.Is(err, rdma.ErrStaleKey) != (v.Status == rdma.StatusKey) ||
		errors.Is(err, rdma.ErrBladeDown) != (v.Status == rdma.StatusNoBlade) {
		w.Errorf("%s: errors.Is says ErrStaleKey %v, ErrBladeDown %v", x.name, errors.Is(err, rdma.ErrStaleKey),
			errors.Is(err, rdma.ErrBladeDown))
	}
	for _, part := range []string{
		fmt.Sprintf("blade %d", wr.Blade), fmt.Sprintf("%#x", wr.Off), fmt.Sprint(wr.Len), v.Status.String(),
	} {
		if !strings.Contains(err.Error(), part) {
			w.Errorf("%s: the error %q does not say %q", x.name, err, part)
		}
	}
}

func statuses(s []rdma.Status) []byte {
	b := make([]byte, len(s))
	for i := range s {
		b[i] = byte(s[i])
	}
	return b
}

// readOnly: a read-only blade can be read, and that is all.
func readOnly(tb testing.TB, open func(tb testing.TB, size uint64) rdma.Fabric) {
	const size = 1 << 16
	r := attach(tb, open(tb, size), size, 1)
	if info := r.f.Blades(); len(info) != 1 || !info[0].ReadOnly {
		tb.Fatalf("want one read-only blade; have %+v", info)
	}
	r.run(func(w *worker) {
		before := bytes.Clone(w.contents(0))
		var b rdma.Batch
		access := []rdma.Status{rdma.StatusAccess}
		for _, x := range []badVerb{
			{name: "WRITE", add: func(w *worker, b *rdma.Batch) { b.Write(w.at(0, 64), w.buf, 64) }, want: access},
			{
				name: "unaligned WRITE", add: func(w *worker, b *rdma.Batch) { b.Write(w.at(0, 65), w.buf, 3) },
				want: access,
			},
			{name: "CAS", add: func(w *worker, b *rdma.Batch) { b.CAS(w.at(0, 64), w.t.Word(w.buf), 1) }, want: access},
			{name: "FAA", add: func(w *worker, b *rdma.Batch) { b.FAA(w.at(0, 64), 1) }, want: access},
			{
				name: "masked CAS", add: func(w *worker, b *rdma.Batch) { b.MaskedCAS(w.at(0, 64), 0, 1, w.buf) },
				want: append(access, rdma.StatusBadOp),
			},
		} {
			b.Reset()
			x.add(w, &b)
			err := w.c.Do(&b)
			w.refused(x, b.WR(0), err)
			if err := w.t.Reconnect(0); err != nil {
				w.Fatal(err)
			}
		}
		w.same("memory of a read-only blade", w.contents(0), before)
	})
}
