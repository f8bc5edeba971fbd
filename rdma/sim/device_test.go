package sim

import (
	"errors"
	"math"
	"slices"
	"testing"

	"txnode/rdma"
)

func ports(t *testing.T, threads, blades int, policy rdma.QPPolicy, o Options) (*Fabric, []*port) {
	t.Helper()
	for range blades {
		o.Blades = append(o.Blades, BladeOptions{Size: 1 << 20, Key: 1})
	}
	f, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	var ps []*port
	for i := range threads {
		p, err := f.NewPort(rdma.PortConfig{Index: i, Policy: policy, Arena: 4096})
		if err != nil {
			t.Fatal(err)
		}
		p.(*port).worked = true
		ps = append(ps, p.(*port))
	}
	t.Cleanup(func() {
		for _, p := range ps {
			if err := p.Close(); err != nil {
				t.Error(err)
			}
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	ps[0].d.assign()
	return f, ps
}

// contenders is the largest number of threads that use one register.
func contenders(ps []*port) int {
	users := map[int]map[int]bool{}
	most := 0
	for _, p := range ps {
		for _, q := range p.qps {
			if users[q.register] == nil {
				users[q.register] = map[int]bool{}
			}
			users[q.register][p.index] = true
			most = max(most, len(users[q.register]))
		}
	}
	return most
}

// What the SMART paper says of the driver's mapping: figure 2 (16 registers, 4
// of them for one queue pair each; the 16th and the 28th queue pair meet), and
// section 6.2.2 (two memory blades: with 48 threads at most 4 meet at a
// register, with 47 or 49 it is 8).
func TestDoorbellMapping(t *testing.T) {
	_, first := ports(t, 40, 1, rdma.PerThreadQP, Options{})
	for i, p := range first {
		r := p.qps[0].register
		if want := i; i < 16 && r != want {
			t.Errorf("queue pair %d has register %d, want its own", i, r)
		}
		if i >= 16 && r != first[i-12].qps[0].register {
			t.Errorf("queue pair %d has register %d, not that of queue pair %d", i, r, i-12)
		}
		if locked := p.qps[0].bell != nil; locked != (i >= 4) {
			t.Errorf("queue pair %d: lock %v", i, locked)
		}
	}
	for threads, want := range map[int]int{24: 2, 47: 8, 48: 4, 49: 8, 72: 6, 96: 8} {
		_, ps := ports(t, threads, 2, rdma.PerThreadQP, Options{})
		if got := contenders(ps); got != want {
			t.Errorf("%d threads on two blades: up to %d meet at a register, want %d", threads, got, want)
		}
	}
	// Threads for setting up, and gaps between indices, change nothing.
	f, ps := ports(t, 50, 2, rdma.PerThreadQP, Options{})
	for i, p := range ps {
		p.worked = i != 0 && i != 7
	}
	ps[0].d.stale = true
	ps[0].d.assign()
	if got := contenders(slices.Concat(ps[1:7], ps[8:])); got != 4 {
		t.Errorf("48 threads among 50: up to %d meet at a register, want 4", got)
	}
	if got := f.Stats().Connections; got != 96 {
		t.Errorf("%d connections, want 96", got)
	}
	// With a fixed number of threads the mapping does not depend on who has come yet.
	_, ps = ports(t, 47, 2, rdma.PerThreadQP, Options{Threads: 48})
	if got := contenders(ps); got != 4 {
		t.Errorf("47 of 48 threads on two blades: up to %d meet at a register, want 4", got)
	}
}

func TestPolicies(t *testing.T) {
	for _, c := range []struct {
		policy      rdma.QPPolicy
		connections int
		contenders  int
		shared      bool
	}{
		{rdma.PerThreadDoorbell, 192, 1, false},
		{rdma.PerThreadQP, 192, 8, false},
		{rdma.MultiplexedQP, 48, 8, true}, // per register two groups of 4 threads, on both blades
		{rdma.SharedQP, 2, 96, true},
	} {
		f, ps := ports(t, 96, 2, c.policy, Options{})
		if got := f.Stats().Connections; got != c.connections {
			t.Errorf("%v: %d connections, want %d", c.policy, got, c.connections)
		}
		if got := contenders(ps); got != c.contenders {
			t.Errorf("%v: up to %d threads at a register, want %d", c.policy, got, c.contenders)
		}
		for _, p := range ps {
			if got := p.qps[0].shared != nil; got != c.shared {
				t.Fatalf("%v: shared %v", c.policy, got)
			}
			if c.policy == rdma.MultiplexedQP && p.qps[1].shared != ps[p.index/4*4].qps[1].shared {
				t.Fatalf("thread %d is not on the queue pair of its group", p.index)
			}
		}
	}
	// More threads than the device has registers share them.
	pr := ConnectX6()
	pr.ThreadDoorbell = 8
	if _, ps := ports(t, 20, 1, rdma.PerThreadDoorbell, Options{Profile: pr}); contenders(ps) != 3 {
		t.Errorf("20 threads on 8 registers: up to %d meet", contenders(ps))
	}
}

// Threads of different compute blades meet at no register of theirs.
func TestComputeBlades(t *testing.T) {
	f, ps := ports(t, 24, 1, rdma.PerThreadQP, Options{ThreadsPerBlade: 12})
	if len(f.cpus) != 2 || ps[0].d == ps[12].d || ps[12].local != 0 {
		t.Fatalf("24 threads, 12 on a blade, make %d blades", len(f.cpus))
	}
	ps[12].d.assign()
	for _, p := range ps {
		if p.qps[0].bell != nil {
			t.Errorf("thread %d shares its register", p.index)
		}
	}
}

// A device that connections do not fit is slower; one without that limit is not.
func TestContextCache(t *testing.T) {
	pr := RoCE25()
	pr.QPCache = 10
	_, ps := ports(t, 20, 1, rdma.PerThreadQP, Options{Profile: pr})
	if want := int64(pr.QPMissNs * 1000 / 2); ps[0].d.qpPs != want || ps[0].qps[0].blade.qpPs != want {
		t.Errorf("20 connections on a cache of 10 cost %d ps, want %d", ps[0].d.qpPs, want)
	}
	_, ps = ports(t, 20, 1, rdma.PerThreadQP, Options{})
	if ps[0].d.qpPs != 0 {
		t.Error("connections cost something without a limit")
	}
}

// A thread is slower while another one is active on its core, and its doorbells and
// completions take longer on the far socket.
func TestCores(t *testing.T) {
	pr := ConnectX6()
	pr.Cores, pr.CPUSlope, pr.SiblingSlow, pr.FarDoorbellNs, pr.FarReapNs = 4, 0, 0.5, 70, 40
	_, ps := ports(t, 6, 1, rdma.PerThreadQP, Options{Profile: pr})
	picoseconds := func(ns float64) int64 { return int64(math.Round(ns * 1000)) }
	check := func(when string, shared ...int) {
		t.Helper()
		for i, p := range ps {
			x := 1.0
			if slices.Contains(shared, i) {
				x = 1.5
			}
			doorbell, reap := pr.DoorbellNs, pr.ReapNs
			if i%2 == 1 {
				doorbell, reap = doorbell+70, reap+40
			}
			if p.c.slow != x || p.c.post != picoseconds(x*pr.PostNs) || p.c.doorbell != picoseconds(x*doorbell) ||
				p.c.reap != picoseconds(x*reap) {
				t.Errorf("%s: thread %d has %+v", when, i, *p.c)
			}
		}
	}
	pr0 := &proc{}
	check("nobody is active")
	for _, i := range []int{0, 1, 2, 5} {
		ps[i].activate(pr0)
	}
	check("1 and 5 are on one core", 1, 5)
	ps[4].activate(pr0)
	check("0 and 4 are, too", 0, 1, 4, 5)
	ps[1].deactivate()
	ps[0].deactivate()
	check("both are alone again")
	for _, i := range []int{2, 4, 5} {
		ps[i].deactivate()
	}
	// A machine of which nothing is known of this kind is one where all are alike.
	pr.Cores, pr.FarDoorbellNs, pr.FarReapNs = 0, 0, 0
	_, ps = ports(t, 6, 1, rdma.PerThreadQP, Options{Profile: pr})
	for _, p := range ps {
		p.activate(pr0)
	}
	for _, p := range ps {
		if p.c.slow != 1 || p.c.doorbell != ps[0].c.doorbell || p.c.reap != ps[0].c.reap {
			t.Errorf("thread %d has %+v", p.index, *p.c)
		}
	}
}

// A constant can be changed by its name, and the profile's name says so.
func TestProfileSet(t *testing.T) {
	p := ConnectX6()
	if err := p.Set("AtomicAddrNs", 111); err != nil || p.AtomicAddrNs != 111 ||
		p.Name != "connectx-6+AtomicAddrNs=111" {
		t.Errorf("%v: %s, %v", err, p.Name, p.AtomicAddrNs)
	}
	for name, v := range map[string]float64{"Moon": 1, "OpsPerUs": -1} {
		if err := p.Set(name, v); !errors.Is(err, ErrOptions) {
			t.Errorf("%s = %v: %v", name, v, err)
		}
	}
}
