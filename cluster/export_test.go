package cluster

import "txnode/rdma/tcp"

// Deadlines are the options of connections with the deadlines that follow.
func (o Options) Deadlines() tcp.Options { return o.tcp() }
