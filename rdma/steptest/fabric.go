package steptest

import (
	"bytes"
	"fmt"
	"hash/maphash"
	"slices"

	"txnode/rdma"
)

// Grain is how much happens in one move.
type Grain uint8

// Grains, from coarse to fine.
const (
	Batches Grain = iota // what a client has posted at once, on all blades
	Queues               // the part of it that is for one blade
	Verbs                // one request
	Words                // half a request, if it is a READ or WRITE of more than a word
)

// Options of a fabric.
type Options struct {
	Blades int
	Size   uint64 // of each blade's region, a multiple of 4096
	Grain  Grain
	// Caps that the fabric keeps; Synchronous and Durable are ignored.
	Caps rdma.Caps
	// EagerReads makes READs happen as soon as nothing of their queue pair is in
	// front of them. No schedule is lost by it while there is one client.
	EagerReads bool
	// Control makes a step of each call to Blades, Grant and Revoke by a client: see Fabric.Step.
	Control bool
	// Wakes makes it a move that a client wakes up: once between two moves of other kinds. Else
	// clients sleep as long as anything else can happen.
	Wakes bool
}

const pageSize = 4096

// Fabric is the fabric. It belongs to one goroutine.
type Fabric struct {
	o    Options
	now  int64
	mem  [][]byte
	keys []rdma.Keys
	// lives are the incarnations of the blades.
	lives []uint64
	down  []bool // blades that are stopped
	cut   map[cut]bool
	// Done, if not nil, is told of each request that has been executed.
	Done  func(c *Client, w *rdma.WR)
	ports []*port
	cur   *Client

	clients []*Client
	posts   int
	moved   int      // moves but for wakes
	spare   [][]byte // arenas of ports that are gone

	saved      [][]byte
	savedKeys  []rdma.Keys
	savedLives []uint64
	savedNow   int64
	dirty      []page
	isDirty    []bool // by blade and page
}

type page struct {
	blade rdma.BladeID
	n     uint32
}

var _ rdma.Fabric = (*Fabric)(nil)

// New makes a fabric.
func New(o Options) *Fabric {
	o.Caps.Synchronous, o.Caps.Durable = false, true
	if o.Caps.MaxBatch == 0 {
		o.Caps.MaxBatch = 64
	}
	f := &Fabric{o: o}
	for i := range o.Blades {
		f.mem = append(f.mem, make([]byte, o.Size))
		f.keys = append(f.keys, rdma.NewKeys(rdma.Key(100+i), 0))
		f.lives = append(f.lives, 1)
	}
	f.isDirty = make([]bool, uint64(o.Blades)*f.pages())
	f.down = make([]bool, o.Blades)
	f.Save()
	return f
}

func (f *Fabric) pages() uint64 { return f.o.Size / pageSize }

// SetGrain changes what a move is, from the next one on, and whether READs are eager.
func (f *Fabric) SetGrain(g Grain, eagerReads bool) { f.o.Grain, f.o.EagerReads = g, eagerReads }

// Name returns "step".
func (f *Fabric) Name() string { return "step" }

// Caps returns those of the options.
func (f *Fabric) Caps() rdma.Caps { return f.o.Caps }

// Blades lists the blades.
func (f *Fabric) Blades() []rdma.BladeInfo {
	f.control("blades", func(to []Access) []Access {
		for b := range f.keys {
			to = append(to, Access{Blade: rdma.BladeID(b), What: oldest, N: 1})
		}
		return to
	})
	var all []rdma.BladeInfo
	for i := range f.keys {
		all = append(all, rdma.BladeInfo{
			ID: rdma.BladeID(i), Size: f.o.Size, Key: f.keys[i].Oldest(), Incarnation: f.lives[i],
		})
	}
	return all
}

// Now is a clock that every move advances.
func (f *Fabric) Now() int64 { return f.now }

// Seed returns 1: nothing is random.
func (f *Fabric) Seed() uint64 { return 1 }

