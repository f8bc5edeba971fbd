package cluster

import (
	"fmt"

	"txnode/rdma"
)

// Stop is what the end of a server of blades means, also of one that begins anew at once.
type Stop struct {
	// Blades are all that the server has.
	Blades []int
	// Last is how many segments have no whole copy elsewhere: with the server they are away, or
	// lost if it keeps nothing in files.
	Last int
	// Why are the reasons, each in words, not to stop the server now. None: it may be stopped. What
	// happens afterwards, such as the end of another server, is not known.
	Why []string
}

// Stop says what it means to stop the server of a blade now.
func (st *Status) Stop(blade int) (s Stop) {
	if blade < 0 || blade >= len(st.Blades) {
		return s
	}
	address := st.Blades[blade].Server
	stops := func(b rdma.BladeID) bool {
		return int(b) < len(st.Blades) && (int(b) == blade || address != "" && st.Blades[b].Server == address)
	}
	used := false
	for i := range st.Blades {
		if stops(rdma.BladeID(i)) { // there are MaxBlades
			s.Blades = append(s.Blades, i)
			used = used || st.Blades[i].Copies > 0
		}
	}
	l := st.Layout
	if l == nil || !used {
		return s
	}
	away := func(b rdma.BladeID) bool { return int(b) < len(st.Blades) && st.Blades[b].Away() }
	s.Last = l.Unavailable(func(b rdma.BladeID) bool { return away(b) || stops(b) }) - l.Unavailable(away)
	switch n := s.Last; {
	case n > 0 && l.Backups == 0:
		s.Why = append(s.Why, fmt.Sprintf("%d of %d segments have their only copy there, since records have no backups",
			n, st.Copies.Segments))
	case n > 0:
		s.Why = append(s.Why, fmt.Sprintf("%d of %d segments have no whole copy elsewhere", n, st.Copies.Segments))
	}
	if n := st.Copies.Undecided; n > 0 {
		s.Why = append(s.Why, fmt.Sprintf("transactions of %d dead workers are not decided yet", n))
	}
	for i := range st.Processes {
		if p := &st.Processes[i]; len(p.CutOff) > 0 {
			s.Why = append(s.Why, fmt.Sprintf("process %d does not reach blades that others reach: %s",
				p.ID, numbers(p.CutOff)))
		}
	}
	return s
}

// StopOwn is Stop for a server that asks about itself: the one whose blades are those, in their
// order. It is found by their incarnations, which no other server has, and its blades answer,
// whatever has become of the question. A server that the database has not taken in as it is now, as
// after a restart that no process has noticed, has nothing: the zero Stop.
func (st *Status) StopOwn(blades []rdma.BladeInfo) Stop {
	if st.Layout == nil {
		return Stop{}
	}
	first, own := 0, -1
	for i := range st.Servers {
		n := len(st.Servers[i].Blades)
		for k := range min(n, len(blades)) {
			b := first + k
			if b >= len(st.Layout.Blades) || blades[k].Incarnation == 0 ||
				st.Layout.Blades[b].Incarnation != blades[k].Incarnation {
				continue
			}
			if own = b; st.Blades[b].State == BladeSilent {
				st.Blades[b].State = BladeUp
			}
		}
		first += n
	}
	return st.Stop(own)
}
