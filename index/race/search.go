package race

import (
	"unsafe"

	"txnode/index"
	"txnode/memory/layout"
	"txnode/rdma"
)

// The buffer of a query: the four lines of its key in the sub-table that is read
// first, two of its first choice and two of its second; then the four in the one
// that is being filled from it, if there is one; then room for the versions of as
// many candidates as there are slots.
const (
	queryLines = 4
	firstLines = 2
	queryBytes = 2 * queryLines * lineSize
	bufferSize = queryBytes + 2*queryLines*slotsPerLine*8
	lineWords  = lineSize / 8
	halfWords  = queryLines * lineWords
)

// What a query remembers.
const (
	stFirst  = iota // the sub-table that Search reads; 0: nothing was read
	stSecond        // the sub-table that is filled from it and that Resolve reads, or 0
	stPlaces        // offsets of the two combined buckets
	stEntry         // the directory entry
	stHeader        // the header that the buckets are expected to have
	stStale         // how often in a row directory and buckets disagreed
	stBoth          // whether both choices were read, or the first alone
)

// words are the lines of a query's buffer, in the host's byte order, which is
// little-endian: rdma.NewThread sees to it.
func words(t *rdma.Thread, local uint32) *[2 * halfWords]uint64 {
	return (*[2 * halfWords]uint64)(unsafe.Pointer(unsafe.SliceData(t.Bytes(local, queryBytes))))
}

// Search appends one READ of 128 bytes, of the combined bucket that is the key's
// first choice: its header tells whether the second has to be read, too. While the
// sub-table is being filled both are read.
func (ix *Index) Search(b *rdma.Batch, q *index.Query) { ix.search(b, q, ix.both) }

// search is Search, of both choices if so wanted (RACE, section 3.2, D3; algorithm 4).
func (ix *Index) search(b *rdma.Batch, q *index.Query, both bool) {
	d := ix.dir.Load()
	e := d.entries[q.Hash&d.mask]
	first, second := e.Table(), layout.Addr(0)
	if e.Filling() {
		first, second = d.parent(q.Hash, e), e.Table()
		both = true
	}
	if d.epoch < q.View.Epoch || !q.View.Valid(first) || second != 0 && !q.View.Valid(second) {
		q.State[stFirst] = 0
		return
	}
	o1, o2 := ix.geo.place(q.Hash)
	q.State[stFirst] = uint64(first)
	q.State[stSecond] = uint64(second)
	q.State[stPlaces] = uint64(o1) | uint64(o2)<<32
	q.State[stEntry] = uint64(e)
	q.State[stHeader] = uint64(MakeHeader(ix.geo.Table, e.Depth(), uint32(q.Hash)&suffixMask(e.Depth())))
	q.State[stBoth] = 0
	at := q.View.At(first, 0)
	readPlace(b, at, o1, q.Local)
	if both {
		q.State[stBoth] = 1
		readPlace(b, at, o2, q.Local+combinedSize)
	}
}

// readPlaces appends the READs of two combined buckets of a sub-table.
func readPlaces(b *rdma.Batch, at rdma.RemoteAddr, o1, o2, local uint32) {
	readPlace(b, at, o1, local)
	readPlace(b, at, o2, local+combinedSize)
}

// readPlace appends the READ of the combined bucket at offset o of a sub-table.
func readPlace(b *rdma.Batch, at rdma.RemoteAddr, o, local uint32) {
	at.Off += uint64(o)
	b.Read(at, local, combinedSize)
	b.Lookup()
}

// Resolve looks at the buckets. See the package comment for why a key that is
// linked throughout is never missed.
func (ix *Index) Resolve(c *rdma.Coro, q *index.Query) (again bool, err error) {
	t := c.Thread()
	q.Thread = t
	q.Candidates = q.Candidates[:0]
	if q.State[stFirst] == 0 {
		return ix.newView(c, q)
	}
	l := words(t, q.Local)
	if q.State[stSecond] != 0 {
		return ix.resolveFilling(c, q, l)
	}
	lines := ix.lines(q)
	if again, err := ix.responsible(c, q, l, 0, lines); again || err != nil {
		return again, err
	}
	if lines == firstLines && marked(q, l) {
		if err := ix.readSecond(c, q); err != nil {
			return false, err
		}
		if again, err := ix.responsible(c, q, l, firstLines, queryLines); again || err != nil {
			return again, err
		}
		lines = queryLines
	}
	if err := ix.collect(q, l[:lines*lineWords], 0); err != nil {
		return false, err
	}
	q.State[stStale] = 0
	return false, nil
}

