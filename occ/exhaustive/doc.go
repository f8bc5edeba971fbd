// Package exhaustive tries every schedule of small cases, on the fabric of
// rdma/steptest: its tests are all that it has.
//
//   - Stops: the coordinator of each canonical transaction stops at every state that
//     the fabric contract allows between two of its requests, and the completion of
//     each request is lost once; then recovery, which is stopped at each of its own
//     states in turn, and recovery again.
//   - Pairs: two transactions that are in each other's way run in every order of their
//     requests that makes a difference.
//   - Blades: in each of these states each blade stops, or restarts with its memory or
//     without.
//   - Two at once: clients stop, or lose a blade, in the middle of such pairs; a recovery
//     runs beside a client, or beside another recovery; a copy is built beside a client.
//
// After each schedule the database is walked: a transaction is there as a whole or
// not at all, and there if its client was told so; no lock is held, replicas are
// equal, logs are decided, no block is lost; the history has no cycle.
//
// A test chooses kinds of database (config_test.go), and transactions: the canonical ones,
// one at a time (canonical_test.go), or pairs (conflicting_test.go). It runs them from the
// same beginning again and again (world_test.go): in every order of two clients
// (explore_test.go), with one stopped in every state (stops_test.go), or with one going on
// for some moves and the other after it for some (grid_test.go). What comes of it is judged
// by judge_test.go, outcome_test.go, evidence_test.go and together_test.go.
//
// Tests run a part of this. "make exhaustive" runs all of it and counts; a
// schedule that fails prints the flags that repeat it alone.
package exhaustive
