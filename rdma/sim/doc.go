// Package sim is a simulated RNIC: a fabric like any other, under a virtual
// clock, on one goroutine, repeatable from a seed. The engine, the indexes and
// the benchmarks run on it unchanged. It answers "how would this do on that
// hardware, with 96 threads?" on a laptop, and makes every schedule and every
// fault repeatable. docs/simulator.md is its manual.
//
// # Processes and time
//
// [Fabric.Run] runs each body as a process: an iter.Pull coroutine with a clock
// of its own, in picoseconds. What a body does on a port costs virtual CPU time
// and moves its clock; it may run ahead of the clock of the simulation, because
// nothing that it does reaches the outside but through events at its time: a
// doorbell is an event, so is every effect on a blade's memory and every
// completion. A process gives control back when it has to wait: for a
// completion, for a time, for a spinlock, or when it is further ahead than
// [Profile].LookaheadNs. Events are ordered by time, then by creation, so a run
// is a function of its options and its seed. [Fabric.TraceHash] sums it up.
//
// Outside Run a port belongs to the calling goroutine, and its waits run the
// events. That is meant for setting up and for looking at the end.
//
// # Model
//
// One doorbell carries the requests of one batch to one blade. Post charges the
// CPU cost of each request, takes the locks that this queue pair and its
// doorbell register need, and rings. The device then takes each request through
//
//	requester pipeline  ->  wire  ->  responder pipeline  ->  memory  ->  wire  ->  completion
//	operations/s, bytes/s             operations/s, bytes/s
//	WQE cache misses                  atomics: per device, per address
//
// Every pipeline is a server with a time at which it is free; latencies are
// added behind them. All constants are in one value, [Profile].
//
// # Freedom
//
// The memory behaves as badly as the contract of package rdma allows, drawn
// from the seed: see [Freedom]. Faults ([Fault]) make it fail in the ways that
// the contract allows; each prints as the expression that makes it.
package sim
