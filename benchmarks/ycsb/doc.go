// Package ycsb is the core of the Yahoo! Cloud Serving Benchmark (Cooper et al.,
// "Benchmarking Cloud Serving Systems with YCSB", SoCC 2010), written once against package
// workload. Each operation is a transaction. Unlike in YCSB, what is read is checked, and all
// that is left is audited.
//
// # Data
//
// One table of records, numbered from 0. The key of a record is its number (Dense), or a bijection
// of it that spreads keys over 64 bits (Random, YCSB's "hashed" order); as Text it is "user" and 20
// decimal digits. A value has a size of its own choice, where YCSB has ten fields of 100 bytes, and
// is written and read as a whole. Its first 8 bytes are a word, and all others follow from the word
// and the key, so that a torn value, or one of another record, is noticed.
//
// # Workloads
//
//	     Read  Update  Insert  ReadModifyWrite  Scan   distribution
//	a      50      50                                  scrambled
//	b      95       5                                  scrambled
//	c     100                                          scrambled
//	d      95               5                          latest
//	e                       5                     95   scrambled
//	f      50                               50         scrambled
//
// Update writes a value without reading one. ReadModifyWrite adds one to the word. Scan reads from
// 1 to ScanLength records from the one drawn on, in the order of the keys, in one transaction. It
// needs a store with ordered tables ([workload.Ranger]).
//
// Ranks are drawn with a probability in proportion to 1/(rank+1)^theta ([workload.Zipf], as in
// YCSB). Zipfian takes the rank for the number of a record; Scrambled a hash of it, modulo the
// records loaded, so some records are drawn for two ranks, and others never, as in YCSB; Latest
// counts from the last record back. Latest and Uniform draw from all records whose inserts have
// ended. So what they draw depends on what other clients have done, and repeats with the seed on
// the simulator alone.
//
// # Books
//
// After a run every record that was loaded or inserted must be there, and none whose insert
// failed; each has a value that was written for it. A scan of an ordered table finds as many. In
// a workload that has read-modify-writes and no updates, the sum of all words is the number of
// those that committed.
package ycsb
