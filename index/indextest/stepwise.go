package indextest

import (
	"encoding/binary"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"txnode/rdma"
)

// Stepwise is a fabric on which a seed decides, at every line of every verb, which
// client goes on: the schedules between verbs of several clients, without the
// noise of latencies. Clients run in bursts whose length depends on the seed, so
// that one may do whole operations between two verbs of another. A client can be
// stopped for ever between two of its verbs. It is for one goroutine.
type Stepwise struct {
	mem    [][]byte
	rng    *rand.Rand
	seed   uint64
	stay   int // of 1024: how likely the same client goes on
	now    int64
	actors []*actor
	cur    *actor
	ports  []*stepPort
	before map[int]func(w *rdma.WR) // by thread
	turns  []int                    // nil: the seed decides
	who    int                      // whose turn it is
	short  bool                     // a client has ended before its turn had
}

// actor is a client within Run.
type actor struct {
	id    int
	yield func(struct{}) bool
	next  func() (struct{}, bool)
	until int64 // it waits
}

// NewStepwise makes a fabric; see MemoryOptions.
func NewStepwise(_ testing.TB, blades int, size, seed uint64) rdma.Fabric {
	f := &Stepwise{
		rng: rand.New(rand.NewPCG(seed, 77)), seed: seed, stay: [...]int{0, 512, 900, 1000, 1016, 1021}[seed/2%6],
	}
	for range blades {
		f.mem = append(f.mem, make([]byte, size))
	}
	return f
}

// Name returns "stepwise".
func (f *Stepwise) Name() string { return "stepwise" }

// Caps are those of a synchronous fabric.
func (f *Stepwise) Caps() rdma.Caps {
	return rdma.Caps{Synchronous: true, Placed: true, OrderedLine: true, MaxBatch: 32}
}

// Blades lists the blades.
func (f *Stepwise) Blades() []rdma.BladeInfo {
	var all []rdma.BladeInfo
	for i := range f.mem {
		all = append(all, rdma.BladeInfo{ID: rdma.BladeID(i), Size: uint64(len(f.mem[i])), Key: 1, Incarnation: 1})
	}
	return all
}

// NewPort makes a port.
func (f *Stepwise) NewPort(cfg rdma.PortConfig) (rdma.Port, error) {
	p := &stepPort{f: f, index: len(f.ports), arena: make([]byte, cfg.Arena), left: -1}
	f.ports = append(f.ports, p)
	return p, nil
}

// Stop makes the thread's verbs fail, without effect, after n more of them; a
// negative n lets it live. Threads are numbered in the order in which they were made.
func (f *Stepwise) Stop(thread, n int) { f.ports[thread].left = n }

// Before has fn called before every verb of a thread, which others may go on in
// meanwhile; nil: nothing.
func (f *Stepwise) Before(thread int, fn func(w *rdma.WR)) {
	if f.before == nil {
		f.before = map[int]func(w *rdma.WR){}
	}
	f.before[thread] = fn
}

// Left is how many verbs a thread still has, negative if it is not to be stopped.
func (f *Stepwise) Left(thread int) int { return f.ports[thread].left }

// Now is a clock that each line of each verb moves on.
func (f *Stepwise) Now() int64 { return f.now }

// Seed returns the seed.
func (f *Stepwise) Seed() uint64 { return f.seed }

// Provision does nothing: all memory is there.
func (f *Stepwise) Provision(rdma.BladeID, uint64, uint64) error { return nil }

// Grant returns the key of all blades: keys are not checked.
func (f *Stepwise) Grant(rdma.BladeID) (rdma.Key, error) { return 1, nil }

// Revoke does nothing.
func (f *Stepwise) Revoke(rdma.BladeID, rdma.Key) error { return nil }

// Close does nothing.
func (f *Stepwise) Close() error { return nil }

// Run runs the bodies as coroutines of the calling goroutine.
func (f *Stepwise) Run(n int, fn func(i int)) {
	f.actors = nil
	for i := range n {
		a := &actor{id: i}
		next, stop := iter.Pull(func(yield func(struct{}) bool) {
			a.yield = yield
			fn(i)
		})
		defer stop()
		a.next = next
		f.actors = append(f.actors, a)
	}
	for len(f.actors) > 0 {
		i := f.choose()
		f.cur = f.actors[i]
		if _, more := f.cur.next(); !more {
			f.actors = append(f.actors[:i], f.actors[i+1:]...)
			f.cur = nil
		}
	}
}

