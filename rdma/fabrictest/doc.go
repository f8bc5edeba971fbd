// Package fabrictest checks an implementation of [rdma.Fabric] against the
// contract in the documentation of package rdma: every clause, every promise of
// its [rdma.Caps], and what the layers above take for granted about completions,
// coroutines and counters.
//
// A fabric's test calls [Run], and [ReadOnly] if it can have read-only blades:
//
//	func TestConformance(t *testing.T) {
//		fabrictest.Run(t, func(tb testing.TB, blades int, size uint64) rdma.Fabric {
//			...
//		})
//	}
//
// The suite works on fabrics that complete at once, later, or in virtual time on
// one goroutine. It starts threads with Fabric.Run only, one per index, waits by
// verbs, Coro.Yield and Coro.Sleep, and assumes nothing about time. Ports are made
// and closed outside Fabric.Run; Fabric.Grant, Revoke, Blades and Now are called
// inside,
// too, by a thread that has the control path to itself.
//
// Where threads race, the suite looks for results that no correct fabric can
// give, so a pass is as strong as the interleavings were. Threads race until they
// have met a thousand times, or give up: on a machine with one idle processor
// they hardly meet. Run it on several, with -count, and on a simulator with
// several seeds. The suite's own test breaks a fabric in each way that package
// rdmatest knows.
package fabrictest
