// Command instructions counts what a processor executes for a transaction on the
// in-process fabric: the instructions of each function, one by one. Time on a machine
// shared with others varies by a factor of two; this does not, and shows a change of a
// hundredth. With -lines it shows where in a function they are.
//
// It runs itself once more as a child that loads the workload, warms up and then runs
// transactions on one thread, and single-steps that thread with ptrace while the child's
// other threads are halted. A step takes 5 to 150 microseconds, so a transaction takes up
// to a second, and what depends on the clock is a part of the count: the renewal of a
// lease, mostly. Only on Linux, on amd64.
//
// docs/performance.md explains the numbers; make instructions runs it.
package main
