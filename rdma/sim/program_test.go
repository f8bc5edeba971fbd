package sim_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"txnode/rdma"
	"txnode/rdma/sim"
)

// quiet is a machine without variation.
func quiet() sim.Profile {
	p := sim.ConnectX6()
	p.JitterNs, p.CPUNoise = 0, 0
	return p
}

// oneThread runs fn on coroutines of one thread and returns the fabric.
func oneThread(t *testing.T, o sim.Options, blades, coros int, fn func(c *rdma.Coro)) *sim.Fabric {
	t.Helper()
	f := newFabric(t, blades, o)
	th := newThread(t, f, rdma.ThreadOptions{Arena: 1 << 16})
	f.Run(1, func(int) { th.Run(coros, fn) })
	return f
}

func read(t *testing.T, c *rdma.Coro, b *rdma.Batch, blade rdma.BladeID, n uint32) {
	t.Helper()
	b.Reset()
	b.Read(at(blade, 64*uint64(c.ID())), uint32(c.ID())*4096, n)
	if err := c.Do(b); err != nil {
		t.Error(err)
	}
}

// Work moves the clock of the body that calls, by as much as active threads make of it.
func TestWork(t *testing.T) {
	p := quiet()
	p.CPUFree, p.CPUSlope = 0, 1
	var idle, active int64
	f := newFabric(t, 1, sim.Options{Profile: p, Freedom: sim.FreedomNone})
	th := newThread(t, f, rdma.ThreadOptions{Arena: 4096})
	f.Work(1000) // outside Run nobody computes
	before := f.Now()
	f.Run(1, func(int) {
		from := f.Now()
		f.Work(1000)
		idle = f.Now() - from
		var b rdma.Batch
		read(t, th.Plain(), &b, 0, 8)
		from = f.Now()
		f.Work(1000)
		f.Work(-1)
		active = f.Now() - from
	})
	if before != 0 || idle != 1000 || active != 2000 {
		t.Errorf("work of 1000 ns took %d outside Run, %d on an idle machine, %d with a thread active on one that is "+
			"half as fast then", before, idle, active)
	}
}

// PerRecord rings a doorbell for each record: requests that overlap belong together.
func TestPerRecord(t *testing.T) {
	for _, test := range []struct {
		name   string
		append func(b *rdma.Batch)
		want   int
	}{
		{"lock and read", func(b *rdma.Batch) { b.CAS(at(0, 40), 0, 1); b.Read(at(0, 0), 0, 64) }, 1},
		{"two reads", func(b *rdma.Batch) { b.Read(at(0, 0), 0, 64); b.Read(at(0, 64), 64, 64) }, 2},
		{"guard, image, flush, another", func(b *rdma.Batch) {
			b.Write(at(0, 56), 0, 8)
			b.Write(at(0, 0), 64, 64)
			b.Read(at(0, 0), 0, 1)
			b.Write(at(0, 128), 0, 8)
		}, 2},
		{"image, release", func(b *rdma.Batch) { b.Write(at(0, 0), 0, 64); b.Write(at(0, 56), 64, 8) }, 2},
		{"two blades", func(b *rdma.Batch) { b.Read(at(0, 0), 0, 64); b.Read(at(1, 0), 64, 64) }, 2},
	} {
		for _, split := range []bool{false, true} {
			p := quiet()
			p.BatchNs, p.PostNs, p.SwitchNs = 0, 0, 0
			p.DoorbellNs = 1e6
			var took int64
			var b rdma.Batch
			o := sim.Options{Profile: p, Freedom: sim.FreedomNone, Program: sim.Program{PerRecord: split}}
			oneThread(t, o, 2, 1, func(c *rdma.Coro) {
				test.append(&b)
				from := c.Thread().Now()
				c.Post(&b)
				took = c.Thread().Now() - from
				if err := c.Wait(&b); err != nil {
					t.Error(err)
				}
			})
			want := int64(test.want)
			if !split {
				want = 1
				if test.name == "two blades" {
					want = 2
				}
			}
			if took != want*1e6 {
				t.Errorf("%s, a doorbell per record %v: %d doorbells, want %d", test.name, split, took/1e6, want)
			}
		}
	}
}

