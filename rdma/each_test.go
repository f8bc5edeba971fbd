package rdma_test

import (
	"slices"
	"testing"

	"txnode/rdma"
	"txnode/rdma/rdmatest"
)

// TestEach: calls side by side take as many round trips as the longest of them, on the
// plain coroutine and on one of several, and all their verbs are counted once.
func TestEach(t *testing.T) {
	const n = 9
	side := func(t *testing.T, c *rdma.Coro) {
		before := *c.Count
		var ran, order []int
		c.Each(n, func(k *rdma.Coro, i int) {
			var b rdma.Batch
			for range 1 + i%4 {
				b.Reset()
				b.FAA(at(0, 0), 1)
				must(t, k.Do(&b))
				order = append(order, i)
			}
			ran = append(ran, i)
		})
		slices.Sort(ran)
		if !slices.Equal(ran, []int{0, 1, 2, 3, 4, 5, 6, 7, 8}) {
			t.Errorf("ran %v", ran)
		}
		if slices.IsSorted(order) {
			t.Error("they ran one after the other")
		}
		d := c.Count.Sub(&before)
		if d.Verbs[rdma.OpFAA] != 21 || d.RoundTrips != 4 {
			t.Errorf("%d verbs in %d round trips; want 21 in 4", d.Verbs[rdma.OpFAA], d.RoundTrips)
		}
		c.Each(0, func(*rdma.Coro, int) { t.Error("Each(0) calls something") })
		c.Each(1, func(k *rdma.Coro, i int) {
			if k != c || i != 0 {
				t.Error("a single call is not made on the coroutine itself")
			}
		})
	}
	th := newThread(t, rig{})
	side(t, th.Plain())
	th.Run(3, func(c *rdma.Coro) {
		c.Yield()
		side(t, c)
	})
	if v := th.Counters(); v.Verbs[rdma.OpFAA] != 4*21 || v.RoundTrips != 4*4 {
		t.Errorf("the thread counts %d verbs in %d round trips", v.Verbs[rdma.OpFAA], v.RoundTrips)
	}
	var b rdma.Batch
	b.Read(at(0, 0), 0, 8)
	must(t, th.Plain().Do(&b))
	if got := th.Word(0); got != 4*21 {
		t.Errorf("%d verbs took effect", got)
	}
}

// TestEachPanics: a panic in one ends all, running their deferred calls.
func TestEachPanics(t *testing.T) {
	for _, inside := range []bool{false, true} {
		th := newThread(t,
			rig{Options: rdmatest.Options{Caps: rdma.Caps{
				Synchronous: true, Placed: true, OrderedLine: true, MaskedCAS: true,
			}}})
		ended := 0
		calls := func(c *rdma.Coro) {
			c.Each(4, func(k *rdma.Coro, i int) {
				defer func() { ended++ }()
				k.Yield()
				if i == 2 {
					panic("two")
				}
				k.Sleep(1 << 40)
			})
			t.Error("Each has returned")
		}
		r := func() (r any) {
			defer func() { r = recover() }()
			if inside {
				th.Run(2, calls)
			} else {
				calls(th.Plain())
			}
			return nil
		}()
		if r != "two" || ended < 4 {
			t.Errorf("inside Run %v: panic %v, %d of 4 ended", inside, r, ended)
		}
		th.Run(2, func(c *rdma.Coro) { c.Yield() }) // it is as good as new
	}
}
