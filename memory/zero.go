package memory

import (
	"txnode/memory/layout"
	"txnode/rdma"
)

// zeroChunk is how many bytes are cleared with one WRITE.
const zeroChunk = 64 << 10

// zeroBatch bounds the WRITEs under way when something is cleared.
const zeroBatch = 16

// clearAreas makes all bytes of the log areas zero and durable. It reads them
// first and writes only what is not zero: a coordinator seldom used all of its
// areas, and memory that was never touched stays untouched. blindly: it does not look, since what
// is zero in memory may be something else on the disk. before, unless it is nil, is called before
// something is written: where nothing is there may be no memory.
func clearAreas(c *rdma.Coro, v *layout.View, areas []LogArea, blindly bool,
	before func(a rdma.RemoteAddr, n uint32) error) error {
	t := c.Thread()
	zero, err := t.Alloc(zeroChunk)
	if err != nil {
		return err
	}
	defer t.Free(zero, zeroChunk)
	clear(t.Bytes(zero, zeroChunk))
	buf, err := t.Alloc(zeroChunk)
	if err != nil {
		return err
	}
	defer t.Free(buf, zeroChunk)
	var batch rdma.Batch
	for _, area := range areas {
		area.Addr.Key = v.Key(area.Addr.Blade)
		for off := uint32(0); off < area.Size; off += zeroChunk {
			a, n := area.Addr, min(zeroChunk, area.Size-off)
			a.Off += uint64(off)
			batch.Reset()
			batch.Read(a, buf, n)
			if err := c.Do(&batch); err != nil {
				return err
			}
			if isZero(t.Bytes(buf, n)) && !blindly {
				continue
			}
			if before != nil {
				if err := before(a, n); err != nil {
					return err
				}
			}
			batch.Reset()
			batch.Write(a, zero, n)
			batch.Flush(a, n)
			if err := c.Do(&batch); err != nil {
				return err
			}
		}
	}
	return nil
}

// clearExtent makes n bytes at a zero, on every replica, without looking.
func clearExtent(c *rdma.Coro, v *layout.View, a layout.Addr, n uint32, durable bool) error {
	t := c.Thread()
	zero, err := t.Alloc(int(min(n, zeroChunk)))
	if err != nil {
		return err
	}
	defer t.Free(zero, int(min(n, zeroChunk)))
	clear(t.Bytes(zero, min(n, zeroChunk)))
	var batch rdma.Batch
	for i := range v.Copies(a) {
		for off := uint32(0); off < n; off += zeroChunk {
			at, k := v.At(a+layout.Addr(off), i), min(zeroChunk, n-off)
			batch.Write(at, zero, k)
			if durable {
				batch.Flush(at, k)
			}
			if batch.Len() >= zeroBatch {
				if err := c.Do(&batch); err != nil {
					return err
				}
				batch.Reset()
			}
		}
	}
	if batch.Len() > 0 {
		if err := c.Do(&batch); err != nil {
			return err
		}
	}
	if v.Written(a) == v.Copies(a) {
		return nil
	}
	if err := c.Fence(rdma.FenceThread, 0, &batch); err != nil { // the primary is clear
		return err
	}
	return SyncWords(c, v, a, n)
}

func isZero(p []byte) bool {
	for len(p) >= 8 {
		if p[0]|p[1]|p[2]|p[3]|p[4]|p[5]|p[6]|p[7] != 0 {
			return false
		}
		p = p[8:]
	}
	for _, b := range p {
		if b != 0 {
			return false
		}
	}
	return true
}
