package occ

import (
	"fmt"

	"txnode/log"
	"txnode/memory"
	"txnode/rdma"
)

// logRing is the space of the session's log areas, one per blade, all laid out
// alike.
type logRing struct {
	ring  *log.Ring
	areas []memory.LogArea
}

func (r *logRing) init(c memory.Coordinator) {
	r.areas = c.Logs
	size := uint32(0)
	for _, a := range c.Logs {
		size = max(size, a.Size) // blades that are down have none
	}
	r.ring = log.NewRing(size, c.LogMax)
}

// at is where a record at offset off is on a blade.
func (r *logRing) at(v *memory.View, b rdma.BladeID, off uint32) rdma.RemoteAddr {
	a := r.areas[b].Addr
	a.Key = v.Key(b)
	a.Off += uint64(off)
	return a
}

// growLogs takes more of the log areas into use, for records of n bytes at least.
func (s *Session) growLogs(n int) error {
	r := s.ring.ring
	for first := true; first || !r.Full() && r.Size() < n; first = false {
		c, err := s.eng.space.GrowLogs(s.coord.ID)
		if err != nil {
			return s.fail(fmt.Errorf("%w: more log space: %w", ErrFenced, err))
		}
		size := uint32(0)
		for _, a := range c.Logs {
			size = max(size, a.Size)
		}
		r.Grow(size)
	}
	return nil
}
