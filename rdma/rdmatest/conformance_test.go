package rdmatest_test

import (
	"fmt"
	"testing"

	"txnode/rdma"
	"txnode/rdma/fabrictest"
	"txnode/rdma/rdmatest"
)

func TestConformance(t *testing.T) {
	const (
		synchronous = 1 << iota
		placed
		ordered
		masked
	)
	for i, promises := range []int{
		0, synchronous | placed | ordered | masked, // first: what short mode runs
		synchronous, placed, ordered, masked, synchronous | placed, placed | ordered | masked,
	} {
		if testing.Short() && i >= 2 {
			break
		}
		caps := rdma.Caps{
			Synchronous: promises&synchronous != 0, Placed: promises&placed != 0,
			OrderedLine: promises&ordered != 0, MaskedCAS: promises&masked != 0,
			MaxBatch: 4 + 40*(i%3),
		}
		t.Run(fmt.Sprintf("%+v", caps), func(t *testing.T) {
			t.Parallel()
			fabrictest.Run(t, func(_ testing.TB, n int, size uint64) rdma.Fabric {
				return rdmatest.New(rdmatest.Options{
					Blades: n, Size: size, Caps: caps, Seed: uint64(i), SpreadNs: 5000,
				})
			})
		})
	}
	t.Run("read-only", func(t *testing.T) {
		fabrictest.ReadOnly(t, func(_ testing.TB, size uint64) rdma.Fabric {
			return rdmatest.New(rdmatest.Options{Blades: 1, Size: size, ReadOnly: true})
		})
	})
}
