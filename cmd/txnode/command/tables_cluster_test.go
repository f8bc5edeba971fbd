package command_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"txnode/cluster"
	"txnode/txn"
)

// TestClusterTables: the commands that list records read a cluster while a process moves money in
// it. Each dump has one moment, and each key once. None of them takes a lock: a table that is
// written to all the time is an error that says so.
func TestClusterTables(t *testing.T) {
	ctx, dir := t.Context(), socketDir(t)
	b := newBed(t)
	run := func(want int, says string, args ...string) string {
		t.Helper()
		code, out, stderr := b.run(args...)
		if all := strings.Join(strings.Fields(out+stderr), " "); code != want || !strings.Contains(all, says) ||
			code != 0 && strings.Count(stderr, "\n") != 1 {
			t.Fatalf("%v: exit code %d, %s%s", args, code, out, stderr)
		}
		return out
	}
	catalog := "unix:" + filepath.Join(dir, "c")
	run(1, "catalog", "tables", catalog)
	startServe(t, "--listen", catalog, "--catalog", "memory", "--memory", "0")
	args := []string{"cluster", "init", "--catalog", catalog, "--segment-size", "1MiB"}
	for _, blade := range []string{"a", "b"} {
		startServe(t, "--memory", "64MiB", "--listen", "unix:"+filepath.Join(dir, blade))
		args = append(args, "--blade", "unix:"+filepath.Join(dir, blade))
	}
	run(1, "txnode cluster init", "tables", catalog)
	run(0, "has 2 blades of 2 servers", args...)
	db, err := cluster.Open(ctx, catalog, txn.Options{}, cluster.Options{Post: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close(ctx)
	const accounts, each = 50, 100
	money, err := txn.CreateTable(db, "money", txn.Uint64, txn.JSON[int64]())
	if err != nil {
		t.Fatal(err)
	}
	names, err := txn.CreateOrderedTable(db, "names", txn.String, txn.Text())
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Update(ctx, func(tx *txn.Tx) error {
		for k := range uint64(accounts) {
			if err := money.Put(tx, k, each); err != nil {
				return err
			}
			if err := names.Put(tx, fmt.Sprintf("name%02d", k), "text"); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	quit := make(chan struct{})
	var busy sync.WaitGroup
	busy.Go(func() {
		for n := uint64(0); ; n++ {
			select {
			case <-quit:
				return
			default:
			}
			if err := db.Update(ctx, func(tx *txn.Tx) error {
				from, to := n%accounts, n*7%accounts
				x, err := money.GetForUpdate(tx, from)
				if err != nil || from == to {
					return err
				}
				y, err := money.GetForUpdate(tx, to)
				if err != nil {
					return err
				}
				if err := money.Put(tx, from, x-1); err != nil {
					return err
				}
				return money.Put(tx, to, y+1)
			}); err != nil {
				t.Error(err)
				return
			}
		}
	})
	run(0, "money uint64 json race names", "tables", catalog)
	run(0, "50 ", "stats", catalog, "money")
	run(0, "text", "get", catalog, "names", "name07")
	run(1, "has no key", "get", catalog, "names", "nobody")
	if out := run(0, "", "scan", catalog, "names", "--from", "name10", "--limit",
		"2"); out != "name10\ttext\nname11\ttext\n" {
		t.Errorf("%q", out)
	}
	whole := 0
	for range 5 {
		code, out, stderr := b.run("dump", catalog, "money")
		if code == 1 && strings.Contains(stderr, "others have written to what is read") &&
			strings.Contains(stderr, "txnode backup "+catalog) && out == "" {
			continue
		}
		sum, seen := int64(0), map[uint64]bool{}
		for l := range strings.Lines(out) {
			var r struct {
				Key   uint64
				Value int64
			}
			if err := json.Unmarshal([]byte(l), &r); err != nil || seen[r.Key] {
				t.Fatalf("%s: %v", l, err)
			}
			seen[r.Key] = true
			sum += r.Value
		}
		if code != 0 || len(seen) != accounts || sum != accounts*each {
			t.Errorf("exit code %d, %d records, sum %d: %s", code, len(seen), sum, stderr)
		}
		whole++
	}
	t.Logf("%d dumps were whole", whole)
	close(quit)
	busy.Wait()
	run(0, `{"table":"money","key":49`, "dump", catalog)
	run(2, "inspect shows the bytes of a directory", "inspect", "region", catalog, "0")
	if m := db.Metrics(); m.Failed != 0 {
		t.Errorf("%d transactions have failed", m.Failed)
	}
}
