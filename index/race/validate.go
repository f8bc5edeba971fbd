package race

import (
	"txnode/index"
	"txnode/internal/mutant"
	"txnode/memory"
	"txnode/memory/record"
	"txnode/rdma"
)

// Validate appends READs of the same buckets, and of the candidates' versions.
func (ix *Index) Validate(b *rdma.Batch, q *index.Query, buffer uint32) {
	o1, o2 := uint32(q.State[stPlaces]), uint32(q.State[stPlaces]>>32)
	at := q.View.At(memory.Addr(q.State[stFirst]), 0)
	readPlace(b, at, o1, buffer)
	if q.State[stBoth] != 0 {
		readPlace(b, at, o2, buffer+combinedSize)
	}
	if a := memory.Addr(q.State[stSecond]); a != 0 {
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

// Unchanged compares the buckets that Validate has read with what Resolve found.
func (ix *Index) Unchanged(q *index.Query, buffer uint32) bool {
	l := words(q.Thread, buffer)
	lines := ix.lines(q)
	if mutant.AbsenceIgnoresHeaders {
		if q.State[stSecond] != 0 {
			lines = 2 * queryLines
		}
	} else if q.State[stSecond] == 0 {
		for i := range lines {
			if h := Header(l[i*lineWords+slotsPerLine]); uint64(h) != q.State[stHeader] && (h.Check(ix.geo.Table) != nil || !h.Covers(q.Hash)) {
				return false
			}
		}
		if lines == firstLines && marked(q, l) && !mutant.AbsenceIgnoresMarks {
			return false
		}
	} else {
		lines = 2 * queryLines
		for i := range queryLines {
			if uint64(Header(l[i*lineWords+slotsPerLine]).Base()) != q.State[stHeaders+i] {
				return false
			}
			if h := Header(l[(queryLines+i)*lineWords+slotsPerLine]); h.Check(ix.geo.Table) != nil || !h.Covers(q.Hash) {
				return false
			}
		}
	}
	for i, x := range q.Candidates {
		if x.Version != 0 && q.Thread.Word(buffer+queryBytes+uint32(8*i)) != uint64(x.Version) {
			return false
		}
	}
	fp := q.Hash >> fpShift
	seen := uint64(0)
	for i := range lines {
		w := l[i*lineWords : i*lineWords+lineWords : i*lineWords+lineWords]
	slots:
		for j := range slotsPerLine {
			if w[j]>>fpShift != fp || w[j] == 0 {
				continue
			}
			for k := range q.Candidates {
				if q.Candidates[k].Addr == Slot(w[j]).Addr() {
					seen |= 1 << k
					continue slots
				}
			}
			return false
		}
	}
	return seen == 1<<len(q.Candidates)-1
}
