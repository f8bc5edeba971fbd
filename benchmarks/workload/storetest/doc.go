// Package storetest is the conformance suite of workload.Store, in the manner
// of testing/fstest: every store that the benchmarks run on passes it, so that a
// comparison of two stores compares the same promises. It checks what the
// workloads rely on: the answers of every operation inside and across
// transactions, rollback without a trace, buffers that are copied, and strict
// serializability where the usual shortcuts break it (lost updates, inconsistent
// snapshots, write skew, two inserts of one key).
//
// Beside it are what the tests of the workloads share: [Play], [Load], and stores that break
// what they promise ([Intercept]), or forget it ([AnySchema]).
package storetest
