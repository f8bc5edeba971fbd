package command_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"txnode/cluster"
	"txnode/cmd/txnode/command"
	"txnode/rdma"
	"txnode/rdma/tcp"
	"txnode/txn"
)

// statusOf is the URL of the status page in the line of a daemon.
func statusOf(t *testing.T, line string) string {
	t.Helper()
	_, url, ok := strings.Cut(strings.TrimSpace(line), "; status: ")
	if !ok {
		t.Fatalf("no status page in %q", line)
	}
	return url
}

// get reads a page.
func get(t *testing.T, c *http.Client, url string, want int) string {
	t.Helper()
	r, err := c.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != want {
		t.Fatalf("%s: %s, %v: %s", url, r.Status, err, body)
	}
	return string(body)
}

// has reports what a page lacks.
func has(t *testing.T, what, page string, all ...string) {
	t.Helper()
	for _, s := range all {
		if !strings.Contains(page, s) {
			t.Errorf("%s does not have %q:\n%s", what, s, page)
		}
	}
}

// exposition is a line of Prometheus' text format.
var exposition = regexp.MustCompile(
	`^(# (HELP [a-z_]+ \S.*|TYPE [a-z_]+ (counter|gauge))|` +
		`txnode_[a-z_]+(\{[a-z]+="[A-Za-z0-9_]+"(,[a-z]+="[a-z0-9]+"|,verb="[A-Za-z]+")*\})? [0-9.]+)$`)

// TestServeHTTP: metrics, health and the page of a daemon say what clients have done, and
// what the catalog has.
func TestServeHTTP(t *testing.T) {
	ctx, dir := t.Context(), socketDir(t)
	b := newBed(t)
	address := "unix:" + filepath.Join(dir, "s")
	line, end := startServe(t, "--listen", address, "--blade", "64MiB", "--blade", "64MiB", "--catalog", "memory",
		"--http", "127.0.0.1:0", "--dir", filepath.Join(dir, "blades"))
	url := statusOf(t, line)
	has(t, "the page of an empty catalog", get(t, http.DefaultClient, url, 200), "There is none yet",
		"All that this daemon serves can be used")
	if code, _, stderr := b.run("cluster", "init", "--catalog", address, "--blade", address); code != 0 {
		t.Fatal(stderr)
	}
	has(t, "the page of a database nobody has open", get(t, http.DefaultClient, url, 200),
		"No process has it open", "There are none.")
	db, err := cluster.Open(ctx, address, txn.Options{IndexGroups: 64}, cluster.Options{})
	if err != nil {
		t.Fatal(err)
	}
	table, err := txn.CreateTable(db, "<words>", txn.String, txn.Plain[uint64]())
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Update(ctx, func(tx *txn.Tx) error { return table.Put(tx, "hello", 42) }); err != nil {
		t.Fatal(err)
	}
	// One verb that fails.
	f, err := tcp.Dial(ctx, []string{address}, tcp.Options{})
	if err != nil {
		t.Fatal(err)
	}
	th, err := rdma.NewThread(f, rdma.ThreadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var batch rdma.Batch
	batch.Read(rdma.RemoteAddr{Blade: 1, Key: f.Blades()[1].Key + 99}, 0, 8)
	if err := th.Plain().Do(&batch); err == nil {
		t.Error("a wrong key opens the blade")
	}

	page := get(t, http.DefaultClient, url+"?every=5", 200)
	has(t, "the page", page, "Blades of this daemon", "64 MiB", "&lt;words&gt; (hash)", "primary", "renewed",
		`content="5"`, address, "Copies missing: 0", "process ")
	if strings.Contains(page, "<script") || regexp.MustCompile(`(src|href)="(https?:)?//`).MatchString(page) {
		t.Error("the page is not self-contained, or needs JavaScript")
	}
	metrics := get(t, http.DefaultClient, url+"metrics", 200)
	for l := range strings.Lines(metrics) {
		if !exposition.MatchString(strings.TrimSuffix(l, "\n")) {
			t.Errorf("not in Prometheus' format: %q", l)
		}
	}
	has(t, "metrics", metrics, `txnode_served_blade_size_bytes{blade="0"} 67108864`,
		`txnode_served_blade_up{blade="1"} 1`, `txnode_served_blade_verbs_failed_total{blade="1"} 1`,
		"txnode_catalog_up 1\n", "txnode_catalog_segments_lost 0\n", "txnode_catalog_segments_unavailable 0\n",
		"txnode_catalog_copied_target_bytes 0\n",
		`txnode_catalog_blade_free_bytes{blade="1"} `, "txnode_catalog_processes 1\n", "txnode_catalog_tables 1\n",
		"txnode_catalog_segment_copies_missing 0\n", "txnode_served_connections_limit 1024\n")
	value := func(name string) (v float64) {
		t.Helper()
		m := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + ` (.+)$`).FindStringSubmatch(metrics)
		if m == nil {
			t.Fatalf("no %s", name)
		}
		if _, err := fmt.Sscan(m[1], &v); err != nil {
			t.Fatal(err)
		}
		return v
	}
	for _, name := range []string{
		`txnode_served_blade_verbs_total{blade="0",verb="READ"}`,
		`txnode_served_blade_verbs_total{blade="1",verb="WRITE"}`, `txnode_served_blade_written_bytes_total{blade="0"}`,
		`txnode_served_blade_provisioned_bytes{blade="0"}`,
		`txnode_served_blade_key_changes_total{blade="0",change="grant"}`, "txnode_served_connections",
		"txnode_served_connections_total",
		"txnode_served_catalog_requests_total", "txnode_catalog_epoch", "txnode_catalog_segments",
		"txnode_served_start_time_seconds",
	} {
		if value(name) <= 0 {
			t.Errorf("%s is %v", name, value(name))
		}
	}
	if got := get(t, http.DefaultClient, url+"healthz", 200); got != "ok\n" {
		t.Errorf("%q", got)
	}
	get(t, http.DefaultClient, url+"other", 404)
	r, err := http.Post(url, "text/plain", nil)
	if err != nil || r.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST: %v, %v", r, err)
	}
	_ = r.Body.Close()
	if err := errors.Join(th.Close(), f.Close(), db.Close(ctx)); err != nil {
		t.Error(err)
	}
	has(t, "the page after the database was closed", get(t, http.DefaultClient, url, 200), "has closed the database")
	http.DefaultClient.CloseIdleConnections()
	if code, stderr := end(); code != 0 || strings.Count(stderr, "\n") != 1 ||
		!strings.Contains(stderr, "data is lost by the end of this daemon") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	if _, err := http.Get(url); err == nil { //nolint:bodyclose // there is none
		t.Error("the page is there after the end")
	}
}

