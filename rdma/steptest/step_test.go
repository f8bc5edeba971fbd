package steptest_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"txnode/rdma"
	"txnode/rdma/steptest"
)

// word is what steps of these tests are about.
func word(writes bool) func(to []steptest.Access) []steptest.Access {
	return func(to []steptest.Access) []steptest.Access {
		return append(to, steptest.Access{What: steptest.Outside, N: 1, Writes: writes})
	}
}

// TestSteps: two clients add to a word in two steps, a READ and a WRITE of it, in every order;
// orders of what commutes are tried once.
func TestSteps(t *testing.T) {
	for _, reduce := range []bool{false, true} {
		f := steptest.New(steptest.Options{Blades: 1, Size: 4096})
		seen, x := map[int]bool{}, 0
		start := func() {
			f.Restore()
			x = 0
			for range 2 {
				f.Go(func() {
					f.Step("read", word(false))
					was := x
					f.Step("write", word(true))
					x = was + 1
				})
			}
		}
		n, all, err := f.Interleave(0, reduce, start, func(steptest.Schedule) error { seen[x] = true; return nil })
		if want := map[bool]int{false: 6, true: 4}[reduce]; err != nil || !all || n != want ||
			fmt.Sprint(seen) != "map[1:true 2:true]" {
			t.Errorf("reduced: %v: %d schedules, all: %v, %v, %v", reduce, n, all, seen, err)
		}
		for bound, want := range []int{2, 4} {
			if n, all, err := f.Bounded(bound, 0, start, func(steptest.Schedule) error { return nil }); n != want ||
				!all || err != nil {
				t.Errorf("with %d interruptions: %d schedules, all: %v, %v", bound, n, all, err)
			}
		}
	}
}

// TestProcess: while a client waits for a step, no other one of its process goes on; one that rests
// keeps none, and need not end.
func TestProcess(t *testing.T) {
	f := steptest.New(steptest.Options{Blades: 1, Size: 4096, Caps: rdma.Caps{Placed: true}})
	may, told := false, ""
	f.GoIn(1, func() {
		for {
			f.Rest("rest", func() bool { return may }, word(false))
			told += "r"
			may = false
		}
	})
	f.GoIn(1, func() {
		th, err := rdma.NewThread(f, rdma.ThreadOptions{Arena: 4096})
		if err != nil {
			t.Error(err)
			return
		}
		var b rdma.Batch
		b.FAA(rdma.RemoteAddr{Key: 100}, 1)
		if err := th.Plain().Do(&b); err != nil {
			t.Error(err)
		}
		told += "v"
	})
	f.GoIn(1, func() {
		f.Step("one", word(true))
		may = true
		f.Step("two", word(true))
		told += "2"
	})
	for m := f.Moves(); len(m) > 0; m = f.Moves() {
		f.Do(m[len(m)-1])
	}
	if told != "2vr" || f.Memory(0)[0] != 1 {
		t.Errorf("%q", told)
	}
	f.Restore()
}

// TestControl: calls to blades are moves of a client, as its sleep is; a blade that a process
// cannot reach fails it alone.
func TestControl(t *testing.T) {
	f := steptest.New(steptest.Options{
		Blades: 2, Size: 4096, Caps: rdma.Caps{Placed: true}, Control: true, Wakes: true,
	})
	f.Restore()
	f.Cut(2, 1)
	var errs [2]error
	var names []string
	for i := range errs {
		f.GoIn(1+i, func() {
			th, err := rdma.NewThread(f, rdma.ThreadOptions{Arena: 4096})
			if err != nil {
				t.Error(err)
				return
			}
			k, err := f.Grant(1)
			th.Plain().Sleep(1_000)
			if err == nil {
				err = f.Revoke(1, k)
			}
			var b rdma.Batch
			b.FAA(rdma.RemoteAddr{Blade: 1, Key: f.Blades()[1].Key}, 1)
			errs[i] = errors.Join(err, th.Plain().Do(&b))
		})
	}
	for m := f.Moves(); len(m) > 0; m = f.Moves() {
		names = append(names, f.Describe(m[0]))
		f.Do(m[0])
	}
	for _, want := range []string{
		"process 1: grant", "process 2: grant", "process 1: wakes up", "process 1: revoke",
		"process 2: blades", "process 1: FAA [0x0, +8) of blade 1",
	} {
		if !slices.Contains(names, want) {
			t.Errorf("no move is %q: %q", want, names)
		}
	}
	if errs[0] != nil || !errors.Is(errs[1], rdma.ErrBladeDown) || !errors.Is(errs[1], rdma.ErrVerb) ||
		f.Memory(1)[0] != 1 {
		t.Error(errs)
	}
}
