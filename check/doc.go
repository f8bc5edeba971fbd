// Package check decides whether a recorded history is strictly serializable. If it is not, it says
// which transactions contradict each other.
//
// # Method
//
// The input is what the transactions reported ([history.Txn]): the versions that they read, and the
// versions that they replaced and installed. So the order of the versions of a key is not guessed.
// It is read off the chain Prev -> Version of its writers. [Check] builds Adya's direct
// serialization graph over it ("Weak Consistency", PhD thesis, MIT 1999, section 4.1). An edge
// means "before, in every serial order".
//
//	ww  U replaced what T installed
//	wr  U read what T installed
//	rw  U replaced what T read (anti-dependency; T may have read "absent")
//	rt  T ended before U started
//
// A history is strictly serializable if and only if the graph has no cycle. Without rt edges the
// same holds for plain serializability. If one transaction ended in the instant in which another
// started, they are concurrent: a clock that stands still between two transactions leaves their
// order open. Real time is a chain of auxiliary nodes, one per group of ends that is followed by a
// start: T -> node after T's end -> ... -> node before U's start -> U. That costs at most 3 edges
// per transaction instead of one per pair.
//
// Cycles are found by Tarjan's strongly connected components. Within a component the kinds of edges
// are added one by one: ww, then wr, then rw, then rt. The report has the shortest cycle of the
// most specific kind, and shorter ones of less specific kinds. In a component of a hundred thousand
// transactions "shortest" means the shortest found within a budget.
//
// # What a history must look like
//
// Versions of a key never repeat, not even those of transactions that did not happen. They are
// identifiers, not numbers with an order. A chain of a key that no execution can produce is a
// violation by itself, with its own [Class]: two writers that replaced one version, a version
// installed twice, a version that was read without a writer. One version per key may lack a writer:
// the one that the history began with. [Options].FromEmpty forbids that, too.
// [Options].Placeholders allows more, for versions that were never read as present.
//
// Reads are of the state before the transaction's own writes. A read of a version that the
// transaction itself installs is ignored, wherever it stands. A transaction may replace its own
// versions, in the order of its operations. Another transaction that reads such an intermediate
// version is a violation.
//
// # Transactions with an unknown outcome
//
// A transaction whose outcome is [history.Unknown] counts in two cases. A transaction that counts
// has read or replaced one of its versions. Or a key that is absent without trace can only be
// explained by one of its deletes. It may take effect after its call ended, since recovery
// completes it. So it has no end in real time.
//
// # Absence without trace
//
// Version zero is the state of a key that has no record: the initial state, or any state after a
// Delete whose tombstone was removed. A tombstone that a later write replaced by its version was
// never removed. The chain of a key is then in pieces, called runs. Each begins at version zero, or
// at the initial version. Only a run that ends in a Delete can be followed by another.
//
// Real time puts the runs of a key in order: run A is before run B if a transaction of A ended
// before one of B started. Where that leaves one order, it is used as if it had been recorded.
// Where real time contradicts itself, the edges make a cycle. Where the order of overlapping runs
// is open, they get only the edges that every order has. The same holds for a read of version zero
// that fits several gaps between runs. So nothing correct is ever reported. What may be missed is
// counted in [Report].Ambiguous. Without real time ([Serializable]) a key of two runs or more is
// nearly always ambiguous. To avoid that, report the version of the tombstone while it exists.
//
// # Range reads
//
// What a range read ([history.Range]) returned are reads like others. A key of its bounds that it
// did not return had no record: a predicate read, in Adya's terms. The keys of a table are those
// whose position some operation tells. Each is before its first insert, or between a delete and the
// next insert, or behind the last delete, when the range was read. Real time leaves one of these
// gaps, or several. The delete before the first gap left comes before the reader (wr), and the
// insert behind the last one comes after it (rw). Where several are left, the read is counted in
// [Report].Ambiguous. A reader that reports the tombstones that it met avoids that: the version of
// a tombstone says which gap it was.
//
// A key that has no gap left was there throughout: [MissingRow]. An answer that is out of order or
// out of bounds, or has a key twice, is a [BrokenRange]. Keys that the transaction writes are not
// expected in its own answers.
//
// # Cost
//
// Time is O(n log n) for sorting starts and ends, and linear in operations otherwise. Memory is
// flat slices of 32-bit indices, about 80 bytes per operation beside the history. A million
// transactions of four operations take a few seconds on one core (BenchmarkCheck).
//
// Sub-package values checks what transactions computed (counters, conserved totals) without looking
// at versions. Sub-package linear has an independent search for single keys. [CheckLists] needs no
// versions either: it takes the order of a key from the lists that were read.
package check