// With Force a coroutine wants everything acknowledged that its thread had posted,
// and one that was looked at too early is looked at again after Force switches only;
// with CreditWakes, at the next completion.
func TestForce(t *testing.T) {
	latency := func(prog sim.Program) int64 {
		var took int64
		slow, err := sim.ParseFaults("slow(blade=0,x=2,for=1s)")
		if err != nil {
			t.Fatal(err)
		}
		oneThread(t, sim.Options{
			Profile: quiet(), Freedom: sim.FreedomNone, Program: prog, Faults: slow,
		}, 2, 2, func(c *rdma.Coro) {
			var b rdma.Batch
			if c.ID() == 0 { // from the slow blade, posted first
				read(t, c, &b, 0, 8)
				return
			}
			from := c.Thread().Now()
			read(t, c, &b, 1, 8)
			took = c.Thread().Now() - from
		})
		return took
	}
	own := latency(sim.Program{})
	prog := sim.SMARTDTX(rdma.Techniques{})
	prog.WaitNs, prog.CreditWakes = 0, false
	lost := latency(prog)
	prog.Force = 256
	sooner := latency(prog)
	prog.Force, prog.CreditWakes = 1024, true
	woken := latency(prog)
	round := 2*prog.YieldNs + 2*prog.PollNs // main, poller of two queues
	if full := int64(512 * round); own > 4000 || lost < full || lost > full+6000 {
		t.Errorf("a READ of 8 bytes took %d ns; behind another coroutine's slow one %d, want about 512 rounds: %d",
			own, lost, full)
	}
	if sooner > lost/2 || sooner < own {
		t.Errorf("with a quarter of the switches it took %d ns of %d", sooner, lost)
	}
	if woken > own+8000 || woken < own {
		t.Errorf("woken by the other completion it took %d ns, alone %d", woken, own)
	}
}

// With Spins, coroutines that wait for time to pass have a turn in each round, so that a completion
// is noticed later, and their thread stays active.
func TestSpin(t *testing.T) {
	const spinning, yieldNs = 3, 1000
	prog := sim.SMARTDTX(rdma.AllTechniques)
	prog.YieldNs = yieldNs
	latency := func(spins bool, n int) (took int64) {
		prog.Spins = spins
		f := newFabric(t, 1, sim.Options{Profile: quiet(), Freedom: sim.FreedomNone, Program: prog})
		th := newThread(t, f, rdma.ThreadOptions{Arena: 1 << 16})
		f.Spin(n) // outside Run nothing has turns
		f.Run(1, func(int) {
			th.Run(1, func(c *rdma.Coro) {
				var b rdma.Batch
				f.Spin(n)
				from := f.Now()
				for range 10 {
					read(t, c, &b, 0, 8)
				}
				took = f.Now() - from
				f.Spin(-n)
			})
		})
		return took
	}
	alone := latency(true, 0)
	if more := latency(true, spinning) - alone; more < 10*yieldNs || more > 10*2*spinning*yieldNs {
		t.Errorf("ten READs took %d ns, and %d more beside %d that spin, want one round or two of %d each",
			alone, more, spinning, spinning*yieldNs)
	}
	if sleeping := latency(false, spinning); sleeping != alone {
		t.Errorf("ten READs took %d ns, beside %d that sleep %d", alone, spinning, sleeping)
	}

	work := func(n int) (took int64) {
		p := quiet()
		p.CPUFree, p.CPUSlope, p.SiblingSlow = 0, 1, 0
		prog.Spins = true
		f := newFabric(t, 1, sim.Options{Profile: p, Freedom: sim.FreedomNone, Program: prog})
		var threads []*rdma.Thread
		for range 2 {
			threads = append(threads, newThread(t, f, rdma.ThreadOptions{Arena: 1 << 16}))
		}
		f.Run(2, func(i int) {
			threads[i].Run(1, func(c *rdma.Coro) {
				var b rdma.Batch
				if i == 0 {
					read(t, c, &b, 0, 8)
					f.Spin(n)
					c.Sleep(10e6)
					f.Spin(-n)
					return
				}
				c.Sleep(5e6)
				read(t, c, &b, 0, 8)
				from := f.Now()
				f.Work(1000)
				took = f.Now() - from
			})
		})
		return took
	}
	if asleep, spins := work(0), work(1); asleep != 2000 || spins != 3000 {
		t.Errorf("work of 1000 ns took %d beside a thread that sleeps, %d beside one that spins; want 2000 and 3000",
			asleep, spins)
	}
}

