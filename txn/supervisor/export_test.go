package supervisor

import (
	"txnode/memory"
	"txnode/memory/layout"
	"txnode/rdma"
)

// Doomed are those of blades that do not answer which this process would declare dead: those that
// are gone, of which nothing is heard, and which this process could not ask.
func (s *Supervisor) Doomed(c *rdma.Coro, gone, silent, troubled []int) (doomed []int, err error) {
	var dead []Outage
	for _, b := range gone {
		dead = append(dead, Outage{Blade: b})
	}
	for _, b := range silent {
		dead = append(dead, Outage{Blade: b, silent: true, says: layout.Silent})
	}
	for _, b := range troubled {
		dead = append(dead, Outage{Blade: b, silent: true, says: layout.Troubled})
	}
	all, cut, err := s.doomed(c, dead)
	for _, x := range all {
		doomed = append(doomed, x.Blade)
	}
	if err == nil && len(doomed) == 0 && len(cut.why) > 0 {
		err = cut.err()
	}
	return doomed, err
}

// Copying is how far a copier is; Next and Metrics are its methods.
type Copying struct{ c copying }

// Next is copying.next.
func (c Copying) Next(p memory.CopyProgress, active bool, now int64) (Copying, bool) {
	n, say := c.c.next(p, active, now)
	return Copying{n}, say
}

// Metrics is copying.metrics.
func (c Copying) Metrics() CopyMetrics { return c.c.metrics() }
