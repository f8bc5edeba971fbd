package simbench

import (
	"math"
	"sync"

	"txnode/rdma/sim"
)

// dtxProgram is sim.SMARTDTX with what depends on the workload and on the number
// of threads: the sizes of FORD's records and buckets, the keys that a thread has not
// used yet, and what the processor waits for its own memory. Everything follows from
// the published program (madsys-dev/smart, dtx/) and from the machine; docs/simulator-fit.md
// derives it.
func (c *Config) dtxProgram() sim.Program {
	p := sim.SMARTDTX(c.Techniques)
	u := c.usage()
	cold := u.cold(c.Threads)
	p.Item, p.Bucket = u.item, u.bucket
	p.Cold = cold / u.found
	p.ScanNs = float64(u.bucket) / scanBytesPerNs
	p.TxnNs = u.memoryNs(c.Threads, cold)
	p.LineNs, p.LineHoldNs = lineNs(c.Threads)
	p.Resync = true
	return p
}

// The machine of figure 10, as seen by one of its threads.
const (
	socketCache = 35.75e6 // bytes; Xeon Gold 6240R, last level
	coreCache   = 1e6     // second level
	lineBytes   = 64
	// Latencies of the last level, of memory on either socket, and of a line that a core
	// of the same or of the other socket has modified, whichever socket it belongs to.
	cacheNs, localNs, remoteNs, nearNs, farNs = 26, 79, 134, 50, (113 + 177) / 2
	memoryNs                                  = (localNs + remoteNs) / 2.0
	scanBytesPerNs                            = 12 // of one core, streaming
)

// The published runs.
const (
	ringBytes = 8 << 20 // message buffers of a thread, used one after the other
	mapLines  = 3       // of a lookup in std::unordered_map: the bucket, the node before, the node
)

// keys are n keys that are looked up with the same rate per attempt.
type keys struct{ n, rate float64 }

// usage is what an attempt of the published program does to its thread's memory.
type usage struct {
	item, bucket int
	keys         []keys  // that exist
	found        float64 // lookups of these, per attempt
	missing      float64 // of keys that do not
	written      float64 // bytes that the processor writes to message buffers
	bursts       float64 // groups of such writes, each ended by a doorbell
	fetched      float64 // records and buckets that it reads there, after the RNIC
	logs         float64 // undo logs
}

func (c *Config) usage() usage {
	if c.Workload == "tatp" {
		return c.tatpUsage()
	}
	n := float64(c.Rows)
	hot := n * 4 / 100
	// Lookups per attempt: of checking, Amalgamate and SendPayment two, the others but
	// TransactSaving one; of savings, four types one.
	u := usage{item: 64, bucket: 22*64 + 8, found: 1.25 + 0.6, logs: 0.84}
	for _, rate := range []float64{1.25, 0.6} {
		u.keys = append(u.keys, keys{hot, rate * (0.9/hot + 0.1/n)}, keys{n - hot, rate * 0.1 / n})
	}
	const records = 0.15*3 + 0.15*3 + 0.11*2 // written and committed, per attempt
	u.bursts = 2*records + u.logs
	u.written = 2*records*64 + u.logs*(12+1.65*64)
	u.fetched = u.found
	return u
}

// tatpUsage counts by the shares of FORD's program: half of call forwarding's rows, 62.5 % of the
// others' exist, and 85 % of the facilities are active.
func (c *Config) tatpUsage() usage {
	u := usage{item: 96, bucket: 22*96 + 8, logs: 0.18}
	const there, active, half = 0.625, 0.85, 0.5
	type table struct{ per, rate float64 } // rows of a subscriber that exist, lookups per attempt of each
	var tables = []table{
		{1, 0.35 + 0.02 + 0.14},                                   // subscriber
		{1, 0.14 + 0.02 + 0.02},                                   // by number
		{4 * there, (0.10 + 0.02 + 0.02) / 4},                     // special facility
		{4 * there, 0.35 / 4},                                     // access info
		{4 * there * half, 0.10 * active / 4},                     // call forwarding from 0 h
		{4 * there * half, 0.10*active*2/3/4 + (0.02+0.02)/4.0/3}, // from 8 h
		{4 * there * half, 0.10*active*1/3/4 + (0.02+0.02)/4.0/3}, // from 16 h
	}
	// A thousand classes of subscribers by how often they are drawn.
	for _, s := range subscribers(c.Rows) {
		for _, t := range tables {
			u.keys = append(u.keys, keys{s.n * t.per, s.rate * t.rate})
		}
	}
	for _, k := range u.keys {
		u.found += k.n * k.rate
	}
	u.missing = 0.35*(1-there) + 0.10*(1-there+there*active*2*half) + 0.02*(1-there) + 0.02*(1-there+there*half) +
		0.02*(1-there*half)
	const records = 0.02*there*2 + 0.14 + 0.02*there + 0.02*there*half
	u.bursts = 2*records + u.logs
	u.written = 2*records*96 + u.logs*(12+96)
	u.fetched = u.found + u.missing
	return u
}

