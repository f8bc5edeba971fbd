package rdma

// Fabric connects compute to a set of memory blades. Implementations are in
// the sub-packages; all methods but Run are safe for concurrent use.
type Fabric interface {
	// Name is short and fixed: "inproc", "sim", "shm", "tcp", "ibverbs".
	Name() string
	// Caps says what this fabric promises beyond the contract.
	Caps() Caps
	// Blades lists the connected blades; a blade's id is its index.
	Blades() []BladeInfo
	// NewPort makes the transport resources of one thread: a queue pair to
	// every blade, a completion queue, a doorbell, an arena.
	NewPort(PortConfig) (Port, error)
	// Now is the fabric's clock in nanoseconds: monotonic, wall or virtual.
	Now() int64
	// Seed is the root of all randomness of the engine on this fabric.
	Seed() uint64
	// Run calls fn(0) ... fn(n-1) concurrently, each the body of one thread,
	// and returns when all have returned. On a simulator it runs the events.
	Run(n int, fn func(i int))

	// The rest is the control path: what a blade's CPU does.

	// Provision makes sure that [off, off+n) of the blade's region has memory
	// behind it, zeroed if never used. ErrNoMemory: there is none, or the range
	// is not in the region; ErrBladeDown: no such blade.
	Provision(b BladeID, off, n uint64) error
	// SetKey changes the access key of a blade's region. When it returns, no
	// verb with another key takes effect any more. ErrBladeDown: no such blade.
	SetKey(b BladeID, k Key) error
	// Close disconnects. Threads must be closed first.
	Close() error
}

// BladeInfo describes a connected blade.
type BladeInfo struct {
	ID       BladeID
	Size     uint64 // bytes of its region
	Key      Key    // current access key
	ReadOnly bool
	// Incarnation is another number each time that the blade begins anew, without the WRITEs
	// that were not placed before, or without all that its memory held. A change of its key
	// leaves it alone.
	Incarnation uint64
}

// Caps are promises beyond the contract, and limits.
type Caps struct {
	// Synchronous: Post returns with all completions in.
	Synchronous bool
	// Placed: a completed WRITE is visible to every later verb of every client;
	// otherwise only after a later READ or atomic of the same queue pair.
	Placed bool
	// OrderedLine: a WRITE places the words of one 64-byte line in increasing
	// address order, so that a line's last word publishes the line.
	OrderedLine bool
	// MaskedCAS: OpMaskedCAS is native. Without it Coro.MaskedCAS emulates.
	MaskedCAS bool
	// Durable: FLUSH makes WRITEs survive the loss of power.
	Durable bool
	// MaxBatch is how many work requests a queue pair holds. Port.Post takes any
	// number, and reaps completions itself until the rest has room.
	MaxBatch int
}

// PortConfig sizes a port.
type PortConfig struct {
	// Index of the thread on this compute blade, from 0: selects its doorbell.
	Index int
	// Policy is how queue pairs and doorbells are shared between threads.
	Policy QPPolicy
	// Arena is the size of the registered memory in bytes.
	Arena int
}

// Port is the transport of one thread: not safe for concurrent use.
type Port interface {
	// Post hands b.WRs()[first:] to the queue pairs, one doorbell per blade, in
	// order within each blade. Completions call Batch.Complete, during Post,
	// Poll or Wait, in posted order within each queue pair. The fabric may keep
	// the batch until its last completion. More requests may be appended and
	// posted before that, so it keeps indices, not pointers to requests.
	Post(b *Batch, first int)
	// Poll reaps completions that are there, without waiting.
	Poll()
	// Wait returns after a completion was reaped, or when Now reaches until.
	Wait(until int64)
	// Now is the fabric's clock, possibly cheaper than Fabric.Now.
	Now() int64
	// Arena is the registered memory: 64-byte aligned, fixed.
	Arena() []byte
	// Reset takes the queue pair of a blade out of the error state, or returns an
	// error when the blade cannot be reached.
	Reset(b BladeID) error
	// Close releases the resources. Nothing may be outstanding.
	Close() error
}

// QPPolicy is how queue pairs and doorbell registers are allocated to the
// threads of a compute blade (SMART, section 3.1).
type QPPolicy uint8

// Allocation policies.
const (
	PerThreadDoorbell QPPolicy = iota // own queue pairs on an own doorbell (SMART)
	PerThreadQP                       // own queue pairs; doorbells as the driver maps them
	MultiplexedQP                     // groups of threads share queue pairs
	SharedQP                          // all threads share one queue pair per blade
)

// String returns the policy's name as used on the command line.
func (p QPPolicy) String() string {
	switch p {
	case PerThreadDoorbell:
		return "per-thread-doorbell"
	case PerThreadQP:
		return "per-thread-qp"
	case MultiplexedQP:
		return "multiplexed-qp"
	default:
		return "shared-qp"
	}
}

// Techniques switches SMART's techniques. The zero value has everything off;
// AllTechniques is the default of the engine.
type Techniques struct {
	Doorbells bool // per-thread doorbells (section 4.1)
	Throttle  bool // work request throttling (section 4.2, Algorithm 1)
	Backoff   bool // truncated exponential backoff (section 4.3)
	DynLimit  bool // dynamic backoff limit
	CoroLimit bool // coroutine credits
}

// AllTechniques has everything on.
var AllTechniques = Techniques{true, true, true, true, true}
