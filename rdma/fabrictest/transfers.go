package fabrictest

import (
	"bytes"
	"fmt"
	"testing"
)

// unaligned: READ and WRITE move any number of bytes between any places, and
// change nothing beside them.
func unaligned(tb testing.TB, open Open) {
	const size = 1 << 16
	r := start(tb, open, 1, size, 1)
	r.run(func(w *worker) {
		model := w.paint(0, 5)
		lengths := []uint32{0, 1, 2, 7, 8, 9, 15, 16, 17, 24, 63, 64, 65, 127, 128, 129, 200, 4095, 4096, 4097, 8193}
		if testing.Short() {
			lengths = []uint32{0, 1, 7, 8, 9, 16, 65, 4097}
		}
		seed := uint64(0)
		for _, n := range lengths {
			for off := range uint64(17) {
				for local := range uint32(9) {
					seed++
					span := n + 64 // what is compared
					at := 8192 + off
					if seed%3 == 0 {
						at = size - uint64(n) - off // up to the end
					}
					low := min(at-32, size-uint64(span))
					w.fill(local, n, seed)
					copy(model[at:], w.t.Bytes(w.buf+local, n))
					back := w.buf + bufSize/2 + (local+uint32(seed))%11
					w.fill(back-w.buf-8, n+16, ^seed)
					guard := bytes.Clone(w.t.Bytes(back-8, n+16))
					w.b.Reset()
					w.b.Write(w.at(0, at), w.buf+local, n)
					w.b.Read(w.at(0, at), back, n)
					w.do()
					what := fmt.Sprintf("%d bytes at %#x, local +%d", n, at, local)
					w.same("READ after WRITE of "+what, w.t.Bytes(back, n), model[at:at+uint64(n)])
					w.same("arena below a READ of "+what, w.t.Bytes(back-8, 8), guard[:8])
					w.same("arena above a READ of "+what, w.t.Bytes(back+n, 8), guard[n+8:])
					w.same("memory around a WRITE of "+what, w.read(w.at(0, low), span), model[low:low+uint64(span)])
					if w.Failed() {
						return
					}
				}
			}
		}
		w.same("memory", w.contents(0), model)
	})
}

// large: transfers of a megabyte.
func large(tb testing.TB, open Open) {
	const size, n = 4 << 20, 1 << 20
	r := start(tb, open, 2, size, 1)
	r.run(func(w *worker) {
		from, err := w.t.Alloc(n + 64)
		if err != nil {
			w.Fatal(err)
		}
		to, err := w.t.Alloc(n + 64)
		if err != nil {
			w.Fatal(err)
		}
		for i, x := range []struct {
			off             uint64
			local, readback uint32
		}{{0, 0, 0}, {size - n, 0, 0}, {64, 8, 16}, {7, 0, 0}, {1 << 20, 3, 5}, {8, 1, 0}, {size - n, 0, 1}} {
			pattern(w.t.Bytes(from+x.local, n), uint64(i))
			w.b.Reset()
			w.b.Write(w.at(1, x.off), from+x.local, n)
			w.b.Read(w.at(1, x.off), to+x.readback, n)
			w.do()
			w.same(fmt.Sprintf("a megabyte at %#x, local +%d, read back to local +%d", x.off, x.local, x.readback),
				w.t.Bytes(to+x.readback, n), w.t.Bytes(from+x.local, n))
		}
	})
}