// lines is how many lines of a query's buffer belong to the sub-table read first.
func (ix *Index) lines(q *index.Query) int {
	if q.State[stBoth] != 0 {
		return queryLines
	}
	return firstLines
}

// responsible checks the headers of the lines from..to of the sub-table that was
// read; if not all of them are responsible for the key, the lookup starts again.
func (ix *Index) responsible(c *rdma.Coro, q *index.Query, l *[2 * halfWords]uint64, from,
	to int) (again bool, err error) {
	want := Header(q.State[stHeader])
	differ := Header(0)
	for i := from; i < to; i++ {
		differ |= Header(l[i*lineWords+slotsPerLine]) ^ want
	}
	if differ.Base() == 0 {
		return false, nil
	}
	all, err := ix.covered(q, layout.Addr(q.State[stFirst]), l, 0, from, to)
	if err != nil || all {
		return false, err
	}
	return ix.stale(c, q)
}

// marked reports whether the first choice of the query's key, of the sub-table that
// was read first, says that the second is to be read, too.
func marked(q *index.Query, l *[2 * halfWords]uint64) bool {
	return markOf(q, l, 0).Spills(fingerprint(q.Hash))
}

// markOf is the header of the main bucket of the key's first choice; line is the
// first of the sub-table in the buffer.
func markOf(q *index.Query, l *[2 * halfWords]uint64, line int) Header {
	main := int(mainLine(uint32(q.State[stPlaces])))
	return Header(l[(line+main)*lineWords+slotsPerLine])
}

// readSecond reads the second choice of a query of which only the first was read.
func (ix *Index) readSecond(c *rdma.Coro, q *index.Query) error {
	s := ix.get()
	defer ix.put(s)
	s.batch.Reset()
	readPlace(&s.batch, q.View.At(layout.Addr(q.State[stFirst]), 0), uint32(q.State[stPlaces]>>32),
		q.Local+combinedSize)
	if err := c.Do(&s.batch); err != nil {
		return err
	}
	q.State[stBoth] = 1
	ix.seconds.Add(1)
	return nil
}

// newView gives the query a view that knows the sub-table's segment, and the index a
// directory of its epoch.
func (ix *Index) newView(c *rdma.Coro, q *index.Query) (again bool, err error) {
	v := ix.space.ViewOn(q.Thread)
	d := ix.dir.Load()
	if d.epoch < v.Epoch {
		if d, err = ix.refresh(c, d); err != nil {
			return false, err
		}
	}
	e := d.entries[q.Hash&d.mask]
	a := e.Table()
	if v.Valid(a) && e.Filling() {
		a = d.parent(q.Hash, e)
	}
	if !v.Valid(a) {
		w := ix.newer(v, a, ix.size)
		if w == nil {
			return false, ix.outside(v, a, a, "a sub-table is in no segment")
		}
		v = w
	}
	q.View = v
	return true, nil
}

// covered reports whether the headers of the lines from..to of a sub-table, whose
// lines are in the buffer from line base on, are all responsible for the query's key.
func (ix *Index) covered(q *index.Query, table layout.Addr, l *[2 * halfWords]uint64, base, from,
	to int) (bool, error) {
	all := true
	for i := from; i < to; i++ {
		h := Header(l[(base+i)*lineWords+slotsPerLine])
		if err := h.Check(ix.geo.Table); err != nil {
			return false, ix.corrupt(lineAddr(q, table, i)+headerOff, "%w", err)
		}
		all = all && h.Covers(q.Hash)
	}
	return all, nil
}

// lineAddr is where line i of a query's places is in a sub-table.
func lineAddr(q *index.Query, table layout.Addr, i int) layout.Addr {
	o := uint32(q.State[stPlaces])
	if i >= 2 {
		o = uint32(q.State[stPlaces] >> 32)
	}
	return table + layout.Addr(o+uint32(i%2)*lineSize)
}

