// Package memory organises the regions of the blades: logical addresses, segments and their copies,
// the blocks that clients carve from segments, and the catalog that records all of it.
//
// # Addresses
//
// An [layout.Addr] is logical: a segment and an offset in it. 48 bits suffice, so an address fits
// an index slot.
//
//	 63    48 47           26 25            0
//	+--------+---------------+---------------+
//	|   0    |    segment    |    offset     |
//	+--------+---------------+---------------+
//
// A segment has a primary and f backups on distinct blades, each at its own base in that blade's
// region. A [layout.View] maps segments to copies under one epoch. It is immutable, and a new epoch
// is a new View.
//
// # Regions
//
//	0        region header, twice, on pages of their own
//	60 KiB   a page for tools that test a blade
//	64 KiB   segments, all of one size, handed out in order; see rebuild.go for reuse
//
// A [layout.Segment] has one purpose for ever: log areas of coordinators (one copy, one segment on
// every blade), extents of index structures, or record blocks of one class. The catalog says which,
// and where. Blades are asked for memory (Fabric.Provision) before the catalog says that it is
// used.
//
// Only the headers of blocks say which blocks are free. What allocators hold is forgotten when the
// process ends. A later session finds free blocks by reading headers, as it needs them. A table at
// the start of an index segment says which extents are allocated.
//
// # Control path and data path
//
// A [Space] is the control path. It changes the catalog under a lock, and holds no lock while a
// verb is under way. It has four layers: store.go, membership.go, replicas.go, allocation.go. An
// [Allocator] is the data path of one thread. What executes no verb is in package layout.
//
// # Several processes
//
// A database is created for one process at a time, or for several at once ([Options].Shared). The
// first one to open it is alone until it has recovered what others have left ([Space.EndAlone]);
// later ones register beside those that live.
//
// Processes change one catalog: each change is read, compared and applied again (commit.go), and
// [Space.Follow] takes over what others have changed. Segments have owners, or none and are adopted
// when they are needed (owner.go), and keys are those of the epoch that the catalog names,
// whichever process has made it (keys.go).
//
// Clocks of processes are not compared: a lease ends when its process gave no sign of life for its
// term, by the clock of the one that looks (lease.go). Blocks are freed and numbered for their
// owner alone (frees.go), which also is the only one that knows what its sessions are about to use.
// One process at a time recovers an index, builds copies, or is alone with the database
// (rights.go). A process that recovers others has locks under its own number.
//
// Threads act for a coordinator, or under the registration of their process, and get no view
// beyond the end of that (tenure.go). So a process that was ended while it stood still changes
// nothing when it goes on.
//
// # Crashes
//
// The catalog changes in atomic steps. Each step leaves a database that opens, whatever happened to
// the verbs around it. [Open], [Space.NewExtent], [Space.CloseCoordinatorOn] and
// [Space.AdvanceEpoch] say in which order.
package memory
