package rdma_test

import (
	"errors"
	"testing"

	"txnode/rdma"
	"txnode/rdma/rdmatest"
)

// rig describes a thread on a test fabric.
type rig struct {
	rdmatest.Options
	tech    rdma.Techniques
	tuner   *rdma.Tuner
	backoff rdma.BackoffOptions
	index   int
}

// newThread makes one, with 4 blades of 64 KiB unless the options say otherwise.
func newThread(t testing.TB, r rig) *rdma.Thread {
	t.Helper()
	if r.Blades == 0 {
		r.Blades, r.Size = 4, 1<<16
	}
	return addThread(t, rdmatest.New(r.Options), r)
}

func addThread(t testing.TB, f *rdmatest.Fabric, r rig) *rdma.Thread {
	t.Helper()
	th, err := rdma.NewThread(f, rdma.ThreadOptions{
		Index: r.index, Techniques: r.tech, Tuner: r.tuner, Backoff: r.backoff, Arena: 1 << 20,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := th.Close(); err != nil {
			t.Error(err)
		}
	})
	return th
}

// at is a place on a blade of a test fabric.
func at(b rdma.BladeID, off uint64) rdma.RemoteAddr {
	return rdma.RemoteAddr{Blade: b, Key: rdma.Key(1000 + int(b)), Off: off}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestVerbError(t *testing.T) {
	for _, x := range []struct {
		err  rdma.VerbError
		text string
		is   error
	}{
		{rdma.VerbError{Op: rdma.OpRead, Blade: 3, Off: 0x40, Len: 16, Size: 0x48, Status: rdma.StatusBounds},
			"rdma: READ of 16 bytes at offset 0x40 of blade 3: past the end of the region (size 0x48)", rdma.ErrVerb},
		{rdma.VerbError{Op: rdma.OpCAS, Off: 8, Len: 8, Size: 64, Status: rdma.StatusKey},
			"rdma: CAS of 8 bytes at offset 0x8 of blade 0: stale access key", rdma.ErrStaleKey},
		{rdma.VerbError{Op: rdma.OpFlush, Status: rdma.StatusTimeout},
			"rdma: FLUSH of 0 bytes at offset 0x0 of blade 0: no answer in time", rdma.ErrBladeDown},
		{rdma.VerbError{Op: 77, Status: 99},
			"rdma: Op(77) of 0 bytes at offset 0x0 of blade 0: status 99", rdma.ErrVerb},
	} {
		if x.err.Error() != x.text {
			t.Errorf("got  %s\nwant %s", x.err.Error(), x.text)
		}
		for _, target := range []error{rdma.ErrVerb, rdma.ErrStaleKey, rdma.ErrBladeDown, rdma.ErrNoMemory} {
			if want := errors.Is(target, rdma.ErrVerb) || errors.Is(target, x.is); errors.Is(&x.err, target) != want {
				t.Errorf("%v is %v: %v; want %v", &x.err, target, !want, want)
			}
		}
	}
}

func TestStatus(t *testing.T) {
	seen := map[string]rdma.Status{}
	for s := rdma.StatusOK; s <= rdma.StatusBarred; s++ {
		if other, ok := seen[s.String()]; ok || s.String() == "" {
			t.Errorf("statuses %d and %d are both %q", s, other, s)
		}
		seen[s.String()] = s
		if want := s == rdma.StatusTimeout || s == rdma.StatusInternal; s.Uncertain() != want {
			t.Errorf("%q: uncertain %v; want %v", s, s.Uncertain(), want)
		}
	}
	for op := range rdma.NumOps {
		if other, ok := seen[op.String()]; ok || op.String() == "" {
			t.Errorf("verb %d and %d are both %q", op, other, op)
		}
		seen[op.String()] = 0
	}
	for p := rdma.PerThreadDoorbell; p <= rdma.SharedQP; p++ {
		if other, ok := seen[p.String()]; ok || p.String() == "" {
			t.Errorf("policy %d and %d are both %q", p, other, p)
		}
		seen[p.String()] = 0
	}
	if s := at(2, 64).String(); s != "blade 2 +0x40" {
		t.Errorf("a RemoteAddr prints as %q", s)
	}
}

func TestCountersArithmetic(t *testing.T) {
	a := rdma.Counters{
		Verbs: [rdma.NumOps]uint64{1, 2, 3, 4, 5, 6}, RoundTrips: 7, Doorbells: 8, BytesRead: 9, BytesWrite: 10,
	}
	if a.Total() != 21 {
		t.Errorf("Total is %d; want 21", a.Total())
	}
	sum := a
	sum.Add(&a)
	want := rdma.Counters{
		Verbs: [rdma.NumOps]uint64{2, 4, 6, 8, 10, 12}, RoundTrips: 14, Doorbells: 16, BytesRead: 18, BytesWrite: 20,
	}
	if sum != want {
		t.Errorf("Add: %+v; want %+v", sum, want)
	}
	if d := sum.Sub(&a); d != a {
		t.Errorf("Sub: %+v; want %+v", d, a)
	}
}

// TestCountersLongBatch: more verbs at once than the fields of a tally hold.
func TestCountersLongBatch(t *testing.T) {
	th := newThread(t, rig{})
	c := th.Plain()
	for _, n := range []int{1, 1022, 1023, 1024, 1025, 5000} {
		var b rdma.Batch
		before := th.Counters()
		b.FAA(at(3, 0), 1)
		for range n {
			b.Read(at(1, 0), 0, 8)
			b.Write(at(2, 0), 0, 4)
		}
		must(t, c.Do(&b))
		want := rdma.Counters{RoundTrips: 1, Doorbells: 3, BytesRead: 8 * uint64(n), BytesWrite: 4*uint64(n) + 8}
		want.Verbs = [rdma.NumOps]uint64{rdma.OpRead: uint64(n), rdma.OpWrite: uint64(n), rdma.OpFAA: 1}
		after := th.Counters()
		if got := after.Sub(&before); got != want {
			t.Errorf("%d verbs each: counted %+v; want %+v", n, got, want)
		}
		before, b = after, rdma.Batch{}
		for range n {
			b.Write(at(2, 0), 0, 4)
		}
		must(t, c.Do(&b))
		want = rdma.Counters{RoundTrips: 1, Doorbells: 1, BytesWrite: 4 * uint64(n)}
		want.Verbs[rdma.OpWrite] = uint64(n)
		after = th.Counters()
		if got := after.Sub(&before); got != want {
			t.Errorf("%d verbs: counted %+v; want %+v", n, got, want)
		}
	}
}

func TestBatchResetWhileOutstanding(t *testing.T) {
	th := newThread(t, rig{})
	var b rdma.Batch
	b.Read(at(0, 0), 0, 8)
	th.Plain().Post(&b)
	func() {
		defer func() {
			if recover() == nil {
				t.Error("Reset of a batch with outstanding requests: no panic")
			}
		}()
		b.Reset()
	}()
	must(t, th.Plain().Drain(&b))
	b.Reset()
}

// TestBatchErr: the error is that of the first request, in posted order, that
// failed, and is gone after Reset.
func TestBatchErr(t *testing.T) {
	th := newThread(t, rig{Options: rdmatest.Options{SpreadNs: 10_000}})
	c := th.Plain()
	var b rdma.Batch
	b.Read(at(1, 0), 0, 1<<12)
	b.Read(at(1, 1<<20), 0, 8)
	b.Fence() // so it completes after those that are posted behind it
	b.Write(at(2, 3), 0, 1<<19)
	b.CAS(at(3, 9), 0, 0)
	var v *rdma.VerbError
	if err := c.Do(&b); !errors.As(err, &v) || v.Blade != 1 || v.Size != 1<<16 || v.Off != 1<<20 {
		t.Fatalf("the batch's error is %v", err)
	}
	if err := c.Wait(&b); !errors.As(err, &v) || v.Blade != 1 {
		t.Errorf("on a second Wait: %v", err)
	}
	for i, want := range []rdma.Status{rdma.StatusOK, rdma.StatusBounds, rdma.StatusBounds, rdma.StatusAlign} {
		if got := b.WR(i).Status; got != want {
			t.Errorf("request %d: %q; want %q", i, got, want)
		}
	}
	b.Reset()
	for blade := range rdma.BladeID(4) {
		must(t, th.Reconnect(blade))
		b.Read(at(blade, 0), 0, 8)
	}
	must(t, c.Do(&b))
	for i := range b.Len() {
		if s := b.WR(i).Status; s != rdma.StatusOK {
			t.Errorf("request %d of a batch used again: %q", i, s)
		}
	}
}

// TestUncertainFailure: a fabric may fail a verb for reasons of its own.
func TestUncertainFailure(t *testing.T) {
	fail := rdma.StatusTimeout
	th := newThread(t, rig{Options: rdmatest.Options{Fail: func(w *rdma.WR) rdma.Status {
		if w.Op == rdma.OpCAS {
			return fail
		}
		return rdma.StatusOK
	}}})
	var b rdma.Batch
	b.Write(at(0, 0), 0, 8)
	b.CAS(at(0, 0), 0, 1)
	b.Write(at(0, 8), 0, 8)
	err := th.Plain().Do(&b)
	var v *rdma.VerbError
	if !errors.Is(err, rdma.ErrBladeDown) || !errors.As(err, &v) || !v.Status.Uncertain() {
		t.Errorf("a CAS without answer: %v; want ErrBladeDown, uncertain", err)
	}
	if s := b.WR(2).Status; s != rdma.StatusFlushed || s.Uncertain() {
		t.Errorf("behind it: %q; want flushed, certain", s)
	}
}

// TestFailed: a request that has failed counts, unless a new key has been given, or will be, since
// the thread has posted it: its own key is stale, or was when a request before it failed.
func TestFailed(t *testing.T) {
	status := rdma.StatusOK
	th := newThread(t, rig{Options: rdmatest.Options{Fail: func(*rdma.WR) rdma.Status { return status }}})
	c := th.Plain()
	var b rdma.Batch
	write := func(key rdma.Key, fails rdma.Status) {
		t.Helper()
		status = fails
		x := at(1, 8)
		x.Key = key
		b.Reset()
		b.Write(x, 0, 8)
		b.Write(x, 0, 8)
		if err := c.Do(&b); err == nil || b.WR(1).Status != rdma.StatusFlushed {
			t.Errorf("a request that is to fail: %v, behind it %q", err, b.WR(1).Status)
		}
	}
	key := at(1, 8).Key
	write(key, rdma.StatusKey)
	write(key, rdma.StatusOK) // flushed
	if th.Failed() {
		t.Error("requests with a stale key count")
	}
	write(key+1, rdma.StatusOK)
	if !th.Failed() {
		t.Error("a request with the new key was flushed, and does not count")
	}
	must(t, th.Reconnect(1))
	th.ClearFailed()
	write(key, rdma.StatusBounds)
	if !th.Failed() {
		t.Error("a request that has failed does not count")
	}
	th.ClearFailed() // as when the blade is down, so that it is not connected again
	write(key+2, rdma.StatusOK)
	if !th.Failed() {
		t.Error("a request was flushed when the blade was back, and does not count")
	}
}

// TestBar: nothing of a batch is posted that has a request for a blade which the thread does
// without, and no queue pair fails. Other batches are posted, a fence asks the other blades alone,
// and the thread uses all blades again when it is told so.
func TestBar(t *testing.T) {
	posted := 0
	th := newThread(t, rig{Options: rdmatest.Options{SpreadNs: 10_000, Fail: func(w *rdma.WR) rdma.Status {
		posted++
		return rdma.StatusOK
	}}})
	c := th.Plain()
	var b, fence rdma.Batch
	write := func(blades ...rdma.BladeID) error {
		b.Reset()
		for _, x := range blades {
			b.Write(at(x, 8), 0, 8)
		}
		return c.Do(&b)
	}
	must(t, write(0, 1, 2))
	th.Bar(rdma.BladeBit(1) | rdma.BladeBit(3))
	posted = 0
	var v *rdma.VerbError
	err := write(0, 1, 2)
	if !errors.Is(err, rdma.ErrBarred) || errors.Is(err, rdma.ErrVerb) || !errors.As(err, &v) || v.Blade != 1 {
		t.Errorf("a batch for a barred blade: %v", err)
	}
	if posted != 0 || th.Uncertain() || th.Failed() {
		t.Errorf("%d requests were posted; uncertain %v, failed %v", posted, th.Uncertain(), th.Failed())
	}
	must(t, c.Fence(rdma.FenceThread, 0, &fence))
	must(t, write(0, 2)) // their queue pairs are not in the error state
	th.Bar(0)
	must(t, write(0, 1, 2, 3))
}

func TestThreadClose(t *testing.T) {
	f := rdmatest.New(rdmatest.Options{Blades: 1, Size: 64})
	th, err := rdma.NewThread(f, rdma.ThreadOptions{Index: 7})
	must(t, err)
	if th.Index() != 7 || th.Fabric() != rdma.Fabric(f) || th.Caps().MaxBatch != f.Caps().MaxBatch ||
		th.Now() != f.Now() {
		t.Error("the thread's getters disagree with the fabric's")
	}
	th.Run(1, func(*rdma.Coro) {
		if err := th.Close(); err == nil {
			t.Error("Close inside Run: no error")
		}
	})
	must(t, th.Close())
	must(t, th.Close())
	must(t, f.Close())
	if _, err := rdma.NewThread(f, rdma.ThreadOptions{Arena: -5}); err == nil {
		t.Error("a thread with a negative arena: no error")
	}
}

// TestRand: a thread's random numbers depend on the fabric's seed and its index.
func TestRand(t *testing.T) {
	seen := map[uint64]bool{}
	for seed := range uint64(20) {
		for index := range 20 {
			r := rig{Options: rdmatest.Options{Seed: seed}, index: index}
			a, b := newThread(t, r), newThread(t, r)
			for range 10 {
				x := a.Rand()
				if y := b.Rand(); x != y {
					t.Fatalf("seed %d, index %d: %#x, then %#x", seed, index, x, y)
				}
				if seen[x] {
					t.Fatalf("%#x came twice", x)
				}
				seen[x] = true
			}
		}
	}
}
