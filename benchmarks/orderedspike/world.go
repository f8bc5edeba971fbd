package main

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"time"

	"txnode/index/blink"
	"txnode/log"
	"txnode/memory"
	"txnode/memory/record"
	"txnode/rdma"
	"txnode/rdma/sim"
)

// lockTime says when a transaction locks the leaf that it inserts into.
type lockTime int

const (
	// early: in the round trip that reads the leaf, by a masked CAS.
	early lockTime = iota
	// late: at commit, by a CAS at the version that was read. If the version has moved, by a masked CAS
	// with another READ.
	late
	// lateRead: at commit, by a masked CAS with another READ.
	lateRead
)

var lockTimes = [...]string{"early", "late", "late+read"}

func (l lockTime) String() string { return lockTimes[l] }

// config says what runs. The zero value of a field has a default.
type config struct {
	seed       uint64
	coroutines int // all of them
	lock       lockTime
	queue      bool // coroutines of the process wait for each other before they lock a leaf
	shared     bool // blocks of rows and nodes come from one pool of the process, not from one of the thread
	patience   int  // how often a lock that is held is asked for again, before the attempt fails
	rows       int  // per transaction, adjacent keys
	random     bool // keys; else they grow
	preload    int  // rows of the tree before the measurement
	warmup     time.Duration
	measure    time.Duration
	thinkNs    float64 // of user code, between execution and commit
	// What the log says of a leaf that stays one: 0: its image; else so many bytes for each of its new entries.
	delta uint32
	// Processor time of the engine for a node, beside the profile's for verbs.
	readNs, applyNs float64
	entries         int // limit of a node's; 0: none
	freedom         sim.Freedom
}

func (c *config) defaults() {
	c.coroutines, c.rows, c.preload = cmp.Or(c.coroutines, 1), cmp.Or(c.rows, 1), cmp.Or(c.preload, 1000)
	c.warmup, c.measure = cmp.Or(c.warmup, defaultWarmup), cmp.Or(c.measure, defaultMeasure)
}

const (
	defaultWarmup  = 52 * time.Millisecond // of simbench: what the throttle needs
	defaultMeasure = 20 * time.Millisecond
	perThread      = 8 // coroutines
)

const (
	blades    = 2
	copies    = 2 // f = 1
	bladeSize = 64 << 30
	logBase   = 48 << 30 // behind the segments
	logRing   = 64 << 10 // of a coroutine
	nodeTable = 1
	rowTable  = 2
	valueLen  = 24 // with 8 bytes of key: a row of one line
	rowChunk  = 64 // blocks that a thread carves at once
	nodeChunk = 16
	arena     = 4 << 20
)

// engine is the program that runs: its time for a transaction is charged beside the requests.
var engine = sim.Engine()

// rootAddr is the block of the root record.
var rootAddr = memory.MakeAddr(1, 0)

// world is a tree on two blades, and what the compute blade knows of it. The simulator runs all threads
// on one goroutine, so no part of it needs a lock.
type world struct {
	config
	fabric   *sim.Fabric
	geometry blink.Geometry
	rowClass memory.Class
	segment  [blades]memory.SegmentID // that chunks come from, by the blade of its primary
	used     [blades]uint32           // of it, bytes
	segments memory.SegmentID
	turn     int // blade of the next new node

	root    blink.Root
	cache   map[memory.Addr]blink.Node // inner nodes
	posting map[memory.Addr]bool       // nodes whose separator is on the way to the parent
	queues  map[memory.Addr]*queue     // of leaves
	rowAt   map[uint64]memory.Addr     // address cache of rows; nil: none
	acked   map[uint64]bool            // keys of committed inserts; false: deleted again
	clients uint32
	stats   stats
}

// queue has the coroutines of the process that want a leaf, in order.
type queue struct{ next, serving uint64 }

// stats are counted over all coroutines.
type stats struct {
	commits, held, moved uint64 // transactions; attempts that met a lock; late locks whose version had moved
	again                uint64 // locks that were asked for again at once
	right, stale         uint64 // hops along right links; searches that began anew
	splits, posts        uint64
	postHeld             uint64 // attempts to lock a parent that met a lock
}

func newWorld(c config) (*world, error) {
	c.defaults()
	g, err := blink.Geometry{MaxKey: 8, MaxEntries: c.entries}.Fit()
	if err != nil {
		return nil, err
	}
	o := sim.Options{
		Profile: sim.ConnectX6().WithPersistentMemory(), Program: engine, Seed: c.seed, Freedom: c.freedom, Placed: true,
	}
	for range blades {
		o.Blades = append(o.Blades, sim.BladeOptions{Size: bladeSize, Key: 1})
	}
	f, err := sim.New(o)
	if err != nil {
		return nil, err
	}
	class, _ := record.ClassFor(8, valueLen)
	w := &world{
		config: c, fabric: f, geometry: g, rowClass: class, segments: 1,
		cache: map[memory.Addr]blink.Node{}, posting: map[memory.Addr]bool{}, queues: map[memory.Addr]*queue{},
		acked: map[uint64]bool{},
	}
	for b := range blades {
		w.used[b] = memory.MaxSegmentSize
	}
	err = w.create()
	return w, err
}

