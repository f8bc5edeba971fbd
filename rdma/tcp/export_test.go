package tcp

import (
	"testing"

	"golang.org/x/sys/unix"

	"txnode/rdma"
)

// PollWaiter has ports that are made from now on wait with poll, until back is called.
func PollWaiter() (back func()) {
	was := newWaiter
	newWaiter = func() (waiter, error) { return &polling{}, nil }
	return func() { newWaiter = was }
}

// NestedWaiter changes nothing.
func NestedWaiter() (back func()) { return func() {} }

// Frames of the beginning of a connection, and the first request, for clients that misbehave.
func HelloFrame(control bool, blade uint16) []byte {
	h := hello{version: Version, purpose: forData, blade: blade}
	if control {
		h.purpose = forControl
	}
	p := h.bytes()
	return p[:]
}

// ServiceFrame is the hello of a client of a service, and MessageFrame a message of a service.
func ServiceFrame(name string) []byte {
	p := (&hello{version: Version, purpose: forService, service: name}).bytes()
	return p[:]
}

func MessageFrame(number, code uint32, n int, body string) []byte {
	p := make([]byte, messageHead+len(body))
	putMessage(p, number, code, n)
	copy(p[messageHead:], body)
	return p
}

// Sizes of frames.
const (
	ChallengeSize = challengeSize
	ProofSize     = proofSize
	WelcomeSize   = welcomeSize
	RequestSize   = requestSize
	ReplySize     = replySize
	MaxPiece      = maxPiece
)

// ReadFrame is a READ.
func ReadFrame(key rdma.Key, off uint64, n uint32) []byte {
	p := make([]byte, requestSize)
	(&request{op: opRead, key: key, off: off, len: n}).put(p)
	return p
}

// loneFabric is a fabric of one blade that no server serves, with one port.
type loneFabric struct {
	*Fabric
	p *port
}

func (f loneFabric) Blades() []rdma.BladeInfo                   { return []rdma.BladeInfo{{Size: 1 << 20}} }
func (f loneFabric) NewPort(rdma.PortConfig) (rdma.Port, error) { return f.p, nil }

// loneThread is a thread whose queue pair is one end of a pair of sockets that nothing reads.
func loneThread(t testing.TB) (*rdma.Thread, *port) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := &Fabric{ports: 1, caps: rdma.Caps{Placed: true, OrderedLine: true, MaskedCAS: true, MaxBatch: 16}}
	if err := f.o.complete(); err != nil {
		t.Fatal(err)
	}
	p := &port{f: f, waiter: &polling{}, qps: make([]queuePair, 1)}
	if p.arena, err = unix.Mmap(-1, 0, 512<<10, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANON); err != nil {
		t.Fatal(err)
	}
	p.step = p.reapAll
	p.any = func() bool { return p.reapAll() || p.moved }
	p.qps[0].init(p, 0, 32)
	p.qps[0].out = make([]byte, 0, 4<<20) // nothing has to be written to make room
	if err := p.qps[0].attach(&link{fd: fds[0]}); err != nil {
		t.Fatal(err)
	}
	th, err := rdma.NewThread(loneFabric{f, p}, rdma.ThreadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := th.Close(); err != nil {
			t.Error(err)
		}
		_ = unix.Close(fds[1])
	})
	return th, p
}

// Down and Unwanted are the errors of a connection.
func Down(err error) error     { return down("s", err) }
func Unwanted(err error) error { return unwanted("s", err) }
