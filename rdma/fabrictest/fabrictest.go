package fabrictest

import (
	"errors"
	"slices"
	"sync/atomic"
	"testing"

	"txnode/rdma"
)

// Open makes a fabric with that many blades, each with a zeroed, writable region
// of size bytes, a multiple of 64 KiB. The suite closes the fabric, before the
// clean-ups that Open registers run.
type Open = func(tb testing.TB, blades int, size uint64) rdma.Fabric

// clause is one test of the suite.
type clause struct {
	name  string
	check func(tb testing.TB, open Open)
}

// clauses: numbers are those of the contract.
var clauses = []clause{
	{"0-fabric", fabricItself},
	{"0-threads-run-concurrently", concurrent},
	{"1-words-are-not-torn", words},
	{"1-words-of-pages-are-not-torn", longWords},
	{"1-lines-are-read-upwards", lines},
	{"2-queue-pair-order", programs},
	{"2-order-seen-by-others", messages},
	{"2-fence-flag", fenceFlag},
	{"2-completion-order", completionOrder},
	{"3-placed-by-later-verbs", placed},
	{"3-flush", flush},
	{"3-fences", fences},
	{"4-fetch-and-add", fetchAndAdd},
	{"4-compare-and-swap", compareAndSwap},
	{"4-masked-compare-and-swap", maskedCompareAndSwap},
	{"4-atomics-against-writes", atomicsAgainstWrites},
	{"4-neighbouring-bytes", neighbours},
	{"5-error-state", errorState},
	{"5-error-state-is-per-queue-pair", errorScope},
	{"6-bad-verbs-harm-nothing", badVerbs},
	{"6-access-keys", accessKeys},
	{"6-order-of-keys", orderOfKeys},
	{"6-keys-that-stay", keysThatStay},
	{"6-fencing-under-load", fencing},
	{"6-fencing-word-by-word", fencingWords},
	{"6-stopped-blades", stoppedBlades},
	{"6-stopped-under-load", stoppedUnderLoad},
	{"caps-real-time", realTime},
	{"caps-synchronous", synchronous},
	{"caps-ordered-line", orderedLine},
	{"caps-max-batch", maxBatch},
	{"transfers-unaligned", unaligned},
	{"transfers-large", large},
	{"coroutines", coroutines},
	{"coroutines-many-batches", manyBatches},
	{"counters", counters},
}

// Run checks the fabric that open makes.
func Run(t *testing.T, open func(tb testing.TB, blades int, size uint64) rdma.Fabric) {
	for _, c := range clauses {
		t.Run(c.name, func(t *testing.T) { c.check(t, open) })
	}
}

// ReadOnly checks a fabric whose only blade, of size bytes, is read-only.
func ReadOnly(t *testing.T, open func(tb testing.TB, size uint64) rdma.Fabric) {
	readOnly(t, open)
}

// rig is a fabric under test and threads on it.
type rig struct {
	testing.TB
	f       rdma.Fabric
	caps    rdma.Caps
	size    uint64
	keys    []rdma.Key
	threads []*rdma.Thread
}

const arena = 8 << 20

// start opens a fabric with threads, and has both closed at the end.
func start(tb testing.TB, open Open, blades int, size uint64, threads int) *rig {
	tb.Helper()
	return attach(tb, open(tb, blades, size), size, threads)
}

func attach(tb testing.TB, f rdma.Fabric, size uint64, threads int) *rig {
	tb.Helper()
	r := &rig{TB: tb, f: f, caps: f.Caps(), size: size}
	tb.Cleanup(func() {
		for _, t := range r.threads {
			if err := t.Close(); err != nil {
				tb.Errorf("closing a thread: %v", err)
			}
		}
		if err := f.Close(); err != nil {
			tb.Errorf("closing the fabric: %v", err)
		}
	})
	for _, b := range f.Blades() {
		r.keys = append(r.keys, b.Key)
	}
	for i := range threads {
		t, err := rdma.NewThread(f, rdma.ThreadOptions{Index: i, Techniques: rdma.AllTechniques, Arena: arena})
		if err != nil {
			tb.Fatalf("NewThread: %v", err)
		}
		r.threads = append(r.threads, t)
	}
	return r
}

// run runs the bodies, each on a thread of its own, from when all are there.
func (r *rig) run(bodies ...func(w *worker)) {
	var here, content atomic.Int32
	r.f.Run(len(bodies), func(i int) {
		w := r.worker(i, r.threads[i].Plain())
		w.content, w.of = &content, len(bodies)
		for here.Add(1); int(here.Load()) < len(bodies) && !r.Failed(); {
			w.pause()
		}
		bodies[i](w)
	})
}

// at is a place on a blade, with the key that it had at the start.
func (r *rig) at(b rdma.BladeID, off uint64) rdma.RemoteAddr {
	return rdma.RemoteAddr{Blade: b, Key: r.keys[b], Off: off}
}

// rounds is how often something is tried: n, or fewer in short mode.
func (r *rig) rounds(n int) int {
	if testing.Short() {
		return max(n/10, 1)
	}
	return n
}

