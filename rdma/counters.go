package rdma

// Counters are running totals of one coroutine, thread or phase; subtract two
// snapshots to get an interval.
type Counters struct {
	Verbs      [NumOps]uint64 // work requests posted, by verb
	RoundTrips uint64         // waits for at least one completion
	Doorbells  uint64         // one per blade and Post; blades are told apart modulo 64
	BytesRead  uint64
	BytesWrite uint64
}

// Total is the number of work requests.
func (c *Counters) Total() uint64 {
	var n uint64
	for _, v := range c.Verbs {
		n += v
	}
	return n
}

// recount counts the verbs of wrs, one by one.
func (c *Counters) recount(wrs []WR) {
	for i := range wrs {
		if op := wrs[i].Op; op < NumOps {
			c.Verbs[op]++
		}
	}
}

// Add adds d to c.
func (c *Counters) Add(d *Counters) {
	for i := range c.Verbs {
		c.Verbs[i] += d.Verbs[i]
	}
	c.RoundTrips += d.RoundTrips
	c.Doorbells += d.Doorbells
	c.BytesRead += d.BytesRead
	c.BytesWrite += d.BytesWrite
}

// Sub returns c - d.
func (c Counters) Sub(d *Counters) Counters {
	for i := range c.Verbs {
		c.Verbs[i] -= d.Verbs[i]
	}
	c.RoundTrips -= d.RoundTrips
	c.Doorbells -= d.Doorbells
	c.BytesRead -= d.BytesRead
	c.BytesWrite -= d.BytesWrite
	return c
}
