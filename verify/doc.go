// Package verify walks a database and holds every byte that the engine relies on
// against what must be true of it. The commands txnode check and txnode inspect use it.
//
// A [Database] is attached to the blades and to what the catalog says of them,
// not to a memory.Space: a database whose headers or extents are damaged cannot be
// opened, and is looked at all the same. Bytes of a blade are never trusted:
// whatever they are, the walk ends, and nothing panics.
//
// # What is checked
//
// [Database.Check] goes over, in this order:
//
//	regions   both copies of every header, against the catalog
//	extents   the words of the extents in use, on every copy
//	logs      areas in use: transactions that are undecided; areas not in use: blank
//	indexes   levels, fences, right links and separators; the block behind each entry of
//	          a leaf: does it hold a key that a search finds there
//	blocks    every block of every copy: header, checksum, guard, replicas, and
//	          whether the node that leads to it and its state agree;
//	          whether each entry of a secondary index leads to a record (Options.Indexes)
//
// A table of an earlier version, whose index is slots, is a finding of [KindEarlier] until a process
// opens the database for writing, which converts the table. Its blocks are checked one by one, and
// its index is not.
//
// Each fault is a [Finding], given to Options.Report at once. One fault gives one
// finding where possible: a damaged record is not a faulty entry as well.
//
// [CheckRunning] does the same while transactions run: what changes may look wrong once, so it
// is looked at again.
//
// # Memory and verbs
//
// What is remembered is a bit for each block, and of one table at a time the addresses of its nodes
// and the separators of two levels; of tables with secondary indexes 8 bytes for each record, and 24
// for each entry. READs are batched: the blocks behind a leaf's entries with one doorbell, blocks a
// mebibyte of each copy at a time.
//
// # Repair
//
// A replica is written again if another one proves what it should hold: see
// Options.Repair and [Finding.Remedy]. Whatever a recovery may still need (a held lock, a log
// record) is left alone, and so is whatever no copy proves. A record whose entry is lost gets it
// back, if nothing else has its key. Nothing at all is written to a database that was open with DurabilityPower and not closed (Summary.Unrecovered), that has a table of an
// earlier version (Summary.Earlier), or while something of a blade's file cannot be read
// (Summary.Unreadable).
package verify
