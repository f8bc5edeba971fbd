package ibverbs

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"txnode/rdma"
	"txnode/rdma/region"
	"txnode/rdma/tcp"
)

// Server has the memory of blades, and lets clients at it through a device. A [tcp.Server] has it
// as ServerOptions.Elsewhere, for its control path, and Answer as the service ServiceName, by which
// queue pairs are connected. Its methods are safe for concurrent use.
//
// The process never touches the memory again: atomics of a device and of a processor do not know of
// each other.
type Server struct {
	o      ServerOptions
	dev    device
	queue  queue // of all partners, which post nothing: it stays empty
	ends   ends
	events sync.WaitGroup

	mu      sync.RWMutex // of what follows
	blades  []*blade
	clients map[context.Context]*client // by connection
	closed  bool
}

// blade is a blade of a server.
type blade struct {
	mem         []byte
	keys        *keyring
	incarnation uint64
	stopped     bool

	mu              sync.Mutex // of what is counted
	provisioned     region.Spans
	grants, revokes uint64
}

// client is a connection of a port, which has one partner a blade.
type client struct {
	partners map[uint16]pair
}

// serverQueue is how many completions the queue of the partners has room for: there are none.
const serverQueue = 16

// NewServer maps and registers memory. Errors match ErrOptions, ErrNotBuilt or ErrDevice.
func NewServer(o ServerOptions) (*Server, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	dev, err := openDevice(o.Device)
	if err != nil {
		return nil, err
	}
	return newServer(dev, o)
}

