package rdma

import "slices"

// Each calls fn n times, for i from 0 to n-1, each on a coroutine of its own, and
// returns when all have returned: while one of them waits for its requests, others
// post theirs, so that n operations of as many round trips each take about as long
// as one. Their order is the fabric's, as in Run.
//
// On a coroutine of Run the calls take turns with the thread's other coroutines; on
// the plain one they are a Run. c itself must not be used by fn. What they post is
// counted by c, and of their round trips the most that one of them has made: that is
// what the caller has waited for. A panic in fn ends all coroutines of the thread,
// as in Run.
func (c *Coro) Each(n int, fn func(c *Coro, i int)) {
	if n <= 1 {
		if n == 1 {
			fn(c, 0)
		}
		return
	}
	counts := make([]Counters, n)
	defer c.gather(counts)
	run := func(k *Coro, i int) {
		k.Count = &counts[i]
		fn(k, i)
	}
	t := c.t
	if c.yield == nil {
		t.Run(n, func(k *Coro) { run(k, k.id) })
		return
	}
	left := n
	for i := range n {
		t.spawn(len(t.coros), func(k *Coro) {
			defer func() {
				if left--; left == 0 {
					t.ready.push(c)
				}
			}()
			run(k, i)
		}).child = true
	}
	c.park()
	t.coros = slices.DeleteFunc(t.coros, func(k *Coro) bool { return k.done && k.child })
}

// gather adds up what the coroutines of an Each have counted.
func (c *Coro) gather(counts []Counters) {
	most := uint64(0)
	for i := range counts {
		most = max(most, counts[i].RoundTrips)
		counts[i].RoundTrips = 0
		c.Count.Add(&counts[i])
	}
	c.Count.RoundTrips += most
}
