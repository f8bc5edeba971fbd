// Package occ is the commit protocol: optimistic transactions that read without
// locks, lock what they write, validate what they only read, and replicate, all
// with one-sided verbs (after FORD, FAST'22; docs/protocol.md has the argument
// for strict serializability).
//
// A [Session] belongs to an rdma.Thread and is a coordinator: it has an id, log
// areas, an allocator of blocks. A [Tx] belongs to a coroutine of that thread and
// is reused for one transaction after another. Nothing here is safe for
// concurrent use, except the [Engine].
//
// # Life of a transaction
//
// Stage announces keys; Execute fetches all that were staged: one round trip when
// their addresses are cached, for keys to be written with the lock taken by the
// same doorbell. What was only read is validated again before Execute returns,
// unless a single record is all the transaction has seen: so the caller never
// acts on a state that did not exist (opacity). Commit locks what is not locked
// yet, validates if something was locked or read since the last validation, and
// then lets the [Policy] write log and replicas. A failed attempt releases
// exactly the locks that it holds, by writing back the version it found.
//
// # Policies
//
// PolicyDefault, with f backups, for n written and r only read records of one
// line, warm:
//
//	lock and read   n x (CAS, READ), r x READ          one round trip
//	validate        r x READ, if r > 0                 one round trip
//	commit          per backup blade: log record, then its images, in order on one
//	                queue pair; log on f+1 blades      one round trip
//	                -> acknowledged
//	release         n x WRITE of the primary image, which unlocks; not awaited
//
// That is 2n + 2r + (f+1) + nf + n work requests: no release and no invisibility
// write, because the guard word publishes and releases with the image (package
// record), and no write to a primary before the decision, because the log record
// holds the new images and is the decision. On a fabric without Caps.Placed one
// FLUSH per backup blade follows in the same doorbell: the next writer of a record
// may use another queue pair, and must not overtake. On a fabric without
// Caps.OrderedLine, and for records of several lines, the release is a WRITE of
// its own.
//
// PolicyFORD posts FORD's verbs: log to all blades beside validation, lock word and
// image to every replica, a flush, and the release of every replica. Corrected:
// aborts release only what they hold, validation fails on a foreign lock, stale
// addresses are detected, absence is validated.
package occ
