package recovery

import (
	"fmt"

	"txnode/index/race"
	"txnode/memory"
	"txnode/memory/record"
	"txnode/rdma"
)

// PruneSlots empties the slots of all indexes that lead to blocks which are free on all
// copies, and returns how many: those of inserts whose placeholders were on a blade that
// was lost, and whose clients have died with it. Who looks for a key meets such a slot
// again and again, since the block could become that of a record at any moment. The
// caller is the only user of the database, and has swept it.
func PruneSlots(c *rdma.Coro, o Options) (int, error) {
	tables, err := o.Space.Tables()
	if err != nil {
		return 0, err
	}
	n := 0
	for _, t := range tables {
		if t.Root == 0 {
			continue
		}
		ix, err := o.open(c, o.Space, t.ID)
		if err != nil {
			return n, fmt.Errorf("recovery: index of table %q: %w", t.Name, err)
		}
		r, ok := ix.(*race.Index)
		if !ok {
			continue
		}
		k, err := r.Prune(c, func(blocks []memory.Addr) ([]bool, error) { return vacant(c, o.Space.View(), blocks) })
		if err != nil {
			return n, fmt.Errorf("recovery: index of table %q: %w", t.Name, err)
		}
		n += k
	}
	return n, nil
}

// vacant tells which blocks are free, and unlocked, on every copy. One that has no copy
// left is not: what was in it may come back.
func vacant(c *rdma.Coro, v *memory.View, blocks []memory.Addr) ([]bool, error) {
	t := c.Thread()
	size := len(blocks) * memory.MaxReplicas * record.LineSize
	if size == 0 {
		return nil, nil
	}
	buf, err := t.Alloc(size)
	if err != nil {
		return nil, fmt.Errorf("recovery: %w", err)
	}
	defer t.Free(buf, size)
	at := func(i, k int) uint32 { return buf + uint32((i*memory.MaxReplicas+k)*record.LineSize) }
	copies := make([]int, len(blocks))
	var b rdma.Batch
	for i, a := range blocks {
		if !v.Contains(a, record.LineSize) {
			continue
		}
		copies[i] = v.Copies(a)
		for k := range copies[i] {
			b.Read(v.At(a, k), at(i, k), record.LineSize)
		}
	}
	if err := c.Do(&b); err != nil {
		return nil, fmt.Errorf("recovery: %w", err)
	}
	out := make([]bool, len(blocks))
	for i := range blocks {
		out[i] = copies[i] > 0
		for k := range copies[i] {
			line := record.Image(t.Bytes(at(i, k), record.LineSize))
			out[i] = out[i] && line.Meta().State() == record.Free && !line.Guard().Held()
		}
	}
	return out, nil
}
