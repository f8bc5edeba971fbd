package tcp_test

import (
	"testing"

	"txnode/rdma"
	"txnode/rdma/fabrictest"
	"txnode/rdma/tcp"
)

// TestConformance runs the suite on blades of this process, which can be stopped.
func TestConformance(t *testing.T) {
	for _, network := range []string{"unix", "tcp"} {
		t.Run(network, func(t *testing.T) {
			if testing.Short() && network == "tcp" {
				t.Skip("as on unix sockets")
			}
			conform(t, network)
			fabrictest.ReadOnly(t, func(tb testing.TB, size uint64) rdma.Fabric {
				all := regions(1, size)
				all[0].ReadOnly = true
				return dial(tb, tcp.Options{}, serve(tb, network, all, tcp.ServerOptions{}).addr)
			})
		})
	}
}

func conform(t *testing.T, network string) {
	fabrictest.Run(t, func(tb testing.TB, n int, size uint64) rdma.Fabric {
		h := serve(tb, network, regions(n, size), tcp.ServerOptions{})
		return drilled{dial(tb, tcp.Options{Seed: 1}, h.addr), h.Set}
	})
}

// TestConformancePoll runs the suite as systems do that are not Linux.
func TestConformancePoll(t *testing.T) {
	if testing.Short() {
		t.Skip("as with the network poller")
	}
	t.Cleanup(tcp.PollWaiter())
	conform(t, "unix")
}

// TestConformanceProcesses runs the suite on blades of other processes, one each.
func TestConformanceProcesses(t *testing.T) {
	for _, network := range []string{"unix", "tcp"} {
		t.Run(network, func(t *testing.T) {
			if testing.Short() && network == "unix" {
				t.Skip("as on TCP")
			}
			fabrictest.Run(t, func(tb testing.TB, n int, size uint64) rdma.Fabric {
				var all []string
				for range n {
					all = append(all, spawn(tb, "serve", network, 1, size).addr)
				}
				return dial(tb, tcp.Options{Seed: 1}, all...)
			})
		})
	}
}
