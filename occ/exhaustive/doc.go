// Package exhaustive tries every schedule of small cases, on the fabric of
// rdma/steptest: its tests are all that it has.
//
//   - Stops: the coordinator of each canonical transaction stops at every state that
//     the fabric contract allows between two of its requests, and the completion of
//     each request is lost once; then recovery, which is stopped at each of its own
//     states in turn, and recovery again.
//   - Pairs: two transactions that are in each other's way run in every order of their
//     requests that makes a difference.
//
// After each schedule the database is walked: a transaction is there as a whole or
// not at all, and there if its client was told so; no lock is held, replicas are
// equal, logs are decided, no block is lost; the history has no cycle.
//
// Tests run a part of this. "make exhaustive" runs all of it and counts; a
// schedule that fails prints the flags that repeat it alone.
package exhaustive
