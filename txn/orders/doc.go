// Package orders runs two processes on one database in every order of what one of them does and
// the other can see. It has tests only, on the fabric of rdma/steptest: nothing happens there but
// what a schedule says.
//
// A process is a txn.DB with its own handle of the catalog and its own connections.
// These are its moves:
//
//	verbs     what it has posted at once for one blade, or for all
//	catalog   a read, a comparison with a change, a question for the revision, a sign of life
//	blades    a question for their keys and incarnations, a grant, a revocation
//	watch     the process hears of a change of the catalog, in the middle of whatever it does
//
// Where blades are remote, a witness answers what processes ask about them. Leases end when a
// scenario says so. A process that does not move for long is one that is paused.
//
// A scenario (scenarios_test.go) is what each of the two does. All orders are tried, but for those
// that differ from one that is tried only in the order of moves that commute. Where these are too
// many, some are tried: those in which a process is interrupted so many times at most, while it
// could go on, and orders that are drawn at random.
//
// After each order (judge_test.go): both processes say what the catalog says, whose layout is
// valid; no segment and no block was handed out twice; what was acknowledged is there; no verb was
// executed under a key older than one that was revoked before; and when the database is closed,
// opened once more and closed, a walk over the blades finds nothing.
//
// Tests try a part. "make exhaustive" tries more, and counts. A schedule that fails prints the
// command that repeats it.
package orders
