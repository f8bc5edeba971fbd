package inproc

import "txnode/rdma"

// Fence makes ports that are made from now on announce themselves with fences,
// as where there is no membarrier; they do not use exec.
func (f *Fabric) Fence() { f.barrier.asymmetric = false }

// Fast reports whether ports use exec.
func (f *Fabric) Fast() bool { return wide && f.barrier.asymmetric && storesOrdered }

// ExecMax is the longest request that exec executes.
const ExecMax = execMax

// PostChunk is how many requests exec executes at one go.
const PostChunk = postChunk

// Executing reports whether any port of the fabric is executing.
func Executing(p rdma.Port) bool {
	if f, ok := p.(*filePort); ok {
		p = f.port
	}
	return p.(*port).executing()%2 == 1
}

// Guard runs fn, and returns an error if it faults in a mapping.
var Guard = guard

// Region is a blade's memory.
func (f *Fabric) Region(b rdma.BladeID) []byte { return f.regions[b].mem }