// TestServeHTTPFault: a blade whose file was cut short is told of, and the daemon goes on.
func TestServeHTTPFault(t *testing.T) {
	dir := socketDir(t)
	address := "unix:" + filepath.Join(dir, "s")
	line, end := startServe(t, "--listen", address, "--blade", "1MiB", "--blade", "1MiB", "--http", "127.0.0.1:0",
		"--dir", filepath.Join(dir, "blades"))
	url := statusOf(t, line)
	f, err := tcp.Dial(t.Context(), []string{address}, tcp.Options{})
	if err != nil {
		t.Fatal(err)
	}
	th, err := rdma.NewThread(f, rdma.ThreadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(dir, "blades", "blade-001.region"), 0); err != nil {
		t.Fatal(err)
	}
	var batch rdma.Batch
	batch.FAA(rdma.RemoteAddr{Blade: 1, Key: f.Blades()[1].Key}, 1)
	if err := th.Plain().Do(&batch); err == nil {
		t.Error("a file without content is used")
	}
	has(t, "health", get(t, http.DefaultClient, url+"healthz", 503), "blade 1 is stopped")
	has(t, "metrics", get(t, http.DefaultClient, url+"metrics", 200), `txnode_served_blade_up{blade="0"} 1`,
		`txnode_served_blade_up{blade="1"} 0`)
	has(t, "the page", get(t, http.DefaultClient, url, 200), "NOT well", "blade 1 is stopped")
	if err := errors.Join(th.Close(), f.Close()); err != nil {
		t.Error(err)
	}
	http.DefaultClient.CloseIdleConnections()
	if code, _ := end(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// TestServeHTTPKinds: a catalog alone and blades that are mapped have a page, too; other hosts
// need a certificate.
func TestServeHTTPKinds(t *testing.T) {
	dir := socketDir(t)
	address := "unix:" + filepath.Join(dir, "s")
	line, end := startServe(t, "--listen", address, "--memory", "0", "--catalog", "memory", "--http", "[::1]:0")
	url := statusOf(t, line)
	if page := get(t, http.DefaultClient, url, 200); strings.Contains(page, "Blades of this daemon") ||
		!strings.Contains(page, "a catalog in memory") {
		t.Errorf("%s", page)
	}
	if m := get(t, http.DefaultClient, url+"metrics", 200); strings.Contains(m, "blade") ||
		!strings.Contains(m, "served_connections 0") {
		t.Errorf("%s", m)
	}
	http.DefaultClient.CloseIdleConnections()
	if code, stderr := end(); code != 0 || stderr != "" {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	if runtime.GOOS == "linux" {
		line, end = startServe(t, "--shm", dir, "--memory", "1MiB", "--http", "127.0.0.1:0")
		url = statusOf(t, line)
		has(t, "the page of a blade that is mapped", get(t, http.DefaultClient, url, 200), "Clients execute the verbs",
			"1 MiB")
		if m := get(t, http.DefaultClient, url+"metrics", 200); strings.Contains(m, "verbs_total") ||
			!strings.Contains(m, `size_bytes{blade="0"} 1048576`) {
			t.Errorf("%s", m)
		}
		http.DefaultClient.CloseIdleConnections()
		if code, stderr := end(); code != 0 || stderr != "" {
			t.Errorf("exit code %d: %s", code, stderr)
		}
	}

	b := newBed(t)
	for say, http := range map[string]string{"give TLS files": "0.0.0.0:0", "--http is": "9100", "in use": ""} {
		code := 1
		switch {
		case say == "--http is":
			code = 2
		case http == "":
			line, end = startServe(t, "--listen", address, "--memory", "64KiB", "--http", "127.0.0.1:0")
			http = strings.Trim(strings.TrimPrefix(statusOf(t, line), "http:"), "/")
		}
		if got, out, stderr := b.run("serve", "--listen", address+"2", "--memory", "64KiB", "--http",
			http); got != code || out != "" || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, say) {
			t.Errorf("%s: exit code %d: %s%s", http, got, out, stderr)
		}
	}
	if code, stderr := end(); code != 0 || stderr != "" {
		t.Errorf("exit code %d: %s", code, stderr)
	}

	ca := newAuthority(t, dir, "ca")
	for _, name := range []string{"server", "client"} {
		ca.leaf(t, name, true, -3600e9, 3600e9)
	}
	line, end = startServe(t, append(tlsFlags(dir, "server", "ca"), "--listen", address, "--memory", "64KiB",
		"--http", "0.0.0.0:0")...)
	_, port, _ := strings.Cut(strings.TrimPrefix(statusOf(t, line), "https://["), "]:")
	if port == "" {
		_, port, _ = strings.Cut(strings.TrimPrefix(statusOf(t, line), "https://"), ":")
	}
	pool := x509.NewCertPool()
	pool.AddCert(ca.cert)
	cert, err := tls.LoadX509KeyPair(filepath.Join(dir, "client.crt"), filepath.Join(dir, "client.key"))
	if err != nil {
		t.Fatal(err)
	}
	for _, own := range [][]tls.Certificate{{cert}, nil} {
		tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, Certificates: own}}
		r, err := (&http.Client{Transport: tr}).Get("https://127.0.0.1:" + strings.TrimSuffix(port, "/") + "/healthz")
		if err == nil {
			_ = r.Body.Close()
		}
		if (err == nil) != (own != nil) {
			t.Errorf("with %d certificates: %v", len(own), err)
		}
		tr.CloseIdleConnections()
	}
	if code, stderr := end(); code != 0 || !strings.Contains(stderr, `"client": "http"`) ||
		strings.Count(stderr, "\n") != 1 {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}

// TestServeHTTPHosts: a daemon answers under an address, and not under the name of a site that
// leads a browser of this host to it.
func TestServeHTTPHosts(t *testing.T) {
	line, end := startServe(t, "--listen", "unix:"+filepath.Join(socketDir(t), "s"), "--memory", "1MiB",
		"--http", "localhost:0")
	url := statusOf(t, line)
	for host, want := range map[string]int{
		"": 200, "localhost": 200, "LocalHost:80": 200, "127.0.0.1:9100": 200,
		"[::1]:9100": 200, "rebound.example": 421, "rebound.example:9100": 421,
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"healthz", nil)
		if err != nil {
			t.Fatal(err)
		}
		if host != "" {
			r.Host = host
		}
		a, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		a.Body.Close()
		if a.StatusCode != want {
			t.Errorf("host %q: %s", host, a.Status)
		}
	}
	if code, stderr := end(); code != 0 {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}

// TestServeHTTPConnections: connections beyond a number are closed, and there is room
// again when others end.
func TestServeHTTPConnections(t *testing.T) {
	line, end := startServe(t, "--listen", "unix:"+filepath.Join(socketDir(t), "s"), "--memory", "1MiB",
		"--http", "127.0.0.1:0")
	url := statusOf(t, line)
	address := strings.Trim(strings.TrimPrefix(url, "http://"), "/")
	var idle []net.Conn
	closed := func(c net.Conn) bool { // an answer says that it is open
		if _, err := io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
			return true
		}
		_, err := c.Read(make([]byte, 1))
		return err != nil
	}
	for range command.MaxHTTP {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if closed(c) {
			t.Fatalf("connection %d is closed", len(idle))
		}
		idle = append(idle, c)
	}
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if !closed(c) {
		t.Errorf("more than %d connections", len(idle))
	}
	for _, c := range idle {
		c.Close()
	}
	for deadline := time.Now().Add(time.Minute); ; {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		full := closed(c)
		c.Close()
		if !full {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("there is no room after others have ended")
		}
	}
	if code, stderr := end(); code != 0 {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}

// TestServeFullDisk: a disk of a daemon that is full is seen in its log, by HTTP, and by the
// commands that look at a cluster.
func TestServeFullDisk(t *testing.T) {
	dir := socketDir(t)
	var free atomic.Uint64
	free.Store(1 << 40)
	defer command.SetDiskRoom(func(at string) uint64 {
		if strings.HasSuffix(at, "blades") {
			return free.Load()
		}
		return 1 << 40
	})()
	address := "unix:" + filepath.Join(dir, "s")
	serve := func() (string, func() (int, string)) {
		return startServe(t, "--listen", address, "--memory", "64MiB", "--catalog", filepath.Join(dir, "c"), "--http",
			"127.0.0.1:0", "--dir", filepath.Join(dir, "blades"))
	}
	_, end := serve()
	if code, out, stderr := inSystem(t, "cluster", "init", "--catalog", address, "--blade", address); code != 0 {
		t.Fatalf("exit code %d: %s%s", code, out, stderr)
	}
	if _, out, _ := inSystem(t, "cluster", "status", address); strings.Contains(out, "full") {
		t.Errorf("there is room: %s", out)
	}
	if code, log := end(); code != 0 || strings.Contains(log, "full") {
		t.Errorf("exit code %d: %s", code, log)
	}
	free.Store(1000)
	line, end := serve()
	url := statusOf(t, line)
	const says = "blades is full: 1000 B are free"
	has(t, "healthz", get(t, http.DefaultClient, url+"healthz", 503), says)
	has(t, "the page", get(t, http.DefaultClient, url, 200), says)
	has(t, "metrics", get(t, http.DefaultClient, url+"metrics", 200), `txnode_served_disk_free_bytes{of="blades"} 1000`,
		`txnode_served_disk_free_bytes{of="catalog"} 1099511627776`)
	for _, args := range [][]string{{"cluster", "status", address}, {"top", address, "--once"}, {"doctor", address}} {
		_, out, stderr := inSystem(t, args...)
		has(t, strings.Join(args, " "), out+stderr, says)
	}
	if code, log := end(); code != 0 || strings.Count(log, "a disk is full") != 1 || !strings.Contains(log, says) {
		t.Errorf("exit code %d: %s", code, log)
	}
}
