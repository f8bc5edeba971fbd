package region_test

import (
	"testing"

	"golang.org/x/sys/unix"

	"txnode/rdma/inproc"
	"txnode/rdma/region"
)

// TestInterruptedCalls: a signal interrupts every call that reserves, flushes and gives back,
// several times. No caller learns of it.
func TestInterruptedCalls(t *testing.T) {
	calls, interrupted := 0, 0
	interrupt := func() bool {
		calls++
		if calls%4 != 0 {
			interrupted++
			return true
		}
		return false
	}
	defer region.SetFallocate(func(fd int, mode uint32, off, n int64) error {
		if interrupt() {
			return unix.EINTR
		}
		return unix.Fallocate(fd, mode, off, n)
	})()
	defer region.SetMsync(func(p []byte, flags int) error {
		if interrupt() {
			return unix.EINTR
		}
		return unix.Msync(p, flags)
	})()
	f, err := inproc.New(inproc.Options{Blades: blades(1, 1<<20, t.TempDir())})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for i, step := range []func() error{
		func() error { return f.Provision(0, 0, 1<<16) },
		func() error { return f.Sync(0) },
		func() error { return f.Sync(0) },
	} {
		if err := step(); err != nil {
			t.Errorf("step %d: %v", i, err)
		}
	}
	if interrupted < 9 {
		t.Errorf("%d calls were interrupted; the test wants three of each step", interrupted)
	}
}
