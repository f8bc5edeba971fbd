package region

import (
	"slices"

	"txnode/rdma"
)

// Stats are what the control path of a region was asked for since its set was made.
type Stats struct {
	Size uint64 // bytes
	// Provisioned is how many bytes were asked for with Provision, each counted once.
	Provisioned uint64
	// Grants and Revokes are how many calls have changed the keys.
	Grants, Revokes uint64
	// Err is why the region is stopped: it matches rdma.ErrBladeDown. nil: it is not.
	Err error
}

// Stats returns those of all regions, by blade; nil after Close.
func (s *Set) Stats() []Stats {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return nil
	}
	out := make([]Stats, len(s.regions))
	for i, r := range s.regions {
		r.mu.Lock()
		out[i] = Stats{Size: r.size, Provisioned: r.provisioned.Bytes(), Grants: r.grants, Revokes: r.revokes}
		if r.stopped() {
			out[i].Err = r.stoppedError(rdma.BladeID(i))
		}
		r.mu.Unlock()
	}
	return out
}

// Spans are ranges [from, to) in ascending order that neither meet nor overlap.
type Spans [][2]uint64

// Add adds a range.
func (s *Spans) Add(from, to uint64) {
	if from >= to {
		return
	}
	// Those from i to j meet the range, and become one with it.
	i, _ := slices.BinarySearchFunc(*s, from, func(x [2]uint64, at uint64) int {
		if x[1] < at {
			return -1
		}
		return 1
	})
	j := i
	for ; j < len(*s) && (*s)[j][0] <= to; j++ {
		from, to = min(from, (*s)[j][0]), max(to, (*s)[j][1])
	}
	*s = slices.Replace(*s, i, j, [2]uint64{from, to})
}

// Bytes is how long the ranges are together.
func (s Spans) Bytes() (n uint64) {
	for _, x := range s {
		n += x[1] - x[0]
	}
	return n
}
