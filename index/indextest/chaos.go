package indextest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"txnode/rdma"
)

// Chaos runs clients that insert, delete, move and look for a few keys while the
// index grows, on fabrics that are as disorderly as the contract allows, and
// checks that what each saw is linearizable, that keys which are always there are
// always found, that keys which never are never seem to be, and that in the end
// all copies are in order. It runs the seeds from the first to the last but one.
func Chaos(t *testing.T, s Subject, first, last int) {
	for seed := first; seed < last; seed++ {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) { chaos(t, s, uint64(seed)) })
		if t.Failed() {
			return
		}
	}
}

// Catches fails the test unless one of the seeds finds the subject wrong. It is for
// testing the suite, with indexes that are.
func Catches(t *testing.T, s Subject, seeds int) {
	t.Helper()
	for seed := range seeds {
		r := &recorder{TB: t}
		func() {
			defer r.cleanup()
			defer func() {
				if x := recover(); x != nil && x != (stopped{}) {
					panic(x)
				}
			}()
			chaos(r, s, uint64(seed))
		}()
		if r.failed {
			t.Logf("seed %d: %s", seed, r.first)
			return
		}
	}
	t.Errorf("%s was not caught", s.Name)
}

// recorder is a test that notes its failures, instead of failing.
type recorder struct {
	testing.TB
	failed bool
	first  string
	clean  []func()
}

// stopped ends a recorded test.
type stopped struct{}

func (r *recorder) fail(s string) {
	if !r.failed {
		r.failed, r.first = true, s
	}
}

func (r *recorder) Helper()                   {}
func (r *recorder) Failed() bool              { return r.failed }
func (r *recorder) Logf(string, ...any)       {}
func (r *recorder) Cleanup(fn func())         { r.clean = append(r.clean, fn) }
func (r *recorder) Error(args ...any)         { r.fail(fmt.Sprint(args...)) }
func (r *recorder) Errorf(f string, a ...any) { r.fail(fmt.Sprintf(f, a...)) }
func (r *recorder) Fatal(args ...any)         { r.fail(fmt.Sprint(args...)); panic(stopped{}) }
func (r *recorder) Fatalf(f string, a ...any) { r.fail(fmt.Sprintf(f, a...)); panic(stopped{}) }

func (r *recorder) cleanup() {
	for i := len(r.clean) - 1; i >= 0; i-- {
		r.clean[i]()
	}
}

func chaos(t testing.TB, s Subject, seed uint64) {
	const (
		clients = 4
		steps   = 80
		stable  = 32
		churned = 6
	)
	fabric := disorderly
	if seed%2 == 1 {
		fabric = NewStepwise
	}
	m, root, k0 := start(t, s, MemoryOptions{
		Seed: seed, Fabric: fabric, SegmentSize: 64 << 10, Segments: 64, Copies: 1 + int(seed%3),
	})
	for i := range stable {
		if _, err := k0.Insert(name(i), name(i)); err != nil {
			t.Fatal(err)
		}
	}
	histories := make([]History, clients)
	var threads []*rdma.Thread
	for range clients {
		threads = append(threads, m.Thread(t))
	}
	m.Fabric.Run(clients, func(id int) {
		r := rand.New(rand.NewPCG(seed, uint64(id)))
		c := threads[id].Plain()
		k := another(t, s, m, root, c)
		if k == nil {
			return
		}
		defer k.Close()
		fresh := 1000 * (id + 1)
		for range steps {
			if t.Failed() {
				return
			}
			var err error
			if s.Background != nil && r.IntN(3) == 0 {
				if err := s.Background(k.C, k.Index); err != nil {
					t.Errorf("client %d: %v", id, err)
				}
			}
			switch n := r.IntN(10); {
			case n < 3: // keys that make the index grow
				fresh++
				_, err = k.Insert(name(fresh), name(fresh))
			case n < 5:
				i := r.IntN(stable)
				v, e := k.Get(name(i))
				if err = e; err == nil && v == nil {
					err = fmt.Errorf("key %d, which is always there, was not found", i)
				}
			case n < 6:
				if err = k.Move(name(r.IntN(stable))); errors.Is(err, ErrLocked) {
					err = nil
				}
			case n < 7:
				v, e := k.Get(name(-1 - r.IntN(10)))
				if err = e; err == nil && v != nil {
					err = fmt.Errorf("a key that was never inserted was found")
				}
			default:
				i := stable + r.IntN(churned)
				err = histories[id].do(k, id, call{i, opKind(r.IntN(int(numOps)))}, name(i))
			}
			if err != nil {
				t.Errorf("client %d: %v", id, err)
			}
		}
	})
	checkHistories(t, histories)
	if !t.Failed() {
		verify(t, s, k0)
	}
}
