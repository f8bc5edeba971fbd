package indextest

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"txnode/index"
	"txnode/memory"
	"txnode/rdma"
)

// Subject is the kind of index under test. Make its structures as small as
// possible, so that they grow all the time.
type Subject struct {
	Name   string
	Create func(c *rdma.Coro, m *Memory, table uint16) (memory.Addr, index.Index, error)
	// Open makes another handle on an index.
	Open func(c *rdma.Coro, m *Memory, root memory.Addr, table uint16) (index.Index, error)
	// Verify reports what is wrong with an index that nobody uses, with its copies, too.
	Verify func(c *rdma.Coro, ix index.Index) error
}

const table = 7

// name is key i. Some are long, so that they are not in the first line of a block.
func name(i int) []byte {
	if i%5 == 0 {
		return fmt.Appendf(nil, "key %d with a name that does not fit the first line of its block", i)
	}
	return fmt.Appendf(nil, "key %d", i)
}

// Chaos runs clients that insert, delete, move and look for a few keys on a
// disorderly fabric while the index grows, and checks that what each saw is
// linearizable, that keys which are always there are always found, and that keys
// which never are never seem to be.
func Chaos(t *testing.T, s Subject, seeds int) {
	for seed := range seeds {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) { chaos(t, s, uint64(seed)) })
		if t.Failed() {
			return
		}
	}
}

func chaos(t *testing.T, s Subject, seed uint64) {
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
	m := NewMemory(t, MemoryOptions{Seed: seed, Fabric: fabric, SegmentSize: 64 << 10, Segments: 64, Copies: 1 + int(seed%3)})
	c0 := m.Thread(t).Plain()
	root, ix, err := s.Create(c0, m, table)
	if err != nil {
		t.Fatal(err)
	}
	k0, err := m.NewClient(c0, ix, table)
	if err != nil {
		t.Fatal(err)
	}
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
		ix, err := s.Open(c, m, root, table)
		if err != nil {
			t.Error(err)
			return
		}
		k, err := m.NewClient(c, ix, table)
		if err != nil {
			t.Error(err)
			return
		}
		defer k.Close()
		fresh := 1000 * (id + 1)
		for range steps {
			if t.Failed() {
				return
			}
			var err error
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
				if err = k.Move(name(r.IntN(stable))); err == ErrLocked {
					err = nil
				}
			case n < 7:
				v, e := k.Get(name(-1 - r.IntN(10)))
				if err = e; err == nil && v != nil {
					err = fmt.Errorf("a key that was never inserted was found")
				}
			default:
				i := stable + r.IntN(churned)
				err = histories[id].do(k, id, call{i, opKind(r.IntN(4))}, name(i))
			}
			if err != nil {
				t.Errorf("client %d: %v", id, err)
			}
		}
	})
	checkHistories(t, histories)
	if err := s.Verify(c0, ix); err != nil && !t.Failed() {
		t.Error(err)
	}
}
