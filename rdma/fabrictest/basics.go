package fabrictest

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"txnode/rdma"
)

// fabricItself checks the control path.
func fabricItself(tb testing.TB, open Open) {
	const size = 1 << 17
	r := start(tb, open, 3, size, 0)
	f := r.f
	if f.Name() == "" || strings.ToLower(f.Name()) != f.Name() {
		tb.Errorf("Name is %q; want a short lower-case name", f.Name())
	}
	if seed := f.Seed(); seed != f.Seed() {
		tb.Error("Seed changes")
	}
	if r.caps.MaxBatch < 1 {
		tb.Errorf("Caps.MaxBatch is %d; want at least 1", r.caps.MaxBatch)
	}
	if blades := f.Blades(); len(blades) != 3 {
		tb.Fatalf("%d blades; want 3", len(blades))
	}
	for i, b := range f.Blades() {
		if b.ID != rdma.BladeID(i) || b.Size != size || b.ReadOnly {
			tb.Errorf("blade %d is %+v; want its index as id, %d bytes, writable", i, b, size)
		}
	}
	if t0 := f.Now(); f.Now() < t0 {
		tb.Error("Now runs backwards")
	}

	for _, x := range []struct{ off, n uint64 }{{0, size}, {64, 0}, {size, 0}, {4096, 4096}, {4096, 8192}} {
		if err := f.Provision(1, x.off, x.n); err != nil {
			tb.Errorf("Provision(1, %#x, %#x) of %#x bytes: %v", x.off, x.n, size, err)
		}
	}
	for _, x := range []struct{ off, n uint64 }{
		{0, size + 1}, {size, 1}, {size + 1, 0}, {64, ^uint64(0)}, {^uint64(0), 64},
	} {
		if err := f.Provision(1, x.off, x.n); !errors.Is(err, rdma.ErrNoMemory) {
			tb.Errorf("Provision(1, %#x, %#x) of %#x bytes: %v; want ErrNoMemory", x.off, x.n, size, err)
		}
	}
	if err := f.Provision(3, 0, 64); !errors.Is(err, rdma.ErrBladeDown) {
		tb.Errorf("Provision of blade 3 of 3: %v; want ErrBladeDown", err)
	}
	if _, err := f.Grant(3); !errors.Is(err, rdma.ErrBladeDown) {
		tb.Errorf("Grant of blade 3 of 3: %v; want ErrBladeDown", err)
	}
	if err := f.Revoke(3, f.Blades()[0].Key); !errors.Is(err, rdma.ErrBladeDown) {
		tb.Errorf("Revoke of blade 3 of 3: %v; want ErrBladeDown", err)
	}

	for _, n := range []int{0, -1} {
		if p, err := f.NewPort(rdma.PortConfig{Arena: n}); err == nil {
			p.Close()
			tb.Errorf("NewPort with an arena of %d bytes: no error", n)
		}
	}
	p, err := f.NewPort(rdma.PortConfig{Arena: 100_000})
	if err != nil {
		tb.Fatalf("NewPort: %v", err)
	}
	mem := p.Arena()
	if len(mem) < 100_000 || uintptr(unsafe.Pointer(&mem[0]))%rdma.LineSize != 0 {
		tb.Errorf("the arena has %d bytes at %p; want at least 100000, 64-byte aligned", len(mem), &mem[0])
	}
	for i, b := range mem {
		if b != 0 {
			tb.Errorf("byte %d of a new arena is %#x", i, b)
			break
		}
	}
	if err := p.Reset(3); err == nil {
		tb.Error("Reset of the queue pair to blade 3 of 3: no error")
	}
	if err := p.Close(); err != nil {
		tb.Errorf("closing a port: %v", err)
	}
}

// concurrent checks that Run runs each index once, and that threads which wait
// for each other, and for time, get on.
func concurrent(tb testing.TB, open Open) {
	r := start(tb, open, 1, 1<<16, 3)
	var ran [3]atomic.Int32
	r.f.Run(3, func(i int) { ran[i].Add(1) })
	for i := range ran {
		if n := ran[i].Load(); n != 1 {
			tb.Errorf("Run(3) called index %d %d times", i, n)
		}
	}
	r.f.Run(0, func(int) { tb.Error("Run(0) called something") })

	rounds := uint64(r.rounds(200))
	ball := r.at(0, 128)
	player := func(w *worker) {
		me := uint64(w.t.Index())
		for v := me; v < 3*rounds; v += 3 {
			if !w.await(ball, v) {
				return
			}
			if prior := w.cas(ball, v, v+1); prior != v {
				w.Errorf("the ball was at %d when it was player %d's turn, at %d", prior, me, v)
			}
		}
	}
	r.run(player, player, player)

	r.run(func(w *worker) {
		for _, d := range []int64{0, 1, 50_000} {
			t0 := w.t.Now()
			w.c.Sleep(d)
			if t := w.t.Now(); t < t0+d {
				w.Errorf("Sleep(%d) took %d ns", d, t-t0)
			}
		}
	})
}

