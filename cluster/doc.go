// Package cluster turns an address into what a database in several processes needs: a fabric to all
// its blades, and the catalog that the processes share.
//
//	db, err := cluster.Open(ctx, "unix:///run/txnode/catalog", txn.Options{}, cluster.Options{})
//
// Any number of processes do so at the same time, and see one database: what one commits the others
// read.
//
// A cluster is a catalog that one process serves (package memory/catalog/remote) or that is in an
// etcd, and servers of blades (package rdma/tcp, or rdma/shm). Where the servers are is in the
// catalog: [Init] writes it once, and creates the database; [Open] and [Connect] read it. So all
// processes have the same blades with the same ids: those of the first server, then those of the
// second, and so on.
//
// A server of blades takes part by itself if it announces itself in the catalog: [Announce], which
// txnode serve --join calls. It holds a lease there. Before there is a cluster it is a candidate,
// and [AwaitServers] returns the addresses of candidates for [Init]. Blades of servers in one
// domain (Server.Domain) have no two copies of a segment, while others have room.
//
// The address of a catalog is one of these:
//
//	unix:PATH           a process on this host serves it
//	tcp:HOST:PORT       a process on another host, or this one
//	A,B,C               several of these: the first that answers
//	SCHEME://...        a catalog of a kind that a program has registered: RegisterCatalog
//
// Package cluster/etcd registers "etcd://HOST:PORT,HOST:PORT/PREFIX", a catalog in an etcd. Only
// programs that import that package contain etcd's client.
//
// A cluster can grow and shrink while programs use it ([AddBlade], [DrainBlade], [Rebalance]),
// within the number of places for blades that Init was given. A place without a server has the
// address "" in the catalog.
//
// The catalog has entries of this package, "cluster/servers", and "cluster/server/NUMBER" of each
// server that has announced itself: a line with a checksum, and JSON. Package memory ignores
// entries under "cluster/".
//
// Addresses of blades are of one kind, since a fabric is:
//
//	unix:PATH           a server of package tcp on a unix socket
//	tcp:HOST:PORT       on another host, or this one
//	rdma:HOST:PORT      a server of package ibverbs: its control path, beside an RDMA device
//	shm:DIRECTORY/NAME  a server of package shm: all in one directory, on this host
package cluster