// worker is a line of control with a scratch batch and buffer.
type worker struct {
	*rig
	c   *rdma.Coro
	t   *rdma.Thread
	b   rdma.Batch
	buf uint32

	content *atomic.Int32 // workers of this run that have raced enough
	of      int           // all of them
	enough  bool          // this one is among them
}

// racing says whether to go on. Threads that race do so until each has done its
// rounds and has met the others often enough: how often that was, the caller
// tells. Where threads hardly ever run at the same time, as on a busy machine,
// they give up after many more rounds.
func (w *worker) racing(round, rounds, met int) bool {
	if !w.enough && round >= rounds && (met >= w.rounds(1000) || round >= 5*rounds) {
		w.enough = true
		w.content.Add(1)
	}
	return int(w.content.Load()) < w.of && !w.Failed()
}

// always is for threads to which it does not matter whom they meet.
const always = 1 << 30

const bufSize = 64 << 10

func (r *rig) worker(i int, c *rdma.Coro) *worker {
	w := &worker{rig: r, c: c, t: r.threads[i]}
	buf, err := w.t.Alloc(bufSize)
	if err != nil {
		r.Fatalf("Alloc: %v", err)
	}
	w.buf = buf
	return w
}

// do posts the scratch batch and waits; an error ends the test.
func (w *worker) do() {
	w.Helper()
	if err := w.c.Do(&w.b); err != nil {
		w.Fatalf("batch of %d failed: %v", w.b.Len(), err)
	}
}

// read READs n bytes; the result is valid until the next use of the worker.
func (w *worker) read(a rdma.RemoteAddr, n uint32) []byte {
	w.Helper()
	w.b.Reset()
	w.b.Read(a, w.buf, n)
	w.do()
	return w.t.Bytes(w.buf, n)
}

// word READs a word.
func (w *worker) word(a rdma.RemoteAddr) uint64 {
	w.Helper()
	w.read(a, 8)
	return w.t.Word(w.buf)
}

// set WRITEs a word and waits until it is placed.
func (w *worker) set(a rdma.RemoteAddr, v uint64) {
	w.Helper()
	w.t.PutWord(w.buf, v)
	w.b.Reset()
	w.b.Write(a, w.buf, 8)
	w.b.Read(a, w.buf+8, 8)
	w.do()
}

// cas executes a compare-and-swap and returns the prior value.
func (w *worker) cas(a rdma.RemoteAddr, compare, swap uint64) uint64 {
	w.Helper()
	w.b.Reset()
	i := w.b.CAS(a, compare, swap)
	w.do()
	return w.b.Result(i)
}

// await reads a word until it is at least v; false: the test failed meanwhile.
func (w *worker) await(a rdma.RemoteAddr, v uint64) bool {
	w.Helper()
	for w.word(a) < v {
		if w.Failed() {
			return false
		}
		w.pause()
	}
	return true
}

// pause lets the other threads run.
func (w *worker) pause() { w.c.Sleep(500) }

// fill sets n bytes of the worker's buffer, from byte at on, to pattern(seed).
func (w *worker) fill(at, n uint32, seed uint64) {
	pattern(w.t.Bytes(w.buf+at, n), seed)
}

// pattern fills p with bytes that depend on position and seed.
func pattern(p []byte, seed uint64) {
	for i := range p {
		p[i] = byte((uint64(i)*0x9e3779b97f4a7c15 + seed*0xbf58476d1ce4e5b9) >> 56)
	}
}

// contents reads a blade's whole region.
func (w *worker) contents(b rdma.BladeID) []byte {
	w.Helper()
	var all []byte
	for off := uint64(0); off < w.size; off += bufSize {
		all = append(all, w.read(w.at(b, off), uint32(min(bufSize, w.size-off)))...)
	}
	return all
}

// paint writes a pattern over a blade's whole region and returns it.
func (w *worker) paint(b rdma.BladeID, seed uint64) []byte {
	w.Helper()
	all := make([]byte, w.size)
	pattern(all, seed)
	for off := uint64(0); off < w.size; off += bufSize {
		n := uint32(min(bufSize, w.size-off))
		copy(w.t.Bytes(w.buf, n), all[off:])
		w.b.Reset()
		w.b.Write(w.at(b, off), w.buf, n)
		w.do()
	}
	return all
}

// same reports the first difference between two contents.
func (r *rig) same(what string, got, want []byte) {
	r.Helper()
	if slices.Equal(got, want) {
		return
	}
	for i := range want {
		if i >= len(got) || got[i] != want[i] {
			r.Errorf("%s: byte %#x differs: got %#x, want %#x", what, i, got[i:min(len(got), i+8)],
				want[i:min(len(want), i+8)])
			return
		}
	}
}

// status returns the status that an error of a batch tells.
func status(err error) rdma.Status {
	var v *rdma.VerbError
	if errors.As(err, &v) {
		return v.Status
	}
	return rdma.StatusOK
}
