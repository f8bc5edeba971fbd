package inproc_test

import (
	"path/filepath"
	"strconv"
	"testing"

	"txnode/internal/raced"
	"txnode/rdma"
	"txnode/rdma/fabrictest"
	"txnode/rdma/inproc"
)

func blades(n int, size uint64, dir string) []inproc.BladeOptions {
	all := make([]inproc.BladeOptions, n)
	for i := range all {
		all[i] = inproc.BladeOptions{Size: size, Key: rdma.Key(100 + i)}
		if dir != "" {
			all[i].Path = filepath.Join(dir, strconv.Itoa(i))
		}
	}
	return all
}

func open(tb testing.TB, o inproc.Options) *inproc.Fabric {
	tb.Helper()
	f, err := inproc.New(o)
	if err != nil {
		tb.Fatal(err)
	}
	return f
}

func TestConformance(t *testing.T) {
	t.Run("memory", func(t *testing.T) {
		fabrictest.Run(t, func(tb testing.TB, n int, size uint64) rdma.Fabric {
			return open(tb, inproc.Options{Blades: blades(n, size, ""), Seed: 1})
		})
	})
	t.Run("files", func(t *testing.T) {
		if raced.Enabled && testing.Short() {
			t.Skip("under the race detector: as in memory")
		}
		fabrictest.Run(t, func(tb testing.TB, n int, size uint64) rdma.Fabric {
			return open(tb, inproc.Options{Blades: blades(n, size, tb.TempDir()), Seed: 2})
		})
	})
	t.Run("read-only", func(t *testing.T) {
		fabrictest.ReadOnly(t, func(tb testing.TB, size uint64) rdma.Fabric {
			b := blades(1, size, "")
			b[0].ReadOnly = true
			return open(tb, inproc.Options{Blades: b})
		})
	})
}
