// Package seeds looks for errors of the engine in schedules and memory orders that
// hardware rarely shows. A seed decides everything: the workload, the number of
// compute blades, threads and coroutines, the commit policy, SMART's techniques, the
// replication, the promises and the profile of the simulated fabric, how hostile its
// memory is, and every schedule that follows. [Run] runs one seed and checks what it
// leaves:
//
//   - the recorded history, which ends with a read of everything, is strictly
//     serializable (package check);
//   - what the workload promises holds: sums, counters, one winner per insert,
//     lists by value, the books of SmallBank, the rules of TATP;
//   - the walk over the blades (package verify) finds nothing: no lock, all
//     replicas equal, no block lost; and the allocator has every free block;
//   - the run ends, within a bound of virtual time.
//
// Several processes may have the database open at once, with a compute blade each:
// processes.go says how they share a run, and which faults they have; network.go what is
// between them and the blades; changes.go which tables they make and drop.
//
// A violation prints the seed and the command that runs it again, to the byte: two
// runs of one seed have equal traces, on every machine.
package seeds
