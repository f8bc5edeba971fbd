package ibverbs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// network is what fake devices have in common: they execute verbs in software, each request at one
// go. It can lose answers, and be told what to do with the next requests.
type network struct {
	mu      sync.Mutex
	pairs   map[uint32]*fakePair
	next    uint32
	keys    uint32 // of registrations
	regs    map[uint32]*fakeReg
	repeat  int // so many registrations get the key of the one before
	fails   func(*fakeReg) error
	silent  bool           // nothing is answered: what is sent is lost
	after   func(done int) // called when a request has taken effect, with how many have since
	done    int
	muted   bool // requests take effect, and nobody hears of it
	atomics bool
	flushed int // FLUSHes that devices have had
}

func newNetwork() *network {
	return &network{
		pairs: map[uint32]*fakePair{}, regs: map[uint32]*fakeReg{}, next: rand.Uint32N(1 << 20), atomics: true,
		keys: rand.Uint32(),
	}
}

// device makes a device on the network.
func (n *network) device(name string) *fakeDevice {
	return &fakeDevice{net: n, name: name, happens: make(chan event, 8), gone: make(chan struct{})}
}

type fakeDevice struct {
	net     *network
	name    string
	happens chan event
	gone    chan struct{}
	dead    bool // under net.mu: it was removed
	idle    bool // it executes nothing, and says that all has succeeded: for figures
	longest uint32
	flush   bool // it knows FLUSH
}

func (d *fakeDevice) attributes() attributes {
	longest := d.longest
	if longest == 0 {
		longest = 1 << 30
	}
	return attributes{
		name: d.name, port: 1, gidIndex: 1, gid: [16]byte{10: 0xff, 11: 0xff, 12: 10, 15: 1}, ethernet: true, mtu: 5,
		readers: 16, starts: 16, depth: 1 << 14, entries: 1 << 15, message: longest, atomics: d.net.atomics,
		software: true, active: true, state: "active", flush: d.flush,
	}
}

func (d *fakeDevice) events() (event, error) {
	select {
	case e := <-d.happens:
		return e, nil
	case <-d.gone:
		return event{}, os.ErrClosed
	}
}

func (d *fakeDevice) close() error {
	close(d.gone)
	return nil
}

// remove is the removal of the device: nothing completes any more, and all calls fail.
func (d *fakeDevice) remove() {
	d.net.mu.Lock()
	d.dead = true
	d.net.mu.Unlock()
	d.happens <- event{eventDeviceFatal}
}

type fakeReg struct {
	dev    *fakeDevice
	mem    []byte
	rights access
	key    uint32
}

func (d *fakeDevice) register(p []byte, rights access) (registration, error) {
	d.net.mu.Lock()
	defer d.net.mu.Unlock()
	if d.dead {
		return nil, syscall.EIO
	}
	if d.net.repeat--; d.net.repeat < 0 {
		d.net.keys += 0x101
	}
	r := &fakeReg{d, p, rights, d.net.keys}
	d.net.regs[r.key] = r
	return r, nil
}

func (r *fakeReg) local() uint32  { return r.key }
func (r *fakeReg) remote() uint32 { return r.key }

func (r *fakeReg) end() error {
	n := r.dev.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.fails != nil {
		if err := n.fails(r); err != nil {
			return err
		}
	}
	if n.regs[r.key] == r {
		delete(n.regs, r.key)
	}
	return nil
}

type fakeQueue struct {
	dev   *fakeDevice
	mu    sync.Mutex
	done  []completion
	head  int
	armed bool
	fds   [2]int
}

func (d *fakeDevice) newQueue(_ int, events, _ bool) (queue, error) {
	q := &fakeQueue{dev: d, fds: [2]int{-1, -1}}
	if events {
		if err := unix.Pipe2(q.fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
			return nil, err
		}
	}
	return q, nil
}

func (q *fakeQueue) complete(id uint64, status uint32) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.done = append(q.done, completion{id: id, status: status})
	if q.armed {
		q.armed = false
		_, _ = unix.Write(q.fds[1], []byte{0})
	}
}