// subscribers are TATP's by how often they are drawn, in classes; rate is the
// probability of each. It counts draws: as many as make the common ones exact to a few
// percent.
func subscribers(n int) []keys {
	drawn.Lock()
	defer drawn.Unlock()
	if drawn.of != n {
		drawn.of, drawn.keys = n, drawSubscribers(n)
	}
	return drawn.keys
}

// drawn is what subscribers has returned last.
var drawn struct {
	sync.Mutex
	of   int
	keys []keys
}

func drawSubscribers(n int) []keys {
	a := uint32(65535)
	switch {
	case n > 10_000_000:
		a = 2097151
	case n > 1_000_000:
		a = 1048575
	}
	draws := min(40*n, 40_000_000)
	count := make([]uint32, n)
	x := uint64(1)
	next := func() uint64 {
		x += 0x9e3779b97f4a7c15
		z := x
		z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		return z ^ z>>31
	}
	for range draws {
		r := next()
		count[(uint32(r>>32)%uint32(n)|uint32(r)&a)%uint32(n)]++
	}
	by := map[uint32]int{}
	most := uint32(0)
	for _, k := range count {
		by[k]++
		most = max(most, k)
	}
	var out []keys
	for k := range most + 1 {
		if by[k] > 0 {
			out = append(out, keys{float64(by[k]), float64(k) / float64(draws)})
		}
	}
	return out
}

// cold is how many lookups per attempt are of keys that exist and that the thread
// looks up for the first time, on average over a run: its 60 million attempts are
// divided by the threads, after a warm-up of 50,000 for each.
func (u *usage) cold(threads int) float64 {
	from, n := float64(dtxWarmup), dtxAttempts/float64(threads)
	sum := 0.0
	for _, k := range u.keys {
		sum += float64(k.n * (math.Exp(-k.rate*from) - math.Exp(-k.rate*(from+n))))
	}
	return sum / n
}

// memoryNs is what an attempt waits for lines that are not in the core's own caches:
// those of the address cache and of the message buffers, which compete for the
// thread's part of the last level (Che's approximation of LRU), and, with several
// threads, those that another has written since, but for the one that lineNs is about.
func (u *usage) memoryNs(threads int, cold float64) float64 {
	sockets := min(threads, 2)
	lines := (socketCache*float64(sockets)/float64(threads) + coreCache) / lineBytes
	perAttempt := (u.written + u.found*float64(u.item) + (u.missing+cold)*float64(u.bucket)) / lineBytes
	used := func(attempts float64) float64 {
		sum := min(perAttempt*attempts, ringBytes/lineBytes)
		for _, k := range u.keys {
			sum += float64(mapLines * k.n * (1 - math.Exp(-k.rate*attempts)))
		}
		return sum
	}
	// How many attempts back the cache remembers.
	lo, hi := 0.0, 1e9
	for range 60 {
		if mid := (lo + hi) / 2; used(mid) < lines {
			lo = mid
		} else {
			hi = mid
		}
	}
	missed := 0.0
	for _, k := range u.keys {
		missed += float64(mapLines * k.n * k.rate * math.Exp(-k.rate*lo))
	}
	ns := float64(u.found*mapLines*cacheNs) + float64(missed*(memoryNs-cacheNs))
	// An absent key's lookup ends at the bucket or the node before; a new one's adds a node.
	ns += float64(u.missing*2*memoryNs) + float64(cold*mapLines*memoryNs)
	if perAttempt*lo < ringBytes/lineBytes {
		// What is written has to be fetched first. What the RNIC has written is in the
		// cache that it writes to, where the memory is of its socket, or in memory: pages
		// are on either socket in turn.
		ns += float64(u.bursts * (memoryNs - cacheNs))
		ns += float64(u.fetched * (remoteNs - cacheNs) / 2)
	}
	if threads > 1 {
		// Neighbours' allocators of log space and message buffers lie on the same lines, and
		// neighbours are on different sockets. Each log makes its thread fetch a line, and
		// the neighbour fetch it again.
		ns += float64(2 * allocatorPairs * u.logs * farNs)
	}
	return ns
}

// allocatorPairs is how many neighbours a thread has, on average, that take buffers on
// the line where it takes log space. The two allocators are blocks of 64 and 32 bytes,
// made in turn, so those of two threads fill three lines. Of the four ways in which they
// can lie there two make one such pair of neighbours, and two make two.
const allocatorPairs = 0.75

// lineNs is what it takes to get the line of the transaction counter, which also
// holds what is read at each commit, and how long of that nobody else can have it. The
// processor that had it last is any of the others, and half of the threads are on
// each socket. Of the three ways of a transfer, to whom the line belongs, on to whom has it,
// and back, a request that waits has made the first.
func lineNs(threads int) (take, hold float64) {
	if threads < 2 {
		return 0, 0
	}
	n := float64(threads)
	near := (n/2 - 1) / (n - 1)
	take = float64(near*nearNs) + float64((1-near)*farNs)
	return take, take * 2 / 3
}
