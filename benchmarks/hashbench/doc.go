// Package hashbench measures the RACE index on the simulated RNIC: lookups and
// lock-free updates under YCSB's mixes, as section 6.2.1 of the SMART paper (Ren et
// al., ASPLOS'24) does with its own RACE table, and what SMART's techniques do about
// the doorbells, the outstanding requests and the retries.
//
// # Operations
//
// The index is that of the engine (package race), without backups. A record is a
// block of 64 bytes with an 8-byte key and an 8-byte value. With [Config].LikeSMART the
// requests are those of SMART's program (madsys-dev/smart, hashtable/hashtable.cpp), which
// are RACE's but for the retry:
//
//	lookup   READ both combined buckets; READ the block     two round trips, 3 requests
//	update   WRITE a new block beside the READs of the      three round trips, 5 requests
//	         buckets; READ the block, to know the key;
//	         CAS the slot
//	again    READ both buckets; READ the block; CAS         three round trips, 4 requests
//
// Its time is that of its framework (sim.SMARTDTX, but a batch is one doorbell for each
// blade), and retries are distributed as it counts them: per thread, so what one
// coroutine retries is put down to whichever update of the thread ends next.
//
// Otherwise it is ours: lookups read the second choice only when a mark says so, 2
// requests for most keys, 4 for an update; a retry WRITEs the block again beside the READ
// and does not read the old one, because no key is ever removed here: two round trips, 3
// requests. No program's time is charged beside the profile's.
//
// The block that an update has replaced is what the same client writes next, so updates
// need no memory; a reader that comes by it late finds another key or a broken
// checksum, and looks the key up again.
//
// An update is an operation of conflict avoidance (rdma.Coro.BeginOp): a CAS that fails is a retry,
// and is followed by the backoff. With [Config].LikeSMART its constants are those of SMART's
// program (rdma.SMARTBackoff: epochs of 20 ms, no limit in the curve "+Backoff" of figure 14), but
// in the warm-up, where the limits move each millisecond.
//
// # Windows
//
// A point is measured over windows of virtual time, until the throughputs of the last three agree
// ([Point].Settled). A window shorter than four times what an operation takes is doubled.
//
// # Repeatable
//
// A point is a function of its [Config]: its own fabric, a copy of the loaded table,
// one seed. Keys are drawn from a Zipf distribution over the ranks (Gray et al.,
// SIGMOD'94, as YCSB does), and scattered by a bijection of the ranks. The distribution
// is over [Config].Drawn keys, of which the first [Config].Keys are there: ranks beyond
// are folded onto these, where they are too rare to matter.
package hashbench
