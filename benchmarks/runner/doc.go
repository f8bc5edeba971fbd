// Package runner loads a workload into a store, drives it, measures it, and
// verifies what is left: one [Bench] is any number of runs over the same data,
// each followed by a check of the books, whatever has happened in between.
//
// # Loops
//
// Closed loop: threads × coroutines workers, each of which begins a transaction
// when its last one has ended. Throughput is what the store can do; latency is
// from the begin of the first attempt to the commit, retries included.
//
// Open loop ([Config].Rate): transactions arrive at even intervals, whatever the
// store does, in one queue that idle workers serve in order. Latency is from the
// intended arrival to the commit, so a stall of the store shows in every
// transaction that it delayed and not in one (no coordinated omission). What
// still waits when the time is over has no latency; it is counted as Backlog.
//
// # Clock
//
// All times are the store's own clock, so that a store with virtual time is
// measured in it. Reading it costs 25-45 ns, as much as several verbs in
// process memory, and a latency needs two reads. The closed loop therefore
// measures one transaction in [Config].LatencySample (default 8; the draw of
// types is random, so this favours none of them) and looks at the same time
// whether the warm-up or the run is over. Throughput, outcomes and costs count
// every transaction. The largest latency is then the largest sampled. The open
// loop and a run that records its history measure every transaction.
//
// # Costs
//
// Verbs, round trips and bytes are differences of the worker's Counters before
// and after each transaction, booked by type and by outcome. They include the
// retries that came before, and the verbs that a transaction has posted without
// waiting for them. Nothing is allocated per transaction.
//
// # Verification
//
// After each run Driver.Verify holds the data against the workload's rules.
// With [Config].Verify the store also records the versions that every
// transaction, of warm-up and run, reads, replaces and installs, and package
// check decides whether the history is strictly serializable. Histories are
// large, so a run is cut into windows of [Config].VerifyWindow transactions:
// the workers stop, the window is checked, and the state it ended with becomes
// a first transaction of the next window, so that cutting hides nothing.
package runner
