package channel_test

import (
	"fmt"
	"testing"

	"txnode/channel/channeltest"
	"txnode/rdma"
	"txnode/rdma/inproc"
	"txnode/rdma/rdmatest"
	"txnode/rdma/sim"
)

// TestInproc runs the suite on memory of the process, with goroutines.
func TestInproc(t *testing.T) {
	channeltest.Run(t, func(tb testing.TB, n int, size uint64) rdma.Fabric {
		f, err := inproc.New(inproc.Options{Blades: bladesOf(n, inproc.BladeOptions{Size: size, Key: 1}), Seed: 1})
		if err != nil {
			tb.Fatal(err)
		}
		return f
	})
}

func bladesOf[T any](n int, b T) (all []T) {
	for range n {
		all = append(all, b)
	}
	return all
}

// weak lists all subsets of the promises that a fabric may make; in short mode the least and the
// most.
func weak() (all []rdma.Caps) {
	for i := range 16 {
		if testing.Short() && i != 0 && i != 15 {
			continue
		}
		all = append(all, rdma.Caps{
			Synchronous: i&1 != 0, Placed: i&2 != 0, OrderedLine: i&4 != 0, MaskedCAS: i&8 != 0,
		})
	}
	return all
}

// TestDisorderly runs the suite on a fabric that uses all freedom of the contract, with every
// subset of promises.
func TestDisorderly(t *testing.T) {
	for i, caps := range weak() {
		t.Run(fmt.Sprintf("synchronous=%v,placed=%v,ordered=%v,masked=%v", caps.Synchronous, caps.Placed,
			caps.OrderedLine, caps.MaskedCAS), func(t *testing.T) {
			channeltest.Run(t, func(_ testing.TB, n int, size uint64) rdma.Fabric {
				return rdmatest.New(rdmatest.Options{
					Blades: n, Size: size, Caps: caps, Seed: uint64(i + 1), SpreadNs: 4000,
				})
			})
		})
	}
}

// TestSim runs the suite on the simulator.
func TestSim(t *testing.T) {
	for _, freedom := range []sim.Freedom{sim.FreedomMild, sim.FreedomHostile} {
		t.Run(freedom.String(), func(t *testing.T) {
			channeltest.Run(t, func(tb testing.TB, n int, size uint64) rdma.Fabric {
				f, err := sim.New(sim.Options{
					Blades: bladesOf(n, sim.BladeOptions{Size: size, Key: 1}), Seed: 7,
					Freedom: freedom, Profile: sim.Ideal(),
				})
				if err != nil {
					tb.Fatal(err)
				}
				return f
			})
		})
	}
}
