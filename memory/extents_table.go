package memory

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"txnode/memory/internal/mum"
	"txnode/memory/layout"
	"txnode/rdma"
)

// An index segment starts with a table of one word for each granule, which says
// how long the extent is that starts there, in granules; 0: none does.
//
//	63     32 31     24 23       0
//	+--------+---------+----------+
//	| check  |    0    |  length  |
//	+--------+---------+----------+
//
// An extent is allocated and freed by one 8-byte WRITE on each replica, which
// verifies itself, and no two extents share a word. The word of an extent is
// written before the extent is handed out, and cleared before its place is used
// again: whenever the process stops, the table names every extent that an index
// may use, and none that overlap.
const lengthBits = 24

// extentWord is the word for an extent of n granules at a.
func extentWord(a layout.Addr, n uint32) uint64 {
	return uint64(uint32(mum.Mix(uint64(a)^0xa0761d6478bd642f, uint64(n)^0xe7037ed1a0b428db)))<<32 | uint64(n)
}

// freed marks the start of an extent whose word is to be cleared.
const freed = 1 << 31

// settleFrees clears the words of freed extents on the blades, and then lets
// their places be used again.
func (s *allocation) settleFrees(c *rdma.Coro) error {
	s.mu.Lock()
	s.ripen()
	pending := s.extents.pending
	s.extents.pending = nil
	v := s.ViewOn(c.Thread())
	s.mu.Unlock()
	if len(pending) == 0 {
		return nil
	}
	ended := false
	defer func() {
		if !ended { // a panic unwinds the thread
			s.disown(c, v, pending)
		}
	}()
	err := s.writeWords(c, v, pending, make([]uint64, len(pending)))
	ended = true
	if err != nil {
		s.unsettled(c, v, pending...)
		return fmt.Errorf("memory: freeing extents: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	unit := layout.Granule(s.opts.SegmentSize)
	for _, a := range pending {
		x, at := s.extents.byID[a.Segment()], a.Offset()/unit
		if x == nil || x.starts[at]&freed == 0 { // its table was read meanwhile
			continue
		}
		x.mark(at, x.starts[at]&^freed, false)
		x.starts[at] = 0
		delete(s.extents.owners, a)
	}
	return nil
}

// writeWords writes the words of the extents at addrs on all replicas. When it
// returns, they and all that the thread wrote before are placed.
func (s *store) writeWords(c *rdma.Coro, v *layout.View, addrs []layout.Addr, words []uint64) error {
	t := c.Thread()
	unit := layout.Granule(s.opts.SegmentSize)
	buf, err := t.Alloc(8 * zeroBatch)
	if err != nil {
		return err
	}
	defer t.Free(buf, 8*zeroBatch)
	durable := s.durable()
	var batch rdma.Batch
	for len(addrs) > 0 {
		k := min(len(addrs), zeroBatch)
		batch.Reset()
		for i, a := range addrs[:k] {
			local := buf + uint32(8*i)
			t.PutWord(local, words[i])
			table := layout.MakeAddr(a.Segment(), a.Offset()/unit*8)
			for r := range v.Copies(a) {
				batch.Write(v.At(table, r), local, 8)
				if durable {
					batch.Flush(v.At(table, r), 8)
				}
			}
		}
		if err := c.Do(&batch); err != nil {
			return err
		}
		for _, a := range addrs[:k] {
			table := layout.MakeAddr(a.Segment(), a.Offset()/unit*8)
			if v.Written(table) == v.Copies(table) {
				continue
			}
			if err := c.Fence(rdma.FenceThread, 0, &batch); err != nil { // the primary's word is there
				return err
			}
			if err := SyncWords(c, v, table, 8); err != nil {
				return err
			}
			if !durable {
				continue
			}
			batch.Reset()
			for r := v.Copies(table); r < v.Written(table); r++ {
				batch.Flush(v.At(table, r), 8)
			}
			if err := c.Do(&batch); err != nil {
				return err
			}
		}
		addrs, words = addrs[k:], words[k:]
	}
	// Others, with queue pairs of their own, may write to the same places from
	// now on: nothing of ours may be placed later.
	return c.Fence(rdma.FenceThread, 0, &batch)
}

// loadExtents reads the tables of those of the segments that are of indexes. adopted: they are, so
// it makes their copies equal, too, and what is allocated there is inherited.
func (s *allocation) loadExtents(c *rdma.Coro, ids []layout.SegmentID, adopted bool) error {
	v := s.ViewOn(c.Thread())
	for _, id := range ids {
		s.mu.Lock()
		wanted := s.layout.Segments[id].Kind == layout.KindIndex && s.mine(id)
		var x *extentSegment
		if wanted {
			x = s.newExtentSegment(id)
		}
		s.mu.Unlock()
		if x == nil {
			continue
		}
		x.fresh = uint32(len(x.starts))
		// the thread is behind
		if v.Copies(layout.MakeAddr(x.id, 0)) == 0 && s.View().Copies(layout.MakeAddr(x.id, 0)) > 0 {
			return fmt.Errorf("memory: reading the extents of segment %d: %w", x.id, rdma.ErrStaleKey)
		}
		err := s.loadAnyTable(c, v, x)
		if err == nil && adopted {
			err = s.resyncTable(c, v, x)
		}
		if err != nil {
			return err
		}
		s.mu.Lock()
		if s.mine(id) && s.extents.byID[id] == nil {
			s.addExtentSegment(x)
			if adopted {
				s.inheritExtents(x)
			}
		}
		s.mu.Unlock()
	}
	return nil
}

// inheritExtents leaves the extents of a segment that was adopted to DeadExtents. The
// caller holds the lock.
func (s *allocation) inheritExtents(x *extentSegment) {
	s.leaked++
	for g, n := range x.starts {
		if n > 0 {
			s.extents.owners[layout.MakeAddr(x.id, uint32(g)*layout.Granule(s.opts.SegmentSize))] = s.origin(inherited)
		}
	}
}

// loadAnyTable reads the table of an index segment from the first copy that is sound.
// ErrDamaged: none is, and the error is of all. That one copy is damaged says nothing while
// another one cannot be read.
func (s *store) loadAnyTable(c *rdma.Coro, v *layout.View, x *extentSegment) error {
	var damaged, unread []error
	for r := range v.Copies(layout.MakeAddr(x.id, 0)) {
		err := s.loadTable(c, v, x, r)
		switch {
		case err == nil:
			x.source = v.At(layout.MakeAddr(x.id, 0), r).Blade
			return nil
		case errors.Is(err, layout.ErrDamaged):
			damaged = append(damaged, err)
		default:
			unread = append(unread, err)
		}
	}
	if len(unread) > 0 {
		return errors.Join(unread...)
	}
	return errors.Join(damaged...)
}

// readAdopted reads the tables of segments that were adopted, and makes their copies equal: the
// owner may have died between two WRITEs of a word, and a copy that says otherwise would count
// after the loss of the primary. One of which all copies are damaged is told of (Options.Damaged),
// and nothing is allocated there: the extents that are in use stay so.
func (s *allocation) readAdopted(c *rdma.Coro) error {
	s.mu.Lock()
	ids := s.extents.unread
	s.extents.unread = nil
	s.mu.Unlock()
	for i, id := range ids {
		err := s.loadExtents(c, []layout.SegmentID{id}, true)
		if errors.Is(err, layout.ErrDamaged) {
			if s.opts.Damaged != nil {
				s.opts.Damaged(fmt.Errorf("memory: segment %d had another owner, and nothing is allocated there "+
					"any more: %w", id, err))
			}
			continue
		}
		if err != nil {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.extents.unread = append(s.extents.unread, ids[i:]...)
			return err
		}
	}
	return nil
}

// loadTable reads the table of an index segment from one replica.
func (s *store) loadTable(c *rdma.Coro, v *layout.View, x *extentSegment, replica int) error {
	t := c.Thread()
	unit := layout.Granule(s.opts.SegmentSize)
	size := uint32(len(x.starts)) * 8
	chunk := min(size, zeroChunk)
	buf, err := t.Alloc(int(chunk))
	if err != nil {
		return fmt.Errorf("memory: reading the extents of segment %d: %w", x.id, err)
	}
	defer t.Free(buf, int(chunk))
	starts := make([]uint32, len(x.starts))
	end := layout.TableGranules(s.opts.SegmentSize) // of the extent before
	var batch rdma.Batch
	for off := uint32(0); off < size; off += chunk {
		batch.Reset()
		at := v.At(layout.MakeAddr(x.id, off), replica)
		batch.Read(at, buf, min(chunk, size-off))
		if err := c.Do(&batch); err != nil {
			return &layout.BladeError{
				Blade: at.Blade, Name: s.opts.bladeName(at.Blade), Err: err,
				What: fmt.Sprintf("reading the extents of segment %d", x.id),
			}
		}
		p := t.Bytes(buf, min(chunk, size-off))
		for i := range uint32(len(p) / 8) {
			w := binary.LittleEndian.Uint64(p[8*i:])
			if w == 0 {
				continue
			}
			g := off/8 + i
			a, n := layout.MakeAddr(x.id, g*unit), uint32(w&(1<<lengthBits-1))
			if w != extentWord(a, n) || g < end || n == 0 || n > uint32(len(starts))-g {
				return &layout.BladeError{Blade: at.Blade, Name: s.opts.bladeName(at.Blade), Err: layout.ErrDamaged,
					What: fmt.Sprintf("the word %#x of the extent at %v, at offset %#x of the region",
						w, a, at.Off+uint64(8*i))}
			}
			starts[g], end = n, g+n
		}
	}
	for g, n := range starts {
		if n > 0 {
			x.starts[g] = n
			x.mark(uint32(g), n, true)
		}
	}
	return nil
}

// LevelExtents makes the copies of the tables of extents equal to their primaries, after a client
// that was changing them has died. If the table of a primary was damaged when the space was opened,
// all are made equal to the copy that was read instead. The caller is the only user of the
// database.
func (s *allocation) LevelExtents(c *rdma.Coro) error {
	v := s.ViewOn(c.Thread())
	s.mu.Lock()
	segs := slices.Clone(s.extents.segs)
	s.mu.Unlock()
	for _, x := range segs {
		if err := s.resyncTable(c, v, x); err != nil {
			return err
		}
	}
	return nil
}

// resyncTable makes the copies of the table of a segment equal to the one that was read.
func (s *store) resyncTable(c *rdma.Coro, v *layout.View, x *extentSegment) error {
	t := c.Thread()
	buf, err := t.Alloc(2 * syncChunk)
	if err != nil {
		return fmt.Errorf("memory: comparing the tables of extents: %w", err)
	}
	defer t.Free(buf, 2*syncChunk)
	size := layout.TableGranules(s.opts.SegmentSize) * layout.Granule(s.opts.SegmentSize)
	var batch rdma.Batch
	a := layout.MakeAddr(x.id, 0)
	from := 0
	for k := range v.Copies(a) {
		if v.At(a, k).Blade == x.source {
			from = k
		}
	}
	for k := range v.Copies(a) {
		for o := uint32(0); o < size && k != from; o += syncChunk {
			n := min(syncChunk, size-o)
			if _, err := syncRange(c, v, a+layout.Addr(o), n, from, k, forever, buf, &batch); err != nil {
				return fmt.Errorf("memory: comparing the tables of extents: %w", err)
			}
		}
	}
	return nil
}
