// Package seeds looks for errors of the engine in schedules and memory orders that
// hardware rarely shows. A seed decides everything: the workload, the number of
// threads and coroutines, the commit policy, the replication, the promises and the
// profile of the simulated fabric, how hostile its memory is, and every schedule
// that follows. [Run] runs one seed and checks what it leaves:
//
//   - the recorded history is strictly serializable (package check);
//   - what the workload promises holds: sums, counters, one winner per insert,
//     lists by value;
//   - no lock is left, every image is intact, and all replicas are equal;
//   - the run ends, within a bound of virtual time.
//
// A violation prints the seed and the command that runs it again, to the byte.
package seeds
