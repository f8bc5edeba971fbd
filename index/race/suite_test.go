package race

import (
	"flag"
	"fmt"
	"testing"

	"txnode/index"
	"txnode/index/indextest"
	"txnode/memory/layout"
	"txnode/rdma"
)

var subject = indextest.Subject{
	Name: "race",
	Create: func(c *rdma.Coro, m *indextest.Memory, table uint16) (layout.Addr, index.Slots, error) {
		return Create(c, m, table, Options{Groups: 2, MaxDepth: 12})
	},
	Open: func(c *rdma.Coro, m *indextest.Memory, root layout.Addr, table uint16) (index.Slots, error) {
		return Open(c, m, root, table)
	},
	Verify: func(c *rdma.Coro, ix index.Slots) error { return ix.(*Index).Verify(c) },
}

var seeds = flag.Int("seeds", 0, "how many seeds of the disorderly runs; 0: a few")

func TestSuite(t *testing.T) { indextest.Run(t, subject) }

var from = flag.Int("from", 0, "first seed of the disorderly runs")

func TestChaos(t *testing.T) {
	n := 150
	if testing.Short() {
		n = 30
	}
	if *seeds > 0 {
		n = *seeds
	}
	indextest.Chaos(t, subject, *from, n)
}

// TestChaosBesideScouring is TestChaos while slots are looked for that lead to free
// blocks. There are none, but blocks are freed and used again all the time, for the same
// keys and in the same slots.
func TestChaosBesideScouring(t *testing.T) {
	n := 75
	if testing.Short() {
		n = 20
	}
	if *seeds > 0 {
		n = *seeds
	}
	beside := subject
	beside.Background = func(c *rdma.Coro, ix index.Slots) error {
		x := ix.(*Index).Scour(nil)
		for {
			if done, err := x.Step(c); done || err != nil {
				return err
			}
		}
	}
	indextest.Chaos(t, beside, *from, n)
}

// TestChaosBesideHealing is TestChaos while damage is looked for, of which there is none:
// nothing is replaced.
func TestChaosBesideHealing(t *testing.T) {
	n := 100
	if testing.Short() {
		n = 15
	}
	if *seeds > 0 {
		n = *seeds
	}
	beside := subject
	beside.Background = func(c *rdma.Coro, ix index.Slots) error {
		x := ix.(*Index)
		words, err := x.Heal(c, x.Near(c.Thread().Rand()))
		if err == nil && words > 0 {
			err = fmt.Errorf("%d words were replaced", words)
		}
		return err
	}
	indextest.Chaos(t, beside, *from, n)
}

// broken is an index with a bug.
type broken struct {
	*Index
	search    func(ix *Index, b *rdma.Batch, q *index.Query)
	resolve   func(ix *Index, c *rdma.Coro, q *index.Query) (bool, error)
	unchanged func(ix *Index, q *index.Query, buffer uint32) bool
	insert    func(ix *Index, c *rdma.Coro, q *index.Query, a layout.Addr, class layout.Class) error
	remove    func(ix *Index, c *rdma.Coro, q *index.Query, a layout.Addr) error
}

func (x *broken) Search(b *rdma.Batch, q *index.Query) {
	if x.search != nil {
		x.search(x.Index, b, q)
	} else {
		x.Index.Search(b, q)
	}
}

func (x *broken) Resolve(c *rdma.Coro, q *index.Query) (bool, error) {
	if x.resolve != nil {
		return x.resolve(x.Index, c, q)
	}
	return x.Index.Resolve(c, q)
}

func (x *broken) Unchanged(q *index.Query, buffer uint32) bool {
	if x.unchanged != nil {
		return x.unchanged(x.Index, q, buffer)
	}
	return x.Index.Unchanged(q, buffer)
}

func (x *broken) Insert(c *rdma.Coro, q *index.Query, a layout.Addr, class layout.Class) error {
	if x.insert != nil {
		return x.insert(x.Index, c, q, a, class)
	}
	return x.Index.Insert(c, q, a, class)
}

func (x *broken) Remove(c *rdma.Coro, q *index.Query, a layout.Addr) error {
	if x.remove != nil {
		return x.remove(x.Index, c, q, a)
	}
	return x.Index.Remove(c, q, a)
}

// TestSuiteCatches: the suite finds what it is there to find.
func TestSuiteCatches(t *testing.T) {
	for name, bug := range map[string]broken{
		"stale directory trusted": {resolve: func(ix *Index, c *rdma.Coro, q *index.Query) (bool, error) {
			again, err := ix.Resolve(c, q)
			if again && q.State[stFirst] != 0 {
				return false, ix.collect(q, words(c.Thread(), q.Local)[:halfWords], 0)
			}
			return again, err
		}},
		"sub-table that is split not read": {search: func(ix *Index, b *rdma.Batch, q *index.Query) {
			ix.Search(b, q)
			if a := q.State[stSecond]; a != 0 {
				q.State[stFirst], q.State[stSecond] = a, 0
				b.Reset()
				readPlaces(b, q.View.At(layout.Addr(a), 0), uint32(q.State[stPlaces]),
					uint32(q.State[stPlaces]>>32), q.Local)
			}
		}},
		"absence not validated": {unchanged: func(*Index, *index.Query, uint32) bool { return true }},
		"insert without " +
			"a second look": {insert: func(ix *Index, c *rdma.Coro, q *index.Query, a layout.Addr,
			class layout.Class) error {
			s := ix.get()
			defer ix.put(s)
			for {
				to := ix.choose(c, q)
				if to.at == 0 || isSecond(to.line) {
					return ix.Insert(c, q, a, class)
				}
				ok, err := ix.one(c, s, q.View, to.at, to.was, uint64(MakeSlot(fingerprint(q.Hash), class, a)))
				if ok || err != nil {
					return err
				}
				if err := ix.lookup(c, s, q); err != nil {
					return err
				}
			}
		}},
		"remove forgets the backups": {remove: func(ix *Index, c *rdma.Coro, q *index.Query, a layout.Addr) error {
			s := ix.get()
			defer ix.put(s)
			own, n := ownSlot(ix.matches(c, s, q), a)
			if n != 1 {
				return ix.Remove(c, q, a)
			}
			s.steps = append(s.steps[:0], step{addr: own.at, old: uint64(own.value)})
			if err := ix.primary(c, s, q.View, s.steps); err != nil || s.steps[0].ok() {
				return err
			}
			return ix.Remove(c, q, a)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			indextest.Catches(t, indextest.Subject{
				Name: name,
				Create: func(c *rdma.Coro, m *indextest.Memory, table uint16) (layout.Addr, index.Slots, error) {
					root, ix, err := subject.Create(c, m, table)
					return root, ix, err
				},
				Open: func(c *rdma.Coro, m *indextest.Memory, root layout.Addr, table uint16) (index.Slots, error) {
					ix, err := subject.Open(c, m, root, table)
					if err != nil {
						return nil, err
					}
					b := bug
					b.Index = ix.(*Index)
					b.Index.stall = 1_000_000
					return &b, nil
				},
				Verify: subject.Verify,
			}, 300)
		})
	}
}
