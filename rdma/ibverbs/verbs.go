package ibverbs

import "unsafe"

// The seam to libibverbs: what a device does. The implementation over the library is in
// device_linux.go; tests have one of their own, which executes verbs in software. All methods but
// those of queue and pair are safe for concurrent use.

// device is an open device, with a port and a GID of it.
type device interface {
	attributes() attributes
	// register has the device know memory, which lies outside the Go heap.
	register(p []byte, rights access) (registration, error)
	// newQueue makes the completion queue of a thread, for so many completions; events: with a
	// channel for the arrival of completions. alone asks for a doorbell of its own.
	newQueue(depth int, events, alone bool) (queue, error)
	// events returns the next asynchronous event, or an error when the device is closed.
	events() (event, error)
	close() error
}

// attributes are what a device can do, and how it is reached.
type attributes struct {
	name     string // of the kernel
	firmware string
	port     int
	gidIndex int
	gid      [16]byte
	lid      uint16
	ethernet bool   // RoCE: there is no LID
	mtu      uint8  // 1 to 5: 256 to 4096 bytes
	readers  uint8  // READs and atomics that a queue pair answers at a time
	starts   uint8  // READs and atomics that a queue pair has under way at a time
	depth    int    // requests of a queue pair
	entries  int    // of a completion queue
	message  uint32 // bytes of the longest request
	atomics  bool   // exact among all atomics of this device
	flush    bool   // FLUSH that makes visible
	software bool   // no card: rdma_rxe, siw
	active   bool   // the port is up
	state    string // of the port, in words
}

// access are rights of a registration.
type access uint32

const (
	accessLocalWrite   access = 1 << 0
	accessRemoteWrite  access = 1 << 1
	accessRemoteRead   access = 1 << 2
	accessRemoteAtomic access = 1 << 3
	// accessFlush is for devices with attributes.flush only.
	accessFlush access = 1 << 8
)

// registration is memory that the device knows.
type registration interface {
	local() uint32
	remote() uint32
	// end returns when the device has forgotten it: no request changes the memory by it then.
	end() error
}

// queue is a completion queue. It belongs to one thread.
type queue interface {
	// newPair makes a queue pair, of so many requests. flush asks for one that takes FLUSHes, but one
	// that does not is no error.
	newPair(depth int, flush bool) (pair, error)
	// ring posts chains, and then reaps completions into out.
	ring(chains []chain, out []completion) (n int)
	poll(out []completion) (n int)
	// arm has the channel become readable at the next completion. A poll must follow.
	arm() error
	// channel is a descriptor for Go's poller, which is the caller's to close; -1: there is none.
	channel() (int, error)
	// doorbell is why the queue has no doorbell of its own, if that was asked for; nil: it has.
	doorbell() error
	// drain takes the events from the channel.
	drain()
	close() error
}

// pair is a reliable connected queue pair. It belongs to one thread.
type pair interface {
	number() uint32
	inline() uint32 // bytes of a WRITE that may be posted inline
	flushes() bool  // it takes FLUSHes
	handle() unsafe.Pointer
	// connect takes a pair that is new to where it receives and sends.
	connect(to path) error
	// fail puts it into the error state: what is outstanding completes as flushed.
	fail() error
	close() error
}

// path is how a queue pair reaches its partner.
type path struct {
	gid            [16]byte
	lid            uint16
	number         uint32 // of the partner
	from, to       uint32 // first packet numbers: of this one, of the partner
	mtu            uint8
	readers        uint8 // that this side answers
	starts         uint8 // that this side has under way
	timeout, retry uint8
	flush          bool // this side answers FLUSHes
}

// chain is a list of requests for one queue pair: one doorbell.
type chain struct {
	pair  unsafe.Pointer
	first unsafe.Pointer // *request
	_     unsafe.Pointer // the first request that was not posted
	errno uintptr        // why not; 0: all were
	built uintptr        // 1: a FLUSH is among them, which ibv_post_send does not know
}

// request is struct ibv_send_wr, with its scatter element where requests to bind memory windows have
// something: device_linux.go compares the layouts. It lies outside the Go heap, and so does what it
// points to.
//
//	 0  id        24  elements   40  remote address   64  rkey of an atomic
//	 8  next      28  opcode     48  rkey; compare    80  element
//	16  element   32  flags      56  swap
type request struct {
	id       uint64
	next     unsafe.Pointer
	list     unsafe.Pointer
	elements int32
	opcode   uint32
	flags    uint32
	_        uint32
	address  uint64
	// rkey of a READ or WRITE, in the low half; compare of an atomic
	second  uint64
	swap    uint64 // of a FLUSH: how many bytes
	key     uint32 // of an atomic
	_       [12]byte
	element element
	_       [32]byte
}

// element is struct ibv_sge.
type element struct {
	address uint64
	length  uint32
	key     uint32
}

const requestSize = 128

var (
	_ [requestSize - unsafe.Sizeof(request{})]byte
	_ [unsafe.Sizeof(request{}) - requestSize]byte
	_ [unsafe.Offsetof(request{}.element) - 80]byte
	_ [80 - unsafe.Offsetof(request{}.element)]byte
)

// Opcodes and flags of request.
const (
	opcodeWrite = 0
	opcodeRead  = 4
	opcodeCAS   = 5
	opcodeFAA   = 6
	opcodeFlush = 14

	flagFence    = 1 << 0
	flagSignaled = 1 << 1
	flagInline   = 1 << 3
)

// completion is struct ibv_wc.
type completion struct {
	id     uint64
	status uint32
	_      [36]byte
}

var (
	_ [48 - unsafe.Sizeof(completion{})]byte
	_ [unsafe.Sizeof(completion{}) - 48]byte
)
