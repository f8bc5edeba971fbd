package race

import (
	"encoding/binary"
	"errors"

	"txnode/index"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/rdma"
)

const (
	// scanGroups is how many groups of buckets are a piece of a scan: 6 KiB.
	scanGroups = 32
	// scanRecheck is how many pieces Unchanged reads in one round trip, if the arena has room.
	scanRecheck = 8
)

var _ index.Scanner = (*Index)(nil)

// scan is an index.Scan. It keeps a checksum of each piece, of its slots and of what its headers
// say of their responsibility.
//
// Claim: if the walk was complete and Unchanged says yes, then no key was linked at the
// moment between the two whose block the walk has not met. Let key K be linked at that
// moment, in sub-table X.
//
//   - The walk has read X. A slot never holds a word again that it has held (see Slot), but for a
//     block that was freed and linked again at the same place, whose version the caller compares.
//     So the slot of K held the same word when the walk read it.
//   - The walk has not read X, so a split made X after the walk had read the directory for the last
//     time, which was after it had read all lines. Before that split put K into X, by a move or an
//     insert, it had changed the headers of K's lines in the sub-table that it split, or in one
//     that this one descends from (see the package comment, S1 to S4). The walk has read those
//     lines, with the headers as they were before. Headers do not change back.
type scan struct {
	ix    *Index
	seen  map[layout.Addr]bool // sub-tables that are in todo, or were
	todo  []layout.Addr        // the first is being read
	at    uint32               // offset in it
	parts []scanPart
	again bool // the last part is to be read once more
}

// scanPart is what a scan remembers of a piece.
type scanPart struct {
	at   layout.Addr
	size uint32
	sum  uint64
}

// NewScan starts a walk over the index that can be validated.
func (ix *Index) NewScan() index.Scan { return &scan{ix: ix, seen: map[layout.Addr]bool{}} }

// Restart begins the walk anew.
func (s *scan) Restart() {
	clear(s.seen)
	s.todo, s.parts, s.again = s.todo[:0], s.parts[:0], false
}

// Again has the last piece read once more.
func (s *scan) Again() { s.again = len(s.parts) > 0 }

// Next reads the next piece. Sub-tables that appear meanwhile come last: what a split has moved to
// them was either met before, or is met there.
func (s *scan) Next(c *rdma.Coro, dst []index.Candidate) ([]index.Candidate, bool, error) {
	if s.again {
		p := &s.parts[len(s.parts)-1]
		dst, err := s.read(c, p, dst)
		s.again = err != nil
		return dst, err == nil, err
	}
	if len(s.todo) == 0 {
		if err := s.discover(c); err != nil || len(s.todo) == 0 {
			return dst, false, err
		}
	}
	p := scanPart{at: s.todo[0] + layout.Addr(s.at), size: min(scanGroups*groupSize, s.ix.size-s.at)}
	dst, err := s.read(c, &p, dst)
	if err != nil {
		return dst, false, err
	}
	s.parts = append(s.parts, p)
	if s.at += p.size; s.at == s.ix.size {
		s.todo, s.at = s.todo[1:], tableHeader
	}
	return dst, true, nil
}

// discover adds the sub-tables that the directory has and the scan has not met.
func (s *scan) discover(c *rdma.Coro) error {
	d, err := s.ix.readDirectory(c, s.ix.dir.Load())
	if err != nil {
		return err
	}
	s.todo, s.at = s.todo[:0], tableHeader
	for _, i := range d.tables() {
		if a := d.entries[i].Table(); !s.seen[a] {
			s.seen[a] = true
			s.todo = append(s.todo, a)
		}
	}
	return nil
}

// read reads a piece, notes its checksum, and appends the blocks that its slots lead to.
func (s *scan) read(c *rdma.Coro, p *scanPart, dst []index.Candidate) ([]index.Candidate, error) {
	t := c.Thread()
	buf, err := t.Alloc(int(p.size))
	if err != nil {
		return dst, err
	}
	defer t.Free(buf, int(p.size))
	w := s.ix.get()
	defer s.ix.put(w)
	v := s.ix.space.ViewOn(t)
	w.batch.Reset()
	w.batch.Read(v.At(p.at, 0), buf, p.size)
	if err := c.Do(&w.batch); err != nil {
		return dst, err
	}
	lines := t.Bytes(buf, p.size)
	for l := uint32(0); l < p.size; l += lineSize {
		b := parseBucket(lines[l:])
		at := p.at + layout.Addr(l)
		if err := b.Header.Check(s.ix.geo.Table); err != nil {
			return dst, s.ix.corrupt(at+headerOff, "%w", err)
		}
		for j, x := range b.Slots {
			if x.Empty() {
				continue
			}
			if err := x.Check(); err != nil {
				return dst, s.ix.corrupt(at+layout.Addr(8*j), "%w", err)
			}
			if v := s.ix.space.ViewOn(t); !s.ix.fits(v, x.Addr(), x.Class().Size()) &&
				s.ix.newer(v, x.Addr(), x.Class().Size()) == nil {
				return dst, s.ix.outside(v, at+layout.Addr(8*j), x.Addr(), "%v: the block is in no segment", x)
			}
			dst = append(dst, index.Candidate{Addr: x.Addr(), Class: x.Class()})
		}
	}
	p.sum = sumLines(lines)
	return dst, nil
}

// sumLines is the checksum of lines, from which it removes what headers note about spills.
func sumLines(lines []byte) uint64 {
	for l := 0; l < len(lines); l += lineSize {
		h := lines[l+headerOff : l+lineSize]
		binary.LittleEndian.PutUint64(h, uint64(Header(binary.LittleEndian.Uint64(h)).Base()))
	}
	return record.Sum(0, lines)
}

// Unchanged reads all pieces again and compares their checksums.
func (s *scan) Unchanged(c *rdma.Coro) (bool, error) {
	t := c.Thread()
	n := min(scanRecheck, max(len(s.parts), 1))
	buf, err := t.Alloc(n * scanGroups * groupSize)
	for errors.Is(err, rdma.ErrArenaFull) && n > 1 {
		n /= 2
		buf, err = t.Alloc(n * scanGroups * groupSize)
	}
	if err != nil {
		return false, err
	}
	defer t.Free(buf, n*scanGroups*groupSize)
	w := s.ix.get()
	defer s.ix.put(w)
	for i := 0; i < len(s.parts); i += n {
		parts := s.parts[i:min(i+n, len(s.parts))]
		v := s.ix.space.ViewOn(t)
		w.batch.Reset()
		for k, p := range parts {
			w.batch.Read(v.At(p.at, 0), buf+uint32(k)*scanGroups*groupSize, p.size)
		}
		if err := c.Do(&w.batch); err != nil {
			return false, err
		}
		for k, p := range parts {
			if sumLines(t.Bytes(buf+uint32(k)*scanGroups*groupSize, p.size)) != p.sum {
				return false, nil
			}
		}
	}
	return true, nil
}

// SlotsPerBucket is how many slots a bucket has.
const SlotsPerBucket = slotsPerLine