// Run calls the functions one after another, synchronously.
func (f *Fabric) Run(n int, fn func(i int)) {
	for i := range n {
		fn(i)
	}
}

// Provision checks the range: all memory is there.
func (f *Fabric) Provision(b rdma.BladeID, off, n uint64) error {
	if int(b) >= len(f.mem) {
		return fmt.Errorf("steptest: blade %d: %w", b, rdma.ErrBladeDown)
	}
	if f.down[b] || f.cutOff(f.cur, b) {
		return stoppedBlade(b)
	}
	if off > f.o.Size || n > f.o.Size-off {
		return fmt.Errorf("steptest: blade %d: %w", b, rdma.ErrNoMemory)
	}
	return nil
}

// Grant adds an access key to a blade: rdma.Fabric.
func (f *Fabric) Grant(b rdma.BladeID) (rdma.Key, error) {
	f.control("grant", func(to []Access) []Access {
		to = append(to, Access{Blade: b, What: granted, N: 1, Writes: true})
		if int(b) < len(f.keys) && len(slices.Collect(f.keys[b].All())) == rdma.MaxKeys { // one of them ends
			to = append(to, Access{Blade: b, What: opens, N: 1, Writes: true})
		}
		return to
	})
	if int(b) >= len(f.mem) {
		return 0, fmt.Errorf("steptest: blade %d: %w", b, rdma.ErrBladeDown)
	}
	if f.down[b] || f.cutOff(f.cur, b) {
		return 0, stoppedBlade(b)
	}
	return f.keys[b].Grant(), nil
}

// Revoke ends the access keys of a blade that are older than before: rdma.Fabric. WRITEs that
// have completed are placed first.
func (f *Fabric) Revoke(b rdma.BladeID, before rdma.Key) error {
	f.control("revoke", func(to []Access) []Access {
		idle := int(b) >= len(f.keys) || f.keys[b].Oldest() == before
		for _, what := range []Realm{oldest, granted, opens} {
			to = append(to, Access{Blade: b, What: what, N: 1, Writes: !idle})
		}
		for _, p := range f.ports {
			for _, l := range p.qps[b].landing {
				to = append(to, Access{Blade: b, Off: l.off, N: l.n, Writes: true})
			}
		}
		return to
	})
	if int(b) >= len(f.mem) {
		return fmt.Errorf("steptest: blade %d: %w", b, rdma.ErrBladeDown)
	}
	if f.down[b] || f.cutOff(f.cur, b) {
		return stoppedBlade(b)
	}
	if !f.keys[b].Opens(before) {
		return fmt.Errorf("steptest: blade %d: key %#x opens nothing: %w", b, before, rdma.ErrStaleKey)
	}
	for _, p := range f.ports {
		p.qps[b].place()
	}
	f.keys[b].Revoke(before)
	return nil
}

// cut is a blade that a process cannot reach.
type cut struct {
	process int
	blade   rdma.BladeID
}

// Cut has the requests of a process to a blade fail until Restore, and its calls to the blade.
func (f *Fabric) Cut(process int, b rdma.BladeID) {
	if f.cut == nil {
		f.cut = map[cut]bool{}
	}
	f.cut[cut{process, b}] = true
}

// cutOff reports whether a client cannot reach a blade.
func (f *Fabric) cutOff(c *Client, b rdma.BladeID) bool {
	return len(f.cut) > 0 && c != nil && f.cut[cut{c.Process, b}]
}

func stoppedBlade(b rdma.BladeID) error {
	return fmt.Errorf("steptest: blade %d is stopped: %w", b, rdma.ErrBladeDown)
}

// StopBlade stops a blade until Restore: requests to it fail from now on, and WRITEs
// that are not placed are lost.
func (f *Fabric) StopBlade(b rdma.BladeID) {
	f.down[b] = true
	for _, p := range f.ports {
		p.qps[b].forget()
	}
}

