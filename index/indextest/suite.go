package indextest

import (
	"fmt"
	"testing"

	"txnode/index"
	"txnode/memory/layout"
	"txnode/rdma"
)

// Subject is the kind of index under test. Make its structures as small as
// possible, so that they grow all the time.
type Subject struct {
	Name   string
	Create func(c *rdma.Coro, m *Memory, table uint16) (layout.Addr, index.Slots, error)
	// Open makes another handle on an index.
	Open func(c *rdma.Coro, m *Memory, root layout.Addr, table uint16) (index.Slots, error)
	// Verify reports what is wrong with an index that nobody uses, with its copies, too.
	Verify func(c *rdma.Coro, ix index.Slots) error
	// Background is something that clients of Chaos do now and then beside all others, and that
	// changes nothing for them; nil: nothing.
	Background func(c *rdma.Coro, ix index.Slots) error
}

// Run is the suite.
func Run(t *testing.T, s Subject) {
	t.Run("Model", func(t *testing.T) { model(t, s) })
	t.Run("InsertRace", func(t *testing.T) { insertRace(t, s) })
	t.Run("Churn", func(t *testing.T) { churn(t, s) })
	t.Run("Absence", func(t *testing.T) { absence(t, s) })
	t.Run("Buffers", func(t *testing.T) { buffers(t, s) })
	t.Run("Allocations", func(t *testing.T) { allocations(t, s) })
}

const table = 7

// start makes an index and a client of it, on a thread of its own.
func start(tb testing.TB, s Subject, o MemoryOptions) (*Memory, layout.Addr, *Client) {
	tb.Helper()
	m := NewMemory(tb, o)
	c := m.Thread(tb).Plain()
	root, ix, err := s.Create(c, m, table)
	if err != nil {
		tb.Fatal(err)
	}
	k, err := m.NewClient(c, ix, table)
	if err != nil {
		tb.Fatal(err)
	}
	return m, root, k
}

// another makes a client with a handle of its own.
func another(tb testing.TB, s Subject, m *Memory, root layout.Addr, c *rdma.Coro) *Client {
	tb.Helper()
	ix, err := s.Open(c, m, root, table)
	if err != nil {
		tb.Error(err)
		return nil
	}
	k, err := m.NewClient(c, ix, table)
	if err != nil {
		tb.Error(err)
	}
	return k
}

func verify(tb testing.TB, s Subject, k *Client) {
	tb.Helper()
	if err := s.Verify(k.C, k.Index); err != nil {
		tb.Error(err)
	}
}

// name is key i. Some are long, so that they are not in the first line of a block.
func name(i int) []byte {
	if i%5 == 0 {
		return fmt.Appendf(nil, "key %d with a name that does not fit the first line of its block", i)
	}
	return fmt.Appendf(nil, "key %d", i)
}
