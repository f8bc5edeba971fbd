package fabrictest

import (
	"encoding/binary"
	"fmt"
	"testing"

	"txnode/rdma"
)

// programs runs random verbs of one thread on a small piece of memory, in
// batches posted in parts, and compares every result, and the memory in the end,
// with an array on which they are executed one by one. Where the contract leaves
// it open what a READ sees, the later verbs carry FlagFence.
func programs(tb testing.TB, open Open) {
	const blades, size = 2, 128
	r := start(tb, open, blades, 1<<16, 1)
	r.run(func(w *worker) {
		var model [blades][size]byte
		for range r.rounds(3_000) {
			if w.Failed() {
				return
			}
			w.program(&model)
		}
		for b := range model {
			w.same("memory after the programs", w.read(w.at(rdma.BladeID(b), 0), size), model[b][:])
		}
	})
}

// expectation is what a request of a program should have as its result.
type expectation struct {
	what  string
	index int
	word  uint64 // of an atomic
	local uint32 // of a READ
	bytes []byte
}

func (w *worker) program(model *[2][128]byte) {
	const size = uint64(len(model[0]))
	rnd := func(n uint64) uint64 { return w.t.Rand() % n }
	var expect []expectation
	local := w.buf
	var read [2]bool // since the last Wait
	w.b.Reset()
	for n := 1 + rnd(12); n > 0; n-- {
		blade := rnd(2)
		mem := &model[blade]
		word := rnd(size/8) * 8
		at := w.at(rdma.BladeID(blade), word)
		old := binary.LittleEndian.Uint64(mem[word:])
		e := expectation{what: fmt.Sprintf("at %#x", word), word: old}
		op := rdma.Op(rnd(5))
		if op == rdma.OpMaskedCAS && !w.caps.MaskedCAS {
			op = rdma.OpFlush
		}
		switch op {
		case rdma.OpRead, rdma.OpWrite:
			off := rnd(size + 1)
			n := uint32(rnd(size - off + 1))
			if rnd(2) == 0 {
				off, n = off&^7, n&^7
			}
			at.Off = off
			local += uint32(rnd(16))
			if op == rdma.OpRead {
				e = expectation{
					fmt.Sprintf("READ of %d bytes at %#x", n, off), w.b.Read(at, local, n), 0, local,
					append([]byte(nil), mem[off:off+uint64(n)]...),
				}
			} else {
				pattern(w.t.Bytes(local, n), w.t.Rand())
				copy(mem[off:], w.t.Bytes(local, n))
				w.b.Write(at, local, n)
				e.index = -1
			}
			local += n
		case rdma.OpCAS:
			compare, swap := old+rnd(2), w.t.Rand()
			e.index = w.b.CAS(at, compare, swap)
			if compare == old {
				binary.LittleEndian.PutUint64(mem[word:], swap)
			}
		case rdma.OpFAA:
			add := w.t.Rand()
			e.index = w.b.FAA(at, add)
			binary.LittleEndian.PutUint64(mem[word:], old+add)
		case rdma.OpMaskedCAS:
			compare, cmpMask, swap, swapMask := old^rnd(2), rnd(4), w.t.Rand(), w.t.Rand()
			local = (local + 7) &^ 7
			w.t.PutWord(local, cmpMask)
			w.t.PutWord(local+8, swapMask)
			e.index = w.b.MaskedCAS(at, compare, swap, local)
			if old&cmpMask == compare&cmpMask {
				binary.LittleEndian.PutUint64(mem[word:], old&^swapMask|swap&swapMask)
			}
			local += 16
		case rdma.OpFlush:
			w.b.Flush(at, 8)
			e.index = -1
		}
		if read[blade] && op != rdma.OpRead {
			w.b.Fence()
		}
		read[blade] = read[blade] || op == rdma.OpRead
		if e.index >= 0 {
			expect = append(expect, e)
		}
		if rnd(4) == 0 {
			w.c.Post(&w.b)
		}
	}
	w.do()
	for _, e := range expect {
		wr := w.b.WR(e.index)
		if wr.Op == rdma.OpRead {
			w.same(e.what, w.t.Bytes(e.local, uint32(len(e.bytes))), e.bytes)
		} else if wr.Result != e.word {
			w.Errorf("%v %s found %#x; want %#x", wr.Op, e.what, wr.Result, e.word)
		}
	}
}

