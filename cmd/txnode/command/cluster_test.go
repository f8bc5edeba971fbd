package command_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"txnode/cluster"
	"txnode/txn"
)

// TestClusterCommands: a cluster is set up and looked at, over sockets and over shared memory; a
// program has a database there.
func TestClusterCommands(t *testing.T) {
	for _, kind := range []string{"unix", "shm"} {
		if kind == "shm" && runtime.GOOS != "linux" {
			continue
		}
		t.Run(kind, func(t *testing.T) {
			ctx, dir := t.Context(), socketDir(t)
			b := newBed(t)
			catalog := "unix:" + filepath.Join(dir, "c")
			_, endCatalog := startServe(t, "--listen", catalog, "--catalog", filepath.Join(dir, "data"), "--memory",
				"0")
			init := []string{"cluster", "init", "--catalog", catalog}
			var addresses []string
			var ends []func() (int, string)
			for _, name := range []string{"b", "a"} {
				address, args := kind+":"+filepath.Join(dir, name), []string{
					"--memory", "64MiB", "--listen", "unix:" + filepath.Join(dir, name),
				}
				if kind == "shm" {
					args = []string{"--memory", "64MiB", "--shm", dir, "--name", name}
				}
				_, end := startServe(t, args...)
				addresses, ends = append(addresses, address), append(ends, end)
				init = append(init, "--blade", address)
			}
			if code, out, stderr := b.run(init...); code != 0 || out != "the cluster at "+catalog+
				" has 2 blades of 2 servers, 128MiB together\n" || stderr != "" {
				t.Fatalf("exit code %d, %s%s", code, out, stderr)
			}
			if code, out, stderr := b.run(init...); code != 0 || out != "the cluster at "+catalog+
				" was there already, as it is asked for, and has 2 blades of 2 servers, 128MiB together\n" {
				t.Errorf("again: exit code %d, %s%s", code, out, stderr)
			}
			if code, _, stderr := b.run(append(init, "--replicas", "0")...); code != 1 ||
				!strings.Contains(stderr, "a cluster already, with 1 backups, and not 0: use an empty one") ||
				strings.Count(stderr, "\n") != 1 {
				t.Errorf("another one: exit code %d, %s", code, stderr)
			}
			if code, out, stderr := b.run("cluster", "status", catalog); code != 0 || stderr != "" ||
				!strings.Contains(out, "catalog "+catalog+": epoch 1, processes 0, workers 0, tables 0\n") ||
				!strings.Contains(strings.Join(strings.Fields(out), " "), "0 64MiB 62 MiB "+addresses[0]+
					" up 1 64MiB 62 MiB "+addresses[1]+" up") {
				t.Errorf("exit code %d, %s%s", code, out, stderr)
			}
			h, err := cluster.Connect(ctx, catalog, cluster.Options{})
			if err != nil {
				t.Fatal(err)
			}
			db, err := txn.Open(ctx, txn.Options{Fabric: h.Fabric, Catalog: h.Catalog, IndexGroups: 64})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := txn.CreateTable(db, "words", txn.String, txn.Plain[uint64]()); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(db.Close(ctx), h.Close()); err != nil {
				t.Fatal(err)
			}
			status := func(want int) (got map[string]any, stderr string) {
				t.Helper()
				code, out, stderr := b.run("cluster", "status", catalog, "-o", "json")
				if err := json.Unmarshal([]byte(out), &got); code != want || err != nil {
					t.Fatalf("exit code %d, %v: %s%s", code, err, out, stderr)
				}
				return got, stderr
			}
			got, _ := status(0)
			if d, ok := got["database"].(map[string]any); !ok || d["tables"] != 1.0 || d["workers"] != 0.0 ||
				d["epoch"].(float64) < 1 {
				t.Errorf("%v", got)
			}
			if s, ok := got["servers"].([]any)[0].(map[string]any); !ok || s["address"] != addresses[0] ||
				s["answers"] != true || got["whole"] != true {
				t.Errorf("%v", got)
			}
			if code, stderr := ends[1](); code != 0 {
				t.Errorf("exit code %d, %s", code, stderr)
			}
			got, stderr := status(1)
			if s, ok := got["servers"].([]any)[1].(map[string]any); !ok || s["answers"] != false || s["error"] == "" ||
				got["whole"] != false || !strings.HasPrefix(stderr, "txnode: the cluster is not whole: ") {
				t.Errorf("%v, %s", got, stderr)
			}
			if code, out, _ := b.run("cluster", "status", catalog); code != 1 ||
				!strings.Contains(out, "blade is down") && !strings.Contains(out, addresses[1]) ||
				!strings.Contains(out, "tables 1\n") {
				t.Errorf("exit code %d, %s", code, out)
			}
			for _, end := range []func() (int, string){ends[0], endCatalog} {
				if code, stderr := end(); code != 0 || stderr != "" {
					t.Errorf("exit code %d, %s", code, stderr)
				}
			}
		})
	}
}

