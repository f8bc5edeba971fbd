// Package hashbench measures the RACE index on the simulated RNIC: lookups and
// lock-free updates under YCSB's mixes, as section 6.2.1 of the SMART paper (Ren et
// al., ASPLOS'24) does with its own RACE table, and what SMART's techniques do about
// the doorbells, the outstanding requests and the retries.
//
// # Operations
//
// The index is that of the engine (package race), without backups. A record is a
// block of 64 bytes with an 8-byte key and an 8-byte value.
//
//	lookup   READ both combined buckets; READ the block     two round trips, 3 requests
//	update   WRITE a new block beside the READs of the      three round trips, 5 requests
//	         buckets; READ the block, to know the key;
//	         CAS the slot
//	again    WRITE the block beside the READs of the        two round trips, 4 requests
//	         buckets; CAS the slot                          for each retry
//
// That is RACE's algorithm 3 (race.Index.ReadBoth: the engine itself reads a key's
// second choice only when a mark says so). Section 3.3 counts 3 requests for a retry,
// one READ less. The block that an update has replaced is what the same client writes
// next, so updates need no memory; a reader that comes by it late finds another key
// or a broken checksum, and looks the key up again.
//
// An update is an operation of conflict avoidance (rdma.Coro.BeginOp): a CAS that
// fails is a retry, and is followed by the backoff.
//
// # Repeatable
//
// A point is a function of its [Config]: its own fabric, a copy of the loaded table,
// one seed. Keys are drawn from a Zipf distribution over the ranks (Gray et al.,
// SIGMOD'94, as YCSB does), and scattered by a bijection of the ranks.
package hashbench
