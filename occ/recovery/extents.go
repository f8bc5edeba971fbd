package recovery

import (
	"fmt"

	"txnode/index/race"
	"txnode/memory"
	"txnode/rdma"
)

// FreeExtents gives back the extents that no index reaches: those of a split, or of
// the making of a table, that had not come far enough for anybody to know of them. It
// returns how many. The caller is the only user of the database, and has swept it.
func FreeExtents(c *rdma.Coro, o Options) (int, error) {
	tables, err := o.Space.Tables()
	if err != nil {
		return 0, err
	}
	used := map[memory.Addr]bool{}
	for _, t := range tables {
		if t.Root == 0 {
			continue
		}
		ix, err := o.open(c, o.Space, t.ID)
		if err != nil {
			return 0, fmt.Errorf("recovery: index of table %q: %w", t.Name, err)
		}
		r, ok := ix.(*race.Index)
		if !ok {
			return 0, nil
		}
		all, err := r.Extents(c)
		if err != nil {
			return 0, fmt.Errorf("recovery: index of table %q: %w", t.Name, err)
		}
		for _, a := range all {
			used[a] = true
		}
	}
	if err := o.Space.LevelExtents(c); err != nil {
		return 0, err
	}
	n := 0
	for _, x := range o.Space.Extents() {
		if used[x.Addr] {
			continue
		}
		if err := o.Space.FreeExtent(x.Addr, x.Size); err != nil {
			return n, fmt.Errorf("recovery: %w", err)
		}
		n++
	}
	return n, o.Space.Fastened()
}
