package steptest_test

import (
	"errors"
	"fmt"
	"testing"

	"txnode/rdma"
	"txnode/rdma/steptest"
)

// TestMoves: one WRITE and one READ of another client, in all grains: what may be
// seen, and that it is seen in some order of moves.
func TestMoves(t *testing.T) {
	for _, c := range []struct {
		grain  steptest.Grain
		placed bool
		want   map[string]bool // what the reader sees of two words of a line
	}{
		{steptest.Batches, true, map[string]bool{"0 0": true, "7 7": true}},
		{steptest.Queues, true, map[string]bool{"0 0": true, "7 7": true}},
		{steptest.Verbs, false, map[string]bool{"0 0": true, "7 7": true}},
		{steptest.Words, true, map[string]bool{"0 0": true, "7 7": true, "0 7": true, "7 0": true}},
	} {
		t.Run(fmt.Sprint(c.grain, c.placed), func(t *testing.T) {
			f := steptest.New(steptest.Options{
				Blades: 1, Size: 4096, Grain: c.grain, Caps: rdma.Caps{Placed: c.placed},
			})
			seen := map[string]bool{}
			var explore func(prefix []int)
			explore = func(prefix []int) {
				f.Restore()
				got := ""
				f.Go(func() {
					th, err := rdma.NewThread(f, rdma.ThreadOptions{Arena: 4096})
					if err != nil {
						t.Error(err)
						return
					}
					th.PutWord(0, 7)
					th.PutWord(56, 7)
					var b rdma.Batch
					b.Write(rdma.RemoteAddr{Key: 100}, 0, 64)
					if err := th.Plain().Do(&b); err != nil {
						t.Error(err)
					}
				})
				f.Go(func() {
					th, err := rdma.NewThread(f, rdma.ThreadOptions{Arena: 4096})
					if err != nil {
						t.Error(err)
						return
					}
					var b rdma.Batch
					b.Read(rdma.RemoteAddr{Key: 100}, 0, 64)
					if err := th.Plain().Do(&b); err != nil {
						t.Error(err)
					}
					got = fmt.Sprint(th.Word(0), " ", th.Word(56))
				})
				for _, i := range prefix {
					f.Do(f.Moves()[i])
				}
				n := len(f.Moves())
				if n == 0 {
					seen[got] = true
					return
				}
				for i := range n {
					explore(append(prefix[:len(prefix):len(prefix)], i))
				}
			}
			explore(nil)
			if fmt.Sprint(seen) != fmt.Sprint(c.want) {
				t.Errorf("seen %v, want %v", seen, c.want)
			}
		})
	}
}

// TestStopAndLose: what a stopped client had posted does not happen; a request whose
// completion is lost does, and breaks its queue pair.
func TestStopAndLose(t *testing.T) {
	f := steptest.New(steptest.Options{Blades: 1, Size: 4096, Grain: steptest.Verbs, Caps: rdma.Caps{Placed: true}})
	adds := func(n int, lose int) (err error) {
		th, err := rdma.NewThread(f, rdma.ThreadOptions{Arena: 4096})
		if err != nil {
			return err
		}
		if lose >= 0 {
			f.LoseFrom(lose)
		}
		var b rdma.Batch
		for range n {
			b.FAA(rdma.RemoteAddr{Key: 100}, 1)
		}
		return th.Plain().Do(&b)
	}
	c := f.Go(func() { _ = adds(4, -1) })
	f.Do(f.Moves()[0])
	f.Do(f.Moves()[0])
	c.Stop()
	if n := f.Memory(0)[0]; n != 2 || !c.Ended() || len(f.Moves()) != 0 {
		t.Fatalf("stopped after two of four: %d", n)
	}
	f.Restore()
	var err error
	f.Go(func() { err = adds(4, 1) })
	for m := f.Moves(); len(m) > 0; m = f.Moves() {
		f.Do(m[0])
	}
	if n := f.Memory(0)[0]; n != 2 || err == nil {
		t.Fatalf("the second of four lost: %d, %v", n, err)
	}
	f.Restore()
	if f.Memory(0)[0] != 0 || f.Hash() != 0 {
		t.Fatal("not restored")
	}
}

