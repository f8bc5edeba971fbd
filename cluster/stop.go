package cluster

import (
	"fmt"

	"txnode/rdma"
)

// Stop says why the server of a blade must not be stopped now, not even to begin anew at once: what of the data would be away, or lost if
// the server keeps nothing in files. Nothing: it may be stopped. What happens afterwards, such as the end of another server, is not known.
// blades are all that the server has.
func (st *Status) Stop(blade int) (blades []int, why []string) {
	if blade < 0 || blade >= len(st.Blades) {
		return nil, nil
	}
	address := st.Blades[blade].Server
	stops := func(b rdma.BladeID) bool {
		return int(b) < len(st.Blades) && (int(b) == blade || address != "" && st.Blades[b].Server == address)
	}
	used := false
	for i := range st.Blades {
		if stops(rdma.BladeID(i)) { //nolint:gosec // there are MaxBlades
			blades = append(blades, i)
			used = used || st.Blades[i].Copies > 0
		}
	}
	l := st.Layout
	if l == nil || !used {
		return blades, nil
	}
	away := func(b rdma.BladeID) bool { return int(b) < len(st.Blades) && st.Blades[b].Away() }
	without := l.Unavailable(func(b rdma.BladeID) bool { return away(b) || stops(b) })
	switch n := without - l.Unavailable(away); {
	case n > 0 && l.Backups == 0:
		why = append(why, fmt.Sprintf("%d of %d segments have their only copy there, since records have no backups", n, st.Copies.Segments))
	case n > 0:
		why = append(why, fmt.Sprintf("%d of %d segments have no whole copy elsewhere", n, st.Copies.Segments))
	}
	if n := st.Copies.Undecided; n > 0 {
		why = append(why, fmt.Sprintf("transactions of %d dead workers are not decided yet", n))
	}
	for i := range st.Processes {
		if p := &st.Processes[i]; len(p.CutOff) > 0 {
			why = append(why, fmt.Sprintf("process %d does not reach blades that others reach: %s", p.ID, numbers(p.CutOff)))
		}
	}
	return blades, why
}
