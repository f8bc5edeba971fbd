package supervisor

import (
	"time"

	"go.uber.org/zap"

	"txnode/memory"
)

// CopyMetrics are how far a process is with the copies that it builds now: zero if it builds none.
// One process builds at a time.
type CopyMetrics struct {
	// Done and Total are bytes that were looked at, and that are to be. After each change of the
	// epoch it begins anew.
	Done, Total uint64
	// Rate is how many bytes a second were looked at since it began; 0: not known yet.
	Rate uint64
	// Left is how long the rest takes at this rate; 0: not known yet.
	Left time.Duration
}

// copying is how far the copier of a database is. Only the failover of the database makes a next
// one.
type copying struct {
	memory.CopyProgress

	active bool  // this process has the right to build, and something to be built
	since  int64 // when this pass began, by the fabric's clock
	at     int64 // when it was so
	said   int64 // when it was logged last, or the copying began
}

// sayCopiesNs is how often it is logged how far copies are: not at all if they take less than that.
const sayCopiesNs = int64(10 * time.Second)

// next is c at a later time, which a log is to have now if say is true.
func (c copying) next(p memory.CopyProgress, active bool, now int64) (n copying, say bool) {
	n = copying{CopyProgress: p, active: active && p.Total > 0, since: c.since, at: now, said: c.said}
	if !c.active || p.Passes != c.Passes {
		n.since = now
	}
	if !c.active {
		n.said = now
	}
	if say = n.active && p.Done < p.Total && now-n.said >= sayCopiesNs; say {
		n.said = now
	}
	return n, say
}

// metrics are those of a moment.
func (c copying) metrics() (m CopyMetrics) {
	if !c.active {
		return m
	}
	m.Done, m.Total = min(c.Done, c.Total), c.Total
	if ns := c.at - c.since; ns > 0 && m.Done > 0 {
		perSecond := float64(m.Done) / (float64(ns) / 1e9)
		m.Rate = uint64(perSecond)
		m.Left = time.Duration(float64(m.Total-m.Done) / perSecond * 1e9)
	}
	return m
}

// noteCopied notes how far the copier is.
func (s *Supervisor) noteCopied(now int64, active bool) {
	var was copying
	if p := s.progress.Load(); p != nil {
		was = *p
	}
	if !active && !was.active {
		return
	}
	c, say := was.next(s.copier.Progress(), active, now)
	s.progress.Store(&c)
	if say {
		m, r := c.metrics(), s.space.Redundancy()
		s.log.Info("copies are being built", zap.Int("missing", r.Missing), zap.Int("building", r.Building),
			zap.Uint64("bytes", m.Done), zap.Uint64("of bytes", m.Total),
			zap.Uint64("bytes a second", m.Rate), zap.Duration("left", m.Left.Round(time.Second)))
	}
}

// CopyMetrics are those of now.
func (s *Supervisor) CopyMetrics() CopyMetrics {
	if p := s.progress.Load(); p != nil {
		return p.metrics()
	}
	return CopyMetrics{}
}
