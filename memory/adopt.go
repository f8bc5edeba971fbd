package memory

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"txnode/memory/internal/blockline"
	"txnode/memory/layout"
	"txnode/rdma"
)

// Blocks of segments that an earlier session has filled are free if their header
// says so. They are found by reading headers, a batch at a time, as blocks are
// needed:
//
//  1. A few round trips of probes find where the part of a segment begins that
//     was never used; the scan starts there (tails). As many segments as there
//     are blades are open in this way, the youngest first.
//  2. When there are no more tails, it goes on with what lies before (holes):
//     blocks whose records were deleted.
//
// A scan runs while transactions of this session free blocks in the same
// segment. Those are not the scan's to hand out: whoever freed them calls
// [Allocator.Free], perhaps later. It tells them by their version, whose upper
// bits are the number of the coordinator that freed the block: the scan takes
// only blocks that are blank, or were freed by a coordinator of an earlier
// session. Each block is looked at once in a session, before it is ever handed
// out, so no block is handed out twice.
//
// When a blade was lost in an earlier session, and no sweep has come to its end since, slots may
// lead to blocks that are free (Space.Dangling). Who opens the database sweeps it, before anybody
// wants a block. If that does not come to its end, since an index is damaged, none of these blocks
// is given away, and new segments are used.
//
// In a shared database no process owns segments of blocks when it opens it: what it adopts is
// looked through by rescan.

const (
	// scanBlocks is how many headers are read in one round trip.
	scanBlocks = 128
	// scanRounds is how many probes and scans a refill spends before it prefers
	// a new segment.
	scanRounds = 8
	// spanRead is the largest block of which a contiguous READ fetches many
	// headers; larger ones are read line by line, each with a READ of its own.
	spanRead = 256
)

// scan is a part of a segment to be searched for free blocks.
type scan struct {
	seg     layout.SegmentID
	class   layout.Class
	at, end uint32 // numbers of blocks: the first that is left, and one past the last
	probed  bool   // false: the whole segment, and where its never-used part begins is not known
	again   bool   // it is looked through for what other processes have freed: see rescan
	tries   int    // how often that was in vain
}

// adopt scans until it has found want free blocks, or after so many rounds, or
// when nothing is left to scan (more is false). What it found is in the pool.
func (s *allocation) adopt(c *rdma.Coro, a *Allocator, class layout.Class, rounds, want int) (more bool, err error) {
	for found, round := 0, 0; round < rounds && found < want; round++ {
		x, done := s.nextScan(a, class, want, round == 0)
		if x == nil {
			return !done, nil
		}
		k, err := s.lookAt(c, a, x)
		if err != nil {
			return true, err
		}
		found += k
	}
	return true, nil
}

// lookAt does what is to be done next with what nextScan has returned, and returns how many free
// blocks it has found.
func (s *allocation) lookAt(c *rdma.Coro, a *Allocator, x *scan) (found int, err error) {
	v := s.ViewOn(c.Thread())
	switch {
	case v.Placement(x.seg).N == 0: // it has lost all its copies
		s.mu.Lock()
		s.scanned(a, x)
		s.mu.Unlock()
		return 0, nil
	case !x.probed:
		return 0, s.probe(c, a, v, x)
	case x.again:
		return s.rescan(c, a, v, x)
	}
	return s.scan(c, a, v, x)
}

// LookThrough looks for the free blocks of segments of earlier sessions, of all classes, as far as
// that was not done yet, for so many nanoseconds at most. What it finds is in the pools. more:
// there is more to look through.
func (a *Allocator) LookThrough(c *rdma.Coro, most int64) (more bool, err error) {
	a.moved()
	for class, end := layout.Class(0), c.Thread().Now()+most; class < layout.NumClasses; {
		if c.Thread().Now() > end {
			return true, nil
		}
		x, _ := a.space.nextScan(a, class, math.MaxInt, true)
		if x == nil {
			class++
		} else if _, err := a.space.lookAt(c, a, x); err != nil {
			return true, err
		}
	}
	return false, nil
}

// scanned notes that an allocator has done with what nextScan had returned, and
// reports whether it was its own still: who was declared dead meanwhile must leave what he
// has found to others. The caller holds the lock.
func (s *store) scanned(a *Allocator, x *scan) bool {
	i := slices.Index(a.scans, x)
	if i < 0 {
		return false
	}
	a.scans = slices.Delete(a.scans, i, i+1)
	return true
}

