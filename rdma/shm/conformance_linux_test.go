package shm_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"txnode/rdma"
	"txnode/rdma/fabrictest"
	"txnode/rdma/region"
	"txnode/rdma/shm"
)

// drilled is a fabric whose blades can be stopped, by way of their server.
type drilled struct {
	*shm.Fabric
	set *region.Set
}

func (d drilled) StopBlade(b rdma.BladeID) error              { return d.set.StopBlade(b) }
func (d drilled) RestartBlade(b rdma.BladeID, mem bool) error { return d.set.RestartBlade(b, mem) }

// TestConformance runs the suite on blades of a server of this process, which can be stopped.
func TestConformance(t *testing.T) {
	t.Run("memory", conform)
	t.Run("without membarrier", func(t *testing.T) {
		t.Cleanup(shm.WithoutBarrier())
		conform(t)
	})
	t.Run("files", func(t *testing.T) {
		if testing.Short() {
			t.Skip("differs little from memory")
		}
		fabrictest.Run(t, func(tb testing.TB, n int, size uint64) rdma.Fabric {
			all := regions(n, size)
			for i := range all {
				all[i].Path = filepath.Join(tb.TempDir(), fmt.Sprint(i))
			}
			dir := directory(tb)
			s := serve(tb, dir, shm.ServerOptions{Blades: all})
			return drilled{dial(tb, dir, shm.Options{Seed: 1}), s.Set()}
		})
	})
	t.Run("read-only", func(t *testing.T) {
		fabrictest.ReadOnly(t, func(tb testing.TB, size uint64) rdma.Fabric {
			all := regions(1, size)
			all[0].Path = filepath.Join(tb.TempDir(), "blade")
			set, err := region.New(region.Config{Regions: all})
			if err != nil {
				tb.Fatal(err)
			}
			if err := set.Close(); err != nil {
				tb.Fatal(err)
			}
			all[0].ReadOnly = true
			dir := directory(tb)
			serve(tb, dir, shm.ServerOptions{Blades: all})
			return dial(tb, dir, shm.Options{})
		})
	})
}

func conform(t *testing.T) {
	fabrictest.Run(t, func(tb testing.TB, n int, size uint64) rdma.Fabric {
		dir := directory(tb)
		s := serve(tb, dir, shm.ServerOptions{Blades: regions(n, size)})
		return drilled{dial(tb, dir, shm.Options{Seed: 1}), s.Set()}
	})
}

// TestConformanceProcesses runs the suite on blades of other processes, one each.
func TestConformanceProcesses(t *testing.T) {
	if testing.Short() {
		t.Skip("as in this process")
	}
	fabrictest.Run(t, func(tb testing.TB, n int, size uint64) rdma.Fabric {
		dir := directory(tb)
		for i := range n {
			spawn(tb, "serve", dir, fmt.Sprintf("s%02d", i), 1, size)
		}
		return dial(tb, dir, shm.Options{Seed: 1})
	})
}
