// Package verify walks a database and holds every byte that the engine relies on
// against what must be true of it. It is what the
// commands txnode check and txnode inspect are made of.
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
//	indexes   root, directory, sub-tables, bucket headers and slots, on every copy;
//	          the block behind each slot: does it hold a key that a lookup finds here;
//	          of ordered tables: levels, fences, right links and separators, and the
//	          block behind each entry of a leaf
//	blocks    every block of every copy: header, checksum, guard, replicas, and
//	          whether the slots, or nodes, that lead to it and its state agree;
//	          whether each entry of a secondary index leads to a record (Options.Indexes)
//
// Each fault is a [Finding], given to Options.Report at once. One fault gives one
// finding where possible: a damaged record is not a faulty slot as well.
//
// [CheckRunning] does the same while transactions run: what changes may look wrong once, so it
// is looked at again.
//
// # Memory and verbs
//
// What is remembered is a bit for each block, the directories of the indexes, the hashes of the
// keys of one sub-table, and of an ordered table the addresses of its nodes and the separators of
// two levels; of tables with secondary indexes 8 bytes for each record, and 24 for each entry.
// READs are batched: buckets in chunks, the blocks behind a chunk's slots with one doorbell, blocks
// a mebibyte of each copy at a time.
//
// Package race has a check of its own for one index, which remembers every block and
// stops after a number of faults; the tests hold the two against each other.
//
// # Repair
//
// A replica is written again if another one proves what it should hold: see
// Options.Repair and [Finding.Remedy]. A slot that is lost on all copies is set again, since
// the block of its record says whose it is (orphans.go). Whatever a recovery may still need (a held
// lock, an unfinished split, a log record) is left alone, and so is whatever no
// copy proves. Nothing at all is written to a database that was open with
// DurabilityPower and not closed (Summary.Unrecovered), or while something of a blade's
// file cannot be read (Summary.Unreadable).
package verify
