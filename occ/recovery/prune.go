package recovery

import (
	"errors"
	"fmt"

	"txnode/index"
	"txnode/index/race"
	"txnode/memory"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/rdma"
)

// Vacant returns the function for race.Index.SetVacant of who works beside others: it
// tells which blocks are free on every copy, and locked by nobody who is registered. While
// transactions are undecided that may have lost something with a blade it says of none that
// it is; and when one is lost later, the READs fail in the epoch that begins then.
func Vacant(s *memory.Space) func(c *rdma.Coro, blocks []layout.Addr) ([]bool, error) {
	return func(c *rdma.Coro, blocks []layout.Addr) ([]bool, error) {
		v := s.ViewOn(c.Thread()) // before it is asked who is undecided
		if s.FailoverPending() {
			return make([]bool, len(blocks)), nil
		}
		return vacant(c, v, s.Single(), blocks, s.Registered)
	}
}

// Spoilt returns the function for race.Index.SetSpoilt of the same: it tells whether a block
// that is free, and that a slot leads to, is nobody's to be, but damaged: it is free on the
// primary, locked by nobody who is registered, and not free on another copy, or there were never
// backups, so that no placeholder is lost without its slot. While transactions are undecided it
// says of none that it is.
func Spoilt(s *memory.Space) func(c *rdma.Coro, a layout.Addr) (bool, error) {
	return func(c *rdma.Coro, a layout.Addr) (bool, error) {
		v := s.ViewOn(c.Thread()) // before it is asked who is undecided
		if s.FailoverPending() || !v.Contains(a, record.LineSize) {
			return false, nil
		}
		t := c.Thread()
		buf, err := t.Alloc(layout.MaxReplicas * record.LineSize)
		if err != nil {
			return false, fmt.Errorf("recovery: %w", err)
		}
		defer t.Free(buf, layout.MaxReplicas*record.LineSize)
		var b rdma.Batch
		for k := range v.Copies(a) {
			b.Read(v.At(a, k), buf+uint32(k)*record.LineSize, record.LineSize)
		}
		if err := c.Do(&b); err != nil {
			return false, fmt.Errorf("recovery: %w", err)
		}
		line := func(k int) record.Image {
			return record.Image(t.Bytes(buf+uint32(k)*record.LineSize, record.LineSize))
		}
		_, damage := line(0).Check(a)
		if g := line(0).Guard(); damage != nil || line(0).Meta().State() != record.Free || g.Held() &&
			s.Registered(g.Owner().Coordinator()) {
			return false, nil // it is not free
		}
		for k := 1; k < v.Copies(a); k++ {
			if line(k).Meta().State() != record.Free {
				return true, nil
			}
		}
		return s.Single(), nil
	}
}

// Vacate empties the slot that leads to block a, which somebody has met who was looking
// for a key, if nobody has the block (race.Index.Vacate). It reports whether that was so.
func Vacate(c *rdma.Coro, o Options, table uint16, key []byte, a layout.Addr) (bool, error) {
	u, err := newUnlocker(c, &o, func(table uint16) (index.Finder, error) { return o.open(c, o.Space, table) })
	if err != nil {
		return false, err
	}
	defer u.close()
	ix, err := u.index(table)
	if errors.Is(err, memory.ErrNoTable) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("recovery: index of table %d: %w", table, err)
	}
	r, ok := ix.(*race.Index)
	if !ok {
		return false, nil
	}
	q, err := u.lookup(r, o.Space.ViewOn(c.Thread()), table, key)
	if err != nil {
		return false, fmt.Errorf("recovery: looking up in the index of table %d: %w", table, err)
	}
	done, err := r.Vacate(c, q, a)
	if err != nil {
		err = fmt.Errorf("recovery: emptying a slot of table %d: %w", table, err)
	}
	return done, err
}

// PruneSlots empties the slots of all indexes that lead to blocks which are free on all copies, and
// returns how many: those of inserts whose placeholders were on a blade that was lost, and whose
// clients have died with it. Who looks for a key meets such a slot again and again, since the block
// could become that of a record at any moment. An index that is damaged is left alone. The caller
// is the only user of the database, and has swept it: of the blocks in which that has seen
// something, none is read again.
func PruneSlots(c *rdma.Coro, o Options, swept SweepReport) (int, error) {
	tables, err := o.Space.Tables()
	if err != nil {
		return 0, err
	}
	n := 0
	for _, t := range tables {
		if t.Root == 0 || t.InBlocks() {
			continue
		}
		ix, err := o.open(c, o.Space, t.ID)
		if errors.Is(err, layout.ErrLost) || errors.Is(err, layout.ErrCorrupt) {
			continue
		}
		if err != nil {
			return n, fmt.Errorf("recovery: index of table %q: %w", t.Name, err)
		}
		r, ok := ix.(*race.Index)
		if !ok {
			continue
		}
		k, err := r.Prune(c, swept.taken.has, func(blocks []layout.Addr) ([]bool, error) {
			return vacant(c, o.Space.ViewOn(c.Thread()), o.Space.Single(), blocks, o.Space.Registered)
		})
		if n += k; err != nil && !errors.Is(err, layout.ErrLost) && !errors.Is(err, layout.ErrCorrupt) {
			return n, fmt.Errorf("recovery: index of table %q: %w", t.Name, err)
		}
	}
	return n, nil
}

// vacant tells which blocks are free, and unlocked, on every copy, or valueless there. One that
// has no copy left is not: what was in it may come back. A lock of one who is not alive says
// nothing: he has met the block when he was looking for a key, and locked what he read. Nobody
// waits for it to be resolved, since a sweep repairs the indexes before it comes to locks. Without
// backups none is: a placeholder is lost with its segment then, and what is free where a slot
// leads has had a record.
func vacant(c *rdma.Coro, v *layout.View, single bool, blocks []layout.Addr,
	alive func(coordinator uint32) bool) ([]bool, error) {
	t := c.Thread()
	size := len(blocks) * layout.MaxReplicas * record.LineSize
	if size == 0 || single {
		return make([]bool, len(blocks)), nil
	}
	buf, err := t.Alloc(size)
	if err != nil {
		return nil, fmt.Errorf("recovery: %w", err)
	}
	defer t.Free(buf, size)
	at := func(i, k int) uint32 { return buf + uint32((i*layout.MaxReplicas+k)*record.LineSize) }
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
			g := line.Guard()
			if k == 0 { // a guard that the dead have left says nothing of the rest
				_, damage := line.Check(blocks[i])
				out[i] = damage == nil
			}
			free := line.Meta().State() == record.Free || k > 0 && valueless(line, blocks[i], alive)
			out[i] = out[i] && free && !(g.Held() && alive(g.Owner().Coordinator()))
		}
	}
	return out, nil
}

// valueless reports whether a copy of a block that is free on the primary is a placeholder, or a
// deleted record, of one who is not alive: of the blades that he had them on, that of the primary
// was lost. A placeholder comes to a copy while that is built. No recovery gives the key a value,
// and a sweep makes such a copy free when no slot leads to it any more.
func valueless(line record.Image, a layout.Addr, alive func(coordinator uint32) bool) bool {
	_, damage := line.Check(a)
	return damage == nil && line.Meta().State() == record.Absent && !alive(line.Version().Coordinator())
}
