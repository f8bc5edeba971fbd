package rdma

import "math/bits"

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

// posted counts b.wrs[b.posted:].
func (c *Counters) posted(b *Batch) {
	y := &b.tally
	ops := y.ops
	if len(b.wrs)-b.posted > opMask {
		for _, w := range b.wrs[b.posted:] {
			if w.Op < NumOps {
				c.Verbs[w.Op]++
			}
		}
		ops = 0
	}
	c.Verbs[OpRead] += ops >> (OpRead * opBits) & opMask
	c.Verbs[OpWrite] += ops >> (OpWrite * opBits) & opMask
	c.Verbs[OpCAS] += ops >> (OpCAS * opBits) & opMask
	if ops >= 1<<(OpFAA*opBits) {
		c.Verbs[OpFAA] += ops >> (OpFAA * opBits) & opMask
		c.Verbs[OpMaskedCAS] += ops >> (OpMaskedCAS * opBits) & opMask
		c.Verbs[OpFlush] += ops >> (OpFlush * opBits) & opMask
	}
	c.BytesRead += y.read
	c.BytesWrite += y.write
	c.Doorbells += uint64(bits.OnesCount64(y.blades))
	*y = tally{}
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
