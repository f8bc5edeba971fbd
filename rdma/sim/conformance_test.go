package sim_test

import (
	"fmt"
	"testing"

	"txnode/rdma"
	"txnode/rdma/fabrictest"
	"txnode/rdma/sim"
)

// open returns a constructor of fabrics with the options and n blades.
func open(o sim.Options) func(tb testing.TB, n int, size uint64) rdma.Fabric {
	return func(tb testing.TB, n int, size uint64) rdma.Fabric {
		o.Blades = nil
		for i := range n {
			o.Blades = append(o.Blades, sim.BladeOptions{Size: size, Key: rdma.Key(100 + i)})
		}
		f, err := sim.New(o)
		if err != nil {
			tb.Fatal(err)
		}
		return f
	}
}

func TestConformance(t *testing.T) {
	for name, o := range map[string]sim.Options{
		"mild":      {Seed: 1},
		"none":      {Seed: 2, Freedom: sim.FreedomNone},
		"placed":    {Seed: 3, Freedom: sim.FreedomHostile, Placed: true},
		"unordered": {Seed: 4, Freedom: sim.FreedomHostile, UnorderedLines: true},
		"roce":      {Seed: 5, Profile: sim.RoCE25()},
		"ideal":     {Seed: 6, Profile: sim.Ideal()},
	} {
		if testing.Short() && name != "mild" && name != "unordered" {
			continue
		}
		t.Run(name, func(t *testing.T) { fabrictest.Run(t, open(o)) })
	}
	for seed := range uint64(3) {
		if testing.Short() && seed > 0 {
			break
		}
		t.Run(fmt.Sprintf("hostile-%d", seed), func(t *testing.T) {
			fabrictest.Run(t, open(sim.Options{Seed: seed, Freedom: sim.FreedomHostile}))
		})
	}
	fabrictest.ReadOnly(t, func(tb testing.TB, size uint64) rdma.Fabric {
		f, err := sim.New(sim.Options{Blades: []sim.BladeOptions{{Size: size, ReadOnly: true}}})
		if err != nil {
			tb.Fatal(err)
		}
		return f
	})
}