// nextScan takes what is to be looked at next off the pool, for an allocator, until
// scanned: a segment to be probed, or a range of blocks. It is nil when the pool has want
// blocks already, or (done) nothing is left to look at. spread: rather probe than scan
// when fewer tails are known than there are blades.
func (s *allocation) nextScan(a *Allocator, class layout.Class, want int, spread bool) (x *scan, done bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() {
		if x != nil {
			a.scans = append(a.scans, x)
		}
	}()
	p := &s.pools[class]
	if len(p.unseen)+len(p.tails)+len(p.holes)+len(p.again) == 0 || s.withheld {
		return nil, true
	}
	if len(p.free) >= want || s.writable() != nil || !s.serving(a) {
		return nil, false
	}
	if last := len(p.unseen) - 1; last >= 0 &&
		(len(p.tails) == 0 || spread && len(p.tails) < s.layout.StayingBlades()) {
		x = p.unseen[last] // the youngest is the least used
		p.unseen = p.unseen[:last]
		return x, false
	}
	list := &p.tails
	if len(*list) == 0 {
		list = &p.holes
	}
	most := uint32(scanBlocks)
	if len(*list) == 0 {
		list, most = &p.again, rescanBlocks
	}
	// In turns, so that the primaries of what is found are on different blades.
	p.turn++
	i := p.turn % len(*list)
	x = (*list)[i]
	if x.end-x.at > most {
		part := *x
		part.end = part.at + most
		x.at = part.end
		return &part, false
	}
	(*list)[i] = (*list)[len(*list)-1]
	*list = (*list)[:len(*list)-1]
	return x, false
}

