package race

import (
	"txnode/index"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/rdma"
)

// Validate appends READs of the same buckets, and of the candidates' versions.
func (ix *Index) Validate(b *rdma.Batch, q *index.Query, buffer uint32) {
	o1, o2 := uint32(q.State[stPlaces]), uint32(q.State[stPlaces]>>32)
	at := q.View.At(layout.Addr(q.State[stFirst]), 0)
	readPlace(b, at, o1, buffer)
	if q.State[stBoth] != 0 {
		readPlace(b, at, o2, buffer+combinedSize)
	}
	if a := layout.Addr(q.State[stSecond]); a != 0 {
		readPlaces(b, q.View.At(a, 0), o1, o2, buffer+queryBytes/2)
	}
	for i, x := range q.Candidates {
		if x.Version != 0 {
			at := q.View.At(x.Addr, 0)
			at.Off += record.VersionOff
			b.Read(at, buffer+queryBytes+uint32(8*i), 8)
		}
	}
}

// Unchanged compares the buckets that Validate has read with those of the lookup, whose copy is in
// the query's buffer: word by word, except for the marks of other keys. That says more than whether
// the candidates are the same. No word comes back to a slot, except that of a block that was freed,
// used again, and linked at the same place. So a key that was absent has been absent all the time,
// too.
func (ix *Index) Unchanged(q *index.Query, buffer uint32) bool {
	now, was := words(q.Thread, buffer), words(q.Thread, q.Local)
	for i, x := range q.Candidates {
		if x.Version != 0 && q.Thread.Word(buffer+queryBytes+uint32(8*i)) != uint64(x.Version) {
			return false
		}
	}
	if lines := ix.lines(q); !same(now[:lines*lineWords], was[:lines*lineWords]) {
		return false
	} else if lines == firstLines && marked(q, now) {
		return false
	}
	return q.State[stSecond] == 0 || same(now[halfWords:], was[halfWords:])
}

// same reports whether the slots of lines are as they were, and whether the lines
// have the same responsibility.
func same(now, was []uint64) bool {
	slots, headers := uint64(0), Header(0)
	for i := 0; i < len(now); i += lineWords {
		a, b := now[i:i+lineWords:i+lineWords], was[i:i+lineWords:i+lineWords]
		for j := range slotsPerLine {
			slots |= a[j] ^ b[j]
		}
		headers |= Header(a[slotsPerLine] ^ b[slotsPerLine])
	}
	return slots == 0 && headers.Base() == 0
}