// All appends all that there is of a blade, as changed: what a step touches that stops it.
func (f *Fabric) All(b rdma.BladeID, to []Access) []Access {
	for what := range Outside {
		to = append(to, Access{What: what, Blade: b, N: f.o.Size, Writes: true})
	}
	return to
}

// RestartBlade stops a blade and brings it back at once, with what its memory held, or
// with all of it zero: WRITEs that are not placed are lost, its access key is one that
// nobody knows, and requests fail on every queue pair that was made before, until it is
// reset.
func (f *Fabric) RestartBlade(b rdma.BladeID, memory bool) {
	f.StopBlade(b)
	f.down[b] = false
	for _, p := range f.ports {
		p.qps[b].gone = true
	}
	f.keys[b].Renew()
	f.lives[b]++
	if memory {
		return
	}
	for at := uint64(0); at < f.o.Size; at += pageSize {
		page := f.mem[b][at : at+pageSize]
		if !bytes.Equal(page, blank[:]) {
			f.touch(b, at, pageSize)
			clear(page)
		}
	}
}

var blank [pageSize]byte

// Close does nothing.
func (f *Fabric) Close() error { return nil }

// Memory is a blade's region as it is now. It must not be written to.
func (f *Fabric) Memory(b rdma.BladeID) []byte { return f.mem[b] }

// Save makes the present memory, keys and time what Restore goes back to. No
// client runs.
func (f *Fabric) Save() {
	f.saved = nil
	for _, m := range f.mem {
		f.saved = append(f.saved, append([]byte(nil), m...))
	}
	f.savedKeys = append([]rdma.Keys(nil), f.keys...)
	f.savedLives = append([]uint64(nil), f.lives...)
	f.savedNow = f.now
	for _, p := range f.dirty {
		f.isDirty[uint64(p.blade)*f.pages()+uint64(p.n)] = false
	}
	f.dirty = f.dirty[:0]
}

// Restore puts memory, keys and time back to those saved, and forgets all ports and
// clients.
func (f *Fabric) Restore() {
	f.End()
	for _, p := range f.dirty {
		at := uint64(p.n) * pageSize
		copy(f.mem[p.blade][at:at+pageSize], f.saved[p.blade][at:])
		f.isDirty[uint64(p.blade)*f.pages()+uint64(p.n)] = false
	}
	f.dirty = f.dirty[:0]
	copy(f.keys, f.savedKeys)
	copy(f.lives, f.savedLives)
	clear(f.down)
	clear(f.cut)
	f.now, f.posts, f.moved = f.savedNow, 0, 0
	for _, p := range f.ports {
		f.spare = append(f.spare, p.arena)
	}
	f.ports = f.ports[:0]
}

// Hash tells states of the memory apart, as far as it differs from what was saved,
// within one process.
func (f *Fabric) Hash() uint64 {
	var h uint64
	for _, p := range f.dirty {
		at := uint64(p.n) * pageSize
		now, was := f.mem[p.blade][at:at+pageSize], f.saved[p.blade][at:at+pageSize]
		h += (maphash.Bytes(seed, now) - maphash.Bytes(seed, was)) * (maphash.Comparable(seed, p) | 1)
	}
	return h
}

var seed = maphash.MakeSeed()

// touch notes that [off, off+n) of a blade's region changes.
func (f *Fabric) touch(b rdma.BladeID, off, n uint64) {
	for p := off / pageSize; p <= (off+n-1)/pageSize; p++ {
		if i := uint64(b)*f.pages() + p; !f.isDirty[i] {
			f.isDirty[i] = true
			f.dirty = append(f.dirty, page{b, uint32(p)})
		}
	}
}

// Changed reports whether the page of a blade's region that off is in may differ from
// what was saved.
func (f *Fabric) Changed(b rdma.BladeID, off uint64) bool {
	return f.isDirty[uint64(b)*f.pages()+off/pageSize]
}
