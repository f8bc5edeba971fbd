package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"txnode/cluster"
	"txnode/memory/catalog/remote"
	"txnode/memory/layout"
	"txnode/rdma/tcp"
	"txnode/txn"
)

// TestCatalogSurvives: the daemon of a catalog is killed again and again while a client changes it.
// What the client was told is there when the next one serves the directory, and the client goes on.
func TestCatalogSurvives(t *testing.T) {
	dir, err := os.MkdirTemp("", "catalog") //nolint:usetesting // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	address := "unix:" + filepath.Join(dir, "s")
	serve := func() *program {
		return start(t, "serve", "--listen", address, "--catalog", filepath.Join(dir, "data"), "--memory", "0")
	}
	p := serve()
	var c *remote.Client
	for {
		if c, err = remote.Dial(t.Context(), address, tcp.Options{}); err == nil {
			break
		}
		if !errors.Is(err, remote.ErrAway) {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
	}
	defer c.Close()
	_, rev, err := c.Load()
	if err != nil {
		t.Fatal(err)
	}
	watched := make(chan error, 1)
	watching, stop := context.WithCancel(t.Context())
	go func() { // revisions grow, whatever becomes of the daemon
		var after layout.Revision
		for {
			now, err := c.Await(watching, after)
			if err == nil && now <= after {
				err = fmt.Errorf("revision %d after %d", now, after)
			}
			if err != nil {
				watched <- err
				return
			}
			after = now
		}
	}()
	const rounds, each = 3, 20
	told := map[string]bool{} // true: the change was made; false: it may have been
	for round := range rounds {
		for i := range each {
			if i == each/2 {
				go func() { _ = p.Process.Kill() }() // its end is seen below
			}
			key := fmt.Sprintf("%d/%02d", round, i)
			next, err := c.Apply(rev, []layout.Entry{{Key: key, Value: []byte("x")}})
			if err != nil {
				if !errors.Is(err, remote.ErrAway) {
					t.Errorf("%s: %v", key, err)
				}
				told[key] = false
				break
			}
			told[key], rev = true, next
		}
		if code := p.end(t); code != -1 && code != 0 {
			t.Fatalf("the daemon ends with %d: %s", code, p.err.String())
		}
		p = serve()
		var entries []layout.Entry
		for {
			if entries, rev, err = c.Load(); !errors.Is(err, remote.ErrAway) {
				break
			}
			time.Sleep(time.Millisecond)
		}
		if err != nil {
			t.Fatal(err)
		}
		have := map[string]bool{}
		for _, e := range entries {
			have[e.Key] = true
			if _, ok := told[e.Key]; !ok {
				t.Errorf("%s is there, and was never written", e.Key)
			}
		}
		for key, made := range told {
			if made && !have[key] {
				t.Errorf("round %d: %s is lost", round, key)
			}
			if !made { // it is decided now
				told[key] = have[key]
			}
		}
	}
	stop()
	if err := <-watched; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestClusterSurvives: blades and catalog are processes of their own. The one of the catalog is
// killed while a program makes tables and commits: what the program was told is there, and it goes
// on with the next daemon.
func TestClusterSurvives(t *testing.T) {
	dir, err := os.MkdirTemp("", "cluster") //nolint:usetesting // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	ctx := t.Context()
	address := func(name string) string { return "unix:" + filepath.Join(dir, name) }
	serve := func() *program {
		return start(t, "serve", "--listen", address("c"), "--catalog", filepath.Join(dir, "data"), "--memory", "0")
	}
	for _, name := range []string{"a", "b"} {
		start(t, "serve", "--listen", address(name), "--memory", "64MiB")
	}
	daemon := serve()
	for { // until all three serve
		init := start(t, "cluster", "init", "--catalog", address("c"), "--blade", address("a"), "--blade", address("b"))
		code := init.end(t)
		if code == 0 {
			break
		}
		if code != 1 {
			t.Fatalf("exit code %d: %s", code, init.err.String())
		}
	}
	h, err := cluster.Connect(ctx, address("c"), cluster.Options{})
	if err != nil {
		t.Fatal(err)
	}
	o := txn.Options{Fabric: h.Fabric, Catalog: h.Catalog, IndexGroups: 64, LeaseTerm: time.Hour}
	db, err := txn.Open(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	const rounds, each = 3, 6
	for round := range rounds {
		victim := daemon
		for i := range each {
			if i == each/2 {
				go func() { _ = victim.Process.Kill() }() // its end is seen below
			}
			name := fmt.Sprintf("%d/%d", round, i)
			var table *txn.Table[string, uint64]
			for {
				if table, err = txn.CreateTable(db, name, txn.String, txn.Plain[uint64]()); err == nil {
					break
				}
				if !errors.Is(err, remote.ErrAway) {
					t.Fatalf("%s: %v", name, err)
				}
				if daemon == victim {
					victim.end(t)
					daemon = serve()
				}
				time.Sleep(time.Millisecond)
			}
			if err := db.Update(ctx, func(tx *txn.Tx) error { return table.Put(tx, name, uint64(i)) }); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		if daemon == victim { // it has lived long enough for all tables
			victim.end(t)
			daemon = serve()
		}
	}
	names, err := db.Tables()
	if err != nil || len(names) != rounds*each {
		t.Errorf("%q, %v", names, err)
	}
	for { // the last daemon may not serve yet
		_, err := cluster.Ask(ctx, address("c"), cluster.Options{})
		if err == nil {
			break
		}
		if !errors.Is(err, remote.ErrAway) {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
	}
	if err := errors.Join(db.Close(ctx), h.Close()); err != nil {
		t.Fatal(err)
	}
	if h, err = cluster.Connect(ctx, address("c"), cluster.Options{}); err != nil {
		t.Fatal(err)
	}
	o.Fabric, o.Catalog = h.Fabric, h.Catalog
	if db, err = txn.Open(ctx, o); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		table, err := txn.OpenTable(db, name, txn.String, txn.Plain[uint64]())
		if err != nil {
			t.Fatal(err)
		}
		if err := db.View(ctx, func(tx *txn.Tx) error {
			_, err := table.Get(tx, name)
			return err
		}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := errors.Join(db.Close(ctx), h.Close()); err != nil {
		t.Error(err)
	}
}

// TestBenchProcesses: a benchmark of several processes on one cluster, whose books are over all;
// one that is interrupted; two that know nothing of each other, of which one is killed.
func TestBenchProcesses(t *testing.T) {
	dir, err := os.MkdirTemp("", "cluster") //nolint:usetesting // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	address := func(name string) string { return "unix:" + filepath.Join(dir, name) }
	for _, name := range []string{"a", "b"} {
		start(t, "serve", "--listen", address(name), "--memory", "256MiB")
	}
	start(t, "serve", "--listen", address("c"), "--catalog", "memory", "--memory", "0")
	for start(t, "cluster", "init", "--catalog", address("c"), "--blade", address("a"), "--blade", address("b"),
		"--segment-size", "1MiB").end(t) != 0 {
		time.Sleep(10 * time.Millisecond) // until all three serve
	}
	bench := func(more ...string) *program {
		return start(t, append([]string{
			"bench", "smallbank", "--accounts", "300", "--cluster", address("c"),
			"--threads", "1", "--warmup", "1ms", "--no-save",
		}, more...)...)
	}
	has := func(p *program, code int, texts ...string) {
		t.Helper()
		if got := p.end(t); got != code {
			t.Errorf("exit code %d, not %d: %s%s", got, code, p.out.String(), p.err.String())
		}
		for _, x := range texts {
			if !strings.Contains(p.out.String(), x) {
				t.Errorf("no %q in\n%s%s", x, p.out.String(), p.err.String())
			}
		}
	}
	has(bench("--processes", "3", "--txns", "300", "--runs", "2"), 0, "3 processes × 1 thread", "300 transactions",
		"money is conserved", "after every run: 4 rules")
	p := bench("--processes", "2", "--duration", "1h")
	time.Sleep(time.Second)
	for p.ProcessState == nil && !strings.Contains(p.out.String(), "interrupted") { // earlier there is nothing to tell
		if err := p.Process.Signal(syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
		code := p.end(t)
		if code != 130 {
			t.Fatalf("interrupted: exit code %d, %s%s", code, p.out.String(), p.err.String())
		}
		if p.out.Len() > 0 {
			break
		}
		p = bench("--processes", "2", "--duration", "1h")
		time.Sleep(3 * time.Second)
	}
	if out := p.out.String(); !strings.Contains(out, "interrupted: these are the results until then") ||
		!strings.Contains(out, "money is conserved") {
		t.Errorf("%s%s", out, p.err.String())
	}

	killed := bench("--duration", "1h")
	time.Sleep(2 * time.Second)
	beside := bench("--duration", "1s")
	time.Sleep(500 * time.Millisecond)
	if err := killed.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	killed.end(t)
	has(beside, 0, "found in the database", "the books balance", "3 rules")
	status := start(t, "cluster", "status", address("c"))
	has(status, 0, "tables 2")

	for _, x := range [][]string{
		{"--processes", "0"}, {"--processes", "2", "--verify"}, {"--replicas", "1"}, {"--dir", dir},
	} {
		if p := bench(x...); p.end(t) != 2 || strings.Count(p.err.String(), "\n") != 1 {
			t.Errorf("%v: %s", x, p.err.String())
		}
	}
	if p := start(t, "bench", "ycsb", "--cluster", address("c"), "--processes", "2", "--no-save"); p.end(t) != 2 ||
		!strings.Contains(p.err.String(), "ycsb") {
		t.Errorf("%s", p.err.String())
	}
}