// at is where copy i of a block is: 0 is the primary.
func (w *world) at(a memory.Addr, i int) rdma.RemoteAddr {
	s := a.Segment()
	return rdma.RemoteAddr{
		Blade: rdma.BladeID((int(s) + i) % blades), Key: 1,
		Off: uint64(s-1)*memory.MaxSegmentSize + uint64(a.Offset()),
	}
}

// carve returns n bytes of a segment with its primary on a blade.
func (w *world) carve(blade int, n uint32) memory.Addr {
	if w.used[blade]+n > memory.MaxSegmentSize {
		for w.segments++; int(w.segments)%blades != blade; w.segments++ {
		}
		w.segment[blade], w.used[blade] = w.segments, 0
	}
	a := memory.MakeAddr(w.segment[blade], w.used[blade])
	w.used[blade] += n
	return a
}

// create makes the empty tree.
func (w *world) create() error {
	return w.run(1, 1, func(k *client) error {
		leaf := w.carve(0, w.geometry.Class.Size())
		w.root = blink.Root{Addr: leaf}
		k.begin()
		at := k.entry(leaf, nodeTable, w.geometry.Class, nil, blink.AppendLeaf(nil, w.geometry))
		root := k.entry(rootAddr, nodeTable, 0, nil, w.root.Append(nil))
		b := &k.batch
		b.Reset()
		for i := range copies {
			b.Write(w.at(leaf, i), at.local, at.n)
			b.Write(w.at(rootAddr, i), root.local, root.n)
		}
		return k.c.Do(b)
	})
}

// run runs a function on coroutines of their own, all connected before one starts.
func (w *world) run(threads, coroutines int, fn func(k *client) error) error {
	var first error
	report := func(err error) {
		if first == nil {
			first = err
		}
	}
	all := make([]*rdma.Thread, threads)
	for i := range all {
		t, err := rdma.NewThread(w.fabric, rdma.ThreadOptions{Index: i, Techniques: rdma.AllTechniques, Arena: arena})
		if err != nil {
			return err
		}
		all[i] = t
	}
	shared := newPools(w)
	w.fabric.Run(threads, func(i int) {
		pools := shared
		if !w.shared {
			pools = newPools(w)
		}
		all[i].Run(coroutines, func(c *rdma.Coro) {
			k, err := newClient(w, c, pools)
			if err == nil {
				err = fn(k)
			}
			if err == nil {
				err = k.drain()
			}
			report(err)
		})
	})
	for _, t := range all {
		report(t.Close())
	}
	return first
}

func newPools(w *world) *pools { return &pools{w: w} }

// pools are the blocks that a thread, or the process, has carved, by the blade of the primary.
type pools struct {
	w           *world
	rows, nodes [blades]pool
}

type pool struct {
	next memory.Addr
	left int
}

func (p *pool) take(w *world, blade, chunk int, class memory.Class) memory.Addr {
	size := class.Size()
	if p.left == 0 {
		p.next, p.left = w.carve(blade, uint32(chunk)*size), chunk
	}
	a := p.next
	p.next += memory.Addr(size)
	p.left--
	return a
}

func (p *pools) row(blade int) memory.Addr {
	return p.rows[blade].take(p.w, blade, rowChunk, p.w.rowClass)
}

func (p *pools) node() memory.Addr {
	p.w.turn++
	blade := p.w.turn % blades
	return p.nodes[blade].take(p.w, blade, nodeChunk, p.w.geometry.Class)
}

// image is a block's new image in the log record of a flight.
type image struct {
	addr  memory.Addr
	local uint32
	n     uint32
}

// flight is the log record of a transaction and the requests that publish its images. It is used again
// when these have completed.
type flight struct {
	buf  uint32
	used uint32
	bg   rdma.Batch
}

const flightBytes = 32 << 10

// client is a coroutine that runs transactions.
type client struct {
	w       *world
	c       *rdma.Coro
	pools   *pools
	id      uint32
	seq     uint64
	tx      record.TxID
	masks   uint32
	buf     uint32 // of the node that is read
	word    uint32
	batch   rdma.Batch
	flights [2]flight
	f       *flight
	log     uint64 // bytes written so far
	builder blink.Builder
	changes []blink.Change
	keys    []byte
	body    []byte
	images  []image
	whole   bool // the transaction changes a node that is not split
	scan    scanner
}