// A coroutine pays WaitNs each time that it goes on.
func TestWaitNs(t *testing.T) {
	run := func(wait float64) int64 {
		prog := sim.SMARTDTX(rdma.AllTechniques)
		prog.WaitNs = wait
		f := oneThread(t, sim.Options{
			Profile: quiet(), Freedom: sim.FreedomNone, Program: prog,
		}, 1, 1, func(c *rdma.Coro) {
			var b rdma.Batch
			for range 10 {
				read(t, c, &b, 0, 8)
			}
		})
		return f.Now()
	}
	if cheap, dear := run(0), run(5000); dear-cheap < 49_000 || dear-cheap > 51_000 {
		t.Errorf("ten waits of 5 us more took %d ns more", dear-cheap)
	}
}

// Whoever takes the shared line waits LineNs, and after the one before for LineHoldNs
// of them.
func TestTakeLine(t *testing.T) {
	const threads = 5
	prog := sim.Program{LineNs: 90, LineHoldNs: 60}
	f := newFabric(t, 1, sim.Options{Profile: quiet(), Freedom: sim.FreedomNone, Program: prog})
	for range threads {
		newThread(t, f, rdma.ThreadOptions{Arena: 4096})
	}
	f.TakeLine() // outside Run nobody waits
	if now := f.Now(); now != 0 {
		t.Errorf("outside Run it took %d ns", now)
	}
	var took [threads]int64
	f.Run(threads, func(i int) {
		for range 2 {
			from := f.Now()
			f.TakeLine()
			took[i] += f.Now() - from
			f.Work(10_000)
		}
	})
	for i, ns := range took {
		if want := int64(2*90 + 60*i); ns != want { // they come together once
			t.Errorf("thread %d waited %d ns in all, want %d", i, ns, want)
		}
	}
}

// With Resync a coroutine that has read versions beside its log waits once more, for
// what others have posted in the meantime; none that has only read or only written does.
func TestResync(t *testing.T) {
	latency := func(resync, log, versions bool) int64 {
		prog := sim.SMARTDTX(rdma.Techniques{})
		prog.WaitNs, prog.Resync = 0, resync
		var took int64
		oneThread(t, sim.Options{Profile: quiet(), Freedom: sim.FreedomNone, Program: prog}, 2, 2, func(c *rdma.Coro) {
			var b, v rdma.Batch
			if c.ID() == 0 { // always has something under way
				for range 20 {
					read(t, c, &b, 1, 8)
				}
				return
			}
			from := c.Thread().Now()
			if log {
				b.Write(at(0, 4096), 4096, 72)
				c.Post(&b)
			}
			if versions {
				v.Read(at(0, 0), 4096, 8)
				c.Post(&v)
			}
			for _, w := range []*rdma.Batch{&b, &v} {
				if w.Len() > 0 {
					if err := c.Wait(w); err != nil {
						t.Error(err)
					}
				}
			}
			took = c.Thread().Now() - from
		})
		return took
	}
	for _, test := range []struct{ log, versions, again bool }{
		{true, true, true}, {true, false, false}, {false, true, false},
	} {
		once, with := latency(false, test.log, test.versions), latency(true, test.log, test.versions)
		if more := with - once; test.again && (more < 1000 || more > 8000) || !test.again && more != 0 {
			t.Errorf("a log %v, versions %v: %d ns, %d with Resync", test.log, test.versions, once, with)
		}
	}
}

