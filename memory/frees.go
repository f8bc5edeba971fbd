package memory

import (
	"math"

	"txnode/memory/internal/blockline"
	"txnode/memory/layout"
	"txnode/rdma"
)

// Whoever frees a block numbers it, and log records say how many had been numbered when
// they were written. So of a record in a log, whose block is free, it can be told whether
// the block was freed since, as one that has had the record's image; or was so before, and
// has lost with a blade what its transaction had put there. Numbers grow as long as the
// database lives, since the upper bits are the next coordinator's number, and 40 bits are
// enough for what is freed before there is another one.
//
// Each process counts for itself. So the numbers of a block are those of the process that owns its
// segment, and of no other. That process hands the block out and logs it, so both numbers are of
// one count. When a segment gets another owner, a number of coordinators is passed over, so that
// the numbers of the new one are larger. What another process logs of the block replaces a version:
// then the block was in use, and free means freed since.
//
// The number of a segment that has gone back is used again, and logs may have records of before. So
// its blocks count as freed then, as far as they were not used since (Segment.Freed), and a process
// that uses the number again goes on from there.

// FreesShift is where the number of a coordinator begins in that of a freeing: the last
// one, plus one, that was registered then.
const FreesShift = 40

// FreedByOther is the number of a block that a process has freed which does not own the segment. It
// is larger than all others: any log record that has the block come to be used was written before.
// The owner gives the block a number of its own before it is handed out again: see renumber.
const FreedByOther = math.MaxUint64

// CountFree numbers the block at a, which the caller is about to free, before any verb that frees
// it is posted. Safe for concurrent use; it takes no lock.
func (s *allocation) CountFree(a layout.Addr) uint64 {
	if !s.View().Mine(a) {
		return FreedByOther
	}
	return s.frees.Add(1)
}

// Frees is the largest number that CountFree has returned. Safe for concurrent use; it takes no
// lock.
func (s *allocation) Frees() uint64 { return s.frees.Load() }

// raiseFrees makes the numbers larger than those of anybody who had the database open
// before the last coordinator was registered. The caller holds the lock, or is the only
// one.
func (s *allocation) raiseFrees() {
	s.freesFrom(uint64(s.layout.NextCoordinator) << FreesShift)
}

// freesFrom makes the numbers larger than those below one.
func (s *allocation) freesFrom(least uint64) {
	for n := s.frees.Load(); n < least && !s.frees.CompareAndSwap(n, least); n = s.frees.Load() {
	}
}

// freeLine is a free block, and its first line on the primary.
type freeLine struct {
	addr layout.Addr
	line blockline.Line
}

// freedByOther reports whether a free block has to get another number before it is handed out.
func freedByOther(header []byte) bool {
	return blockline.Word((*blockline.Line)(header), blockline.KeyOff) == FreedByOther
}

// renumber gives free blocks, which no allocator has, numbers of this process. It locks each in the
// name of a recoverer of the coordinator given, since a line that is half written has no checksum:
// a session that meets such a lock of one that is gone frees the block once more. A block whose
// guard has changed is left out. ok is in the order of blocks.
func (s *allocation) renumber(c *rdma.Coro, v *layout.View, coordinator uint32, blocks []freeLine) (
	ok []bool, err error) {
	ok = make([]bool, len(blocks))
	for at := 0; at < len(blocks) && err == nil; at += renumberBlocks {
		n := min(len(blocks)-at, renumberBlocks)
		err = s.renumberSome(c, v, coordinator, blocks[at:at+n], ok[at:at+n])
	}
	return ok, err
}

// renumberBlocks is how many blocks are renumbered at once.
const renumberBlocks = 64

func (s *allocation) renumberSome(c *rdma.Coro, v *layout.View, coordinator uint32, blocks []freeLine,
	ok []bool) error {
	t, size := c.Thread(), len(blocks)*blockline.LineSize
	buf, err := t.Alloc(size)
	if err != nil {
		return err
	}
	defer t.Free(buf, size)
	lock := uint64(coordinator)<<blockline.CoordinatorShift | blockline.MaxSequence<<1 | blockline.HeldBit
	var b rdma.Batch
	for _, x := range blocks {
		g := v.At(x.addr, 0)
		g.Off += blockline.GuardOff
		b.CAS(g, blockline.Word(&x.line, blockline.GuardOff), lock)
	}
	if err := c.Do(&b); err != nil {
		return err
	}
	for i := range blocks {
		x := &blocks[i]
		ok[i] = b.Result(i) == blockline.Word(&x.line, blockline.GuardOff)
		blockline.Renumber(&x.line, uint64(x.addr), s.frees.Add(1))
		copy(t.Bytes(buf+uint32(i)*blockline.LineSize, blockline.LineSize), x.line[:])
	}
	// The primary, which has the lock, comes last.
	for _, primary := range []bool{false, true} {
		b.Reset()
		for i := range blocks {
			from, a := buf+uint32(i)*blockline.LineSize, blocks[i].addr
			switch {
			case !ok[i]:
			case !primary:
				for k := 1; k < v.Written(a); k++ {
					b.Write(v.At(a, k), from, blockline.LineSize)
				}
			case t.Caps().OrderedLine:
				b.Write(v.At(a, 0), from, blockline.LineSize)
			default: // the guard behind the rest
				g := v.At(a, 0)
				b.Write(g, from, blockline.GuardOff)
				g.Off += blockline.GuardOff
				b.Write(g, from+blockline.GuardOff, blockline.LineSize-blockline.GuardOff)
			}
		}
		if err := c.Do(&b); err != nil {
			return err
		}
		if err := c.Fence(rdma.FenceThread, 0, &b); err != nil {
			return err
		}
	}
	return nil
}
