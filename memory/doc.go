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
package memory
