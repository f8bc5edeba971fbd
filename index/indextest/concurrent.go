package indextest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"txnode/index"
	"txnode/rdma"
)

// insertRace lets several clients insert the same keys at once: each key is
// inserted by exactly one, once those that gave in have tried again.
func insertRace(t *testing.T, s Subject) {
	for _, shape := range []struct{ threads, coroutines int }{{4, 1}, {1, 8}, {2, 4}} {
		t.Run(fmt.Sprintf("threads=%d,coroutines=%d", shape.threads, shape.coroutines), func(t *testing.T) {
			m, root, k0 := start(t, s, MemoryOptions{Copies: 3, Seed: 3})
			const keys = 300
			var done [keys]atomic.Int32 // inserts that returned nil
			var blocks [keys]atomic.Uint64
			parallel(t, m, shape.threads, shape.coroutines, func(id int, c *rdma.Coro) {
				k := another(t, s, m, root, c)
				if k == nil {
					return
				}
				defer k.Close()
				k.before = func(k *Client) { k.C.Yield() } // the others look, too, before this one links
				for i := range keys {
					for tries := 0; ; tries++ {
						a, err := k.Insert(name(i), name(i))
						if err == nil {
							done[i].Add(1)
							blocks[i].Store(uint64(a))
							break
						}
						if errors.Is(err, ErrExists) {
							break
						}
						if !errors.Is(err, index.ErrDuplicate) || tries > 10_000 {
							t.Errorf("key %d, try %d: %v", i, tries, err)
							return
						}
						k.C.Sleep(int64(1000 * (1 + k.C.Thread().Rand()%64)))
					}
				}
			})
			for i := range keys {
				a, _, err := k0.Find(name(i))
				if n := done[i].Load(); n != 1 || err != nil || uint64(a) != blocks[i].Load() {
					t.Errorf("key %d: %d inserts succeeded, the last with block %#x; found %v, %v",
						i, n, blocks[i].Load(), a, err)
				}
			}
			if !t.Failed() {
				verify(t, s, k0)
			}
		})
	}
}

// parallel runs a body in every coroutine of every thread.
func parallel(t *testing.T, m *Memory, threads, coroutines int, body func(id int, c *rdma.Coro)) {
	t.Helper()
	var all []*rdma.Thread
	for range threads {
		all = append(all, m.Thread(t))
	}
	m.Fabric.Run(threads, func(i int) {
		all[i].Run(coroutines, func(c *rdma.Coro) { body(i*coroutines+c.ID(), c) })
	})
}

// churn: while the index grows and keys come and go on several threads, readers
// never miss a key that is always there, and never see one that never is.
func churn(t *testing.T, s Subject) {
	steps := 3000
	if testing.Short() {
		steps = 500
	}
	m, root, k0 := start(t, s, MemoryOptions{Copies: 2, Segments: 1024, SegmentSize: 1 << 20})
	const stable = 200
	for i := range stable {
		if _, err := k0.Insert(name(i), name(i)); err != nil {
			t.Fatal(err)
		}
	}
	var inserted, deleted atomic.Int64
	parallel(t, m, 3, 4, func(id int, c *rdma.Coro) {
		k := another(t, s, m, root, c)
		if k == nil {
			return
		}
		defer k.Close()
		r := rand.New(rand.NewPCG(9, uint64(id)))
		own := 10_000 * (id + 1) // this client's keys, of which it knows what they are
		there := map[int]bool{}
		for range steps {
			if t.Failed() {
				return
			}
			var err error
			i := r.IntN(stable)
			switch x := own + r.IntN(300); r.IntN(8) {
			case 0, 1:
				v, e := k.Get(name(i))
				if err = e; e == nil && string(v) != string(name(i)) {
					err = fmt.Errorf("key %d, which is always there, is %q", i, v)
				}
			case 2:
				v, e := k.Get(name(-1 - i))
				if err = e; e == nil && v != nil {
					err = fmt.Errorf("key %d, which never is there, is %q", -1-i, v)
				}
			case 3:
				if err = k.Move(name(i)); errors.Is(err, ErrLocked) {
					err = nil
				}
			case 4, 5:
				if _, err = k.Insert(name(x), name(x)); err == nil && !there[x] {
					there[x] = true
					inserted.Add(1)
				} else if errors.Is(err, ErrExists) && there[x] {
					err = nil
				} else if err == nil {
					err = fmt.Errorf("key %d was there, and could be inserted", x)
				}
			case 6:
				if err = k.Delete(name(x)); err == nil && there[x] {
					delete(there, x)
					deleted.Add(1)
				} else if errors.Is(err, ErrNotFound) && !there[x] {
					err = nil
				} else if err == nil {
					err = fmt.Errorf("key %d was not there, and could be deleted", x)
				}
			case 7:
				v, e := k.Get(name(x))
				if err = e; e == nil && (v != nil) != there[x] {
					err = fmt.Errorf("key %d is %q, should be there: %v", x, v, there[x])
				}
			}
			if err != nil {
				t.Errorf("client %d: %v", id, err)
			}
			c.Yield()
		}
	})
	if inserted.Load() < int64(steps) || deleted.Load() == 0 {
		t.Errorf("%d inserts and %d deletes took place", inserted.Load(), deleted.Load())
	}
	if !t.Failed() {
		verify(t, s, k0)
	}
}