// TestClusterCheck: the database of a cluster is checked while a process has it open, and changes
// it; also without a blade.
func TestClusterCheck(t *testing.T) {
	ctx, dir := t.Context(), socketDir(t)
	b := newBed(t)
	catalog := "unix:" + filepath.Join(dir, "c")
	startServe(t, "--listen", catalog, "--catalog", filepath.Join(dir, "data"), "--memory", "0")
	init := []string{"cluster", "init", "--catalog", catalog}
	var ends []func() (int, string)
	for _, name := range []string{"x", "y", "z"} {
		_, end := startServe(t, "--memory", "64MiB", "--listen", "unix:"+filepath.Join(dir, name))
		ends, init = append(ends, end), append(init, "--blade", "unix:"+filepath.Join(dir, name))
	}
	if code, _, stderr := b.run("check", catalog); code != 1 || !strings.Contains(stderr, "txnode cluster init") {
		t.Errorf("no cluster: exit code %d, %s", code, stderr)
	}
	if code, out, stderr := b.run(init...); code != 0 {
		t.Fatalf("exit code %d, %s%s", code, out, stderr)
	}
	db, err := cluster.Open(ctx, catalog, txn.Options{IndexGroups: 64}, cluster.Options{})
	if err != nil {
		t.Fatal(err)
	}
	words, err := txn.CreateTable(db, "words", txn.Uint64, txn.Text())
	if err != nil {
		t.Fatal(err)
	}
	put := func(k uint64) error {
		return db.Update(ctx, func(tx *txn.Tx) error {
			return errors.Join(words.Put(tx, k, "word"), words.Put(tx, 0, fmt.Sprint(k)))
		})
	}
	for k := range uint64(100) {
		if err := put(k); err != nil {
			t.Fatal(err)
		}
	}
	var end atomic.Bool
	ended := make(chan error)
	go func() {
		var err error
		for k := uint64(0); err == nil && !end.Load(); k++ {
			err = put(100 + k%1000)
		}
		ended <- err
	}()
	checked := func(down bool) {
		t.Helper()
		code, out, stderr := b.run("check", catalog)
		if code != 0 || stderr != "" || !strings.HasPrefix(out, "checked "+catalog+": 3 blades") ||
			!strings.Contains(out, "no findings\n") || strings.Contains(out, "blade 1 counts as lost") != down ||
			!strings.Contains(out, "coordinators that are open: ") {
			t.Errorf("exit code %d, %s%s", code, out, stderr)
		}
	}
	checked(false)
	for _, flag := range []string{"--repair", "--replace-lost"} {
		if code, _, stderr := b.run("check", catalog, flag); code != 2 || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%s: exit code %d, %s", flag, code, stderr)
		}
	}
	ends[1]()
	for len(db.Redundancy().Down) == 0 {
		time.Sleep(time.Millisecond)
	}
	if err := put(1); err != nil { // all is decided, and a coordinator is open
		t.Fatal(err)
	}
	checked(true)
	end.Store(true)
	if err := errors.Join(<-ended, db.Close(ctx)); err != nil {
		t.Fatal(err)
	}
	ends[2]()
	if code, _, stderr := b.run("check", catalog); code != 1 || strings.Count(stderr, "\n") != 1 ||
		!strings.Contains(stderr, filepath.Join(dir, "z")) {
		t.Errorf("a blade does not answer: exit code %d, %s", code, stderr)
	}
}

// TestClusterErrors: what cannot be done is one clear line.
func TestClusterErrors(t *testing.T) {
	dir := socketDir(t)
	b := newBed(t)
	one := func(code int, say string, args ...string) {
		t.Helper()
		got, out, stderr := b.run(append([]string{"cluster"}, args...)...)
		if got != code || !strings.Contains(stderr, say) || strings.Count(stderr, "\n") != 1 || out != "" {
			t.Errorf("%v: exit code %d, not %d: %s%s", args, got, code, out, stderr)
		}
	}
	none := "unix:" + filepath.Join(dir, "none")
	one(2, "rebalance, recover, restart-check, status")
	one(2, "--catalog is missing", "init")
	one(2, "--blade is missing", "init")
	one(2, "--catalog: cluster: bad options: the address of a catalog is \"here\"", "init", "--catalog", "here")
	one(2, "the path of a unix socket has between 1 and 103 bytes, and this one has 121",
		"status", "unix:/"+strings.Repeat("x", 120))
	one(2, "name the address of a catalog", "status")
	one(2, "takes no argument", "init", "now")
	one(2, "unix:PATH or tcp:HOST:PORT", "status", "here")
	one(1, none, "status", none)
	one(1, none, "init", "--catalog", none, "--blade", none)
	one(1, "no such file", "status", none, "--secret-file", filepath.Join(dir, "none"))

	secret := filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, []byte("correct horse battery staple\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	catalog := "unix:" + filepath.Join(dir, "c")
	_, end := startServe(t, "--listen", catalog, "--catalog", "memory", "--memory", "1MiB", "--secret-file", secret)
	one(1, "secret", "status", catalog)
	one(1, "write it with txnode cluster init", "status", catalog, "--secret-file", secret)
	one(1, none, "init", "--catalog", catalog, "--blade", none, "--secret-file", secret)
	one(2, "twice", "init", "--catalog", catalog, "--blade", none, "--blade", none, "--secret-file", secret)
	one(2, "several kinds", "init", "--catalog", catalog, "--blade", none, "--blade", "shm:/tmp/x/a",
		"--secret-file", secret)
	one(2, "2 backups", "init", "--catalog", catalog, "--blade", catalog, "--secret-file", secret, "--replicas", "2")
	one(2, "too small", "init", "--catalog", catalog, "--blade", catalog, "--secret-file", secret,
		"--segment-size", "1MiB")
	one(2, "--segment-size is 3", "init", "--catalog", catalog, "--blade", catalog, "--secret-file", secret,
		"--segment-size", "3")
	one(2, "64MiB are possible", "init", "--catalog", catalog, "--blade", catalog, "--secret-file", secret,
		"--segment-size", "8GiB")
	if code, out, stderr := b.run("cluster", "init", "--catalog", catalog, "--blade", catalog, "--secret-file",
		secret); code != 0 {
		t.Errorf("a daemon with both: exit code %d, %s%s", code, out, stderr)
	}
	if code, stderr := end(); code != 0 {
		t.Errorf("exit code %d, %s", code, stderr)
	}
}
