// Package etcd has a catalog that several processes share, in an etcd. The etcd is one of the
// caller's: any server of version 3.4 or later, or a cluster of them. [Open] returns a [Client],
// which is a layout.Catalog. Any number of clients are open at the same time.
//
//	endpoints := []string{"10.0.0.1:2379", "10.0.0.2:2379"}
//	cat, err := etcd.Open(ctx, etcd.Options{Endpoints: endpoints})
//
// Package txnode/cluster/etcd makes this known to package cluster, for addresses such as
// "etcd://10.0.0.1:2379,10.0.0.2:2379/txnode/".
//
// # Keys
//
// All keys begin with Options.Prefix. The content of the catalog is a base and the changes
// since, each a chunk:
//
//	PREFIX chunk/SEQUENCE-ID/PIECE   a piece of at most 1 MiB of a chunk: entries, and a checksum
//	                                 in the last one
//	PREFIX head                      JSON: the sequence numbers of the base and of the last chunk
//	PREFIX alive/MEMBER              the sign of life of a member that is registered: the epoch
//	                                 that it knows
//
// Sequence numbers have 16 hexadecimal digits, pieces 6. An id is 32 random hexadecimal digits, so
// that no two writers write the same key. A load reads all of it at one revision of etcd.
//
// # Changes
//
// An etcd bounds a request: 1.5 MiB, and 128 operations. A change of the catalog may be larger,
// so it has two phases. Each transaction has the condition that the head is still the one that
// the writer has read.
//
//  1. All pieces but the last are written, one transaction each. No reader looks at them: the head
//     does not have their sequence number.
//  2. One transaction writes the last piece and the head.
//
// A change of up to 1 MiB is thus one transaction. When the changes since the base are larger than
// the base, or many, a writer writes a new base with its change, and the transaction of the head
// deletes the old chunks.
//
// A writer that dies in phase 1 leaves pieces. All of them have the sequence number behind that of
// the head, since they have its condition. The next writer has the same number, and the transaction
// of its head deletes all pieces of other ids. So there is never garbage of more than one sequence
// number, and no search for it.
//
// The transaction that writes the change which registers a member makes its key alive/MEMBER, and
// the one that ends it deletes the key. KeepAlive writes it if it is there. Its revision in etcd
// counts the signs of life.
//
// # Revisions
//
// A revision of the catalog is the revision of etcd that has last changed the head. Changes of
// other keys do not matter. A conditional write compares both the revision and the value of the
// head. Revisions of several clients of the same etcd compare.
//
// An etcd whose data is lost, or restored from a backup, begins with earlier revisions. A client
// that meets one returns
// [ErrOther]: what it knows is of no use then.
//
// # Failures
//
// While etcd is away, or has no leader, Load and Apply fail with [ErrAway]; each request takes
// at most Options.Control. Await goes on waiting, and asks again after each break. An Apply
// without an answer is not repeated, since it may have been made: the contract of
// layout.Catalog leaves that open.
//
// An etcd keeps all earlier revisions until they are compacted: run it with
// --auto-compaction-retention. If it is full, Apply returns an error that matches
// memory.ErrNoSpace. A user who may write keys with the prefix is trusted with the data.
package etcd