func (q *fakeQueue) ring(chains []chain, out []completion) int {
	for i := range chains {
		p := (*fakePair)(chains[i].pair)
		if q.dev.idle {
			r := (*request)(chains[i].first)
			for r.next != nil {
				r = (*request)(r.next)
			}
			q.done = append(q.done, completion{id: r.id})
			continue
		}
		chains[i].errno = p.post((*request)(chains[i].first), chains[i].built != 0)
	}
	return q.poll(out)
}

func (q *fakeQueue) poll(out []completion) int {
	if !q.dev.idle {
		q.mu.Lock()
		defer q.mu.Unlock()
	}
	n := copy(out, q.done[q.head:])
	if q.head += n; q.head == len(q.done) {
		q.done, q.head = q.done[:0], 0
	}
	return n
}

func (q *fakeQueue) arm() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.armed = true
	return nil
}

func (q *fakeQueue) channel() (int, error) { return unix.Dup(q.fds[0]) }

func (q *fakeQueue) doorbell() error { return nil }

func (q *fakeQueue) drain() {
	var p [64]byte
	for {
		if n, err := unix.Read(q.fds[0], p[:]); n <= 0 || err != nil {
			return
		}
	}
}

func (q *fakeQueue) close() error {
	if q.fds[0] < 0 {
		return nil
	}
	return errors.Join(unix.Close(q.fds[0]), unix.Close(q.fds[1]))
}

// sent is a copy of a request: the port uses its own again when it has completed.
type sent struct {
	request
	payload []byte // of a WRITE that was inline
}

type fakePair struct {
	queue *fakeQueue
	num   uint32
	to    path
	ready bool // under net.mu
	bad   bool // in the error state
	flush bool // it takes FLUSHes

	mu   sync.Mutex
	list []sent
	busy bool
}

func (q *fakeQueue) newPair(_ int, flush bool) (pair, error) {
	n := q.dev.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if q.dev.dead {
		return nil, syscall.EIO
	}
	n.next++
	p := &fakePair{queue: q, num: n.next, flush: flush && q.dev.flush}
	n.pairs[p.num] = p
	return p, nil
}

func (p *fakePair) number() uint32         { return p.num }
func (p *fakePair) inline() uint32         { return 32 }
func (p *fakePair) flushes() bool          { return p.flush }
func (p *fakePair) handle() unsafe.Pointer { return unsafe.Pointer(p) }

func (p *fakePair) connect(to path) error {
	n := p.queue.dev.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if p.queue.dev.dead || p.ready {
		return syscall.EINVAL
	}
	p.to, p.ready, p.bad = to, true, false
	return nil
}

func (p *fakePair) fail() error {
	n := p.queue.dev.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if p.queue.dev.dead {
		return syscall.EIO
	}
	p.bad = true
	p.kick()
	return nil
}

func (p *fakePair) close() error {
	n := p.queue.dev.net
	n.mu.Lock()
	p.ready = false
	delete(n.pairs, p.num)
	n.mu.Unlock()
	p.mu.Lock()
	p.list = nil
	p.mu.Unlock()
	return nil
}

func (p *fakePair) post(r *request, built bool) uintptr {
	p.mu.Lock()
	defer p.mu.Unlock()
	for ; r != nil; r = (*request)(r.next) {
		if r.opcode == opcodeFlush && !(built && p.flush) {
			panic("a FLUSH that the queue pair does not take")
		}
		s := sent{request: *r}
		if r.flags&flagInline != 0 {
			s.payload = append(s.payload, bytesAt(r.element.address, r.element.length)...)
		}
		p.list = append(p.list, s)
	}
	p.begin()
	return 0
}

// kick has the requests that wait for an answer look again.
func (p *fakePair) kick() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.begin()
}

// begin executes what there is on a goroutine. p.mu is held.
func (p *fakePair) begin() {
	if p.busy || len(p.list) == 0 {
		return
	}
	p.busy = true
	go p.run()
}

