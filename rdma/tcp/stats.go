package tcp

import (
	"sync/atomic"

	"txnode/rdma"
)

// Stats are running totals of a server, but for Connections.
type Stats struct {
	Connections int    // that there are, of all purposes, and have proved that they may connect
	Accepted    uint64 // connections that have proved it
	Refused     uint64 // connections that have not, or wanted what there is not
	// connections that were accepted, and ended by another cause than the client's or the
	// server's closing them
	Failed uint64
	Calls  uint64 // requests to services
	Blades []BladeStats
}

// BladeStats are running totals of the data path to a blade, but for Connections.
type BladeStats struct {
	Connections int // queue pairs that there are
	// Verbs are the work requests that were executed or refused; a long one, which comes in
	// pieces, counts once.
	Verbs [rdma.NumOps]uint64
	// Failed is how many pieces of work requests had another status than rdma.StatusOK, also
	// those behind a failure.
	Failed uint64
	// BytesRead and BytesWritten are the payloads that READs and WRITEs asked for.
	BytesRead, BytesWritten uint64
}

func (b *BladeStats) add(o *BladeStats) {
	b.Connections += o.Connections
	for op, n := range o.Verbs {
		b.Verbs[op] += n
	}
	b.Failed += o.Failed
	b.BytesRead += o.BytesRead
	b.BytesWritten += o.BytesWritten
}

// Stats returns the totals until now. What is being executed at the moment may be counted or not.
func (s *Server) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.ended
	out.Connections, out.Calls = s.proved, s.calls.Load()
	out.Blades = append([]BladeStats(nil), s.ended.Blades...)
	for q := range s.sessions {
		b := q.totals()
		b.Connections = 1
		out.Blades[q.blade].add(&b)
	}
	return out
}

// enter takes a session into the totals.
func (s *Server) enter(q *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sessions[q] = struct{}{}
}

// leave adds what a session has counted to what those before have.
func (s *Server) leave(q *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sessions, q)
	b := q.totals()
	s.ended.Blades[q.blade].add(&b)
}

// tally counts what a session executes. The session alone writes: to now, plainly, within a turn,
// and to sum once a turn, which is a system call at least. So a verb pays an addition.
type tally struct {
	now counts
	sum [len(counts{})]atomic.Uint64
}

// counts are the verbs, and what is behind them.
type counts [rdma.NumOps + 3]uint64

const (
	countFailed = int(rdma.NumOps) + iota
	countRead
	countWritten
)

// publish adds what was counted in this turn.
func (t *tally) publish() {
	for i, n := range t.now {
		if n > 0 {
			t.sum[i].Store(t.sum[i].Load() + n)
		}
	}
	t.now = counts{}
}

// totals are what the session has published.
func (s *session) totals() (b BladeStats) {
	for op := range b.Verbs {
		b.Verbs[op] = s.tally.sum[op].Load()
	}
	b.Failed, b.BytesRead, b.BytesWritten = s.tally.sum[countFailed].Load(), s.tally.sum[countRead].Load(),
		s.tally.sum[countWritten].Load()
	return b
}
