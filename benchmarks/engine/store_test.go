package engine_test

import (
	"testing"

	"txnode/benchmarks/engine"
	"txnode/benchmarks/workload"
	"txnode/benchmarks/workload/storetest"
	"txnode/occ"
	"txnode/txn"
)

// TestStore holds the engine against what benchmarks expect of any store.
func TestStore(t *testing.T) {
	for _, p := range []occ.Policy{occ.PolicyDefault, occ.PolicyFORD} {
		t.Run(p.String(), func(t *testing.T) {
			storetest.Test(t, func(t *testing.T) workload.Store {
				s, err := engine.Open(t.Context(), txn.Options{
					Policy: p, BladeSize: 1 << 30, SegmentSize: 4 << 20, IndexGroups: 16,
				})
				if err != nil {
					t.Fatal(err)
				}
				return s
			})
		})
	}
}
