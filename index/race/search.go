package race

import (
	"unsafe"

	"txnode/index"
	"txnode/internal/mutant"
	"txnode/memory"
	"txnode/memory/record"
	"txnode/rdma"
)

// The buffer of a query: the four lines of its key in the sub-table that is read
// first, then the four in the one that is being filled from it, if there is one,
// then room for the versions of as many candidates as there are slots.
const (
	queryLines = 4
	queryBytes = 2 * queryLines * lineSize
	bufferSize = queryBytes + 2*queryLines*slotsPerLine*8
	lineWords  = lineSize / 8
	halfWords  = queryLines * lineWords
)

// What a query remembers.
const (
	stFirst   = iota // the sub-table that Search reads; 0: nothing was read
	stSecond         // the sub-table that is filled from it and that Resolve reads, or 0
	stPlaces         // offsets of the two combined buckets
	stEntry          // the directory entry
	stHeader         // the header that the buckets are expected to have
	stStale          // how often in a row directory and buckets disagreed
	stHeaders        // the headers found in the first sub-table, 4 words
)

// words are the lines of a query's buffer, in the host's byte order, which is
// little-endian on every machine that the fabrics run on.
func words(t *rdma.Thread, local uint32) *[2 * halfWords]uint64 {
	return (*[2 * halfWords]uint64)(unsafe.Pointer(unsafe.SliceData(t.Bytes(local, queryBytes))))
}

// Search appends two READs of 128 bytes (RACE, section 3.2, D3; algorithm 4).
func (ix *Index) Search(b *rdma.Batch, q *index.Query) {
	d := ix.dir.Load()
	e := d.entries[q.Hash&d.mask]
	first, second := e.Table(), memory.Addr(0)
	if e.Filling() {
		first, second = d.parent(q.Hash, e), e.Table()
	}
	if !q.View.Valid(first) || second != 0 && !q.View.Valid(second) {
		q.State[stFirst] = 0
		return
	}
	o1, o2 := ix.geo.place(q.Hash)
	q.State[stFirst] = uint64(first)
	q.State[stSecond] = uint64(second)
	q.State[stPlaces] = uint64(o1) | uint64(o2)<<32
	q.State[stEntry] = uint64(e)
	q.State[stHeader] = uint64(MakeHeader(ix.geo.Table, e.Depth(), uint32(q.Hash)&suffixMask(e.Depth())))
	readPlaces(b, q.View.At(first, 0), o1, o2, q.Local)
}

// readPlaces appends the READs of two combined buckets of a sub-table.
func readPlaces(b *rdma.Batch, at rdma.RemoteAddr, o1, o2, local uint32) {
	base := at.Off
	if mutant.BucketHeaderFirst {
		readHeadersFirst(b, at, o1, local)
		readHeadersFirst(b, at, o2, local+combinedSize)
		return
	}
	at.Off = base + uint64(o1)
	b.Read(at, local, combinedSize)
	at.Off = base + uint64(o2)
	b.Read(at, local+combinedSize, combinedSize)
}

// readHeadersFirst is a wrong readPlaces.
func readHeadersFirst(b *rdma.Batch, at rdma.RemoteAddr, o, local uint32) {
	base := at.Off + uint64(o)
	for i := uint32(0); i < combinedSize; i += lineSize {
		at.Off = base + uint64(i) + headerOff
		b.Read(at, local+i+headerOff, 8)
	}
	for i := uint32(0); i < combinedSize; i += lineSize {
		at.Off = base + uint64(i)
		b.Read(at, local+i, headerOff)
	}
}

