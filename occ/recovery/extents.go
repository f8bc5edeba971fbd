package recovery

import (
	"fmt"

	"txnode/memory"
	"txnode/memory/layout"
	"txnode/rdma"
)

// FreeExtents gives back the extents that are not reserved, and returns how many: those of a channel
// that was not made to the end. The caller is the only user of the database, and has swept it.
func FreeExtents(c *rdma.Coro, o Options) (int, error) {
	generation, _ := o.Space.Unswept()
	if err := o.Space.LevelExtents(c); err != nil {
		return 0, err
	}
	return freeExtents(c, o, o.Space.Extents(), generation)
}

// FreeDeadExtents is FreeExtents beside transactions, in segments of this process: of what
// coordinators have allocated that have died since the database was opened, and of what was in a
// segment when it was adopted. Until everything is swept it does nothing. An extent of a live
// coordinator is left alone. Several may do it at the same time.
func FreeDeadExtents(c *rdma.Coro, o Options) (int, error) {
	o.Space.Begin(c.Thread())
	generation, unswept := o.Space.Unswept()
	if unswept || !o.Space.Leaked() {
		if o.Space.ExtentsDue(c.Thread().Now()) {
			return 0, o.Space.SettleExtents(c)
		}
		return 0, nil
	}
	return freeExtents(c, o, o.Space.DeadExtents(), generation)
}

// freeExtents frees those of a list that are not reserved.
func freeExtents(c *rdma.Coro, o Options, list []memory.Extent, generation uint64) (int, error) {
	used := map[layout.Addr]bool{}
	for _, r := range o.Space.Layout().Reserved {
		used[r.Addr] = true
	}
	n := 0
	for _, x := range list {
		if used[x.Addr] {
			continue
		}
		switch done, err := o.Space.FreeExtent(x); {
		case err != nil:
			return n, fmt.Errorf("recovery: %w", err)
		case done:
			n++
		}
	}
	if err := o.Space.SettleExtents(c); err != nil {
		return n, err
	}
	return n, o.Space.LeaksFreed(generation)
}
