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
	// Grant has a blade choose a key that opens its region from now on, beside those that do
	// already. The blade has not had it before, in any incarnation. It is not 0, which opens
	// nothing.
	//
	// A blade keeps MaxKeys of them. One more takes the place of the oldest but that which the
	// last Revoke has named, or the first of the incarnation if there was none: keys that were
	// granted and never used end so. ErrBladeDown: no such blade.
	Grant(b BladeID) (Key, error)
	// Revoke ends the keys of a blade that were granted earlier than before. When it returns nil,
	// no verb with one of them takes effect any more. before itself and later ones open the region
	// all the time. ErrStaleKey: before opens nothing, or nothing any more, and no key was ended.
	// ErrBladeDown: no such blade. ErrUnfenced: the keys have ended, but a verb that one of them
	// has let in may still take effect; Revoke with the same key waits for it again.
	//
	// Like a memory region that is registered once more before the first registration is given
	// up, Grant and Revoke leave no time in which a client cannot know a key that opens the
	// region. Clients that share a blade agree on keys in a catalog, which is changed atomically:
	//
	//	k := Grant; the catalog names k instead of the key before; Revoke(k); the new epoch begins
	//
	// Grant comes after the client has read the state of the catalog that it replaces. So keys
	// that the catalog names one after the other were granted in this order, and a client that is
	// late and revokes by an older one ends no newer one. It ends nothing, or gets ErrStaleKey.
	// Each client that learns of the epoch revokes, too, before it does what the epoch is for: the
	// client that made it may have died before. A key whose client has died, or was not the first
	// to change the catalog, is named nowhere, and a later Revoke ends it. A blade that
	// has restarted meanwhile has lost the key: ErrStaleKey, and its incarnation is another one.
	Revoke(b BladeID, before Key) error
	// Close disconnects. Threads must be closed first.
	Close() error
}

// BladeInfo describes a connected blade.
type BladeInfo struct {
	ID   BladeID
	Size uint64 // bytes of its region
	// Key is the oldest access key that opens it: that which the last Revoke has named. A blade
	// has one from the start.
	Key      Key
	ReadOnly bool
	// Incarnation is another number each time that the blade begins anew, without the WRITEs
	// that were not placed before, or without all that its memory held. It is not 0. Changes of
	// keys leave it alone.
	Incarnation uint64
	// Unheard: this process has no answer of the blade just now, for whatever reason, and the rest
	// is what it was told last: another incarnation may be there, which others know. Incarnation is
	// 0 if it was never told anything.
	Unheard bool
}

// Caps are promises beyond the contract, and limits.
type Caps struct {
	// RealTime: Now is a clock of the real world, which goes on by itself. Goroutines and timers of
	// the caller may use the fabric beside Run. Without it time is virtual, and passes while
	// threads wait.
	RealTime bool
	// Remote: ErrBladeDown says that this process does not reach the blade, and nothing about the
	// blade, which may serve others. Without it the fabric knows that the blade has ended, except
	// where an error is ErrSilent.
	Remote bool
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
	// posted before that, so it keeps indices, not pointers to requests. Requests are on their way
	// then, unless the port is a Pusher.
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

// Pusher is a [Port] that keeps requests until the thread waits, or polls again and again, so that
// those of several coroutines leave together.
type Pusher interface {
	// Push has them leave now. It waits for no completion.
	Push()
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