// Resolve looks at the buckets. See the package comment for why a key that is
// linked throughout is never missed.
func (ix *Index) Resolve(c *rdma.Coro, q *index.Query) (again bool, err error) {
	t := c.Thread()
	q.Thread = t
	q.Candidates = q.Candidates[:0]
	if q.State[stFirst] == 0 {
		return ix.newView(q)
	}
	l := words(t, q.Local)
	h0, h1, h2, h3 := l[7], l[15], l[23], l[31]
	q.State[stHeaders], q.State[stHeaders+1], q.State[stHeaders+2], q.State[stHeaders+3] = h0, h1, h2, h3
	if want := q.State[stHeader]; (h0^want)|(h1^want)|(h2^want)|(h3^want) != 0 {
		if q.State[stSecond] != 0 {
			if err := ix.checkParent(q); err != nil {
				return false, err
			}
		} else if all, err := ix.covered(q, memory.Addr(q.State[stFirst]), [4]uint64{h0, h1, h2, h3}); err != nil {
			return false, err
		} else if !all {
			return ix.stale(c, q)
		}
	}
	if err := ix.collect(q, l[:halfWords], 0); err != nil {
		return false, err
	}
	if q.State[stSecond] != 0 && !mutant.SkipSecondSubTable {
		if again, err := ix.resolveFilling(c, q, l); err != nil || again {
			return again, err
		}
	}
	q.State[stStale] = 0
	return false, nil
}

// newView gives the query a view that knows the sub-table's segment.
func (ix *Index) newView(q *index.Query) (again bool, err error) {
	v := ix.space.View()
	d := ix.dir.Load()
	e := d.entries[q.Hash&d.mask]
	a := e.Table()
	if v.Valid(a) && e.Filling() {
		a = d.parent(q.Hash, e)
	}
	if !v.Valid(a) {
		return false, ix.corrupt(a, "a sub-table's segment does not exist any more")
	}
	q.View = v
	return true, nil
}

// covered reports whether all four headers are responsible for the query's key.
func (ix *Index) covered(q *index.Query, table memory.Addr, h [queryLines]uint64) (bool, error) {
	all := true
	for i, w := range h {
		if err := Header(w).Check(ix.geo.Table); err != nil {
			return false, ix.corrupt(lineAddr(q, table, i)+headerOff, "%w", err)
		}
		all = all && (Header(w).Covers(q.Hash) || mutant.TrustStaleDirectory)
	}
	return all, nil
}

// lineAddr is where line i of a query's places is in a sub-table.
func lineAddr(q *index.Query, table memory.Addr, i int) memory.Addr {
	o := uint32(q.State[stPlaces])
	if i >= 2 {
		o = uint32(q.State[stPlaces] >> 32)
	}
	return table + memory.Addr(o+uint32(i%2)*lineSize)
}

// checkParent checks the headers of the sub-table that another is filled from:
// the split may or may not have reached these buckets, and later splits may have
// changed them again, but they agree in the suffix that both descend from.
func (ix *Index) checkParent(q *index.Query) error {
	depth := Entry(q.State[stEntry]).Depth() - 1
	for i, w := range q.State[stHeaders : stHeaders+queryLines] {
		h := Header(w)
		at := lineAddr(q, memory.Addr(q.State[stFirst]), i) + headerOff
		if err := h.Check(ix.geo.Table); err != nil {
			return ix.corrupt(at, "%w", err)
		}
		if (h.Suffix()^uint32(q.Hash))&suffixMask(min(depth, h.Depth())) != 0 {
			return ix.corrupt(at, "bucket of %v among those of suffix %b", h, uint32(q.Hash)&suffixMask(depth))
		}
	}
	return nil
}

// resolveFilling completes a lookup in a sub-table that is being filled: the one
// that it is filled from has been read, now comes itself (RACE, algorithm 6, in
// the order that needs two reads instead of three).
func (ix *Index) resolveFilling(c *rdma.Coro, q *index.Query, l *[2 * halfWords]uint64) (again bool, err error) {
	t := c.Thread()
	buf, err := t.Alloc(lineSize)
	if err != nil {
		return false, err
	}
	defer t.Free(buf, lineSize)
	s := ix.get()
	defer ix.put(s)
	e := Entry(q.State[stEntry])
	second := memory.Addr(q.State[stSecond])
	s.batch.Reset()
	readPlaces(&s.batch, q.View.At(second, 0), uint32(q.State[stPlaces]), uint32(q.State[stPlaces]>>32), q.Local+queryBytes/2)
	s.batch.Read(q.View.At(ix.entryAddr(uint32(q.Hash)&suffixMask(e.Depth())), 0), buf, 8)
	if err := c.Do(&s.batch); err != nil {
		return false, err
	}
	all, err := ix.covered(q, second, [4]uint64{l[39], l[47], l[55], l[63]})
	if err != nil {
		return false, err
	}
	if !all {
		return ix.stale(c, q)
	}
	if err := ix.collect(q, l[halfWords:], queryLines); err != nil {
		return false, err
	}
	if Entry(t.Word(buf)) != e {
		// The split is done: the next lookup needs no second read.
		if d := ix.dir.Load(); d.entries[q.Hash&d.mask] == e {
			_, err = ix.refresh(c, d)
		}
	}
	return false, err
}

