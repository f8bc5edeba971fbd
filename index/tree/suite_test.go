package tree_test

import (
	"errors"
	"testing"

	"txnode/index"
	"txnode/index/blink"
	"txnode/index/indextest"
	"txnode/index/tree"
	"txnode/memory/layout"
)

// TestSuite runs the conformance suite of indexes of nodes, with leaves of few keys.
func TestSuite(t *testing.T) {
	g := geometry(t, 80, 3)
	indextest.RunNodes(t, indextest.NodeSubject{
		Name:  "tree",
		Empty: tree.Empty,
		Open: func(m *indextest.Memory, table uint16, root layout.Addr) (index.Ranged, error) {
			return tree.New(m, g, table, root)
		},
		Verify: func(value []byte, read func(layout.Addr) ([]byte, error)) (int, error) {
			root, err := blink.DecodeRoot(value)
			if err != nil {
				return 0, err
			}
			totals := blink.Verify(g, root, read, nil, func(layout.Addr, blink.Node) {}, func(f blink.NodeError) {
				err = errors.Join(err, f)
			})
			return totals.Entries, err
		},
	})
}