// synchronous checks Caps.Synchronous: Post returns with all completions in.
func synchronous(tb testing.TB, open Open) {
	r := start(tb, open, 2, 1<<16, 1)
	r.run(func(w *worker) {
		for i := range 20 {
			w.b.Reset()
			for j := range i + 1 {
				w.b.Write(w.at(rdma.BladeID(j%2), uint64(j)*64), w.buf, 64)
			}
			w.c.Post(&w.b)
			if w.caps.Synchronous && !w.b.Done() {
				w.Error("Caps.Synchronous, but Post returned with requests outstanding")
			}
			if err := w.c.Wait(&w.b); err != nil || !w.b.Done() {
				w.Errorf("Wait: %v; done: %v", err, w.b.Done())
			}
		}
	})
}

// maxBatch posts more at once than a queue pair holds.
func maxBatch(tb testing.TB, open Open) {
	r := start(tb, open, 2, 1<<16, 1)
	r.run(func(w *worker) {
		n := min(2*w.caps.MaxBatch+1, 5000)
		w.b.Reset()
		for i := range n {
			w.t.PutWord(w.buf+uint32(i)*8, uint64(i)+7)
			w.b.Write(w.at(0, uint64(i)*8), w.buf+uint32(i)*8, 8)
		}
		w.do()
		for i := range n {
			w.t.PutWord(w.buf+uint32(i)*8, 0)
		}
		w.b.Reset()
		for i := range n {
			w.b.Read(w.at(0, uint64(i)*8), w.buf+uint32(i)*8, 8)
			w.b.Read(w.at(1, uint64(i)*8), w.buf+uint32(n)*8, 8)
		}
		w.do()
		for i := range n {
			if v := w.t.Word(w.buf + uint32(i)*8); v != uint64(i)+7 {
				w.Fatalf("word %d of %d posted at once is %d; want %d", i, n, v, i+7)
			}
		}
	})
}

// counters checks that what is posted is counted, exactly.
func counters(tb testing.TB, open Open) {
	r := start(tb, open, 3, 1<<16, 1)
	t := r.threads[0]
	var phase rdma.Counters
	r.run(func(w *worker) {
		c, b := w.c, &w.b
		b.Read(w.at(0, 0), w.buf, 64)
		b.Write(w.at(1, 0), w.buf, 24)
		b.Read(w.at(1, 64), w.buf+64, 100)
		w.do() // 2 doorbells
		b.CAS(w.at(2, 0), 0, 1)
		c.Post(b)
		b.FAA(w.at(2, 0), 1)
		b.Flush(w.at(2, 0), 8)
		c.Post(b)
		if err := c.Wait(b); err != nil { // one wait for both
			w.Error(err)
		}
		if err := c.Wait(b); err != nil { // nothing new: no round trip
			w.Error(err)
		}
		c.Post(b) // nothing new: no doorbell
		b.Reset()
		if err := c.Do(b); err != nil {
			w.Error(err)
		}
		c.Count = &phase
		b.Read(w.at(0, 0), w.buf, 8)
		c.Post(b)
		if err := c.Drain(b); err != nil { // no round trip
			w.Error(err)
		}
	})
	t.Plain().Count = new(rdma.Counters)
	want := rdma.Counters{RoundTrips: 2, Doorbells: 4, BytesRead: 164, BytesWrite: 40}
	want.Verbs = [rdma.NumOps]uint64{rdma.OpRead: 2, rdma.OpWrite: 1, rdma.OpCAS: 1, rdma.OpFAA: 1, rdma.OpFlush: 1}
	if got := t.Counters(); got != want {
		tb.Errorf("counted %+v; want %+v", got, want)
	}
	want = rdma.Counters{Doorbells: 1, BytesRead: 8}
	want.Verbs[rdma.OpRead] = 1
	if phase != want {
		tb.Errorf("counted elsewhere %+v; want %+v", phase, want)
	}
}

// realTime: the clock goes on by itself, and a goroutine that is none of Run's can use the fabric.
func realTime(tb testing.TB, open Open) {
	r := start(tb, open, 1, 1<<16, 2)
	if !r.caps.RealTime {
		tb.Skip("time is virtual")
	}
	now := r.f.Now()
	for i := 0; r.f.Now() == now; i++ {
		if i == 1000 {
			tb.Fatalf("Now is %d, and stays so while nobody does anything", now)
		}
		time.Sleep(time.Millisecond)
	}
	beside := make(chan error)
	r.run(func(w *worker) {
		go func() {
			var b rdma.Batch
			b.FAA(r.at(0, 64), 1)
			beside <- r.threads[1].Plain().Do(&b)
		}()
		if !w.await(w.at(0, 64), 1) {
			return
		}
		if err := <-beside; err != nil {
			w.Errorf("a goroutine beside Run: %v", err)
		}
	})
}
