// Package cluster turns an address into what a database in several processes needs: a fabric to all its blades, and the
// catalog that the processes share.
//
//	db, err := cluster.Open(ctx, "unix:///run/txnode/catalog", txn.Options{}, cluster.Options{})
//
// Any number of processes do so at the same time, and see one database: what one commits the others read.
//
// A cluster is a catalog that one process serves (package memory/catalog/remote), and servers of blades (package rdma/tcp,
// or rdma/shm). Where the servers are is in the catalog: [Init] writes it once, and creates the database; [Open] and [Connect] read it. So all processes
// have the same blades with the same ids: those of the first server, then those of the second, and so on.
//
// The catalog has one entry of this package, "cluster/servers": a line with a checksum, and JSON. Package memory ignores
// entries under "cluster/".
//
// Addresses of blades are of one kind, since a fabric is:
//
//	unix:PATH           a server of package tcp on a unix socket
//	tcp:HOST:PORT       on another host, or this one
//	shm:DIRECTORY/NAME  a server of package shm: all in one directory, on this host
package cluster