// collect adds the blocks of the lines' slots that have the key's fingerprint.
// line is the number in the query of the first of them.
func (ix *Index) collect(q *index.Query, l []uint64, line int) error {
	fp := q.Hash >> fpShift
	for i := range queryLines {
		w := l[i*lineWords : i*lineWords+lineWords : i*lineWords+lineWords]
		for j := range slotsPerLine {
			if w[j]>>fpShift == fp && w[j] != 0 {
				if err := ix.candidate(q, Slot(w[j]), line+i, j); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// slotAddr is where slot j of line i of a query is; lines from queryLines on are
// in the second sub-table.
func slotAddr(q *index.Query, i, j int) memory.Addr {
	if i >= queryLines {
		return lineAddr(q, memory.Addr(q.State[stSecond]), i-queryLines) + memory.Addr(8*j)
	}
	return lineAddr(q, memory.Addr(q.State[stFirst]), i) + memory.Addr(8*j)
}

func (ix *Index) candidate(q *index.Query, s Slot, i, j int) error {
	if err := s.Check(); err != nil {
		return ix.corrupt(slotAddr(q, i, j), "%w", err)
	}
	a, class := s.Addr(), s.Class()
	if !ix.fits(q.View, a, class.Size()) {
		v := ix.space.View()
		if !ix.fits(v, a, class.Size()) {
			return ix.corrupt(slotAddr(q, i, j), "%v: the block is in no segment", s)
		}
		q.View = v
	}
	for k := range q.Candidates {
		if q.Candidates[k].Addr == a {
			return nil
		}
	}
	q.Candidates = append(q.Candidates, index.Candidate{Addr: a, Class: class})
	return nil
}

// maxStale is how often in a row a directory that was read after the buckets may
// contradict them.
const maxStale = 3

// stale refreshes the directory, because buckets have said that they are not
// responsible for the key. A split changes the directory before the buckets, so
// what is read now says otherwise than before, unless the index is damaged.
func (ix *Index) stale(c *rdma.Coro, q *index.Query) (again bool, err error) {
	ix.again.Add(1)
	q.Candidates = q.Candidates[:0]
	e := Entry(q.State[stEntry])
	d := ix.dir.Load()
	if d.entries[q.Hash&d.mask] != e {
		return true, nil
	}
	if d, err = ix.refresh(c, d); err != nil {
		return false, err
	}
	if d.entries[q.Hash&d.mask] != e {
		return true, nil
	}
	q.State[stStale]++
	if q.State[stStale] > maxStale {
		q.State[stStale] = 0
		return false, ix.corrupt(memory.Addr(q.State[stFirst]), "sub-table is not responsible for suffix %b, but the directory says so",
			uint32(q.Hash)&suffixMask(e.Depth()))
	}
	return true, nil
}

// Validate appends READs of the same buckets, and of the candidates' versions.
func (ix *Index) Validate(b *rdma.Batch, q *index.Query, buffer uint32) {
	o1, o2 := uint32(q.State[stPlaces]), uint32(q.State[stPlaces]>>32)
	readPlaces(b, q.View.At(memory.Addr(q.State[stFirst]), 0), o1, o2, buffer)
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
	lines := queryLines
	if mutant.AbsenceIgnoresHeaders {
		if q.State[stSecond] != 0 {
			lines = 2 * queryLines
		}
	} else if q.State[stSecond] == 0 {
		for i := range queryLines {
			if h := Header(l[i*lineWords+slotsPerLine]); uint64(h) != q.State[stHeader] && (h.Check(ix.geo.Table) != nil || !h.Covers(q.Hash)) {
				return false
			}
		}
	} else {
		lines = 2 * queryLines
		for i := range queryLines {
			if l[i*lineWords+slotsPerLine] != q.State[stHeaders+i] {
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
