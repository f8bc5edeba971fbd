package recovery

import (
	"errors"
	"fmt"

	"txnode/index/race"
	"txnode/memory"
	"txnode/memory/layout"
	"txnode/rdma"
)

// FreeExtents gives back the extents that no index reaches: those of a split, or of
// the making of a table, that had not come far enough for anybody to know of them. It
// returns how many. The caller is the only user of the database, and has swept it.
func FreeExtents(c *rdma.Coro, o Options) (int, error) {
	generation, _ := o.Space.Unswept()
	used, err := reached(c, o)
	if err != nil || used == nil {
		return 0, err
	}
	if err := o.Space.LevelExtents(c); err != nil {
		return 0, err
	}
	return freeExtents(c, o, o.Space.Extents(), used, generation)
}

// FreeDeadExtents is FreeExtents beside transactions, in segments of this process: of what
// coordinators have allocated that have died since the database was opened, and of what was in a
// segment when it was adopted. No session links that any more, once everything is swept; until
// then it does nothing. An extent of a live coordinator is left alone, reached or not. Several may
// do it at the same time.
func FreeDeadExtents(c *rdma.Coro, o Options) (int, error) {
	o.Space.Begin(c.Thread())
	generation, unswept := o.Space.Unswept()
	if unswept || !o.Space.Leaked() {
		if o.Space.ExtentsDue(c.Thread().Now()) {
			return 0, o.Space.SettleExtents(c)
		}
		return 0, nil
	}
	dead := o.Space.DeadExtents()
	used := map[layout.Addr]bool{}
	if len(dead) > 0 {
		var err error
		if used, err = reached(c, o); err != nil || used == nil {
			return 0, err
		}
		if now, _ := o.Space.Unswept(); now != generation {
			return 0, nil // somebody else has died: what he has left in an index comes first
		}
	}
	return freeExtents(c, o, dead, used, generation)
}

// reached returns the extents that the indexes consist of, and those that are reserved;
// nil: there is one which does not tell, because it is of another kind, has lost every copy of a
// part of it, or was dropped meanwhile.
func reached(c *rdma.Coro, o Options) (map[layout.Addr]bool, error) {
	tables, err := o.Space.Tables()
	if err != nil {
		return nil, err
	}
	used := map[layout.Addr]bool{}
	for _, r := range o.Space.Layout().Reserved {
		used[r.Addr] = true
	}
	for _, t := range tables {
		if t.Root == 0 || t.InBlocks() { // whose nodes are blocks
			continue
		}
		ix, err := o.open(c, o.Space, t.ID)
		if errors.Is(err, layout.ErrLost) || errors.Is(err, memory.ErrNoTable) { // another process has dropped it
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("recovery: index of table %q: %w", t.Name, err)
		}
		r, ok := ix.(*race.Index)
		if !ok {
			return nil, nil
		}
		all, err := r.Extents(c)
		if errors.Is(err, layout.ErrLost) {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("recovery: index of table %q: %w", t.Name, err)
		}
		for _, a := range all {
			used[a] = true
		}
	}
	return used, nil
}

// freeExtents frees those of a list that are not used.
func freeExtents(c *rdma.Coro, o Options, list []memory.Extent, used map[layout.Addr]bool,
	generation uint64) (int, error) {
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
