package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"txnode/memory/catalog/etcd/etcdtest"
)

// TestClusterOnEtcd: the commands of a cluster whose catalog is in an etcd, by its address. The
// etcd is killed under a benchmark of several processes, which goes on, and is back.
func TestClusterOnEtcd(t *testing.T) {
	t.Run("StandIn", func(t *testing.T) {
		s := etcdtest.NewStandIn(t)
		clusterOnEtcd(t, "etcd://"+s.Address+"/bank", s.Stop, func() { s.Restart(t) })
	})
	t.Run("Server", func(t *testing.T) {
		s := etcdtest.Start(t)
		clusterOnEtcd(t, "etcd://"+s.Address+"/bank", s.Kill, func() { s.Restart(t) })
	})
}

func clusterOnEtcd(t *testing.T, catalog string, kill, restart func()) {
	dir, err := os.MkdirTemp("", "etcd") //nolint:usetesting // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	address := func(name string) string { return "unix:" + filepath.Join(dir, name) }
	for _, name := range []string{"a", "b"} {
		start(t, "serve", "--listen", address(name), "--memory", "256MiB")
	}
	has := func(p *program, code int, texts ...string) {
		t.Helper()
		if p.ProcessState == nil {
			p.end(t)
		}
		if got := p.ProcessState.ExitCode(); got != code || code == 1 && strings.Count(p.err.String(), "\n") != 1 {
			t.Errorf("exit code %d, not %d: %s%s", got, code, p.out.String(), p.err.String())
		}
		for _, x := range texts {
			if !strings.Contains(p.out.String()+p.err.String(), x) {
				t.Errorf("no %q in\n%s%s", x, p.out.String(), p.err.String())
			}
		}
	}
	init := func() *program {
		return start(t, "cluster", "init", "--catalog", catalog, "--blade", address("a"), "--blade", address("b"),
			"--segment-size", "1MiB")
	}
	has(start(t, "cluster", "status", catalog), 1, catalog, "write it with txnode cluster init")
	for init().end(t) != 0 {
		time.Sleep(10 * time.Millisecond) // until both blades serve
	}
	has(init(), 0, catalog, "was there already")
	has(start(t, "cluster", "status", catalog), 0, "catalog "+catalog+"/: epoch 1, processes 0, workers 0, tables 0\n")
	bench := func(more ...string) *program {
		return start(t, append([]string{
			"bench", "smallbank", "--accounts", "300", "--cluster", catalog, "--threads",
			"1", "--warmup", "1ms", "--no-save",
		}, more...)...)
	}
	has(bench("--processes", "2", "--txns", "300"), 0, "300 transactions", "money is conserved")

	// A session needs the catalog to begin, and none after that. How long beginning takes
	// depends on the machine.
	for delay := 500 * time.Millisecond; ; delay *= 2 {
		under := bench("--runs", "1", "--duration", "3s")
		time.Sleep(delay)
		kill()
		has(start(t, "cluster", "status", catalog), 1, catalog[len("etcd://"):strings.LastIndex(catalog, "/")],
			"does not answer")
		restart()
		if code := under.end(t); code == 1 && strings.Contains(under.err.String(), "does not answer") &&
			delay < time.Minute {
			continue
		}
		has(under, 0, "found in the database", "the books balance")
		break
	}
	has(start(t, "explain", "smallbank", "--accounts", "300", "--txns", "50", "--warmup-txns", "200", "--cluster",
		catalog), 0, "2 blades of 256 MiB", "sockets to the blades of")
	has(start(t, "cluster", "status", catalog), 0, "processes 0", "tables 2")

	has(start(t, "cluster", "status", "etcd://here"), 2, "etcd://HOST:PORT")
	has(start(t, "cluster", "init", "--catalog", "consul://here:1"), 2, "does not know consul://", "--blade is missing")
}