// checkParent checks the headers of the sub-table that another is filled from:
// the split may or may not have reached these buckets, and later splits may have
// changed them again, but they agree in the suffix that both descend from.
func (ix *Index) checkParent(q *index.Query, l *[2 * halfWords]uint64) error {
	depth := Entry(q.State[stEntry]).Depth() - 1
	for i := range queryLines {
		h := Header(l[i*lineWords+slotsPerLine])
		at := lineAddr(q, layout.Addr(q.State[stFirst]), i) + headerOff
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
	if err := ix.checkParent(q, l); err != nil {
		return false, err
	}
	if err := ix.collect(q, l[:halfWords], 0); err != nil {
		return false, err
	}
	t := c.Thread()
	buf, err := t.Alloc(lineSize)
	if err != nil {
		return false, err
	}
	defer t.Free(buf, lineSize)
	s := ix.get()
	defer ix.put(s)
	e := Entry(q.State[stEntry])
	second := layout.Addr(q.State[stSecond])
	d := ix.dir.Load()
	at := ix.entryAddr(d, uint32(q.Hash)&suffixMask(min(e.Depth(), d.depth)))
	if !q.View.Valid(at) { // the directory is newer than the view
		q.Candidates = q.Candidates[:0]
		return ix.newView(c, q)
	}
	s.batch.Reset()
	readPlaces(&s.batch, q.View.At(second, 0), uint32(q.State[stPlaces]), uint32(q.State[stPlaces]>>32),
		q.Local+queryBytes/2)
	s.batch.Read(q.View.At(at, 0), buf, 8)
	if err := c.Do(&s.batch); err != nil {
		return false, err
	}
	all, err := ix.covered(q, second, l, queryLines, 0, queryLines)
	if err != nil {
		return false, err
	}
	if !all {
		return ix.stale(c, q)
	}
	if err := ix.collect(q, l[halfWords:], queryLines); err != nil {
		return false, err
	}
	q.State[stStale] = 0
	if Entry(t.Word(buf)) != e {
		// The split is done: the next lookup needs no second read.
		if d = ix.dir.Load(); d.entries[q.Hash&d.mask] == e {
			_, err = ix.refresh(c, d)
		}
	}
	return false, err
}

// collect adds the blocks of the lines' slots that have the key's fingerprint.
// line is the number in the query of the first of them.
func (ix *Index) collect(q *index.Query, l []uint64, line int) error {
	fp := q.Hash >> fpShift
	for i := range len(l) / lineWords {
		w := l[i*lineWords : i*lineWords+lineWords : i*lineWords+lineWords]
		for j := range slotsPerLine {
			if w[j]>>fpShift == fp && !Slot(w[j]).Empty() {
				if err := ix.candidate(q, Slot(w[j]), line+i, j); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// SlotOf returns where the slot is in which a resolved query has met block a; 0: in none.
func (ix *Index) SlotOf(q *index.Query, a layout.Addr) layout.Addr {
	l := words(q.Thread, q.Local)
	lines := ix.lines(q)
	if q.State[stSecond] != 0 {
		lines = 2 * queryLines
	}
	for i := range lines {
		for j := range slotsPerLine {
			if Slot(l[i*lineWords+j]).Addr() == a {
				return slotAddr(q, i, j)
			}
		}
	}
	return 0
}

// slotAddr is where slot j of line i of a query is; lines from queryLines on are
// in the second sub-table.
func slotAddr(q *index.Query, i, j int) layout.Addr {
	if i >= queryLines {
		return lineAddr(q, layout.Addr(q.State[stSecond]), i-queryLines) + layout.Addr(8*j)
	}
	return lineAddr(q, layout.Addr(q.State[stFirst]), i) + layout.Addr(8*j)
}

func (ix *Index) candidate(q *index.Query, s Slot, i, j int) error {
	if err := s.Check(); err != nil {
		return ix.corrupt(slotAddr(q, i, j), "%w", err)
	}
	a, class := s.Addr(), s.Class()
	if !ix.fits(q.View, a, class.Size()) {
		v := ix.space.ViewOn(q.Thread)
		if !ix.fits(v, a, class.Size()) {
			if w := ix.newer(v, a, class.Size()); w != nil {
				v = w
			}
		}
		if !ix.fits(v, a, class.Size()) {
			return ix.outside(v, slotAddr(q, i, j), a, "%v: the block is in no segment", s)
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
		return false, ix.corrupt(layout.Addr(q.State[stFirst]),
			"sub-table is not responsible for suffix %b, but the directory says so",
			uint32(q.Hash)&suffixMask(e.Depth()))
	}
	return true, nil
}