func (p *fakePair) run() {
	for {
		p.mu.Lock()
		if len(p.list) == 0 {
			p.busy = false
			p.mu.Unlock()
			return
		}
		s := p.list[0]
		p.mu.Unlock()
		status, answered := p.queue.dev.net.execute(p, &s)
		p.mu.Lock()
		if !answered || len(p.list) == 0 {
			p.busy = false
			p.mu.Unlock()
			return
		}
		p.list = p.list[1:]
		p.mu.Unlock()
		if status != wcSuccess || s.flags&flagSignaled != 0 {
			p.queue.complete(s.id, status)
		}
	}
}

func bytesAt(address uint64, n uint32) []byte {
	return unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&address))), n)
}

// execute executes a request on the partner's memory. Without an answer it waits, until the pair
// fails.
func (n *network) execute(p *fakePair, s *sent) (status uint32, answered bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case p.queue.dev.dead:
		return 0, false
	case p.bad:
		return wcFlushed, true
	case !p.ready:
		return 0, false
	case n.silent:
		return 0, false
	}
	partner := n.pairs[p.to.number]
	if partner == nil || !partner.ready || partner.bad || partner.to.number != p.num || partner.to.to != p.to.from {
		p.bad = true
		return wcRetryExceeded, true
	}
	status = n.effect(s)
	if n.after != nil {
		n.done++
		n.after(n.done)
	}
	if n.muted {
		p.bad = true
		return wcRetryExceeded, true
	}
	if status != wcSuccess {
		p.bad, partner.bad = true, true
	}
	return status, true
}

// flushes is what a FLUSH does: memory has everything already. n.mu is held.
func (n *network) flushes(s *sent) uint32 {
	n.flushed++
	r := n.regs[uint32(s.second)]
	if r == nil || r.rights&accessFlush == 0 {
		return wcRemoteAccess
	}
	base := address(r.mem)
	if s.address < base || s.address-base > uint64(len(r.mem)) || s.swap > uint64(len(r.mem))-(s.address-base) {
		return wcRemoteAccess
	}
	return wcSuccess
}

// effect is what a request does. n.mu is held.
func (n *network) effect(s *sent) uint32 {
	if s.opcode == opcodeFlush {
		return n.flushes(s)
	}
	if s.elements == 0 || s.element.length == 0 {
		return wcSuccess // of no bytes: neither memory nor key is looked at
	}
	key := uint32(s.second)
	need := accessRemoteRead
	switch s.opcode {
	case opcodeWrite:
		need = accessRemoteWrite
	case opcodeCAS, opcodeFAA:
		key, need = s.key, accessRemoteAtomic
	}
	r := n.regs[key]
	if r == nil || r.rights&need == 0 {
		return wcRemoteAccess
	}
	base, size := address(r.mem), uint64(s.element.length)
	if s.address < base || s.address-base > uint64(len(r.mem)) || size > uint64(len(r.mem))-(s.address-base) {
		return wcRemoteAccess
	}
	mem := r.mem[s.address-base:][:size]
	var mine []byte
	if s.payload == nil {
		l := n.regs[s.element.key]
		at := s.element.address - address(l.mem)
		if at > uint64(len(l.mem)) || size > uint64(len(l.mem))-at {
			panic(fmt.Sprintf("a request with a local buffer outside its registration: %+v", s.request))
		}
		mine = bytesAt(s.element.address, s.element.length)
	}
	switch s.opcode {
	case opcodeRead:
		copy(mine, mem)
	case opcodeWrite:
		if s.payload != nil {
			mine = s.payload
		}
		copy(mem, mine)
	case opcodeCAS, opcodeFAA:
		if s.address%8 != 0 || size != 8 {
			return wcRemoteInvalid
		}
		was := binary.LittleEndian.Uint64(mem)
		binary.LittleEndian.PutUint64(mine, was)
		switch {
		case s.opcode == opcodeFAA:
			binary.LittleEndian.PutUint64(mem, was+s.second)
		case was == s.second:
			binary.LittleEndian.PutUint64(mem, s.swap)
		}
	default:
		return wcRemoteInvalid
	}
	return wcSuccess
}
