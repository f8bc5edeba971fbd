package tcp_test

import (
	"flag"
	"testing"

	"txnode/rdma"
	"txnode/rdma/fabrictest"
	"txnode/rdma/tcp"
)

var full = flag.Bool("full", false,
	"run the conformance suite in all ways, minutes each: over both networks, in this process and in others, with "+
		"TLS, and with poll")

// TestConformance runs the suite on blades of this process, which can be stopped.
func TestConformance(t *testing.T) {
	t.Run("unix", func(t *testing.T) { conform(t, "unix") })
	t.Run("tcp", func(t *testing.T) {
		needsFull(t)
		conform(t, "tcp")
	})
	t.Run("read-only", func(t *testing.T) {
		fabrictest.ReadOnly(t, func(tb testing.TB, size uint64) rdma.Fabric {
			all := regions(1, size)
			all[0].ReadOnly = true
			return dial(tb, tcp.Options{}, serve(tb, "tcp", all, tcp.ServerOptions{}).addr)
		})
	})
}

func needsFull(t *testing.T) {
	t.Helper()
	if !*full {
		t.Skip("takes a minute, and differs little from what runs always: -full")
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
	needsFull(t)
	t.Cleanup(tcp.PollWaiter())
	conform(t, "unix")
}

// TestConformanceProcesses runs the suite on blades of other processes, one each.
func TestConformanceProcesses(t *testing.T) {
	for _, network := range []string{"unix", "tcp"} {
		t.Run(network, func(t *testing.T) {
			if network == "unix" {
				needsFull(t)
			} else if testing.Short() {
				t.Skip("as in this process")
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