// Turns runs two clients: the first one for so many steps, then the other one, and so on, and at
// last the first one to its end, and then the other one. all reports whether no client has ended
// before its turn had.
func (f *Stepwise) Turns(turns []int, clients ...func()) (all bool) {
	f.turns, f.who, f.short = append([]int{}, turns...), 0, false
	f.Run(len(clients), func(i int) { clients[i]() })
	f.turns = nil
	return !f.short
}

// turn is the client whose turn it is.
func (f *Stepwise) turn() int {
	for len(f.turns) > 0 && f.turns[0] == 0 {
		f.turns, f.who = f.turns[1:], 1-f.who
	}
	if len(f.turns) == 0 {
		return 0
	}
	f.turns[0]--
	return f.who
}

// choose returns which actor goes on; if all wait, time passes until one need not.
func (f *Stepwise) choose() int {
	who := -1
	if f.turns != nil {
		who = f.turn()
		f.short = f.short || len(f.turns) > 0 && !slices.ContainsFunc(f.actors, func(a *actor) bool {
			return a.id == who
		})
	}
	var ready []int
	soonest := int64(math.MaxInt64)
	for i, a := range f.actors {
		if a.until <= f.now {
			if a.id == who || who < 0 && a == f.cur && f.rng.IntN(1024) < f.stay {
				return i
			}
			ready = append(ready, i)
		}
		soonest = min(soonest, a.until)
	}
	if len(ready) == 0 {
		f.now = soonest
		return f.choose()
	}
	if who >= 0 {
		return ready[0]
	}
	return ready[f.rng.IntN(len(ready))]
}

// step lets others go on.
func (f *Stepwise) step() {
	f.now += 10
	if f.cur != nil {
		f.cur.yield(struct{}{})
	}
}

type stepPort struct {
	f     *Stepwise
	index int
	arena []byte
	left  int
}

func (p *stepPort) Post(b *rdma.Batch, first int) {
	failed := 0
	for i := first; i < b.Len(); i++ {
		w := b.WR(i)
		if fn := p.f.before[p.index]; fn != nil {
			fn(w)
		}
		if p.left == 0 {
			failed++
			b.Complete(i, rdma.StatusTimeout)
			continue
		}
		p.left--
		mem := p.f.mem[w.Blade]
		if w.Off > uint64(len(mem)) || uint64(w.Len) > uint64(len(mem))-w.Off {
			panic(fmt.Sprintf("stepwise: %v of [%#x, +%#x) of %#x bytes", w.Op, w.Off, w.Len, len(mem)))
		}
		switch w.Op {
		case rdma.OpRead, rdma.OpWrite:
			for _, at := range p.lines(w) {
				p.f.step()
				n := min(rdma.LineSize-(w.Off+at)%rdma.LineSize, uint64(w.Len)-at)
				local, remote := p.arena[uint64(w.Local)+at:][:n], mem[w.Off+at:][:n]
				if w.Op == rdma.OpRead {
					copy(local, remote)
				} else {
					copy(remote, local)
				}
			}
		case rdma.OpCAS:
			p.f.step()
			if w.Result = binary.LittleEndian.Uint64(mem[w.Off:]); w.Result == w.Cmp {
				binary.LittleEndian.PutUint64(mem[w.Off:], w.Swap)
			}
		default:
			panic("stepwise: " + w.Op.String())
		}
	}
	b.CompleteAll(b.Len() - first - failed)
}

// lines are the offsets of a request's lines, in any order.
func (p *stepPort) lines(w *rdma.WR) []uint64 {
	var all []uint64
	for at := uint64(0); at < uint64(w.Len); at += rdma.LineSize - (w.Off+at)%rdma.LineSize {
		all = append(all, at)
	}
	p.f.rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

func (p *stepPort) Poll() {}

func (p *stepPort) Wait(until int64) {
	a := p.f.cur
	if a == nil {
		p.f.now = max(p.f.now, until)
		return
	}
	a.until = until
	p.f.step()
	a.until = 0
}

func (p *stepPort) Now() int64               { return p.f.now }
func (p *stepPort) Arena() []byte            { return p.arena }
func (p *stepPort) Reset(rdma.BladeID) error { return nil }
func (p *stepPort) Close() error             { return nil }
