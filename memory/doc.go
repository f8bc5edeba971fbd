// Package memory organises the regions of the blades: logical addresses,
// segments and their replicas, the blocks that clients carve from segments, and
// the catalog that remembers all of it.
//
// # Addresses
//
// An [Addr] is logical: a segment and an offset in it. 48 bits suffice, so an
// address fits an index slot.
//
//	 63    48 47           26 25            0
//	+--------+---------------+---------------+
//	|   0    |    segment    |    offset     |
//	+--------+---------------+---------------+
//
// A segment has a primary and f backups on distinct blades, each at its own base
// in that blade's region. A [View] maps segments to replicas under one epoch; it
// is immutable, and a new epoch is a new View.
//
// # Regions
//
//	0        region header, twice, on pages of their own
//	64 KiB   segments, all of one size, handed out in order; see rebuild.go for reuse
//
// A [Segment] has one purpose for ever: the log areas of coordinators (one copy,
// one segment on every blade), extents of index structures, or record blocks of
// one class. Which is which, and where, is in the catalog; blades are asked for
// memory (Fabric.Provision) before the catalog says that it is used.
//
// Which blocks of a segment are free is recorded nowhere but in the headers of
// the blocks. What allocators hold is forgotten when the process ends; a later
// session finds free blocks again by reading headers, as it needs them. Which
// extents are allocated is recorded in a table at the start of their segment.
//
// # Control path and data path
//
// A [Space] is the control path: it changes the catalog, under a lock, and holds
// no lock while a verb is under way. An [Allocator] is the data path of one
// thread.
//
// # Crashes
//
// The catalog changes in atomic steps, and each step leaves a database that
// opens, whatever of the verbs around it has happened: see [Open],
// [Space.AllocExtent], [Space.CloseCoordinatorOn] and [Space.AdvanceEpoch] for
// their orders.
package memory
