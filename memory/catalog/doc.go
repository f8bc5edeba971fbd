// Package catalog has the catalogs of databases that one process opens at a time: [Bolt], a bbolt
// file, for databases in a directory, and [Mem] for anonymous ones. Package catalogtest has what
// every catalog must pass. Packages remote and etcd have catalogs that several processes share: in
// a process that serves it, and in an etcd.
//
// A catalog file is created under another name and renamed when it is whole. It is opened
// exclusively, or shared when read-only, and does not wait for another process that has it open. A
// file that is no catalog, or a damaged one, is an error that names it: panics and page faults that
// damage provokes in bbolt end here.
package catalog