// TestStopBlade: what was under way to a blade that stops fails, until it is restored.
func TestStopBlade(t *testing.T) {
	f := steptest.New(steptest.Options{Blades: 2, Size: 4096, Grain: steptest.Verbs})
	var th *rdma.Thread
	var err error
	run := func() {
		if th, err = rdma.NewThread(f, rdma.ThreadOptions{Arena: 4096}); err != nil {
			return
		}
		th.PutWord(0, 7)
		var b rdma.Batch
		b.Write(rdma.RemoteAddr{Key: 100}, 0, 8)
		b.Write(rdma.RemoteAddr{Key: 100, Off: 8}, 0, 8)
		err = th.Plain().Do(&b)
	}
	f.Go(run)
	f.Do(f.Moves()[0]) // the first one is complete, and not placed
	f.StopBlade(0)
	for m := f.Moves(); len(m) > 0; m = f.Moves() {
		f.Do(m[0])
	}
	if !errors.Is(err, rdma.ErrVerb) || f.Memory(0)[0] != 0 || f.Memory(0)[8] != 0 {
		t.Errorf("%v, and the memory is %v", err, f.Memory(0)[:16])
	}
	_, grant := f.Grant(0)
	for _, e := range []error{th.Reconnect(0), grant, f.Revoke(0, 100), f.Provision(0, 0, 8)} {
		if !errors.Is(e, rdma.ErrBladeDown) {
			t.Errorf("of a blade that is stopped: %v", e)
		}
	}
	if e := f.Revoke(1, 101); e != nil {
		t.Error(e)
	}
	f.Restore()
	f.Go(run)
	for m := f.Moves(); len(m) > 0; m = f.Moves() {
		f.Do(m[0])
	}
	if err != nil || f.Memory(0)[0] != 7 || f.Memory(0)[8] != 7 {
		t.Errorf("restored: %v, and the memory is %v", err, f.Memory(0)[:16])
	}
}

// TestRestartBlade: a blade that has restarted has another key, without its memory it is
// zero, and no queue pair from before leads to it.
func TestRestartBlade(t *testing.T) {
	f := steptest.New(steptest.Options{Blades: 2, Size: 2 * 4096, Grain: steptest.Verbs})
	for _, memory := range []bool{true, false} {
		f.Restore()
		th, err := rdma.NewThread(f, rdma.ThreadOptions{Arena: 4096})
		if err != nil {
			t.Fatal(err)
		}
		th.PutWord(0, 7)
		write := func(key rdma.Key, off uint64) error {
			var b rdma.Batch
			b.Write(rdma.RemoteAddr{Key: key, Off: off}, 0, 8)
			return th.Plain().Do(&b)
		}
		if err := write(100, 4096); err != nil {
			t.Fatal(err)
		}
		f.RestartBlade(0, memory)
		key := f.Blades()[0].Key
		if got := f.Memory(0)[4096]; key == 100 || (got == 7) != memory {
			t.Errorf("memory %v: the key is %v, and the memory %v", memory, key, got)
		}
		if err := write(key, 0); !errors.Is(err, rdma.ErrBladeDown) {
			t.Errorf("on a queue pair from before: %v", err)
		}
		if err := errors.Join(th.Reconnect(0), write(key, 8), f.Revoke(0, key)); err != nil || f.Memory(0)[0] != 0 ||
			f.Memory(0)[8] != 7 {
			t.Errorf("connected again: %v, and the memory is %v", err, f.Memory(0)[:16])
		}
		f.RestartBlade(0, memory)
		if k := f.Blades()[0].Key; k == key || k == 100 {
			t.Errorf("restarted twice, the key is %v, %v before", k, key)
		}
	}
	if f.Restore(); f.Hash() != 0 || f.Blades()[0].Key != 100 {
		t.Error("not restored")
	}
}
