// Package channelbench measures the objects of package channel: on the simulated RNIC beside what
// LOCO's paper (Hodgkins, Madler, Izraelevitz, arXiv 2503.19270, 2025) says of its own, and on
// memory of this process, operation by operation.
//
// # Experiments
//
//	barrier      members wait for each other, round by round
//	lock         one lock, a thread a node; a read-modify-write under it
//	handover     one lock of 4 nodes, whose coroutines share a handle or have a ticket each
//	transfer     two of 341 locks, an amount moved between two accounts
//	kv           a map: three mixes, uniform and Zipf 0.99, three operations under way a thread
//	fence        what the fence between WRITE and unlocking costs an update
//	converter    a controller and 20 converters of appendix B, at several periods
//	failure      a holder, or a party of a barrier, dies: until the others go on
//
// # Stand-ins
//
// LOCO's code is not public. What it is compared with is made of its verbs, as the paper tells
// them: a copy of each row at every node, written with N-1 WRITEs and read without a verb; tickets
// without an owner; a lock on another node than its data, and a fence between. Sherman's stand-in
// reads leaves of 1 KiB and locks by test and set. None of them survives a member that stops. A
// node of theirs has memory of its own: its member sees that after 100 ns, without the network.
//
// The paper gives no latencies, and its curves are not retyped, so orders and ratios count, and no
// absolute values.
//
// # Checks
//
// Each experiment checks what it has computed: counts under locks, the sum of all accounts, that no
// round of a barrier ends early, and the value of every key that is read.
package channelbench