// A WRITE that is inlined takes the requester for one request more when its WQE has
// two blocks.
func TestInline(t *testing.T) {
	const writes = 200
	run := func(inline int, bytes uint32) int64 {
		p := quiet()
		p.Inline, p.OpsPerUs, p.BytesPerNs, p.PostNs, p.BatchNs = inline, 10, 1e6, 1, 1
		var took int64
		oneThread(t, sim.Options{Profile: p, Freedom: sim.FreedomNone}, 1, 1, func(c *rdma.Coro) {
			var b rdma.Batch
			for i := range writes {
				b.Write(at(0, uint64(128*i)), 0, bytes)
			}
			from := c.Thread().Now()
			if err := c.Do(&b); err != nil {
				t.Error(err)
			}
			took = c.Thread().Now() - from
		})
		return took
	}
	for bytes, more := range map[uint32]int64{8: 0, 28: 0, 29: 100 * writes, 64: 100 * writes, 65: 0} {
		if got := run(64, bytes) - run(0, bytes); got < more*9/10 || got > more*11/10 {
			t.Errorf("%d WRITEs of %d bytes took %d ns more where they are inlined, want %d", writes, bytes, got, more)
		}
	}
}

// A thread whose queue pair is full polls for room, and everything is still told.
func TestTasksOnAFullQueue(t *testing.T) {
	p := quiet()
	p.QueueDepth = 4
	told := 0
	oneThread(t, sim.Options{Profile: p, Seed: 3, Program: sim.SMARTDTX(rdma.Techniques{})}, 2, 6, func(c *rdma.Coro) {
		var b rdma.Batch
		for i := range 50 {
			b.Reset()
			for k := range 3 {
				b.Read(at(rdma.BladeID((i+k)%2), uint64(64*k)), uint32(c.ID()*4096+64*k), 64)
			}
			if err := c.Do(&b); err != nil {
				t.Error(err)
			}
			if i%7 == 0 {
				c.Sleep(3000)
			}
			told++
		}
	})
	if told != 300 {
		t.Errorf("%d of 300 batches ended", told)
	}
}

// Persistent memory: its latency for READs and atomics, and its bandwidth in grains.
func TestMedia(t *testing.T) {
	one := func(p sim.Profile, fill func(b *rdma.Batch)) int64 {
		var took int64
		oneThread(t, sim.Options{Profile: p, Freedom: sim.FreedomNone}, 1, 1, func(c *rdma.Coro) {
			var b rdma.Batch
			fill(&b)
			from := c.Thread().Now()
			if err := c.Do(&b); err != nil {
				t.Error(err)
			}
			took = c.Thread().Now() - from
		})
		return took
	}
	pm := quiet().WithPersistentMemory()
	for _, test := range []struct {
		name   string
		append func(b *rdma.Batch)
		extra  float64
	}{
		{"READ", func(b *rdma.Batch) { b.Read(at(0, 0), 0, 64) }, pm.MediaReadNs + 256/pm.MediaReadBytesPerNs},
		{
			"READ of two grains", func(b *rdma.Batch) { b.Read(at(0, 224), 0, 64) },
			pm.MediaReadNs + 512/pm.MediaReadBytesPerNs,
		},
		// it stays in the cache
		{"WRITE", func(b *rdma.Batch) { b.Write(at(0, 0), 0, 8) }, 1000/pm.WritesPerUs - 1000/pm.OpsPerUs},
		{"CAS", func(b *rdma.Batch) { b.CAS(at(0, 0), 0, 1) }, pm.MediaReadNs + 256/pm.MediaReadBytesPerNs},
		{"FLUSH", func(b *rdma.Batch) { b.Flush(at(0, 0), 64) }, 0},
	} {
		if more := one(pm, test.append) - one(quiet(), test.append); math.Abs(float64(more)-test.extra) > 2 {
			t.Errorf("%s takes %d ns more on persistent memory, want %.0f", test.name, more, test.extra)
		}
	}
	bare := pm
	bare.MediaCache, bare.WritesPerUs = 0, 0
	write := func(b *rdma.Batch) { b.Write(at(0, 0), 0, 8) }
	if more, want := one(bare, write)-one(quiet(), write),
		256/bare.MediaWriteBytesPerNs; math.Abs(float64(more)-want) > 2 {
		t.Errorf("without a cache a WRITE takes %d ns more on persistent memory, want %.0f", more, want)
	}
}

