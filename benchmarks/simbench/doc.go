// Package simbench runs the benchmarks on the simulated RNIC: the engine, the
// workloads and the runner that measure the embedded engine, unchanged, in the
// virtual time of package rdma/sim. It puts what comes out beside the published
// measurements of figure 10 of the SMART paper (package report/published), point by
// point, with the error of each.
//
// A [Point] is a function of its [Config], the seed included: every point loads its
// own database on its own fabric, so that the points of a curve do not depend on
// each other, and can be run again alone.
//
// # Like for like
//
// FORD's and SMART's programs do not retry: what ends without a commit, for
// whatever reason, is an attempt that did not commit, the next attempt is another
// transaction, and between the two comes a backoff. With [Config].LikeDTX points
// are measured so: txn.Options.SingleAttempt, FORD's rules for TATP, and a bank
// that begins where theirs is after a while, with most accounts empty, so that
// about half of all payments fail. As theirs do, threads have equal shares of the
// attempts, and the time is that of the last thread.
package simbench
