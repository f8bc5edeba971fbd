// Package layout is the pure half of package memory: what the catalog of a database says, and what
// of it the bytes of entries, region headers and addresses are. It executes no verb, changes no
// catalog, and has no lock.
//
//	addresses        [Addr], [Class], [Granule]: where a block or an extent is
//	the layout       [Layout]: blades, segments and their copies, tables, coordinators, processes,
//	                 and what must hold
//	                 between them ([Layout.Validate])
//	its entries      [LoadLayout], [Layout.Entries], [Difference], and one EntryOf function for
//	                 each kind: a version, a kind,
//	                 a checksum over key and value, and a payload
//	the view         [View]: the layout of one epoch as the data path wants it
//	region headers   [RegionHeader]
//
// A Layout is a value: its methods change nothing but the layout itself, and a caller that shares
// one has a lock of its own. A View is immutable.
//
// Invariants, beside those that [Layout.Validate] checks and each type states:
//
//	Opened <= Epoch                                      an opening is an epoch
//	Blade.Used <= places of the blade                    segments are placed in order
//	Placement.N <= Written() <= Backups+1                full copies come first, then those that
//	                                                     are built
//	0 < ProcessEntry.ID, CoordinatorEntry.ID < NextCoordinator
package layout