func newClient(w *world, c *rdma.Coro, p *pools) (*client, error) {
	w.clients++
	k := &client{w: w, c: c, pools: p, id: w.clients}
	t := c.Thread()
	var err error
	alloc := func(n int) uint32 {
		at, e := t.Alloc(n)
		if e != nil {
			err = e
		}
		return at
	}
	k.masks, k.buf, k.word = alloc(64), alloc(int(w.geometry.Class.Size())), alloc(64)
	for i := range k.flights {
		k.flights[i].buf = alloc(flightBytes)
	}
	if err != nil {
		return nil, err
	}
	t.PutWord(k.masks, record.HeldBit)
	t.PutWord(k.masks+8, ^uint64(0))
	return k, nil
}

// begin takes a transaction id.
func (k *client) begin() {
	k.seq++
	k.tx = record.MakeTxID(k.id, k.seq)
	k.f = &k.flights[k.seq%2]
	k.f.used = log.HeaderSize
	k.images, k.whole = k.images[:0], false
}

// settle waits until the flight of the transaction may be written to.
func (k *client) settle() error {
	err := k.c.Drain(&k.f.bg)
	k.f.bg.Reset()
	return err
}

// drain waits for everything in the background.
func (k *client) drain() error {
	for i := range k.flights {
		if err := k.c.Drain(&k.flights[i].bg); err != nil {
			return err
		}
	}
	return nil
}

// entry appends an image to the log record.
func (k *client) entry(a memory.Addr, table uint16, class memory.Class, key, value []byte) image {
	return k.put(a, record.Live, table, class, key, value)
}

func (k *client) put(a memory.Addr, state record.State, table uint16, class memory.Class, key, value []byte) image {
	f := k.f
	head := k.c.Thread().Bytes(f.buf+f.used, log.EntryHeaderSize)
	binary.LittleEndian.PutUint64(head, uint64(a))
	at := f.buf + f.used + log.EntryHeaderSize
	n := record.Size(len(key), len(value))
	f.used += log.EntryHeaderSize + uint32(n)
	if f.used > flightBytes {
		panic(fmt.Sprintf("orderedspike: log record of %d bytes", f.used))
	}
	record.Image(k.c.Thread().Bytes(at, uint32(n))).Put(a, k.tx, state, table, class, 0, key, value)
	im := image{a, at, uint32(n)}
	k.images = append(k.images, im)
	return im
}

// logged posts the log record to both blades and the images to the backups, and waits: the
// transaction is committed.
func (k *client) logged() error {
	w, f := k.w, k.f
	if k.log%logRing+uint64(f.used) > logRing {
		k.log += logRing - k.log%logRing
	}
	at := rdma.RemoteAddr{Key: 1, Off: logBase + uint64(k.id)*logRing + k.log%logRing}
	k.log += uint64(f.used)
	b := &k.batch
	b.Reset()
	n := f.used
	if last := k.images[len(k.images)-1]; w.delta > 0 && k.whole {
		n = min(n, last.local-f.buf+w.delta*uint32(len(k.changes)))
	}
	for i := range blades {
		at.Blade = rdma.BladeID(i)
		b.Write(at, f.buf, n)
	}
	for _, im := range k.images {
		for i := 1; i < copies; i++ {
			b.Write(w.at(im.addr, i), im.local, im.n)
		}
	}
	return k.c.Do(b)
}

// publish appends the WRITEs of a primary to the flight's background requests: the first line, which
// releases the lock, last.
func (k *client) publish(im image) {
	a := k.w.at(im.addr, 0)
	if im.n > record.LineSize {
		body := a
		body.Off += record.LineSize
		k.f.bg.Write(body, im.local+record.LineSize, im.n-record.LineSize)
	}
	k.f.bg.Write(a, im.local, record.LineSize)
}

// release gives a lock back that the transaction has taken.
func (k *client) release(a memory.Addr, prior record.Guard) {
	to := k.w.at(a, 0)
	to.Off += record.GuardOff
	k.c.Thread().PutWord(k.word, uint64(prior))
	b := &k.batch
	b.Reset()
	b.Write(to, k.word, 8)
	k.c.Post(b)
	_ = k.c.Drain(b) // not a round trip of the transaction, but the word is used again
}

// work charges processor time.
func (w *world) work(ns float64) {
	if ns > 0 {
		w.fabric.Work(ns)
	}
}

// keyOf is the encoding of a key: its order is that of the numbers.
func keyOf(n uint64) [8]byte {
	var key [8]byte
	binary.BigEndian.PutUint64(key[:], n)
	return key
}
