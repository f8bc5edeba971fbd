package race

import (
	"txnode/index"
	"txnode/memory/layout"
	"txnode/rdma"
)

// pruneBlocks is how many blocks Prune asks for at once.
const pruneBlocks = 128

// Prune empties the slots that point to blocks which are vacant on all copies, and returns their
// number. vacant is not asked about blocks for which taken is true. The caller is the only user of
// the index, which has been recovered: no client is about to put anything into these blocks.
func (ix *Index) Prune(c *rdma.Coro, taken func(block layout.Addr) bool,
	vacant func(blocks []layout.Addr) ([]bool, error)) (int, error) {
	t := c.Thread()
	zero, err := t.Alloc(8)
	if err != nil {
		return 0, err
	}
	defer t.Free(zero, 8)
	t.PutWord(zero, 0)
	n := 0
	var slots, blocks []layout.Addr
	var b rdma.Batch
	empty := func() error {
		gone, err := vacant(blocks)
		if err != nil {
			return err
		}
		v := ix.space.ViewOn(t)
		for i := range gone {
			if !gone[i] {
				continue
			}
			n++
			for k := range v.Written(slots[i]) {
				b.Write(v.At(slots[i], k), zero, 8)
			}
		}
		slots, blocks = slots[:0], blocks[:0]
		if b.Len() == 0 {
			return nil
		}
		err = c.Do(&b)
		b.Reset()
		return err
	}
	err = ix.Walk(c, func(at layout.Addr, x index.Candidate) error {
		if taken(x.Addr) {
			return nil
		}
		slots, blocks = append(slots, at), append(blocks, x.Addr)
		if len(slots) < pruneBlocks {
			return nil
		}
		return empty()
	})
	if err == nil {
		err = empty()
	}
	if err == nil {
		err = c.Fence(rdma.FenceThread, 0, &b)
	}
	return n, err
}