// messages: WRITEs and atomics of one queue pair take effect in posted order for
// observers too. The writer changes many lines and then a word; an observer that
// has seen the word sees the lines.
func messages(tb testing.TB, open Open) {
	const data, flag, n = 4096, 64, 320
	r := start(tb, open, 1, 1<<16, 2)
	rounds := r.rounds(10_000)
	r.run(func(w *worker) {
		for k := uint64(1); w.racing(int(k), rounds, always); k++ {
			for i := uint32(0); i < n; i += 8 {
				w.t.PutWord(w.buf+i, k)
			}
			w.b.Reset()
			w.b.Write(w.at(0, data), w.buf, n)
			switch k % 3 {
			case 0:
				w.b.Write(w.at(0, flag), w.buf, 8)
			case 1:
				w.b.FAA(w.at(0, flag), 1)
			case 2:
				w.b.CAS(w.at(0, flag), k-1, k)
			}
			w.do()
		}
	}, func(w *worker) {
		last, met := uint64(0), 0
		for k := 0; w.racing(k, rounds, met); k++ {
			seen := w.word(w.at(0, flag))
			if seen != last {
				last = seen
				met++
			}
			w.read(w.at(0, data), n)
			for i := uint32(0); i < n; i += 8 {
				if v := w.t.Word(w.buf + i); v < seen {
					w.Errorf("message %d was announced, but word %d is still at %d", seen, i/8, v)
					return
				}
			}
		}
	})
}

// fenceFlag: a WRITE with FlagFence does not overtake an earlier READ.
func fenceFlag(tb testing.TB, open Open) {
	const off, n = 4096, 1024
	r := start(tb, open, 1, 1<<16, 1)
	r.run(func(w *worker) {
		for k := range uint64(r.rounds(500)) {
			for i := uint32(0); i < n; i += 8 {
				w.t.PutWord(w.buf+i, k+1)
			}
			w.b.Reset()
			w.b.Read(w.at(0, off), w.buf+n, n)
			w.b.Write(w.at(0, off), w.buf, n)
			w.b.Fence()
			w.do()
			for i := uint32(0); i < n; i += 8 {
				if v := w.t.Word(w.buf + n + i); v != k {
					w.Errorf("a READ before a fenced WRITE found %d; want %d", v, k)
					return
				}
			}
		}
	})
}

// completionOrder: when a batch is complete, so is what was posted before it to
// the same blade.
func completionOrder(tb testing.TB, open Open) {
	r := start(tb, open, 1, 1<<16, 1)
	r.run(func(w *worker) {
		var batches [8]rdma.Batch
		for range r.rounds(100) {
			for i := range batches {
				b := &batches[i]
				b.Reset()
				for range 1 + w.t.Rand()%4 {
					switch w.t.Rand() % 3 {
					case 0:
						b.Read(w.at(0, 0), w.buf, uint32(w.t.Rand()%bufSize))
					case 1:
						b.Write(w.at(0, 64), w.buf, uint32(w.t.Rand()%1024))
					case 2:
						b.FAA(w.at(0, 0), 1)
					}
				}
				w.c.Post(b)
			}
			last := w.t.Rand() % uint64(len(batches))
			if err := w.c.Wait(&batches[last]); err != nil {
				w.Fatal(err)
			}
			for i := range last {
				if !batches[i].Done() {
					w.Errorf("batch %d is complete, batch %d, posted before it to the same blade, is not", last, i)
				}
			}
			for i := range batches {
				if err := w.c.Wait(&batches[i]); err != nil {
					w.Fatal(err)
				}
			}
		}
	})
}