// The cache in front of persistent memory answers for what was written last, and
// what it has no room for goes to the memory, which WRITEs wait for when there is too much of it.
func TestMediaCache(t *testing.T) {
	pm := quiet().WithPersistentMemory()
	pm.MediaCache = 64 << 10
	pm.MediaReadNs, pm.MediaWriteBytesPerNs = 1e6, 0.1
	f := func(lines int, thenRead uint64) (writing, reading int64) {
		oneThread(t, sim.Options{Profile: pm, Freedom: sim.FreedomNone}, 1, 1, func(c *rdma.Coro) {
			var b rdma.Batch
			now := c.Thread().Now
			from := now()
			for i := range lines {
				b.Reset()
				b.Write(at(0, uint64(i)*256), 0, 64)
				if err := c.Do(&b); err != nil {
					t.Error(err)
				}
			}
			writing, from = now()-from, now()
			b.Reset()
			b.Read(at(0, thenRead), 0, 64)
			if err := c.Do(&b); err != nil {
				t.Error(err)
			}
			reading = now() - from
		})
		return writing / int64(lines), reading
	}
	few, hit := f(16, 256)
	many, miss := f(4096, 0)
	if hit > 100_000 || miss < 1_000_000 {
		t.Errorf("a READ of what was just written takes %d ns, of what has left the cache %d: the memory takes "+
			"a millisecond", hit, miss)
	}
	if many < few+1000 {
		t.Errorf("a WRITE takes %d ns with room in the cache, and %d when each puts out another: the memory takes 2560",
			few, many)
	}
}

// A program's records and buckets count as it says: a READ of a lookup takes the wire
// for a bucket.
func TestProgramSizes(t *testing.T) {
	p := quiet()
	p.BytesPerNs = 0.1
	took := func(prog sim.Program, lookup bool, n uint32) (ns int64) {
		oneThread(t, sim.Options{Profile: p, Freedom: sim.FreedomNone, Program: prog}, 1, 1, func(c *rdma.Coro) {
			var b rdma.Batch
			b.Read(at(0, 0), 0, n)
			if lookup {
				b.Lookup()
			}
			from := c.Thread().Now()
			if err := c.Do(&b); err != nil {
				t.Error(err)
			}
			ns = c.Thread().Now() - from
		})
		return ns
	}
	sized := sim.Program{Item: 96, Bucket: 2120}
	for _, test := range []struct {
		name   string
		prog   sim.Program
		lookup bool
		n      uint32
		bytes  float64 // more than of a READ as it is
	}{
		{"as it is", sim.Program{}, true, 128, 0},
		{"lookup", sized, true, 128, 2120 - 128},
		{"record", sized, false, 64, 96 - 64},
		{"large record", sized, false, 128, 96 - 128},
		{"version", sized, false, 8, 0},
		{
			"record of a key that is new to its thread", sim.Program{Item: 96, Bucket: 2120, Cold: 1},
			false, 64, 2120 - 64,
		},
	} {
		want := test.bytes / p.BytesPerNs
		if more := took(test.prog, test.lookup, test.n) - took(sim.Program{}, false,
			test.n); math.Abs(float64(more)-want) > 2 {
			t.Errorf("%s: %d ns more, want %.0f", test.name, more, want)
		}
	}
}

func TestProgramValidate(t *testing.T) {
	bad := sim.Program{Name: "bad", TxnNs: -1, WaitNs: math.NaN(), Force: 3}
	err := errors.Join(bad.Validate(), (&sim.Program{Spins: true}).Validate())
	if !errors.Is(err, sim.ErrOptions) {
		t.Fatalf("%v", err)
	}
	for _, s := range []string{"TxnNs", "WaitNs", "Force without", "Spins without"} {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("%q does not say %s", err, s)
		}
	}
	for _, p := range []sim.Program{
		{}, sim.Engine(), sim.SMARTDTX(rdma.AllTechniques), sim.SMARTDTX(rdma.Techniques{}),
	} {
		if err := p.Validate(); err != nil {
			t.Error(err)
		}
	}
}
