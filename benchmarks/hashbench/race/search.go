package race

import (
	"fmt"

	"txnode/memory/layout"
	"txnode/rdma"
)

// The buffer of a query has the four lines of its key: two of its first choice and two of its
// second.
const (
	queryLines = 4
	firstLines = 2
	// BufferSize is the arena that a query needs, in bytes.
	BufferSize = queryLines * lineSize
	// MaxCandidates is how many blocks a query can have.
	MaxCandidates = queryLines * slotsPerLine
)

// Candidate is a block that may hold the key.
type Candidate struct {
	Addr layout.Addr
	at   layout.Addr // of the slot
	slot Slot
	more bool // other slots lead to the block, too
}

// Query is the lookup of one key. It is made once and reused; it belongs to one coroutine. Hash and
// Local must stay as they are from Search to the last call that uses the query.
type Query struct {
	Hash  uint64 // record.Hash of table and key
	Local uint32 // arena of BufferSize bytes, 64-byte aligned
	// View is the map by which the table and the candidates are addressed. Resolve replaces it by a
	// newer one if it finds a block in a segment that the view does not know.
	View *layout.View
	// Candidates are the blocks that may hold the key, after Resolve. Some may hold other keys with
	// a similar hash.
	Candidates []Candidate

	batch  rdma.Batch
	table  layout.Addr // the sub-table
	places [2]uint32
	header Header // that its buckets have, but for the marks
	both   bool   // both choices were read
}

// Search appends the READ of the combined bucket that is the key's first choice, or of both
// (RACE, section 3.2, D3; algorithm 4).
func (ix *Table) Search(b *rdma.Batch, q *Query) {
	suffix := ix.geo.suffix(q.Hash)
	q.table, q.header, q.both = ix.dir[suffix], ix.geo.header(suffix), ix.both
	q.places[0], q.places[1] = ix.geo.place(q.Hash)
	q.read(b, 0)
	if q.both {
		q.read(b, 1)
	}
}

// read appends the READ of choice k.
func (q *Query) read(b *rdma.Batch, k int) {
	b.Read(q.View.At(q.table+layout.Addr(q.places[k]), 0), q.Local+uint32(k)*combinedSize, combinedSize)
	b.Lookup()
}

// Resolve interprets the READs of Search, which have completed, and fills q.Candidates.
func (ix *Table) Resolve(c *rdma.Coro, q *Query) error {
	q.Candidates = q.Candidates[:0]
	if !q.both && q.markHeader(c.Thread()).Marked(q.Hash) {
		if err := q.readSecond(c); err != nil {
			return err
		}
	}
	p := q.lines(c.Thread())
	for i := range q.filled() {
		if h := Header(word(p, i*lineSize+headerOff)); h.base() != q.header {
			return fmt.Errorf("%w: bucket at %v is %v, not of %v", ErrCorrupt, q.lineAddr(i), h, q.header)
		}
		for j := range uint32(slotsPerLine) {
			s := Slot(word(p, i*lineSize+8*j))
			if s == 0 || uint64(s)>>fpShift != q.Hash>>fpShift {
				continue
			}
			if err := ix.candidate(q, s, q.lineAddr(i)+layout.Addr(8*j)); err != nil {
				return err
			}
		}
	}
	return nil
}

// candidate adds the block of a slot.
func (ix *Table) candidate(q *Query, s Slot, at layout.Addr) error {
	a := s.Addr()
	if !q.View.Contains(a, s.Class().Size()) {
		if q.View = ix.space.View(); !q.View.Contains(a, s.Class().Size()) {
			return fmt.Errorf("%w: slot at %v leads to %v, which is in no segment", ErrCorrupt, at, a)
		}
	}
	for k := range q.Candidates {
		if q.Candidates[k].Addr == a {
			q.Candidates[k].more = true
			return nil
		}
	}
	q.Candidates = append(q.Candidates, Candidate{Addr: a, at: at, slot: s})
	return nil
}

// readSecond reads the second choice of a query of which only the first was read.
func (q *Query) readSecond(c *rdma.Coro) error {
	q.batch.Reset()
	q.read(&q.batch, 1)
	q.both = true
	return c.Do(&q.batch)
}

// lines are the bytes of the query's buffer.
func (q *Query) lines(t *rdma.Thread) []byte { return t.Bytes(q.Local, BufferSize) }

// filled is how many lines of the buffer were read.
func (q *Query) filled() uint32 {
	if q.both {
		return queryLines
	}
	return firstLines
}

// markHeader is the header of the main bucket of the first choice.
func (q *Query) markHeader(t *rdma.Thread) Header {
	return Header(word(q.lines(t), mainLine(q.places[0])*lineSize+headerOff))
}

// lineAddr is where a line of the buffer is in the sub-table.
func (q *Query) lineAddr(i uint32) layout.Addr {
	return q.table + layout.Addr(q.places[i/firstLines]+i%firstLines*lineSize)
}