// scan reads the headers of a range and adds the free blocks to the pool. When
// the verbs fail, the range is queued again.
func (s *allocation) scan(c *rdma.Coro, a *Allocator, v *layout.View, x *scan) (int, error) {
	idx := make([]uint32, x.end-x.at)
	for i := range idx {
		idx[i] = x.at + uint32(i)
	}
	var free []layout.Addr
	others := map[layout.Addr]blockline.Line{}
	err := readHeaders(c, v, x, idx, 0, func(i uint32, header []byte) {
		if s.adoptable(header) {
			addr := layout.MakeAddr(x.seg, i*x.class.Size())
			if free = append(free, addr); freedByOther(header) {
				others[addr] = blockline.Line(header)
			}
		}
	})
	if err == nil && s.opts.Openings && x.seg < s.earlier {
		free, err = s.confirmed(c, v, x, free)
	}
	if err == nil && len(others) > 0 {
		free, err = s.renumbered(c, a, v, free, others)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p := &s.pools[x.class]
	mine := s.scanned(a, x)
	if err != nil {
		if mine {
			p.holes = append(p.holes, x)
		}
		return 0, err
	}
	if !mine {
		return 0, nil
	}
	for i := len(free) - 1; i >= 0; i-- { // the lowest is handed out first
		p.free = append(p.free, free[i])
	}
	return len(free), nil
}

// renumbered gives numbers of this process to those of the free blocks that others have freed, and
// leaves out the ones that a session has locked meanwhile.
func (s *allocation) renumbered(c *rdma.Coro, a *Allocator, v *layout.View, free []layout.Addr,
	others map[layout.Addr]blockline.Line) ([]layout.Addr, error) {
	var blocks []freeLine
	for _, x := range free {
		if line, ok := others[x]; ok {
			blocks = append(blocks, freeLine{x, line})
		}
	}
	ok, err := s.renumber(c, v, a.owner, blocks)
	for i, x := range blocks {
		if !ok[i] {
			free = slices.DeleteFunc(free, func(y layout.Addr) bool { return y == x.addr })
		}
	}
	return free, err
}

// confirmed leaves out the free blocks of which another copy has a record, or a node, that somebody
// of an earlier session has written: what the primary has of them is damaged, as a disk leaves what
// it has not written, and they are not given to others, who would write over the copy. While
// something may be left of who has died, copies may differ; beside damage, that is for good.
func (s *membership) confirmed(c *rdma.Coro, v *layout.View, x *scan, free []layout.Addr) ([]layout.Addr, error) {
	if !s.Tidy() {
		return free, nil
	}
	for k := 1; k < v.Copies(layout.MakeAddr(x.seg, 0)) && len(free) > 0; k++ {
		idx := make([]uint32, len(free))
		for i, a := range free {
			idx[i] = a.Offset() / x.class.Size()
		}
		sound := free[:0]
		if err := readHeaders(c, v, x, idx, k, func(i uint32, header []byte) {
			version := binary.LittleEndian.Uint64(header[blockline.VersionOff:])
			meta := binary.LittleEndian.Uint64(header[blockline.MetaOff:])
			state := meta >> blockline.StateShift & blockline.StateMask
			if state != blockline.StateLive && state != blockline.StateNode ||
				version>>blockline.CoordinatorShift >= uint64(s.since) {
				sound = append(sound, layout.MakeAddr(x.seg, i*x.class.Size()))
			}
		}); err != nil {
			return nil, err
		}
		free = sound
	}
	return free, nil
}

// adoptable reports whether a block is free and nobody of this session has it. One whose guard is
// not that of its version is just being freed by somebody who has it. One that has lengths of a key
// and a value, or something behind the number of its freeing, is a record, whose state is damaged,
// and that can be repaired from another copy.
func (s *membership) adoptable(header []byte) bool {
	free, version := freeBlock(header)
	return free && version>>blockline.CoordinatorShift < uint64(s.since)
}

// freeBlock reports whether a block is free, and its version.
func freeBlock(header []byte) (free bool, version uint64) {
	version = binary.LittleEndian.Uint64(header[blockline.VersionOff:])
	meta := binary.LittleEndian.Uint64(header[blockline.MetaOff:])
	guard := binary.LittleEndian.Uint64(header[blockline.GuardOff:])
	if meta&(1<<blockline.StateShift-1) != 0 || slices.ContainsFunc(header[blockline.FreeEnd:blockline.GuardOff],
		func(x byte) bool { return x != 0 }) {
		return false, version
	}
	return meta>>blockline.StateShift&blockline.StateMask == blockline.StateFree && guard&blockline.HeldBit == 0 &&
		guard == version, version
}

// blank reports whether a block was never used.
func blank(header []byte) bool {
	return binary.LittleEndian.Uint64(
		header[blockline.VersionOff:])|binary.LittleEndian.Uint64(header[blockline.MetaOff:]) == 0
}

// probe finds about where the never-used part of a segment begins, by looking
// at evenly spaced blocks of an ever smaller range, and queues the scan. Chunks
// make the border ragged; as every block is looked at anyway, that does not matter.
func (s *allocation) probe(c *rdma.Coro, a *Allocator, v *layout.View, x *scan) error {
	lo, hi := x.at, x.end // the first blank block is in [lo, hi]
	for lo < hi {
		k := min(hi-lo, scanBlocks)
		idx := make([]uint32, k)
		for i := range idx {
			idx[i] = lo + uint32(uint64(i)*uint64(hi-lo)/uint64(k))
		}
		lastUsed, firstBlank := int64(lo)-1, hi
		err := readHeaders(c, v, x, idx, 0, func(i uint32, header []byte) {
			switch {
			case !blank(header):
				lastUsed, firstBlank = int64(i), hi
			case firstBlank == hi:
				firstBlank = i
			}
		})
		if err != nil {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.scanned(a, x) {
				s.pools[x.class].unseen = append(s.pools[x.class].unseen, x)
			}
			return err
		}
		lo, hi = uint32(lastUsed+1), firstBlank
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p := &s.pools[x.class]
	if !s.scanned(a, x) {
		return nil
	}
	if lo > x.at {
		p.holes = append(p.holes, &scan{seg: x.seg, class: x.class, at: x.at, end: lo, probed: true})
	}
	if lo < x.end {
		p.tails = append(p.tails, &scan{seg: x.seg, class: x.class, at: lo, end: x.end, probed: true})
	}
	return nil
}

// readHeaders reads the headers of blocks of a segment, given by increasing
// number, at most scanBlocks, from one copy, in one round trip.
func readHeaders(c *rdma.Coro, v *layout.View, x *scan, idx []uint32, replica int,
	each func(i uint32, header []byte)) error {
	t, size := c.Thread(), x.class.Size()
	first, n := idx[0], uint32(len(idx))
	span := size <= spanRead && idx[n-1]-first == n-1
	stride := uint32(blockline.LineSize)
	if span {
		stride = size
	}
	buf, err := t.Alloc(int(n * stride))
	if err != nil {
		return fmt.Errorf("memory: scanning segment %d: %w", x.seg, err)
	}
	defer t.Free(buf, int(n*stride))
	var batch rdma.Batch
	if span {
		batch.Read(v.At(layout.MakeAddr(x.seg, first*size), replica), buf, n*size)
	} else {
		for i, k := range idx {
			batch.Read(v.At(layout.MakeAddr(x.seg, k*size), replica), buf+uint32(i)*stride, blockline.LineSize)
		}
	}
	if err := c.Do(&batch); err != nil {
		return fmt.Errorf("memory: scanning segment %d for free blocks: %w", x.seg, err)
	}
	for i, k := range idx {
		each(k, t.Bytes(buf+uint32(i)*stride, blockline.LineSize))
	}
	return nil
}