// newServer has the device from then on.
func newServer(dev device, o ServerOptions) (s *Server, err error) {
	s = &Server{o: o, dev: dev, clients: map[context.Context]*client{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if err := usable(dev); err != nil {
		return s, err
	}
	s.ends = endsOf(dev)
	if s.queue, err = dev.newQueue(serverQueue, false, false); err != nil {
		return s, err
	}
	life := uint64(time.Now().UnixNano())
	for i, n := range o.Blades {
		b := &blade{incarnation: life}
		s.blades = append(s.blades, b)
		if b.mem, err = mapMemory(n, o.HugePages); err != nil {
			return s, fmt.Errorf("blade %d: %w", i, err)
		}
		if err = s.begin(b); err != nil {
			return s, fmt.Errorf("blade %d: %w", i, err)
		}
	}
	s.events.Go(func() { watch(dev, o.Report, func() {}) })
	return s, nil
}

// usable says what is missing.
func usable(dev device) error {
	a := dev.attributes()
	switch {
	case !a.active:
		return fmt.Errorf("%w: port %d of %s is %s: look at cable and switch, or ip link", ErrDevice, a.port, a.name,
			a.state)
	case !a.atomics:
		return fmt.Errorf("%w: %s has no exact atomics (atomic_cap of ibv_devinfo -v), and locks are atomics",
			ErrDevice, a.name)
	case a.ethernet && a.gid == [16]byte{}:
		return fmt.Errorf("%w: GID %d of port %d of %s is empty: give its network interface an address, or name "+
			"another GID: show_gids, or ibv_devinfo -v", ErrDevice, a.gidIndex, a.port, a.name)
	}
	return nil
}

func endsOf(dev device) ends {
	a := dev.attributes()
	return ends{
		mtu: a.mtu, readers: a.readers, starts: a.starts, ethernet: a.ethernet, lid: a.lid, gid: a.gid,
	}
}

// mapMemory maps zeroed memory that is not the Go heap's.
func mapMemory(n uint64, huge bool) ([]byte, error) {
	flags := unix.MAP_PRIVATE | unix.MAP_ANON
	if huge {
		flags |= mapHuge
	}
	p, err := unix.Mmap(-1, 0, int(n), unix.PROT_READ|unix.PROT_WRITE, flags)
	if err != nil && huge {
		return nil, fmt.Errorf("ibverbs: %d bytes on reserved huge pages (see /proc/sys/vm/nr_hugepages): %w: %w", n,
			rdma.ErrNoMemory, err)
	}
	if err != nil {
		return nil, fmt.Errorf("ibverbs: %d bytes of memory: %w: %w", n, rdma.ErrNoMemory, err)
	}
	adviseHuge(p)
	return p, nil
}

func unmap(p []byte) error { return unix.Munmap(p) }

// begin gives a blade its first key.
func (s *Server) begin(b *blade) (err error) {
	rights := accessRemoteRead
	if !s.o.ReadOnly {
		rights |= accessLocalWrite | accessRemoteWrite | accessRemoteAtomic
	}
	if s.dev.attributes().flush {
		rights |= accessFlush
	}
	b.keys, err = newKeyring(s.dev, b.mem, rights, random32())
	return err
}

func random32() uint32 {
	var p [4]byte
	_, _ = rand.Read(p[:]) // never fails
	return wire.Uint32(p[:])
}

// watch reports asynchronous events until the device is closed.
func watch(dev device, report func(error), fatal func()) {
	for {
		e, err := dev.events()
		if errors.Is(err, os.ErrClosed) {
			return
		}
		if err != nil {
			e = event{eventDeviceFatal} // it cannot even be asked
		}
		if e.fatal() {
			fatal()
		}
		if report != nil {
			report(fmt.Errorf("ibverbs: device %s: %v", dev.attributes().name, e))
		}
		if err != nil {
			return
		}
	}
}

// Blades lists the blades with their oldest keys.
func (s *Server) Blades() []rdma.BladeInfo {
	s.mu.RLock()
	defer s.mu.RUnlock()
	all := make([]rdma.BladeInfo, len(s.blades))
	for i, b := range s.blades {
		all[i] = rdma.BladeInfo{
			ID: rdma.BladeID(i), Size: uint64(len(b.mem)), Key: b.keys.oldest(), ReadOnly: s.o.ReadOnly,
			Incarnation: b.incarnation,
		}
	}
	return all
}

// Stats are what the control path was asked for. Verbs are the device's: nobody here counts them.
func (s *Server) Stats() []region.Stats {
	s.mu.RLock()
	defer s.mu.RUnlock()
	out := make([]region.Stats, len(s.blades))
	for i, b := range s.blades {
		b.mu.Lock()
		out[i] = region.Stats{
			Size: uint64(len(b.mem)), Provisioned: b.provisioned.Bytes(), Grants: b.grants, Revokes: b.revokes,
		}
		b.mu.Unlock()
		if b.stopped {
			out[i].Err = fmt.Errorf("ibverbs: blade %d is stopped: %w", i, rdma.ErrBladeDown)
		}
	}
	return out
}

// Durable is false: what is registered is memory.
func (s *Server) Durable() bool { return false }

// at runs fn on a blade that is not stopped.
func (s *Server) at(id rdma.BladeID, fn func(b *blade) error) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	switch {
	case s.closed:
		return fmt.Errorf("ibverbs: %w", rdma.ErrClosed)
	case int(id) >= len(s.blades):
		return fmt.Errorf("ibverbs: blade %d of %d: %w", id, len(s.blades), rdma.ErrBladeDown)
	case s.blades[id].stopped:
		return fmt.Errorf("ibverbs: blade %d is stopped: %w", id, rdma.ErrBladeDown)
	}
	if err := fn(s.blades[id]); err != nil {
		return fmt.Errorf("blade %d: %w", id, err)
	}
	return nil
}

// Provision checks a range: all memory is there and pinned.
func (s *Server) Provision(id rdma.BladeID, off, n uint64) error {
	return s.at(id, func(b *blade) error {
		if size := uint64(len(b.mem)); off > size || n > size-off {
			return fmt.Errorf("ibverbs: provisioning [%#x, +%#x) of a region of %#x bytes: %w", off, n, size,
				rdma.ErrNoMemory)
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		b.provisioned.Add(off, off+n)
		return nil
	})
}

// Grant adds an access key: rdma.Fabric.
func (s *Server) Grant(id rdma.BladeID) (k rdma.Key, err error) {
	err = s.at(id, func(b *blade) (err error) {
		if k, err = b.keys.grant(); err == nil {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.grants++
		}
		return err
	})
	return k, err
}

// Revoke ends access keys: rdma.Fabric.
func (s *Server) Revoke(id rdma.BladeID, before rdma.Key) error {
	return s.at(id, func(b *blade) error {
		err := b.keys.revoke(before)
		if err == nil {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.revokes++
		}
		return err
	})
}

var _ tcp.Blades = (*Server)(nil)

// Answer connects the queue pairs of a port: a tcp.Service. Those that the connection has to the
// same blades end before. All of them end with the connection.
func (s *Server) Answer(ctx context.Context, request []byte) ([]byte, error) {
	theirs, n, err := getHead(request, rowSize)
	if err != nil {
		return nil, err
	}
	if theirs.ethernet != s.ends.ethernet {
		return nil, fmt.Errorf("ibverbs: one side has Ethernet and the other InfiniBand: name another device by --rdma")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || ctx.Err() != nil {
		return nil, fmt.Errorf("ibverbs: %w", rdma.ErrClosed)
	}
	c := s.clients[ctx]
	if c == nil {
		c = &client{partners: map[uint16]pair{}}
		s.clients[ctx] = c
		context.AfterFunc(ctx, func() { s.leave(ctx) })
	}
	reply := head(&s.ends, n)
	for i := range n {
		var r row
		r.get(request[headSize+i*rowSize:])
		a := s.partner(c, &theirs, &r)
		reply = a.append(reply)
	}
	return reply, nil
}

// partner makes the partner of a client's queue pair. s.mu is held.
func (s *Server) partner(c *client, theirs *ends, r *row) (a answer) {
	if had := c.partners[r.blade]; had != nil {
		delete(c.partners, r.blade)
		_ = had.close() // late packets find nothing
	}
	if int(r.blade) >= len(s.blades) || s.blades[r.blade].stopped {
		return answer{result: resultStopped}
	}
	b := s.blades[r.blade]
	q, err := s.queue.newPair(1, false)
	if err == nil {
		a = answer{
			number: q.number(), first: random32() & packetMask, readOnly: s.o.ReadOnly, flush: s.dev.attributes().flush,
			address: address(b.mem), size: uint64(len(b.mem)), mask: b.keys.mask,
		}
		to := meet(&s.ends, theirs, r.number, a.first, r.first)
		to.flush = a.flush
		if err = q.connect(to); err != nil {
			_ = q.close() // it was never used
		}
	}
	if err != nil {
		if s.o.Report != nil {
			s.o.Report(fmt.Errorf("ibverbs: connecting a queue pair of a client: %w", err))
		}
		return answer{result: resultNoMemory}
	}
	c.partners[r.blade] = q
	return a
}

// packetMask is what packet numbers have of bits.
const packetMask = 1<<24 - 1

// leave ends the queue pairs of a connection that has ended.
func (s *Server) leave(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.clients[ctx]
	delete(s.clients, ctx)
	if c == nil {
		return
	}
	for _, q := range c.partners {
		_ = q.close() // its client is gone
	}
}

// Pairs returns how many queue pairs clients have.
func (s *Server) Pairs() (n int) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, c := range s.clients {
		n += len(c.partners)
	}
	return n
}

// StopBlade stops a blade, as if its machine had lost power: rdma.Stopper.
func (s *Server) StopBlade(id rdma.BladeID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if int(id) >= len(s.blades) {
		return fmt.Errorf("ibverbs: blade %d of %d: %w", id, len(s.blades), rdma.ErrBladeDown)
	}
	b := s.blades[id]
	if b.stopped {
		return nil
	}
	b.stopped = true
	for _, c := range s.clients {
		if q := c.partners[uint16(id)]; q != nil {
			delete(c.partners, uint16(id))
			_ = q.close() // the client finds out
		}
	}
	return b.keys.close()
}

// RestartBlade brings a blade back: rdma.Stopper.
func (s *Server) RestartBlade(id rdma.BladeID, memory bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if int(id) >= len(s.blades) {
		return fmt.Errorf("ibverbs: blade %d of %d: %w", id, len(s.blades), rdma.ErrBladeDown)
	}
	b := s.blades[id]
	if !b.stopped {
		return nil
	}
	if !memory {
		clear(b.mem)
	}
	if err := s.begin(b); err != nil {
		return fmt.Errorf("blade %d: %w", id, err)
	}
	b.incarnation++
	b.stopped = false
	return nil
}

// Close ends all queue pairs and registrations, and gives up memory and device. To close again does
// nothing.
func (s *Server) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	var errs []error
	for _, c := range s.clients {
		for _, q := range c.partners {
			errs = append(errs, q.close())
		}
	}
	clear(s.clients)
	for _, b := range s.blades {
		if b.keys != nil {
			errs = append(errs, b.keys.close())
		}
	}
	if s.queue != nil {
		errs = append(errs, s.queue.close())
	}
	errs = append(errs, s.dev.close())
	s.events.Wait()
	for _, b := range s.blades {
		if b.mem != nil {
			errs = append(errs, unix.Munmap(b.mem))
		}
	}
	return errors.Join(errs...)
}
