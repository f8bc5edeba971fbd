package command_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"txnode/cluster"
	"txnode/memory/catalog/etcd/etcdtest"
	"txnode/txn"
)

// TestServeHTTPElsewhere: a daemon of blades tells of a database whose catalog is in an etcd:
// what is lost and unavailable, the room of each blade, and how far copies are; and that the
// catalog does not answer.
func TestServeHTTPElsewhere(t *testing.T) {
	etcd := etcdtest.NewStandIn(t)
	c := &smallCluster{
		t: t, dir: socketDir(t), catalog: "etcd://" + etcd.Address + "/bank", ends: map[string]func() (int, string){},
	}
	c.serve("x")
	c.serve("y")
	if code, out, stderr := inSystem(t, "cluster", "init", "--catalog", c.catalog, "--blade", c.address("x"), "--blade",
		c.address("y"), "--segment-size", "1MiB", "--replicas", "0"); code != 0 {
		t.Fatalf("exit code %d, %s%s", code, out, stderr)
	}
	if err := c.open().Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.bury()
	metrics := func(name, want string) string {
		t.Helper()
		at := c.address(name)
		line, end := startServe(t, "--listen", at, "--memory", "1MiB", "--http", "127.0.0.1:0", "--cluster", c.catalog)
		defer end()
		defer http.DefaultClient.CloseIdleConnections()
		url := statusOf(t, line)
		r := cluster.ProcessReport{Life: 1, Process: 7, At: 1, Time: time.Now()}
		r.Metrics.Copies = txn.CopyMetrics{Done: 12, Total: 40}
		post(t, at, r)
		var page string
		until(func() bool {
			page = get(t, http.DefaultClient, url+"metrics", 200)
			return strings.Contains(page, want)
		})
		if want == "txnode_catalog_up 1\n" {
			has(t, "the page", get(t, http.DefaultClient, url, 200), "(12 B of 40 B)", "lost: ")
		}
		return page
	}
	page := metrics("s", "txnode_catalog_up 1\n")
	has(t, "metrics", page, "txnode_catalog_blades_down 1\n", "txnode_catalog_copied_bytes 12\n",
		"txnode_catalog_copied_target_bytes 40\n", "txnode_catalog_segments_unavailable 0\n", "\"} 0\n")
	if strings.Contains(page, "txnode_catalog_segments_lost 0\n") ||
		strings.Count(page, "txnode_catalog_blade_free_bytes{") != 2 {
		t.Error(page)
	}
	etcd.Stop()
	if page := metrics("r", "txnode_catalog_up 0\n"); strings.Contains(page, "txnode_catalog_segments_lost") {
		t.Error(page)
	}
	for _, args := range [][]string{
		{"--cluster", "here"}, {"--http", "127.0.0.1:0", "--cluster", "here"},
		{"--http", "127.0.0.1:0", "--catalog", "memory", "--cluster", "unix:/c"},
	} {
		if code, _, stderr := inSystem(t, append([]string{"serve", "--listen", c.address("q")},
			args...)...); code != 2 || !strings.Contains(stderr, "--cluster") {
			t.Errorf("%v: exit code %d, %s", args, code, stderr)
		}
	}
}
