// Package crashtest kills processes that write to a database, and looks at what
// they leave. It has tests only: TestKill starts a writer over a directory, kills it
// with SIGKILL at a random moment (while it opens, recovers or closes the database,
// too), opens the directory again, and holds it against what the writer had said:
//
//   - every transaction whose commit was acknowledged is there, whole;
//   - one that was not acknowledged is there as a whole or not at all;
//   - what the writer's transactions read and wrote before it was killed, and the
//     state afterwards, are one strictly serializable history (package check);
//   - every record has the very bytes that its writer gave it, and the sum of all
//     balances is exact;
//   - a walk over the whole database finds nothing wrong (package verify): no lock,
//     no undecided log, equal replicas, no orphan block.
//
// TestPower does the same with the loss of power, on a simulated fabric that forgets
// what was not flushed, line by line, of databases that are open with txn.DurabilityPower.
//
// Clients keep a table with secondary indexes, too, one of which is dropped and built anew
// meanwhile. After each opening every index has the entries of the table's records, and no others.
// TestPowerWhileIndexing takes the power at each step of defining, building and dropping one.
//
// TestKillAfterLoss is TestKill of writers that lose a blade, and may have it back.
//
// "make crash KILLS=300 LOSSES=200 POWERS=500" is the long form of all. The directory of
// a failed run is kept, for txnode check and txnode inspect.
package crashtest
