// Package reference is an in-memory store for the benchmark workloads: Go maps
// in shards, and strict two-phase locking of whole shards in a fixed order. It
// keeps no log, no replica and no index that grows.
//
// It has two uses: the tests of the workloads run on it, and it is the
// yardstick among the peers, what an experienced Go programmer would write by
// hand for data that fits one process. It is therefore written for speed:
// nothing is allocated per transaction, a value is copied once when it is put
// and once when the transaction commits, and a key is looked up once.
//
// # Locking
//
// A key's lock is the mutex of its shard, so that absent keys are locked like
// present ones and there are no phantoms. Locks have a total order: table, then
// shard. A transaction takes the locks of all keys that it has staged, in that
// order, when it first uses a key; all are exclusive, which costs less than
// telling readers from writers when critical sections are this short. A key
// that comes later (its number was read from another record) is locked in the
// same way if its lock is above all locks held; if it is below, waiting could
// deadlock, so it is only tried, and on failure the transaction starts again
// with the locks it is now known to need, which makes success on the second
// attempt the rule. Everything is unlocked after the writes are in place: the
// order of commits is the order in which the locks were handed over, and every
// execution is strictly serializable.
package reference
