// Package rdmatest is a fabric for tests: memory on the Go heap under a virtual
// clock, asynchronous, deterministic, and as disorderly as the contract of
// package rdma allows. Its promises ([rdma.Caps]) are options, so that what the
// layers above do on a weaker fabric can be tested: fences, emulated verbs,
// throttling.
//
// It uses the freedom that the contract gives. A READ copies the lines of its
// range in any order and at different times, within a line in address order. A
// WRITE reaches memory in pieces; without Caps.Placed some time after its
// completion, unless something forces it. A WRITE may overtake an earlier READ.
//
// Time passes only in Port.Poll and Port.Wait, and costs nothing. One seed is one
// run: [Fabric.Run] lets one thread run at a time, and the next event decides
// which. Outside Run, one goroutine at a time may use the fabric.
package rdmatest
