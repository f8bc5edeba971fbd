package rdma_test

import (
	"testing"

	"txnode/rdma"
	"txnode/rdma/inproc"
)

// echo is a fabric without memory: what is posted completes at the next Poll or
// Wait. It allocates nothing, so that what package rdma allocates shows.
type echo struct {
	rdma.Fabric
	caps  rdma.Caps
	arena []byte
	out   []posted
	now   int64
}

type posted struct {
	b *rdma.Batch
	i int
}

func newEcho(caps rdma.Caps) *echo {
	return &echo{caps: caps, arena: make([]byte, 4096), out: make([]posted, 0, 1024)}
}

func (e *echo) Caps() rdma.Caps                            { return e.caps }
func (e *echo) Blades() []rdma.BladeInfo                   { return make([]rdma.BladeInfo, 4) }
func (e *echo) NewPort(rdma.PortConfig) (rdma.Port, error) { return e, nil }
func (e *echo) Seed() uint64                               { return 1 }
func (e *echo) Arena() []byte                              { return e.arena }
func (e *echo) Reset(rdma.BladeID) error                   { return nil }
func (e *echo) Close() error                               { return nil }
func (e *echo) Now() int64                                 { return e.now }
func (e *echo) Wait(until int64) {
	if e.Poll(); until < 1<<62 {
		e.now = max(e.now, until)
	}
}

func (e *echo) Post(b *rdma.Batch, first int) {
	for i := first; i < b.Len(); i++ {
		e.out = append(e.out, posted{b, i})
	}
	if e.caps.Synchronous {
		e.out = e.out[:0]
		b.CompleteAll(b.Len() - first)
	}
}

func (e *echo) Poll() {
	e.now += 50
	for _, x := range e.out {
		x.b.Complete(x.i, rdma.StatusOK)
	}
	e.out = e.out[:0]
}

// TestNoAllocations: at steady state nothing on the data path allocates, on
// fabrics that complete at once or later, on plain and other coroutines.
func TestNoAllocations(t *testing.T) {
	fabrics := map[string]rdma.Fabric{
		"later":                 newEcho(rdma.Caps{MaxBatch: 64}),
		"later, placed":         newEcho(rdma.Caps{MaxBatch: 64, Placed: true, MaskedCAS: true}),
		"at once, but unplaced": newEcho(rdma.Caps{MaxBatch: 64, Synchronous: true}),
		"at once":               newEcho(rdma.Caps{MaxBatch: 64, Synchronous: true, Placed: true}),
	}
	in, err := inproc.New(inproc.Options{Blades: make4(1 << 16)})
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	fabrics["inproc"] = in
	for name, f := range fabrics {
		t.Run(name, func(t *testing.T) {
			th, err := rdma.NewThread(f, rdma.ThreadOptions{Techniques: rdma.AllTechniques, Arena: 4096})
			must(t, err)
			defer th.Close()
			var all, fence rdma.Batch
			blades := f.Blades()
			first := rdma.RemoteAddr{Key: blades[0].Key}
			transaction := func(c *rdma.Coro, b *rdma.Batch) {
				c.BeginOp()
				for range 3 {
					b.Reset()
					for blade := range rdma.BladeID(4) {
						a := rdma.RemoteAddr{Blade: blade, Key: blades[blade].Key}
						b.CAS(a, 0, 0)
						b.Read(a, 0, 64)
						b.Write(a, 64, 64)
						b.FAA(a, 1)
						b.Flush(a, 8)
					}
					c.Post(b)
					b.Read(first, 0, 8)
					c.Post(b)
					if err := c.Wait(b); err != nil {
						t.Error(err)
					}
				}
				b.Reset()
				b.Write(first, 64, 8)
				c.Post(b)
				if err := c.Fence(rdma.FenceThread, 0, &fence); err != nil {
					t.Error(err)
				}
				if err := c.Drain(b); err != nil {
					t.Error(err)
				}
				if _, err := c.MaskedCAS(b, first, 0, 1, 2, 3, 128); err != nil {
					t.Error(err)
				}
				c.Backoff()
				c.Yield()
				c.Sleep(100)
				c.EndOp()
			}
			if n := testing.AllocsPerRun(100, func() { transaction(th.Plain(), &all) }); n > 0 {
				t.Errorf("plain: %v allocations", n)
			}
			// Each coroutine runs its transactions between two measurements that
			// coroutine 0 makes; the first ones let the queues grow.
			var batches [8]rdma.Batch
			stop := false
			th.Run(len(batches), func(c *rdma.Coro) {
				if c.ID() > 0 {
					for !stop {
						transaction(c, &batches[c.ID()])
					}
					return
				}
				if n := testing.AllocsPerRun(100, func() { transaction(c, &batches[0]) }); n > 0 {
					t.Errorf("coroutines: %v allocations", n)
				}
				stop = true
			})
			counters := th.Counters()
			if counters.Total() < 100*60 {
				t.Errorf("only %d verbs were posted", counters.Total())
			}
			if n := testing.AllocsPerRun(100, func() {
				local, _ := th.Alloc(64)
				th.PutWord(local, th.Rand())
				th.Free(local, 64)
				_ = th.Counters()
				_ = th.Limits()
			}); n > 0 {
				t.Errorf("thread: %v allocations", n)
			}
		})
	}
}

func make4(size uint64) []inproc.BladeOptions {
	b := make([]inproc.BladeOptions, 4)
	for i := range b {
		b[i].Size = size
	}
	return b
}
