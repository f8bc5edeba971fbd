package region

import "txnode/rdma"

// Fence makes lanes that are made from now on announce themselves with fences,
// as where there is no membarrier; they do not use exec.
func (s *Set) Fence() { s.lines.(*own).barrier.asymmetric = false }

// Fast reports whether lanes use exec.
func (s *Set) Fast() bool { return wide && s.lines.(*own).barrier.asymmetric && storesOrdered }

// ExecMax is the longest request that exec executes.
const ExecMax = execMax

// Chunk is how many requests exec executes at one go.
const Chunk = chunk

// Executing reports whether a lane is executing.
func (l *Lane) Executing() bool { return l.executing()%2 == 1 }

// Slowly executes a request, during which it calls meanwhile.
func (l *Lane) Slowly(w *rdma.WR, meanwhile func()) rdma.Status {
	l.enter()
	defer l.leave()
	s := l.admit(w)
	meanwhile()
	if s == rdma.StatusOK {
		l.perform(&l.qps[w.Blade], w)
	}
	return s
}

// Guard runs fn, and returns an error if it faults in a mapping.
var Guard = guard

// Region is a blade's memory.
func (s *Set) Region(b rdma.BladeID) []byte { return s.regions[b].mem }

// SetMsync replaces msync until the function that it returns is called.
func SetMsync(fn func(p []byte, flags int) error) (restore func()) {
	was := msync
	msync = fn
	return func() { msync = was }
}

// NewOwn are lines of this process.
func NewOwn() Lines { return newOwn() }
