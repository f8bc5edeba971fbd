package fabrictest

import (
	"encoding/binary"
	"testing"

	"txnode/rdma"
)

const lineWords = rdma.LineSize / 8

// words: an aligned word is never torn, whatever the alignment of the transfer
// that reads or writes it. Every word that is ever written has eight equal bytes.
func words(tb testing.TB, open Open) { wordsOf(tb, open, 512, 20_000) }

// longWords is words with transfers of pages: where a fabric is slow, as an emulated device, short
// ones do not overlap.
func longWords(tb testing.TB, open Open) { wordsOf(tb, open, 4096, 1_000) }

func wordsOf(tb testing.TB, open Open, n uint32, rounds int) {
	const off = 4096
	r := start(tb, open, 1, 1<<16, 3)
	rounds = r.rounds(rounds)
	writer := func(w *worker) {
		for k := 0; w.racing(k, rounds, always); k++ {
			// The buffer begins anywhere in a word, the range is whole words.
			local := w.buf + uint32(w.t.Rand()%9)
			from := uint32(w.t.Rand() % uint64(n/8))
			count := 1 + uint32(w.t.Rand()%uint64(n/8-from))
			p := w.t.Bytes(local, 8*count)
			for i := range p {
				p[i] = byte(2*k + w.t.Index())
			}
			w.b.Reset()
			w.b.Write(w.at(0, off+8*uint64(from)), local, 8*count)
			w.do()
		}
	}
	reader := func(w *worker) {
		last, met := byte(0), 0
		for k := 0; w.racing(k, rounds, met); k++ {
			at := w.t.Rand() % 16
			local := w.buf + uint32(w.t.Rand()%9)
			w.b.Reset()
			w.b.Read(w.at(0, off+at), local, n-16)
			w.do()
			p := w.t.Bytes(local, n-16)
			if p[n/2] != last {
				last = p[n/2]
				met++
			}
			for i := -at & 7; i+8 <= uint64(len(p)); i += 8 {
				if v := binary.LittleEndian.Uint64(p[i:]); v != v&0xff*0x0101010101010101 {
					w.Errorf("word at %#x is torn: %#016x (READ of %d bytes at %#x to local %#x)",
						off+at+i, v, n-16, off+at, local)
					return
				}
			}
		}
	}
	r.run(writer, writer, reader)
}

// lines: a READ of (part of) a line is atomic or copies its words upwards. The
// writer counts up every word of a line, the last word first; so at any time no
// word is ahead of the one above it, and a READ upwards never finds that either.
func lines(tb testing.TB, open Open) {
	const off = 8192
	r := start(tb, open, 1, 1<<16, 2)
	rounds := r.rounds(20_000)
	r.run(func(w *worker) {
		for k := 0; w.racing(k, rounds, always); k++ {
			w.b.Reset()
			w.t.PutWord(w.buf, uint64(k))
			for i := lineWords - 1; i >= 0; i-- {
				w.b.Write(w.at(0, off+uint64(i)*8), w.buf, 8)
			}
			w.do()
		}
	}, func(w *worker) {
		met := 0
		for k := 0; w.racing(k, rounds, met); k++ {
			first := w.t.Rand() % lineWords
			count := 1 + w.t.Rand()%(lineWords-first)
			p := w.buf + uint32(w.t.Rand()%9)
			w.b.Reset()
			w.b.Read(w.at(0, off+first*8), p, uint32(count)*8)
			w.do()
			if w.t.Word(p) != w.t.Word(p+uint32(count)*8-8) {
				met++ // in the middle of it
			}
			for i := uint64(1); i < count; i++ {
				if a, b := w.t.Word(p+uint32(i)*8-8), w.t.Word(p+uint32(i)*8); a > b {
					w.Errorf("word %d of a line was read at %d, and word %d later at %d: the line was not read upwards",
						first+i-1, a, first+i, b)
					return
				}
			}
		}
	})
}

// orderedLine checks Caps.OrderedLine: when the last word of a line is visible,
// so are the others of the same WRITE.
func orderedLine(tb testing.TB, open Open) {
	const off = 8192
	r := start(tb, open, 1, 1<<16, 2)
	if !r.caps.OrderedLine {
		tb.Skip("the fabric does not promise it")
	}
	rounds := r.rounds(20_000)
	r.run(func(w *worker) {
		for k := 0; w.racing(k, rounds, always); k++ {
			for i := range uint32(2 * lineWords) {
				w.t.PutWord(w.buf+8*i, uint64(k))
			}
			w.b.Reset()
			w.b.Write(w.at(0, off), w.buf, 2*rdma.LineSize)
			w.do()
		}
	}, func(w *worker) {
		seen, met := uint64(0), 0
		for k := 0; w.racing(k, rounds, met); k++ {
			line := off + w.t.Rand()%2*rdma.LineSize
			last := w.word(w.at(0, line+rdma.LineSize-8))
			if last != seen {
				seen = last
				met++
			}
			w.read(w.at(0, line), rdma.LineSize)
			for i := range uint32(lineWords) {
				if v := w.t.Word(w.buf + 8*i); v < last {
					w.Errorf("the last word of a line was seen at %d, then word %d still at %d", last, i, v)
					return
				}
			}
		}
	})
}

// neighbours: a WRITE changes the bytes of its range and no others, also in a
// word whose other bytes someone else writes at the same time.
func neighbours(tb testing.TB, open Open) {
	const off = 4096
	r := start(tb, open, 1, 1<<16, 3)
	rounds := r.rounds(20_000)
	ranges := [3][2]uint64{{off + 5, off + 11}, {off + 11, off + 12}, {off + 12, off + 19}}
	writer := func(w *worker) {
		from, to := ranges[w.t.Index()][0], ranges[w.t.Index()][1]
		n := uint32(to - from)
		for k := 0; w.racing(k, rounds, always); k++ {
			w.fill(0, n, uint64(k))
			w.b.Reset()
			w.b.Write(w.at(0, from), w.buf, n)
			w.b.Read(w.at(0, from), w.buf+64, n)
			w.do()
			w.same("own bytes beside those of others", w.t.Bytes(w.buf+64, n), w.t.Bytes(w.buf, n))
		}
	}
	r.run(writer, writer, writer)
}
