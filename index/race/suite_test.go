package race

import (
	"flag"
	"testing"

	"txnode/index"
	"txnode/index/indextest"
	"txnode/memory"
	"txnode/rdma"
)

var subject = indextest.Subject{
	Name: "race",
	Create: func(c *rdma.Coro, m *indextest.Memory, table uint16) (memory.Addr, index.Index, error) {
		return Create(c, m, table, Options{Groups: 2, MaxDepth: 12})
	},
	Open: func(c *rdma.Coro, m *indextest.Memory, root memory.Addr, table uint16) (index.Index, error) {
		return Open(c, m, root, table)
	},
	Verify: func(c *rdma.Coro, ix index.Index) error { return ix.(*Index).Verify(c) },
}

var seeds = flag.Int("seeds", 0, "how many seeds of the disorderly runs; 0: a few")

func TestSuite(t *testing.T) { indextest.Run(t, subject) }

var from = flag.Int("from", 0, "first seed of the disorderly runs")

func TestChaos(t *testing.T) {
	n := 300
	if testing.Short() {
		n = 30
	}
	if *seeds > 0 {
		n = *seeds
	}
	indextest.Chaos(t, subject, *from, n)
}
