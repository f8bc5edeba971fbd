package ycsb

import (
	"sync"
	"sync/atomic"
)

// numbers hands out the numbers of records to insert, and knows up to which all have been inserted.
// Operations draw from those alone, as YCSB's acknowledged counter has it. Safe for concurrent use.
type numbers struct {
	limit atomic.Uint64 // all below have ended

	mu   sync.Mutex
	next uint64          // to hand out
	done map[uint64]bool // ended, at or above limit
	lost map[uint64]fate // ended otherwise than by a commit
}

// fate is how an insert has ended that did not commit.
type fate uint8

const (
	failed    fate = iota // without effect
	uncertain             // nobody knows
)

// reset begins with the records below n.
func (s *numbers) reset(n uint64) {
	s.next, s.done, s.lost = n, map[uint64]bool{}, map[uint64]fate{}
	s.limit.Store(n)
}

// take returns a number that nobody has.
func (s *numbers) take() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next++
	return s.next - 1
}

// end tells that the insert of a number has committed, or is lost.
func (s *numbers) end(n uint64, committed bool, f fate) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if committed {
		delete(s.lost, n)
	} else {
		s.lost[n] = f
	}
	limit := s.limit.Load()
	if n < limit {
		return // it was run again
	}
	s.done[n] = true
	for s.done[limit] {
		delete(s.done, limit)
		limit++
	}
	s.limit.Store(limit)
}

// isLost reports whether the insert of a number has ended without a commit.
func (s *numbers) isLost(n uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, lost := s.lost[n]
	return lost
}
